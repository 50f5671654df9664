"""svg.py: the charts of compare.py, written as SVG text.  Data are plain lists; every function
returns the text."""
import math
from html import escape

COLOURS = ("#2a6fdb", "#e07b39", "#3a9d5d", "#b13f5f", "#7a5cc4", "#8a8a8a", "#c2a21b", "#1b9aaa")
LINE, FONT = 18, 12


def text(x, y, s, anchor="start", fill="#222", size=FONT):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" '
            f'font-size="{size}">{escape(s)}</text>')


def rect(x, y, w, h, fill):
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(w, 0.5):.1f}" height="{h:.1f}" fill="{fill}"/>')


def line(x1, y1, x2, y2, stroke="#bbb", dash=""):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"'
            f' stroke-dasharray="{dash}"/>')


def document(w, h, title, parts):
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}"'
            f' font-family="sans-serif">')
    return "\n".join([head, rect(0, 0, w, h, "#fff"), text(12, 22, title, size=15), *parts,
                      "</svg>", ""])


def bars(title, rows, mark=None):
    """rows: (label, value, what stands beside the bar) or (heading,); mark: a value that gets a
    line."""
    left, width, top = 330, 330, 36
    most = max([r[1] for r in rows if len(r) > 1] + [mark or 0, 1e-12])
    parts, y = [], top
    for r in rows:
        if len(r) == 1:
            parts.append(text(12, y + 13, r[0], fill=COLOURS[0]))
        else:
            long = r[1] / most * width
            parts += [text(left - 8, y + 13, r[0][:52], "end"),
                      rect(left, y + 3, long, LINE - 5, COLOURS[0]),
                      text(left + long + 6, y + 13, r[2])]
        y += LINE
    if mark:
        parts.append(line(left + mark / most * width, top, left + mark / most * width, y, "#222",
                          "4 3"))
    return document(left + width + 190, y + 12, title, parts)


def ticks(lo, hi, log):
    if log:
        return [10. ** e for e in range(math.floor(math.log10(lo)), math.ceil(math.log10(hi)) + 1)]
    step = 10 ** math.floor(math.log10(hi))
    step = step if hi / step > 4 else step / 4
    return [i * step for i in range(int(math.ceil(hi / step)) + 1)]


def plot(title, x_name, y_name, series, log=False, joined=True, roofs=()):
    """series: (name, [(x, y)]); roofs: further lines [(x, y)] without points."""
    left, top, w, h = 70, 40, 560, 340
    points = [p for _, s in series for p in s]
    if not points:
        return document(left + w, top + h, title, [text(left, top + 40, "nothing was measured")])
    f = math.log10 if log else float

    def axis(i):
        values = [p[i] for p in points]
        t = ticks(min(values), max(values), log)
        return t, f(t[0]), f(t[-1])
    (tx, x0, x1), (ty, y0, y1) = axis(0), axis(1)

    def at(p):
        x, y = (f(p[0]) - x0) / (x1 - x0 or 1), (f(p[1]) - y0) / (y1 - y0 or 1)
        return left + x * w, top + h - y * h
    parts = []
    for t in tx:
        x, _ = at((t, ty[0]))
        parts += [line(x, top, x, top + h, "#eee"), text(x, top + h + 16, f"{t:g}", "middle")]
    for t in ty:
        _, y = at((tx[0], t))
        parts += [line(left, y, left + w, y, "#eee"), text(left - 6, y + 4, f"{t:g}", "end")]
    parts += [text(left + w / 2, top + h + 36, x_name, "middle"), text(12, top - 4, y_name)]
    parts.append(
        f'<clipPath id="c"><rect x="{left}" y="{top}" width="{w}" height="{h}"/></clipPath>')
    for r in roofs:
        for a, b in zip(r, r[1:]):
            parts.append('<g clip-path="url(#c)">' + line(*at(a), *at(b), "#222", "4 3") + "</g>")
    for i, (name, s) in enumerate(series):
        colour = COLOURS[i % len(COLOURS)]
        s = sorted(s)
        for a, b in zip(s, s[1:]) if joined else ():
            parts.append(line(*at(a), *at(b), colour))
        parts += [f'<circle cx="{at(p)[0]:.1f}" cy="{at(p)[1]:.1f}" r="3.5" fill="{colour}"/>'
                  for p in s]
        parts += [rect(left + w + 14, top + i * LINE, 10, 10, colour),
                  text(left + w + 30, top + 10 + i * LINE, name)]
    return document(left + w + 230, top + h + 50, title, parts)
