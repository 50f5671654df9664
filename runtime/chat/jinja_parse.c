/* jinja_parse.c: statements, as parser.py of jinja2 reads them.
 *
 * N_DATA val; N_OUTPUT body (what is written one after another); N_FOR a (the target), b (what is
 * gone through), c (the condition, or NULL), body, other (else), flag (recursive); N_IF a, body,
 * list (of elif: N_IF), other; N_SET a (the target), b; N_SETBLOCK a, b (a filter, or NULL), body;
 * N_MACRO name, list (parameters: N_NAME), args (defaults of the last ones), body; N_CALLBLOCK the
 * same and a (the call); N_FILTERBLOCK a (the filter), body; N_WITH list (targets), args (values),
 * body; N_GENERATION body. */
#include <string.h>
#include "jinja.h"

void parse_fail(Parser *p, const Token *at, const char *fmt, ...)
{
        char msg[500];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(msg, sizeof msg, fmt, ap);
        va_end(ap);
        p->j->line = at->line;
        p->j->col = at->col;
        j_fail(p->j, "%s", msg);
}

Node *node_new(Parser *p, NodeType t, const Token *at)
{
        Node *n = j_get(p->j, sizeof *n);
        n->t = (uint8_t)t;
        n->line = at->line;
        n->col = at->col;
        return n;
}

void nodes_add(Parser *p, Nodes *l, Node *x)
{
        if (l->n == l->cap) {
                l->p = j_grow(p->j, l->p, (size_t)l->n * sizeof *l->p,
                              (size_t)(l->cap + 4) * sizeof *l->p);
                l->cap = l->cap * 2 + 4;
        }
        l->p[l->n++] = x;
}

static bool is_name(const Token *t, const char *name)
{
        return t->t == T_NAME && t->n == strlen(name) && !memcmp(t->p, name, t->n);
}

bool at_name(const Parser *p, const char *name) { return is_name(p->tok, name); }

bool skip_name(Parser *p, const char *name)
{
        bool yes = at_name(p, name);
        p->tok += yes;
        return yes;
}

bool skip_token(Parser *p, TokenType t)
{
        bool yes = p->tok->t == t;
        p->tok += yes;
        return yes;
}

const Token *want(Parser *p, TokenType t)
{
        if (p->tok->t != t)
                parse_fail(p, p->tok, "expected %s, got %s", token_text(&(Token) { .t = t }),
                           token_text(p->tok));
        return p->tok++;
}

/* ---- targets ---- */

static void set_ctx(Parser *p, Node *n, Ctx ctx)
{
        if (n->t == N_TUPLE) {
                for (int i = 0; i < n->list.n; i++)
                        set_ctx(p, n->list.p[i], ctx);
                return;
        }
        if (n->t != N_NAME && n->t != N_NSREF) {
                p->j->line = n->line;
                p->j->col = n->col;
                j_fail(p->j, "cannot assign to this");
        }
        n->ctx = (uint8_t)ctx;
}

static Node *target(Parser *p, const char *end, bool with_ns)
{
        Node *n = parse_tuple(p, true, true, end, false, with_ns);
        set_ctx(p, n, CTX_STORE);
        return n;
}

static Node *name_target(Parser *p, Ctx ctx)
{
        const Token *t = want(p, T_NAME);
        static const char *const fixed[] = { "true", "false", "none", "True", "False", "None" };
        for (int i = 0; i < 6; i++)
                if (is_name(t, fixed[i]))
                        parse_fail(p, t, "cannot assign to %s", fixed[i]);
        Node *n = node_new(p, N_NAME, t);
        n->name = t->p;
        n->ctx = (uint8_t)ctx;
        return n;
}

/* ---- bodies ---- */

static Node *statement(Parser *p);

static bool at_any(const Parser *p, const char *const *names)
{
        for (; names && *names; names++)
                if (at_name(p, *names))
                        return true;
        return false;
}

/* Up to the {% of one of these words. */
static Nodes subparse(Parser *p, const char *const *ends)
{
        Nodes body = { 0 };
        if (++p->depth > MOST_DEPTH)
                parse_fail(p, p->tok, "nested deeper than %d", MOST_DEPTH);
        for (;;) {
                const Token *t = p->tok;
                if (t->t == T_EOF)
                        break;
                p->tok++;
                if (t->t == T_DATA) {
                        Node *n = node_new(p, N_DATA, t);
                        n->val = v_str_at(p->j, t->p, t->n);
                        nodes_add(p, &body, n);
                } else if (t->t == T_VAR_BEGIN) {
                        Node *n = node_new(p, N_OUTPUT, t);
                        nodes_add(p, &n->body, parse_tuple(p, false, true, NULL, false, false));
                        want(p, T_VAR_END);
                        nodes_add(p, &body, n);
                } else {
                        if (at_any(p, ends))
                                break;
                        nodes_add(p, &body, statement(p));
                        want(p, T_BLOCK_END);
                }
        }
        p->depth--;
        return body;
}

