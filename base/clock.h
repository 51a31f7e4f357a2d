/* One monotonic clock (CLOCK_MONOTONIC) for deadlines and measurements. */
#pragma once

#include <stdint.h>

int64_t clock_now_ns(void);
int64_t clock_now_us(void);
int64_t clock_now_ms(void);
