/* tb_events.c: writes TensorBoard's event file: TFRecord records, each a protocol-buffer Event.
 *
 * A record is its length (64 bits), the masked CRC-32C of these eight bytes, the data, and the
 * masked CRC-32C of the data; all little-endian.  An Event gets these fields: 1 wall_time (double),
 * 2 step (varint), 3 file_version, 5 summary, 7 session_log.  A Summary has Values (1) of tag (1)
 * and simple_value (2, float).  SessionLog's status 1 (START) makes readers forget what earlier
 * files hold from its step on. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "../../runtime/util/file.h"
#include "train_log.h"

/* Castagnoli's polynomial, reflected, a bit at a time: an event has a hundred bytes. */
static uint32_t crc32c(const void *data, size_t n)
{
        const unsigned char *p = data;
        uint32_t c = ~0u;
        for (size_t i = 0; i < n; i++) {
                c ^= p[i];
                for (int k = 0; k < 8; k++)
                        c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
        }
        return ~c;
}

/* A CRC of data that holds CRCs is weak: TFRecord rotates and shifts it. */
static uint32_t masked(const void *data, size_t n)
{
        const uint32_t c = crc32c(data, n);
        return (c >> 15 | c << 17) + 0xa282ead8u;
}

enum { MOST = 2048 };
typedef struct Proto {
        unsigned char b[MOST];
        size_t n;
} Proto;

static void put(Proto *p, const void *data, size_t n)
{
        if (p->n + n <= MOST) {
                memcpy(p->b + p->n, data, n);
                p->n += n;
        }
}

static void put_le(Proto *p, uint64_t x, int bytes)
{
        for (int i = 0; i < bytes; i++, x >>= 8)
                put(p, &(unsigned char) { (unsigned char)x }, 1);
}

static void put_varint(Proto *p, uint64_t x)
{
        for (; x > 127; x >>= 7)
                put_le(p, (x & 127) | 128, 1);
        put_le(p, x, 1);
}

enum { VARINT, FIXED64, BYTES, FIXED32 = 5 };
static void put_key(Proto *p, unsigned field, unsigned type) { put_varint(p, field << 3 | type); }

static void put_bytes(Proto *p, unsigned field, const void *data, size_t n)
{
        put_key(p, field, BYTES);
        put_varint(p, n);
        put(p, data, n);
}

static uint64_t bits_of_double(double x)
{
        uint64_t b;
        memcpy(&b, &x, 8);
        return b;
}

static uint32_t bits_of_float(float x)
{
        uint32_t b;
        memcpy(&b, &x, 4);
        return b;
}

static int put_event(LogFile *f, int64_t step, unsigned field, const void *data, size_t n, Err *e)
{
        struct timespec now;
        Proto event = { 0 }, record = { 0 };
        clock_gettime(CLOCK_REALTIME, &now);
        put_key(&event, 1, FIXED64);
        put_le(&event, bits_of_double((double)now.tv_sec + (double)now.tv_nsec * 1e-9), 8);
        put_key(&event, 2, VARINT);
        put_varint(&event, (uint64_t)step);
        put_bytes(&event, field, data, n);
        put_le(&record, event.n, 8);
        put_le(&record, masked(record.b, 8), 4);
        put(&record, event.b, event.n);
        put_le(&record, masked(event.b, event.n), 4);
        return log_write(f, record.b, record.n, e);
}

int tb_open(LogFile *f, const char *dir, int64_t from, Err *e)
{
        static const unsigned char start[] = { 1 << 3 | VARINT, 1 };
        char host[64] = "", name[200];
        gethostname(host, sizeof host - 1);
        for (char *c = host; *c; c++)
                *c = *c == '/' ? '_' : *c;
        snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%d", (long long)time(NULL),
                 *host ? host : "tgc", (int)getpid());
        if (!(f->path = file_join(dir, name)))
                return err_set(e, TGC_NO_MEMORY, "no memory for the log");
        f->fd = open(f->path, O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0666);
        if (f->fd < 0)
                return err_set(e, TGC_IO, "%s: %s", f->path, strerror(errno));
        int code = put_event(f, 0, 3, "brain.Event:2", 13, e);
        /* a row's step is one more than that of the log */
        return code || !from ? code : put_event(f, from + 1, 7, start, sizeof start, e);
}

int tb_scalars(LogFile *f, int64_t step, const TbScalar *s, int n, Err *e)
{
        Proto summary = { 0 };
        for (int i = 0; i < n; i++) {
                Proto value = { 0 };
                if (isnan(s[i].value))
                        continue;
                put_bytes(&value, 1, s[i].tag, strlen(s[i].tag));
                put_key(&value, 2, FIXED32);
                put_le(&value, bits_of_float((float)s[i].value), 4);
                put_bytes(&summary, 1, value.b, value.n);
        }
        return summary.n ? put_event(f, step, 5, summary.b, summary.n, e) : TGC_OK;
}
