/* test_cpu_stored_int8.c: test_cpu_stored.c with --act int8: values of x are rounded before they
 * meet the weights, of one row and, where the processor has AVX-512 VNNI, of many. */
#define TGC_ACT_INT8 1
#include "test_cpu_stored.c"
