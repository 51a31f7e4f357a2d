/* Options that change which tokens may come: penalties, biases, bans, ends. The ranges are those of
 * the codec (proto/generation_wire_edits.c), so that a wrong value is refused with its option's
 * name. */
#include <stdio.h>
#include <string.h>

#include "base/text/options.h"
#include "client/client.h"
#include "client/request_options.h"

enum { ID_BYTES = 16 };
static const float bias_most = 100;

int edit_add_stop(void *options, const char *option, const char *stop, struct error *err)
{
    struct generate_options *o = options;
    if (!*stop) return error_set(err, ERR_ARGUMENT, "%s: the string is empty", option);
    if (o->request.n_stop == GENERATE_STOPS_MAX) {
        return error_set(err, ERR_ARGUMENT, "%s: more than %d strings", option, GENERATE_STOPS_MAX);
    }
    o->stops[o->request.n_stop++] = stop;
    return 0;
}

int edit_add_stop_id(void *options, const char *option, const char *text, struct error *err)
{
    struct generate_options *o = options;
    struct generate_request *req = &o->request;
    if (req->n_stop_ids == GENERATE_STOP_IDS_MAX) {
        return error_set(err, ERR_ARGUMENT, "%s: more than %d ids", option, GENERATE_STOP_IDS_MAX);
    }
    int rc = options_int(&o->stop_ids[req->n_stop_ids], option, text, 0, INT32_MAX, err);
    if (!rc) req->n_stop_ids++;
    return rc;
}

/* ID=X */
int edit_add_bias(void *options, const char *option, const char *text, struct error *err)
{
    struct generate_options *o = options;
    struct generate_request *req = &o->request;
    struct token_bias *bias = &o->biases[req->n_biases];
    char id[ID_BYTES];
    int rc = 0;
    const char *equals = strchr(text, '=');
    if (!equals || equals - text >= ID_BYTES) {
        return error_set(err, ERR_ARGUMENT, "%s: '%.60s' is not ID=X, a token id and a number",
                         option, text);
    }
    if (req->n_biases == GENERATE_BIASES_MAX) {
        return error_set(err, ERR_ARGUMENT, "%s: more than %d tokens", option, GENERATE_BIASES_MAX);
    }
    snprintf(id, sizeof id, "%.*s", (int)(equals - text), text);
    TRY(options_int(&bias->id, option, id, 0, INT32_MAX, err));
    TRY(options_float(&bias->bias, option, equals + 1, -bias_most, bias_most, err));
    for (int i = 0; i < req->n_biases; i++) {
        if (o->biases[i].id != bias->id) continue;
        return error_set(err, ERR_ARGUMENT, "%s: token id %d is given twice", option, bias->id);
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

int edit_add_ban_ids(void *options, const char *option, const char *text, struct error *err)
{
    struct token_ids ids = {0};
    int rc = 0;
    TRY(input_ids(&ids, option, text, err));
    TRY(generate_options_ban(options, option, &ids, err));
out:
    token_ids_free(&ids);
    return rc;
}
