/* Reads a body: the table of OpenAI's fields (those of Outrider alone are in outrider.c), and what
 * is decided when all of them are read. */
#include "coordinator/openai/request/request.h"

#include <ctype.h>
#include <float.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "coordinator/openai/request/fields.h"
#include "coordinator/signals/job_origin.h"

/* ---- prompts ---- */

static int read_prompt(struct reading *r, const json_t *v, struct openai_prompt *prompt)
{
    if (json_is_string(v)) {
        prompt->text = json_string_value(v);
        prompt->len = json_string_length(v);
        return 0;
    }
    if (!json_is_array(v) || !json_array_size(v)) {
        return openai_refuse(r->r, "is %s, must be a text or ids, or a list of these",
                             json_is_array(v) ? "empty" : openai_type_of(v));
    }
    return openai_read_ids(r->r, v, GENERATE_PROMPT_IDS_MAX, &prompt->ids, &prompt->n_ids);
}

static int read_prompts(struct reading *r, const json_t *v)
{
    int rc = 0;
    struct openai_prompt *prompts;
    bool is_list = json_is_array(v) && !json_is_integer(json_array_get(v, 0));
    size_t n = is_list ? json_array_size(v) : 1;
    if (n < 1 || n > OPENAI_PROMPTS_MAX) {
        return openai_refuse(r->r, "has %zu texts, must have 1 to %d", n, OPENAI_PROMPTS_MAX);
    }
    TRY(openai_take(r->r, &prompts, n, sizeof *prompts));
    for (size_t i = 0; i < n; i++) {
        TRY(read_prompt(r, is_list ? json_array_get(v, i) : v, &prompts[i]));
    }
    r->out->n_prompts = (int)n;
    r->out->prompts = prompts;
out:
    return rc;
}

static int read_messages(struct reading *r, const json_t *v)
{
    r->out->messages = (json_t *)(uintptr_t)v;
    return openai_check_messages(r->r, v);
}

static int read_template_values(struct reading *r, const json_t *v)
{
    if (!json_is_object(v)) {
        return openai_refuse(r->r, "is %s, must be an object", openai_type_of(v));
    }
    r->out->template_values = (json_t *)(uintptr_t)v;
    return 0;
}

/* ---- sampling ---- */

/* Clients write "almost 0" for greedy. */
static int read_temperature(struct reading *r, const json_t *v)
{
    float *t = &r->out->generate.sampling.temperature;
    int rc = openai_read_float(r->r, v, 0, (double)SAMPLING_TEMPERATURE_MAX, t);
    if (!rc && *t < SAMPLING_TEMPERATURE_MIN) *t = 0;
    return rc;
}

/* -1 is vLLM's "all". */
static int read_top_k(struct reading *r, const json_t *v)
{
    int k = 0, rc = openai_read_int(r->r, v, -1, INT32_MAX, &k);
    r->out->generate.sampling.top_k = k < 0 ? 0 : k;
    return rc;
}

/* 0 leaves the most probable token, as 1e-9 does. */
static int read_top_p(struct reading *r, const json_t *v)
{
    struct sampling_params *s = &r->out->generate.sampling;
    int rc = openai_read_float(r->r, v, 0, 1, &s->top_p);
    if (!rc && s->top_p == 0) s->top_p = FLT_MIN;
    return rc;
}

/* From 2^63 on it comes as the negative number of the same bits (json_parse_wide). */
static int read_seed(struct reading *r, const json_t *v)
{
    static const char *const range = "must be an integer from -9223372036854775808 to "
                                     "18446744073709551615";
    if (json_is_real(v)) return openai_refuse(r->r, "is %g, %s", json_real_value(v), range);
    if (!json_is_integer(v)) return openai_refuse(r->r, "is %s, %s", openai_type_of(v), range);
    r->out->generate.has_seed = true;
    r->out->generate.seed = (uint64_t)json_integer_value(v);
    return 0;
}

static int read_max_tokens(struct reading *r, const json_t *v)
{
    return openai_read_int(r->r, v, 0, INT32_MAX, &r->max_tokens);
}

static int read_max_completion_tokens(struct reading *r, const json_t *v)
{
    return openai_read_int(r->r, v, 0, INT32_MAX, &r->max_completion_tokens);
}

static int read_n(struct reading *r, const json_t *v)
{
    return openai_read_int(r->r, v, 1, r->limits->n, &r->out->generate.n);
}

