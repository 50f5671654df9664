/* test_grammar.c: grammars and JSON schemas: texts that they take and do not, what is refused, and
 * masks against every token tried. */
#include <stdlib.h>
#include "../runtime/grammar/grammar.h"
#include "test.h"

static bool takes(const Grammar *g, const char *text)
{
        Matcher *m;
        Err e;
        CHECK_MSG(!matcher_new(&m, g, NULL, &e), "%s", e.msg);
        bool in = matcher_bytes(m, text, strlen(text)) && matcher_complete(m);
        matcher_free(m);
        return in;
}

typedef int Read(Grammar **, const char *, size_t, const char *, Err *);

/* yes and no: texts, each ended by \1 */
static void check(Read *read, const char *source, const char *yes, const char *no)
{
        Grammar *g;
        Err e = { 0, "" };
        CHECK_MSG(!read(&g, source, strlen(source), "file", &e), "%s: %s", source, e.msg);
        for (int k = 0; k < 2; k++)
                for (const char *p = k ? no : yes; *p; p += strcspn(p, "\1") + 1) {
                        char text[400];
                        snprintf(text, sizeof text, "%.*s", (int)strcspn(p, "\1"), p);
                        CHECK_MSG(takes(g, text) == !k, "%s %s %s", source,
                                  k ? "takes" : "does not take", text);
                }
        grammar_free(g);
}

static void refuse(Read *read, const char *source, const char *words)
{
        Grammar *g = NULL;
        Err e = { 0, "" };
        int code = read(&g, source, strlen(source), "file", &e);
        CHECK_MSG(code == TGC_BAD_FILE && strstr(e.msg, words), "%s: %d, '%s' without '%s'", source,
                  code, e.msg, words);
}

TEST (gbnf) {
        check(grammar_gbnf, "root ::= \"a\" b* # x\nb ::= [b-d] | \"\\u00e9\"",
              "a\1ab\1ab\u00e9d\1", "\1b\1aa\1abe\1");
        check(grammar_gbnf, "root ::= (\"x\" | \"y\"\n | \"z\"){2,3}", "xy\1zzz\1", "x\1xyzx\1");
        check(grammar_gbnf, "root ::= [^a\\n]+ .?", "bc\1\U0001f600\1ba\1", "a\1\n\1");
        check(grammar_gbnf, "root ::= \"(\" root \")\" | \"\"", "\1()\1((()))\1", "(\1(()\1");
        check(grammar_gbnf, "root ::= (\"a\"?)* \"b\"{0} \"c\"{2,}", "cc\1aaaccc\1", "c\1bcc\1");
}

TEST (gbnf_errors) {
        refuse(grammar_gbnf, "root ::= \"a\n", "file:1:10: this string");
        refuse(grammar_gbnf, "root ::= x\n", "file:1:10: rule x is not defined");
        refuse(grammar_gbnf, "x ::= \"a\"", "rule root is not defined");
        refuse(grammar_gbnf, "root ::= \"a\"\nroot ::= \"b\"",
               "file:2:1: rule root is defined twice");
        refuse(grammar_gbnf, "root ::= root \"a\" | \"b\"", "left recursion: rule root");
        refuse(grammar_gbnf, "root ::= x\nx ::= \"\"? root \"a\" | \"b\"", "left recursion");
        refuse(grammar_gbnf, "root ::= \"a\" root", "never ends");
        refuse(grammar_gbnf, "root ::= [z-a]", "file:1:11: this range");
        refuse(grammar_gbnf, "root ::= \"\\q\"", "file:1:11: there is no escape");
        refuse(grammar_gbnf, "root ::= <[5]>", "tokens in grammars");
        refuse(grammar_gbnf, "root ::= \"a\"{99999}", "at most 65536");
        refuse(grammar_gbnf, "root ::= (\"a\"", "( without )");
        char deep[2000] = "root ::= ";
        memset(deep + 9, '(', 500);
        refuse(grammar_gbnf, deep, "parentheses nest deeper");
        refuse(grammar_gbnf,
               "root ::= ((((([a-z]{60000}){60000}){60000}){60000}){60000}){60000} "
               "[b-c]{65000}|x\nx ::= \"a\"{65536} \"b\"{65536} \"c\"{65536} \"d\"{65536} "
               "\"e\"{65536} \"a\"{65536} \"b\"{65536} \"c\"{65536} \"d\"{65536} \"e\"{65536} "
               "\"a\"{65536} \"b\"{65536} \"a\"{65536} \"b\"{65536} \"c\"{65536} \"d\"{65536} "
               "\"e\"{65536} \"a\"{65536} \"b\"{65536} \"a\"{65536} \"b\"{65536} \"c\"{65536} "
               "\"d\"{65536} \"e\"{65536} \"a\"{65536} \"b\"{65536} \"a\"{65536} \"b\"{65536} "
               "\"c\"{65536} \"d\"{65536} \"e\"{65536} \"a\"{65536} \"b\"{65536}",
               "too large");
}

