/* stored_dot.cuh: codes of block-quantised weights (../../../ir/storage.def) as operands of
 * integer dot products.
 *
 * A unit is 16 neighbouring values of a row of W.  A lane reads UNITS units that share bytes,
 * grouped into RUNS runs.  The values of a run share a scale and lie in the same 32.
 *
 *      typedef DotOf<Stored_NAME> D    byte codes (else: stored_dot_sm90.cuh)
 *      D::lane_of(u), D::part_of(u)    which lane reads unit u of a row, and as which of its units
 *      D::LANES                lanes that share a block, or 1
 *      D::SIGNED               codes are signed bytes
 *      D::OFFSETS              values have an offset
 *      D::SIXTEEN              in a run of two units, the second's codes are 16 times too large
 *      D::PLANES, D::PASSES, D::HALVES
 *                              1, 1, false here (see stored_dot_sm90.cuh)
 *      D::TURNS                D::read takes `turn`: which of four words it reads first
 *      D::read(u, p, sub)      reads the units of lane `sub` of the block at p in shared memory.
 *                              value = scale * code + offset; with SIXTEEN the first unit's is
 *                              16 * scale * code + offset
 *
 * p is aligned as multiples of the block's size are; blocks of Q4_K and Q5_K are 16-byte aligned.
 * read may touch 3 bytes before and 4 bytes behind a lane's own; their values do not matter. */
#ifndef TGC_STORED_DOT_CUH
#define TGC_STORED_DOT_CUH

#include "ptx.cuh"
#include "stored.cuh"

struct Decoder_q8_0;
struct Decoder_i8;
struct Decoder_scb;
struct Decoder_q4_0;
struct Decoder_q4_1;
struct Decoder_i4;
struct Decoder_q5_0;
struct Decoder_q5_1;
struct Decoder_q4_k;
struct Decoder_q5_k;
struct Decoder_q6_k;
struct Decoder_q2_k;
struct Decoder_q3_k;
struct Decoder_iq4_nl;
struct Decoder_iq4_xs;
struct Decoder_mxfp4;
struct Decoder_nvfp4;
template <class Decoder, int VALUES>
struct Dot;
template <class S>
using DotOf = Dot<typename S::Decoder, S::VALUES>;

template <int UNITS, int RUNS>
struct DotUnits {
        unsigned code[UNITS][4];
        float scale[RUNS], offset[RUNS];
};

/* Loads 4 N bytes from p, a multiple of ALIGN (any address if ALIGN is 1 or 2). */
template <int ALIGN, int N>
TGC_DEV void dot_words(unsigned (&w)[N], const unsigned char *p)
{
        if constexpr (ALIGN == 16) {
#pragma unroll
                for (int i = 0; i < N; i += 4) {
                        const uint4 v = *(const uint4 *)(p + 4 * i);
                        w[i] = v.x, w[i + 1] = v.y, w[i + 2] = v.z, w[i + 3] = v.w;
                }
        } else if constexpr (ALIGN == 8) {
#pragma unroll
                for (int i = 0; i < N; i += 2) {
                        const uint2 v = *(const uint2 *)(p + 4 * i);
                        w[i] = v.x, w[i + 1] = v.y;
                }
        } else if constexpr (ALIGN == 4) {
#pragma unroll
                for (int i = 0; i < N; i++)
                        w[i] = *(const unsigned *)(p + 4 * i);
        } else {
                const unsigned by = (unsigned)(unsigned long long)p & 3;
                const unsigned *q = (const unsigned *)(p - by);
                const unsigned take = 0x3210u + by * 0x1111u;
                unsigned v[N + 1];
#pragma unroll
                for (int i = 0; i <= N; i++)
                        v[i] = q[i];
#pragma unroll
                for (int i = 0; i < N; i++)
                        w[i] = __byte_perm(v[i], v[i + 1], take);
        }
}

/* dot_words with ALIGN 4, each four words rotated: word (i + turn) % 4 comes i-th. */
template <int N>
TGC_DEV void dot_words_turned(unsigned (&w)[N], const unsigned char *p, int turn)
{
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < N; j += 4)
                        w[j + i] = *(const unsigned *)(p + 4 * ((i + turn) & 3) + 4 * j);
}