/* All n texts are made and returned; choosing among more than n is not offered. */
static int read_best_of(struct reading *r, const json_t *v)
{
    int best_of = 1, rc = openai_read_int(r->r, v, 1, r->limits->n, &best_of);
    const json_t *wanted = json_object_get(r->r->root, "n");
    double n = json_is_number(wanted) ? json_number_value(wanted) : 1;
    if (rc || best_of == n) return rc;
    return openai_refuse(r->r, "is %d, must be n, which is %g", best_of, n);
}

static int read_stop(struct reading *r, const json_t *v)
{
    int rc = 0;
    const char **stops;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > (size_t)r->limits->n_stop) {
        return openai_refuse(
            r->r, "has %zu texts, at most %d are allowed (--max-stops of the coordinator)", n,
            r->limits->n_stop);
    }
    TRY(openai_take(r->r, &stops, n, sizeof *stops));
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_string(one) || !json_string_length(one)) {
            return openai_refuse(r->r, "must be a text that is not empty, or a list of such texts");
        }
        stops[i] = json_string_value(one);
    }
    r->out->generate.stop = stops;
    r->out->generate.n_stop = (int)n;
out:
    return rc;
}

static int read_stop_ids(struct reading *r, const json_t *v)
{
    struct generate_request *g = &r->out->generate;
    return openai_read_ids(r->r, v, GENERATE_STOP_IDS_MAX, &g->stop_ids, &g->n_stop_ids);
}

static int read_bias(struct reading *r, const char *key, const json_t *v, struct token_bias *bias)
{
    char *end;
    long id = strtol(key, &end, 10);
    if (!isdigit((unsigned char)*key) || *end || id > INT32_MAX) { /* no blanks, no sign */
        return openai_refuse(r->r, "has the key \"%.40s\", which is not a token id", key);
    }
    bias->id = (int32_t)id;
    return openai_read_float(r->r, v, -GENERATE_BIAS_MAX, GENERATE_BIAS_MAX, &bias->bias);
}

static int read_logit_bias(struct reading *r, const json_t *v)
{
    int rc = 0, n = 0;
    struct token_bias *biases;
    const char *key;
    json_t *value;
    size_t size = json_object_size(v);
    if (!json_is_object(v)) {
        return openai_refuse(r->r, "is %s, must be an object", openai_type_of(v));
    }
    if (size > GENERATE_BIASES_MAX) {
        return openai_refuse(r->r, "has %zu tokens, at most %d are allowed", size,
                             GENERATE_BIASES_MAX);
    }
    TRY(openai_take(r->r, &biases, size, sizeof *biases));
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        TRY(read_bias(r, key, value, &biases[n++]));
    }
    token_biases_sort(biases, n);
    r->out->generate.biases = biases;
    r->out->generate.n_biases = n;
out:
    return rc;
}

/* ---- log-probabilities ---- */

/* A completion's is the number of alternatives; a chat's says whether there are any. */
static int read_logprobs(struct reading *r, const json_t *v)
{
    int *logprobs = &r->out->generate.logprobs;
    bool wants = false;
    if (r->out->kind == OPENAI_COMPLETION && !json_is_boolean(v)) {
        return openai_read_int(r->r, v, 0, SCORE_TOP_MAX, logprobs);
    }
    int rc = openai_read_bool(r->r, v, &wants);
    if (!rc && wants && *logprobs < 0) *logprobs = 0;
    return rc;
}

static int read_top_logprobs(struct reading *r, const json_t *v)
{
    int n = 0, rc = openai_read_int(r->r, v, 0, SCORE_TOP_MAX, &n);
    bool wants = json_is_true(json_object_get(r->r->root, "logprobs"));
    if (!rc && n && !wants) return openai_refuse(r->r, "needs \"logprobs\": true");
    if (!rc && wants) r->out->generate.logprobs = n;
    return rc;
}

/* ---- the answer's form ---- */

static int read_stream_options(struct reading *r, const json_t *v)
{
    const json_t *usage = json_object_get(v, "include_usage");
    if (!json_is_object(v)) {
        return openai_refuse(r->r, "is %s, must be an object", openai_type_of(v));
    }
    if (!json_is_true(json_object_get(r->r->root, "stream"))) {
        return openai_refuse(r->r, "is allowed only with \"stream\": true");
    }
    r->r->field = "stream_options.include_usage";
    if (!usage || json_is_null(usage)) return 0;
    return openai_read_bool(r->r, usage, &r->out->includes_usage);
}

/* Whose share a request takes. A name in any script is as good as an id: what a log could not show
 * becomes '_'. */
