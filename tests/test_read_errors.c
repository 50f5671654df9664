/* test_read_errors.c: what is wrong with a model in Lua or JSON is said at its place, and damage is survived.
 *
 * tests/read/NAME.lua fail where a line says `-- error: TEXT`: the message must be
 * NAME.lua:LINE: error: ... TEXT. */
#include <dirent.h>
#include "read_models.h"

/* The line that says `-- error: TEXT`; TEXT is copied out. */
static int marked_line(const char *text, char *want, size_t n)
{
        int line = 1;
        const char *mark = strstr(text, "-- error: ");
        CHECK(mark);
        for (const char *s = text; s < mark; s++)
                line += *s == '\n';
        snprintf(want, n, "%.*s", (int)strcspn(mark + 10, "\n"), mark + 10);
        return line;
}

TEST(lua_errors_are_on_their_lines)
{
        DIR *dir = opendir("tests/read");
        int n = 0, bad = 0;
        CHECK(dir);
        for (struct dirent *d; (d = readdir(dir));) {
                char path[300], want[300], place[320], msg[2048] = "";
                size_t k = strlen(d->d_name);
                if (k < 4 || strcmp(d->d_name + k - 4, ".lua") || !strncmp(d->d_name, "ok_", 3))
                        continue;
                snprintf(path, sizeof path, "tests/read/%s", d->d_name);
                char *text = slurp(path);
                int line = marked_line(text, want, sizeof want);
                snprintf(place, sizeof place, "%s:%d: error: ", path, line);
                Model *m = try_lua(path, NULL, msg, NULL);
                free(text);
                n++;
                if (m || strncmp(msg, place, strlen(place)) || !strstr(msg, want)) {
                        printf("  wanted %s... %s\n  got %s\n", place, want, m ? "no error" : msg);
                        model_free(m);
                        bad++;
                }
        }
        closedir(dir);
        CHECK(n > 20 && !bad);
}

TEST(a_model_needs_ids)
{
        char msg[2048] = "";
        CHECK(!try_lua("tests/read/ok_no_ids.lua", NULL, msg, NULL));
        CHECK_MSG(strstr(msg, "ok_no_ids.lua") && strstr(msg, "no input `ids: i32[B,T]`"), "%s", msg);
}

TEST(bytecode_is_refused)
{
        char path[300], msg[2048] = "";
        const char *base = getenv("TMPDIR");
        snprintf(path, sizeof path, "%s/tgc-read-%ld.lua", base ? base : P_tmpdir, (long)getpid());
        FILE *f = fopen(path, "wb");
        CHECK(f && fwrite("\x1bLua\x54\0\x19\x93\r\n\x1a\n", 1, 12, f) == 12 && !fclose(f));
        CHECK(!try_lua(path, NULL, msg, NULL) && strstr(msg, "attempt to load a binary chunk"));
        unlink(path);
}

TEST(definitions)
{
        static const struct { Defines d; const char *want; } bad[] = {
                { { { "n_layr=3" } }, "no parameter 'n_layr'; did you mean 'n_layer'?" },
                { { { "qqq=3" } }, "no parameter 'qqq'" },
                { { { "n_layer=three" } }, "'n_layer' is a number, not 'three'" },
                { { { "n_layer=2.5" } }, "'n_layer' is a whole number, not '2.5'" },
                { { { "tied=maybe" } }, "'tied' is true or false, not 'maybe'" },
                { { { "eps=nan" } }, "'eps' is a number" },
                { { { "n_layer" } }, "-D wants KEY=VALUE" },
        };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                char msg[2048] = "";
                int code = 0;
                CHECK(!try_lua("models/gpt.lua", &bad[i].d, msg, &code));
                CHECK_MSG(strstr(msg, bad[i].want) && code == 2, "%s (code %d)", msg, code);
        }
        static const Defines good = { { "n_layer=2", "tied=false", "eps=1e-6", "act=gelu" } };
        Model *m = lua("models/gpt.lua", &good);
        CHECK(graph_find(m->graph, "blk1.mlp.sum") && !graph_find(m->graph, "blk2.mlp.sum"));
        CHECK(graph_find(m->graph, "logits.weight"));
        model_free(m);
}

TEST(families_unknown)
{
        ReadOptions o = options(NULL);
        Diag d;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                model_free(read_lua_family(NULL, "{\"model_type\": \"bert\"}", &o));
                diag_end(&d);
                CHECK(0);
        }
        CHECK_MSG(strstr(d.msg, "no model is known for 'bert'; known are falcon, gemma2, gpt2, ")
                  && strstr(d.msg, "mixtral"), "%s", d.msg);
}

