/* grouped_gemm_sm90.cuh: grouped_gemm.cuh's GEMMs for bf16 and f16 on Hopper (sm_90a), on
 * gemm_sm90.cuh's pipeline and consumers.  A persistent block computes tiles first, first + step,
 * ... of all experts, so an expert's first tile loads during the previous expert's last epilogue.
 *
 *      grouped_gemm_tma<T, Tile, TRANS_W, ADIV, SCATTER>(a, lda, map_a, map_w, perm, offs, E, N, K,
 *              first, step, smem, epilogue)
 *              y_p = W_e a_p.  map_w: of (E*N, K) with TRANS_W, else of (E*K, N); map_a: of (P, K),
 *              for ADIV 0 only.
 *      grouped_gemm_grad_tma<T, Tile, YDIV, ADIV>(dy, ldy, map_y, a, lda, map_a, perm, offs, E, N,
 *              K, first, step, smem, epilogue)
 *              dW_e = sum of dy_p a_p^T.  One of YDIV and ADIV is 0: that operand is read through
 *              its map, (P, N) or (P, K).
 *
 * A TMA box may reach into the next expert's rows.  Such rows of y are not stored; in dW the
 * other, gathered operand has zeros there, so all stored values must be finite.
 *
 * TMA cannot gather rows of 128 bytes.  All threads of the producer warpgroup load a gathered
 * operand by cp.async, to where a box would put it.  A stage is full when these copies and the
 * other operand's box have landed.  Addresses and row strides are multiples of 16 bytes, the
 * gathered operand's too. */
#ifndef TGC_GROUPED_GEMM_SM90_CUH
#define TGC_GROUPED_GEMM_SM90_CUH

#include "grouped_gemm.cuh"
#include "gemm_sm90.cuh"
#ifdef TGC_SM90A

/* Part of a tile of expert e, whose sorted slots are first .. first + count - 1. */
struct ExpertPiece : Piece {
        int e, first, count;
};

/* An epilogue with remapped rows: row r of the tile's matrix is row At(r) of the result. */
template <class Epilogue, class At>
struct MovedEpilogue : Epilogue {
        At at;
        __device__ __forceinline__ MovedEpilogue(const Epilogue &epilogue, At at_)
            : Epilogue(epilogue), at(at_)
        {
        }
        template <class In>
        __device__ __forceinline__ void get_rows(int row, int col, In &in) const
        {
                Epilogue::get_rows(at(row), col, in);
        }
        template <int V, class... Rest>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V],
                                                   const Rest &...rest) const
        {
                Epilogue::operator()(at(row), col, v, rest...);
        }
};

/* ---- work ------------------------------------------------------------------- */

template <class Tile, bool SCATTER, class Epilogue>
struct ExpertWork {
        typedef SlotRows<SCATTER ? 1 : 0> At;
        typedef MovedEpilogue<Epilogue, At> End;
        typedef ExpertPiece Part;
        static constexpr bool EMPTY = false;
        static constexpr int KEEPS = 24;
        const int *perm, *offs;
        int E, N, K, first, step;
        const Epilogue &epilogue;

        /* Called by whole warps. */
        __device__ __forceinline__ bool get(int i, ExpertPiece &p) const
        {
                const int across = (N + Tile::BN - 1) / Tile::BN, t = first + i * step;
                int m;
                if (!expert_of_tile<Tile::BM>(offs, E, t / across, p.e, m))
                        return false;
                p.first = offs[p.e], p.count = offs[p.e + 1] - p.first;
                p.m = m * Tile::BM, p.n = t % across * Tile::BN, p.kt0 = 0,
                p.kt1 = k_steps<Tile>(K), p.split = 0;
                return true;
        }
        __device__ __forceinline__ int rows(
                const ExpertPiece &p) const /* a tile that is not cut uses its own */
        {
                return p.m + Tile::BM < p.count ? p.m + Tile::BM : p.count;
        }
        __device__ __forceinline__ End epilogue_of(const ExpertPiece &p, int) const
        {
                return { epilogue, At { perm + p.first, p.first } };
        }
};

struct MatrixRows {
        int before;
        __device__ __forceinline__ int operator()(int r) const { return before + r; }
};

template <class Tile, class Epilogue>
struct ExpertGradWork {
        typedef MovedEpilogue<Epilogue, MatrixRows> End;
        typedef ExpertPiece Part;
        static constexpr bool EMPTY = true;
        static constexpr int KEEPS = 24;
        const int *offs;
        int E, M, N, first, step; /* a weight is (M, N) */
        const Epilogue &epilogue;

        __device__ __forceinline__ bool get(int i, ExpertPiece &p) const
        {
                const int tiles = gemm_tiles<Tile>(M, N), t = first + i * step, e = t / tiles;
                if (e >= E)
                        return false;
                const TileAt at = tile_at<Tile>(t - e * tiles, M, N);
                p.e = e, p.first = offs[e], p.count = offs[e + 1] - p.first;
                p.m = at.m, p.n = at.n, p.kt0 = 0, p.kt1 = k_steps<Tile>(p.count), p.split = 0;
                return true;
        }
        __device__ __forceinline__ int rows(const ExpertPiece &) const { return M; }
        __device__ __forceinline__ End epilogue_of(const ExpertPiece &p, int) const
        {
                return { epilogue, MatrixRows { p.e * M } };
        }
};