TGC_DEV float dot_half(unsigned bits)
{
        union {
                unsigned short u;
                f16 h;
        } c;
        c.u = (unsigned short)bits;
        return __half2float(c.h);
}
TGC_DEV float dot_half_at(const unsigned char *p) { return dot_half(*(const unsigned short *)p); }
/* Byte i of w as a float. */
TGC_DEV float dot_byte(unsigned w, int i) { return (float)(w >> 8 * i & 255); }

/* Looks up the nibbles of w in a table of 16 bytes: low = the bytes for the low nibbles, high =
 * for the high ones. */
TGC_DEV void dot_table(unsigned w, unsigned &low, unsigned &high, const unsigned (&table)[4])
{
        const unsigned at = w & 0x77777777u, half = (w >> 1 & 0x44444444u) | 0x32103210u;
        const unsigned a = __byte_perm(__byte_perm(table[0], table[1], at),
                                       __byte_perm(table[2], table[3], at), half);
        const unsigned b = __byte_perm(__byte_perm(table[0], table[1], at >> 16),
                                       __byte_perm(table[2], table[3], at >> 16), half >> 16);
        low = __byte_perm(a, b, 0x6420);
        high = __byte_perm(a, b, 0x7531);
}

/* Which units a lane has: 2^PAIR lanes interleave theirs.  Unit e of lane L is unit (L >> PAIR <<
 * PAIR) * UNITS + (e << PAIR) + L % 2^PAIR of the row. */
template <int UNITS_, int RUNS_, int PAIR_, int LANES_, bool SIGNED_, bool OFFSETS_,
          bool SIXTEEN_ = false>
struct DotShape {
        static constexpr int UNITS = UNITS_, RUNS = RUNS_, PAIR = PAIR_, LANES = LANES_;
        static constexpr bool SIGNED = SIGNED_, OFFSETS = OFFSETS_, SIXTEEN = SIXTEEN_;
        static constexpr int BITS = UNITS == 4 ? 2 : 1, PLANES = 1, PASSES = 1;
        static constexpr bool HALVES = false, TURNS = false;
        typedef DotUnits<UNITS, RUNS> Units;
        static __host__ __device__ constexpr int lane_of(int unit)
        {
                return unit >> (PAIR + BITS) << PAIR | (unit & ((1 << PAIR) - 1));
        }
        static __host__ __device__ constexpr int part_of(int unit)
        {
                return unit >> PAIR & (UNITS - 1);
        }
};

/* ---- blocks of 32 ------------------------------------------------------------- */

template <int VALUES>
struct Dot<Decoder_q8_0, VALUES> : DotShape<2, 1, 0, 1, true, false> {
        static __device__ __forceinline__ void read(DotUnits<2, 1> &u, const unsigned char *p, int)
        {
                unsigned w[8];
                dot_words<2>(w, p + 2);
#pragma unroll
                for (int i = 0; i < 8; i++)
                        u.code[i / 4][i % 4] = w[i];
                u.scale[0] = dot_half_at(p);
        }
};

/* A float32 scale, then the codes.  A lane reads 32 values. */
template <int VALUES>
struct Dot<Decoder_i8, VALUES> : DotShape<2, 1, 0, VALUES / 32, true, false> {
        static constexpr bool TURNS = true;
        static __device__ __forceinline__ void read(DotUnits<2, 1> &u, const unsigned char *p,
                                                    int sub, int turn = 0)
        {
                unsigned w[8];
                dot_words_turned(w, p + 4 + 32 * sub, turn);
#pragma unroll
                for (int i = 0; i < 8; i++)
                        u.code[i / 4][i % 4] = w[i];
                u.scale[0] = *(const float *)p;
        }
};

template <int VALUES>
struct Dot<Decoder_scb, VALUES> : Dot<Decoder_i8, VALUES> {
        static __device__ __forceinline__ void read(DotUnits<2, 1> &u, const unsigned char *p,
                                                    int sub, int turn = 0)
        {
                Dot<Decoder_i8, VALUES>::read(u, p, sub, turn);
                u.scale[0] *= 1 / 127.f;
        }
};

/* value = d * nibble + m.  High nibbles stay in place, 16 times as large (SIXTEEN). */
TGC_DEV void dot_nibbles(DotUnits<2, 1> &u, const unsigned (&w)[4], float d, float m)
{
#pragma unroll
        for (int i = 0; i < 4; i++) {
                u.code[0][i] = w[i] & 0x0f0f0f0fu;
                u.code[1][i] = w[i] & 0xf0f0f0f0u;
        }
        u.scale[0] = d * 0.0625f;
        u.offset[0] = m;
}

