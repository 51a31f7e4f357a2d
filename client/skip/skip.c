/* outrider skip: which layers of a model are worth most as its draft. Needs no server: it loads the
 * model, measures sets of its layers on a text, and prints the best ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/memory.h"
#include "base/system/file.h"
#include "base/system/topology.h"
#include "client/client.h"
#include "client/skip/measure.h"
#include "client/skip/search.h"
#include "model/backend/options.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/layers.h"
#include "model/logits/sampling.h"
#include "model/tokenizer/tokenizer.h"
#include "speculation/theory/speedup.h"

enum {
    FILE_BYTES_MAX = 64 << 20,
    TOKENS_MOST = 1 << 16,
    SECONDS_MOST = 1 << 20,
    BEST_MOST = 1000,
    LIST_BYTES = 1024
};

struct skipping {
    const char *model;
    const char **files; /* [n_files] */
    int n_files;
    struct backend_options backend;
    int n_seconds, n_tokens_most, k_max, n_best;
    float temperature, step_ms, rtt;
    bool is_json;
    struct token_ids text;
    int n_vocab;
    struct skip_measure *measure;
    struct skip_search search;
    int64_t end_ms;
};

static const char doc[] =
    "Searches for the layers of MODEL, a folder, GGUF file or synthetic:SHAPE,seed=S..., that are "
    "worth most as its own draft, and prints the sets that were found and the --draft to give to "
    "outrider-coordinator.\v"
    "The model is loaded here. Each set reads the text, and alpha is the mean of sum over x of "
    "min(p, q) over its positions: the chance that a guess is accepted. The time of a pass is "
    "measured for each number of layers. What is maximised is the speed-up that `outrider plan` "
    "prints, with the best number of guesses. The search tries all early exits, adds or leaves out "
    "one layer of the best set while that helps, and leaves out the layers of the whole one after "
    "the other. Give the threads that the draft will have.\n\n" CLIENT_STATUS_DOC;

/* ---- the command line ---- */

static int take_file(void *fields, const char *option, const char *text, struct error *err)
{
    struct skipping *s = fields;
    (void)option;
    (void)err;
    s->files[s->n_files++] = text;
    return 0;
}

static int take_model(void *fields, char *word, struct error *err)
{
    struct skipping *s = fields;
    return client_take_argument(&s->model, word, "model", err);
}

#define FIELD(member) OPTION_FIELD(struct skipping, member)

static const struct option_row rows[] = {
    OPTION_GROUP("Texts", "--text=questions.txt --tokens=4096"),
    {"text", 0, "FILE", .read = take_file,
     .help = "A text such as those that will be served; may be given several times"},
    {"tokens", 0, "N", FIELD(n_tokens_most), .least = 1, .most = TOKENS_MOST, .standard_int = 512,
     .help = "Read N tokens of the texts, of each alike"},
    OPTION_GROUP("Search", "--seconds=600 --k-max=8"),
    {"seconds", 0, "S", FIELD(n_seconds), .least = 1, .most = SECONDS_MOST, .standard_int = 120,
     .help = "End the search after S seconds"},
    {"temperature", 0, "T", FIELD(temperature), .most = (double)SAMPLING_TEMPERATURE_MAX,
     .standard_int = 1,
     .help = "Of the sampling; 0: greedy, alpha is how often both have the same best token"},
    {"k-max", 0, "K", FIELD(k_max), .least = 1, .most = DRAFT_MAX, .standard_int = 16,
     .help = "Most guesses of a round"},
    {"step-ms", 0, "MS", FIELD(step_ms), .least = 1e-3, .most = 1e6,
     .help = "Time of a step of one row of the target where it is served; default: measured here"},
    {"rtt", 0, "R", FIELD(rtt), .most = 1e3, .standard = "0",
     .help = "Time of wire and coordinator in a round, as a fraction of a step"},
    {"best", 0, "N", FIELD(n_best), .least = 1, .most = BEST_MOST, .standard_int = 10,
     .help = "Print the N best sets"},
    {"json", 0, NULL, FIELD(is_json), .help = "Print one JSON object"},
    {0},
};

