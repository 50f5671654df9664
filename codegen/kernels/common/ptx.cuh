/* ptx.cuh: every PTX instruction the kernels use, one small function each.
 *
 * Nothing else in the tree writes `asm`.  Shared memory is passed as an ordinary
 * pointer into the block's `smem`; the 32-bit shared address exists only inside
 * these functions, so that the emulator can play them on host memory
 * (emulate_ptx.h holds the same names; a change here is a change there).
 *
 * First part: sm_80 and up.  Second part, under TGC_SM90A (defined by the build
 * when the target is sm_90a): Hopper's mbarrier, TMA, wgmma and clusters
 * (ptx_sm90.cuh, emulate_sm90.h).
 *
 * Fragments are as the PTX ISA draws them; with g = lane / 4, t = lane % 4 and
 * {lo, hi} two 16-bit values in one word, lower column (or k) in the low half:
 *
 *   mma_16816     A (16,16)  a[0] = A[g  ][2t..2t+1]   a[1] = A[g+8][2t..2t+1]
 *                            a[2] = A[g  ][2t+8..+9]   a[3] = A[g+8][2t+8..+9]
 *                 B (16,8)   b[0] = B[2t..2t+1][g]     b[1] = B[2t+8..2t+9][g]
 *   mma_1688_tf32 A (16,8)   a[0] = A[g][t]  a[1] = A[g+8][t]  a[2] = A[g][t+4]  a[3] = A[g+8][t+4]
 *                 B (8,8)    b[0] = B[t][g]  b[1] = B[t+4][g]
 *   both          D (16,8)   d[0..1] = D[g][2t..2t+1]  d[2..3] = D[g+8][2t..2t+1]
 *
 *   ldmatrix_xN   loads N matrices of 8 rows x 16 bytes.  Lane i gives the address
 *                 (16-byte aligned) of row i%8 of matrix i/8; lanes past 8N are
 *                 ignored but must give some address inside smem.  r[m] of a lane
 *                 = elements (row g, columns 2t..2t+1) of matrix m; _trans: rows
 *                 2t..2t+1 of column g.
 *
 * mma, ldmatrix and the reductions in tgc.cuh need all 32 lanes of the warp. */
#ifndef TGC_PTX_CUH
#define TGC_PTX_CUH
/* clang-format off: a line an instruction */

#include "tgc.cuh"

#ifdef TGC_EMULATE
#include "emulate_ptx.h"
#if defined TGC_SM90A && TGC_SM90A
#include "emulate_sm90.h"
#endif
#else

/* The address of p in the shared window. */
TGC_DEV unsigned smem_addr(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

/* ---- matrices ---------------------------------------------------------- */

TGC_DEV void ldmatrix_x4(unsigned (&r)[4], const void *smem)
{
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(smem_addr(smem))
                     : "memory");
}

TGC_DEV void ldmatrix_x4_trans(unsigned (&r)[4], const void *smem)
{
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(smem_addr(smem))
                     : "memory");
}

TGC_DEV void ldmatrix_x2(unsigned (&r)[2], const void *smem)
{
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1])
                     : "r"(smem_addr(smem))
                     : "memory");
}

TGC_DEV void ldmatrix_x2_trans(unsigned (&r)[2], const void *smem)
{
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1])
                     : "r"(smem_addr(smem))
                     : "memory");
}

/* d += A B, accumulated in float32.  The last argument only selects the type. */
TGC_DEV void mma_16816(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], bf16)
{
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

TGC_DEV void mma_16816(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], f16)
{
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* d = A B. */
TGC_DEV void mma_16816_first(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], bf16)
{
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                     : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.f));
}

TGC_DEV void mma_16816_first(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], f16)
{
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                     : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.f));
}

/* Operands are float bits, rounded by to_tf32 or else truncated (the low 13 bits are ignored). */
TGC_DEV void mma_1688_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Nearest tf32 (10 mantissa bits), ties away from zero, as float bits. */
TGC_DEV unsigned to_tf32(float x)
{
        unsigned r;
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
        return r;
}

/* ---- asynchronous copies, global to shared ----------------------------- */

/* cp.async of 16, 8 or 4 bytes, both sides aligned to the size.  valid = false reads nothing and
 * writes zeros; gmem may then be any address.  This thread may read the data after cp_async_wait,
 * others after a barrier as well. */
TGC_DEV void cp_async16(void *smem, const void *gmem, bool valid = true)
{
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_addr(smem)),
                     "l"(__cvta_generic_to_global(gmem)), "r"(valid ? 16 : 0)
                     : "memory");
}

