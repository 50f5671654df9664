/* run.c: JSON schemas with instances that are valid and instances that are not, as the folder
 * maskbench/data of guidance-ai/jsonschemabench has them, against runtime/grammar.
 *
 *      schemas FILE...        a line for each file that does not pass, and the counts
 *
 * A file passes when its schema is compiled, its valid instances are texts of the grammar and the others
 * are not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "../../../runtime/grammar/grammar.h"
#include "../../../runtime/util/json.h"

static double now(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
        int passed = 0, refused = 0, wrong_yes = 0, wrong_no = 0, unread = 0;
        double slowest = 0;
        for (int i = 1; i < argc; i++) {
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
                    matcher_new(&m, g, NULL, &e)) {
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
        printf("%d passed, %d refused, %d accept what is not valid, %d reject what is, %d unread; slowest %.2f s\n",
               passed, refused, wrong_yes, wrong_no, unread, slowest);
        return wrong_yes || wrong_no;
}
