/* tok_spm.c: sentencepiece's tokenizer.model */
#include "tok.h"

FUZZ(tok_spm) { use_file(TOK_SPM, data, n); }
