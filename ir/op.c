/* op.c: the op table, expanded from ops.def, and the fields of each attribute kind. */
#include "ir.h"
#include <string.h>

#define OP(e, text, inputs, cls, attr, shape, grad, stored, facts, tokens) \
        int shape_##shape(Graph *g, Node *n, Type *out);                   \
        void grad_##grad(Graph *g, Ref n, const Ref *dout, Ref *din);
#include "ops.def"

#define ROW(e, text, inputs, cls, attr, shape, grad, stored, facts, tokens, scalar)              \
        [OP_##e] = { OP_##e,        text,        inputs,          CLASS_##cls,  ATTR_##attr,     \
                     shape_##shape, grad_##grad, STORED_##stored, FACT_##facts, TOKENS_##tokens, \
                     scalar },
#define OP(e, text, inputs, cls, attr, shape, grad, stored, facts, tokens) \
        ROW(e, text, inputs, cls, attr, shape, grad, stored, facts, tokens, NULL)
#define MAP(e, text, inputs, attr, shape, grad, stored, facts, scalar, value) \
        ROW(e, text, inputs, MAP, attr, shape, grad, stored, facts, EACH, scalar)
const OpInfo op_info[N_OPS] = {
#include "ops.def"
};

Op op_find(const char *text)
{
        for (int i = 1; i < N_OPS; i++)
                if (*op_info[i].text == *text && !strcmp(op_info[i].text, text))
                        return (Op)i;
        return OP_NONE;
}

/* Input i's word in the column `inputs`: the last one again and again where it ends with *. */
static const char *word(Op op, int i)
{
        const char *s = op_info[op].inputs, *end;
        while (i-- > 0) {
                if ((end = strchr(s, ' ')))
                        s = end + 1;
                else
                        return *s && s[strlen(s) - 1] == '*' ? s : "";
        }
        return s;
}

char op_reads(Op op, int i) { return *word(op, i); }

bool op_input_is(Op op, int i, char mark)
{
        const char *s = word(op, i);
        const size_t n = strcspn(s, " ");
        return n > 1 && memchr(s + 1, mark, n - 1);
}

bool op_is(Op op, unsigned facts)
{
        const Class c = op_info[op].cls;
        const unsigned by_class = c == CLASS_UPDATE ? FACT_INNER | FACT_FINAL
                                  : c == CLASS_LEAF ? FACT_STATED
                                                    : 0;
        return (op_info[op].facts | by_class) & facts;
}

bool op_is_view(Op op) { return op_info[op].cls == CLASS_VIEW && !op_is(op, FACT_OWNS); }

bool op_takes_rows(Op op, int i) { return op_reads(op, i) == 'w' || op_reads(op, i) == 'W'; }

bool op_from_memory(Op op, int i)
{
        const char c = op_reads(op, i);
        return c == 'm' || c == 'a' || c == 'f';
}

bool op_updates(Op op, int i) { return op_reads(op, i) == 'u'; }

int op_least_inputs(Op op)
{
        const char *const all = op_info[op].inputs;
        int n = 0;
        for (const char *s = all; *s; s++)
                if (s == all || s[-1] == ' ')
                        n++;
                else if (*s == '?' || *s == '*')
                        return *s == '?' ? n - 1 : n;
        return n;
}

int op_most_inputs(Op op)
{
        const char *const all = op_info[op].inputs;
        int n = *all != 0;
        for (const char *s = all; *s; s++) {
                n += *s == ' ';
                if (*s == '*')
                        return MAX_IN;
        }
        return n;
}

#define INT(kind, f)                                          \
        {                                                     \
#f, offsetof(Attr, kind.f), false, 0, 1, NULL \
        }
#define REAL(kind, f)                                        \
        {                                                    \
#f, offsetof(Attr, kind.f), true, 0, 1, NULL \
        }
#define INT_OR(kind, f, d)                                    \
        {                                                     \
#f, offsetof(Attr, kind.f), false, d, 1, NULL \
        }
#define END       \
        {         \
                0 \
        }

const char *const storage_name[N_STORAGE + 1] = {
        "",
#define STORAGE(e, name, gguf, values, bytes, is_float, decode) name,
#include "storage.def"
};

static const struct {
        int values, bytes;
        bool is_float;
} storages[N_STORAGE] = {
        { 1, 0, false },
#define STORAGE(e, name, gguf, values, bytes, is_float, decode) { values, bytes, is_float },
#include "storage.def"
};

