/* test_formats.c: files in and out, element types, JSON, npy. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "../runtime/weights/checkpoint.h"
#include "../runtime/util/json.h"
#include "../runtime/weights/npy.h"
#include "files_test.h"

/* ---- files ---- */

TEST (file_replace) {
        const char *path = tmp("a");
        static char big[300000];
        struct stat st;
        FileOut *f;

        files_in_dir(true);
        memset(big, 'x', sizeof big);
        CHECK(!file_write_atomic(path, "old", 3, &err) && holds(path, "old", 3));
        CHECK(!chmod(path, 0640));
        CHECK(!file_out_open(&f, path, &err));
        for (int i = 0; i < 10; i++)
                CHECK(!file_out_write(f, big + i * 30000, 30000, &err));
        CHECK(holds(path, "old", 3));
        CHECK(file_out_size(f) == sizeof big);
        CHECK(!file_out_commit(f, &err) && holds(path, big, sizeof big));
        CHECK(!stat(path, &st) && (st.st_mode & 0777) == 0640);
        CHECK(!file_out_open(&f, path, &err));
        CHECK(!file_out_write(f, "half", 4, &err));
        file_out_abort(f);
        CHECK(holds(path, big, sizeof big));
        CHECK(!file_write_atomic(path, "", 0, &err) && holds(path, "", 0));
        CHECK(files_in_dir(false) == 1);
}

TEST (file_special) {
        const char *link = tmp("link"), *target = tmp("target"), *fifo = tmp("fifo");
        struct stat st;
        FileMap m;
        char *text;

        CHECK(!file_write_atomic("/dev/null", "x", 1, &err));
        CHECK(!stat("/dev/null", &st) && S_ISCHR(st.st_mode));
        CHECK(file_write_atomic(dir, "x", 1, &err) == TGC_IO && strstr(err.msg, dir));
        CHECK(file_write_atomic("", "x", 1, &err) == TGC_IO);
        CHECK(file_write_atomic(tmp("no/such"), "x", 1, &err) == TGC_IO &&
              strstr(err.msg, "no/such") && strstr(err.msg, "there is no folder ") &&
              !strstr(err.msg, ".tgc-"));
        CHECK(!file_write_atomic(target, "one", 3, &err));
        CHECK(!symlink("target", link));
        CHECK(!file_write_atomic(link, "two", 3, &err) && holds(target, "two", 3));
        CHECK(!lstat(link, &st) && S_ISLNK(st.st_mode));
        CHECK(!mkfifo(fifo, 0600));
        CHECK(file_map(&m, fifo, &err) == TGC_BAD_FILE); /* and does not hang */
        CHECK(file_map(&m, dir, &err) == TGC_BAD_FILE);
        CHECK(file_map(&m, tmp("absent"), &err) == TGC_IO && strstr(err.msg, "absent"));
        CHECK(file_read_text(target, 2, &text, 0, &err) == TGC_BAD_FILE);
        CHECK(!file_read_text(target, 3, &text, 0, &err) && !strcmp(text, "two"));
        free(text);
        unlink(fifo);
}

