/* Steps and their replies as protobuf. This runs once per round and rank, so arrays are lent to
 * protobuf-c, structs are made in the buffer's far half, and nothing is allocated once the buffer
 * has grown. */
#include "proto/target_wire.h"

#include "proto/codec.h"
#include "proto/target.pb-c.h"

static void wish_fill(Outrider__Target__V1__RowWish *out, const struct step_row *row)
{
    const struct row_wish *wish = &row->wish;
    outrider__target__v1__row_wish__init(out);
    out->index = (uint32_t)row->index;
    out->n_best = (uint32_t)wish->n_best;
    out->noisy_best = wish->noisy_best;
    out->has_least = wish->has_least;
    out->least = wish->least;
    out->buckets = (uint32_t)wish->buckets;
    out->n_ids = (size_t)wish->n_ids;
    out->ids = codec_lend(wish->ids);
    out->n_temperatures = (size_t)wish->n_temperatures;
    out->temperatures = codec_lend(wish->temperatures);
    out->entropy = wish->entropy;
    out->outside = wish->outside;
    out->full = wish->full;
    out->seed = wish->at.seed;
    out->coin_position = wish->at.position;
    out->coin_round = wish->at.round;
}

static Outrider__Target__V1__RowWish **wishes_make(struct arena *scratch,
                                                   const struct step_row *rows, int n_rows)
{
    Outrider__Target__V1__RowWish **list = arena_take(scratch, (size_t)n_rows, sizeof *list);
    Outrider__Target__V1__RowWish *items = arena_take(scratch, (size_t)n_rows, sizeof *items);
    if (!list || !items) return NULL;
    for (int i = 0; i < n_rows; i++) {
        wish_fill(&items[i], &rows[i]);
        list[i] = &items[i];
    }
    return list;
}

static Outrider__Target__V1__Lane **lanes_make(struct arena *scratch, const struct step *step)
{
    Outrider__Target__V1__Lane **list = arena_take(scratch, (size_t)step->n_lanes, sizeof *list);
    Outrider__Target__V1__Lane *items = arena_take(scratch, (size_t)step->n_lanes, sizeof *items);
    if (!list || !items) return NULL;
    for (int i = 0; i < step->n_lanes; i++) {
        const struct step_lane *lane = &step->lanes[i];
        Outrider__Target__V1__Lane *out = list[i] = &items[i];
        outrider__target__v1__lane__init(out);
        out->slot = (uint32_t)lane->slot;
        out->position = (uint32_t)lane->position;
        out->n_tokens = (size_t)lane->n_tokens;
        out->tokens = codec_lend(lane->tokens);
        out->n_draft = (uint32_t)lane->n_draft;
        out->first_block = (uint32_t)lane->first_block;
        out->n_blocks = (size_t)lane->n_blocks;
        out->blocks = codec_lend(lane->blocks); /* int32_t as uint32_t, the same bits */
        out->n_parents = lane->parents ? (size_t)lane->n_draft : 0;
        out->parents = codec_lend(lane->parents);
        out->n_tails = (size_t)lane->n_tails;
        out->tails = codec_lend(lane->tails);
        out->n_rows = (size_t)lane->n_rows;
        out->feature_first = (uint32_t)lane->feature_first;
        out->n_features = (uint32_t)lane->n_features;
        out->rows = wishes_make(scratch, lane->rows, lane->n_rows);
        if (!out->rows) return NULL;
    }
    return list;
}

static Outrider__Target__V1__FeatureProjection *
projection_make(struct arena *scratch, const struct feature_projection *projection)
{
    Outrider__Target__V1__FeatureProjection *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__target__v1__feature_projection__init(out);
    out->digest = projection->key.digest;
    out->width = (uint32_t)projection->key.width;
    out->n_boundaries = (size_t)projection->n;
    out->boundaries = codec_lend(projection->boundaries);
    out->normed = projection->normed;
    return out;
}

