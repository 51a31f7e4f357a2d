/* A value falls into the slot of its power of two and its next five bits. Below 32 us every value
 * has a slot of its own. */
#include "base/metrics/histogram.h"

static int power_of(uint64_t value)
{
    return 63 - __builtin_clzll(value);
}

/* 0 counts as 1; a value beyond the last power counts as the largest. */
static int slot_of(uint64_t value)
{
    if (value == 0) return 0;
    int power = power_of(value);
    if (power >= HISTOGRAM_POWERS) return HISTOGRAM_POWERS * HISTOGRAM_STEPS - 1;
    uint64_t rest = value - ((uint64_t)1 << power);
    return power * HISTOGRAM_STEPS + (int)(rest * HISTOGRAM_STEPS >> power);
}

/* The middle of a slot, so that the error is at most half the width of a slot. */
static uint64_t middle_of(int slot)
{
    uint64_t least = (uint64_t)1 << (slot / HISTOGRAM_STEPS);
    uint64_t begin = least + least * (uint64_t)(slot % HISTOGRAM_STEPS) / HISTOGRAM_STEPS;
    return begin + least / HISTOGRAM_STEPS / 2;
}

void histogram_add(struct histogram *hist, uint64_t value_us)
{
    hist->count[slot_of(value_us)]++;
    hist->n++;
    hist->sum_us += value_us;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    for (int i = 0; i < HISTOGRAM_POWERS * HISTOGRAM_STEPS; i++)
        into->count[i] += from->count[i];
    into->n += from->n;
    into->sum_us += from->sum_us;
}

uint64_t histogram_quantile_us(const struct histogram *hist, double ratio)
{
    if (hist->n == 0) return 0;
    uint64_t below = 0, wanted = ratio > 0 ? (uint64_t)(ratio * (double)hist->n) : 0;
    if (wanted >= hist->n) wanted = hist->n - 1;
    for (int i = 0; i < HISTOGRAM_POWERS * HISTOGRAM_STEPS; i++) {
        below += hist->count[i];
        if (below > wanted) return middle_of(i);
    }
    return middle_of(HISTOGRAM_POWERS * HISTOGRAM_STEPS - 1);
}
