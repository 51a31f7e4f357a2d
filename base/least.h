/* The smaller and the larger of two numbers. */
#pragma once

static inline int least(int a, int b)
{
    return a < b ? a : b;
}

static inline int most(int a, int b)
{
    return a > b ? a : b;
}
