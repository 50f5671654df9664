"""Random templates: expressions of every kind, and statements around them."""
import random

import conversations

NAMES = ["messages", "tools", "x", "y", "n", "s", "d", "l", "nothing", "bos_token"]
STRINGS = ["''", "'a'", "'Ab c'", "\" x \"", "'a,b,,c'", "'é🙂'", "'1'", "'2.5'", "'it\\'s'",
           "'<b>'", "'\\n'", "'role'", "'a'", "'b'"]
FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "list", "join", "join(',')",
           "first", "last", "tojson", "tojson(indent=2)", "string", "int", "float", "abs",
           "round", "round(1)", "sort", "sort(reverse=true)", "unique|list", "reverse|list", "sum",
           "min", "max", "default('q')", "default(0, true)", "replace('a', 'b')", "items|list",
           "map('upper')|list", "map(attribute='a')|list", "select|list", "reject|list",
           "selectattr('a')|list", "rejectattr('a')|list",
           "selectattr('role', 'equalto', 'user')|list", "dictsort", "indent", "indent(2, true)",
           "safe", "e", "batch(2)|list", "wordcount", "center(9)", "truncate(5)", "attr('a')",
           "format(1)", "select('odd')|list", "d(1)"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean",
         "mapping", "sequence", "iterable", "true", "false", "odd", "even", "lower", "upper",
         "divisibleby(2)", "eq(1)", "in [1, 'a']", "sameas none", "callable", "escaped"]
