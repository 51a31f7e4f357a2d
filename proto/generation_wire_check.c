/* Checks everything of a request but the range of each number, for gRPC and HTTP alike. */
#include <string.h>

#include "base/limits.h"
#include "proto/generation_wire_parts.h"

enum { STOP_BYTES_MAX = 256, RULE_NAME_BYTES_MAX = 32 };

static int length_check(const char *text, size_t max, const char *field, struct error *err)
{
    size_t n = strlen(text);
    if (n <= max) return 0;
    return error_set(err, ERR_FORMAT, "%s has %zu bytes, at most %zu are taken", field, n, max);
}

int word_check(const char *word, size_t max, const char *field, struct error *err)
{
    int rc = length_check(word, max, field, err);
    for (size_t i = 0; !rc && word[i]; i++) {
        unsigned byte = (uint8_t)word[i];
        if (byte >= 0x20 && byte <= 0x7e) continue;
        rc = error_set(err, ERR_FORMAT, "%s is not printable ASCII at byte %zu (0x%02x)", field, i,
                       byte);
    }
    return rc;
}

static int stops_check(const struct generate_request *req, struct error *err)
{
    int rc = 0;
    for (int i = 0; i < req->n_stop && !rc; i++) {
        rc = length_check(req->stop[i], STOP_BYTES_MAX, "stop", err);
        if (!rc && !*req->stop[i]) {
            rc = error_set(err, ERR_FORMAT, "stop is empty, must have 1 to %d bytes",
                           STOP_BYTES_MAX);
        }
        if (rc) error_wrap(err, "stop string %d", i);
    }
    return rc;
}

int generate_request_check(const struct generate_request *req, struct error *err)
{
    int rc = 0;
    TRY(length_check(req->rule, RULE_NAME_BYTES_MAX, "rule", err));
    TRY(length_check(req->tree_rule, RULE_NAME_BYTES_MAX, "tree_rule", err));
    TRY(stops_check(req, err));
    TRY(word_check(req->request_id, GENERATE_WORD_BYTES_MAX, "request_id", err));
    TRY(word_check(req->client, GENERATE_WORD_BYTES_MAX, "user", err));
    if (req->max_tokens && req->min_tokens > req->max_tokens) {
        rc = error_set(err, ERR_FORMAT, "min_tokens is %d, more than max_tokens, which is %d",
                       req->min_tokens, req->max_tokens);
        goto out;
    }
    for (int i = 1; i < req->n_biases; i++) {
        if (req->biases[i].id > req->biases[i - 1].id) continue;
        rc = error_set(err, ERR_FORMAT, "logit_bias has token id %d twice", req->biases[i].id);
        goto out;
    }
out:
    return rc;
}
