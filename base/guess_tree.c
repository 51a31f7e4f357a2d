/* Trees of guesses: making them, their order, and the most KV that they can need. */
#include "base/guess_tree.h"

#include <assert.h>

void guess_tree_begin(struct guess_tree *tree, int base)
{
    tree->base = base;
    tree->is_over = tree->is_independent = false;
    tree->n = tree->n_chain = 0;
}

int guess_tree_add(struct guess_tree *tree, int parent, int marks, int32_t token,
                   const struct sparse_dist *q)
{
    int node = tree->n++;
    assert(node < TREE_NODES_MAX && parent < node);
    tree->parents[node] = parent;
    tree->marks[node] = (uint8_t)marks;
    tree->tokens[node] = token;
    tree->q[node] = q;
    if (marks & GUESS_CHAIN) {
        assert(tree->n_chain < DRAFT_MAX && parent == guess_tree_last(tree));
        tree->chain[tree->n_chain++] = (uint8_t)node;
    }
    return node;
}

void guess_tree_plan(struct guess_tree *tree, int n, int marks)
{
    int parent = marks & GUESS_CHAIN ? guess_tree_last(tree) : -1;
    for (int i = 0; i < n; i++) {
        parent = guess_tree_add(tree, parent, marks, -1, 0);
    }
}

int guess_tree_branch(struct guess_tree *tree, int at, int32_t token, const struct sparse_dist *q)
{
    for (int c = guess_tree_child(tree, at); c >= 0; c = guess_tree_sibling(tree, c)) {
        if (tree->tokens[c] != token) continue;
        tree->marks[c] |= GUESS_BRANCH;
        return c;
    }
    return guess_tree_add(tree, at, GUESS_BRANCH, token, q);
}

/* The first node from `from` on whose parent is this one. */
static int find_child(const struct guess_tree *tree, int from, int32_t parent)
{
    for (int i = from; i < tree->n; i++) {
        if (tree->parents[i] == parent) return i;
    }
    return -1;
}

int guess_tree_child(const struct guess_tree *tree, int node)
{
    return find_child(tree, node + 1, node);
}

int guess_tree_sibling(const struct guess_tree *tree, int node)
{
    return find_child(tree, node + 1, tree->parents[node]);
}

int guess_tree_rank(const struct guess_tree *tree, int node)
{
    int rank = 0;
    for (int i = tree->parents[node] + 1; i < node; i++) {
        rank += tree->parents[i] == tree->parents[node] ? 1 : 0;
    }
    return rank;
}

int guess_tree_depth(const struct guess_tree *tree, int node)
{
    int depth = 0;
    for (; node >= 0; node = tree->parents[node]) {
        depth++;
    }
    return depth;
}

int guess_tree_text(const struct guess_tree *tree, int node, int32_t tokens[DRAFT_MAX])
{
    int n = guess_tree_depth(tree, node);
    for (int i = n - 1; i >= 0; i--, node = tree->parents[node]) {
        tokens[i] = tree->tokens[node];
    }
    return n;
}

bool guess_tree_agree(const struct guess_tree *tree, int a, int b)
{
    while (a >= 0 && b >= 0 && a != b && tree->tokens[a] == tree->tokens[b]) {
        a = tree->parents[a];
        b = tree->parents[b];
    }
    return a == b;
}

int guess_tree_count(const struct guess_tree *tree, int marks)
{
    int n = 0;
    for (int i = 0; i < tree->n; i++) {
        n += tree->marks[i] & marks ? 1 : 0;
    }
    return n;
}

int guess_tree_siblings(const struct guess_tree *tree, int place)
{
    int n = 0, parent = place > 0 && place <= tree->n_chain ? tree->chain[place - 1] : -1;
    for (int i = parent + 1; place < tree->n_chain && i < tree->n; i++) {
        n += tree->parents[i] == parent && tree->marks[i] & GUESS_SIBLING ? 1 : 0;
    }
    return n;
}

