/* test_load.c: what a session needs to begin: a compiler, the cache, NVRTC, a device, and a program
 * that fits its plan. */
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include "../runtime/device/cache.h"
#include "../runtime/device/cuda_api.h"
#include "../runtime/device/host_cc.h"
#include "hand_plan.h"

/* ---- compiler and cache ---- */

static int count_files(const char *dir, char *first, size_t cap)
{
        DIR *d = opendir(dir);
        int n = 0;
        for (struct dirent *x; d && (x = readdir(d));)
                if (*x->d_name != '.' && n++ == 0 && first)
                        snprintf(first, cap, "%s/%s", dir, x->d_name);
        if (d)
                closedir(d);
        return n;
}

/* An object that could not be unloaded keeps its name, /proc/self/fd/N, and N goes to the next. */
TEST (objects_that_stay_loaded) {
        static const char *const flag[] = { "-O1", "-fPIC", NULL };
        static const char *const text[] = { "int which(void) { return 1; }\n",
                                            "int which(void) { return 2; }\n" };
        HostCc cc;
        Err e;
        SharedObject so[2];
        void *stays = NULL;
        CHECK_MSG(!host_cc_find(&cc, 0, &e), "%s", e.msg);
        for (int i = 0; i < 2; i++) {
                PackFile f = { "which", text[i], strlen(text[i]), 0 };
                const Pack unit = { &f, 1, NULL }, none = { 0 };
                const HostBuild b = { .flag = flag,
                                      .units = &unit,
                                      .headers = &none,
                                      .suffix = ".c",
                                      .what = "a test" };
                void *code;
                size_t size;
                int (*which)(void);
                CHECK_MSG(!host_cc_build(&cc, &b, 0, 1, &code, &size, &e), "%s", e.msg);
                CHECK_MSG(!so_open(&so[i], code, size, &e), "%s", e.msg);
                free(code);
                void *sym = so_symbol(&so[i], "which");
                memcpy(&which, &sym, sizeof sym);
                CHECK_MSG(which && which() == i + 1, "object %d is another", i + 1);
                if (i == 0) {
                        char path[64];
                        snprintf(path, sizeof path, "/proc/self/fd/%d", so[0].fd);
                        stays = dlopen(path, RTLD_NOW);
                        CHECK(stays);
                        so_close(&so[0]);
                }
        }
        so_close(&so[1]);
        dlclose(stays);
}

TEST (cache_folder) {
        static const char *const var[] = { "TGC_CACHE_DIR", "XDG_CACHE_HOME", "HOME" };
        static const char *const want[] = { "/a", "/b/tgc", "/c/.cache/tgc", "" };
        char *old[3], dir[64];
        int bad = 0;
        for (int i = 0; i < 3; i++)
                old[i] = getenv(var[i]) ? strdup(getenv(var[i])) : 0;
        setenv(var[0], "/a", 1);
        setenv(var[1], "/b", 1);
        setenv(var[2], "/c", 1);
        for (int i = 0; i < 4; i++) {
                cache_dir(dir, sizeof dir);
                bad |= strcmp(dir, want[i]) != 0;
                if (i < 3)
                        unsetenv(var[i]);
        }
        for (int i = 0; i < 3; i++) {
                old[i] ? setenv(var[i], old[i], 1) : unsetenv(var[i]);
                free(old[i]);
        }
        CHECK(!bad);
}

