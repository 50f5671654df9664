/* test_read_errors.c: what is wrong with a model in Lua or JSON is said at its place, and damage is
 * survived.
 *
 * tests/read/NAME.lua fail where a line says `-- error: TEXT`: the message must be
 * NAME.lua:LINE: error: ... TEXT. */
#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
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

TEST (lua_errors_are_on_their_lines) {
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

TEST (a_model_needs_ids) {
        char msg[2048] = "";
        CHECK(!try_lua("tests/read/ok_no_ids.lua", NULL, msg, NULL));
        CHECK_MSG(strstr(msg, "ok_no_ids.lua") && strstr(msg, "no input `ids: i32[B,T]`"), "%s",
                  msg);
}

TEST (bytecode_is_refused) {
        char path[300], msg[2048] = "";
        const char *base = getenv("TMPDIR");
        snprintf(path, sizeof path, "%s/tgc-read-%ld.lua", base ? base : P_tmpdir, (long)getpid());
        FILE *f = fopen(path, "wb");
        CHECK(f && fwrite("\x1bLua\x54\0\x19\x93\r\n\x1a\n", 1, 12, f) == 12 && !fclose(f));
        CHECK(!try_lua(path, NULL, msg, NULL) && strstr(msg, "attempt to load a binary chunk"));
        unlink(path);
}

/* text[n] as a file that is read with a limit of `seconds`; what the reader says goes to msg, CPU
 * seconds are returned. */
static double read_for(double seconds, const char *text, size_t n, char msg[2048])
{
        char path[300];
        const char *base = getenv("TMPDIR");
        ReadOptions o = { .models_dir = "models", .seconds = seconds };
        Diag d;
        snprintf(path, sizeof path, "%s/tgc-read-%ld.lua", base ? base : P_tmpdir, (long)getpid());
        FILE *f = fopen(path, "w");
        CHECK(f && fwrite(text, 1, n, f) == n && !fclose(f));
        clock_t start = clock();
        d.source = NULL;
        *msg = 0;
        if (DIAG_CATCH(&d)) {
                model_free(read_lua(path, &o));
                diag_end(&d);
        } else {
                snprintf(msg, 2048, "%s", d.msg);
        }
        unlink(path);
        return (double)(clock() - start) / CLOCKS_PER_SEC;
}

/* Loops whose time is spent inside C functions and single instructions. */
TEST (time_is_bounded) {
        static const char *const code[] = {
                "while true do local s = ('x'):rep(2^20 - 1) end",
                "local s = ('x'):rep(2^20 - 1) while true do s:upper() end",
                "local s = ('x'):rep(2^20 - 1) while true do s:reverse() s:byte(1, 1e5) s:sub(2) "
                "end",
                "local x = ('x'):rep(2^20 - 9) local s, t = x .. 'a', x .. 'b' while true do x = "
                "s < t end",
                "local x = ('x'):rep(2^20 - 9) local s, t = x .. 'a', x .. 'b' while true do x = "
                "s == t end",
                "local s = ('0'):rep(2^20 - 1) .. '1' local n = 0 while true do n = n + s end",
                "local s, t = ('x'):rep(2^20 - 9), {} while true do t[s .. 'a'] = 1 end",
                "local s = ('x'):rep(2^19) while true do string.format('%s%q', s, s) end",
                "local t = {} for i = 1, 3e6 do t[i] = -i end table.sort(t)",
                "local t = {} for i = 1, 200 do t[i] = i end while true do table.sort(t, "
                "function() return false end) end",
                "local t = {} for i = 1, 1e5 do t[i] = '' end while true do table.concat(t) end",
                "local t = {} for k = 0, 52 do t[1 << k] = k end while true do table.insert(t, 1, "
                "0) end",
                "local t = {} for k = 0, 52 do t[1 << k] = k end while true do table.remove(t, 1) "
                "end",
                "local t = {} for i = 1, 1e5 do t[i] = i end while true do table.insert(t, 1, "
                "table.remove(t, 1)) end",
                "local t = {} for i = 1, 1e5 do t[i] = i end while true do local n = select('#', "
                "table.unpack(t)) end",
                "local t = {} for i = 1, 1e5 do t[i] = i end while true do for k in pairs(t) do "
                "break end end",
                "local t = {} for i = 1, 1e5 do t[i] = {} end while true do local x = {} end",
                "local x = param('w', { 8, 4 }):gather(input('ids', { B, T })) while true do x:as "
                "'q' end",
                "local x = param('w', { 8, 4 }) while true do local s = x.shape end",
                "local function f() return f() end f()",
        };
        char msg[2048];
        for (size_t i = 0; i < sizeof code / sizeof *code; i++) {
                double took = read_for(0.05, code[i], strlen(code[i]), msg);
                CHECK_MSG(
                        strstr(msg,
                               ":1: error: the model runs for too long (more than 0.05 seconds") ||
                                strstr(msg, "the model needs more than 256 MiB"),
                        "%s: %s", code[i], msg);
                CHECK_MSG(took < 1.5, "%s took %.2f s", code[i], took);
        }
}

/* Lua's parser takes time with the square of such chains. */
TEST (parsing_is_bounded) {
        static const struct {
                const char *begin, *link, *end;
        } chain[] = { { "local a local x = a", " or a", "\n" },
                      { "local a if a then ", "elseif a then a = 1 ", "end\n" } };
        enum { BYTES = 3 << 20 };
        char msg[2048], *text = malloc(BYTES + 1);
        CHECK(text);
        for (int i = 0; i < 2; i++) {
                size_t n = (size_t)sprintf(text, "%s", chain[i].begin), k = strlen(chain[i].link);
                for (; n + k + 8 < BYTES; n += k)
                        memcpy(text + n, chain[i].link, k);
                n += (size_t)sprintf(text + n, "%s", chain[i].end);
                double took = read_for(0.05, text, n, msg);
                CHECK_MSG(strstr(msg, "error: the model runs for too long") && took < 1.5,
                          "%.2f s: %s", took, msg);
        }
        free(text);
}

/* What the graph takes counts too. */
TEST (graph_memory_is_bounded) {
        static const char *const code[] = {
                "for i = 1, 1e9 do input('i' .. i, { B, T }) end",
                "local t = {} for i = 1, 1e6 do t[i] = i end for i = 1, 16 do const('c' .. i, t) "
                "end local u = {} for i = 1, 8e6 do u[i] = i end",
                "local s, t = ('x'):rep(2^19), {} for i = 1, 2^18 do t[i] = s end table.concat(t)",
        };
        char msg[2048];
        for (size_t i = 0; i < sizeof code / sizeof *code; i++) {
                read_for(-1, code[i], strlen(code[i]), msg);
                CHECK_MSG(strstr(msg, ":1: error: the model needs more than 256 MiB"), "%s: %s",
                          code[i], msg);
        }
}

/* A limit of its own, and none. */
TEST (time_is_an_option) {
        static const char code[] = "for i = 1, 4e6 do local x = i * i end error 'done'";
        char msg[2048];
        read_for(0.001, code, strlen(code), msg);
        CHECK_MSG(strstr(msg, "more than 0.001 seconds; --lua-timeout"), "%s", msg);
        read_for(-1, code, strlen(code), msg);
        CHECK_MSG(strstr(msg, "done"), "%s", msg);
        read_for(0, code, strlen(code), msg);
        CHECK_MSG(strstr(msg, "done"), "%s", msg);
}

/* The table functions that are written anew do what Lua's do; equal elements keep their order. */
TEST (tables_are_as_in_lua) {
        static const char code[] =
                "local function same(t, ...) assert(table.concat(t, ' ') == table.concat({...}, ' "
                "'), table.concat(t, ' ')) end\n"
                "local t = { 5, 2, 8, 1, 9, 3 } table.sort(t) same(t, 1, 2, 3, 5, 8, 9)\n"
                "table.sort(t, function(a, b) return a > b end) same(t, 9, 8, 5, 3, 2, 1)\n"
                "t = {} table.sort(t) same(t) t = { 'b' } table.sort(t) same(t, 'b')\n"
                "t = {} for i = 1, 1000 do t[i] = i * 7919 % 1009 * 1000 + i end\n"
                "table.sort(t, function(a, b) return a // 100000 < b // 100000 end)\n"
                "for i = 2, 1000 do local a, b = t[i - 1], t[i] assert(a // 100000 <= b // "
                "100000)\n"
                "        if a // 100000 == b // 100000 then assert(a % 1000 < b % 1000 or b % "
                "1000 == 0) end end\n"
                "t = { 1, 2, 3 } table.insert(t, 4) table.insert(t, 1, 0) table.insert(t, 6, 5) "
                "same(t, 0, 1, 2, 3, 4, 5)\n"
                "assert(table.remove(t) == 5 and table.remove(t, 1) == 0 and table.remove(t, 2) "
                "== 2) same(t, 1, 3, 4)\n"
                "assert(table.remove(t, 4) == nil) t = {} assert(table.remove(t) == nil and "
                "table.remove(t, 0) == nil)\n"
                "assert(tostring({}) == 'table' and tostring(load) == 'nil' and tostring(print) "
                "== 'function' and tostring(pairs) == 'function')\n"
                "assert(string.format('%s %d', {}, 3) == 'table 3' and tostring(0.5) == '0.5')\n"
                "error 'done'\n";
        static const char *const bad[][2] = {
                { "table.insert({}, 3, 1)", "insert: the position is out of bounds" },
                { "table.remove({ 1 }, 3)", "remove: the position is out of bounds" },
                { "table.insert(1, 1)", "insert: a table is wanted, here is a number" },
                { "table.sort({ 1, {} })", "attempt to compare" },
                { "local s = ('%p'):format({})", "%p is not known" },
        };
        char msg[2048];
        read_for(0, code, strlen(code), msg);
        CHECK_MSG(strstr(msg, "done"), "%s", msg);
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                read_for(0, bad[i][0], strlen(bad[i][0]), msg);
                CHECK_MSG(strstr(msg, bad[i][1]) && strstr(msg, ":1: error: "), "%s: %s", bad[i][0],
                          msg);
        }
}

