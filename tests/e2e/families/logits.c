/* logits.c: what variants.py asks of tgc, without kernels: a folder's configuration, its weights,
 * its logits.
 *
 * One request a line on standard input, one answer on standard output:
 *
 *      logits DIR N ID...      DIR/got.f64 gets N x vocabulary numbers        ok
 *      size DIR                parameters, and the context                    ok N CTX
 *                              what was wrong, and the exit code              error CODE MESSAGE */
#include "../../eval_models.h"

static int configured(const char *dir, Model **m, char msg[2048])
{
        char *config = NULL;
        Diag d;
        ReadOptions o = options(NULL);
        d.source = NULL;
        if (hf_config_read(dir, &config, &err)) {
                snprintf(msg, 2048, "%s", err.msg);
                return err.code;
        }
        if (DIAG_CATCH(&d)) {
                *m = read_lua_family(NULL, config, &o);
                diag_end(&d);
                free(config);
                return 0;
        }
        free(config);
        snprintf(msg, 2048, "%s", d.msg);
        return d.code ? d.code : 3;
}

/* Outside of training. */
static void no_dropout(Graph *g)
{
        for (Ref r = 1; r < g->n_nodes; r++) {
                Node *n = NODE(g, r);
                if (n->op == OP_DROPOUT)
                        n->a.drop.p = 0;
                if (n->op == OP_ATTENTION)
                        n->a.att.p = 0;
        }
}

static void logits(const char *dir, Model *m, char *ids)
{
        double id[4096];
        char path[4200];
        int n = (int)strtol(ids, &ids, 10);
        int64_t count;
        CHECK(n > 0 && n <= 4096);
        for (int i = 0; i < n; i++)
                id[i] = (double)strtol(ids, &ids, 10);
        no_dropout(m->graph);
        Loaded l = load(m, dir);
        Eval *e = evaluate(&l, 1, n, id, id);
        const double *got = eval_output(e, "logits", &count);
        snprintf(path, sizeof path, "%s/got.f64", dir);
        FILE *f = fopen(path, "wb");
        CHECK(f && fwrite(got, sizeof *got, (size_t)count, f) == (size_t)count && !fclose(f));
        eval_free(e);
        unload(&l);
        printf("ok\n");
}

static void answer(char *line)
{
        char word[16], dir[4096], msg[2048] = "";
        int used = 0;
        Model *m = NULL;
        if (sscanf(line, "%15s %4095s %n", word, dir, &used) < 2)
                return;
        int code = configured(dir, &m, msg);
        if (code) {
                printf("error %d %.*s\n", code, (int)strcspn(msg, "\n"), msg);
        } else if (!strcmp(word, "size")) {
                printf("ok %lld %lld\n", (long long)n_params(m), (long long)m->ctx);
                model_free(m);
        } else if (setjmp(test_out)) {
                printf("error 3 weights\n"); /* CHECK printed a line before */
        } else {
                logits(dir, m, line + used);
        }
}

int main(void)
{
        static char line[1 << 16];
        (void)test_end, (void)test_skip_reason;
        while (fgets(line, sizeof line, stdin)) {
                answer(line);
                fflush(stdout);
        }
        return 0;
}
