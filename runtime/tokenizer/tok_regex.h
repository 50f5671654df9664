/* tok_regex.h: the patterns by which well-known vocabularies split text, as their tokenizer.json
 * writes them.
 *
 * tok_ranks.c finds them by the vocabulary's size, tok_pre.c by its name. */
#ifndef TGC_TOK_REGEX_H
#define TGC_TOK_REGEX_H

#define RE_SHORT "'s|'t|'re|'ve|'m|'ll|'d" /* English, contracted */
#define RE_BLANKS "\\s+(?!\\S)|\\s+"
#define RE_GPT2 RE_SHORT "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" RE_BLANKS
#define RE_CL100K_OF(digits)                                      \
        "(?i:" RE_SHORT ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|" RE_BLANKS
#define RE_CL100K RE_CL100K_OF("\\p{N}{1,3}") /* Llama 3 too */
#define RE_QWEN2 RE_CL100K_OF("\\p{N}")

#define RE_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define RE_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define RE_O200K_OF(tail, digits)                                                                  \
        "[^\\r\\n\\p{L}\\p{N}]?" RE_UPPER "*" RE_LOWER "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" RE_UPPER \
        "+" RE_LOWER "*" tail "|" digits                                                           \
        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|" RE_BLANKS
#define RE_O200K RE_O200K_OF("(?i:" RE_SHORT ")?", "\\p{N}{1,3}")
#define RE_TEKKEN RE_O200K_OF("", "\\p{N}")

#endif
