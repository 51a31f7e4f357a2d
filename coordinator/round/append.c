/* Guesses that are found after those of the draft (coordinator/draft/appended.h). */
#include "coordinator/round/round.h"

/* Guesses beside the lane's chain. A branch counts as it was planned, because it is found later
 * than this, when the chain is complete; some of its guesses may then be the chain's own. */
static int rows_beside(const struct round_lane *lane)
{
    int n = lane->plan.n_window + lane->draft.grown.n;
    if (!lane->plan.tails) return 0;
    if (lane->draft.n > 0) n += lane->plan.branch.n;
    for (int i = 0; i < lane->draft.n; i++) {
        n += lane->plan.siblings[i];
    }
    return n;
}

struct planner_append_load round_append_load(const struct round *r)
{
    struct planner_append_load load = {.n_lanes = r->plan.n_waiting,
                                       .draft_us = (double)r->draft_us};
    for (int i = 0; i < r->n_lanes; i++) {
        const struct round_lane *lane = &r->lanes[i];
        load.n_rows += lane->plan.n_tokens + lane->draft.n + rows_beside(lane);
        load.n_lanes += lane->plan.is_last ? 1 : 0;
    }
    load.n_wanted = load.n_rows - r->plan.n_prompt;
    return load;
}

void round_append(struct round *r, struct round_lane **owners, int n)
{
    const struct appended *appended = r->tools->appended;
    struct append_lane lanes[SEQUENCES_MAX];
    int n_lanes = 0, at[SEQUENCES_MAX];
    for (int i = 0; i < n; i++) {
        if (owners[i]->plan.n_append == 0) continue;
        at[n_lanes] = i;
        lanes[n_lanes++] = (struct append_lane){&r->drafts[i], owners[i]->plan.n_append, 0};
    }
    if (n_lanes == 0) return;
    const struct planner_append_load load = round_append_load(r);
    appended_add(appended, lanes, n_lanes, &load, &r->arena);
    for (int i = 0; i < n_lanes; i++) {
        owners[at[i]]->append_evidence = lanes[i].evidence;
    }
}
