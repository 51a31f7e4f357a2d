/* Sleeping for all of a time, whatever signals come. */
#pragma once

#include <errno.h>
#include <time.h>

static inline void sleep_us(long us)
{
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&time, &time) && errno == EINTR)
        continue;
}

static inline void sleep_ms(int ms)
{
    sleep_us(1000L * ms);
}