/* A module that is a pipe has no writer, a folder no text. */
TEST (modules_are_files) {
        static const char code[] = "local m = require 'other'";
        char dir[300], path[400], other[400], msg[2048] = "";
        const char *base = getenv("TMPDIR");
        snprintf(dir, sizeof dir, "%s/tgc-read-%ld.d", base ? base : P_tmpdir, (long)getpid());
        snprintf(path, sizeof path, "%s/m.lua", dir);
        snprintf(other, sizeof other, "%s/other.lua", dir);
        CHECK(!mkdir(dir, 0700));
        FILE *f = fopen(path, "w");
        CHECK(f && fputs(code, f) >= 0 && !fclose(f));
        for (int i = 0; i < 2; i++) {
                CHECK(!(i ? mkdir(other, 0700) : mkfifo(other, 0600)));
                CHECK(!try_lua(path, NULL, msg, NULL));
                CHECK_MSG(strstr(msg, i ? "other.lua: a folder, not a regular file"
                                        : "other.lua: a device or pipe, not a regular file"),
                          "%s", msg);
                CHECK(!(i ? rmdir(other) : unlink(other)));
        }
        unlink(path);
        rmdir(dir);
}

TEST (definitions) {
        static const struct {
                Defines d;
                const char *want;
        } bad[] = {
                { { { "n_layr=3" } }, "no parameter 'n_layr'; did you mean 'n_layer'?" },
                { { { "qqq=3" } }, "no parameter 'qqq'" },
                { { { "n_layer=three" } }, "'n_layer' is a number, not 'three'" },
                { { { "n_layer=2.5" } }, "'n_layer' is a whole number, not '2.5'" },
                { { { "tied=maybe" } }, "'tied' is true or false, not 'maybe'" },
                { { { "eps=nan" } }, "'eps' is a number" },
                { { { "n_layer" } }, "-D needs KEY=VALUE" },
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

TEST (families_unknown) {
        ReadOptions o = options(NULL);
        Diag d;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                model_free(read_lua_family(NULL, "{\"model_type\": \"t5\"}", &o));
                diag_end(&d);
                CHECK(0);
        }
        CHECK_MSG(strstr(d.msg, "no model is known for 't5'; known are b") &&
                          strstr(d.msg, "mixtral"),
                  "%s", d.msg);
}

#define IDS "{\"name\":\"ids\",\"op\":\"input\",\"type\":\"i32[B,T]\"},"
#define W "{\"name\":\"w\",\"op\":\"param\",\"type\":\"f32[8,4]\"},"
#define GRAPH(nodes) \
        "{\"tgc_graph\":1,\"nodes\":[\n" IDS "\n" W "\n" nodes "],\n\"outputs\":{\"logits\":\"y\"}}"
#define Y "{\"name\":\"y\",\"op\":\"gather\",\"in\":[\"w\",\"ids\"]}"

TEST (json_errors) {
        static const struct {
                const char *json, *want;
        } bad[] = {
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
                { GRAPH("{\"name\":\"y\",\"op\":\"matmul\",\"in\":[\"w\",\"w\"],"
                        "\"attr\":{\"tb\":0.5}}"),
                  ":4: error: attribute 'tb' must be a whole number" },
                { GRAPH("{\"name\":\"y\",\"op\":\"neg\",\"in\":[\"w\"],\"type\":\"f32[8]\"}"),
                  ":4: error: %y: neg gives f32[8,4], the file says f32[8]" },
                { GRAPH("{\"name\":\"y\",\"op\":\"neg\",\"in\":[\"w\"],\"type\":\"f32[8\"}"),
                  ":4: error: 'f32[8' is not a type" },
                { GRAPH("{\"name\":\"y\",\"op\":\"param\",\"type\":\"f32[1099511627776,"
                        "1099511627776]\"}"),
                  ":4: error: param: the shape [1099511627776,1099511627776] is out of range" },
                { GRAPH("{\"name\":\"y\",\"op\":\"param\",\"type\":\"f32[99999999999999999999]\"}"),
                  "is not a type" },
                { GRAPH("{\"name\":\"y\",\"op\":\"param\",\"type\":\"f32[B*B*B*B*B]\"}"),
                  "is not a type" },
                { GRAPH("{\"name\":\"y\",\"op\":\"param\",\"type\":\"f32[B]\"}"),
                  ":4: error: param: parameters are f32" },
                { GRAPH("{\"name\":\"y\",\"op\":\"param\"}"),
                  ":4: error: %y: param needs a \"type\"" },
                { GRAPH("{\"name\":\"y\",\"op\":\"const\",\"type\":\"f32[3]\","
                        "\"attr\":{\"data\":[1,2]}}"),
                  ":4: error: const: 2 numbers do not fill f32[3]" },
                { GRAPH("{\"name\":\"y y\",\"op\":\"neg\",\"in\":[\"w\"]}"),
                  ":4: error: 'y y' cannot be a node's name" },
                { GRAPH("{\"name\":\"y\",\"op\":\"neg\",\"in\":[\"w\"],\"loc\":\"nowhere\"}"),
                  ":4: error: \"loc\" must be FILE:LINE" },
                { GRAPH("{\"name\":\"x\",\"op\":\"neg\",\"in\":[\"w\"]}"),
                  "output 'logits' must be the name of a node" },
                { GRAPH("{\"name\":\"y\",\"op\":\"transpose\",\"in\":[\"w\"],"
                        "\"attr\":{\"perm\":[1,0,5]}}"),
                  "more axes are named" },
                { GRAPH("{\"name\":\"y\",\"op\":\"dropout\",\"in\":[\"w\"],\"attr\":{\"p\":1}}"),
                  "the probability is 1" },
                { GRAPH("{\"name\":\"q\",\"op\":\"param\",\"type\":\"f32[2,3,1,4]\"},\n"
                        "{\"name\":\"d\",\"op\":\"input\",\"type\":\"i32[2,3,2]\"},\n"
                        "{\"name\":\"y\",\"op\":\"attention\",\"in\":[\"q\",\"q\",\"q\",\"d\"],"
                        "\"attr\":{\"documents\":1}}"),
                  ":6: error: attention: documents are the input `documents`" },
                { GRAPH("{\"name\":\"s\",\"op\":\"input\",\"type\":\"f32[B,4]\"}," Y),
                  ":4: error: nothing feeds the input %s, f32[B,4]; there are %ids" },
                { GRAPH("{\"name\":\"targets\",\"op\":\"input\",\"type\":\"i32[T,B]\"}," Y),
                  ":4: error: input %targets is i32[T,B], but must be i32[B,T]" },
                { "{\"tgc_graph\":1,\"documents\":-1,\"nodes\":[]}",
                  "\"documents\" must be a token's id" },
                { GRAPH("{\"name\":\"y\",\"op\":\"bucket\",\"in\":[\"ids\"],"
                        "\"attr\":{\"k\":1e300}}"),
                  "must be a whole number" },
        };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                char msg[2048] = "";
                Model *m = from_json(bad[i].json, msg);
                CHECK_MSG(!m, "no error from %s", bad[i].json);
                CHECK_MSG(strstr(msg, bad[i].want) || !strcmp(bad[i].want, ".json"),
                          "wanted %s\n    got %s", bad[i].want, msg);
        }
        char msg[2048] = "";
        Model *m = from_json(GRAPH(Y), msg);
        CHECK_MSG(m, "%s", msg);
        CHECK(NODE(m->graph, graph_find(m->graph, "y"))->loc.line == 4);
        model_free(m);
}

