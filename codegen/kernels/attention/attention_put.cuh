/* attention_put.cuh: neighbouring results to an epilogue of any width. */
#ifndef TGC_ATTENTION_PUT_CUH
#define TGC_ATTENTION_PUT_CUH

#include "tgc.cuh"

/* Up to 4 neighbours to an epilogue of any width. */
template <class Epilogue>
TGC_DEV void att_put4(Epilogue &epilogue, int row, int col, float a, float b, float c, float d)
{
        if constexpr (Epilogue::MAXV >= 4) {
                float v[4] = { a, b, c, d };
                epilogue(row, col, v);
        } else if constexpr (Epilogue::MAXV == 2) {
                float v[2] = { a, b }, w[2] = { c, d };
                epilogue(row, col, v);
                epilogue(row, col + 2, w);
        } else {
                float v[1] = { a }, w[1] = { b }, x[1] = { c }, y[1] = { d };
                epilogue(row, col, v);
                epilogue(row, col + 1, w);
                epilogue(row, col + 2, x);
                epilogue(row, col + 3, y);
        }
}

/* Columns d and, if it exists, d + 1 (d even). */
template <int D, class Epilogue>
TGC_DEV void att_put2(Epilogue &epilogue, int row, int col_base, int d, const float (&o)[2])
{
        if constexpr (Epilogue::MAXV >= 2 && D % 2 == 0) {
                float v[2] = { o[0], o[1] };
                epilogue(row, col_base + d, v);
        } else {
                float v[1] = { o[0] }, w[1] = { o[1] };
                epilogue(row, col_base + d, v);
                if (d + 1 < D)
                        epilogue(row, col_base + d + 1, w);
        }
}

#endif
