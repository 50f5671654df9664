/* ptx_sm90.cuh: Hopper's instructions; ptx.cuh includes it for sm_90a (TGC_SM90A).  emulate_sm90.h
 * has the same functions for the emulator.
 *
 * Who calls: one thread issues an asynchronous copy (tma_*, bulk_*); the four warps of an aligned
 * warpgroup call wgmma_* together; all threads of the block or warpgroup call cluster_* and
 * setmaxnreg_*. */
#ifndef TGC_PTX_SM90_CUH
#define TGC_PTX_SM90_CUH
/* clang-format off: a line an instruction */

/* ---- mbarrier: counts arrivals and bytes, in shared memory ------------- */

typedef unsigned long long Mbar; /* 8-byte aligned */

/* A phase completes after `count` arrivals and all expected bytes. */
TGC_DEV void mbarrier_init(Mbar *bar, unsigned count)
{
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_addr(bar)), "r"(count)
                     : "memory");
}

/* Called once after the inits, by the thread that did them, before others use the barriers. */
TGC_DEV void fence_barrier_init()
{
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Turns a barrier's memory back into plain memory, for the next task. */
TGC_DEV void mbarrier_inval(Mbar *bar)
{
        asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(smem_addr(bar)) : "memory");
}

TGC_DEV void mbarrier_arrive(Mbar *bar)
{
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_addr(bar)) : "memory");
}

/* Arrives, and adds `bytes` of asynchronous copies to what this phase waits for. */
TGC_DEV void mbarrier_expect_tx(Mbar *bar, unsigned bytes)
{
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_addr(bar)),
                     "r"(bytes)
                     : "memory");
}

/* Arrives at the same barrier of block `rank` of the cluster, after completed reads of shared
 * memory (wgmma's, for example).  Earlier writes are not ordered for the other block: that takes
 * .release.cluster, a fence that waits for all of them. */
TGC_DEV void mbarrier_arrive_cluster(Mbar *bar, unsigned rank)
{
        asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; "
                     "mbarrier.arrive.shared::cluster.b64 _, [r]; }" ::"r"(smem_addr(bar)),
                     "r"(rank)
                     : "memory");
}

/* Arrives once all cp.async begun by this thread are done; counts as one of the barrier's
 * arrivals. */
TGC_DEV void cp_async_arrive(Mbar *bar)
{
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(smem_addr(bar))
                     : "memory");
}

/* Has the phase of this parity (0 for the first, then 1, 0, ...) completed?  The hardware waits a
 * while before it says no. */
TGC_DEV bool mbarrier_try_wait(Mbar *bar, unsigned parity)
{
        unsigned ok;
        asm volatile(
                "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 "
                "%0, 1, 0, p; }"
                : "=r"(ok)
                : "r"(smem_addr(bar)), "r"(parity)
                : "memory");
        return ok != 0;
}

TGC_DEV void mbarrier_wait(Mbar *bar, unsigned parity)
{
        while (!mbarrier_try_wait(bar, parity)) {}
}

/* ---- TMA: tiles and flat runs of bytes --------------------------------- */

/* `map` is the address of a kernel parameter (TmaMap in tgc.cuh), constant during the launch, so
 * no fence is needed.  x is the innermost coordinate.  smem is 128-byte aligned, 1024-byte with
 * 128-byte swizzle.  Elements out of bounds arrive as zeros and count as bytes. */
