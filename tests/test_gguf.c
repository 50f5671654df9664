/* test_gguf.c: the container of GGUF files: what is in one, split ones, and every way to be wrong.
 * Files are made here, byte by byte. */
#include <math.h>
#include "../runtime/util/json.h"
#include "../runtime/weights/gguf.h"
#include "files_test.h"

typedef struct Made {
        unsigned char b[1 << 14];
        size_t n;
} Made;
static Made m;

static void raw(const void *p, size_t n)
{
        CHECK(m.n + n <= sizeof m.b);
        memcpy(m.b + m.n, p, n);
        m.n += n;
}
static void u32(uint32_t v) { raw(&v, 4); }
static void u64(uint64_t v) { raw(&v, 8); }
static void str(const char *s)
{
        u64(strlen(s));
        raw(s, strlen(s));
}
static void start(uint32_t version, uint64_t tensors, uint64_t keys)
{
        m.n = 0;
        raw("GGUF", 4);
        u32(version);
        u64(tensors);
        u64(keys);
}
static void key(const char *name, int type)
{
        str(name);
        u32((uint32_t)type);
}
static void tensor(const char *name, uint32_t type, uint64_t k, uint64_t n, uint64_t offset)
{
        str(name);
        u32(2);
        u64(k);
        u64(n);
        u32(type);
        u64(offset);
}
static void pad(size_t alignment, size_t data)
{
        static const unsigned char zero[4096];
        raw(zero, (alignment - m.n % alignment) % alignment);
        raw(zero, data);
}

static Gguf *parse(void)
{
        Gguf *g;
        CHECK_MSG(!gguf_parse(&g, m.b, m.n, "t.gguf", &err), "%s", err.msg);
        return g;
}

static void refused(const char *says)
{
        Gguf *g;
        int rc = gguf_parse(&g, m.b, m.n, "t.gguf", &err);
        CHECK_MSG(rc == TGC_BAD_FILE && !g && !strncmp(err.msg, "t.gguf: ", 8) &&
                          strstr(err.msg, says),
                  "code %d, %s; wanted %s", rc, rc ? err.msg : "", says);
}

/* ---- what is in a file ---- */