/* Copies order[n] of a tree to another; their parents are among them and come before them. */
static void copy(const struct guess_tree *from, const int *order, int n, struct guess_tree *to)
{
    int at[TREE_NODES_MAX];
    guess_tree_begin(to, from->base);
    to->is_over = from->is_over;
    to->is_independent = from->is_independent;
    for (int i = 0; i < n; i++) {
        int node = order[i], parent = from->parents[node];
        at[node] = guess_tree_add(to, parent < 0 ? -1 : at[parent], from->marks[node],
                                  from->tokens[node], from->q[node]);
    }
}

void guess_tree_sort(struct guess_tree *tree)
{
    int order[TREE_NODES_MAX], n = 0, next_child[1 + TREE_NODES_MAX];
    struct guess_tree sorted;
    if (tree->n == tree->n_chain) return;
    for (int i = 0; i <= tree->n; i++) {
        next_child[i] = guess_tree_child(tree, i - 1);
    }
    for (int at = -1; n < tree->n;) {
        int child = next_child[at + 1];
        if (child < 0) {
            at = tree->parents[at];
            continue;
        }
        next_child[at + 1] = guess_tree_sibling(tree, child);
        order[n++] = at = child;
    }
    copy(tree, order, n, &sorted);
    *tree = sorted;
}

void guess_tree_drop(struct guess_tree *tree, int marks)
{
    int order[TREE_NODES_MAX], n = 0;
    struct guess_tree left;
    for (int i = 0; i < tree->n; i++) {
        if (!(tree->marks[i] & marks)) order[n++] = i;
    }
    if (n == tree->n) return;
    copy(tree, order, n, &left);
    *tree = left;
}

/* Adds up to `most` nodes of a plan; returns how many there are left of `n`. */
static int add_some(struct guess_tree *packed, int parent, int marks, int n, int most)
{
    for (int i = 0; i < most && n > 0; i++, n--) {
        guess_tree_add(packed, parent, marks, -1, 0);
    }
    return n;
}

void guess_tree_pack(const struct guess_tree *plan, struct guess_tree *packed)
{
    int budget[DRAFT_MAX] = {0};
    for (int i = 0; i < plan->n; i++) {
        if (plan->marks[i] & (GUESS_SIBLING | GUESS_GROWN)) budget[guess_tree_place(plan, i)]++;
    }
    guess_tree_begin(packed, plan->base);
    for (int i = 0; i < plan->n_chain; i++) {
        guess_tree_extend(packed, plan->marks[plan->chain[i]], -1, 0);
    }
    for (int place = 0, first = packed->n; place < DRAFT_MAX; place++) {
        int end = packed->n, left = budget[place];
        if (place < plan->n_chain) {
            int parent = place > 0 ? packed->chain[place - 1] : -1;
            left = add_some(packed, parent, GUESS_SIBLING, left, SIBLINGS_MAX);
        }
        for (int i = first; i < end; i++) {
            left = add_some(packed, i, GUESS_GROWN, left, 1 + SIBLINGS_MAX);
        }
        first = end;
    }
}

struct guess_path guess_tree_path(const struct guess_tree *tree, const int *nodes, int n)
{
    struct guess_path path = {0};
    while (path.n_chain < n && path.n_chain < tree->n_chain &&
           tree->tokens[nodes[path.n_chain]] == tree->tokens[tree->chain[path.n_chain]]) {
        path.n_chain++;
    }
    for (int i = path.n_chain; i < n; i++) {
        path.n_branch += tree->marks[nodes[i]] == GUESS_BRANCH ? 1 : 0;
    }
    path.n_tested = path.kept = guess_tree_siblings(tree, path.n_chain);
    if (path.n_chain == n || path.n_chain == tree->n_chain) return path;
    int node = nodes[path.n_chain];
    if (tree->marks[node] & GUESS_SIBLING) path.kept = guess_tree_rank(tree, node) - 1;
    return path;
}