template <int VALUES>
struct Dot<Decoder_q4_0, VALUES> : DotShape<2, 1, 0, 1, false, true, true> {
        static __device__ __forceinline__ void read(DotUnits<2, 1> &u, const unsigned char *p, int)
        {
                unsigned w[4];
                const float d = dot_half_at(p);
                dot_words<2>(w, p + 2);
                dot_nibbles(u, w, d, -8.f * d);
        }
};

template <int VALUES>
struct Dot<Decoder_q4_1, VALUES> : DotShape<2, 1, 0, 1, false, true, true> {
        static __device__ __forceinline__ void read(DotUnits<2, 1> &u, const unsigned char *p, int)
        {
                unsigned w[4];
                const unsigned both = *(const unsigned *)p;
                dot_words<4>(w, p + 4);
                dot_nibbles(u, w, dot_half(both), dot_half(both >> 16));
        }
};

/* The last byte of the float32 scale is the zero point. */
template <int VALUES>
struct Dot<Decoder_i4, VALUES> : DotShape<2, 1, 0, VALUES / 32, false, true, true> {
        static constexpr bool TURNS = true;
        static __device__ __forceinline__ void read(DotUnits<2, 1> &u, const unsigned char *p,
                                                    int sub, int turn = 0)
        {
                unsigned w[4];
                const unsigned head = *(const unsigned *)p;
                const float d = __uint_as_float(head & ~255u);
                dot_words_turned(w, p + 4 + 16 * sub, turn);
                dot_nibbles(u, w, d, -d * (float)(head & 255));
        }
};

/* value = d * (nibble + 16 * its bit of h) + m */
TGC_DEV void dot_fives(DotUnits<2, 1> &u, const unsigned (&w)[4], unsigned h, float d, float m)
{
#pragma unroll
        for (int i = 0; i < 4; i++) {
                u.code[0][i] = (w[i] & 0x0f0f0f0fu) |
                               ((h >> 4 * i & 15) * 0x02040810u & 0x10101010u);
                u.code[1][i] = (w[i] >> 4 & 0x0f0f0f0fu) |
                               ((h >> (16 + 4 * i) & 15) * 0x02040810u & 0x10101010u);
        }
        u.scale[0] = d;
        u.offset[0] = m;
}

template <int VALUES>
struct Dot<Decoder_q5_0, VALUES> : DotShape<2, 1, 0, 1, false, true> {
        static __device__ __forceinline__ void read(DotUnits<2, 1> &u, const unsigned char *p, int)
        {
                unsigned h[1], w[4];
                const float d = dot_half_at(p);
                dot_words<2>(h, p + 2);
                dot_words<2>(w, p + 6);
                dot_fives(u, w, h[0], d, -16.f * d);
        }
};

template <int VALUES>
struct Dot<Decoder_q5_1, VALUES> : DotShape<2, 1, 0, 1, false, true> {
        static __device__ __forceinline__ void read(DotUnits<2, 1> &u, const unsigned char *p, int)
        {
                unsigned h[2], w[4];
                dot_words<8>(h, p);
                dot_words<8>(w, p + 8);
                dot_fives(u, w, h[1], dot_half(h[0]), dot_half(h[0] >> 16));
        }
};

/* ---- blocks of 256 ------------------------------------------------------------ */

/* Scales and offsets of the two runs of lane `sub`, for Q4_K and Q5_K (6-bit, as ggml packs
 * them). */
template <class U>
TGC_DEV void dot_head_k(U &u, const unsigned char *p, int sub)
{
        const uint4 v = *(const uint4 *)p;
        const bool late = sub & 2;
        const unsigned low = late ? 0x0f0f0f0fu : 0x3f3f3f3fu, high = late ? 0x30303030u : 0u;
        const unsigned scale = ((late ? v.w : v.y) & low) | (v.y >> 2 & high),
                       least = ((late ? v.w >> 4 : v.z) & low) | (v.z >> 2 & high);
        const int by = (sub & 1) * 16;
        const float d = dot_half(v.x), m = -dot_half(v.x >> 16);
        u.scale[0] = d * dot_byte(scale >> by, 0), u.scale[1] = d * dot_byte(scale >> by, 1);
        u.offset[0] = m * dot_byte(least >> by, 0), u.offset[1] = m * dot_byte(least >> by, 1);
}

