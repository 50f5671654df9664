/* gemm_tf32.cuh: mainloop of gemm.cuh for float32 by three tf32 mmas (3xTF32); with TGC_TF32 by
 * one, of rounded factors.
 *
 * x = hi + lo: hi is x rounded to tf32's 11 bits, lo the rest, truncated to 11 bits by the tensor
 * core.  hi hi + hi lo + lo hi is then off by 2^-22 of the product, as much as float32 itself.
 * The tensor core truncates its sums instead of rounding, so each K-tile is summed from zero and
 * added to the rest by FADD.
 *
 * For small matrices: a warp owns 32x32 of C, and GROUPS of warps split the K of a block, so that
 * few tiles still occupy a multiprocessor.  Their sums are added in order through shared memory.
 *
 * Rows and columns are permuted: of a warp's 32 rows, fragment i's row g (lower half: h = 1) is 4g
 * + 2i + h; of its 32 columns, fragment j's column g is 4g + j.  So four neighbours of a panel
 * whose rows are K are one 16-byte load, and a lane's results are runs of 8. */
#ifndef TGC_GEMM_TF32_CUH
#define TGC_GEMM_TF32_CUH

#include "epilogue_protocol.cuh"
#include "ptx.cuh"

template <int BM_, int BN_, int BK_, int GROUPS_, int STAGES_, int MINB_>
struct TTile {
        static constexpr int BM = BM_, BN = BN_, BK = BK_, GROUPS = GROUPS_, STAGES = STAGES_,
                             MINB = MINB_;
        static constexpr int WARPS_M = BM / 32, WARPS_N = BN / 32,
                             THREADS = 32 * WARPS_M * WARPS_N * GROUPS;
        static constexpr int A_BYTES = BM * BK * 4, B_BYTES = BN * BK * 4,
                             SMEM = STAGES * (A_BYTES + B_BYTES);
        static constexpr int STEPS = BK / 8 / GROUPS; /* steps of 8 of K, per group and K-tile */
        static constexpr bool SIMT = false, WGMMA = false, TF32 = true;
        static_assert(BM % 32 == 0 && BN % 32 == 0 && BK % (8 * GROUPS) == 0 && BK % 32 == 0,
                      "32x32 a warp, 8 of K");
        static_assert(GROUPS * BM * BN * 4 <= SMEM, "the sums fit where the operands were");
};

/* Swizzle: float offset of 4-float chunk c of row r of a panel.  KMAJOR: rows 4g + j of the eight
 * g, which a fragment reads, lie in eight bank groups; else rows t of four t and two neighbouring
 * chunks do. */
template <bool KMAJOR, int COLS>
TGC_DEV int chunk_at(int r, int c)
{
        return r * COLS + (c ^ (KMAJOR ? (r >> 2) & 7 : (r & 3) * 2)) * 4;
}

template <bool KMAJOR, class P>
TGC_DEV void panel_copy_f32(const P &p, float *s, int k0)
{
#pragma unroll
        for (int i = 0; i < P::COPIES; i++) {
                const float *from;
                const bool valid = p.source(i, k0, from);
                float *to = s + chunk_at<KMAJOR, P::COLS>(P::row(i), P::col(i) / 4) + P::col(i) % 4;
                if constexpr (P::UNIT == 4)
                        cp_async16(to, from, valid);
                else if constexpr (P::UNIT == 2)
                        cp_async8(to, from, valid);
                else
                        cp_async4(to, from, valid);
        }
}

/* A fragments of k step ks (8 of K) of the panel, for the rows from m0 on. */
template <bool KMAJOR, class Tile>
TGC_DEV void frag_a_f32(unsigned (&f)[2][4], const float *panel, int m0, int ks)
{
        const int lane = threadIdx.x & 31;
        if constexpr (KMAJOR) {
#pragma unroll
                for (int i = 0; i < 2; i++)
                        ldmatrix_x4(f[i],
                                    panel + chunk_at<true, Tile::BK>(m0 + (lane & 7) * 4 + 2 * i +
                                                                             (lane >> 3 & 1),
                                                                     ks * 2 + (lane >> 4)));
        } else {
#pragma unroll
                for (int u = 0; u < 2; u++) {
                        float v[4];
                        load<4>(v, panel + chunk_at<false, Tile::BM>(ks * 8 + u * 4 + (lane & 3),
                                                                     m0 / 4 + lane / 4));
#pragma unroll
                        for (int x = 0; x < 4; x++)
                                f[x / 2][u * 2 + x % 2] = __float_as_uint(v[x]);
                }
        }
}

