/* emulate_wgmma.h: wgmma and stmatrix, for emulate_sm90.h.
 *
 * A wgmma reads its operands, for all 128 threads, when the first of them waits for it.
 * Descriptors and swizzles follow the PTX ISA. */
#ifndef TGC_EMULATE_WGMMA_H
#define TGC_EMULATE_WGMMA_H
/* clang-format off: a line an instruction */

#include "emulate_tma.h"

EMU_ITSELF

/* Tag type for 8-bit wgmma. */
struct e4m3 {
        unsigned char code;
};

EMU_NAMESPACE
{
        /* ---- wgmma ------------------------------------------------------------------------- */

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

        /* Element e of a word of four codes. */
        inline float half_of(unsigned w, int e, e4m3)
        {
                const unsigned b = w >> 8 * e & 255, x = b >> 3 & 15, m = b & 7;
                const float v = x == 15 && m == 7 ? NAN
                                : x               ? ldexpf((float)(8 + m), (int)x - 10)
                                                  : ldexpf((float)m, -9);
                return b & 0x80 ? -v : v;
        }

        /* Computes wgmma `w`, the same in all threads of warpgroup `group`.  REGS: A is in
         * registers. */
        template <int R, bool REGS, int TA, int TB, class T>
        inline void wgmma_all(Block * b, int group, const Wgmma *w)
        {
                /* W: elements per word */
                constexpr int N = 2 * R, EACH = sizeof(T), K = 32 / EACH, W = 4 / EACH;
                static __thread float a[64][K], bt[K][N], d[64][N];
                const Wgmma *of[128];
                for (int i = 0; i < 128; i++) {
                        const Thread *t = &b->thread[group * 128 + i];
                        of[i] = &t->wgmma[w->number - t->wgmma[0].number];
                        if (of[i]->b != w->b || of[i]->add != w->add || (!REGS && of[i]->a != w->a))
                                fail("threads %d and %d of a warpgroup do not issue the same wgmma",
                                     group * 128, group * 128 + i);
                }
                for (int k = 0; k < K; k++)
                        for (int n = 0; n < N; n++)
                                bt[k][n] = half_of(tile_at(b, w->b, TB, n, k, EACH), 0, T());
                for (int m = 0; m < 64 && !REGS; m++)
                        for (int k = 0; k < K; k++)
                                a[m][k] = half_of(tile_at(b, w->a, TA, m, k, EACH), 0, T());
                for (int i = 0; i < 128; i++) {
                        int row = i / 32 * 16 + i % 32 / 4, col = i % 4 * 2;
                        for (int e = 0; e < 4 * W && REGS; e++)
                                a[row + e / W % 2 * 8][i % 4 * W + e / (2 * W) * (K / 2) + e % W] =
                                        half_of(of[i]->regs[e / W], e % W, T());
                        for (int j = 0; j < R; j++)
                                d[row + j / 2 % 2 * 8][j / 4 * 8 + col + j % 2] =
                                        w->add ? of[i]->d[j] : 0.f;
                }
                for (int m = 0; m < 64; m++)
                        for (int k = 0; k < K; k++)
                                for (int n = 0; n < N; n++)
                                        d[m][n] += a[m][k] * bt[k][n];
                for (int i = 0; i < 128; i++) {
                        int row = i / 32 * 16 + i % 32 / 4, col = i % 4 * 2;
                        for (int j = 0; j < R; j++)
                                of[i]->d[j] = d[row + j / 2 % 2 * 8][j / 4 * 8 + col + j % 2];
                }
        }

        inline void wgmma_issue(void (*run)(Block *, int, const Wgmma *), float *d,
                                const unsigned *regs, unsigned long long a, unsigned long long b,
                                int add)
        {
                Thread *t = self();
                Wgmma w = { run, d, { 0, 0, 0, 0 }, t->issued++, t->wgroup, a, b, add != 0 };
                if (regs)
                        memcpy(w.regs, regs, sizeof w.regs);
                t->wgmma.push_back(w);
        }

        /* Waits until at most `left` groups of this thread are in flight. */
        inline void wgmma_settle(int left)
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
                        w->run(b, group, w);
                }
                size_t n = t->wgmma.empty() ? 0 : upto - t->wgmma[0].number;
                t->wgmma.erase(t->wgmma.begin(), t->wgmma.begin() + n);
        }

        /* ---- matrices ------------------------------------------------------------------------ */

        struct MatrixStore {
                const unsigned *r;
                void *row;
        };

        template <int N, bool TRANS>
        inline void stmatrix_all(Warp * w, unsigned)
        {
                check_aligned(w);
                for (int m = 0; m < N; m++)
                        for (int l = 0; l < 32; l++)
                                for (int e = 0; e < 2; e++) {
                                        int g = l / 4, c = l % 4 * 2 + e;
                                        uint16_t v =
                                                (uint16_t)(((MatrixStore *)w->lane[l]->operands)
                                                                   ->r[m] >>
                                                           16 * e);
                                        MatrixStore *to = (MatrixStore *)w
                                                                  ->lane[8 * m + (TRANS ? c : g)]
                                                                  ->operands;
                                        ((uint16_t *)to->row)[TRANS ? g : c] = v;
                                }
        }

        template <int N, bool TRANS>
        inline void stmatrix(void *smem, const unsigned *r, const char *file, int line)
        {
                MatrixStore m = { r, smem };
                if (self()->lane < 8 * N)
                        check_smem("stmatrix", smem, 16);
                meet(TRANS ? "stmatrix_trans" : "stmatrix", 0xffffffffu, &m, stmatrix_all<N, TRANS>,
                     file, line);
        }

}  // namespace emu

EMU_KERNELS
#endif
