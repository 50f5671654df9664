/* attention_tiles.h: the rows of attention_tiles.def as types, picked as the
 * generator picks them, and checked against what the kernels use. */
#ifndef TGC_ATTENTION_TILES_H
#define TGC_ATTENTION_TILES_H

#include "attention.cuh"
#include "attention_backward.cuh"
#include "attention_decode.cuh"

enum { KIND_FWD, KIND_DKV, KIND_DQ, CLASS_MMA, CLASS_TF32, CLASS_SIMT };

struct TileRow {
        int kind, cls, maxd, bm, bn, sub, cols, threads, minb;
};
constexpr TileRow tile_rows[] = {
#define ATT_TILE(NAME, KIND, CLASS, MAXD, BM, BN, SUB, COLS, THREADS, MINB, SMEM) \
        { KIND_##KIND, CLASS_##CLASS, MAXD, BM, BN, SUB, COLS, THREADS, MINB },
#include "../../codegen/forms/attention_tiles.def"
#undef ATT_TILE
};

__host__ __device__ constexpr TileRow tile_pick(int kind, int cls, int d)
{
        for (const TileRow &r : tile_rows)
                if (r.kind == kind && r.cls == cls && d <= r.maxd)
                        return r;
        return { -1, 0, 0, 0, 0, 0, 0, 0, 0 };
}

/* SMEM of the row that tile_pick finds. */
constexpr int tile_smem(int kind, int cls, int D)
{
#define ATT_TILE(NAME, KIND, CLASS, MAXD, BM, BN, SUB, COLS, THREADS, MINB, SMEM) \
        if (kind == KIND_##KIND && cls == CLASS_##CLASS && D <= MAXD)             \
                return SMEM;
#include "../../codegen/forms/attention_tiles.def"
#undef ATT_TILE
        return -1;
}

template <class E, class Att, int KIND>
struct PickTile {
        typedef AttPath<E, Att> Path;
        static constexpr int CLASS = Path::TF32 ? CLASS_TF32 : Path::MMA ? CLASS_MMA : CLASS_SIMT;
        static constexpr TileRow R = tile_pick(KIND, CLASS, Att::D);
        static_assert(R.kind >= 0, "head width beyond the table");
        static constexpr int MINB = R.minb, SMEM = tile_smem(KIND, CLASS, Att::D);
        typedef AttTile<R.bm, R.bn, R.sub, R.cols, R.threads> Tile;
};

template <class E, class Att>
struct Tiles {
        typedef PickTile<E, Att, KIND_FWD> Fwd;
        typedef PickTile<E, Att, KIND_DKV> Dkv;
        typedef PickTile<E, Att, KIND_DQ> Dq;
        static_assert(Fwd::SMEM == attention_smem<E, Att, typename Fwd::Tile>(),
                      "FWD smem of the table");
        static_assert(Dkv::SMEM == attention_dkv_smem<E, Att, typename Dkv::Tile>(),
                      "DKV smem of the table");
        static_assert(Dq::SMEM == attention_dq_smem<E, Att, typename Dq::Tile>(),
                      "DQ smem of the table");
};

#endif
