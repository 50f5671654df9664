/* stored_gemm_race.h: the tiles that stored_gemm_bench.cu times: rows of stored_gemm_tiles.def, and
 * what may replace them. */
MMA("m8s", 1, 2, 4, 4, 2, STORED_SUMS);
MMA("m8s1", 1, 1, 4, 4, 4, STORED_SUMS);
MMA("m16", 2, 2, 4, 4, 2);
MMA("m16s", 2, 2, 4, 4, 2, STORED_SUMS);
MMA("m16s1", 2, 1, 4, 4, 3, STORED_SUMS);
MMA("m32f", 4, 2, 4, 3, 2, STORED_BF16);
MMA("m32f1", 4, 1, 4, 3, 3, STORED_BF16);
MMA("m64f1", 8, 1, 4, 2, 2, STORED_BF16);
WGMMA("w32f", 32, 2, 5, 2, STORED_BF16);
WGMMA("w64f", 64, 2, 5, 2, STORED_BF16);
WGMMA("w128f", 128, 2, 6, 1, STORED_BF16);
WGMMA("w256", 256, 2, 5, 1);
WGMMA("w256f", 256, 2, 5, 1, STORED_BF16);
