/* The value of speculation in theory: Leviathan et al. 2023 (arXiv 2211.17192), sections 3.1 to
 * 3.5, and the same formulas with what a distributed round adds. Pure functions; `outrider plan`
 * prints their results. */
#pragma once

struct speedup_costs {
    double alpha; /* chance that a guess is accepted, 0..1 */
    double c;     /* time of a guess over time of a target step of one row, >= 0 */
    double c_ops; /* operations of the draft over those of the target, per token, >= 0 */
    double row;   /* what each further row adds to a step, over a step of one row, >= 0 */
    double rtt; /* time of a round that is neither draft nor step, over a step, >= 0: plain decoding
                     pays it too */
};

/* Tokens that a round of k guesses commits: (1 - alpha^(k + 1)) / (1 - alpha), k + 1 at alpha 1
 * (equation 1). */
double speedup_tokens(double alpha, int k);

/* As speedup_tokens, where alpha[k] differs by position: 1 + sum over i of alpha[0] .. alpha[i]. */
double speedup_tokens_at(const double *alpha, int k);

/* How much faster than plain decoding, by Theorem 3.8: E / (k c + 1). Rows and round trips cost
 * nothing there. */
double speedup_ideal(const struct speedup_costs *costs, int k);

/* How many times the operations of plain decoding, by Theorem 3.11: (k c_ops + k + 1) / E. */
double speedup_operations(const struct speedup_costs *costs, int k);

/* The speed-up with rows and round trips: E (1 + rtt) / (k c + 1 + k row + rtt)
 * (docs/design.md section 7). */
double speedup_in_rounds(const struct speedup_costs *costs, int k);

/* The k in 0..k_max with the largest speedup_in_rounds, and of equal ones the smallest. 0: plain
 * decoding is fastest. */
int speedup_best_k(const struct speedup_costs *costs, int k_max);
