/* gemm_stored.cuh: y = x W^T with block-quantised W (../common/stored_codes.cuh), by mma.sync: x
 * (M,K), W (N,K).
 *
 *      stored_gemm_task<T, S, Tile, N, K, ALIGN>(x, ldx, w, M, down, splits, ws, joined, tile,
 *              smem, epilogue)
 *              T: bf16 or f16, of x and of the mma; S: Stored_NAME; ALIGN: of x, as in gemm.cuh.
 *              w is 16-byte aligned.  down = ceil(M/BM); down * ceil(N/BN) * splits tiles.  With
 *              split-K, ws has BM * BN floats per tile and joined an int per tile of y: 0 before
 *              the first launch, and after each.  The last split of a tile to finish adds them in
 *              order.
 *
 * Operands are swapped: W's rows are the mma's 16 rows, x's rows its 8 columns.  A lane decodes
 * the weights of its own fragments in registers; decoded weights are never stored.  Blocks and x
 * are copied by cp.async, STAGES-1 slices of 256 of K ahead; W's first slices before pdl_wait.
 *
 * k is permuted: in a slice, a lane has 8t .. 8t+7 of each 32 (CODES_RUN), in both operands.  So
 * x's fragments of two mmas are 16 contiguous bytes. */
#ifndef TGC_GEMM_STORED_CUH
#define TGC_GEMM_STORED_CUH

#include "gemm_operand.cuh"
#include "codes_pairs.cuh"

/* Slices (256 of K) of a row of W.  In shared memory rows are an odd number of 16 bytes apart,
 * against bank conflicts.  If a slice may start at any byte, the copy starts and ends at multiples
 * of 16. */
template <class S, int K>
struct StoredSlice {
        static constexpr int BYTES = 256 / S::VALUES * S::BYTES;
        static constexpr long ROW = (long)(K / S::VALUES) * S::BYTES;
        static constexpr bool WHOLE = BYTES % 16 == 0 && ROW % 16 == 0 && K % 256 == 0;
        /* bytes at most from a multiple of 16 to the slice's start */
        static constexpr int SHIFT = ROW % 16          ? 15
                                     : BYTES % 16 == 0 ? 0
                                     : BYTES % 8 == 0  ? 8
                                     : BYTES % 4 == 0  ? 12
                                                       : 14;
        static constexpr int PIECES = (BYTES + SHIFT + 15) / 16, STRIDE = (PIECES | 1) * 16;
        static_assert(K % S::VALUES == 0, "rows are whole blocks");

        /* Bytes from the previous multiple of 16 to byte `at` of the matrix. */
        static __device__ __forceinline__ int shift(const unsigned char *w, int at)
        {
                return WHOLE ? 0 : (int)((unsigned)(unsigned long long)w + (unsigned)at) & 15;
        }
};

/* What is multiplied:
 *
 *      STORED_ROUNDED  weights, scaled in float32 and rounded to T
 *      STORED_BF16     weights, scaled in bf16: scales and minima are rounded, too
 *      STORED_SUMS     codes; the sums over values with one scale are scaled.  Rounds nothing.  For
 *                      few rows of x, where sums are fewer than weights.
 *
 * Types with two scales per chunk use STORED_BF16 in place of STORED_SUMS; f16 uses STORED_ROUNDED
 * in place of STORED_BF16. */
enum StoredHow { STORED_ROUNDED, STORED_BF16, STORED_SUMS };

/* 16 MI rows of W per warp, 8 MJ rows of x. */
template <int MJ_, int MI_, int WARPS_, int STAGES_, int MINB_, StoredHow HOW_ = STORED_ROUNDED>
struct StoredTile {
        static constexpr StoredHow HOW = HOW_;
        static constexpr int MJ = MJ_, MI = MI_, WARPS = WARPS_, STAGES = STAGES_, MINB = MINB_;
        static constexpr int BM = 8 * MJ, WN = 16 * MI, BN = WN * WARPS, BK = 256,
                             THREADS = 32 * WARPS;
        static constexpr int X_BYTES = BM * BK * 2, LDC = BN + 4;

