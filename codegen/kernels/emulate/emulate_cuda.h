/* emulate_cuda.h: CUDA's keywords, types and arithmetic for a host compiler: what one thread does
 * without the others.  Only what the kernels use. */
#ifndef TGC_EMULATE_CUDA_H
#define TGC_EMULATE_CUDA_H

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define TGC_DEV static inline __attribute__((unused))

/* Vector types, aligned as CUDA aligns them. */
#define EMU_VECTORS(T, S)                                                               \
        struct alignas(2 * sizeof(S)) T##2 { S x, y; };                                 \
        struct T##3 { S x, y, z; };                                                     \
        struct alignas(4 * sizeof(S) > 16 ? 16 : 4 * sizeof(S)) T##4 { S x, y, z, w; }; \
        TGC_DEV T##2 make_##T##2(S x, S y) { return { x, y }; }                         \
        TGC_DEV T##3 make_##T##3(S x, S y, S z) { return { x, y, z }; }                 \
        TGC_DEV T##4 make_##T##4(S x, S y, S z, S w) { return { x, y, z, w }; }
EMU_VECTORS(char, signed char)
EMU_VECTORS(uchar, unsigned char)
EMU_VECTORS(short, short)
EMU_VECTORS(ushort, unsigned short)
EMU_VECTORS(int, int)
EMU_VECTORS(uint, unsigned)
EMU_VECTORS(longlong, long long)
EMU_VECTORS(ulonglong, unsigned long long)
EMU_VECTORS(float, float)
EMU_VECTORS(double, double)
#undef EMU_VECTORS

/* Reinterpretation. */
template <class To, class From>
TGC_DEV To emu_bits(From x)
{
        static_assert(sizeof(To) == sizeof(From), "sizes differ");
        To y;
        memcpy(&y, &x, sizeof y);
        return y;
}
TGC_DEV int __float_as_int(float x) { return emu_bits<int>(x); }
TGC_DEV unsigned __float_as_uint(float x) { return emu_bits<unsigned>(x); }
TGC_DEV float __int_as_float(int x) { return emu_bits<float>(x); }
TGC_DEV float __uint_as_float(unsigned x) { return emu_bits<float>(x); }

/* 16-bit floats.  Rounding is to nearest even; a NaN becomes 0x7fff, as on the GPU. */
TGC_DEV unsigned short emu_to_bf16(float x)
{
        uint32_t u = __float_as_uint(x);
        if ((u & 0x7fffffff) > 0x7f800000)
                return 0x7fff;
        return (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

TGC_DEV float emu_from_bf16(unsigned short h) { return __uint_as_float((uint32_t)h << 16); }

TGC_DEV unsigned short emu_to_f16(float x)
{
        uint32_t u = __float_as_uint(x), sign = u >> 16 & 0x8000;
        u &= 0x7fffffff;
        if (u > 0x7f800000)
                return 0x7fff;
        if (u >= 0x477ff000) /* 65520, half way past the largest */
                return (unsigned short)(sign | 0x7c00);
        if (u < 0x38800000) /* below 2^-14: multiples of 2^-24 */
                return (unsigned short)(sign | (uint32_t)rintf(__uint_as_float(u) * 16777216.f));
        return (unsigned short)(sign | ((u + 0xfff + (u >> 13 & 1)) - (112u << 23)) >> 13);
}

TGC_DEV float emu_from_f16(unsigned short h)
{
        uint32_t u = (uint32_t)(h & 0x7fff) << 13;
        if ((h & 0x7c00) == 0x7c00)
                u |= 0x7f800000;
        else
                u = __float_as_uint(__uint_as_float(u) *
                                    5192296858534827628530496329220096.f); /* 2^112 */
        return __uint_as_float(u | (uint32_t)(h & 0x8000) << 16);
}

/* tf32: ties away from zero; infinities and NaNs stay. */
TGC_DEV unsigned emu_to_tf32(float x)
{
        const uint32_t u = __float_as_uint(x);
        return (u & 0x7f800000) == 0x7f800000 ? u & ~0x1fffu : (u + 0x1000) & ~0x1fffu;
}

/* Conversions only: CUDA's own operators round to 16 bits after every step, so
 * kernels compute in float, and an operator here could only hide that they do not. */
struct __nv_bfloat16 {
        unsigned short bits;
        __nv_bfloat16() = default;
        __nv_bfloat16(float x) : bits(emu_to_bf16(x)) {}
        explicit operator float() const { return emu_from_bf16(bits); }
};

struct __half {
        unsigned short bits;
        __half() = default;
        __half(float x) : bits(emu_to_f16(x)) {}
        explicit operator float() const { return emu_from_f16(bits); }
};

struct alignas(4) __nv_bfloat162 {
        __nv_bfloat16 x, y;
};
struct alignas(4) __half2 {
        __half x, y;
};

TGC_DEV __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
TGC_DEV __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
TGC_DEV float __bfloat162float(__nv_bfloat16 x) { return emu_from_bf16(x.bits); }
TGC_DEV __half __float2half_rn(float x) { return __half(x); }
TGC_DEV __half __float2half(float x) { return __half(x); }
TGC_DEV float __half2float(__half x) { return emu_from_f16(x.bits); }
TGC_DEV unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
TGC_DEV unsigned short __half_as_ushort(__half x) { return x.bits; }
TGC_DEV __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return emu_bits<__nv_bfloat16>(x); }
TGC_DEV __half __ushort_as_half(unsigned short x) { return emu_bits<__half>(x); }
TGC_DEV __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return { x, y }; }
TGC_DEV __half2 __floats2half2_rn(float x, float y) { return { x, y }; }
TGC_DEV float2 __bfloat1622float2(__nv_bfloat162 v) { return { (float)v.x, (float)v.y }; }
TGC_DEV float2 __half22float2(__half2 v) { return { (float)v.x, (float)v.y }; }

