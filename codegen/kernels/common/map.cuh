/* map.cuh: elementwise kernels over rows x N elements.
 *
 *      map_task<THREADS, N>(rows, tile, body)
 *
 * calls body(row, col, v) once per vector of V neighbours.  v is scratch: body loads, computes and
 * stores by itself.  V is the largest power of two up to Body::MAXV that divides N.
 *
 * tiles: ceil(rows * N / (THREADS * MAP_PER_THREAD)).  shared memory: none. */
#ifndef TGC_MAP_CUH
#define TGC_MAP_CUH

#include "tgc.cuh"

#define MAP_PER_THREAD 16

/* The widest vector for rows of n elements (n = 0: unknown, so 1). */
__host__ __device__ constexpr int vec_of(int n, int maxv)
{
        return n % 8 == 0 && n && maxv >= 8   ? 8
               : n % 4 == 0 && n && maxv >= 4 ? 4
               : n % 2 == 0 && n && maxv >= 2 ? 2
                                              : 1;
}

__host__ __device__ constexpr int vec_min(int a, int b) { return a < b ? a : b; }
__host__ __device__ constexpr int vec_max(int a, int b) { return a > b ? a : b; }

__host__ __device__ constexpr int pow2_ceil(int n)
{
        int p = 1;
        while (p < n)
                p *= 2;
        return p;
}

template <int THREADS, int N, class Body>
TGC_DEV void map_task(int rows, int tile, const Body &body)
{
        constexpr int V = vec_of(N, vec_min(Body::MAXV, MAP_PER_THREAD));
        constexpr int STEP = THREADS * V;
        static_assert(V >= Body::MINV, "map: this body needs wider vectors than the rows have");
        long long base = (long long)tile * (THREADS * MAP_PER_THREAD);
        long long total = (long long)rows * N;
        int row0 = (int)(base / N), col0 = (int)(base % N); /* divide once in 64 bits; 32 suffice
                                                             * below */
#pragma unroll
        for (int i = 0; i < MAP_PER_THREAD / V; i++) {
                int at = i * STEP + (int)threadIdx.x * V;
                unsigned off = (unsigned)(col0 + at);
                float v[V];
                if (base + at < total)
                        body(row0 + (int)(off / N), (int)(off % N), v);
        }
}

#endif
