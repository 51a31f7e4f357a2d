/* A head's first matrix at the target. */
#include "model/projection.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "model/checkpoint/head.h"
#include "model/weights.h"

enum { SHAPE_TEXT_BYTES = 160 };

int projection_check(const struct checkpoint *head, const struct checkpoint *target,
                     struct error *err)
{
    const struct head_config *config = checkpoint_head(head);
    int dim = checkpoint_config(target)->dim, own = checkpoint_config(head)->dim;
    if (!config->entry.has_fc) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s has no matrix that features alone go through (fc), so a worker can do "
                         "nothing for it: leave --head out here",
                         checkpoint_name(head));
    }
    if (config->entry.feature_dim != dim) {
        return error_set(err, ERR_FORMAT,
                         "%s reads features of width %d, but %s has the width %d: it is a head of "
                         "another model",
                         checkpoint_name(head), config->entry.feature_dim, checkpoint_name(target),
                         dim);
    }
    if (own % WIDTH_UNIT) {
        return error_set(err, ERR_UNSUPPORTED, "%s: width %d must be a multiple of %d",
                         checkpoint_name(head), own, WIDTH_UNIT);
    }
    return fc_check_width(config, err);
}

int projection_open_head(struct checkpoint **head, const char *name,
                         const struct checkpoint *target, struct error *err)
{
    int rc = 0;
    TRY(checkpoint_open_head(head, name, NULL, err));
    rc = projection_check(*head, target, err);
    if (rc) {
        checkpoint_close(*head);
        *head = NULL;
    }
out:
    return rc;
}

/* ---- the key ---- */

static uint64_t add_tensor(uint64_t hash, struct digest_table *digests, const char *name)
{
    const struct part_digest *part = &digests->parts[digest_table_find(digests, name)];
    const uint64_t values[] = {part->sum, part->n};
    return XXH3_64bits_withSeed(values, sizeof values, hash);
}

struct projection_key projection_key_of(const struct checkpoint *head, struct digest_table *digests)
{
    const struct head_config *config = checkpoint_head(head);
    const struct model_config *cfg = checkpoint_config(head);
    const struct head_entry *e = &config->entry;
    char shape[SHAPE_TEXT_BYTES];
    if (!e->has_fc) return (struct projection_key){0};
    double eps = e->norms == FEATURES_PLAIN ? 0 : (double)cfg->norm_eps;
    int len = snprintf(shape, sizeof shape, "fc %d %d %d %d %d %.9g", (int)e->norms, e->n_features,
                       e->feature_dim, cfg->dim, e->has_fc_bias, eps);
    uint64_t hash = XXH3_64bits(shape, (size_t)len);
    hash = add_tensor(hash, digests, config->names[HEAD_FC]);
    if (e->has_fc_bias) hash = add_tensor(hash, digests, config->names[HEAD_FC_BIAS]);
    if (e->norms == FEATURES_NORMED_WHOLE) {
        hash = add_tensor(hash, digests, config->names[HEAD_FEATURES_NORM]);
    }
    for (int i = 0; e->norms == FEATURES_NORMED_APART && i < e->n_features; i++) {
        hash = add_tensor(hash, digests, config->feature_norms[i]);
    }
    return (struct projection_key){hash ? hash : 1, cfg->dim};
}

/* ---- loading ---- */

static int open_weights(struct projection *p, const struct checkpoint *head, struct backend *be,
                        struct error *err)
{
    struct digest_table digests = {0};
    struct loader ld = {.ck = head,
                        .cfg = checkpoint_config(head),
                        .head = checkpoint_head(head),
                        .be = be,
                        .bytes = &p->bytes,
                        .err = err,
                        .digests = &digests};
    int rc = 0;
    TRY(weights_check_form(head, be, err));
    TRY(digest_table_open(&digests, head, err));
    TRY(entry_weights_open_fc(&p->weights, &ld));
    checkpoint_release(head);
    p->key = projection_key_of(head, &digests);
out:
    digest_table_close(&digests);
    return rc;
}

int projection_open(struct projection *p, const struct checkpoint *head,
                    const struct checkpoint *target, int max_tokens, struct backend *be,
                    struct error *err)
{
    const struct model_config *cfg = checkpoint_config(head);
    int rc = 0;
    *p = (struct projection){.norm_eps = cfg->norm_eps};
    TRY(projection_check(head, target, err));
    TRY(fc_open(&p->fc, checkpoint_head(head), cfg->dim, max_tokens, true, be, err));
    TRY(backend_buffer(be, &p->rows, p->fc.capacity * (size_t)cfg->dim * sizeof *p->rows, err));
    TRY(open_weights(p, head, be, err));
out:
    if (rc) projection_close(p, be);
    return rc;
}

void projection_close(struct projection *p, struct backend *be)
{
    size_t n = p->fc.capacity * (size_t)p->fc.dim;
    if (p->rows) be->ops->buffer_close(be, p->rows, n * sizeof *p->rows);
    fc_close(&p->fc, be);
    entry_weights_close(&p->weights, be);
    *p = (struct projection){0};
}

/* ---- steps ---- */

int projection_check_wish(const struct projection *p, const struct feature_wish *wish,
                          struct error *err)
{
    const struct feature_projection *want = &wish->projection;
    int n = want->n + (want->normed ? 1 : 0);
    if (want->key.digest == 0) return 0;
    if (p->key.digest == 0) {
        return error_set(err, ERR_ARGUMENT,
                         "features projected by the head %016" PRIx64
                         " are wanted, but this worker has no head: start it with --head",
                         want->key.digest);
    }
    if (want->key.digest != p->key.digest || want->key.width != p->key.width) {
        return error_set(err, ERR_ARGUMENT,
                         "features projected by the head %016" PRIx64
                         " to the width %d are wanted, but this worker's --head is %016" PRIx64
                         " of width %d",
                         want->key.digest, want->key.width, p->key.digest, p->key.width);
    }
    if (n == p->fc.head->entry.n_features) return 0;
    return error_set(err, ERR_ARGUMENT,
                     "%d features are to be projected by the head %016" PRIx64 ", which reads %d",
                     n, want->key.digest, p->fc.head->entry.n_features);
}

void projection_forward(const struct projection *p, struct backend *be,
                        const struct kept_features *kept, int n)
{
    const struct feature_projection *want = &kept->wish.projection;
    int dim = kept->dim, n_columns = want->n + (want->normed ? 1 : 0);
    for (int i = 0; i < n_columns; i++) {
        int column = kept_features_find(kept, i < want->n ? want->boundaries[i] : -1);
        be->ops->widen(be, kept_features_column(kept, column), n, dim,
                       p->fc.features + (size_t)i * (size_t)dim, (size_t)fc_width(p->fc.head));
    }
    fc_norm(&p->fc, be, &p->weights, p->norm_eps, n);
    fc_multiply(&p->fc, be, &p->weights, p->fc.normed, (size_t)fc_width(p->fc.head), n, p->rows,
                kept_features_column(kept, feature_wish_columns(&kept->kept)), (size_t)p->fc.dim);
}