TEST (cache_entries) {
        static char dir[64], path[512];
        CacheKey k;
        char hex[33], other[33];
        void *data;
        size_t n;
        Err e;

        CHECK(!tmpdir_make(path, &e));
        snprintf(dir, sizeof dir, "%.60s", path);
        setenv("TGC_CACHE_DIR", dir, 1);
        cache_key_begin(&k);
        cache_key_text(&k, "ab");
        cache_key_text(&k, "c");
        cache_key_end(&k, hex);
        cache_key_begin(&k);
        cache_key_text(&k, "a");
        cache_key_text(&k, "bc");
        cache_key_end(&k, other);
        CHECK(strlen(hex) == 32 && strcmp(hex, other));
        CHECK(!cache_get(hex, &data, &n) && cache_put(hex, "value", 5) &&
              cache_get(hex, &data, &n));
        CHECK(n == 5 && !memcmp(data, "value", 5));
        free(data);
        CHECK(count_files(dir, path, sizeof path) == 1);
        char *bytes;
        size_t size;
        CHECK(!file_read_text(path, 1 << 20, &bytes, &size, &e));
        for (size_t i = 0; i < size; i++) { /* damage of any byte is seen, and the entry goes */
                bytes[i] ^= 1;
                FILE *f = fopen(path, "wb");
                CHECK(f && fwrite(bytes, 1, size, f) == size && !fclose(f));
                CHECK_MSG(!cache_get(hex, &data, &n), "byte %zu", i);
                CHECK(access(path, F_OK));
                bytes[i] ^= 1;
        }
        free(bytes);
        CHECK(cache_put(hex, "", 0) && cache_get(hex, &data, &n) && n == 0);
        free(data);
        tmpdir_remove(dir);
        setenv("TGC_CACHE_DIR", "/dev/null/no", 1); /* cannot be made: no cache, no failure */
        CHECK(!cache_put(hex, "x", 1) && !cache_get(hex, &data, &n));
        *cache_path ? setenv("TGC_CACHE_DIR", cache_path, 1) : unsetenv("TGC_CACHE_DIR");
}

/* Own, and not writable by others; given and unsafe is an error, by default unsafe is passed
 * over. */
TEST (cache_folder_is_private) {
        static char dir[64], path[512];
        static const char key[] = "0123456789abcdef0123456789abcdef";
        char *home = getenv("HOME") ? strdup(getenv("HOME")) : 0,
             *xdg = getenv("XDG_CACHE_HOME") ? strdup(getenv("XDG_CACHE_HOME")) : 0;
        char why[1024], sub[128];
        void *data;
        size_t n;
        Err e;

        CHECK(!tmpdir_make(path, &e));
        snprintf(dir, sizeof dir, "%.60s", path);
        setenv("TGC_CACHE_DIR", dir, 1);
        CHECK(cache_put(key, "value", 5) && cache_state(why, sizeof why) == CACHE_OK && !*why &&
              !cache_check(&e));
        for (int mode = 0; mode < 2; mode++) {
                CHECK(!chmod(dir, mode ? 0702 : 0720));
                CHECK(!cache_get(key, &data, &n) && !cache_put(key, "other", 5) &&
                      cache_state(why, sizeof why) == CACHE_REFUSED);
                CHECK_MSG(strstr(why, dir) && strstr(why, "can be written by other users") &&
                                  strstr(why, "chmod go-w"),
                          "%s", why);
                CHECK(cache_check(&e) == TGC_IO);
        }
        unsetenv("TGC_CACHE_DIR");
        unsetenv("XDG_CACHE_HOME");
        setenv("HOME", dir, 1);
        CHECK(cache_state(why, sizeof why) == CACHE_NONE && !cache_check(&e));
        snprintf(sub, sizeof sub, "%s/.cache/tgc", dir);
        CHECK(cache_put(key, "value", 5) && cache_get(key, &data, &n) && !chmod(sub, 0777));
        free(data);
        CHECK(cache_state(why, sizeof why) == CACHE_SKIPPED && !cache_check(&e) &&
              !cache_get(key, &data, &n));
        if (!geteuid()) {
                CHECK(!chmod(sub, 0700) && !chown(sub, 12345, -1));
                CHECK(cache_state(why, sizeof why) == CACHE_SKIPPED &&
                      strstr(why, "belongs to another user"));
        }
        home ? setenv("HOME", home, 1) : unsetenv("HOME");
        xdg ? setenv("XDG_CACHE_HOME", xdg, 1) : unsetenv("XDG_CACHE_HOME");
        free(home);
        free(xdg);
        tmpdir_remove(dir);
        *cache_path ? setenv("TGC_CACHE_DIR", cache_path, 1) : unsetenv("TGC_CACHE_DIR");
}

