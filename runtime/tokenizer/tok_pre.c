/* tok_pre.c: how byte-level vocabularies of GGUF files split text.
 *
 * `tokenizer.ggml.pre` is a name that llama.cpp defines (src/llama-vocab.cpp).  A row has the
 * patterns of the Hugging Face file that the name stands for, applied one after the other, each
 * match a piece.  A name without a row is refused: a near match would be silently wrong. */
#include <stdio.h>
#include "tok.h"
#include "tok_regex.h"

#define ONE_DIGIT "\\p{N}"
#define THREE_DIGITS "\\p{N}{1,3}"
#define HAN_KANA "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+"
#define HAN_HANGUL "[\xe4\xb8\x80-\xe9\xbe\xa5\xe0\xa0\x80-\xe4\xb8\x80\xea\xb0\x80-\xed\x9f\xbf]+"
#define ASCII_MARKS "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define DEEPSEEK3                                                                             \
        ASCII_MARKS "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+" \
                    "[\\r\\n]*|\\s*[\\r\\n]+|" RE_BLANKS
/* cased letters of Unicode, as DeepSeek's file lists them */
#define CASED                                                                                 \
        "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"        \
        "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-"        \
        "\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}" \
        "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-"    \
        "\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-"        \
        "\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-"        \
        "\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}"         \
        "\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}"         \
        "\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-"        \
        "\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}"         \
        "\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}"          \
        "\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}"         \
        "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-"         \
        "\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-"         \
        "\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-"        \
        "\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-"        \
        "\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}"            \
        "\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-"          \
        "\\x{1e943}"
#define DEEPSEEK_MARKS \
        "[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+"
/* ` ?` and a run without blanks and the marks of sentences */
#define BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"

enum { WHOLE = 1, BOS = 2, NFC = 4 };
static const struct {
        const char *names; /* blanks between */
        int flags;         /* WHOLE: a piece that is a token is taken at once; BOS: added */
        const char *regex[6];
} row[] = {
        { "gpt-2 phi-2 mpt jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code "
          "roberta-bpe gigachat a.x-4.0 mellum modern-bert jais trillion granite-docling exaone4",
          0,
          { RE_GPT2 } },
        { "olmo", NFC, { RE_GPT2 } },
        { "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
          WHOLE | BOS,
          { RE_CL100K } },
        { "dbrx smaug-bpe glm4 chatglm-bpe", 0, { RE_CL100K } },
        { "qwen2", NFC, { RE_QWEN2 } },
        { "deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
          0,
          { RE_QWEN2 } },
        { "qwen35",
          NFC,
          { "(?i:" RE_SHORT ")|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
            "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|" RE_BLANKS } },
        { "gpt-4o llama4 kanana2 talkie minimax-m2", 0, { RE_O200K } },
        { "tekken", WHOLE | BOS, { RE_TEKKEN } },
        { "starcoder refact smollm codeshell exaone minerva-7b mellum2",
          0,
          { ONE_DIGIT, RE_GPT2 } },
        { "command-r", NFC, { ONE_DIGIT, RE_GPT2 } },
        { "falcon", 0, { "[\\p{P}\\$+<=>^~|`]+", RE_GPT2, "[0-9][0-9][0-9]" } },
        { "deepseek-llm",
          0,
          { "[\\r\\n]", "\\s?[" CASED "]+", "\\s?" DEEPSEEK_MARKS, "\\s+$", HAN_HANGUL,
            "\\p{N}+" } },
        { "deepseek-coder",
          0,
          { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", HAN_HANGUL, ONE_DIGIT } },
        { "deepseek-v3 hunyuan-dense joyai-llm hy_v4", 0, { THREE_DIGITS, HAN_KANA, DEEPSEEK3 } },
        { "bloom poro-chat gpt3-finnish", 0, { BLOOM } },
        { "viking", 0, { BLOOM, ONE_DIGIT } },
        { "bailingmoe bailingmoe2 llada-moe",
          0,
          { "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}"
            "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|" RE_BLANKS } },
        { "seed-coder",
          0,
          { "(?i:" RE_SHORT ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
            "| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|" RE_BLANKS } },
        { "exaone-moe",
          0,
          { "(?i:" RE_SHORT ")|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}"
            "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|" RE_BLANKS } },
        { "minicpm5", WHOLE, { THREE_DIGITS, RE_CL100K_OF("\\p{N}+") } }
};

/* Whether name is among names. */
static bool listed(const char *names, const char *name)
{
        size_t n = strlen(name);

        for (const char *s = names; *s; s += *s == ' ') {
                size_t k = strcspn(s, " ");
                if (k == n && !memcmp(s, name, n))
                        return true;
                s += k;
        }
        return false;
}

int tok_pre(Tokenizer *t, const char *name, Err *e)
{
        int rc;

        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
                if (!listed(row[i].names, name))
                        continue;
                t->ignore_merges = row[i].flags & WHOLE;
                t->adds_bos = (row[i].flags & BOS) != 0;
                if ((row[i].flags & NFC) && (rc = tok_norm_form(t, "NFC", e)) != TGC_OK)
                        return rc;
                for (int k = 0; k < 6 && row[i].regex[k]; k++)
                        if ((rc = tok_split_regex(t, row[i].regex[k], CUT_ISOLATED, false, e)) !=
                            TGC_OK)
                                return rc;
                return tok_split_bytes(t, e);
        }
        return err_set(e, TGC_BAD_FILE,
                       *name ? "tokenizer: the pre-tokenizer '%.60s' is not known; use the model's "
                               "tokenizer.json"
                             : "tokenizer: the file names no pre-tokenizer%.60s, so how it cuts "
                               "text is not known; use the model's tokenizer.json",
                       name);
}

const char *const *tok_pre_regex(const char *name, bool *whole, bool *nfc)
{
        for (size_t i = 0; i < sizeof row / sizeof *row; i++)
                if (listed(row[i].names, name)) {
                        *whole = row[i].flags & WHOLE;
                        *nfc = row[i].flags & NFC;
                        return row[i].regex;
                }
        return NULL;
}

const char *tok_pre_name(int i)
{
        static char name[64];
        if (i < 0 || (size_t)i >= sizeof row / sizeof *row)
                return NULL;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(row[i].names, " "), row[i].names);
        return name;
}
