/* test_weight_export.c: parameters to checkpoint tensors, and there and back with real models. */
#include <math.h>
#include "weight_map_test.h"

static void same_checkpoint(const Checkpoint *a, const Checkpoint *b)
{
        CHECK_MSG(checkpoint_count(a) == checkpoint_count(b), "%d and %d tensors",
                  checkpoint_count(a), checkpoint_count(b));
        for (int i = 0; i < checkpoint_count(a); i++) {
                const CkTensor *x = checkpoint_at(a, i), *y = checkpoint_at(b, i);
                CHECK_MSG(!strcmp(x->name, y->name), "%s and %s", x->name, y->name);
                CHECK_MSG(x->rank == y->rank &&
                                  !memcmp(x->dim, y->dim, (size_t)x->rank * sizeof *x->dim) &&
                                  x->dtype == y->dtype && !memcmp(x->data, y->data, x->bytes),
                          "%s differs", x->name);
        }
}

/* Import, export, compare bit by bit; then once more with the map's own print. */
static void round_trip(const char *text, Checkpoint *ck, const char *spec)
{
        WeightMap *map = parse(text);
        Checkpoint *back;
        char *printed;
        Model m;

        weight_map_annotate(map, ck);
        printed = weight_map_print(map);
        weight_map_free(map);
        map = parse(printed);
        free(printed);
        model_make(&m, spec, CK_F32);
        CHECK_MSG(!weight_map_import(map, ck, &m.set, 0, &err), "%s: %s", text, err.msg);
        CHECK_MSG(!weight_map_export(map, &m.set, CK_F32, out_path, 0, 0, &err), "%s: %s", text,
                  err.msg);
        CHECK_MSG(!checkpoint_open(&back, out_path, &err), "%s", err.msg);
        same_checkpoint(ck, back);
        checkpoint_close(back);
        model_free(&m);
        weight_map_free(map);
}

TEST (export_inverse) {
        static const struct {
                const char *source, *param, *map;
        } cases[] = {
                { "x 4x6", "p 6x4", "map p = x | t | rope 3 | scale 0.5" },
                { "x 4x6", "p 2x6, q 2x6", "map p = x | rows 0 2\nmap q = x | rows 2 4" },
                { "x 4x6", "p 4x1, q 4x5", "map p = x | cols 0 1\nmap q = x | cols 1 6" },
                { "x 3x2x4", "p 2x3x4",
                  "map p[:][0] = x | index 0\n"
                  "map p[:][2] = x | index 2\n"
                  "map p[:][1] = x | index 1" },
                { "q 4x3, k 2x3, v 2x3", "w 8x3",
                  "map w[0:4] = q | rope 2\nmap w[4:6] = k | rope 1\nmap w[6:8] = v" },
                { "gate 3x2, up 3x2", "w 6x2", "map w[0:6:2] = gate\nmap w[1:6:2] = up" },
                /* heads of q, k, v side by side, as GPT-NeoX has them */
                { "qkv 12x2", "q 4x2, k 4x2, v 4x2",
                  "map q = qkv | reshape 2 3 2 2 | cols 0 1 | reshape 4 2 | rope 2\n"
                  "map k = qkv | reshape 2 3 2 2 | cols 1 2 | reshape 4 2 | rope 2\n"
                  "map v = qkv | reshape 2 3 2 2 | cols 2 3 | reshape 4 2" },
                { "s", "p", "map p = s" },
                { "x 8x2", "p 8x2", "map p = x | group 4 2 | unrope 2" },
                { "x 6", "p 6", "map p = x | scale 2 | add -1" },
                { "s, t 1", "p 2", "map p[0] = s\nmap p[1:2] = t" },
                { "e.0 2x3, e.1 2x3", "w 2x3x2", "map w[0] = e.0 | t\nmap w[1] = e.1 | t" },
                { "x 70x90", "p 90x70", "map p = x | t" },
                { "x 4", "p 4, q 4", "map p = x\nmap q = x" }, /* tied and equal */
        };

        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                Checkpoint *ck = numbers(cases[i].source);
                round_trip(cases[i].map, ck, cases[i].param);
                checkpoint_close(ck);
        }
}

