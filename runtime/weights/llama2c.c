/* llama2c.c: reads checkpoints of karpathy's llama2.c.
 *
 *      version 0   7 int32 (vocab_size < 0: the head is not tied), float32 tensors, two unused rope
 *                  tables
 *      version 1   "24ka", 1, 7 int32, u8 shared, zeros to byte 256, float32 tensors, norms first
 *      version 2   the same with int32 group after shared; matrices are int8 values of all
 *                  elements, then one float32 scale per group: made blocks here (I8_64 ...), which
 *                  are as many bytes, or float32 where groups are none of ours or cross rows
 *
 * Each version's tensors are a list of rows of one table.  A file is accepted if its size is
 * exactly what its header makes of that list. */
#include "checkpoint.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../util/file.h"

enum { MAGIC = 0x616b3432, HEADER0 = 28, HEADER = 256, MAX_DIM = 1 << 24, MAX_LAYERS = 4096 };

enum { TOK_EMB, RMS_ATT, WQ, WK, WV, WO, RMS_FFN, W1, W2, W3, RMS_FINAL, ROPE, WCLS, N_KINDS };

/* Sizes by letter: C channels, K key/value width, F MLP width, V vocabulary, R rope table. */
static const struct {
        const char *name;
        bool layered, quant;
        char rows, cols;
} kinds[N_KINDS] = {
        [TOK_EMB] = { "tok_emb", false, true, 'V', 'C' },
        [RMS_ATT] = { "rms_att", true, false, 'C', 0 },
        [WQ] = { "wq", true, true, 'C', 'C' },
        [WK] = { "wk", true, true, 'K', 'C' },
        [WV] = { "wv", true, true, 'K', 'C' },
        [WO] = { "wo", true, true, 'C', 'C' },
        [RMS_FFN] = { "rms_ffn", true, false, 'C', 0 },
        [W1] = { "w1", true, true, 'F', 'C' },
        [W2] = { "w2", true, true, 'C', 'F' },
        [W3] = { "w3", true, true, 'F', 'C' },
        [RMS_FINAL] = { "rms_final", false, false, 'C', 0 },
        [ROPE] = { 0, false, false, 'R', 0 }, /* read over */
        [WCLS] = { "wcls", false, true, 'V', 'C' },
};
static const char order0[] = { TOK_EMB, RMS_ATT, WQ, WK,        WV,   WO,  RMS_FFN,
                               W1,      W2,      W3, RMS_FINAL, ROPE, WCLS };
static const char order1[] = { RMS_ATT, RMS_FFN, RMS_FINAL, TOK_EMB, WQ, WK,
                               WV,      WO,      W1,        W2,      W3, WCLS };

static int64_t dim_of(const Llama2cConfig *c, char letter)
{
        switch (letter) {
        case 'C': return c->dim;
        case 'K': return (int64_t)c->dim / c->n_heads * c->n_kv_heads;
        case 'F': return c->hidden_dim;
        case 'V': return c->vocab_size;
        case 'R':
                return (int64_t)c->seq_len *
                       (c->dim / c->n_heads); /* cos and sin, half a head each */
        default: return 1;
        }
}

static int32_t le32(const unsigned char *p)
{
        return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                         (uint32_t)p[3] << 24);
}

/* Bytes of one tensor in the file: below 2^51, as both dimensions are at most 2^24. */
static uint64_t bytes_of(const Llama2cConfig *c, int kind)
{
        uint64_t n = (uint64_t)dim_of(c, kinds[kind].rows) * (uint64_t)dim_of(c, kinds[kind].cols);
        return c->version == 2 && kinds[kind].quant ? n + n / (uint64_t)c->group * 4 : 4 * n;
}

/* The i-th kind of the file's order; -1 at the end. */
static int kind_at(const Llama2cConfig *c, size_t i)
{
        size_t n = c->version ? sizeof order1 : sizeof order0;
        int k;

        if (i >= n)
                return -1;
        k = c->version ? order1[i] : order0[i];
        return k == WCLS && c->shared ? -1 : k;
}

