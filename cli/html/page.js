'use strict';
/* page.js: draws the page from its data.  Whatever comes from the plan becomes text of a node or
 * the value of a known attribute, never markup. */

const plans = JSON.parse(document.getElementById('data').textContent);
const $ = id => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';

/* ---- elements ---- */

function fill(node, attrs, children) {
    for (const [k, v] of Object.entries(attrs || {}))
        if (k === 'on') for (const [name, f] of Object.entries(v)) node.addEventListener(name, f);
        else if (v !== null && v !== undefined && v !== false) node.setAttribute(k, v);
    for (const c of children.flat(9))
        if (c !== null && c !== undefined && c !== false) node.append(c);
    return node;
}
const el = (tag, attrs, ...children) => fill(document.createElement(tag), attrs, children);
const svg = (tag, attrs, ...children) => fill(document.createElementNS(SVG, tag), attrs, children);
const clear = node => (node.replaceChildren(), node);

/* ---- numbers ---- */

function si(x, unit) {
    const step = ['', 'k', 'M', 'G', 'T', 'P'];
    let i = 0;
    while (Math.abs(x) >= 999.5 && i < 5) { x /= 1000; i++; }
    const s = x === 0 ? '0' : Math.abs(x) >= 99.5 || (i === 0 && x === Math.round(x)) ? x.toFixed(0)
        : Math.abs(x) >= 9.95 ? x.toFixed(1) : x.toFixed(2);
    return s + ' ' + step[i] + unit;
}
const bytes = x => si(x, 'B');
const flop = x => si(x, 'FLOP');
const share = x => (100 * x).toFixed(x < 0.0995 ? 1 : 0) + '%';
const msText = x => x >= 100 ? x.toFixed(0) + ' ms' : x >= 1 ? x.toFixed(2) + ' ms'
    : (1000 * x).toFixed(x >= 0.1 ? 0 : 1) + ' µs';
const count = n => String(n).replace(/\B(?=(\d{3})+$)/g, '\u202f');
const kib = x => x >= 1024 ? +(x / 1024).toFixed(1) + ' KiB' : x + ' B';
const plural = (n, word) => n + ' ' + word + (n === 1 ? '' : 's');

/* ---- what a kernel is ---- */

const KINDS = [
    ['update', 'optimizer', /adamw|grad_norm|add_grads|muon|sgd/],
    ['loss', 'loss', /ce_|_ce|loss|^ce$/],
    ['attention', 'attention', /attention|qkv_att/],
    ['gemm', 'GEMM', /matmul|gemm|gemv|transpose/],
    ['norm', 'norm', /norm/],
    ['reduce', 'sums, index, sample', /colsum|sum|scatter|bucket|route|sample|gather|max/],
    ['map', 'elementwise', /./]
];
const kindOf = title => KINDS.find(k => k[2].test(title.split(' + ')[0]))[0];

/* ---- the data, joined ---- */

function prepare(plan) {
    const graph = new Map();
    for (const g of plan.graphs) {
        g.nodes = g.nodes.map(n => ({ name: n[0], op: n[1], type: n[2], ins: n[3], group: n[4],
                                      cls: n[5], file: n[6], line: n[7] }));
        g.byGroup = new Map();
        g.byName = new Map();
        for (const n of g.nodes) {
            g.byName.set(n.name, n);
            if (!n.group) continue;
            if (!g.byGroup.has(n.group)) g.byGroup.set(n.group, []);
            g.byGroup.get(n.group).push(n);
        }
        graph.set(g.name, g);
    }
    plan.model_graph = plan.graphs[0];
    const forward = new Set(plan.model_graph ? plan.model_graph.nodes.map(n => n.name) : []);
    for (const t of plan.targets) {
        for (const k of t.kernels) {
            k.kind = kindOf(k.title);
            k.text = k.text || '';
        }
        for (const p of t.programs) {
            p.graph = graph.get(p.name);
            p.of = new Map();       /* kernel -> its launches */
            p.byGroup = new Map();  /* group -> launches */
            p.launches.forEach((l, i) => {
                if (!p.of.has(l.kernel)) p.of.set(l.kernel, []);
                p.of.get(l.kernel).push(i);
                l.groups = [...new Set(l.pieces.map(x => x.group).filter(Boolean))];
                for (const g of l.groups) {
                    if (!p.byGroup.has(g)) p.byGroup.set(g, []);
                    p.byGroup.get(g).push(i);
                }
            });
            p.order = [...p.of.keys()];
            p.measured = plan.measured && plan.measured.target === t.name
                ? plan.measured.programs.find(m => m.program === p.name) : null;
        }
    }
    plan.forward = forward;
    return plan;
}

const nodesOf = (prog, l) =>
    prog.graph ? l.groups.flatMap(g => prog.graph.byGroup.get(g) || []).filter(n => n.cls !== 2) : [];
const place = n => n.file ? n.file + ':' + n.line : '';

/* ---- state ---- */

const now = { plan: 0, target: 0, program: 0, tab: 'kernels', file: 0, sel: null, open: null,
              launch: 0, pane: 'right', text: 'own', find: '' };
const plan = () => plans[now.plan];
const target = () => plan().targets[now.target];
const program = () => target() && target().programs[now.program];
const kernel = k => target().kernels[k];

/* What is lit: lines "file:line", names of nodes, kernels, launches. */
function lit() {
    const s = now.sel, p = program(), out = { lines: new Set(), nodes: new Set(), kernels: new Set(),
                                             launches: new Set(), views: 0 };
    if (!s || !p) return out;
    const launchIn = i => {
        const l = p.launches[i];
        out.launches.add(i);
        out.kernels.add(l.kernel);
        for (const n of nodesOf(p, l)) {
            if (s.kind === 'kernel' || s.kind === 'launch') out.nodes.add(n.name);
            if (n.file && (s.kind === 'kernel' || s.kind === 'launch')) out.lines.add(place(n));
        }
    };
    const nodeIn = n => {
        out.nodes.add(n.name);
        if (n.cls === 2 && !p.byGroup.has(n.group)) out.views++;
        for (const i of p.byGroup.get(n.group) || []) launchIn(i);
    };
    if (s.kind === 'line') {
        out.lines.add(s.at);
        for (const n of p.graph ? p.graph.nodes : []) if (place(n) === s.at) nodeIn(n);
    } else if (s.kind === 'node') {
        const n = p.graph && p.graph.byName.get(s.name);
        if (n) {
            nodeIn(n);
            if (n.file) out.lines.add(place(n));
        } else out.nodes.add(s.name);
    } else if (s.kind === 'kernel') (p.of.get(s.k) || []).forEach(launchIn);
    else if (s.kind === 'launch') launchIn(s.i);
    return out;
}

function select(sel, how) {
    now.sel = sel;
    if (sel && sel.kind === 'kernel') now.launch = 0;
    if (sel && sel.kind === 'launch') now.launch = program().of.get(program().launches[sel.i].kernel)
        .indexOf(sel.i);
    paintLit(how || {});
}

/* ---- the top ---- */

function drawTop() {
    const p = plan(), t = target();
    document.title = plans.map(x => x.name).join(' and ') + ' · tgc';
    $('title').textContent = p.model || p.name;
    $('facts').textContent = [p.name, p.dtype, p.params && si(p.params, '').replace(' ', '') + ' parameters',
        ...p.targets.map(x => plural(x.kernels.length, 'kernel') + (x.name === 'cuda' ? ' in CUDA'
            : ' in C'))].filter(Boolean).join(' · ');
    const choose = (name, items, at, set) => items.length < 2 && name !== 'program' ? null
        : el('div', { class: 'choice', role: 'group', 'aria-label': name },
            items.map((x, i) => el('button', { 'aria-pressed': i === at, type: 'button',
                'data-choice': name, title: x[1], on: { click: () => set(i) } }, x[0])));
    clear($('choices')).append(...[
        choose('plan', plans.map((x, i) => ['AB'[i] + '  ' + x.name, 'this plan']), now.plan,
            i => { now.plan = i; restart(); }),
        choose('target', p.targets.map(x => [x.name === 'cuda' ? 'GPU' : 'CPU',
            'kernels of ' + x.name]), now.target, i => { setTarget(i); }),
        t && choose('program', t.programs.map(x => [x.name, plural(x.launches.length, 'launch')
            .replace('launchs', 'launches') + ', up to ' + x.B + ' x ' + x.T + ' tokens']),
            now.program, setProgram)
    ].filter(Boolean));
}

