/* Sequences whose guesses come from what their request predicts. */
#include "coordinator/schedule/parts.h"
#include "coordinator/schedule/scheduler.h"

/* What the request predicts guesses for a sequence with a K of its own, where it is followed: where
 * it was lost, the draft model guesses, if there is one. */
struct drafter *planning_own_predicted(const struct planning *p, const struct sequence *seq,
                                       struct planner_offer *offer)
{
    const struct drafters *drafters = p->s->drafters;
    if (!seq->job->predicted || planning_is_planned(seq) || sequence_ignores_texts(seq))
        return NULL;
    struct drafter *finder = drafters_predicted(drafters, seq, offer);
    return finder && (offer->evidence > 0 || !drafters->model) ? finder : NULL;
}