/* Random chains of transforms that keep every element. */
TEST (export_random) {
        for (int round = 0; round < 200; round++) {
                char source[64], param[64] = "p ", map[400] = "map p = x";
                int dim[3] = { 1 + random_below(5), 2 * (1 + random_below(4)),
                               1 + random_below(5) };
                Checkpoint *ck;

                sprintf(source, "x %dx%dx%d", dim[0], dim[1], dim[2]);
                for (int k = random_below(6); k >= 0; k--) {
                        int t, n = dim[0] * dim[1] * dim[2];
                        switch (random_below(4)) {
                        case 0:
                                t = dim[1], dim[1] = dim[2], dim[2] = t;
                                strcat(map, " | t");
                                break;
                        case 1:
                                dim[0] = n % 3 ? 1 : 3, dim[1] = n / dim[0] % 2 ? 1 : 2,
                                dim[2] = n / dim[0] / dim[1];
                                sprintf(map + strlen(map), " | reshape %d %d %d", dim[0], dim[1],
                                        dim[2]);
                                break;
                        case 2:
                                if (dim[0] % 2 == 0)
                                        strcat(map, " | rope 1");
                                if (dim[0] > 3)
                                        strcat(map, " | rope 1 2");
                                break;
                        default: strcat(map, " | scale -4");
                        }
                }
                sprintf(param + 2, "%dx%dx%d", dim[0], dim[1], dim[2]);
                ck = numbers(source);
                round_trip(map, ck, param);
                checkpoint_close(ck);
        }
}

/* What a file's own names and transforms make of it, before the model's map. */
TEST (composed) {
        static const struct {
                const char *source, *names, *param, *map;
                float want[12];
                const char *prints;
        } cases[] = {
                { "a 2x3",
                  "map x = a",
                  "p 2x3",
                  "map p = x: 2x3",
                  { 0, 1, 2, 3, 4, 5 },
                  "map p = a\n" },
                { "a 2x3",
                  "map x = a | t",
                  "p 2x3",
                  "map p = x: 3x2 | t",
                  { 0, 1, 2, 3, 4, 5 },
                  "map p = a\n" },
                { "a 8x1",
                  "map x = a | unrope 2",
                  "p 8x1",
                  "map p = x | rope 2 4",
                  { 0, 1, 2, 3, 4, 5, 6, 7 },
                  "map p = a\n" },
                { "a 8",
                  "map x = a | unrope 2 4",
                  "p 8",
                  "map p = x | rope 1",
                  { 0, 4, 2, 6, 1, 5, 3, 7 },
                  "map p = a | unrope 2 4 | rope 1\n" },
                { "a 3",
                  "map y = a | add -1",
                  "p 3",
                  "map p = x || y | scale 2",
                  { -2, 0, 2 },
                  "map p = a | add -1 | scale 2\n" },
                { "a 3, x 3",
                  "map y = a\nmap ignore a",
                  "p 3",
                  "map p = x",
                  { 0, 1, 2 },
                  "map p = x\nmap ignore a\n" },
                { "a 4x2x1",
                  "map x.1 = a | index 1",
                  "p 2",
                  "map p = x.1: 2x1 | reshape 2",
                  { 2, 3 },
                  0 },
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                Checkpoint *ck = numbers(cases[i].source);
                WeightMap *map = parse(cases[i].map), *names = parse(cases[i].names);
                Model m;
                char *text;
                int64_t n;

                model_make(&m, cases[i].param, CK_F32);
                CHECK_MSG(!weight_map_compose(map, names, ck, &err), "%s", err.msg);
                text = weight_map_print(map);
                CHECK_MSG(!cases[i].prints || !strcmp(text, cases[i].prints), "%s", text);
                free(text);
                CHECK_MSG(!weight_map_import(map, ck, &m.set, 0, &err), "%s: %s", cases[i].map,
                          err.msg);
                CHECK(ck_count(m.p[0].rank, m.p[0].dim, &n));
                CHECK_MSG(!memcmp(m.p[0].data, cases[i].want, (size_t)n * 4), "%s behind %s",
                          cases[i].map, cases[i].names);
                model_free(&m);
                weight_map_free(map);
                weight_map_free(names);
                checkpoint_close(ck);
        }
        Checkpoint *ck = numbers("a 2x3");
        WeightMap *map = parse("map p = x: 2x3"), *names = parse("map x = a | t");
        CHECK(weight_map_compose(map, names, ck, &err) == TGC_BAD_FILE &&
              strstr(err.msg, "tensor a is [2,3], which makes x [3,2], and the model wants [2,3]"));
        weight_map_free(map);
        weight_map_free(names);
        checkpoint_close(ck);
}

