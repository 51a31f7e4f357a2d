#include "model/backend/matrix_order.h"

#include <stdlib.h>
#include <string.h>

#include "base/least.h"

enum {
    ORDERED_MOST = 1 << 19 /* columns, with those that fill up groups: a row of SLICES_MAX slices
                              fits the memory that backends bring rows into order in */
};

static const struct stored_matrix *stored_of(const struct matrix_part *part)
{
    return part->weight.dtype == DTYPE_STORED ? &part->weight.stored : NULL;
}

static bool has_order(const struct matrix_part *part)
{
    const struct stored_matrix *stored = stored_of(part);
    return stored && stored->order;
}

/* Parts of plain numbers and of fp8 take the rows as they are. */
static bool fits(const struct matrix_part *part, const struct stored_matrix *wanted)
{
    const struct stored_matrix *stored = stored_of(part);
    if (!stored || stored->kind == STORED_FP8) return true;
    return stored->order &&
           memcmp(stored->order, wanted->order, (size_t)wanted->n_cols * sizeof(int32_t)) == 0;
}

/* Fills order[width] with the columns of the slice at first_col, or only counts, and returns their
 * number with those that fill up groups. */
static int order_slice(const struct stored_matrix *stored, int first_col, int n_in, int32_t *order,
                       int *counts)
{
    int at = 0;
    memset(counts, 0, (size_t)stored->n_groups * sizeof *counts);
    for (int k = 0; k < n_in; k++) {
        counts[stored_group_of(stored, first_col + k)]++;
    }
    for (int group = 0; group < stored->n_groups; group++) {
        int n = (counts[group] + QUANT_GROUP - 1) / QUANT_GROUP * QUANT_GROUP;
        counts[group] = at; /* now where the group's next column goes */
        at += n;
    }
    for (int k = 0; order && k < n_in; k++) {
        order[counts[stored_group_of(stored, first_col + k)]++] = k;
    }
    return at;
}

static int make_order(struct matrix *m, const struct matrix_part *part, struct error *err)
{
    const struct stored_matrix *stored = stored_of(part);
    int *counts = NULL, rc = 0;
    TRY(mem_array(&counts, (size_t)stored->n_groups, sizeof *counts, err));
    for (int col = 0; col + m->n_in <= stored->n_cols; col += m->n_in) {
        m->n_ordered = most(m->n_ordered, order_slice(stored, col, m->n_in, NULL, counts));
    }
    if (m->n_ordered > ORDERED_MOST) {
        rc = error_set(
            err, ERR_UNSUPPORTED,
            "a matrix whose %d columns are in %d groups, with an order of their own, takes "
            "%d places; at most %d are supported",
            m->n_in, stored->n_groups, m->n_ordered, ORDERED_MOST);
        goto out;
    }
    TRY(mem_array(&m->order, (size_t)m->n_ordered, sizeof *m->order, err));
    for (int i = 0; i < m->n_ordered; i++) {
        m->order[i] = -1;
    }
    order_slice(stored, part->first_col, m->n_in, m->order, counts);
out:
    free(counts);
    return rc;
}

int matrix_order_open(struct matrix *m, const struct matrix_source *source, struct error *err)
{
    const struct matrix_part *first = NULL;
    for (int i = 0; i < source->n_parts && !first; i++) {
        if (has_order(&source->parts[i])) first = &source->parts[i];
    }
    if (!first) return 0;
    for (int i = 0; i < source->n_parts; i++) {
        if (fits(&source->parts[i], stored_of(first))) continue;
        return error_set(err, ERR_UNSUPPORTED,
                         "matrices that read the same rows have groups of different columns "
                         "(quantized with \"desc_act\"), which is not supported; take a model that "
                         "was quantized without");
    }
    return make_order(m, first, err);
}
