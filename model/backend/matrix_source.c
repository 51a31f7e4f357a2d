/* Digests of what a matrix is made of. */
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
