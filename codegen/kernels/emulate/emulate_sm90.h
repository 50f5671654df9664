/* emulate_sm90.h: the functions of ptx_sm90.cuh that kernels use, for the emulator.  What arrives
 * late on a GPU arrives late here, so a missing wait, or a stage released too early, shows. */
#ifndef TGC_PTX_SM90_CUH
#define TGC_PTX_SM90_CUH
/* clang-format off: a line an instruction */

typedef emu::Mbar Mbar;

/* Tag type for 8-bit wgmma. */
struct e4m3 {
        unsigned char code;
};

/* ---- mbarrier ------------------------------------------------------------------------ */

TGC_DEV void mbarrier_init(Mbar *bar, unsigned count) { emu::mbar_init(bar, count); }
TGC_DEV void fence_barrier_init() {}
TGC_DEV void mbarrier_inval(Mbar *bar) { emu::mbar_inval(bar); }
TGC_DEV void mbarrier_arrive(Mbar *bar) { emu::mbar_arrive(bar, 0); }
TGC_DEV void mbarrier_expect_tx(Mbar *bar, unsigned bytes) { emu::mbar_arrive(bar, (int)bytes); }
TGC_DEV void mbarrier_arrive_cluster(Mbar *bar, unsigned rank)
{
        emu::mbar_arrive((Mbar *)emu::in_cluster(bar, rank), 0);
}
TGC_DEV void cp_async_arrive(Mbar *bar)
{
        emu::copies_deliver(-1);
        emu::mbar_arrive(bar, 0);
}

TGC_DEV bool mbarrier_try_wait(Mbar *bar, unsigned parity)
{
        return emu::mbar_try_wait(bar, parity);
}

TGC_DEV void mbarrier_wait(Mbar *bar, unsigned parity, EMU_SITE)
{
        emu::mbar_wait(bar, parity, file, line);
}

/* ---- tiles --------------------------------------------------------------------------- */

TGC_DEV void tma_prefetch_map(const void *) {}
TGC_DEV void tma_load_2d(void *smem, const void *map, Mbar *bar, int x, int y)
{
        emu::fetch(smem, map, bar, x, y);
}
TGC_DEV void tma_load_2d_multicast(void *smem, const void *map, Mbar *bar, int x, int y,
                                   unsigned short mask)
{
        emu::fetch_multicast(smem, map, bar, x, y, mask);
}
TGC_DEV void tma_store_2d(const void *map, const void *smem, int x, int y)
{
        emu::send(smem, map, x, y);
}
TGC_DEV void bulk_load(void *smem, const void *gmem, unsigned bytes, Mbar *bar)
{
        emu::fetch_flat(smem, gmem, bytes, bar);
}
TGC_DEV void bulk_commit() { emu::me()->sent++; }
template <int N>
TGC_DEV void bulk_wait()
{
        emu::sends_deliver(N);
}
template <int N>
TGC_DEV void bulk_wait_read()
{
        emu::sends_deliver(N);
}
TGC_DEV void fence_proxy_async() {}

/* ---- global memory --------------------------------------------------------------------- */

TGC_DEV unsigned load_acquire(const unsigned *p) { return (unsigned)load_acquire((const int *)p); }

/* ---- clusters, warps, registers ---------------------------------------------------------- */

TGC_DEV unsigned cluster_rank() { return (unsigned)(emu::me()->in->rank % emu::me()->in->cluster); }
TGC_DEV void cluster_arrive() { emu::cluster_come(); }
TGC_DEV void cluster_arrive_relaxed() { emu::cluster_come(); }
TGC_DEV void cluster_wait(EMU_SITE) { emu::cluster_wait(file, line); }
TGC_DEV void cluster_sync()
{
        cluster_arrive();
        cluster_wait();
}
TGC_DEV void cluster_arrive_block()
{
        __syncthreads();
        cluster_arrive();
}

TGC_DEV void send_cluster(void *p, Mbar *bar, unsigned rank, unsigned x)
{
        emu::send_cluster(p, bar, rank, x);
}
TGC_DEV void st_cluster(float *p, unsigned rank, float x)
{
        *(float *)emu::in_cluster(p, rank) = x;
}
TGC_DEV int ld_cluster(const int *p, unsigned rank)
{
        return *(const int *)emu::in_cluster(p, rank);
}
template <int V>
TGC_DEV void load_cluster(float (&v)[V], const float *p, unsigned rank)
{
        memcpy(v, emu::in_cluster(p, rank), sizeof v);
}

