/* Computes the figures of a row from the tally of its arm. */
#include "client/bench/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Names of places. */
_Static_assert(DRAFT_MAX == 16, "one name for each place");
#define PLACES(name)                                                                        \
    name "_0", name "_1", name "_2", name "_3", name "_4", name "_5", name "_6", name "_7", \
        name "_8", name "_9", name "_10", name "_11", name "_12", name "_13", name "_14",   \
        name "_15"

static const char *const drafted_names[DRAFT_MAX] = {PLACES("drafted_pos")};
static const char *const tested_names[DRAFT_MAX] = {PLACES("tested_pos")};
static const char *const accepted_names[DRAFT_MAX] = {PLACES("accepted_pos")};

/* Figures for which vLLM has a Prometheus metric of the same meaning are named by its suffix. */
static const char *const names[BENCH_DRAFTED_AT] = {
    [BENCH_REQUESTS] = "requests",
    [BENCH_FAILURES] = "failures",
    [BENCH_DURATION_S] = "duration_seconds",
    [BENCH_PROMPT_TOKENS] = "prompt_tokens",
    [BENCH_GENERATION_TOKENS] = "generation_tokens",
    [BENCH_REQUESTS_PER_S] = "requests_per_second",
    [BENCH_TOKENS_PER_S] = "tokens_per_second",
    [BENCH_DECODE_TOKENS_PER_S] = "decode_tokens_per_second",
    [BENCH_SPEEDUP] = "speedup",
    [BENCH_THROUGHPUT_RATIO] = "throughput_ratio",
    [BENCH_FIRST_P50] = "time_to_first_token_seconds_p50",
    [BENCH_FIRST_P90] = "time_to_first_token_seconds_p90",
    [BENCH_FIRST_P99] = "time_to_first_token_seconds_p99",
    [BENCH_TOKEN_P50] = "inter_token_latency_seconds_p50",
    [BENCH_TOKEN_P90] = "inter_token_latency_seconds_p90",
    [BENCH_TOKEN_P99] = "inter_token_latency_seconds_p99",
    [BENCH_MESSAGE_P50] = "inter_message_latency_seconds_p50",
    [BENCH_MESSAGE_P90] = "inter_message_latency_seconds_p90",
    [BENCH_MESSAGE_P99] = "inter_message_latency_seconds_p99",
    [BENCH_REQUEST_P50] = "e2e_request_latency_seconds_p50",
    [BENCH_REQUEST_P90] = "e2e_request_latency_seconds_p90",
    [BENCH_REQUEST_P99] = "e2e_request_latency_seconds_p99",
    [BENCH_QUEUE_P50] = "request_queue_time_seconds_p50",
    [BENCH_QUEUE_P90] = "request_queue_time_seconds_p90",
    [BENCH_QUEUE_P99] = "request_queue_time_seconds_p99",
    [BENCH_DRAFTS] = "spec_decode_num_drafts",
    [BENCH_DRAFT_TOKENS] = "spec_decode_num_draft_tokens",
    [BENCH_ACCEPTED_TOKENS] = "spec_decode_num_accepted_tokens",
    [BENCH_REJECTIONS] = "spec_decode_num_rejections",
    [BENCH_ROUNDS] = "rounds",
    [BENCH_TOKENS_PER_ROUND] = "tokens_per_round",
    [BENCH_ALPHA] = "alpha",
    [BENCH_EFFICIENCY] = "draft_efficiency",
    [BENCH_ROUND_US] = "round_us",
    [BENCH_PART_US + PART_DRAFT] = "draft_us",
    [BENCH_PART_US + PART_WIRE] = "wire_us",
    [BENCH_PART_US + PART_VERIFY] = "verify_us",
    [BENCH_PART_US + PART_COLLECTIVE] = "collective_us",
    [BENCH_PART_US + PART_ACCEPT] = "accept_us",
    [BENCH_GUESS_US] = "draft_us_per_token",
    [BENCH_OVERHEAD_P50_US] = "overhead_us_p50",
    [BENCH_OVERHEAD_P99_US] = "overhead_us_p99",
    [BENCH_BYTES_PER_POSITION] = "bytes_per_position",
    [BENCH_MEAN_K] = "mean_k",
    [BENCH_BATCH_SIZE] = "batch_size",
    [BENCH_ROWS_PER_STEP] = "rows_per_step",
    [BENCH_TARGET_REUSED] = "prompt_tokens_reused",
    [BENCH_DRAFT_REUSED] = "draft_prompt_tokens_reused",
    [BENCH_PREEMPTIONS] = "preemptions",
    [BENCH_PREDICTED_RATIO] = "predicted_round_ratio",
    [BENCH_SIBLINGS] = "siblings",
    [BENCH_SIBLINGS_ACCEPTED] = "siblings_accepted",
    [BENCH_FOUND] = "found",
    [BENCH_FOUND_ACCEPTED] = "found_accepted",
    [BENCH_APPENDED] = "appended",
    [BENCH_APPENDED_ACCEPTED] = "appended_accepted",
    [BENCH_STAGED] = "staged",
};