static int parse_header(Llama2cConfig *c, const unsigned char *p, size_t size, const char *path,
                        Err *e)
{
        struct {
                const char *name;
                int *to, max;
        } f[] = {
                { "dim", &c->dim, MAX_DIM },
                { "hidden_dim", &c->hidden_dim, MAX_DIM },
                { "n_layers", &c->n_layers, MAX_LAYERS },
                { "n_heads", &c->n_heads, MAX_DIM },
                { "n_kv_heads", &c->n_kv_heads, MAX_DIM },
                { "vocab_size", &c->vocab_size, MAX_DIM },
                { "seq_len", &c->seq_len, MAX_DIM },
        };
        uint64_t want;
        int k;

        memset(c, 0, sizeof *c);
        if (size < HEADER0)
                return err_set(
                        e, TGC_BAD_FILE,
                        "%s: %zu bytes, too short for a llama2.c checkpoint, whose header has "
                        "%d",
                        path, size, HEADER0);
        if (le32(p) == MAGIC) {
                c->version = le32(p + 4);
                if (c->version != 1 && c->version != 2)
                        return err_set(e, TGC_BAD_FILE,
                                       "%s: llama2.c version %d is not known (0, 1, 2 are)", path,
                                       c->version);
                if (size < HEADER)
                        return err_set(e, TGC_BAD_FILE,
                                       "%s: %zu bytes, shorter than its header of %d: is it cut?",
                                       path, size, HEADER);
        }
        for (int i = 0; i < 7; i++) {
                int v = le32(p + (c->version ? 8 : 0) + 4 * i);

                if (!c->version && f[i].to == &c->vocab_size) {
                        c->shared = v > 0;
                        v = v < 0 && v > -MAX_DIM ? -v : v;
                }
                if (v < 1 || v > f[i].max)
                        return err_set(e, TGC_BAD_FILE,
                                       "%s: not a llama2.c checkpoint: %s is %d, not 1 to %d", path,
                                       f[i].name, v, f[i].max);
                *f[i].to = v;
        }
        if (c->version) {
                if (p[36] > 1)
                        return err_set(e, TGC_BAD_FILE,
                                       "%s: shared_classifier is %d, and must be 0 or 1", path,
                                       p[36]);
                c->shared = p[36];
        }
        if (c->version == 2) {
                c->group = le32(p + 37);
                if (c->group < 1 || c->group > MAX_DIM)
                        return err_set(e, TGC_BAD_FILE, "%s: group size is %d, not 1 to %d", path,
                                       c->group, MAX_DIM);
        }
        if (c->dim % c->n_heads || c->n_heads % c->n_kv_heads || c->dim / c->n_heads % 2)
                return err_set(e, TGC_BAD_FILE,
                               "%s: dim %d, n_heads %d, n_kv_heads %d do not fit together", path,
                               c->dim, c->n_heads, c->n_kv_heads);
        want = c->version ? HEADER : HEADER0;
        for (size_t i = 0; (k = kind_at(c, i)) >= 0; i++) {
                if (c->group && kinds[k].quant &&
                    (uint64_t)dim_of(c, kinds[k].rows) * (uint64_t)dim_of(c, kinds[k].cols) %
                            (uint64_t)c->group)
                        return err_set(e, TGC_BAD_FILE, "%s: groups of %d do not divide %s", path,
                                       c->group, kinds[k].name);
                /* A tensor is below 2^51 bytes, a layer's below 2^63: stop before a sum could
                 * wrap. */
                want += bytes_of(c, k) * (kinds[k].layered ? (uint64_t)c->n_layers : 1);
                if (want > INT64_MAX / 2)
                        break;
        }
        if (want != size)
                return err_set(
                        e, TGC_BAD_FILE,
                        "%s: %zu bytes, but its header (version %d, dim %d, hidden_dim %d, "
                        "n_layers %d, n_heads %d, n_kv_heads %d, vocab_size %d, seq_len %d%s) "
                        "makes %llu",
                        path, size, c->version, c->dim, c->hidden_dim, c->n_layers, c->n_heads,
                        c->n_kv_heads, c->vocab_size, c->seq_len, c->shared ? "" : ", untied",
                        (unsigned long long)want);
        return TGC_OK;
}

int llama2c_config(const char *path, Llama2cConfig *c, Err *e)
{
        FileMap map;
        int rc = file_map(&map, path, e);

        if (rc)
                return rc;
        rc = parse_header(c, map.data, map.size, path, e);
        file_unmap(&map);
        return rc;
}

typedef struct Bin {
        FileMap map;
        char (*name)[32];
        unsigned char *made; /* version 2: all matrices, one after the other */
} Bin;

static void release_bin(void *p)
{
        Bin *b = p;

        file_unmap(&b->map);
        free(b->name);
        free(b->made);
        free(b);
}

/* The largest blocks that hold whole groups and rows of a matrix of version 2; CK_F32: none. */
static int blocks_of(const Llama2cConfig *c, int64_t cols)
{
        static const int type[] = { CK_I8_128, CK_I8_64, CK_I8_32 };
        for (size_t i = 0; i < sizeof type / sizeof *type; i++)
                if (c->group % ck_block_values(type[i]) == 0 && cols % c->group == 0)
                        return type[i];
        return CK_F32;
}