static Outrider__Target__V1__FeatureWish *features_make(struct arena *scratch,
                                                        const struct feature_wish *wish)
{
    Outrider__Target__V1__FeatureWish *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__target__v1__feature_wish__init(out);
    out->n_boundaries = (size_t)wish->n;
    out->boundaries = codec_lend(wish->boundaries); /* int as uint32_t, the same bits */
    out->normed = wish->normed;
    if (wish->projection.key.digest) {
        out->projection = projection_make(scratch, &wish->projection);
        if (!out->projection) return NULL;
    }
    return out;
}

static Outrider__Target__V1__MoreRows **more_make(struct arena *scratch, const struct step *step)
{
    Outrider__Target__V1__MoreRows **list = arena_take(scratch, (size_t)step->n_more, sizeof *list);
    Outrider__Target__V1__MoreRows *items =
        arena_take(scratch, (size_t)step->n_more, sizeof *items);
    if (!list || !items) return NULL;
    for (int i = 0; i < step->n_more; i++) {
        const struct step_more *more = &step->more[i];
        Outrider__Target__V1__MoreRows *out = list[i] = &items[i];
        outrider__target__v1__more_rows__init(out);
        out->lane = (uint32_t)more->lane;
        out->n_rows = (size_t)more->n_rows;
        out->rows = wishes_make(scratch, more->rows, more->n_rows);
        if (!out->rows) return NULL;
    }
    return list;
}

static const ProtobufCMessage *step_build(struct arena *scratch, const void *value)
{
    const struct step *step = value;
    Outrider__Target__V1__StepRequest *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__target__v1__step_request__init(out);
    out->id = step->id;
    out->n_lanes = (size_t)step->n_lanes;
    out->lanes = lanes_make(scratch, step);
    out->n_more_rows = (size_t)step->n_more;
    out->more_rows = more_make(scratch, step);
    bool has_features = !feature_wish_is_empty(&step->features);
    if (has_features) out->features = features_make(scratch, &step->features);
    if (has_features && !out->features) return NULL;
    return out->lanes && out->more_rows ? &out->base : NULL;
}

int step_encode(struct buffer *buf, const struct step *step, struct error *err)
{
    return codec_encode(buf, step_build, step, err);
}

static ProtobufCBinaryData bytes_lend(const void *array, int n, size_t size)
{
    return (ProtobufCBinaryData){.len = array ? (size_t)n * size : 0, .data = codec_lend(array)};
}

/* Sums that were not asked for are zero; those at the end are not sent. */
static size_t sums_count(const struct slice_row *slice)
{
    size_t n = ROW_TEMPERATURES_MAX;
    while (n && slice->sum_exp[n - 1] == 0) {
        n--;
    }
    return n;
}

static void slice_fill(Outrider__Target__V1__SliceRow *out, const struct slice_row *slice)
{
    outrider__target__v1__slice_row__init(out);
    out->slice = (uint32_t)slice->slice;
    out->best_ids = bytes_lend(slice->best_ids, slice->n_best, sizeof *slice->best_ids);
    out->best_logits = bytes_lend(slice->best_logits, slice->n_best, sizeof *slice->best_logits);
    out->id_logits = bytes_lend(slice->id_logits, slice->n_ids, sizeof *slice->id_logits);
    out->max = slice->max;
    out->n_sum_exp = sums_count(slice);
    out->sum_exp = codec_lend(slice->sum_exp);
    out->sum_exp_log = slice->sum_exp_log;
    out->outside_sum = slice->outside_sum;
    out->outside_id = slice->outside_id;
    out->outside_logit = slice->outside_logit;
    int32_t noisy_column = slice->noisy_id - slice->first_id;
    out->noisy_column = noisy_column >= 0 ? (uint32_t)noisy_column + 1 : 0;
    out->noisy_logit = slice->noisy_logit;
    out->buckets = bytes_lend(slice->buckets, slice->n_buckets, sizeof *slice->buckets);
    out->full = bytes_lend(slice->full, slice->n_cols, sizeof *slice->full);
}

static Outrider__Target__V1__SliceRow **slices_make(struct arena *scratch,
                                                    const struct row_reply *row)
{
    Outrider__Target__V1__SliceRow **list =
        arena_take(scratch, (size_t)row->n_slices, sizeof *list);
    Outrider__Target__V1__SliceRow *items =
        arena_take(scratch, (size_t)row->n_slices, sizeof *items);
    if (!list || !items) return NULL;
    for (int i = 0; i < row->n_slices; i++) {
        slice_fill(&items[i], &row->slices[i]);
        list[i] = &items[i];
    }
    return list;
}

