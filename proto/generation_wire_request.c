/* Requests to generate. The bytes may come from anyone, so every field is checked here; the gateway
 * decides whether the values suit the model. */
#include "base/limits.h"
#include "proto/generation_wire.h"

#include <string.h>

#include "base/text/utf8.h"
#include "proto/codec.h"
#include "proto/generation.pb-c.h"
#include "proto/generation_wire_estimates.h"
#include "proto/generation_wire_parts.h"

static Outrider__Generation__V1__Sampling *sampling_make(struct arena *scratch,
                                                         const struct generate_request *req)
{
    Outrider__Generation__V1__Sampling *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__sampling__init(out);
    const struct sampling_params *params = &req->sampling;
    if (params->temperature != GENERATE_OPEN) {
        out->_temperature_case = OUTRIDER__GENERATION__V1__SAMPLING___TEMPERATURE_TEMPERATURE;
        out->temperature = params->temperature;
    }
    if (params->top_k != GENERATE_OPEN) {
        out->_top_k_case = OUTRIDER__GENERATION__V1__SAMPLING___TOP_K_TOP_K;
        out->top_k = (uint32_t)params->top_k;
    }
    if (params->top_p != GENERATE_OPEN) {
        out->_top_p_case = OUTRIDER__GENERATION__V1__SAMPLING___TOP_P_TOP_P;
        out->top_p = params->top_p;
    }
    if (params->min_p != GENERATE_OPEN) {
        out->_min_p_case = OUTRIDER__GENERATION__V1__SAMPLING___MIN_P_MIN_P;
        out->min_p = params->min_p;
    }
    if (req->has_seed) {
        out->_seed_case = OUTRIDER__GENERATION__V1__SAMPLING___SEED_SEED;
        out->seed = req->seed;
    }
    return out;
}

static Outrider__Generation__V1__Speculation *speculation_make(struct arena *scratch,
                                                               const struct generate_request *req)
{
    Outrider__Generation__V1__Speculation *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__speculation__init(out);
    if (req->n_draft >= 0) {
        out->_n_draft_case = OUTRIDER__GENERATION__V1__SPECULATION___N_DRAFT_N_DRAFT;
        out->n_draft = (uint32_t)req->n_draft;
    }
    out->rule = codec_copy_string(scratch, req->rule);
    out->full_rows = req->full_rows;
    out->show_drafts = req->show_drafts;
    out->strategy = (Outrider__Generation__V1__Strategy)req->strategy;
    if (req->has_threshold) {
        out->_threshold_case = OUTRIDER__GENERATION__V1__SPECULATION___THRESHOLD_THRESHOLD;
        out->threshold = req->threshold;
    }
    out->tree_rule = codec_copy_string(scratch, req->tree_rule);
    return out->rule && out->tree_rule ? out : NULL;
}

/* Defaults are left out. */
static void special_make(Outrider__Generation__V1__GenerateRequest *out,
                         const struct generate_request *req)
{
    if (req->adds_no_special) {
        out->_add_special_tokens_case =
            OUTRIDER__GENERATION__V1__GENERATE_REQUEST___ADD_SPECIAL_TOKENS_ADD_SPECIAL_TOKENS;
        out->add_special_tokens = false;
    }
    if (req->parses_no_special) {
        out->_parse_special_case =
            OUTRIDER__GENERATION__V1__GENERATE_REQUEST___PARSE_SPECIAL_PARSE_SPECIAL;
        out->parse_special = false;
    }
    if (req->shows_special) {
        out->_skip_special_tokens_case =
            OUTRIDER__GENERATION__V1__GENERATE_REQUEST___SKIP_SPECIAL_TOKENS_SKIP_SPECIAL_TOKENS;
        out->skip_special_tokens = false;
    }
}

