/* Parts of the messages of generation.proto that several messages have. */
#include "proto/generation_wire_parts.h"

#include <string.h>

#include "base/text/utf8.h"
#include "proto/codec.h"

/* Encoding refuses text that is not UTF-8 instead of replacing bytes: otherwise the server would
 * answer another question than the one that was asked. */
int text_check(const char *text, size_t len, const char *field, struct error *err)
{
    size_t valid = len ? utf8_prefix(text, len) : 0;
    if (valid < len) {
        return error_set(err, ERR_ARGUMENT, "%s is not UTF-8 text at byte %zu (0x%02x)", field,
                         valid, (unsigned)(uint8_t)text[valid]);
    }
    return 0;
}

Outrider__Generation__V1__TokenIds *token_ids_make(struct arena *scratch, const int32_t *ids, int n)
{
    Outrider__Generation__V1__TokenIds *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__token_ids__init(out);
    out->n_ids = (size_t)n;
    out->ids = codec_lend(ids);
    return out;
}

/* The comparison is not negated, so that NaN fails too. */
int range_check(float value, float min, float max, bool is_min_open, const char *field,
                struct error *err)
{
    if (value >= min && value <= max && !(is_min_open && value == min)) return 0;
    return error_set(err, ERR_FORMAT, "%s is %g, must be %s %g and <= %g", field, (double)value,
                     is_min_open ? ">" : ">=", (double)min, (double)max);
}

int word_decode(const char **out, const char *text, size_t max, const char *field,
                struct error *err)
{
    int rc = codec_read_string(out, NULL, text, max, field, err);
    return rc ? rc : word_check(*out, max, field, err);
}

int token_ids_decode(const Outrider__Generation__V1__TokenIds *msg, const int32_t **ids, int *n,
                     const char *field, struct error *err)
{
    int rc = codec_read_count(n, msg->n_ids, GENERATE_PROMPT_IDS_MAX, field, err);
    if (!rc && !*n) rc = error_set(err, ERR_FORMAT, "%s is empty", field);
    if (!rc) rc = codec_check_ids(msg->ids, msg->n_ids, field, err);
    if (!rc) *ids = msg->ids;
    return rc;
}
