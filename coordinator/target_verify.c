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
    const struct error **failures;   /* [n_wants] or why nothing came */
    int *open;                       /* [n_open] wants that are not settled yet */
    int n_open;
};

static int know_rows(struct rows_known *known, const struct target_query *query,
                     struct step_row *rows, const struct target_answer *answer, struct arena *arena,
                     struct error *err)
{
    int n_wants = query->n_wants;
    *known = (struct rows_known){.wants = query->wants, .rows = rows, .n_open = n_wants};
    known->slices = arena_take(arena, (size_t)n_wants, sizeof *known->slices);
    known->failures = arena_take(arena, (size_t)n_wants, sizeof *known->failures);
    known->open = arena_take(arena, (size_t)n_wants, sizeof *known->open);
    if (!known->slices || !known->failures || !known->open) {
        return error_set(err, ERR_NO_MEMORY, "too many rows for one step");
    }
    for (int w = 0; w < n_wants; w++) {
        known->slices[w] = &answer->slices[(size_t)w * (size_t)answer->n_slices];
        known->failures[w] = answer->failures[w];
        known->open[w] = w;
    }
    return 0;
}

/* The row has no p, for the reason in err or because the arena has no room even for that. */
static void fail_row(struct target_row *row, const struct error *err, struct arena *arena)
{
    static const struct error no_room = {ERR_NO_MEMORY, "there is no room for the rows of a step"};
    struct error *failure = arena_take(arena, 1, sizeof *failure);
    if (failure) *failure = *err;
    *row = (struct target_row){.outside_id = -1, .failure = failure ? failure : &no_room};
}

/* Merges what came for want w. True: the row stays open, and its wish is what to ask next. */
static bool merge_row(const struct target *t, struct rows_known *known, int w, struct arena *arena,
                      struct target_row *row)
{
    const struct target_description *d = target_description(t);
    const struct target_slices slices = {known->slices[w], d->n_slices, d->vocab_size};
    struct row_wish *wish = &known->rows[w].wish;
    struct error err;
    int n_best_more = 0;
    if (target_row_merge(&slices, &known->wants[w].want, wish, arena, row, &n_best_more, &err)) {
        target_answer_error(&err);
        fail_row(row, &err, arena);
    }
    if (n_best_more > 0) wish->n_best = n_best_more;
    return n_best_more > 0;
}

/* Settles the open wants that can be; a row's failure is its lane's alone. What stays open is asked
 * for in another exchange. A reply has room for at least one row, so one in which no row fits has
 * none for a row at all. */
static void merge_open(const struct target *t, struct rows_known *known, struct arena *arena,
                       struct target_row *rows)
{
    int n_left = 0, n_full = 0;
    for (int i = 0; i < known->n_open; i++) {
        n_full += known->failures[known->open[i]] &&
                  known->failures[known->open[i]]->code == ERR_EXHAUSTED;
    }
    bool some_fit = n_full < known->n_open;
    for (int i = 0; i < known->n_open; i++) {
        int w = known->open[i];
        const struct error *failure = known->failures[w];
        bool is_open = failure && failure->code == ERR_EXHAUSTED && some_fit;
        if (failure && !is_open) {
            rows[w] = (struct target_row){.outside_id = -1, .failure = failure};
        } else if (!failure) {
            is_open = merge_row(t, known, w, arena, &rows[w]);
        }
        if (is_open) known->open[n_left++] = w;
    }
    known->n_open = n_left;
}

/* The rows of the open wants, one entry for each lane. */
static int list_more(const struct rows_known *known, struct arena *arena, struct step *step,
                     struct error *err)
{
    size_t n = (size_t)known->n_open;
    struct step_more *more = arena_take(arena, n, sizeof *more);
    struct step_row *rows = arena_take(arena, n, sizeof *rows);
    if (!more || !rows) return error_set(err, ERR_NO_MEMORY, "too many rows for one step");
    *step = (struct step){.more = more};
    for (int i = 0; i < known->n_open; i++) {
        int w = known->open[i], lane = known->wants[w].lane;
        rows[i] = known->rows[w];
        if (step->n_more == 0 || more[step->n_more - 1].lane != lane) {
            more[step->n_more++] = (struct step_more){.lane = lane, .rows = &rows[i]};
        }
        more[step->n_more - 1].n_rows++;
    }
    return 0;
}

/* Asks the ranks for more of all open wants, in one exchange. */
static int ask_more(struct target *t, struct rows_known *known, struct arena *arena,
                    struct target_cost *cost, struct error *err)
{
    int rc = 0, n = known->n_open;
    struct target_answer answer;
    struct step step;
    TRY(list_more(known, arena, &step, err));
    TRY(target_step(t, &step, NULL, arena, &answer, cost, err));
    for (int i = 0; i < n; i++) {
        int w = known->open[i];
        known->slices[w] = &answer.slices[(size_t)i * (size_t)answer.n_slices];
        known->failures[w] = answer.failures[i];
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
        merge_open(t, &known, arena, rows);
        if (known.n_open == 0) break;
        TRY(ask_more(t, &known, arena, cost, err));
    }
out:
    return rc;
}
