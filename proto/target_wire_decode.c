/* Steps and their replies from protobuf; every field is checked, because the bytes come from a
 * peer. Arrays stay where protobuf-c has put them in the arena; only the structs around them are
 * new. */
#include "base/limits.h"
#include "base/tree_layout.h"
#include "proto/target_wire.h"

#include <assert.h>
#include <math.h>

#include "proto/codec.h"
#include "proto/target.pb-c.h"

enum { ERROR_TEXT_MAX = 4096 };

static int temperatures_decode(const Outrider__Target__V1__RowWish *msg, struct row_wish *wish,
                               struct error *err)
{
    int rc = codec_read_count(&wish->n_temperatures, msg->n_temperatures, ROW_TEMPERATURES_MAX,
                              "temperatures", err);
    if (rc) return rc;
    for (int i = 0; i < wish->n_temperatures; i++) {
        float t = msg->temperatures[i];
        if (!(t > 0 && t < INFINITY)) {
            return error_set(err, ERR_FORMAT, "temperatures[%d] is %g, must be finite and > 0", i,
                             (double)t);
        }
        wish->temperatures[i] = t;
    }
    const char *user = wish->outside      ? "outside"
                       : wish->entropy    ? "entropy"
                       : wish->noisy_best ? "noisy_best"
                       : wish->buckets    ? "buckets"
                                          : NULL;
    if (user && !wish->n_temperatures) {
        return error_set(err, ERR_FORMAT, "%s is wished, but temperatures is empty", user);
    }
    return 0;
}

static int wish_decode(const Outrider__Target__V1__RowWish *msg, struct row_wish *wish,
                       struct error *err)
{
    int rc = 0, buckets;
    *wish = (struct row_wish){
        .noisy_best = msg->noisy_best,
        .has_least = msg->has_least,
        .least = msg->least,
        .entropy = msg->entropy,
        .outside = msg->outside,
        .full = msg->full,
        .ids = msg->ids,
        .at = {.seed = msg->seed, .position = msg->coin_position, .round = msg->coin_round}};
    TRY(codec_read_int(&wish->n_best, msg->n_best, 0, WIRE_ROW_BEST_MAX, "n_best", err));
    TRY(codec_read_count(&wish->n_ids, msg->n_ids, WIRE_ROW_IDS_MAX, "ids", err));
    TRY(codec_check_ids(msg->ids, msg->n_ids, "ids", err));
    if (wish->has_least && !(wish->least < INFINITY)) {
        rc = error_set(err, ERR_FORMAT, "least is %g, must be a number or -inf",
                       (double)wish->least);
        goto out;
    }
    TRY(codec_read_int(&buckets, msg->buckets, 0, ROW_BUCKETS_KINDS - 1, "buckets", err));
    wish->buckets = (enum row_buckets)buckets;
    TRY(temperatures_decode(msg, wish, err));
out:
    return rc;
}

/* The wishes for rows after one of n_tokens tokens. */
static int rows_decode(Outrider__Target__V1__RowWish *const *msgs, size_t n, int n_tokens,
                       struct arena *arena, const struct step_row **out, int *n_out,
                       struct error *err)
{
    int rc = codec_read_count(n_out, n, (size_t)n_tokens, "rows", err);
    if (rc) return rc;
    struct step_row *rows = codec_take(arena, n, sizeof *rows, err);
    if (!rows) return err->code;
    *out = rows;
    for (size_t i = 0; i < n && !rc; i++) {
        rc = codec_read_int(&rows[i].index, msgs[i]->index, 0, n_tokens - 1, "index", err);
        if (!rc) rc = wish_decode(msgs[i], &rows[i].wish, err);
        if (rc) error_wrap(err, "row %zu", i);
    }
    return rc;
}

static int tokens_decode(const Outrider__Target__V1__Lane *msg, struct step_lane *lane,
                         struct error *err)
{
    int rc = 0;
    TRY(codec_read_count(&lane->n_tokens, msg->n_tokens, WIRE_LANE_TOKENS_MAX, "tokens", err));
    TRY(codec_check_ids(msg->tokens, msg->n_tokens, "tokens", err));
    lane->tokens = msg->tokens;
    if (!lane->n_tokens) {
        rc = error_set(err, ERR_FORMAT, "tokens is empty");
        goto out;
    }
    int n_draft_max = msg->n_parents ? TREE_NODES_MAX : DRAFT_MAX;
    if (n_draft_max > lane->n_tokens - 1) n_draft_max = lane->n_tokens - 1;
    TRY(codec_read_int(&lane->n_draft, msg->n_draft, 0, n_draft_max, "n_draft", err));
    TRY(codec_read_int(&lane->position, msg->position, 0, INT32_MAX - lane->n_tokens, "position",
                       err));
out:
    return rc;
}

