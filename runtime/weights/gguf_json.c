/* gguf_json.c: writes a GGUF file's metadata as JSON, which models/gguf.lua reads. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../util/c_locale.h"
#include "../util/json.h"
#include "gguf.h"

enum { MOST_ITEMS = 4096, MOST_TEXT = 4096 };

static void put_string(FILE *f, const char *s, size_t n)
{
        fputc('"', f);
        for (size_t i = 0; i < n; i++) {
                const unsigned char c = (unsigned char)s[i];
                if (c == '"' || c == '\\')
                        fprintf(f, "\\%c", c);
                else if (c < 32)
                        fprintf(f, "\\u%04x", c);
                else
                        fputc(c, f);
        }
        fputc('"', f);
}

/* The shortest digits that read back to the same number of that width: 1e-05 is written so by most
 * configurations, and not 9.99999974e-06.  What JSON has not becomes a word, which no key takes. */
static void put_real(FILE *f, double x, bool single)
{
        char text[40];

        for (int digits = 1; digits <= 17; digits++) {
                c_format(text, sizeof text, "%.*g", digits, x);
                if (single ? (float)c_strtod(text, 0) == (float)x : c_strtod(text, 0) == x)
                        break;
        }
        if (!isfinite(x))
                fprintf(f, "\"%s\"", text);
        else
                fprintf(f, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

static bool is_long(const GgufValue *v)
{
        if (v->type == GGUF_STRING)
                return v->n > MOST_TEXT;
        return v->type == GGUF_ARRAY &&
               (v->n > MOST_ITEMS || v->item == GGUF_STRING || v->item == GGUF_ARRAY);
}

static void put_value(FILE *f, const GgufValue *v)
{
        const char *sep = "";
        int64_t whole = 0;
        double x = 0;
        bool yes;
        size_t n;
        const char *s = gguf_string(v, &n);

        if (s) {
                put_string(f, s, n);
        } else if (gguf_bool(v, &yes)) {
                fputs(yes ? "true" : "false", f);
        } else if (gguf_int(v, &whole)) {
                fprintf(f, "%lld", (long long)whole);
        } else if (gguf_number(v, &x)) {
                put_real(f, x, v->type == GGUF_F32);
        } else if (v->type == GGUF_ARRAY) {
                fputc('[', f);
                for (GgufEach i = gguf_each(v); gguf_next(&i); sep = ",") {
                        fputs(sep, f);
                        put_value(f, &i.value);
                }
                fputc(']', f);
        } else {
                fputs("\"too large\"", f); /* u64 beyond i64 */
        }
}

static void put_tensor(FILE *f, const CkTensor *t)
{
        int64_t n = 1;

        put_string(f, t->name, strlen(t->name));
        fprintf(f, ":{\"type\":\"%s\",\"shape\":[", ck_dtype_name(t->dtype));
        for (int i = 0; i < t->rank; i++) {
                fprintf(f, "%s%lld", i ? "," : "", (long long)t->dim[i]);
                n *= t->dim[i];
        }
        fputc(']', f);
        if (!strncmp(t->name, "rope_", 5) && t->dtype == CK_F32 && n <= MOST_ITEMS) {
                fputs(",\"values\":[", f);
                for (int64_t i = 0; i < n; i++) {
                        float x;
                        memcpy(&x, (const char *)t->data + 4 * i, 4);
                        fputs(i ? "," : "", f);
                        put_real(f, x, true);
                }
                fputc(']', f);
        }
        fputc('}', f);
}

int gguf_json(const Gguf *g, char **text, Err *e)
{
        size_t size;
        FILE *f = open_memstream(text, &size);
        const char *sep = "";
        bool whole = f;

        for (int i = 0; i < gguf_n_keys(g) && f; i++) {
                const GgufKey *k = gguf_key(g, i);
                size_t n;
                const char *s = gguf_string(&k->value, &n);
                if (is_long(&k->value) || (s && !json_utf8_ok(s, n)))
                        continue;
                fputs(*sep ? sep : "{", f);
                put_string(f, k->name, strlen(k->name));
                fputc(':', f);
                put_value(f, &k->value);
                sep = ",\n";
        }
        if (f) {
                fprintf(f, "%s\"tensors\":{", *sep ? sep : "{");
                for (int i = 0; i < gguf_n_tensors(g); i++) {
                        fputs(i ? ",\n" : "", f);
                        put_tensor(f, gguf_tensor(g, i));
                }
                fputs("}}", f);
                whole = !ferror(f);
        }
        if (!f || fclose(f) || !whole) {
                free(*text);
                *text = 0;
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for its metadata", gguf_path(g));
        }
        return TGC_OK;
}
