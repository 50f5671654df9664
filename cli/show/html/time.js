/* time.js: times as bars, and the roofline. */

/* ---- right: time ---- */

function drawTime(view) {
    const m = ceilings(plan().measured), t = target(), p = program(), ms = p.measured;
    view.append(el('h2', {}, m.device));
    if (!ms) {
        const tested = m.programs.map(x => x.program).join(', ');
        view.append(
            el('p', {class: 'note'},
               'Measured here: ' + tested + ', on ' + (m.target === 'cuda' ? 'GPU' : 'CPU') +
                   '. Choose one of these above.'));
        return;
    }
    const sum = workOf(t, p),
          rows = p.order.map(k => ({k, K: t.kernels[k], n: p.of.get(k).length, ms: timeOf(p, k)}))
                     .sort((a, b) => b.ms - a.ms);
    view.append(
        el('p', {class: 'note'},
           p.name + ' of ' + ms.B + ' × ' + ms.T + ' tokens: ' + msText(sum.ms) + ', ' +
               p.launches.length +
               ' launches, the shortest of five runs each. Ceilings: ' + si(m.bytes_per_s, 'B/s') +
               ' moved' + (m.flops_per_s ? ', ' + si(m.flops_per_s, 'FLOP/s') : '') +
               (m.best ? ', the best that a launch reached: those of this ' +
                        'device are not known.' :
                         '.')),
        ...[roofline(rows, m, p, ms)].filter(Boolean));
    view.append(el(
        'table', {class: 'times-table'},
        el('tr', {},
           ['kernel', '', 'time', 'share', 'launches', 'of ceiling'].map(h => el('th', {}, h))),
        rows.map(
            r => el(
                'tr', {
                    'data-kernel': r.k,
                    class: 'pickable',
                    on: {click: () => select({kind: 'kernel', k: r.k}, {scrollLine: true})}
                },
                el('td', {}, el('i', {class: 'swatch c-' + r.K.kind}), r.K.name),
                el('td', {class: 'wide'}, bar(r.ms / (rows[0].ms || 1), 'fill c-' + r.K.kind)),
                el('td', {class: 'num'}, msText(r.ms)),
                el('td', {class: 'num'}, share(r.ms / (sum.ms || 1))),
                el('td', {class: 'num'}, String(r.n)),
                el('td', {class: 'num'}, r.K.bytes ? share(ceilingOf(r.K, r.ms / r.n / 1000)) : '–',
                   bar(ceilingOf(r.K, r.ms / r.n / 1000), 'fill ceil'))))));
}

function roofline(rows, m, p, ms) {
    const W = 1000, H = 380, L = 84, R = 16, T = 14, B = 46;
    const all = rows.reduce((a, r) => a + r.ms, 0);
    const dots =
        rows.filter(r => r.K.flops > 0 && r.K.bytes > 0 && r.ms > all * 0.002)
            .map(r => ({...r, x: r.K.flops / r.K.bytes, y: r.K.flops * r.n / r.ms * 1000}));
    if (!dots.length || !m.bytes_per_s) return null;
    const ridge = m.flops_per_s ? m.flops_per_s / m.bytes_per_s : 100;
    const lx = Math.floor(Math.log10(Math.min(...dots.map(d => d.x), ridge))),
          hx = Math.ceil(Math.log10(Math.max(...dots.map(d => d.x), ridge * 2))),
          top = Math.max(...dots.map(d => d.y), m.flops_per_s || 0);
    const ly = Math.max(
              Math.floor(Math.log10(Math.min(...dots.map(d => d.y)))), Math.log10(top) - 7),
          hy = Math.log10(top) + 0.25;
    const X = v => L + (Math.log10(v) - lx) / (hx - lx) * (W - L - R),
          Y = v => H - B - (Math.log10(v) - ly) / (hy - ly) * (H - B - T);
    const total = rows.reduce((a, r) => a + r.ms, 0) || 1, grid = [];
    for (let e = lx; e <= hx; e++)
        grid.push(
            svg('line', {x1: X(10 ** e), x2: X(10 ** e), y1: T, y2: H - B, class: 'grid'}),
            svg('text', {x: X(10 ** e), y: H - B + 18, class: 'tick mid'},
                e < 0 ? String(10 ** e) : si(10 ** e, '').trim()));
    for (let e = Math.ceil(ly); e <= hy; e++)
        grid.push(
            svg('line', {x1: L, x2: W - R, y1: Y(10 ** e), y2: Y(10 ** e), class: 'grid'}),
            svg('text', {x: L - 8, y: Y(10 ** e) + 4, class: 'tick end'},
                si(10 ** e, 'FLOP/s').replace(/\.0+ /, ' ')));
    const right = 10 ** hx, x0 = Math.max(10 ** lx, 10 ** ly / m.bytes_per_s),
          roof = [`${X(x0)},${Y(x0 * m.bytes_per_s)}`];
    if (m.flops_per_s)
        roof.push(`${X(ridge)},${Y(m.flops_per_s)}`, `${X(right)},${Y(m.flops_per_s)}`);
    else
        roof.push(`${X(right)},${Y(right * m.bytes_per_s)}`);
    const named = new Set([...dots].sort((a, b) => b.ms - a.ms).slice(0, 6).map(d => d.k));
    return svg(
        'svg', {
            id: 'roofline',
            viewBox: `0 0 ${W} ${H}`,
            class: 'plot',
            role: 'img',
            'aria-label': 'roofline',
            on: {
                click: e => {
                    const k = e.target.getAttribute('data-kernel');
                    if (k !== null) select({kind: 'kernel', k: +k}, {scrollLine: true});
                },
                mousemove: e => {
                    const d = dots.find(x => String(x.k) === e.target.getAttribute('data-kernel'));
                    tip(e,
                        d ? d.K.name + '\n' + si(d.y, 'FLOP/s') + ', ' + d.x.toPrecision(3) +
                                ' FLOP/B\n' + share(ceilingOf(d.K, d.ms / d.n / 1000)) +
                                ' of the ceiling' :
                            null);
                },
                mouseleave: () => tip(null)
            }
        },
        grid, svg('polyline', {points: roof.join(' '), class: 'roof'}),
        svg('text', {x: (L + W - R) / 2, y: H - 8, class: 'tick mid'}, 'FLOP per byte'),
        [...dots].sort((a, b) => b.ms - a.ms).map(d => svg('circle', {
                                                      cx: X(d.x).toFixed(1),
                                                      cy: Y(d.y).toFixed(1),
                                                      r: (4 + 16 * Math.sqrt(d.ms / total))
                                                             .toFixed(1),
                                                      class: 'dot c-' + d.K.kind,
                                                      'data-kernel': d.k
                                                  })),
        spread(
            dots.filter(d => named.has(d.k)).map(d => ({
                                                     x: X(d.x) + 7 + 16 * Math.sqrt(d.ms / total),
                                                     y: Y(d.y) + 4,
                                                     text: d.K.name,
                                                     end: X(d.x) > W - 180,
                                                     r: 14 + 32 * Math.sqrt(d.ms / total)
                                                 }))));
}

/* Labels, moved down until none lies on another. */
function spread(list) {
    list.sort((a, b) => a.y - b.y);
    list.forEach((a, i) => {
        for (const b of list.slice(0, i))
            if (Math.abs(a.y - b.y) < 13 && Math.abs(a.x - b.x) < 150) a.y = b.y + 13;
    });
    return list.map(
        a =>
            svg('text', {
                x: (a.end ? a.x - a.r : a.x).toFixed(1),
                y: a.y.toFixed(1),
                class: 'dotname' + (a.end ? ' end' : '')
            },
                a.text));
}
