/* emulate_warp.h: barriers, shuffles and votes under their CUDA names.
 *
 * Each takes the caller's file and line as default arguments, for messages. */
#ifndef TGC_EMULATE_WARP_H
#define TGC_EMULATE_WARP_H

TGC_DEV void __syncthreads(EMU_SITE)
{
        emu::barrier("__syncthreads", 0, emu::me()->in->live, true, 0, file, line);
}
TGC_DEV int __syncthreads_count(int p, EMU_SITE)
{
        return emu::barrier("__syncthreads_count", 0, emu::me()->in->live, true, p != 0, file,
                            line);
}
TGC_DEV int __syncthreads_or(int p, EMU_SITE) { return __syncthreads_count(p, file, line) != 0; }
TGC_DEV int __syncthreads_and(int p, EMU_SITE) { return __syncthreads_count(!p, file, line) == 0; }

TGC_DEV void __syncwarp(unsigned mask = 0xffffffffu, EMU_SITE)
{
        emu::sync_lanes(mask, file, line);
}

TGC_DEV void __nanosleep(unsigned) { emu::yield(); }
TGC_DEV unsigned __activemask() { return emu::lanes_left(); }

EMU_NAMESPACE
{
        template <class T>
        inline T shuffle(const char *what, unsigned mask, T v, int from, const char *file, int line)
        {
                static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
                uint64_t bits = 0;
                memcpy(&bits, &v, sizeof v);
                bits = shuffle_bits(what, mask, bits, from, file, line);
                memcpy(&v, &bits, sizeof v);
                return v;
        }

}  // namespace emu

/* Lanes are grouped by width, a power of two; a source outside of the group
 * gives the lane its own value (up, down, xor upwards) or wraps (__shfl_sync). */
template <class T>
TGC_DEV T __shfl_sync(unsigned mask, T v, int from, int width = 32, EMU_SITE)
{
        int l = emu::me()->lane;
        return emu::shuffle("__shfl_sync", mask, v, (l & -width) | (from & (width - 1)), file,
                            line);
}

template <class T>
TGC_DEV T __shfl_up_sync(unsigned mask, T v, unsigned d, int width = 32, EMU_SITE)
{
        int l = emu::me()->lane, from = l - (int)d;
        return emu::shuffle("__shfl_up_sync", mask, v, from < (l & -width) ? -1 : from, file, line);
}

template <class T>
TGC_DEV T __shfl_down_sync(unsigned mask, T v, unsigned d, int width = 32, EMU_SITE)
{
        int l = emu::me()->lane, from = l + (int)d;
        return emu::shuffle("__shfl_down_sync", mask, v, from >= (l & -width) + width ? -1 : from,
                            file, line);
}

template <class T>
TGC_DEV T __shfl_xor_sync(unsigned mask, T v, int d, int width = 32, EMU_SITE)
{
        int l = emu::me()->lane, from = l ^ d;
        return emu::shuffle("__shfl_xor_sync", mask, v, from >= (l & -width) + width ? -1 : from,
                            file, line);
}

TGC_DEV unsigned __ballot_sync(unsigned mask, int p, EMU_SITE)
{
        return emu::vote(emu::BALLOT, mask, p != 0, file, line);
}
TGC_DEV int __any_sync(unsigned mask, int p, EMU_SITE)
{
        return __ballot_sync(mask, p, file, line) != 0;
}
TGC_DEV int __all_sync(unsigned mask, int p, EMU_SITE)
{
        return __ballot_sync(mask, p, file, line) == mask;
}

#define EMU_REDUCE(name, T, Op)                                              \
        TGC_DEV T name(unsigned mask, T x, EMU_SITE)                         \
        {                                                                    \
                return (T)emu::vote(emu::Op, mask, (unsigned)x, file, line); \
        }
EMU_REDUCE(__reduce_add_sync, unsigned, SUM)
EMU_REDUCE(__reduce_or_sync, unsigned, OR)
EMU_REDUCE(__reduce_and_sync, unsigned, AND)
EMU_REDUCE(__reduce_max_sync, unsigned, UMAX)
EMU_REDUCE(__reduce_min_sync, unsigned, UMIN)
EMU_REDUCE(__reduce_add_sync, int, SUM)
EMU_REDUCE(__reduce_max_sync, int, IMAX)
EMU_REDUCE(__reduce_min_sync, int, IMIN)
#undef EMU_REDUCE

#endif
