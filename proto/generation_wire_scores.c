/* Scores of a text: the request, the reply, and the alternatives that tokens have elsewhere too. */
#include "proto/generation_wire.h"

#include <math.h>

#include "proto/codec.h"
#include "proto/generation_wire_parts.h"

enum { SCORE_TOKENS_MAX = 65536, SCORE_TEXT_BYTES_MAX = 4096, SCORE_DIM_MAX = 1 << 20 };

Outrider__Generation__V1__Alternative **
alternatives_make(struct arena *scratch, const struct token_alternative *top, int n_top)
{
    size_t n = (size_t)n_top;
    Outrider__Generation__V1__Alternative **list = arena_take(scratch, n, sizeof *list);
    Outrider__Generation__V1__Alternative *items = arena_take(scratch, n, sizeof *items);
    if (!list || !items) return NULL;
    for (size_t i = 0; i < n; i++) {
        outrider__generation__v1__alternative__init(&items[i]);
        items[i].id = top[i].id;
        items[i].text = codec_copy_string(scratch, top[i].text);
        items[i].logprob = top[i].logprob;
        if (!items[i].text) return NULL;
        list[i] = &items[i];
    }
    return list;
}

static Outrider__Generation__V1__TokenScore **token_scores_make(struct arena *scratch,
                                                                const struct score_reply *reply)
{
    size_t n = (size_t)reply->n;
    Outrider__Generation__V1__TokenScore **list = arena_take(scratch, n, sizeof *list);
    Outrider__Generation__V1__TokenScore *items = arena_take(scratch, n, sizeof *items);
    if (!list || !items) return NULL;
    for (size_t i = 0; i < n; i++) {
        const struct score_token *token = &reply->tokens[i];
        outrider__generation__v1__token_score__init(&items[i]);
        items[i].id = token->id;
        items[i].text = codec_copy_string(scratch, token->text);
        items[i].has_logprob = token->has_logprob;
        items[i].logprob = token->has_logprob ? token->logprob : 0;
        items[i].n_top = (size_t)token->n_top;
        items[i].top = alternatives_make(scratch, token->top, token->n_top);
        if (!items[i].text || !items[i].top) return NULL;
        list[i] = &items[i];
    }
    return list;
}

static Outrider__Generation__V1__FeatureRows *
feature_rows_make(struct arena *scratch, const struct score_features *features)
{
    size_t row = (size_t)features->n_columns * (size_t)features->dim;
    Outrider__Generation__V1__FeatureRows *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__feature_rows__init(out);
    out->first = (uint32_t)features->first;
    out->columns = (uint32_t)features->n_columns;
    out->dim = (uint32_t)features->dim;
    out->rows = (ProtobufCBinaryData){.len = (size_t)features->n * row * sizeof *features->rows,
                                      .data = codec_lend(features->rows)};
    return out;
}

Outrider__Generation__V1__ScoreReply *scores_make(struct arena *scratch,
                                                  const struct score_reply *reply)
{
    Outrider__Generation__V1__ScoreReply *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__score_reply__init(out);
    out->n_tokens = (size_t)reply->n;
    out->tokens = token_scores_make(scratch, reply);
    if (reply->features.n > 0) {
        out->features = feature_rows_make(scratch, &reply->features);
        if (!out->features) return NULL;
    }
    return out->tokens ? out : NULL;
}

static const ProtobufCMessage *score_reply_build(struct arena *scratch, const void *value)
{
    Outrider__Generation__V1__ScoreReply *out = scores_make(scratch, value);
    return out ? &out->base : NULL;
}

int score_reply_encode(struct buffer *buf, const struct score_reply *reply, struct error *err)
{
    return codec_encode(buf, score_reply_build, reply, err);
}

int logprob_check(float logprob, struct error *err)
{
    if (logprob < INFINITY) return 0;
    return error_set(err, ERR_FORMAT, "logprob is %g, must be a number or -inf", (double)logprob);
}

