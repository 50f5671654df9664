/* jinja_expr.c: expressions, as parser.py of jinja2 reads them.
 *
 * N_CONST val; N_NAME name, ctx; N_NSREF name, val (the attribute's name); N_TUPLE and N_LIST list;
 * N_DICT list of keys, body of values; N_ATTR a, name; N_ITEM a, b; N_SLICE a, b, c (or NULL);
 * N_CALL a, args; N_FILTER a (NULL: of a block), name, args; N_TEST a, name, args; N_NOT, N_NEG,
 * N_POS a; N_AND, N_OR and arithmetic a, b; N_COMPARE a, list of operands (op); N_CONCAT list;
 * N_COND a (the test), b, c (or NULL). */
#include <string.h>
#include "jinja.h"

static Node *unary(Parser *p, bool with_filter);

static void down(Parser *p)
{
        if (++p->depth > MOST_DEPTH)
                parse_fail(p, p->tok, "nested deeper than %d", MOST_DEPTH);
}

static Node *pair(Parser *p, NodeType t, const Token *at, Node *a, Node *b)
{
        Node *n = node_new(p, t, at);
        n->a = a;
        n->b = b;
        return n;
}

/* A chain `a + b + c` is a tree as deep as it is long: that is walked, too. */
typedef struct Chain {
        Parser *p;
        int n;
} Chain;

static void longer(Chain *c)
{
        if (++c->n > MOST_DEPTH / 2)
                parse_fail(c->p, c->p->tok, "an expression of more than %d parts in a row",
                           MOST_DEPTH / 2);
}

static Node *power(Parser *p)
{
        const Token *at = p->tok;
        Node *x = unary(p, true);
        for (Chain c = { p, 0 }; skip_token(p, T_POW); longer(&c))
                x = pair(p, N_POW, at, x, unary(p, true));
        return x;
}

static Node *product(Parser *p)
{
        Node *x = power(p);
        for (Chain c = { p, 0 };; longer(&c)) {
                const Token *at = p->tok;
                NodeType t = at->t == T_MUL        ? N_MUL
                             : at->t == T_DIV      ? N_DIV
                             : at->t == T_FLOORDIV ? N_FLOORDIV
                                                   : N_MOD;
                if (t == N_MOD && at->t != T_MOD)
                        return x;
                p->tok++;
                x = pair(p, t, at, x, power(p));
        }
}

static Node *concat(Parser *p)
{
        const Token *at = p->tok;
        Node *x = product(p), *all = NULL;
        while (skip_token(p, T_TILDE)) {
                if (!all) {
                        all = node_new(p, N_CONCAT, at);
                        nodes_add(p, &all->list, x);
                }
                nodes_add(p, &all->list, product(p));
        }
        return all ? all : x;
}

static Node *sum(Parser *p)
{
        Node *x = concat(p);
        for (Chain c = { p, 0 }; p->tok->t == T_ADD || p->tok->t == T_SUB; longer(&c)) {
                const Token *at = p->tok++;
                x = pair(p, at->t == T_ADD ? N_ADD : N_SUB, at, x, concat(p));
        }
        return x;
}

static int compare_op(Parser *p)
{
        static const struct {
                TokenType t;
                int op;
        } op[] = { { T_EQ, OP_EQ }, { T_NE, OP_NE }, { T_LT, OP_LT },
                   { T_LE, OP_LE }, { T_GT, OP_GT }, { T_GE, OP_GE } };
        for (int i = 0; i < 6; i++)
                if (skip_token(p, op[i].t))
                        return op[i].op;
        if (skip_name(p, "in"))
                return OP_IN;
        if (at_name(p, "not") && p->tok[1].t == T_NAME && p->tok[1].n == 2 &&
            !memcmp(p->tok[1].p, "in", 2)) {
                p->tok += 2;
                return OP_NOTIN;
        }
        return 0;
}

static Node *comparison(Parser *p)
{
        const Token *at = p->tok;
        Node *x = sum(p), *all = NULL;
        int op;
        while ((op = compare_op(p))) {
                if (!all) {
                        all = node_new(p, N_COMPARE, at);
                        all->a = x;
                }
                Node *y = sum(p), *operand = node_new(p, N_CONST, p->tok);
                operand->op = (uint8_t)op;
                operand->a = y;
                nodes_add(p, &all->list, operand);
        }
        return all ? all : x;
}

