/* Loading the weights of a head of places. A head is on one rank, so they are read whole. */
#include "model/weights_places.h"

#include <stdlib.h>

/* Rows first .. + n of a tensor of n_all. */
struct rows {
    enum place_tensor which;
    int place, block;
    int n_all, first, n;
};

/* n_out: columns of the matrix, of which those after the rows are zero. */
static int open_matrix(struct loader *ld, struct matrix *m, const struct rows *rows, int n_in,
                       int n_out)
{
    char name[PLACE_NAME_BYTES];
    struct matrix_source source = {.n_in = n_in};
    int rc = 0;
    places_name(&ld->head->places, rows->which, rows->place, rows->block, name);
    const struct tensor_part part = {name, rows->n_all, n_in, rows->first, n_out, 0};
    TRY(loader_add_part(ld, &source, -1, &part));
    TRY(loader_open_matrix(ld, m, &source));
out:
    return rc;
}

static int open_vector(struct loader *ld, struct vector *out, const struct rows *rows)
{
    char name[PLACE_NAME_BYTES];
    places_name(&ld->head->places, rows->which, rows->place, rows->block, name);
    const struct vector_part part = {name, rows->n_all, rows->first, rows->n, 0};
    return loader_open_vector(ld, out, -1, &part, 1);
}

static int open_place(struct loader *ld, struct place_weights *place, int k)
{
    const struct head_places *p = &ld->head->places;
    int dim = ld->cfg->dim, all = p->n * dim, rc = 0;
    for (int i = 0; i < p->n_stored_blocks; i++) {
        const struct rows weight = {PLACE_WEIGHT, k, i, dim, 0, dim};
        const struct rows bias = {PLACE_BIAS, k, i, dim, 0, dim};
        TRY(open_matrix(ld, &place->blocks[i], &weight, dim, dim));
        if (p->has_bias) TRY(open_vector(ld, &place->biases[i], &bias));
    }
    if (p->hidden_dim) {
        const struct rows output = {PLACE_OUTPUT, 0, 0, all, k * dim, dim};
        const struct rows bias = {PLACE_OUTPUT_BIAS, 0, 0, all, k * dim, dim};
        TRY(open_matrix(ld, &place->output, &output, p->hidden_dim, dim));
        TRY(open_vector(ld, &place->output_bias, &bias));
    }
    if (p->has_logits) {
        int n_ids = ld->head->n_columns;
        const struct rows logits = {PLACE_LOGITS, k, 0, n_ids, 0, n_ids};
        int n_out = ld->shard->n_local * ld->shard->vocab_slice;
        TRY(open_matrix(ld, &place->logits, &logits, dim, n_out));
    }
out:
    return rc;
}

int places_weights_open(struct places_weights *w, struct loader *ld)
{
    const struct head_places *p = &ld->head->places;
    int rc = 0;
    TRY(mem_array(&w->places, (size_t)p->n, sizeof *w->places, ld->err));
    w->n = p->n;
    if (p->hidden_dim) {
        const struct rows hidden = {PLACE_HIDDEN, 0, 0, p->hidden_dim, 0, p->hidden_dim};
        const struct rows bias = {PLACE_HIDDEN_BIAS, 0, 0, p->hidden_dim, 0, p->hidden_dim};
        TRY(open_matrix(ld, &w->hidden, &hidden, ld->cfg->dim, p->hidden_dim));
        TRY(open_vector(ld, &w->hidden_bias, &bias));
    }
    for (int k = 0; k < p->n; k++) {
        TRY(open_place(ld, &w->places[k], k));
        checkpoint_release(ld->ck);
    }
out:
    return rc;
}

void places_weights_close(struct places_weights *w, struct backend *be)
{
    for (int k = 0; k < w->n; k++) {
        struct place_weights *place = &w->places[k];
        for (int i = 0; i < PLACE_BLOCKS_MAX; i++) {
            be->ops->matrix_close(be, &place->blocks[i]);
            loader_close_vector(be, &place->biases[i]);
        }
        be->ops->matrix_close(be, &place->output);
        loader_close_vector(be, &place->output_bias);
        be->ops->matrix_close(be, &place->logits);
    }
    free(w->places);
    be->ops->matrix_close(be, &w->hidden);
    loader_close_vector(be, &w->hidden_bias);
    *w = (struct places_weights){0};
}
