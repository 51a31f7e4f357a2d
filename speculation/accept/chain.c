/* The acceptance rules, as their papers write them. In a round this is the last step before tokens
 * are committed. Everything random in it is a coin addressed by (position, round). */
#include "speculation/accept/rules.h"

#include <assert.h>
#include <math.h>

#include "model/numerics/numerics.h"

/* Medusa's typical acceptance keeps a guess with p > min(epsilon, delta exp(-H)). */
static const double TYPICAL_EPSILON = 0.09, TYPICAL_DELTA = 0.3;

static struct rng_address coins_at(const struct rng_address *at, int i)
{
    return (struct rng_address){at->seed, at->position + (uint32_t)i, at->round};
}

static double accept_coin(const struct rng_address *at, int i)
{
    const struct rng_address here = coins_at(at, i);
    return rng_uniform(&here, RNG_ACCEPT, 0);
}

static int32_t row_draw(const struct target_row *row, const struct rng_address *at, int i)
{
    const struct rng_address here = coins_at(at, i);
    return target_row_draw(row, &here);
}

/* max(0, scale p - q) of row->ids[i]; *k walks along q, whose ids ascend as the row's do. */
static double residual_at(const struct target_row *row, const struct sparse_dist *q, double scale,
                          int i, int *k)
{
    while (*k < q->n && q->ids[*k] < row->ids[i]) {
        (*k)++;
    }
    double q_i = *k < q->n && q->ids[*k] == row->ids[i] ? (double)q->p[*k] : 0;
    double rest = scale * (double)row->p[i] - q_i;
    return rest > 0 ? rest : 0;
}

/* Sum of max(0, scale p - q). q has no mass outside of the row's ids where p has: its support is
 * among them, or nothing is outside. */
static double residual_mass(const struct target_row *row, const struct sparse_dist *q, double scale)
{
    double sum = scale * row->outside_mass;
    for (int i = 0, k = 0; i < row->n; i++) {
        sum += residual_at(row, q, scale, i, &k);
    }
    return sum;
}

/* A token from max(0, scale p - q), normalised; from p when that has no mass. Inverse CDF over the
 * row's ids, then outside, where the residual is scale p and the token is drawn already. */
static int32_t residual_draw(const struct target_row *row, const struct sparse_dist *q,
                             double scale, const struct rng_address *at, int position)
{
    double mass = residual_mass(row, q, scale);
    if (!(mass > 0)) return row_draw(row, at, position);
    const struct rng_address here = coins_at(at, position);
    double left = rng_uniform(&here, RNG_RESIDUAL, 0) * mass, sum = 0;
    int32_t last = -1;
    for (int i = 0, k = 0; i < row->n; i++) {
        double rest = residual_at(row, q, scale, i, &k);
        if (!(rest > 0)) continue;
        sum += rest;
        last = row->ids[i];
        if (left < sum) return last;
    }
    return row->outside_mass > 0 ? row->outside_id : last; /* rounding may end beyond the sum */
}

bool keep_rejection(const struct target_row *row, const struct sparse_dist *q, int32_t guess,
                    const struct rng_address *at)
{
    double p_i = (double)target_row_prob(row, guess);
    double q_i = (double)sparse_prob(q, guess);
    return rng_uniform(at, RNG_ACCEPT, 0) * q_i < p_i; /* coin < p / q, no division */
}

/* Leviathan et al. 2023, Algorithm 1; Chen et al. 2023, Algorithm 2. */
struct accept_result accept_rejection(const struct target_row *rows, const struct sparse_dist *q,
                                      const int32_t *draft, int n_draft,
                                      const struct rng_address *at)
{
    for (int i = 0; i < n_draft; i++) {
        const struct rng_address here = coins_at(at, i);
        if (!keep_rejection(&rows[i], &q[i], draft[i], &here)) {
            return (struct accept_result){i, residual_draw(&rows[i], &q[i], 1, at, i)};
        }
    }
    return (struct accept_result){n_draft, row_draw(&rows[n_draft], at, n_draft)};
}