static char *key_of(char key[33], int i)
{
        snprintf(key, 33, "%032d", i);
        return key;
}

/* The oldest in use go first; what killed processes left goes; an entry under another name is
 * none. */
TEST (cache_has_a_limit) {
        static char dir[64], path[512], to[512], value[10000];
        char key[33];
        void *data;
        size_t n;
        CacheUse u;
        Err e;

        CHECK(!tmpdir_make(path, &e));
        snprintf(dir, sizeof dir, "%.60s", path);
        setenv("TGC_CACHE_DIR", dir, 1);
        setenv("TGC_CACHE_MAX", "100K", 1);
        for (int i = 0; i < 10; i++) {
                CHECK(cache_put(key_of(key, i), value, sizeof value));
                snprintf(path, sizeof path, "%s/%s.bin", dir, key);
                CHECK(!utimensat(AT_FDCWD, path,
                                 (struct timespec[]) { { 1000 + i, 0 }, { 1000 + i, 0 } }, 0));
        }
        cache_use(&u);
        CHECK(u.entries == 10 && u.bytes > 10 * sizeof value && u.most == 100 << 10);
        CHECK(cache_get(key_of(key, 0), &data, &n)); /* used now */
        free(data);
        CHECK(cache_put(key_of(key, 10), value, sizeof value));
        for (int i = 0; i <= 10; i++) {
                bool there = cache_get(key_of(key, i), &data, &n);
                CHECK_MSG(there == (i != 1), "entry %d", i);
                if (there)
                        free(data);
        }
        setenv("TGC_CACHE_MAX", "0", 1); /* any number */
        CHECK(cache_put(key_of(key, 11), value, sizeof value) &&
              cache_get(key_of(key, 0), &data, &n));
        free(data);
        snprintf(path, sizeof path, "%s/x.tmp-1-1", dir);
        snprintf(to, sizeof to, "%s/y.tmp-1-1", dir);
        CHECK(!file_write_atomic(path, "x", 1, &e) && !file_write_atomic(to, "x", 1, &e));
        CHECK(!utimensat(AT_FDCWD, path, (struct timespec[]) { { 1000, 0 }, { 1000, 0 } }, 0));
        CHECK(cache_put(key_of(key, 12), value, sizeof value) && access(path, F_OK) &&
              !access(to, F_OK));
        snprintf(path, sizeof path, "%s/%s.bin", dir, key_of(key, 12));
        snprintf(to, sizeof to, "%s/%s.bin", dir, key_of(key, 13));
        CHECK(!rename(path, to) && !cache_get(key_of(key, 13), &data, &n) && access(to, F_OK));
        setenv("TGC_CACHE_MAX", "much", 1);
        CHECK(cache_check(&e) == TGC_IO && strstr(e.msg, "TGC_CACHE_MAX: 'much'"));
        unsetenv("TGC_CACHE_MAX");
        tmpdir_remove(dir);
        *cache_path ? setenv("TGC_CACHE_DIR", cache_path, 1) : unsetenv("TGC_CACHE_DIR");
}