        template <class S, int K>
        static __host__ __device__ constexpr int smem()
        {
                constexpr int ALL = STAGES * (X_BYTES + BN * StoredSlice<S, K>::STRIDE),
                              SUMS = BM * LDC * 4 + 16;
                return ALL > SUMS ? ALL : SUMS;
        }
};

/* Copies 16-byte pieces FIRST .. FIRST+COUNT-1 of each row's slice, where rows are 16-byte aligned
 * and slices are not.  A power of two of threads has a row, so that the compiler sees constant
 * differences between copies. */
template <class S, class Tile, int N, int K, int FIRST, int COUNT>
TGC_DEV void stored_copy_pieces(char *to, const unsigned char *w, int n0, int kt)
{
        typedef StoredSlice<S, K> Slice;
        constexpr int ACROSS = COUNT >= 16  ? 16
                               : COUNT >= 8 ? 8
                               : COUNT >= 4 ? 4
                               : COUNT >= 2 ? 2
                                            : 1,
                      ROWS = Tile::THREADS / ACROSS, ROW = (int)Slice::ROW;
        const int c = FIRST + (int)threadIdx.x % ACROSS, r0 = (int)threadIdx.x / ACROSS,
                  at = (kt * Slice::BYTES & -16) + c * 16;
        const bool inside = K % 256 == 0 || at < ROW;
        const unsigned char *const from = w + ((long)(n0 + r0) * ROW + (inside ? at : 0));
#pragma unroll
        for (int r = 0; r < Tile::BN; r += ROWS) {
                if (Tile::BN % ROWS && r0 + r >= Tile::BN)
                        break;
                const bool row = N % Tile::BN == 0 || n0 + r0 + r < N;
                cp_async16(to + (r0 + r) * Slice::STRIDE + c * 16,
                           from + (long)(row ? r : N - 1 - n0 - r0) * ROW, inside);
        }
        if constexpr (COUNT > ACROSS)
                stored_copy_pieces<S, Tile, N, K, FIRST + ACROSS, COUNT - ACROSS>(to, w, n0, kt);
}

/* Copies slice kt of rows n0 .. n0+BN-1 of W; rows beyond N repeat the last one. */
template <class S, class Tile, int N, int K>
TGC_DEV void stored_copy(char *to, const unsigned char *w, int n0, int kt)
{
        typedef StoredSlice<S, K> Slice;
        constexpr int COPIES = Tile::BN * Slice::PIECES;
        if constexpr (!Slice::WHOLE && Slice::ROW % 16 == 0) {
                stored_copy_pieces<S, Tile, N, K, 0, Slice::PIECES>(to, w, n0, kt);
                return;
        }
#pragma unroll
        for (int i = 0; i < (COPIES + Tile::THREADS - 1) / Tile::THREADS; i++) {
                const int p = (int)threadIdx.x + i * Tile::THREADS, r = p / Slice::PIECES,
                          j = p % Slice::PIECES;
                if (COPIES % Tile::THREADS && p >= COPIES)
                        break;
                const int n = N % Tile::BN == 0 || n0 + r < N ? n0 + r : N - 1;
                if constexpr (Slice::WHOLE) {
                        cp_async16(to + r * Slice::STRIDE + j * 16,
                                   w + (n * Slice::ROW + (long)kt * Slice::BYTES + j * 16));
                } else {
                        const int at = n * (int)Slice::ROW + kt * Slice::BYTES,
                                  from = at - Slice::shift(w, at) + j * 16,
                                  left = N * (int)Slice::ROW - from;
                        cp_async16_part(to + r * Slice::STRIDE + j * 16, w + (left > 0 ? from : 0),
                                        left > 16  ? 16
                                        : left > 0 ? left
                                                   : 0);
                }
        }
}

