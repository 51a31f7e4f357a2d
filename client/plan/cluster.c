/* Prints what a cluster is predicted to do (speculation/theory/cluster_model.h). */
#include "client/plan/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "client/plan/file.h"
#include "client/terminal.h"

static const double busy_note = 0.9; /* of a bound: "near its limit" */

static const char *const limit_names[] = {"groups", "coordinator", "cores", "wire"};

static void print_text(const char *text)
{
    const struct terminal terminal = terminal_of(stdout);
    terminal_text(&terminal, text, strlen(text));
}

/* ---- tables ---- */

static void print_throughput(const struct plan_file *file, const struct cluster_answer *answers)
{
    printf(
        "groups   T  clients  link, ms   K   tokens/s  speed-up  token, ms  first, ms  queue, s  "
        "limit\n");
    for (int i = 0; i < file->n_questions; i++) {
        const struct cluster_question *q = &file->questions[i];
        const struct cluster_answer *a = &answers[i];
        printf("%6d %3d%s %8d %9.2f %3d %10.5g %9.2f %10.3f %10.2f %9.3g  %s\n", q->n_groups,
               q->n_ranks, file->predicts_ranks[i] ? "*" : " ", q->n_clients, q->link_us / 1e3,
               a->k, a->tokens_per_second, a->speedup, a->token_us / 1e3, a->first_token_us / 1e3,
               a->queue_us / 1e6, limit_names[a->limit]);
    }
}

static void print_rounds(const struct plan_file *file, const struct cluster_answer *answers)
{
    printf("\nA round, us (coord.: of the coordinator; cycle: to the group's next one):\n");
    printf("groups   T   lanes tokens   draft  coord.    wire    link compute    sums   round   "
           "cycle\n");
    for (int i = 0; i < file->n_questions; i++) {
        const struct cluster_question *q = &file->questions[i];
        const struct cluster_answer *a = &answers[i];
        printf("%6d %3d%s %6.4g %6.2f %7.0f %7.0f %7.0f %7.0f %7.0f %7.0f %7.0f %7.0f\n",
               q->n_groups, q->n_ranks, file->predicts_ranks[i] ? "*" : " ", a->lanes,
               a->tokens_per_round, a->draft_us, a->coordinator_us, a->wire_us, a->link_us,
               a->compute_us, a->collective_us, a->round_us, a->cycle_us);
    }
}

/* A number that is not known, because nothing is shared or has a price, is a dash. */
static void print_known(int width, double number)
{
    if (number > 0) {
        printf(" %*.4g", width, number);
    } else {
        printf(" %*s", width, "-");
    }
}

static void print_coordinators(const struct plan_file *file, const struct cluster_answer *answers)
{
    printf("\nCoordinators (each: groups of one; engine, cores, wire: how busy; it saturates at so "
           "many\nrounds a second, with so many groups):\n");
    printf("groups   T  needed   each  engine  cores   wire     MB/s   rounds/s   groups  price of "
           "1M tokens\n");
    for (int i = 0; i < file->n_questions; i++) {
        const struct cluster_question *q = &file->questions[i];
        const struct cluster_answer *a = &answers[i];
        printf("%6d %3d%s %6d %6d %6.0f%% %5.0f%% %5.0f%% %8.3g", q->n_groups, q->n_ranks,
               file->predicts_ranks[i] ? "*" : " ", a->n_coordinators, a->groups_each,
               100 * a->engine_busy, 100 * a->cores_busy, 100 * a->wire_busy,
               a->bytes_per_second / 1e6);
        print_known(10, a->rounds_per_second_most);
        print_known(8, a->groups_saturating);
        print_known(18, a->price_per_million);
        fputc('\n', stdout);
    }
}

static bool is_near_limit(const struct cluster_answer *a)
{
    return a->limit != CLUSTER_LIMIT_GROUPS || a->engine_busy > busy_note ||
           a->cores_busy > busy_note || a->wire_busy > busy_note;
}

/* Ranks of a group wait for each other in every sum. Where they also wait for a core, that is not
 * in the model. */
static bool is_crowded(const struct cluster_costs *costs, const struct cluster_question *q)
{
    return costs->is_shared && costs->n_cores > 0 && q->n_ranks > 1 &&
           q->n_groups * q->n_ranks > costs->n_cores;
}

