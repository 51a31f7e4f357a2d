/* Sequences whose guesses come from what their request predicts, and those that must not. */
#include "coordinator/scheduler.h"
#include "coordinator/scheduler_parts.h"

/* A text with a seed may be the second one of its request: what was kept of the first one was
 * decided by the very coins that would judge it as a guess, so its chance to stay would be another
 * one. Rules that take the target's choice do not draw. */
bool planning_ignores_texts(const struct sequence *seq)
{
    return seq->job->generate.has_seed && !seq->rule->is_greedy && !seq->rule->is_coupled;
}

/* What the request predicts guesses for a sequence with a K of its own, where it is followed: where
 * it was lost, the draft model guesses, if there is one. */
struct drafter *planning_own_predicted(const struct planning *p, const struct sequence *seq,
                                       struct planner_offer *offer)
{
    const struct drafters *drafters = p->s->drafters;
    if (!seq->job->predicted || planning_is_planned(seq) || planning_ignores_texts(seq))
        return NULL;
    struct drafter *finder = drafters_predicted(drafters, seq, offer);
    return finder && (offer->evidence > 0 || !drafters->model) ? finder : NULL;
}