TGC_DEV void tma_prefetch_map(const void *map)
{
        asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

TGC_DEV void tma_load_2d(void *smem, const void *map, Mbar *bar, int x, int y)
{
        asm volatile(
                "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                "[%0], [%1, {%3, %4}], [%2];" ::"r"(smem_addr(smem)),
                "l"(map), "r"(smem_addr(bar)), "r"(x), "r"(y)
                : "memory");
}

TGC_DEV void tma_load_3d(void *smem, const void *map, Mbar *bar, int x, int y, int z)
{
        asm volatile(
                "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(smem_addr(smem)),
                "l"(map), "r"(smem_addr(bar)), "r"(x), "r"(y), "r"(z)
                : "memory");
}

TGC_DEV void tma_load_4d(void *smem, const void *map, Mbar *bar, int x, int y, int z, int w)
{
        asm volatile(
                "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(smem_addr(smem)),
                "l"(map), "r"(smem_addr(bar)), "r"(x), "r"(y), "r"(z), "r"(w)
                : "memory");
}

/* Copies to the same smem offset, and signals the same barrier, in every block of the cluster
 * whose rank's bit is set in `mask`. */
TGC_DEV void tma_load_2d_multicast(void *smem, const void *map, Mbar *bar, int x, int y,
                                   unsigned short mask)
{
        asm volatile(
                "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(smem_addr(smem)),
                "l"(map), "r"(smem_addr(bar)), "r"(x), "r"(y), "h"(mask)
                : "memory");
}

/* The same two with an L2 policy: l2_evict_first (data read once) or l2_evict_last (data that
 * other blocks will read). */
TGC_DEV unsigned long long l2_evict_first()
{
        unsigned long long p;
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
        return p;
}

TGC_DEV unsigned long long l2_evict_last()
{
        unsigned long long p;
        asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(p));
        return p;
}

TGC_DEV void tma_load_2d_hint(void *smem, const void *map, Mbar *bar, int x, int y,
                              unsigned long long policy)
{
        asm volatile(
                "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(smem_addr(smem)),
                "l"(map), "r"(smem_addr(bar)), "r"(x), "r"(y), "l"(policy)
                : "memory");
}

/* Shared to global.  Before: writers of smem call fence_proxy_async, then a barrier.  After:
 * bulk_commit; bulk_wait_read before smem is written again; bulk_wait before the result is relied
 * on. */
TGC_DEV void tma_store_2d(const void *map, const void *smem, int x, int y)
{
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], "
                     "[%1];" ::"l"(map),
                     "r"(smem_addr(smem)), "r"(x), "r"(y)
                     : "memory");
}

TGC_DEV void tma_store_3d(const void *map, const void *smem, int x, int y, int z)
{
        asm volatile(
                "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], "
                "[%1];" ::"l"(map),
                "r"(smem_addr(smem)), "r"(x), "r"(y), "r"(z)
                : "memory");
}

/* bytes is a multiple of 16; both sides are 16-byte aligned. */
TGC_DEV void bulk_load(void *smem, const void *gmem, unsigned bytes, Mbar *bar)
{
        asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                "%2, [%3];" ::"r"(smem_addr(smem)),
                "l"(__cvta_generic_to_global(gmem)), "r"(bytes), "r"(smem_addr(bar))
                : "memory");
}

TGC_DEV void bulk_store(void *gmem, const void *smem, unsigned bytes)
{
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                             __cvta_generic_to_global(gmem)),
                     "r"(smem_addr(smem)), "r"(bytes)
                     : "memory");
}

TGC_DEV void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N>
TGC_DEV void bulk_wait()
{
        asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}
template <int N>
TGC_DEV void bulk_wait_read()
{
        asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/* Orders this thread's ordinary writes to shared memory before asynchronous reads of it (wgmma,
 * TMA stores). */
TGC_DEV void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* Byte i of the result is the byte of {a, b} (eight bytes, each below 128) that nibble i of `at`
 * selects, or 0 if that nibble is 8 or more. */
TGC_DEV unsigned pick_below_8(unsigned a, unsigned b, unsigned at)
{
        unsigned d;
        asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(at));
        return d;
}

/* Converts four E4M3 to two pairs of f16, exactly; NaN stays NaN. */
TGC_DEV void e4m3_halves(unsigned w, unsigned &low, unsigned &high)
{
        asm("{ .reg .b16 a, b; mov.b32 {a, b}, %2; cvt.rn.f16x2.e4m3x2 %0, a; "
            "cvt.rn.f16x2.e4m3x2 %1, b; }"
            : "=r"(low), "=r"(high)
            : "r"(w));
}

