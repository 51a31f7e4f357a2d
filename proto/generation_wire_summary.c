/* The summary of a sequence: how it ended, what was used, and what was counted. */
#include "base/limits.h"
#include "proto/generation_wire.h"

#include "proto/codec.h"
#include "proto/generation_wire_estimates.h"
#include "proto/generation_wire_parts.h"

enum { WORD_BYTES_MAX = 64, NAME_BYTES_MAX = 4096 };

/* The number of entries up to the last one that is not zero. */
static size_t positions_count(const uint32_t *counts)
{
    size_t n = DRAFT_MAX;
    while (n && !counts[n - 1]) {
        n--;
    }
    return n;
}

static Outrider__Generation__V1__Counters *counters_make(struct arena *scratch,
                                                         const struct generate_counters *counters)
{
    Outrider__Generation__V1__Counters *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__counters__init(out);
    out->rounds = counters->rounds;
    out->drafted = counters->drafted;
    out->accepted = counters->accepted;
    out->rejections = counters->rejections;
    out->first_round_tokens = counters->first_round_tokens;
    out->overhead_p50_us = counters->overhead_p50_us;
    out->overhead_p99_us = counters->overhead_p99_us;
    out->found = counters->found;
    out->found_accepted = counters->found_accepted;
    out->siblings = counters->siblings;
    out->siblings_accepted = counters->siblings_accepted;
    out->staged = counters->staged;
    out->appended = counters->appended;
    out->appended_accepted = counters->appended_accepted;
    out->predicted = counters->predicted;
    out->predicted_accepted = counters->predicted_accepted;
    out->n_drafted_per_position = positions_count(counters->drafted_at);
    out->drafted_per_position = codec_lend(counters->drafted_at);
    out->n_tested_per_position = positions_count(counters->tested_at);
    out->tested_per_position = codec_lend(counters->tested_at);
    out->n_accepted_per_position = positions_count(counters->accepted_at);
    out->accepted_per_position = codec_lend(counters->accepted_at);
    out->prompt_us = counters->prompt_us;
    out->total_us = counters->total_us;
    out->queue_us = counters->queue_us;
    out->draft_us = counters->draft_us;
    out->verify_us = counters->verify_us;
    out->collective_us = counters->collective_us;
    out->wire_us = counters->wire_us;
    out->accept_us = counters->accept_us;
    out->bytes_sent = counters->bytes_sent;
    out->bytes_received = counters->bytes_received;
    out->rows = counters->rows;
    out->more_rows = counters->more_rows;
    out->rounds_us = counters->rounds_us;
    out->target_reused = counters->target_reused;
    out->draft_reused = counters->draft_reused;
    out->preemptions = counters->preemptions;
    out->lanes = counters->lanes;
    out->step_tokens = counters->step_tokens;
    out->expected_us = counters->expected_us;
    out->planned_us = counters->planned_us;
    return out;
}

Outrider__Generation__V1__Summary *summary_make(struct arena *scratch,
                                                const struct generate_summary *summary)
{
    Outrider__Generation__V1__Summary *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__summary__init(out);
    out->finish_reason = codec_copy_string(scratch, summary->finish_reason);
    out->stop_match = codec_copy_string(scratch, summary->stop_match);
    out->prompt_tokens = (uint32_t)summary->prompt_tokens;
    out->completion_tokens = (uint32_t)summary->completion_tokens;
    out->counters = counters_make(scratch, &summary->counters);
    out->rule = codec_copy_string(scratch, summary->rule);
    out->seed = summary->seed;
    out->n_draft = (uint32_t)summary->n_draft;
    out->speculation_off = codec_copy_string(scratch, summary->speculation_off);
    out->n_prompt_ids = summary->prompt_ids ? (size_t)summary->prompt_tokens : 0;
    out->prompt_ids = codec_lend(summary->prompt_ids);
    out->request_id = codec_copy_string(scratch, summary->request_id);
    out->arithmetic = codec_copy_string(scratch, summary->arithmetic);
    out->strategy = (Outrider__Generation__V1__Strategy)summary->strategy;
    out->threshold = summary->threshold;
    out->index = (uint32_t)summary->index;
    out->estimates = estimates_make(scratch, &summary->estimates);
    bool is_whole = out->finish_reason && out->stop_match && out->counters && out->rule &&
                    out->speculation_off && out->request_id && out->arithmetic && out->estimates;
    return is_whole ? out : NULL;
}

static int positions_decode(uint32_t *out, const uint32_t *counts, size_t n, const char *field,
                            struct error *err)
{
    int count;
    int rc = codec_read_count(&count, n, DRAFT_MAX, field, err);
    for (int i = 0; i < count && !rc; i++) {
        out[i] = counts[i];
    }
    return rc;
}