/* Blocks move as they are where transforms leave them whole, and become elements where not. */
TEST (blocks) {
        static const char *const maps[] = {
                "map p = x: 8x64",
                "map p = x | rope 2",
                "map p = x | unrope 1 | rows 2 6",
                "map p = x | reshape 4 2 64 | index 1",
                "map p = x | cols 32 64",
                "map p = x | cols 3 40",
                "map p = x | t | rows 1 9",
                "map p = x | reshape 512 | rows 7 300",
                "map p[:][1:65] = x\nmap p[:][0] = z",
                "map p[0:16:2] = x\nmap p[1:16:2] = x",
                "map p = x | group 2 1 | scale 3 | add 1",
        };
        static const char *const shape[] = { "p 8x64", "p 8x64",  "p 4x64", "p 2x64",
                                             "p 8x32", "p 8x37",  "p 8x8",  "p 293",
                                             "p 8x65", "p 16x64", "p 8x64" };
        unsigned char block[16][34];
        float plain[512], zero[8] = { 0 };
        for (int i = 0; i < 16; i++)
                for (int k = 0; k < 34; k++)
                        block[i][k] = k == 1 ? 0x3c : (unsigned char)random_below(256);
        CHECK(ck_convert(plain, CK_F32, block, CK_Q8_0, 512, 1));
        for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
                for (int dtype = CK_F32; dtype <= CK_BF16; dtype += CK_BF16 - CK_F32) {
                        Model m[2];
                        for (int k = 0; k < 2; k++) {
                                CkTensor x = { .name = "x",
                                               .dtype = k ? CK_Q8_0 : CK_F32,
                                               .rank = 2,
                                               .dim = { 8, 64 },
                                               .data = k ? (void *)block : (void *)plain,
                                               .bytes = k ? sizeof block : sizeof plain },
                                         z = { .name = "z",
                                               .dtype = CK_F32,
                                               .rank = 1,
                                               .dim = { 8 },
                                               .data = zero,
                                               .bytes = sizeof zero };
                                Checkpoint *ck;
                                char text[200];
                                snprintf(text, sizeof text, "%s\nmap ignore z", maps[i]);
                                WeightMap *map = parse(text);
                                CHECK(!checkpoint_new(&ck, "ck", &err) &&
                                      !checkpoint_add(ck, &x, &err) &&
                                      !checkpoint_add(ck, &z, &err) && !checkpoint_seal(ck, &err));
                                model_make(&m[k], shape[i], dtype);
                                CHECK_MSG(!weight_map_import(map, ck, &m[k].set, 0, &err), "%s: %s",
                                          maps[i], err.msg);
                                weight_map_free(map);
                                checkpoint_close(ck);
                        }
                        int64_t n;
                        CHECK(ck_count(m[0].p[0].rank, m[0].p[0].dim, &n));
                        CHECK_MSG(!memcmp(m[0].p[0].data, m[1].p[0].data,
                                          (size_t)n * ck_dtype_size(dtype)),
                                  "%s", maps[i]);
                        model_free(&m[0]);
                        model_free(&m[1]);
                }
        CHECK(!ck_convert(plain, CK_F32, block, CK_Q8_0, 33, 1)); /* a block is whole */
        CHECK(!ck_convert(block, CK_Q8_0, plain, CK_F32, 32, 1)); /* and never made */
}

