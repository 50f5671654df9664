/* attention_simt.cuh: attention by float32 FMA, for what attention_mma.cuh does not serve: rows
 * that are not in chunks of 16 bytes, and float heads wider than 128 (too many registers and more
 * than 99 KiB of shared memory).  256 threads as 16 x 16. */
#ifndef TGC_ATTENTION_SIMT_CUH
#define TGC_ATTENTION_SIMT_CUH

#include "attention_common.cuh"

/* Thread (ty, tx) owns rows ty*RM + i, score columns tx + 16 j and output column pairs 2 tx + 32
 * c.  Shared memory reads are free of bank conflicts, and a row's scores stay within half a
 * warp. */
template <class Att, class Tile>
struct AttSimt {
        static constexpr int BM = Tile::BM, BN = Tile::BN, D = Att::D;
        static constexpr int RM = BM / 16, RN = BN / 16, DC = (D + 31) / 32;
        static constexpr int LD = ((D + 3) / 4 | 1) * 4, LP = BN + 4;
        static_assert(Tile::THREADS == 256 && BM % 16 == 0 && BN % 16 == 0,
                      "tile of the float path");

        static __device__ __forceinline__ int tx() { return threadIdx.x & 15; }
        static __device__ __forceinline__ int ty() { return threadIdx.x >> 4; }

        /* Copies rows [row0, row0 + N) of a (rows, D) matrix as floats, zeros outside of it;
         * g.read reads row r. */
        template <class E>
        struct Matrix {
                const E *base;
                long step;
                template <int V>
                __device__ __forceinline__ void read(float (&u)[V], int r, int c) const
                {
                        load(u, base + r * step + c);
                }
        };
        template <int N, class Rows>
        static __device__ __forceinline__ void copy(float *s, const Rows &g, int row0, int rows)
        {
                constexpr int C = (D + 3) / 4;
                constexpr int V = Att::VEC >= 4 && D % 4 == 0   ? 4
                                  : Att::VEC >= 2 && D % 2 == 0 ? 2
                                                                : 1;
                for (int i = threadIdx.x; i < N * C; i += 256) {
                        int r = i / C, c = i % C * 4;
                        float v[4] = { 0.f, 0.f, 0.f, 0.f };
#pragma unroll
                        for (int j = 0; j < 4; j += V)
                                if (row0 + r < rows && c + j < D) {
                                        float u[V];
                                        g.read(u, row0 + r, c + j);
#pragma unroll
                                        for (int l = 0; l < V; l++)
                                                v[j + l] = u[l];
                                }
                        store(s + r * LD + c, v);
                }
        }

        template <int N, class E>
        static __device__ __forceinline__ void copy(float *s, const E *g, long stride, int row0,
                                                    int rows)
        {
                const Matrix<E> m = { g, stride };
                copy<N>(s, m, row0, rows);
        }

        /* x[i][j] = sum_d a[row i][d] b[column j][d] */
        static __device__ __forceinline__ void dot(float (&x)[RM][RN], const float *a,
                                                   const float *b)
        {
#pragma unroll
                for (int i = 0; i < RM; i++)
#pragma unroll
                        for (int j = 0; j < RN; j++)
                                x[i][j] = 0.f;
                a += ty() * RM * LD;
                b += tx() * LD;
#pragma unroll 4
                for (int d = 0; d < (D + 3) / 4 * 4; d += 4) {
                        float u[RM][4], v[RN][4];
#pragma unroll
                        for (int i = 0; i < RM; i++)
                                load(u[i], a + i * LD + d);
#pragma unroll
                        for (int j = 0; j < RN; j++)
                                load(v[j], b + j * 16 * LD + d);
#pragma unroll
                        for (int i = 0; i < RM; i++)
#pragma unroll
                                for (int j = 0; j < RN; j++)
#pragma unroll
                                        for (int l = 0; l < 4; l++)
                                                x[i][j] = fmaf(u[i][l], v[j][l], x[i][j]);
                }
        }

        /* Stores the block's scores to shared memory, for acc() by the same half warp. */
        static __device__ __forceinline__ void put(float *p, const float (&x)[RM][RN])
        {
                __syncwarp();
#pragma unroll
                for (int i = 0; i < RM; i++)
#pragma unroll
                        for (int j = 0; j < RN; j++)
                                p[(ty() * RM + i) * LP + tx() + 16 * j] = x[i][j];
                __syncwarp();
        }

        /* o[i][d] += sum_j p[row i][j] b[j][d] */
        static __device__ __forceinline__ void acc(float (&o)[RM][DC][2], const float *p,
                                                   const float *b)
        {
                p += ty() * RM * LP;
                for (int j = 0; j < BN; j += 4) {
                        float u[RM][4];
#pragma unroll
                        for (int i = 0; i < RM; i++)
                                load(u[i], p + i * LP + j);
#pragma unroll
                        for (int l = 0; l < 4; l++)
#pragma unroll
                                for (int c = 0; c < DC; c++) {
                                        int d = 2 * tx() + 32 * c;
                                        float v[2] = { 0.f, 0.f };
                                        if (d < D)
                                                load(v, b + (j + l) * LD + d);
#pragma unroll
                                        for (int i = 0; i < RM; i++) {
                                                o[i][c][0] = fmaf(u[i][l], v[0], o[i][c][0]);
                                                o[i][c][1] = fmaf(u[i][l], v[1], o[i][c][1]);
                                        }
                                }
                }
        }