static Node *negation(Parser *p)
{
        const Token *at = p->tok;
        if (!skip_name(p, "not"))
                return comparison(p);
        Node *n = node_new(p, N_NOT, at);
        down(p);
        n->a = negation(p);
        p->depth--;
        return n;
}

static Node *conjunction(Parser *p)
{
        const Token *at = p->tok;
        Node *x = negation(p);
        for (Chain c = { p, 0 }; skip_name(p, "and"); longer(&c))
                x = pair(p, N_AND, at, x, negation(p));
        return x;
}

static Node *disjunction(Parser *p)
{
        const Token *at = p->tok;
        Node *x = conjunction(p);
        for (Chain c = { p, 0 }; skip_name(p, "or"); longer(&c))
                x = pair(p, N_OR, at, x, conjunction(p));
        return x;
}

static Node *condition(Parser *p)
{
        const Token *at = p->tok;
        down(p);
        Node *x = disjunction(p);
        for (Chain c = { p, 0 }; skip_name(p, "if"); longer(&c)) {
                Node *n = node_new(p, N_COND, at);
                n->a = disjunction(p);
                n->b = x;
                n->c = skip_name(p, "else") ? condition(p) : NULL;
                x = n;
        }
        p->depth--;
        return x;
}

Node *parse_expression(Parser *p, bool with_cond)
{
        if (with_cond)
                return condition(p);
        down(p);
        Node *x = disjunction(p);
        p->depth--;
        return x;
}

/* ---- what an expression begins with ---- */

static Node *primary(Parser *p, bool with_ns);

Node *parse_tuple(Parser *p, bool simple, bool with_cond, const char *end, bool parens,
                  bool with_ns)
{
        const Token *at = p->tok;
        Nodes items = { 0 };
        bool is_tuple = false;
        for (;;) {
                if (items.n)
                        want(p, T_COMMA);
                if (p->tok->t == T_VAR_END || p->tok->t == T_BLOCK_END || p->tok->t == T_RPAREN ||
                    (end && at_name(p, end)))
                        break;
                nodes_add(p, &items, simple ? primary(p, with_ns) : parse_expression(p, with_cond));
                if (p->tok->t != T_COMMA)
                        break;
                is_tuple = true;
        }
        if (!is_tuple && items.n)
                return items.p[0];
        if (!is_tuple && !parens)
                parse_fail(p, p->tok, "expected an expression, got %s", token_text(p->tok));
        Node *n = node_new(p, N_TUPLE, at);
        n->list = items;
        return n;
}

static Node *list(Parser *p)
{
        Node *n = node_new(p, N_LIST, want(p, T_LBRACKET));
        while (p->tok->t != T_RBRACKET) {
                if (n->list.n)
                        want(p, T_COMMA);
                if (p->tok->t == T_RBRACKET)
                        break;
                nodes_add(p, &n->list, parse_expression(p, true));
        }
        p->tok++;
        return n;
}

static Node *dict(Parser *p)
{
        Node *n = node_new(p, N_DICT, want(p, T_LBRACE));
        while (p->tok->t != T_RBRACE) {
                if (n->list.n)
                        want(p, T_COMMA);
                if (p->tok->t == T_RBRACE)
                        break;
                const Token *at = p->tok;
                Node *key = parse_expression(p, true);
                if (key->t == N_LIST || key->t == N_DICT) /* jinja2 folds constants, and fails */
                        parse_fail(p, at, "unhashable type: a list or a dict as a key");
                nodes_add(p, &n->list, key);
                want(p, T_COLON);
                nodes_add(p, &n->body, parse_expression(p, true));
        }
        p->tok++;
        return n;
}

static bool is(const Token *t, const char *a, const char *b)
{
        return (t->n == strlen(a) && !memcmp(t->p, a, t->n)) ||
               (t->n == strlen(b) && !memcmp(t->p, b, t->n));
}

