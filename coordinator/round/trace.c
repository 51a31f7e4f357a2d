/* Trace of a round, for clients that want to see its guesses. */
#include "base/clock.h"
#include "coordinator/round/round.h"
#include "coordinator/round/score.h"
#include "coordinator/sequence/sequence.h"

/* p where the row has it; a rule may not ask for all of it. */
static float known_p(const struct target_row *row, int32_t id)
{
    for (int i = 0; i < row->n; i++) {
        if (row->ids[i] == id) return row->p[i] < 1 ? row->p[i] : 1; /* sums are rounded */
    }
    return -1;
}

static void note_times(const struct round *r, struct generate_round *round)
{
    const struct target_cost *cost = &r->cost;
    int64_t wire_us = cost->total_us - cost->compute_us - cost->collective_us;
    round->draft_us = (uint32_t)(r->draft_us + r->read_us);
    round->verify_us = (uint32_t)cost->compute_us;
    round->collective_us = (uint32_t)cost->collective_us;
    round->wire_us = wire_us > 0 ? (uint32_t)wire_us : 0;
    round->total_us = (uint32_t)(r->prepare_us + clock_now_us() - r->verify_us);
    round->n_lanes = r->n_step_lanes;
    round->n_rows = r->n_tokens;
}

/* The sibling number of a guess, as clients know it. */
static int sibling_number(const struct guess_tree *draft, int node)
{
    int marks = draft->marks[node];
    if (marks == GUESS_BRANCH) return GENERATE_BRANCH;
    return guess_tree_rank(draft, node) + (marks & GUESS_GROWN ? GENERATE_GROWN : 0);
}

/* A guess. p is known if the text before it is what was accepted before its place. */
static struct generate_guess trace_guess(struct round *r, const struct round_lane *lane,
                                         const struct target_row *rows, int node)
{
    const struct guess_tree *draft = &lane->draft;
    int32_t id = draft->tokens[node];
    int place = guess_tree_place(draft, node);
    int before = place > 0 && place <= lane->n_accepted ? lane->accepted[place - 1] : -1;
    bool is_known =
        place <= lane->n_accepted && guess_tree_agree(draft, draft->parents[node], before);
    float chance = sparse_prob(draft->q[node], id);
    return (struct generate_guess){
        .id = id,
        .text = score_token_text(r->tools->tok, id, &r->arena),
        .q = chance < 1 ? chance : 1,
        .p = is_known ? known_p(&rows[place], id) : -1,
        .place = place,
        .sibling = sibling_number(draft, node),
        .is_untried = !is_known,
    };
}

/* Puts a guess among guesses[n] of its place, which are in the order of their siblings. */
static void insert(struct generate_guess *guesses, int n, struct generate_guess guess)
{
    for (; n > 0 && guesses[n - 1].sibling > guess.sibling; n--) {
        guesses[n] = guesses[n - 1];
    }
    guesses[n] = guess;
}

/* First the accepted ones, then the others by their places and siblings. */
static void list_guesses(struct round *r, const struct round_lane *lane,
                         const struct target_row *rows, struct generate_guess *guesses)
{
    int n = lane->draft.n, n_listed = 0;
    for (int i = 0; i < lane->n_accepted; i++) {
        guesses[n_listed++] = trace_guess(r, lane, rows, lane->accepted[i]);
    }
    for (int place = 0; n_listed < n; place++) {
        int kept = place < lane->n_accepted ? lane->accepted[place] : -1, first = n_listed;
        for (int i = 0; i < n; i++) {
            if (guess_tree_place(&lane->draft, i) != place || i == kept) continue;
            insert(guesses + first, n_listed++ - first, trace_guess(r, lane, rows, i));
        }
    }
}

const struct generate_round *round_trace(struct round *r, const struct round_lane *lane,
                                         const struct round_accepted *accepted)
{
    const struct target_row *rows = accepted->rows;
    int n = lane->draft.n;
    struct generate_round *trace = arena_take(&r->arena, 1, sizeof *trace);
    struct generate_guess *guesses = arena_take(&r->arena, (size_t)n + 1, sizeof *guesses);
    if (!trace || !guesses) return NULL;
    list_guesses(r, lane, rows, guesses);
    *trace = (struct generate_round){
        .n_guesses = n,
        .guesses = guesses,
        .drafter = lane->draft.n_chain ? lane->plan.drafter->row->name : "",
        .n_kept = lane->n_accepted,
        .next_p = known_p(&rows[lane->n_accepted], accepted->ids[lane->n_accepted]),
    };
    note_times(r, trace);
    return trace;
}
