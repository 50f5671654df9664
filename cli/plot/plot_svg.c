/* plot_svg.c: draws curves of runs as one SVG, with panels below each other over the same steps.
 *
 * A long curve is drawn twice: faint, the minimum and maximum of the steps in each pixel, and
 * strong, their means.  Colours follow the reader's light or dark mode. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/json.h"
#include "plot.h"

enum { WIDTH = 960, LEFT = 78, RIGHT = 20, GAP = 54, LEGEND = 22, BUCKETS = 260, COLOURS = 8 };

typedef struct Panel {
        const char *title, *unit;
        Curve first, last; /* what it shows: one or two curves */
        int height;
} Panel;
static const Panel panels[] = { { "loss", "nats per token", CURVE_TRAIN, CURVE_VAL, 300 },
                                { "learning rate", "", CURVE_LR, CURVE_LR, 130 },
                                { "gradient norm", "", CURVE_NORM, CURVE_NORM, 130 },
                                { "throughput", "tokens/s", CURVE_RATE, CURVE_RATE, 130 },
                                { "time of a step", "", CURVE_TIME, CURVE_TIME, 130 } };
enum { N_PANELS = sizeof panels / sizeof *panels };

/* From the data to the page. */
typedef struct Scale {
        double lo, hi, from, to;
        bool log, whole; /* whole: its values are integers, so its ticks are */
} Scale;

static double place(const Scale *s, double v)
{
        double a = s->log ? log10(s->lo) : s->lo, b = s->log ? log10(s->hi) : s->hi,
               x = s->log ? log10(v) : v;
        return s->from + (x - a) / (b - a) * (s->to - s->from);
}

/* Text of XML: what would be markup is escaped, what is no character becomes '?'. */
static void put_xml(FILE *f, const char *s)
{
        while (*s) {
                const unsigned char c = (unsigned char)*s;
                size_t k = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
                if (k > strlen(s) || (k > 1 && !json_utf8_ok(s, k)))
                        fputc('?', f), k = 1;
                else if (c == '<' || c == '>' || c == '&' || c == '"')
                        fprintf(f, "&#%d;", c);
                else if (k == 1 && (c < ' ' || c == 0x7f))
                        fputc('?', f);
                else
                        fwrite(s, 1, k, f);
                s += k;
        }
}

/* ---- axes ---- */

/* The round step, 1, 2 or 5 times a power of ten, by which about n ticks fit. */
static double round_step(double span, int n)
{
        double raw = span / n, power = pow(10, floor(log10(raw))), f = raw / power;
        return power * (f < 1.5 ? 1 : f < 3.5 ? 2 : f < 7.5 ? 5 : 10);
}

static double tick_step(const Scale *s, int about)
{
        const double step = round_step(s->hi - s->lo, about);
        return s->whole && step < 1 ? 1 : step;
}

/* 12000 as 12k, 0.0006 as 6e-4; ticks that are `step` apart have different texts. */
static void tick_text(char *s, size_t cap, double v, double step)
{
        const double big = fabs(v);
        if (big < step * 1e-6) {
                snprintf(s, cap, "0");
                return;
        }
        const int apart = (int)(floor(log10(big)) - floor(log10(step))) + 1,
                  digits = apart < 6    ? 6
                           : apart < 15 ? apart
                                        : 15;
        if (big >= 1e6)
                snprintf(s, cap, "%.*gM", digits, v / 1e6);
        else if (big >= 1e4)
                snprintf(s, cap, "%.*gk", digits, v / 1e3);
        else if (big < 1e-2) {
                int e = (int)floor(log10(big) + 1e-9);
                snprintf(s, cap, "%.*ge%d", digits - 1, v / pow(10, e), e);
        } else
                snprintf(s, cap, "%.*g", digits, v);
}