/* ---- global memory ------------------------------------------------------ */

TGC_DEV unsigned load_acquire(const unsigned *p)
{
        unsigned v;
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(v)
                     : "l"(__cvta_generic_to_global(p))
                     : "memory");
        return v;
}

/* ---- clusters, warps, registers ---------------------------------------- */

TGC_DEV unsigned cluster_rank()
{
        unsigned r;
        asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
        return r;
}
TGC_DEV void cluster_arrive()
{
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
TGC_DEV void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
TGC_DEV void cluster_sync()
{
        cluster_arrive();
        cluster_wait();
}
/* Orders only the initialisation of barriers. */
TGC_DEV void cluster_arrive_relaxed()
{
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
/* cluster_arrive for a whole block; only its first warp fences, for the writes of all.  (A fence
 * takes eight times as long as the barrier, twice that if more than six warps fence.) */
TGC_DEV void cluster_arrive_block()
{
        __syncthreads();
        if (threadIdx.x < 32)
                cluster_arrive();
        else
                cluster_arrive_relaxed();
}

/* Writes 4 bytes at p's address in shared memory of block `rank` of the cluster, and completes
 * them on the barrier at bar's address there.  No fence needed. */
TGC_DEV void send_cluster(void *p, Mbar *bar, unsigned rank, unsigned x)
{
        asm volatile(
                "{ .reg .b32 r, b; mapa.shared::cluster.u32 r, %0, %2; mapa.shared::cluster.u32 "
                "b, %1, %2; st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [r], %3, "
                "[b]; }" ::"r"(smem_addr(p)),
                "r"(smem_addr(bar)), "r"(rank), "r"(x)
                : "memory");
}

/* Writes x at p's address in shared memory of block `rank` of the cluster. */
TGC_DEV void st_cluster(float *p, unsigned rank, float x)
{
        asm volatile(
                "{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; st.shared::cluster.f32 [r], "
                "%2; }" ::"r"(smem_addr(p)),
                "r"(rank), "f"(x)
                : "memory");
}

/* Reads at p's address in shared memory of block `rank` of the cluster. */
TGC_DEV int ld_cluster(const int *p, unsigned rank)
{
        int x;
        asm volatile(
                "{ .reg .b32 r; mapa.shared::cluster.u32 r, %1, %2; ld.shared::cluster.s32 %0, "
                "[r]; }"
                : "=r"(x)
                : "r"(smem_addr(p)), "r"(rank)
                : "memory");
        return x;
}

/* Reads V floats at p's address in block `rank` of the cluster; aligned as one access. */
template <int V>
TGC_DEV void load_cluster(float (&v)[V], const float *p, unsigned rank)
{
        unsigned at;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                     : "=r"(at)
                     : "r"(smem_addr(p)), "r"(rank));
        if constexpr (V % 4 == 0) {
#pragma unroll
                for (int i = 0; i < V; i += 4)
                        asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                                     : "=f"(v[i]), "=f"(v[i + 1]), "=f"(v[i + 2]), "=f"(v[i + 3])
                                     : "r"(at + i * 4)
                                     : "memory");
        } else {
#pragma unroll
                for (int i = 0; i < V; i++)
                        asm volatile("ld.shared::cluster.f32 %0, [%1];"
                                     : "=f"(v[i])
                                     : "r"(at + i * 4)
                                     : "memory");
        }
}

/* True in exactly one lane of the warp. */
TGC_DEV bool elect_one()
{
        unsigned r;
        asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 %0, 1, 0, p; }"
                     : "=r"(r));
        return r != 0;
}

/* bar_sync that returns whether x was true in any of the threads. */
TGC_DEV bool bar_any(int id, int n, bool x)
{
        unsigned r;
        asm volatile(
                "{ .reg .pred p, q; setp.ne.b32 p, %3, 0; bar.red.or.pred q, %1, %2, p; selp.b32 "
                "%0, 1, 0, q; }"
                : "=r"(r)
                : "r"(id), "r"(n), "r"((unsigned)x)
                : "memory");
        return r != 0;
}

