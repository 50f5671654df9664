/* memory.js: memory over launches, and what was not fused. */

/* ---- right: memory ---- */

function drawMemory(view) {
    const p = program(), t = plan().targets[0],
          mem = (plan().memory || []).find(m => m.program === p.name);
    const arenas = target().arenas.filter(a => a[1] > 0),
          all = arenas.reduce((a, b) => a + b[1], 0) || 1;
    const names = {
        w: 'weights',
        g: 'gradients',
        m: 'AdamW m',
        v: 'AdamW v',
        p: 'master weights',
        lo: 'low bits',
        kv: 'KV cache',
        act: 'activations',
        keep: 'kept',
        const : 'constants',
        gsum: 'gradient sums'
    };
    view.append(
        el('h2', {}, 'Memory of all programs: ' + bytes(all)),
        el('div', {class: 'arenas'},
           arenas.map(
               (a, i) =>
                   el('div', {
                       class: 'arena a' + i % 8,
                       style: 'flex-grow:' + Math.max(a[1] / all, 0.004).toFixed(4),
                       title: (names[a[0]] || a[0]) + ' ' + bytes(a[1])
                   },
                      el('b', {}, names[a[0]] || a[0]), el('span', {}, bytes(a[1]))))));
    if (!mem) {
        view.append(el('p', {class: 'note'}, p.name + ' has no buffers of its own.'));
        return;
    }
    const q = t.programs.find(x => x.name === p.name), n = q ? q.launches.length : 1,
          top = mem.bytes || 1;
    const W = 1000, H = 430, L = 64, R = 8, T = 14, B = 34;
    const X = i => L + (i + 1) / (n + 2) * (W - L - R), Y = b => H - B - b / top * (H - B - T);
    const live = new Array(n + 2).fill(0);
    for (const b of mem.buffers)
        for (let i = Math.max(b[2], -1); i <= Math.min(b[3], n); i++) live[i + 1] += b[1];
    const peak = Math.max(...live), at = live.indexOf(peak);
    const ticks = niceTicks(0, top, 5);
    const area = live.map(
                         (v, i) => `${X(i - 1).toFixed(1)},${Y(v).toFixed(1)} ${X(i).toFixed(1)},${
                             Y(v).toFixed(1)}`)
                     .join(' ');
    const rects = mem.buffers.map((b, i) => {
        const maker =
            q && b[2] >= 0 && q.launches[b[2]] ? t.kernels[q.launches[b[2]].kernel].kind : 'host';
        const w = X(b[3] + 1) - X(b[2]);
        return svg('rect', {
            x: X(b[2]).toFixed(2),
            width: Math.max(w - 0.6, 0.8).toFixed(2),
            y: Y(b[0] + b[1]).toFixed(2),
            height: Math.max(Y(b[0]) - Y(b[0] + b[1]) - 0.4, 0.5).toFixed(2),
            class: 'buf c-' + maker,
            'data-buffer': i
        });
    });
    const labels =
        mem.buffers.filter(b => Y(b[0]) - Y(b[0] + b[1]) > 13 && X(b[3] + 1) - X(b[2]) > 60)
            .map(
                b =>
                    svg('text', {
                        x: (X(b[2]) + 4).toFixed(1),
                        y: ((Y(b[0]) + Y(b[0] + b[1])) / 2 + 3.5).toFixed(1),
                        class: 'buflabel'
                    },
                        b[4].slice(0, Math.floor((X(b[3] + 1) - X(b[2])) / 6.4))));
    const pick = e => e.target.getAttribute && e.target.getAttribute('data-buffer');
    view.append(
        el('h2', {}, 'Activations of ' + p.name + ': ' + bytes(mem.bytes)),
        el('p', {class: 'note'},
           'A rectangle is a buffer: wide as the launches it lives through, high as its bytes, in the ' +
               'colour of the kernel that makes it. The line is what is alive, at most ' +
               bytes(peak) + ' (launch ' + Math.max(0, at - 1) +
               '); buffers share places, so the plan needs ' + bytes(mem.bytes) + ' instead of ' +
               bytes(mem.buffers.reduce((a, b) => a + b[1], 0)) + '.' +
               (t !== target() ? ' The plan is that of ' + t.name + '.' : '')),
        svg('svg', {
            id: 'memory',
            viewBox: `0 0 ${W} ${H}`,
            class: 'plot',
            role: 'img',
            'aria-label': 'memory plan',
            on: {
                click: e => {
                    const i = pick(e);
                    if (i !== null)
                        select({kind: 'node', name: mem.buffers[i][4]}, {scrollLine: true});
                },
                mousemove: e => {
                    const i = pick(e), b = i !== null && mem.buffers[i];
                    tip(e,
                        b ? b[4] + '\n' + bytes(b[1]) + ' at ' + bytes(b[0]) + '\nlaunches ' +
                                b[2] + ' to ' + b[3] :
                            null);
                },
                mouseleave: () => tip(null)
            }
        },
            ticks.map(
                v =>
                    [svg('line', {x1: L, x2: W - R, y1: Y(v), y2: Y(v), class: 'grid'}),
                     svg('text', {x: L - 6, y: Y(v) + 4, class: 'tick end'}, bytes(v))]),
            niceTicks(0, n, 8)
                .filter(v => v === Math.round(v) && v < n)
                .map(
                    v =>
                        svg('text', {x: (X(v) + X(v + 1)) / 2, y: H - B + 16, class: 'tick mid'},
                            String(v))),
            svg('text', {x: (L + W - R) / 2, y: H - 4, class: 'tick mid'}, 'launch'),
            svg('g', {id: 'membands'}), rects, labels,
            svg('polyline', {points: area, class: 'live'})));
    view.append(el(
        'details', {class: 'table'},
        el('summary', {}, plural(mem.buffers.length, 'buffer') + ' as a table'),
        el('table', {class: 'buffers'},
           el('tr', {},
              ['value', 'bytes', 'offset', 'first launch', 'last'].map(h => el('th', {}, h))),
           [...mem.buffers]
               .sort((a, b) => b[1] - a[1])
               .map(
                   b => el(
                       'tr', {}, el('td', {}, el('code', {}, b[4])),
                       el('td', {class: 'num'}, bytes(b[1])), el('td', {class: 'num'}, bytes(b[0])),
                       el('td', {class: 'num'}, String(b[2])),
                       el('td', {class: 'num'}, String(b[3])))))));
}

