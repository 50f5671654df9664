/* emulate_launch.h: the launch: blocks on host threads, with stacks and shared memory. */
#ifndef TGC_EMULATE_LAUNCH_H
#define TGC_EMULATE_LAUNCH_H

EMU_NAMESPACE
{
        Kernel *kernels;

        enum { MAX_ARGS = 256 };
        inline size_t sizes[MAX_ARGS];
        inline int n_sizes;

        enum { MAX_THREADS = 1024, MAX_SMEM = 227 * 1024, GUARD = 256, MOST_TOGETHER = 132 };

        /* What a host thread needs to run blocks.  A guarded stack is two mappings, of which a
         * process may have 65530, and a plan has many objects; so one object at a time keeps its
         * stacks after a launch (tgc_emulate_keep).  (Touching new pages costs more than most
         * launches of a test.) */
        struct Worker {
                Block block;
                std::vector<Thread> thread;
                char *stacks, *smem; /* one stack per thread; MAX_SMEM + GUARD bytes */
                Worker *next;
        };

        inline Worker *idle_workers;
        inline int workers_lock;
        inline bool keep_workers;

        struct WorkersLock {
                WorkersLock()
                {
                        while (__atomic_exchange_n(&workers_lock, 1, __ATOMIC_ACQUIRE)) {}
                }
                ~WorkersLock() { __atomic_store_n(&workers_lock, 0, __ATOMIC_RELEASE); }
        };

        /* Guarded: many blocks that wait for each other would need more mappings than there are. */
        inline void worker_free(Worker * w)
        {
                stacks_unmap(w->stacks, (int)w->thread.size());
                free(w->smem);
                delete w;
        }

        inline Worker *worker_get(int n_threads, bool guarded)
        {
                {
                        WorkersLock lock;
                        while (Worker *w = idle_workers) {
                                idle_workers = w->next;
                                if ((int)w->thread.size() >= n_threads)
                                        return w;
                                worker_free(w); /* of a launch of smaller blocks */
                        }
                }
                char *stacks = stacks_map(n_threads, guarded);
                if (!stacks)
                        return 0;
                Worker *w = new Worker();
                w->stacks = stacks;
                w->thread.resize(n_threads);
                w->smem = (char *)aligned_alloc(1024, (MAX_SMEM + GUARD + 1023) / 1024 * 1024);
                return w;
        }

        inline void worker_put(Worker * w)
        {
                WorkersLock lock;
                w->next = idle_workers;
                idle_workers = w;
        }

        inline void workers_free()
        {
                while (Worker *w = idle_workers) {
                        idle_workers = w->next;
                        worker_free(w);
                }
        }

        /* TGC_EMULATE_ORDER: forward (or unset), backward, or the number of a random order. */
        inline unsigned order_from_environment()
        {
                const char *s = getenv("TGC_EMULATE_ORDER");
                if (!s || !*s || !strcmp(s, "forward"))
                        return FORWARD;
                if (!strcmp(s, "backward"))
                        return BACKWARD;
                return (unsigned)strtoul(s, 0, 10) + 2;
        }

        unsigned block_number(unsigned order, unsigned i, unsigned n)
        {
                if (order == FORWARD)
                        return i;
                if (order == BACKWARD)
                        return n - 1 - i;
                uint64_t stride = order * 0x9e3779b1u % n;
                for (uint64_t a = 0; a != 1; stride += a != 1) { /* until gcd(stride, n) is 1 */
                        a = stride % n ? stride : stride + 1;
                        stride = a;
                        for (uint64_t b = n, r; b; b = r)
                                r = a % b, a = b;
                }
                return (unsigned)((order + i * (stride % n)) % n);
        }

        /* Bytes after the block's shared memory that it must not touch. */
        inline void guard_set(Worker * w, size_t size)
        {
                memset(w->smem + size, 0xa5, GUARD);
#ifdef EMU_ASAN
                ASAN_POISON_MEMORY_REGION(w->smem + size, GUARD);
#endif
        }

        inline bool guard_kept(Worker * w, size_t size)
        {
#ifdef EMU_ASAN
                ASAN_UNPOISON_MEMORY_REGION(w->smem + size, GUARD);
#endif
                for (int i = 0; i < GUARD; i++)
                        if ((unsigned char)w->smem[size + i] != 0xa5)
                                return false;
                return true;
        }

        inline void worker_start(Worker * w, const Kernel *k, unsigned number, unsigned grid,
                                 unsigned n, unsigned smem, void **args, const Regions *regions,
                                 unsigned order)
        {
                Block *b = &w->block;
                b->kernel = k;
                b->name = k->name;
                b->args = args;
                b->regions = *regions;
                b->idx = { number, 0, 0 };
                b->dim = { n, 1, 1 };
                b->grid = { grid, 1, 1 };
                b->n = (int)n;
                b->thread = w->thread.data();
                b->smem = w->smem;
                b->smem_size = smem;
                b->order = order;
                guard_set(w, smem);
                block_start(b, w->stacks);
        }

        /* Cluster size of the next launch, and how many of its blocks may wait for each other. */
        inline unsigned next_cluster = 1, next_together = 1;

        /* Runs blocks from..from+n-1 in the launch's order, n in turns; false and a message if one
         * failed. */
        inline bool run_together(const Kernel *k, unsigned from, unsigned n, unsigned cluster,
                                 unsigned grid, unsigned block, unsigned smem, void **args,
                                 const Regions *regions, unsigned order, char *why, int cap)
        {
                Worker *worker[MOST_TOGETHER];
                Block *with[MOST_TOGETHER];
                unsigned got = 0;
                bool ok = true;
                for (; got < n; got++) {
                        Worker *w = worker_get((int)block, n <= 8);
                        if (!w) {
                                snprintf(why, cap, "out of memory for stacks");
                                ok = false;
                                break;
                        }
                        worker[got] = w;
                        with[got] = &w->block;
                }
                for (unsigned i = 0; i < n && ok; i++) {
                        Block *b = with[i];
                        b->with = with;
                        b->n_with = (int)n;
                        b->rank = (int)i;
                        b->cluster = (int)cluster;
                        worker_start(worker[i], k,
                                     n > 1 ? from + i : block_number(order, from, grid), grid,
                                     block, smem, args, regions, order);
                }
                if (ok)
                        blocks_run(with, (int)n);
                for (unsigned i = 0; i < got; i++) {
                        Block *b = with[i];
                        if (ok && !guard_kept(worker[i], smem))
                                block_fail(b, "writes past its %u bytes of shared memory", smem);
                        if (ok && b->failed) {
                                snprintf(why, cap, "%s", b->message);
                                ok = false;
                        }
                        worker_put(worker[i]);
                }
                return ok;
        }

}  // namespace emu

