/* tok_parts.c: a vocabulary in memory, as tok_from_parts writes it down */
#include "tok.h"

FUZZ(tok_parts) { use_file(TOK_PARTS, data, n); }
