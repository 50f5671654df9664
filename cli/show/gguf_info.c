/* gguf_info.c: prints the metadata and tensors of a GGUF file. */
#include <string.h>
#include "../../runtime/weights/gguf.h"
#include "../load/open.h"
#include "../load/gguf_model.h"

enum { MOST_SHOWN = 8, MOST_TEXT = 60 };

/* A value in short: a long text is cut, a long list is counted. */
static void value_text(const GgufValue *v, char *out, size_t cap)
{
        const char *s, *sep = "";
        double x;
        int64_t i;
        bool yes;
        size_t n, at = 0;
        if ((s = gguf_string(v, &n))) {
                size_t shown = 0; /* of the first line */
                while (shown < n && shown < MOST_TEXT && s[shown] != '\n' && s[shown] != '\r')
                        shown++;
                snprintf(out, cap, "%.*s%s", (int)shown, s, shown < n ? " ..." : "");
        } else if (gguf_bool(v, &yes)) {
                snprintf(out, cap, "%s", yes ? "true" : "false");
        } else if (gguf_int(v, &i)) {
                snprintf(out, cap, "%lld", (long long)i);
        } else if (gguf_number(v, &x)) {
                snprintf(out, cap, "%.7g", x);
        } else if (v->type == GGUF_ARRAY && v->n <= MOST_SHOWN && v->item != GGUF_ARRAY) {
                *out = 0;
                for (GgufEach each = gguf_each(v); gguf_next(&each) && at < cap; sep = ", ") {
                        char one[MOST_TEXT + 8];
                        value_text(&each.value, one, sizeof one);
                        at += (size_t)snprintf(out + at, cap - at, "%s%s", sep, one);
                }
        } else {
                snprintf(out, cap, "%llu of %s", (unsigned long long)v->n, gguf_type_name(v->item));
        }
}

static void kind_text(const GgufValue *v, char *out, size_t cap)
{
        if (v->type == GGUF_ARRAY)
                snprintf(out, cap, "%s[]", gguf_type_name(v->item));
        else
                snprintf(out, cap, "%s", gguf_type_name(v->type));
}

static void print_table(const Gguf *g)
{
        char text[1024], kind[24], size[32], shape[96];
        uint64_t bytes[CK_N_DTYPES] = { 0 };
        int count[CK_N_DTYPES] = { 0 };
        print("gguf       version %d, %d keys, %d tensors, %s\n", gguf_version(g), gguf_n_keys(g),
              gguf_n_tensors(g), text_bytes(size, sizeof size, (double)gguf_tensor_bytes(g)));
        for (int i = 0; i < gguf_n_tensors(g); i++) {
                bytes[gguf_tensor(g, i)->dtype] += gguf_tensor(g, i)->bytes;
                count[gguf_tensor(g, i)->dtype]++;
        }
        for (int i = 0; i < CK_N_DTYPES; i++)
                if (count[i])
                        print("           %-8s %5d tensors %12s\n", ck_dtype_name(i), count[i],
                              text_bytes(size, sizeof size, (double)bytes[i]));
        print("\nmetadata:\n");
        for (int i = 0; i < gguf_n_keys(g); i++) {
                const GgufKey *k = gguf_key(g, i);
                value_text(&k->value, text, sizeof text);
                kind_text(&k->value, kind, sizeof kind);
                print("  %-44s %-9s %s\n", k->name, kind, text);
        }
        print("\ntensors:\n");
        for (int i = 0; i < gguf_n_tensors(g); i++) {
                const CkTensor *t = gguf_tensor(g, i);
                print("  %-36s %-8s %-20s %12s\n", t->name, ck_dtype_name(t->dtype),
                      ck_shape_text(shape, sizeof shape, t->rank, t->dim),
                      text_bytes(size, sizeof size, (double)t->bytes));
        }
}

static int fill_json(const Gguf *g, cJSON *o, Err *e)
{
        cJSON *file = cJSON_AddObjectToObject(o, "gguf"), *meta;
        char *text;
        int code = gguf_json(g, &text, e);
        if (code)
                return code;
        meta = cJSON_Parse(text);
        free(text);
        if (!meta || !file) {
                cJSON_Delete(meta);
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", gguf_path(g));
        }
        cJSON_AddNumberToObject(file, "version", gguf_version(g));
        cJSON_AddItemToObject(file, "tensors", cJSON_DetachItemFromObject(meta, "tensors"));
        cJSON_AddItemToObject(file, "metadata", meta);
        return TGC_OK;
}

int gguf_print(const char *path, cJSON *o, char type[GGUF_MOST_TYPE], Err *e)
{
        Gguf *g;
        size_t n;
        int code = gguf_open(&g, path, e);
        *type = 0;
        if (code)
                return code;
        if (o)
                code = fill_json(g, o, e);
        else
                print_table(g);
        const char *word = gguf_string(gguf_find(g, "general.type"), &n);
        if (word && !(n == 5 && !memcmp(word, "model", 5)))
                snprintf(type, GGUF_MOST_TYPE, "%.*s", n < 64 ? (int)n : 64, word);
        gguf_free(g);
        return code;
}