Outrider__Generation__V1__GenerateRequest *request_make(struct arena *scratch,
                                                        const struct generate_request *req)
{
    Outrider__Generation__V1__GenerateRequest *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__generate_request__init(out);
    bool has_input;
    if (req->prompt) {
        out->input_case = OUTRIDER__GENERATION__V1__GENERATE_REQUEST__INPUT_PROMPT;
        out->prompt = codec_copy_text(scratch, req->prompt, req->prompt_len);
        has_input = out->prompt;
    } else if (req->n_messages) {
        out->input_case = OUTRIDER__GENERATION__V1__GENERATE_REQUEST__INPUT_CONVERSATION;
        out->conversation = conversation_make(scratch, req);
        has_input = out->conversation;
    } else {
        out->input_case = OUTRIDER__GENERATION__V1__GENERATE_REQUEST__INPUT_PROMPT_IDS;
        out->prompt_ids = token_ids_make(scratch, req->prompt_ids, req->n_prompt_ids);
        has_input = out->prompt_ids;
    }
    out->max_tokens = (uint32_t)req->max_tokens;
    out->sampling = sampling_make(scratch, req);
    out->speculation = speculation_make(scratch, req);
    out->n_stop = (size_t)req->n_stop;
    out->stop = codec_copy_strings(scratch, req->stop, req->n_stop);
    out->ignore_eos = req->ignore_eos;
    out->request_id = codec_copy_string(scratch, req->request_id);
    out->n = req->n == 1 ? 0 : (uint32_t)req->n;
    out->echo = req->echo;
    out->user = codec_copy_string(scratch, req->client);
    out->timeout_ms = req->timeout_ms;
    out->prediction = codec_copy_text(scratch, req->prediction ? req->prediction : "",
                                      req->prediction ? req->prediction_len : 0);
    out->priority = (Outrider__Generation__V1__Priority)req->job_class;
    special_make(out, req);
    if (req->logprobs >= 0) {
        out->_logprobs_case = OUTRIDER__GENERATION__V1__GENERATE_REQUEST___LOGPROBS_LOGPROBS;
        out->logprobs = (uint32_t)req->logprobs;
    }
    bool is_whole = has_input && out->sampling && out->speculation && out->stop &&
                    out->request_id && out->user && out->prediction &&
                    edits_make(out, scratch, req);
    return is_whole ? out : NULL;
}

static const ProtobufCMessage *request_build(struct arena *scratch, const void *value)
{
    Outrider__Generation__V1__GenerateRequest *out = request_make(scratch, value);
    return out ? &out->base : NULL;
}

int request_check(const struct generate_request *req, struct error *err)
{
    int rc = 0;
    if (req->prompt) TRY(text_check(req->prompt, req->prompt_len, "prompt", err));
    if (req->prediction) TRY(text_check(req->prediction, req->prediction_len, "prediction", err));
    for (int i = 0; i < req->n_messages; i++) {
        const struct chat_message *message = &req->messages[i];
        TRY(text_check(message->role, strlen(message->role), "role", err));
        TRY(text_check(message->content, message->content_len, "content", err));
    }
    for (int i = 0; i < req->n_stop; i++) {
        TRY(text_check(req->stop[i], strlen(req->stop[i]), "stop", err));
    }
out:
    return rc;
}

int generate_request_encode(struct buffer *buf, const struct generate_request *req,
                            struct error *err)
{
    int rc = request_check(req, err);
    return rc ? rc : codec_encode(buf, request_build, req, err);
}

static int sampling_decode(const Outrider__Generation__V1__Sampling *msg,
                           struct generate_request *req, struct error *err)
{
    int rc = 0;
    struct sampling_params *params = &req->sampling;
    if (!msg) return 0;
    if (msg->_temperature_case == OUTRIDER__GENERATION__V1__SAMPLING___TEMPERATURE_TEMPERATURE) {
        params->temperature = msg->temperature;
        TRY(range_check(msg->temperature, 0, SAMPLING_TEMPERATURE_MAX, false, "temperature", err));
    }
    if (msg->_top_k_case == OUTRIDER__GENERATION__V1__SAMPLING___TOP_K_TOP_K) {
        TRY(codec_read_int(&params->top_k, msg->top_k, 0, INT32_MAX, "top_k", err));
    }
    if (msg->_top_p_case == OUTRIDER__GENERATION__V1__SAMPLING___TOP_P_TOP_P) {
        params->top_p = msg->top_p;
        TRY(range_check(msg->top_p, 0, 1, true, "top_p", err));
    }
    if (msg->_min_p_case == OUTRIDER__GENERATION__V1__SAMPLING___MIN_P_MIN_P) {
        params->min_p = msg->min_p;
        TRY(range_check(msg->min_p, 0, 1, false, "min_p", err));
    }
    if (msg->_seed_case == OUTRIDER__GENERATION__V1__SAMPLING___SEED_SEED) {
        req->has_seed = true;
        req->seed = msg->seed;
    }
out:
    return rc;
}