/* Byte offset of 16-byte chunk c of row r of x; adjacent rows lie in different halves of 128
 * bytes. */
TGC_DEV int stored_x_place(int r, int c) { return (r * 32 + (c ^ (r & 1) << 2)) * 16; }

template <class P>
TGC_DEV void stored_x_copy(const P &p, char *to, int k0)
{
        typedef decltype(p.src) Ptr;
#pragma unroll
        for (int i = 0; i < P::COPIES; i++) {
                Ptr from;
                const bool valid = p.source(i, k0, from);
                char *at = to + stored_x_place(P::row(i), P::col(i) / 8) + P::col(i) % 8 * 2;
                if constexpr (P::UNIT == 8)
                        cp_async16(at, from, valid);
                else if constexpr (P::UNIT == 4)
                        cp_async8(at, from, valid);
                else if constexpr (P::UNIT == 2)
                        cp_async4(at, from, valid);
                else
                        *(unsigned short *)at = valid ? *(const unsigned short *)from
                                                      : (unsigned short)0;
        }
}

/* A lane's eight values of one row, as words of two mmas' fragments.  (f16 would lose small
 * scales.) */
template <class T, class C, StoredHow HOW>
TGC_DEV void stored_words(unsigned (&w)[2][2], const Codes &y)
{
        constexpr bool SHORT = HOW != STORED_ROUNDED && SameType<T, bf16>::value;
        if constexpr (codes_have_pairs<C>()) {
                const float d = y.scale[0];
                codes_pairs<T, C>(w, y);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                        unsigned &word = w[i / 2][i % 2];
                        if constexpr (SHORT) {
                                word = fma2<T>(word, pack2<T>(d, d), 0x80008000u);
                        } else {
                                float v[2];
                                unpack2<T>(word, v[0], v[1]);
                                word = pack2<T>(v[0] * d, v[1] * d);
                        }
                }
        } else if constexpr (!SHORT) {
#pragma unroll
                for (int s = 0; s < 2; s++) {
                        float v[4];
                        codes_values<C>(v, y, s);
                        w[s][0] = pack2<T>(v[0], v[1]);
                        w[s][1] = pack2<T>(v[2], v[3]);
                }
        } else {
                const unsigned one = pack2<T>(1.f, 1.f),
                               base = pack2<T>(-(C::BASE + C::ZERO), -(C::BASE + C::ZERO));
                codes_as<T>(w, y);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                        const float d = y.scale[i / 2], m = y.minus[i / 2];
                        unsigned &word = w[i / 2][i % 2];
                        word = fma2<T>(fma2<T>(word, one, base), pack2<T>(d, d), pack2<T>(m, m));
                }
        }
}

/* acc += scaled sums of a chunk; ones: the sums of x's values, for codes with an OFFSET. */
template <int MJ, bool OFFSET>
TGC_DEV void stored_scale_sums(float (&acc)[MJ][4], const float (&sum)[MJ][4],
                               const float (&ones)[MJ][4], const float (&scale)[2],
                               const float (&offset)[2])
{
#pragma unroll
        for (int j = 0; j < MJ; j++)
#pragma unroll
                for (int k = 0; k < 4; k++) {
                        acc[j][k] = fmaf(scale[k >> 1], sum[j][k], acc[j][k]);
                        if constexpr (OFFSET)
                                acc[j][k] = fmaf(offset[k >> 1], ones[j][k & 1], acc[j][k]);
                }
}

/* acc += W's slice times x's.  left: values of K from the slice's start.  rows: this lane's 2*MI
 * rows of W. */
