/* How many random draws a test of statistics makes. `tests/run long` sets OUTRIDER_TEST_LONG and
 * gets all of them. Elsewhere a tenth is drawn, which finds a total variation that is 3.2 times as
 * large. Slow builds look for crashes, not for bias, and have numbers of their own, which no other
 * run falls below. */
#pragma once

#include <stdbool.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
enum { DRAWS_ARE_FEW = 1 };
#else
enum { DRAWS_ARE_FEW = 0 };
#endif

static inline bool draws_are_all(void)
{
    return !DRAWS_ARE_FEW && getenv("OUTRIDER_TEST_LONG") != NULL;
}

/* For wrong ways, which must be found by every run. */
static inline int draws_all(int all, int slow)
{
    return DRAWS_ARE_FEW ? slow : all;
}

static inline int draws_part(int all, int slow)
{
    if (DRAWS_ARE_FEW || draws_are_all()) return draws_all(all, slow);
    return all / 10 > slow ? all / 10 : slow;
}
