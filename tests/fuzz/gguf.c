/* gguf.c: a GGUF file: what is in it, what it says of its model, vocabulary, templates and vectors;
 * where that is a small model, its weights through the names of its architecture. */
#include "../../cli/load/gguf_model.h"
#include "../../runtime/weights/gguf.h"
#include "../../runtime/weights/weight_map.h"
#include "model.h"

enum { MOST_VALUES = 1 << 16 };

static void look(const Gguf *g, const uint8_t *data, size_t n)
{
        char *text;
        Err e;

        for (int i = 0; i < gguf_n_tensors(g); i++) {
                const CkTensor *t = gguf_tensor(g, i);
                int64_t count;
                HOLDS(ck_name_ok(t->name) && t->bytes <= n && (const uint8_t *)t->data >= data &&
                      (const uint8_t *)t->data + t->bytes <= data + n);
                HOLDS(ck_count(t->rank, t->dim, &count) &&
                      (size_t)(count / ck_block_values(t->dtype)) * ck_block_bytes(t->dtype) ==
                              t->bytes);
                HOLDS(gguf_find_tensor(g, t->name) == t);
        }
        for (int i = 0; i < gguf_n_keys(g); i++)
                for (GgufEach x = gguf_each(&gguf_key(g, i)->value); gguf_next(&x);) {
                        size_t k;
                        const uint8_t *s = (const uint8_t *)gguf_string(&x.value, &k);
                        HOLDS(!s || (s >= data && s + k <= data + n));
                }
        HOLDS(!gguf_json(g, &text, &e));
        free(text);
}

static void weights(Model *m, const char *path, const char *names)
{
        WeightParam *p = calloc((size_t)m->graph->n_nodes, sizeof *p);
        WeightMap *map, *more;
        WeightSet set = { .param = p };
        Checkpoint *ck;
        Text text = { 0 };
        int64_t left = MOST_VALUES;
        Err e;

        HOLDS(p);
        for (Ref r = 1; r < m->graph->n_nodes; r++) {
                const Node *n = NODE(m->graph, r);
                int64_t count;
                if (n->op != OP_PARAM)
                        continue;
                p[set.n] = (WeightParam) { .name = n->name,
                                           .dtype = CK_BF16,
                                           .rank = n->type.rank };
                for (int i = 0; i < n->type.rank; i++)
                        p[set.n].dim[i] = n->type.dim[i].n;
                if (ck_count(n->type.rank, p[set.n].dim, &count) && (left -= count) > 0)
                        p[set.n].data = calloc((size_t)count + 1, 2);
                set.n++;
        }
        model_map_text(m, &text);
        HOLDS(!weight_map_parse(&map, text.s ? text.s : "", "map", &e));
        HOLDS(!weight_map_parse(&more, names, "names", &e));
        if (!checkpoint_open(&ck, path, &e)) {
                if (!weight_map_compose(map, more, ck, &e) && left > 0)
                        weight_map_import(map, ck, &set, NULL, &e);
                checkpoint_close(ck);
        }
        for (int i = 0; i < set.n; i++)
                free(p[i].data);
        free(p);
        text_free(&text);
        weight_map_free(map);
        weight_map_free(more);
}

/* A program of its own builds the model of one file in eight, as that takes most of the time. */
static bool gguf_has_turn(const uint8_t *data, size_t n)
{
#ifdef FUZZ_ALONE
        unsigned sum = 0;
        for (size_t i = 0; i < n; i++)
                sum = sum * 31 + data[i];
        return (sum ^ sum >> 16) % 8 == 0;
#else
        return data || !n;
#endif
}

FUZZ(gguf)
{
        const ReadOptions o = { .seconds = FUZZ_SECONDS };
        const char *path = file_of_bytes(data, n);
        ChatSource chat = { 0 };
        Sentence sentence;
        Model *volatile m = NULL;
        Tokenizer *tok;
        GgufModel g;
        Gguf *file;
        Err e;

        if (gguf_parse(&file, data, n, "fuzz", &e)) {
                HOLDS(*e.msg);
                return;
        }
        look(file, data, n);
        gguf_free(file);
        if (!gguf_tokenizer(&tok, path, 0, &e))
                tokenizer_free(tok);
        gguf_chat(&chat, path, &e);
        chat_source_free(&chat);
        HOLDS(!gguf_sentence(&sentence, path, &e) || *e.msg);
        sentence_free(&sentence);
        if (gguf_model(&g, path, n & 1, &e)) {
                HOLDS(*e.msg);
                return;
        }
        HOLDS(!g.config == !g.names);
        if (g.config && gguf_has_turn(data, n))
                READS(m, read_lua_family(NULL, g.config, &o));
        if (m)
                weights(m, path, g.names);
        model_free(m);
        gguf_model_free(&g);
}
