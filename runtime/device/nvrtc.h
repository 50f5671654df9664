/* nvrtc.h: compiles CUDA units to cubins, in parallel, through the disk cache.  Needs no GPU. */
#ifndef TGC_NVRTC_H
#define TGC_NVRTC_H

#include "cuda_api.h"
#include "../plan/plan.h"
#include "device.h"

/* Compile units for arch ("sm_80", "sm_90a"): those with want[i], NULL: all.  cubin[i], one per
 * unit, has the unit's name and malloc'd data (of one not wanted: NULL), also after a failure:
 * cubins_free takes it.  *n_cached may be NULL. */
int cuda_compile_units(const Nvrtc *n, const Pack *units, const char *want, const Pack *headers,
                       const char *arch, const DevOptions *o, PackFile *cubin, int *n_cached,
                       Err *e);
void cubins_free(PackFile *cubin, int n);

#endif
