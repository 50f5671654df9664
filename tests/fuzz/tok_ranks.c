/* tok_ranks.c: tiktoken's rank files */
#include "tok.h"

FUZZ(tok_ranks) { use_file(TOK_TIKTOKEN, data, n); }