template <class T, class S, class Tile, bool WHOLE>
TGC_DEV void stored_multiply(float (&acc)[Tile::MI][Tile::MJ][4],
                             const unsigned char *const (&rows)[Tile::MI][2], const char *x,
                             int left)
{
        typedef typename CodesOf<S>::Type C;
        constexpr int MI = Tile::MI, MJ = Tile::MJ;
        constexpr bool SUMS = Tile::HOW == STORED_SUMS && !C::HALVES, PAIRS = codes_have_pairs<C>();
        constexpr int CHAIN = PAIRS ? C::CHAIN : 1;
        const int g = (int)(threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
        typename C::Head head[MI][2];
        typename C::Raw raw[MI][2];
        float sum[MI][MJ][4]; /* over chunks with one scale */
#pragma unroll
        for (int i = 0; i < MI * 2; i++)
                head[i / 2][i % 2] = C::head(rows[i / 2][i % 2]);
#pragma unroll
        for (int c = 0; c < 8; c++) {
                if (!WHOLE && c * 32 >= left)
                        break;
                uint4 b[MJ];
#pragma unroll
                for (int j = 0; j < MJ; j++)
                        b[j] = *(const uint4 *)(x + stored_x_place(8 * j + g, 4 * c + t));
                float ones[MJ][4];
                if constexpr (SUMS && !PAIRS) {
                        const unsigned one = pack2<T>(1.f, 1.f), all[4] = { one, one, one, one };
#pragma unroll
                        for (int j = 0; j < MJ; j++) {
                                mma_16816_first<T>(ones[j], all, b[j].x, b[j].y);
                                mma_16816<T>(ones[j], all, b[j].z, b[j].w);
                        }
                }
#pragma unroll
                for (int i = 0; i < MI; i++) {
                        unsigned a[2][4];
                        float scale[2], offset[2];
#pragma unroll
                        for (int h = 0; h < 2; h++) {
                                const unsigned char *p = rows[i][h];
                                unsigned w[2][2];
                                Codes y;
                                if (c % C::SHARE == 0)
                                        raw[i][h] = C::template fetch<CODES_RUN>(p, c, t);
                                C::template codes<CODES_RUN>(y, head[i][h], raw[i][h], p, c, t);
                                if constexpr (SUMS && PAIRS) {
                                        codes_pairs<T, C>(w, y);
                                        scale[h] = y.scale[0];
                                } else if constexpr (SUMS) {
                                        codes_as<T>(w, y);
                                        scale[h] = y.scale[0];
                                        offset[h] = fmaf(-(code_base<T>() + C::ZERO), y.scale[0],
                                                         y.minus[0]);
                                } else {
                                        stored_words<T, C, Tile::HOW>(w, y);
                                }
#pragma unroll
                                for (int s = 0; s < 2; s++)
                                        a[s][h] = w[s][0], a[s][2 + h] = w[s][1];
                        }
                        if constexpr (SUMS) {
#pragma unroll
                                for (int j = 0; j < MJ; j++) {
                                        if (c % CHAIN == 0)
                                                mma_16816_first<T>(sum[i][j], a[0], b[j].x, b[j].y);
                                        else
                                                mma_16816<T>(sum[i][j], a[0], b[j].x, b[j].y);
                                        mma_16816<T>(sum[i][j], a[1], b[j].z, b[j].w);
                                }
                                if (c % CHAIN == CHAIN - 1)
                                        stored_scale_sums<MJ, !PAIRS>(acc[i], sum[i], ones, scale,
                                                                      offset);
                        } else {
#pragma unroll
                                for (int j = 0; j < MJ; j++) {
                                        mma_16816<T>(acc[i][j], a[0], b[j].x, b[j].y);
                                        mma_16816<T>(acc[i][j], a[1], b[j].z, b[j].w);
                                }
                        }
                }
        }
}

/* A warp's sums (W's rows down) to BM rows of y in shared memory. */
template <class Tile>
TGC_DEV void stored_sums(float *c, const float (&acc)[Tile::MI][Tile::MJ][4])
{
        const int warp = threadIdx.x >> 5, g = (int)(threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
#pragma unroll
        for (int i = 0; i < Tile::MI; i++)
#pragma unroll
                for (int j = 0; j < Tile::MJ; j++)
#pragma unroll
                        for (int k = 0; k < 4; k++)
                                c[(8 * j + 2 * t + (k & 1)) * Tile::LDC + warp * Tile::WN + 16 * i +
                                  g + (k >> 1) * 8] = acc[i][j][k];
}

/* y's tile to the epilogue, V neighbours at a time. */
template <class Tile, class Epilogue>
TGC_DEV void stored_epilogue(const float *c, TileAt at, int M, int N, const Epilogue &epilogue)
{
        constexpr int V = Epilogue::MAXV < 8 ? Epilogue::MAXV : 8, ACROSS = Tile::BN / V;
#pragma unroll 2
        for (int p = threadIdx.x; p < Tile::BM * ACROSS; p += Tile::THREADS) {
                const int r = p / ACROSS, col = p % ACROSS * V;
                float v[V];
                if (at.m + r >= M || at.n + col >= N)
                        continue;
#pragma unroll
                for (int k = 0; k < V; k++)
                        v[k] = c[r * Tile::LDC + col + k];
                epilogue(at.m + r, at.n + col, v);
        }
}

/* Stores this split's sums to ws.  True in the last split of the tile to finish: c then has the
 * sum of all, in order. */
template <class Tile>
TGC_DEV bool stored_join(float *c, float *ws, int *joined, int split, int splits)
{
        constexpr int SIZE = Tile::BM * Tile::BN;
        int *last = (int *)(c + Tile::BM * Tile::LDC);
        for (int p = threadIdx.x * 4; p < SIZE; p += Tile::THREADS * 4)
                *(float4 *)(ws + (long)split * SIZE +
                            p) = *(const float4 *)(c + p / Tile::BN * Tile::LDC + p % Tile::BN);
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
                *last = atomicAdd(joined, 1) == splits - 1;
                if (*last)
                        *joined = 0;
                __threadfence();
        }
        __syncthreads();
        if (!*last)
                return false;
        for (int p = threadIdx.x * 4; p < SIZE; p += Tile::THREADS * 4) {
                float4 sum = __ldcg((const float4 *)(ws + p));
                for (int s = 1; s < splits; s++) {
                        const float4 v = __ldcg((const float4 *)(ws + (long)s * SIZE + p));
                        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
                }
                *(float4 *)(c + p / Tile::BN * Tile::LDC + p % Tile::BN) = sum;
        }
        __syncthreads();
        return true;
}

/* Computes the tile at `at` over slices [kt0, kt1). */
template <class T, class S, class Tile, int N, int K, int ALIGN, class Rows>
TGC_DEV void stored_block(float (&acc)[Tile::MI][Tile::MJ][4], const T *x, long ldx,
                          const Rows &rows_x, const unsigned char *w, int M, TileAt at, int kt0,
                          int kt1, char *smem)
{
        typedef StoredSlice<S, K> Slice;
        constexpr int STAGES = Tile::STAGES, STAGE = Tile::X_BYTES + Tile::BN * Slice::STRIDE;
        const int warp = threadIdx.x >> 5, g = (int)(threadIdx.x & 31) >> 2;
        int row[Tile::MI][2];
#pragma unroll
        for (int s = 0; s < STAGES - 1; s++)
                if (kt0 + s < kt1)
                        stored_copy<S, Tile, N, K>(smem + s * STAGE + Tile::X_BYTES, w, at.n,
                                                   kt0 + s);
        pdl_wait();
        const Panel<T, true, Tile::BM, Tile::BK, Tile::THREADS, ALIGN, Rows> px(x, ldx, at.m, M, K,
                                                                                rows_x);
#pragma unroll
        for (int s = 0; s < STAGES - 1; s++) {
                if (kt0 + s < kt1)
                        stored_x_copy(px, smem + s * STAGE, (kt0 + s) * Tile::BK);
                cp_async_commit();
        }
#pragma unroll
        for (int i = 0; i < Tile::MI; i++) {
                row[i][0] = warp * Tile::WN + 16 * i + g;
                row[i][1] = row[i][0] + 8;
#pragma unroll
                for (int j = 0; j < Tile::MJ; j++)
                        acc[i][j][0] = acc[i][j][1] = acc[i][j][2] = acc[i][j][3] = 0.f;
        }
        int now = 0, into = STAGES - 1;
#pragma unroll 1
        for (int kt = kt0; kt < kt1; kt++) {
                cp_async_wait<STAGES - 2>();
                __syncthreads();
                if (kt + STAGES - 1 < kt1) {
                        char *to = smem + into * STAGE;
                        stored_copy<S, Tile, N, K>(to + Tile::X_BYTES, w, at.n, kt + STAGES - 1);
                        stored_x_copy(px, to, (kt + STAGES - 1) * Tile::BK);
                }
                cp_async_commit();
                const char *stage = smem + now * STAGE;
                const unsigned char *rows[Tile::MI][2];
#pragma unroll
                for (int i = 0; i < Tile::MI * 2; i++) {
                        const int r = row[i / 2][i % 2], n = at.n + r < N ? at.n + r : N - 1;
                        rows[i / 2][i % 2] = (const unsigned char *)stage + Tile::X_BYTES +
                                             r * Slice::STRIDE +
                                             Slice::shift(w,
                                                          n * (int)Slice::ROW + kt * Slice::BYTES);
                }
                stored_multiply<T, S, Tile, K % 256 == 0>(acc, rows, stage, K - kt * 256);
                now = now == STAGES - 1 ? 0 : now + 1;
                into = into == STAGES - 1 ? 0 : into + 1;
        }
        cp_async_wait<0>();
        __syncthreads();
}

/* A block's part: a tile of y, and slices [kt0, kt1) of K.  Tiles are numbered by splits first,
 * then rows of x, then rows of W. */
struct StoredPart {
        int split, splits, place, kt0, kt1;
        TileAt at;
};
template <class Tile, int K>
TGC_DEV StoredPart stored_part(int tile, int down, int splits)
{
        constexpr int STEPS = (K + 255) / 256;
        const int split = tile % splits, place = tile / splits;
        return { split,
                 splits,
                 place,
                 STEPS * split / splits,
                 STEPS * (split + 1) / splits,
                 { place % down * Tile::BM, place / down * Tile::BN } };
}

/* Its sums to y, by the last of the tile's splits. */
template <class Tile, class Epilogue>
TGC_DEV void stored_end(const float (&acc)[Tile::MI][Tile::MJ][4], const StoredPart &part, int M,
                        int N, float *ws, int *joined, char *smem, const Epilogue &epilogue)
{
        float *c = (float *)smem;
        stored_sums<Tile>(c, acc);
        __syncthreads();
        if (part.splits == 1 ||
            stored_join<Tile>(c, ws + (long)part.place * part.splits * (Tile::BM * Tile::BN),
                              joined + part.place, part.split, part.splits))
                stored_epilogue<Tile>(c, part.at, M, N, epilogue);
        __syncthreads();
}

template <class T, class S, class Tile, int N, int K, int ALIGN, class Epilogue>
TGC_DEV void stored_gemm_task(const T *x, long ldx, const unsigned char *w, int M, int down,
                              int splits, float *ws, int *joined, int tile, char *smem,
                              const Epilogue &epilogue)
{
        const StoredPart part = stored_part<Tile, K>(tile, down, splits);
        float acc[Tile::MI][Tile::MJ][4];
        stored_block<T, S, Tile, N, K, ALIGN>(acc, x, ldx, SameRows(), w, M, part.at, part.kt0,
                                              part.kt1, smem);
        stored_end<Tile>(acc, part, M, N, ws, joined, smem, epilogue);
}

#endif