/* Processes that fill a small cache at the same time. */
TEST (cache_is_shared) {
        static char dir[64], path[512], value[2000];
        char key[33];
        CacheUse u;
        Err e;
        int bad = 0, status;

        CHECK(!tmpdir_make(path, &e));
        snprintf(dir, sizeof dir, "%.60s", path);
        setenv("TGC_CACHE_DIR", dir, 1);
        setenv("TGC_CACHE_MAX", "50K", 1);
        for (int c = 0; c < 4; c++)
                if (!fork()) {
                        for (int i = 0; i < 200; i++) {
                                void *data;
                                size_t n;
                                memset(value, i * 7 % 60, sizeof value);
                                cache_put(key_of(key, i * 7 % 60), value, sizeof value);
                                if (cache_get(key_of(key, (i + c) % 60), &data, &n)) {
                                        if (n != sizeof value || *(char *)data != (i + c) % 60)
                                                _exit(1);
                                        free(data);
                                }
                        }
                        _exit(0);
                }
        for (int c = 0; c < 4; c++)
                bad += wait(&status) < 0 || status;
        CHECK(!bad);
        CHECK(cache_put(key_of(key, 99), value, sizeof value));
        cache_use(&u);
        CHECK_MSG(u.bytes <= 50 << 10 && u.entries > 10, "%d entries, %llu bytes", u.entries,
                  (unsigned long long)u.bytes);
        unsetenv("TGC_CACHE_MAX");
        tmpdir_remove(dir);
        *cache_path ? setenv("TGC_CACHE_DIR", cache_path, 1) : unsetenv("TGC_CACHE_DIR");
}

/* Entries with the right key and checksum that are no code. */
static void spoil_cache(void)
{
        DIR *d = opendir(cache_path);
        char hex[33];
        CHECK(d);
        for (struct dirent *x; (x = readdir(d));)
                if (strlen(x->d_name) == 36) {
                        snprintf(hex, sizeof hex, "%.32s", x->d_name);
                        CHECK(cache_put(hex, "no object", 9));
                }
        closedir(d);
}

/* What has the right checksum and cannot be loaded is made again. */
TEST (cached_object_that_is_none) {
        need(DEV_CPU);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        session_close(open_on(&p, DEV_CPU, 0));
        spoil_cache();
        Session *s = open_on(&p, DEV_CPU, 0);
        CHECK_MSG(strstr(dev_load_note(session_device(s)), "compiled"), "%s",
                  dev_load_note(session_device(s)));
        session_close(s);
        s = open_on(&p, DEV_CPU, 0);
        CHECK_MSG(strstr(dev_load_note(session_device(s)), "from the cache"), "%s",
                  dev_load_note(session_device(s)));
        session_close(s);
        plan_close(&p);
}

TEST (cpu_object_is_cached_and_rebuilt) {
        need(DEV_CPU);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        char path[600];
        Err e;
        Session *s = open_on(&p, DEV_CPU, 0);
        session_close(s);
        s = open_on(&p, DEV_CPU, 0);
        CHECK_MSG(strstr(dev_load_note(session_device(s)), "from the cache"), "%s",
                  dev_load_note(session_device(s)));
        session_close(s);
        setenv("TGC_CACHE_DIR", "/dev/null/no", 1);
        CHECK_MSG(!session_open(&s, &p, &(SessionOptions) { .device = DEV_CPU }, &e), "%s", e.msg);
        CHECK(strstr(dev_load_note(session_device(s)), "compiled"));
        session_close(s);
        CHECK(count_files(cache_path, path, sizeof path) > 0);
        plan_close(&p);
}

/* The plan has two units. */
TEST (units_are_joined_for_few_compilers) {
        need(DEV_CPU);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        char *old = getenv("TGC_COMPILERS") ? strdup(getenv("TGC_COMPILERS")) : NULL;
        setenv("TGC_CACHE_DIR", "/dev/null/no", 1);
        for (int n = 1; n <= 3; n++) {
                char number[8];
                Session *s;
                Err e;
                snprintf(number, sizeof number, "%d", n);
                setenv("TGC_COMPILERS", number, 1);
                CHECK_MSG(!session_open(&s, &p, &(SessionOptions) { .device = DEV_CPU }, &e), "%s",
                          e.msg);
                const char *note = dev_load_note(session_device(s));
                CHECK_MSG(!strncmp(note, n == 1 ? "1 unit compiled" : "2 units compiled", 15), "%s",
                          note);
                session_close(s);
        }
        old ? setenv("TGC_COMPILERS", old, 1) : unsetenv("TGC_COMPILERS");
        free(old);
        setenv("TGC_CACHE_DIR", cache_path, 1);
        plan_close(&p);
}

