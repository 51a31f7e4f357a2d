/* Trees that follow the draft's q. */
#include "speculation/accept/tree_follow.h"

/* The part of a drawn guess's value that does not depend on q. With 0.7 to 0.9 trees that follow q
 * keep about as much as planned ones or more, and with 0 less (docs/journal/trees.md).
 */
static const double drawn_constant_ratio = 0.8;

int tree_follow_expand(const double *value, int n, int n_wanted, int *chosen)
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

int tree_follow_best(const struct sparse_dist *q, float best[TREE_CHILDREN_MAX])
{
    int n = 0;
    for (int i = 0; i < q->n; i++) {
        if (!(q->p[i] > 0)) continue;
        int k = n < TREE_CHILDREN_MAX ? n++ : TREE_CHILDREN_MAX;
        for (; k > 0 && q->p[i] > best[k - 1]; k--) {
            if (k < TREE_CHILDREN_MAX) best[k] = best[k - 1];
        }
        if (k < TREE_CHILDREN_MAX) best[k] = q->p[i];
    }
    return n;
}

double tree_follow_constant_ratio(const struct rule *rule)
{
    return rule->judges_q || rule->is_coupled ? drawn_constant_ratio : 0;
}

double tree_follow_value(double parent, float chance, int rank, double constant_ratio)
{
    double own = (1 - constant_ratio) * (double)chance;
    return parent * (rank == 0 ? constant_ratio + own : own);
}

int tree_follow_share(struct tree_follow_parent *parents, int n, int budget, double constant_ratio)
{
    int n_given = 0;
    for (; n_given < budget; n_given++) {
        int chosen = -1;
        double most = 0;
        for (int i = 0; i < n; i++) {
            int rank = parents[i].n_children;
            if (rank >= parents[i].n_best) continue;
            double value =
                tree_follow_value(parents[i].value, parents[i].best[rank], rank, constant_ratio);
            if (!(value > most)) continue;
            most = value;
            chosen = i;
        }
        if (chosen < 0) break;
        parents[chosen].n_children++;
    }
    return n_given;
}