function restart() {
    const name = program() && program().name;
    now.target = Math.min(now.target, plan().targets.length - 1);
    now.program = Math.max(0, target().programs.findIndex(x => x.name === name));
    now.file = 0;
    now.sel = now.open = null;
    draw();
}
function setTarget(i) {
    const name = program().name, sel = now.sel;
    now.target = i;
    now.program = Math.max(0, target().programs.findIndex(x => x.name === name));
    now.open = null;
    now.sel = sel && (sel.kind === 'line' || sel.kind === 'node') ? sel : null;
    draw();
}
function setProgram(i) {
    const sel = now.sel;
    now.program = i;
    now.open = null;
    now.sel = sel && (sel.kind === 'line' || sel.kind === 'node') ? sel : null;
    draw();
}

/* ---- the strip: every launch, in order ---- */

function drawStrip() {
    const p = program(), t = target(), W = 1000, H = 22;
    if (!p) return;
    const ms = p.measured && p.measured.ms;
    const weight = i => ms ? ms[i] : 1, total = p.launches.reduce((a, l, i) => a + weight(i), 0) || 1;
    let x = 0;
    const cells = p.launches.map((l, i) => {
        const w = weight(i) / total * W, k = t.kernels[l.kernel];
        const r = svg('rect', { x: x.toFixed(3), y: 0, width: Math.max(w - (w > 4 ? 0.8 : w * 0.15), 0.3)
            .toFixed(3), height: H, class: 'cell c-' + k.kind, 'data-launch': i });
        x += w;
        return r;
    });
    const used = KINDS.filter(c => p.order.some(k => t.kernels[k].kind === c[0]));
    clear($('strip')).append(
        svg('svg', { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: 'none', role: 'img',
            'aria-label': 'launches in order', on: {
                click: e => {
                    const i = e.target.getAttribute('data-launch');
                    if (i !== null) { now.tab === 'kernels' || setTab('kernels');
                        select({ kind: 'launch', i: +i }, { scrollKernel: true, scrollLine: true }); }
                },
                mousemove: e => {
                    const i = e.target.getAttribute('data-launch');
                    tip(e, i === null ? null : launchTip(+i));
                }, mouseleave: () => tip(null) } }, cells),
        el('div', { class: 'legend' },
            el('span', { class: 'count' }, p.launches.length + (p.launches.length === 1 ? ' launch'
                : ' launches') + ', ' + plural(p.order.length, 'different kernel')
                + (ms ? ', ' + msText(total) + ' (width is time)' : '')),
            used.map(c => el('span', { class: 'key' }, el('i', { class: 'swatch c-' + c[0] }), c[1])),
            el('output', { id: 'status' })));
}

function launchTip(i) {
    const p = program(), l = p.launches[i], k = kernel(l.kernel), outs = l.pieces.flatMap(x =>
        x.buffers.filter(b => b[0] && b[1] !== 'scratch').map(b => b[3]));
    const ms = p.measured && p.measured.ms[i];
    return '#' + i + '  ' + k.name + (outs.length ? '\nwrites ' + outs.slice(0, 4).join(', ') : '')
        + (ms !== null && ms !== undefined ? '\n' + msText(ms) : '');
}

function tip(e, text) {
    const t = $('tip');
    t.style.display = e && text ? 'block' : 'none';
    if (!e || !text) return;
    t.textContent = text;
    const w = t.offsetWidth, h = t.offsetHeight;
    t.style.left = Math.max(4, Math.min(e.clientX + 12, innerWidth - w - 8)) + 'px';
    t.style.top = (e.clientY + 18 + h > innerHeight ? e.clientY - h - 10 : e.clientY + 18) + 'px';
}

/* ---- left: the model ---- */

/* Kernels of the program by line, in the order of their first launch. */
function kernelsByLine() {
    const p = program(), out = new Map();
    if (!p || !p.graph) return out;
    const seen = new Map();
    for (const n of p.graph.nodes) {
        if (!n.file || n.cls === 1) continue;
        for (const i of p.byGroup.get(n.group) || []) {
            const at = place(n), k = p.launches[i].kernel;
            if (!seen.has(at)) { seen.set(at, new Set()); out.set(at, []); }
            if (!seen.get(at).has(k)) { seen.get(at).add(k); out.get(at).push([i, k]); }
        }
    }
    for (const list of out.values()) list.sort((a, b) => a[0] - b[0]);
    return out;
}

const LUA = /(--\[\[[\s\S]*?\]\]|--[^\n]*)|("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|\b(and|break|do|else|elseif|end|false|for|function|if|in|local|nil|not|or|repeat|return|then|true|until|while)\b|\b(\d[\w.]*)/g;
const CC = /(\/\/[^\n]*|\/\*[\s\S]*?\*\/)|("(?:[^"\\\n]|\\.)*")|\b(const|return|if|else|for|while|struct|typedef|static|void|int|long|float|double|unsigned|char|bool|extern|auto|template|bf16|f16|__global__|__device__|__launch_bounds__|__shared__|__syncthreads|size_t)\b|(^[ \t]*#[^\n]*|\b\d[\w.]*)/gm;

function paint(text, rule) {
    const out = [];
    let at = 0;
    for (const m of text.matchAll(rule)) {
        if (m.index > at) out.push(text.slice(at, m.index));
        const cls = m[1] ? 'hc' : m[2] ? 'hs' : m[3] ? 'hk' : 'hn';
        out.push(el('span', { class: cls }, m[0]));
        at = m.index + m[0].length;
    }
    if (at < text.length) out.push(text.slice(at));
    return out;
}

function marks(list) {
    const most = 7;
    return el('span', { class: 'marks' }, list.slice(0, most).map(([, k]) =>
        el('i', { class: 'swatch c-' + kernel(k).kind, 'data-kernel': k })),
        list.length > most ? el('small', {}, '+' + (list.length - most)) : null);
}

function sourceLines(file) {
    const by = kernelsByLine(), used = new Set();
    for (const n of plan().model_graph.nodes) if (n.file === file.name) used.add(n.line);
    for (const at of by.keys()) if (at.startsWith(file.name + ':')) used.add(+at.slice(file.name.length + 1));
    return file.text.replace(/\n$/, '').split('\n').map((text, i) => {
        const at = file.name + ':' + (i + 1), has = used.has(i + 1);
        return el('div', { class: 'line' + (has ? ' op' : ''), 'data-at': at },
            el('span', { class: 'no' }, String(i + 1)), marks(by.get(at) || []),
            el('code', {}, indent(text), text.length < 400 ? paint(text.trimStart(), LUA) : text.trimStart()));
    });
}

/* Half as wide as it is: eight blanks of a deep block leave no room for the rest. */
const indent = text => el('span', { class: 'indent' }, text.slice(0, text.length - text.trimStart().length));

/* Without the text: the ops of each line, those of equal layers once. */
function opLines(file) {
    const by = kernelsByLine(), lines = new Map();
    for (const n of plan().model_graph.nodes) {
        if (n.file !== file || n.cls === 1) continue;
        if (!lines.has(n.line)) lines.set(n.line, new Map());
        const plain = n.name.replace(/\d+/g, '*') + ' ' + n.op, m = lines.get(n.line);
        if (m.has(plain)) m.get(plain).n++;
        else m.set(plain, { node: n, n: 1 });
    }
    return [...lines.keys()].sort((a, b) => a - b).flatMap(line => [...lines.get(line).values()]
        .map((x, i) => {
            const at = file + ':' + line, n = x.node;
            return el('div', { class: 'line op', 'data-at': at },
                el('span', { class: 'no' }, i ? '' : String(line)),
                i ? el('span', { class: 'marks' }) : marks(by.get(at) || []),
                el('code', {}, '%' + n.name + ' = ', el('b', {}, n.op), ' ', el('span', { class: 'hc' },
                    n.ins.map(j => '%' + plan().model_graph.nodes[j].name).join(', ')),
                    x.n > 1 ? el('span', { class: 'times' }, ' ×' + x.n) : null));
        }));
}