/* ---- loads -------------------------------------------------------------------- */

/* Address of 16-byte chunk c of row r of a panel's first box, swizzled as TMA does. */
TGC_DEV char *panel_chunk(char *panel, int r, int c) { return panel + r * 128 + (c ^ r % 8) * 16; }

/* A tile partly loaded by 128 threads with cp.async. */
template <class Tile>
struct Gathered : Tile {
        static constexpr int COPIERS = 128;
};
template <class Tile, bool ANY>
struct GatheredIf {
        typedef Tile Is;
};
template <class Tile>
struct GatheredIf<Tile, true> {
        typedef Gathered<Tile> Is;
};

/* A thread copies N rows, 16 apart, from threadIdx.x / 8 on; a warp covers 4 * N rows.  Each lane
 * looks up one slot for its warp, one step early: nothing may depend on it before the copies, or
 * its latency would show. */
template <int N>
TGC_DEV int looked_up()
{
        const int lane = threadIdx.x % 32 % (N * 4);
        return (int)threadIdx.x / 32 * 4 + lane % 4 + lane / 4 * 16;
}
/* The slot of a thread's j-th row, from the lane that looked it up. */
template <int DIV>
TGC_DEV unsigned own_row(int slot, int j)
{
        return (unsigned)__shfl_sync(0xffffffffu, slot, (threadIdx.x % 32) / 8 + 4 * j) / DIV;
}

/* Loads for y = W a. */
template <class T, class Tile, bool TRANS_W, int ADIV>
struct ExpertLoader {
        static constexpr int REGS = ADIV ? 40 : 24, THREADS = ADIV ? 128 : 32;
        static_assert(Tile::BM == 128 || !ADIV, "a lane looks up one row");
        const T *a;
        long lda;
        const void *map_a, *map_w;
        const int *perm;
        int N, K;

        /* One thread: the TMA boxes. */
        __device__ __forceinline__ void boxes(const Pipeline<Tile> &pipe, const ExpertPiece &p,
                                              int kt) const
        {
                typedef Loader<Tile, false, TRANS_W> Boxes;
                Mbar *bar = pipe.full(pipe.stage);
                mbarrier_expect_tx(bar, ADIV ? Tile::B_BYTES : Tile::STAGE);
                if constexpr (!ADIV)
                        Boxes::template load<true, Tile::BM / 64, false>(pipe.a(), map_a, bar,
                                                                         p.first + p.m, kt * 64, 0);
                Boxes::template load<TRANS_W, Tile::BN / 64, false>(pipe.b(), map_w, bar,
                                                                    p.n + (TRANS_W ? p.e * N : 0),
                                                                    kt * 64 +
                                                                            (TRANS_W ? 0 : p.e * K),
                                                                    0);
        }
        /* The slot of this lane's row; behind the expert's last slot, the last. */
        __device__ __forceinline__ int look_up(const ExpertPiece &p) const
        {
                const int r = p.m + looked_up<8>();
                return perm[p.first + (r < p.count ? r : p.count - 1)];
        }
        template <bool WAITS, class Work>
        __device__ __forceinline__ void run(Pipeline<Tile> pipe, const Work &work) const
        {
                const int r0 = threadIdx.x / 8, c = threadIdx.x % 8;
                ExpertPiece p;
                int mine = 0;
                bool there = work.get(0, p);
                if (ADIV && there)
                        mine = look_up(p);
                for (int i = 1; there; i++) {
                        unsigned from[8]; /* in units of 16 bytes */
                        ExpertPiece next;
#pragma unroll
                        for (int j = 0; j < 8 && ADIV; j++)
                                from[j] = own_row < ADIV ? ADIV
                                                         : 1 > (mine, j) * (unsigned)(lda / 8) + c;
                        for (int kt = p.kt0; kt < p.kt1; kt++) {
                                pipe.wait_empty();
                                if (threadIdx.x == 0)
                                        boxes(pipe, p, kt);
                                if constexpr (ADIV > 0) {
                                        const bool inside = K % 64 == 0 || kt * 64 + c * 8 < K;
                                        char *to = panel_chunk(pipe.a(), r0, c);
#pragma unroll
                                        for (int j = 0; j < 8; j++)
                                                cp_async16(to + j * 2048,
                                                           a + (long)(inside ? from[j] + kt * 8
                                                                             : 0) *
                                                                           8,
                                                           inside);
                                        cp_async_arrive(pipe.full(pipe.stage));
                                }
                                pipe.next();
                                if (kt == p.kt0) {
                                        there = work.get(i, next);
                                        if (ADIV && there)
                                                mine = look_up(next);
                                }
                        }
                        p = next;
                }
        }
};