static int read_user(struct reading *r, const json_t *v)
{
    struct job_origin clean = {0};
    if (!json_is_string(v)) return openai_field_string(r, v);
    job_origin_set_request(&clean, json_string_value(v), json_string_length(v));
    size_t size = strlen(clean.request_id) + 1;
    char *name;
    int rc = openai_take(r->r, &name, size, 1);
    if (rc) return rc;
    r->out->generate.client = memcpy(name, clean.request_id, size);
    return 0;
}

static int read_model(struct reading *r, const json_t *v)
{
    const char *name = "";
    int rc = openai_read_string(r->r, v, &name);
    if (rc || strcmp(name, r->limits->model) == 0) return rc;
    r->r->wrong->status = 404;
    snprintf(r->r->wrong->code, sizeof r->r->wrong->code, "model_not_found");
    return openai_refuse(r->r, "\"%.100s\" does not exist; this server has \"%.100s\"", name,
                         r->limits->model);
}

/* ---- what would change the text, and is not there ---- */

/* Takes what is offered to a model that is told not to use it: it asks for nothing but text, and
 * the model does not see it. choice: the field that says so. */
static int read_offered(struct reading *r, const char *choice, const json_t *v)
{
    const char *said = json_string_value(json_object_get(r->r->root, choice));
    if (openai_is_empty(v) || (said && strcmp(said, "none") == 0)) return 0;
    return openai_refuse(r->r,
                         "is not supported by this server; leave it out, or send \"%s\": "
                         "\"none\" for an answer in text",
                         choice);
}

static int read_tools(struct reading *r, const json_t *v)
{
    return read_offered(r, "tool_choice", v);
}

static int read_functions(struct reading *r, const json_t *v)
{
    return read_offered(r, "function_call", v);
}

/* Where there is something to choose from, that is what is not supported. */
static int read_choice(struct reading *r, const char *choice, const char *offered, const json_t *v)
{
    const json_t *offer = json_object_get(r->r->root, offered);
    const char *text = json_string_value(v);
    if (text && (strcmp(text, "none") == 0 || strcmp(text, "auto") == 0)) return 0;
    if (openai_is_empty(v) || !offer || openai_is_empty(offer)) return openai_field_refuse(r, v);
    r->r->field = offered;
    return read_offered(r, choice, offer);
}

static int read_tool_choice(struct reading *r, const json_t *v)
{
    return read_choice(r, "tool_choice", "tools", v);
}

static int read_function_call(struct reading *r, const json_t *v)
{
    return read_choice(r, "function_call", "functions", v);
}

static int read_response_format(struct reading *r, const json_t *v)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    if (type && strcmp(type, "text") == 0) return 0;
    return openai_refuse(r->r, "is not supported but for {\"type\": \"text\"}");
}

static int read_modalities(struct reading *r, const json_t *v)
{
    const char *one = json_string_value(json_array_get(v, 0));
    if (json_array_size(v) == 1 && one && strcmp(one, "text") == 0) return 0;
    return openai_refuse(r->r, "is not supported but for [\"text\"]");
}

/* ---- the table ---- */

#define OWN(member)  offsetof(struct openai_request, generate.member)
#define HERE(member) offsetof(struct openai_request, member)