bool storage_is_blocks(int64_t s)
{
        return s > 0 && s < N_STORAGE && storages[s].values > 1 && storages[s].is_float;
}

int storage_values(int64_t s) { return storages[s].values; }
int64_t storage_bytes(int64_t s, int64_t n) { return n / storages[s].values * storages[s].bytes; }

Storage node_storage(const Node *n)
{
        return n->op == OP_PARAM ? (Storage)n->a.param.storage : STORAGE_PLAIN;
}

size_t attr_bytes(const AttrField *f)
{
        return f->count ? (size_t)f->count * sizeof(int64_t) : sizeof((Attr *)0)->data;
}

bool attr_equal(Op op, const Attr *a, const Attr *b)
{
        bool same = true;
        for (const AttrField *f = attr_fields[op_info[op].attr]; f->name && same; f++)
                same = !memcmp((const char *)a + f->offset, (const char *)b + f->offset,
                               attr_bytes(f));
        return same;
}

int64_t attr_word(const AttrField *f, const char *word)
{
        int i = 0;
        while (f->word[i] && strcmp(f->word[i], word))
                i++;
        return f->word[i] ? i : -1;
}

/* A field that has its default value is not printed. */
static const AttrField none_f[] = { END };
static const AttrField num_f[] = { REAL(num, x), END };
static const AttrField drop_f[] = { REAL(drop, p), INT(drop, id), END };
static const AttrField rope_f[] = { INT(rope, back), INT(rope, dims), END };
static const AttrField mm_f[] = { INT(mm, ta), INT(mm, tb), END };
static const AttrField expert_f[] = { INT(expert, tb), INT(expert, adiv), INT(expert, bdiv),
                                      INT(expert, scatter), END };
static const AttrField att_f[] = {
        REAL(att, scale), INT(att, causal), INT(att, window), REAL(att, softcap),  REAL(att, p),
        INT(att, id),     INT(att, mask),   INT(att, alibi),  INT(att, documents), END
};
static const AttrField slice_f[] = { INT(slice, axis), INT(slice, start), INT(slice, len),
                                     INT_OR(slice, step, 1), END };
static const AttrField perm_f[] = { { "perm", offsetof(Attr, perm.perm), false, 0, MAX_RANK, NULL },
                                    END };
static const AttrField item_f[] = { INT(item, index), END };
static const AttrField k_f[] = { INT(k, k), END };
static const AttrField param_f[] = { INT(param, init),
                                     REAL(param, a),
                                     REAL(param, b),
                                     INT_OR(param, trainable, 1),
                                     INT(param, decay),
                                     { "storage", offsetof(Attr, param.storage), false, 0, 1,
                                       storage_name },
                                     REAL(param, rate),
                                     REAL(param, own_decay),
                                     END };
static const AttrField data_f[] = { { "data", offsetof(Attr, data), true, 0, 0, NULL }, END };
static const AttrField accum_f[] = { INT(accum, more), END };
static const AttrField cache_f[] = { INT(cache, layer), INT(cache, window), END };
static const AttrField ce_f[] = { INT(ce, both), END };
static const AttrField route_f[] = { INT(route, k), INT(route, renorm), END };
static const AttrField rows_f[] = { INT_OR(rows, adiv, 1), INT(rows, mix), INT(rows, bias), END };

static const AttrField below_f[] = { INT(below, rows), INT(below, B), INT(below, T), INT(below, S),
                                     END };

const AttrField *const attr_fields[N_ATTR] = {
        [ATTR_NONE] = none_f,   [ATTR_NUM] = num_f,     [ATTR_DROP] = drop_f,
        [ATTR_ROPE] = rope_f,   [ATTR_MM] = mm_f,       [ATTR_EXPERT] = expert_f,
        [ATTR_ATT] = att_f,     [ATTR_SLICE] = slice_f, [ATTR_PERM] = perm_f,
        [ATTR_ITEM] = item_f,   [ATTR_K] = k_f,         [ATTR_PARAM] = param_f,
        [ATTR_DATA] = data_f,   [ATTR_ACCUM] = accum_f, [ATTR_CACHE] = cache_f,
        [ATTR_CE] = ce_f,       [ATTR_ROUTE] = route_f, [ATTR_ROWS] = rows_f,
        [ATTR_BELOW] = below_f,
};
