/* jinja.h: private to runtime/chat: the part of Jinja that chat templates use.
 *
 * A text becomes tokens (jinja_lex.c), then a tree (jinja_parse.c, jinja_expr.c) whose names have
 * places (jinja_scope.c); then the tree is walked (jinja_walk.c, jinja_eval.c).  The output equals,
 * byte for byte, that of jinja2 3.1 in transformers' environment: ImmutableSandboxedEnvironment
 * with trim_blocks, lstrip_blocks, loopcontrols and {% generation %}.  If jinja2 raises an
 * exception, this fails.  What is not supported fails too, and names itself.
 *
 * All memory of a template, or of one rendering, is a pool that is freed whole.  A failure unwinds
 * to the function that called j_begin. */
#ifndef TGC_JINJA_H
#define TGC_JINJA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../util/err.h"

enum {
        MOST_TEMPLATE = 4 << 20, /* bytes of a template */
        MOST_DEPTH = 400,        /* of anything nested: expressions, statements, values, calls */
        MOST_STEPS = 20000000,   /* nodes evaluated, and items and 64 bytes looked at */
        MOST_OUTPUT = 64 << 20,  /* bytes of text */
        MOST_POOL = 1 << 29,     /* bytes of a rendering's values */
        MOST_RANGE = 100000      /* jinja2's sandbox */
};

/* ---- values ---- */

typedef enum {
        V_MISSING, /* no value: an argument that was not given, a name not set yet */
        V_UNDEF,
        V_NONE,
        V_BOOL,
        V_INT,
        V_FLOAT,
        V_STR,
        V_LIST,
        V_TUPLE,
        V_DICT,
        V_VIEW, /* of a dict: keys, values, items */
        V_RANGE,
        V_ITER,  /* a generator: its items come once */
        V_SPACE, /* namespace() */
        V_FUNC,
        V_LOOP
} VType;

typedef struct Val Val;
typedef struct Str Str;
typedef struct List List;
typedef struct Dict Dict;
typedef struct Iter Iter;
typedef struct Func Func;
typedef struct Loop Loop;
typedef struct Range Range;
typedef struct Undef Undef;

struct Val {
        uint8_t t;      /* VType */
        uint8_t markup; /* V_STR: markupsafe's Markup; V_VIEW: 'k', 'v' or 'i' */
        union {
                bool b;
                int64_t i;
                double d;
                const Str *s;
                const List *l; /* V_LIST, V_TUPLE */
                Dict *m;       /* V_DICT, V_VIEW, V_SPACE */
                Iter *it;
                const Func *f;
                Loop *loop;
                const Range *r;
                const Undef *u;
        };
};

struct Str { /* UTF-8 */
        const char *p;
        size_t n;
        size_t chars; /* code points */
};

struct List {
        Val *v;
        size_t n;
};

typedef struct Entry {
        Val key, value;
        uint64_t hash;
} Entry;

struct Dict { /* in the order of insertion */
        Entry *e;
        size_t n, cap;
        uint32_t *slot; /* place + 1, or 0; NULL while small */
        size_t n_slots;
};

struct Range {
        int64_t start, stop, step, n;
};

struct Undef {
        const char *why; /* what using it says */
};

/* ---- trees ---- */

typedef enum {
        N_CONST,
        N_NAME,
        N_NSREF,
        N_TUPLE,
        N_LIST,
        N_DICT,
        N_ATTR,
        N_ITEM,
        N_SLICE,
        N_CALL,
        N_FILTER,
        N_TEST,
        N_NOT,
        N_NEG,
        N_POS,
        N_AND,
        N_OR,
        N_COMPARE,
        N_CONCAT,
        N_COND,
        N_ADD,
        N_SUB,
        N_MUL,
        N_DIV,
        N_FLOORDIV,
        N_MOD,
        N_POW,
        N_OUTPUT,
        N_DATA,
        N_FOR,
        N_IF,
        N_SET,
        N_SETBLOCK,
        N_MACRO,
        N_CALLBLOCK,
        N_FILTERBLOCK,
        N_WITH,
        N_GENERATION,
        N_BREAK,
        N_CONTINUE
} NodeType;

typedef enum { CTX_LOAD, CTX_STORE, CTX_PARAM } Ctx;

