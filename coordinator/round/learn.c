/* Learns from a round: metrics of where its time went, and for the planner its times and how its
 * guesses were accepted. */
#include <string.h>

#include "base/clock.h"
#include "base/least.h"
#include "coordinator/round/round.h"
#include "coordinator/sequence/sequence.h"

/* Tokens of the draft's branch, those that it shares with the chain included; returns how many. */
static int list_branch(const struct guess_tree *draft, int32_t tokens[DRAFT_MAX])
{
    int end = draft->n - 1;
    while (end >= 0 && !(draft->marks[end] & GUESS_BRANCH)) {
        end--;
    }
    return guess_tree_text(draft, end, tokens);
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

/* Holds all that was found against the text, also where another drafter guessed, and the branch. */
static void learn_found(struct planner *planner, const struct round_lane *lane)
{
    struct planner_sequence *state = &lane->seq->planner_state;
    const struct lane_plan *plan = &lane->plan;
    int32_t tokens[DRAFT_MAX];
    int n_committed = lane->seq->n_tokens - lane->draft.base;
    int n_branch = list_branch(&lane->draft, tokens);
    bool has_branch = n_branch > 0 && !plan->window; /* a window promises nothing */
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
    int n = least(n_branch, n_committed);
    planner_observe_branch(planner, state, &plan->branch, n, count_right(lane, tokens, n),
                           lane->path.n_branch);
}

/* Teaches, for each place of a planned tree that follows q and was reached beside the chain,
 * whether one of the guesses stayed that were planned for it after siblings, also where there were
 * none after the guess that leads there. A tree that the option names says nothing about planned
 * ones. */
static void learn_following(struct planner *planner, const struct round_lane *lane)
{
    const struct lane_plan *plan = &lane->plan;
    if (lane->seq->planner_state.strategy != STRATEGY_PLANNED) return;
    for (int i = lane->path.n_chain; i < lane->n_accepted; i++) {
        bool is_kept = i + 1 < lane->n_accepted;
        if (end_ids_have(&lane->seq->ends, lane->draft.tokens[lane->accepted[i]])) return;
        if (i + 1 == DRAFT_MAX) return;
        planner_observe_following(planner, &lane->seq->planner_state, round_model(lane),
                                  &plan->tree, i + 1, is_kept);
    }
}

/* Teaches, for each accepted guess off the main chain, how many guesses were made after it, and
 * which of them stayed. */
static void learn_grown(struct planner *planner, const struct round_lane *lane)
{
    const struct guess_tree *draft = &lane->draft;
    if (lane->plan.follows_q) {
        learn_following(planner, lane);
        return;
    }
    if (guess_tree_count(draft, GUESS_GROWN) == 0) return;
    for (int i = lane->path.n_chain; i < lane->n_accepted; i++) {
        int next = i + 1 < lane->n_accepted ? lane->accepted[i + 1] : -1, n = 0, kept = -1;
        for (int c = guess_tree_child(draft, lane->accepted[i]); c >= 0; n++) {
            if (c == next) kept = n;
            c = guess_tree_sibling(draft, c);
        }
        if (n == 0) return;
        planner_observe_grown(planner, &lane->seq->planner_state, round_model(lane), i + 1, n,
                              kept < 0 ? n : kept);
    }
}

/* Strategies with a K of their own have no offers, but for what a request predicts. Of independent
 * chains a guess stays with another chance than alone or among distinct siblings, so they teach
 * nothing about those. */
static void learn_lane(struct planner *planner, const struct round_lane *lane)
{
    struct planner_sequence *state = &lane->seq->planner_state;
    int model = round_model(lane);
    if (lane->draft.is_independent) {
        planner_observe_lane(planner, state, model, 0, 0);
        learn_found(planner, lane);
        return;
    }
    bool has_offer = state->strategy == STRATEGY_PLANNED || lane->plan.offer.k_max > 0;
    bool is_offered = round_is_found(lane) && has_offer;
    const struct planner_offer *offer = is_offered ? &lane->plan.offer : NULL;
    if (offer) {
        planner_observe_offer(planner, state, offer, lane->draft.n_chain, lane->path.n_chain);
    } else {
        int k = round_n_own(lane), n_appended = lane->draft.n_chain - k;
        planner_observe_lane(planner, state, model, k, least(lane->path.n_chain, k));
        if (n_appended > 0 && lane->path.n_chain >= k) {
            planner_observe_append(planner, state, lane->append_evidence, n_appended,
                                   lane->path.n_chain - k);
        }
    }
    /* If the later places follow q, their siblings are at places of which the draft is unsure:
     * what they teach would not hold for others. Those of the first place are as planned. */
    if (!lane->plan.follows_q || lane->path.n_chain == 0) {
        planner_observe_siblings(planner, state, model, offer, lane->path.n_tested,
                                 lane->path.kept);
    }
    learn_grown(planner, lane);
    learn_found(planner, lane);
}

/* Watches whether a draft model's guesses stay as often as before. */
static void watch(const struct round *r, const struct round_lane *lane)
{
    const struct drafters *drafters = r->tools->drafters;
    const struct sequence *seq = lane->seq;
    if (!r->tools->watches || drafters->n_models == 0) return;
    const struct drafter *model = drafters->models[round_model(lane)];
    bool is_own = !round_is_found(lane) && !lane->draft.is_independent;
    int k = is_own ? round_n_own(lane) : 0;
    const struct acceptance_lane watched = {.k = k,
                                            .n_accepted = least(lane->path.n_chain, k),
                                            .temperature = seq->sampling.temperature,
                                            .n_prompt = seq->n_prompt,
                                            .is_first = seq->counters.drafted ==
                                                        (uint32_t)lane->draft.n_chain};
    acceptance_watch_note(&r->tools->watches[drafter_number(model)], model->row->name, &watched);
}

/* Counts where the round's time went, and the size of its step. */
static void record(struct round *r)
{
    const struct target_cost *cost = &r->cost;
    int64_t ranks_us = cost->compute_us + cost->collective_us;
    bool has_guesses = false;
    for (int i = 0; i < r->n_lanes; i++) {
        has_guesses |= r->lanes[i].draft.n_chain > 0;
    }
    const struct signals_round round = {
        .part_us = {[SIGNALS_PLAN] = r->prepare_us - r->draft_us - r->read_us,
                    [SIGNALS_DRAFT] = r->draft_us + r->read_us,
                    [SIGNALS_WIRE] = cost->total_us - ranks_us,
                    [SIGNALS_VERIFY] = cost->compute_us,
                    [SIGNALS_COLLECTIVE] = cost->collective_us,
                    [SIGNALS_ACCEPT] = clock_now_us() - r->verify_us - cost->total_us},
        .n_tokens = r->n_tokens,
        .n_rows = r->n_wants,
        .n_lanes = r->n_step_lanes,
        .bytes_sent = cost->bytes_sent,
        .bytes_received = cost->bytes_received,
        .feature_bytes = cost->feature_bytes,
        .feature_us = cost->feature_us,
        .expected_us = (int64_t)r->plan.expected_us,
        .has_guesses = has_guesses,
    };
    signals_round(r->tools->signals, &round);
    r->n_steps++;
}

static void list_drafted(const struct round_drafted *done, struct planner_drafted *drafted)
{
    const struct draft_cost *cost = &done->cost;
    drafted->n_passes = cost->n_passes;
    drafted->first_pass_tokens = cost->first_pass_tokens;
    drafted->read_us = done->read_us;
    drafted->draft_us = done->draft_us;
    memcpy(drafted->pass_lanes, cost->pass_lanes, sizeof cost->pass_lanes);
    memcpy(drafted->pass_grows, cost->pass_grows, sizeof cost->pass_grows);
    memcpy(drafted->pass_expected, cost->pass_expected, sizeof cost->pass_expected);
    memcpy(drafted->pass_us, cost->pass_us, sizeof cost->pass_us);
}

/* Tells what the features of the step have cost: on the wire, their share of its bytes. */
static void list_features(const struct round *r, struct planner_round *round)
{
    const struct target_cost *cost = &r->cost;
    int64_t wire_us = cost->total_us - cost->compute_us - cost->collective_us;
    double bytes = (double)(cost->bytes_sent + cost->bytes_received);
    if (r->n_features == 0 || cost->feature_bytes == 0) return;
    round->n_features = r->n_features;
    round->features_step_us = cost->feature_us;
    round->features_wire_us = (int64_t)((double)wire_us * (double)cost->feature_bytes / bytes);
}

void round_learn(struct round *r)
{
    record(r);
    struct planner_round round = {
        .n_rows = r->n_tokens,
        .n_prompt = r->plan.n_prompt,
        .is_timed = true,
        .has_prompt = r->plan.n_prompt > 0,
        .step_us = r->cost.step_us,
        .round_us = r->prepare_us + clock_now_us() - r->verify_us,
    };
    list_features(r, &round);
    for (int m = 0; m < PLANNER_MODELS; m++) {
        list_drafted(&r->drafted[m], &round.models[m]);
    }
    for (int i = 0; i < r->plan.n_readings; i++) {
        round.models[r->plan.readings[i].model].n_read += r->plan.readings[i].n_tokens;
    }
    for (int i = 0; i < r->n_lanes; i++) {
        round.n_lanes += r->lanes[i].is_committed ? 1 : 0;
        bool has_ended = r->lanes[i].err.code || r->lanes[i].seq->job->is_over;
        round.is_timed = round.is_timed && !has_ended;
    }
    planner_observe_round(r->tools->planner, &round);
    for (int i = 0; i < r->n_lanes; i++) {
        const struct round_lane *lane = &r->lanes[i];
        if (!lane->is_committed) continue;
        learn_lane(r->tools->planner, lane);
        watch(r, lane);
    }
}