TEST (schemas) {
        check(grammar_schema, "{}", "1\1{\"a\": [true, null]}\1\"x\"\1-2.5e3\1",
              "01\1{a:1}\1\"\n\"\1");
        check(grammar_schema, "{\"type\":\"integer\",\"minimum\":-5,\"maximum\":120}",
              "-5\1"
              "0\1"
              "120\1"
              "99\1-1\1",
              "-6\1"
              "121\1"
              "1.5\1");
        check(grammar_schema, "{\"type\":\"number\",\"minimum\":0,\"exclusiveMaximum\":10}",
              "0\1"
              "9.99\1"
              "0.5\1",
              "10\1-1\1"
              "10.0\1");
        check(grammar_schema, "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
              "\"ab\"\1\"a\\n\u00e9\"\1", "\"a\"\1\"abcd\"\1");
        check(grammar_schema, "{\"type\":\"string\",\"pattern\":\"^[a-c]+-\\\\d{2}$\"}",
              "\"ab-12\"\1", "\"ab-1\"\1\"xab-12\"\1");
        check(grammar_schema, "{\"type\":\"string\",\"pattern\":\"b|^a\"}", "\"xbx\"\1\"ax\"\1",
              "\"xa\"\1");
        check(grammar_schema, "{\"type\":\"string\",\"format\":\"date\"}", "\"2024-02-29\"\1",
              "\"2023-02-29\"\1\"2024-04-31\"\1");
        check(grammar_schema,
              "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},"
              "\"b\":{\"enum\":[\"x\",null]}},\"required\":[\"b\"],\"additionalProperties\":false}",
              "{\"b\": \"x\"}\1{\"a\":1,\"b\":null}\1{ \"a\": 1, \"b\": null }\1",
              "{\"a\":1}\1{\"b\":\"y\"}\1{\"b\":\"x\",\"c\":1}\1{\"b\":\"x\",}\1");
        check(grammar_schema,
              "{\"type\":\"object\",\"properties\":{\"ab\":false},"
              "\"additionalProperties\":{\"type\":\"null\"}}",
              "{}\1{\"a\":null,\"abc\":null}\1", "{\"ab\":null}\1{\"a\":1}\1");
        check(grammar_schema,
              "{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":1,\"maxItems\":2}",
              "[true]\1[true, false]\1", "[]\1[true,true,true]\1[1]\1");
        check(grammar_schema,
              "{\"prefixItems\":[{\"type\":\"null\"}],\"items\":false,\"type\":\"array\"}",
              "[]\1[null]\1", "[null,null]\1[1]\1");
        check(grammar_schema,
              "{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"object\","
              "\"properties\":{\"n\":{\"$ref\":\"#/$defs/n\"}},\"additionalProperties\":false}}}",
              "{}\1{\"n\":{\"n\":{}}}\1", "{\"n\":1}\1{\"m\":{}}\1");
        check(grammar_schema, "{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}",
              "1\1\"a\"\1", "1.5\1null\1");
        /* in any order, each once; those that are required before the end */
        check(grammar_schema,
              "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},"
              "\"c\":{\"const\":3}},\"required\":[\"a\",\"c\"],\"additionalProperties\":false}",
              "{\"c\":3,\"b\":2,\"a\":1}\1{\"b\":2, \"a\":1, \"c\":3}\1{\"c\":3,\"a\":1}\1",
              "{}\1{\"c\":3}\1{\"a\":1,\"b\":2}\1{\"a\":1,\"c\":3,\"a\":1}\1{\"a\":2,\"c\":3}\1"
              "{\"a\":1,\"c\":3,}\1{,\"a\":1,\"c\":3}\1{\"a\":1\"c\":3}\1");
        check(grammar_schema,
              "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"minProperties\":1,"
              "\"additionalProperties\":{\"type\":\"null\"}}",
              "{\"x\":null,\"a\":1,\"y\":null}\1{\"x\":null}\1{\"a\":1}\1",
              "{}\1{\"a\":null}\1{\"x\":1}\1{\"a\":1,\"x\":null,\"a\":1}\1");
        check(grammar_schema,
              "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{"
              "\"l\":{\"$ref\":\"#/$defs/n\"},"
              "\"r\":{\"$ref\":\"#/$defs/n\"},\"v\":{\"type\":\"null\"}},\"required\":[\"v\"],"
              "\"additionalProperties\":false}},\"$ref\":\"#/$defs/n\"}",
              "{\"r\":{\"v\":null,\"l\":{\"v\":null}},\"v\":null,\"l\":{\"v\":null}}\1",
              "{\"r\":{\"l\":{\"v\":null}},\"v\":null}\1{\"l\":{\"v\":null}}\1");
        /* names of its own behind what is required */
        check(grammar_schema,
              "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},"
              "\"required\":[\"a\"],\"additionalProperties\":{\"type\":\"null\"}}",
              "{\"a\":1,\"x\":null,\"b\":2}\1{\"b\":2,\"a\":1}\1{\"a\":1,\"x\":null}\1",
              "{}\1{\"x\":null,\"a\":1}\1{\"b\":2,\"x\":null,\"a\":1}\1");
        /* through $ref and allOf too */
        check(grammar_schema,
              "{\"definitions\":{\"a\":{\"type\":\"object\",\"properties\":{\"s\":{\"const\":1}}}},"
              "\"allOf\":[{\"$ref\":\"#/definitions/a\"},{\"properties\":{\"t\":{\"const\":2}}}]}",
              "{\"s\":1,\"t\":2}\1{\"t\":2}\1", "{\"s\":1,\"t\":3}\1{\"s\":2}\1");
        /* beside a $ref: to draft 7 nothing counts, then all does */
        check(grammar_schema,
              "{\"$schema\":\"http://json-schema.org/draft-07/schema#\","
              "\"$ref\":\"#/definitions/a\","
              "\"required\":[\"t\"],\"not\":{},\"definitions\":{\"a\":{\"allOf\":["
              "{\"$ref\":\"#/definitions/b\"},{\"$ref\":\"#/definitions/b\",\"const\":1}]},"
              "\"b\":{\"type\":\"object\"}}}",
              "{}\1{\"t\":1}\1", "1\1");
        check(grammar_schema,
              "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\","
              "\"$ref\":\"#/$defs/a\","
              "\"required\":[\"t\"],\"$defs\":{\"a\":{\"type\":\"object\"}}}",
              "{\"t\":1}\1", "{}\1");
        check(grammar_schema, "{\"allOf\":[{\"minimum\":3},{\"maximum\":4}],\"type\":\"integer\"}",
              "3\1"
              "4\1",
              "2\1"
              "5\1");
}

