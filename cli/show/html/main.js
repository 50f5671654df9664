/* main.js: tabs, what is lit, mouse and keys. */

/* ---- all together ---- */

const TABS =
    [
        ['kernels', 'Kernels', drawKernels], ['memory', 'Memory', drawMemory],
        ['why', 'Not fused', drawWhy], ['time', 'Time', drawTime],
        ['changes', 'Changes', drawChanges]
    ].filter(t => t[0] !== 'time' || plans.some(p => p.measured))
        .filter(t => t[0] !== 'changes' || plans.length > 1);

function setTab(name) {
    now.tab = name;
    drawRight();
    paintLit({});
}

function drawRight() {
    const tabs = TABS.filter(t => t[0] !== 'time' || plan().measured);
    if (!tabs.some(t => t[0] === now.tab)) now.tab = 'kernels';
    clear($('tabs')).append(...tabs.map(
        t =>
            el('button', {
                type: 'button',
                role: 'tab',
                'aria-selected': t[0] === now.tab,
                'data-tab': t[0],
                on: {click: () => setTab(t[0])}
            },
               t[1])));
    const view = clear($('view'));
    view.className = 'pane ' + now.tab;
    view.removeEventListener('click', whyClick);
    view.scrollTop = 0;
    if (program()) tabs.find(t => t[0] === now.tab)[2](view);
}

function draw() {
    drawTop();
    drawStrip();
    drawLeft();
    drawRight();
    paintLit({});
}

function status(l) {
    const s = now.sel, p = program(), out = $('status');
    if (!out) return;
    if (!s) {
        out.textContent = 'Choose a line, an op or a kernel.   ? shows the keys';
        return;
    }
    const what = s.kind === 'line' ? s.at :
        s.kind === 'node'          ? '%' + s.name :
        s.kind === 'kernel'        ? kernel(s.k).name :
                                     '#' + s.i + ' ' + kernel(p.launches[s.i].kernel).name;
    out.textContent = s.kind === 'line' || s.kind === 'node' ?
        what + ' → ' +
            (l.kernels.size ? plural(l.kernels.size, 'kernel') + ', ' + l.launches.size +
                     (l.launches.size === 1 ? ' launch' : ' launches') + ' of ' + p.name :
                 l.views ? 'no kernel: a view is strides, which its readers take' :
                           'no kernel of ' + p.name) :
        what + ' ← ' + (l.lines.size ? plural(l.lines.size, 'line') : 'no line of the model') +
            ', ' + plural(l.nodes.size, 'op') + ', ' + l.launches.size +
            (l.launches.size === 1 ? ' launch' : ' launches');
}

function paintLit(how) {
    const l = lit(), any = !!now.sel;
    document.body.classList.toggle('lit', any);
    for (const x of document.querySelectorAll('#source .line')) {
        const on = x.dataset.at ? l.lines.has(x.dataset.at) : l.nodes.has(x.dataset.node);
        x.classList.toggle('on', on);
    }
    for (const x of document.querySelectorAll('#view .kernel'))
        x.classList.toggle('on', l.kernels.has(+x.dataset.kernel));
    for (const x of document.querySelectorAll('#view .opnode'))
        x.classList.toggle('on', now.sel && now.sel.kind === 'node' && l.nodes.has(x.dataset.node));
    for (const x of document.querySelectorAll('#strip .cell'))
        x.classList.toggle('on', l.launches.has(+x.dataset.launch));
    for (const x of document.querySelectorAll('#roofline .dot, .times-table tr.pickable'))
        x.classList.toggle('on', l.kernels.has(+x.dataset.kernel));
    paintMemory(l);
    status(l);
    const first = sel => document.querySelector(sel);
    if (how.scrollKernel) {
        const x = first('#view .kernel.on');
        if (x) x.scrollIntoView({block: 'nearest'});
    }
    if (how.scrollLine && !first('#source .line.on')) showFileOf(l);
    if (how.scrollLine) {
        const x = first('#source .line.on');
        if (x) x.scrollIntoView({block: 'nearest'});
    }
    wires();
}

/* The lines that are lit may be of another file than the one shown. */
function showFileOf(l) {
    const files = plan().files.filter(f => !/^config/.test(f.name));
    const i = files.findIndex(f => [...l.lines].some(at => at.startsWith(f.name + ':')));
    if (i >= 0 && i !== now.file) {
        now.file = i;
        drawLeft();
        paintLit({});
    }
}