static int scored_check(int32_t id, float logprob, struct error *err)
{
    if (id < 0) return error_set(err, ERR_FORMAT, "id is %d, must not be negative", id);
    return logprob_check(logprob, err);
}

int alternatives_decode(Outrider__Generation__V1__Alternative *const *msg, size_t n_msg,
                        struct arena *arena, const struct token_alternative **top, int *n,
                        struct error *err)
{
    int rc = codec_read_count(n, n_msg, SCORE_TOP_MAX, "top", err);
    if (rc) return rc;
    struct token_alternative *out = codec_take(arena, n_msg, sizeof *out, err);
    if (!out) return err->code;
    *top = out;
    for (int i = 0; i < *n && !rc; i++) {
        const Outrider__Generation__V1__Alternative *from = msg[i];
        out[i] = (struct token_alternative){.id = from->id, .logprob = from->logprob};
        rc = scored_check(from->id, from->logprob, err);
        if (!rc) {
            rc = codec_read_string(&out[i].text, NULL, from->text, SCORE_TEXT_BYTES_MAX, "text",
                                   err);
        }
        if (rc) error_wrap(err, "top %d", i);
    }
    return rc;
}

static int score_decode(const Outrider__Generation__V1__TokenScore *msg, struct arena *arena,
                        struct score_token *token, struct error *err)
{
    int rc = 0;
    *token = (struct score_token){.id = msg->id,
                                  .has_logprob = msg->has_logprob,
                                  .logprob = msg->has_logprob ? msg->logprob : 0};
    TRY(scored_check(msg->id, msg->logprob, err));
    TRY(codec_read_string(&token->text, NULL, msg->text, SCORE_TEXT_BYTES_MAX, "text", err));
    TRY(alternatives_decode(msg->top, msg->n_top, arena, &token->top, &token->n_top, err));
out:
    return rc;
}

static int feature_rows_decode(const Outrider__Generation__V1__FeatureRows *msg,
                               struct score_features *features, struct error *err)
{
    int rc = 0;
    if (!msg) return 0;
    TRY(codec_read_int(&features->first, msg->first, 0, GENERATE_PROMPT_IDS_MAX, "first", err));
    TRY(codec_read_int(&features->n_columns, msg->columns, 1, FEATURE_WISH_MAX + 1, "columns",
                       err));
    TRY(codec_read_int(&features->dim, msg->dim, 1, SCORE_DIM_MAX, "dim", err));
    size_t row = (size_t)features->n_columns * (size_t)features->dim * sizeof *features->rows;
    if (msg->rows.len == 0 || msg->rows.len % row) {
        rc = error_set(err, ERR_FORMAT, "rows has %zu bytes, must be a multiple of %zu",
                       msg->rows.len, row);
        goto out;
    }
    TRY(codec_read_count(&features->n, msg->rows.len / row, SCORE_TOKENS_MAX, "rows", err));
    features->rows = (const uint16_t *)(const void *)msg->rows.data;
out:
    return rc ? error_wrap(err, "features") : 0;
}

int scores_decode(const Outrider__Generation__V1__ScoreReply *msg, struct arena *arena,
                  struct score_reply *reply, struct error *err)
{
    *reply = (struct score_reply){0};
    int rc = codec_read_count(&reply->n, msg->n_tokens, SCORE_TOKENS_MAX, "tokens", err);
    if (rc) return rc;
    struct score_token *tokens = codec_take(arena, msg->n_tokens, sizeof *tokens, err);
    if (!tokens) return err->code;
    reply->tokens = tokens;
    for (int i = 0; i < reply->n && !rc; i++) {
        rc = score_decode(msg->tokens[i], arena, &tokens[i], err);
        if (rc) error_wrap(err, "token %d", i);
    }
    if (!rc) rc = feature_rows_decode(msg->features, &reply->features, err);
    return rc;
}

int score_reply_decode(const uint8_t *data, size_t len, struct arena *arena,
                       struct score_reply *reply, struct error *err)
{
    *reply = (struct score_reply){0};
    const Outrider__Generation__V1__ScoreReply *msg =
        codec_unpack(&outrider__generation__v1__score_reply__descriptor, data, len, arena, err);
    if (!msg) return err->code;
    int rc = scores_decode(msg, arena, reply, err);
    if (rc) *reply = (struct score_reply){0};
    return rc;
}

