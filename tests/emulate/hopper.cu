/* hopper.cu: every wrapper of ptx_sm90.cuh once, so that ptxas sees each
 * instruction.  Compiled for sm_90a only, never run. */
#include "ptx.cuh"

template <int R, class T>
TGC_DEV void products(float *y, char *smem, bool first)
{
        float d[R];
        unsigned a[4] = { 1, 2, 3, threadIdx.x };
        wgmma_fence();
        wgmma<0, 0>(d, wgmma_desc_k128(smem), wgmma_desc_k128(smem + 8192), 0, T());
        wgmma<1, 1>(d, wgmma_desc(smem, 8192, 1024, SWIZZLE_128), wgmma_desc_k128(smem + 8192),
                    !first, T());
        wgmma<0>(d, a, wgmma_desc_k128(smem + 8192), 1, T());
        wgmma<1>(d, a, wgmma_desc_k128(smem + 8192), 1, T());
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_hold(d);
#pragma unroll
        for (int i = 0; i < R; i++)
                y[i * 128 + threadIdx.x] = d[i];
}

template <class T>
TGC_DEV void all_sizes(float *y, char *smem)
{
        products<16, T>(y, smem, false);
        products<32, T>(y, smem, true);
        products<48, T>(y, smem, true);
        products<64, T>(y, smem, true);
        products<96, T>(y, smem, true);
        products<128, T>(y, smem, true);
}

template <int R>
TGC_DEV void products_tf32(float *y, char *smem)
{
        float d[R];
        unsigned a[4] = { 1, 2, 3, threadIdx.x };
        wgmma_fence();
        wgmma<0, 0>(d, wgmma_desc_k128(smem), wgmma_desc_k128(smem + 8192), 0, float());
        wgmma<0>(d, a, wgmma_desc_k128(smem + 8192), 1, float());
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_hold(d);
#pragma unroll
        for (int i = 0; i < R; i++)
                y[i * 128 + threadIdx.x] = d[i];
}

extern "C" __global__ void __launch_bounds__(128) k0(const Rt *, float *y)
{
        TGC_SMEM(smem);
        products_tf32<4>(y, smem);
        products_tf32<16>(y, smem);
        products_tf32<32>(y, smem);
        products_tf32<48>(y, smem);
        products_tf32<64>(y, smem);
        products_tf32<96>(y, smem);
        products_tf32<128>(y, smem);
        all_sizes<bf16>(y, smem);
        all_sizes<f16>(y, smem);
}

extern "C" __global__ void __launch_bounds__(256, 1)
        k1(const Rt *, float *y, const float *x, const __grid_constant__ TmaMap of)
{
        TGC_SMEM(smem);
        Mbar *bar = (Mbar *)(smem + 32768);
        const void *map = &of;
        unsigned a[4] = { 1, 2, 3, 4 };
        if (threadIdx.x == 0) {
                tma_prefetch_map(map);
                mbarrier_init(bar, 1);
                fence_barrier_init();
        }
        cluster_sync();
        st_cluster((float *)smem + 64, cluster_rank() ^ 1, 1.f);
        if (threadIdx.x < 128)
                setmaxnreg_dec<40>();
        else
                setmaxnreg_inc<232>();
        if (threadIdx.x < 32 && elect_one()) {
                mbarrier_expect_tx(bar, 4096);
                tma_load_2d(smem, map, bar, 0, 1);
                tma_load_2d_hint(smem, map, bar, 0, 1, l2_evict_last());
                tma_load_2d_hint(smem, map, bar, 0, 1, l2_evict_first());
                tma_load_2d_multicast(smem, map, bar, 0, 1, 3);
                tma_load_3d(smem, map, bar, 0, 1, 2);
                tma_load_4d(smem, map, bar, 0, 1, 2, 3);
                bulk_load(smem, x, 4096, bar);
                mbarrier_arrive(bar);
                mbarrier_arrive_cluster(bar, cluster_rank() ^ 1);
        }
        mbarrier_wait(bar, 0);
        stmatrix_x4(smem, a);
        stmatrix_x4_trans(smem, a);
        fence_proxy_async();
        bar_sync(1, 256);
        if (threadIdx.x == 0) {
                tma_store_2d(map, smem, 0, 1);
                tma_store_3d(map, smem, 0, 1, 2);
                bulk_store(y, smem, 4096);
                bulk_commit();
                bulk_wait_read<1>();
                bulk_wait<0>();
                mbarrier_inval(bar);
        }
}