/* Copies the first n bytes of 16 (0 <= n <= 16) and zero-fills the rest. */
TGC_DEV void cp_async16_part(void *smem, const void *gmem, int n)
{
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_addr(smem)),
                     "l"(__cvta_generic_to_global(gmem)), "r"(n)
                     : "memory");
}

TGC_DEV void cp_async8(void *smem, const void *gmem, bool valid = true)
{
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(smem_addr(smem)),
                     "l"(__cvta_generic_to_global(gmem)), "r"(valid ? 8 : 0)
                     : "memory");
}

TGC_DEV void cp_async4(void *smem, const void *gmem, bool valid = true)
{
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(smem_addr(smem)),
                     "l"(__cvta_generic_to_global(gmem)), "r"(valid ? 4 : 0)
                     : "memory");
}

/* Closes the group of copies issued since the last commit. */
TGC_DEV void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Waits until at most N groups of this thread are in flight (0: none). */
template <int N>
TGC_DEV void cp_async_wait()
{
        asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* ---- packing ----------------------------------------------------------- */

/* Packs two floats as two T in one word, lo in the low half; unpacks them. */
TGC_DEV unsigned pack2_as(float lo, float hi, bf16)
{
        unsigned r;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
        return r;
}

TGC_DEV unsigned pack2_as(float lo, float hi, f16)
{
        unsigned r;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
        return r;
}

TGC_DEV void unpack2_as(unsigned w, float &lo, float &hi, bf16)
{
        lo = __uint_as_float(w << 16);
        hi = __uint_as_float(w & 0xffff0000u);
}

TGC_DEV void unpack2_as(unsigned w, float &lo, float &hi, f16)
{
        asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
            : "=f"(lo), "=f"(hi)
            : "r"(w));
}

/* Bytes j and j + 1 of w (j: 0 or 2), sign-extended to 16 bits each. */
TGC_DEV unsigned extend_bytes(unsigned w, int j)
{
        unsigned r;
        asm("prmt.b32 %0, %1, %1, %2;" : "=r"(r) : "r"(w), "r"(j ? 0xb3a2 : 0x9180));
        return r;
}

/* 0xff for each byte whose sign bit is set, else 0. */
TGC_DEV unsigned sign_bytes(unsigned w)
{
        unsigned r;
        asm("prmt.b32 %0, %1, %1, 0xba98;" : "=r"(r) : "r"(w));
        return r;
}

/* a * b + c for two packed T, rounded once. */
TGC_DEV unsigned fma2_as(unsigned a, unsigned b, unsigned c, bf16)
{
        unsigned r;
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
        return r;
}

TGC_DEV unsigned fma2_as(unsigned a, unsigned b, unsigned c, f16)
{
        unsigned r;
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
        return r;
}

/* Minimum of two packed bf16. */
TGC_DEV unsigned min2_bf16(unsigned a, unsigned b)
{
        unsigned r;
        asm("min.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
        return r;
}

/* ---- arithmetic -------------------------------------------------------- */

/* 2^x, 1/x, x^-1/2, log2 x to about 2 ulp; subnormals count as zero. */
TGC_DEV float fast_exp2(float x)
{
        float y;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
        return y;
}
TGC_DEV float fast_rcp(float x)
{
        float y;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
        return y;
}
TGC_DEV float fast_rsqrt(float x)
{
        float y;
        asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
        return y;
}
TGC_DEV float fast_log2(float x)
{
        float y;
        asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
        return y;
}
/* x^1/2 to about 1 ulp, of subnormals too. */
TGC_DEV float fast_sqrt(float x)
{
        float y;
        asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
        return y;
}
/* tanh to about 2^-11 relative: fit for 16-bit outputs only. */
TGC_DEV float fast_tanh(float x)
{
        float y;
        asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
        return y;
}

/* c + the dot product of the four bytes of a and those of b. */
template <bool A_SIGNED, bool B_SIGNED>
TGC_DEV int dot4(unsigned a, unsigned b, int c)
{
        if constexpr (A_SIGNED && B_SIGNED)
                asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
        else if constexpr (A_SIGNED)
                asm("dp4a.s32.u32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
        else if constexpr (B_SIGNED)
                asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
        else
                asm("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
        return c;
}

/* d += A (16,32) B (32,8), bytes, four per word; B is signed.  Lane 4g + t holds of A: row g, k =
 * 4t..4t+3 in a[0] and k + 16 in a[2]; row g + 8 in a[1] and a[3].  Of B: column g, k in b[0], k +
 * 16 in b[1].  d as in mma_16816. */
template <bool A_SIGNED>
TGC_DEV void mma_16832(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
        if constexpr (A_SIGNED)
                asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                             "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                             : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
        else
                asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
                             "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                             : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Minimum; NaN if either is. */
TGC_DEV float min_nan(float x, float y)
{
        float z;
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
        return z;
}

/* Maximum; NaN if either is. */
TGC_DEV float max_nan(float x, float y)
{
        float z;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
        return z;
}

/* ---- global memory ----------------------------------------------------- */

/* load_nc: data that no thread writes during this kernel.  load_streaming: data read once.
 * st_streaming: data not read again soon. */
template <class C>
TGC_DEV C load_nc(const C *p)
{
        return __ldg(p);
}

/* TGC_WEIGHTS_STAY: all weights read per token fit in L2 and should stay there.  The explicit
 * evict_normal policy keeps a line longer than a load without policy does: an H100 kept all of 18
 * MB that were read repeatedly with 12 MB of others between, and next to nothing without. */
TGC_DEV uint4 load_streaming(const uint4 *p)
{
        uint4 v;
#if TGC_WEIGHTS_STAY
        unsigned long long policy;
        asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(__cvta_generic_to_global(p)), "l"(policy));
#else
        asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(__cvta_generic_to_global(p)));
#endif
        return v;
}

/* Load through L2 only; L1 keeps nothing. */
template <class C>
TGC_DEV C load_l2(const C *p)
{
        return __ldcg(p);
}

template <class C>
TGC_DEV void st_streaming(C *p, C v)
{
        __stcs(p, v);
}

/* Prefetches p's cache line into L2. */
TGC_DEV void prefetch_l2(const void *p)
{
        asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(p)));
}

