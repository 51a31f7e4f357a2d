/* Predicts a cluster of N groups of T ranks from what was measured on a smaller one: throughput,
 * latency, the best K, and how many groups a coordinator can serve. Pure functions; `outrider plan
 * --cluster` prints their results, and docs/scale.md names the assumptions.
 *
 * A group's round, in which each of its B lanes makes K guesses, is
 *
 *     K t_d(B)  +  coordinator  +  wire(T) + 2 link  +  t_c(B (K + 1)) / T  +  collectives(T)
 *     \_____ engine of the ____/   \_______________ away from the coordinator _______________/
 *            coordinator
 *
 * and commits B E(K) tokens (Leviathan et al. 2023, equation 1; without link, coordinator and
 * further rows the quotient is their Theorem 3.8). A coordinator's engine works for one group while
 * others are away, so that G groups make min(G / round, 1 / engine) rounds a second: the asymptotic
 * bounds of a closed network (Denning and Buzen 1978), which regular rounds reach. The cores of a
 * host and the bytes of a link are bounds of the same kind: the work of all rounds takes at least
 * its sum over the cores. */
#pragma once

#include <stdbool.h>

#include "base/limits.h"

enum {
    CLUSTER_POINTS_MAX = 48,
    CLUSTER_SUMS_MAX = 8,
    CLUSTER_GROUPS_MAX = 1000000,
    CLUSTER_CLIENTS_MAX = 100000000
};

/* A time by a number of rows or of lanes, in ascending order, interpolated. Beyond the last point
 * the last slope goes on; before the first the time is that of the first. */
struct cluster_curve {
    int n;
    double at[CLUSTER_POINTS_MAX], us[CLUSTER_POINTS_MAX];
};

/* One collective sum, as it was measured among so many ranks. */
struct cluster_sum {
    int n_ranks;
    double us, row_us; /* of one row; of each further one */
};

/* Collectives among ranks that were not measured: log2 T hops, and the bytes. */
struct cluster_hops {
    double us;               /* of a hop; 0 = not known */
    double bytes_per_second; /* of a rank; 0 = without limit */
    int per_host;            /* ranks on one host; 0 = all of them. Further hops are ... */
    double host_us;          /* ... between hosts */
};

struct cluster_costs {
    /* The draft and the target. */
    double alpha[DRAFT_MAX];    /* chance that a tested guess stays, by position */
    struct cluster_curve guess; /* a pass of the draft, by lanes */
    struct cluster_curve step;  /* compute of a step of n_ranks ranks, by rows */
    int n_ranks;                /* of the group whose step was measured */
    double sharded_ratio;       /* share of the compute that ranks divide among them */
    double prompt_us, read_us;  /* a token of a prompt in the target (of n_ranks), in the draft */

    int n_sums;       /* collectives of a step */
    double sum_bytes; /* of one row in one of them */
    int n_measured;
    struct cluster_sum sums[CLUSTER_SUMS_MAX];
    struct cluster_hops hops;

    /* The coordinator's own time in a round, how many rounds it can work on at once, and how many
     * of them can draft at once, such as on one GPU. 0 = one for each group. */
    double round_us, lane_us, row_us;
    int n_engines, n_drafts;
    int n_groups_most; /* of a coordinator; 0 = without limit */

    /* From sending a step to its last answer, without the step: calls, copies, threads that wake
     * up. With several ranks each further one adds rank_us. */
    double wire_us, rank_us, wire_row_us;
    double row_bytes;             /* both ways, of a row and a rank */
    double wire_bytes_per_second; /* of the coordinator's link; 0 = without limit */

    int n_lanes_max; /* of a group */

    /* Where everything runs on one host (is_shared), the cores are shared by all; otherwise they
     * are those of a coordinator's host, and ranks have cores of their own. */
    int n_cores; /* 0 = without limit */
    bool is_shared;
    double slowdown; /* time of a core's work when all cores work over when it works alone, >= 1 */

    double rank_price, coordinator_price; /* an hour of one; 0 = not known */
    double busy_most; /* a coordinator is given groups up to this utilization, 0..1 */
};

struct cluster_question {
    int n_groups, n_ranks;
    int n_clients; /* requests at once: when one ends, the next one comes */
    int n_tokens, n_prompt;
    int k;              /* -1 = the best */
    int n_coordinators; /* 0 = as many as are needed */
    double link_us;     /* one way between coordinator and ranks, in addition to the wire */
};

/* The resource that limits throughput. */
enum cluster_limit {
    CLUSTER_LIMIT_GROUPS, /* the groups' own rounds */
    CLUSTER_LIMIT_ENGINE,
    CLUSTER_LIMIT_CORES,
    CLUSTER_LIMIT_WIRE
};

struct cluster_answer {
    int k, n_coordinators, groups_each; /* of a coordinator, at most */
    double lanes, tokens_per_round;     /* of a group at once; of a lane */
    /* Parts of a round, and how long it takes until the group's next one. */
    double draft_us, coordinator_us, wire_us, link_us, compute_us, collective_us, round_us,
        cycle_us;
    double tokens_per_second, rounds_per_second, requests_per_second; /* of all groups */
    double token_us; /* between two tokens of one text, on average */
    double first_token_us;
    double queue_us;                                  /* waiting for a lane */
    double engine_busy, cores_busy, wire_busy;        /* of a coordinator, 0..1 */
    double bytes_per_second;                          /* of a coordinator */
    double rounds_per_second_most, groups_saturating; /* where a coordinator saturates */
    double speedup;                                   /* over K = 0 */
    double price_per_million;                         /* tokens; 0 = not known */
    enum cluster_limit limit;
};

double cluster_curve_at(const struct cluster_curve *curve, double at);

/* One collective sum among n_ranks ranks: as measured, else by hops. */
double cluster_sum_us(const struct cluster_costs *costs, int n_ranks, double rows);
/* True if the cost of a sum among so many ranks is known. Without n_sums, that of the measured
 * ranks is part of their step. */
bool cluster_knows_ranks(const struct cluster_costs *costs, int n_ranks);

/* The most K of `k` -1 is k_max. Everything of the question is at least 1, but n_prompt, link_us
 * and n_coordinators. */
struct cluster_answer cluster_predict(const struct cluster_costs *costs,
                                      const struct cluster_question *question, int k_max);