static Outrider__Generation__V1__FeatureWish *feature_wish_make(struct arena *scratch,
                                                                const struct feature_wish *wish)
{
    Outrider__Generation__V1__FeatureWish *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__feature_wish__init(out);
    out->n_boundaries = (size_t)wish->n;
    out->boundaries = codec_lend(wish->boundaries); /* int as uint32_t, the same bits */
    out->normed = wish->normed;
    return out;
}

static const ProtobufCMessage *score_request_build(struct arena *scratch, const void *value)
{
    const struct score_request *req = value;
    Outrider__Generation__V1__ScoreRequest *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__score_request__init(out);
    out->top_n = (uint32_t)req->top_n;
    if (req->adds_no_special) {
        out->_add_special_tokens_case =
            OUTRIDER__GENERATION__V1__SCORE_REQUEST___ADD_SPECIAL_TOKENS_ADD_SPECIAL_TOKENS;
        out->add_special_tokens = false;
    }
    if (req->parses_no_special) {
        out->_parse_special_case =
            OUTRIDER__GENERATION__V1__SCORE_REQUEST___PARSE_SPECIAL_PARSE_SPECIAL;
        out->parse_special = false;
    }
    if (feature_wish_columns(&req->features)) {
        out->features = feature_wish_make(scratch, &req->features);
        if (!out->features) return NULL;
    }
    if (req->text) {
        out->input_case = OUTRIDER__GENERATION__V1__SCORE_REQUEST__INPUT_TEXT;
        out->text = codec_copy_text(scratch, req->text, req->text_len);
        return out->text ? &out->base : NULL;
    }
    out->input_case = OUTRIDER__GENERATION__V1__SCORE_REQUEST__INPUT_IDS;
    out->ids = token_ids_make(scratch, req->ids, req->n_ids);
    return out->ids ? &out->base : NULL;
}

int score_request_encode(struct buffer *buf, const struct score_request *req, struct error *err)
{
    int rc = req->text ? text_check(req->text, req->text_len, "text", err) : 0;
    return rc ? rc : codec_encode(buf, score_request_build, req, err);
}

static int score_input_decode(const Outrider__Generation__V1__ScoreRequest *msg,
                              struct score_request *req, struct error *err)
{
    switch (msg->input_case) {
    case OUTRIDER__GENERATION__V1__SCORE_REQUEST__INPUT_TEXT:
        return codec_read_string(&req->text, &req->text_len, msg->text, GENERATE_PROMPT_BYTES_MAX,
                                 "text", err);
    case OUTRIDER__GENERATION__V1__SCORE_REQUEST__INPUT_IDS:
        return token_ids_decode(msg->ids, &req->ids, &req->n_ids, "ids", err);
    default:
        return error_set(err, ERR_FORMAT, "neither text nor ids is set");
    }
}

int score_request_decode(const uint8_t *data, size_t len, struct arena *arena,
                         struct score_request *req, struct error *err)
{
    *req = (struct score_request){0};
    const Outrider__Generation__V1__ScoreRequest *msg = codec_unpack_strict(
        &outrider__generation__v1__score_request__descriptor, data, len, arena, err);
    if (!msg) return err->code;
    int rc = score_input_decode(msg, req, err);
    req->adds_no_special = msg->_add_special_tokens_case && !msg->add_special_tokens;
    req->parses_no_special = msg->_parse_special_case && !msg->parse_special;
    if (!rc) rc = codec_read_int(&req->top_n, msg->top_n, 0, SCORE_TOP_MAX, "top_n", err);
    if (!rc && msg->features) {
        rc = codec_read_features(&req->features, msg->features->boundaries,
                                 msg->features->n_boundaries, msg->features->normed,
                                 FEATURE_WISH_MAX, err);
    }
    if (rc) *req = (struct score_request){0};
    return rc;
}