        static __device__ __forceinline__ void zero(float (&o)[RM][DC][2])
        {
#pragma unroll
                for (int i = 0; i < RM; i++)
#pragma unroll
                        for (int c = 0; c < DC; c++)
                                o[i][c][0] = o[i][c][1] = 0.f;
        }

        template <class Epilogue>
        static __device__ __forceinline__ void out(const float (&o)[RM][DC][2],
                                                   const float (&f)[RM], int m0, int rows,
                                                   int row_base, int col_base, Epilogue &epilogue)
        {
#pragma unroll
                for (int i = 0; i < RM; i++)
#pragma unroll
                        for (int c = 0; c < DC; c++) {
                                int t = m0 + ty() * RM + i, d = 2 * tx() + 32 * c;
                                if (t >= rows || d >= D)
                                        continue;
                                const float v[2] = { o[i][c][0] * f[i], o[i][c][1] * f[i] };
                                att_put2<D>(epilogue, row_base + t, col_base, d, v);
                        }
        }
};

template <class E, class Att, class Tile>
struct AttForwardSimt {
        typedef AttSimt<Att, Tile> G;
        static constexpr int BM = Tile::BM, BN = Tile::BN, RM = G::RM, RN = G::RN, DC = G::DC;
        static constexpr int SMEM = ((BM + 2 * BN) * G::LD + BM * G::LP) * 4;

        template <class Epilogue>
        static __device__ __forceinline__ void run(const AttIn<E, Att> &in, float *lse,
                                                   const AttHead<E, Att> &hd, int b, int h, int m0,
                                                   char *smem, Epilogue &epilogue)
        {
                float *sq = (float *)smem, *sk = sq + BM * G::LD, *sv = sk + BN * G::LD,
                      *sp = sv + BN * G::LD;
                const int hk = h / (Att::H / Att::K);
                const int lo = hd.first_key(m0) / BN * BN, hi = hd.end_key(m0 + BM);
                float o[RM][DC][2], top[RM], sum[RM];
                G::zero(o);
#pragma unroll
                for (int i = 0; i < RM; i++) {
                        top[i] = -INFINITY;
                        sum[i] = 0.f;
                }
                const AttKeys<E, Att> k(in.k, in.sk, hd.rt, b, hk), v(in.v, in.sv, hd.rt, b, hk);
                G::template copy<BM>(sq, hd.queries(in, b, h), in.sq.t, m0, hd.T);
                for (int n0 = lo; n0 < hi; n0 += BN) {
                        float x[RM][RN];
                        __syncthreads();
                        G::template copy<BN>(sk, k, n0, hd.S);
                        G::template copy<BN>(sv, v, n0, hd.S);
                        __syncthreads();
                        G::dot(x, sq, sk);
#pragma unroll
                        for (int i = 0; i < RM; i++) {
                                int t = m0 + G::ty() * RM + i;
                                float mx = -INFINITY, part = 0.f;
#pragma unroll
                                for (int j = 0; j < RN; j++) {
                                        int s = n0 + G::tx() + 16 * j;
                                        float d;
                                        x[i][j] = hd.attends(t, s) ? hd.score(x[i][j], t, s, d) *
                                                                             (hd.BASE2 * ATT_LN2)
                                                                   : -INFINITY;
                                        mx = fmaxf(mx, x[i][j]);
                                }
#pragma unroll
                                for (int d = 8; d; d >>= 1)
                                        mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, d));
                                mx = fmaxf(mx, top[i]);
                                float zero = mx == -INFINITY ? 0.f : mx,
                                      scale = expf(top[i] - zero);
                                top[i] = mx;
#pragma unroll
                                for (int j = 0; j < RN; j++) {
                                        x[i][j] = expf(x[i][j] - zero);
                                        part += x[i][j];
                                        if (Att::DROPOUT > 0.f)
                                                x[i][j] = hd.drop(x[i][j], t,
                                                                  n0 + G::tx() + 16 * j);
                                }
                                sum[i] = sum[i] * scale + part;
#pragma unroll
                                for (int c = 0; c < DC; c++) {
                                        o[i][c][0] *= scale;
                                        o[i][c][1] *= scale;
                                }
                        }
                        G::put(sp, x);
                        G::acc(o, sp, sv);
                }
                float inv[RM];
#pragma unroll
                for (int i = 0; i < RM; i++) {
                        int t = m0 + G::ty() * RM + i;
#pragma unroll
                        for (int d = 8; d; d >>= 1)
                                sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], d);
                        inv[i] = sum[i] > 0.f ? 1.f / sum[i] : 0.f;
                        if (lse && G::tx() == 0 && t < hd.T)
                                lse[(long)hd.bh * hd.T + t] = sum[i] > 0.f ? top[i] + logf(sum[i])
                                                                           : -INFINITY;
                }
                G::out(o, inv, m0, hd.T, hd.row0, h * Att::D, epilogue);
                __syncthreads();
        }
};

#endif