/* A graph without lines: its ops, a row each. */
function graphLines() {
    const g = program() && program().graph || plan().model_graph;
    return g.nodes.filter(n => n.cls !== 1).map(n => {
        const list = program() ? (program().byGroup.get(n.group) || []).map(i =>
            [i, program().launches[i].kernel]) : [];
        return el('div', { class: 'line op', 'data-node': n.name },
            el('span', { class: 'no' }), marks(list.filter((x, i) => !i || list[i - 1][1] !== x[1])),
            el('code', {}, '%' + n.name + ' = ', el('b', {}, n.op), ' ', el('span', { class: 'hc' },
                n.ins.map(j => '%' + g.nodes[j].name).join(', ') + ' : ' + n.type)));
    });
}

function drawLeft() {
    const files = [...plan().files.filter(f => !/^config/.test(f.name))];
    const pages = [...files.map(f => f.name), 'graph'];
    now.file = Math.min(now.file, pages.length - 1);
    clear($('files')).append(...pages.map((name, i) => el('button', { type: 'button', role: 'tab',
        'aria-selected': i === now.file, 'data-file': name,
        on: { click: () => { now.file = i; drawLeft(); paintLit({}); } } }, name)));
    const box = clear($('source')), f = files[now.file];
    if (!f) box.append(...graphLines());
    else if (f.text !== undefined) box.append(...sourceLines(f));
    else box.append(el('p', { class: 'note' }, 'A plan does not hold its model’s file. These are the ops that its lines '
        + 'make, equal layers once; `tgc dump MODEL --html` shows the file itself.'), ...opLines(f.name));
}

/* ---- right: kernels ---- */

const opsText = (p, l) => {
    const ops = nodesOf(p, l).filter(n => n.cls === 0).map(n => n.op), out = [];
    for (const o of ops) {
        const last = out[out.length - 1];
        if (last && last[0] === o) last[1]++;
        else out.push([o, 1]);
    }
    return out;
};

/* The layers of launches: "blk0 … blk11", or nothing. */
function layersOf(p, list) {
    const found = [];
    for (const i of list)
        for (const n of nodesOf(p, p.launches[i])) {
            const m = /^([A-Za-z_.]*?\d+)\./.exec(n.name);
            if (m) { if (!found.includes(m[1])) found.push(m[1]); break; }
        }
    return found.length > 1 ? found[0] + ' … ' + found[found.length - 1] : found.join();
}

function linesOf(p, list) {
    const out = new Map();
    for (const i of list) for (const n of nodesOf(p, p.launches[i]))
        if (n.file && n.cls === 0) out.set(place(n), n);
    const by = new Map();
    for (const n of out.values()) by.set(n.file, (by.get(n.file) || []).concat(n.line));
    return [...by].map(([f, l]) => f + ':' + l.sort((a, b) => a - b).join(','));
}

function workOf(t, p) {
    const sum = { flops: 0, bytes: 0, ms: 0, most: {} };
    for (const l of p.launches) { sum.flops += t.kernels[l.kernel].flops; sum.bytes += t.kernels[l.kernel].bytes; }
    if (p.measured) sum.ms = p.measured.ms.reduce((a, b) => a + b, 0);
    for (const [k, list] of p.of) for (const [what, x] of [['flops', t.kernels[k].flops * list.length],
        ['bytes', t.kernels[k].bytes * list.length], ['ms', timeOf(p, k)]]) sum.most[what] = Math.max(sum.most[what] || 1e-30, x);
    return sum;
}
const timeOf = (p, k) => p.measured ? p.of.get(k).reduce((a, i) => a + p.measured.ms[i], 0) : 0;
/* A device whose ceilings are not known has the best that a launch of this run reached. */
function ceilings(m) {
    if (m.bytes_per_s || m.best) return m;
    m.best = true;
    for (const p of target().programs) if (p.measured) p.launches.forEach((l, i) => {
        const s = p.measured.ms[i] / 1000, k = kernel(l.kernel);
        if (s < 2e-5) return;
        m.bytes_per_s = Math.max(m.bytes_per_s, k.bytes / s);
        m.flops_per_s = Math.max(m.flops_per_s, k.flops / s);
    });
    return m;
}
function ceilingOf(k, s) {
    const m = ceilings(plan().measured), work = m.flops_per_s > 0 ? k.flops / m.flops_per_s : 0,
        moved = m.bytes_per_s > 0 ? k.bytes / m.bytes_per_s : 0;
    return s > 0 ? Math.max(work, moved) / s : 0;
}

function bar(part, cls) {
    return svg('svg', { class: 'meter', viewBox: '0 0 100 6', preserveAspectRatio: 'none',
        'aria-hidden': 'true' },
        svg('rect', { width: 100, height: 6, class: 'track' }),
        svg('rect', { width: Math.max(0, Math.min(100, 100 * part)).toFixed(2), height: 6, class: cls }));
}

function kernelRow(t, p, k, sum) {
    const K = t.kernels[k], list = p.of.get(k), n = list.length;
    const f = K.flops * n / sum.most.flops, b = K.bytes * n / sum.most.bytes, ms = timeOf(p, k);
    const where = linesOf(p, list), layers = layersOf(p, list);
    return el('article', { class: 'kernel', 'data-kernel': k, tabindex: -1 },
        el('div', { class: 'row' },
            el('i', { class: 'edge c-' + K.kind }),
            el('div', { class: 'what' },
                el('div', { class: 'name' }, K.name, n > 1 ? el('span', { class: 'times' }, ' ×' + n) : null,
                    layers ? el('span', { class: 'dim' }, '  ' + layers) : null),
                el('div', { class: 'ops' }, p.launches[list[0]].groups.length
                    ? opsText(p, p.launches[list[0]]).map(([o, c], i) => [i ? ' · ' : '', el('b', {}, o),
                        c > 1 ? '×' + c : '']) : K.title,
                    where.length ? el('span', { class: 'where' }, '  ' + where.join('  ')) : null)),
            p.measured
                ? [el('div', { class: 'num' }, msText(ms), bar(ms / sum.most.ms, 'fill c-' + K.kind)),
                    el('div', { class: 'num' }, share(ceilingOf(K, ms / n / 1000)), el('small', {}, 'of ceiling'))]
                : [el('div', { class: 'num' }, K.flops ? flop(K.flops * n) : '–', bar(f, 'fill flops')),
                    el('div', { class: 'num' }, bytes(K.bytes * n), bar(b, 'fill bytes'))],
            el('div', { class: 'num' }, K.bytes && K.flops ? (K.flops / K.bytes).toPrecision(3).replace(/\.?0+$/, '')
                .replace(/e\+?/, 'e') : '–', el('small', {}, 'FLOP/B'))));
}

function drawKernels(view) {
    const t = target(), p = program();
    const find = now.find.trim().toLowerCase(), sum = workOf(t, p);
    const rows = p.order.filter(k => !find || haystack(t, p, k).includes(find));
    view.append(...rows.map(k => kernelRow(t, p, k, sum)));
    if (!rows.length) view.append(el('p', { class: 'note' }, find ? 'No kernel, op or line of ' + p.name
        + ' has “' + now.find + '”.' : 'No kernels.'));
    if (now.open !== null) openKernel(now.open, true);
}

function haystack(t, p, k) {
    const K = t.kernels[k];
    p.hay = p.hay || new Map();
    if (!p.hay.has(k)) p.hay.set(k, [K.name, K.title, ...linesOf(p, p.of.get(k)), ...p.of.get(k).flatMap(i =>
        nodesOf(p, p.launches[i]).flatMap(n => [n.name, n.op, place(n)]))].join(' ').toLowerCase());
    return p.hay.get(k);
}

