/* Checks a step, runs it, and answers its rows. */
#include "worker/verifier.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "worker/slots.h"
#include "worker/step_features.h"

enum { REPLY_ARENA_BYTES = 8 << 20, ERROR_BYTES = ERROR_TEXT_BYTES, REFUSAL_BYTES = 256 };

struct verifier {
    struct verifier_options options;
    struct model *model;
    const struct model_config *cfg;
    int context_limit;
    struct slots slots;
    uint64_t last_id;

    struct forward_lane *lanes;      /* [n_slots] */
    struct shaped_lane *shaped;      /* [n_slots] what `lanes` are made of */
    struct forward_tree *trees;      /* [n_slots] of those lanes that have one */
    struct forward_row *rows;        /* [max_step_rows] of the last step */
    int *lane_first_row;             /* [n_slots + 1] of the last step: lane -> its first row */
    int n_lanes;                     /* of the last step, with those that were refused */
    bool *slot_taken;                /* [n_slots] scratch of the check */
    struct lane_refusal *refused;    /* [n_slots] of the last step, ascending */
    int n_refused, n_tokens, n_rows; /* of the step that is being checked */
    char (*refusal_texts)[REFUSAL_BYTES]; /* [n_slots] */
    struct step_features features;

    struct arena arena;
    struct row_query *queries; /* [max_step_rows] */
    struct row_reply *replies; /* [max_step_rows] */
    char error_text[ERROR_BYTES];
};

static int open_lists(struct verifier *v, struct error *err)
{
    int rc = 0;
    size_t n = (size_t)v->options.n_slots;
    TRY(step_features_open(&v->features, v->options.n_slots, err));
    TRY(mem_array(&v->refused, n, sizeof *v->refused, err));
    TRY(mem_array(&v->refusal_texts, n, sizeof *v->refusal_texts, err));
    TRY(mem_array(&v->lanes, n, sizeof *v->lanes, err));
    TRY(mem_array(&v->shaped, n, sizeof *v->shaped, err));
    TRY(mem_array(&v->trees, n, sizeof *v->trees, err));
    TRY(mem_array(&v->lane_first_row, n + 1, sizeof *v->lane_first_row, err));
    TRY(mem_array(&v->slot_taken, n, sizeof *v->slot_taken, err));
    TRY(mem_array(&v->rows, (size_t)v->options.max_step_rows, sizeof *v->rows, err));
    TRY(mem_array(&v->queries, (size_t)v->options.max_step_rows, sizeof *v->queries, err));
    TRY(mem_array(&v->replies, (size_t)v->options.max_step_rows, sizeof *v->replies, err));
out:
    return rc;
}

/* Room for the worst case, in which every slice of every row is wanted in full as a list of its
 * best columns (24 bytes per column while the list is made), plus the other lists, and as many
 * features as a reply holds. Pages that are not used are not touched. */
static size_t reply_arena_bytes(const struct verifier *v)
{
    const struct shard *shard = model_shard(v->model);
    size_t row = (size_t)shard->n_local * (size_t)shard->vocab_slice * sizeof(float) * 6;
    return (size_t)v->options.max_step_rows * (row + 65536) + FEATURE_BYTES_MAX + REPLY_ARENA_BYTES;
}

static int n_look_ahead(const struct verifier_options *options)
{
    return options->look_ahead ? options->look_ahead->n : 0;
}

