/* Multi-path block verification: one of several independent chains is chosen, and block
 * verification judges it alone, against the distribution that the choice has given it. */
#include <assert.h>
#include <math.h>

#include "speculation/accept/rules.h"
#include "speculation/accept/tree_residual.h"

enum {
    /* Tokens are ordered by p / q, STEPS steps for a factor of two. Any order would be exact. */
    STEPS = 4,
    EXPONENT_MAX = 16,
    CLASSES = 2 * EXPONENT_MAX * STEPS,
    MISSING = -1 /* the class of tokens that a row does not have */
};
#define ALL_IDS INT64_MAX

/* Rank of the chosen path among all that could have been drawn, in the order of its tokens:
 * `below` is the probability under q of the paths before those that begin as it does, `above` that
 * of all but those after them. */
struct place {
    double below, above;
};

struct chains {
    const struct guess_tree *tree;
    const struct target_row *rows;
    int n, length;                 /* chains from the root, all with so many nodes */
    bool agrees[TREE_NODES_MAX];   /* [n] with the chosen path so far */
    int path[TREE_NODES_MAX];      /* [length] nodes of the chosen path */
    double *given[TREE_NODES_MAX]; /* [length] of ids of the row before path[i]: the distribution
                                      that the choice has given path[i]; 0 outside of its q */
};

static int node_of(const struct chains *chains, int chain, int level)
{
    return chain * chains->length + level;
}

static int class_of(double p, double q)
{
    int exponent;
    double mantissa = frexp(p / q, &exponent);
    if (!(p > 0) || exponent <= -EXPONENT_MAX) return 0;
    if (exponent > EXPONENT_MAX) return CLASSES - 1;
    int step = (int)((mantissa - 0.5) * 2 * STEPS);
    return (exponent + EXPONENT_MAX - 1) * STEPS + step;
}

/* Sum of above^i below^(n - 1 - i): (above^n - below^n) / (above - below), without cancellation. */
static double powers(const struct place *place, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum = sum * place->above + pow(place->below, i);
    }
    return sum;
}

/* The row that p of the path's node `level` is in. */
static const struct target_row *row_before(const struct chains *chains, int level)
{
    return &chains->rows[level > 0 ? chains->path[level - 1] + 1 : 0];
}

/* q of the row's id i, or 0; *k walks along q. */
static double q_at(const struct target_row *row, const struct sparse_dist *q, int i, int *k)
{
    while (*k < q->n && q->ids[*k] < row->ids[i]) {
        (*k)++;
    }
    return *k < q->n && q->ids[*k] == row->ids[i] ? (double)q->p[*k] : 0;
}

/* The sum of q of ids below `end` that a row does not have, because a cut has left nothing of them.
 * They come before all classes, by their ids. */
static double sum_missing(const struct target_row *row, const struct sparse_dist *q, int64_t end)
{
    double sum = 0;
    for (int i = 0, k = 0; k < q->n && q->ids[k] < end; k++) {
        while (i < row->n && row->ids[i] < q->ids[k]) {
            i++;
        }
        if (i == row->n || row->ids[i] != q->ids[k]) sum += (double)q->p[k];
    }
    return sum;
}

/* before[c]: the part of q that is in lower classes. Returns the sum of q, which is rounded. */
static double sum_classes(const struct target_row *row, const struct sparse_dist *q, double *before)
{
    double sums[CLASSES] = {0}, total = sum_missing(row, q, ALL_IDS);
    for (int i = 0, k = 0; i < row->n; i++) {
        double q_i = q_at(row, q, i, &k);
        if (q_i > 0) sums[class_of((double)row->p[i], q_i)] += q_i;
    }
    for (int c = 0; c < CLASSES; c++) {
        before[c] = total;
        total += sums[c];
    }
    return total;
}

/* Chooses the path's next node: of the chains that agree so far, the one whose token comes last in
 * the order. */
static void choose_node(struct chains *chains, int level, const struct target_row *row)
{
    const struct guess_tree *tree = chains->tree;
    int best = -1, best_class = MISSING;
    for (int c = 0; c < chains->n; c++) {
        int node = node_of(chains, c, level);
        if (!chains->agrees[c]) continue;
        int i = target_row_find(row, tree->tokens[node]);
        assert(i >= 0 || row->outside_mass == 0); /* p of this id was not asked for */
        double q_i = (double)sparse_prob(tree->q[node], tree->tokens[node]);
        int own = i >= 0 ? class_of((double)row->p[i], q_i) : MISSING;
        bool is_equal = own == best_class;
        if (best >= 0 &&
            (own < best_class || (is_equal && tree->tokens[node] <= tree->tokens[best]))) {
            continue;
        }
        best = node;
        best_class = own;
    }
    for (int c = 0; c < chains->n; c++) {
        int32_t token = tree->tokens[node_of(chains, c, level)];
        chains->agrees[c] = chains->agrees[c] && token == tree->tokens[best];
    }
    chains->path[level] = best;
}

/* One node more, and what the choice gives each token of its q: a path that begins like this one
 * and goes on with the token is chosen if none comes after it and not all come before it. */
