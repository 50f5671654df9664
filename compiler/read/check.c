/* check.c: checks that both readers make before a node enters the graph. */
#include "read.h"
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/file.h"
#include "../../runtime/util/json.h"

bool op_is_public(Op op) { return op > OP_NONE && op < N_OPS && !op_is(op, FACT_INNER); }

bool type_is_sane(const Type *t)
{
        int64_t n = 1;
        int symbols = 0;
        for (int i = 0; i < t->rank; i++) {
                if (t->dim[i].n < 1 || t->dim[i].n > ((int64_t)1 << 44) / n)
                        return false;
                n *= t->dim[i].n;
                for (int s = 0; s < N_SYM; s++) {
                        if (t->dim[i].e[s] < 0 || t->dim[i].e[s] > 4)
                                return false;
                        symbols += t->dim[i].e[s];
                }
        }
        return symbols <= 4;
}

void attr_default(Op op, Attr *a)
{
        memset(a, 0, sizeof *a);
        for (const AttrField *f = attr_fields[op_info[op].attr]; f->name; f++) {
                char *p = (char *)a + f->offset;
                if (f->count != 1)
                        continue;
                if (f->real)
                        *(double *)(void *)p = f->dflt;
                else
                        *(int64_t *)(void *)p = (int64_t)f->dflt;
        }
}

static bool is_input(const Node *n, const char *name)
{
        return n->op == OP_INPUT && !strcmp(n->name, name);
}

/* What shape rules leave open: ranges of attributes, stated types. */
static void check_node(const Graph *g, const Node *n)
{
        const Attr *a = &n->a;
        char t[256];
        switch (n->op) {
        case OP_PARAM:
                if (a->param.init < INIT_ZEROS || a->param.init > INIT_VALUE)
                        error_at(n->loc, "param: no initialiser has number %lld",
                                 (long long)a->param.init);
                if (a->param.init == INIT_NORMAL && a->param.a < 0)
                        error_at(n->loc, "param: std is %g, but must be at least 0", a->param.a);
                if (a->param.init == INIT_UNIFORM && a->param.a > a->param.b)
                        error_at(n->loc, "param: uniform is {lo, hi}, and %g is above %g",
                                 a->param.a, a->param.b);
                if (n->type.dt != DT_F32 || !dim_is_const(type_elems(&n->type)))
                        error_at(n->loc,
                                 "param: parameters are f32 and do not depend on B or T, not %s",
                                 type_text(&n->type, t));
                break;
        case OP_CONST:
                if (!dim_eq(type_elems(&n->type), DIM(a->data.n)))
                        error_at(n->loc, "const: %lld numbers do not fill %s", (long long)a->data.n,
                                 type_text(&n->type, t));
                break;
        case OP_POSITION:
                if (n->type.dt != DT_I32 || n->type.rank != 2 ||
                    !dim_eq(n->type.dim[0], DIM_SYM(SYM_B)) ||
                    !dim_eq(n->type.dim[1], DIM_SYM(SYM_T)))
                        error_at(n->loc, "position: is i32[B,T], not %s", type_text(&n->type, t));
                break;
        case OP_RMSNORM:
        case OP_LAYERNORM:
                if (a->num.x < 0)
                        error_at(n->loc, "%s: eps is %g, but must be at least 0",
                                 op_info[n->op].text, a->num.x);
                break;
        case OP_DROPOUT:
                if (!(a->drop.p >= 0 && a->drop.p < 1))
                        error_at(n->loc,
                                 "dropout: the probability is %g, but must be at least 0 and below "
                                 "1",
                                 a->drop.p);
                break;
        case OP_ATTENTION:
                if (!(a->att.p >= 0 && a->att.p < 1))
                        error_at(n->loc,
                                 "attention: the dropout probability is %g, but must be at least 0 "
                                 "and below 1",
                                 a->att.p);
                if (a->att.window < 0 || !(a->att.softcap >= 0))
                        error_at(n->loc, "attention: window and softcap cannot be negative");
                if ((att_extra(n) != 0) != (a->att.mask || a->att.alibi))
                        error_at(n->loc,
                                 "attention: a fourth input needs mask=1 or alibi=1, and these "
                                 "need it");
                if (a->att.documents && !is_input(NODE(g, n->in[att_documents(n)]), "documents"))
                        error_at(n->loc,
                                 "attention: documents are the input `documents`, which the "
                                 "runtime fills");
                break;
        case OP_EXPERT_MATMUL:
                if (a->expert.adiv < 0 || a->expert.bdiv < 0)
                        error_at(n->loc, "expert_matmul: adiv and bdiv cannot be negative");
                break;
        case OP_ROPE:
                if (a->rope.dims < 0)
                        error_at(n->loc, "rope: dims cannot be negative");
                break;
        case OP_TRANSPOSE:
                for (int i = n->type.rank; i < MAX_RANK; i++)
                        if (a->perm.perm[i])
                                error_at(n->loc, "transpose: more axes are named than %s has",
                                         shape_text(&n->type, t));
                break;
        default: break;
        }
}

