/* One rank's part of a transformer with its KV cache: the forward pass and the logits it computes.
 * Workers use it for the target and the coordinator uses it for the draft. Owned by one thread.
 *
 * All of this rests on one rule (docs/design.md section 4): the logits after a prefix depend on the
 * weights and the prefix only, and not on the other lanes, on how many tokens are fed at once, on T
 * or on threads. */
#pragma once

#include "comm/comm.h"
#include "model/backend/backend.h"
#include "model/backend/pack_cache.h"
#include "model/checkpoint/checkpoint.h"
#include "model/digest.h"
#include "model/forward_lane.h"
#include "model/logits/feature_wish.h"
#include "model/logits/select.h"
#include "model/shard.h"

struct model;

struct model_options {
    int n_kv_blocks; /* of 16 positions; 0: model_open_kv says it, or no KV is needed */
    int max_tokens;  /* of a step, over all lanes */
    int max_rows;    /* rows whose logits one step may ask for */
    int max_lanes;
    int n_vocab; /* ids that exist; 0: as many as in the config. Padded rows past them are masked */

    /* A head over a part of the vocabulary (FR-Spec, arXiv 2502.14856), T = 1 only: only the logits
     * of these ids are computed, with the same bits as by the whole head. They ascend, are distinct
     * and below n_vocab, and are kept. NULL: all ids. model_best returns ids. For model_answer and
     * model_logits the vocabulary is then n_head_ids columns, of which column i is head_ids[i]. */
    const int32_t *head_ids;
    int n_head_ids;

    /* A model of the same checkpoint or another opening of it, head_ids and kind of backend, whose
     * weights this one uses too, maybe on another thread; it must outlive this one. The checkpoint
     * may also be some of its layers (checkpoint_layer); then this model has no digests and no
     * fingerprint. NULL: the weights are read. */
    const struct model *like;

    /* A head whose fc this model applies to its features for those who wish so (struct
     * feature_projection); NULL: none. It may have been opened without its target and must outlive
     * the model. Only a rank whose features are read needs it. */
    const struct checkpoint *projection;

    /* Embeddings of look-ahead tokens (model/look_ahead.h), which have the ids from
     * n_vocab on; kept. NULL: there are none. All ranks need them. */
    const struct weight *look_ahead;

    /* Bit r: also digests what rank r reads, in this rank's copy of the model (model_witnessed). */
    unsigned witnessed;
};

/* Keeps ck, comm, be and the options' head_ids, which must outlive the model. A checkpoint that was
 * opened as a head becomes a model for model_forward_head; its vocabulary is that of its d2t, as
 * with head_ids. Errors: shard_init's, weights_open's, ERR_NO_MEMORY, ERR_ARGUMENT for head_ids
 * that are not as they must be, and for a head on several ranks or without a target that lends it
 * what it lacks. */
int model_open(struct model **model, const struct checkpoint *ck, struct comm *comm,
               struct backend *be, const struct model_options *options, struct error *err);
void model_close(struct model *model);

const struct shard *model_shard(const struct model *model);
int model_dim(const struct model *model); /* D */
int model_n_layers(const struct model *model);
size_t model_weight_bytes(const struct model *model);
/* Bytes of embeddings that the device has no room for, so that the host reads the rows of every
 * step and sends them; 0: the device has them, or there is no device or no table in a file. */
size_t model_lacks_copy(const struct model *model);
size_t model_kv_bytes(const struct model *model);
/* Bytes of one block of KV, in all layers. */
size_t model_kv_block_bytes(const struct model *model);

/* Makes the KV cache of a model that was opened without one, when weights and buffers have their
 * memory. Errors: ERR_NO_MEMORY, ERR_UNAVAILABLE; then the model can only be closed. */
int model_open_kv(struct model *model, int n_blocks, struct error *err);
/* Tells if the packed weights came from disk; NULL where they are not kept there. */
const struct pack_cache_report *model_pack_report(const struct model *model);

/* The digests of what this rank has read, and of what `rank` reads or, where that was not asked
 * for, NULL: one for each of checkpoint_tensors. */
const struct part_digest *model_digests(const struct model *model);
const struct part_digest *model_witnessed(const struct model *model, int rank);

/* The fingerprint of a model on one rank (T = 1): it depends on every byte that was read. A model
 * whose head is a part of the vocabulary has another one than with its whole head. */
uint64_t model_fingerprint(const struct model *model);

