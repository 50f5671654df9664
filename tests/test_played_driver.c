/* test_played_driver.c: CUDA over a driver that is played by tests/fake_cuda.c. */
#include <dlfcn.h>
#include "../runtime/device/cuda_api.h"
#include "session_checks.h"

static const char fake_extra[] =
        "#include <string.h>\n"
        "int fake_n_args(const char *name)\n{\n"
        "        return !strcmp(name, \"k_logits\") ? 5 : !strcmp(name, \"k_sample\") ? 4\n"
        "             : !strcmp(name, \"k_grad\") ? 6 : !strcmp(name, \"k_maps\") ? 4 : 7;\n}\n"
        "unsigned fake_maps(const char *name) { return !strcmp(name, \"k_maps\") ? 1 << 1 | 1 << "
        "3 : 0; }\n"
        "void k_maps(const Rt *rt, void *const *arg)\n{\n"
        "        memcpy(arg[2], arg[1], 128);\n"
        "        memcpy((char *)arg[2] + 128, arg[3], 128);\n}\n";

/* Make libcuda.so.1 known to the loader; what dlopen finds is this one from then on. */
static void *load_fake_driver(void)
{
        char dir[512], path[640], command[2048], *file;
        void *lib = dlopen("libcuda.so.1", RTLD_NOW);
        HostCc cc;
        size_t n;
        Err e;

        if (lib && dlsym(lib, "fake_live"))
                return lib;
        if (lib)
                SKIP("there is a real driver");
        if (host_cc_find(&cc, 0, &e))
                SKIP("no C compiler");
        CHECK(!tmpdir_make(dir, &e));
        snprintf(path, sizeof path, "%s/kernels.c", dir);
        file = malloc(sizeof source_cpu + sizeof fake_extra);
        n = (size_t)sprintf(file, "%s%s", source_cpu, fake_extra);
        CHECK(!file_write_atomic(path, file, n, &e));
        snprintf(path, sizeof path, "%s/small.h", dir);
        CHECK(!file_write_atomic(path, small_h, sizeof small_h - 1, &e));
        free(file);
        snprintf(command, sizeof command,
                 "%s -w -D_GNU_SOURCE -O1 -shared -fPIC -Iruntime -Wl,-soname,libcuda.so.1 -o "
                 "%s/libcuda.so.1 %s/kernels.c tests/fake_cuda.c -ldl -lm",
                 cc.command, dir, dir);
        CHECK_MSG(!system(command), "%s", command);
        snprintf(path, sizeof path, "%s/libcuda.so.1", dir);
        lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
        CHECK_MSG(lib, "%s", dlerror());
        tmpdir_remove(dir);
        return lib;
}

TEST (played_driver) {
        void *lib = load_fake_driver();
        int *live = dlsym(lib, "fake_live"), *replays = dlsym(lib, "fake_replays");
        int *launches = dlsym(lib, "fake_launches");
        Nvrtc n;
        if (nvrtc_open(&n, 0, 0))
                SKIP("no NVRTC");
        check_inference(DEV_CUDA);
        CHECK_MSG(*live == 0, "%d things were not given back", *live);
        CHECK(*launches > 0 && *replays > 0);
        check_score(DEV_CUDA);
        check_training(DEV_CUDA);
        check_timing(DEV_CUDA);
        CHECK_MSG(*live == 0, "%d things were not given back", *live);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        check_memory_returns(&p);
        plan_close(&p);
        CHECK_MSG(*live == 0, "%d things were not given back", *live);
        DevOptions each = { .sync = 1 };
        Device *d;
        Err e;
        CHECK(!dev_open(&d, DEV_CUDA, &each, &e) && !dev_can_capture(d) &&
              strstr(dev_name(d), "sm_90a"));
        Ceiling most; /* a clock of 132 kHz, 132 multiprocessors, half a millisecond a copy */
        CHECK(!dev_ceiling(d, &most, &e) && most.flops[1] == 132e3 * 132 * 4096 &&
              most.bytes > 5e11 && most.bytes < 6e11);
        static char big[50 << 20]; /* more than the pinned memory holds */
        static char back[sizeof big];
        void *mem;
        for (size_t i = 0; i < sizeof big; i++)
                big[i] = (char)(i * 31 >> 3);
        CHECK(!dev_alloc(d, sizeof big, &mem, &e) && !dev_download(d, back, mem, 99, &e) &&
              back[7] == 0);
        CHECK(!dev_upload(d, mem, big, sizeof big, &e) &&
              !dev_download(d, back, mem, sizeof back, &e));
        CHECK(!memcmp(big, back, sizeof big));
        dev_free(d, mem, sizeof big);
        dev_close(d);
        CHECK(*live == 0);
        each.index = 1;
        CHECK(dev_open(&d, DEV_CUDA, &each, &e) == TGC_NO_DEVICE && *live == 0);
}

