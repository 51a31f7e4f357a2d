/* Measures the cost of a choice of the planner.
 *
 *   bench_planner
 *
 * For some numbers of lanes and chances of acceptance it prints the median time in us of
 * planner_share, and of all that a round tells the planner. The tables are those of a machine whose
 * step is flat to 256 rows, so that many guesses pay; "no guesses" are lanes that may not guess.
 * With siblings each guess may have three, of which the first is accepted in 2 of 5 cases; or
 * guesses may be made after these, too. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "speculation/planner/planner.h"

enum { N_ROUNDS = 2001, STEP_US = 20000 };

/* Forms of a lane's guesses. */
enum form { CHAINS, SIBLINGS, TREES };
static const char *const forms[] = {"chains", "siblings", "trees"};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[n / 2];
}

static double step_us(int rows)
{
    return STEP_US * ((rows > 256 ? rows / 256. : 1) + 0.0005 * rows);
}

/* Teaches guesses after the first sibling of guess n_accepted, which was accepted: the first guess
 * there is accepted in 1 of 2 cases, and the others are not tried. */
static void teach_grown(struct planner *p, struct planner_sequence *seq,
                        const struct planner_lane *lane, int n_accepted, int turn)
{
    const struct guess_tree *tree = &lane->tree;
    int n = 0, sibling = guess_tree_sibling(tree, tree->chain[n_accepted]);
    for (int i = 0; i < tree->n; i++) {
        n += tree->parents[i] == sibling;
    }
    if (n > 0) planner_observe_grown(p, seq, 0, n_accepted + 1, n, turn % 2 ? 0 : n);
}

static void teach(struct planner *p, struct planner_sequence *seqs,
                  const struct planner_lane *lanes, int n, double alpha, int turn)
{
    struct planner_round round = {.n_rows = n, .n_lanes = n, .is_timed = true};
    for (int i = 0; i < n; i++) {
        int k = lanes[i].tree.n_chain, n_accepted = 0;
        while (n_accepted < k && (i * 37 + turn * 101 + n_accepted * 53) % 100 < 100 * alpha) {
            n_accepted++;
        }
        planner_observe_lane(p, &seqs[i], 0, k, n_accepted);
        int n_siblings = n_accepted < k ? guess_tree_siblings(&lanes[i].tree, n_accepted) : 0;
        bool is_kept = n_siblings > 0 && (i * 41 + turn * 97) % 100 < 40;
        planner_observe_siblings(p, &seqs[i], 0, NULL, n_siblings, is_kept ? 0 : n_siblings);
        if (is_kept) teach_grown(p, &seqs[i], &lanes[i], n_accepted, turn);
        for (int j = 0; j < k; j++) {
            round.models[0].pass_lanes[j]++;
            round.n_rows += guess_tree_siblings(&lanes[i].tree, j);
        }
        round.n_rows += k + guess_tree_count(&lanes[i].tree, GUESS_GROWN);
        round.models[0].n_passes = k > round.models[0].n_passes ? k : round.models[0].n_passes;
    }
    round.models[0].first_pass_tokens = round.models[0].pass_lanes[0];
    for (int j = 0; j < round.models[0].n_passes; j++) {
        round.models[0].pass_us[j] = STEP_US / 20;
        round.models[0].draft_us += round.models[0].pass_us[j];
    }
    round.step_us = (int64_t)step_us(round.n_rows);
    round.round_us = round.step_us + round.models[0].draft_us + STEP_US / 10;
    planner_observe_round(p, &round);
}

static void measure(int n_lanes, int k_max, double alpha, enum form form)
{
    static struct planner p;
    static struct planner_sequence seqs[PLANNER_LANES_MAX];
    static struct planner_lane lanes[PLANNER_LANES_MAX];
    static double share_us[N_ROUNDS], teach_us[N_ROUNDS];
    const struct planner_load load = {.n_rows_max = PLANNER_ROWS_MAX};
    double guesses = 0, siblings = 0, grown = 0;
    p = (struct planner){0};
    for (int rows = 1; rows <= PLANNER_ROWS_MAX; rows *= 2) {
        planner_calibrate_step(&p, rows, step_us(rows));
        planner_calibrate_draft(&p, 0, rows, STEP_US / 20);
    }
    for (int i = 0; i < n_lanes; i++) {
        seqs[i] = (struct planner_sequence){.strategy = STRATEGY_PLANNED};
    }
    for (int turn = 0; turn < N_ROUNDS; turn++) {
        for (int i = 0; i < n_lanes; i++) {
            lanes[i] = (struct planner_lane){.seq = &seqs[i],
                                             .models[0].k_max = k_max,
                                             .models[0].n_missed = 1,
                                             .n_left = 1000,
                                             .siblings_max = form == CHAINS ? 0 : SIBLINGS_MAX,
                                             .nodes_max = TREE_PATHS_MAX - 1,
                                             .models[0].grows = form == TREES};
        }
        int64_t start_ns = clock_now_ns();
        planner_share(&p, lanes, n_lanes, &load);
        int64_t middle_ns = clock_now_ns();
        teach(&p, seqs, lanes, n_lanes, alpha, turn);
        teach_us[turn] = (double)(clock_now_ns() - middle_ns) / 1000;
        share_us[turn] = (double)(middle_ns - start_ns) / 1000;
        for (int i = 0; i < n_lanes; i++) {
            guesses += lanes[i].tree.n_chain;
            grown += guess_tree_count(&lanes[i].tree, GUESS_GROWN);
            for (int j = 0; j < lanes[i].tree.n_chain; j++) {
                siblings += guess_tree_siblings(&lanes[i].tree, j);
            }
        }
    }
    printf("%3d lanes, %-8s K at most %2d, alpha %.2f: mean K %5.2f, %5.2f siblings and %5.2f "
           "after them, share %6.1f us, teach %6.1f us\n",
           n_lanes, forms[form], k_max, alpha, guesses / N_ROUNDS / n_lanes,
           siblings / N_ROUNDS / n_lanes, grown / N_ROUNDS / n_lanes, median(share_us, N_ROUNDS),
           median(teach_us, N_ROUNDS));
}

int main(void)
{
    static const int counts[] = {1, 8, 16, 64, 256};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        measure(counts[i], 0, 0, CHAINS);
        measure(counts[i], DRAFT_MAX, 0, CHAINS);
        measure(counts[i], DRAFT_MAX, 0.5, CHAINS);
        measure(counts[i], DRAFT_MAX, 0.8, CHAINS);
        measure(counts[i], DRAFT_MAX, 0.97, CHAINS);
        for (int form = SIBLINGS; form <= TREES; form++) {
            measure(counts[i], DRAFT_MAX, 0.5, (enum form)form);
            measure(counts[i], DRAFT_MAX, 0.8, (enum form)form);
        }
    }
    return EXIT_SUCCESS;
}