Ref read_node(Graph *g, Op op, const Type *stated, const Ref *in, int n_in, const Attr *a, Loc loc,
              const char *name)
{
        char t[256];
        if (g->n_nodes > READ_MAX_NODES)
                error_at(loc, "the model has more than %d nodes", READ_MAX_NODES);
        if (stated && !type_is_sane(stated))
                error_at(loc, "%s: the shape %s is out of range", op_info[op].text,
                         shape_text(stated, t));
        Ref r = graph_typed(g, op, stated, in, n_in, a, loc, name);
        const Node *n = NODE(g, r);
        if (!type_is_sane(&n->type))
                error_at(loc, "%s: the result %s is out of range", op_info[op].text,
                         shape_text(&n->type, t));
        check_node(g, n);
        return r;
}

bool name_is_plain(const char *s)
{
        static const char ok[] =
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
        return *s && strlen(s) < 200 && s[strspn(s, ok)] == 0;
}

bool map_text_is_plain(const char *all)
{
        const char *s = all;
        if (!*s || strlen(s) > 1000)
                return false;
        for (; *s; s++)
                if ((unsigned char)*s < 0x20 || *s == 0x7f)
                        return false;
        return json_utf8_ok(all, (size_t)(s - all));
}

/* Edits between a and b; words longer than 31 letters count as far apart. */
static int distance(const char *a, const char *b)
{
        int row[32], n = (int)strlen(b);
        if (n > 31 || strlen(a) > 31)
                return 99;
        for (int j = 0; j <= n; j++)
                row[j] = j;
        for (int i = 1; *a; a++, i++) {
                int diagonal = row[0];
                row[0] = i;
                for (int j = 1; j <= n; j++) {
                        int change = diagonal + (*a != b[j - 1]);
                        diagonal = row[j];
                        int most = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
                        row[j] = change < most ? change : most;
                }
        }
        return row[n];
}

const char *nearest(const char *word, const char *const *candidate, int n)
{
        const char *best = NULL;
        int least = (int)strlen(word) / 3 + 2;
        for (int i = 0; i < n; i++) {
                int d = distance(word, candidate[i]);
                if (d < least) {
                        least = d;
                        best = candidate[i];
                }
        }
        return best;
}

struct NameSlot {
        const char *key;
        int value;
};

static struct NameSlot *find(const Names *t, const char *key)
{
        unsigned h = 2166136261u;
        for (const char *s = key; *s; s++)
                h = (h ^ (unsigned char)*s) * 16777619u;
        for (h &= t->cap - 1; t->slot[h].key && strcmp(t->slot[h].key, key);
             h = (h + 1) & (t->cap - 1))
                ;
        return &t->slot[h];
}

int *names_at(Names *t, const char *key)
{
        if (t->n * 2 >= t->cap) {
                Names old = *t;
                t->cap = old.cap ? old.cap * 2 : 256;
                t->slot = arena_alloc(t->a, t->cap * sizeof *t->slot);
                for (unsigned i = 0; i < old.cap; i++)
                        if (old.slot[i].key)
                                *find(t, old.slot[i].key) = old.slot[i];
        }
        struct NameSlot *s = find(t, key);
        if (!s->key) {
                s->key = arena_str(t->a, key);
                t->n++;
        }
        return &s->value;
}

char *read_text(const char *path, size_t most, size_t *n)
{
        char *text;
        Err e;
        if (file_read_text(path, most, &text, n, &e))
                error_code(e.code, (Loc) { 0 }, "%s", e.msg);
        return text;
}
