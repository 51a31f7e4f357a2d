/* Options that change which tokens may come: penalties, biases, bans, ends. The ranges are those of
 * the codec (proto/generation_wire_edits.c), so that a wrong value is refused with its option's
 * name. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/options.h"
#include "client/client.h"
#include "client/request_options.h"

enum { ID_BYTES = 16 };
static const float repetition_least = 1e-3f, repetition_most = 10, penalty_most = 2,
                   bias_most = 100;

static int add_stop(struct generate_options *o, const char *stop, struct error *err)
{
    if (!*stop) return error_set(err, ERR_ARGUMENT, "--stop: the string is empty");
    if (o->request.n_stop == GENERATE_STOPS_MAX) {
        return error_set(err, ERR_ARGUMENT, "--stop: more than %d strings", GENERATE_STOPS_MAX);
    }
    o->stops[o->request.n_stop++] = stop;
    return 0;
}

static int add_stop_id(struct generate_options *o, const char *text, struct error *err)
{
    struct generate_request *req = &o->request;
    if (req->n_stop_ids == GENERATE_STOP_IDS_MAX) {
        return error_set(err, ERR_ARGUMENT, "--stop-id: more than %d ids", GENERATE_STOP_IDS_MAX);
    }
    int rc = options_int(&o->stop_ids[req->n_stop_ids], "--stop-id", text, 0, INT32_MAX, err);
    if (!rc) req->n_stop_ids++;
    return rc;
}

/* ID=X */
static int add_bias(struct generate_options *o, const char *text, struct error *err)
{
    struct generate_request *req = &o->request;
    struct token_bias *bias = &o->biases[req->n_biases];
    char id[ID_BYTES];
    int rc = 0;
    const char *equals = strchr(text, '=');
    if (!equals || equals - text >= ID_BYTES) {
        return error_set(err, ERR_ARGUMENT,
                         "--logit-bias: '%.60s' is not ID=X, a token id and a number", text);
    }
    if (req->n_biases == GENERATE_BIASES_MAX) {
        return error_set(err, ERR_ARGUMENT, "--logit-bias: more than %d tokens",
                         GENERATE_BIASES_MAX);
    }
    snprintf(id, sizeof id, "%.*s", (int)(equals - text), text);
    TRY(options_int(&bias->id, "--logit-bias", id, 0, INT32_MAX, err));
    TRY(options_float(&bias->bias, "--logit-bias", equals + 1, -bias_most, bias_most, err));
    for (int i = 0; i < req->n_biases; i++) {
        if (o->biases[i].id != bias->id) continue;
        return error_set(err, ERR_ARGUMENT, "--logit-bias: token id %d is given twice", bias->id);
    }
    req->n_biases++;
out:
    return rc;
}

static bool is_banned(const struct generate_options *o, const struct token_ids *ids)
{
    for (int i = 0; i < o->request.n_bans; i++) {
        bool is_as_long = (size_t)o->bans[i].n == ids->n;
        if (is_as_long && !memcmp(o->ban_ids[i], ids->data, ids->n * sizeof *ids->data))
            return true;
    }
    return false;
}

int generate_options_ban(struct generate_options *o, const char *option,
                         const struct token_ids *ids, struct error *err)
{
    int n = o->request.n_bans;
    if (ids->n > GENERATE_BAN_TOKENS_MAX) {
        return error_set(err, ERR_ARGUMENT, "%s: %zu tokens in a row; at most %d can be banned",
                         option, ids->n, GENERATE_BAN_TOKENS_MAX);
    }
    if (is_banned(o, ids)) return 0;
    if (n == GENERATE_BANS_MAX) {
        return error_set(err, ERR_ARGUMENT, "%s: more than %d banned sequences", option,
                         GENERATE_BANS_MAX);
    }
    memcpy(o->ban_ids[n], ids->data, ids->n * sizeof *ids->data);
    o->bans[n] = (struct token_ban){(int)ids->n, o->ban_ids[n]};
    o->request.n_bans++;
    return 0;
}

static int add_ban_ids(struct generate_options *o, const char *text, struct error *err)
{
    struct token_ids ids = {0};
    int rc = 0;
    TRY(input_ids(&ids, "--ban-ids", text, err));
    TRY(generate_options_ban(o, "--ban-ids", &ids, err));
out:
    token_ids_free(&ids);
    return rc;
}

static error_t parse_penalty(int key, const char *arg, struct generate_parse *p)
{
    struct generate_request *req = &p->options->request;
    switch (key) {
    case OPT_REPETITION:
        return client_parser_result(options_float(&req->repetition_penalty, "--repetition-penalty",
                                                  arg, repetition_least, repetition_most, p->err));
    case OPT_PRESENCE:
        return client_parser_result(options_float(&req->presence_penalty, "--presence-penalty", arg,
                                                  -penalty_most, penalty_most, p->err));
    case OPT_FREQUENCY:
        return client_parser_result(options_float(&req->frequency_penalty, "--frequency-penalty",
                                                  arg, -penalty_most, penalty_most, p->err));
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

error_t edit_options_parse(int key, const char *arg, struct generate_parse *p)
{
    struct generate_options *o = p->options;
    switch (key) {
    case OPT_STOP:
        return client_parser_result(add_stop(o, arg, p->err));
    case OPT_STOP_ID:
        return client_parser_result(add_stop_id(o, arg, p->err));
    case OPT_IGNORE_EOS:
        o->request.ignore_eos = true;
        return 0;
    case OPT_BIAS:
        return client_parser_result(add_bias(o, arg, p->err));
    case OPT_BAN_IDS:
        return client_parser_result(add_ban_ids(o, arg, p->err));
    default:
        return parse_penalty(key, arg, p);
    }
}
