/* cpu_gemm.h: C = op(A) op(B) with an epilogue, for more than a few rows.
 *
 * A tile is a block of C, at most MATMUL_MT x MATMUL_NT.  It goes through k in steps of MATMUL_KC.
 * Each step packs its part of B into panels of GEMM_NR columns (zero-padded rows), and A where it
 * is not already rows of floats, and runs the register kernel over all pairs of panels (Goto and
 * van de Geijn, 2008).  A linear's rows may be prepared for all tiles first (ready_task), for int8
 * or AMX.  Tiles share nothing.  An element of C is one sum in the order of k, cut at the same
 * places for any tile: its bits do not depend on the tiling. */
#ifndef TGC_CPU_GEMM_H
#define TGC_CPU_GEMM_H

#include "cpu_tgc.h"

/* A matrix operand.  trans 0: rows of op() are contiguous, element (r, c) at r*ld + c;
 * trans 1: stored transposed, (r, c) at c*ld + r.  batch: elements from one matrix of
 * a batch to the next (0: shared). */
typedef struct Mat {
        const void *p;
        int ty, trans;
        long ld, batch;
        const void *ready; /* A of a linear as ready_task prepared it, or NULL */
} Mat;

/* The register kernel holds MR x 2 vectors of C. */
#if defined __AVX512F__ || defined __aarch64__
#define GEMM_MR 8
#else
#define GEMM_MR 6
#endif
#define GEMM_NR (2 * TGC_VEC)

enum {
        MATMUL_MT = 192,
        MATMUL_NT = 512,
        MATMUL_KC = 256,
        MATMUL_MIN_TILES = 16,     /* smaller tiles until there are this many ... */
        MATMUL_MIN_WORK = 1 << 21, /* ... but none with less work than this many multiplications */
        MATMUL_MANY = 48, /* for linears this many, or a multiple of 16, while tiles are at least
                           * this large: */
        MATMUL_LEAST_M = 64,
        MATMUL_LEAST_N = 128
};
_Static_assert(MATMUL_MT *MATMUL_KC + MATMUL_KC * MATMUL_NT + MATMUL_MT * MATMUL_NT <= TGC_SCRATCH,
               "scratch");

/* ---- panels in cache --------------------------------------------------- */

/* C[mr][NR] (+)= A[mr][k] B[k][NR]; A element (i, p) at a[i*ar + p*ac]. */
TGC_INLINE void gemm_micro(int mr, int k, const float *a, long ar, long ac, const float *b,
                           long ldb, float *c, long ldc, int add)
{
        Vec s[GEMM_MR][2];
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++)
                s[i][0] = s[i][1] = vec_all(0.f);
        for (int p = 0; p < k; p++, b += ldb, a += ac) {
                Vec b0 = vec_load(b), b1 = vec_load(b + TGC_VEC);
#pragma GCC unroll 8
                for (int i = 0; i < mr; i++) {
                        Vec x = vec_all(a[i * ar]);
                        s[i][0] = x * b0 + s[i][0];
                        s[i][1] = x * b1 + s[i][1];
                }
        }
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++, c += ldc) {
                vec_store(c, add ? vec_load(c) + s[i][0] : s[i][0]);
                vec_store(c + TGC_VEC, add ? vec_load(c + TGC_VEC) + s[i][1] : s[i][1]);
        }
}

/* The same for any mr <= GEMM_MR.  ac: 1 (rows of floats) or GEMM_MR (panels, ar = 1). */
TGC_NOINLINE void gemm_panel(int mr, int k, const float *a, long ar, long ac, const float *b,
                             long ldb, float *c, long ldc, int add)
{
#define GEMM_CASE(n)                                                          \
        case n:                                                               \
                if (ac == 1)                                                  \
                        gemm_micro(n, k, a, ar, 1, b, ldb, c, ldc, add);      \
                else                                                          \
                        gemm_micro(n, k, a, 1, GEMM_MR, b, ldb, c, ldc, add); \
                break;
        switch (mr) {
                /* clang-format off: it finds no rest here */
                GEMM_CASE(1)
                GEMM_CASE(2)
                GEMM_CASE(3)
                GEMM_CASE(4)
                GEMM_CASE(5)
                GEMM_CASE(6)
                /* clang-format on */
#if GEMM_MR == 8
                /* clang-format off: it finds no rest here */
                GEMM_CASE(7)
                GEMM_CASE(8)
                /* clang-format on */
#endif
        }
#undef GEMM_CASE
}