/* A lane has 64 neighbouring values: the low nibbles of 32 bytes, then the high ones. */
template <int VALUES>
struct Dot<Decoder_q4_k, VALUES> : DotShape<4, 2, 0, 4, false, true> {
        static __device__ __forceinline__ void read(DotUnits<4, 2> &u, const unsigned char *p,
                                                    int sub)
        {
                unsigned w[8];
                dot_words<16>(w, p + 16 + 32 * sub);
                dot_head_k(u, p, sub);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                        u.code[i / 4][i % 4] = w[i] & 0x0f0f0f0fu;
                        u.code[2 + i / 4][i % 4] = w[i] & 0xf0f0f0f0u;
                }
                u.scale[1] *= 0.0625f;
        }
};

template <int VALUES>
struct Dot<Decoder_q5_k, VALUES> : DotShape<4, 2, 0, 4, false, true> {
        static __device__ __forceinline__ void read(DotUnits<4, 2> &u, const unsigned char *p,
                                                    int sub)
        {
                unsigned w[8], h[8];
                dot_words<16>(w, p + 48 + 32 * sub);
                dot_words<16>(h, p + 16);
                dot_head_k(u, p, sub);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                        const unsigned bits = h[i] >> 2 * sub;
                        u.code[i / 4][i % 4] = (w[i] & 0x0f0f0f0fu) | (bits << 4 & 0x10101010u);
                        u.code[2 + i / 4][i % 4] = (w[i] >> 4 & 0x0f0f0f0fu) |
                                                   (bits << 3 & 0x10101010u);
                }
        }
};

/* Lanes 0 and 1 have the first 128 values, 2 and 3 the last.  Each lane of a pair has 16 of each
 * 32 values. */
template <int VALUES>
struct Dot<Decoder_q6_k, VALUES> : DotShape<4, 4, 1, 4, false, true> {
        static __device__ __forceinline__ void read(DotUnits<4, 4> &u, const unsigned char *p,
                                                    int sub)
        {
                const int half = sub >> 1, j = sub & 1;
                const unsigned char *const q = p + 64 * half + 16 * j;
                unsigned a[4], b[4], h[4];
                dot_words<2>(a, q);
                dot_words<2>(b, q + 32);
                dot_words<2>(h, p + 128 + 32 * half + 16 * j);
                const float d = dot_half_at(p + 208);
                const signed char *const scale = (const signed char *)p + 192 + 8 * half + j;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                        u.code[0][i] = (a[i] & 0x0f0f0f0fu) | (h[i] << 4 & 0x30303030u);
                        u.code[1][i] = (b[i] & 0x0f0f0f0fu) | (h[i] << 2 & 0x30303030u);
                        u.code[2][i] = (a[i] >> 4 & 0x0f0f0f0fu) | (h[i] & 0x30303030u);
                        u.code[3][i] = (b[i] >> 4 & 0x0f0f0f0fu) | (h[i] >> 2 & 0x30303030u);
                }
#pragma unroll
                for (int e = 0; e < 4; e++) {
                        u.scale[e] = d * (float)scale[2 * e];
                        u.offset[e] = -32.f * u.scale[e];
                }
        }
};

template <int VALUES>
struct Dot<Decoder_q2_k, VALUES> : DotShape<4, 4, 1, 4, false, true> {
        static __device__ __forceinline__ void read(DotUnits<4, 4> &u, const unsigned char *p,
                                                    int sub)
        {
                const unsigned char *const scale = p + 8 * (sub >> 1) + (sub & 1);
                const unsigned both = *(const unsigned *)(p + 80);
                const float d = dot_half(both), m = -dot_half(both >> 16);
                unsigned w[4];
                dot_words<4>(w, p + 16 + 16 * sub);
#pragma unroll
                for (int e = 0; e < 4; e++) {
                        const unsigned s = scale[2 * e];
#pragma unroll
                        for (int i = 0; i < 4; i++)
                                u.code[e][i] = w[i] >> 2 * e & 0x03030303u;
                        u.scale[e] = d * (float)(s & 15);
                        u.offset[e] = m * (float)(s >> 4);
                }
        }
};