static Node *name(Parser *p, bool with_ns)
{
        const Token *t = p->tok++;
        Node *n = node_new(p, N_CONST, t);
        if (is(t, "true", "True") || is(t, "false", "False")) {
                n->val = v_bool(is(t, "true", "True"));
        } else if (is(t, "none", "None")) {
                n->val = v_none();
        } else {
                n->t = N_NAME;
                n->name = t->p;
                if (with_ns && skip_token(p, T_DOT)) {
                        const Token *k = want(p, T_NAME);
                        n->t = N_NSREF;
                        n->val = v_str_at(p->j, k->p, k->n);
                }
        }
        return n;
}

static Node *strings(Parser *p)
{
        Node *n = node_new(p, N_CONST, p->tok);
        Buf b = { 0 };
        for (; p->tok->t == T_STRING; p->tok++)
                out_put(p->j, &b, p->tok->p, p->tok->n);
        n->val = out_str(p->j, &b);
        return n;
}

static Node *primary(Parser *p, bool with_ns)
{
        const Token *t = p->tok;
        Node *n;
        switch (t->t) {
        case T_NAME: return name(p, with_ns);
        case T_STRING: return strings(p);
        case T_INT:
        case T_FLOAT:
                n = node_new(p, N_CONST, p->tok++);
                n->val = t->t == T_INT ? v_int(t->i) : v_float(t->d);
                return n;
        case T_LPAREN:
                p->tok++;
                down(p);
                n = parse_tuple(p, false, true, NULL, true, false);
                p->depth--;
                want(p, T_RPAREN);
                return n;
        case T_LBRACKET: return list(p);
        case T_LBRACE: return dict(p);
        default: parse_fail(p, t, "unexpected %s", token_text(t));
        }
}

/* ---- what follows it ---- */

static Node *subscribed(Parser *p)
{
        const Token *at = p->tok;
        Node *first = NULL, *part[2] = { NULL, NULL };
        if (p->tok->t != T_COLON) {
                first = parse_expression(p, true);
                if (p->tok->t != T_COLON)
                        return first;
        }
        p->tok++;
        Node *n = node_new(p, N_SLICE, at);
        for (int i = 0; i < 2; i++) {
                if (i && !skip_token(p, T_COLON))
                        break;
                if (p->tok->t != T_COLON && p->tok->t != T_RBRACKET && p->tok->t != T_COMMA)
                        part[i] = parse_expression(p, true);
        }
        n->a = first;
        n->b = part[0];
        n->c = part[1];
        return n;
}

static Node *subscript(Parser *p, Node *x)
{
        const Token *at = p->tok++;
        Node *n = node_new(p, at->t == T_DOT ? N_ATTR : N_ITEM, at);
        n->a = x;
        if (at->t == T_DOT) {
                const Token *k = p->tok++;
                if (k->t == T_NAME) {
                        n->name = k->p;
                } else if (k->t == T_INT) {
                        n->t = N_ITEM;
                        n->b = node_new(p, N_CONST, k);
                        n->b->val = v_int(k->i);
                } else {
                        parse_fail(p, k, "expected a name or a number behind the point, got %s",
                                   token_text(k));
                }
                return n;
        }
        Nodes arg = { 0 };
        while (p->tok->t != T_RBRACKET) {
                if (arg.n)
                        want(p, T_COMMA);
                nodes_add(p, &arg, subscribed(p));
        }
        p->tok++;
        if (arg.n == 1) {
                n->b = arg.p[0];
                return n;
        }
        for (int i = 0; i < arg.n; i++)
                if (arg.p[i]->t == N_SLICE)
                        parse_fail(p, at, "several slices at once are not supported");
        n->b = node_new(p, N_TUPLE, at);
        n->b->list = arg;
        return n;
}

