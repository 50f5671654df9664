/* cmd_check.c: tgc check: compares every program of the plan with the reference (check.c) and
 * prints a line for each. */
#include <string.h>
#include "check.h"
#include "../load/open.h"

/* The list for --json, or NULL: lines. */
static void show(void *list, const char *program, const char *what, double err, bool ok)
{
        if (!list) {
                print("%-8s %-44s %10.2e  %s\n", program, what, err, ok ? "ok" : "DIFFERS");
                return;
        }
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "program", program);
        cJSON_AddStringToObject(o, "output", what);
        cJSON_AddNumberToObject(o, "relative_error", err);
        cJSON_AddBoolToObject(o, "ok", ok);
        cJSON_AddItemToArray(list, o);
}

/* Mixtures of experts: what was stored in 16 bits, 2^-9 or 2^-12 off, may choose otherwise than the
 * reference. */
static void say_near(const Session *s, const CheckSum *sum, char *out, size_t cap)
{
        *out = 0;
        if (session_manifest(s)->dtype != STORE_F32 && sum->nearest < 0.02)
                snprintf(out, cap,
                         "; an expert was chosen by %.1e of its probability, and 16 bits may "
                         "choose the next one: --dtype f32 shows whether it is that",
                         sum->nearest);
}

/* Takes the list. */
static int report(const Session *s, const CheckSum *sum, cJSON *list, Err *e)
{
        const char *device = dev_name(session_device(s));
        char near[200];
        int code = TGC_OK;
        say_near(s, sum, near, sizeof near);
        if (list) {
                cJSON *o = cJSON_CreateObject();
                cJSON_AddStringToObject(o, "device", device);
                cJSON_AddNumberToObject(o, "tolerance", sum->tolerance);
                cJSON_AddNumberToObject(o, "differ", sum->bad);
                cJSON_AddNumberToObject(o, "nearest_choice", sum->nearest);
                cJSON_AddItemToObject(o, "results", list);
                code = json_print(o, e);
        } else {
                print("%d of %d agree within %g on %s\n", sum->compared - sum->bad, sum->compared,
                      sum->tolerance, device);
        }
        if (!code && sum->bad)
                code = err_set(
                        e, TGC_CHECK_FAILED,
                        "check: %d of %d outputs differ from the reference by more than %g%s",
                        sum->bad, sum->compared, sum->tolerance, near);
        return code;
}

int cmd_check(const Args *a, Err *e)
{
        Args small = *a;
        Loaded l;
        char path[4400];
        ModelKind kind;
        Session *s = NULL;
        CheckSum sum;
        int code = model_kind(a->pos[0], &kind, path, sizeof path, e);
        if (code)
                return code;
        if (kind != MODEL_PLAN) { /* sizes the reference can follow, odd on purpose */
                if (!opt_set(a, O_BATCH))
                        small.v[O_BATCH].i = 2;
                if (!opt_set(a, O_BLOCK))
                        small.v[O_BLOCK].i = opt_int(a, O_TOKENS);
        }
        /* blocks are frozen, and a file's unless they are random */
        const int type = opt_int(a, O_WEIGHT_TYPE);
        const bool frozen = type != 1 && !a->v[O_LORA].n;
        if ((code = load(&l, &small,
                         &(LoadHow) { .no_weights = type != 0,
                                      .mode = frozen ? BUILD_INFER : BUILD_INFER | BUILD_TRAIN },
                         e)))
                return code;
        const CheckOptions o = { .tolerance = opt_set(a, O_TOLERANCE) ? opt_num(a, O_TOLERANCE)
                                                                      : -1,
                                 .greedy = opt_int(a, O_GREEDY),
                                 .tokens = opt_int(a, O_TOKENS),
                                 .tokens_given = opt_set(a, O_TOKENS),
                                 .seed = (uint64_t)a->v[O_TRAIN_SEED].i };
        const Section *ir = plan_find(&l.plan, "ir");
        cJSON *list = opt_flag(a, O_JSON) ? cJSON_CreateArray() : NULL;
        if (!ir)
                code = err_set(
                        e, TGC_BAD_FILE,
                        "%s: the plan has no section ir, so there is nothing to compare with",
                        path);
        if (!code && !(code = open_session(&s, &l.plan, a, 0, o.seed, NULL, 0, e)) &&
            !(code = offload_check(s, a, e)) &&
            !(code = check_session(s, ir, &o, show, list, &sum, e))) {
                code = report(s, &sum, list, e);
                list = NULL;
        }
        cJSON_Delete(list);
        session_close(s);
        loaded_free(&l);
        return code;
}
