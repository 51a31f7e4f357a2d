/* Measures the coordinator's cost of verifying a tree.
 *
 *   bench_tree_rules
 *
 * For some shapes of 16 nodes and supports of q it prints the median time in us that each of three
 * rules takes for a tree of 16 nodes, tokens drawn from q, rows of the union of the supports and a
 * token outside, as they come from a vocabulary of 32,000. Bar: 50 us (docs/results.md). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "speculation/accept/multi_draft.h"
#include "speculation/accept/rules.h"

enum { N_ROUNDS = 2001, N_NODES = 16, SUPPORT_MAX = 256, N_VOCAB = 32000 };

struct input {
    struct guess_tree tree;
    struct target_row rows[N_NODES + 1];
    struct sparse_dist q[N_NODES + 1]; /* after the root, then after each node */
    int32_t ids[N_NODES + 1][SUPPORT_MAX];
    float q_p[N_NODES + 1][SUPPORT_MAX], p[N_NODES + 1][SUPPORT_MAX];
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double uniform(uint64_t seed, int node, int i)
{
    const struct rng_address at = {.seed = seed, .position = (uint32_t)node};
    return rng_uniform(&at, RNG_WEIGHT, (uint32_t)i);
}

/* Zipf's law over a random order, q perturbed; a tenth of p lies outside. */
static void fill(struct input *in, int node, int support, uint64_t seed)
{
    float *p = in->p[node], *q = in->q_p[node];
    double sum_p = 0, sum_q = 0;
    for (int i = 0; i < support; i++) {
        in->ids[node][i] =
            i * (N_VOCAB / SUPPORT_MAX) + (int32_t)(100 * uniform(seed, node, 3 * i));
        double zipf = 1 / (1 + support * uniform(seed, node, 3 * i + 1));
        p[i] = (float)zipf;
        q[i] = (float)(zipf * exp(uniform(seed, node, 3 * i + 2) - 0.5));
        sum_p += (double)p[i];
        sum_q += (double)q[i];
    }
    for (int i = 0; i < support; i++) {
        p[i] = (float)(0.9 * (double)p[i] / sum_p);
        q[i] = (float)((double)q[i] / sum_q);
    }
    in->q[node] = (struct sparse_dist){support, in->ids[node], q};
    in->rows[node] = (struct target_row){
        .n = support, .ids = in->ids[node], .p = p, .outside_mass = 0.1, .outside_id = N_VOCAB - 1};
}

/* fan: children of each node, depth first as far as depth allows. */
static void grow(struct input *in, int node, int depth, const int *fan, uint64_t seed)
{
    int32_t gone[N_NODES];
    for (int k = 0; k < fan[depth] && in->tree.n < N_NODES; k++) {
        int child = in->tree.n++;
        in->tree.parents[child] = node;
        in->tree.q[child] = &in->q[node + 1];
        gone[k] = in->tree.tokens[child] =
            multi_draft_draw(&in->q[node + 1], gone, k, uniform(seed, 99, child));
        grow(in, child, depth + 1, fan, seed);
    }
}

static void measure(const char *name, const int *fan, int support, const struct rule *rule)
{
    static struct input in;
    static double scratch[(N_NODES + 1) * SUPPORT_MAX], us[N_ROUNDS];
    double n_accepted = 0;
    for (int i = 0; i < N_ROUNDS; i++) {
        uint64_t seed = (uint64_t)i + 1;
        const struct rng_address at = {seed, 100, 90};
        for (int node = 0; node <= N_NODES; node++) {
            fill(&in, node, support, seed);
        }
        in.tree.n = 0;
        grow(&in, -1, 0, fan, seed);
        int64_t start_ns = clock_now_ns();
        n_accepted += rule->accept_tree(&in.tree, in.rows, &at, scratch).n_accepted;
        us[i] = (double)(clock_now_ns() - start_ns) / 1000;
    }
    qsort(us, N_ROUNDS, sizeof *us, compare);
    printf(
        "%-22s support %3d %-10s %2d nodes, %.2f accepted: median %5.1f us, worst of 100 %5.1f\n",
        name, support, rule->name, in.tree.n, n_accepted / N_ROUNDS, us[N_ROUNDS / 2],
        us[N_ROUNDS - N_ROUNDS / 100]);
}

int main(void)
{
    static const int wide[17] = {4, 3, 0}, deep[17] = {2, 2, 1, 1, 1, 1, 0}, flat[17] = {16};
    static const int chain[17] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0};
    static const enum accept_rule rules[] = {RULE_REJECTION, RULE_BLOCK, RULE_TYPICAL};
    for (int support = 64; support <= SUPPORT_MAX; support *= 2) {
        for (int r = 0; r < 3; r++) {
            const struct rule *rule = &accept_rules[rules[r]];
            measure("4 x 3", wide, support, rule);
            measure("2 x 2, then chains", deep, support, rule);
            measure("16 leaves", flat, support, rule);
            measure("chain", chain, support, rule);
        }
    }
    return 0;
}
