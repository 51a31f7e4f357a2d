/* The read bandwidth that a benchmark compares weights per second with. There are four loops over
 * memory: plain, prefetching 2 KiB ahead, prefetching in two hops as the kernels do (8 KiB ahead
 * into the second-level cache, 2 KiB into the first), and in two short hops (2 KiB and 512 bytes).
 * Which is best differs among machines and numbers of threads, so a benchmark tries all of them. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "bench/bench_util.h"
#include "model/numerics/variants.h"

enum { BENCH_READ_PLAIN, BENCH_READ_NEAR, BENCH_READ_TWO_HOPS, BENCH_READ_SHORT_HOPS, BENCH_READS };

static const char *const bench_read_names[BENCH_READS] = {"plain", "near", "two hops",
                                                          "short hops"};

typedef uint64_t bench_line __attribute__((vector_size(64)));
static volatile uint64_t bench_read_sink;

static inline __attribute__((always_inline)) void
bench_read_lines(const uint8_t *data, size_t n_bytes, int near_bytes, int far_bytes)
{
    bench_line sums[4] = {{0}};
    for (size_t at = 0; at < n_bytes; at += sizeof sums) {
        for (size_t i = 0; i < 4; i++) {
            const uint8_t *line = data + at + 64 * i;
            bench_line x;
            if (far_bytes) __builtin_prefetch(line + far_bytes, 0, 2);
            if (near_bytes) __builtin_prefetch(line + near_bytes, 0, 3);
            memcpy(&x, line, sizeof x);
            sums[i] ^= x;
        }
    }
    sums[0] ^= sums[1] ^ sums[2] ^ sums[3];
    bench_read_sink = sums[0][0] ^ sums[0][1] ^ sums[0][2] ^ sums[0][3] ^ sums[0][4] ^ sums[0][5] ^
                      sums[0][6] ^ sums[0][7];
}

/* The widest loads that the machine has, as the kernels use them. */
VARIANTS static void bench_read_plain(const uint8_t *data, size_t n_bytes)
{
    bench_read_lines(data, n_bytes, 0, 0);
}

VARIANTS static void bench_read_near(const uint8_t *data, size_t n_bytes)
{
    bench_read_lines(data, n_bytes, 2048, 0);
}

VARIANTS static void bench_read_two_hops(const uint8_t *data, size_t n_bytes)
{
    bench_read_lines(data, n_bytes, 2048, 8192);
}

VARIANTS static void bench_read_short_hops(const uint8_t *data, size_t n_bytes)
{
    bench_read_lines(data, n_bytes, 512, 2048);
}

/* n_bytes is a multiple of 256. */
static inline void bench_read(int loop, const uint8_t *data, size_t n_bytes)
{
    switch (loop) {
    case BENCH_READ_PLAIN:
        bench_read_plain(data, n_bytes);
        break;
    case BENCH_READ_NEAR:
        bench_read_near(data, n_bytes);
        break;
    case BENCH_READ_TWO_HOPS:
        bench_read_two_hops(data, n_bytes);
        break;
    default:
        bench_read_short_hops(data, n_bytes);
    }
}

/* Returns the loop with the highest median rate. The arm reads with the loop *loop; every round
 * runs each loop for slice_us. rates receives the rates of all loops, unless it is NULL. */
static inline int bench_best_read(const struct timed_arm *arm, int *loop, int64_t slice_us,
                                  struct sample_quartiles rates[BENCH_READS])
{
    double samples[BENCH_READS][BENCH_PAIRS_MIN], most = 0;
    int best = 0;
    for (int i = 0; i < BENCH_PAIRS_MIN; i++) {
        for (*loop = 0; *loop < BENCH_READS; ++*loop) {
            samples[*loop][i] = bench_rate(arm, slice_us);
        }
    }
    for (int i = 0; i < BENCH_READS; i++) {
        struct sample_quartiles rate = sample_quartiles(samples[i], BENCH_PAIRS_MIN);
        if (rates) rates[i] = rate;
        if (rate.median <= most) continue;
        most = rate.median;
        best = i;
    }
    return best;
}
