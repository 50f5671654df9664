/* run.c: JSON schemas with instances that are valid and instances that are not, as the folder
 * maskbench/data of guidance-ai/jsonschemabench has them, against runtime/grammar.
 *
 *      schemas FILE...                    a line for each file that does not pass, and the counts
 *      schemas --tokens LIST FILE...      and the time of masks over the tokens of LIST: a line
 *                                         each, or tiktoken's lines, base64 and a number
 *
 * A file passes when its schema is compiled, its valid instances are texts of the grammar and the
 * others are not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "../../../runtime/grammar/grammar.h"
#include "../../../runtime/util/json.h"

/* ---- masks ---- */

enum { MAX_VOCAB = 1 << 18, MAX_TIMES = 1 << 22 };
static char *piece[MAX_VOCAB];
static size_t length[MAX_VOCAB];
static int vocab;
static int *begins[1 << 16], n_begins[1 << 16]; /* tokens by their first two bytes */
static TokenTrie *trie;
static double *times;
static uint64_t hash = 0xcbf29ce484222325; /* of all masks (FNV-1a) */
static int n_times;

static int by_time(const void *x, const void *y)
{
        const double *a = x, *b = y;
        return (*a > *b) - (*a < *b);
}

/* Of a line "BASE64 NUMBER"; 0: it is none. */
static size_t base64(const char *line, char *out)
{
        static const char digits[] =
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        size_t at = strcspn(line, " ="), n = 0;
        unsigned bits = 0;
        const char *rest = line + at + strspn(line + at, "=");
        if (*rest != ' ' || !rest[1] || rest[1 + strspn(rest + 1, "0123456789")])
                return 0;
        for (size_t i = 0; i < at; i++) {
                const char *d = strchr(digits, line[i]);
                if (!d)
                        return 0;
                bits = bits << 6 | (unsigned)(d - digits);
                if (i % 4)
                        out[n++] = (char)(bits >> (6 - i % 4 * 2));
        }
        return n;
}

/* A token of one byte has 0 for its second. */
static int first_bytes(const char *p, size_t n)
{
        return n ? (unsigned char)p[0] << 8 | (n > 1 ? (unsigned char)p[1] : 0) : 0;
}

static int read_tokens(const char *path)
{
        char line[4096], decoded[4096];
        FILE *f = fopen(path, "r");
        Err e;
        int eos = 0;
        piece[vocab++] = strdup("");
        while (f && vocab < MAX_VOCAB && fgets(line, sizeof line, f)) {
                line[strcspn(line, "\n")] = 0;
                const size_t n = base64(line, decoded);
                length[vocab] = n ? n : strlen(line);
                piece[vocab] = malloc(length[vocab] + 1);
                if (!piece[vocab])
                        return 1;
                memcpy(piece[vocab], n ? decoded : line, length[vocab]);
                vocab++;
        }
        for (int i = 1; i < vocab; i++) {
                const int b = first_bytes(piece[i], length[i]);
                if (!(n_begins[b] & (n_begins[b] - 1)))
                        begins[b] = realloc(begins[b], (size_t)(2 * n_begins[b] + 1) * sizeof(int));
                begins[b][n_begins[b]++] = i;
        }
        times = malloc(MAX_TIMES * sizeof *times);
        return !f || !times ||
               token_trie_of(&trie, (const char *const *)piece, length, vocab, &eos, 1, &e);
}

