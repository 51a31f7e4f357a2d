/* A chain with siblings as a tree. */
#include "coordinator/lane_tree.h"

#include <assert.h>

int lane_tree_parents(int k, const uint8_t *siblings, int32_t *parents)
{
    int n = 0;
    for (; n < k; n++) {
        parents[n] = n - 1;
    }
    for (int i = k - 1; i >= 0; i--) {
        for (int s = 0; s < siblings[i]; s++) {
            parents[n++] = i - 1;
        }
    }
    return n;
}

int lane_tree_siblings(const struct draft *draft)
{
    int n = 0;
    for (int i = 0; i < draft->n; i++) {
        n += draft->n_siblings[i];
    }
    return n;
}

const struct sparse_dist *lane_tree_sibling_q(const struct draft *draft, int i, int sibling)
{
    const struct sparse_dist *own = draft->sibling_q[i][sibling];
    return own ? own : &draft->q[i];
}

void lane_tree_init(struct lane_tree *tree, const struct draft *draft)
{
    struct error err;
    struct tree *guesses = &tree->guesses;
    int n = lane_tree_parents(draft->n, draft->n_siblings, guesses->parents), at = draft->n;
    guesses->n = n;
    guesses->is_independent = false;
    for (int i = 0; i < draft->n; i++) {
        guesses->tokens[i] = draft->tokens[i];
        guesses->q[i] = &draft->q[i];
    }
    for (int i = draft->n - 1; i >= 0; i--) {
        for (int s = 0; s < draft->n_siblings[i]; s++, at++) {
            guesses->tokens[at] = draft->siblings[i][s];
            guesses->q[at] = lane_tree_sibling_q(draft, i, s);
        }
    }
    int rc = guess_tree_init(&tree->shape, guesses->parents, n, &err);
    assert(rc == 0);
    (void)rc;
}

struct lane_path lane_tree_path(const struct draft *draft, const struct tree_result *result)
{
    struct lane_path path = {0};
    while (path.n_chain < result->n_accepted && result->path[path.n_chain] == path.n_chain) {
        path.n_chain++;
    }
    if (path.n_chain == draft->n) return path;
    path.n_tested = path.kept = draft->n_siblings[path.n_chain];
    if (path.n_chain == result->n_accepted) return path;
    int first = draft->n; /* of the siblings of that guess */
    for (int i = draft->n - 1; i > path.n_chain; i--) {
        first += draft->n_siblings[i];
    }
    path.kept = result->path[path.n_chain] - first;
    return path;
}
