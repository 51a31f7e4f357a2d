/* Rounds of many groups, from the times of their parts. */
#include "speculation/theory/cluster_model.h"

#include <math.h>
#include <stddef.h>

#include "speculation/theory/speedup.h"

enum { SETTLE_TIMES = 40 };
static const double million = 1e6, hour_s = 3600;

/* ---- times of the parts ---- */

double cluster_curve_at(const struct cluster_curve *curve, double at)
{
    int i = 0;
    if (curve->n == 0) return 0;
    if (curve->n == 1 || at <= curve->at[0]) return curve->us[0];
    while (i + 2 < curve->n && at > curve->at[i + 1]) {
        i++;
    }
    double slope = (curve->us[i + 1] - curve->us[i]) / (curve->at[i + 1] - curve->at[i]);
    return curve->us[i] + slope * (at - curve->at[i]);
}

static const struct cluster_sum *find_sum(const struct cluster_costs *costs, int n_ranks)
{
    for (int i = 0; i < costs->n_measured; i++) {
        if (costs->sums[i].n_ranks == n_ranks) return &costs->sums[i];
    }
    return NULL;
}

bool cluster_knows_ranks(const struct cluster_costs *costs, int n_ranks)
{
    bool is_measured = costs->n_sums == 0 && n_ranks == costs->n_ranks;
    return is_measured || n_ranks == 1 || find_sum(costs, n_ranks) || costs->hops.us > 0;
}

/* Recursive doubling: log2 T hops of all bytes, or, where that is less, an all-gather of the
 * T - 1 others' bytes after the same number of hops (comm/comm_nccl.c does either). */
static double hops_us(const struct cluster_costs *costs, int n_ranks, double rows)
{
    const struct cluster_hops *hops = &costs->hops;
    double n = ceil(log2(n_ranks)), bytes = rows * costs->sum_bytes;
    double near = hops->per_host > 0 && hops->per_host < n_ranks ? ceil(log2(hops->per_host)) : n;
    double times = fmin(n, n_ranks - 1);
    double copy_us =
        hops->bytes_per_second > 0 ? times * bytes / hops->bytes_per_second * million : 0;
    return near * hops->us + (n - near) * hops->host_us + copy_us;
}

double cluster_sum_us(const struct cluster_costs *costs, int n_ranks, double rows)
{
    const struct cluster_sum *sum = find_sum(costs, n_ranks);
    if (n_ranks == 1) return 0;
    if (sum) return sum->us + sum->row_us * (rows - 1);
    return hops_us(costs, n_ranks, rows);
}

/* The target's time with n_ranks ranks, as a share of the measured time. */
static double share_of_ranks(const struct cluster_costs *costs, int n_ranks)
{
    return costs->sharded_ratio * costs->n_ranks / n_ranks + 1 - costs->sharded_ratio;
}

/* ---- a round ---- */

/* A round of a group that has everything for itself. */
static void add_parts(const struct cluster_costs *costs, const struct cluster_question *q,
                      struct cluster_answer *a)
{
    double rows = a->lanes * (a->k + 1);
    a->draft_us = a->k * cluster_curve_at(&costs->guess, a->lanes);
    a->coordinator_us =
        costs->round_us + costs->lane_us * (a->lanes - 1) + costs->row_us * (rows - a->lanes);
    a->wire_us =
        costs->wire_us + costs->rank_us * (q->n_ranks - 1) + costs->wire_row_us * (rows - 1);
    a->link_us = 2 * q->link_us;
    a->compute_us = cluster_curve_at(&costs->step, rows) * share_of_ranks(costs, q->n_ranks);
    a->collective_us = costs->n_sums * cluster_sum_us(costs, q->n_ranks, rows);
    a->tokens_per_round = speedup_tokens_at(costs->alpha, a->k);
}

/* The work of a round on the cores that are counted. */
static double core_us(const struct cluster_costs *costs, const struct cluster_question *q,
                      const struct cluster_answer *a)
{
    double own = a->draft_us + a->coordinator_us + a->wire_us;
    return costs->is_shared ? own + q->n_ranks * (a->compute_us + a->collective_us) : own;
}