/* Values of ticks; at most cap. */
static int ticks(const Scale *s, int about, double *at, int cap)
{
        int n = 0;
        if (!s->log) {
                const double step = tick_step(s, about);
                for (double i = ceil(s->lo / step - 1e-9);
                     i * step <= s->hi + step * 1e-9 && n < cap; i++)
                        at[n++] = i * step;
                return n;
        }
        const bool wide = s->hi / s->lo > 300, narrow = s->hi / s->lo < 8;
        if (narrow) { /* round numbers all the same */
                Scale even = *s;
                even.log = false;
                return ticks(&even, about, at, cap);
        }
        for (int e = (int)floor(log10(s->lo)); e <= (int)ceil(log10(s->hi)); e++)
                for (int m = 1; m < 10; m += m == 1 ? 1 : m == 2 ? 3 : 5) {
                        double v = m * pow(10, e);
                        if ((m == 1 || !wide) && v >= s->lo * (1 - 1e-9) &&
                            v <= s->hi * (1 + 1e-9) && n < cap)
                                at[n++] = v;
                }
        return n;
}

static void put_axes(FILE *f, const Scale *x, const Scale *y, bool with_steps)
{
        double at[64], step = tick_step(y, 6);
        char s[32];
        int n = ticks(y, y->from - y->to > 200 ? 6 : 3, at, 64);
        for (int i = 0; i < n; i++) {
                double v = place(y, at[i]);
                tick_text(s, sizeof s, at[i], step);
                fprintf(f, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>", x->from, v, x->to);
                fprintf(f, "<text class=\"tick end\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                        x->from - 8, v + 4, s);
        }
        n = ticks(x, 8, at, 64);
        for (int i = 0; i < n; i++) {
                double v = place(x, at[i]);
                tick_text(s, sizeof s, at[i], tick_step(x, 8));
                fprintf(f, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>", v, y->from, y->to);
                fprintf(f, "<text class=\"tick mid\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", v,
                        y->from + 17, s);
        }
        if (with_steps)
                fprintf(f, "<text class=\"tick mid\" x=\"%.1f\" y=\"%.1f\">step</text>\n",
                        (x->from + x->to) / 2, y->from + 35);
}

/* ---- curves ---- */

static void point(FILE *f, bool first, double x, double y)
{
        fprintf(f, "%s%.1f %.1f", first ? "M" : "L", x, y);
}

/* Of each bucket of steps the least, the most, and the mean. */
static void put_long(FILE *f, const Points *p, const Scale *x, const Scale *y, int colour)
{
        for (int strong = 0; strong < 2; strong++) {
                bool first = true;
                fprintf(f, "<path class=\"c%d %s\" d=\"", colour, strong ? "line" : "faint");
                for (int i = 0; i < p->n;) {
                        const int bucket = (int)((p->x[i] - x->lo) / (x->hi - x->lo) * BUCKETS);
                        double lo = p->y[i], hi = p->y[i], sum = 0, sx = 0;
                        int n = 0;
                        while (i < p->n &&
                               (int)((p->x[i] - x->lo) / (x->hi - x->lo) * BUCKETS) == bucket) {
                                lo = p->y[i] < lo ? p->y[i] : lo;
                                hi = p->y[i] > hi ? p->y[i] : hi;
                                sum += p->y[i];
                                sx += p->x[i++];
                                n++;
                        }
                        if (strong) {
                                point(f, first, place(x, sx / n), place(y, sum / n));
                        } else {
                                point(f, first, place(x, sx / n), place(y, hi));
                                point(f, false, place(x, sx / n), place(y, lo));
                        }
                        first = false;
                }
                fprintf(f, "\"/>\n");
        }
}

static void put_curve(FILE *f, const Points *p, const Scale *x, const Scale *y, int colour,
                      bool dots)
{
        if (p->n > 3 * BUCKETS) {
                put_long(f, p, x, y, colour);
                return;
        }
        fprintf(f, "<path class=\"c%d line%s\" d=\"", colour, dots ? " val" : "");
        for (int i = 0; i < p->n; i++)
                point(f, !i, place(x, p->x[i]), place(y, p->y[i]));
        fprintf(f, "\"/>\n");
        for (int i = 0; i < p->n && (dots || p->n == 1); i++)
                fprintf(f, "<circle class=\"d%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n", colour,
                        place(x, p->x[i]), place(y, p->y[i]));
}

/* ---- panels ---- */

static void widen(Scale *s, const Points *p, const double *v)
{
        for (int i = 0; i < p->n; i++) {
                s->lo = v[i] < s->lo ? v[i] : s->lo;
                s->hi = v[i] > s->hi ? v[i] : s->hi;
        }
}

static bool has(const Panel *q, const RunLog *run, int n)
{
        for (int r = 0; r < n; r++)
                for (int c = (int)q->first; c <= (int)q->last; c++)
                        if (run[r].of[c].n)
                                return true;
        return false;
}

static int check_log(const RunLog *run, int n, Err *e)
{
        if (!has(&panels[0], run, n))
                return err_set(e, TGC_USAGE, "--log has no effect: no run has a loss");
        for (int r = 0; r < n; r++)
                for (int c = CURVE_TRAIN; c <= CURVE_VAL; c++)
                        for (int i = 0; i < run[r].of[c].n; i++)
                                if (run[r].of[c].y[i] <= 0)
                                        return err_set(e, TGC_BAD_FILE,
                                                       "%s:%d: %s is %g, and --log shows what is "
                                                       "above 0",
                                                       run[r].path, run[r].of[c].line[i],
                                                       run[r].column[c], run[r].of[c].y[i]);
        return TGC_OK;
}

/* Its values are one, but for their last digits. */
static bool flat(const Scale *s) { return s->hi - s->lo <= 1e-12 * fmax(fabs(s->hi), fabs(s->lo)); }

static void room(Scale *s)
{
        if (s->log) {
                double by = pow(s->hi / s->lo, 0.04);
                by = by < 1.02 ? 1.02 : by;
                s->lo /= by, s->hi *= by;
                return;
        }
        double by = (s->hi - s->lo) * 0.04;
        if (flat(s))
                by = s->hi ? fabs(s->hi) * 0.1 : 1;
        if (s->lo >= 0 && s->lo - by < 0)
                s->lo = 0; /* nothing here is below */
        else
                s->lo -= by;
        s->hi += by;
}

static void put_panel(FILE *f, const Panel *q, const RunLog *run, int n, const Scale *x, double top,
                      bool log_scale, bool last)
{
        Scale y = { INFINITY, -INFINITY, top + q->height, top, log_scale, false };
        const char *unit = q->unit;
        for (int r = 0; r < n; r++)
                for (int c = (int)q->first; c <= (int)q->last; c++) {
                        widen(&y, &run[r].of[c], run[r].of[c].y);
                        if (!*unit && run[r].of[c].n && strcmp(run[r].column[c], q->title))
                                unit = run[r].column[c];
                }
        room(&y);
        fprintf(f, "<text class=\"title\" x=\"%d\" y=\"%.1f\">%s", LEFT, top - 9, q->title);
        if (*unit) {
                fprintf(f, "<tspan class=\"tick\" dx=\"8\">");
                put_xml(f, unit);
                fprintf(f, "%s</tspan>", log_scale ? ", logarithmic" : "");
        }
        fprintf(f, "</text>\n");
        put_axes(f, x, &y, last);
        for (int r = 0; r < n; r++)
                for (int c = (int)q->first; c <= (int)q->last; c++)
                        if (run[r].of[c].n)
                                put_curve(f, &run[r].of[c], x, &y, r % COLOURS, c == CURVE_VAL);
}

static void put_style(FILE *f)
{
        static const char *const light[COLOURS] = { "#2f6fd6", "#d2483f", "#119a8b", "#8a4fd0",
                                                    "#c98a12", "#5d8a1f", "#c2448f", "#5c6772" };
        static const char *const dark[COLOURS] = { "#5b95f2", "#f0736a", "#35bfae", "#b184f0",
                                                   "#e3ad45", "#98c257", "#ea7fbd", "#a3afba" };
        fprintf(f, "<style>\n"
                   "text { font: 12px system-ui, \"DejaVu Sans\", sans-serif; fill: #1c1f23; }\n"
                   ".bg { fill: #fff; } .grid { stroke: #e4e6e9; } .tick { fill: #6a7079; }\n"
                   ".title { font-weight: 600; font-size: 14px; } .title .tick { font-weight: 400; "
                   "font-size: 12px; }\n"
                   ".mid { text-anchor: middle; } .end { text-anchor: end; }\n"
                   ".line, .faint { fill: none; stroke-width: 1.8; stroke-linejoin: round; }\n"
                   ".faint { stroke-width: 1; opacity: .28; } .val { stroke-dasharray: 5 3; }\n");
        for (int i = 0; i < COLOURS; i++)
                fprintf(f, ".c%d { stroke: %s; } .d%d { fill: %s; }\n", i, light[i], i, light[i]);
        fprintf(f,
                "@media (prefers-color-scheme: dark) {\n"
                "text { fill: #e4e7ea; } .bg { fill: #1a1e23; } .grid { stroke: #2c323a; } .tick { "
                "fill: #949ca6; }\n");
        for (int i = 0; i < COLOURS; i++)
                fprintf(f, ".c%d { stroke: %s; } .d%d { fill: %s; }\n", i, dark[i], i, dark[i]);
        fprintf(f, "}\n</style>\n");
}

/* A line for each run; how the two curves of the loss differ, where both are there. */
static void put_legend(FILE *f, const RunLog *run, int n)
{
        for (int r = 0; r < n; r++) {
                const int y = 26 + r * LEGEND;
                const bool both = run[r].of[CURVE_TRAIN].n && run[r].of[CURVE_VAL].n;
                fprintf(f, "<path class=\"c%d line\" d=\"M%d %dh26\"/>", r % COLOURS, LEFT, y);
                fprintf(f, "<text x=\"%d\" y=\"%d\">", LEFT + 34, y + 4);
                put_xml(f, run[r].path);
                fprintf(f, "%s</text>\n", both ? "  <tspan class=\"tick\">training</tspan>" : "");
                if (both)
                        fprintf(f,
                                "<path class=\"c%d line val\" d=\"M%d %dh26\"/><circle "
                                "class=\"d%d\" cx=\"%d\" cy=\"%d\" r=\"3\"/><text class=\"tick\" "
                                "x=\"%d\" y=\"%d\">validation</text>\n",
                                r % COLOURS, WIDTH - 150, y, r % COLOURS, WIDTH - 137, y,
                                WIDTH - 116, y + 4);
        }
}

int plot_svg(FILE *f, const RunLog *run, int n, bool log_scale, Err *e)
{
        Scale x = { INFINITY, -INFINITY, LEFT, WIDTH - RIGHT, false, true };
        int code = log_scale ? check_log(run, n, e) : TGC_OK, height = 44 + n * LEGEND, shown = 0;
        if (code)
                return code;
        for (int i = 0; i < N_PANELS; i++)
                if (has(&panels[i], run, n))
                        height += panels[i].height + GAP, shown++;
        for (int r = 0; r < n; r++)
                for (int c = 0; c < N_CURVES; c++)
                        widen(&x, &run[r].of[c], run[r].of[c].x);
        for (int r = 0; r < n; r++)
                for (int c = 0; c < N_CURVES; c++)
                        for (int i = 0; i < run[r].of[c].n && x.whole; i++)
                                x.whole = run[r].of[c].x[i] == floor(run[r].of[c].x[i]);
        if (flat(&x))
                x.lo -= 1, x.hi += 1;
        fprintf(f,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                "height=\"%d\" role=\"img\">\n<title>training runs</title>\n",
                WIDTH, height, WIDTH, height);
        put_style(f);
        fprintf(f, "<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n", WIDTH, height);
        put_legend(f, run, n);
        double top = 22 + n * LEGEND + 22;
        for (int i = 0; i < N_PANELS; i++)
                if (has(&panels[i], run, n)) {
                        put_panel(f, &panels[i], run, n, &x, top, log_scale && !i, !--shown);
                        top += panels[i].height + GAP;
                }
        fprintf(f, "</svg>\n");
        return TGC_OK;
}
