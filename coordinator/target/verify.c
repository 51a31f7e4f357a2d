/* Turns the slices that the ranks send into p of each position: one step, its rows merged, and a
 * second question where the cut of a truncation is not certain. */
#include "coordinator/target/target.h"

#include <string.h>

#include "coordinator/target/step_fit.h"
#include "speculation/accept/rules.h"

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
        if (want->wish) {
            (*rows)[w].wish = *want->wish;
        } else {
            int rc = target_row_wish_edited(&want->want, arena, &(*rows)[w].wish, err);
            if (rc) return rc;
        }
    }
    return 0;
}

/* The rows that are known of the wants of a step; arrays in arena. */
struct rows_known {
    const struct step_lane *lanes; /* of the step */
    const struct lane_want *wants;
    struct step_row *rows;           /* [n_wants] what was asked for last */
    const struct slice_row **slices; /* [n_wants] what came */
    const struct error **failures;   /* [n_wants] or why nothing came */
    int *open;                       /* [n_open] wants that are not settled yet */
    int n_open;
};

/* Lanes that the ranks left out have no rows. */
static int take_refusals(struct rows_known *known, const struct target_query *query,
                         const struct target_answer *answer, const struct error **lane_errors,
                         struct arena *arena, struct error *err)
{
    for (int i = 0; i < answer->n_refused; i++) {
        struct error *why = arena_take(arena, 1, sizeof *why);
        if (!why) return error_set(err, ERR_NO_MEMORY, "no room to say why a lane failed");
        error_set(why, ERR_INTERNAL, "the workers refused this request's part of a step: %.400s",
                  answer->refused[i].text);
        lane_errors[answer->refused[i].lane] = why;
    }
    for (int w = 0; w < query->n_wants; w++) {
        const struct error *why = lane_errors[query->wants[w].lane];
        if (why) known->failures[w] = why;
    }
    return 0;
}

