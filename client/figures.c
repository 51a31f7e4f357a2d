/* The arithmetic of the summary. */
#include "client/figures.h"

#include <math.h>

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : (double)NAN;
}

static void set_parts(struct figures *f, const struct generate_counters *c)
{
    const uint64_t us[N_PARTS] = {
        [PART_DRAFT] = c->draft_us,   [PART_WIRE] = c->wire_us,
        [PART_VERIFY] = c->verify_us, [PART_COLLECTIVE] = c->collective_us,
        [PART_ACCEPT] = c->accept_us,
    };
    double n_timed = c->rounds > 0 ? (double)c->rounds - 1 : 0;
    f->round_us = ratio((double)c->rounds_us, n_timed);
    for (int i = 0; i < N_PARTS; i++) {
        f->part_us[i] = ratio((double)us[i], n_timed);
        f->part_ratio[i] = ratio((double)us[i], (double)c->rounds_us);
    }
}

static void set_positions(struct figures *f, const struct generate_counters *c)
{
    for (int i = 0; i < GENERATE_DRAFT_MAX; i++) {
        f->acceptance_at[i] = ratio(c->accepted_at[i], c->tested_at[i]);
        if (c->tested_at[i]) f->n_positions = i + 1;
    }
}

struct figures figures_of(const struct generate_summary *summary)
{
    const struct generate_counters *c = &summary->counters;
    double n = summary->completion_tokens;
    struct figures f = {
        .tokens_per_round = ratio(n, c->rounds),
        .mean_k = ratio(c->drafted, c->rounds),
        .alpha = ratio(c->accepted, (double)c->accepted + c->rejections),
        .draft_efficiency = ratio(c->accepted, c->drafted),
        .decode_tokens_per_s = ratio((n - c->first_round_tokens) * 1e6, (double)c->rounds_us),
        .total_tokens_per_s = ratio(n * 1e6, (double)c->total_us),
        .first_token_ms = ((double)c->queue_us + (double)c->prompt_us) / 1e3,
        .bytes_per_position =
            ratio((double)c->bytes_sent + (double)c->bytes_received, (double)c->rows),
    };
    set_parts(&f, c);
    set_positions(&f, c);
    return f;
}