static void extend(struct chains *chains, int level, struct place *place)
{
    const struct target_row *row = row_before(chains, level);
    double before[CLASSES], width = place->above - place->below, *given = chains->given[level];
    choose_node(chains, level, row);
    int node = chains->path[level];
    const struct sparse_dist *q = chains->tree->q[node];
    double total = sum_classes(row, q, before), whole = powers(place, chains->n);
    struct place chosen = *place;
    int32_t token = chains->tree->tokens[node];
    if (target_row_find(row, token) < 0) {
        chosen.below = place->below + width * (sum_missing(row, q, token) / total);
        chosen.above = place->below + width * (sum_missing(row, q, token + 1LL) / total);
    }
    for (int i = 0, k = 0; i < row->n; i++) {
        double q_i = q_at(row, q, i, &k);
        given[i] = 0;
        if (!(q_i > 0)) continue;
        double *sum = &before[class_of((double)row->p[i], q_i)];
        struct place own = {.below = place->below + width * (*sum / total)};
        *sum += q_i;
        own.above = place->below + width * (*sum / total);
        given[i] = whole > 0 ? q_i / total * powers(&own, chains->n) / whole : q_i / total;
        if (row->ids[i] == token) chosen = own;
    }
    *place = chosen;
}

/* Sum of max(0, scale p - given). */
static double residual_mass(const struct target_row *row, const double *given, double scale)
{
    double sum = scale * row->outside_mass;
    for (int i = 0; i < row->n; i++) {
        double rest = scale * (double)row->p[i] - given[i];
        sum += rest > 0 ? rest : 0;
    }
    return sum;
}

/* h of block verification: see block_keep in speculation/accept/chain.c. */
static double path_keep(const struct chains *chains, int level, double scale)
{
    if (level == chains->length) return scale;
    double mass = residual_mass(row_before(chains, level), chains->given[level], scale);
    double denominator = mass + (1 - scale);
    return denominator > 0 ? mass / denominator : 1;
}

/* How many nodes of the chosen path stay; *kept_scale: min(1, p / given) accumulated over them. */
static int verify(const struct chains *chains, const struct rng_address *at, double *kept_scale)
{
    int n_kept = 0;
    double scale = 1;
    *kept_scale = 1;
    for (int i = 1; i <= chains->length; i++) {
        const struct target_row *row = row_before(chains, i - 1);
        int guess = target_row_find(row, chains->tree->tokens[chains->path[i - 1]]);
        if (guess < 0) break; /* p is 0: nothing stays from here on */
        double p_i = (double)row->p[guess], given = chains->given[i - 1][guess];
        scale = scale * p_i < given ? scale * p_i / given : 1;
        const struct rng_address here = {at->seed, at->position + (uint32_t)i - 1, at->round};
        if (rng_uniform(&here, RNG_ACCEPT, 0) < path_keep(chains, i, scale)) {
            n_kept = i;
            *kept_scale = scale;
        }
    }
    return n_kept;
}

/* The token after the nodes that stay; overwrites what is known of the next one. */
static int32_t draw_next(const struct chains *chains, int n_kept, double scale,
                         const struct rng_address *at)
{
    const struct target_row *row = row_before(chains, n_kept);
    const struct rng_address here = {at->seed, at->position + (uint32_t)n_kept, at->round};
    if (n_kept == chains->length) return target_row_draw(row, &here);
    double *given = chains->given[n_kept];
    struct tree_residual rest = {.row = row,
                                 .w = given,
                                 .outside = scale * row->outside_mass,
                                 .mass = residual_mass(row, given, scale),
                                 .n_stages = 1};
    for (int i = 0; i < row->n; i++) {
        double w = scale * (double)row->p[i] - given[i];
        given[i] = w > 0 ? w : 0;
    }
    return tree_residual_draw(&rest, &here);
}

static void count_chains(const struct guess_tree *tree, struct chains *chains)
{
    chains->n = 0;
    for (int c = guess_tree_child(tree, -1); c >= 0; c = guess_tree_sibling(tree, c)) {
        chains->agrees[chains->n++] = true;
    }
    chains->length = chains->n > 0 ? tree->n / chains->n : 0;
}

/* After Thomas and Pal 2026, arXiv 2602.16961 (greedy multi-path block verification), of which only
 * the idea was at hand; the order, and the formulas that follow from it, are ours.
 *
 * Order the paths by their tokens from the first on, tokens by p / q at their place. Of n paths
 * that are drawn independently from q, the last one in this order is chosen. A path that begins
 * with x1 .. xi is chosen with probability above^n - below^n (struct place), so the distribution
 * that the choice gives the next token is known at every node of the chosen path, from p and q on
 * this path alone. Block verification is exact for a guess of any distribution that is known, so it
 * is for this one. Tokens that the draft gives too little are chosen more often, which is the gain;
 * with many paths they are chosen too often.
 *
 * For chains of equal length from the root whose q's are equal wherever their tokens are, drawn
 * with replacement: is_independent. One chain is block verification. */
struct tree_result tree_accept_paths(const struct guess_tree *tree, const struct target_row *rows,
                                     const struct rng_address *at, double *scratch)
{
    struct chains chains = {.tree = tree, .rows = rows};
    struct place place = {.below = 0, .above = 1};
    double scale;
    count_chains(tree, &chains);
    assert(tree->n == 0 || chains.n == 1 || tree_is_chains(tree));
    for (int i = 0; i < chains.length; i++) {
        chains.given[i] = scratch;
        scratch += row_before(&chains, i)->n;
        extend(&chains, i, &place);
    }
    int n_kept = verify(&chains, at, &scale);
    struct tree_result result = tree_path(tree, n_kept > 0 ? chains.path[n_kept - 1] : -1);
    result.next = draw_next(&chains, n_kept, scale, at);
    return result;
}