TEST (export_errors) {
        static const struct {
                const char *param, *map, *says;
        } bad[] = {
                { "p 2x3", "map p = x: 3x3 | rows 0 2",
                  "element 6 of tensor x comes from no parameter" },
                { "p 2x3", "map p = x: 3x2", "shapes differ" },
                { "p 2x3", "map p = x | rows 0 2", "export needs the shape of tensor x" },
                { "p 2, q 3", "map p = x\nmap q = x", "another shape" },
                { "p 2", "map p = x\nmap q = y", "no parameter q" },
                { "p 2, q 3", "map p = x: 4 | rows 0 2\nmap q = x: 4 | rows 1 4",
                  "two different values for element 1" },
                { "p 2", "map p = __metadata__", "name cannot be written" },
        };
        StMeta meta = { "format", "pt" };

        CHECK(!file_write_atomic(out_path, "old", 3, &err));
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                WeightMap *map = parse(bad[i].map);
                char *old;
                Model m;

                model_make(&m, bad[i].param, CK_F32);
                ((float *)m.p[0].data)[1] = 5;
                CHECK_MSG(weight_map_export(map, &m.set, CK_F32, out_path, &meta, 1, &err),
                          "accepted: %s", bad[i].map);
                CHECK_MSG(strstr(err.msg, bad[i].says), "%s: %s", bad[i].map, err.msg);
                CHECK(!file_read_text(out_path, 3, &old, 0, &err) && !strcmp(old, "old"));
                free(old);
                model_free(&m);
                weight_map_free(map);
        }
}

/* All pairs of floating types through export and import; integers stay. */
TEST (dtypes) {
        static const int kind[] = { CK_F32, CK_BF16, CK_F16, CK_F64 };
        WeightMap *map = parse("map p = x | t\nmap i = n");
        Checkpoint *ck;

        for (int a = 0; a < 4; a++)
                for (int b = 0; b < 3; b++) {
                        Model m, back;
                        int64_t ids[3] = { 1ll << 60, -1, 7 };
                        float v[6], w[6];

                        model_make(&m, "p 2x3, i 3", kind[a]);
                        model_make(&back, "p 2x3, i 3", CK_F32);
                        for (int k = 0; k < 2; k++) {
                                WeightParam *p = k ? &back.p[1] : &m.p[1];
                                p->dtype = CK_I64;
                                p->data = realloc(p->data, sizeof ids);
                                memcpy(p->data, k ? (void *)v : (void *)ids, 1);
                        }
                        memcpy(m.p[1].data, ids, sizeof ids);
                        for (int k = 0; k < 6; k++)
                                v[k] = (float)k / 8 - 0.25f;
                        CHECK(ck_convert(m.p[0].data, kind[a], v, CK_F32, 6, 1));
                        CHECK_MSG(!weight_map_export(map, &m.set, kind[b], out_path, 0, 0, &err),
                                  "%s", err.msg);
                        CHECK_MSG(!checkpoint_open(&ck, out_path, &err), "%s", err.msg);
                        CHECK(checkpoint_find(ck, "x")->dtype == kind[b] &&
                              checkpoint_find(ck, "n")->dtype == CK_I64);
                        CHECK_MSG(!weight_map_import(map, ck, &back.set, 0, &err), "%s", err.msg);
                        CHECK(ck_convert(w, CK_F32, back.p[0].data, CK_F32, 6, 1) &&
                              !memcmp(v, w, sizeof v));
                        CHECK(!memcmp(back.p[1].data, ids, sizeof ids));
                        back.p[1].dtype = CK_F32;
                        CHECK(weight_map_import(map, ck, &back.set, 0, &err) == TGC_BAD_FILE &&
                              strstr(err.msg, "I64"));
                        checkpoint_close(ck);
                        model_free(&m);
                        model_free(&back);
                }
        weight_map_free(map);
}

