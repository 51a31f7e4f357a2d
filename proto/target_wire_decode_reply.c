/* Replies to steps from protobuf, as target_wire_decode.c does it for steps. */
#include "base/limits.h"
#include "proto/target_wire.h"

#include <assert.h>
#include <math.h>

#include "proto/codec.h"
#include "proto/target.pb-c.h"

enum { ERROR_TEXT_MAX = 4096 };

/* The sizes that the reply to a step is checked against. */
struct vocabulary {
    int n_vocab, n_slices;
};

static int best_decode(const Outrider__Target__V1__SliceRow *msg, struct slice_row *row,
                       struct error *err)
{
    int rc = codec_read_floats(&row->best_logits, &row->n_best, &msg->best_logits,
                               (size_t)row->n_cols, "best_logits", err);
    if (rc) return rc;
    if (msg->best_ids.len != msg->best_logits.len) {
        return error_set(err, ERR_FORMAT, "best_ids has %zu bytes, best_logits %zu",
                         msg->best_ids.len, msg->best_logits.len);
    }
    row->best_ids = row->n_best ? (const int32_t *)(const void *)msg->best_ids.data : NULL;
    for (int i = 0; i < row->n_best; i++) {
        int64_t column = (int64_t)row->best_ids[i] - row->first_id;
        if (column < 0 || column >= row->n_cols) {
            return error_set(err, ERR_FORMAT, "best_ids[%d] is %d, outside of columns %d to %d", i,
                             row->best_ids[i], row->first_id, row->first_id + row->n_cols - 1);
        }
    }
    return 0;
}

static int sums_decode(const Outrider__Target__V1__SliceRow *msg, struct slice_row *row,
                       struct error *err)
{
    int n;
    int rc = codec_read_count(&n, msg->n_sum_exp, ROW_TEMPERATURES_MAX, "sum_exp", err);
    if (rc) return rc;
    for (int i = 0; i < n; i++) {
        row->sum_exp[i] = msg->sum_exp[i];
        if (!(row->sum_exp[i] >= 0 && row->sum_exp[i] < HUGE_VAL)) {
            return error_set(err, ERR_FORMAT, "sum_exp[%d] is %g, must be finite and >= 0", i,
                             row->sum_exp[i]);
        }
    }
    row->max = msg->max;
    if (!(row->max < INFINITY)) {
        return error_set(err, ERR_FORMAT, "max is %g, must be a number or -inf", (double)row->max);
    }
    row->sum_exp_log = msg->sum_exp_log;
    if (!isfinite(row->sum_exp_log)) {
        return error_set(err, ERR_FORMAT, "sum_exp_log is %g, must be finite", row->sum_exp_log);
    }
    return 0;
}

/* If the mass outside is 0, the id has no meaning; it becomes -1, whatever was sent. */
static int outside_decode(const Outrider__Target__V1__SliceRow *msg, struct slice_row *row,
                          struct error *err)
{
    row->outside_sum = msg->outside_sum;
    row->outside_id = msg->outside_sum > 0 ? msg->outside_id : -1;
    if (!(row->outside_sum >= 0 && row->outside_sum < HUGE_VAL)) {
        return error_set(err, ERR_FORMAT, "outside_sum is %g, must be finite and >= 0",
                         row->outside_sum);
    }
    int64_t column = (int64_t)row->outside_id - row->first_id;
    if (row->outside_sum > 0 && (column < 0 || column >= row->n_cols)) {
        return error_set(err, ERR_FORMAT, "outside_id is %d, outside of columns %d to %d",
                         row->outside_id, row->first_id, row->first_id + row->n_cols - 1);
    }
    return 0;
}

/* A logit that comes with an id; it has no meaning when there is no id. */
static int logit_decode(float *out, float logit, bool has_id, const char *field, struct error *err)
{
    *out = has_id ? logit : 0;
    if (!has_id || logit < INFINITY) return 0;
    return error_set(err, ERR_FORMAT, "%s is %g, must be a number or -inf", field, (double)logit);
}

static int noisy_decode(const Outrider__Target__V1__SliceRow *msg, struct slice_row *row,
                        struct error *err)
{
    int column;
    int rc = codec_read_int(&column, msg->noisy_column, 0, row->n_cols, "noisy_column", err);
    if (rc) return rc;
    row->noisy_id = column ? row->first_id + column - 1 : -1;
    return logit_decode(&row->noisy_logit, msg->noisy_logit, column > 0, "noisy_logit", err);
}