TEST (cpu_object_of_the_plan) {
        need(DEV_CPU);
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        Session *s = open_on(&p, DEV_CPU, 0);
        void *pack;
        size_t n;
        Err e;
        session_close(s);
        CHECK_MSG(!cpu_compile_plan(&p, 0, NULL, &pack, &n, &e), "%s", e.msg);
        CHECK(!plan_add(&p, "object.cpu", pack, n, &e));
        s = open_on(&p, DEV_CPU, 0);
        CHECK(strstr(dev_load_note(session_device(s)), "from the plan") &&
              !*dev_load_warning(session_device(s)));
        session_close(s);
        /* of other sources: built from those that the plan has */
        const Section *src = plan_find(&p, "source.cpu");
        char *was = strndup(src->data, src->size), *text;
        CHECK(asprintf(&text, "%s/* changed */\n", was) > 0);
        CHECK(!plan_add(&p, "source.cpu", text, strlen(text), &e));
        s = open_on(&p, DEV_CPU, 0);
        CHECK(!strstr(dev_load_note(session_device(s)), "from the plan"));
        CHECK_MSG(strstr(dev_load_warning(session_device(s)),
                         "object.cpu was not made of the plan's cpu sources and flags"),
                  "%s", dev_load_warning(session_device(s)));
        session_close(s);
        CHECK(!plan_add(&p, "source.cpu", was, strlen(was), &e));
        free(text);
        free(was);
        ((char *)pack)[12] ^= 1; /* another processor's */
        CHECK(!plan_add(&p, "object.cpu", pack, n, &e));
        s = open_on(&p, DEV_CPU, 0);
        CHECK(strstr(dev_load_note(session_device(s)), "cache"));
        session_close(s);
        free(pack);
        plan_close(&p);
}

TEST (broken_source_is_kept) {
        need(DEV_CPU);
        static const char bad[] =
                "//@ unit infer\nvoid k_logits(void) { this is not C; }\n//@ unit train\n";
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        Session *s;
        Err e;
        char path[300] = "";
        use_cache();
        CHECK(!plan_add(&p, "source.cpu", bad, strlen(bad), &e));
        int code = session_open(&s, &p, &(SessionOptions) { .device = DEV_CPU }, &e);
        CHECK(code == TGC_NO_DEVICE && !s);
        CHECK_MSG(strstr(e.msg, "unit infer") && strstr(e.msg, "error"), "%s", e.msg);
        const char *at = strstr(e.msg, "kept in ");
        CHECK(at && sscanf(at, "kept in %299[^)]", path) == 1 && !access(path, R_OK));
        unlink(path);
        plan_close(&p);
}

TEST (no_compiler_says_what_to_install) {
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        Session *s;
        Err e;
        char *path = strdup(getenv("PATH") ? getenv("PATH") : ""),
             *cc = getenv("CC") ? strdup(getenv("CC")) : 0;
        use_cache();
        setenv("PATH", "/nonexistent", 1);
        unsetenv("CC");
        int code = session_open(&s, &p, &(SessionOptions) { .device = DEV_CPU }, &e);
        setenv("PATH", path, 1);
        if (cc)
                setenv("CC", cc, 1);
        free(path);
        free(cc);
        CHECK_MSG(code == TGC_NO_DEVICE && strstr(e.msg, "install"), "%s", e.msg);
        plan_close(&p);
}

