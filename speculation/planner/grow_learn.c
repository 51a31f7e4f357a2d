/* Learning from guesses behind siblings. */
#include "speculation/planner/grow.h"

/* Share that older tests keep with every new one, and each time that they fade. */
static const float keep_test = 0.998F, keep_faded = 0.97F;

static void observe(struct planner_trust *trust, float expected, bool is_kept)
{
    trust->tested = trust->tested * keep_test + 1;
    trust->accepted = trust->accepted * keep_test + (is_kept ? 1 : 0);
    trust->expected = trust->expected * keep_test + expected;
}

/* Guesses behind siblings stay less or more often than those of the chain at the same position and
 * their siblings, because they follow tokens that the draft found less likely. One ratio of odds
 * for all of them is learned, apart from what is known of chains. */
void planner_observe_grown(struct planner *p, struct planner_sequence *seq, int position, int n,
                           int kept)
{
    struct planner_chain chain = planner_chain_begin(&seq->counts, &p->prior);
    float expected = 0;
    for (int i = 0; i <= position && i < DRAFT_MAX; i++) {
        expected = planner_chain_next(&chain);
    }
    for (int i = 0; i < n && i <= kept; i++) {
        if (i > 0) {
            expected = planner_sibling_chance(&p->siblings[0], &seq->sibling_trust[0], i - 1);
        }
        observe(&p->grown, expected, i == kept);
    }
}

/* ---- trees that follow q ---- */

/* The chances that the planned guesses are committed, summed by places, if guesses behind siblings
 * stayed as often as those of chains: `beside` of all that are not of the chain, `grown` of the
 * growth alone. */
struct place_sums {
    float beside[DRAFT_MAX], grown[DRAFT_MAX];
};

static void add_to_place(struct place_sums *sums, int place, float survival, bool is_grown)
{
    sums->beside[place] += survival;
    if (is_grown) sums->grown[place] += survival;
}

static void sum_places(const struct planner *p, const struct planner_sequence *seq, int k,
                       const uint8_t *siblings, const struct growth *growth,
                       struct place_sums *sums)
{
    struct planner_chain chain = planner_chain_begin(&seq->counts, &p->prior);
    float of_chain[DRAFT_MAX], of_sibling[SIBLINGS_MAX], before = 1, left = 0;
    float survival[GROWN_MAX], behind[DRAFT_MAX][SIBLINGS_MAX];
    *sums = (struct place_sums){{0}, {0}};
    for (int s = 0; s < SIBLINGS_MAX; s++) {
        of_sibling[s] = planner_sibling_chance(&p->siblings[0], &seq->sibling_trust[0], s);
    }
    for (int i = 0; i < DRAFT_MAX; i++) {
        of_chain[i] = planner_chain_next(&chain);
        left = before * (1 - of_chain[i]);
        for (int s = 0; i < k && s < siblings[i]; s++) {
            behind[i][s] = left * of_sibling[s];
            left -= behind[i][s];
            add_to_place(sums, i, behind[i][s], false);
        }
        before *= of_chain[i];
    }
    for (int i = 0; i < growth->n; i++) {
        int parent = growth->parents[i], place = growth_place(growth, i);
        int rank = i - growth_first(growth, i);
        if (rank == 0) {
            left = parent >= 0 ? survival[parent]
                               : behind[growth_guess(parent)][growth_sibling(parent)];
        }
        survival[i] = left * (rank == 0 ? of_chain[place] : of_sibling[rank - 1]);
        left -= survival[i];
        add_to_place(sums, place, survival[i], true);
    }
}

/* What the plan promises of the place, given that a guess beside the chain stayed before it, is
 * what the shape would bring that was planned. So the ratio of odds that is learned here has both
 * in it: by how much guesses behind siblings stay less often, and by how much it is better to
 * choose by q which of them there are. */
void planner_observe_following(struct planner *p, struct planner_sequence *seq, int k,
                               const uint8_t *siblings, const struct growth *growth, int place,
                               bool is_kept)
{
    struct place_sums sums;
    sum_places(p, seq, k, siblings, growth, &sums);
    if (!(sums.grown[place] > 0)) return;
    observe(&p->grown, sums.grown[place] / sums.beside[place - 1], is_kept);
}

void planner_grow_fade(struct planner_trust *grown)
{
    grown->tested *= keep_faded;
    grown->accepted *= keep_faded;
    grown->expected *= keep_faded;
}
