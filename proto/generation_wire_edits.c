/* The part of a request that changes which tokens may come: penalties, biases, banned sequences,
 * and when the text may end. */
#include "proto/generation_wire.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "proto/codec.h"
#include "proto/generation_wire_parts.h"

typedef Outrider__Generation__V1__GenerateRequest__LogitBiasEntry bias_entry;

static bool biases_make(Outrider__Generation__V1__GenerateRequest *out, struct arena *scratch,
                        const struct generate_request *req)
{
    size_t n = (size_t)req->n_biases;
    bias_entry **list = arena_take(scratch, n, sizeof *list);
    bias_entry *items = arena_take(scratch, n, sizeof *items);
    if (!list || !items) return false;
    for (size_t i = 0; i < n; i++) {
        outrider__generation__v1__generate_request__logit_bias_entry__init(&items[i]);
        items[i].key = req->biases[i].id;
        items[i].value = req->biases[i].bias;
        list[i] = &items[i];
    }
    out->n_logit_bias = n;
    out->logit_bias = list;
    return true;
}

static bool bans_make(Outrider__Generation__V1__GenerateRequest *out, struct arena *scratch,
                      const struct generate_request *req)
{
    size_t n = (size_t)req->n_bans;
    Outrider__Generation__V1__TokenIds **list = arena_take(scratch, n, sizeof *list);
    if (!list) return false;
    for (size_t i = 0; i < n; i++) {
        list[i] = token_ids_make(scratch, req->bans[i].ids, req->bans[i].n);
        if (!list[i]) return false;
    }
    out->n_bad_words = n;
    out->bad_words = list;
    return true;
}

bool edits_make(Outrider__Generation__V1__GenerateRequest *out, struct arena *scratch,
                const struct generate_request *req)
{
    out->min_tokens = (uint32_t)req->min_tokens;
    if (req->repetition_penalty != GENERATE_OPEN) {
        out->_repetition_penalty_case =
            OUTRIDER__GENERATION__V1__GENERATE_REQUEST___REPETITION_PENALTY_REPETITION_PENALTY;
        out->repetition_penalty = req->repetition_penalty;
    }
    out->presence_penalty = req->presence_penalty;
    out->frequency_penalty = req->frequency_penalty;
    out->n_stop_token_ids = (size_t)req->n_stop_ids;
    out->stop_token_ids = codec_lend(req->stop_ids);
    return biases_make(out, scratch, req) && bans_make(out, scratch, req);
}

static int penalties_decode(const Outrider__Generation__V1__GenerateRequest *msg,
                            struct generate_request *req, struct error *err)
{
    int rc = 0;
    if (msg->_repetition_penalty_case ==
        OUTRIDER__GENERATION__V1__GENERATE_REQUEST___REPETITION_PENALTY_REPETITION_PENALTY) {
        req->repetition_penalty = msg->repetition_penalty;
        TRY(range_check(req->repetition_penalty, REPETITION_PENALTY_MIN, REPETITION_PENALTY_MAX,
                        false, "repetition_penalty", err));
    }
    req->presence_penalty = msg->presence_penalty;
    req->frequency_penalty = msg->frequency_penalty;
    TRY(range_check(req->presence_penalty, -GENERATE_PENALTY_MAX, GENERATE_PENALTY_MAX, false,
                    "presence_penalty", err));
    TRY(range_check(req->frequency_penalty, -GENERATE_PENALTY_MAX, GENERATE_PENALTY_MAX, false,
                    "frequency_penalty", err));
out:
    return rc;
}

static int compare_biases(const void *a, const void *b)
{
    int32_t x = ((const struct token_bias *)a)->id, y = ((const struct token_bias *)b)->id;
    return (x > y) - (x < y);
}

void token_biases_sort(struct token_bias *biases, int n)
{
    if (n > 1) qsort(biases, (size_t)n, sizeof *biases, compare_biases);
}

static int biases_decode(const Outrider__Generation__V1__GenerateRequest *msg, struct arena *arena,
                         struct generate_request *req, struct error *err)
{
    int rc = 0;
    size_t n = msg->n_logit_bias;
    TRY(codec_read_count(&req->n_biases, n, GENERATE_BIASES_MAX, "logit_bias", err));
    if (!n) return 0;
    struct token_bias *out = codec_take(arena, n, sizeof *out, err);
    if (!out) return err->code;
    req->biases = out;
    for (size_t i = 0; i < n; i++) {
        out[i] = (struct token_bias){msg->logit_bias[i]->key, msg->logit_bias[i]->value};
        TRY(codec_check_ids(&out[i].id, 1, "logit_bias", err));
        TRY(range_check(out[i].bias, -GENERATE_BIAS_MAX, GENERATE_BIAS_MAX, false, "logit_bias",
                        err));
    }
    token_biases_sort(out, (int)n);
out:
    return rc;
}

static int bans_decode(const Outrider__Generation__V1__GenerateRequest *msg, struct arena *arena,
                       struct generate_request *req, struct error *err)
{
    int rc = 0;
    size_t n = msg->n_bad_words;
    TRY(codec_read_count(&req->n_bans, n, GENERATE_BANS_MAX, "bad_words", err));
    if (!n) return 0;
    struct token_ban *out = codec_take(arena, n, sizeof *out, err);
    if (!out) return err->code;
    req->bans = out;
    for (size_t i = 0; i < n && !rc; i++) {
        out[i] = (struct token_ban){0};
        rc = token_ids_decode(msg->bad_words[i], &out[i].ids, &out[i].n, "bad_words", err);
        if (!rc && out[i].n > GENERATE_BAN_TOKENS_MAX) {
            rc = error_set(err, ERR_FORMAT, "bad_words has %d tokens, must have 1 to %d", out[i].n,
                           GENERATE_BAN_TOKENS_MAX);
        }
        if (rc) error_wrap(err, "banned sequence %zu", i);
    }
out:
    return rc;
}

int edits_decode(const Outrider__Generation__V1__GenerateRequest *msg, struct arena *arena,
                 struct generate_request *req, struct error *err)
{
    int rc = 0;
    TRY(codec_read_int(&req->min_tokens, msg->min_tokens, 0, INT32_MAX, "min_tokens", err));
    TRY(penalties_decode(msg, req, err));
    TRY(biases_decode(msg, arena, req, err));
    TRY(bans_decode(msg, arena, req, err));
    TRY(codec_read_count(&req->n_stop_ids, msg->n_stop_token_ids, GENERATE_STOP_IDS_MAX,
                         "stop_token_ids", err));
    TRY(codec_check_ids(msg->stop_token_ids, msg->n_stop_token_ids, "stop_token_ids", err));
    req->stop_ids = req->n_stop_ids ? msg->stop_token_ids : NULL;
out:
    return rc;
}