static void all_types(uint32_t version)
{
        int64_t i;
        double x;
        bool yes;
        size_t n;
        start(version, 2, 15);
        key("u8", GGUF_U8), raw("\xff", 1);
        key("i8", GGUF_I8), raw("\xff", 1);
        key("u16", GGUF_U16), raw("\xff\xff", 2);
        key("i16", GGUF_I16), raw("\xff\xff", 2);
        key("u32", GGUF_U32), u32(UINT32_MAX);
        key("i32", GGUF_I32), u32(UINT32_MAX);
        key("f32", GGUF_F32), raw(&(float) { 1e-5f }, 4);
        key("bool", GGUF_BOOL), raw("\1", 1);
        key("string", GGUF_STRING), str("h\xc3\xa9 \"llo\"\n");
        key("u64", GGUF_U64), u64(1ull << 40);
        key("i64", GGUF_I64), u64((uint64_t)-5);
        key("f64", GGUF_F64), raw(&(double) { 0.1 }, 8);
        key("list", GGUF_ARRAY), u32(GGUF_I32), u64(3), u32(1), u32(2), u32(3);
        key("words", GGUF_ARRAY), u32(GGUF_STRING), u64(2), str("a"), str("");
        key("nested", GGUF_ARRAY), u32(GGUF_ARRAY), u64(2);
        u32(GGUF_U8), u64(2), raw("ab", 2), u32(GGUF_STRING), u64(1), str("c");
        tensor("w", 0, 3, 2, 0);
        tensor("q", 8, 64, 1, 32);
        pad(32, 32 + 68);
        Gguf *g = parse();
        CHECK(gguf_version(g) == (int)version && gguf_n_keys(g) == 15 && gguf_n_tensors(g) == 2);
        CHECK(gguf_int(gguf_find(g, "u8"), &i) && i == 255);
        CHECK(gguf_int(gguf_find(g, "i8"), &i) && i == -1);
        CHECK(gguf_int(gguf_find(g, "u16"), &i) && i == 65535);
        CHECK(gguf_int(gguf_find(g, "i16"), &i) && i == -1);
        CHECK(gguf_int(gguf_find(g, "u32"), &i) && i == UINT32_MAX);
        CHECK(gguf_int(gguf_find(g, "i32"), &i) && i == -1);
        CHECK(gguf_int(gguf_find(g, "u64"), &i) && i == 1ll << 40);
        CHECK(gguf_int(gguf_find(g, "i64"), &i) && i == -5);
        CHECK(gguf_number(gguf_find(g, "f32"), &x) && (float)x == 1e-5f);
        CHECK(gguf_number(gguf_find(g, "f64"), &x) && x == 0.1);
        CHECK(gguf_number(gguf_find(g, "i8"), &x) && x == -1);
        CHECK(gguf_bool(gguf_find(g, "bool"), &yes) && yes);
        CHECK(!strncmp(gguf_string(gguf_find(g, "string"), &n), "h\xc3\xa9", 3) && n == 10);
        CHECK(!gguf_int(gguf_find(g, "f32"), &i) && !gguf_bool(gguf_find(g, "u8"), &yes) &&
              !gguf_string(gguf_find(g, "u8"), &n) && !gguf_number(gguf_find(g, "bool"), &x) &&
              !gguf_find(g, "none") && !gguf_int(NULL, &i));
        int sum = 0, words = 0, lists = 0;
        for (GgufEach e = gguf_each(gguf_find(g, "list")); gguf_next(&e);)
                sum = 10 * sum + (gguf_int(&e.value, &i) ? (int)i : 0);
        for (GgufEach e = gguf_each(gguf_find(g, "words")); gguf_next(&e); words++)
                CHECK(gguf_string(&e.value, &n) && n == !words);
        for (GgufEach e = gguf_each(gguf_find(g, "nested")); gguf_next(&e); lists++)
                CHECK(e.value.type == GGUF_ARRAY && e.value.n == 2 - (uint64_t)lists);
        CHECK(sum == 123 && words == 2 && lists == 2);
        for (GgufEach e = gguf_each(gguf_find(g, "u8")); gguf_next(&e);)
                CHECK(0);
        const CkTensor *w = gguf_find_tensor(g, "w"), *q = gguf_find_tensor(g, "q");
        CHECK(w && w->dtype == CK_F32 && w->rank == 2 && w->dim[0] == 2 && w->dim[1] == 3 &&
              w->bytes == 24);
        CHECK(q && q->dtype == CK_Q8_0 && q->bytes == 68 &&
              (const char *)q->data == (const char *)w->data + 32);
        CHECK(!gguf_find_tensor(g, "v") && gguf_tensor_bytes(g) == 92);
        gguf_free(g);
}

TEST (types) {
        all_types(2);
        all_types(3);
}

TEST (as_json) {
        char *text;
        start(3, 1, 6);
        key("a.eps", GGUF_F32), raw(&(float) { 1e-5f }, 4);
        key("a.theta", GGUF_F32), raw(&(float) { 1e6f }, 4);
        key("a.bad", GGUF_F32), raw(&(float) { NAN }, 4);
        key("a.list", GGUF_ARRAY), u32(GGUF_U32), u64(2), u32(4), u32(5);
        key("words", GGUF_ARRAY), u32(GGUF_STRING), u64(1), str("left out");
        key("s", GGUF_STRING), str("q\"\\\n\x01");
        str("rope_freqs.weight"), u32(1), u64(2), u32(0), u64(0);
        pad(32, 0);
        raw(&(float[]) { 1, 0.5f }, 8);
        Gguf *g = parse();
        CHECK_MSG(!gguf_json(g, &text, &err), "%s", err.msg);
        CHECK_MSG(!strcmp(text,
                          "{\"a.eps\":1e-05,\n\"a.theta\":1e+06,\n\"a.bad\":\"nan\",\n"
                          "\"a.list\":[4,5],\n\"s\":\"q\\\"\\\\\\u000a\\u0001\",\n"
                          "\"tensors\":{\"rope_freqs.weight\":{\"type\":\"F32\",\"shape\":[2],"
                          "\"values\":[1.0,0.5]}}}"),
                  "%s", text);
        free(text);
        gguf_free(g);
        start(3, 0, 0);
        g = parse();
        CHECK(!gguf_json(g, &text, &err) && !strcmp(text, "{\"tensors\":{}}"));
        free(text);
        gguf_free(g);
}