const char *bench_figure_name(enum bench_figure figure)
{
    if (figure >= BENCH_ACCEPTED_AT) return accepted_names[figure - BENCH_ACCEPTED_AT];
    if (figure >= BENCH_TESTED_AT) return tested_names[figure - BENCH_TESTED_AT];
    if (figure >= BENCH_DRAFTED_AT) return drafted_names[figure - BENCH_DRAFTED_AT];
    return names[figure];
}

static double quantile(const struct histogram *hist, double at, double unit)
{
    return hist->n ? (double)histogram_quantile_us(hist, at) / unit : (double)NAN;
}

/* Three figures in a row: P50, P90, P99 in seconds. */
static void set_latency(double *figures, const struct histogram *hist)
{
    static const double at[] = {0.5, 0.9, 0.99};
    for (int i = 0; i < 3; i++)
        figures[i] = quantile(hist, at[i], 1e6);
}

static void set_load(double *f, const struct tally *tally)
{
    double seconds = (double)tally->wall_us / 1e6;
    f[BENCH_REQUESTS] = tally->n_done;
    f[BENCH_FAILURES] = tally->n_failed;
    f[BENCH_DURATION_S] = seconds;
    f[BENCH_PROMPT_TOKENS] = tally->sum.prompt_tokens;
    f[BENCH_GENERATION_TOKENS] = tally->sum.completion_tokens;
    f[BENCH_REQUESTS_PER_S] = figures_ratio(tally->n_done, seconds);
    f[BENCH_TOKENS_PER_S] = figures_ratio(tally->sum.completion_tokens, seconds);
    set_latency(&f[BENCH_FIRST_P50], &tally->first_token);
    set_latency(&f[BENCH_TOKEN_P50], &tally->token_gap);
    set_latency(&f[BENCH_MESSAGE_P50], &tally->message_gap);
    set_latency(&f[BENCH_REQUEST_P50], &tally->request);
    set_latency(&f[BENCH_QUEUE_P50], &tally->queue);
}

static void set_speculation(double *f, const struct tally *tally)
{
    const struct generate_counters *c = &tally->sum.counters;
    const struct figures of_sum = figures_of_many(&tally->sum, tally->n_summaries);
    /* draft_us leaves out the first round of each request, so that it is left out of the number of
     * guesses too. The first round is taken to have as many guesses as the others. */
    double n_timed = (double)c->rounds - tally->n_summaries;
    double guesses = (double)c->drafted * figures_ratio(n_timed, (double)c->rounds);
    f[BENCH_DRAFTS] = c->drafted_at[0];
    f[BENCH_DRAFT_TOKENS] = c->drafted;
    f[BENCH_ACCEPTED_TOKENS] = c->accepted;
    f[BENCH_REJECTIONS] = c->rejections;
    f[BENCH_ROUNDS] = c->rounds;
    f[BENCH_DECODE_TOKENS_PER_S] = of_sum.decode_tokens_per_s;
    f[BENCH_TOKENS_PER_ROUND] = of_sum.tokens_per_round;
    f[BENCH_ALPHA] = of_sum.alpha;
    f[BENCH_EFFICIENCY] = of_sum.draft_efficiency;
    f[BENCH_ROUND_US] = of_sum.round_us;
    for (int i = 0; i < N_PARTS; i++)
        f[BENCH_PART_US + i] = of_sum.part_us[i];
    f[BENCH_GUESS_US] = figures_ratio((double)c->draft_us, guesses);
    f[BENCH_OVERHEAD_P50_US] = quantile(&tally->overhead_p50, 0.5, 1);
    f[BENCH_OVERHEAD_P99_US] = quantile(&tally->overhead_p99, 0.5, 1);
    f[BENCH_BYTES_PER_POSITION] = of_sum.bytes_per_position;
    f[BENCH_MEAN_K] = of_sum.mean_k;
    f[BENCH_BATCH_SIZE] = of_sum.batch_size;
    f[BENCH_ROWS_PER_STEP] = of_sum.rows_per_step;
    f[BENCH_TARGET_REUSED] = c->target_reused;
    f[BENCH_DRAFT_REUSED] = c->draft_reused;
    f[BENCH_PREEMPTIONS] = c->preemptions;
    f[BENCH_PREDICTED_RATIO] = of_sum.predicted_ratio;
}

