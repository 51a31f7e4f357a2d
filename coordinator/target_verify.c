/* Turns the slices that the ranks send into p of each position: one step, its rows merged, and a
 * second question where the cut of a truncation is not certain. */
#include "coordinator/target.h"

int target_answer_error(struct error *err)
{
    if (err->code != ERR_FORMAT) return err->code;
    err->code = ERR_INTERNAL;
    return error_wrap(err, "the workers' answer makes no sense");
}

/* Where each lane's wants begin, and their wishes. */
static int list_rows(const struct target_query *query, struct arena *arena, struct step_row **rows,
                     struct error *err)
{
    *rows = arena_take(arena, (size_t)query->n_wants, sizeof **rows);
    if (query->n_wants && !*rows) {
        return error_set(err, ERR_NO_MEMORY, "too many rows for one step");
    }
    for (int i = 0; i < query->n_lanes; i++) {
        query->lanes[i].n_rows = 0;
    }
    for (int w = 0; w < query->n_wants; w++) {
        const struct lane_want *want = &query->wants[w];
        struct step_lane *lane = &query->lanes[want->lane];
        if (lane->n_rows++ == 0) lane->rows = &(*rows)[w];
        (*rows)[w].index = want->index;
        target_row_wish(&want->want, &(*rows)[w].wish);
    }
    return 0;
}

/* What is known of each want of a step; arrays in arena. */
struct rows_known {
    const struct lane_want *wants;
    struct step_row *rows;           /* [n_wants] what was asked for last */
    const struct slice_row **slices; /* [n_wants] what came */
    int *open;                       /* [n_open] wants whose truncation is not certain yet */
    int n_open;
};

static int know_rows(struct rows_known *known, const struct target_query *query,
                     struct step_row *rows, const struct target_answer *answer, struct arena *arena,
                     struct error *err)
{
    int n_wants = query->n_wants;
    *known = (struct rows_known){.wants = query->wants, .rows = rows, .n_open = n_wants};
    known->slices = arena_take(arena, (size_t)n_wants, sizeof *known->slices);
    known->open = arena_take(arena, (size_t)n_wants, sizeof *known->open);
    if (!known->slices || !known->open) {
        return error_set(err, ERR_NO_MEMORY, "too many rows for one step");
    }
    for (int w = 0; w < n_wants; w++) {
        known->slices[w] = &answer->slices[(size_t)w * (size_t)answer->n_slices];
        known->open[w] = w;
    }
    return 0;
}

/* Merges the open wants; those that stay open wish for more. */
static int merge_open(const struct target *t, struct rows_known *known, struct arena *arena,
                      struct target_row *rows, struct error *err)
{
    const struct target_description *d = target_description(t);
    int n_left = 0;
    for (int i = 0; i < known->n_open; i++) {
        int w = known->open[i], n_best_more = 0;
        struct row_wish *wish = &known->rows[w].wish;
        const struct target_slices slices = {known->slices[w], d->n_slices, d->vocab_size};
        if (target_row_merge(&slices, &known->wants[w].want, wish, arena, &rows[w], &n_best_more,
                             err)) {
            return target_answer_error(err);
        }
        if (n_best_more == 0) continue;
        wish->n_best = n_best_more;
        known->open[n_left++] = w;
    }
    known->n_open = n_left;
    return 0;
}

/* Asks the ranks for more of all open wants, in one exchange. */
static int ask_more(struct target *t, struct rows_known *known, struct arena *arena,
                    struct target_cost *cost, struct error *err)
{
    int rc = 0, n = known->n_open;
    struct target_answer answer;
    struct step_more *more = arena_take(arena, (size_t)n, sizeof *more);
    if (!more) return error_set(err, ERR_NO_MEMORY, "too many rows for one step");
    for (int i = 0; i < n; i++) {
        int w = known->open[i];
        more[i] = (struct step_more){known->wants[w].lane, 1, &known->rows[w]};
    }
    struct step step = {.n_more = n, .more = more};
    TRY(target_step(t, &step, NULL, arena, &answer, cost, err));
    for (int i = 0; i < n; i++) {
        known->slices[known->open[i]] = &answer.slices[(size_t)i * (size_t)answer.n_slices];
    }
    cost->more_rows += (uint64_t)n;
out:
    return rc;
}

int target_verify(struct target *t, const struct target_query *query, struct arena *arena,
                  struct target_row *rows, struct target_cost *cost, struct error *err)
{
    int rc = 0;
    struct step_row *step_rows;
    struct target_answer answer;
    struct rows_known known;
    TRY(list_rows(query, arena, &step_rows, err));
    struct step step = {.n_lanes = query->n_lanes, .lanes = query->lanes};
    TRY(target_step(t, &step, query->meanwhile, arena, &answer, cost, err));
    TRY(know_rows(&known, query, step_rows, &answer, arena, err));
    for (;;) {
        TRY(merge_open(t, &known, arena, rows, err));
        if (known.n_open == 0) break;
        TRY(ask_more(t, &known, arena, cost, err));
    }
out:
    return rc;
}
