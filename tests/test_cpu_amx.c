/* test_cpu_amx.c: test_cpu_stored_int8.c where prompts are multiplied by AMX tiles, which
 * amx_played.h plays: no processor has to have them. */
#define TGC_ACT_INT8 1
#define TGC_BF16 1
#define TGC_AMX_PLAYED 1
#include "test_cpu_stored.c"