static double round_bytes(const struct cluster_costs *costs, const struct cluster_question *q,
                          const struct cluster_answer *a)
{
    return a->lanes * (a->k + 1) * costs->row_bytes * q->n_ranks;
}

/* How much longer a core's work takes while n others of the host are busy on average. */
static double slow(const struct cluster_costs *costs, double n_others)
{
    if (costs->n_cores < 2 || costs->slowdown <= 1) return 1;
    double n_most = costs->n_cores - 1;
    return 1 + (costs->slowdown - 1) * fmin(n_others, n_most) / n_most;
}

/* On a shared host, groups slow each other down. How many cores the others keep busy depends on
 * their rounds, so this settles by repetition. A group's own ranks were measured together. */
static void slow_down(const struct cluster_costs *costs, const struct cluster_question *q,
                      const struct cluster_answer *alone, double groups, struct cluster_answer *a)
{
    double others = (groups - 1) * core_us(costs, q, alone) / fmax(a->cycle_us, 1);
    double factor = slow(costs, others);
    a->draft_us = alone->draft_us * factor;
    a->coordinator_us = alone->coordinator_us * factor;
    a->wire_us = alone->wire_us * factor;
    a->compute_us = alone->compute_us * factor;
    a->collective_us = alone->collective_us * factor;
}

static void sum_round(struct cluster_answer *a)
{
    a->round_us = a->draft_us + a->coordinator_us + a->wire_us + a->link_us + a->compute_us +
                  a->collective_us;
}

/* Per round: the time that each of the bounds needs for it, over the groups that share it. */
struct bounds {
    double engine_us, cores_us, wire_us;
};

static struct bounds bounds_of(const struct cluster_costs *costs, const struct cluster_question *q,
                               const struct cluster_answer *a, double groups)
{
    double engine = a->draft_us + a->coordinator_us;
    double n_engines = costs->n_engines > 0 ? costs->n_engines : groups;
    double n_drafts = costs->n_drafts > 0 ? costs->n_drafts : groups;
    return (struct bounds){
        .engine_us = fmax(engine / n_engines, a->draft_us / n_drafts),
        .cores_us = costs->n_cores > 0 ? core_us(costs, q, a) / costs->n_cores : 0,
        .wire_us = costs->wire_bytes_per_second > 0
                       ? round_bytes(costs, q, a) / costs->wire_bytes_per_second * million
                       : 0,
    };
}

/* The cycle of a group among `groups` of its coordinator, all_groups of them on the same host. */
static void set_cycle(const struct cluster_costs *costs, const struct cluster_question *q,
                      double groups, double all_groups, struct cluster_answer *a)
{
    struct bounds b = bounds_of(costs, q, a, groups);
    double on_cores = costs->is_shared ? all_groups : groups;
    const double needs[] = {a->round_us, groups * b.engine_us, on_cores * b.cores_us,
                            groups * b.wire_us};
    a->limit = CLUSTER_LIMIT_GROUPS;
    for (int i = CLUSTER_LIMIT_ENGINE; i <= CLUSTER_LIMIT_WIRE; i++) {
        if (needs[i] > needs[a->limit]) a->limit = (enum cluster_limit)i;
    }
    a->cycle_us = needs[a->limit];
    a->engine_busy = needs[CLUSTER_LIMIT_ENGINE] / a->cycle_us;
    a->cores_busy = needs[CLUSTER_LIMIT_CORES] / a->cycle_us;
    a->wire_busy = needs[CLUSTER_LIMIT_WIRE] / a->cycle_us;
}

/* Rounds of n_coordinators coordinators that share the busy groups out among them. */
static void run_rounds(const struct cluster_costs *costs, const struct cluster_question *q,
                       double n_busy, int n_coordinators, struct cluster_answer *a)
{
    double groups = ceil(n_busy / n_coordinators);
    add_parts(costs, q, a);
    sum_round(a);
    a->n_coordinators = n_coordinators;
    a->groups_each = (int)groups;
    a->cycle_us = a->round_us;
    struct cluster_answer alone = *a;
    for (int i = 0; i < SETTLE_TIMES; i++) {
        if (costs->is_shared) slow_down(costs, q, &alone, n_busy, a);
        sum_round(a);
        set_cycle(costs, q, groups, n_busy, a);
    }
    a->bytes_per_second = groups * round_bytes(costs, q, a) / a->cycle_us * million;
    /* A coordinator alone, whatever its groups need: its engine or its link ends first. */
    struct bounds b = bounds_of(costs, q, a, HUGE_VAL);
    double least = fmax(b.engine_us, b.wire_us);
    if (!costs->is_shared) least = fmax(least, b.cores_us);
    a->rounds_per_second_most = least > 0 ? million / least : 0;
    a->groups_saturating = least > 0 ? a->round_us / least : 0;
}

