/* Random numbers with a printed seed, bytes from hex, and messages from packed bytes, for the tests
 * of the codecs. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tests/support/check_util.h"

/* splitmix64 (Steele et al. 2014). */
static uint64_t sample_state;

static inline uint64_t sample_bits(void)
{
    uint64_t z = (sample_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The environment variable WIRE_TEST_SEED repeats a run. */
static inline void sample_start(const char *test)
{
    const char *given = getenv("WIRE_TEST_SEED");
    sample_state = given ? strtoull(given, NULL, 10) : 20240917;
    printf("%s: WIRE_TEST_SEED=%llu\n", test, (unsigned long long)sample_state);
}

/* low <= result <= high */
static inline int sample_int(int low, int high)
{
    return low + (int)(sample_bits() % ((uint64_t)((int64_t)high - low) + 1));
}

static inline float sample_float(float low, float high)
{
    return low + (high - low) * (float)(sample_bits() >> 40) * 0x1p-24f;
}

static inline void *sample_take(struct arena *arena, size_t n, size_t size)
{
    void *block = arena_take(arena, n, size);
    ck_assert_ptr_nonnull(block);
    return block;
}

static inline int32_t *sample_ids(struct arena *arena, int n, int low, int high)
{
    int32_t *ids = sample_take(arena, (size_t)n, sizeof *ids);
    for (int i = 0; i < n; i++) {
        ids[i] = sample_int(low, high);
    }
    return ids;
}

static inline float *sample_floats(struct arena *arena, int n)
{
    float *floats = sample_take(arena, (size_t)n, sizeof *floats);
    for (int i = 0; i < n; i++) {
        floats[i] = sample_float(-20, 20);
    }
    return floats;
}

/* A heap block of exactly len bytes, so that a sanitizer sees every read beyond it. */
static inline uint8_t *exact_copy(const uint8_t *data, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);
    ck_assert_ptr_nonnull(copy);
    if (len) memcpy(copy, data, len);
    return copy;
}

static inline size_t bytes_from_hex(const char *hex, uint8_t *out)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        ck_assert_int_eq(sscanf(hex + 2 * i, "%2x", &byte), 1);
        out[i] = (uint8_t)byte;
    }
    return n;
}

/* If the environment variable WIRE_SEEDS_DIR names tests/fuzz/seeds, writes an encoded message
 * there as a seed for the fuzzers. The first byte tells the fuzzer which message follows. */
static inline void seed_write(const char *target, int kind, const char *name, int number,
                              const uint8_t *data, size_t len)
{
    const char *dir = getenv("WIRE_SEEDS_DIR");
    if (!dir) return;
    char path[512];
    snprintf(path, sizeof path, "%s/%s/%s_%d", dir, target, name, number);
    FILE *file = fopen(path, "wb");
    ck_assert_msg(file != NULL, "cannot write %s", path);
    fputc(kind, file);
    ck_assert_uint_eq(fwrite(data, 1, len, file), len);
    fclose(file);
}