/* Loads for dW = dy a^T: rows of both operands are slots. */
template <class T, class Tile, int YDIV, int ADIV>
struct ExpertGradLoader {
        static constexpr int REGS = 40, THREADS = 128, BOXES = (YDIV ? Tile::BM : Tile::BN) / 64;
        static_assert((YDIV > 0) != (ADIV > 0),
                      "one is gathered, the other one's rows are in order");
        const T *from; /* the gathered operand */
        long ld;
        const void *map; /* tensor map of the other operand */
        const int *perm;
        int limit; /* columns of the gathered operand */

        __device__ __forceinline__ void boxes(const Pipeline<Tile> &pipe, const ExpertPiece &p,
                                              int kt) const
        {
                Mbar *bar = pipe.full(pipe.stage);
                mbarrier_expect_tx(bar, YDIV ? Tile::B_BYTES : Tile::A_BYTES);
                Loader<Tile, true, false>::template load<false, (YDIV ? Tile::BN : Tile::BM) / 64,
                                                         false>(YDIV ? pipe.b() : pipe.a(), map,
                                                                bar, YDIV ? p.n : p.m,
                                                                p.first + kt * 64, 0);
        }
        /* The slot of this lane's row of step kt; behind the expert's last slot, the last. */
        __device__ __forceinline__ int look_up(const ExpertPiece &p, int kt) const
        {
                const int r = kt * 64 + looked_up<4>(), last = p.count - 1,
                          at = p.first + (r < last ? r : last);
                return perm[at < 0 ? 0 : at]; /* an expert without slots has no steps */
        }
        template <bool WAITS, class Work>
        __device__ __forceinline__ void run(Pipeline<Tile> pipe, const Work &work) const
        {
                const int r0 = threadIdx.x / 8, c = threadIdx.x % 8;
                ExpertPiece p;
                bool there = work.get(0, p);
                int mine = there ? look_up(p, 0) : 0;
                for (int i = 1; there; i++) {
                        const int col = (YDIV ? p.m : p.n) + c * 8;
                        ExpertPiece next;
                        there = work.get(i, next);
                        for (int kt = 0; kt < p.kt1; kt++) {
                                const int now = mine;
                                if (kt + 1 < p.kt1)
                                        mine = look_up(p, kt + 1);
                                pipe.wait_empty();
                                if (threadIdx.x == 0)
                                        boxes(pipe, p, kt);
                                char *to = panel_chunk(YDIV ? pipe.a() : pipe.b(), r0, c);
#pragma unroll
                                for (int j = 0; j < 4; j++) {
                                        const T *at = from + own_row<YDIV + ADIV>(now, j) * ld +
                                                      col;
                                        const bool is = kt * 64 + r0 + 16 * j < p.count;
#pragma unroll
                                        for (int b = 0; b < BOXES; b++) {
                                                const bool inside = is && col + b * 64 < limit;
                                                cp_async16(to + j * 2048 + b * 8192,
                                                           inside ? at + b * 64 : from, inside);
                                        }
                                }
                                cp_async_arrive(pipe.full(pipe.stage));
                                pipe.next();
                        }
                        if (there)
                                mine = look_up(next, 0);
                        p = next;
                }
        }
};

/* ---- tasks ---------------------------------------------------------------------- */

template <class T, class Shape, bool TRANS_W, int ADIV, bool SCATTER, class Epilogue>
TGC_DEV void grouped_gemm_tma(const T *a, long lda, const void *map_a, const void *map_w,
                              const int *perm, const int *offs, int E, int N, int K, int first,
                              int step, char *smem, const Epilogue &epilogue)
{
        typedef typename GatheredIf<Shape, (ADIV > 0)>::Is Tile;
        const ExpertWork<Tile, SCATTER, Epilogue> work = { perm, offs,  E,    N,
                                                           K,    first, step, epilogue };
        const ExpertLoader<T, Tile, TRANS_W, ADIV> load = { a, lda, map_a, map_w, perm, N, K };
        gemm_tma_run<T, Tile, false, TRANS_W, false>(load, smem, work, NoSums());
}

template <class T, class Shape, int YDIV, int ADIV, class Epilogue>
TGC_DEV void grouped_gemm_grad_tma(const T *dy, long ldy, const void *map_y, const T *a, long lda,
                                   const void *map_a, const int *perm, const int *offs, int E,
                                   int N, int K, int first, int step, char *smem,
                                   const Epilogue &epilogue)
{
        typedef Gathered<Shape> Tile;
        const ExpertGradWork<Tile, Epilogue> work = { offs, E, N, K, first, step, epilogue };
        const ExpertGradLoader<T, Tile, YDIV, ADIV> load = { YDIV ? dy : a, YDIV ? ldy : lda,
                                                             YDIV ? map_a : map_y, perm,
                                                             YDIV ? N : K };
        gemm_tma_run<T, Tile, true, false, false>(load, smem, work, NoSums());
}

#endif
#endif