/* False: scratch is full. */
static bool row_fill(struct arena *scratch, Outrider__Target__V1__RowReply *out,
                     const struct row_reply *row)
{
    outrider__target__v1__row_reply__init(out);
    if (row->error_text) {
        out->error = codec_copy_string(scratch, row->error_text);
        out->no_room = row->no_room;
        return out->error != NULL;
    }
    out->n_slices = (size_t)row->n_slices;
    out->slices = slices_make(scratch, row);
    return out->slices != NULL;
}

static Outrider__Target__V1__RowReply **rows_make(struct arena *scratch,
                                                  const struct step_reply *reply)
{
    size_t n_rows = (size_t)reply->n_rows;
    Outrider__Target__V1__RowReply **list = arena_take(scratch, n_rows, sizeof *list);
    Outrider__Target__V1__RowReply *items = arena_take(scratch, n_rows, sizeof *items);
    if (!list || !items) return NULL;
    for (size_t i = 0; i < n_rows; i++) {
        if (!row_fill(scratch, &items[i], &reply->rows[i])) return NULL;
        list[i] = &items[i];
    }
    return list;
}

static Outrider__Target__V1__Timings *timings_make(struct arena *scratch,
                                                   const struct step_reply *reply)
{
    Outrider__Target__V1__Timings *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__target__v1__timings__init(out);
    out->queue_us = reply->queue_us;
    out->compute_us = reply->compute_us;
    out->collective_us = reply->collective_us;
    out->feature_us = reply->feature_us;
    return out;
}

static Outrider__Target__V1__StepError *step_error_make(struct arena *scratch, int lane,
                                                        const char *text)
{
    Outrider__Target__V1__StepError *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__target__v1__step_error__init(out);
    out->lane = lane;
    out->text = codec_copy_string(scratch, text);
    return out->text ? out : NULL;
}

static Outrider__Target__V1__StepError **refused_make(struct arena *scratch,
                                                      const struct step_reply *reply)
{
    size_t n = (size_t)reply->n_refused;
    Outrider__Target__V1__StepError **list = arena_take(scratch, n, sizeof *list);
    for (size_t i = 0; list && i < n; i++) {
        list[i] = step_error_make(scratch, reply->refused[i].lane, reply->refused[i].text);
        if (!list[i]) return NULL;
    }
    return list;
}

static ProtobufCBinaryData *lanes_features_make(struct arena *scratch,
                                                const struct step_reply *reply)
{
    ProtobufCBinaryData *list = arena_take(scratch, (size_t)reply->n_features, sizeof *list);
    for (int i = 0; list && i < reply->n_features; i++) {
        const struct lane_features *lane = &reply->features[i];
        list[i] = bytes_lend(lane->data, lane->n, sizeof *lane->data);
    }
    return list;
}

static const ProtobufCMessage *step_reply_build(struct arena *scratch, const void *value)
{
    const struct step_reply *reply = value;
    Outrider__Target__V1__StepReply *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__target__v1__step_reply__init(out);
    out->id = reply->id;
    out->timings = timings_make(scratch, reply);
    if (reply->error_text) {
        out->error = step_error_make(scratch, reply->error_lane, reply->error_text);
        return out->timings && out->error ? &out->base : NULL;
    }
    out->n_rows = (size_t)reply->n_rows;
    out->rows = rows_make(scratch, reply);
    out->n_refused = (size_t)reply->n_refused;
    out->refused = refused_make(scratch, reply);
    out->n_features = (size_t)reply->n_features;
    out->features = lanes_features_make(scratch, reply);
    if (reply->feature_error) {
        out->feature_error = codec_copy_string(scratch, reply->feature_error);
        if (!out->feature_error) return NULL;
    }
    return out->timings && out->rows && out->refused && out->features ? &out->base : NULL;
}

int step_reply_encode(struct buffer *buf, const struct step_reply *reply, struct error *err)
{
    return codec_encode(buf, step_reply_build, reply, err);
}