static int speculation_decode(const Outrider__Generation__V1__Speculation *msg,
                              struct generate_request *req, struct error *err)
{
    int rc = 0;
    if (!msg) return 0;
    if (msg->_n_draft_case == OUTRIDER__GENERATION__V1__SPECULATION___N_DRAFT_N_DRAFT) {
        TRY(codec_read_int(&req->n_draft, msg->n_draft, 0, DRAFT_MAX, "n_draft", err));
    }
    TRY(codec_read_string(&req->rule, NULL, msg->rule, INT32_MAX, "rule", err));
    TRY(codec_read_string(&req->tree_rule, NULL, msg->tree_rule, INT32_MAX, "tree_rule", err));
    req->full_rows = msg->full_rows;
    req->show_drafts = msg->show_drafts;
    TRY(strategy_decode(&req->strategy, (int)msg->strategy, err));
    if (msg->_threshold_case == OUTRIDER__GENERATION__V1__SPECULATION___THRESHOLD_THRESHOLD) {
        req->has_threshold = true;
        req->threshold = msg->threshold;
        TRY(range_check(req->threshold, 0, 1, false, "threshold", err));
    }
out:
    return rc;
}

static int stops_decode(const Outrider__Generation__V1__GenerateRequest *msg, struct arena *arena,
                        struct generate_request *req, struct error *err)
{
    int rc = codec_read_count(&req->n_stop, msg->n_stop, GENERATE_STOPS_MAX, "stop", err);
    if (rc) return rc;
    const char **stop = codec_take(arena, msg->n_stop, sizeof *stop, err);
    if (!stop) return err->code;
    req->stop = stop;
    for (int i = 0; i < req->n_stop && !rc; i++) {
        rc = codec_read_string(&stop[i], NULL, msg->stop[i], INT32_MAX, "stop", err);
        if (rc) error_wrap(err, "stop string %d", i);
    }
    return rc;
}

static int prompt_decode(const Outrider__Generation__V1__GenerateRequest *msg, struct arena *arena,
                         struct generate_request *req, struct error *err)
{
    switch (msg->input_case) {
    case OUTRIDER__GENERATION__V1__GENERATE_REQUEST__INPUT_PROMPT:
        return codec_read_string(&req->prompt, &req->prompt_len, msg->prompt,
                                 GENERATE_PROMPT_BYTES_MAX, "prompt", err);
    case OUTRIDER__GENERATION__V1__GENERATE_REQUEST__INPUT_PROMPT_IDS:
        return token_ids_decode(msg->prompt_ids, &req->prompt_ids, &req->n_prompt_ids, "prompt_ids",
                                err);
    case OUTRIDER__GENERATION__V1__GENERATE_REQUEST__INPUT_CONVERSATION:
        return conversation_decode(msg->conversation, arena, req, err);
    default:
        return error_set(err, ERR_FORMAT, "neither prompt nor prompt_ids is set");
    }
}

static const struct sampling_params sampling_open = {GENERATE_OPEN, GENERATE_OPEN, GENERATE_OPEN,
                                                     GENERATE_OPEN};

static void fill_open(struct generate_request *req, const struct sampling_params *from,
                      float repetition_penalty)
{
    struct sampling_params *params = &req->sampling;
    if (params->temperature == GENERATE_OPEN) params->temperature = from->temperature;
    if (params->top_k == GENERATE_OPEN) params->top_k = from->top_k;
    if (params->top_p == GENERATE_OPEN) params->top_p = from->top_p;
    if (params->min_p == GENERATE_OPEN) params->min_p = from->min_p;
    if (req->repetition_penalty == GENERATE_OPEN) req->repetition_penalty = repetition_penalty;
}