template <bool KMAJOR, class Tile>
TGC_DEV void frag_b_f32(unsigned (&f)[4][2], const float *panel, int n0, int ks)
{
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int u = 0; u < 2; u++)
                if constexpr (KMAJOR) {
                        unsigned r[4];
                        ldmatrix_x4(r, panel + chunk_at<true, Tile::BK>(n0 + (lane & 7) * 4 +
                                                                                2 * u + (lane >> 4),
                                                                        ks * 2 + (lane >> 3 & 1)));
                        f[2 * u][0] = r[0], f[2 * u][1] = r[1], f[2 * u + 1][0] = r[2],
                              f[2 * u + 1][1] = r[3];
                } else {
                        float v[4];
                        load<4>(v, panel + chunk_at<false, Tile::BN>(ks * 8 + u * 4 + (lane & 3),
                                                                     n0 / 4 + lane / 4));
#pragma unroll
                        for (int x = 0; x < 4; x++)
                                f[x][u] = __float_as_uint(v[x]);
                }
}

/* Splits x: x becomes hi, lo is returned. */
TGC_DEV unsigned split_tf32(unsigned &x)
{
        const float all = __uint_as_float(x);
        x = (x + 0x1000u) & ~0x1fffu;
        return __float_as_uint(all - __uint_as_float(x));
}

#if TGC_TF32
template <int M, int N>
TGC_DEV void round_tf32(unsigned (&x)[M][N])
{
#pragma unroll
        for (int i = 0; i < M * N; i++)
                x[i / N][i % N] = to_tf32(__uint_as_float(x[i / N][i % N]));
}

TGC_DEV void mma_1688_f32(float (&d)[2][4][4], unsigned (&a)[2][4], unsigned (&b)[4][2])
{
        round_tf32(a);
        round_tf32(b);
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                        mma_1688_tf32(d[i][j], a[i], b[j]);
}
#else
TGC_DEV void mma_1688_f32(float (&d)[2][4][4], unsigned (&a)[2][4], unsigned (&b)[4][2])
{
        unsigned al[2][4], bl[4][2];
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
                for (int x = 0; x < 4; x++)
                        al[i][x] = split_tf32(a[i][x]);
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
                for (int x = 0; x < 2; x++)
                        bl[j][x] = split_tf32(b[j][x]);
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                        mma_1688_tf32(d[i][j], al[i], b[j]);
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                        mma_1688_tf32(d[i][j], a[i], bl[j]);
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                        mma_1688_tf32(d[i][j], a[i], b[j]);
}
#endif

/* Adds all groups' sums of the block's tile, in order, and calls the epilogue. */
template <class Tile, class Epilogue>
TGC_DEV void groups_epilogue(const float (&acc)[2][4][4], int group, int m0, int n0, int first_m,
                             int first_n, int M, int N, float *s, const Epilogue &whole_epilogue)
{
        constexpr int V = Epilogue::MAXV < 4 ? Epilogue::MAXV : 4, ROW = Tile::BN / 4,
                      CALLS = Tile::BM * ROW / Tile::THREADS;
        constexpr bool WHOLE = EpilogueRows<Epilogue>::WHOLE;
        const auto &epilogue = EpilogueRows<Epilogue>::of_values(whole_epilogue);
        typedef EpilogueReads<typename EpilogueRows<Epilogue>::Values, V> Reads;
        constexpr bool AHEAD = Reads::N * CALLS * V <= 32;
        const int lane = threadIdx.x & 31;
        Reads reads[AHEAD ? CALLS : 1][4 / V];
        float kept[WHOLE ? CALLS * 4 / V : 1][V];
        /* Offset of chunk c of row r; a lane's rows are 4 apart, its chunks 2. */
        const auto at = [](int r, int c) { return (r * ROW + (c ^ (r >> 2 & 1))) * 4; };

#pragma unroll
        for (int p = 0; p < CALLS && AHEAD; p++) {
                const int e = (int)threadIdx.x + p * Tile::THREADS;
                const int row = first_m + e / ROW, col = first_n + e % ROW * 4;
#pragma unroll
                for (int x = 0; x < 4; x += V)
                        if (row < M && col + x < N)
                                reads[p][x / V].get(epilogue, row, col + x);
        }
        __syncthreads(); /* the last K-tile has been read */
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
                for (int h = 0; h < 2; h++)
#pragma unroll
                        for (int c = 0; c < 2; c++) {
                                const float v[4] = { acc[i][0][2 * h + c], acc[i][1][2 * h + c],
                                                     acc[i][2][2 * h + c], acc[i][3][2 * h + c] };
                                store<4>(s + group * (Tile::BM * Tile::BN) +
                                                 at(m0 + lane / 4 * 4 + 2 * i + h,
                                                    n0 / 4 + lane % 4 * 2 + c),
                                         v);
                        }
        __syncthreads();
#pragma unroll
        for (int p = 0; p < CALLS; p++) {
                const int e = (int)threadIdx.x + p * Tile::THREADS;
                const int row = first_m + e / ROW, col = first_n + e % ROW * 4;
                float sum[4];
                load<4>(sum, s + at(e / ROW, e % ROW));
#pragma unroll
                for (int g = 1; g < Tile::GROUPS; g++) {
                        float v[4];
                        load<4>(v, s + g * (Tile::BM * Tile::BN) + at(e / ROW, e % ROW));
#pragma unroll
                        for (int x = 0; x < 4; x++)
                                sum[x] += v[x];
                }
#pragma unroll
                for (int x = 0; x < 4; x += V)
                        if (row < M && col + x < N) {
                                float(&v)[V] = kept[WHOLE ? (p * 4 + x) / V : 0];
#pragma unroll
                                for (int y = 0; y < V; y++)
                                        v[y] = sum[x + y];
                                if (!AHEAD)
                                        reads[0][x / V].get(epilogue, row, col + x);
                                reads[AHEAD ? p : 0][x / V].call(epilogue, row, col + x, v);
                        }
        }
        if constexpr (WHOLE)
                whole_epilogue.chunks(kept);
        __syncthreads();
}

