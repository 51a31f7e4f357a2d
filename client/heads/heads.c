/* outrider heads: which head or draft is worth most for a target on this machine. Needs no server:
 * it loads the target, lets it write, and measures how often each candidate guesses what it writes,
 * and how long that takes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/system/topology.h"
#include "client/client.h"
#include "client/heads/candidate.h"
#include "model/backend/options.h"
#include "model/checkpoint/checkpoint.h"

enum { TOKENS_MOST = SAMPLE_PROMPTS * HEADS_PART_TOKENS, TOKENS_LEAST = 64 };

struct heads {
    const char *target;
    struct heads_candidate *candidates; /* [n], those that failed last */
    int n, n_measured;
    struct backend_options backend;
    int n_tokens, k_max;
    float rtt;
    bool is_json;
    struct heads_texts *texts;
};

static const char doc[] =
    "Ranks heads and draft models, folders or GGUF files, by the speed of --target with them that "
    "is predicted for this machine.\v"
    "The target is loaded here and writes short texts greedily. Each candidate guesses at them, a "
    "head with each reading of the features that its config.json may mean; the best reading is "
    "taken if it is better beyond chance, as a coordinator does. From the shares of guesses 1 to 5 "
    "that are the target's own token, the time of a pass and the times of steps follow the best "
    "number of guesses K and the tokens per second of one text at temperature 0. Give the threads "
    "that the target will have.\n\n" CLIENT_STATUS_DOC;

/* ---- the command line ---- */

static int take_name(void *fields, char *word, struct error *err)
{
    struct heads *h = fields;
    (void)err;
    h->candidates[h->n++].name = word;
    return 0;
}

#define FIELD(member) OPTION_FIELD(struct heads, member)

static const struct option_row rows[] = {
    OPTION_GROUP("Prediction", "--target=models/target --tokens=1024"),
    {"target", 0, "MODEL", FIELD(target), .help = "Folder or GGUF file of the target"},
    {"tokens", 0, "N", FIELD(n_tokens), .least = TOKENS_LEAST, .most = TOKENS_MOST,
     .standard_int = 512, .help = "The target writes N tokens, or fewer where its texts end"},
    {"k-max", 0, "K", FIELD(k_max), .least = 1, .most = DRAFT_MAX, .standard_int = 16,
     .help = "Most guesses of a round"},
    {"rtt", 0, "R", FIELD(rtt), .most = 1e3, .standard = "0",
     .help = "Time of wire and coordinator in a round, as a fraction of a step"},
    {"json", 0, NULL, FIELD(is_json), .help = "Print one JSON object"},
    {0},
};

static int prepare(struct heads *h, int argc, char **argv, struct error *err)
{
    const struct option_program program = {
        .variables = "OUTRIDER_HEADS_",
        .example = "outrider heads models/head models/draft --target models/target",
        .args_doc = "NAME...",
        .doc = doc,
        .parts = {{rows, h, NULL}, {backend_rows, &h->backend, NULL}},
        .take = take_name};
    int rc = 0;
    TRY(mem_array(&h->candidates, (size_t)argc, sizeof *h->candidates, err));
    TRY(option_program_parse(&program, argc, argv, err));
    if (!h->target) return error_set(err, ERR_ARGUMENT, "--target MODEL is missing");
    if (h->n == 0) {
        return error_set(err, ERR_ARGUMENT,
                         "NAME is missing: outrider heads NAME... --target MODEL ranks heads and "
                         "draft models");
    }
    if (h->backend.auto_threads) {
        static struct topology topology; /* large */
        topology_read(&topology);
        h->backend.n_threads = topology_cores(&topology);
    }
out:
    return rc;
}

/* ---- the result ---- */

/* The fastest first, and those that failed last. */
static int by_speed(const void *left, const void *right)
{
    const struct heads_candidate *a = left, *b = right;
    if (!a->failure.code != !b->failure.code) return a->failure.code ? 1 : -1;
    return (a->tokens_per_second < b->tokens_per_second) -
           (a->tokens_per_second > b->tokens_per_second);
}

static double plain_speed(const struct heads *h)
{
    return 1e6 / (heads_texts_step_us(h->texts, 1) * (1 + (double)h->rtt));
}

static void print_plain(const struct heads *h)
{
    printf("%8.1f  %5.2f    0  %-29s  %7s  %-12s  no guesses\n", plain_speed(h), 1.0, "", "",
           "plain");
}

/* Says what is not as it should be; "" = nothing. */
static const char *remark_of(const struct heads_candidate *c)
{
    enum head_verdict verdict = head_table_verdict(&c->table);
    if (strcmp(c->format, "draft") == 0) return "";
    return verdict == HEAD_WRONG  ? "; a head of another target: a coordinator does not use it"
           : verdict == HEAD_WEAK ? "; weak for a head"
                                  : "";
}