TEST (file_full) {
        static char big[1 << 20];
        const char *path = tmp("full");
        struct rlimit limit = { 100000, 100000 };
        int status;
        pid_t pid;

        files_in_dir(true);
        if (file_exists("/dev/full")) {
                CHECK(file_write_atomic("/dev/full", big, sizeof big, &err) == TGC_IO);
                CHECK_MSG(strstr(err.msg, strerror(ENOSPC)), "%s", err.msg);
        }
        CHECK(!file_write_atomic(path, "old", 3, &err));
        pid = fork();
        if (pid == 0) { /* the limit is for good: in a child */
                signal(SIGXFSZ, SIG_IGN);
                setrlimit(RLIMIT_FSIZE, &limit);
                _exit(file_write_atomic(path, big, sizeof big, &err) == TGC_IO &&
                                      strstr(err.msg, path)
                              ? 0
                              : 1);
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
        CHECK(holds(path, "old", 3));
        CHECK(files_in_dir(false) == 1);
}

TEST (file_killed) {
        static char big[1 << 20];
        const char *path = tmp("killed");
        int status;
        pid_t pid;

        files_in_dir(true);
        CHECK(!file_write_atomic(path, "old", 3, &err));
        pid = fork();
        if (pid == 0) {
                FileOut *f;
                if (!file_out_open(&f, path, &err))
                        for (int i = 0; i < 64; i++) /* never gets to commit */
                                if (file_out_write(f, big, sizeof big, &err))
                                        break;
                pause();
                _exit(1);
        }
        for (int i = 0; i < 5000 && files_in_dir(false) < 2; i++)
                usleep(1000);
        CHECK(files_in_dir(false) == 2);
        CHECK(!kill(pid, SIGKILL) && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
        CHECK(holds(path, "old", 3));
        CHECK(!file_write_atomic(path, "new", 3, &err) && holds(path, "new", 3));
        files_in_dir(true);
}

/* ---- element types ---- */

static float near_f16(uint16_t h) { return ck_f32_from_f16(h); }
static float near_bf16(uint16_t h) { return ck_f32_from_bf16(h); }

/* h is the nearest value to x of its kind, the even one of two. */
static bool is_nearest(float x, uint16_t h, float (*value)(uint16_t), uint16_t infinity)
{
        uint16_t sign = h & 0x8000, m = h & 0x7fff;
        double d = fabs((double)value(h) - x);

        if (m == infinity) /* half a step above the largest */
                return fabs((double)x) >=
                       value(infinity - 1) +
                               ((double)value(infinity - 1) - value(infinity - 2)) / 2;
        for (int k = -1; k <= 1; k += 2) {
                uint16_t o = (uint16_t)(m + k);
                double other;
                if (o == 0xffff || o == infinity)
                        continue;
                other = fabs((double)value(sign | o) - x);
                if (other < d || (other == d && (m & 1)))
                        return false;
        }
        return true;
}

TEST (float_types) {
        CHECK(ck_f32_from_f16(0x3c00) == 1 && ck_f32_from_f16(0xc000) == -2 &&
              ck_f32_from_f16(1) == 0x1p-24f);
        CHECK(ck_f16_from_f32(65504) == 0x7bff && ck_f16_from_f32(65519) == 0x7bff &&
              ck_f16_from_f32(65520) == 0x7c00);
        CHECK(ck_bf16_from_f32(1) == 0x3f80 && ck_bf16_from_f32(INFINITY) == 0x7f80);
        for (unsigned i = 0; i < 65536; i++) {
                uint16_t h = (uint16_t)i;
                CHECK(isnan(ck_f32_from_f16(h))
                              ? isnan(ck_f32_from_f16(ck_f16_from_f32(ck_f32_from_f16(h))))
                              : ck_f16_from_f32(ck_f32_from_f16(h)) == h);
                CHECK(isnan(ck_f32_from_bf16(h))
                              ? isnan(ck_f32_from_bf16(ck_bf16_from_f32(ck_f32_from_bf16(h))))
                              : ck_bf16_from_f32(ck_f32_from_bf16(h)) == h);
        }
        for (int i = 0; i < 300000; i++) {
                /* All exponents; every fourth has the low bits of an exact half. */
                uint32_t u = random_u() << 1 ^ random_u();
                float x;
                if (i & 1)
                        u = (u & 0x807fffff) | (100 + random_u() % 60) << 23;
                if (i % 4 == 3)
                        u = (u & ~0x1fffu) | 0x1000;
                if (i % 8 == 6)
                        u = (u & ~0xffffu) | 0x8000;
                memcpy(&x, &u, 4);
                if (!isfinite(x))
                        continue;
                CHECK_MSG(is_nearest(x, ck_f16_from_f32(x), near_f16, 0x7c00), "f16 of %a", x);
                CHECK_MSG(is_nearest(x, ck_bf16_from_f32(x), near_bf16, 0x7f80), "bf16 of %a", x);
        }
}

TEST (convert_blocks) {
        enum { N = 2500 }; /* not a multiple of a block; odd addresses on both sides */
        static unsigned char a[8 * N + 1], b[8 * N + 1], c[8 * N + 1];
        static const int kind[] = { CK_F64, CK_F32, CK_F16, CK_BF16 };
        float v[N];

        for (int i = 0; i < N; i++)
                v[i] = (float)(i % 256 - 128) / 64; /* exact in all types */
        for (int x = 0; x < 4; x++)
                for (int y = 0; y < 4; y++) {
                        CHECK(ck_convert(a + 1, kind[x], v, CK_F32, N, 2));
                        CHECK(ck_convert(b + 1, kind[y], a + 1, kind[x], N, 0.5));
                        CHECK(ck_convert(c + 1, CK_F32, b + 1, kind[y], N, 1));
                        CHECK(!memcmp(c + 1, v, sizeof v));
                }
        CHECK(!ck_convert(a, CK_I32, v, CK_F32, N, 1) && !ck_convert(a, CK_I32, v, CK_I32, N, 2));
        CHECK(ck_convert(a, CK_I32, v, CK_I32, N, 1));
}

TEST (shape_counts) {
        int64_t n, big[] = { 1ll << 31, 1ll << 31, 4 }, zero[] = { 1ll << 62, 0, 5 },
                   negative[] = { 3, -1 };
        char text[16];

        CHECK(ck_count(0, 0, &n) && n == 1);
        CHECK(!ck_count(3, big, &n) && !ck_count(2, negative, &n));
        CHECK(!ck_count(3, zero, &n) || n == 0);
        CHECK(!strcmp(ck_shape_text(text, sizeof text, 0, 0), "[]"));
        CHECK(!strcmp(ck_shape_text(text, sizeof text, 1, zero + 2), "[5]"));
        CHECK(strlen(ck_shape_text(text, sizeof text, 3, big)) == 15); /* cut, not overrun */
}

/* ---- JSON ---- */

TEST (json_checks) {
        static const struct {
                const char *text, *says;
                size_t n;
        } bad[] = {
                { "", "not valid", 0 },
                { "{", "not valid", 0 },
                { "{} x", "text after", 0 },
                { "{\"a\":1,\"b\":{\"c\":1,\"c\":2}}", "\"c\" given twice", 0 },
                { "\"\xff\"", "UTF-8", 0 },
                { "\"a\\u0000b\"", "NUL", 0 },
                { "[1e999]", "out of range", 0 },
                { "[1]\0[2]", "NUL", 7 },
                { "\n\n{\"a\":}", "x:3:", 0 },
        };
        /* a backslash, then u0000 */
        const char *good = "{\"i\":12,\"d\":0.5,\"b\":true,\"s\":\"\\\\u0000\"} \n";
        char *deep = malloc(200001);
        JsonText in;
        Json root;
        cJSON *json;

        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
                size_t n = bad[k].n ? bad[k].n : strlen(bad[k].text);
                char *exact = malloc(n + !n); /* no NUL behind it */
                memcpy(exact, bad[k].text, n);
                CHECK_MSG(json_parse(&json, exact, n, "x", &err) == TGC_BAD_FILE, "accepted %s",
                          bad[k].text);
                CHECK_MSG(strstr(err.msg, bad[k].says), "%s: %s", bad[k].text, err.msg);
                free(exact);
        }
        memset(deep, '[', 100000);
        memset(deep + 100000, ']', 100000);
        CHECK(json_parse(&json, deep, 200000, "x", &err) == TGC_BAD_FILE);
        free(deep);
        CHECK_MSG(!json_parse(&json, good, strlen(good), "x", &err), "%s", err.msg);
        CHECK(cJSON_GetNumberValue(cJSON_GetObjectItem(json, "d")) == 0.5);
        cJSON_Delete(json);

        CHECK_MSG(!json_open(&in, &root, good, strlen(good), "x", false, &err), "%s", err.msg);
        CHECK(json_number(json_get(root, "i")) == 12 && json_number(json_get(root, "d")) == 0.5);
        CHECK(json_type(json_get(root, "b")) == 't' && !json_type(json_get(root, "z")) &&
              json_count(root) == 4);
        CHECK(json_is(json_get(root, "s"), "\\u0000") && !json_is(json_get(root, "s"), "\\u000"));
        json_close(&in);
}

/* ---- npy ---- */

TEST (npy_real) {
        static const float v[6] = { 0, 1, 2, 3, 4, 5 };
        int64_t dim[] = { 2, 3 };
        NpyOut *o;
        Npy a;

        CHECK_MSG(!npy_out_open(&o, tmp("a.npy"), 2, dim, &err), "%s", err.msg);
        CHECK(!npy_out_write(o, v, 4, &err) && npy_out_write(o, v, 3, &err) == TGC_FAIL);
        CHECK(!npy_out_write(o, v + 4, 2, &err) && !npy_out_commit(o, &err));
        CHECK_MSG(!npy_open(&a, tmp("a.npy"), &err), "%s", err.msg);
        CHECK(a.dtype == CK_F32 && a.rank == 2 && a.dim[1] == 3 && !memcmp(a.u.f32, v, sizeof v));
        npy_close(&a);
        for (int rank = 0; rank < 2; rank++) {
                dim[0] = 1;
                CHECK(!npy_out_open(&o, tmp("b.npy"), rank, dim, &err) &&
                      !npy_out_write(o, v, 1, &err));
                CHECK(!npy_out_commit(o, &err));
                CHECK_MSG(!npy_open(&a, tmp("b.npy"), &err), "%s", err.msg);
                CHECK(a.rank == rank && a.count == 1);
                npy_close(&a);
        }
        CHECK(!npy_out_open(&o, tmp("a.npy"), 1, dim, &err) && npy_out_commit(o, &err) == TGC_FAIL);
}

TEST_DATA (npy_of_numpy) {
        Npy a;

        CHECK_MSG(!npy_open(&a, data_at("families/llama/expected_logits.npy"), &err), "%s",
                  err.msg);
        CHECK(a.dtype == CK_F32 && a.rank == 2 && a.dim[0] == 40 && a.count == 40 * a.dim[1]);
        npy_close(&a);
        CHECK_MSG(!npy_open(&a, data_at("training/gpt2/starts.npy"), &err), "%s", err.msg);
        CHECK(a.dtype == CK_I64 && a.rank == 3 && a.dim[0] * a.dim[1] * a.dim[2] == a.count);
        for (int64_t i = 0; i < a.count; i++)
                CHECK(a.u.i64[i] >= 0 && a.u.i64[i] < 2000000);
        npy_close(&a);
}

TEST (npy_bad) {
        static const struct {
                const char *header;
                size_t data;
                const char *says;
        } bad[] = {
                { "{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", 4, "Fortran" },
                { "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", 4, ">f4" },
                { "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", 8, "<f8" },
                { "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", 8, "|O" },
                { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", 5, "do not make" },
                { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 4, "do not make" },
                { "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,4294967296), }", 0,
                  "do not make" },
                { "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 0,
                  "damaged" },
                { "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", 4, "damaged" },
                { "{'descr': '<f4', 'fortran_order': False, 'shape': (1), }", 4, "damaged" },
                { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", 4,
                  "damaged" },
                { "{'descr': '<f4', 'fortran_order': False, }", 4, "damaged" },
                { "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", 4,
                  "damaged" },
                { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x", 4, "damaged" },
                { "{'descr': '<f4", 4, "damaged" },
                { "", 4, "damaged" },
                { "{'shape': (", 4, "damaged" },
        };
        /* misaligned data */
        static const char good[] = "{\"shape\":(1, 2),'fortran_order':False,'descr':'<i8'}\n";
        char file[512] = "\x93NUMPY\1\0";
        Npy a;

        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                size_t n = strlen(bad[i].header);
                file[6] = 1;
                file[8] = (char)n;
                file[9] = 0;
                memcpy(file + 10, bad[i].header, n);
                put(tmp("bad.npy"), file, 10 + n + bad[i].data);
                CHECK_MSG(npy_open(&a, tmp("bad.npy"), &err) == TGC_BAD_FILE, "accepted %s",
                          bad[i].header);
                CHECK_MSG(strstr(err.msg, bad[i].says), "%s: %s", bad[i].header, err.msg);
        }
        file[6] = 2;
        file[8] = (char)strlen(good);
        file[9] = file[10] = file[11] = 0;
        memcpy(file + 12, good, strlen(good));
        memset(file + 12 + strlen(good), 0, 16);
        file[12 + strlen(good) + 8] = 7;
        put(tmp("good.npy"), file, 12 + strlen(good) + 16);
        CHECK_MSG(!npy_open(&a, tmp("good.npy"), &err), "%s", err.msg);
        CHECK(a.u.i64[1] == 7 && a.rank == 2 && a.dim[0] == 1);
        npy_close(&a);
        for (size_t n = 0; n < 12 + strlen(good) + 16; n++) {
                put(tmp("bad.npy"), file, n);
                CHECK(npy_open(&a, tmp("bad.npy"), &err) == TGC_BAD_FILE);
        }
        file[11] = 0x7f; /* a header of 2 GB */
        put(tmp("bad.npy"), file, 200);
        CHECK(npy_open(&a, tmp("bad.npy"), &err) == TGC_BAD_FILE);
        file[6] = 3;
        put(tmp("bad.npy"), file, 200);
        CHECK(npy_open(&a, tmp("bad.npy"), &err) == TGC_BAD_FILE);
}

TEST_MAIN
