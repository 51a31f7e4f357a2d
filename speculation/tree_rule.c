/* The rules over a tree. What is left of p behind a guess is kept unnormalised: r of each of the
 * row's ids and of all tokens outside, which sum to `mass`. */
#include "speculation/tree_rule.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "speculation/rule.h"

/* What a rule works with. */
struct walk {
    const struct target_row *rows;
    const struct tree_guesses *g;
    const struct rng_address *at;
};

/* What is left of p at a row. */
struct rest {
    const struct target_row *row;
    double *r; /* [row->n] */
    double outside, mass;
    bool is_whole; /* nothing was taken from p */
};

/* ---- the tree ---- */

static int depth_of(const struct tree_guesses *g, int i)
{
    int depth = 0;
    for (i = g->parents[i]; i >= 0; i = g->parents[i]) {
        depth++;
    }
    return depth;
}

/* Guess i's place among those of its depth. */
static uint32_t place_of(const struct tree_guesses *g, int i)
{
    uint32_t place = 0;
    int depth = depth_of(g, i);
    for (int j = 0; j < i; j++) {
        place += depth_of(g, j) == depth ? 1 : 0;
    }
    return place;
}

/* The next child of `parent` behind guess `before`; -1: there is none. */
static int next_child(const struct tree_guesses *g, int parent, int before)
{
    for (int i = before + 1; i < g->n; i++) {
        if (g->parents[i] == parent) return i;
    }
    return -1;
}

static struct rng_address coins_at(const struct walk *w, int depth)
{
    return (struct rng_address){w->at->seed, w->at->position + (uint32_t)depth, w->at->round};
}

static double accept_coin(const struct walk *w, int guess)
{
    const struct rng_address here = coins_at(w, depth_of(w->g, guess));
    return rng_uniform(&here, RNG_ACCEPT, place_of(w->g, guess));
}

/* The path to a guess, -1: none, and the token behind it. */
static struct tree_result end_at(const struct walk *w, int guess, int32_t next)
{
    struct tree_result result = {.n_accepted = guess < 0 ? 0 : depth_of(w->g, guess) + 1,
                                 .next = next};
    for (int i = result.n_accepted - 1; i >= 0; i--, guess = w->g->parents[guess]) {
        result.path[i] = guess;
    }
    return result;
}

/* ---- q ---- */

static bool is_taken(const int32_t *taken, int n_taken, int32_t id)
{
    for (int i = 0; i < n_taken; i++) {
        if (taken[i] == id) return true;
    }
    return false;
}

double tree_q_left(const struct sparse_dist *q, const int32_t *taken, int n_taken)
{
    double sum = 0;
    if (n_taken == 0) return 1;
    for (int i = 0; i < q->n; i++) {
        if (!is_taken(taken, n_taken, q->ids[i])) sum += (double)q->p[i];
    }
    return sum;
}

int32_t tree_q_draw(const struct sparse_dist *q, const int32_t *taken, int n_taken, double u)
{
    double left = u * tree_q_left(q, taken, n_taken), sum = 0;
    int32_t last = -1;
    if (n_taken == 0) return sparse_draw(q, u);
    for (int i = 0; i < q->n; i++) {
        if (!(q->p[i] > 0) || is_taken(taken, n_taken, q->ids[i])) continue;
        sum += (double)q->p[i];
        last = q->ids[i];
        if (left < sum) break;
    }
    return last;
}

/* The distribution that a guess was drawn from. */
struct drawn_from {
    const struct sparse_dist *q;
    int32_t taken[TREE_NODES_MAX]; /* [n_taken] siblings that were drawn from q before it */
    int n_taken;
    double left;
};

static void drawn_from(const struct tree_guesses *g, int guess, struct drawn_from *from)
{
    from->q = g->q[guess];
    from->n_taken = 0;
    for (int i = 0; i < guess; i++) {
        bool is_before = g->parents[i] == g->parents[guess] && g->q[i] == from->q;
        if (is_before) from->taken[from->n_taken++] = g->tokens[i];
    }
    from->left = tree_q_left(from->q, from->taken, from->n_taken);
}

/* q of entry k. */
static double q_at(const struct drawn_from *from, int k)
{
    if (is_taken(from->taken, from->n_taken, from->q->ids[k])) return 0;
    return (double)from->q->p[k] / from->left;
}

