/* CLOCK_MONOTONIC in three units. */
#include "base/clock.h"

#include <time.h>

int64_t clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t clock_now_us(void)
{
    return clock_now_ns() / 1000;
}

int64_t clock_now_ms(void)
{
    return clock_now_ns() / 1000000;
}

void clock_sleep_us(int64_t us)
{
    const struct timespec span = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&span, NULL);
}