/* Sets the registers per thread of this warpgroup: a multiple of 8, 24 to 256.  ptxas ignores it
 * unless the kernel states __launch_bounds__(THREADS, 1). */
template <int N>
TGC_DEV void setmaxnreg_inc()
{
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
TGC_DEV void setmaxnreg_dec()
{
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* Stores four 8x8 matrices of 16-bit values: the inverse of ldmatrix_x4. */
TGC_DEV void stmatrix_x4(void *smem, const unsigned (&r)[4])
{
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                             smem_addr(smem)),
                     "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                     : "memory");
}

TGC_DEV void stmatrix_x2(void *smem, const unsigned (&r)[2])
{
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(
                             smem_addr(smem)),
                     "r"(r[0]), "r"(r[1])
                     : "memory");
}

TGC_DEV void stmatrix_x4_trans(void *smem, const unsigned (&r)[4])
{
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                             smem_addr(smem)),
                     "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                     : "memory");
}

/* ---- wgmma ------------------------------------------------------------- */

/* Shared memory descriptor: address, two strides in bytes, and the swizzle, the same as in the
 * tensor map that filled the tile.  With 128-byte swizzle and k contiguous (rows of 64 16-bit
 * values, 128 bytes apart; tile 1024-byte aligned): lbo is ignored, sbo = 1024 (8 rows), and the
 * next 16 values of k are 32 bytes further. */
enum WgmmaSwizzle { SWIZZLE_NONE = 0, SWIZZLE_128 = 1, SWIZZLE_64 = 2, SWIZZLE_32 = 3 };

TGC_DEV unsigned long long wgmma_desc(const void *smem, unsigned lbo, unsigned sbo,
                                      WgmmaSwizzle swizzle)
{
        return (unsigned long long)((smem_addr(smem) & 0x3ffff) >> 4) |
               (unsigned long long)(lbo >> 4) << 16 | (unsigned long long)(sbo >> 4) << 32 |
               (unsigned long long)swizzle << 62;
}

TGC_DEV unsigned long long wgmma_desc_k128(const void *smem)
{
        return wgmma_desc(smem, 16, 1024, SWIZZLE_128);
}