/* Damaged maps are refused or work; the sanitizers watch. */
TEST (damaged_maps) {
        static const char text[] =
                "map p[0:4:2] = no || x: 2x3 | rope 1 2 | t | t | scale 2\n"
                "map p[1:4:2] =? x: 2x3 | rows 0 2 | cols 0 3 | reshape 1 2 3 | index 0\n"
                "map q[1][:] = z | index 1\n"
                "map q[0] = z | index 0\n"
                "map ignore *a*?\n"
                "map ignore *\n";
        static const char letters[] = "0123456789[]:|=? xyzpqtmap\n*#";
        Checkpoint *ck = numbers("x 2x3, y 2x3, z 2x4, aaa 1");
        int accepted = 0, imported = 0;

        for (int round = 0; round < 20000; round++) {
                char damaged[sizeof text];
                WeightMap *map;
                Model m;

                memcpy(damaged, text, sizeof text);
                for (int k = random_below(3); k >= 0; k--) {
                        int at = random_below(sizeof text - 1);
                        if (round % 2) /* numbers only: it still parses */
                                while (text[at] < '0' || text[at] > '9')
                                        at = random_below(sizeof text - 1);
                        damaged[at] = letters[random_below(round % 2 ? 10 : sizeof letters - 1)];
                }
                if (weight_map_parse(&map, damaged, "x", &err))
                        continue;
                accepted++;
                model_make(&m, "p 4x3, q 2x4", CK_F32);
                imported += !weight_map_import(map, ck, &m.set, 0, &err);
                if (round % 16 == 0)
                        weight_map_export(map, &m.set, CK_F16, out_path, 0, 0, &err);
                model_free(&m);
                weight_map_free(map);
        }
        CHECK_MSG(accepted > 1000 && imported > 100, "%d accepted, %d imported", accepted,
                  imported);
        checkpoint_close(ck);
}

/* ---- a real model ---- */

/* Sizes: channels, a key's width, of the MLP, of the vocabulary; heads. */
typedef struct Sizes {
        int C, K, F, V, n_head, n_kv_head;
} Sizes;

static Sizes sizes_of_data(void)
{
        return data_is_own() ? (Sizes) { 48, 24, 128, 512, 4, 2 }
                             : (Sizes) { 128, 64, 384, 2048, 8, 4 };
}

static const char *real_spec(void)
{
        static char text[1000];
        const Sizes s = sizes_of_data();
        int n = sprintf(text, "tok_emb %dx%d, rms_final %d", s.V, s.C, s.C);
        for (int l = 0; l < 2; l++)
                n += sprintf(text + n,
                             ", %d.rms_att %d, %d.wqkv %dx%d, %d.wo %dx%d, %d.rms_ffn %d, %d.w13 "
                             "%dx%d, %d.w2 %dx%d",
                             l, s.C, l, s.C + 2 * s.K, s.C, l, s.C, s.C, l, s.C, l, 2 * s.F, s.C, l,
                             s.F, s.C);
        return text;
}

/* The same fused parameters from Hugging Face names (rotate-half) and from llama2.c's
 * (interleaved). */