TEST (alignment) {
        for (uint32_t a = 8; a <= 4096; a *= 8) {
                start(3, 2, 1);
                key("general.alignment", a == 64 ? GGUF_U64 : GGUF_U32);
                u32(a);
                if (a == 64)
                        u32(0);
                tensor("a", 0, 1, 1, 0);
                tensor("b", 0, 1, 1, a);
                pad(a, 0);
                const size_t data = m.n;
                pad(a, a < 4096 ? a + 4 : 4096);
                if (a == 4096)
                        pad(1, 4);
                Gguf *g = parse();
                CHECK((const unsigned char *)gguf_find_tensor(g, "a")->data == m.b + data &&
                      (const unsigned char *)gguf_find_tensor(g, "b")->data == m.b + data + a);
                gguf_free(g);
        }
}

/* ---- refused ---- */

TEST (bad_heads) {
        start(3, 0, 0), m.b[0] = 'g', refused("does not begin with GGUF");
        start(1, 0, 0), refused("GGUF version 1; versions 2 and 3 are read: convert");
        start(0x03000000, 0, 0), refused("(big-endian)");
        start(4, 0, 0), refused("GGUF version 4");
        start(3, 1ull << 60, 0), refused("says that it has 1152921504606846976 tensors");
        start(3, 0, 1ull << 60), refused("says that it has 1152921504606846976 metadata keys");
        start(3, UINT64_MAX, UINT64_MAX), refused("tensors");
        start(3, 1, 0), refused("says that it has 1 tensors");
        m.n = 0, refused("the magic number: the file ends there");
        start(3, 0, 0), m.n = 7, refused("the version: the file ends there, at byte 7");
        start(3, 0, 0), m.n = 23, refused("the number of metadata keys");
}

TEST (bad_metadata) {
        static const struct {
                int type;
                const char *bytes;
                size_t n;
                const char *says;
        } bad[] = {
                { 13, "", 0, "k is of type 13, which GGUF has not" },
                { -1, "", 0, "k is of type 4294967295" },
                { GGUF_U32, "123", 3, "k: the file ends there" },
                { GGUF_BOOL, "\2", 1, "k is a bool of value 2" },
                { GGUF_STRING, "\5\0\0\0\0\0\0\0abcd", 12, "k: the file ends there" },
                { GGUF_STRING, "\377\377\377\377\377\377\377\377", 8, "k: the file ends there" },
                { GGUF_ARRAY, "\4\0\0\0\377\377\377\377\377\377\377\177", 12,
                  "k: the file ends there" },
                { GGUF_ARRAY, "\10\0\0\0\377\377\377\377\377\377\377\177", 12,
                  "k: the file ends there" },
                { GGUF_ARRAY, "\15\0\0\0\0\0\0\0\0\0\0\0", 12, "k: an array of an unknown type" },
                { GGUF_ARRAY, "\11\0\0\0\1\0\0\0\0\0\0\0", 12, "k: the file ends there" },
        };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                start(3, 0, 1);
                key("k", bad[i].type), raw(bad[i].bytes, bad[i].n);
                refused(bad[i].says);
        }
        start(3, 0, 1), key("k", GGUF_ARRAY);
        for (int i = 0; i < 6; i++)
                u32(GGUF_ARRAY), u64(1);
        refused("an array of arrays, too deep");
        start(3, 0, 2), key("k", GGUF_U8), raw("a", 1), key("k", GGUF_U8), raw("a", 1);
        refused("metadata key k is given twice");
        start(3, 0, 1), key("", GGUF_U8), raw("a", 1), pad(1, 8);
        refused("the name of metadata key 0 has 0 bytes, 1 to 65535 are allowed");
        start(3, 0, 1), key("a\nb", GGUF_U8), raw("a", 1), refused("control characters");
        start(3, 0, 1), key("\xff", GGUF_U8), raw("a", 1), refused("not UTF-8");
        for (int i = 0; i < 3; i++) {
                start(3, 0, 1), key("general.alignment", GGUF_U32),
                        u32(i ? (uint32_t)i * 4 - 4 : 12);
                refused("general.alignment is");
        }
        start(3, 0, 1), key("general.alignment", GGUF_STRING), str("32");
        refused("general.alignment is 32 (string)");
}

