/* Branches: what was found for lanes whose guesses the draft makes, as second chains of the same
 * trees (base/guess_tree.h). A branch costs a row of the step for each guess and no
 * pass of the draft. It commits tokens where it is right for longer than the draft's guesses. The
 * planner's own (speculation/planner/planner.h); pure arithmetic. */
#pragma once

#include "speculation/planner/sum.h"

/* Adds branches to the trees of lanes that have got guesses of the draft, where they may have
 * siblings and something fixed was found: as long as they promise more tokens per time. n_guesses,
 * us: of the round without them; n_guesses counts siblings, too. Returns the time of the round with
 * them. */
double planner_branch_all(struct planner *p, const struct planner_base *base,
                          struct planner_lane *lanes, int n_lanes, int n_guesses, double us);