/* Counts the guesses by who made them, and how they fared by their places. Rates of places without
 * guesses are not known. */
static void set_guesses(double *f, const struct generate_counters *c)
{
    f[BENCH_SIBLINGS] = c->siblings;
    f[BENCH_SIBLINGS_ACCEPTED] = c->siblings_accepted;
    f[BENCH_FOUND] = c->found;
    f[BENCH_FOUND_ACCEPTED] = c->found_accepted;
    f[BENCH_APPENDED] = c->appended;
    f[BENCH_APPENDED_ACCEPTED] = c->appended_accepted;
    f[BENCH_STAGED] = c->staged;
    for (int i = 0; i < DRAFT_MAX && c->drafted_at[i] > 0; i++) {
        f[BENCH_DRAFTED_AT + i] = c->drafted_at[i];
        f[BENCH_TESTED_AT + i] = c->tested_at[i];
        f[BENCH_ACCEPTED_AT + i] = c->accepted_at[i];
    }
}

static const char *most_frequent_error(const struct tally *tally)
{
    const struct tally_error *most = NULL;
    for (int i = 0; i < tally->n_errors; i++) {
        if (!most || tally->errors[i].n > most->n) most = &tally->errors[i];
    }
    return most ? most->text : "";
}

void bench_row_of(struct bench_row *row, const struct bench_arm *arm, const struct tally *tally)
{
    const char *error = most_frequent_error(tally);
    row->arm = arm;
    row->n_draft = tally->n_draft >= 0 ? tally->n_draft : arm->generate.request.n_draft;
    row->is_planned = tally->strategy == STRATEGY_PLANNED && arm->generate.request.n_draft < 0;
    memcpy(row->error, error, strlen(error) + 1);
    for (int i = 0; i < N_BENCH_FIGURES; i++)
        row->figures[i] = (double)NAN;
    set_load(row->figures, tally);
    set_speculation(row->figures, tally);
    set_guesses(row->figures, &tally->sum.counters);
}

void bench_row_ratios(struct bench_row *rows, int n, const struct bench_arm *arms, int n_arms)
{
    for (int i = 0; i < n; i++) {
        const struct bench_arm *plain = sweep_plain(arms, n_arms, rows[i].arm);
        for (int j = 0; plain && j < n; j++) {
            if (rows[j].arm != plain || rows[j].repetition != rows[i].repetition) continue;
            double *f = rows[i].figures, *base = rows[j].figures;
            f[BENCH_SPEEDUP] =
                figures_ratio(f[BENCH_DECODE_TOKENS_PER_S], base[BENCH_DECODE_TOKENS_PER_S]);
            f[BENCH_THROUGHPUT_RATIO] =
                figures_ratio(f[BENCH_TOKENS_PER_S], base[BENCH_TOKENS_PER_S]);
        }
    }
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double interpolate(const double *sorted, int n, double at)
{
    double index = at * (n - 1);
    int below = (int)index;
    if (below + 1 >= n) return sorted[n - 1];
    return sorted[below] + (index - below) * (sorted[below + 1] - sorted[below]);
}

struct quartiles bench_figure_quartiles(const struct bench_results *results,
                                        const struct bench_arm *arm, enum bench_figure figure)
{
    struct quartiles q = {(double)NAN, (double)NAN, (double)NAN, 0};
    double *values = malloc(((size_t)results->n_rows + 1) * sizeof *values);
    for (int i = 0; values && i < results->n_rows; i++) {
        const struct bench_row *row = &results->rows[i];
        bool counts = row->arm == arm && isfinite(row->figures[figure]);
        if (counts) values[q.n++] = row->figures[figure];
    }
    if (q.n) {
        qsort(values, (size_t)q.n, sizeof *values, compare);
        q.low = interpolate(values, q.n, 0.25);
        q.median = interpolate(values, q.n, 0.5);
        q.high = interpolate(values, q.n, 0.75);
    }
    free(values);
    return q;
}