/* Kernels of the other target that hold the same nodes. */
function twins(k) {
    const other = plan().targets.find(x => x !== target()), p = program();
    const q = other && other.programs.find(x => x.name === p.name);
    if (!q) return [];
    const groups = new Set(p.of.get(k).slice(0, 1).flatMap(i => p.launches[i].groups)), out = new Set();
    for (const g of groups) for (const i of q.byGroup.get(g) || []) out.add(q.launches[i].kernel);
    if (!p.graph) for (const l of q.launches) if (other.kernels[l.kernel].title.split('_')[0]
        === kernel(k).title.split('_')[0]) out.add(l.kernel);
    return [...out].map(x => other.kernels[x]);
}

const codeBox = text => el('pre', { class: 'code', tabindex: 0 }, el('code', {}, paint(text.replace(/\t/g, '    '), CC)));

function detail(k) {
    const t = target(), p = program(), K = t.kernels[k], list = p.of.get(k);
    const at = list[Math.min(now.launch, list.length - 1)], l = p.launches[at];
    const other = twins(k), gpu = t.name === 'cuda';
    const fact = (name, ...text) => [el('dt', {}, name), el('dd', {}, text)];
    const form = (grid, blocks, threads, smem, more) => [el('b', {}, (blocks >= 0 ? count(blocks)
        + (blocks === 1 ? ' block × ' : ' blocks × ') : '') + threads), ' threads', smem ? ', ' + kib(smem) + ' shared' : ', no shared memory', more || '',
        String(blocks) === grid ? null : el('span', { class: 'dim' }, '  grid ' + grid)];
    const ms = p.measured && timeOf(p, k) / list.length;
    const facts = el('dl', { class: 'facts' },
        gpu ? fact('launch', form(l.grid, l.blocks, K.threads, K.smem))
            : fact('launch', 'its own loop over tiles, on all threads'),
        gpu && l.grid90 ? fact('on sm_90a', form(l.grid90, l.blocks90, K.threads90 || K.threads, K.smem90 || K.smem,
            K.cluster90 > 1 ? ', clusters of ' + K.cluster90 : '')) : null,
        gpu && K.early ? fact('overlap', 'may start before the launch before has ended (PDL)') : null,
        fact('work', el('b', {}, flop(K.flops)), ' and ', el('b', {}, bytes(K.bytes)), ' moved',
            K.bytes ? el('span', { class: 'dim' }, '  ' + (K.flops / K.bytes).toPrecision(3) + ' FLOP/B, a launch at its largest')
                : null),
        ms ? fact('time', el('b', {}, msText(ms)), ' a launch, ', share(ceilingOf(K, ms / 1000)), ' of the ceiling, ',
            si(K.bytes / ms * 1000, 'B/s') + ', ' + si(K.flops / ms * 1000, 'FLOP/s')) : null);
    const chips = list.length < 2 ? null : el('div', { class: 'chips', 'aria-label': 'launches' },
        list.map((i, n) => {
            const x = nodesOf(p, p.launches[i]), last = x.filter(y => y.cls === 0).pop(), layer = layersOf(p, [i]);
            return el('button', { type: 'button', 'aria-pressed': i === at, 'data-launch': i, on: { click: e => {
                e.stopPropagation();
                now.launch = n;
                now.sel = { kind: 'launch', i };
                openKernel(k, true);
                paintLit({ scrollLine: true });
            } } }, '#' + i + ' ' + (layer && list.length > 4 ? layer : last ? last.name : ''));
        }));
    const ops = nodesOf(p, l).filter(n => n.cls !== 1);
    const opList = ops.length ? el('ol', { class: 'oplist' }, ops.map(n => el('li', { 'data-node': n.name, class: 'opnode', on: {
        click: e => { e.stopPropagation(); select({ kind: 'node', name: n.name }, { scrollLine: true }); } } },
        el('code', {}, '%' + n.name + ' = ', el('b', {}, n.op), '(' + n.ins.map(j => '%' + p.graph.nodes[j].name).join(', ') + ')'),
        el('span', { class: 'where' }, place(n))))) : null;
    const buffers = el('table', { class: 'buffers' }, l.pieces.map((x, i) => [
        l.pieces.length > 1 ? el('tr', { class: 'piece' }, el('th', { colspan: 4 }, x.title + ', grid ' + x.grid + ', '
            + x.threads + ' threads')) : null,
        x.buffers.map(b => el('tr', {}, el('td', { class: b[0] ? 'write' : 'read' }, b[0] ? 'writes' : 'reads'),
            el('td', {}, el('code', {}, (b[1] === 'value' ? '%' : '') + b[3])), el('td', { class: 'dim' }, b[1]),
            el('td', { class: 'num' }, b[2] ? bytes(b[2]) : '')))]));
    const own = gpu ? 'CUDA' : 'C', texts = [['own', own + ', this kernel', [K]]];
    if (other.length) texts.push(['other', (gpu ? 'C' : 'CUDA') + (other.length > 1 ? ', ' + plural(other.length, 'kernel')
        : ', ' + other[0].name), other]);
    const which = texts.find(x => x[0] === now.text) || texts[0];
    const code = el('div', { class: 'texts' }, el('div', { class: 'bar' }, texts.map(x => el('button', { type: 'button',
        role: 'tab', 'aria-selected': x === which, 'data-text': x[0], on: { click: e => {
            e.stopPropagation();
            now.text = x[0];
            openKernel(k, true);
        } } }, x[1]))), which[2].map(x => codeBox(x.text)));
    return el('div', { class: 'detail', on: { click: e => e.stopPropagation() } }, facts, chips,
        opList ? [el('h3', {}, 'What went into it'), opList] : null, el('h3', {}, 'Buffers'), buffers, code);
}

function openKernel(k, keep) {
    for (const x of document.querySelectorAll('#view .detail')) x.remove();
    now.open = now.open === k && !keep ? null : k;
    if (now.open === null) return;
    const row = document.querySelector(`#view .kernel[data-kernel="${k}"]`);
    if (row) row.append(detail(k));
}

/* ---- right: memory ---- */

