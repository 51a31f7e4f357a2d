/* What the planner learns from a round: its times, and how its guesses were accepted. */
#include <string.h>

#include "base/clock.h"
#include "coordinator/round/parts.h"
#include "coordinator/sequence/sequence.h"

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* How many of tokens[n] the text has gone on with. */
static int count_right(const struct round_lane *lane, const int32_t *tokens, int n)
{
    const int32_t *text = lane->seq->tokens + lane->draft.base;
    int n_right = 0;
    while (n_right < n && text[n_right] == tokens[n_right]) {
        n_right++;
    }
    return n_right;
}

/* What was found is held against the text, whoever guessed that, and so is a branch. */
static void teach_found(struct planner *planner, const struct round_lane *lane)
{
    struct planner_sequence *state = &lane->seq->planner_state;
    const struct lane_plan *plan = &lane->plan;
    const struct draft *draft = &lane->draft;
    int n_committed = lane->seq->n_tokens - draft->base;
    bool has_branch = draft->n_branch > 0 && plan->branch.n > 0; /* a window promises nothing */
    int branch = has_branch ? plan->branch.offer.finder : -1;
    int taken = round_is_found(lane) ? plan->offer.finder : branch;
    for (int i = 0; i < plan->n_found; i++) {
        const struct lane_found *found = &plan->found[i];
        int n = least(found->n, n_committed);
        if (n == 0 || found->offer.finder == taken) continue;
        planner_observe_untaken(planner, state, &found->offer, n,
                                count_right(lane, found->tokens, n));
    }
    if (branch < 0) return;
    int n = least(draft->n_branch, n_committed);
    planner_observe_branch(planner, state, &plan->branch, n, count_right(lane, draft->branch, n),
                           lane->path.n_branch);
}

/* Of a planned tree that follows q: of each place that was reached beside the chain, whether one of
 * the guesses stayed that were planned for it behind siblings, also where there were none behind
 * the guess that leads there. A tree that the option names says nothing about planned ones. */
static void teach_following(struct planner *planner, const struct round_lane *lane)
{
    const struct lane_plan *plan = &lane->plan;
    if (lane->seq->planner_state.strategy != STRATEGY_PLANNED) return;
    for (int i = lane->path.n_chain; i < lane->n_accepted; i++) {
        bool is_kept = i + 1 < lane->n_accepted;
        if (end_ids_have(&lane->seq->ends, lane->tree->guesses.tokens[lane->accepted[i]])) return;
        if (i + 1 == DRAFT_MAX) return;
        planner_observe_following(planner, &lane->seq->planner_state, plan->k, plan->siblings,
                                  &plan->growth, i + 1, is_kept);
    }
}

/* Of what grew behind the sibling that stayed: at each guess on the way those that were made behind
 * it. */
static void teach_grown(struct planner *planner, const struct round_lane *lane)
{
    if (!lane->tree) return;
    if (lane->plan.follows_q) {
        teach_following(planner, lane);
        return;
    }
    if (lane->draft.grown.n == 0) return;
    const struct tree *guesses = &lane->tree->guesses;
    for (int i = lane->path.n_chain; i < lane->n_accepted; i++) {
        int next = i + 1 < lane->n_accepted ? lane->accepted[i + 1] : -1, n = 0, kept = -1;
        for (int c = tree_child(guesses, lane->accepted[i]); c >= 0; n++) {
            if (c == next) kept = n;
            c = tree_sibling(guesses, c);
        }
        if (n == 0) return;
        planner_observe_grown(planner, &lane->seq->planner_state, i + 1, n, kept < 0 ? n : kept);
    }
}

/* Strategies with a K of their own have no offers, but for what a request predicts. */
static void teach_lane(struct planner *planner, const struct round_lane *lane)
{
    struct planner_sequence *state = &lane->seq->planner_state;
    bool has_offer = state->strategy == STRATEGY_PLANNED || lane->plan.offer.k_max > 0;
    bool is_offered = round_is_found(lane) && has_offer;
    const struct planner_offer *offer = is_offered ? &lane->plan.offer : NULL;
    if (offer) {
        planner_observe_offer(planner, state, offer, lane->draft.n, lane->path.n_chain);
    } else {
        int k = round_n_own(lane), n_appended = lane->draft.n_appended;
        planner_observe_lane(planner, state, k, least(lane->path.n_chain, k));
        if (n_appended > 0 && lane->path.n_chain >= k) {
            planner_observe_append(planner, state, lane->append_evidence, n_appended,
                                   lane->path.n_chain - k);
        }
    }
    /* Where the later places follow q, their siblings are at places of which the draft is unsure:
     * what they teach would not hold for others. Those of the first place are as planned. */
    if (!lane->plan.follows_q || lane->path.n_chain == 0) {
        planner_observe_siblings(planner, state, offer, lane->path.n_tested, lane->path.kept);
    }
    teach_grown(planner, lane);
    teach_found(planner, lane);
}

void round_teach(struct round_part *part)
{
    struct planner_round round = {
        .n_rows = part->n_tokens,
        .n_prompt = part->plan.n_prompt,
        .is_timed = true,
        .has_prompt = part->plan.n_prompt > 0,
        .n_passes = part->draft_cost.n_passes,
        .first_pass_tokens = part->draft_cost.first_pass_tokens,
        .read_us = part->read_us,
        .n_ahead = part->lanes[0].n_ahead,
        .k = part->is_alone && !round_is_found(&part->lanes[0]) ? round_n_own(part->lanes) : 0,
        .draft_us = part->draft_us,
        .step_us = part->cost.step_us,
        .round_us = part->prepare_us + clock_now_us() - part->verify_us - round_late_us(part),
    };
    memcpy(round.pass_lanes, part->draft_cost.pass_lanes, sizeof part->draft_cost.pass_lanes);
    memcpy(round.pass_grows, part->draft_cost.pass_grows, sizeof part->draft_cost.pass_grows);
    memcpy(round.pass_expected, part->draft_cost.pass_expected,
           sizeof part->draft_cost.pass_expected);
    memcpy(round.pass_us, part->draft_cost.pass_us, sizeof part->draft_cost.pass_us);
    for (int i = 0; i < part->plan.n_readings; i++) {
        round.n_read += part->plan.readings[i].n_tokens;
    }
    for (int i = 0; i < part->n_lanes; i++) {
        round.n_lanes += part->lanes[i].is_settled ? 1 : 0;
        bool has_ended = part->lanes[i].err.code || part->lanes[i].seq->job->is_over;
        round.is_timed = round.is_timed && !has_ended;
    }
    planner_observe_round(part->tools->planner, &round);
    for (int i = 0; i < part->n_lanes; i++) {
        const struct round_lane *lane = &part->lanes[i];
        if (!lane->is_settled) continue;
        teach_lane(part->tools->planner, lane);
    }
}
