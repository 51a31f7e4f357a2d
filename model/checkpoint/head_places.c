/* Heads of places (model/checkpoint/config/places_config.h): the tensors of their files say how
 * many places and blocks there are, and their widths. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/checkpoint/internal.h"

enum { DIM_MOST = 1 << 20, COLUMNS_MOST = 1 << 24 };

static const struct tensor *tensor_of(const struct checkpoint *ck, enum place_tensor which,
                                      int place, int block)
{
    char name[PLACE_NAME_BYTES];
    return checkpoint_tensor(ck, places_name(&ck->head->places, which, place, block, name));
}

/* Sets *rows and *cols of a matrix. Errors: ERR_FORMAT it is none, or too large. */
static int read_shape(const struct checkpoint *ck, const struct tensor *tensor, int *rows,
                      int *cols, struct error *err)
{
    const struct safetensors_entry *entry = tensor->entry;
    if (entry->n_dims == 2 && entry->dims[0] > 0 && entry->dims[0] <= COLUMNS_MOST &&
        entry->dims[1] > 0 && entry->dims[1] <= DIM_MOST) {
        *rows = (int)entry->dims[0];
        *cols = (int)entry->dims[1];
        return 0;
    }
    return error_set(err, ERR_FORMAT,
                     "%s: %.100s must be a matrix of at most %d rows and %d columns", ck->name,
                     tensor->name, COLUMNS_MOST, DIM_MOST);
}

/* The number of neighbours that are there, from place 0, or its block 0, on; at most `most`. */
static int count(const struct checkpoint *ck, bool is_places, int most)
{
    int n = 0;
    while (n < most && tensor_of(ck, PLACE_WEIGHT, is_places ? n : 0, is_places ? 0 : n)) {
        n++;
    }
    return n;
}

/* ---- Medusa ---- */

/* Finds out how the files name the tensors. */
static int find_names(struct checkpoint *ck, struct error *err)
{
    static const char *const roots[] = {"", "medusa_head.", "medusa_heads."};
    struct head_places *p = &ck->head->places;
    for (size_t i = 0; i < 2 * (sizeof roots / sizeof *roots); i++) {
        snprintf(p->root, sizeof p->root, "%s", roots[i / 2]);
        p->is_listed = i % 2;
        if (tensor_of(ck, PLACE_WEIGHT, 0, 0)) return 0;
    }
    return error_set(err, ERR_FORMAT,
                     "%s has neither 0.0.linear.weight nor blocks.0.layers.0.weight, so it has no "
                     "Medusa heads",
                     ck->name);
}

/* The matrix to the logits is named by the number of blocks before it. */
static bool find_logits(struct checkpoint *ck)
{
    struct head_places *p = &ck->head->places;
    for (p->n_blocks = 1; p->n_blocks <= PLACE_BLOCKS_MAX && !p->is_listed; p->n_blocks++) {
        if (tensor_of(ck, PLACE_LOGITS, 0, 0)) return true;
    }
    p->n_blocks = 0;
    return p->is_listed && tensor_of(ck, PLACE_LOGITS, 0, 0);
}

/* Where all blocks of a place are one block, files may have it once, or under each name. */
static int settle_blocks(struct checkpoint *ck, const struct places_claims *claims,
                         struct error *err)
{
    struct head_places *p = &ck->head->places;
    int n_stored = count(ck, false, PLACE_BLOCKS_MAX + 1);
    if (p->n_blocks == 0)
        p->n_blocks = n_stored > 1 || !claims->n_blocks ? n_stored : claims->n_blocks;
    p->n_stored_blocks = n_stored == 1 ? 1 : p->n_blocks;
    if (p->n_blocks > PLACE_BLOCKS_MAX) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: heads of %d blocks are not supported (1 to %d are)", ck->name,
                         p->n_blocks, PLACE_BLOCKS_MAX);
    }
    return 0;
}

