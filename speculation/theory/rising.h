/* Measured times as they must be: more rows never take less time, although on a busy machine they
 * were measured so. A plan from times that fall would promise more than its tokens per round. */
#pragma once

/* Replaces the n values by the nearest ones that never fall, in the sense of least squares: where
 * they fall, neighbours get their mean (pool adjacent violators; Ayer et al. 1955). */
void rising_fit(double *values, int n);
