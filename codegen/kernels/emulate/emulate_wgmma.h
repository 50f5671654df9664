/* emulate_wgmma.h: wgmma.
 *
 * A wgmma reads its operands, for all 128 threads, when the first of them waits for it.
 * Descriptors and swizzles follow the PTX ISA. */
#ifndef TGC_EMULATE_WGMMA_H
#define TGC_EMULATE_WGMMA_H
/* clang-format off: a line an instruction */

EMU_NAMESPACE
{
        /* Element (n, k), of `elem` bytes, of the tile that a descriptor describes.  n_major: n is
         * contiguous, not k. */
        inline unsigned tile_at(const Block *b, unsigned long long desc, bool n_major, int n, int k,
                                int elem)
        {
                static const int bits[4] = { 0, 3, 2, 1 }, wide[4] = { 16, 128, 64, 32 };
                int mode = (int)(desc >> 62);
                unsigned at = (unsigned)(desc & 0x3fff) << 4,
                         lbo = (unsigned)(desc >> 16 & 0x3fff) << 4,
                         sbo = (unsigned)(desc >> 32 & 0x3fff) << 4;
                if (n_major)
                        at += n / 64 * lbo + k / 8 * sbo + k % 8 * 128 + n % 64 * elem;
                else if (mode)
                        at += n / 8 * sbo + n % 8 * wide[mode] + k * elem;
                else
                        at += n / 8 * sbo + n % 8 * 16 + k * elem / 16 * lbo + k * elem % 16;
                at = swizzled(at, bits[mode]);
                unsigned v = elem == 4 ? 0x7fffffff : 0x7fff;
                if (at + elem <= b->smem_size)
                        memcpy(&v, b->smem + at, elem);
                return v;
        }

        float code_value(unsigned code)
        {
                const unsigned x = code >> 3 & 15, m = code & 7;
                const float v = x == 15 && m == 7 ? NAN
                                : x               ? ldexpf((float)(8 + m), (int)x - 10)
                                                  : ldexpf((float)m, -9);
                return code & 0x80 ? -v : v;
        }

        inline int bytes_of(Element x) { return x == CODES ? 1 : x == TF32 ? 4 : 2; }

        /* Element e of a word. */
        inline float element(unsigned w, int e, Element x)
        {
                return x == BF16   ? half_of(w, e, __nv_bfloat16())
                       : x == F16  ? half_of(w, e, __half())
                       : x == TF32 ? half_of(w, 0, float())
                                   : code_value(w >> 8 * e & 255);
        }

        /* Computes wgmma `w`, the same in all threads of warpgroup `group`. */
        inline void wgmma_run(Block * b, int group, const Wgmma *w)
        {
                enum { MOST_K = 32, MOST_N = 256 };
                static __thread float a[64][MOST_K], bt[MOST_K][MOST_N], d[64][MOST_N];
                const WgmmaShape s = w->shape;
                /* words: elements in one */
                const int R = s.n_regs, N = 2 * R, each = bytes_of(s.x), K = 32 / each,
                          words = 4 / each;
                const Wgmma *of[128];
                for (int i = 0; i < 128; i++) {
                        const Thread *t = &b->thread[group * 128 + i];
                        of[i] = &t->wgmma[w->number - t->wgmma[0].number];
                        if (of[i]->b != w->b || of[i]->add != w->add ||
                            (!s.a_regs && of[i]->a != w->a))
                                fail("threads %d and %d of a warpgroup do not issue the same wgmma",
                                     group * 128, group * 128 + i);
                }
                for (int k = 0; k < K; k++)
                        for (int n = 0; n < N; n++)
                                bt[k][n] = element(tile_at(b, w->b, s.trans_b, n, k, each), 0, s.x);
                for (int m = 0; m < 64 && !s.a_regs; m++)
                        for (int k = 0; k < K; k++)
                                a[m][k] = element(tile_at(b, w->a, s.trans_a, m, k, each), 0, s.x);
                for (int i = 0; i < 128; i++) {
                        const int row = i / 32 * 16 + i % 32 / 4, col = i % 4 * 2;
                        for (int e = 0; e < 4 * words && s.a_regs; e++)
                                a[row + e / words % 2 * 8]
                                 [i % 4 * words + e / (2 * words) * (K / 2) + e % words] =
                                         element(of[i]->regs[e / words], e % words, s.x);
                        for (int j = 0; j < R; j++)
                                d[row + j / 2 % 2 * 8][j / 4 * 8 + col + j % 2] =
                                        w->add ? of[i]->d[j] : 0.f;
                }
                for (int m = 0; m < 64; m++)
                        for (int k = 0; k < K; k++)
                                for (int n = 0; n < N; n++)
                                        d[m][n] += a[m][k] * bt[k][n];
                for (int i = 0; i < 128; i++) {
                        const int row = i / 32 * 16 + i % 32 / 4, col = i % 4 * 2;
                        for (int j = 0; j < R; j++)
                                of[i]->d[j] = d[row + j / 2 % 2 * 8][j / 4 * 8 + col + j % 2];
                }
        }

        void wgmma_issue(WgmmaShape shape, float *d, const unsigned *regs, unsigned long long a,
                         unsigned long long b, int add)
        {
                Thread *t = self();
                Wgmma w = { shape, d, { 0, 0, 0, 0 }, t->issued++, t->wgroup, a, b, add != 0 };
                if (regs)
                        memcpy(w.regs, regs, sizeof w.regs);
                t->wgmma.push_back(w);
        }

        void wgmma_settle(int left)
        {
                Thread *t = self();
                Block *b = t->block;
                int group = t->number / 128;
                unsigned upto = t->issued;
                while (upto > t->issued - t->wgmma.size() &&
                       t->wgmma[upto - 1 - t->wgmma[0].number].group + left >= t->wgroup)
                        upto--;
                for (int i = 0; i < 128;) /* until all of the warpgroup have issued it */
                        if (b->thread[group * 128 + i].issued < upto)
                                yield();
                        else
                                i++;
                for (; (int)(upto - b->done[group]) > 0; b->done[group]++) {
                        const Wgmma *w = &t->wgmma[b->done[group] - t->wgmma[0].number];
                        wgmma_run(b, group, w);
                }
                size_t n = t->wgmma.empty() ? 0 : upto - t->wgmma[0].number;
                t->wgmma.erase(t->wgmma.begin(), t->wgmma.begin() + n);
        }

        void wgmma_move(float *to, const float *from)
        {
                for (Wgmma &w : self()->wgmma)
                        if (w.d == from)
                                w.d = to;
        }

}  // namespace emu

#endif
