/* kernels.js: the kernels of a program. */

/* ---- right: kernels ---- */

const opsText = (p, l) => {
    const ops = nodesOf(p, l).filter(n => n.cls === 0).map(n => n.op), out = [];
    for (const o of ops) {
        const last = out[out.length - 1];
        if (last && last[0] === o)
            last[1]++;
        else
            out.push([o, 1]);
    }
    return out;
};

/* The layers of launches: "blk0 … blk11", or nothing. */
function layersOf(p, list) {
    const found = [];
    for (const i of list)
        for (const n of nodesOf(p, p.launches[i])) {
            const m = /^([A-Za-z_.]*?\d+)\./.exec(n.name);
            if (m) {
                if (!found.includes(m[1])) found.push(m[1]);
                break;
            }
        }
    return found.length > 1 ? found[0] + ' … ' + found[found.length - 1] : found.join();
}

function linesOf(p, list) {
    const out = new Map();
    for (const i of list)
        for (const n of nodesOf(p, p.launches[i]))
            if (n.file && n.cls === 0) out.set(place(n), n);
    const by = new Map();
    for (const n of out.values()) by.set(n.file, (by.get(n.file) || []).concat(n.line));
    return [...by].map(([f, l]) => f + ':' + l.sort((a, b) => a - b).join(','));
}

