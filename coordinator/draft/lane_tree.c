/* A chain with siblings, what grows behind them and a branch as a tree. */
#include "coordinator/draft/lane_tree.h"

#include <assert.h>

int lane_tree_parents(int k, const uint8_t *siblings, const struct growth *growth, int n_branch,
                      int32_t *parents)
{
    int n = growth_tree(k, siblings, growth, parents);
    for (int i = 0; i < n_branch; i++, n++) {
        parents[n] = i == 0 ? -1 : n - 1;
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

int lane_tree_shared(const struct draft *draft)
{
    int n = 0;
    while (n < draft->n_branch && n < draft->n && draft->branch[n] == draft->tokens[n]) {
        n++;
    }
    return n;
}

const struct sparse_dist *lane_tree_sibling_q(const struct draft *draft, int i, int sibling)
{
    const struct sparse_dist *own = draft->sibling_q[i][sibling];
    return own ? own : &draft->q[i];
}

static void add(struct lane_tree *tree, int parent, int32_t token, const struct sparse_dist *q,
                int kind)
{
    struct tree *guesses = &tree->guesses;
    int at = guesses->n++;
    guesses->parents[at] = parent;
    guesses->tokens[at] = token;
    guesses->q[at] = q;
    tree->kinds[at] = (int8_t)kind;
}

/* The branch from its guess i on, behind `parent`. */
static void add_branch(struct lane_tree *tree, const struct draft *draft, int i, int parent)
{
    for (; i < draft->n_branch; i++) {
        add(tree, parent, draft->branch[i], &draft->branch_q[i], LANE_TREE_BRANCH);
        parent = tree->guesses.n - 1;
    }
}

/* What grows behind the guess that was added last, which the growth calls `name`. */
static void add_grown(struct lane_tree *tree, const struct draft *draft, int name)
{
    int parent = tree->guesses.n - 1;
    for (int i = 0; i < draft->grown.n; i++) {
        if (draft->grown.parents[i] != name) continue;
        int first = growth_first(&draft->grown, i);
        add(tree, parent, draft->grown_tokens[i], &draft->grown_q[first],
            LANE_TREE_GROWN + i - first);
        add_grown(tree, draft, i);
    }
}

/* The siblings of guess i of the chain, and the branch if it leaves the chain there. */
static void add_siblings(struct lane_tree *tree, const struct draft *draft, int i, bool is_left)
{
    bool is_sibling = false;
    for (int s = 0; s < draft->n_siblings[i]; s++) {
        int32_t token = draft->siblings[i][s];
        add(tree, i - 1, token, lane_tree_sibling_q(draft, i, s), s + 1);
        add_grown(tree, draft, growth_behind(i, s));
        if (!is_left || token != draft->branch[i]) continue;
        is_sibling = true;
        add_branch(tree, draft, i + 1, tree->guesses.n - 1);
    }
    if (is_left && !is_sibling) add_branch(tree, draft, i, i - 1);
}

void lane_tree_init(struct lane_tree *tree, const struct draft *draft)
{
    struct error err;
    struct tree *guesses = &tree->guesses;
    int shared = lane_tree_shared(draft);
    guesses->n = 0;
    guesses->is_independent = false;
    for (int i = 0; i < draft->n; i++) {
        add(tree, i - 1, draft->tokens[i], &draft->q[i], LANE_TREE_CHAIN);
    }
    if (shared == draft->n) add_branch(tree, draft, shared, draft->n - 1);
    for (int i = draft->n - 1; i >= 0; i--) {
        add_siblings(tree, draft, i, i == shared && shared < draft->n_branch);
    }
    int rc = guess_tree_init(&tree->shape, guesses->parents, guesses->n, &err);
    assert(rc == 0);
    (void)rc;
}

struct lane_path lane_tree_path(const struct lane_tree *tree, const struct draft *draft,
                                const struct tree_result *result)
{
    struct lane_path path = {0};
    while (path.n_chain < result->n_accepted && path.n_chain < draft->n &&
           result->path[path.n_chain] == path.n_chain) {
        path.n_chain++;
    }
    for (int i = path.n_chain; i < result->n_accepted; i++) {
        path.n_branch += tree->kinds[result->path[i]] == LANE_TREE_BRANCH ? 1 : 0;
    }
    if (path.n_chain == draft->n) return path;
    path.n_tested = path.kept = draft->n_siblings[path.n_chain];
    if (path.n_chain == result->n_accepted) return path;
    int kind = tree->kinds[result->path[path.n_chain]];
    if (kind > LANE_TREE_CHAIN) path.kept = kind - 1;
    return path;
}
