/* emulate.h: compile emitted CUDA with the host's C++ compiler, and run it.
 *
 *      g++ -std=c++17 -O2 -fno-strict-aliasing -fPIC -shared -x c++ -include emulate.h unit.cu
 *
 * (-fsanitize=address,undefined find more; -fopenmp runs blocks in parallel;
 * clang++ will do).  The unit is the same text NVRTC gets.  Any number of units
 * make one object, which exports tgc_emulate_launch and tgc_emulate_sizes.
 *
 * What is played: the threads of a block are fibers on one host thread; blocks
 * run one after the other, in any order.  A barrier, a shuffle, ldmatrix or mma
 * is a place where fibers wait for each other.  So that a kernel that is wrong
 * on a GPU is wrong here too:
 *
 *   - shared memory is full of NaNs (0xff bytes) when a block starts, and must
 *     end with the bytes after it untouched;
 *   - a cp.async destroys what lies at its destination when it is issued and
 *     delivers only when its group is waited for;
 *   - threads run in an order chosen by TGC_EMULATE_ORDER: forward, backward, or
 *     a number that seeds a random one, so that a missing barrier shows;
 *   - a barrier that not all threads reach, a shuffle with lanes missing, a
 *     misaligned or foreign address in a collective, load, store or copy,
 *     asynchronous copies never waited for, and a kernel where nobody can go on
 *     are errors that name kernel, block, thread and line.
 *
 * Built with -DTGC_SM90A=1 it plays Hopper's instructions, too; then blocks whose
 * launch says so (tgc_emulate_clusters) run by turns and may wait for each other.
 *
 * What is not: timing, caches, blocks that wait for each other elsewhere (a spin
 * is reported), rounding of approximate functions.
 *
 *   emulate_cuda.h      the language: types, conversions, arithmetic, atomics
 *   emulate_fiber.h     stacks and the switch between them
 *   emulate_block.h     threads, warps, barriers, where they wait
 *   emulate_schedule.h  who runs next
 *   emulate_launch.h    entry points and the launch
 *   emulate_warp.h      barriers and shuffles by their CUDA names
 *   emulate_ptx.h       the names of ptx.cuh, included from there
 *   emulate_sm90.h      those of ptx_sm90.cuh, on emulate_tma.h and emulate_wgmma.h */
#ifndef TGC_EMULATE_H
#define TGC_EMULATE_H

#ifndef TGC_EMULATE
#define TGC_EMULATE 1
#endif

/* Hidden: several emulated objects may be loaded into one process. */
#define EMU_NAMESPACE namespace emu __attribute__((visibility("hidden")))

#include "emulate_cuda.h"
#include "emulate_fiber.h"
#include "emulate_block.h"
#include "emulate_schedule.h"
#include "emulate_launch.h"
#include "emulate_warp.h"

#endif
