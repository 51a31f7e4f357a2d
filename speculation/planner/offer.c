/* Acceptance of what was found. Its constants are choices and not measurements, like those of
 * speculation/planner/alpha.c. */
#include "speculation/planner/offer.h"

#include <math.h>

/* Probability: before anything was tested, a guess is assumed to stay with this one, which grows
 * with its evidence. */
static const double first_least = 0.2, first_step = 0.05;
/* Tests: how many tests of others count against those of one sequence. */
static const float trust_weight = 8;
/* Share that older tests keep: with every test of their position; each time that all fade. */
static const double keep_test = 0.995, keep_reason = 0.97;

/* Matches of fewer than matches[i + 1] tokens are evidence i. */
static const int matches[PLANNER_EVIDENCE] = {1,  2,  3,  4,  5,  6,  8,   10,
                                              12, 16, 24, 32, 48, 64, 128, 256};

int planner_evidence_of_match(int n_tokens)
{
    int i = 0;
    while (i + 1 < PLANNER_EVIDENCE && n_tokens >= matches[i + 1]) {
        i++;
    }
    return i;
}

/* Half of it is the length of the match, half how often it went on like that. */
int planner_evidence_of_counts(int n_tokens, int count, int total)
{
    int share = (int)(4.0 * count / total);
    return planner_evidence_of_match(n_tokens) / 4 * 4 + (share > 3 ? 3 : share);
}

/* Before anything was tested it is in the middle (Laplace's rule of succession). */
int planner_evidence_of_share(int count, int total)
{
    return PLANNER_EVIDENCE * (count + 1) / (total + 2);
}

static struct planner_reason *reason_of(struct planner_reasons *reasons,
                                        const struct planner_offer *offer)
{
    struct planner_reason *reason = &reasons->of[offer->finder][offer->evidence];
    if (!reason->is_fitted) {
        planner_prior_of(&reason->counts, first_least + first_step * offer->evidence,
                         &reason->prior);
        reason->is_fitted = true;
    }
    return reason;
}

float planner_trust_shift(const struct planner_trust *trust)
{
    if (trust->tested <= 0) return 1;
    float expected = trust->expected / trust->tested;
    float own = (trust->accepted + trust_weight * expected) / (trust->tested + trust_weight);
    return planner_odds(own) / planner_odds(expected);
}

struct planner_chain planner_offer_chain(struct planner_reasons *reasons,
                                         const struct planner_trust *trust,
                                         const struct planner_offer *offer)
{
    return (struct planner_chain){.prior = &reason_of(reasons, offer)->prior,
                                  .shift = planner_trust_shift(trust)};
}

void planner_offer_observe(struct planner_reasons *reasons, struct planner_trust *trust,
                           const struct planner_offer *offer, int k, int n_accepted)
{
    struct planner_reason *reason = reason_of(reasons, offer);
    for (int i = 0; i < k && i <= n_accepted && i < DRAFT_MAX; i++) {
        trust->tested += 1;
        trust->accepted += i < n_accepted ? 1 : 0;
        trust->expected += reason->prior.alpha[i];
    }
    planner_counts_add(&reason->counts, k, n_accepted, keep_test);
    reason->is_fitted = false;
}

void planner_offer_observe_branch(struct planner_reasons *reasons,
                                  const struct planner_branch *branch, int n_added)
{
    reasons->branch_expected = reasons->branch_expected * keep_test + (double)branch->expected;
    reasons->branch_added = reasons->branch_added * keep_test + n_added;
}

void planner_trust_fade(struct planner_trust *trust, int n_tokens)
{
    float keep = planner_keep_tokens(n_tokens);
    trust->tested *= keep;
    trust->accepted *= keep;
    trust->expected *= keep;
}

void planner_reasons_fade(struct planner_reasons *reasons)
{
    reasons->branch_expected *= keep_reason;
    reasons->branch_added *= keep_reason;
    for (int f = 0; f < PLANNER_SOURCES; f++) {
        for (int e = 0; e < PLANNER_EVIDENCE; e++) {
            struct planner_reason *reason = &reasons->of[f][e];
            for (int i = 0; i < DRAFT_MAX && reason->counts.tested[i] > 0; i++) {
                reason->counts.tested[i] *= keep_reason;
                reason->counts.accepted[i] *= keep_reason;
                reason->is_fitted = false;
            }
        }
    }
}