/* Before the first wgmma, and after accumulators or A fragments were touched. */
TGC_DEV void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TGC_DEV void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Waits until at most N groups are in flight. */
template <int N>
TGC_DEV void wgmma_wait()
{
        asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Keeps the compiler from moving uses of accumulators across a wait or a fence. */
template <int N>
TGC_DEV void wgmma_hold(float (&d)[N])
{
#pragma unroll
        for (int i = 0; i < N; i++)
                asm volatile("" : "+f"(d[i])::"memory");
}

/* Renames registers: x takes over the accumulator `from` of a wgmma in flight, so that the next
 * wgmma can start in other registers while x is still read. */
template <int N>
TGC_DEV void wgmma_move(float (&x)[N], const float (&from)[N])
{
#pragma unroll
        for (int i = 0; i < N; i++)
                x[i] = from[i];
}

/* Tag type for 8-bit wgmma. */
struct e4m3 {
        unsigned char code;
};

/* wgmma<TA, TB>(d, a, b, accumulate, tag): D (64,N) = A (64,16) B (16,N), plus D if accumulate !=
 * 0; d has N / 2 registers.  a, b: descriptors.  TA (TB) is 1 if A's m (B's n) axis is contiguous
 * instead of k.  The second overload takes A from registers, as four warps' mma_16816 fragments.
 * float is tf32 (the low 13 bits are ignored): K is 8, k is contiguous in both operands, fragments
 * are those of mma_1688_tf32.
 *
 * d[4j..4j+3] in warp w of the warpgroup: rows 16w + g and 16w + g + 8, columns 8j + 2t and + 1,
 * the fragment of mma_16816 repeated along N. */
#define TGC_R10(t)                                           \
        "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, " \
        "%" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define TGC_R20 TGC_R10() TGC_R10(1)
#define TGC_R40 TGC_R20 TGC_R10(2) TGC_R10(3)
#define TGC_R60 TGC_R40 TGC_R10(4) TGC_R10(5)
#define TGC_R_sm90 TGC_R60 TGC_R10(6) TGC_R10(7) TGC_R10(8)
#define TGC_R4 "%0, %1, %2, %3"
#define TGC_R16 TGC_R10() "%10, %11, %12, %13, %14, %15"
#define TGC_R32 TGC_R20 TGC_R10(2) "%30, %31"
#define TGC_R48 TGC_R40 "%40, %41, %42, %43, %44, %45, %46, %47"
#define TGC_R64 TGC_R60 "%60, %61, %62, %63"
#define TGC_R96 TGC_R_sm90 "%90, %91, %92, %93, %94, %95"
#define TGC_R128                          \
        TGC_R_sm90 TGC_R10(9) TGC_R10(10) \
                TGC_R10(11) "%120, %121, %122, %123, %124, %125, %126, %127"
#define TGC_D8(i)                                                                   \
        "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), \
                "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define TGC_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TGC_D16(i) TGC_D8(i), TGC_D8(i + 8)
#define TGC_D32(i) TGC_D16(i), TGC_D16(i + 16)
#define TGC_D48(i) TGC_D32(i), TGC_D16(i + 32)
#define TGC_D64(i) TGC_D32(i), TGC_D32(i + 32)
#define TGC_D96(i) TGC_D64(i), TGC_D32(i + 64)
#define TGC_D128(i) TGC_D64(i), TGC_D64(i + 64)

/* R: registers of d.  N.  T, NAME: the type.  Then the asm operand numbers that follow d. */
#define TGC_WGMMA(R, N, T, NAME, r0, r1, r2, r3, r4, r5, r6)                                       \
        template <int TA, int TB>                                                                  \
        TGC_DEV void wgmma(float(&d)[R], unsigned long long a, unsigned long long b,               \
                           int accumulate, T)                                                      \
        {                                                                                          \
                asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #r2                                \
                             ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME  \
                             " {" TGC_R##R "}, %" #r0 ", %" #r1 ", p, 1, 1, %" #r3 ", %" #r4 "; }" \
                             : TGC_D##R(0)                                                         \
                             : "l"(a), "l"(b), "r"(accumulate), "n"(TA), "n"(TB));                 \
        }                                                                                          \
        template <int TB>                                                                          \
        TGC_DEV void wgmma(float(&d)[R], const unsigned(&a)[4], unsigned long long b,              \
                           int accumulate, T)                                                      \
        {                                                                                          \
                asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #r5                                \
                             ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME  \
                             " {" TGC_R##R "}, {%" #r0 ", %" #r1 ", %" #r2 ", %" #r3 "}, %" #r4    \
                                           ", p, 1, 1, %" #r6 "; }"                                \
                             : TGC_D##R(0)                                                         \
                             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                 \
                               "r"(accumulate), "n"(TB));                                          \
        }

/* The same for float (tf32). */
#define TGC_WGMMA_TF32(R, N, r0, r1, r2, r3, r4, r5)                                           \
        template <int TA, int TB>                                                              \
        TGC_DEV void wgmma(float(&d)[R], unsigned long long a, unsigned long long b,           \
                           int accumulate, float)                                              \
        {                                                                                      \
                static_assert(!TA && !TB, "words cannot be transposed on their way");          \
                asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #r2                            \
                             ", 0; wgmma.mma_async.sync.aligned.m64n" #N                       \
                             "k8.f32.tf32.tf32 {" TGC_R##R "}, %" #r0 ", %" #r1 ", p, 1, 1; }" \
                             : TGC_D##R(0)                                                     \
                             : "l"(a), "l"(b), "r"(accumulate));                               \
        }                                                                                      \
        template <int TB>                                                                      \
        TGC_DEV void wgmma(float(&d)[R], const unsigned(&a)[4], unsigned long long b,          \
                           int accumulate, float)                                              \
        {                                                                                      \
                static_assert(!TB, "words cannot be transposed on their way");                 \
                asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #r5                            \
                             ", 0; wgmma.mma_async.sync.aligned.m64n" #N                       \
                             "k8.f32.tf32.tf32 {" TGC_R##R "}, {%" #r0 ", %" #r1 ", %" #r2     \
                                                           ", %" #r3 "}, %" #r4 ", p, 1, 1; }" \
                             : TGC_D##R(0)                                                     \
                             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),             \
                               "r"(accumulate));                                               \
        }

