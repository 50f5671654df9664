/* test_token_axis.c: which graphs may generate text token by token, and which line is named where
 * one may not; and the rows that a mask needs. */
#include "graph_test.h"
#include "../compiler/compiler.h"

/* Between ids, %x (B,T,8), and %y, which logits are made of. */
static const char before[] = "graph @g(%ids: i32[B,T]) {\n"
                             "  %table = param : f32[9,8]\n"
                             "  %x = gather %table, %ids : f32[B,T,8]\n",
                  after[] = "  %head = param : f32[9,8]\n"
                            "  %logits = matmul %y, %head {tb=1} : f32[B,T,9]\n"
                            "  return logits=%logits\n}\n";

/* The message, or "". */
static const char *verdict(const char *middle)
{
        static char text[8192], msg[2048];
        Diag d = { 0 };
        Graph *volatile g = NULL;
        snprintf(text, sizeof text, "%s%s%s", before, middle, after);
        msg[0] = 0;
        if (DIAG_CATCH(&d)) {
                g = graph_parse(text, "g.tg");
                check_token_axis(&(Model) { .graph = g });
                diag_end(&d);
        } else {
                snprintf(msg, sizeof msg, "%s", d.msg);
        }
        graph_free(g);
        return msg;
}

#define Q4 "  %q = reshape %x : f32[B,T,2,4]\n"
#define MOE                                                                          \
        "  %r = reshape %x : f32[B*T,8]\n"                                           \
        "  %wr = param : f32[3,8]\n"                                                 \
        "  %s = matmul %r, %wr {tb=1} : f32[B*T,3]\n"                                \
        "  %p = softmax %s : f32[B*T,3]\n"                                           \
        "  %g = topk %p {k=2} : f32[B*T,2]\n"                                        \
        "  %c = item %g {index=1} : i32[B*T,2]\n"                                    \
        "  %slots = reshape %c : i32[2*B*T]\n"                                       \
        "  %perm = bucket %slots {k=3} : i32[2*B*T]\n"                               \
        "  %offs = item %perm {index=1} : i32[4]\n  %wu = param : f32[3,5,8]\n"      \
        "  %u = expert_matmul %r, %wu, %perm, %offs {tb=1, adiv=2} : f32[2*B*T,5]\n" \
        "  %h = silu %u : f32[2*B*T,5]\n"                                            \
        "  %wd = param : f32[3,8,5]\n"

TEST (accepted) {
        static const char *const good[] = {
                "  %y = rmsnorm %x : f32[B,T,8]\n",
                Q4 "  %a = attention %q, %q, %q {scale=0.5, causal=1, window=3, softcap=2} : "
                   "f32[B,T,2,4]\n"
                   "  %y = reshape %a : f32[B,T,8]\n",
                Q4
                "  %f = const {data=1:0.5} : f32[2]\n"
                "  %t = rope %q, %f : f32[B,T,2,4]\n"
                "  %sl = const {data=0.5:0.25} : f32[2]\n"
                "  %a = attention %t, %t, %q, %sl {scale=0.5, causal=1, alibi=1} : f32[B,T,2,4]\n"
                "  %y = reshape %a : f32[B,T,8]\n",
                "  %at = position : i32[B,T]\n"
                "  %w = param : f32[64,8]\n"
                "  %e = gather %w, %at : f32[B,T,8]\n"
                "  %y = add %x, %e : f32[B,T,8]\n",
                /* there and back; a product of heads within a token; a mean over a token's own
                 * channels */
                Q4 "  %t = transpose %q {perm=0:2:1:3} : f32[B,2,T,4]\n"
                   "  %b = transpose %t {perm=0:2:1:3} : f32[B,T,2,4]\n"
                   "  %y = reshape %b : f32[B,T,8]\n",
                Q4 "  %m = matmul %q, %q {tb=1} : f32[B,T,2,2]\n"
                   "  %s = softmax %m : f32[B,T,2,2]\n"
                   "  %o = matmul %s, %q : f32[B,T,2,4]\n"
                   "  %y = reshape %o : f32[B,T,8]\n",
                "  %s = sum %x : f32[B,T,1]\n  %y = sub %x, %s : f32[B,T,8]\n",
                "  %r = reshape %x : f32[2*B*T,4]\n"
                "  %n = rmsnorm %r : f32[2*B*T,4]\n"
                "  %y = reshape %n : f32[B,T,8]\n",
                "  %z = fill {x=1} : f32[B,T,8]\n  %y = mul %x, %z : f32[B,T,8]\n",
                "  %o = param : f32[8]\n"
                "  %e = expand %o : f32[B,T,8]\n"
                "  %y = mul %x, %e : f32[B,T,8]\n",
                "  %l = slice %x {axis=2, len=4} : f32[B,T,4]\n"
                "  %k = slice %x {axis=2, start=4, len=4} : f32[B,T,4]\n"
                "  %y = concat %k, %l : f32[B,T,8]\n",
                MOE "  %d = expert_matmul %h, %wd, %perm, %offs {tb=1, scatter=1} : f32[2*B*T,8]\n"
                    "  %dr = reshape %d : f32[B*T,2,8]\n"
                    "  %mix = combine %dr, %g : f32[B*T,8]\n"
                    "  %y = reshape %mix : f32[B,T,8]\n",
                /* a bias for each expert's rows */
                MOE "  %bias = param : f32[3,5]\n"
                    "  %own = gather %slots, %perm : i32[2*B*T]\n"
                    "  %rows = gather %bias, %own : f32[2*B*T,5]\n"
                    "  %hb = add %h, %rows : f32[2*B*T,5]\n"
                    "  %d = expert_matmul %hb, %wd, %perm, %offs {tb=1, scatter=1} : f32[2*B*T,8]\n"
                    "  %dr = reshape %d : f32[B*T,2,8]\n"
                    "  %mix = combine %dr, %g : f32[B*T,8]\n"
                    "  %y = reshape %mix : f32[B,T,8]\n",
        };
        for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
                const char *msg = verdict(good[i]);
                CHECK_MSG(!*msg, "%s\n    %s", good[i], msg);
        }
}

