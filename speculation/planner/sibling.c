/* How often siblings are accepted. Its constants are choices and not measurements, like those of
 * speculation/planner/alpha.c. */
#include "speculation/planner/sibling.h"

/* Probability: before anything was tested, the first sibling is assumed to be accepted with this
 * one, and each further one as often as the one before it, times `further`. */
static const double first_chance = 0.25, further = 0.6;
/* Tests: how many tests that counts as. */
static const double first_weight = 6;
/* Share that older tests keep with every new test of their rank. */
static const double keep_test = 0.998;

static double chance_of_rank(const struct planner_siblings *s, int rank)
{
    double chance = first_chance / further;
    for (int i = 0; i <= rank; i++) {
        chance = (s->accepted[i] + first_weight * further * chance) / (s->tested[i] + first_weight);
    }
    return chance;
}

float planner_sibling_chance(const struct planner_siblings *siblings,
                             const struct planner_trust *trust, int rank)
{
    float odds = planner_odds((float)chance_of_rank(siblings, rank)) * planner_trust_shift(trust);
    return odds / (1 + odds);
}

void planner_sibling_observe(struct planner_siblings *s, struct planner_trust *trust, int n,
                             int kept)
{
    for (int i = 0; i < n && i <= kept; i++) {
        trust->tested += 1;
        trust->accepted += i == kept ? 1 : 0;
        trust->expected += (float)chance_of_rank(s, i);
        s->tested[i] = s->tested[i] * keep_test + 1;
        s->accepted[i] = s->accepted[i] * keep_test + (i == kept ? 1 : 0);
    }
}