function paintMemory(l) {
    const bands = $('membands'), p = program();
    if (!bands) return;
    const mem = plan().memory.find(m => m.program === p.name),
          all = document.querySelectorAll('#memory .buf');
    const names = new Set(l.nodes);
    if (plan().targets[0] === target())
        for (const i of l.launches)
            for (const x of p.launches[i].pieces)
                for (const b of x.buffers)
                    if (b[1] === 'value' && now.sel.kind !== 'node') names.add(b[3]);
    all.forEach((r, i) => r.classList.toggle('on', names.has(mem.buffers[i][4])));
}

/* Curves from the lines that are lit to the kernels that are. */
let waiting = false;
function wires() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
        waiting = false;
        drawWires();
    });
}
function drawWires() {
    const box = clear($('wires')), l = lit(), p = program();
    if (!now.sel || now.tab !== 'kernels' || !p || !l.kernels.size) return;
    const m = $('main').getBoundingClientRect(), left = $('source').getBoundingClientRect(),
          right = $('view').getBoundingClientRect();
    box.setAttribute('viewBox', `0 0 ${m.width} ${m.height}`);
    const from = new Map(), to = new Map();
    for (const x of document.querySelectorAll('#source .line.on')) {
        const r = x.getBoundingClientRect(), y = (r.top + r.bottom) / 2;
        if (y > left.top && y < left.bottom) from.set(x.dataset.at || x.dataset.node, y - m.top);
    }
    for (const x of document.querySelectorAll('#view .kernel.on')) {
        const r = x.firstChild.getBoundingClientRect(), y = (r.top + r.bottom) / 2;
        if (y > right.top && y < right.bottom) to.set(+x.dataset.kernel, y - m.top);
    }
    const x0 = left.right - m.left, x1 = right.left - m.left + 2, done = new Set();
    for (const i of l.launches)
        for (const n of nodesOf(p, p.launches[i])) {
            const k = p.launches[i].kernel, a = from.has(place(n)) ? place(n) : n.name,
                  key = a + ' ' + k;
            if (n.cls === 1 || !from.has(a) || !to.has(k) || done.has(key)) continue;
            done.add(key);
            const y0 = from.get(a), y1 = to.get(k), d = (x1 - x0) * 0.5;
            box.append(svg('path', {
                d: `M${x0} ${y0}C${x0 + d} ${y0} ${x1 - d} ${y1} ${x1} ${y1}`,
                class: 'wire s-' + kernel(k).kind
            }));
        }
}

/* ---- mouse and keys ---- */

$('source').addEventListener('click', e => {
    const x = e.target.closest('.line.op');
    now.pane = 'left';
    if (!x) return select(null);
    const same = now.sel &&
        (now.sel.at === x.dataset.at && x.dataset.at ||
         now.sel.name === x.dataset.node && x.dataset.node);
    if (now.tab !== 'kernels' && now.tab !== 'memory') setTab('kernels');
    select(
        same             ? null :
            x.dataset.at ? {kind: 'line', at: x.dataset.at} :
                           {kind: 'node', name: x.dataset.node},
        {scrollKernel: true});
});
$('view').addEventListener('click', e => {
    const x = e.target.closest('.kernel');
    now.pane = 'right';
    if (!x || e.target.closest('.detail')) return;
    const k = +x.dataset.kernel, was = now.sel && now.sel.kind === 'kernel' && now.sel.k === k;
    select({kind: 'kernel', k}, {scrollLine: true});
    if (was || now.open !== k) openKernel(k);
    wires();
});
for (const id of ['source', 'view']) $(id).addEventListener('scroll', wires, {passive: true});
addEventListener('resize', wires);
$('search').addEventListener('input', e => {
    now.find = e.target.value;
    if (now.tab !== 'kernels') now.tab = 'kernels';
    now.open = null;
    drawRight();
    paintLit({});
});

