/* help_models.c: tgc help lua, tgc help models.  The text comes from the compiler
 * (read/describe.c). */
#include <string.h>
#include "../compiler/compiler.h"
#include "cli.h"

int help_models(const char *what, const char *name, bool markdown, Err *e)
{
        Text t = { 0 };
        Diag d = { 0 };
        volatile bool known = true;
        if (!strcmp(what, "lua") && name)
                return err_set(e, TGC_USAGE,
                               "help: '%.60s' is one argument too many: usage: tgc help lua", name);
        if (!DIAG_CATCH(&d)) {
                text_free(&t);
                return err_set(e, d.code ? d.code : TGC_FAIL, "%s", d.msg);
        }
        if (!strcmp(what, "lua"))
                describe_language(&t, markdown);
        else
                known = describe_models(name, &t, markdown);
        diag_end(&d);
        if (known)
                put_plain(stdout, t.s, t.n);
        text_free(&t);
        return known ? TGC_OK
                     : err_set(e, TGC_USAGE,
                               "no model '%.60s' comes with tgc; `tgc help models` lists them",
                               name);
}
