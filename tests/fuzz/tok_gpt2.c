/* tok_gpt2.c: encoder.json, a NUL, vocab.bpe */
#include "tok.h"

FUZZ(tok_gpt2) { use_file(TOK_GPT2, data, n); }