static void call_args(Parser *p, Node *n)
{
        const Token *at = want(p, T_LPAREN);
        bool comma = false, ok = true;
        for (; p->tok->t != T_RPAREN; comma = true) {
                if (comma) {
                        want(p, T_COMMA);
                        if (p->tok->t == T_RPAREN)
                                break;
                }
                if (skip_token(p, T_MUL)) {
                        ok = !n->dyn_args && !n->dyn_kwargs;
                        n->dyn_args = parse_expression(p, true);
                } else if (skip_token(p, T_POW)) {
                        ok = !n->dyn_kwargs;
                        n->dyn_kwargs = parse_expression(p, true);
                } else if (p->tok->t == T_NAME && p->tok[1].t == T_ASSIGN) {
                        const Token *key = p->tok;
                        Node *k = node_new(p, N_CONST, key);
                        ok = !n->dyn_kwargs;
                        p->tok += 2;
                        k->name = key->p;
                        k->a = parse_expression(p, true);
                        for (int i = 0; i < n->kwargs.n; i++)
                                if (n->kwargs.p[i]->name == k->name)
                                        parse_fail(p, key, "argument %s is given twice", k->name);
                        nodes_add(p, &n->kwargs, k);
                } else {
                        ok = !n->dyn_args && !n->dyn_kwargs && !n->kwargs.n;
                        nodes_add(p, &n->args, parse_expression(p, true));
                }
                if (!ok)
                        parse_fail(p, at, "invalid syntax for a call's arguments");
        }
        p->tok++;
}

static Node *call(Parser *p, Node *x)
{
        Node *n = node_new(p, N_CALL, p->tok);
        n->a = x;
        call_args(p, n);
        return n;
}

static Node *postfix(Parser *p, Node *x)
{
        for (Chain c = { p, 0 };; longer(&c)) {
                if (p->tok->t == T_DOT || p->tok->t == T_LBRACKET)
                        x = subscript(p, x);
                else if (p->tok->t == T_LPAREN)
                        x = call(p, x);
                else
                        return x;
        }
}

/* NAME.NAME: one name with a point in it, as extensions have them. */
static const char *dotted(Parser *p)
{
        const Token *t = want(p, T_NAME);
        if (p->tok->t == T_DOT)
                parse_fail(p, t, "no filter or test has a name with a point");
        return t->p;
}

Node *parse_filters(Parser *p, Node *x, bool inline_first)
{
        for (Chain c = { p, 0 }; inline_first || p->tok->t == T_PIPE; longer(&c)) {
                if (!inline_first)
                        p->tok++;
                Node *n = node_new(p, N_FILTER, p->tok);
                n->name = dotted(p);
                n->a = x;
                if (p->tok->t == T_LPAREN)
                        call_args(p, n);
                x = n;
                inline_first = false;
        }
        return x;
}

static Node *test(Parser *p, Node *x)
{
        const Token *at = p->tok++;
        bool negated = skip_name(p, "not");
        Node *n = node_new(p, N_TEST, at);
        n->name = dotted(p);
        n->a = x;
        switch (p->tok->t) {
        case T_LPAREN: call_args(p, n); break;
        case T_NAME:
                if (at_name(p, "else") || at_name(p, "or") || at_name(p, "and"))
                        break;
                if (at_name(p, "is"))
                        parse_fail(p, p->tok, "tests cannot be chained with is");
                /* fall through */
        case T_STRING:
        case T_INT:
        case T_FLOAT:
        case T_LBRACKET:
        case T_LBRACE: nodes_add(p, &n->args, postfix(p, primary(p, false))); break;
        default: break;
        }
        if (!negated)
                return n;
        Node *no = node_new(p, N_NOT, at);
        no->a = n;
        return no;
}

static Node *unary(Parser *p, bool with_filter)
{
        const Token *at = p->tok;
        Node *x;
        down(p);
        if (at->t == T_SUB || at->t == T_ADD) {
                p->tok++;
                x = node_new(p, at->t == T_SUB ? N_NEG : N_POS, at);
                x->a = unary(p, false);
        } else {
                x = primary(p, false);
        }
        x = postfix(p, x);
        for (Chain c = { p, 0 }; with_filter; longer(&c)) {
                if (p->tok->t == T_PIPE)
                        x = parse_filters(p, x, false);
                else if (at_name(p, "is"))
                        x = test(p, x);
                else if (p->tok->t == T_LPAREN)
                        x = call(p, x);
                else
                        break;
        }
        p->depth--;
        return x;
}
