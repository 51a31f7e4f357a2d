/* The loop of a replay. Only what a real round would take is simulated: time. */
#include "client/replay/run.h"

#include <stdlib.h>

#include "base/memory.h"

/* Tokens of an offer that are held against the text, as in coordinator/schedule/plan.h. */
enum { REPLAY_FORESEEN = 8 };

struct run {
    struct replay_drafter *drafters;
    int n_drafters;
    const struct replay_times *times;
    struct replay_figures *figures;
    struct planner planner;
    struct planner_sequence seq;
    struct token_ids text; /* prompt and what is committed */
    struct replay_found found[N_REPLAY_FINDERS];
    struct planner_offer offers[N_REPLAY_FINDERS];
};

static int64_t busy_ns(const struct run *run)
{
    int64_t sum = 0;
    for (int i = 0; i < run->n_drafters; i++) {
        sum += run->drafters[i].busy_ns;
    }
    return sum;
}

/* Lets the planner choose; returns K, and the chosen drafter's number. */
static int choose(struct run *run, int n_left, int *chosen)
{
    struct planner_lane lane = {.seq = &run->seq, .n_left = n_left, .offers = run->offers};
    const struct planner_load load = {.n_rows_max = DRAFT_MAX + 1};
    for (int i = 0; i < run->n_drafters; i++) {
        struct planner_offer *offer = &run->offers[lane.n_offers];
        replay_drafter_find(&run->drafters[i], &run->text, i, &run->found[i]);
        *offer = run->found[i].offer;
        if (offer->k_max > n_left - 1) offer->k_max = n_left - 1;
        run->figures->n_offered[i] += run->found[i].offer.k_max > 0;
        lane.n_offers += offer->k_max > 0;
    }
    planner_share(&run->planner, &lane, 1, &load);
    *chosen = lane.offer ? lane.offer->finder : -1;
    return lane.offer ? lane.tree.n_chain : 0;
}

static void observe(struct run *run, int chosen, int k, int n_accepted)
{
    struct replay_figures *f = run->figures;
    const struct replay_times *times = run->times;
    double step_us = times->step_us[k + 1], round_us = step_us + times->rest_us[k + 1];
    const struct planner_round round = {.n_rows = k + 1,
                                        .n_lanes = 1,
                                        .is_timed = true,
                                        .step_us = (int64_t)step_us,
                                        .round_us = (int64_t)round_us};
    f->n_rounds++;
    f->round_us += round_us;
    planner_observe_round(&run->planner, &round);
    if (k == 0) {
        planner_observe_lane(&run->planner, &run->seq, 0, 0, 0);
        return;
    }
    f->n_chosen[chosen]++;
    for (int i = 0; i < k && i <= n_accepted; i++) {
        f->tested[chosen][i]++;
        f->accepted[chosen][i] += i < n_accepted;
    }
    planner_observe_offer(&run->planner, &run->seq, &run->found[chosen].offer, k, n_accepted);
}

/* Offers that were not taken, held against the n_committed tokens of the round. */
static void observe_untaken(struct run *run, int chosen, const int32_t *answer, int n_committed)
{
    for (int i = 0; i < run->n_drafters; i++) {
        const struct replay_found *found = &run->found[i];
        int n = found->offer.k_max, n_right = 0;
        if (n > REPLAY_FORESEEN) n = REPLAY_FORESEEN;
        if (n > n_committed) n = n_committed;
        if (n == 0 || i == chosen) continue;
        while (n_right < n && found->tokens[n_right] == answer[n_right]) {
            n_right++;
        }
        planner_observe_untaken(&run->planner, &run->seq, &found->offer, n, n_right);
    }
}

/* One round at answer[0..n_left); returns the tokens that it commits. */
static int make_round(struct run *run, const int32_t *answer, int n_left)
{
    int chosen, n_accepted = 0, k = choose(run, n_left, &chosen);
    while (n_accepted < k && run->found[chosen].tokens[n_accepted] == answer[n_accepted]) {
        n_accepted++;
    }
    observe(run, chosen, k, n_accepted);
    observe_untaken(run, chosen, answer, n_accepted + 1);
    return n_accepted + 1;
}

static int commit(struct run *run, const int32_t *tokens, int n, struct error *err)
{
    int rc = 0;
    TRY(token_ids_append(&run->text, tokens, (size_t)n, err));
    for (int i = 0; i < run->n_drafters; i++) {
        TRY(replay_drafter_add(&run->drafters[i], tokens, n, err));
    }
out:
    return rc;
}

static int replay(struct run *run, const struct recorded_text *text, struct error *err)
{
    int rc = 0, n = (int)text->answer.n;
    run->text.n = 0;
    run->seq = (struct planner_sequence){.strategy = STRATEGY_PLANNED};
    TRY(token_ids_append(&run->text, text->prompt.data, text->prompt.n, err));
    for (int i = 0; i < run->n_drafters; i++) {
        TRY(replay_drafter_begin(&run->drafters[i], &text->prompt, err));
    }
    for (int at = 0; at < n;) {
        int n_committed = make_round(run, text->answer.data + at, n - at);
        TRY(commit(run, text->answer.data + at, n_committed, err));
        at += n_committed;
    }
    for (int i = 0; i < run->n_drafters; i++) {
        replay_drafter_end(&run->drafters[i], &run->text);
    }
    run->figures->n_texts++;
    run->figures->n_tokens += n;
out:
    return rc;
}

int replay_run(const struct recorded_texts *texts, struct replay_drafter *drafters, int n_drafters,
               const struct replay_times *times, struct replay_figures *figures, struct error *err)
{
    int rc = 0;
    struct run *run = NULL;
    *figures = (struct replay_figures){0};
    TRY(mem_array(&run, 1, sizeof *run, err));
    run->drafters = drafters;
    run->n_drafters = n_drafters;
    run->times = times;
    run->figures = figures;
    for (int rows = 1; rows <= DRAFT_MAX + 1; rows++) {
        planner_calibrate_step(&run->planner, rows, times->step_us[rows]);
    }
    for (size_t i = 0; i < texts->n; i++) {
        TRY(replay(run, &texts->data[i], err));
    }
    figures->round_us += (double)busy_ns(run) / 1000;
    figures->plain_us = (double)figures->n_tokens * (times->step_us[1] + times->rest_us[1]);
out:
    if (run) token_ids_free(&run->text);
    free(run);
    return rc;
}
