/* tok_json_write.c: writes a byte-level BPE vocabulary as tokenizer.json and tokenizer_config.json.
 *
 * The patterns are those of a name that GGUF files have (tok_to_parts.c finds it).  The result is
 * read back: a vocabulary that would cut text in another way is not written. */
#include "tok.h"

static void put_flag(Buf *out, bool yes) { tok_put_text(out, yes ? "true" : "false"); }

static void put_piece(const TokParts *p, int id, Buf *out)
{
        tok_put_json(out, p->piece[id].p, p->piece[id].n);
}

static bool is_added(const TokParts *p, int id)
{
        return p->kind[id] == TOK_CONTROL || p->kind[id] == TOK_USER_DEFINED;
}

static void put_added(const TokParts *p, Buf *out)
{
        bool one = false;
        tok_put_text(out, "\"added_tokens\":[");
        for (int id = 0; id < p->n_piece; id++) {
                if (!is_added(p, id))
                        continue;
                tok_put_text(out, one ? ",{\"id\":" : "{\"id\":");
                one = true;
                tok_put_id(out, id);
                tok_put_text(out, ",\"content\":");
                put_piece(p, id, out);
                tok_put_text(out, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                                  "\"normalized\":false,\"special\":");
                put_flag(out, p->kind[id] == TOK_CONTROL);
                tok_put_text(out, "}");
        }
        tok_put_text(out, "],");
}