/* One tile of C over K-tiles [kt0, kt1).  Copies run STAGES-1 K-tiles ahead; one barrier per
 * K-tile. */
template <class Tile, bool TRANS_A, bool TRANS_B, class PA, class PB, class Epilogue>
TGC_DEV void tf32_tile(const PA &pa, const PB &pb, int kt0, int kt1, int M, int N, char *smem,
                       const Epilogue &epilogue)
{
        constexpr int STAGES = Tile::STAGES, A = Tile::BM * Tile::BK,
                      STAGE = A + Tile::BN * Tile::BK;
        const int warp = threadIdx.x >> 5, group = warp / (Tile::WARPS_M * Tile::WARPS_N);
        const int m0 = warp / Tile::WARPS_N % Tile::WARPS_M * 32, n0 = warp % Tile::WARPS_N * 32;
        float acc[2][4][4], part[2][4][4];
        float *s = (float *)smem;

#pragma unroll
        for (int x = 0; x < 32; x++)
                acc[x / 16][x / 4 % 4][x % 4] = 0.f;
#pragma unroll
        for (int i = 0; i < STAGES - 1; i++) {
                if (kt0 + i < kt1) {
                        panel_copy_f32<!TRANS_A>(pa, s + i * STAGE, (kt0 + i) * Tile::BK);
                        panel_copy_f32<TRANS_B>(pb, s + i * STAGE + A, (kt0 + i) * Tile::BK);
                }
                cp_async_commit();
        }
        int now = 0, into = (STAGES - 1) * STAGE; /* the stages that are read and filled */
        for (int kt = kt0; kt < kt1; kt++) {
                cp_async_wait<STAGES - 2>();
                __syncthreads();
                if (kt + STAGES - 1 < kt1) {
                        panel_copy_f32<!TRANS_A>(pa, s + into, (kt + STAGES - 1) * Tile::BK);
                        panel_copy_f32<TRANS_B>(pb, s + into + A, (kt + STAGES - 1) * Tile::BK);
                }
                cp_async_commit();
#pragma unroll
                for (int x = 0; x < 32; x++)
                        part[x / 16][x / 4 % 4][x % 4] = 0.f;
#pragma unroll
                for (int i = 0; i < Tile::STEPS; i++) {
                        unsigned a[2][4], b[4][2];
                        frag_a_f32<!TRANS_A, Tile>(a, s + now, m0, group * Tile::STEPS + i);
                        frag_b_f32<TRANS_B, Tile>(b, s + now + A, n0, group * Tile::STEPS + i);
                        mma_1688_f32(part, a, b);
                }
#pragma unroll
                for (int x = 0; x < 32; x++)
                        acc[x / 16][x / 4 % 4][x % 4] += part[x / 16][x / 4 % 4][x % 4];
                into = now;
                now = now == (STAGES - 1) * STAGE ? 0 : now + STAGE;
        }
        cp_async_wait<0>();
        groups_epilogue<Tile>(acc, group, m0, n0, pa.first, pb.first, M, N, s, epilogue);
}

#endif