/* Tensor maps come by value, launched and in a graph, and are of the arena's matrices. */
TEST (played_driver_maps) {
        void *lib = load_fake_driver();
        int *live = dlsym(lib, "fake_live"), *replays = dlsym(lib, "fake_replays"),
            before = *replays;
        uint64_t seen[2][16];
        Nvrtc n;
        Err e;
        if (nvrtc_open(&n, 0, 0))
                SKIP("no NVRTC");
        Plan p = make_plan(
                manifest,
                PROGRAM("",
                        "w+0") "kernel k_maps unit infer threads 32 smem 0 args 4 flops 0 bytes 0 "
                               "title maps\n"
                               "map 0 tf32 w+16 2 8 12\n"
                               "map 1 f16 act+32 5 24 32\n"
                               "program maps B 1 T 1\n"
                               "io seen i32 act+4096 64\n"
                               "run k_maps grid 1 args rt map:1 act+4096 map:0\nend\n");
        Session *s = open_on(&p, DEV_CUDA, SESSION_INFER);
        const char *w = ref_mem(s, (Ref) { program_arena(&s->p, "w"), 0 }),
                   *act = ref_mem(s, (Ref) { program_arena(&s->p, "act"), 0 });
        for (int i = 0; i < 5; i++) {
                CHECK_MSG(!session_run(s, "maps", 1, 1, &e), "%s", e.msg);
                CHECK_MSG(!session_read(s, "maps", "seen", seen, sizeof seen, &e), "%s", e.msg);
                CHECK(seen[0][0] == (uintptr_t)(act + 32) && seen[0][1] == 24 && seen[0][2] == 5 &&
                      seen[0][3] == 64);
                CHECK(seen[1][0] == (uintptr_t)(w + 16) && seen[1][1] == 8 && seen[1][2] == 2 &&
                      seen[1][3] == 48);
                CHECK(seen[0][15] == 0x7777777777777777 && seen[1][15] == seen[0][15]);
        }
        CHECK(*replays > before);
        session_close(s);
        plan_close(&p);
        CHECK_MSG(*live == 0, "%d things were not given back", *live);
}

/* Programs that are not ready when the session opens get their kernels when they first run, never
 * inside of a graph. */
TEST (played_driver_loads_what_runs) {
        void *lib = load_fake_driver();
        int *live = dlsym(lib, "fake_live");
        SessionOptions o = { .device = DEV_CUDA, .dev.no_cache = 1, .ready = "score decode" };
        TrainStep in = { .B = 1,
                         .T = 2,
                         .n_micro = 1,
                         .ids = (int[]) { 1, 2 },
                         .targets = (int[]) { 3, 4 },
                         .lr = 0.1 };
        TrainResult r;
        Session *s;
        Nvrtc n;
        Err e;
        if (nvrtc_open(&n, 0, 0))
                SKIP("no NVRTC");
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        CHECK_MSG(!session_open(&s, &p, &o, &e), "%s", e.msg);
        const char *note = dev_load_note(session_device(s));
        CHECK_MSG(!strncmp(note, "1 unit compiled, 0 from the cache", 33), "%s", note);
        CHECK(s->prog[program_find(&s->p, "decode3") - s->p.prog].ready &&
              s->prog[program_find(&s->p, "score") - s->p.prog].ready);
        CHECK(!s->prog[program_find(&s->p, "decode") - s->p.prog].ready &&
              !s->prog[program_find(&s->p, "step") - s->p.prog].ready);
        for (in.step = 0; in.step < 5; in.step++)
                CHECK_MSG(!session_train_step(s, &in, &r, &e), "%s", e.msg);
        CHECK_MSG(!session_prefill(s, (int[]) { 1, 2, 3 }, 1, 3, &e) &&
                          !session_decode(s, 0, 5, 0, 0, &e),
                  "%s", e.msg);
        CHECK_MSG(!strncmp(note, "2 units compiled, 0 from the cache", 34), "%s", note);
        session_close(s);
        o.ready = "", o.batch = 1;
        CHECK_MSG(!session_open(&s, &p, &o, &e), "%s", e.msg);
        CHECK(!strncmp(dev_load_note(session_device(s)), "0 units", 7));
        CHECK_MSG(!session_prefill(s, (int[]) { 1, 2, 3 }, 1, 3, &e) &&
                          !session_decode(s, 0, 5, 0, 0, &e),
                  "%s", e.msg);
        session_close(s);
        plan_close(&p);
        CHECK_MSG(*live == 0, "%d things were not given back", *live);
}

