/* One monotonic clock (CLOCK_MONOTONIC) for deadlines and measurements. */
#pragma once

#include <stdint.h>

int64_t clock_now_ns(void);
int64_t clock_now_us(void);
int64_t clock_now_ms(void);

/* Sleeps for so long, or until a signal. */
void clock_sleep_us(int64_t us);
