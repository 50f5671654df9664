/* objective_lua.c: opens an objective, for files that include only the runtime's headers. */
#include "objective_lua.h"
#include "../../compiler/compiler.h"

int objective_load(Objective **x, const char *spec, double seconds, Err *e)
{
        const ReadOptions how = { .seconds = seconds > 0 ? seconds : -1 };
        Diag d = { 0 };
        *x = NULL;
        if (!DIAG_CATCH(&d))
                return err_set(e, d.code ? d.code : TGC_BAD_FILE, "%s", d.msg);
        *x = objective_open(spec, &how);
        diag_end(&d);
        return TGC_OK;
}