static int check_blocks(const uint32_t *blocks, size_t n, const char *field, struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (blocks[i] > INT32_MAX) {
            return error_set(err, ERR_FORMAT, "%s[%zu] is %u, must be 0 to %d", field, i, blocks[i],
                             INT32_MAX);
        }
    }
    return 0;
}

static int blocks_decode(const Outrider__Target__V1__Lane *msg, struct step_lane *lane,
                         struct error *err)
{
    int rc = 0;
    TRY(codec_read_count(&lane->n_blocks, msg->n_blocks, WIRE_LANE_TOKENS_MAX, "blocks", err));
    TRY(codec_read_int(&lane->first_block, msg->first_block, 0, INT32_MAX - lane->n_blocks,
                       "first_block", err));
    TRY(check_blocks(msg->blocks, msg->n_blocks, "blocks", err));
    lane->blocks = (const int32_t *)msg->blocks;
out:
    return rc;
}

/* How many blocks the tails of a tree have depends on the length of a block, which the ranks know;
 * here every further path must have one, and no more than it has guesses. */
static int tails_decode(const Outrider__Target__V1__Lane *msg, const struct tree_layout *tree,
                        struct step_lane *lane, struct error *err)
{
    int rc = 0;
    size_t n_further = (size_t)tree->n_paths - 1;
    TRY(codec_read_count(&lane->n_tails, msg->n_tails, n_further * DRAFT_MAX, "tails", err));
    if (msg->n_tails < n_further) {
        rc = error_set(err, ERR_FORMAT, "tails has %zu entries, but the tree has %zu more paths",
                       msg->n_tails, n_further);
        goto out;
    }
    TRY(check_blocks(msg->tails, msg->n_tails, "tails", err));
    lane->tails = msg->n_tails ? (const int32_t *)msg->tails : NULL;
out:
    return rc;
}

static int tree_decode(const Outrider__Target__V1__Lane *msg, struct step_lane *lane,
                       struct error *err)
{
    struct tree_layout tree;
    int rc = 0;
    if (!msg->n_parents) {
        return codec_read_count(&lane->n_tails, msg->n_tails, 0, "tails without parents", err);
    }
    if (msg->n_parents != (size_t)lane->n_draft) {
        return error_set(err, ERR_FORMAT, "parents has %zu entries, but n_draft is %d",
                         msg->n_parents, lane->n_draft);
    }
    TRY(tree_layout_init(&tree, msg->parents, lane->n_draft, err));
    lane->parents = msg->parents;
    TRY(tails_decode(msg, &tree, lane, err));
out:
    return rc;
}

static int lane_features_decode(const Outrider__Target__V1__Lane *msg, bool has_wish,
                                struct step_lane *lane, struct error *err)
{
    int rc = 0;
    TRY(codec_read_int(&lane->feature_first, msg->feature_first, 0, lane->n_tokens - 1,
                       "feature_first", err));
    TRY(codec_read_int(&lane->n_features, msg->n_features, 0, lane->n_tokens - lane->feature_first,
                       "n_features", err));
    if (lane->n_features && !has_wish) {
        rc = error_set(err, ERR_FORMAT, "n_features is %d, but the step names no boundary",
                       lane->n_features);
    }
out:
    return rc;
}

static int lane_decode(const Outrider__Target__V1__Lane *msg, bool has_wish, struct arena *arena,
                       struct step_lane *lane, struct error *err)
{
    int rc = 0;
    *lane = (struct step_lane){0};
    TRY(codec_read_int(&lane->slot, msg->slot, 0, INT32_MAX, "slot", err));
    TRY(tokens_decode(msg, lane, err));
    TRY(blocks_decode(msg, lane, err));
    TRY(tree_decode(msg, lane, err));
    TRY(lane_features_decode(msg, has_wish, lane, err));
    TRY(rows_decode(msg->rows, msg->n_rows, lane->n_tokens, arena, &lane->rows, &lane->n_rows,
                    err));
out:
    return rc;
}

