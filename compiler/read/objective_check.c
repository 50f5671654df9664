/* objective_check.c: refuses what an objective's table says without effect: fields that are not
 * known, functions that are never called, feeds that nothing fills. */
#include <lauxlib.h>
#include <string.h>
#include "objective_impl.h"

enum {
        PLAIN = 1 << OBJECTIVE_PLAIN,
        PAIRS = 1 << OBJECTIVE_PAIRS,
        PROMPTS = 1 << OBJECTIVE_PROMPTS
};

/* What the runtime fills, by what is learned from. */
static const struct {
        const char *name;
        int data;
} own_feed[] = { { "teacher", PLAIN | PAIRS | PROMPTS },
                 { "reference", PLAIN | PAIRS | PROMPTS },
                 { "old", PLAIN | PAIRS | PROMPTS },
                 { "side", PAIRS },
                 { "member", PROMPTS },
                 { "weight", PAIRS | PROMPTS } };
enum { N_OWN = sizeof own_feed / sizeof *own_feed };

bool objective_own_feed(const char *name)
{
        for (int i = 0; i < N_OWN; i++)
                if (!strcmp(name, own_feed[i].name))
                        return true;
        return false;
}

void objective_known(lua_State *L, int table, const char *what, const char *const *known, int n,
                     bool loose)
{
        for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) {
                const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
                int k = 0;
                while (k < n && strcmp(key, known[k]))
                        k++;
                const char *near = k < n ? NULL : nearest(key, known, n);
                if (k < n || (loose && !near))
                        continue;
                luaL_checkstack(L, 2 * n, NULL);
                for (k = 0; k < n; k++) {
                        lua_pushstring(L, k ? ", " : "");
                        lua_pushstring(L, known[k]);
                }
                lua_concat(L, 2 * n);
                luaL_error(L, "%s `%s`%s%s%s there are %s", what, key,
                           near ? "; did you mean '" : ";", near ? near : "", near ? "'?" : "",
                           lua_tostring(L, -1));
        }
}

static void check_feed(lua_State *L, const ObjectiveFacts *f, int i)
{
        static const char *const field[] = { "ids",    "targets", "logits",    "nll",
                                             "hidden", "head",    "head_bias", "extra" };
        const char *name = f->feed[i];
        for (size_t k = 0; k < sizeof field / sizeof *field; k++)
                if (!strcmp(name, field[k]))
                        luaL_error(L, "`feeds`: '%s' is a field of m already", name);
        for (int k = 0; k < i; k++)
                if (!strcmp(name, f->feed[k]))
                        luaL_error(L, "`feeds`: '%s' stands there twice", name);
        for (int k = 0; k < N_OWN; k++)
                if (!strcmp(name, own_feed[k].name)) {
                        if (own_feed[k].data >> f->data & 1)
                                return;
                        luaL_error(L, "`feeds`: nothing fills '%s' here: it is for data = %s", name,
                                   own_feed[k].data == PAIRS     ? "\"pairs\""
                                   : own_feed[k].data == PROMPTS ? "\"prompts\""
                                                                 : "\"pairs\" or \"prompts\"");
                }
        if (f->data != OBJECTIVE_PROMPTS || !f->group)
                luaL_error(L,
                           "`feeds`: nothing fills '%s': there are teacher, reference, old, side, "
                           "member and weight; any other is what `group` returns, of data = "
                           "\"prompts\"",
                           name);
}

void objective_check(lua_State *L, const ObjectiveFacts *f)
{
        static const char *const field[] = { "name", "params", "data",   "learn",
                                             "loss", "feeds",  "reward", "group" },
                                 *const judges[] = { "reward", "group", "learn" };
        objective_known(L, MODULE, "the objective has a", field, sizeof field / sizeof *field,
                        true);
        for (int i = 0; i < 3; i++) {
                const int type = lua_getfield(L, MODULE, judges[i]);
                lua_pop(L, 1);
                if (type != LUA_TNIL && i < 2 && type != LUA_TFUNCTION)
                        luaL_error(L, "the objective's `%s` must be a function, and is a %s",
                                   judges[i], lua_typename(L, type));
                if (type != LUA_TNIL && f->data != OBJECTIVE_PROMPTS)
                        luaL_error(L,
                                   "the objective's `%s` has no effect: it is about what is "
                                   "sampled, of data = \"prompts\"",
                                   judges[i]);
        }
        for (int i = 0; i < f->n_feeds; i++)
                check_feed(L, f, i);
}