static char *real_map(bool hf)
{
        static const char *const hf_name[] = {
                "input_layernorm.weight",  "self_attn.q_proj.weight",
                "self_attn.k_proj.weight", "self_attn.v_proj.weight",
                "self_attn.o_proj.weight", "post_attention_layernorm.weight",
                "mlp.gate_proj.weight",    "mlp.up_proj.weight",
                "mlp.down_proj.weight"
        };
        static const char *const l2_name[] = { "rms_att", "wq", "wk", "wv", "wo",
                                               "rms_ffn", "w1", "w3", "w2" };
        const Sizes s = sizes_of_data();
        const int q = s.C, k = s.C + s.K, v = s.C + 2 * s.K;
        char *text = calloc(1, 8000), target[9][40], turn[9][20] = { "" };

        sprintf(target[0], "rms_att");
        sprintf(target[1], "wqkv[0:%d]", q);
        sprintf(target[2], "wqkv[%d:%d]", q, k);
        sprintf(target[3], "wqkv[%d:%d]", k, v);
        sprintf(target[4], "wo");
        sprintf(target[5], "rms_ffn");
        sprintf(target[6], "w13[0:%d:2]", 2 * s.F);
        sprintf(target[7], "w13[1:%d:2]", 2 * s.F);
        sprintf(target[8], "w2");
        sprintf(turn[8], " | t");
        if (hf) {
                sprintf(turn[1], " | rope %d", s.n_head);
                sprintf(turn[2], " | rope %d", s.n_kv_head);
        }
        strcat(text, !hf ? "map tok_emb = tok_emb\nmap rms_final = rms_final\n"
                     : data_is_own()
                             ? "map tok_emb = model.embed_tokens.weight\n"
                               "map rms_final = model.norm.weight\n"
                             : "map tok_emb = lm_head.weight\nmap rms_final = model.norm.weight\n");
        for (int l = 0; l < 2; l++)
                for (int i = 0; i < 9; i++)
                        sprintf(text + strlen(text), "map %d.%s = %slayers.%d.%s%s\n", l, target[i],
                                hf ? "model." : "", l, hf ? hf_name[i] : l2_name[i], turn[i]);
        return text;
}

TEST_DATA (real_model) {
        Checkpoint *hf, *l2, *back;
        WeightReport r;
        Model a, b;

        data_need(data_at(data_is_own() ? "models/story" : "models/tinystories656k"));
        CHECK(!checkpoint_open(&hf,
                               data_at(data_is_own() ? "models/story" : "models/tinystories656k"),
                               &err));
        CHECK_MSG(!checkpoint_open(
                          &l2,
                          data_at(data_is_own() ? "models/story/story.bin"
                                                : "models/tinystories656k/ts656k_llama2c_v0.bin"),
                          &err),
                  "%s", err.msg);
        model_make(&a, real_spec(), CK_F32);
        model_make(&b, real_spec(), CK_F32);
        for (int k = 0; k < 2; k++) {
                char *text = real_map(k == 0), *printed;
                WeightMap *map = parse(text);

                CHECK_MSG(!weight_map_import(map, k ? l2 : hf, k ? &b.set : &a.set, &r, &err), "%s",
                          err.msg);
                CHECK(r.n_absent == 0);
                weight_report_free(&r);
                printed = weight_map_print(map);
                CHECK(!strcmp(printed, text));
                free(printed);
                free(text);
                weight_map_free(map);
        }
        for (int i = 0; i < a.set.n; i++) {
                int64_t n;
                CHECK(ck_count(a.p[i].rank, a.p[i].dim, &n));
                CHECK_MSG(!memcmp(a.p[i].data, b.p[i].data, 4 * (size_t)n),
                          "%s differs between the two files", a.p[i].name);
        }
        /* Out again under Hugging Face names, in float32 and (the values being bf16 already?) in
         * bf16. */
        {
                char *text = real_map(true);
                WeightMap *map = parse(text);
                FileMap x, y;

                weight_map_annotate(map, hf);
                CHECK_MSG(!weight_map_export(map, &b.set, CK_F32, out_path, 0, 0, &err), "%s",
                          err.msg);
                CHECK(!checkpoint_open(&back, out_path, &err));
                same_checkpoint(hf, back);
                checkpoint_close(back);
                CHECK(!weight_map_export(map, &b.set, CK_F32, out_path2, 0, 0, &err));
                CHECK(!file_map(&x, out_path, &err) && !file_map(&y, out_path2, &err));
                CHECK(x.size == y.size && !memcmp(x.data, y.data, x.size));
                file_unmap(&x);
                file_unmap(&y);
                CHECK(!weight_map_export(map, &b.set, CK_BF16, out_path, 0, 0, &err));
                CHECK(!checkpoint_open(&back, out_path, &err));
                for (int i = 0; i < checkpoint_count(hf); i++) {
                        const CkTensor *p = checkpoint_at(hf, i), *q = checkpoint_at(back, i);
                        CHECK(q->dtype == CK_BF16 && q->bytes * 2 == p->bytes);
                        for (size_t k = 0; k < p->bytes / 4; k++) {
                                uint16_t h;
                                memcpy(&h, (const char *)q->data + 2 * k, 2);
                                CHECK(h == ck_bf16_from_f32(((const float *)p->data)[k]));
                        }
                }
                checkpoint_close(back);
                weight_map_free(map);
                free(text);
        }
        model_free(&a);
        model_free(&b);
        checkpoint_close(hf);
        checkpoint_close(l2);
}

