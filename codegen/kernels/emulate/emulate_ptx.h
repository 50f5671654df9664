/* emulate_ptx.h: the portable part of ptx.cuh for the emulator, function by function. */
#ifndef TGC_EMULATE_PTX_H
#define TGC_EMULATE_PTX_H
/* clang-format off: a line an instruction */

/* ---- matrices ---------------------------------------------------------- */

EMU_NAMESPACE
{
        inline float flush(float x) { return fabsf(x) < 1.17549435e-38f ? copysignf(0.f, x) : x; }

}  // namespace emu

TGC_DEV void ldmatrix_x4(unsigned (&r)[4], const void *smem, EMU_SITE)
{
        emu::ldmatrix(r, smem, 4, false, file, line);
}

TGC_DEV void ldmatrix_x4_trans(unsigned (&r)[4], const void *smem, EMU_SITE)
{
        emu::ldmatrix(r, smem, 4, true, file, line);
}

TGC_DEV void ldmatrix_x2(unsigned (&r)[2], const void *smem, EMU_SITE)
{
        emu::ldmatrix(r, smem, 2, false, file, line);
}

TGC_DEV void ldmatrix_x2_trans(unsigned (&r)[2], const void *smem, EMU_SITE)
{
        emu::ldmatrix(r, smem, 2, true, file, line);
}

TGC_DEV void mma_16816(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], bf16,
                       EMU_SITE)
{
        emu::mma(d, a, b, emu::BF16, file, line);
}

TGC_DEV void mma_16816(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], f16, EMU_SITE)
{
        emu::mma(d, a, b, emu::F16, file, line);
}

template <bool A_SIGNED>
TGC_DEV void mma_16832(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], EMU_SITE)
{
        emu::mma_bytes(d, a, b, A_SIGNED, file, line);
}

template <class T>
inline void mma_16816_first(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], T tag,
                            EMU_SITE)
{
        d[0] = d[1] = d[2] = d[3] = 0.f;
        mma_16816(d, a, b, tag, file, line);
}

TGC_DEV void mma_1688_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], EMU_SITE)
{
        emu::mma(d, a, b, emu::TF32, file, line);
}

TGC_DEV unsigned to_tf32(float x) { return emu_to_tf32(x); }

/* ---- asynchronous copies ----------------------------------------------- */

TGC_DEV void cp_async16(void *smem, const void *gmem, bool valid = true)
{
        emu::cp_async(smem, gmem, 16, valid);
}
TGC_DEV void cp_async16_part(void *smem, const void *gmem, int n)
{
        emu::cp_async_part(smem, gmem, n);
}
TGC_DEV void cp_async8(void *smem, const void *gmem, bool valid = true)
{
        emu::cp_async(smem, gmem, 8, valid);
}
TGC_DEV void cp_async4(void *smem, const void *gmem, bool valid = true)
{
        emu::cp_async(smem, gmem, 4, valid);
}
TGC_DEV void cp_async_commit() { emu::me()->group++; }
template <int N>
TGC_DEV void cp_async_wait()
{
        emu::copies_deliver(N);
}

/* ---- packing ----------------------------------------------------------- */

TGC_DEV unsigned pack2_as(float lo, float hi, bf16)
{
        return (unsigned)emu_to_bf16(hi) << 16 | emu_to_bf16(lo);
}
TGC_DEV unsigned pack2_as(float lo, float hi, f16)
{
        return (unsigned)emu_to_f16(hi) << 16 | emu_to_f16(lo);
}
TGC_DEV void unpack2_as(unsigned w, float &lo, float &hi, bf16)
{
        lo = emu::half_of(w, 0, bf16());
        hi = emu::half_of(w, 1, bf16());
}
TGC_DEV void unpack2_as(unsigned w, float &lo, float &hi, f16)
{
        lo = emu::half_of(w, 0, f16());
        hi = emu::half_of(w, 1, f16());
}

inline unsigned extend_bytes(unsigned w, int j)
{
        const short a = (signed char)(w >> 8 * j), b = (signed char)(w >> 8 * (j + 1));
        return (unsigned short)a | (unsigned)(unsigned short)b << 16;
}

inline unsigned sign_bytes(unsigned w) { return (w >> 7 & 0x01010101u) * 0xffu; }

inline unsigned min2_bf16(unsigned a, unsigned b)
{
        float r[2];
        for (int e = 0; e < 2; e++)
                r[e] = fminf(emu::half_of(a, e, bf16()), emu::half_of(b, e, bf16()));
        return pack2_as(r[0], r[1], bf16());
}

template <class T>
inline unsigned fma2_as(unsigned a, unsigned b, unsigned c, T tag)
{
        float r[2];
        for (int e = 0; e < 2; e++)
                r[e] = (float)((double)emu::half_of(a, e, tag) * (double)emu::half_of(b, e, tag) +
                               (double)emu::half_of(c, e, tag));
        return pack2_as(r[0], r[1], tag);
}

/* ---- arithmetic -------------------------------------------------------- */

TGC_DEV float fast_exp2(float x) { return emu::flush(exp2f(emu::flush(x))); }
TGC_DEV float fast_rcp(float x) { return emu::flush(1.f / emu::flush(x)); }
TGC_DEV float fast_rsqrt(float x) { return 1.f / sqrtf(emu::flush(x)); }
TGC_DEV float fast_log2(float x) { return log2f(emu::flush(x)); }
TGC_DEV float fast_sqrt(float x) { return sqrtf(x); }
TGC_DEV float fast_tanh(float x) { return tanhf(x); }
template <bool A_SIGNED, bool B_SIGNED>
TGC_DEV int dot4(unsigned a, unsigned b, int c)
{
        for (int i = 0; i < 32; i += 8) {
                const int x = a >> i & 255, y = b >> i & 255;
                c += (A_SIGNED ? (signed char)x : x) * (B_SIGNED ? (signed char)y : y);
        }
        return c;
}
TGC_DEV float min_nan(float x, float y) { return x != x || x < y ? x : y; }
TGC_DEV float max_nan(float x, float y) { return x != x || x > y ? x : y; }

/* ---- global memory ----------------------------------------------------- */

template <class C>
TGC_DEV C load_nc(const C *p)
{
        emu::check_access("load_nc", p, sizeof *p);
        return *p;
}

TGC_DEV uint4 load_streaming(const uint4 *p) { return load_nc(p); }

template <class C>
TGC_DEV C load_l2(const C *p)
{
        emu::check_access("load_l2", p, sizeof *p);
        return *p;
}

template <class C>
TGC_DEV void st_streaming(C *p, C v)
{
        emu::check_access("st_streaming", p, sizeof *p);
        *p = v;
}

TGC_DEV void prefetch_l2(const void *) {}

/* Yields first, as spins call this. */
TGC_DEV int load_acquire(const int *p)
{
        emu::yield();
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
TGC_DEV void add_release(int *p, int v) { __atomic_fetch_add(p, v, __ATOMIC_RELEASE); }

/* ---- barriers and launches --------------------------------------------- */

TGC_DEV void bar_sync(int id, int n, EMU_SITE)
{
        emu::barrier("bar_sync", id, n, true, 0, file, line);
}
TGC_DEV void bar_arrive(int id, int n, EMU_SITE)
{
        emu::barrier("bar_arrive", id, n, false, 0, file, line);
}
TGC_DEV void pdl_wait()
{
        if (emu::before_ends)
                emu::before_ends();
}
TGC_DEV void pdl_launch() {}
TGC_DEV void pdl_launch_late() {}

#endif