TEST (compilers_inherit_no_secrets) {
        static const char script[] =
                "#!/bin/sh\n"
                "echo \"$(env | grep -c TGC_TEST_SECRET) $([ -e /proc/self/fd/9 ]; echo $?)\"\n";
        char dir[512], path[600], *cc = getenv("CC") ? strdup(getenv("CC")) : 0;
        HostCc found;
        Err e;
        CHECK(!tmpdir_make(dir, &e));
        snprintf(path, sizeof path, "%s/cc", dir);
        CHECK(!file_write_atomic(path, script, sizeof script - 1, &e) && !chmod(path, 0700));
        setenv("CC", path, 1);
        setenv("TGC_TEST_SECRET", "x", 1);
        CHECK(dup2(1, 9) == 9);
        int code = host_cc_find(&found, 0, &e);
        close(9);
        cc ? setenv("CC", cc, 1) : unsetenv("CC");
        unsetenv("TGC_TEST_SECRET");
        tmpdir_remove(dir);
        free(cc);
        if (code || strcmp(found.command, path))
                SKIP("no shell to play a compiler");
        CHECK_MSG(!strcmp(found.version, "0 1"), "secrets seen, descriptor closed: %s",
                  found.version);
}

/* Who names a compiler wants that one. */
TEST (a_compiler_that_does_not_run) {
        static const struct {
                const char *cc, *says;
        } bad[] = {
                { "/nonexistent",
                  "CC=/nonexistent: `/nonexistent --version` does not run; name a compiler that "
                  "does" },
                { "false", "`false --version` does not run" },
                { " ", "name a compiler that does" },
        };
        char *cc = getenv("CC") ? strdup(getenv("CC")) : 0;
        enum { N = sizeof bad / sizeof *bad };
        int code[N];
        Err e[N];
        HostCc found;
        for (int i = 0; i < N; i++) {
                setenv("CC", bad[i].cc, 1);
                code[i] = host_cc_find(&found, 0, &e[i]);
        }
        setenv("CC", "env gcc", 1); /* words, as make takes them */
        int words = host_cc_find(&found, 0, &(Err) { 0 });
        cc ? setenv("CC", cc, 1) : unsetenv("CC");
        free(cc);
        CHECK(!words && !strcmp(found.command, "env gcc"));
        for (int i = 0; i < N; i++)
                CHECK_MSG(code[i] == TGC_NO_DEVICE && strstr(e[i].msg, bad[i].says), "%d: %s",
                          code[i], e[i].msg);
}

TEST (temporary_folders_are_removed) {
        char path[512], file[600];
        Err e;
        CHECK(!tmpdir_make(path, &e));
        snprintf(file, sizeof file, "%s/x", path);
        CHECK(!file_write_atomic(file, "1", 1, &e));
        tmpdir_remove(path);
        CHECK(access(path, F_OK));
        tmpdir_remove("");
}

TEST (program_and_plan_must_agree) {
        need(DEV_CPU);
        Plan p = make_plan(
                manifest,
                "tgc-program 2\narena w 160\n"
                "kernel nosuch unit infer threads 1 smem 0 args 1 flops 0 bytes 0 title x\n");
        Session *s;
        Err e;
        use_cache();
        int code = session_open(&s, &p, &(SessionOptions) { .device = DEV_CPU }, &e);
        CHECK_MSG(code == TGC_BAD_FILE && strstr(e.msg, "nosuch"), "%s", e.msg);
        plan_remove(&p, "program.cpu");
        CHECK(session_open(&s, &p, &(SessionOptions) { .device = DEV_CPU }, &e) == TGC_NO_DEVICE);
        CHECK_MSG(strstr(e.msg, "--target cpu"), "%s", e.msg);
        plan_remove(&p, "manifest");
        CHECK(session_open(&s, &p, &(SessionOptions) { .device = DEV_CPU }, &e) != TGC_OK);
        plan_close(&p);
}

/* ---- NVRTC without a GPU ---- */