/* A mixture of experts: separate tensors to stacked, interleaved parameters, and back. */
static void check_experts(const char *folder)
{
        char map[8000] = "";
        Checkpoint *ck;
        const CkTensor *t;
        char spec[200];
        WeightMap *w;
        Model m;

        CHECK(!checkpoint_open(&ck, folder, &err));
        t = checkpoint_find(ck, "model.layers.0.block_sparse_moe.experts.0.w1.weight");
        CHECK(t && t->rank == 2 && (t->dtype == CK_F32 || t->dtype == CK_F16));
        for (int i = 0; i < 3; i++) { /* only some tensors: the rest is unused */
                CHECK(i < checkpoint_count(ck));
                sprintf(map + strlen(map),
                        "map wg[%d][0:%d:2] = "
                        "model.layers.0.block_sparse_moe.experts.%d.w1.weight\n"
                        "map wg[%d][1:%d:2] = "
                        "model.layers.0.block_sparse_moe.experts.%d.w3.weight\n"
                        "map wd[%d] = model.layers.0.block_sparse_moe.experts.%d.w2.weight | t\n",
                        i, (int)(2 * t->dim[0]), i, i, (int)(2 * t->dim[0]), i, i, i);
        }
        strcat(map, "map ignore *\n");
        sprintf(spec, "wg 3x%dx%d, wd 3x%dx%d", (int)(2 * t->dim[0]), (int)t->dim[1],
                (int)t->dim[0], (int)t->dim[1]);
        model_make(&m, spec, CK_BF16);
        w = parse(map);
        CHECK_MSG(!weight_map_import(w, ck, &m.set, 0, &err), "%s", err.msg);
        for (int e = 0; e < 3; e++)
                for (int64_t i = 0; i < t->dim[0]; i++)
                        for (int64_t c = 0; c < t->dim[1]; c++) {
                                char name[100];
                                size_t row = (size_t)((e * 2 * t->dim[0] + 2 * i + 1) * t->dim[1] +
                                                      c);
                                float v;
                                if (c % 7)
                                        continue;
                                sprintf(name,
                                        "model.layers.0.block_sparse_moe.experts.%d.w3.weight", e);
                                const char *data = checkpoint_find(ck, name)->data;
                                int64_t at = i * t->dim[1] + c;
                                v = t->dtype == CK_F16
                                            ? ck_f32_from_f16(((const uint16_t *)data)[at])
                                            : ((const float *)data)[at];
                                CHECK(((uint16_t *)m.p[0].data)[row] == ck_bf16_from_f32(v));
                        }
        CHECK_MSG(!weight_map_export(w, &m.set, CK_F32, out_path, 0, 0, &err), "%s", err.msg);
        model_free(&m);
        weight_map_free(w);
        checkpoint_close(ck);
}

TEST_DATA (experts) {
        data_need(data_at("families/mixtral"));
        check_experts(data_at("families/mixtral"));
}

TEST_MAIN
