/* tok_char.c: a character vocabulary */
#include "tok.h"

FUZZ(tok_char) { use_file(TOK_CHAR, data, n); }
