/* outrider plan: what speculation is worth for given costs, and what a cluster would do. Needs no
 * server but with --measure. */
#include <stdio.h>

#include "client/client.h"
#include "client/plan/cluster.h"
#include "client/server.h"
#include "speculation/theory/speedup.h"

enum { K_MAX_MOST = 64 };

struct planning {
    float alpha, c, c_ops, row, rtt; /* -1 = not given */
    int k_max;
    bool is_json;
    const char *cluster, *cluster_out; /* files; NULL: none */
    struct connection connection;      /* its address: of --measure, NULL = none */
    struct server server;
    int n_rounds; /* measured by that coordinator */
};

#define FIELD(member) OPTION_FIELD(struct planning, member)

static const struct option_row option_rows[] = {
    OPTION_GROUP("Times and chances", "--alpha=0.8 --c=0.1"),
    {"alpha", 'a', "A", FIELD(alpha), .most = 1, .help = "Chance that a guess is accepted, 0 to 1"},
    {"c", 'c', "C", FIELD(c), .most = 1000,
     .help = "Time of a guess over time of a target step, such as 0.1"},
    {"ops", 0, "C", FIELD(c_ops), .most = 1000,
     .help = "Operations of a guess over those of a target step; default --c"},
    {"row", 0, "R", FIELD(row), .most = 1000,
     .help = "Time that each guess adds to a step, as a fraction of a step; default 0"},
    {"rtt", 0, "R", FIELD(rtt), .most = 1e6,
     .help = "Time of wire and coordinator in a round, as a fraction of a step; default 0"},
    {"k-max", 0, "K", FIELD(k_max), .least = 1, .most = K_MAX_MOST, .standard_int = 12,
     .help = "Most guesses of a round"},
    OPTION_GROUP("Measured clusters", "--measure=10.0.0.1:7070"),
    {"measure", 0, "ADDRESS", FIELD(connection.address),
     .help = "Take what is not given from the coordinator at ADDRESS, as it has measured it"},
    {"cluster", 0, "FILE", FIELD(cluster),
     .help = "Instead: throughput, latency and price of the clusters that FILE asks about, "
             "from what it says was measured (docs/scale.md)"},
    {"cluster-out", 0, "FILE", FIELD(cluster_out),
     .help = "With --measure: write what that coordinator has measured as a FILE of "
             "--cluster, and print nothing"},
    OPTION_GROUP("Output", "--json"),
    {"json", 0, NULL, FIELD(is_json), .help = "Print one JSON object"},
    {0},
};

static const char doc[] =
    "Prints, for each number of guesses K: the tokens of a round, the speed-up over plain decoding "
    "and the factor of operations, as Leviathan et al. 2023 compute them (equation 1, Theorems 3.8 "
    "and 3.11), and the speed-up with the cost of rows and round trips.\v"
    "alpha and the times are in the summary of `outrider generate`; --measure takes them from a "
    "running cluster, over all that it has generated.\n\n" CLIENT_STATUS_DOC;

/* Everything is in the file then. */
static int check_cluster(const struct planning *p, struct error *err)
{
    bool has_more = p->alpha >= 0 || p->c >= 0 || p->c_ops >= 0 || p->row >= 0 || p->rtt >= 0 ||
                    p->connection.address || p->cluster_out;
    if (!has_more) return 0;
    return error_set(err, ERR_ARGUMENT,
                     "--cluster takes all costs from its file: of the other options, only --json "
                     "goes with it");
}

static int prepare(struct planning *p, int argc, char **argv, struct error *err)
{
    const struct option_program program = {
        .variables = "OUTRIDER_PLAN_",
        .example = "outrider plan --alpha 0.7 --c 0.1 --rtt 0.2",
        .doc = doc,
        .parts = {{option_rows, p, NULL}, {connection_rows, &p->connection, NULL}}};
    int rc = 0;
    *p = (struct planning){.alpha = -1, .c = -1, .c_ops = -1, .row = -1, .rtt = -1};
    TRY(option_program_parse(&program, argc, argv, err));
    if (p->cluster) return check_cluster(p, err);
    if (p->cluster_out && !p->connection.address) {
        return error_set(err, ERR_ARGUMENT, "--cluster-out needs --measure ADDRESS");
    }
    if (p->connection.address) return connection_open(&p->connection, err);
    if (p->alpha < 0) {
        return error_set(err, ERR_ARGUMENT, "--alpha is missing (or --measure ADDRESS)");
    }
    if (p->c < 0) return error_set(err, ERR_ARGUMENT, "--c is missing (or --measure ADDRESS)");
out:
    return rc;
}

static void fill_if_missing(float *slot, float value)
{
    if (*slot < 0) *slot = value;
}

