/* emulate_ptx.h: the portable part of ptx.cuh for the emulator, function by function.
 *
 * Collectives gather the 32 lanes' operands into plain matrices, by the layouts in ptx.cuh's head,
 * compute, and scatter the results. */
#ifndef TGC_EMULATE_PTX_H
#define TGC_EMULATE_PTX_H
/* clang-format off: a line an instruction */

EMU_ITSELF

/* ---- matrices ---------------------------------------------------------- */

EMU_NAMESPACE
{
        struct MatrixLoad {
                unsigned *r;
                const void *row;
        };

        template <int N, bool TRANS>
        inline void ldmatrix_all(Warp * w, unsigned)
        {
                check_aligned(w);
                for (int m = 0; m < N; m++) {
                        const uint16_t *row[8];
                        for (int i = 0; i < 8; i++)
                                row[i] = (const uint16_t *)((MatrixLoad *)w->lane[8 * m + i]
                                                                    ->operands)
                                                 ->row;
                        for (int l = 0; l < 32; l++) {
                                int g = l / 4, c = l % 4 * 2;
                                unsigned lo = TRANS ? row[c][g] : row[g][c],
                                         hi = TRANS ? row[c + 1][g] : row[g][c + 1];
                                ((MatrixLoad *)w->lane[l]->operands)->r[m] = hi << 16 | lo;
                        }
                }
        }

        template <int N, bool TRANS>
        inline void ldmatrix(unsigned *r, const void *smem, const char *file, int line)
        {
                MatrixLoad m = { r, smem };
                if (self()->lane < 8 * N)
                        check_smem("ldmatrix", smem, 16);
                meet(TRANS ? "ldmatrix_trans" : "ldmatrix", 0xffffffffu, &m, ldmatrix_all<N, TRANS>,
                     file, line);
        }

        struct Product {
                float *d;
                const unsigned *a, *b;
        };

        /* Element e of word j of lane l's fragment, as float: two 16-bit values per word ... */
        inline float half_of(unsigned w, int e, bf16)
        {
                return emu_from_bf16((unsigned short)(w >> 16 * e));
        }
        inline float half_of(unsigned w, int e, f16)
        {
                return emu_from_f16((unsigned short)(w >> 16 * e));
        }
        /* ... or one tf32, whose low 13 bits are ignored. */
        inline float half_of(unsigned w, int, float) { return __uint_as_float(w & ~0x1fffu); }

        /* D (16,8) += A (16,K) B (K,8), k ascending. */
        template <int K>
        inline void product_all(Warp * w, const float(&a)[16][K], const float(&b)[K][8])
        {
                float d[16][8];
                check_aligned(w);
                for (int l = 0; l < 32; l++)
                        for (int i = 0; i < 4; i++)
                                d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2] =
                                        ((Product *)w->lane[l]->operands)->d[i];
                for (int i = 0; i < 16; i++)
                        for (int k = 0; k < K; k++)
                                for (int j = 0; j < 8; j++)
                                        d[i][j] += a[i][k] * b[k][j];
                for (int l = 0; l < 32; l++)
                        for (int i = 0; i < 4; i++)
                                ((Product *)w->lane[l]->operands)->d[i] =
                                        d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
        }

        template <class T>
        inline void mma_16816_all(Warp * w, unsigned)
        {
                float a[16][16], b[16][8];
                for (int l = 0; l < 32; l++) {
                        const Product *p = (const Product *)w->lane[l]->operands;
                        int g = l / 4, t = l % 4;
                        for (int e = 0; e < 2; e++) {
                                for (int i = 0; i < 4; i++)
                                        a[g + i % 2 * 8][2 * t + i / 2 * 8 + e] = half_of(p->a[i],
                                                                                          e, T());
                                for (int i = 0; i < 2; i++)
                                        b[2 * t + i * 8 + e][g] = half_of(p->b[i], e, T());
                        }
                }
                product_all(w, a, b);
        }

        /* ... or one tf32. */
        inline void mma_1688_tf32_all(Warp * w, unsigned)
        {
                float a[16][8], b[8][8];
                for (int l = 0; l < 32; l++) {
                        const Product *p = (const Product *)w->lane[l]->operands;
                        int g = l / 4, t = l % 4;
                        for (int i = 0; i < 4; i++)
                                a[g + i % 2 * 8][t + i / 2 * 4] = half_of(p->a[i], 0, float());
                        for (int i = 0; i < 2; i++)
                                b[t + i * 4][g] = half_of(p->b[i], 0, float());
                }
                product_all(w, a, b);
        }

        /* Bytes, four per word; sums wrap as in hardware. */
        template <bool A_SIGNED>
        inline void mma_16832_all(Warp * w, unsigned)
        {
                int a[16][32], b[32][8];
                check_aligned(w);
                for (int l = 0; l < 32; l++) {
                        const Product *p = (const Product *)w->lane[l]->operands;
                        int g = l / 4, t = l % 4;
                        for (int e = 0; e < 4; e++) {
                                for (int i = 0; i < 4; i++) {
                                        unsigned char u = (unsigned char)(p->a[i] >> 8 * e);
                                        a[g + i % 2 * 8][4 * t + i / 2 * 16 + e] =
                                                A_SIGNED ? (signed char)u : u;
                                }
                                for (int i = 0; i < 2; i++)
                                        b[4 * t + i * 16 + e][g] = (signed char)(p->b[i] >> 8 * e);
                        }
                }
                for (int l = 0; l < 32; l++)
                        for (int i = 0; i < 4; i++) {
                                int *d = (int *)((Product *)w->lane[l]->operands)->d + i;
                                unsigned sum = (unsigned)*d;
                                for (int k = 0; k < 32; k++)
                                        sum += (unsigned)(a[l / 4 + i / 2 * 8][k] *
                                                          b[k][l % 4 * 2 + i % 2]);
                                *d = (int)sum;
                        }
        }

        inline void mma(const char *what, float *d, const unsigned *a, const unsigned *b,
                        void (*all)(Warp *, unsigned), const char *file, int line)
        {
                Product p = { d, a, b };
                meet(what, 0xffffffffu, &p, all, file, line);
        }

        inline void cp_async(void *smem, const void *gmem, int bytes, bool valid)
        {
                Thread *t = self();
                check_smem("cp_async", smem, bytes);
                if (valid)
                        check_access("cp_async", gmem, bytes);
                memset(smem, 0xff, bytes);
                t->copies.push_back({ (char *)smem, (const char *)gmem, bytes, valid, t->group });
        }

        inline void cp_async_part(void *smem, const void *gmem, int n)
        {
                Thread *t = self();
                check_smem("cp_async16_part", smem, 16);
                if ((uintptr_t)gmem % 16)
                        fail("thread %d: cp_async16_part of the misaligned address %p", t->number,
                             gmem);
                for (int i = 0; i<n; i += n - 1> i ? n - 1 : 1)
                        check_access("cp_async16_part", (const char *)gmem + i, 1);
                memset(smem, 0xff, 16);
                t->copies.push_back({ (char *)smem, (const char *)gmem, n, true, t->group });
                t->copies.push_back(
                        { (char *)smem + n, (const char *)gmem, 16 - n, false, t->group });
        }

        inline float flush(float x) { return fabsf(x) < 1.17549435e-38f ? copysignf(0.f, x) : x; }

}  // namespace emu

