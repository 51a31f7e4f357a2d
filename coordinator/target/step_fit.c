/* Counts what a step takes and drops lists of ids from where they are too much. A rank decodes the
 * message into no more than MESSAGE_BYTES_MAX, too, so what is counted bounds both. */
#include "coordinator/target/step_fit.h"

enum {
    NUMBER_BYTES = 5, /* of a number below 2^31 on the wire; decoded it has 4 */
    PART_BYTES = 640, /* of a lane or a row without its arrays */
    FEW_IDS = 64      /* 4,096 such rows are 1 MiB */
};

static size_t array_bytes(int n)
{
    return (size_t)n * NUMBER_BYTES;
}

/* Bytes of all but the ids of long lists. */
static size_t fixed_bytes(const struct step *step, int n_rows)
{
    size_t bytes = (size_t)(1 + step->n_lanes + step->n_more + n_rows) * PART_BYTES;
    for (int i = 0; i < step->n_lanes; i++) {
        const struct step_lane *lane = &step->lanes[i];
        bytes += array_bytes(lane->n_tokens) + array_bytes(lane->n_blocks);
        bytes += array_bytes(lane->n_draft) + array_bytes(lane->n_tails);
    }
    return bytes + (size_t)n_rows * array_bytes(FEW_IDS);
}

void step_fit(const struct step *step, struct step_row *rows, int n_rows)
{
    size_t used = fixed_bytes(step, n_rows);
    for (int i = 0; i < n_rows; i++) {
        struct row_wish *wish = &rows[i].wish;
        if (wish->n_ids <= FEW_IDS) continue;
        if (used + array_bytes(wish->n_ids) > MESSAGE_BYTES_MAX) {
            *wish = (struct row_wish){.at = wish->at, .full = true};
        } else {
            used += array_bytes(wish->n_ids);
        }
    }
}