/* Sequences of a batch come and go, and no compiler starts then: the programs for fewer are ready,
 * too. */
TEST (played_driver_is_ready_for_fewer_sequences) {
        void *lib = load_fake_driver();
        int *live = dlsym(lib, "fake_live");
        SessionOptions o = { .device = DEV_CUDA, .dev.no_cache = 1, .ready = "decode" };
        char paged[sizeof manifest + 20];
        Session *s;
        Nvrtc n;
        Err e;
        if (nvrtc_open(&n, 0, 0))
                SKIP("no NVRTC");
        snprintf(paged, sizeof paged, "%s%s", manifest, "pages 6\n");
        /* of which those that take ragged calls are named otherwise */
        static const char *const ragged[] = { "program prefill ", "program score " };
        char *text = strdup(PROGRAM("", "w+0")), *at;
        for (int i = 0; i < 2; i++)
                while ((at = strstr(text, ragged[i])))
                        at[8] = 'x';
        Plan p = make_plan(paged, text);
        for (o.batch = 1; o.batch <= 3; o.batch += 2) {
                CHECK_MSG(!session_open(&s, &p, &o, &e), "%s", e.msg);
                CHECK(s->prog[program_find(&s->p, "decode") - s->p.prog].ready);
                CHECK(s->prog[program_find(&s->p, "decode3") - s->p.prog].ready == (o.batch == 3));
                session_close(s);
        }
        free(text);
        plan_close(&p);
        CHECK_MSG(*live == 0, "%d things were not given back", *live);
}

/* Memory that is not there: exit 5 with how much was wanted and how much there is, from a device
 * and from a session, and nothing is kept. */
TEST (played_driver_out_of_memory) {
        void *lib = load_fake_driver();
        int *live = dlsym(lib, "fake_live");
        size_t *room = dlsym(lib, "fake_room"), whole = *room;
        Device *d;
        void *mem;
        Session *s;
        Err e;
        CHECK(!dev_open(&d, DEV_CUDA, &(DevOptions) { 0 }, &e));
        CHECK(dev_alloc(d, (size_t)40 << 30, &mem, &e) == TGC_NO_MEMORY && TGC_NO_MEMORY == 5);
        CHECK_MSG(strstr(e.msg, "Fake GPU") && strstr(e.msg, "42.95 GB needed, ") &&
                          strstr(e.msg, " of 17.18 GB free"),
                  "%s", e.msg);
        dev_close(d);
        CHECK_MSG(*live == 0, "%d things were not given back", *live);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        *room = 64;
        CHECK(session_open(&s, &p, &(SessionOptions) { .device = DEV_CUDA }, &e) == TGC_NO_MEMORY);
        CHECK_MSG(strstr(e.msg, " GB needed, ") && strstr(e.msg, "smaller batch"), "%s", e.msg);
        *room = whole;
        plan_close(&p);
        CHECK_MSG(*live == 0, "%d things were not given back", *live);
}

