/* Reading tensors of a checkpoint into a backend's matrices and vectors, with their digests. For
 * weights.c and weights_entry.c, which know which tensors there are. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "model/backend/backend.h"
#include "model/checkpoint/checkpoint.h"
#include "model/digest.h"
#include "model/shard.h"

/* fp32 in backend memory; data = NULL where the model has none. */
struct vector {
    float *data;
    int n;
};

/* A copy of a table in the memory of a device. */
struct table_copy {
    void *data; /* as the table is stored; NULL: there is none */
    size_t bytes;
    bool lacks_room; /* the device has no room for it; bytes are what it would take */
};

struct model_weights;

struct loader {
    const struct checkpoint *ck;
    const struct model_config *cfg;
    const struct head_config *head; /* NULL: a model */
    const struct shard *shard;
    const int32_t *head_ids;
    struct backend *be;
    struct model_weights *w; /* of weights.c */
    size_t *bytes;           /* packed so far */
    struct error *err;
    struct digest_table *digests;     /* what is read is added to it */
    bool is_witness;                  /* only the digests are wanted */
    size_t tensors[MATRIX_PARTS_MAX]; /* of the parts of the matrix that is being put together */
    char name[160];
};

/* Rows first_row .. + n_rows of a tensor of all_rows x all_cols, their columns from first_col
 * on. */
struct tensor_part {
    const char *tail; /* of its name after the layer's; the whole name where the layer is -1 */
    int all_rows, all_cols;
    int first_row, n_rows, first_col;
};

/* Elements first .. + n of a vector tensor of n_all. */
struct vector_part {
    const char *tail; /* as in struct tensor_part */
    int n_all, first, n;
    float offset; /* added to every element */
};

/* Appends the part to the source. */
int loader_add_part(struct loader *ld, struct matrix_source *source, int layer,
                    const struct tensor_part *t);
int loader_open_matrix(struct loader *ld, struct matrix *m, struct matrix_source *source);
/* Only digests what the matrix would be made of. */
int loader_digest_matrix(struct loader *ld, struct matrix_source *source);

/* Makes one vector of the parts, one after the other, as fp32 in backend memory. */
int loader_open_vector(struct loader *ld, struct vector *out, int layer,
                       const struct vector_part *parts, int n_parts);
/* Elements first .. + n of a norm of n_all. */
int loader_open_norm(struct loader *ld, struct vector *out, int layer, const char *tail, int n_all,
                     int first, int n);
void loader_close_vector(struct backend *be, struct vector *v);

/* Copies a table of embeddings of plain numbers from a file to the device, unless the device would
 * have too little room for the steps then. Synthetic tables and those in blocks are not copied.
 * Errors: ERR_UNAVAILABLE the device is lost. */
int loader_copy_table(struct backend *be, const struct weight *table, struct table_copy *copy,
                      struct error *err);
void loader_close_copy(struct backend *be, struct table_copy *copy);
