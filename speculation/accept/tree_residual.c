/* Residuals of a row, child after child (Leviathan et al. 2023, Algorithm 1; for several children
 * SpecInfer, Miao et al. 2023, Algorithm 2). */
#include "speculation/accept/tree_residual.h"

#include <assert.h>

void tree_residual_open(struct tree_residual *rest, const struct target_row *row, double scale,
                        double *scratch)
{
    *rest = (struct tree_residual){.row = row,
                                   .w = scratch,
                                   .outside = row->outside_mass,
                                   .mass = 1,
                                   .scale = scale,
                                   .share = scale};
}

static double weight_at(const struct tree_residual *rest, int i)
{
    return rest->n_stages > 0 ? rest->w[i] : (double)rest->row->p[i];
}

double tree_residual_prob_at(const struct tree_residual *rest, int i)
{
    return rest->share * weight_at(rest, i);
}

double tree_residual_prob(const struct tree_residual *rest, int32_t token)
{
    int i = target_row_find(rest->row, token);
    assert(i >= 0 || rest->row->outside_mass == 0); /* p of this id was not asked for */
    return i >= 0 ? tree_residual_prob_at(rest, i) : 0;
}

void tree_residual_subtract(struct tree_residual *rest, const struct sparse_dist *q, double left)
{
    const struct target_row *row = rest->row;
    rest->outside *= rest->share;
    double sum = rest->outside;
    for (int i = 0, k = 0; i < row->n; i++) {
        while (k < q->n && q->ids[k] < row->ids[i]) {
            k++;
        }
        double q_i = k < q->n && q->ids[k] == row->ids[i] ? (double)q->p[k] / left : 0;
        double w = rest->share * weight_at(rest, i) - q_i;
        rest->w[i] = w > 0 ? w : 0;
        sum += rest->w[i];
    }
    rest->mass = sum;
    rest->n_stages++;
}

void tree_residual_rescale(struct tree_residual *rest, double scale)
{
    rest->scale = scale;
    rest->share = rest->mass > 0 ? scale / rest->mass : 0;
}

int32_t tree_residual_draw(const struct tree_residual *rest, const struct rng_address *at)
{
    const struct target_row *row = rest->row;
    if (rest->n_stages == 0 || !(rest->mass > 0)) return target_row_draw(row, at);
    double goal = rng_uniform(at, RNG_RESIDUAL, 0) * rest->mass, sum = 0;
    int32_t last = -1;
    for (int i = 0; i < row->n; i++) {
        if (!(rest->w[i] > 0)) continue;
        sum += rest->w[i];
        last = row->ids[i];
        if (goal < sum) return last;
    }
    return row->outside_mass > 0 ? row->outside_id : last; /* rounding may end beyond the sum */
}

struct tree_result tree_residual_walk(const struct guess_tree *tree, const struct target_row *rows,
                                      const struct rng_address *at, double *scratch,
                                      tree_first_kept_fn *first_kept)
{
    for (int node = -1;;) {
        struct tree_residual rest;
        const struct rng_address here = tree_coins_after(tree, node, at);
        tree_residual_open(&rest, &rows[node + 1], 1, scratch);
        int child = first_kept(tree, node, &here, &rest);
        if (child < 0) {
            struct tree_result result = tree_path(tree, node);
            result.next = tree_residual_draw(&rest, &here);
            return result;
        }
        node = child;
    }
}
