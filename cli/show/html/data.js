'use strict';
/* data.js: elements, numbers, the data joined, and what is chosen.
 * The scripts of a page are one program, in the order of page.html.  Whatever comes from the plan
 * becomes text of a node or the value of a known attribute, never markup. */

const plans = JSON.parse(document.getElementById('data').textContent);
const $ = id => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';

/* ---- elements ---- */

function fill(node, attrs, children) {
    for (const [k, v] of Object.entries(attrs || {}))
        if (k === 'on')
            for (const [name, f] of Object.entries(v)) node.addEventListener(name, f);
        else if (v !== null && v !== undefined && v !== false)
            node.setAttribute(k, v);
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
    while (Math.abs(x) >= 999.5 && i < 5) {
        x /= 1000;
        i++;
    }
    const s = x === 0                                           ? '0' :
        Math.abs(x) >= 99.5 || (i === 0 && x === Math.round(x)) ? x.toFixed(0) :
        Math.abs(x) >= 9.95                                     ? x.toFixed(1) :
                                                                  x.toFixed(2);
    return s + ' ' + step[i] + unit;
}
const bytes = x => si(x, 'B');
const flop = x => si(x, 'FLOP');
const share = x => (100 * x).toFixed(x < 0.0995 ? 1 : 0) + '%';
const msText = x => x >= 100 ? x.toFixed(0) + ' ms' :
    x >= 1                   ? x.toFixed(2) + ' ms' :
                               (1000 * x).toFixed(x >= 0.1 ? 0 : 1) + ' µs';
const count = n => String(n).replace(/\B(?=(\d{3})+$)/g, '\u202f');
const kib = x => x >= 1024 ? +(x / 1024).toFixed(1) + ' KiB' : x + ' B';
const plural = (n, word) => n + ' ' + word + (n === 1 ? '' : 's');

/* ---- what a kernel is ---- */

const KINDS = [
    ['update', 'optimizer', /^$/], /* what the program `update` launches */
    ['loss', 'loss', /ce_|_ce|loss|^ce$/], ['attention', 'attention', /attention|qkv_att/],
    ['gemm', 'GEMM', /matmul|gemm|gemv|transpose/], ['norm', 'norm', /norm/],
    ['reduce', 'sums, index, sample', /colsum|sum|scatter|bucket|route|sample|gather|max/],
    ['map', 'elementwise', /./]
];
const kindOf = title => KINDS.find(k => k[2].test(title.split(' + ')[0]))[0];

/* ---- the data, joined ---- */

function prepare(plan) {
    const graph = new Map();
    for (const g of plan.graphs) {
        g.nodes = g.nodes.map(n => ({
                                  name: n[0],
                                  op: n[1],
                                  type: n[2],
                                  ins: n[3],
                                  group: n[4],
                                  cls: n[5],
                                  file: n[6],
                                  line: n[7]
                              }));
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
            p.of = new Map();      /* kernel -> its launches */
            p.byGroup = new Map(); /* group -> launches */
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
            if (p.name === 'update' || p.name === 'add_grads')
                for (const k of p.order) t.kernels[k].kind = 'update';
            p.measured = plan.measured && plan.measured.target === t.name ?
                plan.measured.programs.find(m => m.program === p.name) :
                null;
        }
    }
    plan.forward = forward;
    return plan;
}

const nodesOf = (prog, l) => prog.graph ?
    l.groups.flatMap(g => prog.graph.byGroup.get(g) || []).filter(n => n.cls !== 2) :
    [];
const place = n => n.file ? n.file + ':' + n.line : '';

/* ---- state ---- */

const now = {
    plan: 0,
    target: 0,
    program: 0,
    tab: 'kernels',
    file: 0,
    sel: null,
    open: null,
    launch: 0,
    pane: 'right',
    text: 'own',
    find: ''
};
const plan = () => plans[now.plan];
const target = () => plan().targets[now.target];
const program = () => target() && target().programs[now.program];
const kernel = k => target().kernels[k];

/* What is lit: lines "file:line", names of nodes, kernels, launches. */
function lit() {
    const s = now.sel, p = program(), out = {
        lines: new Set(),
        nodes: new Set(),
        kernels: new Set(),
        launches: new Set(),
        views: 0
    };
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
        for (const n of p.graph ? p.graph.nodes : [])
            if (place(n) === s.at) nodeIn(n);
    } else if (s.kind === 'node') {
        const n = p.graph && p.graph.byName.get(s.name);
        if (n) {
            nodeIn(n);
            if (n.file) out.lines.add(place(n));
        } else
            out.nodes.add(s.name);
    } else if (s.kind === 'kernel')
        (p.of.get(s.k) || []).forEach(launchIn);
    else if (s.kind === 'launch')
        launchIn(s.i);
    return out;
}

function select(sel, how) {
    now.sel = sel;
    if (sel && sel.kind === 'kernel') now.launch = 0;
    if (sel && sel.kind === 'launch')
        now.launch = program().of.get(program().launches[sel.i].kernel).indexOf(sel.i);
    paintLit(how || {});
}
