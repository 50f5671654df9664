/* emulate_core.h: what an emulated kernel asks of the emulator.
 *
 * Kernels are compiled for every plan, the emulator (emulate_core.cpp) once, optimised; each shared
 * object has both.  So a kernel's unit sees declarations, and no container of the C++ library.
 * Functions that may wait take the caller's file and line, for messages. */
#ifndef TGC_EMULATE_CORE_H
#define TGC_EMULATE_CORE_H

#define EMU_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define EMU_AT const char *file, int line

EMU_NAMESPACE
{
        /* ---- where a thread is ------------------------------------------------------------- */

        /* What a kernel reads of its block and its thread. */
        struct BlockHead {
                uint3 idx, dim, grid;
                char *smem;
                int live;          /* threads that barriers count: all, or what TGC_SURPLUS kept */
                int rank, cluster; /* rank: among the blocks that run in turns */
        };
        struct ThreadHead {
                uint3 idx;
                int number, lane;
                BlockHead *in;
                int group, sent; /* cp.async groups and TMA stores' groups committed */
                unsigned wgroup; /* wgmma groups committed */
        };

        /* The fiber that runs on this host thread. */
        extern "C" {
        extern __attribute__((visibility("hidden"))) __thread ThreadHead *tgc_emulate_self;
        }
        inline ThreadHead *me() { return tgc_emulate_self; }

        /* TGC_SURPLUS: every thread of a block that keeps n threads calls this first; true: the
         * thread exits. */
        bool surplus(int n);

        /* Gives up the whole block, with this message. */
        __attribute__((noreturn, format(printf, 1, 2))) void fail(const char *fmt, ...);
        /* Fails unless p is an aligned address of n bytes in this block's shared memory. */
        void check_smem(const char *what, const void *p, int n);
        /* Fails unless p is aligned for an access of n bytes (16 at a time) and inside an
         * argument's memory, shared memory or this thread's own stack. */
        void check_access(const char *what, const void *p, size_t n);

        /* ---- barriers, shuffles, votes ----------------------------------------------------- */

        /* Barrier `id` of `expected` threads; adds `value` to its sum and returns the total.
         * Barrier 0 is __syncthreads: all threads, one place in the code. */
        int barrier(const char *what, int id, int expected, bool waits, int value, EMU_AT);
        void sync_lanes(unsigned mask, EMU_AT);
        unsigned lanes_left(); /* of this warp */
        /* Lets others run; for spins. */
        void yield();

        /* Lane `from`'s v (-1: its own). */
        uint64_t shuffle_bits(const char *what, unsigned mask, uint64_t v, int from, EMU_AT);
        enum VoteOp { BALLOT, SUM, OR, AND, UMAX, UMIN, IMAX, IMIN };
        unsigned vote(VoteOp op, unsigned mask, unsigned x, EMU_AT);

        /* ---- matrices ---------------------------------------------------------------------- */

        /* An operand's element.  CODES: fp8, e4m3. */
        enum Element { BF16, F16, TF32, CODES };

        inline float half_of(unsigned w, int e, __nv_bfloat16)
        {
                return emu_from_bf16((unsigned short)(w >> 16 * e));
        }
        inline float half_of(unsigned w, int e, __half)
        {
                return emu_from_f16((unsigned short)(w >> 16 * e));
        }
        /* tf32: the low 13 bits are ignored. */
        inline float half_of(unsigned w, int, float) { return __uint_as_float(w & ~0x1fffu); }
        float code_value(unsigned code); /* of e4m3 */

        void ldmatrix(unsigned *r, const void *smem, int n, bool trans, EMU_AT);
        void stmatrix(void *smem, const unsigned *r, int n, bool trans, EMU_AT);
        /* D += A B of a warp: (16,16) (16,8) in 16 bits, (16,8) (8,8) in tf32 */
        void mma(float *d, const unsigned *a, const unsigned *b, Element x, EMU_AT);
        /* of bytes: (16,32) (32,8) */
        void mma_bytes(int *d, const unsigned *a, const unsigned *b, bool a_signed, EMU_AT);

        /* ---- asynchronous copies ------------------------------------------------------------- */

        void cp_async(void *smem, const void *gmem, int bytes, bool valid);
        void cp_async_part(void *smem, const void *gmem, int n); /* n of 16 bytes, then zeros */
        /* Delivers all groups but the latest `left`, oldest first. */
        void copies_deliver(int left);

        /* What the launch before writes at its end, for tests of what a kernel reads too early:
         * called by every thread that waits. */
        extern void (*before_ends)(void);

        /* ---- Hopper: mbarriers, the copy engine, clusters ------------------------------------ */

        typedef unsigned long long Mbar;

        /* A tensor map as the runtime encodes it here (a plan's `map` line, dev_emulate.c), in a
         * TmaMap: a matrix of 2-byte elements, or of 4-byte ones that become tf32; boxes of
         * box_rows rows of 128, 64 or 32 bytes. */
        struct Map {
                const char *matrix;
                uint64_t elem, rows, cols, ld;
                int box_rows, box_bytes;
        };

        void mbar_init(Mbar * bar, unsigned count);
        void mbar_inval(Mbar * bar);
        void mbar_arrive(Mbar * bar, int bytes);
        bool mbar_try_wait(Mbar * bar, unsigned parity);
        void mbar_wait(Mbar * bar, unsigned parity, EMU_AT);

        /* The destination is NaNs until a thread checks the barrier. */
        void fetch(void *to, const void *map, Mbar *bar, int x, int y);
        void fetch_multicast(void *to, const void *map, Mbar *bar, int x, int y, unsigned mask);
        void fetch_flat(void *to, const void *from, unsigned bytes, Mbar *bar);
        /* The source is read when a thread waits for the store, so later writes to it show. */
        void send(const void *from, const void *map, int x, int y);
        void sends_deliver(int left);

        /* The same address in the shared memory of block `rank` of the cluster. */
        void *in_cluster(const void *p, unsigned rank);
        void send_cluster(void *p, Mbar *bar, unsigned rank, unsigned x);
        void cluster_come();
        void cluster_wait(EMU_AT);

        /* ---- Hopper: wgmma ------------------------------------------------------------------- */

        /* Of a thread: n_regs accumulators (N is twice that), A in registers or by descriptor,
         * transposed or not. */
        struct WgmmaShape {
                int n_regs;
                bool a_regs, trans_a, trans_b;
                Element x;
        };
        /* It reads its operands, for all 128 threads, when the first of them waits for it. */
        void wgmma_issue(WgmmaShape shape, float *d, const unsigned *regs, unsigned long long a,
                         unsigned long long b, int add);
        void wgmma_settle(int left); /* waits until at most `left` groups are in flight */
        void wgmma_move(float *to, const float *from);

        /* ---- kernels ------------------------------------------------------------------------- */

        /* Every parameter of a kernel is a pointer, or a tensor map by value, passed by the
         * address of its bytes. */
        struct Kernel {
                const char *name;
                int n_params;
                void (*fn)();
                void (*call)(void (*fn)(), void **args);
                Kernel *next;
        };

        extern Kernel *kernels; /* of all units of the object */

        template <class P>
        struct Param {
                static P of(void *arg) { return *(const P *)arg; }
        };
        template <class P>
        struct Param<P *> {
                static P *of(void *arg) { return (P *)arg; }
        };

        /* Args<P ...>::call(fn, args, values of those that are read ...) */
        template <class... P>
        struct Args;
        template <>
        struct Args<> {
                template <class F, class... V>
                static void call(F fn, void **, const V &...v)
                {
                        fn(v...);
                }
        };
        template <class P, class... Rest>
        struct Args<P, Rest...> {
                template <class F, class... V>
                static void call(F fn, void **args, const V &...v)
                {
                        Args<Rest...>::call(fn, args + 1, v..., Param<P>::of(*args));
                }
        };

        template <class... P>
        inline void call_typed(void (*fn)(), void **args)
        {
                Args<P...>::call((void (*)(P...))fn, args);
        }

        template <int N>
        struct Entry : Kernel {
                template <class... P>
                Entry(const char *id, void (*f)(P...))
                {
                        static_assert(sizeof...(P) == N,
                                      "TGC_KERNEL's number of parameters is not the kernel's");
                        name = id;
                        n_params = N;
                        fn = (void (*)())f;
                        call = call_typed<P...>;
                        next = kernels;
                        kernels = this;
                }
        };

        /* The i-th of n blocks to run: forward, backward, or a random rotation with a stride
         * coprime to n. */
        unsigned block_number(unsigned order, unsigned i, unsigned n);

}  // namespace emu