bool keep_match(const struct target_row *row, const struct sparse_dist *q, int32_t guess,
                const struct rng_address *at)
{
    (void)q;
    (void)at;
    return guess == row->ids[0];
}

/* Exact match with the target's choice, which is why rows are one-hot: plain greedy text, and for
 * `coupled` the text of plain sampling with the same Gumbel noise (Daliri et al. 2024, arXiv
 * 2408.07978). */
struct accept_result accept_match(const struct target_row *rows, const struct sparse_dist *q,
                                  const int32_t *draft, int n_draft, const struct rng_address *at)
{
    int i = 0;
    while (i < n_draft && keep_match(&rows[i], &q[i], draft[i], at)) {
        i++;
    }
    assert(rows[i].n == 1 && rows[i].outside_mass == 0);
    return (struct accept_result){i, rows[i].ids[0]};
}

/* h of the paper: the probability that a block ends no earlier than after i guesses, given them;
 * scale is min(1, p / q) accumulated over the guesses. */
static double block_keep(const struct target_row *rows, const struct sparse_dist *q, int i,
                         int n_draft, double scale)
{
    if (i == n_draft) return scale;
    double mass = residual_mass(&rows[i], &q[i], scale);
    double denominator = mass + (1 - scale);
    return denominator > 0 ? mass / denominator : 1; /* 0 / 0: p = q so far and here */
}

/* Block verification, Sun et al. 2024, arXiv 2403.10444, Algorithm 2. */
struct accept_result accept_block(const struct target_row *rows, const struct sparse_dist *q,
                                  const int32_t *draft, int n_draft, const struct rng_address *at)
{
    int n_kept = 0;
    double scale = 1, kept_scale = 1;
    for (int i = 1; i <= n_draft; i++) {
        double p_i = (double)target_row_prob(&rows[i - 1], draft[i - 1]);
        double q_i = (double)sparse_prob(&q[i - 1], draft[i - 1]);
        scale = scale * p_i < q_i ? scale * p_i / q_i : 1;
        if (accept_coin(at, i - 1) < block_keep(rows, q, i, n_draft, scale)) {
            n_kept = i; /* the longest prefix that passes, not the first that fails */
            kept_scale = scale;
        }
    }
    if (n_kept == n_draft) {
        return (struct accept_result){n_draft, row_draw(&rows[n_draft], at, n_draft)};
    }
    return (struct accept_result){n_kept,
                                  residual_draw(&rows[n_kept], &q[n_kept], kept_scale, at, n_kept)};
}

bool keep_naive(const struct target_row *row, const struct sparse_dist *q, int32_t guess,
                const struct rng_address *at)
{
    (void)q;
    return guess == target_row_draw(row, at);
}

/* Draws from p and keeps the guess if it is equal. It accepts least and is there for comparison. */
struct accept_result accept_naive(const struct target_row *rows, const struct sparse_dist *q,
                                  const int32_t *draft, int n_draft, const struct rng_address *at)
{
    (void)q;
    int i = 0;
    int32_t next = row_draw(&rows[0], at, 0);
    while (i < n_draft && next == draft[i]) {
        i++;
        next = row_draw(&rows[i], at, i);
    }
    return (struct accept_result){i, next};
}

bool keep_typical(const struct target_row *row, const struct sparse_dist *q, int32_t guess,
                  const struct rng_address *at)
{
    (void)q;
    (void)at;
    double flat = TYPICAL_DELTA * num_exp_double(-row->entropy);
    double least = flat < TYPICAL_EPSILON ? flat : TYPICAL_EPSILON;
    return (double)target_row_prob(row, guess) > least;
}

/* Typical acceptance of Medusa (Cai et al. 2024, arXiv 2401.10774, section 2.3.1). LOSSY: the text
 * does not have the target's distribution. */
struct accept_result accept_typical(const struct target_row *rows, const struct sparse_dist *q,
                                    const int32_t *draft, int n_draft, const struct rng_address *at)
{
    int i = 0;
    while (i < n_draft && keep_typical(&rows[i], &q[i], draft[i], at)) {
        i++;
    }
    return (struct accept_result){i, row_draw(&rows[i], at, i)};
}
