/* fuzz.h: targets for fuzzing.
 *
 * A target is tests/fuzz/NAME.c with one function, FUZZ(NAME) { ... }, that reads `n` bytes at
 * `data` as some file and does with it what tgc would.  Whatever the bytes, nothing may happen but
 * an error.
 *
 *     make fuzz FUZZ=NAME TIME=60     libFuzzer (clang) with the sanitizers, from seeds/NAME; found
 *                                     files are kept in build/fuzz
 *     test_fuzz                       every target over its seeds, with any compiler; part of make
 *                                     check
 *
 * What libFuzzer finds goes to seeds/NAME, small, with a name that says what it did. */
#ifndef TGC_FUZZ_H
#define TGC_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef FUZZ_ALONE /* the target is a program: libFuzzer has main */
#define FUZZ(name)                                                 \
        int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n); \
        static void fuzz_##name(const uint8_t *data, size_t n);    \
        int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)  \
        {                                                          \
                fuzz_##name(data, n);                              \
                return 0;                                          \
        }                                                          \
        static void fuzz_##name(const uint8_t *data, size_t n)
#else
#define FUZZ(name)                                       \
        void fuzz_##name(const uint8_t *data, size_t n); \
        void fuzz_##name(const uint8_t *data, size_t n)
#endif

/* What holds for every input; a failure is a finding. */
#define HOLDS(cond)              \
        do {                     \
                if (!(cond))     \
                        abort(); \
        } while (0)

#endif
