/* packed_sequences.c: lets a row of tokens hold several documents; a token sees only its own.  Used
 * for rows of training tokens, and for the texts of an encoder's call.
 *
 *      %at = position                      %documents = input                 (B,T,2): begin, end
 *                                          %at = position
 *                                    ->    %own = sub %at, %documents's begins       cast to i32
 *      %y = attention %q, %k, %v           %y = attention %q, %k, %v, %documents
 *
 * Positions count from the beginning of the document.  Rope, slopes and windows depend only on the
 * distance of two tokens and stay as they are.  The runtime fills the input `documents`: a document
 * begins with the row, and with each separator token (plan.h).  Generated text is one document, so
 * forget_documents undoes all this for programs with a cache. */
#include "../compiler.h"
#include <string.h>

static const char input_name[] = "documents";

typedef struct Ctx {
        Ref documents, begin;
} Ctx;

/* Before all other nodes. */
static void add_input(Graph *old, Graph *g, Ctx *c)
{
        const Node *ids = NODE(old, graph_find(old, "ids"));
        Type t = ids->type;
        t.dim[t.rank++] = DIM(2);
        c->documents = graph_leaf(g, OP_INPUT, t, NULL, ids->loc, input_name);
        c->begin = graph_reshape(g, op_slice(g, c->documents, 2, 0, 1, 1), ids->type);
}

static Ref visit_split(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        Ctx *c = ctx;
        const Node *n = NODE(old, r);
        if (!c->documents)
                add_input(old, g, c);
        Ref to = graph_copy_node(old, r, g, map);
        if (n->op == OP_POSITION) {
                /* a difference is a float, exact below 2^24 */
                Ref own = op2(g, OP_SUB, to, c->begin);
                return graph_typed(g, OP_CAST, &n->type, &own, 1, NULL, n->loc,
                                   graph_name(g, n->name));
        }
        if (n->op == OP_ATTENTION && !n->a.att.documents) {
                Node att = *NODE(g, to); /* the copy was needed for its fields alone */
                graph_pop(g);
                att.in[att.n_in++] = c->documents;
                att.a.att.documents = 1;
                return graph_add(g, OP_ATTENTION, att.in, att.n_in, &att.a, att.loc, att.name);
        }
        return to;
}

void bound_texts(Graph *g)
{
        Ctx c = { 0 };
        if (!graph_find(g, input_name))
                graph_rebuild(g, visit_split, &c);
}

void split_documents(Model *m, int64_t token)
{
        m->documents = token;
        bound_texts(m->graph);
}

static bool is_begin(const Graph *g, Ref r)
{
        for (; op_info[NODE(g, r)->op].cls == CLASS_VIEW; r = NODE(g, r)->in[0])
                if (NODE(g, r)->op == OP_SLICE && NODE(g, r)->a.slice.start)
                        return false;
        return NODE(g, r)->op == OP_INPUT && !strcmp(NODE(g, r)->name, input_name);
}

static Ref visit_forget(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        const Node *n = NODE(old, r);
        (void)ctx;
        if (n->op == OP_SUB && is_begin(old, n->in[1]))
                return map[n->in[0]];
        Ref to = graph_copy_node(old, r, g, map);
        if (n->op == OP_ATTENTION && n->a.att.documents) {
                NODE(g, to)->in[--NODE(g, to)->n_in] = 0;
                NODE(g, to)->a.att.documents = 0;
        }
        return to;
}

void forget_documents(Graph *g, Arena *tmp)
{
        (void)tmp;
        graph_rebuild(g, visit_forget, NULL);
        graph_sweep(g);
}
