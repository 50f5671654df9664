/* checked.h: calls of CUDA in benches: one that fails is printed with its place and ends the
 * program with status 4. */
#ifndef BENCH_CHECKED_H
#define BENCH_CHECKED_H

#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime.h>

#define CUDA(call)                                                           \
        do {                                                                 \
                cudaError_t e_ = (call);                                     \
                if (e_ != cudaSuccess) {                                     \
                        printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
                               cudaGetErrorString(e_));                      \
                        exit(4);                                             \
                }                                                            \
        } while (0)

#endif