/* A counter shared by blocks: writes before add_release are visible after a load_acquire that
 * reads the sum. */
TGC_DEV int load_acquire(const int *p)
{
        int v;
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                     : "=r"(v)
                     : "l"(__cvta_generic_to_global(p))
                     : "memory");
        return v;
}

TGC_DEV void add_release(int *p, int v)
{
        asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(__cvta_generic_to_global(p)),
                     "r"(v)
                     : "memory");
}

/* ---- barriers and launches --------------------------------------------- */

/* Named barrier id (1..15; 0 is __syncthreads) for n threads, whole warps.  bar_sync waits for all
 * n; bar_arrive only counts. */
TGC_DEV void bar_sync(int id, int n)
{
        asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory");
}
TGC_DEV void bar_arrive(int id, int n)
{
        asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory");
}

/* Programmatic dependent launch.  pdl_wait: until the previous kernel has finished and its writes
 * are visible.  pdl_launch: lets the next kernel start its preamble.  Both do nothing without the
 * launch attribute, and below sm_90.  TGC_PDL_AFTER_WAIT: pdl_wait also launches the next kernel,
 * which then knows that every kernel but this one has finished. */
TGC_DEV void pdl_wait()
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
        asm volatile("griddepcontrol.wait;" ::: "memory");
#ifdef TGC_PDL_AFTER_WAIT
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
#endif
}

TGC_DEV void pdl_launch()
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* TGC_PDL_LATE: kernels that know a better moment than their start launch the next one there. */
TGC_DEV void pdl_launch_late()
{
#ifdef TGC_PDL_LATE
        pdl_launch();
#endif
}

#if defined TGC_SM90A && TGC_SM90A
#include "ptx_sm90.cuh"
#endif

#endif /* !TGC_EMULATE */

/* The same with T as a template argument. */
template <class T>
TGC_DEV void mma_16816(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
        mma_16816(d, a, b, T());
}

template <class T>
TGC_DEV void mma_16816(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
        const unsigned b[2] = { b0, b1 };
        mma_16816(d, a, b, T());
}

template <class T>
TGC_DEV void mma_16816_first(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
        const unsigned b[2] = { b0, b1 };
        mma_16816_first(d, a, b, T());
}

TGC_DEV void mma_1688_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
        const unsigned b[2] = { b0, b1 };
        mma_1688_tf32(d, a, b);
}

template <class T>
TGC_DEV unsigned pack2(float lo, float hi)
{
        return pack2_as(lo, hi, T());
}
template <class T>
TGC_DEV unsigned fma2(unsigned a, unsigned b, unsigned c)
{
        return fma2_as(a, b, c, T());
}
template <class T>
TGC_DEV void unpack2(unsigned w, float &lo, float &hi)
{
        unpack2_as(w, lo, hi, T());
}

#endif
