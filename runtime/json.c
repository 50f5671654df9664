/* json.c: see json.h. */
#include "json.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "file.h"

int json_parse(cJSON **out, const char *text, size_t size, const char *name, Err *e)
{
        JsonText in;
        Json root;
        int rc = json_open(&in, &root, text, size, name, false, e);

        *out = 0;
        if (rc)
                return rc;
        json_close(&in);
        if (!(*out = cJSON_ParseWithLength(text, size)))
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for the JSON (%zu bytes of text)", name, size);
        return TGC_OK;
}

int json_read(cJSON **out, const char *path, size_t max_bytes, Err *e)
{
        char *text;
        size_t size;
        int rc = file_read_text(path, max_bytes, &text, &size, e);

        *out = 0;
        if (rc)
                return rc;
        rc = json_parse(out, text, size, path, e);
        free(text);
        return rc;
}

/* Typed fields -------------------------------------------------------------- */

static int get(const cJSON *o, const char *key, const cJSON **field, const char *name, Err *e)
{
        *field = cJSON_GetObjectItemCaseSensitive(o, key);
        return *field ? TGC_OK : err_set(e, TGC_BAD_FILE, "%s: no \"%s\"", name, key);
}

static int kind(const char *key, const char *wanted, const char *name, Err *e)
{
        return err_set(e, TGC_BAD_FILE, "%s: \"%s\" is not %s", name, key, wanted);
}

int json_get_str(const cJSON *o, const char *key, const char **out, const char *name, Err *e)
{
        const cJSON *f;
        int rc = get(o, key, &f, name, e);

        if (rc)
                return rc;
        if (!cJSON_IsString(f))
                return kind(key, "a string", name, e);
        *out = f->valuestring;
        return TGC_OK;
}

int json_get_int(const cJSON *o, const char *key, int64_t min, int64_t max, int64_t *out, const char *name, Err *e)
{
        const cJSON *f;
        int rc = get(o, key, &f, name, e);
        double v;

        if (rc)
                return rc;
        v = cJSON_IsNumber(f) ? f->valuedouble : NAN;
        if (!(fabs(v) <= 9007199254740992.0) || v != floor(v))      /* 2^53: exact in cJSON's double */
                return kind(key, "an integer", name, e);
        if ((int64_t)v < min || (int64_t)v > max)
                return err_set(e, TGC_BAD_FILE, "%s: \"%s\" is %lld, not in %lld .. %lld", name, key,
                               (long long)v, (long long)min, (long long)max);
        *out = (int64_t)v;
        return TGC_OK;
}

int json_get_num(const cJSON *o, const char *key, double *out, const char *name, Err *e)
{
        const cJSON *f;
        int rc = get(o, key, &f, name, e);

        if (rc)
                return rc;
        if (!cJSON_IsNumber(f))
                return kind(key, "a number", name, e);
        *out = f->valuedouble;
        return TGC_OK;
}

int json_get_bool(const cJSON *o, const char *key, bool *out, const char *name, Err *e)
{
        const cJSON *f;
        int rc = get(o, key, &f, name, e);

        if (rc)
                return rc;
        if (!cJSON_IsBool(f))
                return kind(key, "true or false", name, e);
        *out = cJSON_IsTrue(f);
        return TGC_OK;
}

int json_get_object(const cJSON *o, const char *key, const cJSON **out, const char *name, Err *e)
{
        int rc = get(o, key, out, name, e);

        if (rc)
                return rc;
        return cJSON_IsObject(*out) ? TGC_OK : kind(key, "an object", name, e);
}
