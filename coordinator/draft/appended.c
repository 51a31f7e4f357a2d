/* The draft's later guesses cost a pass each and are committed less and less often. Where what it
 * has guessed leads into something that the text has said before, the finder goes on from there: at
 * the committed end of the text there may have been nothing to find. */
#include "coordinator/draft/appended.h"

#include <string.h>

#include "coordinator/draft/finder.h"
#include "coordinator/sequence/sequence.h"

void appended_begin(struct appended *a, enum append_mode mode, const struct drafters *drafters,
                    struct planner *planner)
{
    *a = (struct appended){.mode = mode, .planner = planner};
    if (mode == APPEND_OFF || drafters->n_models == 0) return;
    a->finder = drafters_continuation(drafters);
}

/* Looks for tokens after a lane's guesses; returns how many there are. */
static int look(const struct appended *a, struct append_lane *append, int32_t *tokens)
{
    const struct guess_tree *draft = append->lane->draft;
    if (append->lane->err.code || draft->is_over || draft->n_chain == 0) return 0;
    return lookup_continue_from(a->finder, append->lane->seq, draft->base + draft->n_chain, tokens,
                                append->n_max, &append->evidence);
}

void appended_add(const struct appended *a, struct append_lane *lanes, int n,
                  const struct planner_append_load *load, struct arena *arena)
{
    struct planner_append_lane planned[PLANNER_LANES_MAX];
    int32_t tokens[PLANNER_LANES_MAX][PLANNER_APPEND_MAX];
    for (int i = 0; i < n; i++) {
        planned[i] = (struct planner_append_lane){.seq = &lanes[i].lane->seq->planner_state,
                                                  .model = lanes[i].model,
                                                  .k = lanes[i].lane->draft->n_chain,
                                                  .n_known = look(a, &lanes[i], tokens[i])};
        planned[i].evidence = lanes[i].evidence;
    }
    planner_append(a->planner, planned, n, load);
    for (int i = 0; i < n; i++) {
        int n_wanted = a->mode == APPEND_ON ? planned[i].n_known : planned[i].n;
        finder_append(lanes[i].lane, tokens[i], n_wanted, arena);
    }
}