/* A scale before the values of each block. */
static void make_blocks(unsigned char *out, const unsigned char *q, size_t n, size_t group,
                        size_t values)
{
        const unsigned char *s = q + n;
        for (size_t i = 0; i < n; i += values, out += 4 + values) {
                memcpy(out, s + i / group * 4, 4);
                memcpy(out + 4, q + i, values);
        }
}

static void dequantise(float *out, const unsigned char *q, size_t n, size_t group)
{
        const unsigned char *s = q + n;

        for (size_t i = 0; i < n; s += 4) {
                float scale;
                memcpy(&scale, s, 4);
                for (size_t end = i + group; i < end; i++)
                        out[i] = (float)(signed char)q[i] * scale;
        }
}

/* t's values, count of them, from its int8 and scales at q to `made`. */
static int unpack(CkTensor *t, unsigned char *made, const unsigned char *q, size_t count,
                  const Llama2cConfig *c, const Checkpoint *ck, Err *e)
{
        const size_t group = (size_t)c->group;
        for (size_t i = 0; i < count / group; i++) {
                float scale;
                memcpy(&scale, q + count + 4 * i, 4);
                if (!isfinite(scale))
                        return err_set(e, TGC_BAD_FILE,
                                       "%s: tensor %s: scale %zu is %g, and must be finite",
                                       checkpoint_path(ck), t->name, i, (double)scale);
        }
        t->data = made;
        t->dtype = blocks_of(c, t->dim[1]);
        if (t->dtype == CK_F32) {
                dequantise((float *)(void *)made, q, count, group);
                return TGC_OK;
        }
        const size_t values = (size_t)ck_block_values(t->dtype);
        make_blocks(made, q, count, group, values);
        t->bytes = count / values * ck_block_bytes(t->dtype);
        return TGC_OK;
}

bool llama2c_has_blocks(const char *path)
{
        Llama2cConfig c;
        Err e;
        return !llama2c_config(path, &c, &e) && c.version == 2 &&
               (blocks_of(&c, c.dim) != CK_F32 || blocks_of(&c, c.hidden_dim) != CK_F32);
}

static int add_tensors(Checkpoint *ck, Bin *b, const Llama2cConfig *c, Err *e)
{
        const unsigned char *p = (const unsigned char *)b->map.data +
                                 (c->version ? HEADER : HEADER0);
        unsigned char *made = b->made;
        int k, rc, n = 0;

        for (size_t i = 0; (k = kind_at(c, i)) >= 0; i++) {
                for (int l = 0; l < (kinds[k].layered ? c->n_layers : 1); l++) {
                        CkTensor t = { .name = b->name[n],
                                       .dtype = CK_F32,
                                       .rank = kinds[k].cols ? 2 : 1,
                                       .data = p };
                        size_t count;

                        if (kinds[k].layered)
                                snprintf(b->name[n], sizeof b->name[n], "layers.%d.%s", l,
                                         kinds[k].name);
                        else if (kinds[k].name)
                                snprintf(b->name[n], sizeof b->name[n], "%s", kinds[k].name);
                        t.dim[0] = dim_of(c, kinds[k].rows);
                        t.dim[1] = kinds[k].cols ? dim_of(c, kinds[k].cols) : 0;
                        count = (size_t)t.dim[0] * (t.rank == 2 ? (size_t)t.dim[1] : 1);
                        t.bytes = 4 * count;
                        if (c->version == 2 && kinds[k].quant) {
                                if ((rc = unpack(&t, made, p, count, c, ck, e)))
                                        return rc;
                                made += t.bytes; /* a multiple of 4 */
                        }
                        p += bytes_of(c, k);
                        if (!kinds[k].name)
                                continue;
                        n++;
                        rc = checkpoint_add(ck, &t, e);
                        if (rc)
                                return rc;
                }
        }
        return TGC_OK;
}

int checkpoint_add_llama2c(Checkpoint *ck, const char *path, Err *e)
{
        Bin *b = calloc(1, sizeof *b);
        Llama2cConfig c;
        int rc;

        if (!b)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        rc = checkpoint_own(ck, release_bin, b, e);
        if (!rc)
                rc = file_map(&b->map, path, e);
        if (!rc)
                rc = parse_header(&c, b->map.data, b->map.size, path, e);
        if (rc)
                return rc;
        b->name = calloc((size_t)c.n_layers * N_KINDS + N_KINDS, sizeof *b->name);
        if (c.version == 2) /* a byte of the file becomes at most one float */
                b->made = malloc(b->map.size * sizeof(float));
        if (!b->name || (c.version == 2 && !b->made))
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for its tensors", path);
        return add_tensors(ck, b, &c, e);
}