TEST (bad_tensors) {
        static const struct {
                uint32_t rank;
                uint64_t dim[5];
                uint32_t type;
                uint64_t offset;
                const char *says;
        } bad[] = {
                { 5, { 1, 1, 1, 1, 1 }, 0, 0, "tensor t has 5 dimensions" },
                { 1, { 0 }, 0, 0, "tensor t has a dimension of 0" },
                { 1, { 1ull << 63 }, 0, 0, "tensor t has a dimension of 9223372036854775808" },
                { 2,
                  { 1ull << 40, 1ull << 40 },
                  0,
                  0,
                  "tensor t is too large: [1099511627776,109951" },
                { 1, { 4 }, 99, 0, "tensor t is of ggml type 99, not known here" },
                { 2,
                  { 33, 2 },
                  8,
                  0,
                  "tensor t is [2,33]: rows of 33 are no multiple of Q8_0's 32" },
                { 2, { 128, 2 }, 12, 0, "rows of 128 are no multiple of Q4_K's 256 values" },
                { 0, { 0 }, 8, 0, "rows of 1 are no multiple" },
                { 1, { 64 }, 0, 4, "tensor t: offset 4 is no multiple of the alignment 32" },
                { 1, { 65 }, 0, 0, "tensor t: bytes 0 to 260 of the data, and the file has 256" },
                { 1, { 1 }, 0, 256, "tensor t: bytes 256 to 260" },
                { 1, { 1 }, 0, UINT64_MAX - 31, "tensor t: bytes 18446744073709551584 to" },
                { 1, { 64 }, 0, 0, 0 },
        };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                start(3, 1, 0);
                str("t"), u32(bad[i].rank);
                for (uint32_t k = 0; k < bad[i].rank; k++)
                        u64(bad[i].dim[k]);
                u32(bad[i].type), u64(bad[i].offset);
                pad(32, 256);
                if (bad[i].says)
                        refused(bad[i].says);
                else
                        gguf_free(parse());
        }
        start(3, 2, 0), tensor("a", 0, 8, 1, 0), tensor("b", 0, 8, 1, 0), pad(32, 64);
        refused("tensors a and b overlap");
        start(3, 2, 0), tensor("a", 0, 9, 1, 0), tensor("b", 0, 1, 1, 32), pad(32, 64);
        refused("tensors a and b overlap");
        start(3, 2, 0), tensor("a", 0, 1, 1, 0), tensor("a", 0, 1, 1, 32), pad(32, 64);
        refused("tensor a is given twice");
        start(3, 1, 0), tensor("a b\t", 0, 1, 1, 0), pad(32, 64), refused("control characters");
}

