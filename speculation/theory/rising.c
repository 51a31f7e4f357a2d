/* Measured times, forced monotone: for files of `outrider plan --cluster`. */
#include "speculation/theory/rising.h"

void rising_fit(double *values, int n)
{
    for (int end = 1; end < n; end++) {
        /* The values before `end` rise, so the last run of equals is the first to be joined. */
        int first = end;
        double sum = values[end];
        while (first > 0 && values[first - 1] > sum / (end - first + 1))
            sum += values[--first];
        for (int i = first; i <= end; i++)
            values[i] = sum / (end - first + 1);
    }
}