static int full_decode(const Outrider__Target__V1__SliceRow *msg, struct slice_row *row,
                       struct error *err)
{
    int n;
    int rc = codec_read_floats(&row->full, &n, &msg->full, (size_t)row->n_cols, "full", err);
    if (!rc && n && n != row->n_cols) {
        rc = error_set(err, ERR_FORMAT, "full has %d entries, the slice has %d columns", n,
                       row->n_cols);
    }
    return rc;
}

/* least: the smallest slice number that still ascends. */
static int slice_decode(const Outrider__Target__V1__SliceRow *msg, const struct vocabulary *vocab,
                        int least, struct slice_row *row, struct error *err)
{
    int rc = 0;
    *row = (struct slice_row){0};
    TRY(codec_read_int(&row->slice, msg->slice, least, vocab->n_slices - 1, "slice", err));
    row_slice_range(vocab->n_vocab, vocab->n_slices, row->slice, &row->first_id, &row->n_cols);
    TRY(best_decode(msg, row, err));
    TRY(codec_read_floats(&row->id_logits, &row->n_ids, &msg->id_logits, WIRE_ROW_IDS_MAX,
                          "id_logits", err));
    TRY(sums_decode(msg, row, err));
    TRY(outside_decode(msg, row, err));
    TRY(logit_decode(&row->outside_logit, msg->outside_logit, row->outside_id >= 0, "outside_logit",
                     err));
    TRY(noisy_decode(msg, row, err));
    TRY(codec_read_floats(&row->buckets, &row->n_buckets, &msg->buckets, ROW_BUCKETS, "buckets",
                          err));
    TRY(full_decode(msg, row, err));
out:
    return rc;
}

static int row_error_decode(const Outrider__Target__V1__RowReply *msg, struct row_reply *row,
                            struct error *err)
{
    if (msg->n_slices) {
        return error_set(err, ERR_FORMAT, "an error and %zu slices, must be one or the other",
                         msg->n_slices);
    }
    row->no_room = msg->no_room;
    return codec_read_string(&row->error_text, NULL, msg->error, ERROR_TEXT_MAX, "error", err);
}

static int row_decode(const Outrider__Target__V1__RowReply *msg, const struct vocabulary *vocab,
                      struct arena *arena, struct row_reply *row, struct error *err)
{
    *row = (struct row_reply){0};
    if (msg->error[0]) return row_error_decode(msg, row, err);
    if (msg->no_room) return error_set(err, ERR_FORMAT, "no_room is set, but error is empty");
    int rc =
        codec_read_count(&row->n_slices, msg->n_slices, (size_t)vocab->n_slices, "slices", err);
    if (rc) return rc;
    struct slice_row *slices = codec_take(arena, msg->n_slices, sizeof *slices, err);
    if (!slices) return err->code;
    row->slices = slices;
    for (int i = 0; i < row->n_slices && !rc; i++) {
        int least = i ? slices[i - 1].slice + 1 : 0;
        rc = slice_decode(msg->slices[i], vocab, least, &slices[i], err);
        if (rc) error_wrap(err, "slice entry %d", i);
    }
    return rc;
}

static int reply_rows_decode(const Outrider__Target__V1__StepReply *msg,
                             const struct vocabulary *vocab, struct arena *arena,
                             struct step_reply *reply, struct error *err)
{
    int rc = codec_read_count(&reply->n_rows, msg->n_rows, WIRE_LANE_TOKENS_MAX, "rows", err);
    if (rc) return rc;
    struct row_reply *rows = codec_take(arena, msg->n_rows, sizeof *rows, err);
    if (!rows) return err->code;
    reply->rows = rows;
    for (int i = 0; i < reply->n_rows && !rc; i++) {
        rc = row_decode(msg->rows[i], vocab, arena, &rows[i], err);
        if (rc) error_wrap(err, "row %d", i);
    }
    return rc;
}

static int step_error_decode(const Outrider__Target__V1__StepError *msg, int least, int *lane,
                             const char **text, struct error *err)
{
    *lane = msg->lane;
    if (msg->lane < least || msg->lane >= WIRE_LANES_MAX) {
        return error_set(err, ERR_FORMAT, "error.lane is %d, must be %d to %d", msg->lane, least,
                         WIRE_LANES_MAX - 1);
    }
    return codec_read_string(text, NULL, msg->text, ERROR_TEXT_MAX, "error.text", err);
}