/* C (m, n rounded up to NR; ldc) (+)= A B over one step of k.  A as for gemm_panel, its
 * panels MR*k apart; B panels k*NR apart. */
TGC_NOINLINE void gemm_block(int m, int n, int k, const float *a, long ar, long ac, const float *b,
                             float *c, long ldc, int add)
{
        for (int j = 0; j < n; j += GEMM_NR)
                for (int i = 0; i < m; i += GEMM_MR) {
                        int mr = m - i < GEMM_MR ? m - i : GEMM_MR;
                        gemm_panel(mr, k, a + (ac == 1 ? i * ar : (long)i * k), ar, ac,
                                   b + (long)j * k, GEMM_NR, c + i * ldc + j, ldc, add);
                }
}

/* to[c*ldt + r] = from[r*ldf + c], 8 x 8. */
TGC_INLINE void transpose8(float *to, long ldt, const float *from, long ldf)
{
#ifdef TGC_SHUFFLE
        typedef float V8 __attribute__((vector_size(32)));
        V8 r[8], s[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
                memcpy(&r[i], from + i * ldf, sizeof r[i]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) { /* pairs of rows 2i, 2i+1 */
                s[2 * i] = TGC_SHUFFLE(r[2 * i], r[2 * i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
                s[2 * i + 1] = TGC_SHUFFLE(r[2 * i], r[2 * i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) { /* fours: rows 0..3 in r[0..3], 4..7 in r[4..7] */
                int h = i & 2, l = i & 1;
                V8 x = s[2 * h + l], y = s[2 * h + 2 + l];
                r[2 * h + 2 * l] = TGC_SHUFFLE(x, y, 0, 1, 8, 9, 4, 5, 12, 13);
                r[2 * h + 2 * l + 1] = TGC_SHUFFLE(x, y, 2, 3, 10, 11, 6, 7, 14, 15);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) { /* columns i and i+4 */
                V8 x = TGC_SHUFFLE(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
                V8 y = TGC_SHUFFLE(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
                memcpy(to + i * ldt, &x, sizeof x);
                memcpy(to + (i + 4) * ldt, &y, sizeof y);
        }
#else
        for (int c = 0; c < 8; c++)
                for (int r = 0; r < 8; r++)
                        to[c * ldt + r] = from[r * ldf + c];
#endif
}

/* Packs rows (n, k), ld apart, of which `at` is the first element, into panels of B: row n becomes
 * column n.  Columns beyond n are zero. */
TGC_NOINLINE void pack_rows(float *to, const void *p, int ty, long at, long ld, int n, int k)
{
        float row[8 * MATMUL_KC];
        for (int j = 0; j < n; j += GEMM_NR, to += GEMM_NR * k)
                for (int jj = 0; jj < GEMM_NR; jj += 8) {
                        int rows = n - j - jj < 0 ? 0 : n - j - jj > 8 ? 8 : n - j - jj;
                        const float *from = row;
                        long ldf = k;
                        int c = 0;
                        if (rows == 8 && ty == TY_F32) {
                                from = (const float *)p + at + (j + jj) * ld;
                                ldf = ld;
                        } else {
                                for (int r = 0; r < rows; r++)
                                        ty_load(ty, row + r * k, p, at + (j + jj + r) * ld, k);
                                memset(row + rows * k, 0, sizeof(float) * (size_t)((8 - rows) * k));
                        }
                        for (; c + 8 <= k; c += 8)
                                transpose8(to + c * GEMM_NR + jj, GEMM_NR, from + c, ldf);
                        for (; c < k; c++)
                                for (int r = 0; r < 8; r++)
                                        to[c * GEMM_NR + jj + r] = from[r * ldf + c];
                }
}

/* Packs panels of constant width nr from k rows of n elements (op(B), or A stored transposed).
 * row: the source row of each k (gather), or NULL. */
TGC_INLINE void pack_width(float *to, int nr, const void *p, int ty, long at, long ld, int n, int k,
                           const int *row)
{
        int j = 0;
        for (; j + 4 * nr <= n && ty == TY_F32;
             j += 4 * nr, to += 4 * nr * k) /* whole cache lines of the source */
                for (int c = 0; c < k; c++) {
                        const float *from = (const float *)p + at + (row ? row[c] : c) * ld + j;
#pragma GCC unroll 4
                        for (int q = 0; q < 4; q++)
                                memcpy(to + (q * k + c) * nr, from + q * nr,
                                       sizeof(float) * (size_t)nr);
                }
        for (; j < n; j += nr, to += nr * k) {
                int w = n - j < nr ? n - j : nr;
                for (int c = 0; c < k; c++) {
                        ty_load(ty, to + c * nr, p, at + (row ? row[c] : c) * ld + j, w);
                        for (int x = w; x < nr; x++)
                                to[c * nr + x] = 0.f;
                }
        }
}

#ifdef TGC_STORED
/* The same for block-quantised weights: each row is decoded once, not once per panel. */
TGC_NOINLINE void pack_stored(float *to, const void *p, int ty, long at, long ld, int n, int k)
{
        float row[MATMUL_NT + GEMM_NR];
        for (int c = 0; c < k; c++) {
                stored_load(ty, row, p, at + c * ld, n);
                memset(row + n, 0, sizeof(float) * GEMM_NR);
                for (int j = 0; j < n; j += GEMM_NR)
                        memcpy(to + (long)j * k + c * GEMM_NR, row + j, sizeof(float) * GEMM_NR);
        }
}
#endif

TGC_NOINLINE void pack_b(float *to, const void *p, int ty, long at, long ld, int n, int k,
                         const int *row)
{
#ifdef TGC_STORED
        if (TY_IS_STORED(ty) && !row) {
                pack_stored(to, p, ty, at, ld, n, k);
                return;
        }
#endif
        pack_width(to, GEMM_NR, p, ty, at, ld, n, k, row);
}

TGC_NOINLINE void pack_a(float *to, const void *p, int ty, long at, long ld, int m, int k,
                         const int *row)
{
        pack_width(to, GEMM_MR, p, ty, at, ld, m, k, row);
}

/* m rows of A as floats (m, k), ldt = k.  row: source row of each, or NULL. */
TGC_NOINLINE void pack_floats(float *to, const void *p, int ty, long at, long ld, int m, int k,
                              const int *row)
{
        for (int i = 0; i < m; i++)
                ty_load(ty, to + (long)i * k, p, at + (row ? row[i] : i) * ld, k);
}

#if defined TGC_X86 && defined __AVX512VNNI__ && defined __AVX512BW__ && TGC_VEC == 16 && \
        ((defined __AMX_TILE__ && defined __linux__) || defined TGC_AMX_PLAYED)
#define TGC_AMX 1
#include "cpu_amx.h"
#if defined __AMX_INT8__ || defined TGC_AMX_PLAYED
#define TGC_AMX_INT8 1
#endif
#if defined __AMX_BF16__ || defined TGC_AMX_PLAYED
#define TGC_AMX_BF16 1
#endif
#endif

#if defined TGC_STORED && defined TGC_ACT_INT8 && defined __AVX512VNNI__ && \
        defined __AVX512BW__ && TGC_VEC == 16
#if defined __GNUC__ && !defined __clang__
#define TGC_QUANT_O3 __attribute__((optimize("O3", "no-tree-loop-if-convert")))
#else
#define TGC_QUANT_O3
#endif
#include "cpu_stored_gemm.h"
#define QUANT_GEMM(a, b) ((b).trans && !(a).trans && quant_gemm_has((b).ty))
/* int8 panels fit in the room of float panels, and leave some behind. */
enum { QG_PANELS = MATMUL_NT / QG_COLS * (MATMUL_KC / QG_CHUNK) * (int)sizeof(QuantPanel) / 4 };
_Static_assert(QG_PANELS * 4 + MATMUL_MT / 16 * (MATMUL_KC / QG_CHUNK) * sizeof(QuantBlock) <=
                               MATMUL_KC * MATMUL_NT * sizeof(float) &&
                       MATMUL_MT % 16 == 0,
               "scratch");
#else
#define QUANT_GEMM(a, b) 0
#endif

#if defined TGC_BF16 && defined TGC_X86 && defined __AVX512BF16__ && defined __AVX512BW__ && \
        TGC_VEC == 16
#include "cpu_bf16_gemm.h"
#define TGC_PAIRS 1
#ifdef TGC_AMX_BF16
#include "cpu_amx_bf16.h"
#endif
#define PAIRS_GEMM(a, b, K, rows)                                                                \
        ((a).ty == TY_BF16 && (b).ty == TY_BF16 && !(a).trans && (b).trans && (K) % BG_K == 0 && \
         !(rows))
#else
#define PAIRS_GEMM(a, b, K, rows) 0
#endif

/* ---- preparing rows of A ------------------------------------------------ */

/* A (M,K), rows contiguous, for linears: rounded to 8 bits, or laid out in AMX tiles of bf16, by
 * 16 rows.  READY_BYTES per 16 rows and 32 columns. */
enum { READY_BYTES = 1024 };

TGC_INLINE int ready_pairs(Mat a, Mat w, long K)
{
#ifdef TGC_AMX_BF16
#ifdef TGC_PAIRS
        if (PAIRS_GEMM(a, w, K, 0))
                return amx_allowed();
#endif
#endif
        (void)a, (void)w, (void)K;
        return 0;
}

/* 0: A is used as it is. */
TGC_INLINE long ready_tiles(Mat a, Mat w, long M, long K)
{
        return QUANT_GEMM(a, w) || ready_pairs(a, w, K) ? tgc_ceil_div(M, 16) : 0;
}

TGC_INLINE void ready_task(Mat a, Mat w, long M, long K, void *to, long tile)
{
        const int m = (int)tgc_min(16, M - tile * 16);
        const long from = tile * 16;
#ifdef TGC_QUANT_O3
        if (QUANT_GEMM(a, w)) {
                const long chunks = K / QG_CHUNK;
                float *x = tgc_scratch;
                for (int i = 0; i < m; i++)
                        for (long k = 0; k < K; k += TGC_SCRATCH / QG_CHUNK * QG_CHUNK) {
                                const int n = (int)tgc_min(K - k,
                                                           TGC_SCRATCH / QG_CHUNK * QG_CHUNK);
                                ty_load(a.ty, x, a.p, (from + i) * a.ld + k, n);
                                quant_row_pack((QuantBlock *)to + tile * chunks + k / QG_CHUNK, i,
                                               x, n / QG_CHUNK);
                        }
        }
#endif
#if defined TGC_AMX_BF16 && defined TGC_PAIRS
        if (ready_pairs(a, w, K))
                for (int i = 0; i < m; i++)
                        for (long k = 0; k < K / BG_K; k++)
                                memcpy(((PairBlock *)to)[tile * (K / BG_K) + k].a[i],
                                       (const bf16 *)a.p + (from + i) * a.ld + k * BG_K,
                                       BG_K * sizeof(bf16));
#endif
        (void)a, (void)w, (void)K, (void)to, (void)m, (void)from;
}

/* One tile of C: rows m0.. (m of them), columns n0.. (n), all of K, into c (ldc a multiple of NR).
 * pa, pb: room for panels.  z: which matrix of the batch.  rows: A's row m0 + i is rows[i], or
 * NULL (only with a.trans 0). */
TGC_NOINLINE void gemm_tile(Mat a, Mat b, long z, long m0, int m, long n0, int n, long K,
                            const int *rows, float *pa, float *pb, float *c, long ldc)
{
        for (long k0 = 0; k0 < K; k0 += MATMUL_KC) {
                int k = (int)tgc_min(K - k0, MATMUL_KC);
                const float *pa_or_a = pa;
                long ar = k, ac = 1;
#ifdef TGC_PAIRS
#ifdef TGC_AMX_BF16
                if (PAIRS_GEMM(a, b, K, rows) && a.ready && amx_allowed()) {
                        PairPanel *panels = (PairPanel *)(void *)pb;
                        pairs_pack(panels, (const bf16 *)b.p + n0 * b.ld + k0, b.ld, n, k);
                        amx_pairs((const PairBlock *)a.ready + (m0 / 16 * K + k0) / BG_K, K / BG_K,
                                  panels, m, n, k, c, ldc, k0 > 0);
                        continue;
                }
#endif
                if (PAIRS_GEMM(a, b, K, rows)) {
                        pairs_step((const bf16 *)a.p + z * a.batch + m0 * a.ld + k0, a.ld,
                                   (const bf16 *)b.p + z * b.batch + n0 * b.ld + k0, b.ld, m, n, k,
                                   pb, c, ldc, k0 > 0);
                        continue;
                }
#endif
#ifdef TGC_QUANT_O3
                if (QUANT_GEMM(a, b) && a.ready) {
                        quant_gemm_step(b.ty, b.p, n0 * b.ld + k0, b.ld,
                                        (const QuantBlock *)a.ready + (m0 / 16 * K + k0) / QG_CHUNK,
                                        K / QG_CHUNK, m, n, k, pb, c, ldc, k0 > 0);
                        continue;
                }
#endif
                if (QUANT_GEMM(a, b))
                        ; /* done in quant_gemm_step */
                else if (b.trans)
                        pack_rows(pb, b.p, b.ty, z * b.batch + n0 * b.ld + k0, b.ld, n, k);
                else
                        pack_b(pb, b.p, b.ty, z * b.batch + k0 * b.ld + n0, b.ld, n, k, 0);
                if (a.trans) {
                        pack_a(pa, a.p, a.ty, z * a.batch + k0 * a.ld + m0, a.ld, m, k, 0);
                        ar = 1, ac = GEMM_MR;
                } else if (rows) {
                        pack_floats(pa, a.p, a.ty, z * a.batch + k0, a.ld, m, k, rows);
                } else if (a.ty != TY_F32) {
                        pack_floats(pa, a.p, a.ty, z * a.batch + m0 * a.ld + k0, a.ld, m, k, 0);
                } else {
                        pa_or_a = (const float *)a.p + z * a.batch + m0 * a.ld + k0;
                        ar = a.ld;
                }
#ifdef TGC_QUANT_O3
                if (QUANT_GEMM(a, b)) {
                        QuantBlock *x = (QuantBlock *)(void *)(pb + QG_PANELS);
                        quant_rows_pack(x, pa_or_a, ar, m, k / QG_CHUNK);
                        quant_gemm_step(b.ty, b.p, z * b.batch + n0 * b.ld + k0, b.ld, x,
                                        k / QG_CHUNK, m, n, k, pb, c, ldc, k0 > 0);
                        continue;
                }
#endif
                gemm_block(m, n, k, pa_or_a, ar, ac, pb, c, ldc, k0 > 0);
        }
        if (K == 0)
                for (int i = 0; i < m; i++)
                        memset(c + i * ldc, 0, sizeof(float) * (size_t)n);
}

/* ---- the task ---------------------------------------------------------- */

typedef struct Blocking {
        long mt, nt, m_tiles, n_tiles;
} Blocking;

TGC_INLINE long gemm_even(long n, long most, long step)
{
        return tgc_ceil_div(tgc_ceil_div(n, tgc_ceil_div(n, most)), step) * step;
}

enum { READY_MT = 256, READY_NT = 128 }; /* of a tile whose rows of A are prepared */
_Static_assert(READY_MT *READY_NT <= MATMUL_MT * MATMUL_NT && READY_NT % GEMM_NR == 0, "scratch");

/* Linears' tiles are halved until 16 threads finish at about the same time.  Which side is halved:
 * with int8 each tile rounds its rows of A (as much as 115 columns' work) and packs W (6 to 13
 * rows' work), so tiles are wide.  Else rows of A are used in place or converted quickly, and
 * packing costs 5 to 40 rows' work, so tiles are tall. */
TGC_INLINE Blocking gemm_blocking(Mat a, Mat w, long batch, long M, long N, long K)
{
        const int wide = QUANT_GEMM(a, w), linear = !a.trans && w.trans;
        if (a.ready && (wide || ready_pairs(a, w, K))) { /* all rows, as they are prepared */
                Blocking r = { gemm_even(tgc_max(M, 1), READY_MT, 16),
                               gemm_even(tgc_max(N, 1), READY_NT, GEMM_NR), 0, 0 };
                for (;; r.mt = gemm_even(M, r.mt / 2, 16)) {
                        r.m_tiles = tgc_ceil_div(M, r.mt);
                        r.n_tiles = tgc_ceil_div(N, r.nt);
                        if (r.m_tiles * r.n_tiles >= MATMUL_MIN_TILES || r.mt < 2 * MATMUL_LEAST_M)
                                return r;
                }
        }
        Blocking b = { wide ? 2 * MATMUL_LEAST_M : MATMUL_MT,
                       PAIRS_GEMM(a, w, K, 0) ? 2 * MATMUL_LEAST_N : MATMUL_NT, 0, 0 };
        for (;;) {
                b.mt = gemm_even(tgc_max(M, 1), b.mt, GEMM_MR);
                b.nt = gemm_even(tgc_max(N, 1), b.nt, GEMM_NR);
                b.m_tiles = tgc_ceil_div(M, b.mt);
                b.n_tiles = tgc_ceil_div(N, b.nt);
                const long tiles = batch * b.m_tiles * b.n_tiles;
                const int enough = tiles >= MATMUL_MIN_TILES,
                          even = tiles >= MATMUL_MANY || tiles % MATMUL_MIN_TILES == 0;
                if ((enough && (even || !linear)) || b.mt * b.nt * K < 2L * MATMUL_MIN_WORK)
                        return b;
                if (wide && b.mt >= 2 * MATMUL_LEAST_M)
                        b.mt /= 2;
                else if (linear && !wide && b.nt >= 2 * MATMUL_LEAST_N)
                        b.nt /= 2;
                else if (enough)
                        return b;
                else if (b.nt >= b.mt && b.nt >= 2 * GEMM_NR)
                        b.nt /= 2;
                else if (b.mt >= 2 * GEMM_MR)
                        b.mt /= 2;
                else
                        return b;
        }
}

/* op(A) (M,K), op(B) (K,N), `batch` times; epilogue rows are batch_index*M + m.  A linear with
 * weights (N,K) has b.trans = 1.  K = 0 gives 0.  gemm_tiles reads only the types and orders of a
 * and b, and whether rows are prepared. */
TGC_INLINE long gemm_tiles(Mat a, Mat b, long batch, long M, long N, long K)
{
        Blocking t = gemm_blocking(a, b, batch, M, N, K);
        return batch * t.m_tiles * t.n_tiles;
}

TGC_INLINE void gemm_task(Mat a, Mat b, long batch, long M, long N, long K, long tile,
                          const void *args, EpilogueFn *epilogue)
{
        Blocking t = gemm_blocking(a, b, batch, M, N, K);
        long z = tile / (t.m_tiles * t.n_tiles), r = tile % (t.m_tiles * t.n_tiles);
        /* adjacent tiles share columns: W comes from memory once, A from cache */
        long m0 = r % t.m_tiles * t.mt, n0 = r / t.m_tiles * t.nt;
        int m = (int)tgc_min(t.mt, M - m0), n = (int)tgc_min(t.nt, N - n0);
        float *pa = tgc_scratch, *pb = pa + MATMUL_MT * MATMUL_KC, *c = pb + MATMUL_KC * MATMUL_NT;
        gemm_tile(a, b, z, m0, m, n0, n, K, 0, pa, pb, c, t.nt);
        for (int i = 0; i < m; i++)
                for (int j = 0; j < n; j += TGC_SEG)
                        epilogue(args, z * M + m0 + i, (int)n0 + j,
                                 n - j < TGC_SEG ? n - j : TGC_SEG, c + i * t.nt + j);
}

#endif