/* Nodes may come from a Lua file; what is wrong with the whole is of the JSON file. */
TEST (json_without_outputs) {
        char msg[2048] = "";
        CHECK(!from_json("{\"tgc_graph\":1,\"nodes\":[\n{\"name\":\"ids\",\"op\":\"input\","
                         "\"type\":\"i32[B,T]\",\"loc\":\"gpt.lua:1\"}],\"outputs\":{}}",
                         msg));
        /* after ".json" */
        CHECK_MSG(!strncmp(msg, ": error: the model returns neither", 34), "%s", msg);
}

/* Every prefix and many single-byte changes of a real file: an error or a model, never a crash. */
TEST (json_damaged) {
        static const Defines tiny = { { "vocab=65", "ctx=32", "n_layer=2", "n_embd=32", "n_head=4",
                                        "n_expert=4" } };
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

#ifndef __SANITIZE_ADDRESS__ /* which keeps what is freed */
/* A graph takes memory in proportion to its file, whatever that is full of. */
TEST (json_memory) {
        static const char head[] =
                "{\"tgc_graph\":1,\"nodes\":[{\"name\":\"ids\",\"op\":\"input\",\"type\":\"i32[B,"
                "T]\",\"in\":[";
        size_t m = 8 << 20;
        char *s = malloc(m + 256), *p = s, msg[2048];
        pid_t pid;
        int status;

        p += sprintf(p, "%s", head);
        for (size_t i = 0; i < m; i += 2, p += 2)
                memcpy(p, "0,", 2);
        sprintf(p, "0]}]}");
        if (!(pid = fork())) {
                struct rusage before, after;
                getrusage(RUSAGE_SELF, &before);
                if (from_json(s, msg) || !strstr(msg, "an input is the name of a node"))
                        _exit(2);
                getrusage(RUSAGE_SELF, &after);
                _exit(after.ru_maxrss - before.ru_maxrss > 3 * (long)(m >> 10));
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        CHECK_MSG(WEXITSTATUS(status) == 0, "%s",
                  WEXITSTATUS(status) == 1 ? "more than 4 times the file" : "no error");
        free(s);
}
#endif

/* The same for Lua: changed bytes in the text of a model. */
TEST (lua_damaged) {
        static const Defines tiny = { { "vocab=65", "ctx=32", "n_layer=2", "n_embd=32",
                                        "variant=custom" } };
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