static int lanes_decode(const Outrider__Target__V1__StepRequest *msg, struct arena *arena,
                        struct step *step, struct error *err)
{
    int rc = codec_read_count(&step->n_lanes, msg->n_lanes, WIRE_LANES_MAX, "lanes", err);
    if (rc) return rc;
    struct step_lane *lanes = codec_take(arena, msg->n_lanes, sizeof *lanes, err);
    if (!lanes) return err->code;
    step->lanes = lanes;
    for (int i = 0; i < step->n_lanes && !rc; i++) {
        rc = lane_decode(msg->lanes[i], !feature_wish_is_empty(&step->features), arena, &lanes[i],
                         err);
        if (rc) error_wrap(err, "lane %d", i);
    }
    return rc;
}

static int more_decode(const Outrider__Target__V1__StepRequest *msg, struct arena *arena,
                       struct step *step, struct error *err)
{
    int rc = codec_read_count(&step->n_more, msg->n_more_rows, WIRE_LANES_MAX, "more_rows", err);
    if (rc) return rc;
    struct step_more *more = codec_take(arena, msg->n_more_rows, sizeof *more, err);
    if (!more) return err->code;
    step->more = more;
    for (int i = 0; i < step->n_more && !rc; i++) {
        const Outrider__Target__V1__MoreRows *from = msg->more_rows[i];
        rc = codec_read_int(&more[i].lane, from->lane, 0, WIRE_LANES_MAX - 1, "lane", err);
        if (!rc) {
            rc = rows_decode(from->rows, from->n_rows, WIRE_LANE_TOKENS_MAX, arena, &more[i].rows,
                             &more[i].n_rows, err);
        }
        if (rc) error_wrap(err, "more_rows %d", i);
    }
    return rc;
}

/* The columns that are kept for the wish are at most FEATURE_BOUNDARIES_MAX boundaries. */
static int projection_decode(const Outrider__Target__V1__FeatureProjection *msg, int n_beside,
                             struct feature_projection *projection, struct error *err)
{
    int rc = 0;
    size_t most = (size_t)(FEATURE_BOUNDARIES_MAX - n_beside);
    if (most > FEATURE_WISH_MAX) most = FEATURE_WISH_MAX;
    TRY(codec_read_boundaries(projection->boundaries, &projection->n, msg->boundaries,
                              msg->n_boundaries, most, err));
    TRY(codec_read_int(&projection->key.width, msg->width, 1, PROJECTION_WIDTH_MAX, "width", err));
    projection->normed = msg->normed;
    projection->key.digest = msg->digest;
    if (!msg->digest) {
        rc = error_set(err, ERR_FORMAT, "digest is 0, which no fc has");
    } else if (projection->n == 0 && !msg->normed) {
        rc = error_set(err, ERR_FORMAT, "it reads no feature");
    }
out:
    return rc ? error_wrap(err, "features: projection") : 0;
}

static int features_decode(const Outrider__Target__V1__FeatureWish *msg, struct feature_wish *wish,
                           struct error *err)
{
    int rc = 0;
    TRY(codec_read_features(wish, msg->boundaries, msg->n_boundaries, msg->normed,
                            FEATURE_BOUNDARIES_MAX, err));
    if (msg->projection) TRY(projection_decode(msg->projection, wish->n, &wish->projection, err));
out:
    return rc;
}

int step_decode(const uint8_t *data, size_t len, struct arena *arena, struct step *step,
                struct error *err)
{
    int rc = 0;
    *step = (struct step){0};
    const Outrider__Target__V1__StepRequest *msg =
        codec_unpack(&outrider__target__v1__step_request__descriptor, data, len, arena, err);
    if (!msg) return err->code;
    if (!msg->n_lanes == !msg->n_more_rows) {
        rc = error_set(err, ERR_FORMAT, "%zu lanes and %zu more_rows, must be one or the other",
                       msg->n_lanes, msg->n_more_rows);
        goto out;
    }
    step->id = msg->id;
    if (msg->features) TRY(features_decode(msg->features, &step->features, err));
    if (msg->n_more_rows && !feature_wish_is_empty(&step->features)) {
        rc = error_set(err, ERR_FORMAT, "features are wanted of more_rows, which have none");
        goto out;
    }
    TRY(lanes_decode(msg, arena, step, err));
    TRY(more_decode(msg, arena, step, err));
out:
    if (rc) {
        error_wrap(err, "step %llu", (unsigned long long)msg->id);
        *step = (struct step){0};
    }
    return rc;
}

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
