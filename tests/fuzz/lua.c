/* lua.c: a model in Lua, with little time to be read in */
#include "model.h"

FUZZ(lua)
{
        const ReadOptions o = { .seconds = FUZZ_SECONDS };
        Model *volatile m;

        READS(m, read_lua(file_of_bytes(data, n), &o));
        if (m)
                use_model(m);
        model_free(m);
}