static Nodes statements(Parser *p, const char *const *ends, bool drop)
{
        const Token *at = p->tok;
        skip_token(p, T_COLON);
        want(p, T_BLOCK_END);
        Nodes body = subparse(p, ends);
        if (p->tok->t == T_EOF)
                parse_fail(p, at, "the template ends where this block needs its {%% %s %%}",
                           ends[0]);
        p->tok += drop;
        return body;
}

#define UNTIL(...) \
        (const char *const[]) { __VA_ARGS__, NULL }

/* ---- statements ---- */

static Node *parse_for(Parser *p)
{
        Node *n = node_new(p, N_FOR, p->tok++);
        n->a = target(p, "in", false);
        if (!skip_name(p, "in"))
                parse_fail(p, p->tok, "expected in, got %s", token_text(p->tok));
        n->b = parse_tuple(p, false, false, "recursive", false, false);
        if (skip_name(p, "if"))
                n->c = parse_expression(p, true);
        n->flag = skip_name(p, "recursive");
        int loops = p->loops;
        p->loops = n->flag ? 1 : loops + 1;
        n->body = statements(p, UNTIL("endfor", "else"), false);
        p->loops = n->flag ? 0 : loops;
        if (skip_name(p, "else"))
                n->other = statements(p, UNTIL("endfor"), true);
        else
                p->tok++;
        p->loops = loops;
        return n;
}

static Node *parse_if(Parser *p)
{
        Node *first = node_new(p, N_IF, p->tok++), *n = first;
        for (;;) {
                n->a = parse_tuple(p, false, false, NULL, false, false);
                n->body = statements(p, UNTIL("endif", "elif", "else"), false);
                const Token *t = p->tok++;
                if (is_name(t, "elif")) {
                        n = node_new(p, N_IF, t);
                        nodes_add(p, &first->list, n);
                        continue;
                }
                if (is_name(t, "else"))
                        first->other = statements(p, UNTIL("endif"), true);
                return first;
        }
}

static Node *parse_set(Parser *p)
{
        Node *n = node_new(p, N_SET, p->tok++);
        n->a = target(p, NULL, true);
        if (skip_token(p, T_ASSIGN)) {
                n->b = parse_tuple(p, false, true, NULL, false, false);
                return n;
        }
        n->t = N_SETBLOCK;
        n->b = parse_filters(p, NULL, false);
        n->body = statements(p, UNTIL("endset"), true);
        return n;
}

static void signature(Parser *p, Node *n)
{
        want(p, T_LPAREN);
        while (p->tok->t != T_RPAREN) {
                if (n->list.n)
                        want(p, T_COMMA);
                const Token *at = p->tok;
                Node *arg = name_target(p, CTX_PARAM);
                for (int i = 0; i < n->list.n; i++)
                        if (n->list.p[i]->name == arg->name)
                                parse_fail(p, at, "two parameters are called %s", arg->name);
                if (skip_token(p, T_ASSIGN))
                        nodes_add(p, &n->args, parse_expression(p, true));
                else if (n->args.n)
                        parse_fail(p, at, "a parameter without a default follows one with");
                nodes_add(p, &n->list, arg);
        }
        p->tok++;
}

/* The body of a function: a loop around it is none of its own. */
static Nodes function_body(Parser *p, const char *const *ends)
{
        int loops = p->loops;
        p->loops = 0;
        Nodes body = statements(p, ends, true);
        p->loops = loops;
        return body;
}

static Node *parse_macro(Parser *p)
{
        Node *n = node_new(p, N_MACRO, p->tok++);
        n->name = name_target(p, CTX_STORE)->name;
        signature(p, n);
        n->body = function_body(p, UNTIL("endmacro"));
        return n;
}

static Node *parse_call_block(Parser *p)
{
        Node *n = node_new(p, N_CALLBLOCK, p->tok++);
        if (p->tok->t == T_LPAREN)
                signature(p, n);
        const Token *at = p->tok;
        n->a = parse_expression(p, true);
        if (n->a->t != N_CALL)
                parse_fail(p, at, "expected a call");
        for (int i = 0; i < n->a->kwargs.n; i++)
                if (!strcmp(n->a->kwargs.p[i]->name, "caller"))
                        parse_fail(p, at, "argument caller is given twice");
        n->body = function_body(p, UNTIL("endcall"));
        return n;
}

