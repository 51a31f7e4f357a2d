/* Computes and adds figures. */
#include "client/figures/figures.h"

#include <limits.h>
#include <math.h>

#include "base/limits.h"

double figures_ratio(double part, double whole)
{
    return whole > 0 ? part / whole : (double)NAN;
}

static void set_parts(struct figures *f, const struct generate_counters *c, int n_requests)
{
    const uint64_t us[N_PARTS] = {
        [PART_DRAFT] = c->draft_us,   [PART_WIRE] = c->wire_us,
        [PART_VERIFY] = c->verify_us, [PART_COLLECTIVE] = c->collective_us,
        [PART_ACCEPT] = c->accept_us,
    };
    double n_timed = c->rounds > 0 ? (double)c->rounds - n_requests : 0;
    f->round_us = figures_ratio((double)c->rounds_us, n_timed);
    f->predicted_ratio = figures_ratio((double)c->expected_us, (double)c->planned_us);
    f->batch_size = figures_ratio((double)c->lanes, n_timed);
    f->rows_per_step = figures_ratio((double)c->step_tokens, n_timed);
    for (int i = 0; i < N_PARTS; i++) {
        f->part_us[i] = figures_ratio((double)us[i], n_timed);
        f->part_ratio[i] = figures_ratio((double)us[i], (double)c->rounds_us);
    }
}

static void set_positions(struct figures *f, const struct generate_counters *c)
{
    for (int i = 0; i < DRAFT_MAX; i++) {
        f->acceptance_at[i] = figures_ratio(c->accepted_at[i], c->tested_at[i]);
        if (c->tested_at[i]) f->n_positions = i + 1;
    }
}

struct figures figures_of(const struct generate_summary *summary)
{
    return figures_of_many(summary, 1);
}

struct figures figures_of_many(const struct generate_summary *sum, int n_requests)
{
    const struct generate_counters *c = &sum->counters;
    double n = sum->completion_tokens;
    struct figures f = {
        .tokens_per_round = figures_ratio(n, c->rounds),
        .mean_k = figures_ratio(c->drafted, c->rounds),
        .alpha = figures_ratio(c->accepted, (double)c->accepted + c->rejections),
        .draft_efficiency = figures_ratio(c->accepted, c->drafted),
        .decode_tokens_per_s =
            figures_ratio((n - c->first_round_tokens) * 1e6, (double)c->rounds_us),
        .total_tokens_per_s = figures_ratio(n * 1e6, (double)c->total_us),
        .first_token_ms = ((double)c->queue_us + (double)c->prompt_us) / 1e3,
        .bytes_per_position =
            figures_ratio((double)c->bytes_sent + (double)c->bytes_received, (double)c->rows),
    };
    set_parts(&f, c, n_requests);
    set_positions(&f, c);
    return f;
}

static void add_counters(struct generate_counters *sum, const struct generate_counters *c)
{
    sum->rounds += c->rounds;
    sum->drafted += c->drafted;
    sum->accepted += c->accepted;
    sum->rejections += c->rejections;
    sum->first_round_tokens += c->first_round_tokens;
    sum->found += c->found;
    sum->found_accepted += c->found_accepted;
    sum->siblings += c->siblings;
    sum->siblings_accepted += c->siblings_accepted;
    sum->staged += c->staged;
    sum->appended += c->appended;
    sum->appended_accepted += c->appended_accepted;
    sum->predicted += c->predicted;
    sum->predicted_accepted += c->predicted_accepted;
    for (int i = 0; i < DRAFT_MAX; i++) {
        sum->drafted_at[i] += c->drafted_at[i];
        sum->tested_at[i] += c->tested_at[i];
        sum->accepted_at[i] += c->accepted_at[i];
    }
    sum->bytes_sent += c->bytes_sent;
    sum->bytes_received += c->bytes_received;
    sum->rows += c->rows;
    sum->more_rows += c->more_rows;
    sum->lanes += c->lanes;
    sum->step_tokens += c->step_tokens;
    sum->target_reused += c->target_reused;
    sum->draft_reused += c->draft_reused;
    sum->preemptions += c->preemptions;
}

static void add_times(struct generate_counters *sum, const struct generate_counters *c)
{
    sum->prompt_us += c->prompt_us;
    sum->total_us += c->total_us;
    sum->queue_us += c->queue_us;
    sum->rounds_us += c->rounds_us;
    sum->draft_us += c->draft_us;
    sum->verify_us += c->verify_us;
    sum->collective_us += c->collective_us;
    sum->wire_us += c->wire_us;
    sum->accept_us += c->accept_us;
    sum->expected_us += c->expected_us;
    sum->planned_us += c->planned_us;
}

/* A server may send any numbers; a sum that does not fit stays at INT_MAX. */
static int add_within(int sum, int more)
{
    return more > INT_MAX - sum ? INT_MAX : sum + more;
}

void figures_add(struct generate_summary *sum, const struct generate_summary *summary)
{
    sum->prompt_tokens = add_within(sum->prompt_tokens, summary->prompt_tokens);
    sum->completion_tokens = add_within(sum->completion_tokens, summary->completion_tokens);
    add_counters(&sum->counters, &summary->counters);
    add_times(&sum->counters, &summary->counters);
}
