/* The numbers of log in double precision, after fdlibm (Sun Microsystems 1993). num_log
 * (model/numerics/numerics.c, the definition) and device_log (model/backend/cuda/answer_math.cuh)
 * compute it with the same steps and must give the same bits. These are macros because C and CUDA
 * device code can both use them.
 *
 *   x = 2^k (1 + f), s = f / (2 + f), log(x) = k ln 2 + f - (f^2 / 2 - s (f^2 / 2 + R(s))) */
#pragma once

#define LOG_SQRT_2  1.4142135623730951         /* 1 + f is at most this */
#define LOG_LN2     6.93147180369123816490e-01 /* has few bits, so that k * LOG_LN2 is exact */
#define LOG_LN2_LOW 1.90821492927058770002e-10 /* what ln 2 has beyond LOG_LN2 */

/* R in z = s^2, w = z^2: its terms with even powers of z, then those with odd ones. */
#define LOG_R_EVEN(w)                  \
    ((w) * (3.999999999940941908e-01 + \
            (w) * (2.222219843214978396e-01 + 1.531383769920937332e-01 * (w))))
#define LOG_R_ODD(z, w)                       \
    ((z) * (6.666666666666735130e-01 +        \
            (w) * (2.857142874366239149e-01 + \
                   (w) * (1.818357216161805012e-01 + 1.479819860511658591e-01 * (w)))))
