/* test_data.c: records in rows, sources in shares, rows of a batch: what depends on what, and how
 * full rows are; tests/test_records.sh has the files. */
#include <stdlib.h>
#include <string.h>
#include "cli/data/windows.h"
#include "test.h"

enum { MOST = 400, T = 48 };

static unsigned rng = 7;
static int random_to(int n)
{
        rng = rng * 1664525u + 1013904223u;
        return (int)(rng >> 8) % n;
}

static void must(int code, const Err *e) { CHECK_MSG(!code, "%s", e->msg); }

/* Of an epoch: every record once, in rows that are not too long; few rows. */
static void check_packing(const Packing *p, const int *length, bool alone)
{
        int seen[MOST] = { 0 }, rows[MOST] = { 0 }, all = 0;
        for (int k = 0; k < p->n_rows; k++) {
                int sum = 0;
                rows[p->order[k]]++;
                CHECK(p->row[k] < p->row[k + 1] && (!alone || p->row[k + 1] == p->row[k] + 1));
                for (int i = p->row[k]; i < p->row[k + 1]; i++) {
                        const int slot = p->slot[i], record = p->record[slot];
                        CHECK(length[record] == p->length[slot]);
                        sum += p->length[slot];
                        seen[record]++;
                }
                CHECK_MSG(sum <= T, "row %d has %d places", k, sum);
                all += sum;
        }
        for (int i = 0; i < p->n; i++)
                CHECK(seen[i] == 1);
        for (int i = 0; i < p->n_rows; i++)
                CHECK(rows[i] == 1);
        /* all / T is a bound from below; first-fit-decreasing needs 11/9 of the fewest and one at
         * most, and of lengths above a half each needs its own */
        int large = 0;
        for (int i = 0; i < p->n; i++)
                large += 2 * length[i] > T;
        const int fewest = (all + T - 1) / T > large ? (all + T - 1) / T : large;
        if (!alone)
                CHECK_MSG(p->n_rows <= fewest * 11 / 9 + 1 + fewest / 4,
                          "%d rows, %d would be least", p->n_rows, fewest);
}

TEST (packing) {
        Err e;
        for (int trial = 0; trial < 60; trial++) {
                int length[MOST], n = trial ? 1 + random_to(MOST) : 1, first[MOST], order[MOST];
                Packing p;
                for (int i = 0; i < n; i++)
                        length[i] = trial % 3 == 0 ? 1 + random_to(T) : 1 + random_to(T / 4);
                must(packing_new(&p, length, n, T, trial % 7 == 5, &e), &e);
                packing_epoch(&p, 3, 0);
                memcpy(first, p.record, (size_t)n * sizeof *first);
                memcpy(order, p.order, (size_t)p.n_rows * sizeof *order);
                check_packing(&p, length, trial % 7 == 5);
                packing_epoch(&p, 3, 1);
                check_packing(&p, length, trial % 7 == 5);
                if (p.n_rows > 8)
                        CHECK(memcmp(order, p.order, (size_t)p.n_rows * sizeof *order));
                packing_epoch(&p, 4, 0);
                check_packing(&p, length, trial % 7 == 5);
                packing_epoch(&p, 3, 0); /* as it was */
                CHECK(!memcmp(first, p.record, (size_t)n * sizeof *first) &&
                      !memcmp(order, p.order, (size_t)p.n_rows * sizeof *order));
                packing_free(&p);
        }
}

/* Rows of T full of ones of one length are full. */
TEST (packing_fills_rows) {
        int length[MOST];
        Packing p;
        Err e;
        for (int i = 0; i < MOST; i++)
                length[i] = i % 2 ? T / 3 : 2 * T / 3;
        must(packing_new(&p, length, MOST, T, false, &e), &e);
        CHECK(p.n_rows == MOST / 2);
        packing_free(&p);
}

/* ids 1000 * record + place; what counts: places of odd number */
static void make_records(Records *r, int n)
{
        *r = (Records) { .n = n,
                         .start = calloc((size_t)n + 1, sizeof *r->start),
                         .id = calloc((size_t)n * T, sizeof *r->id) };
        for (int i = 0; i < n; i++) {
                const int k = 2 + random_to(T - 2);
                for (int t = 0; t < k; t++)
                        r->id[r->start[i] + (uint64_t)t] = (uint32_t)(1000 * (i + 1) + t) |
                                                           (t % 2 ? RECORD_COUNTS : 0);
                r->start[i + 1] = r->start[i] + (uint64_t)k;
        }
}

