/* tok_bert.c: tokenizer_config.json, a NUL, BERT's vocab.txt */
#include "tok.h"

FUZZ(tok_bert) { use_file(TOK_BERT, data, n); }
