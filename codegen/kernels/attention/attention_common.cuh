/* attention_common.cuh: what all attention kernels share.
 *
 *      attention_problem.cuh      what is computed: sizes, masks, operands
 *      attention_order.cuh        which head, sequence and queries a tile is
 *      attention_mask.cuh         which keys a query attends, and the score
 *      attention_keys.cuh         rows of keys and values, contiguous or paged
 *      attention_softmax.cuh      softmax in powers of two
 *      attention_lanes.cuh        lanes that share a row
 *      attention_put.cuh          results to the epilogue
 *
 * Accumulators in registers are attention_fragment.cuh's. */
#ifndef TGC_ATTENTION_COMMON_CUH
#define TGC_ATTENTION_COMMON_CUH

#include "attention_keys.cuh"
#include "attention_lanes.cuh"
#include "attention_mask.cuh"
#include "attention_order.cuh"
#include "attention_problem.cuh"
#include "attention_put.cuh"
#include "attention_softmax.cuh"

#endif
