/* test_describe.c: what `tgc help lua` and `tgc help models` say is all there is, and nothing
 * else. */
#include "model_files.h"
#include "read_models.h"

static const char *const words[] = {
#define GLOBAL(name, usage, text) #name,
#include "compiler/read/language.def"
};
enum { N_WORDS = sizeof words / sizeof *words };

static const struct {
        const char *library, *names;
} lua_lib[] = {
#define LUA(library, names) { library, names },
#include "compiler/read/language.def"
};
enum { N_LIBS = sizeof lua_lib / sizeof *lua_lib };

/* A model that raises `code`'s string as its error; the message goes to msg. */
static void say_of(const char *code, char msg[2048])
{
        char path[300];
        const char *base = getenv("TMPDIR");
        snprintf(path, sizeof path, "%s/tgc-describe-%ld.lua", base ? base : P_tmpdir,
                 (long)getpid());
        FILE *f = fopen(path, "w");
        CHECK(f && fprintf(f, "error(%s)\n", code) > 0 && !fclose(f));
        CHECK(!try_lua(path, NULL, msg, NULL));
        unlink(path);
}

static bool has_word(const char *list, const char *word)
{
        size_t n = strlen(word);
        for (const char *s = list; (s = strstr(s, word)); s++)
                if ((s == list || s[-1] == ' ') && (!s[n] || s[n] == ' '))
                        return true;
        return false;
}

TEST (every_op_of_a_model_is_described) {
        Text t = { 0 };
        char call[80];
        int bad = 0;
        describe_language(&t, false);
        for (int op = 1; op < N_OPS; op++) {
                const char *text = op_info[op].text;
                const bool public = !op_is((Op)op, FACT_INNER);
                if (describe_knows((Op)op) != public) {
                        printf("  %s: %s\n", text,
                               public ? "language.def has no row"
                                      : "a row, and it is not for models");
                        bad++;
                }
                snprintf(call, sizeof call, "\n    %s(", text);
                if (public && *op_info[op].inputs && !strstr(t.s, call)) {
                        printf("  %s is not listed\n", text);
                        bad++;
                }
        }
        text_free(&t);
        CHECK(!bad);
}

TEST (every_word_is_described) {
        char msg[2048], name[64];
        int bad = 0;
        say_of("(function() local t = {} for k in pairs(_G) do t[#t + 1] = k end return "
               "table.concat(t, ' ') end)()",
               msg);
        const char *at = strstr(msg, "error: ");
        CHECK(at);
        for (at += 7; sscanf(at, "%63s", name) == 1; at += strlen(name), at += *at == ' ') {
                bool known = has_word(lua_lib[0].names, name);
                for (int i = 0; i < N_WORDS; i++)
                        known |= !strcmp(words[i], name);
                for (int i = 1; i < N_LIBS; i++)
                        known |= !strcmp(lua_lib[i].library, name);
                if (!known) {
                        printf("  '%s' is known to models and not described\n", name);
                        bad++;
                }
        }
        for (int i = 0; i < N_WORDS; i++) /* config_error comes with a config.json */
                if (strcmp(words[i], "config_error") &&
                    !has_word(strstr(msg, "error: ") + 7, words[i])) {
                        printf("  '%s' is described and not known\n", words[i]);
                        bad++;
                }
        CHECK(!bad);
}

/* Lua may be built with functions of older versions; models should not use these. */
TEST (what_is_left_of_lua_is_described) {
        static const char older[] = "atan2 cosh frexp ldexp log10 pow sinh tanh";
        char msg[2048], code[200], name[64];
        int bad = 0;
        for (int i = 1; i < N_LIBS; i++) {
                snprintf(code, sizeof code,
                         "(function() local t = {} for k in pairs(%s) do t[#t + 1] = k end return "
                         "table.concat(t, ' ') end)()",
                         lua_lib[i].library);
                say_of(code, msg);
                const char *have = strstr(msg, "error: "), *at;
                CHECK(have);
                have += 7;
                for (at = have; sscanf(at, "%63s", name) == 1; at += strlen(name), at += *at == ' ')
                        if (!has_word(lua_lib[i].names, name) && !has_word(older, name)) {
                                printf("  %s.%s is known to models and not described\n",
                                       lua_lib[i].library, name);
                                bad++;
                        }
                for (at = lua_lib[i].names; sscanf(at, "%63s", name) == 1;
                     at += strlen(name), at += *at == ' ')
                        if (!has_word(have, name)) {
                                printf("  %s.%s is described and not known\n", lua_lib[i].library,
                                       name);
                                bad++;
                        }
        }
        CHECK(!bad);
}