static const struct field fields[] = {
    {"add_generation_prompt", CHAT, openai_field_bool, HERE(add_generation_prompt), 0, 0},
    {"add_special_tokens", CHAT, openai_field_neutral, 0, 0, 0},
    {"add_special_tokens", COMPLETION, openai_field_not, OWN(adds_no_special), 0, 0},
    {"allowed_token_ids", BOTH, openai_field_refuse, 0, 0, 0},
    {"audio", CHAT, openai_field_refuse, 0, 0, 0},
    {"bad_words", BOTH, openai_field_refuse, 0, 0, 0},
    {"best_of", BOTH, read_best_of, 0, 0, 0},
    {"chat_template", CHAT, openai_field_refuse, 0, 0, 0},
    {"chat_template_kwargs", CHAT, read_template_values, 0, 0, 0},
    {"continue_final_message", CHAT, openai_field_refuse, 0, 0, 0},
    {"documents", CHAT, openai_field_refuse, 0, 0, 0},
    {"dry_multiplier", BOTH, openai_field_neutral, 0, 0, 0},
    {"dynatemp_range", BOTH, openai_field_neutral, 0, 0, 0},
    {"early_stopping", BOTH, openai_field_neutral, 0, 0, 0},
    {"ebnf", BOTH, openai_field_refuse, 0, 0, 0},
    {"echo", CHAT, openai_field_neutral, 0, 0, 0},
    {"echo", COMPLETION, openai_field_bool, OWN(echo), 0, 0},
    {"frequency_penalty", BOTH, openai_field_float, OWN(frequency_penalty), -GENERATE_PENALTY_MAX,
     GENERATE_PENALTY_MAX},
    {"function_call", BOTH, read_function_call, 0, 0, 0},
    {"functions", BOTH, read_functions, 0, 0, 0},
    {"grammar", BOTH, openai_field_refuse, 0, 0, 0},
    {"guided_choice", BOTH, openai_field_refuse, 0, 0, 0},
    {"guided_decoding", BOTH, openai_field_refuse, 0, 0, 0},
    {"guided_grammar", BOTH, openai_field_refuse, 0, 0, 0},
    {"guided_json", BOTH, openai_field_refuse, 0, 0, 0},
    {"guided_regex", BOTH, openai_field_refuse, 0, 0, 0},
    {"ignore_eos", BOTH, openai_field_bool, OWN(ignore_eos), 0, 0},
    {"include_stop_str_in_output", BOTH, openai_field_neutral, 0, 0, 0},
    {"json_schema", BOTH, openai_field_refuse, 0, 0, 0},
    {"length_penalty", BOTH, openai_field_neutral, 0, 1, 1},
    {"logit_bias", BOTH, read_logit_bias, 0, 0, 0},
    {"logits_processor", BOTH, openai_field_refuse, 0, 0, 0},
    {"logits_processors", BOTH, openai_field_refuse, 0, 0, 0},
    {"logprobs", BOTH, read_logprobs, 0, 0, 0},
    {"max_completion_tokens", BOTH, read_max_completion_tokens, 0, 0, 0},
    {"max_tokens", BOTH, read_max_tokens, 0, 0, 0},
    {"messages", CHAT, read_messages, 0, 0, 0},
    {"metadata", BOTH, NULL, 0, 0, 0},
    {"min_p", BOTH, openai_field_float, OWN(sampling.min_p), 0, 1},
    {"min_tokens", BOTH, openai_field_int, OWN(min_tokens), 0, INT32_MAX},
    {"mirostat", BOTH, openai_field_neutral, 0, 0, 0},
    {"modalities", CHAT, read_modalities, 0, 0, 0},
    {"model", BOTH, read_model, 0, 0, 0},
    {"n", BOTH, read_n, 0, 0, 0},
    {"outrider", BOTH, openai_field_outrider, 0, 0, 0},
    {"parallel_tool_calls", CHAT, NULL, 0, 0, 0},
    {"parse_special", CHAT, openai_field_neutral, 0, 1, 1},
    {"parse_special", COMPLETION, openai_field_not, OWN(parses_no_special), 0, 0},
    {"presence_penalty", BOTH, openai_field_float, OWN(presence_penalty), -GENERATE_PENALTY_MAX,
     GENERATE_PENALTY_MAX},
    {"prediction", BOTH, openai_field_prediction, 0, 0, 0},
    {"prompt", COMPLETION, read_prompts, 0, 0, 0},
    {"prompt_embeds", BOTH, openai_field_refuse, 0, 0, 0},
    {"prompt_logprobs", BOTH, openai_field_refuse, 0, 0, 0},
    {"regex", BOTH, openai_field_refuse, 0, 0, 0},
    {"repeat_penalty", BOTH, openai_field_neutral, 0, 1, 1},
    {"repetition_penalty", BOTH, openai_field_float, OWN(repetition_penalty),
     (double)REPETITION_PENALTY_MIN, (double)REPETITION_PENALTY_MAX},
    {"response_format", BOTH, read_response_format, 0, 0, 0},
    {"samplers", BOTH, openai_field_refuse, 0, 0, 0},
    {"seed", BOTH, read_seed, 0, 0, 0},
    {"service_tier", BOTH, NULL, 0, 0, 0},
    {"skip_special_tokens", BOTH, openai_field_not, OWN(shows_special), 0, 0},
    {"spaces_between_special_tokens", BOTH, openai_field_neutral, 0, 1, 1},
    {"stop", BOTH, read_stop, 0, 0, 0},
    {"stop_token_ids", BOTH, read_stop_ids, 0, 0, 0},
    {"store", BOTH, NULL, 0, 0, 0},
    {"stream", BOTH, openai_field_bool, HERE(is_stream), 0, 0},
    {"stream_options", BOTH, read_stream_options, 0, 0, 0},
    {"structural_tag", BOTH, openai_field_refuse, 0, 0, 0},
    {"structured_outputs", BOTH, openai_field_refuse, 0, 0, 0},
    {"suffix", BOTH, openai_field_refuse, 0, 0, 0},
    {"temperature", BOTH, read_temperature, 0, 0, 0},
    {"tfs_z", BOTH, openai_field_neutral, 0, 1, 1},
    {"tool_choice", BOTH, read_tool_choice, 0, 0, 0},
    {"tools", BOTH, read_tools, 0, 0, 0},
    {"top_k", BOTH, read_top_k, 0, 0, 0},
    {"top_logprobs", CHAT, read_top_logprobs, 0, 0, 0},
    {"top_p", BOTH, read_top_p, 0, 0, 0},
    {"truncate_prompt_tokens", BOTH, openai_field_refuse, 0, 0, 0},
    {"typ_p", BOTH, openai_field_neutral, 0, 1, 1},
    {"typical_p", BOTH, openai_field_neutral, 0, 1, 1},
    {"use_beam_search", BOTH, openai_field_neutral, 0, 0, 0},
    {"user", BOTH, read_user, 0, 0, 0},
    {"vllm_xargs", BOTH, openai_field_refuse, 0, 0, 0},
    {"web_search_options", CHAT, openai_field_refuse, 0, 0, 0},
    {"xtc_probability", BOTH, openai_field_neutral, 0, 0, 0},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

/* 0 is a number of tokens here, and "as many as fit" in our own requests, which is the default of a
 * conversation. max_completion_tokens is the newer name. */
static int finish_max_tokens(struct reading *r)
{
    bool is_newer = r->max_completion_tokens >= 0;
    int n = is_newer ? r->max_completion_tokens : r->max_tokens;
    r->r->field = is_newer ? "max_completion_tokens" : "max_tokens";
    r->out->scores_only = n == 0;
    if (n == 0 && r->out->kind == OPENAI_CHAT)
        return openai_refuse(r->r, "is 0, must be at least 1");
    if (n == 0 && !r->out->generate.echo) {
        return openai_refuse(r->r, "is 0, must be at least 1 without \"echo\": true");
    }
    if (n < 0) n = r->out->kind == OPENAI_CHAT ? 0 : OPENAI_COMPLETION_TOKENS;
    r->out->generate.max_tokens = n;
    return 0;
}

/* Checks what must be there, and decides what can be decided only when all has been read. */
static int finish(struct reading *r)
{
    struct openai_request *out = r->out;
    bool is_chat = out->kind == OPENAI_CHAT;
    r->r->field = is_chat ? "messages" : "prompt";
    if (is_chat ? !out->messages : !out->n_prompts) return openai_refuse(r->r, "is missing");
    return finish_max_tokens(r);
}

int openai_request_read(struct openai_request *request, enum openai_kind kind,
                        const struct openai_limits *limits, struct openai_reading *r)
{
    struct reading reading = {
        .r = r, .out = request, .limits = limits, .max_tokens = -1, .max_completion_tokens = -1};
    *request = (struct openai_request){.kind = kind, .add_generation_prompt = true};
    generate_request_init(&request->generate);
    if (!json_is_object(r->root)) {
        return error_set(r->err, ERR_ARGUMENT, "the body is %s, must be an object",
                         openai_type_of(r->root));
    }
    int rc = openai_read_fields(&reading, r->root, fields, N_FIELDS, "");
    return rc ? rc : finish(&reading);
}

int openai_request_blame(struct openai_reading *r, enum openai_kind kind)
{
    char name[OPENAI_PARAM_BYTES / 2], full[OPENAI_PARAM_BYTES];
    size_t len = strspn(r->err->text, "abcdefghijklmnopqrstuvwxyz_");
    if (len >= sizeof name) return r->err->code;
    memcpy(name, r->err->text, len);
    name[len] = 0;
    bool is_own = openai_field_is_outrider(name, kind);
    if (!is_own && !openai_field_find(fields, N_FIELDS, name, kind)) return r->err->code;
    snprintf(full, sizeof full, "%s%s", is_own ? "outrider." : "", name);
    return openai_blame(r, full);
}

int openai_request_check(const struct openai_request *request, struct openai_reading *r)
{
    int rc = generate_request_check(&request->generate, r->err);
    return rc == ERR_FORMAT ? openai_request_blame(r, request->kind) : rc;
}