static int open_slots(struct verifier *v, int n_blocks, struct error *err)
{
    int table_len = (v->context_limit + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    return slots_open(&v->slots, v->options.n_slots, n_blocks, table_len, config_window(v->cfg),
                      err);
}

int verifier_open_kv(struct verifier *v, int n_blocks, struct error *err)
{
    int rc = model_open_kv(v->model, n_blocks, err);
    return rc ? rc : open_slots(v, n_blocks, err);
}

int verifier_open(struct verifier **verifier, const struct checkpoint *ck, struct comm *comm,
                  struct backend *be, const struct verifier_options *options, struct error *err)
{
    int rc = 0;
    struct verifier *v = NULL;
    const struct model_options model_options = {
        .n_kv_blocks = options->n_kv_blocks,
        .max_tokens = options->max_step_tokens,
        .max_rows = options->max_step_rows,
        .max_lanes = options->n_slots,
        .n_vocab = options->n_vocab,
        .witnessed = options->witnessed,
        .projection = options->projection,
        .look_ahead = n_look_ahead(options) ? &options->look_ahead->rows : NULL,
    };
    *verifier = NULL;
    TRY(mem_array(&v, 1, sizeof *v, err));
    v->options = *options;
    v->cfg = checkpoint_config(ck);
    v->context_limit = v->cfg->max_positions;
    if (options->n_kv_blocks > 0) TRY(open_slots(v, options->n_kv_blocks, err));
    TRY(open_lists(v, err));
    TRY(model_open(&v->model, ck, comm, be, &model_options, err));
    TRY(arena_open(&v->arena, reply_arena_bytes(v), err));
    *verifier = v;
    v = NULL;
out:
    verifier_close(v);
    return rc;
}

void verifier_close(struct verifier *v)
{
    if (!v) return;
    model_close(v->model);
    slots_close(&v->slots);
    step_features_close(&v->features);
    free(v->refused);
    free(v->refusal_texts);
    free(v->lanes);
    free(v->shaped);
    free(v->trees);
    free(v->lane_first_row);
    free(v->slot_taken);
    free(v->rows);
    free(v->queries);
    free(v->replies);
    arena_close(&v->arena);
    free(v);
}

const struct model *verifier_model(const struct verifier *v)
{
    return v->model;
}

int verifier_blocks_written(const struct verifier *v)
{
    return v->slots.n_blocks_written;
}

void verifier_reset(struct verifier *v)
{
    slots_reset(&v->slots);
    v->last_id = 0;
    v->n_lanes = 0;
}

/* Writes the sentence for the reply and is false, so that a check can return it. */
#define REFUSE(v, ...) (snprintf((v)->error_text, ERROR_BYTES, __VA_ARGS__), false)

static bool check_ids(struct verifier *v, const int32_t *ids, int n, const char *what)
{
    for (int i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= v->options.n_vocab) {
            return REFUSE(v, "%s %d is outside of the vocabulary of %d", what, ids[i],
                          v->options.n_vocab);
        }
    }
    return true;
}

/* Look-ahead tokens have the ids after the vocabulary, and they are guesses: no token of a text. */
static bool check_tokens(struct verifier *v, const struct step_lane *lane)
{
    int n_fed = lane->n_draft < lane->n_tokens ? lane->n_tokens - lane->n_draft : 0;
    int n_ids = v->options.n_vocab + n_look_ahead(&v->options);
    for (int i = 0; i < lane->n_tokens; i++) {
        int32_t id = lane->tokens[i];
        if (id >= v->options.n_vocab && id < n_ids && i >= n_fed) continue;
        if (!check_ids(v, &id, 1, "token")) return false;
    }
    return true;
}

static bool check_rows(struct verifier *v, const struct step_row *rows, int n_rows, int n_tokens)
{
    for (int r = 0; r < n_rows; r++) {
        if (rows[r].index < 0 || rows[r].index >= n_tokens) {
            return REFUSE(v, "row %d is wanted of %d tokens", rows[r].index, n_tokens);
        }
        if (!check_ids(v, rows[r].wish.ids, rows[r].wish.n_ids, "wished id")) return false;
    }
    return true;
}