TEST (refused) {
        static const struct {
                const char *graph, *at, *why;
        } bad[] = {
                { "  %m = matmul %x, %x {tb=1} : f32[B,T,T]\n  %y = matmul %m, %x : f32[B,T,8]\n",
                  "g.tg:4", "matmul: %m has a value for each two tokens" },
                /* read by nothing */
                { "  %w = param : f32[8,T]\n  %y = add %x, %x : f32[B,T,8]\n", "", "" },
                { "  %t = transpose %x {perm=0:2:1} : f32[B,8,T]\n  %s = softmax %t : f32[B,8,T]\n"
                  "  %y = transpose %s {perm=0:2:1} : f32[B,T,8]\n",
                  "g.tg:5", "softmax: %s works along the axis of tokens" },
                { "  %t = transpose %x {perm=0:2:1} : f32[B,8,T]\n"
                  "  %s = sum %t : f32[B,8,1]\n"
                  "  %r = reshape %s : f32[B,1,8]\n"
                  "  %y = sub %x, %r : f32[B,T,8]\n",
                  "g.tg:5", "sum: %s works along the axis of tokens" },
                { "  %r = reshape %x : f32[B*T,8]\n"
                  "  %s = colsum %r {k=1} : f32[8]\n"
                  "  %y = sub %x, %s : f32[B,T,8]\n",
                  "g.tg:5", "colsum: %s sums over tokens" },
                { "  %s = colsum %x {k=1} : f32[T,8]\n  %y = sub %x, %s : f32[B,T,8]\n", "g.tg:4",
                  "sums over tokens" },
                { "  %t = reshape %x : f32[T,B,8]\n"
                  "  %n = neg %t : f32[T,B,8]\n"
                  "  %y = reshape %n : f32[B,T,8]\n",
                  "g.tg:4", "in another order" },
                { "  %t = reshape %x : f32[B,8,T]\n"
                  "  %n = neg %t : f32[B,8,T]\n"
                  "  %y = reshape %n : f32[B,T,8]\n",
                  "g.tg:4", "in another order" },
                { "  %t = transpose %x {perm=1:0:2} : f32[T,B,8]\n  %y = reshape %t : f32[B,T,8]\n",
                  "g.tg:5", "in another order" },
                { "  %w = fill {x=1} : f32[T,T]\n"
                  "  %t = transpose %x {perm=0:2:1} : f32[B,8,T]\n"
                  "  %m = matmul %t, %w : f32[B,8,T]\n"
                  "  %y = transpose %m {perm=0:2:1} : f32[B,T,8]\n",
                  "g.tg:6", "sums over tokens" },
                { "  %at = position : i32[B,T]\n"
                  "  %i = reshape %at : i32[B,T,1]\n"
                  "  %j = reshape %at : i32[B,1,T]\n"
                  "  %m = gt %i, %j : f32[B,T,T]\n"
                  "  %s = sum %m : f32[B,T,1]\n"
                  "  %y = add %x, %s : f32[B,T,8]\n",
                  "g.tg:7", "for each two tokens" },
                { Q4 "  %a = attention %q, %q, %q {scale=0.5} : f32[B,T,2,4]\n"
                     "  %y = reshape %a : f32[B,T,8]\n",
                  "g.tg:5", "later, for it has causal=0" },
                { Q4 "  %a = attention %q, %q, %q {scale=0.5, window=4} : f32[B,T,2,4]\n"
                     "  %y = reshape %a : f32[B,T,8]\n",
                  "g.tg:5", "causal=0" },
                { Q4
                  "  %k = param : f32[9,9]\n"
                  "  %a = attention %q, %q, %q, %k {scale=0.5, causal=1, mask=1} : f32[B,T,2,4]\n"
                  "  %y = reshape %a : f32[B,T,8]\n",
                  "g.tg:6", "has a mask" },
                { Q4 "  %t = transpose %q {perm=0:2:1:3} : f32[B,2,T,4]\n"
                     "  %a = attention %t, %t, %t {scale=0.5, causal=1} : f32[B,2,T,4]\n"
                     "  %b = transpose %a {perm=0:2:1:3} : f32[B,T,2,4]\n"
                     "  %y = reshape %b : f32[B,T,8]\n",
                  "g.tg:6", "something else than tokens on the second axis" },
                { Q4 "  %t = transpose %q {perm=0:2:1:3} : f32[B,2,T,4]\n"
                     "  %f = const {data=1:0.5} : f32[2]\n"
                     "  %a = rope %t, %f : f32[B,2,T,4]\n"
                     "  %b = transpose %a {perm=0:2:1:3} : f32[B,T,2,4]\n"
                     "  %y = reshape %b : f32[B,T,8]\n",
                  "g.tg:7", "second axis" },
                { "  %r = reshape %x : f32[B*T,8]\n"
                  "  %n = gather %r, %ids : f32[B,T,8]\n"
                  "  %y = add %x, %n : f32[B,T,8]\n",
                  "g.tg:5", "picks among tokens" },
                { "  %n = inv_tokens : f32[]\n  %y = mul %x, %n : f32[B,T,8]\n", "g.tg:4",
                  "targets" },
                { MOE "  %of = cast %offs : f32[4]\n"
                      "  %sm = sum %of : f32[1]\n"
                      "  %y = mul %x, %sm : f32[B,T,8]\n",
                  "g.tg:17", "how many tokens each bucket has" },
                /* rows that were never put back */
                { MOE "  %d = expert_matmul %h, %wd, %perm, %offs {tb=1} : f32[2*B*T,8]\n"
                      "  %dr = reshape %d : f32[B*T,2,8]\n"
                      "  %mix = combine %dr, %g : f32[B*T,8]\n"
                      "  %y = reshape %mix : f32[B,T,8]\n",
                  "g.tg:18", "order of experts" },
                { MOE "  %d = expert_matmul %h, %wd, %perm, %offs {tb=1} : f32[2*B*T,8]\n"
                      "  %bg = param : f32[2,8]\n"
                      "  %e = expand %x : f32[B,T,8]\n"
                      "  %xx = concat %x, %e : f32[B,T,16]\n"
                      "  %x2 = reshape %xx : f32[2*B*T,8]\n"
                      "  %m = add %d, %x2 : f32[2*B*T,8]\n"
                      "  %mr = reshape %m : f32[B*T,2,8]\n"
                      "  %c1 = combine %mr : f32[B*T,8]\n"
                      "  %y = reshape %c1 : f32[B,T,8]\n",
                  "g.tg:22", "beside rows in another" },
        };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                const char *msg = verdict(bad[i].graph);
                CHECK_MSG(strstr(msg, bad[i].at) && strstr(msg, bad[i].why),
                          "wanted %s %s\n    got %s\n%s", bad[i].at, bad[i].why, msg, bad[i].graph);
                CHECK(!*bad[i].why || strstr(msg, "compile with --mode train"));
        }
}