TEST (rows_of_records_and_streams) {
        enum { B = 3, N = 50, STREAM = 700 };
        uint16_t ids[STREAM];
        Source source[2] = { { .weight = 1, .records = true }, { .weight = 3 } };
        int length[N], which[N], x[B * T], y[B * T], d[2 * B * T], x2[B * T], y2[B * T];
        View view[2] = { { .source = &source[0], .which = which, .n = N },
                         { .source = &source[1], .begin = 0, .end = STREAM } };
        Windows w = { .view = view, .n = 2, .T = T, .seed = 5, .separator = 77, .pad = 9 };
        int seen[N] = { 0 }, stream = 0, rows = 0;
        Err e;
        make_records(&source[0].r, N);
        for (int i = 0; i < STREAM; i++)
                ids[i] = (uint16_t)(i % 100);
        TokenPart part[2] = { { .data = ids, .width = 2, .n = 301 },
                              { .data = ids + 301, .width = 2, .n = STREAM - 301 } };
        source[1].tokens = (Tokens) { part, 2, STREAM };
        for (int i = 0; i < N; i++) {
                which[i] = i;
                length[i] = (int)(source[0].r.start[i + 1] - source[0].r.start[i]) - 1;
        }
        must(packing_new(&view[0].pack, length, N, T, false, &e), &e);
        must(windows_mix(&w, &e), &e);
        /* an epoch: a fourth of all rows are of records */
        const int steps = view[0].pack.n_rows * 4 / B + MIX_ROWS;
        for (int step = 0; step < steps; step++) {
                windows_fill(&w, step, 0, 1, B, x, y, d);
                windows_fill(&w, step, 0, 1, B, x2, y2, NULL);
                CHECK(!memcmp(x, x2, sizeof x) && !memcmp(y, y2, sizeof y));
                for (int b = 0; b < B; b++, rows++) {
                        const int *u = x + b * T, *v = y + b * T, *k = d + 2 * b * T;
                        if (u[0] < 1000) {
                                stream++;
                                for (int t = 0; t < T; t++) {
                                        CHECK(v[t] == (u[t] + 1) % 100);
                                        CHECK(k[2 * t] <= t && k[2 * t + 1] > t);
                                        CHECK(t == 0 || (k[2 * t] == t) == (u[t] == 77));
                                }
                                continue;
                        }
                        for (int t = 0; t < T; t++) {
                                CHECK(k[2 * t] <= t && k[2 * t + 1] > t && k[2 * t + 1] <= T);
                                if (u[t] == 9) {
                                        CHECK(v[t] == -1);
                                        continue;
                                }
                                const int place = u[t] % 1000;
                                CHECK(k[2 * t] == t - place); /* positions begin with the record */
                                CHECK(v[t] == ((place + 1) % 2 ? u[t] + 1 : -1));
                                seen[u[t] / 1000 - 1] += !place;
                        }
                }
        }
        CHECK_MSG(abs(stream * 4 - rows * 3) < 4 * MIX_ROWS / 10, "%d of %d", stream, rows);
        int least = seen[0], most = seen[0];
        for (int i = 0; i < N; i++) {
                least = seen[i] < least ? seen[i] : least;
                most = seen[i] > most ? seen[i] : most;
        }
        CHECK_MSG(least > 3 && most <= least + 1, "records were there %d to %d times", least, most);
        packing_free(&view[0].pack);
        free(w.mix->before);
        free(w.mix);
        records_free(&source[0].r);
}

/* A share below a thousandth still has a row; the seed moves windows and not shares. */
TEST (shares) {
        Source source[3] = { { .weight = 0.0001 }, { .weight = 0.7 }, { .weight = 0.3 } };
        View view[3] = { { .source = &source[0] },
                         { .source = &source[1] },
                         { .source = &source[2] } };
        Windows w = { .view = view, .n = 3, .T = T };
        Err e;
        must(windows_mix(&w, &e), &e);
        CHECK(w.mix->before[0][MIX_ROWS] == 1);
        CHECK(abs(w.mix->before[1][MIX_ROWS] - 700) <= 1 &&
              abs(w.mix->before[2][MIX_ROWS] - 300) <= 1);
        free(w.mix->before);
        free(w.mix);
}

TEST (packed_records_are_checked) {
        Records r, again;
        void *data;
        size_t n;
        Err e;
        make_records(&r, 5);
        must(records_pack(&r, &data, &n, &e), &e);
        for (size_t cut = 0; cut < n; cut += 1 + n / 40) {
                void *part = malloc(cut + 1);
                memcpy(part, data, cut);
                CHECK(records_unpack(&again, part, cut, 1 << 20, &e) == TGC_BAD_FILE && !again.n);
        }
        void *small = malloc(n);
        memcpy(small, data, n);
        CHECK(records_unpack(&again, small, n, 3000, &e) == TGC_BAD_FILE); /* another vocabulary */
        must(records_unpack(&again, data, n, 1 << 20, &e), &e);
        CHECK(again.n == 5 && !memcmp(again.start, r.start, 6 * sizeof *r.start));
        records_free(&again);
        records_free(&r);
}

TEST_MAIN
