/* objective_impl.h: private to the files objective*.c. */
#ifndef TGC_OBJECTIVE_IMPL_H
#define TGC_OBJECTIVE_IMPL_H

#include "read.h"

struct Objective {
        Reader r;
        ReadOptions o;
        ObjectiveFacts facts;
        char path[4096];
        const char *define[32];
        char *text; /* the words of the spec, which define and facts point into */
        ObjectiveEmbed *embed;
        void *embed_user;
        const ObjectiveGroup *group; /* of the call under way */
        ObjectiveValues *values;
};

enum { MODULE = 1, PARAMS = 2 }; /* on the stack of an open objective */

/* ---- objective.c ---- */

Objective *objective_at(lua_State *L);
/* Under sandbox_call: leaves the module and its parameters on the stack; fills the facts. */
int objective_module(lua_State *L);
/* An objective in whose sandbox f has run, for model m (NULL: a model of its own, which stays
 * empty); r.msg says what went wrong. */
Objective *objective_begin(const char *spec, Model *m, const ReadOptions *o, lua_CFunction f,
                           int results);
void objective_say(Reader *r, const ReadOptions *o); /* what was printed, which goes */

/* ---- objective_check.c ---- */

void objective_check(lua_State *L, const ObjectiveFacts *f); /* at MODULE; errors are Lua's */
bool objective_own_feed(const char *name);                   /* one that the runtime fills */
/* Refuses a key of a table that is not known; loose: that is near to a known one. */
void objective_known(lua_State *L, int table, const char *what, const char *const *known, int n,
                     bool loose);

#endif