static int counters_decode(const Outrider__Generation__V1__Counters *msg,
                           struct generate_counters *counters, struct error *err)
{
    int rc = 0;
    *counters = (struct generate_counters){0};
    if (!msg) return 0;
    counters->rounds = msg->rounds;
    counters->drafted = msg->drafted;
    counters->accepted = msg->accepted;
    counters->rejections = msg->rejections;
    counters->first_round_tokens = msg->first_round_tokens;
    counters->overhead_p50_us = msg->overhead_p50_us;
    counters->overhead_p99_us = msg->overhead_p99_us;
    counters->found = msg->found;
    counters->found_accepted = msg->found_accepted;
    counters->siblings = msg->siblings;
    counters->siblings_accepted = msg->siblings_accepted;
    counters->staged = msg->staged;
    counters->appended = msg->appended;
    counters->appended_accepted = msg->appended_accepted;
    counters->predicted = msg->predicted;
    counters->predicted_accepted = msg->predicted_accepted;
    counters->prompt_us = msg->prompt_us;
    counters->total_us = msg->total_us;
    counters->queue_us = msg->queue_us;
    counters->rounds_us = msg->rounds_us;
    counters->draft_us = msg->draft_us;
    counters->verify_us = msg->verify_us;
    counters->collective_us = msg->collective_us;
    counters->wire_us = msg->wire_us;
    counters->accept_us = msg->accept_us;
    counters->bytes_sent = msg->bytes_sent;
    counters->bytes_received = msg->bytes_received;
    counters->rows = msg->rows;
    counters->more_rows = msg->more_rows;
    counters->target_reused = msg->target_reused;
    counters->draft_reused = msg->draft_reused;
    counters->preemptions = msg->preemptions;
    counters->lanes = msg->lanes;
    counters->step_tokens = msg->step_tokens;
    counters->expected_us = msg->expected_us;
    counters->planned_us = msg->planned_us;
    TRY(positions_decode(counters->drafted_at, msg->drafted_per_position,
                         msg->n_drafted_per_position, "drafted_per_position", err));
    TRY(positions_decode(counters->tested_at, msg->tested_per_position, msg->n_tested_per_position,
                         "tested_per_position", err));
    TRY(positions_decode(counters->accepted_at, msg->accepted_per_position,
                         msg->n_accepted_per_position, "accepted_per_position", err));
out:
    return rc;
}

static int summary_texts_decode(const Outrider__Generation__V1__Summary *msg,
                                struct generate_summary *summary, struct error *err)
{
    int rc = 0;
    TRY(codec_read_string(&summary->finish_reason, NULL, msg->finish_reason, WORD_BYTES_MAX,
                          "finish_reason", err));
    TRY(codec_read_string(&summary->stop_match, NULL, msg->stop_match, NAME_BYTES_MAX, "stop_match",
                          err));
    TRY(codec_read_string(&summary->rule, NULL, msg->rule, WORD_BYTES_MAX, "rule", err));
    TRY(codec_read_string(&summary->speculation_off, NULL, msg->speculation_off, NAME_BYTES_MAX,
                          "speculation_off", err));
    TRY(codec_read_string(&summary->request_id, NULL, msg->request_id, NAME_BYTES_MAX, "request_id",
                          err));
    TRY(codec_read_string(&summary->arithmetic, NULL, msg->arithmetic, WORD_BYTES_MAX, "arithmetic",
                          err));
out:
    return rc;
}

static int summary_plan_decode(const Outrider__Generation__V1__Summary *msg,
                               struct generate_summary *summary, struct error *err)
{
    int rc = 0;
    TRY(codec_read_int(&summary->n_draft, msg->n_draft, 0, DRAFT_MAX, "n_draft", err));
    TRY(strategy_decode(&summary->strategy, (int)msg->strategy, err));
    summary->threshold = msg->threshold;
    TRY(estimate_check(summary->threshold, 1, "threshold", err));
    TRY(estimates_decode(msg->estimates, &summary->estimates, err));
out:
    return rc;
}

int summary_decode(const Outrider__Generation__V1__Summary *msg, struct generate_summary *summary,
                   struct error *err)
{
    int rc = 0;
    *summary = (struct generate_summary){.seed = msg->seed};
    TRY(summary_texts_decode(msg, summary, err));
    TRY(codec_read_int(&summary->index, msg->index, 0, GENERATE_SEQUENCES_MAX - 1, "index", err));
    TRY(codec_read_int(&summary->prompt_tokens, msg->prompt_tokens, 0, INT32_MAX, "prompt_tokens",
                       err));
    TRY(codec_read_int(&summary->completion_tokens, msg->completion_tokens, 0, INT32_MAX,
                       "completion_tokens", err));
    TRY(summary_plan_decode(msg, summary, err));
    TRY(counters_decode(msg->counters, &summary->counters, err));
    if (msg->n_prompt_ids && msg->n_prompt_ids != (size_t)summary->prompt_tokens) {
        rc = error_set(err, ERR_FORMAT, "prompt_ids has %zu entries, prompt_tokens is %d",
                       msg->n_prompt_ids, summary->prompt_tokens);
        goto out;
    }
    TRY(codec_check_ids(msg->prompt_ids, msg->n_prompt_ids, "prompt_ids", err));
    summary->prompt_ids = msg->n_prompt_ids ? msg->prompt_ids : NULL;
out:
    return rc;
}
