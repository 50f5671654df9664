/* changes.js: two plans side by side. */

/* ---- right: two plans ---- */

/* A kernel's text without its own name, and the nodes of its launches. */
function portraits(t) {
    const out = t.kernels.map(
        (K, k) => ({K, k, text: K.text.split(K.name).join('@'), nodes: new Set(), use: new Map()}));
    for (const p of t.programs)
        p.launches.forEach(l => {
            const x = out[l.kernel];
            x.use.set(p.name, (x.use.get(p.name) || 0) + 1);
            for (const n of nodesOf(p, l))
                if (n.cls === 0) x.nodes.add(p.name + ' ' + n.name);
        });
    return out;
}

function changes(a, b) {
    const A = portraits(a), B = portraits(b), byText = new Map(), same = [], changed = [];
    for (const x of B) byText.set(x.text, (byText.get(x.text) || []).concat(x));
    const leftA = [], takenB = new Set();
    for (const x of A) {
        const y = (byText.get(x.text) || []).find(z => !takenB.has(z));
        if (y && x.text) {
            takenB.add(y);
            same.push([x, y]);
        } else
            leftA.push(x);
    }
    const rest = B.filter(x => !takenB.has(x)), owner = new Map(), pairs = [];
    for (const y of rest)
        for (const n of y.nodes) owner.set(n, (owner.get(n) || []).concat(y));
    for (const x of leftA) {
        const hits = new Map();
        for (const n of x.nodes)
            for (const y of owner.get(n) || []) hits.set(y, (hits.get(y) || 0) + 1);
        for (const [y, n] of hits)
            pairs.push([
                n / (x.nodes.size + y.nodes.size - n) + (x.K.title === y.K.title ? 0.5 : 0), x, y
            ]);
    }
    pairs.sort((p, q) => q[0] - p[0] || p[1].k - q[1].k || p[2].k - q[2].k);
    const usedA = new Set(), usedB = new Set();
    for (const [score, x, y] of pairs) {
        if (score < 0.2 || usedA.has(x) || usedB.has(y)) continue;
        usedA.add(x), usedB.add(y), changed.push([x, y]);
    }
    changed.sort((p, q) => p[1].k - q[1].k);
    return {
        same,
        changed,
        removed: leftA.filter(x => !usedA.has(x)),
        added: rest.filter(x => !usedB.has(x))
    };
}

/* Lines of two texts: [' -+', line]. */
function diff(a, b) {
    const A = a.split('\n'), B = b.split('\n'), n = A.length, m = B.length;
    if (n * m > 4e6) return [...A.map(x => ['-', x]), ...B.map(x => ['+', x])];
    const D = Array.from({length: n + 1}, () => new Uint16Array(m + 1)), out = [];
    for (let i = n - 1; i >= 0; i--)
        for (let j = m - 1; j >= 0; j--)
            D[i][j] = A[i] === B[j] ? D[i + 1][j + 1] + 1 : Math.max(D[i + 1][j], D[i][j + 1]);
    let i = 0, j = 0;
    while (i < n || j < m)
        if (i < n && j < m && A[i] === B[j]) {
            out.push([' ', A[i++]]);
            j++;
        } else if (i < n && (j === m || D[i + 1][j] >= D[i][j + 1]))
            out.push(['-', A[i++]]);
        else
            out.push(['+', B[j++]]);
    return out;
}

function delta(a, b, text) {
    return el(
        'td',
        {class: 'num ' +
             (text(a) === text(b) ? '' :
                  b > a           ? 'up' :
                                    'down')},
        text(a) === text(b) ? text(a) : [text(a), ' → ', el('b', {}, text(b))]);
}

