/* json.c: the JSON layer.  Its cursors see what the text says, and cJSON agrees that it is JSON. */
#include "fuzz.h"
#include "../../runtime/util/json.h"

static size_t walk_json(Json v, JsonBuf *b)
{
        size_t n = 0, len;
        const char *s;

        switch (json_type(v)) {
        case '"':
                HOLDS((s = json_string(v, b, &len)));
                HOLDS(json_utf8_ok(s, len));
                return len;
        case '0': HOLDS(json_number(v) - json_number(v) == 0); return 1;
        case '[':
        case '{':
                for (JsonEach i = json_each(v); json_next(&i); n++)
                        walk_json(i.value, b);
                HOLDS(n == json_count(v));
                return n;
        default: HOLDS(strchr("tfn", json_type(v)) && json_type(v)); return 0;
        }
}

FUZZ(json)
{
        JsonText in;
        JsonBuf b = { 0 };
        Json root;
        cJSON *tree;
        Err e;

        if (json_open(&in, &root, (const char *)data, n, "x", true, &e)) {
                HOLDS(json_parse(&tree, (const char *)data, n, "x", &e) && !tree);
                return;
        }
        walk_json(root, &b);
        json_get(root, "a");
        json_buf_free(&b);
        json_close(&in);
        if (!json_parse(&tree, (const char *)data, n, "x", &e))
                cJSON_Delete(tree);
        else
                HOLDS(e.code == TGC_BAD_FILE && strstr(e.msg, "NUL"));
}
