/* mixtures.c: implements mixtures.h. */
#include "mixtures.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "../../runtime/util/line_reader.h"

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

/* Parameters of our models by GGUF's words. */
static const struct {
        const char *role, *name;
} roles[] = {
        { "output", "output" },     { "output", "logits" },        { "token_embd", "token_embd" },
        { "token_embd", "embed" },  { "token_embd", "wte" },       { "attn_k", "attn.k" },
        { "attn_v", "attn.v" },     { "attn_output", "attn.out" }, { "attn_qkv", "attn.qkv" },
        { "ffn_down", "mlp.down" },
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

/* A type that rows of so many values can have: itself, another of its kind, F16. */
static int type_that_fits(int dtype, int64_t cols)
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

static MixtureModel model_of(const Gguf *g)
{
        const int64_t heads = number(g, "attention.head_count", 0),
                      kv = number(g, "attention.head_count_kv", heads);
        return (MixtureModel) { .n_layers = number(g, "block_count", 0),
                                .experts = number(g, "expert_count", 0),
                                .grouped = kv > 0 && heads / kv >= 4,
                                .tied = !gguf_find_tensor(g, "output.weight") };
}

static bool is_layer(int layers, int64_t i, const MixtureModel *m)
{
        const int64_t n = m->n_layers;
        switch (layers) {
        case EIGHTH: return i < n / 8;
        case SIXTEENTH: return i < n / 16;
        case TWO: return i < 2;
        case FOUR: return i < 4;
        case MORE: return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
        case GROUPED: return m->grouped;
        default: return true;
        }
}

/* Linears and embeddings; not norms, routers, positions and biases. */
static bool is_quantised(const char *name, int rank)
{
        static const char *const not [] = { "norm.weight",        "ffn_gate_inp.weight",
                                            "router.weight",      "position_embd.weight",
                                            "positions.weight",   "wpe.weight",
                                            "token_types.weight", "types.weight" };
        bool yes = rank >= 2 && text_ends(name, ".weight");
        for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
                yes = yes && !text_ends(name, not [i]);
        return yes && strncmp(name, "rope_", 5);
}

/* What a tensor is, in GGUF's words, and its layer: of blk.N.ROLE.weight, which may be of experts,
 * or of a parameter of ours; "" is neither. */
static void role_of(const char *name, char role[64], int *layer)
{
        const char *own = name;
        int n = 0;
        *role = 0;
        *layer = 0;
        if (sscanf(name, "blk.%d.%63[^.].weight", layer, role) == 2) {
                if (text_ends(role, "_exps"))
                        role[strlen(role) - 5] = 0;
                return;
        }
        if (sscanf(name, "blk%d.%n", layer, &n) == 1 && n)
                own = name + n;
        for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
                const size_t k = strlen(roles[i].name);
                if (!strncmp(own, roles[i].name, k) && !strcmp(own + k, ".weight"))
                        strcpy(role, roles[i].role);
        }
}

/* Eight experts share the tensors of attention, which cost little beside them. */
static int of_eight_experts(int mixture, const char *role, int type)
{
        static const int fives[] = { MIX_Q2_K,   MIX_Q3_K_S, MIX_Q3_K_M, MIX_Q4_K_S,
                                     MIX_Q4_K_M, MIX_IQ4_NL, MIX_IQ4_XS };
        if (!strcmp(role, "attn_v") || !strcmp(role, "attn_k"))
                return CK_Q8_0;
        for (size_t i = 0; i < sizeof fives / sizeof *fives; i++)
                if (mixture == fives[i] && !strcmp(role, "attn_output"))
                        return CK_Q5_K;
        return type;
}

int mixture_type_of(int mixture, const MixtureModel *m, const char *name, int rank, int64_t cols)
{
        int type = mixtures[mixture].base, layer;
        char role[64];
        if (!is_quantised(name, rank))
                return -1;
        role_of(name, role, &layer);
        if (!strcmp(role, "output") || (m->tied && !strcmp(role, "token_embd"))) {
                if (mixture == MIX_MXFP4 || cols % ck_block_values(type))
                        type = CK_Q8_0;
                else if (type != CK_Q8_0)
                        type = CK_Q6_K;
                return type_that_fits(type, cols);
        }
        if (mixture == MIX_MXFP4) /* experts alone */
                return type_that_fits(rank > 2 ? CK_MXFP4 : CK_Q8_0, cols);
        for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
                if (rules[i].mixture == mixture && !strcmp(role, rules[i].role) &&
                    is_layer(rules[i].layers, layer, m)) {
                        type = rules[i].type;
                        break;
                }
        if (m->experts == 8)
                type = of_eight_experts(mixture, role, type);
        return type_that_fits(type, cols);
}

int mixture_type(int mixture, const Gguf *g, const CkTensor *t)
{
        const MixtureModel m = model_of(g);
        const int64_t cols = t->rank ? t->dim[t->rank - 1] : 0;
        const int type = ck_dtype_is_float(t->dtype)
                                 ? mixture_type_of(mixture, &m, t->name, t->rank, cols)
                                 : -1;
        return type < 0 ? t->dtype : type;
}
