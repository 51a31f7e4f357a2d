/* Guesses that are found after those of the draft (coordinator/draft/appended.h). */
#include "coordinator/round/round.h"

/* Guesses beside the lane's chain. Siblings and a branch count as they were planned, the branch
 * because it is found later than this, when the chain is complete; some of its guesses may then be
 * the chain's own. */
static int rows_beside(const struct round_lane *lane)
{
    const struct guess_tree *plan = &lane->plan.tree;
    int n = guess_tree_count(&lane->draft, GUESS_GROWN);
    if (!lane->plan.tails) return 0;
    if (lane->plan.window || lane->draft.n > 0) n += guess_tree_count(plan, GUESS_BRANCH);
    for (int place = 0; place < lane->draft.n_chain; place++) {
        n += guess_tree_siblings(plan, place);
    }
    return n;
}

struct planner_append_load round_append_load(const struct round *r)
{
    struct planner_append_load load = {.n_lanes = r->plan.n_waiting,
                                       .draft_us = (double)r->draft_us};
    for (int i = 0; i < r->n_lanes; i++) {
        const struct round_lane *lane = &r->lanes[i];
        load.n_rows += lane->plan.n_tokens + lane->draft.n_chain + rows_beside(lane);
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
        int n_append = guess_tree_count(&owners[i]->plan.tree, GUESS_APPENDED);
        if (n_append == 0) continue;
        at[n_lanes] = i;
        lanes[n_lanes++] = (struct append_lane){&r->drafts[i], round_model(owners[i]), n_append, 0};
    }
    if (n_lanes == 0) return;
    const struct planner_append_load load = round_append_load(r);
    appended_add(appended, lanes, n_lanes, &load, &r->arena);
    for (int i = 0; i < n_lanes; i++) {
        owners[at[i]]->append_evidence = lanes[i].evidence;
    }
}