/* Computes one step: feeds the lanes and keeps the logits of rows for model_answer and model_logits
 * until the next step. All ranks call it with the same arguments. The caller keeps within the
 * limits of model_options, and within the vocabulary and its look-ahead tokens. Errors:
 * ERR_UNAVAILABLE a rank is gone. */
int model_forward(struct model *model, const struct forward_lane *lanes, int n_lanes,
                  const struct forward_row *rows, int n_rows, struct error *err);

/* As model_forward, for a head: features[n_lanes]. The contexts of a block drafter's lanes are at
 * most max_tokens together, as their tokens are.
 *
 * A lane of a head of places (struct head_places) has one row of features, the target's normed one
 * of the last position whose token has been committed, and n_tokens is the number of places wanted,
 * at most those of the head; row {lane, j} is that of place j. Nothing else of such a lane is read,
 * no KV is written, and n_kv_blocks may be 0. */
int model_forward_head(struct model *model, const struct forward_lane *lanes,
                       const struct forward_features *features, int n_lanes,
                       const struct forward_row *rows, int n_rows, struct error *err);

/* Adds the chain of a block drafter to logits of the last step, at most max_lanes rows at once: to
 * row rows[i] what follows from previous[i], the token before the one that the row guesses. It is
 * added once for each row, before the row is asked for. The model must have a chain (block.rank).
 * Errors: ERR_UNAVAILABLE the device is lost. */
int model_chain_rows(struct model *model, const int *rows, const int32_t *previous, int n_rows,
                     struct error *err);

/* Says of which boundaries the next steps keep the features (NULL: of none, which is the state
 * after model_open). Steps cost nothing for it otherwise. The boundaries are at most n_layers. All
 * ranks have the same residual stream, so a rank may be asked alone. Errors: ERR_NO_MEMORY,
 * ERR_UNAVAILABLE, ERR_ARGUMENT a projection that this model does not have; then none are kept. */
int model_keep_features(struct model *model, const struct feature_wish *wish, struct error *err);

/* The fc of a head, or that which a target applies to its features; digest 0: there is none. */
struct projection_key model_projection(const struct model *model);

/* As model_keep_features, for a head whose later rows read its own output in place of the target's
 * features, which those of a block drafter never do: the only column is that output, of the last
 * layer or of the final norm. A head of places has none. */
int model_keep_output(struct model *model, struct error *err);

/* The features of rows first .. first + n of the last step, counted over the tokens of all its
 * lanes, in column `column` of the wish that it had: [n][D] bf16. Host memory, valid until the next
 * call of this function, model_logits, model_answer or model_forward; NULL: the device is lost. */
const uint16_t *model_features(struct model *model, int column, int first, int n);

/* As model_features, for what the wish's projection has made of the rows: [n][width]. */
const uint16_t *model_projected(struct model *model, int first, int n);

/* A wish about row `row` of the last step. */
struct row_query {
    int row;
    const struct row_wish *wish;
};

/* Answers wishes for this rank's slices: out[query * shard->n_local + slice], with arrays from
 * arena. At most max_rows queries. A slice without an answer has a code (model/logits/row.h), and
 * the others are answered. Errors: ERR_UNAVAILABLE the device is lost. */
int model_answer(struct model *model, const struct row_query *queries, int n_queries,
                 struct arena *arena, struct slice_row *out, struct error *err);

/* The logits of this rank's slices, from the first local id on. Where the rank holds every slice (T
 * = 1) that is the whole vocabulary without padding. Host memory, valid until the next call of this
 * function or of model_forward; NULL: the device is lost. */
const float *model_logits(struct model *model, int row);

/* The n best logits of each of `rows` of the last step where the rank holds every slice (T = 1),
 * best first (by logit, then lowest id): items[n_rows][n], of which n_items[i] are filled. Masked
 * ones (-inf) are left out, and a row with NaN or +inf gives none. At most max_rows rows. The arena
 * is for scratch. Errors: ERR_NO_MEMORY, ERR_UNAVAILABLE the device is lost. */
int model_best_rows(struct model *model, const int *rows, int n_rows, int n, struct arena *arena,
                    struct select_item *items, int *n_items, struct error *err);
/* As model_best_rows, for one row. */
int model_best(struct model *model, int row, int n, struct arena *arena, struct select_item *items,
               int *n_items, struct error *err);

/* Waits until the last step has been computed, because a device may still be at work when
 * model_forward returns. Only for measuring: answers wait by themselves. Errors:
 * ERR_UNAVAILABLE. */
int model_wait(struct model *model, struct error *err);

/* Time that the last step spent in collectives. */
int64_t model_collective_us(const struct model *model);