/* More than a set of bits holds come in the schema's order. */
TEST (many_properties) {
        for (int n = 64; n <= 65; n++) {
                char schema[4000] =
                        "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{",
                     there[2000] = "{", back[2000] = "{";
                Grammar *g;
                Matcher *m;
                Err e;
                for (int i = 0; i < n; i++) {
                        sprintf(schema + strlen(schema), "%s\"k%d\":{\"type\":\"null\"}",
                                i ? "," : "", i);
                        sprintf(there + strlen(there), "%s\"k%d\":null", i ? "," : "", i);
                        sprintf(back + strlen(back), "%s\"k%d\":null", i ? "," : "", n - 1 - i);
                }
                strcat(schema, "}}");
                strcat(there, "}");
                strcat(back, "}");
                CHECK_MSG(!grammar_schema(&g, schema, strlen(schema), "s", &e), "%s", e.msg);
                CHECK(!matcher_new(&m, g, NULL, &e));
                CHECK(matcher_bytes(m, there, strlen(there)) && matcher_complete(m));
                matcher_reset(m);
                CHECK(matcher_bytes(m, back, strlen(back)) == (n <= 64));
                matcher_free(m);
                grammar_free(g);
        }
}

TEST (schema_errors) {
        refuse(grammar_schema, "{\"properties\":{\"a\":{\"not\":{}}}}",
               "/properties/a/not: keyword not is not");
        refuse(grammar_schema, "{\"oneOf\":[{},{}]}", "/oneOf: keyword oneOf");
        refuse(grammar_schema, "{\"type\":\"strin\"}", "/type: there is no such type");
        refuse(grammar_schema, "{\"$ref\":\"http://x/y\"}", "only references within");
        refuse(grammar_schema, "{\"$ref\":\"#/a\"}", "points to nothing");
        refuse(grammar_schema,
               "{\"$schema\":\"http://json-schema.org/draft-04/schema#\",\"$ref\":\"#\"}",
               "/$ref: $ref leads back to itself");
        refuse(grammar_schema, "{\"type\":\"string\",\"pattern\":\"(?=a)\"}", "look-around");
        refuse(grammar_schema, "{\"type\":\"number\",\"minimum\":0.5}", "whole numbers");
        refuse(grammar_schema, "false", "no value satisfies");
        refuse(grammar_schema, "{\"enum\":[1],\"type\":\"string\"}", "no value satisfies");
        refuse(grammar_schema, "[", "file:1");
}