/* Steps with the states in the host's memory: the same bits, less memory of the GPU. */
static void three_steps(const Plan *p, bool offload, int n_micro, float x[33], float m[33],
                        uint64_t *held)
{
        SessionOptions o = {
                .device = DEV_CUDA, .mode = SESSION_TRAIN, .seed = 42, .offload = offload
        };
        TrainStep in = { .B = 1,
                         .T = 2,
                         .n_micro = n_micro,
                         .ids = (int[]) { 1, 2, 5, 6, 7, 1 },
                         .targets = (int[]) { 3, 4, 6, 7, 1, -1 },
                         .lr = 0.1,
                         .beta1 = 0.9,
                         .beta2 = 0.999 };
        Session *s, *copy = NULL;
        TrainResult r;
        ArenaUse use[24];
        uint64_t driver;
        float y[33];
        Err e;
        CHECK_MSG(!session_open(&s, p, &o, &e), "%s", e.msg);
        for (; in.step < 3; in.step++)
                CHECK_MSG(!session_train_step(s, &in, &r, &e) && !r.bad, "%s", e.msg);
        dev_held(session_device(s), held, &driver);
        for (int i = 0, n = session_arenas(s, use, 24); i < n; i++)
                CHECK(use[i].host == (offload && is_state_arena(use[i].name)));
        CHECK(!session_param_get(s, 0, x, &e) && !session_part_read(s, PART_M, 0, m, &e));
        CHECK(!session_snapshot(s, SNAPSHOT_STATE, &copy, &e) &&
              !session_param_get(copy, 0, y, &e) && !memcmp(x, y, sizeof y));
        session_snapshot_free(copy);
        session_close(s);
}

TEST (played_driver_offload) {
        void *lib = load_fake_driver();
        int *live = dlsym(lib, "fake_live");
        float x[2][33], m[2][33];
        uint64_t held[2];
        SessionOptions o = { .device = DEV_CPU, .mode = SESSION_TRAIN, .offload = true };
        Session *s;
        Err e;
        Nvrtc n;
        if (nvrtc_open(&n, 0, 0))
                SKIP("no NVRTC");
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        for (int n_micro = 1; n_micro < 4; n_micro += 2) {
                for (int i = 0; i < 2; i++)
                        three_steps(&p, i, n_micro, x[i], m[i], &held[i]);
                CHECK(!memcmp(x[0], x[1], sizeof *x) && !memcmp(m[0], m[1], sizeof *m));
                CHECK_MSG(held[0] == held[1] + 2 * 132, "%llu and %llu bytes",
                          (unsigned long long)held[0], (unsigned long long)held[1]);
        }
        CHECK_MSG(*live == 0, "%d things were not given back", *live);
        CHECK(session_open(&s, &p, &o, &e) == TGC_USAGE && strstr(e.msg, "no effect"));
        plan_close(&p);
}

/* Memory that the process maps and the driver pins; where that cannot be done, the driver's own. */
TEST (played_driver_pinned_memory) {
        void *lib = load_fake_driver();
        int *live = dlsym(lib, "fake_live"), *way = dlsym(lib, "fake_register"),
            *registered = dlsym(lib, "fake_registered");
        enum { BYTES = (20 << 20) + 100 };
        static char x[BYTES];
        Device *d;
        Err e;
        for (*way = 1; *way >= -1; --*way) {
                void *mem[2];
                CHECK(!dev_open(&d, DEV_CUDA, NULL, &e));
                for (int i = 0; i < 2; i++) {
                        CHECK_MSG(!dev_alloc_host(d, BYTES, &mem[i], &e), "%s", e.msg);
                        CHECK(!dev_download(d, x, mem[i], BYTES, &e));
                        for (int k = 0; k < BYTES; k++)
                                CHECK(!x[k]);
                }
                CHECK_MSG(*registered == 2 * (*way == 1), "%d registered", *registered);
                memset(x, 7, BYTES);
                CHECK(!dev_upload(d, mem[1], x, BYTES, &e) &&
                      !dev_download(d, x, mem[0], BYTES, &e) && !x[BYTES - 1] &&
                      !dev_download(d, x, mem[1], BYTES, &e) && x[BYTES - 1] == 7);
                dev_free_host(d, mem[0]);
                dev_free_host(d, mem[1]);
                dev_close(d);
                CHECK_MSG(*live == 0 && !*registered, "%d things were not given back", *live);
        }
        *way = 1;
}

/* Copies to the host and back beside the runs, launched and in a graph: while k_sample writes over
 * logits they rest there. */