/* The shape of the lane's guesses; a chain has none. */
static bool shape_lane(struct verifier *v, const struct step_lane *lane, struct shaped_lane *shaped)
{
    struct error err;
    *shaped = (struct shaped_lane){.lane = lane};
    if (!lane->parents) {
        return !lane->n_tails ||
               REFUSE(v, "tails has %d blocks, but the guesses are a chain", lane->n_tails);
    }
    if (lane->n_draft >= lane->n_tokens) {
        return REFUSE(v, "%d of %d tokens are guesses, so no committed one is before them",
                      lane->n_draft, lane->n_tokens);
    }
    return !tree_layout_init(&shaped->tree, lane->parents, lane->n_draft, &err) ||
           REFUSE(v, "%s", err.text);
}

/* Positions from the lane's first one to the end of its longest path. */
static int count_positions(const struct shaped_lane *shaped)
{
    const struct step_lane *lane = shaped->lane;
    if (!shaped->tree.n_nodes) return lane->n_tokens;
    return lane->n_tokens - lane->n_draft + tree_layout_levels(&shaped->tree);
}

static bool check_lane(struct verifier *v, const struct feature_wish *features,
                       const struct step_lane *lane, struct shaped_lane *shaped)
{
    if (lane->slot < 0 || lane->slot >= v->options.n_slots) {
        return REFUSE(v, "slot %d does not exist; there are %d", lane->slot, v->options.n_slots);
    }
    if (v->slot_taken[lane->slot]) return REFUSE(v, "slot %d occurs twice in the step", lane->slot);
    v->slot_taken[lane->slot] = true;
    if (lane->n_tokens < 1) return REFUSE(v, "the lane has no tokens");
    if (lane->position < 0) return REFUSE(v, "position %d is negative", lane->position);
    if (!shape_lane(v, lane, shaped)) return false;
    if (count_positions(shaped) > v->context_limit - lane->position) {
        return REFUSE(v, "%d tokens at position %d exceed the context of %d",
                      count_positions(shaped), lane->position, v->context_limit);
    }
    return check_tokens(v, lane) && slots_check(&v->slots, shaped, v->last_id, v->error_text) &&
           check_rows(v, lane->rows, lane->n_rows, lane->n_tokens) &&
           step_features_check(&v->features, features, lane, v->cfg, v->error_text);
}

static bool fits_step(struct verifier *v, const struct step_lane *lane)
{
    if (lane->n_tokens <= v->options.max_step_tokens - v->n_tokens &&
        lane->n_rows <= v->options.max_step_rows - v->n_rows) {
        return true;
    }
    return REFUSE(v, "more than %d tokens or %d rows in one step", v->options.max_step_tokens,
                  v->options.max_step_rows);
}

static void refuse_lane(struct verifier *v, int index)
{
    char *text = v->refusal_texts[v->n_refused];
    snprintf(text, REFUSAL_BYTES, "%.*s", REFUSAL_BYTES - 1, v->error_text);
    v->refused[v->n_refused++] = (struct lane_refusal){index, text};
}

/* Checks the lanes one after the other and lists those that make sense for the model, with their
 * rows. Every rank comes to the same lists. Returns the number of the model's lanes. */
static int take_over_step(struct verifier *v, const struct step *step)
{
    int n = 0;
    v->n_refused = v->n_tokens = v->n_rows = 0;
    step_features_begin(&v->features);
    memset(v->slot_taken, 0, (size_t)v->options.n_slots * sizeof *v->slot_taken);
    for (int i = 0; i < step->n_lanes; i++) {
        const struct step_lane *lane = &step->lanes[i];
        v->lane_first_row[i] = v->n_rows;
        if (!check_lane(v, &step->features, lane, &v->shaped[n]) || !fits_step(v, lane)) {
            refuse_lane(v, i);
            continue;
        }
        slots_take(&v->slots, &v->shaped[n], v->last_id);
        step_features_take(&v->features, lane, v->n_tokens);
        for (int r = 0; r < lane->n_rows; r++) {
            v->rows[v->n_rows++] = (struct forward_row){n, lane->rows[r].index};
        }
        v->n_tokens += lane->n_tokens;
        v->trees[n] = (struct forward_tree){&v->shaped[n].tree, lane->tails};
        v->lanes[n] = (struct forward_lane){lane->position, lane->n_tokens, lane->tokens,
                                            v->slots.slots[lane->slot].blocks,
                                            lane->parents ? &v->trees[n] : NULL};
        n++;
    }
    v->lane_first_row[step->n_lanes] = v->n_rows;
    v->n_lanes = step->n_lanes;
    return n;
}

