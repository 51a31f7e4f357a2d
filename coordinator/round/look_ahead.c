/* Look-ahead tokens: they are fed beside a lane's guesses, and what their rows say is shown to the
 * finder that guesses by them. Nothing else of a round knows them. */
#include "coordinator/round/round.h"
#include "coordinator/sequence/sequence.h"

int round_feed_look_ahead(struct round *r, struct round_lane *lane, struct error *err)
{
    const struct lane_look_ahead *planned = &lane->plan.look_ahead;
    lane->fed = &lane->draft;
    if (planned->n == 0) return 0;
    struct guess_tree *fed = arena_take(&r->arena, 1, sizeof *fed);
    if (!fed) return error_set(err, ERR_NO_MEMORY, "no room for the look-ahead tokens of a step");
    *fed = lane->draft;
    lane_look_ahead_add(planned, target_description(r->tools->target)->vocab_size, fed);
    guess_tree_sort(fed);
    lane->fed = fed;
    return 0;
}

/* Both trees are in depth-first order. */
int round_fed_node(const struct round_lane *lane, int node)
{
    int n_guesses = 0;
    if (lane->fed == &lane->draft || node < 0) return node;
    for (int i = 0;; i++) {
        bool is_guess = !(lane->fed->marks[i] & GUESS_LOOK_AHEAD);
        if (is_guess && n_guesses++ == node) return i;
    }
}

/* The best tokens and their probabilities at temperature 1 are enough, so they are asked for as for
 * a greedy text that shows log-probabilities. */
void round_want_look_ahead(struct round *r, const struct round_lane *lane)
{
    static const struct sampling_params greedy = {.top_p = 1};
    const struct sequence *seq = lane->seq;
    for (int i = 0; i < lane->fed->n; i++) {
        if (!(lane->fed->marks[i] & GUESS_LOOK_AHEAD)) continue;
        r->wants[r->n_wants++] = (struct lane_want){
            .lane = lane->step_lane,
            .index = lane->plan.n_tokens + i,
            .want = {.rule = seq->rule,
                     .params = &greedy,
                     .at = {seq->seed, (uint32_t)seq->n_tokens, (uint32_t)seq->n_tokens},
                     .wants_logprobs = true,
                     .n_top = lane->plan.look_ahead.n_top},
            .decides_nothing = true,
        };
    }
}

/* The first look-ahead token after a node of `fed`, counted among all of them; -1: none. */
static int find_chain(const struct guess_tree *fed, int node)
{
    int n_before = 0, child = guess_tree_child(fed, node);
    while (child >= 0 && !(fed->marks[child] & GUESS_LOOK_AHEAD)) {
        child = guess_tree_sibling(fed, child);
    }
    for (int i = 0; i < child; i++) {
        n_before += fed->marks[i] & GUESS_LOOK_AHEAD ? 1 : 0;
    }
    return child < 0 ? -1 : n_before;
}

void round_show_look_ahead(struct round *r, const struct round_lane *lane,
                           const struct target_row *all_rows)
{
    const struct guess_tree *draft = &lane->draft;
    struct look_ahead_said said = {.k = draft->n_chain, .n_accepted = lane->path.n_chain};
    if (!drafters_look_ahead(r->tools->drafters)) return;
    int last = lane->n_accepted > 0 ? lane->accepted[lane->n_accepted - 1] : -1;
    int first = lane->fed == draft ? -1 : find_chain(lane->fed, round_fed_node(lane, last));
    if (first >= 0) {
        said.rows = all_rows + draft->n + 1 + first;
        said.n = lane->plan.look_ahead.length;
    }
    drafters_observe_look_ahead(r->tools->drafters, lane->seq, &said);
}