/* The same for e4m3 with A in registers: K is 32; a fragment's word has four codes. */
#define TGC_WGMMA_E4M3(R, N, r0, r1, r2, r3, r4, r5)                                            \
        template <int TB>                                                                       \
        TGC_DEV void wgmma(float(&d)[R], const unsigned(&a)[4], unsigned long long b,           \
                           int accumulate, e4m3)                                                \
        {                                                                                       \
                static_assert(!TB, "bytes cannot be transposed on their way");                  \
                asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #r5                             \
                             ", 0; wgmma.mma_async.sync.aligned.m64n" #N                        \
                             "k32.f32.e4m3.e4m3 {" TGC_R##R "}, {%" #r0 ", %" #r1 ", %" #r2     \
                                                            ", %" #r3 "}, %" #r4 ", p, 1, 1; }" \
                             : TGC_D##R(0)                                                      \
                             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),              \
                               "r"(accumulate));                                                \
        }

TGC_WGMMA(4, 8, bf16, "bf16", 4, 5, 6, 7, 8, 9, 10)
TGC_WGMMA(16, 32, bf16, "bf16", 16, 17, 18, 19, 20, 21, 22)
TGC_WGMMA(32, 64, bf16, "bf16", 32, 33, 34, 35, 36, 37, 38)
TGC_WGMMA(48, 96, bf16, "bf16", 48, 49, 50, 51, 52, 53, 54)
TGC_WGMMA(64, 128, bf16, "bf16", 64, 65, 66, 67, 68, 69, 70)
TGC_WGMMA(96, 192, bf16, "bf16", 96, 97, 98, 99, 100, 101, 102)
TGC_WGMMA(128, 256, bf16, "bf16", 128, 129, 130, 131, 132, 133, 134)
TGC_WGMMA(4, 8, f16, "f16", 4, 5, 6, 7, 8, 9, 10)
TGC_WGMMA(16, 32, f16, "f16", 16, 17, 18, 19, 20, 21, 22)
TGC_WGMMA(32, 64, f16, "f16", 32, 33, 34, 35, 36, 37, 38)
TGC_WGMMA(48, 96, f16, "f16", 48, 49, 50, 51, 52, 53, 54)
TGC_WGMMA(64, 128, f16, "f16", 64, 65, 66, 67, 68, 69, 70)
TGC_WGMMA(96, 192, f16, "f16", 96, 97, 98, 99, 100, 101, 102)
TGC_WGMMA(128, 256, f16, "f16", 128, 129, 130, 131, 132, 133, 134)
TGC_WGMMA_TF32(4, 8, 4, 5, 6, 7, 8, 9)
TGC_WGMMA_TF32(16, 32, 16, 17, 18, 19, 20, 21)
TGC_WGMMA_TF32(32, 64, 32, 33, 34, 35, 36, 37)
TGC_WGMMA_TF32(48, 96, 48, 49, 50, 51, 52, 53)
TGC_WGMMA_TF32(64, 128, 64, 65, 66, 67, 68, 69)
TGC_WGMMA_TF32(96, 192, 96, 97, 98, 99, 100, 101)
TGC_WGMMA_TF32(128, 256, 128, 129, 130, 131, 132, 133)
TGC_WGMMA_E4M3(16, 32, 16, 17, 18, 19, 20, 21)
TGC_WGMMA_E4M3(32, 64, 32, 33, 34, 35, 36, 37)

#endif