function drawMemory(view) {
    const p = program(), t = plan().targets[0], mem = (plan().memory || []).find(m => m.program === p.name);
    const arenas = target().arenas.filter(a => a[1] > 0), all = arenas.reduce((a, b) => a + b[1], 0) || 1;
    const names = { w: 'weights', g: 'gradients', m: 'AdamW m', v: 'AdamW v', p: 'master weights', lo: 'low bits', kv: 'KV cache',
        act: 'activations', keep: 'kept', const: 'constants', gsum: 'gradient sums' };
    view.append(el('h2', {}, 'Memory of all programs: ' + bytes(all)),
        el('div', { class: 'arenas' }, arenas.map((a, i) => el('div', { class: 'arena a' + i % 8, style: 'flex-grow:'
            + Math.max(a[1] / all, 0.004).toFixed(4), title: (names[a[0]] || a[0]) + ' ' + bytes(a[1]) },
            el('b', {}, names[a[0]] || a[0]), el('span', {}, bytes(a[1]))))));
    if (!mem) {
        view.append(el('p', { class: 'note' }, p.name + ' has no buffers of its own.'));
        return;
    }
    const q = t.programs.find(x => x.name === p.name), n = q ? q.launches.length : 1, top = mem.bytes || 1;
    const W = 1000, H = 430, L = 64, R = 8, T = 14, B = 34;
    const X = i => L + (i + 1) / (n + 2) * (W - L - R), Y = b => H - B - b / top * (H - B - T);
    const live = new Array(n + 2).fill(0);
    for (const b of mem.buffers) for (let i = Math.max(b[2], -1); i <= Math.min(b[3], n); i++) live[i + 1] += b[1];
    const peak = Math.max(...live), at = live.indexOf(peak);
    const ticks = niceTicks(0, top, 5);
    const area = live.map((v, i) => `${X(i - 1).toFixed(1)},${Y(v).toFixed(1)} ${X(i).toFixed(1)},${Y(v).toFixed(1)}`).join(' ');
    const rects = mem.buffers.map((b, i) => {
        const maker = q && b[2] >= 0 && q.launches[b[2]] ? t.kernels[q.launches[b[2]].kernel].kind : 'host';
        const w = X(b[3] + 1) - X(b[2]);
        return svg('rect', { x: X(b[2]).toFixed(2), width: Math.max(w - 0.6, 0.8).toFixed(2), y: Y(b[0] + b[1]).toFixed(2),
            height: Math.max(Y(b[0]) - Y(b[0] + b[1]) - 0.4, 0.5).toFixed(2), class: 'buf c-' + maker, 'data-buffer': i });
    });
    const labels = mem.buffers.filter(b => Y(b[0]) - Y(b[0] + b[1]) > 13 && X(b[3] + 1) - X(b[2]) > 60).map(b =>
        svg('text', { x: (X(b[2]) + 4).toFixed(1), y: ((Y(b[0]) + Y(b[0] + b[1])) / 2 + 3.5).toFixed(1), class: 'buflabel' },
            b[4].slice(0, Math.floor((X(b[3] + 1) - X(b[2])) / 6.4))));
    const pick = e => e.target.getAttribute && e.target.getAttribute('data-buffer');
    view.append(el('h2', {}, 'Activations of ' + p.name + ': ' + bytes(mem.bytes)),
        el('p', { class: 'note' }, 'A rectangle is a buffer: wide as the launches it lives through, high as its bytes, in the '
            + 'colour of the kernel that makes it. The line is what is alive, at most ' + bytes(peak) + ' (launch ' + Math.max(0, at - 1)
            + '); buffers share places, so the plan needs ' + bytes(mem.bytes) + ' instead of '
            + bytes(mem.buffers.reduce((a, b) => a + b[1], 0)) + '.' + (t !== target() ? ' The plan is that of ' + t.name + '.' : '')),
        svg('svg', { id: 'memory', viewBox: `0 0 ${W} ${H}`, class: 'plot', role: 'img', 'aria-label': 'memory plan', on: {
            click: e => { const i = pick(e); if (i !== null) select({ kind: 'node', name: mem.buffers[i][4] }, { scrollLine: true }); },
            mousemove: e => {
                const i = pick(e), b = i !== null && mem.buffers[i];
                tip(e, b ? b[4] + '\n' + bytes(b[1]) + ' at ' + bytes(b[0]) + '\nlaunches ' + b[2] + ' to ' + b[3] : null);
            }, mouseleave: () => tip(null) } },
            ticks.map(v => [svg('line', { x1: L, x2: W - R, y1: Y(v), y2: Y(v), class: 'grid' }),
                svg('text', { x: L - 6, y: Y(v) + 4, class: 'tick end' }, bytes(v))]),
            niceTicks(0, n, 8).filter(v => v === Math.round(v) && v < n).map(v => svg('text', { x: (X(v) + X(v + 1)) / 2, y: H - B + 16,
                class: 'tick mid' }, String(v))),
            svg('text', { x: (L + W - R) / 2, y: H - 4, class: 'tick mid' }, 'launch'),
            svg('g', { id: 'membands' }), rects, labels,
            svg('polyline', { points: area, class: 'live' })));
    view.append(el('details', { class: 'table' }, el('summary', {}, plural(mem.buffers.length, 'buffer') + ' as a table'),
        el('table', { class: 'buffers' }, el('tr', {}, ['value', 'bytes', 'offset', 'first launch', 'last'].map(h => el('th', {}, h))),
            [...mem.buffers].sort((a, b) => b[1] - a[1]).map(b => el('tr', {}, el('td', {}, el('code', {}, b[4])),
                el('td', { class: 'num' }, bytes(b[1])), el('td', { class: 'num' }, bytes(b[0])),
                el('td', { class: 'num' }, String(b[2])), el('td', { class: 'num' }, String(b[3])))))));
}

function niceTicks(lo, hi, n) {
    const raw = (hi - lo) / n || 1, mag = 10 ** Math.floor(Math.log10(raw)), f = raw / mag,
        step = mag * (f < 1.5 ? 1 : f < 3.5 ? 2 : f < 7.5 ? 5 : 10), out = [];
    for (let v = Math.ceil(lo / step) * step; v <= hi * 1.0001; v += step) out.push(v);
    return out;
}

/* ---- right: what was not fused ---- */

function whyText(line) {
    const out = [];
    let at = 0;
    for (const m of line.matchAll(/%([^\s,;:()]+)|\(([^()\s]+):(\d+)\)/g)) {
        out.push(line.slice(at, m.index));
        out.push(m[1] ? el('a', { class: 'ref', 'data-node': m[1] }, m[0])
            : el('a', { class: 'ref where', 'data-at': m[2] + ':' + m[3] }, m[2] + ':' + m[3]));
        at = m.index + m[0].length;
    }
    out.push(line.slice(at));
    return out;
}

/* [reason, lines that differ in numbers alone] ..., the most frequent first. */
function reasons(lines) {
    const by = new Map();
    for (const line of lines) {
        const at = line.lastIndexOf(': '), reason = at < 0 ? 'other' : line.slice(at + 2);
        const key = reason.replace(/%[^\s,;:()]+/g, 'a value').replace(/\d[\d.,]*( ?[kMGT]?B\b)?/g, '…');
        if (!by.has(key)) by.set(key, new Map());
        const same = line.replace(/\d+/g, '*'), list = by.get(key);
        if (!list.has(same)) list.set(same, []);
        list.get(same).push(line);
    }
    const size = m => [...m.values()].reduce((a, l) => a + l.length, 0);
    return [...by].map(([key, m]) => ({ key, n: size(m), lists: [...m.values()] })).sort((a, b) => b.n - a.n);
}

function drawWhy(view) {
    const all = reasons(plan().why);
    const short = (line, key) => line.endsWith(': ' + key) ? line.slice(0, -key.length - 2) : line;
    view.append(el('h2', {}, plan().why.length ? plural(plan().why.length, 'fusion') + ' refused' : 'Nothing was refused'),
        el('p', { class: 'note' }, 'Of all programs. What stays out of a kernel is stored by one launch and read by another.'));
    for (const r of all)
        view.append(el('details', { class: 'why', open: all.length < 8 || r.lists.length < 4 || null },
            el('summary', {}, el('b', {}, r.key.charAt(0).toUpperCase() + r.key.slice(1)), el('span', { class: 'times' }, ' ' + r.n)),
            el('ul', {}, r.lists.map(list => el('li', {}, whyText(short(list[0], r.key)), list.length > 1
                ? el('details', { class: 'more' }, el('summary', {}, 'and ' + (list.length - 1) + ' like it'),
                    el('ul', {}, list.slice(1).map(l => el('li', {}, whyText(short(l, r.key)))))) : null)))));
    view.addEventListener('click', whyClick);
}

function whyClick(e) {
    const a = e.target.closest('a.ref');
    if (!a) return;
    select(a.dataset.at ? { kind: 'line', at: a.dataset.at } : { kind: 'node', name: a.dataset.node }, { scrollLine: true });
}

/* ---- right: time ---- */