static int reply_error_decode(const Outrider__Target__V1__StepReply *msg, struct step_reply *reply,
                              struct error *err)
{
    if (msg->n_rows || msg->n_refused || msg->n_features || msg->feature_error[0]) {
        return error_set(
            err, ERR_FORMAT,
            "an error and %zu rows, %zu refused lanes and %zu lanes' features, must be "
            "one or the other",
            msg->n_rows, msg->n_refused, msg->n_features);
    }
    return step_error_decode(msg->error, -1, &reply->error_lane, &reply->error_text, err);
}

/* Lanes ascend, so none is refused twice. */
static int refused_decode(const Outrider__Target__V1__StepReply *msg, struct arena *arena,
                          struct step_reply *reply, struct error *err)
{
    int rc = codec_read_count(&reply->n_refused, msg->n_refused, WIRE_LANES_MAX, "refused", err);
    if (rc) return rc;
    struct lane_refusal *refused = codec_take(arena, msg->n_refused, sizeof *refused, err);
    if (!refused) return err->code;
    reply->refused = refused;
    for (int i = 0, least = 0; i < reply->n_refused && !rc; i++) {
        rc = step_error_decode(msg->refused[i], least, &refused[i].lane, &refused[i].text, err);
        if (!rc) least = refused[i].lane + 1;
    }
    return rc;
}

/* How many elements a lane has depends on the model and on the step, which the caller knows. */
static int reply_features_decode(const Outrider__Target__V1__StepReply *msg, struct arena *arena,
                                 struct step_reply *reply, struct error *err)
{
    size_t left = FEATURE_BYTES_MAX;
    if (msg->feature_error[0] && msg->n_features) {
        return error_set(err, ERR_FORMAT,
                         "feature_error and %zu lanes' features, must be one or the other",
                         msg->n_features);
    }
    if (msg->feature_error[0]) {
        return codec_read_string(&reply->feature_error, NULL, msg->feature_error, ERROR_TEXT_MAX,
                                 "feature_error", err);
    }
    int rc = codec_read_count(&reply->n_features, msg->n_features, WIRE_LANES_MAX, "features", err);
    if (rc) return rc;
    struct lane_features *lanes = codec_take(arena, msg->n_features, sizeof *lanes, err);
    if (!lanes) return err->code;
    reply->features = lanes;
    for (int i = 0; i < reply->n_features; i++) {
        const ProtobufCBinaryData *bytes = &msg->features[i];
        if (bytes->len == 0 || bytes->len % sizeof *lanes->data || bytes->len > left) {
            return error_set(err, ERR_FORMAT,
                             "features %d has %zu bytes, must be of 2 bytes each and %d in all at "
                             "most",
                             i, bytes->len, FEATURE_BYTES_MAX);
        }
        left -= bytes->len;
        lanes[i] = (struct lane_features){(int)(bytes->len / sizeof *lanes->data),
                                          (const uint16_t *)(const void *)bytes->data};
    }
    return 0;
}

int step_reply_decode(const uint8_t *data, size_t len, int n_vocab, int n_slices,
                      struct arena *arena, struct step_reply *reply, struct error *err)
{
    assert(n_vocab > 0 && n_slices > 0 && n_slices <= SLICES_MAX);
    *reply = (struct step_reply){0};
    const struct vocabulary vocab = {n_vocab, n_slices};
    const Outrider__Target__V1__StepReply *msg =
        codec_unpack(&outrider__target__v1__step_reply__descriptor, data, len, arena, err);
    if (!msg) return err->code;
    reply->id = msg->id;
    if (msg->timings) {
        reply->queue_us = msg->timings->queue_us;
        reply->compute_us = msg->timings->compute_us;
        reply->collective_us = msg->timings->collective_us;
        reply->feature_us = msg->timings->feature_us;
    }
    int rc = msg->error ? reply_error_decode(msg, reply, err)
                        : reply_rows_decode(msg, &vocab, arena, reply, err);
    if (!rc) rc = refused_decode(msg, arena, reply, err);
    if (!rc) rc = reply_features_decode(msg, arena, reply, err);
    if (rc) {
        error_wrap(err, "reply to step %llu", (unsigned long long)msg->id);
        *reply = (struct step_reply){0};
    }
    return rc;
}