void generate_request_settle(struct generate_request *req, const struct sampling_defaults *defaults)
{
    static const struct sampling_params plain = {.temperature = 1, .top_p = 1};
    if (defaults) fill_open(req, &defaults->sampling, defaults->repetition_penalty);
    fill_open(req, &plain, 1);
}

void generate_request_init(struct generate_request *req)
{
    *req = (struct generate_request){
        .sampling = sampling_open,
        .n_draft = -1,
        .rule = "",
        .tree_rule = "",
        .request_id = "",
        .n = 1,
        .logprobs = -1,
        .repetition_penalty = GENERATE_OPEN,
        .client = "",
    };
}

static void special_decode(const Outrider__Generation__V1__GenerateRequest *msg,
                           struct generate_request *req)
{
    req->adds_no_special = msg->_add_special_tokens_case && !msg->add_special_tokens;
    req->parses_no_special = msg->_parse_special_case && !msg->parse_special;
    req->shows_special = msg->_skip_special_tokens_case && !msg->skip_special_tokens;
}

/* How many texts are wanted, whose they are, and when. */
static int service_decode(const Outrider__Generation__V1__GenerateRequest *msg,
                          struct generate_request *req, struct error *err)
{
    int rc = 0;
    TRY(codec_read_int(&req->n, msg->n ? msg->n : 1, 1, GENERATE_SEQUENCES_MAX, "n", err));
    if (msg->_logprobs_case == OUTRIDER__GENERATION__V1__GENERATE_REQUEST___LOGPROBS_LOGPROBS) {
        TRY(codec_read_int(&req->logprobs, msg->logprobs, 0, SCORE_TOP_MAX, "logprobs", err));
    }
    TRY(codec_read_string(&req->request_id, NULL, msg->request_id, INT32_MAX, "request_id", err));
    TRY(codec_read_string(&req->client, NULL, msg->user, INT32_MAX, "user", err));
    int job_class = (int)msg->priority;
    if (job_class < 0 || job_class >= JOB_CLASSES) {
        rc = error_set(err, ERR_FORMAT, "priority is %d, must be 0 to %d", job_class,
                       JOB_CLASSES - 1);
        goto out;
    }
    req->job_class = (enum job_class)job_class;
    req->timeout_ms = msg->timeout_ms;
    req->ignore_eos = msg->ignore_eos;
    req->echo = msg->echo;
out:
    return rc;
}

int request_read(const Outrider__Generation__V1__GenerateRequest *msg, struct arena *arena,
                 struct generate_request *req, struct error *err)
{
    int rc = 0;
    generate_request_init(req);
    TRY(prompt_decode(msg, arena, req, err));
    TRY(codec_read_int(&req->max_tokens, msg->max_tokens, 0, INT32_MAX, "max_tokens", err));
    TRY(sampling_decode(msg->sampling, req, err));
    TRY(speculation_decode(msg->speculation, req, err));
    TRY(stops_decode(msg, arena, req, err));
    TRY(service_decode(msg, req, err));
    TRY(edits_decode(msg, arena, req, err));
    special_decode(msg, req);
    TRY(codec_read_string(&req->prediction, &req->prediction_len, msg->prediction,
                          GENERATE_PROMPT_BYTES_MAX, "prediction", err));
    rc = generate_request_check(req, err);
out:
    if (rc) *req = (struct generate_request){0};
    return rc;
}

int generate_request_decode(const uint8_t *data, size_t len, struct arena *arena,
                            struct generate_request *req, struct error *err)
{
    *req = (struct generate_request){0};
    const Outrider__Generation__V1__GenerateRequest *msg = codec_unpack_strict(
        &outrider__generation__v1__generate_request__descriptor, data, len, arena, err);
    return msg ? request_read(msg, arena, req, err) : err->code;
}