static int know_rows(struct rows_known *known, const struct target_query *query,
                     struct step_row *rows, const struct target_answer *answer, struct arena *arena,
                     struct error *err)
{
    int n_wants = query->n_wants;
    *known = (struct rows_known){
        .lanes = query->lanes, .wants = query->wants, .rows = rows, .n_open = n_wants};
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

/* A copy of err, or that the arena has no room even for that. */
static const struct error *keep_error(const struct error *err, struct arena *arena)
{
    static const struct error no_room = {ERR_NO_MEMORY, "there is no room for the rows of a step"};
    struct error *kept = arena_take(arena, 1, sizeof *kept);
    if (kept) *kept = *err;
    return kept ? kept : &no_room;
}

/* A copy that outlives the next exchange, in the place of the lent slices. */
static int keep_slices(struct rows_known *known, int w, int n_slices, struct arena *arena,
                       struct error *err)
{
    struct slice_row *kept = arena_take(arena, (size_t)n_slices, sizeof *kept);
    for (int s = 0; kept && s < n_slices; s++) {
        const struct slice_row *from = &known->slices[w][s];
        size_t n_best = (size_t)from->n_best, n_ids = (size_t)from->n_ids;
        int32_t *ids = arena_take(arena, n_best, sizeof *ids);
        float *best = arena_take(arena, n_best, sizeof *best);
        float *logits = arena_take(arena, n_ids, sizeof *logits);
        if (!ids || !best || !logits) return error_set(err, ERR_NO_MEMORY, "no room for a row");
        if (n_best) memcpy(ids, from->best_ids, n_best * sizeof *ids);
        if (n_best) memcpy(best, from->best_logits, n_best * sizeof *best);
        if (n_ids) memcpy(logits, from->id_logits, n_ids * sizeof *logits);
        kept[s] = *from;
        kept[s].best_ids = ids;
        kept[s].best_logits = best;
        kept[s].id_logits = logits;
        kept[s].full = NULL;
    }
    if (!kept) return error_set(err, ERR_NO_MEMORY, "no room for a row");
    known->slices[w] = kept;
    return 0;
}

/* Merges what came for want w. True: the row stays open, and its wish is what to ask next. */
static bool merge_row(const struct target *t, struct rows_known *known, int w, struct arena *arena,
                      struct target_row *row)
{
    const struct target_description *d = target_description(t);
    const struct target_slices slices = {known->slices[w], d->n_slices, d->vocab_size};
    struct row_wish *wish = &known->rows[w].wish;
    struct error err;
    bool more;
    if (known->wants[w].wish) {
        *row = (struct target_row){.outside_id = -1};
        if (keep_slices(known, w, d->n_slices, arena, &err)) {
            row->failure = keep_error(&err, arena);
        }
        return false;
    }
    if (target_row_merge(&slices, &known->wants[w].want, wish, arena, row, &more, &err)) {
        target_answer_error(&err);
        *row = (struct target_row){.outside_id = -1, .failure = keep_error(&err, arena)};
    }
    return more;
}

/* True if the guess after this row does not stay: nobody looks at the lane's further rows. In a
 * tree another child may stay, so all rows are merged. */
static bool is_last_row(const struct rows_known *known, int w, const struct target_row *row)
{
    const struct lane_want *want = &known->wants[w];
    const struct rule *rule = want->want.rule;
    if (want->wish || !want->want.q || !rule->keep || row->failure) return false;
    if (known->lanes[want->lane].parents) return false;
    int32_t guess = known->lanes[want->lane].tokens[want->index + 1];
    return !rule->keep(row, want->want.q, guess, &want->want.at);
}

/* As merge_row, for a row that decides nothing. */
static void merge_spare_row(const struct target *t, struct rows_known *known, int w,
                            struct arena *arena, struct target_row *row)
{
    const struct target_description *d = target_description(t);
    const struct target_slices slices = {known->slices[w], d->n_slices, d->vocab_size};
    *row = (struct target_row){.outside_id = -1};
    if (known->failures[w]) return;
    target_row_merge_spare(&slices, &known->wants[w].want, &known->rows[w].wish, arena, row);
}

/* Settles the open wants that can be; a row's failure is its lane's alone. Rows after a guess that
 * does not stay decide nothing. Wants that stay open are asked for in another exchange. A reply has
 * room for at least one row, so one in which no row fits has none for a row at all. */
static void merge_open(const struct target *t, struct rows_known *known, struct arena *arena,
                       struct target_row *rows)
{
    int n_left = 0, n_full = 0, over = -1; /* the lane whose further rows nobody looks at */
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
        } else if (known->wants[w].lane == over) {
            merge_spare_row(t, known, w, arena, &rows[w]);
            is_open = false;
        } else if (!failure) {
            is_open = merge_row(t, known, w, arena, &rows[w]);
            if (!is_open && is_last_row(known, w, &rows[w])) over = known->wants[w].lane;
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
    step_fit(step, rows, known->n_open);
    for (int i = 0; i < known->n_open; i++) {
        known->rows[known->open[i]].wish = rows[i].wish;
    }
    return 0;
}

/* Takes row i of an answer as the reply to want w. Sums that a further question did not ask for
 * again are those of the answer before. */
static void take_more(struct rows_known *known, int w, const struct target_answer *answer, int i,
                      struct arena *arena)
{
    struct slice_row *slices = &answer->slices[(size_t)i * (size_t)answer->n_slices];
    struct error err;
    known->failures[w] = answer->failures[i];
    if (answer->failures[i]) return;
    if (known->rows[w].wish.has_least &&
        target_row_carry(known->slices[w], slices, answer->n_slices, &err)) {
        target_answer_error(&err);
        known->failures[w] = keep_error(&err, arena);
    }
    known->slices[w] = slices;
}

/* Asks the ranks for more of all open wants, in one exchange. */
static int ask_more(struct target *t, struct rows_known *known, struct arena *arena,
                    struct target_cost *cost, struct error *err)
{
    int rc = 0, n = known->n_open;
    struct target_answer answer;
    struct step step;
    TRY(list_more(known, arena, &step, err));
    TRY(target_step(t, &step, arena, &answer, cost, err));
    for (int i = 0; i < n; i++) {
        take_more(known, known->open[i], &answer, i, arena);
    }
    cost->more_rows += (uint64_t)n;
out:
    return rc;
}

int target_verify_send(struct target *t, const struct target_query *query, struct arena *arena,
                       struct target_question *question, struct target_result *result,
                       struct target_cost *cost, struct error *err)
{
    int rc = 0;
    size_t n_wants = (size_t)query->n_wants, n_lanes = (size_t)query->n_lanes;
    TRY(list_rows(query, arena, &question->rows, err));
    result->rows = arena_take(arena, n_wants, sizeof *result->rows);
    result->lane_errors = arena_take(arena, n_lanes, sizeof *result->lane_errors);
    if (!result->rows || !result->lane_errors) {
        return error_set(err, ERR_NO_MEMORY, "too many rows for one step");
    }
    memset(result->lane_errors, 0, n_lanes * sizeof *result->lane_errors);
    question->step = (struct step){
        .n_lanes = query->n_lanes, .lanes = query->lanes, .features = query->features};
    step_fit(&question->step, question->rows, query->n_wants);
    rc = target_step_send(t, &question->step, arena, &question->answer, cost, err);
out:
    return rc;
}

int target_verify_merge(struct target *t, const struct target_query *query, struct arena *arena,
                        struct target_question *question, struct target_result *result,
                        struct target_cost *cost, struct error *err)
{
    int rc = 0;
    struct rows_known known;
    struct target_answer *answer = &question->answer;
    TRY(target_step_receive(t, &question->step, arena, answer, cost, err));
    cost->step_us = cost->compute_us + cost->collective_us;
    TRY(know_rows(&known, query, question->rows, answer, arena, err));
    TRY(take_refusals(&known, query, answer, result->lane_errors, arena, err));
    for (;;) {
        merge_open(t, &known, arena, result->rows);
        if (known.n_open == 0) break;
        TRY(ask_more(t, &known, arena, cost, err));
    }
    result->slices = known.slices;
    result->features = answer->features;
    result->feature_error = answer->feature_error;
    result->feature_dim = target_description(t)->dim;
    for (int w = 0; w < query->n_wants; w++) {
        const struct error *failure = result->rows[w].failure;
        if (query->wants[w].decides_nothing) continue;
        if (failure) result->lane_errors[query->wants[w].lane] = failure;
    }
out:
    return rc;
}
