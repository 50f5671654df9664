/* mixtures.c: see mixtures.h. */
#include "mixtures.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { ALL, EIGHTH, SIXTEENTH, TWO, FOUR, MORE, GROUPED };

enum {
#define MIXTURE(name, file_type, base) MIX_##name,
#define RULE(...)
#define FALLBACK(...)
#include "mixtures.def"
#undef MIXTURE
#undef RULE
        N_MIXTURES
};

static const struct {
        const char *name;
        int file_type, base;
} mixtures[] = {
#define MIXTURE(name, file_type, base) { #name, file_type, CK_##base },
#define RULE(...)
#include "mixtures.def"
#undef MIXTURE
#undef RULE
};

static const struct {
        int mixture;
        const char *role;
        int layers, type;
} rules[] = {
#define MIXTURE(...)
#define RULE(mixture, role, layers, type) { MIX_##mixture, #role, layers, CK_##type },
#include "mixtures.def"
#undef RULE
#undef FALLBACK
};

static const struct {
        int type, other;
} fallbacks[] = {
#define RULE(...)
#define FALLBACK(type, other) { CK_##type, CK_##other },
#include "mixtures.def"
#undef MIXTURE
#undef RULE
#undef FALLBACK
};

int mixture_find(const char *name)
{
        char m[16];
        snprintf(m, sizeof m, "%.12s_M", name);
        for (int i = 0; i < N_MIXTURES; i++)
                if (!strcasecmp(name, mixtures[i].name) || !strcasecmp(m, mixtures[i].name))
                        return i;
        return -1;
}

const char *mixture_names(void)
{
        static char text[200];
        size_t n = 0;
        for (int i = 0; i < N_MIXTURES && n < sizeof text; i++)
                n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? ", " : "",
                                      mixtures[i].name);
        return text;
}

int mixture_file_type(int mixture) { return mixtures[mixture].file_type; }

int type_that_fits(int dtype, int64_t cols)
{
        if (cols % ck_block_values(dtype) == 0)
                return dtype;
        for (size_t i = 0; i < sizeof fallbacks / sizeof *fallbacks; i++)
                if (fallbacks[i].type == dtype && cols % ck_block_values(fallbacks[i].other) == 0)
                        return fallbacks[i].other;
        return CK_F16;
}

/* ---- what a model has ---- */

/* The number A.name of the file, where A is its architecture. */
static int64_t number(const Gguf *g, const char *name, int64_t absent)
{
        size_t n;
        const char *arch = gguf_string(gguf_find(g, "general.architecture"), &n);
        char key[200];
        int64_t v = absent;
        snprintf(key, sizeof key, "%.*s.%s", arch ? (int)(n < 60 ? n : 60) : 0, arch ? arch : "",
                 name);
        const GgufValue *x = gguf_find(g, key);
        if (!x || !gguf_int(x, &v))
                return absent;
        return v;
}

static bool is_grouped(const Gguf *g)
{
        const int64_t heads = number(g, "attention.head_count", 0),
                      kv = number(g, "attention.head_count_kv", heads);
        return kv > 0 && heads / kv >= 4;
}

static bool is_layer(int layers, int64_t i, int64_t n, const Gguf *g)
{
        switch (layers) {
        case EIGHTH: return i < n / 8;
        case SIXTEENTH: return i < n / 16;
        case TWO: return i < 2;
        case FOUR: return i < 4;
        case MORE: return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
        case GROUPED: return is_grouped(g);
        default: return true;
        }
}

/* Is it blk.N.ROLE.weight, or of experts? */
static bool has_role(const char *name, const char *role, int *layer)
{
        char part[64], of_experts[80];
        if (sscanf(name, "blk.%d.%63[^.].weight", layer, part) != 2)
                return false;
        snprintf(of_experts, sizeof of_experts, "%s_exps", role);
        return !strcmp(part, role) || !strcmp(part, of_experts);
}

static bool ends_with(const char *s, const char *tail)
{
        const size_t n = strlen(s), k = strlen(tail);
        return n >= k && !strcmp(s + n - k, tail);
}

/* Linears and embeddings; not norms, routers, positions and biases. */
static bool is_quantised(const CkTensor *t)
{
        static const char *const not [] = { "_norm.weight", "ffn_gate_inp.weight",
                                            "position_embd.weight", "token_types.weight" };
        bool yes = t->rank >= 2 && ck_dtype_is_float(t->dtype) && ends_with(t->name, ".weight");
        for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
                yes = yes && !ends_with(t->name, not [i]);
        return yes && strncmp(t->name, "rope_", 5);
}

/* Eight experts share the tensors of attention, which cost little beside them. */
static int of_eight_experts(int mixture, const char *name, int type)
{
        static const int fives[] = { MIX_Q2_K,   MIX_Q3_K_S, MIX_Q3_K_M, MIX_Q4_K_S,
                                     MIX_Q4_K_M, MIX_IQ4_NL, MIX_IQ4_XS };
        int layer;
        if (has_role(name, "attn_v", &layer) || has_role(name, "attn_k", &layer))
                return CK_Q8_0;
        for (size_t i = 0; i < sizeof fives / sizeof *fives; i++)
                if (mixture == fives[i] && has_role(name, "attn_output", &layer))
                        return CK_Q5_K;
        return type;
}

int mixture_type(int mixture, const Gguf *g, const CkTensor *t)
{
        const int64_t n_layers = number(g, "block_count", 0),
                      cols = t->rank ? t->dim[t->rank - 1] : 0;
        const bool tied = !gguf_find_tensor(g, "output.weight");
        int type = mixtures[mixture].base, layer = 0;
        if (!is_quantised(t))
                return t->dtype;
        if (!strcmp(t->name, "output.weight") || (tied && !strcmp(t->name, "token_embd.weight"))) {
                if (mixture == MIX_MXFP4 || cols % ck_block_values(type))
                        type = CK_Q8_0;
                else if (type != CK_Q8_0)
                        type = CK_Q6_K;
                return type_that_fits(type, cols);
        }
        if (mixture == MIX_MXFP4) /* experts alone */
                return type_that_fits(t->rank > 2 ? CK_MXFP4 : CK_Q8_0, cols);
        for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
                if (rules[i].mixture == mixture && has_role(t->name, rules[i].role, &layer) &&
                    is_layer(rules[i].layers, layer, n_layers, g)) {
                        type = rules[i].type;
                        break;
                }
        if (number(g, "expert_count", 0) == 8)
                type = of_eight_experts(mixture, t->name, type);
        return type_that_fits(type, cols);
}