static void print_candidate(const struct heads_candidate *c)
{
    const struct head_trial *taken = &c->table.trials[c->table.chosen];
    char shares[64];
    int len = 0;
    for (int s = 0; s < HEAD_TABLE_GUESSES; s++) {
        len += snprintf(shares + len, sizeof shares - (size_t)len, "%s%.3f", s ? " " : "",
                        head_trial_agreement(&c->table, c->table.chosen, s));
    }
    printf("%8.1f  %5.2f  %3d  %s  %7.3f  %-12s  %s", c->tokens_per_second, c->ratio, c->k, shares,
           c->pass_us * 1e-3, c->format, c->name);
    if (strcmp(c->format, "draft") != 0) {
        printf(": %s", taken->reading.name);
        for (int i = 0; i < taken->reading.n; i++) {
            printf(" %d", taken->reading.boundaries[i]);
        }
        if (c->table.has_norm_choice) {
            printf(", norm_before_residual=%s", taken->keeps_normed ? "true" : "false");
        }
        if (c->table.chosen > 0) printf(", not what its config.json says");
    }
    printf("%s\n", remark_of(c));
}

static int print_table(const struct heads *h, struct error *err)
{
    bool has_plain = false;
    printf("%d tokens of %s; a step takes %.2f ms, with 4 guesses %.2f ms\n",
           heads_texts_tokens(h->texts), h->target, heads_texts_step_us(h->texts, 1) * 1e-3,
           heads_texts_step_us(h->texts, h->k_max < 4 ? h->k_max + 1 : 5) * 1e-3);
    printf("tokens/s  ratio    K  guess 1     2     3     4     5  pass ms  kind          name\n");
    for (int i = 0; i < h->n; i++) {
        const struct heads_candidate *c = &h->candidates[i];
        if (!has_plain && (c->failure.code || c->tokens_per_second < plain_speed(h))) {
            print_plain(h);
            has_plain = true;
        }
        if (c->failure.code) {
            printf("%s cannot be measured: %s\n", c->name, c->failure.text);
        } else {
            print_candidate(c);
        }
    }
    if (!has_plain) print_plain(h);
    return client_flush(err);
}

static json_t *shares_json(const struct heads_candidate *c, int trial)
{
    json_t *list = json_array();
    for (int s = 0; s < HEAD_TABLE_GUESSES; s++) {
        json_array_append_new(list, json_real(head_trial_agreement(&c->table, trial, s)));
    }
    return list;
}

static json_t *trials_json(const struct heads_candidate *c)
{
    json_t *list = json_array();
    for (int i = 0; i < c->table.n_trials; i++) {
        const struct head_trial *t = &c->table.trials[i];
        json_t *boundaries = json_array();
        for (int b = 0; b < t->reading.n; b++) {
            json_array_append_new(boundaries, json_integer(t->reading.boundaries[b]));
        }
        json_array_append_new(
            list, json_pack("{ss so sb so so si si sf sb}", "reading", t->reading.name,
                            "boundaries", boundaries, "norm_before_residual", t->keeps_normed,
                            "agreement", shares_json(c, i), "score",
                            client_json_number(isfinite(t->score) ? t->score : (double)NAN),
                            "better", t->n_better, "worse", t->n_worse, "chance", t->chance,
                            "is_taken", i == c->table.chosen));
    }
    return list;
}

static json_t *candidate_json(const struct heads_candidate *c)
{
    if (c->failure.code) return json_pack("{ss ss}", "name", c->name, "error", c->failure.text);
    return json_pack("{ss ss sf sf si sf sf sf si so}", "name", c->name, "kind", c->format,
                     "tokens_per_second", c->tokens_per_second, "ratio", c->ratio, "k", c->k,
                     "tokens_per_round", c->tokens, "pass_ms", c->pass_us * 1e-3, "row_ms",
                     c->row_us * 1e-3, "starts", c->table.n_starts, "readings", trials_json(c));
}

static int print_json(const struct heads *h, struct error *err)
{
    json_t *candidates = json_array(), *steps = json_array();
    for (int i = 0; i < h->n; i++) {
        json_array_append_new(candidates, candidate_json(&h->candidates[i]));
    }
    for (int n = 1; n <= h->k_max + 1; n++) {
        json_array_append_new(steps, json_real(heads_texts_step_us(h->texts, n) * 1e-3));
    }
    return client_print_json(json_pack("{ss si so sf so}", "target", h->target, "tokens",
                                       heads_texts_tokens(h->texts), "step_ms", steps,
                                       "plain_tokens_per_second", plain_speed(h), "candidates",
                                       candidates),
                             err);
}

static int run(struct heads *h, struct error *err)
{
    int rc = 0;
    TRY(heads_texts_open(&h->texts, h->target, &h->backend, h->n_tokens, h->k_max, err));
    for (int i = 0; i < h->n; i++) {
        struct heads_candidate *c = &h->candidates[i];
        heads_measure(c, h->texts, &h->backend);
        if (c->failure.code) continue;
        h->n_measured++;
        heads_predict(c, h->texts, h->k_max, (double)h->rtt);
    }
    qsort(h->candidates, (size_t)h->n, sizeof *h->candidates, by_speed);
    if (h->n_measured == 0) {
        *err = h->candidates[0].failure;
        return err->code;
    }
    rc = h->is_json ? print_json(h, err) : print_table(h, err);
out:
    return rc;
}

int heads_main(int argc, char **argv)
{
    struct heads h = {0};
    struct error err;
    int status = CLIENT_OK;
    if (prepare(&h, argc, argv, &err) || run(&h, &err)) status = client_fail_local(&err);
    heads_texts_close(h.texts);
    free(h.candidates);
    return status;
}
