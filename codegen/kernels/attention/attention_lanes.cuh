/* attention_lanes.cuh: AttLanes, how lanes share a row of D elements: in decoding, and in
 * delta = sum(o g). */
#ifndef TGC_ATTENTION_LANES_CUH
#define TGC_ATTENTION_LANES_CUH

#include "attention_problem.cuh"
#include "ptx.cuh"

/* How lanes share a row of D elements: LANES lanes (a power of two), V neighbours of up to 16
 * bytes each, C times. */
template <class E, class Att>
struct AttLanes {
        static constexpr int MOST = 16 / (int)sizeof(E) < Att::VEC ? 16 / (int)sizeof(E) : Att::VEC;
        static constexpr int V = Att::D % 8 == 0 || MOST == 1   ? MOST
                                 : Att::D % 4 == 0 && MOST >= 4 ? 4
                                 : Att::D % 2 == 0              ? 2
                                                                : 1;
        static constexpr int N = Att::D / V;
        static constexpr int LANES = N > 16  ? 32
                                     : N > 8 ? 16
                                     : N > 4 ? 8
                                     : N > 2 ? 4
                                     : N > 1 ? 2
                                             : 1;
        static constexpr int C = (N + LANES - 1) / LANES;

        static __device__ __forceinline__ int column(int lane, int i)
        {
                return (i / V * LANES + lane) * V + i % V;
        }

        /* Loads this lane's elements of the row at p, unconverted; those past D are not touched.
         * PAST_L1: bypass L1, as neighbouring rows may still be written. */
        typedef typename Chunk<V *(int)sizeof(E)>::T Bytes;
        template <bool PAST_L1>
        static __device__ __forceinline__ void get(Bytes (&x)[C], const E *p, int lane)
        {
#pragma unroll
                for (int c = 0; c < C; c++)
                        if ((c * LANES + lane) * V < Att::D) {
                                const E *from = p + (c * LANES + lane) * V;
                                TGC_ACCESS(from, V * sizeof(E));
                                x[c] = PAST_L1 ? load_l2((const Bytes *)from)
                                               : *(const Bytes *)from;
                        }
        }
        template <bool PAST_L1>
        static __device__ __forceinline__ void get(Bytes (&x)[C], Fp8Row p, int lane)
        {
#pragma unroll
                for (int c = 0; c < C; c++) {
                        const int col = (c * LANES + lane) * V;
                        if (col >= Att::D)
                                continue;
                        if constexpr (V * sizeof(E) == 16) {
                                x[c] = fp8_get16<E, PAST_L1>(p, col);
                        } else {
                                float u[V];
                                fp8_read<PAST_L1>(u, p, col);
#pragma unroll
                                for (int j = 0; j < V; j++)
                                        from_float((E *)&x[c] + j, u[j]);
                        }
                }
        }
        static __device__ __forceinline__ float value(const Bytes (&x)[C], int i)
        {
                return to_float(((const E *)&x[i / V])[i % V]);
        }
        static __device__ __forceinline__ void read(float (&x)[C * V], const E *p, int lane)
        {
#pragma unroll
                for (int c = 0; c < C; c++)
                        if ((c * LANES + lane) * V < Att::D) {
                                float u[V];
                                load(u, p + (c * LANES + lane) * V);
#pragma unroll
                                for (int j = 0; j < V; j++)
                                        x[c * V + j] = u[j];
                        }
        }
};

#endif