function niceTicks(lo, hi, n) {
    const raw = (hi - lo) / n || 1, mag = 10 ** Math.floor(Math.log10(raw)), f = raw / mag,
          step = mag *
        (f < 1.5     ? 1 :
             f < 3.5 ? 2 :
             f < 7.5 ? 5 :
                       10),
          out = [];
    for (let v = Math.ceil(lo / step) * step; v <= hi * 1.0001; v += step) out.push(v);
    return out;
}

/* ---- right: what was not fused ---- */

function whyText(line) {
    const out = [];
    let at = 0;
    for (const m of line.matchAll(/%([^\s,;:()]+)|\(([^()\s]+):(\d+)\)/g)) {
        out.push(line.slice(at, m.index));
        out.push(
            m[1] ? el('a', {class: 'ref', 'data-node': m[1]}, m[0]) :
                   el('a', {class: 'ref where', 'data-at': m[2] + ':' + m[3]}, m[2] + ':' + m[3]));
        at = m.index + m[0].length;
    }
    out.push(line.slice(at));
    return out;
}

const LOST = / \((\d+) bytes\)$/; /* what a refusal costs */

/* [reason, lines that differ in numbers alone] ..., the most frequent first. */
function reasons(lines) {
    const by = new Map();
    for (const line of lines) {
        const at = line.lastIndexOf(': '),
              reason = at < 0 ? 'other' : line.slice(at + 2).replace(LOST, '');
        const key =
            reason.replace(/%[^\s,;:()]+/g, 'a value').replace(/\d[\d.,]*( ?[kMGT]?B\b)?/g, '…');
        if (!by.has(key)) by.set(key, new Map());
        const same = line.replace(/\d+/g, '*'), list = by.get(key);
        if (!list.has(same)) list.set(same, []);
        list.get(same).push(line);
    }
    const size = m => [...m.values()].reduce((a, l) => a + l.length, 0);
    return [...by]
        .map(([key, m]) => ({key, n: size(m), lists: [...m.values()]}))
        .sort((a, b) => b.n - a.n);
}

function drawWhy(view) {
    const saved = plan().why.filter(l => /^the kernel of /.test(l)),
          refused = plan().why.filter(l => l.startsWith('%'));
    const all = reasons(refused);
    const short = (line, key) => {
        const plain = line.replace(LOST, ''), lost = LOST.exec(line);
        return [
            whyText(plain.endsWith(': ' + key) ? plain.slice(0, -key.length - 2) : plain),
            lost ? el('b', {}, '  ' + bytes(+lost[1])) : null
        ];
    };
    view.append(
        el('h2', {},
           refused.length ? plural(refused.length, 'fusion') + ' refused' :
                               'Nothing was refused'),
        el('p', {class: 'note'},
           'Of all programs. What stays out of a kernel is stored by one launch and read by another.'));
    for (const r of all)
        view.append(el(
            'details', {class: 'why', open: all.length < 8 || r.lists.length < 4 || null},
            el('summary', {}, el('b', {}, r.key.charAt(0).toUpperCase() + r.key.slice(1)),
               el('span', {class: 'times'}, ' ' + r.n)),
            el('ul', {},
               r.lists.map(
                   list => el(
                       'li', {}, short(list[0], r.key),
                       list.length > 1 ?
                           el('details', {class: 'more'},
                              el('summary', {}, 'and ' + (list.length - 1) + ' like it'),
                              el('ul', {},
                                 list.slice(1).map(l => el('li', {}, short(l, r.key))))) :
                           null)))));
    if (saved.length)
        view.append(
            el('details', {class: 'why'},
               el('summary', {}, el('b', {}, 'What fusion saves'),
                  el('span', {class: 'times'}, ' ' + saved.length)),
               el('ul', {}, saved.map(l => el('li', {}, whyText(l))))));
    view.addEventListener('click', whyClick);
}

function whyClick(e) {
    const a = e.target.closest('a.ref');
    if (!a) return;
    select(
        a.dataset.at ? {kind: 'line', at: a.dataset.at} : {kind: 'node', name: a.dataset.node},
        {scrollLine: true});
}