static void put_split(const char *const *regex, Buf *out)
{
        tok_put_text(out, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[");
        for (int i = 0; i < 6 && regex[i]; i++) {
                tok_put_text(out, "{\"type\":\"Split\",\"pattern\":{\"Regex\":");
                tok_put_json(out, regex[i], strlen(regex[i]));
                tok_put_text(out, "},\"behavior\":\"Isolated\",\"invert\":false},");
        }
        tok_put_text(out,
                     "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
                     "\"use_regex\":false}]},");
}

static void put_special(const TokParts *p, int id, Buf *out)
{
        tok_put_text(out, "{\"SpecialToken\":{\"id\":");
        put_piece(p, id, out);
        tok_put_text(out, ",\"type_id\":0}}");
}

/* [BOS] text [EOS]; of a pair the same twice.  -1: it is not added. */
static void put_template(const TokParts *p, int bos, int eos, Buf *out)
{
        if (bos < 0 && eos < 0) {
                tok_put_text(out, "\"post_processor\":null,");
                return;
        }
        tok_put_text(out, "\"post_processor\":{\"type\":\"TemplateProcessing\"");
        for (int pair = 0; pair < 2; pair++) {
                tok_put_text(out, pair ? ",\"pair\":[" : ",\"single\":[");
                for (int k = 0; k <= pair; k++) {
                        tok_put_text(out, k ? "," : "");
                        if (bos >= 0) {
                                put_special(p, bos, out);
                                tok_put_text(out, ",");
                        }
                        tok_put_text(out, k ? "{\"Sequence\":{\"id\":\"B\",\"type_id\":0}}"
                                            : "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}");
                        if (eos >= 0) {
                                tok_put_text(out, ",");
                                put_special(p, eos, out);
                        }
                }
                tok_put_text(out, "]");
        }
        tok_put_text(out, ",\"special_tokens\":{");
        for (int k = 0; k < 2; k++) {
                const int id = k ? eos : bos;
                if (id < 0 || (k && eos == bos))
                        continue;
                tok_put_text(out, k && bos >= 0 ? "," : "");
                put_piece(p, id, out);
                tok_put_text(out, ":{\"id\":");
                put_piece(p, id, out);
                tok_put_text(out, ",\"ids\":[");
                tok_put_id(out, id);
                tok_put_text(out, "],\"tokens\":[");
                put_piece(p, id, out);
                tok_put_text(out, "]}");
        }
        tok_put_text(out, "}},");
}

static void put_model(const TokParts *p, bool whole, Buf *out)
{
        tok_put_text(out, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                          "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                          "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":");
        put_flag(out, whole);
        tok_put_text(out, ",\"vocab\":{");
        for (int id = 0; id < p->n_piece; id++) {
                tok_put_text(out, id ? "," : "");
                put_piece(p, id, out);
                tok_put_text(out, ":");
                tok_put_id(out, id);
        }
        tok_put_text(out, "},\"merges\":[");
        for (int i = 0; i < p->n_merge; i++) {
                const TokText *m = &p->merge[i];
                const char *blank = memchr(m->p, ' ', m->n);
                const size_t left = blank ? (size_t)(blank - m->p) : m->n;
                tok_put_text(out, i ? ",[" : "[");
                tok_put_json(out, m->p, left);
                tok_put_text(out, ",");
                tok_put_json(out, m->p + left + 1, left < m->n ? m->n - left - 1 : 0);
                tok_put_text(out, "]");
        }
        tok_put_text(out, "]}}\n");
}

static void put_settings(const TokParts *p, const char *chat, Buf *out)
{
        tok_put_text(out, "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", "
                          "\"clean_up_tokenization_spaces\": false");
        if (p->bos >= 0) {
                tok_put_text(out, ", \"bos_token\": ");
                put_piece(p, p->bos, out);
        }
        if (p->n_eos) {
                tok_put_text(out, ", \"eos_token\": ");
                put_piece(p, p->eos[0], out);
        }
        tok_put_text(out, ", \"add_bos_token\": ");
        put_flag(out, p->add_bos > 0);
        if (chat) {
                tok_put_text(out, ", \"chat_template\": ");
                tok_put_json(out, chat, strlen(chat));
        }
        tok_put_text(out, "}\n");
}

/* What is read back does what t does. */
static bool reads_alike(const Tokenizer *t, const Buf *json)
{
        Tokenizer *u;
        Err why;
        if (tok_new(&u, TOK_HF, t->limit, json->p, json->n, &why))
                return false;
        const bool same = tok_cuts_alike(t, u) && t->n_suffix == u->n_suffix &&
                          t->adds_bos == u->adds_bos && (!t->adds_bos || t->bos == u->bos);
        tokenizer_free(u);
        return same;
}

int tokenizer_json(const Tokenizer *t, const char *chat, char **json, char **settings, Err *e)
{
        TokParts p;
        void *owned = NULL;
        Buf out = { 0 }, own = { 0 };
        bool whole, nfc;
        Err why;
        *json = *settings = NULL;
        int rc = tok_to_parts(t, t->vocab.n, &p, &owned, &why);
        if (rc == TGC_NO_MEMORY)
                return err_set(e, rc, "%s", why.msg);
        const char *const *regex = !rc && !strcmp(p.model, "gpt2")
                                           ? tok_pre_regex(p.pre, &whole, &nfc)
                                           : NULL;
        if (regex) {
                tok_put_text(&out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,");
                put_added(&p, &out);
                tok_put_text(&out,
                             nfc ? "\"normalizer\":{\"type\":\"NFC\"}," : "\"normalizer\":null,");
                put_split(regex, &out);
                put_template(&p, p.add_bos > 0 ? p.bos : -1, p.add_eos > 0 ? p.eos[0] : -1, &out);
                tok_put_text(&out, "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
                                   "\"trim_offsets\":true,\"use_regex\":true},");
                put_model(&p, whole, &out);
                put_settings(&p, chat, &own);
        }
        free(owned);
        if (!out.bad && !own.bad && regex && reads_alike(t, &out)) {
                buf_put(&out, "", 1);
                buf_put(&own, "", 1);
                *json = out.p, *settings = own.p;
        }
        if (!*json || out.bad || own.bad) {
                rc = out.bad || own.bad ? tok_no_memory(e) : TGC_OK;
                buf_free(&out);
                buf_free(&own);
                *json = *settings = NULL;
                return rc;
        }
        return TGC_OK;
}