/* The utilization of what a coordinator has for itself. */
static double busiest(const struct cluster_costs *costs, const struct cluster_answer *a)
{
    double own = fmax(a->engine_busy, a->wire_busy);
    return costs->is_shared ? own : fmax(own, a->cores_busy);
}

static void place_groups(const struct cluster_costs *costs, const struct cluster_question *q,
                         double n_busy, struct cluster_answer *a)
{
    int n = q->n_coordinators > 0 ? q->n_coordinators : 1;
    run_rounds(costs, q, n_busy, n, a);
    if (q->n_coordinators > 0) return; /* as asked, whether or not it can be */
    double fit = a->groups_saturating > 0 ? floor(a->groups_saturating) : n_busy;
    if (costs->n_groups_most > 0) fit = fmin(fit, costs->n_groups_most);
    for (double groups = fmin(fmax(fit, 1), n_busy); groups >= 1; groups--) {
        run_rounds(costs, q, n_busy, (int)ceil(n_busy / groups), a);
        if (busiest(costs, a) <= costs->busy_most) return;
    }
}

/* ---- texts ---- */

/* From rounds to whole texts: a prompt is read once while the group's other lanes wait. */
static void add_texts(const struct cluster_costs *costs, const struct cluster_question *q,
                      double n_busy, struct cluster_answer *a)
{
    double read = a->k > 0 ? costs->read_us : 0;
    double prompt = q->n_prompt * (costs->prompt_us * share_of_ranks(costs, q->n_ranks) + read);
    double rounds = fmax(q->n_tokens / a->tokens_per_round, 1);
    double text_us = rounds * a->cycle_us + a->lanes * prompt;
    double in_service = n_busy * a->lanes;
    a->requests_per_second = in_service / text_us * million;
    a->tokens_per_second = a->requests_per_second * q->n_tokens;
    a->rounds_per_second = n_busy * rounds / text_us * million;
    a->token_us = (a->cycle_us + a->lanes * prompt / rounds) / a->tokens_per_round;
    a->queue_us = fmax(q->n_clients - in_service, 0) / a->requests_per_second * million;
    double waits = a->lanes > 1 ? a->cycle_us / 2 : 0; /* for the end of the others' round */
    a->first_token_us = a->queue_us + waits + prompt + a->cycle_us - a->draft_us;
}

static void add_price(const struct cluster_costs *costs, const struct cluster_question *q,
                      struct cluster_answer *a)
{
    double ranks = (double)q->n_groups * q->n_ranks;
    double hour = ranks * costs->rank_price + a->n_coordinators * costs->coordinator_price;
    a->price_per_million = hour / (a->tokens_per_second * hour_s) * million;
}

static struct cluster_answer predict_at(const struct cluster_costs *costs,
                                        const struct cluster_question *q, int k)
{
    double n_busy = fmin(q->n_groups, q->n_clients);
    struct cluster_answer a = {.k = k, .lanes = fmin(q->n_clients / n_busy, costs->n_lanes_max)};
    place_groups(costs, q, n_busy, &a);
    add_texts(costs, q, n_busy, &a);
    add_price(costs, q, &a);
    return a;
}

struct cluster_answer cluster_predict(const struct cluster_costs *costs,
                                      const struct cluster_question *question, int k_max)
{
    const struct cluster_answer plain = predict_at(costs, question, 0);
    struct cluster_answer best = plain;
    if (question->k >= 0) best = predict_at(costs, question, question->k);
    for (int k = 1; k <= k_max && question->k < 0; k++) {
        const struct cluster_answer a = predict_at(costs, question, k);
        if (a.tokens_per_second > best.tokens_per_second) best = a;
    }
    best.speedup = best.tokens_per_second / plain.tokens_per_second;
    return best;
}