TGC_DEV bool elect_one() { return emu::me()->lane == 0; }
TGC_DEV bool bar_any(int id, int n, bool x, EMU_SITE)
{
        return emu::barrier("bar_any", id, n, true, x, file, line) != 0;
}
template <int N>
TGC_DEV void setmaxnreg_inc()
{
}
template <int N>
TGC_DEV void setmaxnreg_dec()
{
}

TGC_DEV void stmatrix_x4(void *smem, const unsigned (&r)[4], EMU_SITE)
{
        emu::stmatrix(smem, r, 4, false, file, line);
}
TGC_DEV void stmatrix_x2(void *smem, const unsigned (&r)[2], EMU_SITE)
{
        emu::stmatrix(smem, r, 2, false, file, line);
}
TGC_DEV void stmatrix_x4_trans(void *smem, const unsigned (&r)[4], EMU_SITE)
{
        emu::stmatrix(smem, r, 4, true, file, line);
}

/* ---- wgmma ------------------------------------------------------------------------------- */

enum WgmmaSwizzle { SWIZZLE_NONE = 0, SWIZZLE_128 = 1, SWIZZLE_64 = 2, SWIZZLE_32 = 3 };

TGC_DEV size_t __cvta_generic_to_shared(const void *p)
{
        return (size_t)((const char *)p - emu::me()->in->smem);
}
TGC_DEV void *__cvta_shared_to_generic(size_t at) { return emu::me()->in->smem + at; }
TGC_DEV unsigned smem_addr(const void *p)
{
        return (unsigned)((const char *)p - emu::me()->in->smem);
}
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

TGC_DEV void wgmma_fence() {}
TGC_DEV void wgmma_commit() { emu::me()->wgroup++; }
template <int N>
TGC_DEV void wgmma_wait()
{
        emu::wgmma_settle(N);
}
template <int N>
TGC_DEV void wgmma_hold(float (&)[N])
{
}
template <int N>
TGC_DEV void wgmma_move(float (&x)[N], const float (&from)[N])
{
        memcpy(x, from, sizeof x);
        emu::wgmma_move(x, from);
}

inline emu::Element element_of(bf16) { return emu::BF16; }
inline emu::Element element_of(f16) { return emu::F16; }
inline emu::Element element_of(float) { return emu::TF32; }
inline emu::Element element_of(e4m3) { return emu::CODES; }

template <int TA, int TB, int R, class T>
TGC_DEV void wgmma(float (&d)[R], unsigned long long a, unsigned long long b, int accumulate, T tag)
{
        emu::wgmma_issue({ R, false, TA != 0, TB != 0, element_of(tag) }, d, 0, a, b, accumulate);
}
template <int TB, int R, class T>
TGC_DEV void wgmma(float (&d)[R], const unsigned (&a)[4], unsigned long long b, int accumulate,
                   T tag)
{
        emu::wgmma_issue({ R, true, false, TB != 0, element_of(tag) }, d, a, 0, b, accumulate);
}

TGC_DEV unsigned pick_below_8(unsigned a, unsigned b, unsigned at)
{
        const unsigned long long all = a | (unsigned long long)b << 32;
        unsigned d = 0;
        if (all & 0x8080808080808080ull)
                emu::fail("thread %d: pick_below_8 of a byte above 127", emu::me()->number);
        for (int i = 0; i < 4; i++) {
                const unsigned n = at >> 4 * i & 15;
                d |= n < 8 ? (unsigned)(all >> 8 * n & 255) << 8 * i : 0;
        }
        return d;
}

TGC_DEV void e4m3_halves(unsigned w, unsigned &low, unsigned &high)
{
        unsigned half[4];
        for (int i = 0; i < 4; i++)
                half[i] = emu_to_f16(emu::code_value(w >> 8 * i & 255));
        low = half[0] | half[1] << 16;
        high = half[2] | half[3] << 16;
}

#endif
