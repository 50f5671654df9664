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

/* The value at p as it is written, without the blanks around its parts: cJSON would make 1 of 1.0.
 * free() it. */
static char *value_text(const char *p)
{
        char *text = malloc(strlen(p) + 1), *to = text;
        int depth = 0;
        bool quoted = false;
        for (; text && *p; p++) {
                if (!quoted && (!depth && strchr(",]}", *p)))
                        break;
                if (!quoted && strchr(" \t\r\n", *p))
                        continue;
                *to++ = *p;
                if (quoted && *p == '\\')
                        *to++ = *++p;
                else if (*p == '"')
                        quoted = !quoted;
                else if (!quoted)
                        depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
        }
        if (text)
                *to = 0;
        return text;
}

/* A whole file; NULL: it cannot be read. */
static char *file_text(const char *path, size_t *n)
{
        FILE *f = fopen(path, "r");
        char *text = NULL;
        *n = 0;
        for (size_t got = 1; f && got;) {
                char *more = realloc(text, *n + (1 << 16) + 1);
                if (!more)
                        break;
                text = more;
                got = fread(text + *n, 1, 1 << 16, f);
                text[ *n += got] = 0;
        }
        if (f)
                fclose(f);
        return text;
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
                JsonText in;
                Json root;
                size_t size;
                char *file = file_text(argv[i], &size);
                cJSON *o = NULL;
                Grammar *g = NULL;
                Matcher *m = NULL;
                double t = now();
                if (!file || json_parse(&o, file, size, argv[i], &e) ||
                    json_open(&in, &root, file, size, argv[i], true, &e)) {
                        printf("unread %s: %s\n", argv[i], e.msg);
                        unread++;
                        cJSON_Delete(o);
                        free(file);
                        continue;
                }
                cJSON *schema = cJSON_GetObjectItem(o, "schema");
                char *text = cJSON_PrintUnformatted(schema);
                if (grammar_schema(&g, text, strlen(text), "schema", &e) ||
                    matcher_new(&m, g, trie, &e)) {
                        printf("refused %s: %s\n", argv[i], e.msg);
                        refused++;
                } else {
                        int yes = 0, no = 0, n = 0;
                        for (JsonEach c = json_each(json_get(root, "tests")); json_next(&c); n++) {
                                char *data = value_text(json_get(c.value, "data").at);
                                matcher_reset(m);
                                bool in = matcher_bytes(m, data, strlen(data)) &&
                                          matcher_complete(m);
                                bool valid = json_type(json_get(c.value, "valid")) == 't';
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
                json_close(&in);
                free(file);
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
