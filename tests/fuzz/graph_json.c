/* graph_json.c: a graph in JSON */
#include "model.h"

FUZZ(graph_json)
{
        char *text = text_of_bytes(data, n);
        Model *volatile m;

        READS(m, read_json_text(text, n, "fuzz.json"));
        if (m)
                use_model(m);
        model_free(m);
        free(text);
}