static void print_notes(const struct plan_file *file, const struct cluster_answer *answers)
{
    bool has_predicted = false, has_limit = false, has_crowd = false;
    for (int i = 0; i < file->n_questions; i++) {
        has_predicted = has_predicted || file->predicts_ranks[i];
        has_limit = has_limit || is_near_limit(&answers[i]);
        has_crowd = has_crowd || is_crowded(&file->costs, &file->questions[i]);
    }
    fputc('\n', stdout);
    if (has_predicted) {
        printf("* The step was measured with T = %d. Here its compute is divided among the ranks, "
               "and %d collective sums are added.\n",
               file->costs.n_ranks, file->costs.n_sums);
    }
    if (has_limit) {
        printf("Something that groups share is used by more than %.0f %% in some rows; there, "
               "rounds that are not regular wait for each other and reach less.\n",
               100 * busy_note);
    }
    if (has_crowd) {
        printf(
            "Some rows have more ranks than the %d cores of the host. Ranks of a group then wait "
            "for a core in the middle of a sum, which is not counted: these rows are upper "
            "bounds, and less will be measured.\n",
            file->costs.n_cores);
    }
    size_t i;
    json_t *line;
    json_array_foreach(file->assumptions, i, line)
    {
        printf("Assumed: ");
        print_text(json_string_value(line));
        fputc('\n', stdout);
    }
}

static int print_tables(const struct plan_file *file, const struct cluster_answer *answers,
                        struct error *err)
{
    if (file->name[0]) {
        print_text(file->name);
        printf("\n\n");
    }
    print_throughput(file, answers);
    print_rounds(file, answers);
    print_coordinators(file, answers);
    print_notes(file, answers);
    return client_flush(err);
}

/* ---- JSON ---- */

static json_t *question_json(const struct cluster_question *q)
{
    return json_pack("{si si si si si sf}", "groups", q->n_groups, "ranks", q->n_ranks, "clients",
                     q->n_clients, "tokens", q->n_tokens, "prompt_tokens", q->n_prompt, "link_us",
                     q->link_us);
}

static json_t *round_json(const struct cluster_answer *a)
{
    return json_pack("{sf sf sf sf sf sf sf sf sf sf}", "lanes", a->lanes, "tokens_per_lane",
                     a->tokens_per_round, "draft_us", a->draft_us, "coordinator_us",
                     a->coordinator_us, "wire_us", a->wire_us, "link_us", a->link_us, "compute_us",
                     a->compute_us, "collective_us", a->collective_us, "round_us", a->round_us,
                     "cycle_us", a->cycle_us);
}

static json_t *coordinators_json(const struct cluster_answer *a)
{
    return json_pack("{si si sf sf sf sf sf sf}", "needed", a->n_coordinators, "groups_each",
                     a->groups_each, "engine_busy_ratio", a->engine_busy, "cores_busy_ratio",
                     a->cores_busy, "wire_busy_ratio", a->wire_busy, "bytes_per_second",
                     a->bytes_per_second, "rounds_per_second_most", a->rounds_per_second_most,
                     "groups_saturating", a->groups_saturating);
}

static json_t *answer_json(const struct plan_file *file, int i, const struct cluster_answer *a)
{
    const struct cluster_question *q = &file->questions[i];
    return json_pack("{so si sf sf sf sf sf sf sf so so ss sb sb so}", "question", question_json(q),
                     "k", a->k, "tokens_per_second", a->tokens_per_second, "requests_per_second",
                     a->requests_per_second, "rounds_per_second", a->rounds_per_second, "speedup",
                     a->speedup, "inter_token_latency_seconds", a->token_us / 1e6,
                     "time_to_first_token_seconds", a->first_token_us / 1e6,
                     "request_queue_time_seconds", a->queue_us / 1e6, "round", round_json(a),
                     "coordinators", coordinators_json(a), "limit", limit_names[a->limit],
                     "step_is_scaled", file->predicts_ranks[i], "ranks_exceed_cores",
                     is_crowded(&file->costs, q), "price_per_million_tokens",
                     a->price_per_million > 0 ? json_real(a->price_per_million) : json_null());
}

static int print_object(const struct plan_file *file, const struct cluster_answer *answers,
                        struct error *err)
{
    json_t *list = json_array();
    for (int i = 0; i < file->n_questions; i++) {
        json_array_append_new(list, answer_json(file, i, &answers[i]));
    }
    return client_print_json(json_pack("{ss sO* so}", "name", file->name, "assumptions",
                                       file->assumptions, "answers", list),
                             err);
}

int plan_cluster(const char *path, bool is_json, struct error *err)
{
    static struct cluster_answer answers[PLAN_QUESTIONS_MAX];
    static struct plan_file file;
    int rc = plan_file_open(&file, path, err);
    if (rc) return rc;
    for (int i = 0; i < file.n_questions; i++) {
        answers[i] = cluster_predict(&file.costs, &file.questions[i], file.k_most);
    }
    rc = is_json ? print_object(&file, answers, err) : print_tables(&file, answers, err);
    plan_file_close(&file);
    return rc;
}