function drawChanges(view) {
    const name = target().name, [a, b] = plans.map(p => p.targets.find(t => t.name === name));
    if (!a || !b) {
        view.append(el('p', {class: 'note'}, 'Only one of the plans has kernels of ' + name + '.'));
        return;
    }
    const c = a.changes && a.changes.of === b ? a.changes : (a.changes = {...changes(a, b), of: b});
    const names = [...new Set([...a.programs, ...b.programs].map(p => p.name))],
          none = {launches: []};
    const mem = (pl, n) => ((pl.memory || []).find(m => m.program === n) || {bytes: 0}).bytes;
    const usage = x => [...x.use].map(([p, n]) => p + ' ' + n).join(', ') || 'not launched';
    const ops = x => [...new Set([...x.nodes].map(n => n.split(' ')[1]))];
    view.append(
        el('h2', {}, 'From ', el('em', {}, plans[0].name), ' to ', el('em', {}, plans[1].name)),
        el('p', {class: 'tally'},
           [
               ['added', c.added.length], ['removed', c.removed.length],
               ['changed', c.changed.length], ['the same', c.same.length]
           ].map(([w, n]) => el('span', {class: 'tag ' + w.replace('the ', '')}, n + ' ' + w))),
        el('table', {class: 'buffers'},
           el('tr', {},
              ['program', 'launches', 'FLOPs', 'bytes moved', 'activations'].map(
                  h => el('th', {}, h))),
           names.map(n => {
               const p = a.programs.find(x => x.name === n), q = b.programs.find(x => x.name === n);
               const s = p ? workOf(a, p) : {flops: 0, bytes: 0},
                     r = q ? workOf(b, q) : {flops: 0, bytes: 0};
               return el(
                   'tr', {}, el('th', {}, n),
                   delta((p || none).launches.length, (q || none).launches.length, String),
                   delta(s.flops, r.flops, flop), delta(s.bytes, r.bytes, bytes),
                   delta(mem(plans[0], n), mem(plans[1], n), bytes));
           })));
    const list = (title, cls, items, draw) => items.length ?
        view.append(el('h3', {}, title), ...items.map(x => {
            const d = el('details', {class: 'change ' + cls}, el('summary', {}, draw(x)));
            d.addEventListener('toggle', () => {
                if (d.open && d.children.length < 2) d.append(changeDetail(x));
            });
            return d;
        })) :
        null;
    const one = x =>
        [el('i', {class: 'swatch c-' + x.K.kind}), el('b', {}, x.K.name),
         el('span', {class: 'dim'}, '  ' + usage(x))];
    list('Changed', 'changed', c.changed, ([x, y]) => {
        const A = new Set(ops(x)), Bs = new Set(ops(y)), came = [...Bs].filter(n => !A.has(n)),
              went = [...A].filter(n => !Bs.has(n));
        return [
            el('i', {class: 'swatch c-' + y.K.kind}),
            el('b', {}, x.K.name === y.K.name ? y.K.name : x.K.name + ' → ' + y.K.name),
            el('span', {class: 'dim'}, '  ' + usage(y)),
            came.length ? el('span', {class: 'came'},
                             '  + ' + came.slice(0, 3).join(', ') + (came.length > 3 ? ' …' : '')) :
                          null,
            went.length ? el('span', {class: 'went'},
                             '  − ' + went.slice(0, 3).join(', ') + (went.length > 3 ? ' …' : '')) :
                          null
        ];
    });
    list('Added', 'added', c.added, one);
    list('Removed', 'removed', c.removed, one);
    if (!c.added.length && !c.removed.length && !c.changed.length)
        view.append(el('p', {class: 'note'}, 'All kernels of ' + name + ' are the same text.'));
}

function changeDetail(x) {
    if (!Array.isArray(x)) return codeBox(x.K.text);
    const [a, b] = x, lines = diff(a.text.split('@').join(b.K.name), b.K.text);
    const near =
        lines.map((l, i) => lines.slice(Math.max(0, i - 3), i + 4).some(y => y[0] !== ' '));
    const out = [];
    lines.forEach((l, i) => {
        if (near[i])
            out.push(
                el('span',
                   {class: l[0] === '+' ? 'ins' :
                        l[0] === '-'    ? 'del' :
                                          ''},
                   l[0] + ' ' + l[1].replace(/\t/g, '    ') + '\n'));
        else if (i && near[i - 1])
            out.push(el('span', {class: 'skip'}, '  ⋯\n'));
    });
    const row = (name, f, g) =>
        f === g ? null : el('div', {}, name + ' ', f, ' → ', el('b', {}, g));
    return el(
        'div', {class: 'detail'}, row('work', flop(a.K.flops), flop(b.K.flops)),
        row('moved', bytes(a.K.bytes), bytes(b.K.bytes)),
        row('threads', String(a.K.forms[0].threads), String(b.K.forms[0].threads)),
        row('shared', kib(a.K.forms[0].smem), kib(b.K.forms[0].smem)),
        el('pre', {class: 'code diff'}, el('code', {}, out)));
}