function workOf(t, p) {
    const sum = {flops: 0, bytes: 0, ms: 0, most: {}};
    for (const l of p.launches) {
        sum.flops += t.kernels[l.kernel].flops;
        sum.bytes += t.kernels[l.kernel].bytes;
    }
    if (p.measured) sum.ms = p.measured.ms.reduce((a, b) => a + b, 0);
    for (const [k, list] of p.of)
        for (const [what, x] of [
                 ['flops', t.kernels[k].flops * list.length],
                 ['bytes', t.kernels[k].bytes * list.length], ['ms', timeOf(p, k)]])
            sum.most[what] = Math.max(sum.most[what] || 1e-30, x);
    return sum;
}
const timeOf = (p, k) => p.measured ? p.of.get(k).reduce((a, i) => a + p.measured.ms[i], 0) : 0;
/* A device whose ceilings are not known has the best that a launch of this run reached. */
function ceilings(m) {
    if (m.bytes_per_s || m.best) return m;
    m.best = true;
    for (const p of target().programs)
        if (p.measured)
            p.launches.forEach((l, i) => {
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
    return svg(
        'svg',
        {class: 'meter', viewBox: '0 0 100 6', preserveAspectRatio: 'none', 'aria-hidden': 'true'},
        svg('rect', {width: 100, height: 6, class: 'track'}),
        svg('rect',
            {width: Math.max(0, Math.min(100, 100 * part)).toFixed(2), height: 6, class: cls}));
}

function kernelRow(t, p, k, sum) {
    const K = t.kernels[k], list = p.of.get(k), n = list.length;
    const f = K.flops * n / sum.most.flops, b = K.bytes * n / sum.most.bytes, ms = timeOf(p, k);
    const where = linesOf(p, list), layers = layersOf(p, list);
    return el(
        'article', {class: 'kernel', 'data-kernel': k, tabindex: -1},
        el('div', {class: 'row'}, el('i', {class: 'edge c-' + K.kind}),
           el('div', {class: 'what'},
              el('div', {class: 'name'}, K.name,
                 n > 1 ? el('span', {class: 'times'}, ' ×' + n) : null,
                 layers ? el('span', {class: 'dim'}, '  ' + layers) : null),
              el('div', {class: 'ops'},
                 p.launches[list[0]].groups.length ?
                     opsText(p, p.launches[list[0]])
                         .map(
                             ([o, c],
                              i) => [i ? ' · ' : '', el('b', {}, o), c > 1 ? '×' + c : '']) :
                     K.title,
                 where.length ? el('span', {class: 'where'}, '  ' + where.join('  ')) : null)),
           p.measured ?
               [
                   el('div', {class: 'num'}, msText(ms), bar(ms / sum.most.ms, 'fill c-' + K.kind)),
                   el('div', {class: 'num'}, share(ceilingOf(K, ms / n / 1000)),
                      el('small', {}, 'of ceiling'))
               ] :
               [
                   el('div', {class: 'num'}, K.flops ? flop(K.flops * n) : '–',
                      bar(f, 'fill flops')),
                   el('div', {class: 'num'}, bytes(K.bytes * n), bar(b, 'fill bytes'))
               ],
           el('div', {class: 'num'},
              K.bytes && K.flops ?
                  (K.flops / K.bytes).toPrecision(3).replace(/\.?0+$/, '').replace(/e\+?/, 'e') :
                  '–',
              el('small', {}, 'FLOP/B'))));
}

function drawKernels(view) {
    const t = target(), p = program();
    const find = now.find.trim().toLowerCase(), sum = workOf(t, p);
    const rows = p.order.filter(k => !find || haystack(t, p, k).includes(find));
    view.append(...rows.map(k => kernelRow(t, p, k, sum)));
    if (!rows.length)
        view.append(
            el('p', {class: 'note'},
               find ? 'No kernel, op or line of ' + p.name + ' has “' + now.find + '”.' :
                      'No kernels.'));
    if (now.open !== null) openKernel(now.open, true);
}

function haystack(t, p, k) {
    const K = t.kernels[k];
    p.hay = p.hay || new Map();
    if (!p.hay.has(k))
        p.hay.set(k, [
            K.name, K.title, ...linesOf(p, p.of.get(k)),
            ...p.of.get(k).flatMap(
                i => nodesOf(p, p.launches[i]).flatMap(n => [n.name, n.op, place(n)]))
        ].join(' ').toLowerCase());
    return p.hay.get(k);
}

/* Kernels of the other target that hold the same nodes. */
function twins(k) {
    const other = plan().targets.find(x => x !== target()), p = program();
    const q = other && other.programs.find(x => x.name === p.name);
    if (!q) return [];
    const groups = new Set(p.of.get(k).slice(0, 1).flatMap(i => p.launches[i].groups)),
          out = new Set();
    for (const g of groups)
        for (const i of q.byGroup.get(g) || []) out.add(q.launches[i].kernel);
    if (!p.graph)
        for (const l of q.launches)
            if (other.kernels[l.kernel].title.split('_')[0] === kernel(k).title.split('_')[0])
                out.add(l.kernel);
    return [...out].map(x => other.kernels[x]);
}

const codeBox = text =>
    el('pre', {class: 'code', tabindex: 0}, el('code', {}, paint(text.replace(/\t/g, '    '), CC)));

function detail(k) {
    const t = target(), p = program(), K = t.kernels[k], list = p.of.get(k);
    const at = list[Math.min(now.launch, list.length - 1)], l = p.launches[at];
    const other = twins(k), gpu = t.name === 'cuda';
    const fact = (name, ...text) => [el('dt', {}, name), el('dd', {}, text)];
    const form = (g, f) => g.blocks === 0 ? 'none: another kernel does this work there' : [
        el('b', {},
           (g.blocks >= 0 ? count(g.blocks) + (g.blocks === 1 ? ' block × ' : ' blocks × ') : '') +
               f.threads),
        ' threads', f.smem ? ', ' + kib(f.smem) + ' shared' : ', no shared memory',
        f.cluster > 1 ? ', clusters of ' + f.cluster : '',
        f.persistent ? ', persistent: one block a multiprocessor at most' : '',
        String(g.blocks) === g.grid ? null : el('span', {class: 'dim'}, '  grid ' + g.grid)
    ];
    const ms = p.measured && timeOf(p, k) / list.length;
    const facts = el(
        'dl', {class: 'facts'},
        gpu ? l.grids.map(
                  g => fact(
                      g.arch ? 'on ' + g.arch : 'launch',
                      form(g, K.forms.find(f => f.arch === g.arch) || K.forms[0]))) :
              fact('launch', 'its own loop over tiles, on all threads'),
        gpu && K.pdl ? fact('overlap', 'may start before the launch before has ended (PDL)') : null,
        fact(
            'work', el('b', {}, flop(K.flops)), ' and ', el('b', {}, bytes(K.bytes)), ' moved',
            K.bytes ?
                el('span', {class: 'dim'},
                   '  ' + (K.flops / K.bytes).toPrecision(3) + ' FLOP/B, a launch at its largest') :
                null),
        ms ? fact(
                 'time', el('b', {}, msText(ms)), ' a launch, ', share(ceilingOf(K, ms / 1000)),
                 ' of the ceiling, ',
                 si(K.bytes / ms * 1000, 'B/s') + ', ' + si(K.flops / ms * 1000, 'FLOP/s')) :
             null);
    const chips = list.length < 2 ?
        null :
        el('div', {class: 'chips', 'aria-label': 'launches'}, list.map((i, n) => {
            const x = nodesOf(p, p.launches[i]), last = x.filter(y => y.cls === 0).pop(),
                  layer = layersOf(p, [i]);
            return el(
                'button', {
                    type: 'button',
                    'aria-pressed': i === at,
                    'data-launch': i,
                    on: {
                        click: e => {
                            e.stopPropagation();
                            now.launch = n;
                            now.sel = {kind: 'launch', i};
                            openKernel(k, true);
                            paintLit({scrollLine: true});
                        }
                    }
                },
                '#' + i + ' ' +
                    (layer && list.length > 4 ? layer :
                         last                 ? last.name :
                                                ''));
        }));
    const ops = nodesOf(p, l).filter(n => n.cls !== 1);
    const opList = ops.length ?
        el('ol', {class: 'oplist'},
           ops.map(
               n =>
                   el('li', {
                       'data-node': n.name,
                       class: 'opnode',
                       on: {
                           click: e => {
                               e.stopPropagation();
                               select({kind: 'node', name: n.name}, {scrollLine: true});
                           }
                       }
                   },
                      el('code', {}, '%' + n.name + ' = ', el('b', {}, n.op),
                         '(' + n.ins.map(j => '%' + p.graph.nodes[j].name).join(', ') + ')'),
                      el('span', {class: 'where'}, place(n))))) :
        null;
    const buffers =
        el('table', {class: 'buffers'},
           l.pieces.map(
               (x, i) =>
                   [l.pieces.length > 1 ?
                        el('tr', {class: 'piece'},
                           el('th', {colspan: 4},
                              x.title + ', grid ' + x.grid + ', ' + x.threads + ' threads')) :
                        null,
                    x.buffers.map(
                        b => el(
                            'tr', {},
                            el('td', {class: b[0] ? 'write' : 'read'}, b[0] ? 'writes' : 'reads'),
                            el('td', {}, el('code', {}, (b[1] === 'value' ? '%' : '') + b[3])),
                            el('td', {class: 'dim'}, b[1]),
                            el('td', {class: 'num'}, b[2] ? bytes(b[2]) : '')))]));
    const own = gpu ? 'CUDA' : 'C', texts = [['own', own + ', this kernel', [K]]];
    if (other.length)
        texts.push([
            'other',
            (gpu ? 'C' : 'CUDA') +
                (other.length > 1 ? ', ' + plural(other.length, 'kernel') : ', ' + other[0].name),
            other
        ]);
    const which = texts.find(x => x[0] === now.text) || texts[0];
    const code =
        el('div', {class: 'texts'},
           el('div', {class: 'bar'},
              texts.map(
                  x =>
                      el('button', {
                          type: 'button',
                          role: 'tab',
                          'aria-selected': x === which,
                          'data-text': x[0],
                          on: {
                              click: e => {
                                  e.stopPropagation();
                                  now.text = x[0];
                                  openKernel(k, true);
                              }
                          }
                      },
                         x[1]))),
           which[2].map(x => codeBox(x.text)));
    return el(
        'div', {class: 'detail', on: {click: e => e.stopPropagation()}}, facts, chips,
        opList ? [el('h3', {}, 'What went into it'), opList] : null, el('h3', {}, 'Buffers'),
        buffers, code);
}

function openKernel(k, keep) {
    for (const x of document.querySelectorAll('#view .detail')) x.remove();
    now.open = now.open === k && !keep ? null : k;
    if (now.open === null) return;
    const row = document.querySelector(`#view .kernel[data-kernel="${k}"]`);
    if (row) row.append(detail(k));
}
