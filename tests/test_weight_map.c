/* test_weight_map.c: checkpoint names to parameters with transforms.  test_weight_export.c has the
 * way back. */
#include <math.h>
#include "weight_map_test.h"

/* ---- text ---- */

TEST (print_parse) {
        static const char text[] =
                "map tok_emb = model.embed_tokens.weight || lm_head.weight\n"
                "map blk0.wqkv[0:768] = model.layers.0.self_attn.q_proj.weight: 768x768 | rope "
                "12\n"
                "map blk0.wg[3][0:64:2] = e.weight: 8x64x32 | index 3 | rows 0 32 | cols 1 2 | t "
                "| reshape 4 8\n"
                "map w[:][5:7][2] =? x | rope 4 32 | scale 0.125\n"
                "map s = scale: scalar | scale -1e-30 | scale 3.141592653589793\n"
                "map ignore = really.a.parameter\n"
                "map ignore *.attn.bias\n"
                "map ignore a?c\n";
        static const char loose[] =
                "# a comment\n\n  map\ta[0:4:1]  =  b:   4  |  t \n#\nmap c = d";
        WeightMap *m = parse(text);
        char *s = weight_map_print(m);

        CHECK_MSG(s && !strcmp(s, text), "%s", s);
        free(s);
        weight_map_free(m);
        m = parse(loose);
        s = weight_map_print(m);
        CHECK_MSG(!strcmp(s, "map a[0:4] = b: 4 | t\nmap c = d\n"), "%s", s);
        free(s);
        weight_map_free(m);
        m = parse("");
        s = weight_map_print(m);
        CHECK(!strcmp(s, ""));
        free(s);
        weight_map_free(m);
}

TEST (parse_errors) {
        static const struct {
                const char *text, *says;
        } bad[] = {
                { "map a = b\nmop a = b", "test.map:2: error: a line begins with map" },
                { "map", "parameter is missing" },
                { "map a", "expected '='" },
                { "map a b", "expected '=' or '=?'" },
                { "map a =", "name is missing" },
                { "map a = |", "name" },
                { "map a = b c", "expected '|'" },
                { "map a = b |", "transform is missing" },
                { "map a = b | spin", "not 'spin'" },
                { "map a = b | rows 3", "too few" },
                { "map a = b | rows 3 4 5", "too many" },
                { "map a = b | rows 4 4", "empty slice" },
                { "map a = b | rows -1 4", "not a number: '-1'" },
                { "map a = b | rope 0", "rope" },
                { "map a = b | rope 4 3", "rope" },
                { "map a = b | scale 0", "scale" },
                { "map a = b | scale inf", "scale" },
                { "map a = b | scale 1x", "scale" },
                { "map a = b | add nan", "add" },
                { "map a = b | add", "too few" },
                { "map a = b | unrope 0", "rope" },
                { "map a = b | group 3 2", "group" },
                { "map a = b | group 2", "too few" },
                { "map a = b | t 1", "too many" },
                { "map a = b | reshape", "too few" },
                { "map a = b | reshape 1 1 1 1 1 1 1 1 1", "too many" },
                { "map a = b | index 99999999999999999999", "not a number" },
                { "map a = b | t | t | t | t | t | t | t | t | t", "more than 8" },
                { "map a = b || c || d || e || f", "more than 4" },
                { "map a = b ||", "name is missing" },
                { "map a = b: 3x || c", "shape" },
                { "map a = b: 3xx4", "shape" },
                { "map a = b:", "shape" },
                { "map a = b: 1x1x1x1x1x1x1x1x1", "shape" },
                { "map a = b: 3 || c", "expected '|'" },
                { "map a[ = b", "target" },
                { "map a[3 = b", "target" },
                { "map a[3:3] = b", "target" },
                { "map a[0:3:0] = b", "target" },
                { "map a[x] = b", "target" },
                { "map a[] = b", "target" },
                { "map a[0]b = b", "target" },
                { "map [0] = b", "not a parameter's name" },
                { "map a[0][0][0][0][0][0][0][0][0] = b", "target" },
                { "map a = b[0]", "not a tensor's name" },
                { "map ignore a b", "one pattern" },
        };
        WeightMap *m;

        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                CHECK_MSG(weight_map_parse(&m, bad[i].text, "test.map", &err) == TGC_BAD_FILE,
                          "accepted: %s", bad[i].text);
                CHECK_MSG(strstr(err.msg, bad[i].says), "%s: %s", bad[i].text, err.msg);
        }
}

/* ---- transforms on tensors whose elements are 0, 1, 2 ... ---- */

