/* Guesses behind siblings. */
#include "base/growth.h"

int growth_place(const struct growth *growth, int i)
{
    int place = 1;
    for (; growth->parents[i] >= 0; i = growth->parents[i]) {
        place++;
    }
    return place + growth_guess(growth->parents[i]);
}

int growth_first(const struct growth *growth, int i)
{
    while (i > 0 && growth->parents[i - 1] == growth->parents[i]) {
        i--;
    }
    return i;
}