#define threadIdx (emu::me()->idx)
#define blockIdx (emu::me()->in->idx)
#define blockDim (emu::me()->in->dim)
#define gridDim (emu::me()->in->grid)

#define TGC_ACCESS(p, bytes) emu::check_access(__func__, p, bytes)
#define TGC_SMEM(name) char *name = emu::me()->in->smem
#define TGC_SURPLUS(n)       \
        if (emu::surplus(n)) \
        return
#define TGC_KERNEL(name, n_params) static emu::Entry<n_params> emu_entry_##name(#name, name);

/* ---- for who launches: the runtime, and tests ------------------------------------------------ */

/* Optional: bytes that args[0..n) of the next launch point to, against which load, store and
 * ptx.cuh's copies are checked.  Copied. */
extern "C" __attribute__((visibility("default"))) void tgc_emulate_sizes(const size_t *size, int n);

/* Optional: 1: launches keep their stacks for the next one; 0: not, and kept ones are freed. */
extern "C" __attribute__((visibility("default"))) void tgc_emulate_keep(int keep);

/* Optional: the next launch's blocks are clusters of `cluster`, and `together` of them, a multiple
 * of that, may wait for each other. */
extern "C" __attribute__((visibility("default"))) void tgc_emulate_clusters(unsigned cluster,
                                                                            unsigned together);

/* Runs kernel `kernel` on `grid` blocks of `block` threads with `smem` bytes of dynamic shared
 * memory.  args[i] is the i-th pointer, or the address of a tensor map.  Returns 0, or 1 with a
 * message in err; memory then holds whatever the blocks wrote.  One launch at a time per object. */
extern "C" __attribute__((visibility("default"))) int tgc_emulate_launch(
        const char *kernel, unsigned grid, unsigned block, unsigned smem, void **args, int n_args,
        char *err, int err_cap);

#endif
