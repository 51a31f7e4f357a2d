/* Learning from guesses after siblings. */
#include "speculation/planner/grow.h"

/* Share that older tests keep with every new one, and each time that they fade. */
static const float keep_test = 0.998F, keep_faded = 0.97F;

static void observe(struct planner_trust *trust, float expected, bool is_kept)
{
    trust->tested = trust->tested * keep_test + 1;
    trust->accepted = trust->accepted * keep_test + (is_kept ? 1 : 0);
    trust->expected = trust->expected * keep_test + expected;
}

/* Guesses after siblings stay less or more often than those of the chain at the same position and
 * their siblings, because they follow tokens that the draft found less likely. One ratio of odds
 * for all of them is learned, apart from what is known of chains. */
void planner_observe_grown(struct planner *p, struct planner_sequence *seq, int model, int position,
                           int n, int kept)
{
    struct planner_model *m = &p->models[model];
    struct planner_chain chain = planner_chain_begin(&seq->counts[model], &m->prior);
    float expected = 0;
    for (int i = 0; i <= position && i < DRAFT_MAX; i++) {
        expected = planner_chain_next(&chain);
    }
    for (int i = 0; i < n && i <= kept; i++) {
        if (i > 0) {
            expected =
                planner_sibling_chance(&p->siblings[model], &seq->sibling_trust[model], i - 1);
        }
        observe(&m->grown, expected, i == kept);
    }
}

/* ---- trees that follow q ---- */

/* The chances that the planned guesses are committed, summed by places, if guesses after siblings
 * stayed as often as those of chains: `beside` of all that are not of the chain, `grown` of those
 * after siblings alone. */
struct place_sums {
    float beside[DRAFT_MAX], grown[DRAFT_MAX];
};

static void sum_places(const struct planner *p, const struct planner_sequence *seq, int model,
                       const struct guess_tree *plan, struct place_sums *sums)
{
    struct planner_chain chain = planner_chain_begin(&seq->counts[model], &p->models[model].prior);
    float first[DRAFT_MAX], further[SIBLINGS_MAX];
    /* The chance that a node, or the root, stays and none of its children looked at so far. */
    float left[1 + TREE_NODES_MAX] = {1};
    *sums = (struct place_sums){{0}, {0}};
    for (int s = 0; s < SIBLINGS_MAX; s++) {
        further[s] = planner_sibling_chance(&p->siblings[model], &seq->sibling_trust[model], s);
    }
    for (int i = 0; i < DRAFT_MAX; i++) {
        first[i] = planner_chain_next(&chain);
    }
    for (int i = 0; i < plan->n; i++) {
        int place = guess_tree_place(plan, i), rank = guess_tree_rank(plan, i);
        float *before = &left[plan->parents[i] + 1];
        float survival = *before * (rank == 0 ? first[place] : further[rank - 1]);
        *before -= survival;
        left[i + 1] = survival;
        if (plan->marks[i] & (GUESS_SIBLING | GUESS_GROWN)) sums->beside[place] += survival;
        if (plan->marks[i] & GUESS_GROWN) sums->grown[place] += survival;
    }
}

/* The plan's promise for the place, given that a guess beside the chain stayed before it, is what
 * the shape would bring that was planned. So the ratio of odds that is learned here has both in it:
 * by how much guesses after siblings stay less often, and by how much it is better to choose by q
 * which of them there are. */
void planner_observe_following(struct planner *p, struct planner_sequence *seq, int model,
                               const struct guess_tree *plan, int place, bool is_kept)
{
    struct place_sums sums;
    sum_places(p, seq, model, plan, &sums);
    if (!(sums.grown[place] > 0)) return;
    observe(&p->models[model].grown, sums.grown[place] / sums.beside[place - 1], is_kept);
}

void planner_grow_fade(struct planner_trust *grown)
{
    grown->tested *= keep_faded;
    grown->accepted *= keep_faded;
    grown->expected *= keep_faded;
}
