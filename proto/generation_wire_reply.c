/* What a client gets back: tokens as they are committed, and the summary at the end. The engine's
 * side encodes once per round and job. Our own client decodes, and does not trust the server. */
#include "base/limits.h"
#include "proto/generation_wire.h"

#include "proto/codec.h"
#include "proto/generation.pb-c.h"
#include "proto/generation_wire_estimates.h"

enum { REPLY_TOKENS_MAX = 65536, WORD_BYTES_MAX = 64, NAME_BYTES_MAX = 4096 };

static Outrider__Generation__V1__TokenOrigin *origins_make(struct arena *scratch,
                                                           const struct generate_tokens *tokens)
{
    Outrider__Generation__V1__TokenOrigin *out =
        arena_take(scratch, (size_t)tokens->n, sizeof *out);
    for (int i = 0; out && i < tokens->n; i++) {
        out[i] = (Outrider__Generation__V1__TokenOrigin)tokens->origins[i];
    }
    return out;
}

static Outrider__Generation__V1__Tokens *tokens_make(struct arena *scratch,
                                                     const struct generate_tokens *tokens)
{
    Outrider__Generation__V1__Tokens *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__tokens__init(out);
    out->n_ids = (size_t)tokens->n;
    out->ids = codec_lend(tokens->ids);
    out->text = codec_copy_text(scratch, tokens->text, tokens->text_len);
    out->n_origins = (size_t)tokens->n;
    out->origins = origins_make(scratch, tokens);
    out->n_text_ends = (size_t)tokens->n;
    out->text_ends = codec_lend(tokens->text_ends);
    out->rejected_id = tokens->rejected_id;
    out->rejected_text = codec_copy_string(scratch, tokens->rejected_text);
    return out->text && out->origins && out->rejected_text ? out : NULL;
}

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
    out->drafted_ahead = counters->drafted_ahead;
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
    return out;
}

static Outrider__Generation__V1__Summary *summary_make(struct arena *scratch,
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
    out->estimates = estimates_make(scratch, &summary->estimates);
    bool is_whole = out->finish_reason && out->stop_match && out->counters && out->rule &&
                    out->speculation_off && out->request_id && out->arithmetic && out->estimates;
    return is_whole ? out : NULL;
}

static const ProtobufCMessage *reply_build(struct arena *scratch, const void *value)
{
    const struct generate_reply *reply = value;
    Outrider__Generation__V1__GenerateReply *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__generate_reply__init(out);
    if (reply->tokens) {
        out->part_case = OUTRIDER__GENERATION__V1__GENERATE_REPLY__PART_TOKENS;
        out->tokens = tokens_make(scratch, reply->tokens);
        return out->tokens ? &out->base : NULL;
    }
    out->part_case = OUTRIDER__GENERATION__V1__GENERATE_REPLY__PART_SUMMARY;
    out->summary = summary_make(scratch, reply->summary);
    return out->summary ? &out->base : NULL;
}

int generate_reply_encode(struct buffer *buf, const struct generate_reply *reply, struct error *err)
{
    return codec_encode(buf, reply_build, reply, err);
}

static int origins_decode(const Outrider__Generation__V1__Tokens *msg, struct arena *arena,
                          struct generate_tokens *tokens, struct error *err)
{
    if (msg->n_origins != msg->n_ids) {
        return error_set(err, ERR_FORMAT, "origins has %zu entries, ids %zu", msg->n_origins,
                         msg->n_ids);
    }
    enum token_origin *origins = codec_take(arena, msg->n_origins, sizeof *origins, err);
    if (!origins) return err->code;
    tokens->origins = origins;
    for (size_t i = 0; i < msg->n_origins; i++) {
        int origin = (int)msg->origins[i];
        if (origin < TOKEN_PLAIN || origin > TOKEN_BONUS) {
            return error_set(err, ERR_FORMAT, "origins[%zu] is %d, must be %d to %d", i, origin,
                             TOKEN_PLAIN, TOKEN_BONUS);
        }
        origins[i] = (enum token_origin)origin;
    }
    return 0;
}

