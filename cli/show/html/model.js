/* model.js: the top, the strip of launches, and the model on the left. */

/* ---- the top ---- */

function drawTop() {
    const p = plan(), t = target();
    document.title = plans.map(x => x.name).join(' and ') + ' · tgc';
    $('title').textContent = p.model || p.name;
    $('facts').textContent = [
        p.name, p.dtype, p.params && si(p.params, '').replace(' ', '') + ' parameters',
        ...p.targets.map(
            x => plural(x.kernels.length, 'kernel') + (x.name === 'cuda' ? ' in CUDA' : ' in C'))
    ].filter(Boolean).join(' · ');
    const choose = (name, items, at, set) => items.length < 2 && name !== 'program' ?
        null :
        el('div', {class: 'choice', role: 'group', 'aria-label': name},
           items.map(
               (x, i) =>
                   el('button', {
                       'aria-pressed': i === at,
                       type: 'button',
                       'data-choice': name,
                       title: x[1],
                       on: {click: () => set(i)}
                   },
                      x[0])));
    clear($('choices'))
        .append(
            ...[choose(
                    'plan', plans.map((x, i) => ['AB'[i] + '  ' + x.name, 'this plan']), now.plan,
                    i => {
                        now.plan = i;
                        restart();
                    }),
                choose(
                    'target',
                    p.targets.map(x => [x.name === 'cuda' ? 'GPU' : 'CPU', 'kernels of ' + x.name]),
                    now.target,
                    i => {
                        setTarget(i);
                    }),
                t &&
                    choose(
                        'program',
                        t.programs.map(
                            x =>
                                [x.name,
                                 plural(x.launches.length, 'launch')
                                         .replace('launchs', 'launches') +
                                     ', up to ' + x.B + ' x ' + x.T + ' tokens']),
                        now.program, setProgram)]
                .filter(Boolean));
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
    const weight = i => ms ? ms[i] : 1,
          total = p.launches.reduce((a, l, i) => a + weight(i), 0) || 1;
    let x = 0;
    const cells = p.launches.map((l, i) => {
        const w = weight(i) / total * W, k = t.kernels[l.kernel];
        const r = svg('rect', {
            x: x.toFixed(3),
            y: 0,
            width: Math.max(w - (w > 4 ? 0.8 : w * 0.15), 0.3).toFixed(3),
            height: H,
            class: 'cell c-' + k.kind,
            'data-launch': i
        });
        x += w;
        return r;
    });
    const used = KINDS.filter(c => p.order.some(k => t.kernels[k].kind === c[0]));
    clear($('strip'))
        .append(
            svg('svg', {
                viewBox: `0 0 ${W} ${H}`,
                preserveAspectRatio: 'none',
                role: 'img',
                'aria-label': 'launches in order',
                on: {
                    click: e => {
                        const i = e.target.getAttribute('data-launch');
                        if (i !== null) {
                            now.tab === 'kernels' || setTab('kernels');
                            select({kind: 'launch', i: +i}, {scrollKernel: true, scrollLine: true});
                        }
                    },
                    mousemove: e => {
                        const i = e.target.getAttribute('data-launch');
                        tip(e, i === null ? null : launchTip(+i));
                    },
                    mouseleave: () => tip(null)
                }
            },
                cells),
            el('div', {class: 'legend'},
               el('span', {class: 'count'},
                  p.launches.length + (p.launches.length === 1 ? ' launch' : ' launches') + ', ' +
                      plural(p.order.length, 'different kernel') +
                      (ms ? ', ' + msText(total) + ' (width is time)' : '')),
               used.map(
                   c => el('span', {class: 'key'}, el('i', {class: 'swatch c-' + c[0]}), c[1])),
               el('output', {id: 'status'})));
}

function launchTip(i) {
    const p = program(), l = p.launches[i], k = kernel(l.kernel),
          outs = l.pieces.flatMap(
              x => x.buffers.filter(b => b[0] && b[1] !== 'scratch').map(b => b[3]));
    const ms = p.measured && p.measured.ms[i];
    return '#' + i + '  ' + k.name +
        (outs.length ? '\nwrites ' + outs.slice(0, 4).join(', ') : '') +
        (ms !== null && ms !== undefined ? '\n' + msText(ms) : '');
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
            if (!seen.has(at)) {
                seen.set(at, new Set());
                out.set(at, []);
            }
            if (!seen.get(at).has(k)) {
                seen.get(at).add(k);
                out.get(at).push([i, k]);
            }
        }
    }
    for (const list of out.values()) list.sort((a, b) => a[0] - b[0]);
    return out;
}

const LUA =
    /(--\[\[[\s\S]*?\]\]|--[^\n]*)|("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|\b(and|break|do|else|elseif|end|false|for|function|if|in|local|nil|not|or|repeat|return|then|true|until|while)\b|\b(\d[\w.]*)/g;
const CC =
    /(\/\/[^\n]*|\/\*[\s\S]*?\*\/)|("(?:[^"\\\n]|\\.)*")|\b(const|return|if|else|for|while|struct|typedef|static|void|int|long|float|double|unsigned|char|bool|extern|auto|template|bf16|f16|__global__|__device__|__launch_bounds__|__shared__|__syncthreads|size_t)\b|(^[ \t]*#[^\n]*|\b\d[\w.]*)/gm;