static double now(void)
{
        struct timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The longest token that the text goes on with, each time. */
static void time_masks(Matcher *m, const char *text)
{
        for (size_t n = strlen(text); n && n_times < MAX_TIMES;) {
                double t = now();
                const uint32_t *mask = matcher_mask(m);
                t = now() - t;
                for (int i = 0; i < (vocab + 31) / 32 && mask; i++)
                        hash = (hash ^ mask[i]) * 0x100000001b3;
                int best = -1;
                for (int two = 0; two < 2 && mask; two++) {
                        const int b = first_bytes(text, two && n > 1 ? 2 : 1);
                        for (int k = 0; k < n_begins[b]; k++) {
                                const int i = begins[b][k];
                                if (length[i] <= n && length[i] > (best < 0 ? 0 : length[best]) &&
                                    mask[i / 32] >> i % 32 & 1 &&
                                    !memcmp(piece[i], text, length[i]))
                                        best = i;
                        }
                }
                if (best < 0)
                        return;
                double u = now();
                matcher_token(m, best);
                times[n_times++] = t + now() - u;
                text += length[best];
                n -= length[best];
        }
}

int main(int argc, char **argv)
{
        int passed = 0, refused = 0, wrong_yes = 0, wrong_no = 0, unread = 0;
        double slowest = 0;
        int first = 1;
        if (argc > 2 && !strcmp(argv[1], "--tokens")) {
                if (read_tokens(argv[2]))
                        return 1;
                first = 3;
        }
        for (int i = first; i < argc; i++) {
                Err e = { 0, "" };
                cJSON *o = NULL;
                Grammar *g = NULL;
                Matcher *m = NULL;
                double t = now();
                if (json_read(&o, argv[i], 1 << 28, &e)) {
                        printf("unread %s: %s\n", argv[i], e.msg);
                        unread++;
                        continue;
                }
                cJSON *schema = cJSON_GetObjectItem(o, "schema"),
                      *tests = cJSON_GetObjectItem(o, "tests");
                char *text = cJSON_PrintUnformatted(schema);
                if (grammar_schema(&g, text, strlen(text), "schema", &e) ||
                    matcher_new(&m, g, trie, &e)) {
                        printf("refused %s: %s\n", argv[i], e.msg);
                        refused++;
                } else {
                        int yes = 0, no = 0, n = 0;
                        for (const cJSON *c = tests ? tests->child : NULL; c; c = c->next, n++) {
                                char *data = cJSON_PrintUnformatted(cJSON_GetObjectItem(c, "data"));
                                matcher_reset(m);
                                bool in = matcher_bytes(m, data, strlen(data)) &&
                                          matcher_complete(m);
                                bool valid = cJSON_IsTrue(cJSON_GetObjectItem(c, "valid"));
                                if (trie && in) {
                                        matcher_reset(m);
                                        time_masks(m, data);
                                }
                                if (in != valid)
                                        printf("%s %s: test %d: %.300s\n",
                                               in ? "accepted" : "rejected", argv[i], n, data);
                                yes += in && !valid;
                                no += !in && valid;
                                free(data);
                        }
                        wrong_yes += yes > 0;
                        wrong_no += no > 0 && !yes;
                        passed += !yes && !no;
                }
                t = now() - t;
                slowest = t > slowest ? t : slowest;
                if (t > 1)
                        printf("slow %s: %.1f s\n", argv[i], t);
                free(text);
                matcher_free(m);
                grammar_free(g);
                cJSON_Delete(o);
        }
        printf("%d passed, %d refused, %d accept what is not valid, %d reject what is, %d unread; "
               "slowest %.2f s\n",
               passed, refused, wrong_yes, wrong_no, unread, slowest);
        if (n_times) {
                double sum = 0;
                qsort(times, (size_t)n_times, sizeof *times, by_time);
                for (int i = 0; i < n_times; i++)
                        sum += times[i];
                printf("%d masks over %d tokens: median %.1f us, mean %.1f, 90%% %.1f, 99%% %.1f, "
                       "most %.0f; hash %016llx\n",
                       n_times, vocab, 1e6 * times[n_times / 2], 1e6 * sum / n_times,
                       1e6 * times[n_times * 9 / 10], 1e6 * times[(size_t)n_times * 99 / 100],
                       1e6 * times[n_times - 1], (unsigned long long)hash);
        }
        return wrong_yes || wrong_no;
}
