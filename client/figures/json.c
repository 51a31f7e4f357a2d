/* The summary as JSON. If memory is lacking for one member, the whole object is NULL. */
#include <inttypes.h>
#include <stdio.h>

#include "base/limits.h"
#include "client/figures/figures.h"

static json_t *counts(const uint32_t *values, int n)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++) {
        json_array_append_new(array, json_integer(values[i]));
    }
    return array;
}

static json_t *numbers(const double *values, int n)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++) {
        json_array_append_new(array, client_json_number(values[i]));
    }
    return array;
}

static json_t *whole(uint64_t value)
{
    return json_integer((json_int_t)(value < INT64_MAX ? value : INT64_MAX));
}

/* A seed is text, because readers that keep numbers as doubles would change it. */
static json_t *seed_text(uint64_t seed)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, seed);
    return json_string(text);
}

static json_t *counters_json(const struct generate_counters *c, int n_positions)
{
    return json_pack(
        "{si si si si si si si si si si si si si si si si so so so so so so so so so so so so "
        "so so "
        "so so "
        "so "
        "so so "
        "so so so so}",
        "rounds", (int)c->rounds, "drafted", (int)c->drafted, "accepted", (int)c->accepted,
        "rejections", (int)c->rejections, "first_round_tokens", (int)c->first_round_tokens,
        "overhead_p50_us", (int)c->overhead_p50_us, "overhead_p99_us", (int)c->overhead_p99_us,
        "found", (int)c->found, "found_accepted", (int)c->found_accepted, "siblings",
        (int)c->siblings, "siblings_accepted", (int)c->siblings_accepted, "staged", (int)c->staged,
        "appended", (int)c->appended, "appended_accepted", (int)c->appended_accepted, "predicted",
        (int)c->predicted, "predicted_accepted", (int)c->predicted_accepted, "drafted_per_position",
        counts(c->drafted_at, n_positions), "tested_per_position",
        counts(c->tested_at, n_positions), "accepted_per_position",
        counts(c->accepted_at, n_positions), "prompt_us", whole(c->prompt_us), "total_us",
        whole(c->total_us), "queue_us", whole(c->queue_us), "rounds_us", whole(c->rounds_us),
        "draft_us", whole(c->draft_us), "verify_us", whole(c->verify_us), "collective_us",
        whole(c->collective_us), "wire_us", whole(c->wire_us), "accept_us", whole(c->accept_us),
        "bytes_sent", whole(c->bytes_sent), "bytes_received", whole(c->bytes_received), "rows",
        whole(c->rows), "more_rows", whole(c->more_rows), "lanes", whole(c->lanes), "step_tokens",
        whole(c->step_tokens), "target_reused", whole(c->target_reused), "draft_reused",
        whole(c->draft_reused), "preemptions", whole(c->preemptions), "expected_us",
        whole(c->expected_us), "planned_us", whole(c->planned_us));
}

static int positions_used(const struct generate_counters *c)
{
    int n = DRAFT_MAX;
    while (n > 0 && !c->drafted_at[n - 1] && !c->tested_at[n - 1]) {
        n--;
    }
    return n;
}

json_t *estimates_json(const struct estimates *e)
{
    json_t *alpha = json_array();
    for (int i = 0; i < e->n_positions; i++) {
        json_array_append_new(alpha, json_real((double)e->alpha_at[i]));
    }
    return json_pack("{si sf sf sf sf sf sf so}", "rounds", e->n_rounds, "draft_us",
                     (double)e->draft_us, "read_us", (double)e->read_us, "step_us",
                     (double)e->step_us, "row_us", (double)e->row_us, "rtt_us", (double)e->rtt_us,
                     "alpha", (double)e->alpha, "alpha_by_position", alpha);
}

static json_t *derived_json(const struct figures *f)
{
    return json_pack(
        "{so so so so so so so so so so so so so}", "tokens_per_round",
        client_json_number(f->tokens_per_round), "mean_k", client_json_number(f->mean_k), "alpha",
        client_json_number(f->alpha), "draft_efficiency", client_json_number(f->draft_efficiency),
        "acceptance_by_position", numbers(f->acceptance_at, f->n_positions), "tokens_per_second",
        client_json_number(f->decode_tokens_per_s), "total_tokens_per_second",
        client_json_number(f->total_tokens_per_s), "time_to_first_token_ms",
        client_json_number(f->first_token_ms), "bytes_per_position",
        client_json_number(f->bytes_per_position), "round_us", client_json_number(f->round_us),
        "batch_size", client_json_number(f->batch_size), "rows_per_step",
        client_json_number(f->rows_per_step), "predicted_ratio",
        client_json_number(f->predicted_ratio));
}

json_t *figures_json(const struct generate_summary *s)
{
    const struct figures figures = figures_of(s);
    json_t *object = json_pack(
        "{ss ss ss ss ss ss so si si si so ss so so}", "finish_reason", s->finish_reason,
        "stop_match", s->stop_match, "rule", s->rule, "speculation_off", s->speculation_off,
        "arithmetic", s->arithmetic, "request_id", s->request_id, "seed", seed_text(s->seed),
        "n_draft", s->n_draft, "prompt_tokens", s->prompt_tokens, "completion_tokens",
        s->completion_tokens, "counters", counters_json(&s->counters, positions_used(&s->counters)),
        "strategy", strategy_names[s->strategy], "threshold",
        s->strategy == STRATEGY_THRESHOLD ? json_real((double)s->threshold) : json_null(),
        "planner", estimates_json(&s->estimates));
    json_t *derived = derived_json(&figures);
    bool failed = !object || !derived || json_object_update(object, derived) != 0;
    json_decref(derived);
    if (!failed) return object;
    json_decref(object);
    return NULL;
}