function paint(text, rule) {
    const out = [];
    let at = 0;
    for (const m of text.matchAll(rule)) {
        if (m.index > at) out.push(text.slice(at, m.index));
        const cls = m[1] ? 'hc' : m[2] ? 'hs' : m[3] ? 'hk' : 'hn';
        out.push(el('span', {class: cls}, m[0]));
        at = m.index + m[0].length;
    }
    if (at < text.length) out.push(text.slice(at));
    return out;
}

function marks(list) {
    const most = 7;
    return el(
        'span', {class: 'marks'},
        list.slice(0, most).map(
            ([, k]) => el('i', {class: 'swatch c-' + kernel(k).kind, 'data-kernel': k})),
        list.length > most ? el('small', {}, '+' + (list.length - most)) : null);
}

function sourceLines(file) {
    const by = kernelsByLine(), used = new Set();
    for (const n of plan().model_graph.nodes)
        if (n.file === file.name) used.add(n.line);
    for (const at of by.keys())
        if (at.startsWith(file.name + ':')) used.add(+at.slice(file.name.length + 1));
    return file.text.replace(/\n$/, '').split('\n').map((text, i) => {
        const at = file.name + ':' + (i + 1), has = used.has(i + 1);
        return el(
            'div', {class: 'line' + (has ? ' op' : ''), 'data-at': at},
            el('span', {class: 'no'}, String(i + 1)), marks(by.get(at) || []),
            el('code', {}, indent(text),
               text.length < 400 ? paint(text.trimStart(), LUA) : text.trimStart()));
    });
}

/* Half as wide as it is: eight blanks of a deep block leave no room for the rest. */
const indent = text =>
    el('span', {class: 'indent'}, text.slice(0, text.length - text.trimStart().length));

/* Without the text: the ops of each line, those of equal layers once. */
function opLines(file) {
    const by = kernelsByLine(), lines = new Map();
    for (const n of plan().model_graph.nodes) {
        if (n.file !== file || n.cls === 1) continue;
        if (!lines.has(n.line)) lines.set(n.line, new Map());
        const plain = n.name.replace(/\d+/g, '*') + ' ' + n.op, m = lines.get(n.line);
        if (m.has(plain))
            m.get(plain).n++;
        else
            m.set(plain, {node: n, n: 1});
    }
    return [...lines.keys()]
        .sort((a, b) => a - b)
        .flatMap(line => [...lines.get(line).values()].map((x, i) => {
            const at = file + ':' + line, n = x.node;
            return el(
                'div', {class: 'line op', 'data-at': at},
                el('span', {class: 'no'}, i ? '' : String(line)),
                i ? el('span', {class: 'marks'}) : marks(by.get(at) || []),
                el('code', {}, '%' + n.name + ' = ', el('b', {}, n.op), ' ',
                   el('span', {class: 'hc'},
                      n.ins.map(j => '%' + plan().model_graph.nodes[j].name).join(', ')),
                   x.n > 1 ? el('span', {class: 'times'}, ' ×' + x.n) : null));
        }));
}

/* A graph without lines: its ops, a row each. */
function graphLines() {
    const g = program() && program().graph || plan().model_graph;
    return g.nodes.filter(n => n.cls !== 1).map(n => {
        const list = program() ?
            (program().byGroup.get(n.group) || []).map(i => [i, program().launches[i].kernel]) :
            [];
        return el(
            'div', {class: 'line op', 'data-node': n.name}, el('span', {class: 'no'}),
            marks(list.filter((x, i) => !i || list[i - 1][1] !== x[1])),
            el('code', {}, '%' + n.name + ' = ', el('b', {}, n.op), ' ',
               el('span', {class: 'hc'},
                  n.ins.map(j => '%' + g.nodes[j].name).join(', ') + ' : ' + n.type)));
    });
}

function drawLeft() {
    const files = [...plan().files.filter(f => !/^config/.test(f.name))];
    const pages = [...files.map(f => f.name), 'graph'];
    now.file = Math.min(now.file, pages.length - 1);
    clear($('files'))
        .append(...pages.map(
            (name, i) =>
                el('button', {
                    type: 'button',
                    role: 'tab',
                    'aria-selected': i === now.file,
                    'data-file': name,
                    on: {
                        click: () => {
                            now.file = i;
                            drawLeft();
                            paintLit({});
                        }
                    }
                },
                   name)));
    const box = clear($('source')), f = files[now.file];
    if (!f)
        box.append(...graphLines());
    else if (f.text !== undefined)
        box.append(...sourceLines(f));
    else
        box.append(
            el('p', {class: 'note'},
               'A plan does not hold its model’s file. These are the ops that its lines ' +
                   'make, equal layers once; `tgc dump MODEL --html` shows the file itself.'),
            ...opLines(f.name));
}
