/* Sequences whose guesses come from what their request brings, such as a prediction. */
#include "coordinator/schedule/parts.h"
#include "coordinator/schedule/scheduler.h"

/* For a sequence with a K of its own the finder of what its request brings guesses, where the text
 * follows that: where it does not, the draft model guesses, if there is one. */
struct drafter *planning_request_finder(const struct planning *p, const struct sequence *seq,
                                        struct planner_offer *offer)
{
    const struct drafters *drafters = p->s->drafters;
    if (planning_is_planned(seq)) return NULL;
    struct drafter *finder = drafters_brought(drafters, seq, offer);
    return finder && (offer->evidence > 0 || drafters->n_models == 0) ? finder : NULL;
}