/* A name's place: so many functions out, and there this slot. */
typedef struct Ref {
        int up, slot;
} Ref;

typedef enum { LOAD_NONE, LOAD_PARAM, LOAD_RESOLVE, LOAD_ALIAS, LOAD_UNDEF } LoadKind;

/* What a name gets where its scope begins. */
typedef struct Load {
        LoadKind kind;
        int slot;
        const char *name; /* LOAD_RESOLVE: of the context */
        Ref from;         /* LOAD_ALIAS */
} Load;

typedef struct Loads {
        Load *load;
        int n;
} Loads;

typedef struct Node Node;

typedef struct Nodes {
        Node **p;
        int n, cap;
} Nodes;

/* Which fields a kind has is said where it is made (jinja_parse.c, jinja_expr.c). */
struct Node {
        uint8_t t;   /* NodeType */
        uint8_t ctx; /* N_NAME: Ctx */
        uint8_t op;  /* N_COMPARE's operands: OP_* */
        bool flag;
        int line, col;
        const char *name; /* interned */
        Val val;
        Node *a, *b, *c;
        Nodes list, args, kwargs; /* kwargs: N_CONST with a name and a */
        Node *dyn_args, *dyn_kwargs;
        Nodes body, other;
        Ref ref;
        Loads scope, else_scope, test_scope;
        int n_slots;                    /* functions */
        Ref caller, varargs, kwargs_at; /* macros; slot -1: not asked for */
};

enum { OP_EQ = 1, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_IN, OP_NOTIN };

/* ---- one work: a parse, or a rendering ---- */

typedef struct Pool {
        struct PoolChunk *chunk;
        size_t used, most;
} Pool;

void pool_free(Pool *p);

typedef struct Buf {
        char *p;
        size_t n, cap;
} Buf;

typedef struct Act Act;
struct Act { /* a function that runs */
        Act *up;
        Val *slot;
};

/* Names with a meaning of their own, as the template's text has them; NULL: it does not. */
enum { NAME_LOOP, NAME_CALLER, NAME_KWARGS, NAME_VARARGS, N_SPECIAL };

typedef struct J {
        jmp_buf out;
        Err *e;
        const char *name; /* of the template, for messages */
        int line, col;
        Pool *pool;
        long steps;
        int depth;
        const char *special[N_SPECIAL]; /* of a parse */
        /* of a rendering */
        Dict *context;
        Buf *buf;
        Buf text; /* the template's own output */
        Act *act;
        size_t out_bytes;
        int64_t now;
        size_t *span; /* {% generation %}: begin, end ... in text */
        int n_spans, cap_spans;
} J;