function step(by) {
    if (now.pane === 'left') {
        const rows = [...document.querySelectorAll('#source .line.op')],
              i = rows.findIndex(x => x.classList.contains('on'));
        const at = x => x.dataset.at || x.dataset.node;
        let j = i < 0 ? (by > 0 ? 0 : rows.length - 1) : i + by;
        while (rows[j] && i >= 0 && at(rows[j]) === at(rows[i])) j += by;
        const x = rows[j];
        if (!x) return;
        select(
            x.dataset.at ? {kind: 'line', at: x.dataset.at} : {kind: 'node', name: x.dataset.node},
            {scrollKernel: true});
        x.scrollIntoView({block: 'nearest'});
    } else if (now.tab === 'kernels') {
        const rows = [...document.querySelectorAll('#view .kernel')],
              k = now.sel &&
            (now.sel.kind === 'kernel'     ? now.sel.k :
                 now.sel.kind === 'launch' ? program().launches[now.sel.i].kernel :
                                             null);
        const i = rows.findIndex(x => +x.dataset.kernel === k),
              j = i < 0 ? (by > 0 ? 0 : rows.length - 1) : i + by;
        if (!rows[j]) return;
        select(
            {kind: 'kernel', k: +rows[j].dataset.kernel}, {scrollKernel: true, scrollLine: true});
        if (now.open !== null) {
            openKernel(+rows[j].dataset.kernel, true);
            rows[j].scrollIntoView({block: 'nearest'});
            wires();
        }
    } else
        $('view').scrollBy(0, by * 60);
}

function enter() {
    const p = program(), s = now.sel;
    if (!s || !p) return;
    const k = s.kind === 'kernel' ? s.k :
        s.kind === 'launch'       ? p.launches[s.i].kernel :
                                    [...lit().kernels][0];
    if (k === undefined) return;
    if (now.tab !== 'kernels') setTab('kernels');
    if (s.kind === 'line' || s.kind === 'node') {
        now.pane = 'right';
        select({kind: 'kernel', k}, {scrollKernel: true});
        openKernel(k, true);
    } else
        openKernel(k);
    const row = document.querySelector(`#view .kernel[data-kernel="${k}"]`);
    if (row) row.scrollIntoView({block: now.open === k ? 'start' : 'nearest'});
    wires();
}

const KEYS = [
    ['j  k', 'next, previous kernel or line'], ['h  l', 'to the model, to the kernels'],
    ['Enter', 'open the kernel'], ['/', 'search kernels, ops, lines'],
    ['1 – 5', 'kernels, memory, not fused, …'], ['p', 'next program'], ['t', 'GPU or CPU'],
    ['Esc', 'nothing is lit'], ['?', 'these keys']
];
function help() {
    const old = document.querySelector('dialog');
    if (old) {
        old.remove();
        return;
    }
    const d =
        el('dialog', {on: {click: () => d.remove()}}, el('h2', {}, 'Keys'),
           el('dl', {class: 'facts'},
              KEYS.map(([k, t]) => [el('dt', {}, el('kbd', {}, k)), el('dd', {}, t)])));
    document.body.append(d);
    d.show();
}

addEventListener('keydown', e => {
    const typing = e.target === $('search');
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (typing && e.key === 'Enter') {
        const x = document.querySelector('#view .kernel');
        e.target.blur();
        now.pane = 'right';
        if (x) select({kind: 'kernel', k: +x.dataset.kernel}, {scrollLine: true});
    } else if (typing && e.key === 'Escape') {
        e.target.value = now.find = '';
        e.target.blur();
        drawRight();
        paintLit({});
    } else if (!typing) {
        const act = {
            j: () => step(1),
            k: () => step(-1),
            ArrowDown: () => step(1),
            ArrowUp: () => step(-1),
            Enter: enter,
            h: () => {
                now.pane = 'left';
            },
            l: () => {
                now.pane = 'right';
            },
            '?': help,
            '/': () => $('search').select(),
            p: () => setProgram((now.program + 1) % target().programs.length),
            t: () => plan().targets.length > 1 && setTarget(1 - now.target),
            Escape: () => {
                const d = document.querySelector('dialog');
                if (d)
                    d.remove();
                else
                    select(null);
            }
        }[e.key];
        if (act) {
            act();
            e.preventDefault();
        } else if (/^[1-5]$/.test(e.key)) {
            const t = $('tabs').children[+e.key - 1];
            if (t) setTab(t.dataset.tab);
        }
    }
});

plans.forEach(prepare);
if (plans.length > 1) now.tab = 'changes';
if (plans[0].measured) {
    now.target = Math.max(0, plans[0].targets.findIndex(t => t.name === plans[0].measured.target));
    const m = plans[0].measured.programs[plans[0].measured.programs.length > 2 ? 2 : 0];
    now.program = Math.max(0, target().programs.findIndex(p => m && p.name === m.program));
}
draw();
