/* Shapes of trees: the fixed one, EAGLE-2's, and the order of nodes. */
#include "speculation/tree_shape.h"

#include <stdlib.h>

static bool add_below(const int *k, int n_depths, int depth, int parent, struct tree_shape *shape)
{
    for (int i = 0; depth < n_depths && i < k[depth]; i++) {
        if (shape->n == TREE_NODES_MAX) return false;
        int node = shape->n++;
        shape->parents[node] = parent;
        if (!add_below(k, n_depths, depth + 1, node, shape)) return false;
    }
    return true;
}

int tree_shape_parse(const char *text, struct tree_shape *shape, struct error *err)
{
    int k[TREE_DEPTH_MAX], n = 0;
    const char *rest = text;
    shape->n = 0;
    for (bool more = true; more; n++) {
        char *end;
        long value = strtol(rest, &end, 10);
        if (*rest < '0' || *rest > '9' || value < 1 || value > TREE_NODES_MAX ||
            (*end != ',' && *end != '\0') || n == TREE_DEPTH_MAX) {
            return error_set(err, ERR_ARGUMENT,
                             "'%s' is no shape of a tree; write up to %d numbers of children, each "
                             "1 to %d, such as 3,2,1",
                             text, TREE_DEPTH_MAX, TREE_NODES_MAX);
        }
        k[n] = (int)value;
        more = *end == ',';
        rest = end + 1;
    }
    if (add_below(k, n, 0, -1, shape)) return 0;
    shape->n = 0;
    return error_set(err, ERR_ARGUMENT, "the shape '%s' has more than %d nodes", text,
                     TREE_NODES_MAX);
}

int tree_shape_expand(const double *value, int n, int n_wanted, int *chosen)
{
    int n_chosen = 0;
    for (int i = 0; i < n; i++) {
        int k = n_chosen < n_wanted ? n_chosen++ : n_wanted;
        for (; k > 0 && value[i] > value[chosen[k - 1]]; k--) {
            if (k < n_wanted) chosen[k] = chosen[k - 1];
        }
        if (k < n_wanted) chosen[k] = i;
    }
    return n_chosen;
}

/* The largest values of q, best first. */
static int best_of(const struct sparse_dist *q, float *best)
{
    int n = 0;
    for (int i = 0; i < q->n; i++) {
        if (!(q->p[i] > 0)) continue;
        int k = n < TREE_RANKS_MAX ? n++ : TREE_RANKS_MAX;
        for (; k > 0 && q->p[i] > best[k - 1]; k--) {
            if (k < TREE_RANKS_MAX) best[k] = best[k - 1];
        }
        if (k < TREE_RANKS_MAX) best[k] = q->p[i];
    }
    return n;
}

void tree_shape_share(const struct sparse_dist *const *q, const double *value, int n, int budget,
                      int *n_children)
{
    float best[TREE_NODES_MAX][TREE_RANKS_MAX];
    int n_best[TREE_NODES_MAX];
    for (int i = 0; i < n; i++) {
        n_best[i] = best_of(q[i], best[i]);
        n_children[i] = 0;
    }
    for (; budget > 0; budget--) {
        int chosen = -1;
        double most = 0;
        for (int i = 0; i < n; i++) {
            int k = n_children[i];
            if (k == n_best[i] || !(value[i] * (double)best[i][k] > most)) continue;
            most = value[i] * (double)best[i][k];
            chosen = i;
        }
        if (chosen < 0) return;
        n_children[chosen]++;
    }
}

static void place_below(const struct tree *drawn, int parent, struct tree *tree, int *place)
{
    for (int i = parent + 1; i < drawn->n; i++) {
        if (drawn->parents[i] != parent) continue;
        int node = place[i] = tree->n++;
        tree->tokens[node] = drawn->tokens[i];
        tree->q[node] = drawn->q[i];
        tree->parents[node] = parent < 0 ? -1 : place[parent];
        place_below(drawn, i, tree, place);
    }
}

void tree_in_preorder(const struct tree *drawn, struct tree *tree, int *place)
{
    *tree = (struct tree){.is_independent = drawn->is_independent};
    place_below(drawn, -1, tree, place);
}
