/* The buffer of the features that a model keeps. */
#include "model/features.h"

#include <string.h>

/* The number of the wish with this buffer. The oldest of the known ones is forgotten; its number
 * is never given again, because a device may have recorded steps under it. */
static int number_wish(struct kept_features *kept, const struct feature_wish *wish)
{
    for (int i = 0; i < FEATURE_VARIANTS; i++) {
        if (kept->known[i].variant && feature_wish_equal(&kept->known[i].wish, wish)) {
            return kept->known[i].variant;
        }
    }
    int at = kept->n_variants++ % FEATURE_VARIANTS;
    kept->known[at].wish = *wish;
    kept->known[at].variant = kept->n_variants;
    return kept->n_variants;
}

int kept_features_set(struct kept_features *kept, struct backend *be,
                      const struct feature_wish *wish, int n_rows, int dim, struct error *err)
{
    int rc = 0;
    uint16_t *rows;
    kept->wish = kept->kept = (struct feature_wish){0};
    kept->variant = 0;
    if (!wish || feature_wish_is_empty(wish)) return 0;
    struct feature_wish all = feature_wish_kept(wish);
    size_t width = feature_wish_width(&all, dim);
    if (wish->projection.key.digest) width += (size_t)wish->projection.key.width;
    size_t bytes = (size_t)n_rows * width * sizeof *kept->rows;
    if (bytes > kept->bytes) {
        TRY(backend_buffer(be, &rows, bytes, err)); /* the old one serves earlier wishes */
        kept_features_close(kept, be);
        memset(kept->known, 0, sizeof kept->known);
        kept->rows = rows;
        kept->bytes = bytes;
    }
    kept->n_rows = n_rows;
    kept->dim = dim;
    kept->wish = *wish;
    kept->kept = all;
    kept->variant = number_wish(kept, wish);
out:
    return rc;
}

void kept_features_close(struct kept_features *kept, struct backend *be)
{
    if (kept->rows) be->ops->buffer_close(be, kept->rows, kept->bytes);
    kept->rows = NULL;
    kept->bytes = 0;
}
