/* tok_llama2c.c: llama2.c's tokenizer.bin */
#include "tok.h"

FUZZ(tok_llama2c) { use_file(TOK_LLAMA2C, data, n); }