/* Integers. */
#define EMU_MINMAX(T)                                     \
        TGC_DEV T min(T a, T b) { return a < b ? a : b; } \
        TGC_DEV T max(T a, T b) { return a > b ? a : b; }
EMU_MINMAX(int)
EMU_MINMAX(unsigned)
EMU_MINMAX(long)
EMU_MINMAX(unsigned long)
EMU_MINMAX(long long)
EMU_MINMAX(unsigned long long)
#undef EMU_MINMAX
TGC_DEV float min(float a, float b) { return fminf(a, b); }
TGC_DEV float max(float a, float b) { return fmaxf(a, b); }

TGC_DEV unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
TGC_DEV int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
TGC_DEV unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
        return (unsigned long long)((unsigned __int128)a * b >> 64);
}
TGC_DEV int __popc(unsigned x) { return __builtin_popcount(x); }
TGC_DEV int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
TGC_DEV int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
TGC_DEV int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
TGC_DEV int __ffs(int x) { return __builtin_ffs(x); }
TGC_DEV int __ffsll(long long x) { return __builtin_ffsll(x); }
TGC_DEV unsigned __brev(unsigned x)
{
        x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
        x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
        x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
        return __builtin_bswap32(x);
}
/* Byte i of the result is byte s[4i..4i+2] of {y, x}. */
TGC_DEV unsigned __byte_perm(unsigned x, unsigned y, unsigned s)
{
        uint64_t v = (uint64_t)y << 32 | x;
        unsigned r = 0;
        for (int i = 0; i < 4; i++)
                r |= (unsigned)(v >> 8 * (s >> 4 * i & 7) & 0xff) << 8 * i;
        return r;
}
/* c plus the dot product of four signed bytes. */
TGC_DEV int __dp4a(int a, int b, int c)
{
        for (int i = 0; i < 32; i += 8)
                c += (signed char)(a >> i) * (signed char)(b >> i);
        return c;
}

/* Floats.  The approximate functions are exact here: kernels may not lean on
 * either's last bits. */