template <int VALUES>
struct Dot<Decoder_q3_k, VALUES> : DotShape<4, 4, 1, 4, false, true> {
        static __device__ __forceinline__ void read(DotUnits<4, 4> &u, const unsigned char *p,
                                                    int sub)
        {
                const unsigned char *const packed = p + 96;
                const int half = sub >> 1, j = sub & 1;
                const float d = dot_half_at(p + 108);
                unsigned w[4], h[4];
                dot_words<2>(w, p + 32 + 16 * sub);
                dot_words<2>(h, p + 16 * j);
#pragma unroll
                for (int e = 0; e < 4; e++) {
                        const int s = 8 * half + 2 * e + j;
                        const int low = packed[s & 7] >> 4 * half & 15,
                                  high = packed[8 + (s & 3)] >> 2 * (s >> 2) & 3;
#pragma unroll
                        for (int i = 0; i < 4; i++)
                                u.code[e][i] = (w[i] >> 2 * e & 0x03030303u) |
                                               (h[i] >> (4 * half + e) & 0x01010101u) << 2;
                        u.scale[e] = d * (float)((low | high << 4) - 32);
                        u.offset[e] = -4.f * u.scale[e];
                }
        }
};

/* ---- nibbles that index a table (the numbers are in block_decode.h) ------------------ */

TGC_DEV void dot_table_units(DotUnits<2, 1> &u, const unsigned (&w)[4], const unsigned (&table)[4],
                             float d)
{
#pragma unroll
        for (int i = 0; i < 4; i++)
                dot_table(w[i], u.code[0][i], u.code[1][i], table);
        u.scale[0] = d;
}
TGC_DEV void dot_iq4(DotUnits<2, 1> &u, const unsigned (&w)[4], float d)
{
        const unsigned table[4] = { 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u };
        dot_table_units(u, w, table, d);
}

template <int VALUES>
struct Dot<Decoder_iq4_nl, VALUES> : DotShape<2, 1, 0, 1, true, false> {
        static __device__ __forceinline__ void read(DotUnits<2, 1> &u, const unsigned char *p, int)
        {
                unsigned w[4];
                dot_words<2>(w, p + 2);
                dot_iq4(u, w, dot_half_at(p));
        }
};

template <int VALUES>
struct Dot<Decoder_iq4_xs, VALUES> : DotShape<2, 1, 0, 8, true, false> {
        static __device__ __forceinline__ void read(DotUnits<2, 1> &u, const unsigned char *p,
                                                    int sub)
        {
                unsigned w[4], head[2];
                dot_words<8>(head, p);
                dot_words<8>(w, p + 8 + 16 * sub);
                const int scale = (int)((head[1] >> 4 * sub & 15) | (head[0] >> (16 + 2 * sub) & 3)
                                                                            << 4) -
                                  32;
                dot_iq4(u, w, dot_half(head[0]) * (float)scale);
        }
};

/* Twice the E2M1 values, as bytes; the scale is half. */
constexpr unsigned DOT_E2M1[4] = { 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu };

template <int VALUES>
struct Dot<Decoder_mxfp4, VALUES> : DotShape<2, 1, 0, 1, true, false> {
        static __device__ __forceinline__ void read(DotUnits<2, 1> &u, const unsigned char *p, int)
        {
                const unsigned table[4] = { DOT_E2M1[0], DOT_E2M1[1], DOT_E2M1[2], DOT_E2M1[3] };
                const unsigned e = *p;
                unsigned w[4];
                dot_words<1>(w, p + 1);
                dot_table_units(u, w, table,
                                __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23));
        }
};

/* 16 values share a scale (E4M3) and 8 bytes: low nibbles first. */
template <int VALUES>
struct Dot<Decoder_nvfp4, VALUES> : DotShape<2, 2, 0, 2, true, false> {
        static __device__ __forceinline__ float half_scale(unsigned s)
        {
                const unsigned e = s >> 3 & 15, m = s & 7;
                return s == 0x7f ? 0.f
                       : e       ? __uint_as_float((e + 119) << 23 | m << 20)
                                 : (float)m * 0x1p-10f;
        }
        static __device__ __forceinline__ void read(DotUnits<2, 2> &u, const unsigned char *p,
                                                    int sub)
        {
                const unsigned table[4] = { DOT_E2M1[0], DOT_E2M1[1], DOT_E2M1[2], DOT_E2M1[3] };
                unsigned w[4];
                dot_words<4>(w, p + 4 + 16 * sub);
#pragma unroll
                for (int e = 0; e < 2; e++) {
#pragma unroll
                        for (int i = 0; i < 2; i++)
                                dot_table(w[2 * e + i], u.code[e][i], u.code[e][2 + i], table);
                        u.scale[e] = half_scale(p[2 * sub + e]);
                }
        }
};

#endif
