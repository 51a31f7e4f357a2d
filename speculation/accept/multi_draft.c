/* How siblings are drawn, and the union of their supports. */
#include "speculation/accept/multi_draft.h"

#include <math.h>
#include <string.h>

#include "model/logits/row.h"

int32_t multi_draft_draw(const struct sparse_dist *q, const int32_t *gone, int n_gone, double u)
{
    double total = 0, sum = 0;
    for (int i = 0; i < q->n; i++) {
        if (!tree_has_token(gone, n_gone, q->ids[i])) total += (double)q->p[i];
    }
    int32_t chosen = -1;
    for (int i = 0; i < q->n && !(u * total < sum); i++) {
        if (!(q->p[i] > 0) || tree_has_token(gone, n_gone, q->ids[i])) continue;
        sum += (double)q->p[i];
        chosen = q->ids[i];
    }
    return chosen;
}

/* True if a token ranks before another: by score, then by the lowest id. */
static bool ranks_before(double score, int32_t id, double other_score, int32_t other_id)
{
    return score > other_score || (score == other_score && id < other_id);
}

int multi_draft_coupled(const int32_t *ids, const float *logits, int n, float temperature,
                        const struct rng_address *at, int n_wanted, int32_t *out)
{
    double scores[TREE_NODES_MAX];
    int n_out = 0;
    if (n_wanted > TREE_NODES_MAX) n_wanted = TREE_NODES_MAX;
    for (int i = 0; i < n; i++) {
        uint32_t noise = rng_coupled_bits(at->seed, at->position, (uint32_t)ids[i]);
        double score = row_noisy_score(logits[i], temperature, noise);
        int k = n_out < n_wanted ? n_out++ : n_wanted;
        for (; k > 0 && ranks_before(score, ids[i], scores[k - 1], out[k - 1]); k--) {
            if (k == n_wanted) continue;
            scores[k] = scores[k - 1];
            out[k] = out[k - 1];
        }
        if (k == n_wanted) continue;
        scores[k] = score;
        out[k] = ids[i];
    }
    return n_out;
}

int multi_draft_ids_most(const struct guess_tree *tree, int node)
{
    int n = 0;
    for (int c = guess_tree_child(tree, node); c >= 0; c = guess_tree_sibling(tree, c)) {
        n += tree->q[c]->n;
    }
    return n;
}

/* Merges more[n_more] into ids[n], from the end, in place; both ascend. Returns the new number. */
static int merge_ids(int32_t *ids, int n, const int32_t *more, int n_more)
{
    int to = n + n_more, n_all = to;
    for (int i = n - 1, k = n_more - 1; k >= 0;) {
        bool is_old = i >= 0 && ids[i] >= more[k];
        if (is_old && ids[i] == more[k]) k--;
        int32_t id = is_old ? ids[i--] : more[k--];
        ids[--to] = id;
        if (k < 0) {
            int first = i + 1;
            memmove(&ids[first], &ids[to], (size_t)(n_all - to) * sizeof *ids);
            return first + n_all - to;
        }
    }
    return n;
}

int multi_draft_ids(const struct guess_tree *tree, int node, int32_t *ids)
{
    int n = 0;
    for (int c = guess_tree_child(tree, node); c >= 0; c = guess_tree_sibling(tree, c)) {
        bool is_known = false; /* of siblings that share a q the first one brings its ids */
        for (int b = guess_tree_child(tree, node); b < c && !is_known;
             b = guess_tree_sibling(tree, b)) {
            is_known = tree->q[b] == tree->q[c];
        }
        if (!is_known) n = merge_ids(ids, n, tree->q[c]->ids, tree->q[c]->n);
    }
    return n;
}

/* The q of all children of a node; NULL: they have more than one, or there are none. */
static const struct sparse_dist *shared_q(const struct guess_tree *tree, int node)
{
    int child = guess_tree_child(tree, node);
    const struct sparse_dist *q = child >= 0 ? tree->q[child] : NULL;
    for (; child >= 0; child = guess_tree_sibling(tree, child)) {
        if (tree->q[child] != q) return NULL;
    }
    return q;
}

int multi_draft_want(const struct guess_tree *tree, int node, struct arena *arena,
                     struct target_want *want, struct error *err)
{
    size_t n = (size_t)multi_draft_ids_most(tree, node);
    want->q = shared_q(tree, node);
    if (n > 0 && !want->q) {
        struct sparse_dist *q = arena_take(arena, 1, sizeof *q);
        int32_t *ids = arena_take(arena, n, sizeof *ids);
        if (!q || !ids) return error_set(err, ERR_NO_MEMORY, "no room for a row of %zu ids", n);
        *q = (struct sparse_dist){.n = multi_draft_ids(tree, node, ids), .ids = ids};
        want->q = q;
    }
    if (want->q && want->q->n > ROW_IDS_MAX) want->full_rows = true;
    return 0;
}