static int write_measured(struct planning *p, struct error *err)
{
    struct service_description desc;
    int rc = 0;
    TRY(server_open(&p->server, &p->connection, 0, err));
    TRY(server_describe(&p->server, &desc, err));
    rc = plan_cluster_write(p->cluster_out, &desc, err);
out:
    return rc;
}

/* Fills what was not given with what the cluster has measured. */
static int fill_measured(struct planning *p, struct error *err)
{
    struct service_description desc;
    const struct estimates *e = &desc.estimates;
    int rc = 0;
    TRY(server_open(&p->server, &p->connection, 0, err));
    TRY(server_describe(&p->server, &desc, err));
    if (!desc.draft_model[0]) {
        return error_set(err, ERR_NOT_FOUND,
                         "%.160s has no draft model, so it has nothing to measure: start "
                         "outrider-coordinator with --draft MODEL",
                         p->connection.address);
    }
    bool has_guesses = e->draft_us > 0 && e->n_positions > 0;
    if (!(e->step_us > 0) || (!has_guesses && (p->alpha < 0 || p->c < 0))) {
        return error_set(err, ERR_NOT_FOUND,
                         "%.160s has not measured %s yet: run `outrider generate -n 100 "
                         "--strategy planned` on it first",
                         p->connection.address, e->step_us > 0 ? "a guess" : "a round");
    }
    fill_if_missing(&p->alpha, e->alpha);
    fill_if_missing(&p->c, e->draft_us / e->step_us);
    fill_if_missing(&p->row, e->row_us / e->step_us);
    fill_if_missing(&p->rtt, e->rtt_us / e->step_us);
    p->n_rounds = e->n_rounds;
out:
    return rc;
}

/* Fills what came neither from an option nor from the cluster. */
static void fill_defaults(struct planning *p)
{
    fill_if_missing(&p->c_ops, p->c);
    fill_if_missing(&p->row, 0);
    fill_if_missing(&p->rtt, 0);
}

static void print_table(const struct planning *p, const struct speedup_costs *costs, int best)
{
    if (p->connection.address) {
        printf("alpha %.3f, c %.3f, row %.3f, rtt %.3f; measured in %d rounds of %s\n\n",
               (double)p->alpha, (double)p->c, (double)p->row, (double)p->rtt, p->n_rounds,
               p->connection.address);
    }
    printf("  K   tokens  speed-up  operations  with rows and rtt\n");
    for (int k = 0; k <= p->k_max; k++) {
        printf("%3d   %6.3f  %8.3f  %10.3f  %17.3f%s\n", k, speedup_tokens(costs->alpha, k),
               speedup_ideal(costs, k), speedup_operations(costs, k), speedup_in_rounds(costs, k),
               k == best ? "  best" : "");
    }
}

static int print_object(const struct planning *p, const struct speedup_costs *costs, int best,
                        struct error *err)
{
    json_t *rows = json_array();
    for (int k = 0; k <= p->k_max; k++) {
        json_array_append_new(rows, json_pack("{si sf sf sf sf}", "k", k, "tokens",
                                              speedup_tokens(costs->alpha, k), "speedup",
                                              speedup_ideal(costs, k), "operations",
                                              speedup_operations(costs, k), "speedup_in_rounds",
                                              speedup_in_rounds(costs, k)));
    }
    return client_print_json(json_pack("{si so sf sf sf sf sf si}", "best_k", best, "rows", rows,
                                       "alpha", costs->alpha, "c", costs->c, "ops", costs->c_ops,
                                       "row", costs->row, "rtt", costs->rtt, "rounds_measured",
                                       p->n_rounds),
                             err);
}

static int run(struct planning *p, struct error *err)
{
    int rc = 0;
    if (p->cluster) return plan_cluster(p->cluster, p->is_json, err);
    if (p->cluster_out) return write_measured(p, err);
    if (p->connection.address) TRY(fill_measured(p, err));
    fill_defaults(p);
    const struct speedup_costs costs = {.alpha = (double)p->alpha,
                                        .c = (double)p->c,
                                        .c_ops = (double)p->c_ops,
                                        .row = (double)p->row,
                                        .rtt = (double)p->rtt};
    int best = speedup_best_k(&costs, p->k_max);
    if (p->is_json) return print_object(p, &costs, best, err);
    print_table(p, &costs, best);
    rc = client_flush(err);
out:
    return rc;
}

int plan_main(int argc, char **argv)
{
    struct planning p;
    struct error err = {0};
    int status = CLIENT_OK;
    if (prepare(&p, argc, argv, &err)) {
        status = client_fail_local(&err);
    } else if (run(&p, &err)) {
        server_explain(&p.server, &err);
        status = client_fail(&err);
    }
    server_close(&p.server);
    connection_close(&p.connection);
    return status;
}