TGC_DEV void ldmatrix_x4(unsigned (&r)[4], const void *smem, EMU_SITE)
{
        emu::ldmatrix<4, false>(r, smem, file, line);
}

TGC_DEV void ldmatrix_x4_trans(unsigned (&r)[4], const void *smem, EMU_SITE)
{
        emu::ldmatrix<4, true>(r, smem, file, line);
}

TGC_DEV void ldmatrix_x2(unsigned (&r)[2], const void *smem, EMU_SITE)
{
        emu::ldmatrix<2, false>(r, smem, file, line);
}

TGC_DEV void ldmatrix_x2_trans(unsigned (&r)[2], const void *smem, EMU_SITE)
{
        emu::ldmatrix<2, true>(r, smem, file, line);
}

TGC_DEV void mma_16816(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], bf16,
                       EMU_SITE)
{
        emu::mma("mma_16816<bf16>", d, a, b, emu::mma_16816_all<bf16>, file, line);
}

TGC_DEV void mma_16816(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], f16, EMU_SITE)
{
        emu::mma("mma_16816<f16>", d, a, b, emu::mma_16816_all<f16>, file, line);
}

template <bool A_SIGNED>
TGC_DEV void mma_16832(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], EMU_SITE)
{
        emu::mma("mma_16832", (float *)d, a, b, emu::mma_16832_all<A_SIGNED>, file, line);
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
        emu::mma("mma_1688_tf32", d, a, b, emu::mma_1688_tf32_all, file, line);
}

/* Ties away from zero; infinities and NaNs stay. */
TGC_DEV unsigned to_tf32(float x)
{
        unsigned u = __float_as_uint(x);
        return (u & 0x7f800000) == 0x7f800000 ? u & ~0x1fffu : (u + 0x1000) & ~0x1fffu;
}

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
TGC_DEV void cp_async_commit() { emu::self()->group++; }
template <int N>
TGC_DEV void cp_async_wait()
{
        emu::copies_deliver(emu::self(), N);
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
namespace emu
{
/* What the launch before writes at its end, for tests of what a kernel reads too early: called by
 * every thread that waits. */
inline void (*before_ends)(void);
}  // namespace emu
TGC_DEV void pdl_wait()
{
        if (emu::before_ends)
                emu::before_ends();
}
TGC_DEV void pdl_launch() {}
TGC_DEV void pdl_launch_late() {}

EMU_KERNELS
#endif