/* The replies of all ranks together are no longer than a message may be, so that the coordinator
 * has room for them, but for the features, for which it has further room. */
static size_t reply_bytes_max(const struct verifier *v, size_t feature_bytes)
{
    size_t most = (size_t)MESSAGE_BYTES_MAX / (size_t)model_shard(v->model)->n_ranks;
    size_t left = (size_t)MESSAGE_BYTES_MAX - feature_bytes;
    return (most < left ? most : left) - WIRE_REPLY_BYTES;
}

/* The row has no answer; the text is err's. */
static void refuse_row(struct verifier *v, struct row_reply *row, const struct error *err)
{
    size_t len = strlen(err->text) + 1;
    char *text = arena_take(&v->arena, len, 1);
    if (text) memcpy(text, err->text, len);
    *row = (struct row_reply){.error_text = text ? text : "there is no room for the answer",
                              .no_room = err->code == ERR_NO_MEMORY};
}

/* Refuses a row when a slice of it has no answer, or when the reply becomes too long with it. The
 * other rows are not concerned. */
static void settle_row(struct verifier *v, const struct row_query *query, struct row_reply *row,
                       size_t most, size_t *n_bytes)
{
    struct error err = {0};
    size_t bytes = row_reply_bytes(row);
    for (int s = 0; s < row->n_slices && !err.code; s++) {
        if (row->slices[s].code) row_slice_failure(&row->slices[s], query->wish, &err);
    }
    if (!err.code && *n_bytes + bytes > most) {
        error_set(&err, ERR_NO_MEMORY,
                  "the row's %zu bytes would make the reply longer than %zu: ask for fewer rows or "
                  "fewer logits at once",
                  bytes, most);
    }
    if (err.code) refuse_row(v, row, &err);
    *n_bytes += row_reply_bytes(row);
}

/* Answers the first n_rows queries, which become the rows of the reply. */
static int answer_queries(struct verifier *v, int n_rows, struct step_reply *reply,
                          struct error *err)
{
    int rc = 0, n_local = model_shard(v->model)->n_local;
    size_t n_bytes = 0, feature_bytes = 0;
    struct slice_row *slices =
        arena_take(&v->arena, (size_t)n_rows * (size_t)n_local, sizeof *slices);
    if (!slices) return error_set(err, ERR_NO_MEMORY, "the answer to the rows is too large");
    for (int i = 0; i < reply->n_refused; i++) {
        n_bytes += lane_refusal_bytes(&reply->refused[i]);
    }
    for (int i = 0; i < reply->n_features; i++) {
        feature_bytes += lane_features_bytes(&reply->features[i]);
    }
    TRY(model_answer(v->model, v->queries, n_rows, &v->arena, slices, err));
    for (int r = 0; r < n_rows; r++) {
        v->replies[r] = (struct row_reply){.n_slices = n_local, .slices = slices + r * n_local};
        settle_row(v, &v->queries[r], &v->replies[r], reply_bytes_max(v, feature_bytes), &n_bytes);
    }
    reply->n_rows = n_rows;
out:
    return rc;
}

/* The row of the last step after tokens[index] of a lane; -1 if it was not asked for. */
static int find_row(const struct verifier *v, int lane, int index)
{
    for (int r = v->lane_first_row[lane]; r < v->lane_first_row[lane + 1]; r++) {
        if (v->rows[r].index == index) return r;
    }
    return -1;
}

