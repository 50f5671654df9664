/* objective_lua.h: opens an objective (--objective NAME or FILE.lua) for files that include the
 * runtime's headers, whose names clash with the compiler's. */
#ifndef TGC_OBJECTIVE_LUA_H
#define TGC_OBJECTIVE_LUA_H

#include "../../compiler/read/objective.h"
#include "../../runtime/util/err.h"

/* seconds: of CPU time that each call of its Lua may take; 0: any.  objective_close frees it. */
int objective_load(Objective **x, const char *spec, double seconds, Err *e);

#endif