TEST (nvrtc_compiles_for_other_machines) {
        static const char *const arch[] = { "sm_80", "sm_90a" };
        Nvrtc n;
        Err e;
        void *pack;
        size_t size;
        Pack k;

        use_cache();
        if (nvrtc_open(&n, 0, &e))
                SKIP("no NVRTC");
        Plan p = make_plan(manifest, PROGRAM("", "w+0"));
        for (int i = 0; i < 2; i++) {
                for (int again = 0; again < 3; again++) {
                        if (again == 2)
                                spoil_cache();
                        CHECK_MSG(!cuda_compile_plan(&p, arch[i], 0, &pack, &size, &e), "%s",
                                  e.msg);
                        CHECK_MSG(!pack_read(&k, pack, size, "cubin", &e), "%s", e.msg);
                        CHECK(k.n == 3 && !strcmp(k.file[2].name, "sources") &&
                              !strcmp(k.file[0].name, "infer") &&
                              !memcmp(k.file[0].data, "\177ELF", 4));
                        pack_free(&k);
                        free(pack);
                }
        }
        /* it belongs to these sources and this architecture */
        Section cubin = { .name = "cubin.sm_80" };
        const Section *src = plan_find(&p, "source.cuda");
        CHECK(!cuda_compile_plan(&p, "sm_80", 0, &pack, &size, &e));
        cubin.data = pack;
        cubin.size = size;
        CHECK(!code_unpack(&k, &p, &cubin, "cuda", (const char *const[]) { "sm_80", 0 }, &e) &&
              k.n == 2);
        pack_free(&k);
        CHECK(code_unpack(&k, &p, &cubin, "cuda", (const char *const[]) { "sm_90a", 0 }, &e) ==
              TGC_BAD_FILE);
        char *other = strndup(src->data, src->size);
        Plan q = make_plan(manifest, PROGRAM("", "w+0"));
        other[src->size - 1] = ' ';
        CHECK(!plan_add(&q, "source.cuda", other, src->size, &e));
        CHECK(code_unpack(&k, &q, &cubin, "cuda", (const char *const[]) { "sm_80", 0 }, &e) ==
              TGC_BAD_FILE);
        CHECK_MSG(strstr(e.msg, "cubin.sm_80 was not made of the plan's cuda sources"), "%s",
                  e.msg);
        plan_close(&q);
        free(other);
        free(pack);
        void *twice;
        size_t size2;
        CHECK(!cuda_compile_plan(&p, "sm_80", 1, &pack, &size, &e));
        CHECK(!cuda_compile_plan(&p, "sm_80", 1, &twice, &size2, &e));
        CHECK_MSG(size == size2 && !memcmp(pack, twice, size), "compiled twice, the bytes differ");
        free(pack);
        free(twice);
        CHECK(cuda_compile_plan(&p, "sm_12", 0, &pack, &size, &e) == TGC_USAGE);
        CHECK(cuda_compile_plan(&p, "hopper", 0, &pack, &size, &e) == TGC_USAGE);
        /* alone, and beside others, which children compile */
#define BAD "//@ unit infer\n__global__ void k() { int x = ; }\n"
        static const char *const bad[] = { BAD, "//@ unit first\n__global__ void k1() {}\n" BAD
                                                "//@ unit last\n__global__ void k2() {}\n" };
#undef BAD
        for (int i = 0; i < 2; i++) {
                CHECK(!plan_add(&p, "source.cuda", bad[i], strlen(bad[i]), &e));
                CHECK(cuda_compile_plan(&p, "sm_80", i, &pack, &size, &e) == TGC_NO_DEVICE);
                CHECK_MSG(strstr(e.msg, "infer.cu(1)") && strstr(e.msg, "kept in"), "%s", e.msg);
                char path[300];
                if (sscanf(strstr(e.msg, "kept in "), "kept in %299[^)]", path) == 1)
                        unlink(path);
        }
        plan_close(&p);
}

TEST (no_gpu_is_said_clearly) {
        Device *d;
        Err e;
        if (!dev_open(&d, DEV_CUDA, 0, &e)) {
                dev_close(d);
                SKIP("there is a GPU");
        }
        CHECK_MSG(strstr(e.msg, "driver") || strstr(e.msg, "GPU"), "%s", e.msg);
        CHECK(!dev_open(&d, DEV_AUTO, 0, &e) && dev_which(d) == DEV_CPU);
        dev_close(d);
}

TEST_MAIN
