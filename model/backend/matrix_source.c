/* The source of a matrix: its digests, and reading it ahead. */
#include "model/backend/backend.h"
#include "model/checkpoint/digest.h"

void matrix_source_digest(const struct matrix_source *source, int first, int end, uint64_t *digests)
{
    for (int column = first; column < end; column++) {
        int row;
        const struct matrix_part *part = matrix_source_part(source, column, &row);
        if (!part) continue;
        digests[part - source->parts] +=
            weight_digest_unit(&part->weight, row, part->first_col, source->n_in);
    }
}

static void expect_part(const struct matrix_part *part, int n_in)
{
    int n_left = part->weight.n_rows - part->first_row;
    if (!part->row_list) {
        weight_expect(&part->weight, part->first_row, n_left < part->n_rows ? n_left : part->n_rows,
                      part->first_col, n_in);
    }
    for (int i = 0; part->row_list && i < part->n_listed; i++) {
        weight_expect(&part->weight, (int)part->row_list[i], 1, part->first_col, n_in);
    }
}

void matrix_source_expect(const struct matrix_source *source)
{
    int n_slices = source->n_slices ? source->n_slices - source->slice : 1;
    if (source->is_expected && *source->is_expected) return;
    for (int i = 0; i < source->n_parts; i++) {
        expect_part(&source->parts[i], n_slices * source->n_in);
    }
    if (source->is_expected) *source->is_expected = true;
}
