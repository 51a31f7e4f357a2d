/* The messages of target.proto as plain structs, and their codecs. Decoding checks every field that
 * can be checked without the model: counts, ranges, finite numbers; the code that uses them checks
 * the rest. Encoders write into the caller's buffer; decoders put arrays into an arena. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/end_ids.h"
#include "base/limits.h"
#include "base/memory.h"
#include "base/text/buffer.h"
#include "model/logits/feature_wish.h"
#include "model/logits/look_ahead_key.h"
#include "model/logits/row.h"

enum {
    WIRE_LANES_MAX = 1024,
    WIRE_LANE_TOKENS_MAX = 65536,
    WIRE_ROW_IDS_MAX = ROW_IDS_MAX,
    WIRE_ROW_BEST_MAX = 1 << 20,
    WIRE_NCCL_ID_BYTES = 128,
    WIRE_MEMBER_PASS_BYTES = 16,
    WIRE_TEMPLATE_BYTES_MAX = 1 << 20, /* of a chat template */
    WIRE_SPECIAL_TEXTS_MAX = 16,
    WIRE_OPEN = -1,
    /* Upper bounds of what a reply, a row and a slice take besides texts and arrays. */
    WIRE_REPLY_BYTES = 256,
    WIRE_ROW_BYTES = 16,
    WIRE_SLICE_BYTES = 160
};

struct step_row {
    int index; /* the row of logits after tokens[index] of the lane */
    struct row_wish wish;
};

struct step_lane {
    int slot;
    int position;
    int n_tokens;
    const int32_t *tokens;
    int n_draft;
    int first_block;
    int n_blocks;
    const int32_t *blocks;
    /* A tree of guesses (base/tree_layout.h); NULL: they are a chain. */
    const int32_t *parents; /* [n_draft] */
    int n_tails;
    const int32_t *tails; /* blocks of paths 1, 2, ..., from the block of the first guess on */
    int n_rows;
    const struct step_row *rows;
    /* The features of tokens feature_first .. + n_features are wanted; n_features = 0: none are. */
    int feature_first, n_features;
};

/* Lanes, or if n_lanes = 0, further values of the last step's rows. */
struct step {
    uint64_t id;
    int n_lanes;
    const struct step_lane *lanes;
    int n_more;
    const struct step_more *more;
    struct feature_wish features; /* of the lanes' rows that want some */
};

struct step_more {
    int lane;
    int n_rows;
    const struct step_row *rows;
};

/* The slices of one row that one rank holds, or why it has no answer. */
struct row_reply {
    int n_slices;
    const struct slice_row *slices;
    const char *error_text; /* NULL = no error; otherwise n_slices is 0 */
    bool no_room;           /* with error_text: only the reply was full; the row can be asked for
                               again, as further values of the step's rows */
};

/* No slice and no row takes more bytes of an encoded reply than this. */
static inline size_t slice_reply_bytes(const struct slice_row *slice)
{
    size_t full = slice->full ? (size_t)slice->n_cols * sizeof *slice->full : 0;
    return WIRE_SLICE_BYTES + full + (size_t)slice->n_buckets * sizeof *slice->buckets +
           (size_t)slice->n_ids * sizeof *slice->id_logits +
           (size_t)slice->n_best * (sizeof *slice->best_ids + sizeof *slice->best_logits);
}

static inline size_t row_reply_bytes(const struct row_reply *row)
{
    size_t bytes = WIRE_ROW_BYTES + (row->error_text ? strlen(row->error_text) : 0);
    for (int s = 0; s < row->n_slices; s++) {
        bytes += slice_reply_bytes(&row->slices[s]);
    }
    return bytes;
}

/* Why a lane was left out of a step. */
struct lane_refusal {
    int lane;
    const char *text;
};

/* Features of one lane, [n_features] rows of feature_wish_width elements, bf16. */
struct lane_features {
    int n; /* elements */
    const uint16_t *data;
};

/* No lane's features take more bytes of an encoded reply than this. */
static inline size_t lane_features_bytes(const struct lane_features *features)
{
    return 16 + (size_t)features->n * sizeof *features->data;
}

/* Bytes of the features of n rows, and the most rows whose features one reply may hold. */
static inline size_t features_bytes(const struct feature_wish *wish, int dim, int n)
{
    return (size_t)n * feature_wish_width(wish, dim) * sizeof(uint16_t);
}