#define IDS "{\"name\":\"ids\",\"op\":\"input\",\"type\":\"i32[B,T]\"},"
#define W "{\"name\":\"w\",\"op\":\"param\",\"type\":\"f32[8,4]\"},"
#define GRAPH(nodes) "{\"tgc_graph\":1,\"nodes\":[\n" IDS "\n" W "\n" nodes "],\n\"outputs\":{\"logits\":\"y\"}}"
#define Y "{\"name\":\"y\",\"op\":\"gather\",\"in\":[\"w\",\"ids\"]}"

TEST(json_errors)
{
        static const struct { const char *json, *want; } bad[] = {
                { "[]", "must be an object" },
                { "{\"nodes\":[]}", "\"tgc_graph\" must be 1" },
                { "{\"tgc_graph\":1,\"nodez\":[]}", "no key 'nodez'; did you mean 'nodes'?" },
                { "{\"tgc_graph\":1,\"nodes\":[]}", "no \"outputs\"" },
                { "{\"tgc_graph\":1,", ".json" },
                { GRAPH("{\"name\":\"y\",\"op\":\"gathr\",\"in\":[\"w\",\"ids\"]}"),
                  ":4: error: %y: unknown op 'gathr'" },
                { GRAPH("{\"name\":\"y\",\"op\":\"adamw\",\"in\":[\"w\"]}"),
                  ":4: error: %y: 'adamw' is made by the compiler" },
                { GRAPH("{\"name\":\"y\",\"op\":\"gather\",\"in\":[\"w\",\"idz\"]}"),
                  ":4: error: %y reads 'idz', and no node" },
                { GRAPH("{\"name\":\"y\",\"op\":\"neg\",\"in\":[\"y\"]}"),
                  ":4: error: %y reads %y, which does not stand before" },
                { GRAPH("{\"name\":\"y\",\"op\":\"neg\",\"in\":[\"z\"]},\n"
                        "{\"name\":\"z\",\"op\":\"neg\",\"in\":[\"y\"]}"),
                  ":4: error: %y reads %z, which does not stand before it: a cycle" },
                { GRAPH(Y ",\n" Y), ":5: error: %y is defined twice" },
                { GRAPH("{\"name\":\"y\",\"op\":\"gather\",\"in\":[\"w\"]}"),
                  ":4: error: gather: 1 inputs given, 2 needed" },
                { GRAPH("{\"name\":\"y\",\"op\":\"matmul\",\"in\":[\"w\",\"w\"]}"),
                  ":4: error: matmul: inner dimensions differ, 4 in %w" },
                { GRAPH("{\"name\":\"y\",\"op\":\"neg\",\"in\":[\"w\"],\"attr\":{\"q\":1}}"),
                  ":4: error: neg has no attribute 'q'" },
                { GRAPH("{\"name\":\"y\",\"op\":\"matmul\",\"in\":[\"w\",\"w\"],\"attr\":{\"tb\":0.5}}"),
                  ":4: error: attribute 'tb' must be a whole number" },
                { GRAPH("{\"name\":\"y\",\"op\":\"neg\",\"in\":[\"w\"],\"type\":\"f32[8]\"}"),
                  ":4: error: %y: neg gives f32[8,4], the file says f32[8]" },
                { GRAPH("{\"name\":\"y\",\"op\":\"neg\",\"in\":[\"w\"],\"type\":\"f32[8\"}"),
                  ":4: error: 'f32[8' is no type" },
                { GRAPH("{\"name\":\"y\",\"op\":\"param\",\"type\":\"f32[1099511627776,1099511627776]\"}"),
                  ":4: error: param: the shape [1099511627776,1099511627776] is out of range" },
                { GRAPH("{\"name\":\"y\",\"op\":\"param\",\"type\":\"f32[99999999999999999999]\"}"), "is no type" },
                { GRAPH("{\"name\":\"y\",\"op\":\"param\",\"type\":\"f32[B*B*B*B*B]\"}"), "is no type" },
                { GRAPH("{\"name\":\"y\",\"op\":\"param\",\"type\":\"f32[B]\"}"),
                  ":4: error: param: parameters are f32" },
                { GRAPH("{\"name\":\"y\",\"op\":\"param\"}"), ":4: error: %y: param needs a \"type\"" },
                { GRAPH("{\"name\":\"y\",\"op\":\"const\",\"type\":\"f32[3]\",\"attr\":{\"data\":[1,2]}}"),
                  ":4: error: const: 2 numbers do not fill f32[3]" },
                { GRAPH("{\"name\":\"y y\",\"op\":\"neg\",\"in\":[\"w\"]}"),
                  ":4: error: 'y y' cannot be a node's name" },
                { GRAPH("{\"name\":\"y\",\"op\":\"neg\",\"in\":[\"w\"],\"loc\":\"nowhere\"}"),
                  ":4: error: \"loc\" must be FILE:LINE" },
                { GRAPH("{\"name\":\"x\",\"op\":\"neg\",\"in\":[\"w\"]}"),
                  "output 'logits' must be the name of a node" },
                { GRAPH("{\"name\":\"y\",\"op\":\"transpose\",\"in\":[\"w\"],\"attr\":{\"perm\":[1,0,5]}}"),
                  "more axes are named" },
                { GRAPH("{\"name\":\"y\",\"op\":\"dropout\",\"in\":[\"w\"],\"attr\":{\"p\":1}}"),
                  "the probability is 1" },
                { GRAPH("{\"name\":\"q\",\"op\":\"param\",\"type\":\"f32[2,3,1,4]\"},\n"
                        "{\"name\":\"d\",\"op\":\"input\",\"type\":\"i32[2,3,2]\"},\n"
                        "{\"name\":\"y\",\"op\":\"attention\",\"in\":[\"q\",\"q\",\"q\",\"d\"],"
                        "\"attr\":{\"documents\":1}}"),
                  ":6: error: attention: documents are the input `documents`" },
                { "{\"tgc_graph\":1,\"documents\":-1,\"nodes\":[]}", "\"documents\" must be a token's id" },
                { GRAPH("{\"name\":\"y\",\"op\":\"bucket\",\"in\":[\"ids\"],\"attr\":{\"k\":1e300}}"),
                  "must be a whole number" },
        };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                char msg[2048] = "";
                Model *m = from_json(bad[i].json, msg);
                CHECK_MSG(!m, "no error from %s", bad[i].json);
                CHECK_MSG(strstr(msg, bad[i].want) || !strcmp(bad[i].want, ".json"), "wanted %s\n    got %s",
                          bad[i].want, msg);
        }
        char msg[2048] = "";
        Model *m = from_json(GRAPH(Y), msg);
        CHECK_MSG(m, "%s", msg);
        CHECK(NODE(m->graph, graph_find(m->graph, "y"))->loc.line == 4);
        model_free(m);
}

