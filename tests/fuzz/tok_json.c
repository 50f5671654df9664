/* tok_json.c: tokenizer.json */
#include "tok.h"

FUZZ(tok_json) { use_file(TOK_HF, data, n); }