TEST (transforms) {
        static const struct {
                const char *source, *param, *map;
                float want[12];
        } cases[] = {
                { "x 2x3", "p 2x3", "map p = x", { 0, 1, 2, 3, 4, 5 } },
                { "x 2x3", "p 3x2", "map p = x | t", { 0, 3, 1, 4, 2, 5 } },
                { "x 2x2x3", "p 2x3x2", "map p = x | t", { 0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11 } },
                { "x 4x3", "p 2x3", "map p = x | rows 1 3", { 3, 4, 5, 6, 7, 8 } },
                { "x 2x4", "p 2x2", "map p = x | cols 1 3", { 1, 2, 5, 6 } },
                { "x 2x4x2", "p 2x1x2", "map p = x | cols 3 4", { 6, 7, 14, 15 } },
                { "x 3x2x2", "p 2x2", "map p = x | index 2", { 8, 9, 10, 11 } },
                { "x 5", "p", "map p = x | index 4", { 4 } },
                { "x 2x3", "p 6", "map p = x | t | reshape 6", { 0, 3, 1, 4, 2, 5 } },
                /* out[2i]=in[i], out[2i+1]=in[i+4] */
                { "x 8", "p 8", "map p = x | rope 1", { 0, 4, 1, 5, 2, 6, 3, 7 } },
                { "x 8", "p 8", "map p = x | rope 2", { 0, 2, 1, 3, 4, 6, 5, 7 } },
                { "x 12",
                  "p 12",
                  "map p = x | rope 2 4",
                  { 0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11 } },
                { "x 4x2", "p 4x2", "map p = x | rope 1", { 0, 1, 4, 5, 2, 3, 6, 7 } },
                { "x 8", "p 8", "map p = x | unrope 2", { 0, 2, 1, 3, 4, 6, 5, 7 } },
                { "x 8", "p 8", "map p = x | unrope 1", { 0, 2, 4, 6, 1, 3, 5, 7 } },
                { "x 6", "p 6", "map p = x | unrope 1 4", { 0, 2, 1, 3, 4, 5 } },
                { "x 6x1", "p 6x1", "map p = x | rope 1 | unrope 1", { 0, 1, 2, 3, 4, 5 } },
                /* q0 q1 q2 q3 k0 k1 v0 v1: two of q, one of k, one of v, twice */
                { "x 8", "p 8", "map p = x | group 4 2", { 0, 1, 4, 6, 2, 3, 5, 7 } },
                { "x 3x2", "p 3x2", "map p = x | group 1 1", { 0, 1, 2, 3, 4, 5 } },
                { "x 4", "p 4", "map p = x | scale 0.5 | scale -1", { 0, -.5f, -1, -1.5f } },
                { "x 3", "p 3", "map p = x | add -1", { -1, 0, 1 } },
                { "x 3", "p 3", "map p = x | add 1 | scale 2 | add 0.5", { 2.5f, 4.5f, 6.5f } },
                { "x", "p", "map p = x: scalar", { 0 } },
                { "x 2x3, y 1x3",
                  "p 3x3",
                  "map p[1:3] = x\nmap p[0:1] = y",
                  { 0, 1, 2, 0, 1, 2, 3, 4, 5 } },
                { "x 2x2, y 2x2",
                  "p 4x2",
                  "map p[0:4:2] = x\nmap p[1:4:2] = y",
                  { 0, 1, 0, 1, 2, 3, 2, 3 } },
                { "x 2, y 2x3",
                  "p 2x4",
                  "map p[:][3] = x\nmap p[:][0:3] = y",
                  { 0, 1, 2, 0, 3, 4, 5, 1 } },
                { "x 3, y 3",
                  "p 2x6",
                  "map p[0][0:6:2] = x\nmap p[0][1:6:2] = y\nmap p[1][0:3] = x\nmap p[1][3:6] = y",
                  { 0, 0, 1, 1, 2, 2, 0, 1, 2, 0, 1, 2 } },
                { "x 2x4x1",
                  "p 2x2, q 4",
                  "map p = x | reshape 2 4 | cols 0 2\nmap q = x | reshape 2 4 | cols 2 4 | "
                  "reshape 4",
                  { 0, 1, 4, 5 } },
                { "b 2", "p 2", "map p = a || b", { 0, 1 } },
                { "x 5",
                  "p 5",
                  "map p[0:5:3] = x | rows 0 2\n"
                  "map p[1:5:3] = x | rows 1 3\n"
                  "map p[2] = x | index 4",
                  { 0, 1, 4, 1, 2 } },
        };

        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                Checkpoint *ck = numbers(cases[i].source);
                WeightMap *map = parse(cases[i].map);
                WeightReport r;
                Model m;
                int64_t n;

                model_make(&m, cases[i].param, CK_F32);
                CHECK_MSG(!weight_map_import(map, ck, &m.set, &r, &err), "%s: %s", cases[i].map,
                          err.msg);
                CHECK(r.n_absent == 0);
                CHECK(ck_count(m.p[0].rank, m.p[0].dim, &n));
                for (int64_t k = 0; k < n; k++)
                        CHECK_MSG(((float *)m.p[0].data)[k] == cases[i].want[k],
                                  "%s: element %d is %g, not %g", cases[i].map, (int)k,
                                  ((float *)m.p[0].data)[k], cases[i].want[k]);
                weight_report_free(&r);
                model_free(&m);
                weight_map_free(map);
                checkpoint_close(ck);
        }
}