static Node *parse_filter_block(Parser *p)
{
        Node *n = node_new(p, N_FILTERBLOCK, p->tok++);
        n->a = parse_filters(p, NULL, true);
        n->body = statements(p, UNTIL("endfilter"), true);
        return n;
}

static Node *parse_with(Parser *p)
{
        Node *n = node_new(p, N_WITH, p->tok++);
        while (p->tok->t != T_BLOCK_END) {
                if (n->list.n)
                        want(p, T_COMMA);
                Node *t = parse_tuple(p, true, true, NULL, false, false);
                set_ctx(p, t, CTX_PARAM);
                nodes_add(p, &n->list, t);
                want(p, T_ASSIGN);
                nodes_add(p, &n->args, parse_expression(p, true));
        }
        n->body = statements(p, UNTIL("endwith"), true);
        return n;
}

static Node *parse_generation(Parser *p)
{
        Node *n = node_new(p, N_GENERATION, p->tok++);
        n->body = function_body(p, UNTIL("endgeneration"));
        return n;
}

static Node *parse_print(Parser *p)
{
        Node *n = node_new(p, N_OUTPUT, p->tok++);
        while (p->tok->t != T_BLOCK_END) {
                if (n->body.n)
                        want(p, T_COMMA);
                nodes_add(p, &n->body, parse_expression(p, true));
        }
        return n;
}

/* In Python a break outside of a loop is a syntax error. */
static Node *parse_leave(Parser *p)
{
        const Token *at = p->tok++;
        if (!p->loops)
                parse_fail(p, at, "%.*s outside of a loop", (int)at->n, at->p);
        return node_new(p, is_name(at, "break") ? N_BREAK : N_CONTINUE, at);
}

static const struct {
        const char *name;
        Node *(*parse)(Parser *p); /* NULL: not supported here */
} tag[] = {
        { "for", parse_for },         { "if", parse_if },
        { "set", parse_set },         { "macro", parse_macro },
        { "call", parse_call_block }, { "filter", parse_filter_block },
        { "with", parse_with },       { "generation", parse_generation },
        { "print", parse_print },     { "break", parse_leave },
        { "continue", parse_leave },  { "block", NULL },
        { "extends", NULL },          { "include", NULL },
        { "import", NULL },           { "from", NULL },
        { "autoescape", NULL },
};

static Node *statement(Parser *p)
{
        if (p->tok->t != T_NAME)
                parse_fail(p, p->tok, "expected a statement's name, got %s", token_text(p->tok));
        for (size_t i = 0; i < sizeof tag / sizeof *tag; i++) {
                if (!at_name(p, tag[i].name))
                        continue;
                if (!tag[i].parse)
                        parse_fail(p, p->tok,
                                   "the statement {%% %s %%} is not supported in chat templates",
                                   tag[i].name);
                return tag[i].parse(p);
        }
        parse_fail(p, p->tok, "unknown statement {%% %.*s %%}", (int)p->tok->n, p->tok->p);
}

/* ---- names, each once ---- */

static void intern(J *j, Token *tok, int n)
{
        static const char *const special[] = { "loop", "caller", "kwargs", "varargs" };
        size_t cap = 64;
        while (cap < (size_t)n * 2)
                cap *= 2;
        Token **slot = j_get(j, cap * sizeof(*slot));
        for (int i = 0; i < n; i++) {
                Token *t = &tok[i];
                uint64_t h = 14695981039346656037u;
                if (t->t != T_NAME)
                        continue;
                for (size_t k = 0; k < t->n; k++)
                        h = (h ^ (unsigned char)t->p[k]) * 1099511628211u;
                size_t at = (size_t)(h ^ h >> 32) & (cap - 1);
                while (slot[at] && (slot[at]->n != t->n || memcmp(slot[at]->p, t->p, t->n)))
                        at = (at + 1) & (cap - 1);
                if (!slot[at]) {
                        t->p = j_copy(j, t->p, t->n);
                        slot[at] = t;
                        for (int k = 0; k < N_SPECIAL; k++)
                                if (!strcmp(t->p, special[k]))
                                        j->special[k] = t->p;
                }
                t->p = slot[at]->p;
        }
}

Node *jinja_parse(J *j, const char *text, size_t n)
{
        int n_tokens;
        Token *tok = jinja_lex(j, text, n, &n_tokens);
        intern(j, tok, n_tokens);
        Parser p = { .j = j, .tok = tok };
        Node *root = node_new(&p, N_OUTPUT, &(Token) { .line = 1, .col = 1 });
        root->body = subparse(&p, NULL);
        jinja_scope(j, root);
        return root;
}