/* Masks and matcher_token agree with all tokens tried one by one, along random texts. */
TEST (masks_are_what_may_come) {
        static const char *const source[] = {
                "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},"
                "\"n\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}},"
                "\"required\":[\"name\"]}",
                "{\"type\":\"string\"}",
                "{\"type\":\"string\",\"minLength\":2,\"maxLength\":9}",
                "{\"type\":\"string\",\"pattern\":\"^[^ab]{1,6}l*$\"}",
                "{\"type\":\"object\",\"properties\":{\"aa\":{\"type\":\"null\"}},"
                "\"additionalProperties\":{\"type\":\"string\",\"maxLength\":4}}",
                "{}",
                "{\"type\":\"string\",\"pattern\":\"l{2}[ab]\"}",
                "{\"type\":\"object\",\"properties\":{\"name\":{},\"null\":{},\"al\":{},"
                "\"alpha\":{\"maxLength\":3}}}",
                "{\"enum\":[\"alpha\",\"alps\",[1,{\"b\":2}],null,3,4,5,6,7,8]}",
                "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"},"
                "\"name\":{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}},"
                "\"al\":{\"type\":\"null\"}},"
                "\"required\":[\"al\",\"n\"],\"additionalProperties\":false}",
                "{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"n\":{},\"al\":{}},\"required\":"
                "[\"al\"]},{\"type\":\"object\",\"properties\":{\"alpha\":{\"type\":\"null\"}}}]}"
        };
        static const char *const piece[] = {
                "\"", "{", "}", "[", "]", ":", ",", " ", "\n", "a", "n", "name", "\"name", "\"n\"",
                "\": ", "\",", "\"}", "], ", "1", "2", "12", "-", ".", "e", "tr", "ue", "true",
                "null", "l", "u", "al", "p", "alpha", "\\", "\\u", "00", "\xc3", "\xa9", "\u00e9",
                "\"alps\"", "{}", "[]", "s", "h", "",
                /* whole characters, pieces of them, and bytes that are none */
                "aa", "aaaaaaa", "aa\"", "a\xc3\xa9", "\xc3\xa9\xe5\x8c\x97", "\xe5", "\xe5\x8c",
                "\x97",
                "\xe5\x8c\x97"
                "a",
                "\xf0\x9f", "\x98\x80", "\xf0\x9f\x98\x80",
                "\xf0\x9f\x98\x80"
                "aa",
                "aaaa\xc3", "\x7f", "\x1f",
                "a\x1f"
                "a",
                "\xed\xa0\x80", "\xe0\x80\x80", "\xf4\x90\x80\x80", "\xf4\x8f\xbf\xbf", "aa\\",
                "\xc0\x80", "\x80", "ll",
                "\xed\x9f\xbf"
                "l",
                "\xf1\x80\x80\x80", "aaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaa",
                "llaaaaaaaaaaaaaaaaaa\""
        };
        /* and so many plain ones that the trie has masks of them */
        enum { PIECES = sizeof piece / sizeof *piece, V = PIECES + 4000, MANY = 97 };
        static const char *bytes[V];
        static char many[V][4];
        static size_t n[V];
        uint32_t x = 7;
        const int eos = V - 1;
        Err e;
        TokenTrie *t;
        for (int i = 0; i < V; i++)
                if (i < PIECES || i == eos)
                        bytes[i] = i == eos ? "" : piece[i], n[i] = strlen(bytes[i]);
                else
                        bytes[i] = many[i], n[i] = 3, many[i][0] = "bl"[i % 2],
                        many[i][1] = (char)('a' + i / 2 % 26), many[i][2] = (char)('0' + i / 52);
        CHECK(!token_trie_of(&t, bytes, n, V, &eos, 1, &e));
        for (size_t s = 0; s < sizeof source / sizeof *source; s++) {
                Grammar *g;
                Matcher *m, *one;
                CHECK_MSG(!grammar_schema(&g, source[s], strlen(source[s]), "s", &e), "%s", e.msg);
                CHECK(!matcher_new(&m, g, t, &e) && !matcher_new(&one, g, t, &e));
                for (int run = 0; run < 40; run++) {
                        char text[2000] = "";
                        matcher_reset(m);
                        for (int step = 0; step < 40; step++) {
                                const uint32_t *mask = matcher_mask(m);
                                int may[V], k = 0;
                                CHECK(mask);
                                for (int i = 0; i < V; i++) {
                                        if (i >= PIECES && i < eos && (i + step) % MANY)
                                                continue;
                                        matcher_reset(one);
                                        CHECK(matcher_bytes(one, text, strlen(text)));
                                        bool in = matcher_token(one, i);
                                        CHECK_MSG(in == (mask[i / 32] >> i % 32 & 1),
                                                  "%s: after %s token '%s': %d", source[s], text,
                                                  bytes[i], in);
                                        if (in && i != eos)
                                                may[k++] = i;
                                }
                                if (!k)
                                        break;
                                x = x * 1664525 + 1013904223;
                                int next = may[(x >> 8) % (uint32_t)k];
                                CHECK(matcher_token(m, next));
                                strcat(text, bytes[next]);
                        }
                }
                matcher_free(m), matcher_free(one);
                grammar_free(g);
        }
        token_trie_free(t);
}

TEST_MAIN