static int text_ends_decode(const Outrider__Generation__V1__Tokens *msg,
                            struct generate_tokens *tokens, struct error *err)
{
    if (msg->n_text_ends != msg->n_ids) {
        return error_set(err, ERR_FORMAT, "text_ends has %zu entries, ids %zu", msg->n_text_ends,
                         msg->n_ids);
    }
    uint32_t least = 0;
    for (size_t i = 0; i < msg->n_text_ends; i++) {
        uint32_t end = msg->text_ends[i];
        if (end < least || end > tokens->text_len) {
            return error_set(err, ERR_FORMAT, "text_ends[%zu] is %u, must be %u to %zu", i, end,
                             least, tokens->text_len);
        }
        least = end;
    }
    tokens->text_ends = msg->text_ends;
    return 0;
}

static int tokens_decode(const Outrider__Generation__V1__Tokens *msg, struct arena *arena,
                         struct generate_tokens *tokens, struct error *err)
{
    int rc = 0;
    *tokens = (struct generate_tokens){.ids = msg->ids, .rejected_id = msg->rejected_id};
    TRY(codec_read_count(&tokens->n, msg->n_ids, REPLY_TOKENS_MAX, "ids", err));
    TRY(codec_check_ids(msg->ids, msg->n_ids, "ids", err));
    TRY(codec_read_string(&tokens->text, &tokens->text_len, msg->text, MESSAGE_BYTES_MAX, "text",
                          err));
    TRY(origins_decode(msg, arena, tokens, err));
    TRY(text_ends_decode(msg, tokens, err));
    TRY(codec_read_string(&tokens->rejected_text, NULL, msg->rejected_text, NAME_BYTES_MAX,
                          "rejected_text", err));
    if (tokens->rejected_id < -1) {
        rc = error_set(err, ERR_FORMAT, "rejected_id is %d, must be -1 or an id",
                       tokens->rejected_id);
    }
out:
    return rc;
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
    counters->drafted_ahead = msg->drafted_ahead;
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

static int summary_decode(const Outrider__Generation__V1__Summary *msg,
                          struct generate_summary *summary, struct error *err)
{
    int rc = 0;
    *summary = (struct generate_summary){.seed = msg->seed};
    TRY(summary_texts_decode(msg, summary, err));
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

static int part_decode(const Outrider__Generation__V1__GenerateReply *msg, struct arena *arena,
                       struct generate_reply *reply, struct error *err)
{
    if (msg->part_case == OUTRIDER__GENERATION__V1__GENERATE_REPLY__PART_TOKENS) {
        struct generate_tokens *tokens = codec_take(arena, 1, sizeof *tokens, err);
        reply->tokens = tokens;
        return tokens ? tokens_decode(msg->tokens, arena, tokens, err) : err->code;
    }
    if (msg->part_case == OUTRIDER__GENERATION__V1__GENERATE_REPLY__PART_SUMMARY) {
        struct generate_summary *summary = codec_take(arena, 1, sizeof *summary, err);
        reply->summary = summary;
        return summary ? summary_decode(msg->summary, summary, err) : err->code;
    }
    return error_set(err, ERR_FORMAT, "neither tokens nor summary is set");
}

int generate_reply_decode(const uint8_t *data, size_t len, struct arena *arena,
                          struct generate_reply *reply, struct error *err)
{
    *reply = (struct generate_reply){0};
    const Outrider__Generation__V1__GenerateReply *msg =
        codec_unpack(&outrider__generation__v1__generate_reply__descriptor, data, len, arena, err);
    if (!msg) return err->code;
    int rc = part_decode(msg, arena, reply, err);
    if (rc) *reply = (struct generate_reply){0};
    return rc;
}
