/* line_reader.h: a mutator for texts.  Bytes alone seldom make another number or a known name of
 * one: every other time a word or a number is replaced, by one that is known to hurt or by another
 * of the same text, or a line is moved. */
#ifndef TGC_FUZZ_WORDS_H
#define TGC_FUZZ_WORDS_H

#include "fuzz.h"

#ifdef FUZZ_ALONE
#include <ctype.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed);

static const char *const hurting[] = {
        "0",
        "1",
        "-1",
        "2",
        "3",
        "7",
        "8",
        "16",
        "64",
        "127",
        "128",
        "255",
        "256",
        "1000",
        "4096",
        "65535",
        "65536",
        "16777216",
        "1048576",
        "2147483647",
        "2147483648",
        "-2147483648",
        "4294967296",
        "9007199254740993",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "1e300",
        "1e999",
        "-1e999",
        "1e-320",
        "0.5",
        "-0.0",
        "1.5",
        "nan",
        "inf",
        "true",
        "false",
        "null",
        "B",
        "T",
        "S",
        "\"\"",
        "{}",
        "[]",
};

static bool is_word(uint8_t c)
{
        return isalnum(c) || c == '_' || c == '.' || c == '-' || c == '+';
}

/* [*from, *to): the word at or after `at`. */
static bool word_at(const uint8_t *s, size_t n, size_t at, size_t *from, size_t *to)
{
        while (at > 0 && at < n && is_word(s[at - 1]) && is_word(s[at]))
                at--;
        while (at < n && !is_word(s[at]))
                at++;
        for (*from = at; at < n && is_word(s[at]); at++)
                ;
        return (*to = at) > *from;
}

static size_t put_between(uint8_t *s, size_t n, size_t most, size_t from, size_t to,
                          const uint8_t *by, size_t len)
{
        uint8_t copy[256];

        if (len > sizeof copy || n - (to - from) + len > most)
                return n;
        memcpy(copy, by, len); /* it may be of the same text */
        memmove(s + from + len, s + to, n - to);
        memcpy(s + from, copy, len);
        return n - (to - from) + len;
}

/* A line is removed, or repeated elsewhere. */
static size_t move_line(uint8_t *s, size_t n, size_t most, size_t at, size_t other, bool drop)
{
        size_t from = at, to = at;

        while (from && s[from - 1] != '\n')
                from--;
        while (to < n && s[to++] != '\n')
                ;
        if (drop)
                return put_between(s, n, most, from, to, s, 0);
        while (other && s[other - 1] != '\n')
                other--;
        return put_between(s, n, most, other, other, s + from, to - from);
}

static size_t next_below(uint64_t *x, size_t n)
{
        *x = *x * 6364136223846793005u + 1442695040888963407u;
        return (size_t)(*x >> 33) % n;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed)
{
        uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
        size_t what = next_below(&x, 16), from, to, a, b;

        if (!n || what < 8)
                return LLVMFuzzerMutate(data, n, most);
        size_t at = next_below(&x, n), other = next_below(&x, n);
        if (what == 8)
                return move_line(data, n, most, at, other, next_below(&x, 2));
        if (!word_at(data, n, at, &from, &to))
                return LLVMFuzzerMutate(data, n, most);
        if (what < 12) {
                const char *w = hurting[next_below(&x, sizeof hurting / sizeof *hurting)];
                return put_between(data, n, most, from, to, (const uint8_t *)w, strlen(w));
        }
        return word_at(data, n, other, &a, &b)
                       ? put_between(data, n, most, from, to, data + a, b - a)
                       : n;
}
#endif

#endif