static int settle_medusa(struct checkpoint *ck, const struct places_claims *claims,
                         struct error *err)
{
    struct head_places *p = &ck->head->places;
    int rows = 0, cols = 0, rc = 0;
    TRY(find_names(ck, err));
    p->n = count(ck, true, PLACES_MAX + 1);
    if (p->n > PLACES_MAX) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s has more than %d heads: guesses of a round are "
                         "for at most %d places",
                         ck->name, PLACES_MAX, PLACES_MAX);
    }
    p->has_bias = tensor_of(ck, PLACE_BIAS, 0, 0) != NULL;
    p->has_logits = find_logits(ck);
    TRY(settle_blocks(ck, claims, err));
    TRY(read_shape(ck, tensor_of(ck, PLACE_WEIGHT, 0, 0), &rows, &cols, err));
    ck->cfg.dim = cols;
    if (p->has_logits) {
        ck->head->logits_from = HEAD_UNUSED;
        TRY(read_shape(ck, tensor_of(ck, PLACE_LOGITS, 0, 0), &ck->cfg.vocab_size, &cols, err));
    }
    if (claims->n && claims->n != p->n) {
        snprintf(ck->remarks[CHECKPOINT_PLACES], sizeof ck->remarks[0],
                 "config.json announces %d head%s, but the files have %d, which are used",
                 claims->n, claims->n == 1 ? "" : "s", p->n);
    }
out:
    return rc;
}

/* ---- blockwise ---- */

static int settle_blockwise(struct checkpoint *ck, const struct places_claims *claims,
                            struct error *err)
{
    struct head_places *p = &ck->head->places;
    const struct tensor *hidden = tensor_of(ck, PLACE_HIDDEN, 0, 0);
    const struct tensor *output = tensor_of(ck, PLACE_OUTPUT, 0, 0);
    int rows = 0, cols = 0, rc = 0;
    if (!hidden || !output) {
        return error_set(err, ERR_FORMAT, "%s lacks the tensor %s", ck->name,
                         hidden ? "output.weight" : "hidden.weight");
    }
    TRY(read_shape(ck, hidden, &p->hidden_dim, &ck->cfg.dim, err));
    TRY(read_shape(ck, output, &rows, &cols, err));
    p->n = claims->n;
    if (p->n > PLACES_MAX) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: \"block_size\" = %d is not supported: guesses of a round are for at "
                         "most %d places, so that it may be %d",
                         ck->name, p->n + 1, PLACES_MAX, PLACES_MAX + 1);
    }
    if ((int64_t)p->n * ck->cfg.dim != rows) {
        return error_set(err, ERR_FORMAT,
                         "%s: \"block_size\" = %d asks for %d outputs of width %d, but %s has %d "
                         "rows",
                         ck->name, p->n + 1, p->n, ck->cfg.dim, output->name, rows);
    }
out:
    return rc;
}

int checkpoint_settle_places(struct checkpoint *ck, const struct places_claims *claims,
                             struct error *err)
{
    static const char logits[] = "lm_head.weight";
    struct head_config *head = ck->head;
    const struct tensor *own = NULL;
    int cols = 0, rc = 0;
    if (head->format == HEAD_MEDUSA) {
        TRY(settle_medusa(ck, claims, err));
    } else {
        TRY(settle_blockwise(ck, claims, err));
    }
    head->embedding_from = HEAD_UNUSED;
    head->reads_normed = true;
    head->entry.n_features = 1;
    head->entry.feature_dim = ck->cfg.dim;
    if (!head->places.has_logits) {
        snprintf(head->names[HEAD_LOGITS], HEAD_NAME_BYTES, "%s%s", head->places.root, logits);
        own = checkpoint_tensor(ck, head->names[HEAD_LOGITS]);
    }
    if (own) TRY(read_shape(ck, own, &ck->cfg.vocab_size, &cols, err));
    head->n_columns = ck->cfg.vocab_size;
out:
    return rc;
}