static inline int features_rows_max(const struct feature_wish *wish, int dim)
{
    size_t row = features_bytes(wish, dim, 1);
    return row ? (int)(FEATURE_BYTES_MAX / row) : INT32_MAX;
}

/* At most as many bytes as the refusal takes in an encoded StepReply. */
static inline size_t lane_refusal_bytes(const struct lane_refusal *refusal)
{
    return strlen(refusal->text) + 16;
}

struct step_reply {
    uint64_t id;
    int n_rows;
    const struct row_reply *rows;
    uint32_t queue_us, compute_us, collective_us, feature_us;
    int n_features; /* lanes that have some; of rank 0 alone */
    const struct lane_features *features;
    const char *feature_error; /* instead of features: why there are none; NULL = no error */
    int error_lane;            /* with error_text: -1 = the step as a whole */
    const char *error_text;    /* NULL = no error */
    int n_refused;             /* lanes that were left out, with their rows; ascending */
    const struct lane_refusal *refused;
};

struct target_description {
    char model[256], architecture[64], arithmetic[32], kernels[32], group[64];
    int n_layers, dim, n_heads, n_kv_heads, head_dim, ffn_dim, vocab_size;
    int rank, n_ranks, n_slices, n_slots, n_kv_blocks, block_tokens, context_limit;
    int max_step_tokens, max_step_rows, n_threads;
    struct projection_key projection; /* of rank 0: the fc of its head; digest 0: none */
    struct look_ahead_key look_ahead; /* that the ranks hold; digest 0: none */
    int window; /* positions that every layer sees at most; 0: some layer sees all */
    uint64_t model_fingerprint, tokenizer_fingerprint;
    /* Digest of the rank's answer to DescribeConventions; not in the message, 0 until somebody has
     * asked for that and set it. */
    uint64_t conventions;
    struct end_ids ends;
    bool is_busy; /* it is starting, or a coordinator has the group or left an unfinished step */
    bool has_nccl_id; /* only of rank 0, while it waits for the other ranks */
    uint8_t nccl_id[WIRE_NCCL_ID_BYTES];
    uint8_t member_pass[WIRE_MEMBER_PASS_BYTES]; /* goes with nccl_id */
};

/* The text of a special token, by the name that a chat template has for it. */
struct special_text {
    const char *name, *text;
};

/* The conventions in a target's folder, beside its weights. */
struct target_conventions {
    const char *template_file; /* that the template was read from; "" = there is no template */
    const char *chat_template;
    size_t chat_template_len;
    int n_special;
    const struct special_text *special;
    /* Sampling parameters; WIRE_OPEN where the folder does not say. */
    float temperature, top_p, min_p, repetition_penalty;
    int top_k;
};

/* Encoders replace buf's content. In texts, '?' replaces bytes that are not UTF-8.
 * Errors: ERR_NO_MEMORY, ERR_ARGUMENT more than MESSAGE_BYTES_MAX. */
int step_encode(struct buffer *buf, const struct step *step, struct error *err);
int step_reply_encode(struct buffer *buf, const struct step_reply *reply, struct error *err);
int target_description_encode(struct buffer *buf, const struct target_description *desc,
                              struct error *err);

int target_conventions_encode(struct buffer *buf, const struct target_conventions *conventions,
                              struct error *err);

/* Decoders take nothing over; results are in the arena. n_vocab and n_slices of step_reply_decode
 * give each slice its first_id and n_cols.
 * Errors: ERR_FORMAT with the field's name and value, ERR_NO_MEMORY the arena is full. */
int step_decode(const uint8_t *data, size_t len, struct arena *arena, struct step *step,
                struct error *err);
int step_reply_decode(const uint8_t *data, size_t len, int n_vocab, int n_slices,
                      struct arena *arena, struct step_reply *reply, struct error *err);
int target_description_decode(const uint8_t *data, size_t len, struct target_description *desc,
                              struct error *err);

/* The arena needs room for several times the message. */
int target_conventions_decode(const uint8_t *data, size_t len, struct arena *arena,
                              struct target_conventions *conventions, struct error *err);

/* Compares what the ranks of one group must share, which only this list says: the model, the
 * tokenizer, the arithmetic, and the options that limit a step. Returns NULL when all of it is
 * equal, otherwise the name of the first field that differs, for use in "has another %s". */
const char *target_description_differs(const struct target_description *a,
                                       const struct target_description *b);