function drawTime(view) {
    const m = ceilings(plan().measured), t = target(), p = program(), ms = p.measured;
    view.append(el('h2', {}, m.device));
    if (!ms) {
        const tested = m.programs.map(x => x.program).join(', ');
        view.append(el('p', { class: 'note' }, 'Measured here: ' + tested + ', on ' + (m.target === 'cuda' ? 'GPU' : 'CPU')
            + '. Choose one of these above.'));
        return;
    }
    const sum = workOf(t, p), rows = p.order.map(k => ({ k, K: t.kernels[k], n: p.of.get(k).length, ms: timeOf(p, k) }))
        .sort((a, b) => b.ms - a.ms);
    view.append(el('p', { class: 'note' }, p.name + ' of ' + ms.B + ' × ' + ms.T + ' tokens: ' + msText(sum.ms) + ', '
        + p.launches.length + ' launches, the shortest of five runs each. Ceilings: ' + si(m.bytes_per_s, 'B/s') + ' moved'
        + (m.flops_per_s ? ', ' + si(m.flops_per_s, 'FLOP/s') : '') + (m.best ? ', the best that a launch reached: those of this '
        + 'device are not known.' : '.')), ...[roofline(rows, m, p, ms)].filter(Boolean));
    view.append(el('table', { class: 'times-table' }, el('tr', {}, ['kernel', '', 'time', 'share', 'launches', 'of ceiling']
        .map(h => el('th', {}, h))), rows.map(r => el('tr', { 'data-kernel': r.k, class: 'pickable', on: { click: () =>
        select({ kind: 'kernel', k: r.k }, { scrollLine: true }) } },
        el('td', {}, el('i', { class: 'swatch c-' + r.K.kind }), r.K.name),
        el('td', { class: 'wide' }, bar(r.ms / (rows[0].ms || 1), 'fill c-' + r.K.kind)),
        el('td', { class: 'num' }, msText(r.ms)), el('td', { class: 'num' }, share(r.ms / (sum.ms || 1))),
        el('td', { class: 'num' }, String(r.n)),
        el('td', { class: 'num' }, r.K.bytes ? share(ceilingOf(r.K, r.ms / r.n / 1000)) : '–',
            bar(ceilingOf(r.K, r.ms / r.n / 1000), 'fill ceil'))))));
}

function roofline(rows, m, p, ms) {
    const W = 1000, H = 380, L = 84, R = 16, T = 14, B = 46;
    const dots = rows.filter(r => r.K.flops > 0 && r.K.bytes > 0 && r.ms > 0).map(r => ({ ...r, x: r.K.flops / r.K.bytes,
        y: r.K.flops * r.n / r.ms * 1000 }));
    if (!dots.length || !m.bytes_per_s) return null;
    const ridge = m.flops_per_s ? m.flops_per_s / m.bytes_per_s : 100;
    const lx = Math.floor(Math.log10(Math.min(...dots.map(d => d.x), ridge))), hx = Math.ceil(Math.log10(Math.max(...dots.map(d => d.x),
        ridge * 2))), top = Math.max(...dots.map(d => d.y), m.flops_per_s || 0);
    const ly = Math.max(Math.floor(Math.log10(Math.min(...dots.map(d => d.y)))), Math.log10(top) - 7), hy = Math.log10(top) + 0.25;
    const X = v => L + (Math.log10(v) - lx) / (hx - lx) * (W - L - R), Y = v => H - B - (Math.log10(v) - ly) / (hy - ly) * (H - B - T);
    const total = rows.reduce((a, r) => a + r.ms, 0) || 1, grid = [];
    for (let e = lx; e <= hx; e++) grid.push(svg('line', { x1: X(10 ** e), x2: X(10 ** e), y1: T, y2: H - B, class: 'grid' }),
        svg('text', { x: X(10 ** e), y: H - B + 18, class: 'tick mid' }, e < 0 ? String(10 ** e) : si(10 ** e, '').trim()));
    for (let e = Math.ceil(ly); e <= hy; e++) grid.push(svg('line', { x1: L, x2: W - R, y1: Y(10 ** e), y2: Y(10 ** e), class: 'grid' }),
        svg('text', { x: L - 8, y: Y(10 ** e) + 4, class: 'tick end' }, si(10 ** e, 'FLOP/s')));
    const right = 10 ** hx, x0 = Math.max(10 ** lx, 10 ** ly / m.bytes_per_s), roof = [`${X(x0)},${Y(x0 * m.bytes_per_s)}`];
    if (m.flops_per_s) roof.push(`${X(ridge)},${Y(m.flops_per_s)}`, `${X(right)},${Y(m.flops_per_s)}`);
    else roof.push(`${X(right)},${Y(right * m.bytes_per_s)}`);
    const named = new Set([...dots].sort((a, b) => b.ms - a.ms).slice(0, 6).map(d => d.k));
    return svg('svg', { id: 'roofline', viewBox: `0 0 ${W} ${H}`, class: 'plot', role: 'img', 'aria-label': 'roofline', on: {
        click: e => { const k = e.target.getAttribute('data-kernel'); if (k !== null) select({ kind: 'kernel', k: +k }, { scrollLine: true }); },
        mousemove: e => {
            const d = dots.find(x => String(x.k) === e.target.getAttribute('data-kernel'));
            tip(e, d ? d.K.name + '\n' + si(d.y, 'FLOP/s') + ', ' + d.x.toPrecision(3) + ' FLOP/B\n' + share(ceilingOf(d.K,
                d.ms / d.n / 1000)) + ' of the ceiling' : null);
        }, mouseleave: () => tip(null) } }, grid,
        svg('polyline', { points: roof.join(' '), class: 'roof' }),
        svg('text', { x: (L + W - R) / 2, y: H - 8, class: 'tick mid' }, 'FLOP per byte'),
        [...dots].sort((a, b) => b.ms - a.ms).map(d => svg('circle', { cx: X(d.x).toFixed(1), cy: Y(d.y).toFixed(1),
            r: (4 + 16 * Math.sqrt(d.ms / total)).toFixed(1), class: 'dot c-' + d.K.kind, 'data-kernel': d.k })),
        spread(dots.filter(d => named.has(d.k)).map(d => ({ x: X(d.x) + 7 + 16 * Math.sqrt(d.ms / total), y: Y(d.y) + 4, text: d.K.name,
            end: X(d.x) > W - 180, r: 14 + 32 * Math.sqrt(d.ms / total) }))));
}

/* Labels, moved down until none lies on another. */
function spread(list) {
    list.sort((a, b) => a.y - b.y);
    list.forEach((a, i) => {
        for (const b of list.slice(0, i)) if (Math.abs(a.y - b.y) < 13 && Math.abs(a.x - b.x) < 150) a.y = b.y + 13;
    });
    return list.map(a => svg('text', { x: (a.end ? a.x - a.r : a.x).toFixed(1), y: a.y.toFixed(1), class: 'dotname' + (a.end ? ' end' : '') },
        a.text));
}

/* ---- right: two plans ---- */

/* A kernel's text without its own name, and the nodes of its launches. */
function portraits(t) {
    const out = t.kernels.map((K, k) => ({ K, k, text: K.text.split(K.name).join('@'), nodes: new Set(), use: new Map() }));
    for (const p of t.programs) p.launches.forEach(l => {
        const x = out[l.kernel];
        x.use.set(p.name, (x.use.get(p.name) || 0) + 1);
        for (const n of nodesOf(p, l)) if (n.cls === 0) x.nodes.add(p.name + ' ' + n.name);
    });
    return out;
}

function changes(a, b) {
    const A = portraits(a), B = portraits(b), byText = new Map(), same = [], changed = [];
    for (const x of B) byText.set(x.text, (byText.get(x.text) || []).concat(x));
    const leftA = [], takenB = new Set();
    for (const x of A) {
        const y = (byText.get(x.text) || []).find(z => !takenB.has(z));
        if (y && x.text) { takenB.add(y); same.push([x, y]); } else leftA.push(x);
    }
    const rest = B.filter(x => !takenB.has(x)), owner = new Map(), pairs = [];
    for (const y of rest) for (const n of y.nodes) owner.set(n, (owner.get(n) || []).concat(y));
    for (const x of leftA) {
        const hits = new Map();
        for (const n of x.nodes) for (const y of owner.get(n) || []) hits.set(y, (hits.get(y) || 0) + 1);
        for (const [y, n] of hits) pairs.push([n / (x.nodes.size + y.nodes.size - n) + (x.K.title === y.K.title ? 0.5 : 0), x, y]);
    }
    pairs.sort((p, q) => q[0] - p[0] || p[1].k - q[1].k || p[2].k - q[2].k);
    const usedA = new Set(), usedB = new Set();
    for (const [score, x, y] of pairs) {
        if (score < 0.2 || usedA.has(x) || usedB.has(y)) continue;
        usedA.add(x), usedB.add(y), changed.push([x, y]);
    }
    changed.sort((p, q) => p[1].k - q[1].k);
    return { same, changed, removed: leftA.filter(x => !usedA.has(x)), added: rest.filter(x => !usedB.has(x)) };
}

