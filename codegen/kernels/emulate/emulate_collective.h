/* emulate_collective.h: what lanes do together: shuffles, votes, fragments of matrices; and the
 * copies that a thread waits for by itself.
 *
 * Products gather the 32 lanes' operands into plain matrices, by the layouts in ptx.cuh's head,
 * compute, and scatter the results. */
#ifndef TGC_EMULATE_COLLECTIVE_H
#define TGC_EMULATE_COLLECTIVE_H

EMU_NAMESPACE
{
        void sync_lanes(unsigned mask, EMU_AT) { meet("__syncwarp", mask, 0, 0, file, line); }

        unsigned lanes_left() { return self()->warp->exists & ~self()->warp->ended; }

        /* ---- shuffles and votes ------------------------------------------------ */

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

        uint64_t shuffle_bits(const char *what, unsigned mask, uint64_t v, int from, EMU_AT)
        {
                Shuffle s = { v, 0, from };
                meet(what, mask, &s, shuffle_all, file, line);
                return s.out;
        }

        /* A vote or a reduction of one word over the lanes of a mask. */
        struct Vote {
                VoteOp op;
                unsigned in, out;
        };

        inline unsigned vote_add(VoteOp op, unsigned r, unsigned x, int lane)
        {
                switch (op) {
                case BALLOT: return r | (unsigned)(x != 0) << lane;
                case SUM: return r + x;
                case OR: return r | x;
                case AND: return r & x;
                case UMAX: return r > x ? r : x;
                case UMIN: return r < x ? r : x;
                case IMAX: return (int)r > (int)x ? r : x;
                default: return (int)r < (int)x ? r : x;
                }
        }

        inline void vote_all(Warp * w, unsigned mask)
        {
                static const unsigned start[] = { 0, 0,           0,           0xffffffffu,
                                                  0, 0xffffffffu, 0x80000000u, 0x7fffffffu };
                const VoteOp op = ((Vote *)w->lane[__builtin_ctz(mask)]->operands)->op;
                unsigned r = start[op];
                for (unsigned rest = mask; rest; rest &= rest - 1)
                        r = vote_add(op, r, ((Vote *)w->lane[__builtin_ctz(rest)]->operands)->in,
                                     __builtin_ctz(rest));
                for (unsigned rest = mask; rest; rest &= rest - 1)
                        ((Vote *)w->lane[__builtin_ctz(rest)]->operands)->out = r;
        }

        unsigned vote(VoteOp op, unsigned mask, unsigned x, EMU_AT)
        {
                static const char *const name[] = {
                        "__ballot_sync",         "__reduce_add_sync",    "__reduce_or_sync",
                        "__reduce_and_sync",     "__reduce_max_sync",    "__reduce_min_sync",
                        "__reduce_max_sync int", "__reduce_min_sync int"
                };
                Vote v = { op, x, 0 };
                meet(name[op], mask, &v, vote_all, file, line);
                return v.out;
        }

        /* ---- matrices ---------------------------------------------------------- */

        struct MatrixRow {
                unsigned *r;
                void *row;
        };

        template <int N, bool TRANS>
        inline void ldmatrix_all(Warp * w, unsigned)
        {
                check_aligned(w);
                for (int m = 0; m < N; m++) {
                        const uint16_t *row[8];
                        for (int i = 0; i < 8; i++)
                                row[i] = (const uint16_t *)((MatrixRow *)w->lane[8 * m + i]
                                                                    ->operands)
                                                 ->row;
                        for (int l = 0; l < 32; l++) {
                                int g = l / 4, c = l % 4 * 2;
                                unsigned lo = TRANS ? row[c][g] : row[g][c],
                                         hi = TRANS ? row[c + 1][g] : row[g][c + 1];
                                ((MatrixRow *)w->lane[l]->operands)->r[m] = hi << 16 | lo;
                        }
                }
        }

        template <int N, bool TRANS>
        inline void stmatrix_all(Warp * w, unsigned)
        {
                check_aligned(w);
                for (int m = 0; m < N; m++)
                        for (int l = 0; l < 32; l++)
                                for (int e = 0; e < 2; e++) {
                                        const MatrixRow *from = (MatrixRow *)w->lane[l]->operands;
                                        int g = l / 4, c = l % 4 * 2 + e;
                                        MatrixRow *to = (MatrixRow *)w
                                                                ->lane[8 * m + (TRANS ? c : g)]
                                                                ->operands;
                                        ((uint16_t *)to->row)[TRANS ? g : c] =
                                                (uint16_t)(from->r[m] >> 16 * e);
                                }
        }

        /* all: of 4 or 2 matrices, as they lie or transposed */
        inline void matrices(const char *what, void *smem, unsigned *r, int n,
                             void (*all)(Warp *, unsigned), EMU_AT)
        {
                MatrixRow m = { r, smem };
                if (self()->lane < 8 * n)
                        check_smem(what, smem, 16);
                meet(what, 0xffffffffu, &m, all, file, line);
        }

        void ldmatrix(unsigned *r, const void *smem, int n, bool trans, EMU_AT)
        {
                matrices(trans ? "ldmatrix_trans" : "ldmatrix", (void *)smem, r, n,
                         n == 4  ? trans ? ldmatrix_all<4, true> : ldmatrix_all<4, false>
                          : trans ? ldmatrix_all<2, true>
                                 : ldmatrix_all<2, false>,
                         file, line);
        }

        void stmatrix(void *smem, const unsigned *r, int n, bool trans, EMU_AT)
        {
                matrices(trans ? "stmatrix_trans" : "stmatrix", smem, (unsigned *)r, n,
                         n == 4  ? trans ? stmatrix_all<4, true> : stmatrix_all<4, false>
                          : trans ? stmatrix_all<2, true>
                                 : stmatrix_all<2, false>,
                         file, line);
        }

        struct Product {
                float *d;
                const unsigned *a, *b;
        };

        /* D (16,8) += A (16,K) B (K,8), k ascending. */
        template <int K>
        inline void product_all(Warp * w, const float(&a)[16][K], const float(&b)[K][8])
        {
                float d[16][8];
                check_aligned(w);
                for (int l = 0; l < 32; l++)
                        for (int i = 0; i < 4; i++)
                                d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2] =
                                        ((Product *)w->lane[l]->operands)->d[i];
                for (int i = 0; i < 16; i++)
                        for (int k = 0; k < K; k++)
                                for (int j = 0; j < 8; j++)
                                        d[i][j] += a[i][k] * b[k][j];
                for (int l = 0; l < 32; l++)
                        for (int i = 0; i < 4; i++)
                                ((Product *)w->lane[l]->operands)->d[i] =
                                        d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
        }

        template <class T>
        inline void mma_16816_all(Warp * w, unsigned)
        {
                float a[16][16], b[16][8];
                for (int l = 0; l < 32; l++) {
                        const Product *p = (const Product *)w->lane[l]->operands;
                        int g = l / 4, t = l % 4;
                        for (int e = 0; e < 2; e++) {
                                for (int i = 0; i < 4; i++)
                                        a[g + i % 2 * 8][2 * t + i / 2 * 8 + e] = half_of(p->a[i],
                                                                                          e, T());
                                for (int i = 0; i < 2; i++)
                                        b[2 * t + i * 8 + e][g] = half_of(p->b[i], e, T());
                        }
                }
                product_all(w, a, b);
        }

        inline void mma_1688_tf32_all(Warp * w, unsigned)
        {
                float a[16][8], b[8][8];
                for (int l = 0; l < 32; l++) {
                        const Product *p = (const Product *)w->lane[l]->operands;
                        int g = l / 4, t = l % 4;
                        for (int i = 0; i < 4; i++)
                                a[g + i % 2 * 8][t + i / 2 * 4] = half_of(p->a[i], 0, float());
                        for (int i = 0; i < 2; i++)
                                b[t + i * 4][g] = half_of(p->b[i], 0, float());
                }
                product_all(w, a, b);
        }

        /* Four bytes per word; sums wrap as in hardware. */
        template <bool A_SIGNED>
        inline void mma_16832_all(Warp * w, unsigned)
        {
                int a[16][32], b[32][8];
                check_aligned(w);
                for (int l = 0; l < 32; l++) {
                        const Product *p = (const Product *)w->lane[l]->operands;
                        int g = l / 4, t = l % 4;
                        for (int e = 0; e < 4; e++) {
                                for (int i = 0; i < 4; i++) {
                                        unsigned char u = (unsigned char)(p->a[i] >> 8 * e);
                                        a[g + i % 2 * 8][4 * t + i / 2 * 16 + e] =
                                                A_SIGNED ? (signed char)u : u;
                                }
                                for (int i = 0; i < 2; i++)
                                        b[4 * t + i * 16 + e][g] = (signed char)(p->b[i] >> 8 * e);
                        }
                }
                for (int l = 0; l < 32; l++)
                        for (int i = 0; i < 4; i++) {
                                int *d = (int *)((Product *)w->lane[l]->operands)->d + i;
                                unsigned sum = (unsigned)*d;
                                for (int k = 0; k < 32; k++)
                                        sum += (unsigned)(a[l / 4 + i / 2 * 8][k] *
                                                          b[k][l % 4 * 2 + i % 2]);
                                *d = (int)sum;
                        }
        }

        void mma(float *d, const unsigned *a, const unsigned *b, Element x, EMU_AT)
        {
                Product p = { d, a, b };
                if (x == BF16)
                        meet("mma_16816<bf16>", 0xffffffffu, &p, mma_16816_all<__nv_bfloat16>, file,
                             line);
                else if (x == F16)
                        meet("mma_16816<f16>", 0xffffffffu, &p, mma_16816_all<__half>, file, line);
                else
                        meet("mma_1688_tf32", 0xffffffffu, &p, mma_1688_tf32_all, file, line);
        }

        void mma_bytes(int *d, const unsigned *a, const unsigned *b, bool a_signed, EMU_AT)
        {
                Product p = { (float *)d, a, b };
                meet("mma_16832", 0xffffffffu, &p,
                     a_signed ? mma_16832_all<true> : mma_16832_all<false>, file, line);
        }

        /* ---- asynchronous copies ----------------------------------------------- */

        void (*before_ends)(void);

        void cp_async(void *smem, const void *gmem, int bytes, bool valid)
        {
                Thread *t = self();
                check_smem("cp_async", smem, bytes);
                if (valid)
                        check_access("cp_async", gmem, bytes);
                memset(smem, 0xff, bytes);
                t->copies.push_back({ (char *)smem, (const char *)gmem, bytes, valid, t->group });
        }

        void cp_async_part(void *smem, const void *gmem, int n)
        {
                Thread *t = self();
                check_smem("cp_async16_part", smem, 16);
                if ((uintptr_t)gmem % 16)
                        fail("thread %d: cp_async16_part of the misaligned address %p", t->number,
                             gmem);
                for (int i = 0; i<n; i += n - 1> i ? n - 1 : 1)
                        check_access("cp_async16_part", (const char *)gmem + i, 1);
                memset(smem, 0xff, 16);
                t->copies.push_back({ (char *)smem, (const char *)gmem, n, true, t->group });
                t->copies.push_back(
                        { (char *)smem + n, (const char *)gmem, 16 - n, false, t->group });
        }

        void copies_deliver(int left)
        {
                Thread *t = self();
                size_t i = 0;
                for (; i < t->copies.size() && t->copies[i].group < t->group - left; i++) {
                        const Copy *c = &t->copies[i];
                        if (c->valid)
                                memcpy(c->to, c->from, c->bytes);
                        else
                                memset(c->to, 0, c->bytes);
                }
                if (i)
                        t->copies.erase(t->copies.begin(), t->copies.begin() + i);
        }

}  // namespace emu

#endif
