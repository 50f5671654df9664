/* plan_file.c: a plan file as a container: as it is; and with its size and hashes set right */
#include <xxhash.h>
#include "file.h"
#include "../../runtime/plan/plan.h"

enum { HEAD = 64, ENTRY = 56, PIECE = 16 << 20 };

static void use_container(const uint8_t *data, size_t n)
{
        Plan p;
        Err e;
        uint64_t sum = 0;

        if (plan_open_memory(&p, data, n, &e)) {
                HOLDS(!p.n_sections && !p.section && *e.msg);
                return;
        }
        for (int i = 0; i < p.n_sections; i++) {
                HOLDS(plan_find(&p, p.section[i].name) == &p.section[i]);
                for (size_t k = 0; k < p.section[i].size; k++)
                        sum += ((const uint8_t *)p.section[i].data)[k];
        }
        HOLDS(sum <= 255 * (uint64_t)n);
        plan_close(&p);
}

static void set_right(uint8_t *s, size_t n)
{
        uint32_t count;
        uint64_t x = n;

        memcpy(s + 32, &x, 8);
        memcpy(&count, s + 16, 4);
        if (count > (n - HEAD) / ENTRY)
                return;
        for (uint8_t *t = s + HEAD; t < s + HEAD + count * ENTRY; t += ENTRY) {
                uint64_t offset, size;
                memcpy(&offset, t + 32, 8);
                memcpy(&size, t + 40, 8);
                if (offset > n || size > n - offset || size > PIECE)
                        continue;
                x = XXH3_64bits(s + offset, size);
                x = size ? XXH3_64bits(&x, 8) : XXH3_64bits(&x, 0);
                memcpy(t + 48, &x, 8);
        }
        x = XXH3_64bits(s + HEAD, count * ENTRY);
        memcpy(s + 24, &x, 8);
}

FUZZ(plan_file)
{
        use_container(data, n);
        if (n < HEAD)
                return;
        uint8_t *s = malloc(n);
        HOLDS(s);
        memcpy(s, data, n);
        set_right(s, n);
        use_container(s, n);
        free(s);
}
