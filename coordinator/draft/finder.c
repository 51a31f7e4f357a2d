/* What finders have in common. */
#include "coordinator/draft/drafter.h"
#include "coordinator/draft/internal.h"
#include "coordinator/sequence.h"

/* One-hot q's for the guesses. */
static int fill_q(struct draft *draft, struct arena *arena, struct error *err)
{
    size_t n = (size_t)draft->n;
    int32_t *ids = arena_take(arena, n, sizeof *ids);
    float *p = arena_take(arena, n, sizeof *p);
    if (!ids || !p) return error_set(err, ERR_NO_MEMORY, "no room for %d guesses", draft->n);
    for (int i = 0; i < draft->n; i++) {
        ids[i] = draft->tokens[i];
        p[i] = 1;
        draft->q[i] = (struct sparse_dist){1, &ids[i], &p[i]};
    }
    return 0;
}

void finder_take(struct draft_lane *lane, const int32_t *tokens, int n, struct arena *arena)
{
    struct sequence *seq = lane->seq;
    struct draft *draft = lane->draft;
    lane->err.code = 0;
    for (draft->n = 0; draft->n < n && !draft->is_over; draft->n++) {
        int32_t id = tokens[draft->n];
        draft->tokens[draft->n] = seq->tokens[seq->n_tokens + draft->n] = id;
        draft->n_siblings[draft->n] = 0;
        draft->is_over = end_ids_have(lane->ends, id);
    }
    if (draft->n > 0 && fill_q(draft, arena, &lane->err)) draft->n = 0;
}