extern "C" void tgc_emulate_sizes(const size_t *size, int n)
{
        emu::n_sizes = n < emu::MAX_ARGS ? n : emu::MAX_ARGS;
        memcpy(emu::sizes, size, emu::n_sizes * sizeof *size);
}

extern "C" void tgc_emulate_keep(int keep)
{
        emu::keep_workers = keep != 0;
        if (!keep)
                emu::workers_free();
}

extern "C" void tgc_emulate_clusters(unsigned cluster, unsigned together)
{
        emu::next_cluster = cluster;
        emu::next_together = together;
}

extern "C" int tgc_emulate_launch(const char *kernel, unsigned grid, unsigned block, unsigned smem,
                                  void **args, int n_args, char *err, int err_cap)
{
        emu::Regions regions = { args, emu::sizes, emu::n_sizes };
        emu::Kernel *k = emu::kernels;
        emu::n_sizes = 0;
        while (k && strcmp(k->name, kernel))
                k = k->next;
        if (!k) {
                snprintf(err, err_cap, "%s: no such kernel", kernel);
                return 1;
        }
        if (k->n_params != n_args) {
                snprintf(err, err_cap, "%s: takes %d pointers, was given %d", kernel, k->n_params,
                         n_args);
                return 1;
        }
        if (regions.n > n_args)
                regions.n = n_args;
        if (grid < 1 || grid > INT_MAX || block < 1 || block > emu::MAX_THREADS ||
            smem > emu::MAX_SMEM) {
                snprintf(err, err_cap,
                         "%s: no GPU takes %u blocks of %u threads with %u bytes of shared memory",
                         kernel, grid, block, smem);
                return 1;
        }
        unsigned order = emu::order_from_environment(), failed = UINT_MAX;
        unsigned cluster = emu::next_cluster,
                 together = emu::next_together < grid ? emu::next_together : grid;
        if (together > emu::MOST_TOGETHER)
                together = emu::MOST_TOGETHER;
        emu::next_cluster = emu::next_together = 1;
        if (grid % cluster) {
                snprintf(err, err_cap, "%s: %u blocks do not make clusters of %u", kernel, grid,
                         cluster);
                return 1;
        }
#pragma omp parallel for schedule(dynamic) if (grid > together)
        for (unsigned i = 0; i < grid; i += together) {
                char why[600];
                if (__atomic_load_n(&failed, __ATOMIC_RELAXED) != UINT_MAX)
                        continue;
                unsigned n = grid - i < together ? grid - i : together;
                if (!emu::run_together(k, i, n, cluster, grid, block, smem, args, &regions, order,
                                       why, sizeof why)) {
#pragma omp critical(tgc_emulate)
                        /* the same block is named for any number of host threads */
                        if (i < failed) {
                                failed = i;
                                snprintf(err, err_cap, "%s", why);
                        }
                }
        }
        /* After a failure threads are left where they stopped; blocks in turns need many stacks. */
        if (!emu::keep_workers || together > 1 || failed != UINT_MAX)
                emu::workers_free();
        return failed != UINT_MAX;
}

#endif
