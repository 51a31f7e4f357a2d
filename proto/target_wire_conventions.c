/* The conventions in a target's folder, beside its weights: the coordinator asks for them when it
 * connects. */
#include "proto/target_wire.h"

#include "base/limits.h"
#include "proto/codec.h"
#include "proto/target.pb-c.h"

typedef Outrider__Target__V1__Conventions conventions_message;
typedef Outrider__Target__V1__SpecialText special_message;

enum { FILE_BYTES_MAX = 4096, NAME_BYTES_MAX = 64, TEXT_BYTES_MAX = 4096, TOP_K_MOST = INT32_MAX };

static bool special_make(conventions_message *out, struct arena *scratch,
                         const struct target_conventions *c)
{
    size_t n = (size_t)c->n_special;
    special_message **list = arena_take(scratch, n, sizeof *list);
    special_message *items = arena_take(scratch, n, sizeof *items);
    if (!list || !items) return false;
    for (size_t i = 0; i < n; i++) {
        outrider__target__v1__special_text__init(&items[i]);
        items[i].name = codec_copy_string(scratch, c->special[i].name);
        items[i].text = codec_copy_string(scratch, c->special[i].text);
        if (!items[i].name || !items[i].text) return false;
        list[i] = &items[i];
    }
    out->n_special = n;
    out->special = list;
    return true;
}

static void sampling_make(conventions_message *out, const struct target_conventions *c)
{
    if (c->temperature != WIRE_OPEN) {
        out->_temperature_case = OUTRIDER__TARGET__V1__CONVENTIONS___TEMPERATURE_TEMPERATURE;
        out->temperature = c->temperature;
    }
    if (c->top_k != WIRE_OPEN) {
        out->_top_k_case = OUTRIDER__TARGET__V1__CONVENTIONS___TOP_K_TOP_K;
        out->top_k = (uint32_t)c->top_k;
    }
    if (c->top_p != WIRE_OPEN) {
        out->_top_p_case = OUTRIDER__TARGET__V1__CONVENTIONS___TOP_P_TOP_P;
        out->top_p = c->top_p;
    }
    if (c->min_p != WIRE_OPEN) {
        out->_min_p_case = OUTRIDER__TARGET__V1__CONVENTIONS___MIN_P_MIN_P;
        out->min_p = c->min_p;
    }
    if (c->repetition_penalty != WIRE_OPEN) {
        out->_repetition_penalty_case =
            OUTRIDER__TARGET__V1__CONVENTIONS___REPETITION_PENALTY_REPETITION_PENALTY;
        out->repetition_penalty = c->repetition_penalty;
    }
}

static const ProtobufCMessage *conventions_build(struct arena *scratch, const void *value)
{
    const struct target_conventions *c = value;
    conventions_message *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__target__v1__conventions__init(out);
    out->template_file = codec_copy_string(scratch, c->template_file);
    out->chat_template = codec_copy_text(scratch, c->chat_template, c->chat_template_len);
    sampling_make(out, c);
    bool is_whole = out->template_file && out->chat_template && special_make(out, scratch, c);
    return is_whole ? &out->base : NULL;
}

int target_conventions_encode(struct buffer *buf, const struct target_conventions *conventions,
                              struct error *err)
{
    return codec_encode(buf, conventions_build, conventions, err);
}

/* The comparison is not negated, so that NaN fails too. */
static int number_decode(float *out, bool is_there, float value, float least, float most,
                         const char *field, struct error *err)
{
    *out = WIRE_OPEN;
    if (!is_there) return 0;
    *out = value;
    if (value >= least && value <= most) return 0;
    return error_set(err, ERR_FORMAT, "%s is %g, must be %g to %g", field, (double)value,
                     (double)least, (double)most);
}

static int sampling_decode(const conventions_message *msg, struct target_conventions *c,
                           struct error *err)
{
    int rc = 0;
    TRY(number_decode(&c->temperature, msg->_temperature_case, msg->temperature, 0, 100,
                      "temperature", err));
    TRY(number_decode(&c->top_p, msg->_top_p_case, msg->top_p, 1e-7f, 1, "top_p", err));
    TRY(number_decode(&c->min_p, msg->_min_p_case, msg->min_p, 0, 1, "min_p", err));
    TRY(number_decode(&c->repetition_penalty, msg->_repetition_penalty_case,
                      msg->repetition_penalty, REPETITION_PENALTY_MIN, REPETITION_PENALTY_MAX,
                      "repetition_penalty", err));
    c->top_k = WIRE_OPEN;
    if (msg->_top_k_case) TRY(codec_read_int(&c->top_k, msg->top_k, 0, TOP_K_MOST, "top_k", err));
out:
    return rc;
}

static int special_decode(const conventions_message *msg, struct arena *arena,
                          struct target_conventions *c, struct error *err)
{
    int rc =
        codec_read_count(&c->n_special, msg->n_special, WIRE_SPECIAL_TEXTS_MAX, "special", err);
    if (rc) return rc;
    struct special_text *special = codec_take(arena, msg->n_special, sizeof *special, err);
    if (!special) return err->code;
    c->special = special;
    for (int i = 0; i < c->n_special && !rc; i++) {
        const special_message *from = msg->special[i];
        rc = codec_read_string(&special[i].name, NULL, from->name, NAME_BYTES_MAX, "name", err);
        if (rc) break;
        rc = codec_read_string(&special[i].text, NULL, from->text, TEXT_BYTES_MAX, "text", err);
    }
    return rc;
}

int target_conventions_decode(const uint8_t *data, size_t len, struct arena *arena,
                              struct target_conventions *conventions, struct error *err)
{
    struct target_conventions *c = conventions;
    int rc = 0;
    *c = (struct target_conventions){0};
    const conventions_message *msg =
        codec_unpack(&outrider__target__v1__conventions__descriptor, data, len, arena, err);
    if (!msg) return err->code;
    TRY(codec_read_string(&c->template_file, NULL, msg->template_file, FILE_BYTES_MAX,
                          "template_file", err));
    TRY(codec_read_string(&c->chat_template, &c->chat_template_len, msg->chat_template,
                          WIRE_TEMPLATE_BYTES_MAX, "chat_template", err));
    TRY(special_decode(msg, arena, c, err));
    TRY(sampling_decode(msg, c, err));
out:
    if (rc) *c = (struct target_conventions){0};
    return rc;
}
