/* norm_back_short_sm90.cuh: a short product that makes the gradient of an rmsnorm's output, and the norm's backward pass, in one launch.
 *
 *      norm_back_short<T, Tile, TRANS_A, TRANS_B, EARLY, N>(map_a, map_b, M, N, K, tile, smem, back, tail)
 *
 * is matmul_short whose C (M,N) is g, and norm_grad_task (rows.cuh) of that g, which is stored nowhere; tail: of
 *
 *      dx = rstd d - x rstd^3 sum(d x) / N             d = gain g, rstd^-2 = sum(x^2) / N + eps
 *
 * N is a multiple of 8.  A block has a part of its rows; what it must know of the others' are two sums of each row.  They go through
 * L2 from the warp that has them straight to the one that wants them, in words that are their own flags: no fence, no barrier, and
 * no cluster, which would bind the launch's other products too.
 *
 * Blocks wait for their neighbours: those that share rows have numbers one after the other, in which order the GPU starts them. */
#ifndef TGC_NORM_BACK_SHORT_SM90_CUH
#define TGC_NORM_BACK_SHORT_SM90_CUH

#include "matmul_short_sm90.cuh"
#ifdef TGC_SM90A

template <class T>
struct NormBack {
        const T *x;
        int ldx;
        const T *gain;
        float eps;
        unsigned long long *words;      /* norm_back_words, no other launch's at the same time: zeros before and after */
        float *dgain;                   /* (ceil(M / 16), N): sums of 16 rows */
};

/* Of each row one for each two blocks that share it. */
__host__ __device__ constexpr long norm_back_words(int M, int N, int BN)
{
        return (long)((N + BN - 1) / BN) * ((N + BN - 1) / BN) * M;
}

/* What PairTail is to read of x. */
template <class T>
struct NormBackX {
        static constexpr int MAXV = 8, MINV = 1, STORES = 1, WIDTH0 = 2, WIDTH1 = 0, READ = 2, READS = 1, ROW_READS = 1;
        const NormBack<T> &back;
        template <int V> struct In { Raw<V, T> x; };
        template <int V> __device__ __forceinline__ void get_rows(int row, int col, In<V> &in) const
        {
                in.x.get(back.x + (long)row * back.ldx + col);
        }
        template <int V> __device__ __forceinline__ void get_cols(int, In<V> &) const {}
};

template <class T, int N_, class Finish_>
struct NormBackTail {
        typedef T Elem;
        typedef Finish_ Finish;
        static constexpr int N = N_;
        NormBackX<T> x;
        const Finish &finish;
};

/* The end of a warp's 16 rows: a lane has pairs of columns of rows r and r + 8. */
template <class Tile, class Tail>
struct NormBackEnd {
        typedef typename Tail::Elem T;
        static constexpr int N = Tail::N, J = Tile::BN / 8, ACROSS = (N + Tile::BN - 1) / Tile::BN;
        typedef PairTail<1, Tile::BN, Tile::SPARE, NormBackX<T>> X;
        X x;
        Ends<Tile, 1, Tile::SPARE, typename Tail::Finish> ends;
        const NormBack<T> &back;
        unsigned gain[J];
        int row0, col0, M;

        __device__ __forceinline__ NormBackEnd(const Tail &tail, char *smem, int row0_, int col0_, int M_, int)
                : x(tail.x, smem + Tile::PANELS + (int)(threadIdx.x / 32) * Tile::PANEL, row0_, col0_, M_, N, is_whole<Tile>(M_, N)),
                  ends(tail.finish, smem + 4 * Tile::PANEL, row0_, col0_, M_, N), back(tail.x.back), row0(row0_), col0(col0_), M(M_) {}

        static __device__ __forceinline__ int lane() { return threadIdx.x & 31; }
        __device__ __forceinline__ int row(int h) const { return row0 + h * 8 + lane() / 4; }
        __device__ __forceinline__ int col(int j) const { return col0 + j * 8 + lane() % 4 * 2; }
        __device__ __forceinline__ void start()
        {
                x.start();
#pragma unroll
                for (int j = 0; j < J; j++)
                        gain[j] = x.inside(0, col(j)) ? *(const unsigned *)(back.gain + col(j)) : 0u;
        }