_Noreturn void j_fail(J *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void j_lacks(J *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void j_no_memory(J *j);
void j_step(J *j, size_t n);
void j_down(J *j); /* and j->depth-- after */
void *j_get(J *j, size_t n);
void *j_copy(J *j, const void *p, size_t n);
void *j_grow(J *j, void *p, size_t n, size_t more);

/* ---- jinja_lex.c ---- */

typedef enum {
        T_EOF,
        T_DATA,
        T_VAR_BEGIN,
        T_VAR_END,
        T_BLOCK_BEGIN,
        T_BLOCK_END,
        T_NAME,
        T_STRING,
        T_INT,
        T_FLOAT,
        T_ADD,
        T_SUB,
        T_DIV,
        T_FLOORDIV,
        T_MUL,
        T_MOD,
        T_POW,
        T_TILDE,
        T_LBRACKET,
        T_RBRACKET,
        T_LPAREN,
        T_RPAREN,
        T_LBRACE,
        T_RBRACE,
        T_EQ,
        T_NE,
        T_GT,
        T_GE,
        T_LT,
        T_LE,
        T_ASSIGN,
        T_DOT,
        T_COLON,
        T_PIPE,
        T_COMMA,
        T_SEMICOLON
} TokenType;

typedef struct Token {
        TokenType t;
        int line, col;
        const char *p; /* T_DATA, T_NAME (interned), T_STRING (unescaped) */
        size_t n;
        int64_t i;
        double d;
} Token;

Token *jinja_lex(J *j, const char *text, size_t n, int *n_tokens);
const char *token_text(const Token *t); /* for messages */

/* ---- jinja_parse.c, jinja_expr.c: the grammar of jinja2's parser.py ---- */

typedef struct Parser {
        J *j;
        const Token *tok;
        int loops; /* of this function, around */
        int depth;
} Parser;

Node *jinja_parse(J *j, const char *text, size_t n); /* N_OUTPUT whose body is the template */

Node *node_new(Parser *p, NodeType t, const Token *at);
void nodes_add(Parser *p, Nodes *l, Node *x);
bool at_name(const Parser *p, const char *name);
bool skip_name(Parser *p, const char *name);
bool skip_token(Parser *p, TokenType t);
const Token *want(Parser *p, TokenType t);
_Noreturn void parse_fail(Parser *p, const Token *at, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

Node *parse_expression(Parser *p, bool with_cond);
Node *parse_tuple(Parser *p, bool simple, bool with_cond, const char *end, bool parens,
                  bool with_ns);
Node *parse_filters(Parser *p, Node *x, bool inline_first);

/* ---- jinja_scope.c ---- */

void jinja_scope(J *j, Node *root);

/* ---- jinja_value.c ---- */

static inline Val v_none(void) { return (Val) { .t = V_NONE }; }
static inline Val v_bool(bool b) { return (Val) { .t = V_BOOL, .b = b }; }
static inline Val v_int(int64_t i) { return (Val) { .t = V_INT, .i = i }; }
static inline Val v_float(double d) { return (Val) { .t = V_FLOAT, .d = d }; }
static inline bool is_str(Val v) { return v.t == V_STR; }

Val v_str(J *j, const char *p, size_t n);    /* copied */
Val v_str_at(J *j, const char *p, size_t n); /* p lasts */
Val v_text(J *j, const char *s);             /* a literal */
Val v_markup(Val s, bool markup);
Val v_undef(J *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
Val v_list(J *j, VType t, size_t n); /* of n values to be set */
Val v_dict(J *j);
Val *dict_find(J *j, const Dict *d, Val key); /* fails where key has no hash */
Val *dict_at(J *j, const Dict *d, const char *key);
void dict_set(J *j, Dict *d, Val key, Val value);
const char *v_type(Val v); /* as Python calls it */

/* Buffers of the pool. */
void out_put(J *j, Buf *b, const char *p, size_t n);
void out_text(J *j, Buf *b, const char *s);
void out_code(J *j, Buf *b, uint32_t c); /* a code point */
Val out_str(J *j, Buf *b);

/* ---- jinja_unicode.c ---- */

uint32_t next_code(const char **p, const char *end);
size_t put_code(char out[4], uint32_t c);
size_t count_codes(const char *p, size_t n);
const char *skip_codes(const char *p, const char *end, size_t n);
bool is_space_code(uint32_t c);
bool is_name_begin(uint32_t c);
bool is_name_code(uint32_t c);
bool is_printable(uint32_t c);
typedef enum { CASE_LOWER, CASE_UPPER, CASE_TITLE } Case;
void put_case(J *j, Buf *b, Case how, const char *begin, const char *at, const char *end);
bool is_cased(uint32_t c), is_upper_code(uint32_t c), is_lower_code(uint32_t c);
typedef enum { CLASS_ALPHA, CLASS_DECIMAL, CLASS_DIGIT, CLASS_NUMERIC, CLASS_ALNUM } CodeClass;
bool is_class(uint32_t c, CodeClass what);

/* ---- jinja_text.c: values as text ---- */

void put_str(J *j, Buf *b, Val v);  /* str() */
void put_repr(J *j, Buf *b, Val v); /* repr() */
Val to_str(J *j, Val v);            /* str(): not Markup */
Val soft_str(J *j, Val v);          /* a str as it is */
Val escape_html(J *j, Val v);
void put_float(J *j, Buf *b, double d);
typedef struct JsonHow {
        bool ascii, sort;
        Val indent;             /* none, int or str */
        const char *item, *key; /* separators */
} JsonHow;
void put_json_value(J *j, Buf *b, Val v, const JsonHow *how, int level);

/* ---- jinja_op.c ---- */

bool v_true(J *j, Val v);
bool v_equal(J *j, Val a, Val b);
int v_compare(J *j, Val a, Val b, const char *op); /* <0 0 >0, 2: neither (NaN) */
bool v_order(J *j, Val a, Val b, int op);          /* OP_* */
bool v_in(J *j, Val item, Val in);
Val v_binary(J *j, NodeType op, Val a, Val b);
Val v_negate(J *j, Val v, bool minus);
bool v_has_len(Val v);
int64_t v_len(J *j, Val v);
Val v_slice(J *j, Val v, Val start, Val stop, Val step);
Val v_index(J *j, Val v, int64_t i, bool *found);
double number_of(Val v);
bool is_number(Val v); /* int, float, bool */
bool is_integer(Val v, int64_t *i);

/* ---- jinja_iter.c ---- */

struct Iter {
        bool (*next)(J *j, Iter *it, Val *out);
        Val of;
        size_t i;
        void *state;
};

Iter *iter_of(J *j, Val v); /* fails where there is none */
bool has_iter(Val v);
bool iter_next(J *j, Iter *it, Val *out);
Val v_iter(J *j, bool (*next)(J *, Iter *, Val *), Val of, void *state);
Val list_of(J *j, Val v, VType t);

/* ---- calls ---- */

typedef struct Args {
        Val *v;
        int n;
        const char **key;
        Val *kw;
        int n_kw;
} Args;

typedef Val Builtin(J *j, Val self, const Args *a);

struct Func {
        const char *name;
        Builtin *fn; /* or NULL: a macro */
        Val self;    /* of a method */
        const Node *macro;
        Act *act; /* where it was defined */
};

/* names: "old new count?" - optional ones end in ?; what stands before a word / takes no keyword.
 * out: a value each, V_MISSING where it was not given. */
void args_take(J *j, const Args *a, const char *what, const char *names, Val *out);
Val v_func(J *j, const char *name, Builtin *fn, Val self);

/* ---- jinja_format.c ---- */

Val format_percent(J *j, Val fmt, Val args); /* `fmt % args` */
Val str_format(J *j, Val self, const Args *a);

/* ---- jinja_attr.c, jinja_method.c ---- */

Val v_getattr(J *j, Val v, const char *name);
Val v_getitem(J *j, Val v, Val key);
Val v_attribute(J *j, Val v, const char *name); /* without items */
/* A method of str; false: Python has none of this name. */
bool str_method(J *j, Val v, const char *name, Val *out);
Builtin *str_builtin(const char *name);

/* ---- jinja_filter.c, jinja_items.c, jinja_test.c, jinja_global.c ---- */

typedef struct Named {
        const char *name;
        Builtin *fn; /* NULL: jinja2 has it, this does not */
} Named;

const Named *filter_find(const char *name);
const Named *items_filter_find(const char *name); /* those of several items */
const Named *test_find(const char *name);
Val filter_call(J *j, const char *name, Val v, const Args *a);
bool test_call(J *j, const char *name, Val v, const Args *a);
bool global_find(J *j, const char *name, Val *out);

/* ---- jinja_eval.c, jinja_walk.c, jinja_call.c ---- */

struct Loop {
        Iter *it;
        Val of, current, before, after;
        int64_t index0, length; /* length -1: not known */
        int depth0;
        Val changed;
        const Node *node; /* recursive */
        Act *act;
};

typedef enum { GO_ON, BREAK, CONTINUE } Leave; /* of a loop's body */

Val eval(J *j, const Node *n);
Val eval_call(J *j, const Node *n, Val caller); /* caller: V_MISSING without */
Val eval_block_filter(J *j, const Node *n, Val text);
void assign(J *j, const Node *target, Val v);
void assign_set(J *j, const Node *n); /* N_SET */
void enter_scope(J *j, const Loads *l);

void jinja_walk(J *j, const Node *root);
Leave walk_all(J *j, const Nodes *l);
Leave walk_loop(J *j, const Node *n, Val items, int depth0);
Val walk_recursive(J *j, const Node *n, Act *up, Val items, int depth0);
Val loop_attr(J *j, Loop *l, const char *name, bool *found);

Val call_value(J *j, Val f, const Args *a);
Val call_macro(J *j, const Func *f, const Args *a);

#endif
