/* test_quick_check.c: what compile looks at before kernels are made: a program that is not what the
 * model says is found and named, one that is passes, and a model too large is said to be. */
#include "../cli/check/quick_check.h"
#include "read_models.h"

static const char model[] =
        "{\"tgc_graph\": 1, \"name\": \"small\", \"ctx\": 16, \"nodes\": [\n"
        " {\"name\": \"ids\", \"op\": \"input\", \"type\": \"i32[B,T]\"},\n"
        " {\"name\": \"targets\", \"op\": \"input\", \"type\": \"i32[B,T]\"},\n"
        " {\"name\": \"w\", \"op\": \"param\", \"attr\": {\"init\": 2, \"a\": 0.5}, \"type\": "
        "\"f32[%d,8]\"},\n"
        " {\"name\": \"x\", \"op\": \"gather\", \"in\": [\"w\", \"ids\"], \"loc\": "
        "\"small.lua:4\"},\n"
        " {\"name\": \"heads\", \"op\": \"reshape\", \"in\": [\"x\"], \"type\": "
        "\"f32[B,T,2,4]\"},\n"
        " {\"name\": \"q\", \"op\": \"scale\", \"in\": [\"heads\"], \"attr\": {\"x\": 2.5}, "
        "\"loc\": \"small.lua:6\"},\n"
        " {\"name\": \"att\", \"op\": \"attention\", \"in\": [\"q\", \"heads\", \"heads\"], "
        "\"attr\": {\"scale\": 0.5, \"causal\": 1}, \"loc\": \"small.lua:7\"},\n"
        " {\"name\": \"rows\", \"op\": \"reshape\", \"in\": [\"att\"], \"type\": "
        "\"f32[B,T,8]\"},\n"
        " {\"name\": \"y\", \"op\": \"tanh\", \"in\": [\"rows\"], \"loc\": \"small.lua:9\"},\n"
        " {\"name\": \"l\", \"op\": \"matmul\", \"in\": [\"y\", \"w\"], \"attr\": {\"tb\": 1}, "
        "\"loc\": \"small.lua:10\"},\n"
        " {\"name\": \"ce\", \"op\": \"ce\", \"in\": [\"l\", \"targets\"], \"loc\": "
        "\"small.lua:11\"},\n"
        " {\"name\": \"each\", \"op\": \"reshape\", \"in\": [\"ce\"], \"type\": \"f32[B*T]\"},\n"
        " {\"name\": \"sum\", \"op\": \"sum\", \"in\": [\"each\"]},\n"
        " {\"name\": \"all\", \"op\": \"reshape\", \"in\": [\"sum\"], \"type\": \"f32[]\"},\n"
        " {\"name\": \"one\", \"op\": \"inv_tokens\"},\n"
        " {\"name\": \"loss\", \"op\": \"mul\", \"in\": [\"all\", \"one\"], \"loc\": "
        "\"small.lua:12\"}],\n"
        " \"outputs\": {\"logits\": \"l\", \"loss\": \"loss\"}}";

static char said[400];

/* The model of so many rows, of whose plain form `from` becomes `to`, as if the programs were
 * wrong. */
static int check(int rows, bool logits, bool loss, const char *from, const char *to)
{
        char text[4096];
        Diag d = { 0 };
        Compiled made = { 0 };
        CompileOptions o = { .opt = 3, .infer = true, .train = true, .batch = 2, .cpu = true };
        Model *volatile m = NULL;
        volatile int code = -1;
        snprintf(text, sizeof text, model, rows);
        if (DIAG_CATCH(&d)) {
                m = read_json_text(text, strlen(text), "small.json");
                compile(m, &o, &made);
                diag_end(&d);
                char *at = from ? strstr(made.ir.s, from) : NULL;
                code = from && !at ? -1 : 0;
                if (at)
                        memcpy(at, to, strlen(to));
                if (!code)
                        code = quick_check(m, &o, &made.ir, logits, loss, said, sizeof said, &err);
        }
        compiled_free(&made);
        model_free(m);
        CHECK_MSG(code >= 0, "%s", *d.msg ? d.msg : "no such text in the graph");
        return code;
}

TEST (a_right_model_passes) {
        CHECK_MSG(check(11, true, true, NULL, NULL) == TGC_OK, "%s", err.msg);
        CHECK_MSG(!*said, "%s", said);
}

TEST (a_wrong_decode_program_is_named) {
        CHECK(check(11, true, false, "x=2.5", "x=3.5") == TGC_CHECK_FAILED);
        CHECK_MSG(strstr(err.msg,
                         "small.lua:6: error: quick check: the logits of the decode program") &&
                          strstr(err.msg, "first in %q = scale") && strstr(err.msg, "--no-check"),
                  "%s", err.msg);
}

TEST (a_wrong_step_is_named) {
        CHECK(check(11, false, true, "x=2.5", "x=3.5") == TGC_CHECK_FAILED);
        CHECK_MSG(strstr(err.msg,
                         "small.lua:12: error: quick check: the loss of the training step differs"),
                  "%s", err.msg);
}

TEST (a_model_too_large_is_said_to_be) {
        CHECK_MSG(check(20000000, true, true, NULL, NULL) == TGC_OK, "%s", err.msg);
        CHECK_MSG(strstr(said, "too large"), "%s", said);
}

TEST_MAIN
