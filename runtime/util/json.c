/* json.c: implements json.h. */
#include "json.h"
#include <stdlib.h>
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
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for the JSON (%zu bytes of text)",
                               name, size);
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