METHODS = ["upper()", "lower()", "strip()", "lstrip()", "rstrip('c')", "split()", "split(',')",
           "split(',', 1)", "rsplit(',', 1)", "splitlines()", "startswith('a')", "endswith('c')",
           "replace('a', 'z')", "find('b')", "count('a')", "title()", "capitalize()", "join(l)",
           "items()", "keys()", "values()", "get('a')", "get('q', 5)", "index('a')", "zfill(4)",
           "isdigit()", "isalpha()", "isupper()", "partition(',')", "swapcase()", "center(7, '-')",
           "copy()", "removeprefix('A')"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or",
          "in", "not in"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, x):
        return self.r.choice(x)

    def atom(self):
        k = self.r.randrange(10)
        if k < 3:
            return self.pick(NAMES)
        if k < 5:
            return self.pick(STRINGS)
        if k < 8:
            return self.pick(["0", "1", "2", "-1", "3", "7", "1.5", "2.0", "0.1", "10", "1e20"])
        return self.pick(["true", "false", "none", "[]", "{}", "()", "[1, 2, 3]", "['b', 'a', 'C']",
                          "{'a': 1, 'b': [2]}", "(1, 'a')", "range(4)", "namespace(a=1)"])

    def expr(self, depth):
        e = self.expr
        if depth <= 0:
            return self.atom()
        k = self.r.randrange(14)
        d = depth - 1
        if k < 2:
            return self.atom()
        if k == 2:
            op = self.pick(BINARY)
            if op == "**":
                return "(%s) ** %s" % (e(d), self.pick(["0", "1", "2", "3", "-1", "0.5"]))
            return "%s %s %s" % (e(d), op, e(d))
        if k == 3:
            return "(%s)" % e(d)
        if k == 4:
            return "%s if %s else %s" % (e(d), e(d), e(d))
        if k == 5:
            return "(%s) | %s" % (e(d), self.pick(FILTERS))
        if k == 6:
            return "(%s) is %s%s" % (e(d), self.pick(["", "not "]), self.pick(TESTS))
        if k == 7:
            return "(%s).%s" % (e(d), self.pick(METHODS))
        if k == 8:
            return "(%s)[%s]" % (e(d), e(d))
        if k == 9:
            part = lambda: self.pick(["", "", "0", "1", "-1", "2", "-2", "none", "5"])  # noqa: E731
            # of a constant jinja2 folds a slice that fails to nothing: y is none
            return "((%s) if y else 1)[%s:%s%s]" % (e(d), part(), part(),
                                      self.pick(["", ":", ":1", ":-1", ":2", ":-2"]))
        if k == 10:
            return "(%s).%s" % (e(d), self.pick(["a", "b", "role", "content", "x", "0", "1"]))
        if k == 11:
            return "[%s]" % ", ".join(e(d) for _ in range(self.r.randrange(4)))
        if k == 12:
            return "{%s}" % ", ".join("%s: %s" % (self.atom(), e(d))
                                      for _ in range(self.r.randrange(3)))
        return self.pick(["not %s", "-(%s)", "+(%s)", "- %s | abs"]) % e(d)

    def body(self, depth, loop):
        return "".join(self.statement(depth, loop) for _ in range(self.r.randrange(1, 4)))

    def statement(self, depth, loop):
        k = self.r.randrange(16)
        o = self.pick(["{%", "{%-", "{%", "{%+"])
        c = self.pick(["%}", "-%}", "%}", "+%}"])
        tag = lambda s: "%s %s %s" % (o, s, c)  # noqa: E731
        if k < 4 or depth <= 0:
            return "%s %s %s" % (self.pick(["{{", "{{-"]), self.expr(2), self.pick(["}}", "-}}"]))
        if k < 6:
            return self.pick([" text ", "\n", "  \n  ", "a\tb", "\n\n", "{# note #}",
                              "{#- n -#}\n"])
        d = depth - 1
        if k == 6:
            return tag("if " + self.expr(2)) + self.body(d, loop) + self.pick(
                ["", tag("else") + self.body(d, loop),
                 tag("elif " + self.expr(1)) + self.body(d, loop)]) + tag("endif")
        if k < 9:
            target = self.pick(["x", "y", "m", "x, y", "n"])
            what = self.pick(["messages", "[1, 2, 3]", "l", "d.items()", "'abc'",
                              "[(1, 2), [3, 4]]", self.expr(1), "range(3)", "nothing"])
            test = self.pick(["", "", " if " + self.expr(1), " if x"])
            leave = self.pick(["", "", "", tag("break"), "{% if x %}{% continue %}{% endif %}"])
            other = self.pick(["", "", tag("else") + "none"])
            return tag("for %s in %s%s" % (target, what, test)) + self.pick(
                ["", "{{ loop.index }}", "{{ loop.last }}{{ loop.first }}", "{{ loop.length }}",
                 "{{ loop.previtem }}{{ loop.nextitem }}", "{{ loop.revindex0 }}",
                 "{{ loop.cycle('o', 'e') }}", "{{ loop.changed(x) }}"]) + self.body(d, True) + \
                leave + other + tag("endfor")
        if k == 9:
            return tag("set %s = %s" % (self.pick(["x", "y", "n", "s", "l", "x, y"]), self.expr(2)))
        if k == 10:
            return tag("set " + self.pick(["s", "x"]) + self.pick(["", " | upper", " | trim"])) + \
                self.body(d, loop) + tag("endset")
        if k == 11:
            return "{% set ns = namespace(a=0) %}{% for q in [1, 2] %}{% set ns.a = ns.a + q %}" + \
                self.body(d, True) + "{% endfor %}{{ ns.a }}"
        if k == 12:
            name = self.pick(["f", "g"])
            return "{%% macro %s(%s) %%}" % (name, self.pick(["a", "a, b=1", "", "a=x, b=a"])) + \
                self.body(d, False) + self.pick(["", "{{ a }}", "{{ varargs }}", "{{ kwargs }}",
                                                 "{{ caller() }}"]) + \
                "{%% endmacro %%}{{ %s(%s) }}" % (name, self.pick(["", "1", "1, 2", "b=2", "x"]))
        if k == 13:
            return tag("filter " + self.pick(["upper", "trim", "replace('a', 'b')", "indent"])) + \
                self.body(d, loop) + tag("endfilter")
        if k == 14:
            return "{%% with x = %s, q = 2 %%}" % self.expr(1) + self.body(d,
                loop) + "{% endwith %}"
        return tag("generation") + self.body(d, False) + tag("endgeneration")


VARS = {"x": 3, "y": "yes", "n": 2.5, "s": "Some text, a b", "d": {"a": 1, "b": "two", "c": None},
        "l": ["p", "a", "q"]}


def cases(seed, n):
    names = sorted(conversations.CONVERSATIONS)
    for i in range(n):
        m = Maker("%d/%d" % (seed, i))
        text = "{{ %s }}" % m.expr(4) if i % 2 else m.body(3, False)
        yield {"name": "random %d/%d" % (seed, i), "template": text, "vars": VARS,
               "conversation": conversations.CONVERSATIONS[names[i % len(names)]],
               "tokens": conversations.TOKENS, "prompt": bool(i % 3)}