static double q_of(const struct drawn_from *from, int32_t id)
{
    if (is_taken(from->taken, from->n_taken, id)) return 0;
    return (double)sparse_prob(from->q, id) / from->left;
}

/* ---- what is left of p ---- */

static struct rest rest_begin(const struct target_row *row, double *r)
{
    for (int i = 0; i < row->n; i++) {
        r[i] = (double)row->p[i];
    }
    return (struct rest){row, r, row->outside_mass, 1, true};
}

static double rest_of(const struct rest *rest, int32_t id)
{
    int low = 0, high = rest->row->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (rest->row->ids[middle] < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool is_there = low < rest->row->n && rest->row->ids[low] == id;
    assert(is_there || !(rest->outside > 0));
    return is_there ? rest->r[low] : 0;
}

/* max(0, scale p - q), where p is what was left, normalised. */
static void rest_subtract(struct rest *rest, const struct drawn_from *from, double scale)
{
    const struct target_row *row = rest->row;
    double before = rest->mass;
    rest->is_whole = false;
    rest->outside = scale * rest->outside / before;
    rest->mass = rest->outside;
    for (int i = 0, k = 0; i < row->n; i++) {
        while (k < from->q->n && from->q->ids[k] < row->ids[i]) {
            k++;
        }
        bool has_q = k < from->q->n && from->q->ids[k] == row->ids[i];
        double left = scale * rest->r[i] / before - (has_q ? q_at(from, k) : 0);
        rest->r[i] = left > 0 ? left : 0;
        rest->mass += rest->r[i];
    }
}

/* A token from what is left, from p where nothing was taken or nothing is left. Inverse CDF over
 * the row's ids, then outside, where a token of p is drawn already. */
static int32_t rest_draw(const struct rest *rest, const struct rng_address *at)
{
    const struct target_row *row = rest->row;
    if (rest->is_whole || !(rest->mass > 0)) return target_row_draw(row, at);
    double left = rng_uniform(at, RNG_RESIDUAL, 0) * rest->mass, sum = 0;
    int32_t last = -1;
    for (int i = 0; i < row->n; i++) {
        if (!(rest->r[i] > 0)) continue;
        sum += rest->r[i];
        last = row->ids[i];
        if (left < sum) return last;
    }
    return row->outside_mass > 0 ? row->outside_id : last; /* rounding may end beyond the sum */
}

size_t tree_scratch(const struct target_row *rows, int n)
{
    size_t sum = 0;
    for (int i = 0; i <= n; i++) {
        sum += (size_t)rows[i].n;
    }
    return sum;
}

/* ---- recursive rejection ---- */

/* The child of `parent` that stays, or -1 and the token in its place. */
static int test_children(const struct walk *w, int parent, int depth, double *scratch,
                         int32_t *next)
{
    struct rest rest = rest_begin(&w->rows[1 + parent], scratch);
    const struct rng_address here = coins_at(w, depth);
    for (int i = next_child(w->g, parent, parent); i >= 0; i = next_child(w->g, parent, i)) {
        struct drawn_from from;
        drawn_from(w->g, i, &from);
        int32_t id = w->g->tokens[i];
        /* coin < p / q, without a division */
        if (accept_coin(w, i) * q_of(&from, id) * rest.mass < rest_of(&rest, id)) return i;
        rest_subtract(&rest, &from, 1);
        if (!(rest.mass > 0)) break;
    }
    *next = rest_draw(&rest, &here);
    return -1;
}

struct tree_result tree_rejection(const struct target_row *rows, const struct tree_guesses *guesses,
                                  const struct rng_address *at, double *scratch)
{
    const struct walk w = {rows, guesses, at};
    int32_t next = -1;
    int here = -1, child;
    for (int depth = 0; (child = test_children(&w, here, depth, scratch, &next)) >= 0; depth++) {
        here = child;
    }
    return end_at(&w, here, next);
}

/* ---- traversal ---- */

struct traversal {
    struct walk w;
    struct rest rests[TREE_NODES_MAX + 1]; /* by 1 + guess */
    double keep[TREE_NODES_MAX + 1];       /* the chance that the path up to it stays */
    int deepest[TREE_NODES_MAX + 1];       /* its last child that was looked at; itself: none */
};

/* The chance of a guess's path, given that of its parent: min(1, keep p / q). */
static void enter(struct traversal *t, int guess)
{
    const struct tree_guesses *g = t->w.g;
    int parent = g->parents[guess];
    const struct rest *rest = &t->rests[1 + parent];
    struct drawn_from from;
    drawn_from(g, guess, &from);
    double keep = t->keep[1 + parent];
    double p = rest->mass > 0 ? rest_of(rest, g->tokens[guess]) / rest->mass : 0;
    double q = q_of(&from, g->tokens[guess]);
    t->keep[1 + guess] = keep * p < q ? keep * p / q : 1;
    t->deepest[1 + parent] = guess;
    t->deepest[1 + guess] = guess;
}

/* A guess and all behind it were rejected: its parent is left with what it does not explain. */
static void reject(struct traversal *t, int guess)
{
    int parent = t->w.g->parents[guess];
    struct rest *rest = &t->rests[1 + parent];
    double *keep = &t->keep[1 + parent];
    struct drawn_from from;
    drawn_from(t->w.g, guess, &from);
    if (!(rest->mass > 0)) return;
    rest_subtract(rest, &from, *keep);
    double denominator = rest->mass + (1 - *keep);
    *keep = denominator > 0 ? rest->mass / denominator : 1; /* 0 / 0: p = q so far and here */
}

struct tree_result tree_traversal(const struct target_row *rows, const struct tree_guesses *guesses,
                                  const struct rng_address *at, double *scratch)
{
    struct traversal t = {.w = {rows, guesses, at}};
    int here = -1;
    for (int i = 0; i <= guesses->n; i++) {
        t.rests[i] = rest_begin(&rows[i], scratch);
        scratch += rows[i].n;
    }
    t.keep[0] = 1;
    t.deepest[0] = -1;
    for (;;) {
        int child = next_child(guesses, here, t.deepest[1 + here]);
        if (child >= 0) { /* down to a leaf */
            enter(&t, child);
            here = child;
        } else if (here < 0 || accept_coin(&t.w, here) < t.keep[1 + here]) {
            const struct rng_address end =
                coins_at(&t.w, here < 0 ? 0 : depth_of(guesses, here) + 1);
            return end_at(&t.w, here, rest_draw(&t.rests[1 + here], &end));
        } else {
            reject(&t, here);
            here = guesses->parents[here];
        }
    }
}

/* ---- child by child ---- */

/* The child of `parent` with this token; -1: none. */
static int child_with(const struct tree_guesses *g, int parent, int32_t id)
{
    int i = next_child(g, parent, parent);
    while (i >= 0 && g->tokens[i] != id) {
        i = next_child(g, parent, i);
    }
    return i;
}

struct tree_result tree_match(const struct target_row *rows, const struct tree_guesses *guesses,
                              const struct rng_address *at, double *scratch)
{
    const struct walk w = {rows, guesses, at};
    int here = -1, child;
    (void)scratch;
    while ((child = child_with(guesses, here, rows[1 + here].ids[0])) >= 0) {
        here = child;
    }
    assert(rows[1 + here].n == 1 && rows[1 + here].outside_mass == 0);
    return end_at(&w, here, rows[1 + here].ids[0]);
}

struct tree_result tree_naive(const struct target_row *rows, const struct tree_guesses *guesses,
                              const struct rng_address *at, double *scratch)
{
    const struct walk w = {rows, guesses, at};
    int here = -1, child;
    (void)scratch;
    for (int depth = 0;; depth++, here = child) {
        const struct rng_address coins = coins_at(&w, depth);
        int32_t next = target_row_draw(&rows[1 + here], &coins);
        child = child_with(guesses, here, next);
        if (child < 0) return end_at(&w, here, next);
    }
}

struct tree_result tree_typical(const struct target_row *rows, const struct tree_guesses *guesses,
                                const struct rng_address *at, double *scratch)
{
    const struct walk w = {rows, guesses, at};
    int here = -1;
    (void)scratch;
    for (int depth = 0;; depth++) {
        const struct rng_address coins = coins_at(&w, depth);
        const struct target_row *row = &rows[1 + here];
        int child = next_child(guesses, here, here);
        while (child >= 0 &&
               !keep_typical(row, guesses->q[child], guesses->tokens[child], &coins)) {
            child = next_child(guesses, here, child);
        }
        if (child < 0) return end_at(&w, here, target_row_draw(row, &coins));
        here = child;
    }
}