TEST (ways_to_begin_are_in_order) {
        static const char *const order[] = {
#define INIT(name, text) #name,
#include "compiler/read/language.def"
        };
        CHECK(sizeof order / sizeof *order == INIT_VALUE + 1);
        CHECK(!strcmp(order[INIT_ZEROS], "zeros") && !strcmp(order[INIT_ONES], "ones") &&
              !strcmp(order[INIT_NORMAL], "normal") && !strcmp(order[INIT_UNIFORM], "uniform") &&
              !strcmp(order[INIT_VALUE], "value"));
}

/* Every public function of blocks.lua is listed, with words. */
TEST (every_block_is_described) {
        Text t = { 0 };
        char want[80];
        int n = 0;
        describe_language(&t, true);
        char *text = slurp("models/blocks.lua");
        for (const char *s = text; (s = strstr(s, "\nfunction b.")); n++) {
                s += 10;
                snprintf(want, sizeof want, "| `%.*s` | ", (int)strcspn(s, ")") + 1, s);
                const char *row = strstr(t.s, want);
                CHECK_MSG(row && row[strlen(want)] != ' ' && row[strlen(want)] != '|',
                          "no words for %s", want);
        }
        CHECK(n > 20);
        free(text);
        text_free(&t);
}

/* What is listed for a model can be given to -D, and the default that stands there changes
 * nothing. */
TEST (models_are_described_as_they_are) {
        Text all = { 0 };
        CHECK(describe_models(NULL, &all, false));
        for (const ModelFile *f = model_files; f->name; f++) {
                Text t = { 0 }, plain = { 0 }, set = { 0 };
                Defines d = { { 0 } };
                char name[64], path[80], text[256][80], msg[2048] = "";
                const char *define[257];
                int n = 0;
                snprintf(name, sizeof name, "%.*s", (int)strcspn(f->name, "."), f->name);
                snprintf(path, sizeof path, "models/%s", f->name);
                const bool listed = describe_models(name, &t, false);
                CHECK_MSG(listed == is_model_file(path), "%s: is it a model?", path);
                if (!listed)
                        continue;
                for (const char *s = t.s; (s = strstr(s, "    -D ")) && n < 256; s += 7, n++) {
                        snprintf(text[n], sizeof *text, "%.*s", (int)strcspn(s + 7, " \n"), s + 7);
                        define[n] = text[n];
                        CHECK_MSG(strstr(all.s, text[n]), "%s: %s is not in the list of all", name,
                                  text[n]);
                }
                CHECK_MSG(n >= 8, "%s has %d parameters", name, n);
                ReadOptions o = { .models_dir = "models", .define = define, .n_define = n };
                Model *m = lua(path, &d);
                write_json(m, &plain);
                model_free(m);
                Diag diag = { 0 };
                Model *volatile again = NULL;
                if (DIAG_CATCH(&diag)) {
                        again = read_lua(path, &o);
                        diag_end(&diag);
                } else {
                        snprintf(msg, sizeof msg, "%s", diag.msg);
                }
                CHECK_MSG(again, "%s", msg);
                write_json(again, &set);
                model_free(again);
                CHECK_MSG(!strcmp(plain.s, set.s),
                          "%s: the defaults that are listed are others than its own", name);
                text_free(&t);
                text_free(&plain);
                text_free(&set);
        }
        text_free(&all);
        CHECK(!describe_models("nothing", &all, false));
}

/* The comment of a parameter goes on below it. */
TEST (parameters_are_described_whole) {
        Text t = { 0 };
        CHECK(describe_models("granite", &t, false));
        CHECK(strstr(t.s, "n(x + f(x)); parallel:") && strstr(t.s, "both parts read one n(x)"));
        text_free(&t);
}

TEST_MAIN