static int check(const struct skipping *s, struct error *err)
{
    const struct sampling_params params = {.temperature = s->temperature, .top_p = 1};
    size_t len;
    if (!s->model) {
        return error_set(err, ERR_ARGUMENT, "MODEL is missing: outrider skip MODEL --text FILE");
    }
    if (layers_split(s->model, &len)) {
        return error_set(
            err, ERR_ARGUMENT,
            "%.200s names some layers; give the whole model, because skip chooses them", s->model);
    }
    if (s->n_files == 0) return error_set(err, ERR_ARGUMENT, "--text FILE is missing");
    return sampling_check(&params, err);
}

static int prepare(struct skipping *s, int argc, char **argv, struct error *err)
{
    const struct option_program program = {
        .variables = "OUTRIDER_SKIP_",
        .example = "outrider skip models/target --text story.txt",
        .args_doc = "MODEL",
        .doc = doc,
        .parts = {{rows, s, NULL}, {backend_rows, &s->backend, NULL}},
        .take = take_model};
    int rc = 0;
    TRY(mem_array(&s->files, (size_t)argc, sizeof *s->files, err));
    TRY(option_program_parse(&program, argc, argv, err));
    rc = check(s, err);
out:
    return rc;
}

/* ---- the text ---- */

static int open_tokenizer(struct skipping *s, struct tokenizer **tok, int n_vocab,
                          struct error *err)
{
    bool is_synthetic = strncmp(s->model, "synthetic:", 10) == 0;
    return is_synthetic ? tokenizer_open_bytes(tok, n_vocab, err)
                        : tokenizer_open(tok, s->model, err);
}

/* Appends at most n tokens of a file. */
static int add_file(struct skipping *s, const struct tokenizer *tok, const char *file, int n,
                    struct error *err)
{
    struct token_ids ids = {0};
    char *text = NULL;
    size_t len = 0;
    int rc = 0;
    TRY(file_read_text(&text, &len, file, FILE_BYTES_MAX, err));
    TRY(tokenizer_encode(tok, text, len, TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL, &ids,
                         err));
    size_t n_taken = ids.n < (size_t)n ? ids.n : (size_t)n;
    rc = token_ids_append(&s->text, ids.data, n_taken, err);
out:
    token_ids_free(&ids);
    free(text);
    return rc;
}

static int read_texts(struct skipping *s, struct error *err)
{
    struct checkpoint *ck = NULL;
    struct tokenizer *tok = NULL;
    int rc = 0, each = (s->n_tokens_most + s->n_files - 1) / s->n_files;
    TRY(checkpoint_open(&ck, s->model, err));
    int n_rows = checkpoint_config(ck)->vocab_size, n_layers = checkpoint_config(ck)->n_layers;
    if (n_layers < 2 || n_layers > SKIP_LAYERS_MAX) {
        rc = error_set(err, ERR_UNSUPPORTED, "%s has %d layers; skip chooses among 2 to %d",
                       s->model, n_layers, SKIP_LAYERS_MAX);
        goto out;
    }
    TRY(open_tokenizer(s, &tok, n_rows, err));
    s->n_vocab = tokenizer_vocab_size(tok) < n_rows ? tokenizer_vocab_size(tok) : n_rows;
    for (int i = 0; i < s->n_files; i++) {
        TRY(add_file(s, tok, s->files[i], each, err));
    }
out:
    tokenizer_close(tok);
    checkpoint_close(ck);
    return rc;
}

/* ---- the search ---- */

static double step_us(const struct skipping *s)
{
    return s->step_ms > 0 ? 1e3 * (double)s->step_ms : skip_measure_step_us(s->measure);
}

/* The best k of 1 .. k_max. A draft that makes no guess is none, so k is never 0. */
static void predict(const struct skipping *s, struct skip_candidate *candidate)
{
    const struct speedup_costs costs = {.alpha = candidate->alpha,
                                        .c = candidate->pass_us / step_us(s),
                                        .row = skip_measure_row_us(s->measure) /
                                               skip_measure_step_us(s->measure),
                                        .rtt = (double)s->rtt};
    candidate->k = 1;
    for (int k = 2; k <= s->k_max; k++) {
        if (speedup_in_rounds(&costs, k) > speedup_in_rounds(&costs, candidate->k)) {
            candidate->k = k;
        }
    }
    candidate->speed_up = speedup_in_rounds(&costs, candidate->k);
}

static int measure_candidate(void *skipping, struct skip_candidate *candidate, struct error *err)
{
    struct skipping *s = skipping;
    struct skip_set_cost cost;
    int layers[SKIP_LAYERS_MAX], n = skip_candidate_layers(candidate, layers);
    int rc = skip_measure_set(s->measure, layers, n, &cost, err);
    if (rc) return rc;
    candidate->alpha = cost.alpha;
    candidate->pass_us = cost.pass_us;
    predict(s, candidate);
    return 0;
}