/* Lines of two texts: [' -+', line]. */
function diff(a, b) {
    const A = a.split('\n'), B = b.split('\n'), n = A.length, m = B.length;
    if (n * m > 4e6) return [...A.map(x => ['-', x]), ...B.map(x => ['+', x])];
    const D = Array.from({ length: n + 1 }, () => new Uint16Array(m + 1)), out = [];
    for (let i = n - 1; i >= 0; i--) for (let j = m - 1; j >= 0; j--)
        D[i][j] = A[i] === B[j] ? D[i + 1][j + 1] + 1 : Math.max(D[i + 1][j], D[i][j + 1]);
    let i = 0, j = 0;
    while (i < n || j < m)
        if (i < n && j < m && A[i] === B[j]) { out.push([' ', A[i++]]); j++; }
        else if (i < n && (j === m || D[i + 1][j] >= D[i][j + 1])) out.push(['-', A[i++]]);
        else out.push(['+', B[j++]]);
    return out;
}

function delta(a, b, text) {
    return el('td', { class: 'num ' + (text(a) === text(b) ? '' : b > a ? 'up' : 'down') }, text(a) === text(b) ? text(a) : [text(a), ' → ', el('b', {}, text(b))]);
}

function drawChanges(view) {
    const name = target().name, [a, b] = plans.map(p => p.targets.find(t => t.name === name));
    if (!a || !b) {
        view.append(el('p', { class: 'note' }, 'Only one of the plans has kernels of ' + name + '.'));
        return;
    }
    const c = a.changes && a.changes.of === b ? a.changes : (a.changes = { ...changes(a, b), of: b });
    const names = [...new Set([...a.programs, ...b.programs].map(p => p.name))], none = { launches: [] };
    const mem = (pl, n) => ((pl.memory || []).find(m => m.program === n) || { bytes: 0 }).bytes;
    const usage = x => [...x.use].map(([p, n]) => p + ' ' + n).join(', ') || 'not launched';
    const ops = x => [...new Set([...x.nodes].map(n => n.split(' ')[1]))];
    view.append(el('h2', {}, 'From ', el('em', {}, plans[0].name), ' to ', el('em', {}, plans[1].name)),
        el('p', { class: 'tally' }, [['added', c.added.length], ['removed', c.removed.length], ['changed', c.changed.length],
            ['the same', c.same.length]].map(([w, n]) => el('span', { class: 'tag ' + w.replace('the ', '') }, n + ' ' + w))),
        el('table', { class: 'buffers' }, el('tr', {}, ['program', 'launches', 'FLOPs', 'bytes moved', 'activations'].map(h =>
            el('th', {}, h))), names.map(n => {
            const p = a.programs.find(x => x.name === n), q = b.programs.find(x => x.name === n);
            const s = p ? workOf(a, p) : { flops: 0, bytes: 0 }, r = q ? workOf(b, q) : { flops: 0, bytes: 0 };
            return el('tr', {}, el('th', {}, n), delta((p || none).launches.length, (q || none).launches.length, String),
                delta(s.flops, r.flops, flop), delta(s.bytes, r.bytes, bytes), delta(mem(plans[0], n), mem(plans[1], n), bytes));
        })));
    const list = (title, cls, items, draw) => items.length ? view.append(el('h3', {}, title), ...items.map(x => {
        const d = el('details', { class: 'change ' + cls }, el('summary', {}, draw(x)));
        d.addEventListener('toggle', () => { if (d.open && d.children.length < 2) d.append(changeDetail(x)); });
        return d;
    })) : null;
    const one = x => [el('i', { class: 'swatch c-' + x.K.kind }), el('b', {}, x.K.name), el('span', { class: 'dim' }, '  ' + usage(x))];
    list('Changed', 'changed', c.changed, ([x, y]) => {
        const A = new Set(ops(x)), Bs = new Set(ops(y)), came = [...Bs].filter(n => !A.has(n)), went = [...A].filter(n => !Bs.has(n));
        return [el('i', { class: 'swatch c-' + y.K.kind }), el('b', {}, x.K.name === y.K.name ? y.K.name : x.K.name + ' → ' + y.K.name),
            el('span', { class: 'dim' }, '  ' + usage(y)),
            came.length ? el('span', { class: 'came' }, '  + ' + came.slice(0, 3).join(', ') + (came.length > 3 ? ' …' : '')) : null,
            went.length ? el('span', { class: 'went' }, '  − ' + went.slice(0, 3).join(', ') + (went.length > 3 ? ' …' : '')) : null];
    });
    list('Added', 'added', c.added, one);
    list('Removed', 'removed', c.removed, one);
    if (!c.added.length && !c.removed.length && !c.changed.length)
        view.append(el('p', { class: 'note' }, 'All kernels of ' + name + ' are the same text.'));
}

function changeDetail(x) {
    if (!Array.isArray(x)) return codeBox(x.K.text);
    const [a, b] = x, lines = diff(a.text.split('@').join(b.K.name), b.K.text);
    const near = lines.map((l, i) => lines.slice(Math.max(0, i - 3), i + 4).some(y => y[0] !== ' '));
    const out = [];
    lines.forEach((l, i) => {
        if (near[i]) out.push(el('span', { class: l[0] === '+' ? 'ins' : l[0] === '-' ? 'del' : '' }, l[0] + ' '
            + l[1].replace(/\t/g, '    ') + '\n'));
        else if (i && near[i - 1]) out.push(el('span', { class: 'skip' }, '  ⋯\n'));
    });
    const row = (name, f, g) => f === g ? null : el('div', {}, name + ' ', f, ' → ', el('b', {}, g));
    return el('div', { class: 'detail' }, row('work', flop(a.K.flops), flop(b.K.flops)), row('moved', bytes(a.K.bytes), bytes(b.K.bytes)),
        row('threads', String(a.K.threads), String(b.K.threads)), row('shared', bytes(a.K.smem), bytes(b.K.smem)),
        el('pre', { class: 'code diff' }, el('code', {}, out)));
}

/* ---- all together ---- */

const TABS = [['kernels', 'Kernels', drawKernels], ['memory', 'Memory', drawMemory], ['why', 'Not fused', drawWhy],
    ['time', 'Time', drawTime], ['changes', 'Changes', drawChanges]]
    .filter(t => t[0] !== 'time' || plans.some(p => p.measured)).filter(t => t[0] !== 'changes' || plans.length > 1);

function setTab(name) {
    now.tab = name;
    drawRight();
    paintLit({});
}

function drawRight() {
    const tabs = TABS.filter(t => t[0] !== 'time' || plan().measured);
    if (!tabs.some(t => t[0] === now.tab)) now.tab = 'kernels';
    clear($('tabs')).append(...tabs.map(t => el('button', { type: 'button', role: 'tab', 'aria-selected': t[0] === now.tab,
        'data-tab': t[0], on: { click: () => setTab(t[0]) } }, t[1])));
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
    if (!s) { out.textContent = 'Choose a line, an op or a kernel.   ? shows the keys'; return; }
    const what = s.kind === 'line' ? s.at : s.kind === 'node' ? '%' + s.name : s.kind === 'kernel' ? kernel(s.k).name
        : '#' + s.i + ' ' + kernel(p.launches[s.i].kernel).name;
    out.textContent = s.kind === 'line' || s.kind === 'node'
        ? what + ' → ' + (l.kernels.size ? plural(l.kernels.size, 'kernel') + ', ' + l.launches.size + (l.launches.size === 1
            ? ' launch' : ' launches') + ' of ' + p.name
            : l.views ? 'no kernel: a view is strides, which its readers take' : 'no kernel of ' + p.name)
        : what + ' ← ' + (l.lines.size ? plural(l.lines.size, 'line') : 'no line of the model') + ', ' + plural(l.nodes.size, 'op')
            + ', ' + l.launches.size + (l.launches.size === 1 ? ' launch' : ' launches');
}

