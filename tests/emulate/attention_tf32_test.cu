/* attention_tf32_test.cu: attention of float32 by one product of rounded factors each (--tf32). */
#define TGC_TF32 1
#include "attention_test.cu"
