/* Finds the tokens that the draft model is expected to guess: those that the text has had before
 * after the committed tokens and the guesses so far. Where the draft copies or repeats, it agrees
 * with that for many guesses in a row, and one pass makes them all. The first pass of each round is
 * compared with what was expected of it, also where nothing was read ahead, so how often the draft
 * agrees is known before it costs anything. */
#include "coordinator/draft/staged.h"

#include <string.h>

#include "base/least.h"
#include "coordinator/sequence/sequence.h"
#include "speculation/planner/stage.h"

static struct staged *staged_of(struct draft_stage *stage)
{
    return (struct staged *)stage;
}

/* After the last guess that is wanted nothing is read. To look takes a microsecond or more, which
 * is a share of a small draft's pass. So in a round in which the draft has guessed something else
 * nothing is looked up again if it seldom agrees, nor where nothing was read ahead and that seldom
 * pays. */
static bool is_worth_a_look(const struct staged *s, const struct draft_lane *lane)
{
    const struct draft_expected *expected = &lane->expected;
    int n = lane->k - lane->draft->n_chain - 1;
    bool is_first = expected->n_passes == 0, has_differed = !is_first && expected->n_equal == 0;
    if (draft_lane_grows(lane))
        return false; /* with guesses after siblings nothing is read ahead */
    if (n < 1) return false;
    if (is_first || s->reads_all) return true;
    if (has_differed && !planner_stage_is_likely(&lane->seq->planner_state)) return false;
    return expected->n_fed > 0 || planner_stage_is_used(s->planner);
}

static void look(const struct staged *s, struct draft_lane *lane)
{
    struct draft_expected *expected = &lane->expected;
    const struct guess_tree *draft = lane->draft;
    bool is_worth_it = is_worth_a_look(s, lane);
    expected->n = expected->n_fed = expected->evidence = 0;
    expected->begin = draft->n_chain;
    expected->n_passes++;
    if (!is_worth_it) return;
    expected->n =
        lookup_continue_from(s->finder, lane->seq, draft->base + draft->n_chain, expected->tokens,
                             lane->k - draft->n_chain - 1, &expected->evidence);
}

static void expect(struct draft_stage *stage, struct draft_lane *const *lanes, int n)
{
    struct staged *s = staged_of(stage);
    struct planner_stage_lane planned[PLANNER_LANES_MAX];
    int n_known = 0;
    for (int i = 0; i < n; i++) {
        look(s, lanes[i]);
        n_known += lanes[i]->expected.n;
        if (i >= PLANNER_LANES_MAX) continue;
        planned[i] = (struct planner_stage_lane){.seq = &lanes[i]->seq->planner_state,
                                                 .n_wanted = lanes[i]->k - lanes[i]->draft->n_chain,
                                                 .n_known = lanes[i]->expected.n,
                                                 .evidence = lanes[i]->expected.evidence};
    }
    if (n_known == 0) return;
    n = least(n, PLANNER_LANES_MAX);
    planner_stage(s->planner, s->model, planned, n);
    for (int i = 0; i < n; i++) {
        lanes[i]->expected.n_fed = s->reads_all ? planned[i].n_known : planned[i].n_fed;
    }
}

static void compare(struct draft_stage *stage, struct draft_lane *const *lanes, int n)
{
    struct staged *s = staged_of(stage);
    for (int i = 0; i < n; i++) {
        struct draft_expected *expected = &lanes[i]->expected;
        const struct guess_tree *draft = lanes[i]->draft;
        const uint8_t *made = draft->chain + expected->begin;
        int n_tested = least(draft->n_chain - expected->begin, expected->n), n_equal = 0;
        while (n_equal < n_tested && draft->tokens[made[n_equal]] == expected->tokens[n_equal]) {
            n_equal++;
        }
        expected->n_equal = n_equal;
        if (n_tested < 1) continue;
        planner_observe_stage(s->planner, &lanes[i]->seq->planner_state, expected->evidence,
                              n_tested, n_equal);
    }
}

static void predict(struct draft_stage *stage, const struct sequence *seq, float *chances)
{
    struct staged *s = staged_of(stage);
    int32_t tokens[DRAFT_MAX];
    int evidence = 0;
    int n = lookup_continue_from(s->finder, seq, seq->n_tokens, tokens, DRAFT_MAX - 1, &evidence);
    planner_stage_chances(s->planner, &seq->planner_state, evidence, n, chances);
}

void staged_begin(struct staged *s, enum staged_mode mode, const struct drafters *drafters,
                  struct planner *planner)
{
    *s = (struct staged){
        .base = {expect, compare, predict}, .reads_all = mode == STAGED_ON, .planner = planner};
    if (mode == STAGED_OFF) return;
    s->finder = drafters_continuation(drafters);
    /* A row that is read ahead has no feature: that is what the guess before it gives. And a
     * parallel draft has no pass to save. */
    for (int m = 0; m < drafters->n_models && s->finder; m++) {
        struct drafter *model = drafters->models[m];
        if (model->features || model->is_parallel) continue;
        model->stage = &s->base;
        s->model = m;
        return;
    }
}