function paintLit(how) {
    const l = lit(), any = !!now.sel;
    document.body.classList.toggle('lit', any);
    for (const x of document.querySelectorAll('#source .line')) {
        const on = x.dataset.at ? l.lines.has(x.dataset.at) : l.nodes.has(x.dataset.node);
        x.classList.toggle('on', on);
    }
    for (const x of document.querySelectorAll('#view .kernel')) x.classList.toggle('on', l.kernels.has(+x.dataset.kernel));
    for (const x of document.querySelectorAll('#view .opnode')) x.classList.toggle('on', now.sel && now.sel.kind === 'node'
        && l.nodes.has(x.dataset.node));
    for (const x of document.querySelectorAll('#strip .cell')) x.classList.toggle('on', l.launches.has(+x.dataset.launch));
    for (const x of document.querySelectorAll('#roofline .dot, .times-table tr.pickable'))
        x.classList.toggle('on', l.kernels.has(+x.dataset.kernel));
    paintMemory(l);
    status(l);
    const first = sel => document.querySelector(sel);
    if (how.scrollKernel) { const x = first('#view .kernel.on'); if (x) x.scrollIntoView({ block: 'nearest' }); }
    if (how.scrollLine && !first('#source .line.on')) showFileOf(l);
    if (how.scrollLine) { const x = first('#source .line.on'); if (x) x.scrollIntoView({ block: 'nearest' }); }
    wires();
}

/* The lines that are lit may be of another file than the one shown. */
function showFileOf(l) {
    const files = plan().files.filter(f => !/^config/.test(f.name));
    const i = files.findIndex(f => [...l.lines].some(at => at.startsWith(f.name + ':')));
    if (i >= 0 && i !== now.file) { now.file = i; drawLeft(); paintLit({}); }
}

function paintMemory(l) {
    const bands = $('membands'), p = program();
    if (!bands) return;
    const mem = plan().memory.find(m => m.program === p.name), all = document.querySelectorAll('#memory .buf');
    const names = new Set(l.nodes);
    if (plan().targets[0] === target()) for (const i of l.launches) for (const x of p.launches[i].pieces) for (const b of x.buffers)
        if (b[1] === 'value' && now.sel.kind !== 'node') names.add(b[3]);
    all.forEach((r, i) => r.classList.toggle('on', names.has(mem.buffers[i][4])));
}

/* Curves from the lines that are lit to the kernels that are. */
let waiting = false;
function wires() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; drawWires(); });
}
function drawWires() {
    const box = clear($('wires')), l = lit(), p = program();
    if (!now.sel || now.tab !== 'kernels' || !p || !l.kernels.size) return;
    const m = $('main').getBoundingClientRect(), left = $('source').getBoundingClientRect(), right = $('view').getBoundingClientRect();
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
    for (const i of l.launches) for (const n of nodesOf(p, p.launches[i])) {
        const k = p.launches[i].kernel, a = from.has(place(n)) ? place(n) : n.name, key = a + ' ' + k;
        if (n.cls === 1 || !from.has(a) || !to.has(k) || done.has(key)) continue;
        done.add(key);
        const y0 = from.get(a), y1 = to.get(k), d = (x1 - x0) * 0.5;
        box.append(svg('path', { d: `M${x0} ${y0}C${x0 + d} ${y0} ${x1 - d} ${y1} ${x1} ${y1}`, class: 'wire s-' + kernel(k).kind }));
    }
}

/* ---- mouse and keys ---- */

$('source').addEventListener('click', e => {
    const x = e.target.closest('.line.op');
    now.pane = 'left';
    if (!x) return select(null);
    const same = now.sel && (now.sel.at === x.dataset.at && x.dataset.at || now.sel.name === x.dataset.node && x.dataset.node);
    if (now.tab !== 'kernels' && now.tab !== 'memory') setTab('kernels');
    select(same ? null : x.dataset.at ? { kind: 'line', at: x.dataset.at } : { kind: 'node', name: x.dataset.node }, { scrollKernel: true });
});
$('view').addEventListener('click', e => {
    const x = e.target.closest('.kernel');
    now.pane = 'right';
    if (!x || e.target.closest('.detail')) return;
    const k = +x.dataset.kernel, was = now.sel && now.sel.kind === 'kernel' && now.sel.k === k;
    select({ kind: 'kernel', k }, { scrollLine: true });
    if (was || now.open !== k) openKernel(k);
    wires();
});
for (const id of ['source', 'view']) $(id).addEventListener('scroll', wires, { passive: true });
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
        const rows = [...document.querySelectorAll('#source .line.op')], i = rows.findIndex(x => x.classList.contains('on'));
        const at = x => x.dataset.at || x.dataset.node;
        let j = i < 0 ? (by > 0 ? 0 : rows.length - 1) : i + by;
        while (rows[j] && i >= 0 && at(rows[j]) === at(rows[i])) j += by;
        const x = rows[j];
        if (!x) return;
        select(x.dataset.at ? { kind: 'line', at: x.dataset.at } : { kind: 'node', name: x.dataset.node }, { scrollKernel: true });
        x.scrollIntoView({ block: 'nearest' });
    } else if (now.tab === 'kernels') {
        const rows = [...document.querySelectorAll('#view .kernel')], k = now.sel && (now.sel.kind === 'kernel' ? now.sel.k
            : now.sel.kind === 'launch' ? program().launches[now.sel.i].kernel : null);
        const i = rows.findIndex(x => +x.dataset.kernel === k), j = i < 0 ? (by > 0 ? 0 : rows.length - 1) : i + by;
        if (!rows[j]) return;
        select({ kind: 'kernel', k: +rows[j].dataset.kernel }, { scrollKernel: true, scrollLine: true });
        if (now.open !== null) { openKernel(+rows[j].dataset.kernel, true); rows[j].scrollIntoView({ block: 'nearest' }); wires(); }
    } else $('view').scrollBy(0, by * 60);
}

function enter() {
    const p = program(), s = now.sel;
    if (!s || !p) return;
    const k = s.kind === 'kernel' ? s.k : s.kind === 'launch' ? p.launches[s.i].kernel : [...lit().kernels][0];
    if (k === undefined) return;
    if (now.tab !== 'kernels') setTab('kernels');
    if (s.kind === 'line' || s.kind === 'node') {
        now.pane = 'right';
        select({ kind: 'kernel', k }, { scrollKernel: true });
        openKernel(k, true);
    } else openKernel(k);
    const row = document.querySelector(`#view .kernel[data-kernel="${k}"]`);
    if (row) row.scrollIntoView({ block: now.open === k ? 'start' : 'nearest' });
    wires();
}

const KEYS = [['j  k', 'next, previous kernel or line'], ['h  l', 'to the model, to the kernels'], ['Enter', 'open the kernel'],
    ['/', 'search kernels, ops, lines'], ['1 – 5', 'kernels, memory, not fused, …'], ['p', 'next program'], ['t', 'GPU or CPU'],
    ['Esc', 'nothing is lit'], ['?', 'these keys']];
function help() {
    const old = document.querySelector('dialog');
    if (old) { old.remove(); return; }
    const d = el('dialog', { on: { click: () => d.remove() } }, el('h2', {}, 'Keys'),
        el('dl', { class: 'facts' }, KEYS.map(([k, t]) => [el('dt', {}, el('kbd', {}, k)), el('dd', {}, t)])));
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
        if (x) select({ kind: 'kernel', k: +x.dataset.kernel }, { scrollLine: true });
    } else if (typing && e.key === 'Escape') {
        e.target.value = now.find = '';
        e.target.blur();
        drawRight();
        paintLit({});
    } else if (!typing) {
        const act = { j: () => step(1), k: () => step(-1), ArrowDown: () => step(1), ArrowUp: () => step(-1), Enter: enter,
            h: () => { now.pane = 'left'; }, l: () => { now.pane = 'right'; }, '?': help,
            '/': () => $('search').select(), p: () => setProgram((now.program + 1) % target().programs.length),
            t: () => plan().targets.length > 1 && setTarget(1 - now.target),
            Escape: () => { const d = document.querySelector('dialog'); if (d) d.remove(); else select(null); } }[e.key];
        if (act) { act(); e.preventDefault(); }
        else if (/^[1-5]$/.test(e.key)) { const t = $('tabs').children[+e.key - 1]; if (t) setTab(t.dataset.tab); }
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
