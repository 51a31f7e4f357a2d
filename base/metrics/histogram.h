/* Histogram of microseconds with a resolution of about 3 % from 1 us to 2^40 us: a count for each
 * of 32 parts of every power of two. Plain data, owned by one thread. Histograms can be added. */
#pragma once

#include <stdint.h>

enum { HISTOGRAM_STEPS = 32, HISTOGRAM_POWERS = 40 };

struct histogram {
    uint64_t count[HISTOGRAM_POWERS * HISTOGRAM_STEPS];
    uint64_t n, sum_us;
};

void histogram_add(struct histogram *hist, uint64_t value_us);
void histogram_merge(struct histogram *into, const struct histogram *from);
/* The value below which `ratio` (0..1) of the samples lie; 0 when empty. */
uint64_t histogram_quantile_us(const struct histogram *hist, double ratio);