        /* x of fragment j, row h, as it lies; 0 outside. */
        __device__ __forceinline__ void get_x(unsigned (&w)[J][2])
        {
#pragma unroll
                for (int s = 0; s < X::STEPS; s++) {
                        x.put_lines(s);
                        __syncwarp();
#pragma unroll
                        for (int f = 0; f < X::FRAGMENTS; f += 2) {
                                unsigned read[4][2];
                                x.read_pairs(read, f);
#pragma unroll
                                for (int i = 0; i < 4; i++) {
                                        const int j = s * X::FRAGMENTS + f + i / 2;
                                        w[j][i % 2] = x.inside(row(i % 2), col(j)) ? read[i][0] : 0u;
                                }
                        }
                        __syncwarp();
                }
        }

        static __device__ __forceinline__ float of_quad(float v)
        {
                v += __shfl_xor_sync(0xffffffffu, v, 1);
                return v + __shfl_xor_sync(0xffffffffu, v, 2);
        }
        /* For block `to` of the row, from block `from`. */
        __device__ __forceinline__ unsigned long long *word(int to, int from, int h) const
        {
                return back.words + (long)(to * ACROSS + from) * M + row(h);
        }
        struct Sums { float xx, dx; };
        /* Sums of the block's part of both rows: those of all parts, in the order of the columns.  The first is not quite what it
         * was: never all bits zero.  Who takes a word leaves a zero. */
        __device__ __forceinline__ void trade(Sums (&own)[2], Sums (&all)[2][ACROSS])
        {
                const int me = col0 / Tile::BN, t = lane() % 4;
                unsigned long long got[ACROSS][2] = {};
#pragma unroll
                for (int h = 0; h < 2; h++) {
                        own[h].xx = __uint_as_float(__float_as_uint(own[h].xx) | 1u);
                        const unsigned long long w = (unsigned long long)__float_as_uint(own[h].dx) << 32 | __float_as_uint(own[h].xx);
#pragma unroll
                        for (int c = 0; c < ACROSS; c += 4)
                                if (c + t < ACROSS && c + t != me && row(h) < M)
                                        store_relaxed(word(c + t, me, h), w);
                }
                ends.start();
                for (bool here = ACROSS == 1; !__all_sync(0xffffffffu, here); ) {
                        here = true;
#pragma unroll
                        for (int c = 0; c < ACROSS; c++)
#pragma unroll
                                for (int h = 0; h < 2; h++)
                                        if (c != me && row(h) < M)
                                                got[c][h] = load_relaxed(word(me, c, h));
#pragma unroll
                        for (int i = 0; i < ACROSS * 2; i++)
                                here &= got[i / 2][i % 2] || i / 2 == me || row(i % 2) >= M;
                }
#pragma unroll
                for (int c = 0; c < ACROSS; c++)
#pragma unroll
                        for (int h = 0; h < 2; h++) {
                                const unsigned long long w = got[c][h];
                                all[h][c].xx = c == me ? own[h].xx : __uint_as_float((unsigned)w);
                                all[h][c].dx = c == me ? own[h].dx : __uint_as_float((unsigned)(w >> 32));
                                if (c != me && c % 4 == t && row(h) < M)
                                        store_relaxed(word(me, c, h), 0);
                        }
        }