static int answer_more(struct verifier *v, const struct step *step, struct step_reply *reply,
                       struct error *err)
{
    int n_rows = 0;
    for (int i = 0; i < step->n_more; i++) {
        const struct step_more *more = &step->more[i];
        reply->error_lane = more->lane;
        if (more->lane < 0 || more->lane >= v->n_lanes) {
            return error_set(err, ERR_ARGUMENT, "lane %d was not in the last step", more->lane);
        }
        for (int r = 0; r < more->n_rows; r++) {
            int row = find_row(v, more->lane, more->rows[r].index);
            if (row < 0 || n_rows == v->options.max_step_rows ||
                !check_ids(v, more->rows[r].wish.ids, more->rows[r].wish.n_ids, "wished id")) {
                return error_set(err, ERR_ARGUMENT,
                                 "row %d was not in the last step, or is refused",
                                 more->rows[r].index);
            }
            v->queries[n_rows++] = (struct row_query){row, &more->rows[r].wish};
        }
    }
    reply->error_lane = -1;
    return answer_queries(v, n_rows, reply, err);
}

static int answer_step(struct verifier *v, const struct step *step, struct step_reply *reply,
                       struct error *err)
{
    int n_rows = 0;
    for (int i = 0; i < step->n_lanes; i++) {
        const struct step_lane *lane = &step->lanes[i];
        int n = v->lane_first_row[i + 1] - v->lane_first_row[i]; /* 0 where it was refused */
        for (int r = 0; r < n; r++, n_rows++) {
            v->queries[n_rows] = (struct row_query){n_rows, &lane->rows[r].wish};
        }
    }
    return answer_queries(v, n_rows, reply, err);
}

/* True if only the step is at fault, so that the group goes on. Any other error means that the
 * device or a rank is lost, and the group with it. */
static bool is_fault_of_step(int rc)
{
    return rc == ERR_ARGUMENT || rc == ERR_FORMAT || rc == ERR_NO_MEMORY;
}

/* The step fails, and the group goes on: the reply carries error_text. */
static void reply_with_error(const struct verifier *v, struct step_reply *reply, int lane)
{
    reply->n_rows = reply->n_refused = reply->n_features = 0;
    reply->feature_error = NULL;
    reply->error_lane = lane;
    reply->error_text = v->error_text;
}

int verifier_step(struct verifier *v, const struct step *step, struct step_reply *reply,
                  struct error *err)
{
    int64_t start = clock_now_us();
    int rc = 0;
    *reply = (struct step_reply){.id = step->id, .rows = v->replies, .error_lane = -1};
    arena_reset(&v->arena);
    if (step->id <= v->last_id) {
        snprintf(v->error_text, ERROR_BYTES, "step %llu is stale: step %llu has been done",
                 (unsigned long long)step->id, (unsigned long long)v->last_id);
        reply_with_error(v, reply, -1);
        return 0;
    }
    v->last_id = step->id;
    if (step->n_lanes) {
        if (step->n_lanes > v->options.n_slots) {
            snprintf(v->error_text, ERROR_BYTES, "%d lanes are more than the %d slots",
                     step->n_lanes, v->options.n_slots);
            reply_with_error(v, reply, -1);
            return 0;
        }
        int n_lanes = take_over_step(v, step);
        step_features_keep(&v->features, &step->features, v->model);
        if (n_lanes) rc = model_forward(v->model, v->lanes, n_lanes, v->rows, v->n_rows, err);
        if (rc) return rc;
        reply->n_refused = v->n_refused;
        reply->refused = v->refused;
        reply->collective_us = (uint32_t)model_collective_us(v->model);
        rc = step_features_answer(&v->features, &step->features, v->model, &v->arena, reply, err);
        if (!rc) rc = answer_step(v, step, reply, err);
    } else {
        rc = answer_more(v, step, reply, err);
    }
    if (rc && !is_fault_of_step(rc)) return rc;
    if (rc) {
        snprintf(v->error_text, ERROR_BYTES, "%s", err->text);
        reply_with_error(v, reply, reply->error_lane);
    }
    reply->compute_us = (uint32_t)(clock_now_us() - start) - reply->collective_us;
    return 0;
}