TEST (played_driver_moves) {
        void *lib = load_fake_driver();
        int *live = dlsym(lib, "fake_live"), *replays = dlsym(lib, "fake_replays"),
            before = *replays;
        float logits[V];
        ArenaUse use[24];
        Nvrtc n;
        Err e;
        if (nvrtc_open(&n, 0, 0))
                SKIP("no NVRTC");
        Plan p = make_plan(manifest,
                           PROGRAM("",
                                   "w+0") "arena host 64\nprogram moves B 1 T 1\n"
                                          "io ids i32 act+0 1\nio logits f32 act+2048 16\n"
                                          "run k_logits grid 1 args rt act+0 kv+0 w+0 act+1024\n"
                                          "run k_sample grid 1 args rt rt act+1024 act+1028\n"
                                          "run k_sample grid 1 args rt rt act+1024 act+1032\n"
                                          "move out act+1024 host+0 64 1 1\n"
                                          "move in act+2048 host+0 64 1 3\nend\n");
        Session *s = open_on(&p, DEV_CUDA, SESSION_INFER | SESSION_TRAIN);
        for (int i = 0, k = session_arenas(s, use, 24); i < k; i++)
                CHECK(use[i].host == !strcmp(use[i].name, "host"));
        for (int i = 0; i < 5; i++) {
                session_rt(s)->pos[0] = 0;
                session_rt_changed(s);
                CHECK_MSG(!session_write(s, "moves", "ids", &i, sizeof i, &e), "%s", e.msg);
                CHECK_MSG(!session_run(s, "moves", 1, 1, &e), "%s", e.msg);
                CHECK_MSG(!session_read(s, "moves", "logits", logits, sizeof logits, &e), "%s",
                          e.msg);
                for (int v = 0, most = 0; v < V; v++) {
                        CHECK(logits[v] == 0 || logits[v] == 3);
                        CHECK((most += logits[v] > 0) <= 1 && (v < V - 1 || most == 1));
                }
        }
        CHECK(*replays > before);
        session_close(s);
        s = open_on(&p, DEV_CUDA, SESSION_INFER); /* it has no arena host */
        CHECK(session_run(s, "moves", 1, 1, &e) == TGC_USAGE && strstr(e.msg, "needs arena host"));
        session_close(s);
        plan_close(&p);
        CHECK_MSG(*live == 0, "%d things were not given back", *live);
}

/* *used: driver calls until the session is closed, which may not fail. */
static int use_everything(const Plan *p, const int *calls, int *used, Err *e)
{
        SessionOptions o = { .device = DEV_CUDA, .ready = "step update" };
        TrainStep in = { .B = 1,
                         .T = 2,
                         .n_micro = 1,
                         .ids = (int[]) { 1, 2 },
                         .targets = (int[]) { 3, 4 },
                         .lr = 0.1 };
        Session *s;
        TrainResult r;
        float x[33];
        double ms[4];
        int n, code = session_open(&s, p, &o, e);
        if (code)
                return code;
        if (!(code = session_prefill(s, (int[]) { 1, 2, 3 }, 1, 3, e)) &&
            !(code = session_decode(s, 0, 5, 0, 0, e)) &&
            !(code = session_train_step(s, &in, &r, e)) &&
            !(code = session_param_get(s, 0, x, e)) && !(code = session_param_set(s, 0, x, e)) &&
            !(code = session_score(s, (int[]) { 1, 2 }, 2, 0, ms, e)))
                code = session_time_kernels(s, "decode", 1, 1, ms, 4, &n, e);
        *used = *calls;
        session_close(s);
        return code;
}

/* Let every call to the driver fail in turn: always an error, never a leak. */
TEST (played_driver_fails) {
        void *lib = load_fake_driver();
        int *live = dlsym(lib, "fake_live"), *calls = dlsym(lib, "fake_calls"),
            *fail_at = dlsym(lib, "fake_fail_at");
        Nvrtc n;
        Err e;
        if (nvrtc_open(&n, 0, 0))
                SKIP("no NVRTC");
        use_cache();
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        *calls = *fail_at = 0;
        int total, used;
        CHECK_MSG(!use_everything(&p, calls, &total, &e), "%s", e.msg);
        CHECK(total > 100 && *live == 0);
        for (int i = 1; i <= total; i++) {
                *calls = 0;
                *fail_at = i;
                int code = use_everything(&p, calls, &used, &e);
                CHECK_MSG(code == TGC_NO_MEMORY || code == TGC_NO_DEVICE || code == TGC_BAD_FILE,
                          "call %d of %d failed, which went unnoticed", i, total);
                CHECK_MSG(*live == 0, "call %d of %d failed: %d things were not given back", i,
                          total, *live);
        }
        *fail_at = 0;
        plan_close(&p);
}

TEST_MAIN