TEST (import_errors) {
        static const struct {
                const char *source, *param, *map, *says;
        } bad[] = {
                { "x 2x3", "p 3x2", "map p = x",
                  "shapes differ: parameter p is [3,2] (target [3,2]), tensor x is [2,3]" },
                { "x 2x3", "p 2x3, q 4, r", "map p = x",
                  "2 parameters get no weights, or not for all their elements: q, r" },
                { "x 2x3", "p 3x3", "map p[0:2] = x", "not for all their elements: p" },
                { "x 2x3", "p 3x3", "map p[0:2] = x\nmap p[1:3] = x",
                  "covered twice, from x (line 1) and x" },
                { "x 2, y 3", "p 5", "map p[0:4:2] = x\nmap p[2:5] = y", "covered twice" },
                /* both take 6 */
                { "x 2, y 2", "p 9", "map p[0:9:6] = x\nmap p[2:9:4] = y", "covered twice" },
                { "x 2", "p 2", "map p = y || z", "1 tensors of the map are missing: y" },
                { "x 2", "p 2", "map p = x\nmap q = x",
                  "test.map:2: error: the model has no parameter q" },
                { "x 2x3", "p 2x3", "map p = x: 3x2",
                  "tensor x is [2,3], the map wants [3,2] (test.map:1)" },
                { "x 2", "p 2", "map p = x | t", "t needs a matrix" },
                { "x 2", "p 2", "map p = x | cols 0 1", "cols beyond" },
                { "x 2", "p 2", "map p = x | rows 0 3", "rows beyond" },
                { "x 2", "p 2", "map p = x | index 2", "index beyond" },
                { "x 2", "p 2", "map p = x | reshape 2 2", "reshape changes" },
                { "x 2", "p 2", "map p = x | reshape 72057594037927935 72057594037927935",
                  "reshape changes" },
                { "x 6", "p 6", "map p = x | rope 4", "heads do not divide" },
                { "x 6", "p 6", "map p = x | rope 2", "odd number" },
                { "x 6", "p 6", "map p = x | unrope 2", "odd number" },
                { "x 6", "p 6", "map p = x | group 2 1", "group: the heads do not divide" },
                { "x 6", "p 6", "map p = x | rope 1 8", "fewer rows" },
                { "x 2", "p 2", "map p[0:3] = x", "beyond the parameter" },
                { "x 2", "p 2", "map p[2] = x", "beyond the parameter" },
                { "x 2", "p 2", "map p[0][0] = x", "more brackets" },
                { "x 0", "p 0", "map p = x", "no elements" },
        };

        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                Checkpoint *ck = numbers(bad[i].source);
                WeightMap *map = parse(bad[i].map);
                Model m;

                model_make(&m, bad[i].param, CK_F32);
                CHECK_MSG(weight_map_import(map, ck, &m.set, 0, &err) == TGC_BAD_FILE,
                          "accepted: %s", bad[i].map);
                CHECK_MSG(strstr(err.msg, bad[i].says), "%s: %s", bad[i].map, err.msg);
                /* nothing written before all is known */
                CHECK(m.p[0].dim[0] == 0 || *(float *)m.p[0].data == -1);
                model_free(&m);
                weight_map_free(map);
                checkpoint_close(ck);
        }
}

TEST (many_missing) {
        Checkpoint *ck = numbers("x 1");
        char map[1200] = "", spec[400] = "";
        WeightMap *w;
        Model m;

        for (int i = 0; i < 20; i++) {
                sprintf(map + strlen(map), "map p%d = a.long.name.of.a.tensor.%d\n", i, i);
                sprintf(spec + strlen(spec), "%sp%d 1", i ? ", " : "", i);
        }
        w = parse(map);
        model_make(&m, spec, CK_F32);
        CHECK(weight_map_import(w, ck, &m.set, 0, &err) == TGC_BAD_FILE);
        CHECK_MSG(strstr(err.msg, "20 tensors") && strstr(err.msg, "tensor.5 and 14 more"), "%s",
                  err.msg);
        model_free(&m);
        weight_map_free(w);
        checkpoint_close(ck);
}

