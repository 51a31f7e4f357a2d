/* Replies to a client: tokens as they are committed, and the summary at the end. The engine's side
 * encodes once per round and job. Our own client decodes, and does not trust the server. */
#include "base/limits.h"
#include "proto/generation_wire.h"

#include "proto/codec.h"
#include "proto/generation_wire_parts.h"

enum { REPLY_TOKENS_MAX = 65536, REJECTED_BYTES_MAX = 4096 };

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

/* *out is an empty list when no log-probabilities were asked for. */
static bool logprobs_make(Outrider__Generation__V1__Tokens *out, struct arena *scratch,
                          const struct generate_tokens *tokens)
{
    if (!tokens->logprobs) return true;
    size_t n = (size_t)tokens->n;
    Outrider__Generation__V1__TokenLogprob **list = arena_take(scratch, n, sizeof *list);
    Outrider__Generation__V1__TokenLogprob *items = arena_take(scratch, n, sizeof *items);
    if (!list || !items) return false;
    for (size_t i = 0; i < n; i++) {
        const struct token_logprob *from = &tokens->logprobs[i];
        outrider__generation__v1__token_logprob__init(&items[i]);
        items[i].logprob = from->logprob;
        items[i].n_top_logprobs = (size_t)from->n_top;
        items[i].top_logprobs = alternatives_make(scratch, from->top, from->n_top);
        if (!items[i].top_logprobs) return false;
        list[i] = &items[i];
    }
    out->n_logprobs = n;
    out->logprobs = list;
    return true;
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
    out->index = (uint32_t)tokens->index;
    if (tokens->round) out->round = round_make(scratch, tokens->round);
    bool is_whole =
        out->text && out->origins && out->rejected_text && (out->round || !tokens->round);
    return is_whole && logprobs_make(out, scratch, tokens) ? out : NULL;
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
    if (reply->echo) {
        out->part_case = OUTRIDER__GENERATION__V1__GENERATE_REPLY__PART_ECHO;
        out->echo = scores_make(scratch, reply->echo);
        return out->echo ? &out->base : NULL;
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

static int logprobs_decode(const Outrider__Generation__V1__Tokens *msg, struct arena *arena,
                           struct generate_tokens *tokens, struct error *err)
{
    if (!msg->n_logprobs) return 0;
    if (msg->n_logprobs != msg->n_ids) {
        return error_set(err, ERR_FORMAT, "logprobs has %zu entries, ids %zu", msg->n_logprobs,
                         msg->n_ids);
    }
    struct token_logprob *out = codec_take(arena, msg->n_logprobs, sizeof *out, err);
    if (!out) return err->code;
    tokens->logprobs = out;
    int rc = 0;
    for (size_t i = 0; i < msg->n_logprobs && !rc; i++) {
        const Outrider__Generation__V1__TokenLogprob *from = msg->logprobs[i];
        out[i] = (struct token_logprob){.logprob = from->logprob};
        rc = logprob_check(from->logprob, err);
        if (!rc) {
            rc = alternatives_decode(from->top_logprobs, from->n_top_logprobs, arena, &out[i].top,
                                     &out[i].n_top, err);
        }
        if (rc) error_wrap(err, "token %zu", i);
    }
    return rc;
}

static int tokens_decode(const Outrider__Generation__V1__Tokens *msg, struct arena *arena,
                         struct generate_tokens *tokens, struct error *err)
{
    int rc = 0;
    *tokens = (struct generate_tokens){.ids = msg->ids, .rejected_id = msg->rejected_id};
    TRY(codec_read_int(&tokens->index, msg->index, 0, GENERATE_SEQUENCES_MAX - 1, "index", err));
    TRY(codec_read_count(&tokens->n, msg->n_ids, REPLY_TOKENS_MAX, "ids", err));
    TRY(codec_check_ids(msg->ids, msg->n_ids, "ids", err));
    TRY(codec_read_string(&tokens->text, &tokens->text_len, msg->text, MESSAGE_BYTES_MAX, "text",
                          err));
    TRY(origins_decode(msg, arena, tokens, err));
    TRY(text_ends_decode(msg, tokens, err));
    TRY(codec_read_string(&tokens->rejected_text, NULL, msg->rejected_text, REJECTED_BYTES_MAX,
                          "rejected_text", err));
    TRY(logprobs_decode(msg, arena, tokens, err));
    if (msg->round) TRY(round_decode(msg->round, arena, &tokens->round, err));
    if (tokens->rejected_id < -1) {
        rc = error_set(err, ERR_FORMAT, "rejected_id is %d, must be -1 or an id",
                       tokens->rejected_id);
    }
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
    if (msg->part_case == OUTRIDER__GENERATION__V1__GENERATE_REPLY__PART_ECHO) {
        struct score_reply *echo = codec_take(arena, 1, sizeof *echo, err);
        reply->echo = echo;
        return echo ? scores_decode(msg->echo, arena, echo, err) : err->code;
    }
    return error_set(err, ERR_FORMAT, "neither tokens nor summary nor echo is set");
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