/* A file cut anywhere is refused, and any byte of its head changed does no harm. */
TEST (cut_anywhere) {
        all_types(3);
        const Made whole = m;
        for (size_t n = 0; n < whole.n; n++) {
                Gguf *g;
                CHECK_MSG(gguf_parse(&g, whole.b, n, "t.gguf", &err) == TGC_BAD_FILE,
                          "%zu bytes were accepted", n);
        }
        for (size_t at = 0; at < whole.n; at++)
                for (int bit = 0; bit < 8; bit++) {
                        Gguf *g;
                        char *text;
                        m.b[at] ^= (unsigned char)(1 << bit);
                        if (!gguf_parse(&g, m.b, m.n, "t.gguf", &err)) {
                                CHECK(!gguf_json(g, &text, &err));
                                free(text);
                                gguf_free(g);
                        }
                        m.b[at] = whole.b[at];
                }
}

/* ---- files ---- */

static void part(const char *name, int no, int count, int tensors, const char *tensor_name)
{
        start(3, 1, 3);
        key("split.no", GGUF_U16), raw(&(uint16_t) { (uint16_t)no }, 2);
        key("split.count", GGUF_U16), raw(&(uint16_t) { (uint16_t)count }, 2);
        key("split.tensors.count", GGUF_I32), u32((uint32_t)tensors);
        tensor(tensor_name, 0, 2, 1, 0);
        pad(32, 0);
        raw(&(float[]) { (float)no, 5 }, 8);
        put(tmp(name), m.b, m.n);
}

TEST (split_files) {
        Checkpoint *ck;
        Gguf *g;
        float x;
        const char *one = "m-00001-of-00003.gguf", *two = "m-00002-of-00003.gguf",
                   *three = "m-00003-of-00003.gguf";
        part(one, 0, 3, 3, "a"), part(two, 1, 3, 3, "b"), part(three, 2, 3, 3, "c");
        CHECK_MSG(!checkpoint_open(&ck, tmp(one), &err), "%s", err.msg);
        CHECK(checkpoint_count(ck) == 3);
        memcpy(&x, checkpoint_find(ck, "c")->data, 4);
        CHECK(x == 2);
        checkpoint_close(ck);
        CHECK(gguf_open(&g, tmp(two), &err) == TGC_USAGE &&
              strstr(err.msg, "file 2 of 3; give the first one"));
        part(three, 1, 3, 3, "c");
        CHECK(gguf_open(&g, tmp(one), &err) == TGC_BAD_FILE &&
              strstr(err.msg, "is file 2 of 3 by its metadata, and 3 of 3 by its name"));
        part(three, 2, 3, 3, "b");
        CHECK(gguf_open(&g, tmp(one), &err) == TGC_BAD_FILE &&
              strstr(err.msg, "tensor b is given twice"));
        part(three, 2, 3, 3, "c"), part(one, 0, 3, 4, "a");
        CHECK(gguf_open(&g, tmp(one), &err) == TGC_BAD_FILE &&
              strstr(err.msg, "split.tensors.count is 4, and the 3 files have 3"));
        part(one, 0, 3, 3, "a");
        unlink(tmp(three));
        CHECK(gguf_open(&g, tmp(one), &err) == TGC_IO && strstr(err.msg, three));
        part("alone.gguf", 0, 3, 3, "a");
        CHECK(gguf_open(&g, tmp("alone.gguf"), &err) == TGC_BAD_FILE &&
              strstr(err.msg, "NAME-00001-of-00003.gguf"));
        part("alone.gguf", 0, 5000, 3, "a");
        CHECK(gguf_open(&g, tmp("alone.gguf"), &err) == TGC_BAD_FILE &&
              strstr(err.msg, "split.count is 5000"));
        part("alone.gguf", 0, 1, 1, "a");
        CHECK(!gguf_open(&g, tmp("alone.gguf"), &err));
        gguf_free(g);
        CHECK(gguf_open(&g, tmp("none.gguf"), &err) == TGC_IO);
}

TEST_MAIN
