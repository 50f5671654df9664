/* emulate_core.cpp: the emulator itself, behind emulate_core.h: compiled once, with optimisation,
 * and linked with a plan's kernels.
 *
 *      emulate_fiber.h       stacks and the switch between them
 *      emulate_block.h       threads, warps, barriers, where they wait
 *      emulate_schedule.h    who runs next
 *      emulate_launch.h      the launch
 *      emulate_collective.h  shuffles, votes, fragments, cp.async
 *      emulate_tma.h         mbarriers, the copy engine, clusters
 *      emulate_wgmma.h       wgmma and stmatrix */
#include "emulate.h"
#include <cstdarg>
#include <climits>
#include <vector>
#include "emulate_fiber.h"
#include "emulate_block.h"
#include "emulate_schedule.h"
#include "emulate_launch.h"
#include "emulate_collective.h"
#include "emulate_tma.h"
#include "emulate_wgmma.h"