static bool is_over(void *skipping)
{
    const struct skipping *s = skipping;
    return clock_now_ms() >= s->end_ms;
}

static int search(struct skipping *s, struct error *err)
{
    const struct skip_measure_options o = {.model = s->model,
                                           .backend = s->backend,
                                           .tokens = s->text.data,
                                           .n_tokens = (int)s->text.n,
                                           .n_vocab = s->n_vocab,
                                           .temperature = s->temperature};
    int rc = 0;
    TRY(skip_measure_open(&s->measure, &o, err));
    s->end_ms = clock_now_ms() + 1000 * (int64_t)s->n_seconds;
    s->search = (struct skip_search){.n_layers = skip_measure_layers(s->measure),
                                     .measure = measure_candidate,
                                     .is_over = is_over,
                                     .context = s};
    rc = skip_search_run(&s->search, err);
out:
    return rc;
}

/* ---- the result ---- */

static void list_of(const struct skip_candidate *candidate, char list[LIST_BYTES])
{
    int layers[SKIP_LAYERS_MAX], n = skip_candidate_layers(candidate, layers);
    layers_format(layers, n, list, LIST_BYTES);
}

static int n_shown(const struct skipping *s)
{
    return s->n_best < s->search.n_found ? s->n_best : s->search.n_found;
}

static int print_table(const struct skipping *s, struct error *err)
{
    char list[LIST_BYTES];
    printf("%d sets of %d layers, %zu tokens, temperature %g; a step takes %.2f ms and %.2f ms for "
           "each further row\n",
           s->search.n_found, s->search.n_layers, (size_t)s->text.n, (double)s->temperature,
           step_us(s) * 1e-3, skip_measure_row_us(s->measure) * 1e-3);
    printf("speed-up    K   alpha  pass ms  layers\n");
    for (int i = 0; i < n_shown(s); i++) {
        const struct skip_candidate *c = &s->search.found[i];
        list_of(c, list);
        printf("%8.3f  %3d  %6.3f  %7.3f  %s\n", c->speed_up, c->k, c->alpha, c->pass_us * 1e-3,
               list);
    }
    if (s->search.found[0].speed_up <= 1) {
        printf("no set is predicted to be faster than plain decoding; the best of them is\n");
    }
    list_of(&s->search.found[0], list);
    printf("--draft %s,layers=%s\n", s->model, list);
    return client_flush(err);
}

static int print_json(const struct skipping *s, struct error *err)
{
    char list[LIST_BYTES], draft[LIST_BYTES + 4096];
    json_t *sets = json_array();
    for (int i = 0; i < n_shown(s); i++) {
        const struct skip_candidate *c = &s->search.found[i];
        list_of(c, list);
        json_array_append_new(sets, json_pack("{ss sf si sf sf}", "layers", list, "speed_up",
                                              c->speed_up, "k", c->k, "alpha", c->alpha, "pass_ms",
                                              c->pass_us * 1e-3));
    }
    list_of(&s->search.found[0], list);
    snprintf(draft, sizeof draft, "%s,layers=%s", s->model, list);
    return client_print_json(json_pack("{ss sf sf si so}", "draft", draft, "step_ms",
                                       step_us(s) * 1e-3, "row_ms",
                                       skip_measure_row_us(s->measure) * 1e-3, "n_measured",
                                       s->search.n_found, "sets", sets),
                             err);
}

static int run(struct skipping *s, struct error *err)
{
    int rc = 0;
    if (s->backend.auto_threads) {
        static struct topology topology; /* large */
        topology_read(&topology);
        s->backend.n_threads = topology_cores(&topology);
    }
    TRY(read_texts(s, err));
    TRY(search(s, err));
    rc = s->is_json ? print_json(s, err) : print_table(s, err);
out:
    return rc;
}

int skip_main(int argc, char **argv)
{
    struct skipping s = {0};
    struct error err;
    int status = CLIENT_OK;
    if (prepare(&s, argc, argv, &err) || run(&s, &err)) status = client_fail_local(&err);
    skip_measure_close(s.measure);
    free(s.search.found);
    token_ids_free(&s.text);
    free(s.files);
    return status;
}