/* The message of a mask of `type` beside 16 tokens, or "". */
static const char *mask_verdict(const char *type)
{
        static char text[512], msg[2048];
        CompileOptions o = { .train = true };
        Graph *volatile g = NULL;
        Diag d = { 0 };
        snprintf(text, sizeof text,
                 "graph @g(%%q: f32[B,T,4,8]) {\n  %%m = param : f32[%s]\n"
                 "  %%y = attention %%q, %%q, %%q, %%m {mask=1} : f32[B,T,4,8]\n  return %%y\n}\n",
                 type);
        msg[0] = 0;
        if (DIAG_CATCH(&d)) {
                g = graph_parse(text, "g.tg");
                check_tables(&(Model) { .graph = g, .arena = g->arena, .ctx = 16 }, &o, 16, 16);
                diag_end(&d);
        } else {
                snprintf(msg, sizeof msg, "%s", d.msg);
        }
        graph_free(g);
        return msg;
}

TEST (masks_have_a_row_for_each_token_or_one) {
        CHECK_MSG(!*mask_verdict("16,16") && !*mask_verdict("1,17") && !*mask_verdict("16") &&
                          !*mask_verdict("1,20,16"),
                  "%s", mask_verdict("16,16"));
        CHECK_MSG(strstr(mask_verdict("15,16"), "mask %m has 15 rows"), "%s",
                  mask_verdict("15,16"));
        CHECK_MSG(strstr(mask_verdict("1,15"), "mask %m has 15 columns"), "%s",
                  mask_verdict("1,15"));
}

TEST_MAIN
