/* Loading the weights of a head's entry. A head is on one rank, so they are read whole. */
#include "model/weights_entry.h"

/* The chain of a block drafter: w1, of which every row may be read, and w2, with the columns of
 * lm_head. */
static int open_chain(struct loader *ld, struct entry_weights *w)
{
    const struct head_config *head = ld->head;
    const struct shard *sh = ld->shard;
    int rank = head->block.rank, n_ids = ld->cfg->vocab_size, rc = 0;
    struct matrix_source first = {.n_in = rank}, second = {.n_in = rank};
    const struct tensor_part ids = {head->names[HEAD_CHAIN_FIRST], n_ids, rank, 0, n_ids, 0};
    const struct tensor_part columns = {
        head->names[HEAD_CHAIN_SECOND], head->n_columns, rank, 0, sh->n_local * sh->vocab_slice, 0};
    TRY(loader_add_part(ld, &first, -1, &ids));
    w->chain_first = first.parts[0].weight;
    TRY(loader_digest_matrix(ld, &first));
    TRY(loader_add_part(ld, &second, -1, &columns));
    TRY(loader_open_matrix(ld, &w->chain_second, &second));
out:
    return rc;
}

static int open_matrix(struct loader *ld, struct matrix *m, enum head_tensor which, int n_in)
{
    int dim = ld->cfg->dim, rc = 0;
    struct matrix_source source = {.n_in = n_in};
    const struct tensor_part part = {ld->head->names[which], dim, n_in, 0, dim, 0};
    TRY(loader_add_part(ld, &source, -1, &part));
    TRY(loader_open_matrix(ld, m, &source));
out:
    return rc;
}

/* Vectors of heads are used as they are stored: in no family of them the norms are less by 1. */
static int open_vector(struct loader *ld, struct vector *out, const char *name, int n)
{
    const struct vector_part part = {name, n, 0, n, 0};
    return loader_open_vector(ld, out, -1, &part, 1);
}

/* A vector of a head that some heads lack. */
struct entry_vector {
    bool is_there;
    enum head_tensor which;
    struct vector *out;
    int n;
};

static int open_vectors(struct loader *ld, const struct entry_vector *vectors, size_t n)
{
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        if (!vectors[i].is_there) continue;
        TRY(open_vector(ld, vectors[i].out, ld->head->names[vectors[i].which], vectors[i].n));
    }
out:
    return rc;
}

int entry_weights_open_fc(struct entry_weights *w, struct loader *ld)
{
    const struct head_config *head = ld->head;
    const struct head_entry *entry = &head->entry;
    int width = entry->n_features * entry->feature_dim, rc = 0;
    const struct entry_vector vectors[] = {
        {entry->norms == FEATURES_NORMED_WHOLE, HEAD_FEATURES_NORM, &w->features_norm, width},
        {entry->has_fc_bias, HEAD_FC_BIAS, &w->fc_bias, ld->cfg->dim},
    };
    TRY(open_vectors(ld, vectors, sizeof vectors / sizeof *vectors));
    for (int i = 0; entry->norms == FEATURES_NORMED_APART && i < entry->n_features; i++) {
        TRY(open_vector(ld, &w->feature_norms[i], head->feature_norms[i], entry->feature_dim));
    }
    if (entry->has_fc) TRY(open_matrix(ld, &w->fc, HEAD_FC, width));
out:
    return rc;
}

int entry_weights_open(struct entry_weights *w, struct loader *ld)
{
    const struct head_config *head = ld->head;
    const struct head_entry *entry = &head->entry;
    int dim = ld->cfg->dim, rc = 0;
    const struct entry_vector vectors[] = {
        {entry->norms_token, HEAD_TOKEN_NORM, &w->token_norm, dim},
        {entry->norms_feature, HEAD_FEATURE_NORM, &w->feature_norm, dim},
        {entry->has_join_bias, HEAD_JOIN_BIAS, &w->join_bias, dim},
        {head->block.confidence_width > 0, HEAD_CONFIDENCE, &w->confidence,
         head->block.confidence_width},
        {head->block.has_confidence_bias, HEAD_CONFIDENCE_BIAS, &w->confidence_bias, 1},
    };
    TRY(entry_weights_open_fc(w, ld));
    TRY(open_vectors(ld, vectors, sizeof vectors / sizeof *vectors));
    if (entry->has_join) TRY(open_matrix(ld, &w->join, HEAD_JOIN, 2 * dim));
    if (head->block.rank > 0) TRY(open_chain(ld, w));
out:
    return rc;
}

void entry_weights_close(struct entry_weights *w, struct backend *be)
{
    struct vector *const vectors[] = {&w->features_norm,  &w->fc_bias,   &w->token_norm,
                                      &w->feature_norm,   &w->join_bias, &w->confidence,
                                      &w->confidence_bias};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        loader_close_vector(be, vectors[i]);
    }
    for (int i = 0; i < HEAD_FEATURES_MAX; i++) {
        loader_close_vector(be, &w->feature_norms[i]);
    }
    be->ops->matrix_close(be, &w->fc);
    be->ops->matrix_close(be, &w->join);
    be->ops->matrix_close(be, &w->chain_second);
}