TGC_DEV float rsqrtf(float x) { return 1.f / sqrtf(x); }
/* These names are the C library's own, so they are macros here. */
#define __expf(x) expf(x)
#define __exp10f(x) powf(10.f, x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __powf(x, y) powf(x, y)
#define __sincosf(x, s, c) sincosf(x, s, c)
TGC_DEV float __fdividef(float x, float y) { return x / y; }
TGC_DEV float __frcp_rn(float x) { return 1.f / x; }
TGC_DEV float __frsqrt_rn(float x) { return (float)(1. / sqrt((double)x)); }
TGC_DEV float __fsqrt_rn(float x) { return sqrtf(x); }
TGC_DEV float __fdiv_rn(float x, float y) { return x / y; }
TGC_DEV float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
/* Never contracted with their neighbours into an fma. */
TGC_DEV float __fadd_rn(float x, float y)
{
        volatile float r = x + y;
        return r;
}
TGC_DEV float __fsub_rn(float x, float y)
{
        volatile float r = x - y;
        return r;
}
TGC_DEV float __fmul_rn(float x, float y)
{
        volatile float r = x * y;
        return r;
}
TGC_DEV float __saturatef(float x) { return x > 0.f ? (x < 1.f ? x : 1.f) : 0.f; }
/* To integer: clamped to the range, NaN to 0. */
TGC_DEV int emu_to_int(float x)
{
        return x != x ? 0 : x >= 2147483648.f ? INT32_MAX : x < -2147483648.f ? INT32_MIN : (int)x;
}
TGC_DEV int __float2int_rn(float x) { return emu_to_int(rintf(x)); }
TGC_DEV int __float2int_rz(float x) { return emu_to_int(x); }
TGC_DEV int __float2int_rd(float x) { return emu_to_int(floorf(x)); }
TGC_DEV int __float2int_ru(float x) { return emu_to_int(ceilf(x)); }
TGC_DEV unsigned __float2uint_rn(float x)
{
        x = rintf(x);
        return !(x > 0.f) ? 0 : x >= 4294967296.f ? UINT32_MAX : (unsigned)x;
}
TGC_DEV float __int2float_rn(int x) { return (float)x; }
TGC_DEV float __uint2float_rn(unsigned x) { return (float)x; }

/* Memory. */
template <class T>
TGC_DEV T __ldg(const T *p)
{
        return *p;
}
template <class T>
TGC_DEV T __ldcg(const T *p)
{
        return *p;
}
template <class T>
TGC_DEV T __ldcs(const T *p)
{
        return *p;
}
template <class T>
TGC_DEV void __stcs(T *p, T v)
{
        *p = v;
}
template <class T>
TGC_DEV void __stcg(T *p, T v)
{
        *p = v;
}
TGC_DEV void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
TGC_DEV void __threadfence_block() {}
TGC_DEV void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

TGC_DEV void __trap() { abort(); }
TGC_DEV long long clock64() { return 0; }

/* Atomics on integers; on floats they would make sums depend on the schedule. */
#define EMU_ATOMICS(T)                                                                          \
        TGC_DEV T atomicAdd(T *p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }   \
        TGC_DEV T atomicSub(T *p, T v) { return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST); }   \
        TGC_DEV T atomicOr(T *p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }     \
        TGC_DEV T atomicAnd(T *p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); }   \
        TGC_DEV T atomicExch(T *p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); } \
        TGC_DEV T atomicCAS(T *p, T was, T v)                                                   \
        {                                                                                       \
                __atomic_compare_exchange_n(p, &was, v, false, __ATOMIC_SEQ_CST,                \
                                            __ATOMIC_SEQ_CST);                                  \
                return was;                                                                     \
        }                                                                                       \
        TGC_DEV T atomicMax(T *p, T v)                                                          \
        {                                                                                       \
                T was = *p;                                                                     \
                while (was < v && atomicCAS(p, was, v) != was)                                  \
                        was = *p;                                                               \
                return was;                                                                     \
        }                                                                                       \
        TGC_DEV T atomicMin(T *p, T v)                                                          \
        {                                                                                       \
                T was = *p;                                                                     \
                while (was > v && atomicCAS(p, was, v) != was)                                  \
                        was = *p;                                                               \
                return was;                                                                     \
        }
EMU_ATOMICS(int)
EMU_ATOMICS(unsigned)
EMU_ATOMICS(unsigned long long)
#undef EMU_ATOMICS

#endif
