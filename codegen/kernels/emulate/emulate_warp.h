/* emulate_warp.h: barriers, shuffles and votes under their CUDA names.
 *
 * Each takes the caller's file and line as default arguments, for messages. */
#ifndef TGC_EMULATE_WARP_H
#define TGC_EMULATE_WARP_H

#define EMU_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

TGC_DEV void __syncthreads(EMU_SITE)
{
        emu::barrier("__syncthreads", 0, emu::self()->block->live, true, 0, file, line);
}
TGC_DEV int __syncthreads_count(int p, EMU_SITE)
{
        return emu::barrier("__syncthreads_count", 0, emu::self()->block->live, true, p != 0, file,
                            line);
}
TGC_DEV int __syncthreads_or(int p, EMU_SITE) { return __syncthreads_count(p, file, line) != 0; }
TGC_DEV int __syncthreads_and(int p, EMU_SITE) { return __syncthreads_count(!p, file, line) == 0; }

TGC_DEV void __syncwarp(unsigned mask = 0xffffffffu, EMU_SITE)
{
        emu::meet("__syncwarp", mask, 0, 0, file, line);
}

TGC_DEV void __nanosleep(unsigned) { emu::yield(); }
TGC_DEV unsigned __activemask() { return emu::self()->warp->exists & ~emu::self()->warp->ended; }

EMU_NAMESPACE
{
        /* A lane's value, its source lane (-1: itself), and its result. */
        struct Shuffle {
                uint64_t in, out;
                int from;
        };

        inline void shuffle_all(Warp * w, unsigned mask)
        {
                for (unsigned rest = mask; rest; rest &= rest - 1) {
                        Thread *t = w->lane[__builtin_ctz(rest)];
                        Shuffle *s = (Shuffle *)t->operands;
                        int from = s->from < 0 ? t->lane : s->from;
                        if (!(mask >> from & 1))
                                fail("thread %d: %s at %s:%d reads lane %d, which is not in mask "
                                     "%08x",
                                     t->number, t->what, file_name(t->file), t->line, from, mask);
                        s->out = ((Shuffle *)w->lane[from]->operands)->in;
                }
        }

        template <class T>
        inline T shuffle(const char *what, unsigned mask, T v, int from, const char *file, int line)
        {
                static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
                Shuffle s = { 0, 0, from };
                memcpy(&s.in, &v, sizeof v);
                meet(what, mask, &s, shuffle_all, file, line);
                memcpy(&v, &s.out, sizeof v);
                return v;
        }

        /* A vote or a reduction of one word over the lanes of a mask. */
        struct Vote {
                unsigned in, out;
        };

        template <class Op>
        inline void vote_all(Warp * w, unsigned mask)
        {
                unsigned r = Op::start;
                for (unsigned rest = mask; rest; rest &= rest - 1)
                        r = Op::add(r, ((Vote *)w->lane[__builtin_ctz(rest)]->operands)->in,
                                    __builtin_ctz(rest));
                for (unsigned rest = mask; rest; rest &= rest - 1)
                        ((Vote *)w->lane[__builtin_ctz(rest)]->operands)->out = r;
        }

        template <class Op>
        inline unsigned vote(unsigned mask, unsigned x, const char *file, int line)
        {
                Vote v = { x, 0 };
                meet(Op::name(), mask, &v, vote_all<Op>, file, line);
                return v.out;
        }

#define EMU_VOTE(id, text, first, expr)                               \
        struct id {                                                   \
                static constexpr unsigned start = first;              \
                static const char *name() { return text; }            \
                static unsigned add(unsigned r, unsigned x, int lane) \
                {                                                     \
                        (void)lane;                                   \
                        return expr;                                  \
                }                                                     \
        };
        EMU_VOTE(Ballot, "__ballot_sync", 0u, r | (unsigned)(x != 0) << lane)
        EMU_VOTE(Sum, "__reduce_add_sync", 0u, r + x)
        EMU_VOTE(Or, "__reduce_or_sync", 0u, r | x)
        EMU_VOTE(And, "__reduce_and_sync", 0xffffffffu, r & x)
        EMU_VOTE(UMax, "__reduce_max_sync", 0u, r > x ? r : x)
        EMU_VOTE(UMin, "__reduce_min_sync", 0xffffffffu, r < x ? r : x)
        EMU_VOTE(IMax, "__reduce_max_sync int", 0x80000000u, (int)r > (int)x ? r : x)
        EMU_VOTE(IMin, "__reduce_min_sync int", 0x7fffffffu, (int)r < (int)x ? r : x)
#undef EMU_VOTE

}  // namespace emu

/* Lanes are grouped by width, a power of two; a source outside of the group
 * gives the lane its own value (up, down, xor upwards) or wraps (__shfl_sync). */
template <class T>
TGC_DEV T __shfl_sync(unsigned mask, T v, int from, int width = 32, EMU_SITE)
{
        int l = emu::self()->lane;
        return emu::shuffle("__shfl_sync", mask, v, (l & -width) | (from & (width - 1)), file,
                            line);
}

template <class T>
TGC_DEV T __shfl_up_sync(unsigned mask, T v, unsigned d, int width = 32, EMU_SITE)
{
        int l = emu::self()->lane, from = l - (int)d;
        return emu::shuffle("__shfl_up_sync", mask, v, from < (l & -width) ? -1 : from, file, line);
}

template <class T>
TGC_DEV T __shfl_down_sync(unsigned mask, T v, unsigned d, int width = 32, EMU_SITE)
{
        int l = emu::self()->lane, from = l + (int)d;
        return emu::shuffle("__shfl_down_sync", mask, v, from >= (l & -width) + width ? -1 : from,
                            file, line);
}

template <class T>
TGC_DEV T __shfl_xor_sync(unsigned mask, T v, int d, int width = 32, EMU_SITE)
{
        int l = emu::self()->lane, from = l ^ d;
        return emu::shuffle("__shfl_xor_sync", mask, v, from >= (l & -width) + width ? -1 : from,
                            file, line);
}

TGC_DEV unsigned __ballot_sync(unsigned mask, int p, EMU_SITE)
{
        return emu::vote<emu::Ballot>(mask, p != 0, file, line);
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
                return (T)emu::vote<emu::Op>(mask, (unsigned)x, file, line); \
        }
EMU_REDUCE(__reduce_add_sync, unsigned, Sum)
EMU_REDUCE(__reduce_or_sync, unsigned, Or)
EMU_REDUCE(__reduce_and_sync, unsigned, And)
EMU_REDUCE(__reduce_max_sync, unsigned, UMax)
EMU_REDUCE(__reduce_min_sync, unsigned, UMin)
EMU_REDUCE(__reduce_add_sync, int, Sum)
EMU_REDUCE(__reduce_max_sync, int, IMax)
EMU_REDUCE(__reduce_min_sync, int, IMin)
#undef EMU_REDUCE

#endif