/* Nodes may come from a Lua file; what is wrong with the whole is of the JSON file. */
TEST(json_without_outputs)
{
        char msg[2048] = "";
        CHECK(!from_json("{\"tgc_graph\":1,\"nodes\":[\n"
                         "{\"name\":\"ids\",\"op\":\"input\",\"type\":\"i32[B,T]\",\"loc\":\"gpt.lua:1\"}],\"outputs\":{}}", msg));
        CHECK_MSG(!strncmp(msg, ": error: the model returns neither", 34), "%s", msg);          /* after ".json" */
}

/* Every prefix and many single-byte changes of a real file: an error or a model, never a crash. */
TEST(json_damaged)
{
        static const Defines tiny = { { "vocab=65", "ctx=32", "n_layer=2", "n_embd=32", "n_head=4", "n_expert=4" } };
        Model *m = lua("models/naive_moe.lua", &tiny);
        Text t = { 0 };
        char msg[2048];
        unsigned x = 1;
        write_json(m, &t);
        model_free(m);
        for (int i = 0; i < 300; i++) {
                x = x * 1664525u + 1013904223u;
                size_t at = (x >> 8) % t.n;
                char old = t.s[at];
                t.s[at] = i % 3 ? "{}[]\",:0917BTx"[x % 14] : 0;
                m = from_json(t.s, msg);
                model_free(m);
                t.s[at] = old;
        }
        text_free(&t);
}

/* The same for Lua: changed bytes in the text of a model. */
TEST(lua_damaged)
{
        static const Defines tiny = { { "vocab=65", "ctx=32", "n_layer=2", "n_embd=32", "variant=custom" } };
        char path[300], msg[2048], *text = slurp("models/naive_gpt.lua");
        const char *base = getenv("TMPDIR");
        size_t n = strlen(text);
        unsigned x = 7;
        snprintf(path, sizeof path, "%s/tgc-read-%ld.lua", base ? base : P_tmpdir, (long)getpid());
        for (int i = 0; i < 200; i++) {
                x = x * 1664525u + 1013904223u;
                size_t at = (x >> 8) % n;
                char old = text[at];
                text[at] = "{}[]\",:0917-."[x % 13];
                FILE *f = fopen(path, "w");
                CHECK(f && fputs(text, f) >= 0 && !fclose(f));
                model_free(try_lua(path, &tiny, msg, NULL));
                text[at] = old;
        }
        unlink(path);
        free(text);
}

TEST_MAIN