TEST (reports) {
        Checkpoint *ck = numbers("x 2, y 2, h.0.attn.bias 2, h.1.attn.masked_bias 1, z 3");
        WeightMap *map = parse(
                "map p = x\nmap q =? no.such\nmap r[0:2] = y\nmap r[2:4] =? gone\nmap s =? x\n"
                "map ignore h.*.attn.*bias\nmap ignore ?\x1f\nmap ignore z");
        WeightReport r;
        Model m;

        model_make(&m, "p 2, q 3, r 4", CK_F32);
        CHECK_MSG(!weight_map_import(map, ck, &m.set, &r, &err), "%s", err.msg);
        CHECK(r.n_absent == 2 && !strcmp(r.absent[0], "q") && !strcmp(r.absent[1], "r"));
        CHECK(((float *)m.p[1].data)[2] == -1 && ((float *)m.p[2].data)[1] == 1 &&
              ((float *)m.p[2].data)[2] == -1);
        weight_report_free(&r);
        model_free(&m);
        weight_map_free(map);
        checkpoint_close(ck);
}

/* A tied head may lie in the file if it is the embedding, or the embedding is not there. */
TEST (twins) {
        static const struct {
                const char *tensors, *ignore;
                bool good;
        } t[] = {
                { "e 3x2", "h=e", true },
                { "e 3x2, h 3x2", "h=e", true },
                { "e 3x2, h 2x2", "h=e", false },
                { "e 3x2, h 2x2", "h=other", true },
                { "e 3x2, h 3x2", "h=other\nmap ignore h=e", true },
                { "e 3x2, h 2x2", "h=other\nmap ignore h=e", false },
                { "e 3x2, hh 3x2", "h=e", false },
                { "e 3x2, h 2x2", "h=e\nmap ignore h*", true },
        };
        for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
                char text[100];
                Checkpoint *ck = numbers(t[i].tensors);
                Model m;
                snprintf(text, sizeof text, "map e = e\nmap ignore %s\n", t[i].ignore);
                WeightMap *w = parse(text);
                model_make(&m, "e 3x2", CK_F32);
                int code = weight_map_import(w, ck, &m.set, 0, &err);
                CHECK_MSG((code == 0) == t[i].good, "%s, %s: %s", t[i].tensors, t[i].ignore,
                          code ? err.msg : "taken");
                if (code && !strstr(t[i].tensors, "hh"))
                        CHECK_MSG(code == TGC_BAD_FILE && strstr(err.msg, "h differs from e"), "%s",
                                  err.msg);
                model_free(&m);
                weight_map_free(w);
                checkpoint_close(ck);
        }
}

/* begin and end see every parameter once, in order, and a failure passes through. */
typedef struct Seen {
        char log[64];
        float buf[8];
        int fail;
} Seen;

static int seen_begin(void *ctx, int i, void **data, Err *e)
{
        Seen *s = ctx;

        sprintf(s->log + strlen(s->log), "(%d", i);
        *data = s->buf;
        return s->fail == i ? err_set(e, TGC_NO_MEMORY, "begin refuses") : TGC_OK;
}

static int seen_end(void *ctx, int i, bool ok, Err *e)
{
        Seen *s = ctx;

        (void)e;
        sprintf(s->log + strlen(s->log), "%c%d)", ok ? '+' : '-', i);
        return TGC_OK;
}

TEST (begin_end) {
        Checkpoint *ck = numbers("x 2, y 3");
        WeightMap *map = parse("map q = y\nmap p[0] = x | index 1\nmap p[1] = x | index 0");
        Seen seen = { .fail = -1 };
        Model m;

        model_make(&m, "p 2, q 3", CK_F32);
        m.set.ctx = &seen;
        m.set.begin = seen_begin;
        m.set.end = seen_end;
        CHECK_MSG(!weight_map_import(map, ck, &m.set, 0, &err), "%s", err.msg);
        CHECK_MSG(!strcmp(seen.log, "(0+0)(1+1)") && seen.buf[2] == 2, "%s", seen.log);
        seen = (Seen) { .fail = 1 };
        CHECK(weight_map_import(map, ck, &m.set, 0, &err) == TGC_NO_MEMORY &&
              !strcmp(err.msg, "begin refuses"));
        CHECK_MSG(!strcmp(seen.log, "(0+0)(1"), "%s", seen.log);
        model_free(&m);
        weight_map_free(map);
        checkpoint_close(ck);
}

TEST_MAIN
