/* emulate.h: compiles emitted CUDA with the host's C++ compiler, and runs it.
 *
 *      g++ -std=c++17 -fopenmp -fno-strict-aliasing -fPIC -shared -x c++ -include emulate.h \
 *              unit.cu emulate_core.cpp
 *
 * (-fsanitize=address,undefined find more; clang++ works too.)  The unit is the text that NVRTC
 * gets.  Any number of units and one emulate_core.cpp, which is worth optimising, make an object,
 * which exports tgc_emulate_launch and tgc_emulate_sizes.
 *
 * The threads of a block are fibers on one host thread; blocks run one after the other, in any
 * order.  Fibers wait for each other at barriers, shuffles, ldmatrix and mma.  A kernel that is
 * wrong on a GPU should fail here too:
 *
 * - shared memory is full of NaNs (0xff bytes) when a block starts, and the bytes behind it must
 *   be untouched when it ends;
 * - a cp.async overwrites its destination with garbage when issued, and delivers only when its
 *   group is waited for;
 * - threads run in an order chosen by TGC_EMULATE_ORDER (forward, backward, or the seed of a
 *   random one), so that a missing barrier shows;
 * - errors that name kernel, block, thread and line: a barrier that not all threads reach, a
 *   shuffle with missing lanes, a misaligned or foreign address in a collective, load, store or
 *   copy, asynchronous copies never waited for, deadlock.
 *
 * With -DTGC_SM90A=1 Hopper's instructions are emulated too.  Blocks whose launch says so
 * (tgc_emulate_clusters) then run in turns and may wait for each other.
 *
 * Not emulated: timing, caches, blocks that wait for each other otherwise (a spin is reported),
 * the rounding of approximate functions.
 *
 *      emulate_cuda.h    the language: types, conversions, arithmetic, atomics
 *      emulate_core.h    what kernels ask of the emulator (emulate_core.cpp has it)
 *      emulate_warp.h    barriers and shuffles by their CUDA names
 *      emulate_ptx.h     the functions of ptx.cuh, included from there
 *      emulate_sm90.h    those of ptx_sm90.cuh */
#ifndef TGC_EMULATE_H
#define TGC_EMULATE_H

#ifndef TGC_EMULATE
#define TGC_EMULATE 1
#endif

/* Hidden: several emulated objects may be loaded into one process. */
#define EMU_NAMESPACE namespace emu __attribute__((visibility("hidden")))

#if defined __SANITIZE_ADDRESS__
#define EMU_ASAN 1
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif

#include "emulate_cuda.h"
#include "emulate_core.h"
#include "emulate_warp.h"

#endif