        /* Columns' sums over the warp's rows: of fragments j to j + 7, of which a lane then has one. */
        static __device__ __forceinline__ void of_rows(float (&v)[8][2])
        {
#pragma unroll
                for (int n = 4; n; n /= 2) {
                        const bool upper = lane() & 4 * n;
#pragma unroll
                        for (int j = 0; j < n; j++)
#pragma unroll
                                for (int c = 0; c < 2; c++) {
                                        const float gives = upper ? v[j][c] : v[n + j][c], keeps = upper ? v[n + j][c] : v[j][c];
                                        v[j][c] = keeps + __shfl_xor_sync(0xffffffffu, gives, 4 * n);
                                }
                }
        }
        __device__ __forceinline__ void put_dgain(int j, float (&v)[8][2]) const
        {
                of_rows(v);
                const int c = col(j + lane() / 4);
                if (row0 < M && x.inside(0, c))
                        *(float2 *)(back.dgain + (long)(row0 / 16) * N + c) = make_float2(v[0][0], v[0][1]);
        }

        __device__ __forceinline__ void run(const float (&g)[1][J][4])
        {
                unsigned w[J][2];
                Sums own[2] = {}, all[2][ACROSS];
                float rstd[2], slope[2], dx[1][J][4];
                get_x(w);
#pragma unroll
                for (int j = 0; j < J; j++) {
                        float e[2];
                        unpack2<T>(gain[j], e[0], e[1]);
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                                float v[2];
                                unpack2<T>(w[j][i / 2], v[0], v[1]);
                                const float d = g[0][j][i] * e[i % 2];
                                own[i / 2].xx += v[i % 2] * v[i % 2];
                                own[i / 2].dx += d * v[i % 2];
                        }
                }
#pragma unroll
                for (int h = 0; h < 2; h++)
                        own[h] = { of_quad(own[h].xx), of_quad(own[h].dx) };
#pragma unroll
                for (int j = 0; j < J; j++)             /* stay as they are: two to a register */
                        asm volatile("" : "+r"(w[j][0]), "+r"(w[j][1]), "+r"(gain[j]));
                trade(own, all);
#pragma unroll
                for (int h = 0; h < 2; h++) {
                        float xx = 0.f;
                        slope[h] = 0.f;
#pragma unroll
                        for (int c = 0; c < ACROSS; c++) {
                                xx += all[h][c].xx;
                                slope[h] += all[h][c].dx;
                        }
                        rstd[h] = row(h) < M ? rsqrtf(xx * (1.f / N) + back.eps) : 0.f;
                        slope[h] *= rstd[h] * rstd[h] * rstd[h] * (1.f / N);
                }
#pragma unroll
                for (int j = 0; j < J; j += 8) {
                        float dgain[8][2] = {};
#pragma unroll
                        for (int f = j; f < j + 8; f++) {
                                float e[2];
                                unpack2<T>(gain[f], e[0], e[1]);
#pragma unroll
                                for (int i = 0; i < 4; i++) {
                                        float v[2];
                                        unpack2<T>(w[f][i / 2], v[0], v[1]);
                                        const float gr = g[0][f][i] * rstd[i / 2];
                                        dgain[f - j][i % 2] += gr * v[i % 2];
                                        dx[0][f][i] = gr * e[i % 2] - v[i % 2] * slope[i / 2];
                                }
                        }
                        put_dgain(j, dgain);
                }
                ends.run(dx);
        }
};

template <class Tile, class T, int N, class Finish>
struct ShortEnd<Tile, NormBackTail<T, N, Finish>, false> : NormBackEnd<Tile, NormBackTail<T, N, Finish>> {
        using NormBackEnd<Tile, NormBackTail<T, N, Finish>>::NormBackEnd;
};

template <class T, class Tile, bool TRANS_A, bool TRANS_B, int EARLY, int N, class Finish>
TGC_DEV void norm_back_short(const void *map_a, const void *map_b, int M, int, int K, int tile, char *smem,
                             const NormBack<T> &back, const Finish &finish)
{
        constexpr int ACROSS = (N + Tile::BN - 1) / Tile::BN;
        const TileAt at = { tile / ACROSS * Tile::BM, tile % ACROSS * Tile::BN };
        const NormBackTail<T, N, Finish> tail = { { back }, finish };
        short_tile<T, Tile, TRANS_A, TRANS_B, EARLY>(map_a, map_b, M, N, K, at, smem, tail);
}

#endif
#endif
