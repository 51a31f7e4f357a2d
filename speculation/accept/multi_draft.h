/* The draft's side of several guesses after one prefix: how siblings are drawn, and what a row
 * must hold so that they can be verified. */
#pragma once

#include "speculation/accept/tree.h"

/* A sibling from q without replacement: inverse CDF over q without gone[n_gone], u in [0, 1). The
 * first one is sparse_draw. -1: q has no other token; then there is no further sibling, which is a
 * decision by tokens drawn before and allowed (speculation/accept/tree.h). The coin of a draw is
 * RNG_DRAFT of the node's position with a number that no other node of this depth has in this
 * round. */
int32_t multi_draft_draw(const struct sparse_dist *q, const int32_t *gone, int n_gone, double u);

/* The `n_wanted` best tokens under the noise of (seed, position), best first, of ids[n], distinct;
 * out[min(n, n_wanted)]; returns their number. The first is sampling_coupled_pick. Rules that match
 * tokens take any guesses; these are the likeliest ones under shared noise (Daliri et al. 2024,
 * arXiv 2408.07978, with a list in the place of one token). */
int multi_draft_coupled(const int32_t *ids, const float *logits, int n, float temperature,
                        const struct rng_address *at, int n_wanted, int32_t *out);

/* The ids that the row after `node` (-1: the root) must name: the union of the supports of its
 * children's q, ascending and distinct. ids holds multi_draft_ids_most(tree, node); returns their
 * number. */
int multi_draft_ids(const struct guess_tree *tree, int node, int32_t *ids);
int multi_draft_ids_most(const struct guess_tree *tree, int node);

/* Makes `want` name the ids of the row after `node`: by the q of its children, if they share one,
 * or in the arena. More than ROW_IDS_MAX of them may not be named. To leave some out would not be
 * exact, because the residual needs p wherever a q has mass; so the whole row is asked for then.
 * Errors: ERR_NO_MEMORY. */
int multi_draft_want(const struct guess_tree *tree, int node, struct arena *arena,
                     struct target_want *want, struct error *err);
