/* outrider replay: what guesses that are found in texts, or those of a head, are worth on recorded
 * texts. Needs no server. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/system/topology.h"
#include "client/client.h"
#include "client/replay/head.h"
#include "client/replay/run.h"
#include "client/replay/times.h"
#include "model/backend/options.h"

enum { PROMPT_MOST = 1 << 24 };

struct replay {
    const char *model, *drafters, *head, *times_file;
    const char **files; /* [n_files] of argv */
    int n_files, n_prompt, n_draft;
    float step_us, row_us, rest_us;
    bool is_json;
    struct tokenizer *tok;
    struct recorded_texts texts;
    struct replay_drafter made[N_REPLAY_FINDERS];
    int n_made;
    struct replay_times times;
    struct replay_figures figures;
    struct backend_options backend; /* of the head */
    struct replay_head_figures head_figures;
};

static int take_file(void *fields, char *word, struct error *err)
{
    struct replay *command = fields;
    (void)err;
    command->files[command->n_files++] = word;
    return 0;
}

#define FIELD(member) OPTION_FIELD(struct replay, member)

static const struct option_row rows[] = {
    OPTION_GROUP("Texts and drafters", "--drafter=session,store"),
    {"drafter", 'd', "LIST", FIELD(drafters), .standard = "session",
     .help = "Which drafters, separated by commas: session, ngram, store, datastore=FILE, "
             "recycled. The planner chooses among them"},
    {"head", 0, "FOLDER", FIELD(head),
     .help = "Instead: a head that guesses token after token. The FILEs are those of "
             "`outrider record`"},
    {"draft-tokens", 'K', "K", FIELD(n_draft), .least = 1, .most = DRAFT_MAX, .standard = "4",
     .help = "Guesses of a head in a round"},
    {"model", 'm', "FOLDER", FIELD(model),
     .help =
         "Folder with a tokenizer.json, or GGUF file; not needed for lists of ids. With --head, "
         "the target"},
    {"prompt-tokens", 0, "N", FIELD(n_prompt), .most = PROMPT_MOST, .standard = "0",
     .help = "The first N tokens of a plain text are its prompt"},
    OPTION_GROUP("Times of a cluster", "--step-us=20000 --row-us=500"),
    {"times", 0, "FILE", FIELD(times_file),
     .help = "Times of a cluster: the file times-*.json in the coordinator's --pack-cache"},
    {"step-us", 0, "US", FIELD(step_us), .least = 1, .most = 1e9, .standard = "10000",
     .help = "Instead: a step of one row"},
    {"row-us", 0, "US", FIELD(row_us), .most = 1e9, .standard = "100",
     .help = "What each further row adds to a step"},
    {"rest-us", 0, "US", FIELD(rest_us), .most = 1e9, .standard = "0",
     .help = "What a round takes besides its step"},
    OPTION_GROUP("Output", "--json"),
    {"json", 0, NULL, FIELD(is_json), .help = "Print one JSON object"},
    {0},
};

static const char doc[] =
    "Goes through recorded texts in rounds as the coordinator would, with guesses that are found "
    "in texts, and prints how many stay, what finding them costs and what that is worth.\n"
    "A FILE whose name ends in .jsonl has an object a line with \"prompt\" and \"answer\", or "
    "\"prompt_ids\" and \"answer_ids\"; any other FILE is one text.\v"
    "session: what the prompt and the answer have said before. ngram: the first place where the "
    "last 3 or 2 tokens came before. store: the texts that were replayed before, in the order of "
    "the command line. datastore: the texts of a FILE of `outrider datastore build`. recycled: "
    "the tokens that came after the same token in the answers; a server finds more, because it "
    "also knows the target's second best tokens and what it says after guesses that were wrong. "
    "lookahead, which the coordinator has, too, cannot be replayed: it learns from what the target "
    "says after its own guesses, and a recorded text does not tell that.\n"
    "A head guesses from the features that `outrider record` has written beside a text, with a K "
    "of "
    "its own and with the reading of its ids of layers that the coordinator would take. A "
    "recording "
    "must have these features, and be the target's greedy text.\n"
    "The speed-up is predicted: rounds take the given times, and the drafters what they took "
    "here.\n\n" CLIENT_STATUS_DOC;

static int prepare(struct replay *r, int argc, char **argv, struct error *err)
{
    const struct option_program program = {
        .variables = "OUTRIDER_REPLAY_",
        .example = "outrider replay --drafter session,store recorded.jsonl",
        .args_doc = "FILE...",
        .doc = doc,
        .parts = {{rows, r, NULL}, {backend_rows, &r->backend, NULL}},
        .take = take_file};
    int rc = 0;
    TRY(mem_array(&r->files, (size_t)argc, sizeof *r->files, err));
    TRY(option_program_parse(&program, argc, argv, err));
    if (r->n_files == 0) {
        return error_set(err, ERR_ARGUMENT, "no text: give files of recorded texts");
    }
    if (r->head && !r->model) {
        return error_set(err, ERR_ARGUMENT,
                         "--model is missing: --head %s guesses for one target, whose folder it "
                         "names",
                         r->head);
    }
    TRY(replay_drafters_open(r->made, &r->n_made, r->drafters, err));
out:
    return rc;
}

/* ---- printing ---- */

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static double sum(const int64_t *values)
{
    int64_t all = 0;
    for (int i = 0; i < DRAFT_MAX; i++) {
        all += values[i];
    }
    return (double)all;
}

static double us_a_round(const struct replay *r, int i)
{
    return ratio((double)r->made[i].busy_ns / 1000, (double)r->figures.n_rounds);
}

static double bytes_a_token(const struct replay_drafter *d)
{
    return ratio((double)d->bytes, (double)d->n_tokens);
}

static void print_positions(const int64_t *tested, const int64_t *accepted)
{
    printf("  stays by position:");
    for (int k = 0; k < DRAFT_MAX && tested[k] > 0; k++) {
        printf(" %.2f", ratio((double)accepted[k], (double)tested[k]));
    }
    fputc('\n', stdout);
}

static void print_rounds(int64_t n_texts, int64_t n_tokens, int64_t n_rounds)
{
    printf("%lld texts, %lld tokens, %lld rounds: %.2f tokens a round\n", (long long)n_texts,
           (long long)n_tokens, (long long)n_rounds, ratio((double)n_tokens, (double)n_rounds));
}

static void print_drafter(const struct replay *r, int i)
{
    const struct replay_figures *f = &r->figures;
    printf("%s: found in %.1f %% of rounds, guessed in %.1f %%, %.2f accepted per such round\n",
           replay_names[r->made[i].finder],
           100 * ratio((double)f->n_offered[i], (double)f->n_rounds),
           100 * ratio((double)f->n_chosen[i], (double)f->n_rounds),
           ratio(sum(f->accepted[i]), (double)f->n_chosen[i]));
    print_positions(f->tested[i], f->accepted[i]);
    printf("  %.2f us a round, %.1f bytes a token\n", us_a_round(r, i), bytes_a_token(&r->made[i]));
}

static int print_text(const struct replay *r, struct error *err)
{
    const struct replay_figures *f = &r->figures;
    print_rounds(f->n_texts, f->n_tokens, f->n_rounds);
    for (int i = 0; i < r->n_made; i++) {
        print_drafter(r, i);
    }
    printf("predicted speed-up over plain: %.3f\n", ratio(f->plain_us, f->round_us));
    return client_flush(err);
}

static json_t *positions_json(const int64_t *tested, const int64_t *accepted)
{
    json_t *positions = json_array();
    for (int k = 0; k < DRAFT_MAX && tested[k] > 0; k++) {
        json_array_append_new(positions,
                              json_pack("[II]", (json_int_t)tested[k], (json_int_t)accepted[k]));
    }
    return positions;
}

static json_t *drafter_json(const struct replay *r, int i)
{
    const struct replay_figures *f = &r->figures;
    return json_pack("{ss sI sI so sf sf}", "drafter", replay_names[r->made[i].finder],
                     "rounds_found", (json_int_t)f->n_offered[i], "rounds_guessed",
                     (json_int_t)f->n_chosen[i], "tested_accepted",
                     positions_json(f->tested[i], f->accepted[i]), "us_per_round", us_a_round(r, i),
                     "bytes_per_token", bytes_a_token(&r->made[i]));
}

static json_t *rounds_json(int64_t n_texts, int64_t n_tokens, int64_t n_rounds, double speedup,
                           json_t *drafters)
{
    return json_pack("{sI sI sI sf sf so}", "texts", (json_int_t)n_texts, "tokens",
                     (json_int_t)n_tokens, "rounds", (json_int_t)n_rounds, "tokens_per_round",
                     ratio((double)n_tokens, (double)n_rounds), "speedup", speedup, "drafters",
                     drafters);
}

static int print_object(const struct replay *r, struct error *err)
{
    const struct replay_figures *f = &r->figures;
    json_t *list = json_array();
    for (int i = 0; i < r->n_made; i++) {
        json_array_append_new(list, drafter_json(r, i));
    }
    return client_print_json(
        rounds_json(f->n_texts, f->n_tokens, f->n_rounds, ratio(f->plain_us, f->round_us), list),
        err);
}

static int print_head(const struct replay *r, struct error *err)
{
    const struct replay_head_figures *f = &r->head_figures;
    double speedup = ratio(f->plain_us, f->round_us);
    double us = ratio(f->busy_us, (double)f->n_rounds);
    if (r->is_json) {
        json_t *head = json_pack("{ss sI so sf}", "drafter", "head", "rounds_guessed",
                                 (json_int_t)f->n_guessed, "tested_accepted",
                                 positions_json(f->tested, f->accepted), "us_per_round", us);
        json_t *list = json_pack("[o]", head);
        return client_print_json(rounds_json(f->n_texts, f->n_tokens, f->n_rounds, speedup, list),
                                 err);
    }
    print_rounds(f->n_texts, f->n_tokens, f->n_rounds);
    printf("head: guessed in %.1f %% of rounds, %.2f accepted per such round\n",
           100 * ratio((double)f->n_guessed, (double)f->n_rounds),
           ratio(sum(f->accepted), (double)f->n_guessed));
    print_positions(f->tested, f->accepted);
    printf("  %.2f us a round\npredicted speed-up over plain: %.3f\n", us, speedup);
    return client_flush(err);
}

/* Ids of another tokenizer would be other texts. */
static int check_tokenizers(const struct replay *r, struct error *err)
{
    for (int i = 0; i < r->n_made; i++) {
        const struct datastore *d = r->made[i].datastore;
        if (!d || datastore_tokenizer(d).fingerprint == tokenizer_fingerprint(r->tok)) continue;
        return error_set(err, ERR_FORMAT,
                         "the datastore of --drafter was made with another tokenizer than %s; "
                         "'outrider datastore build --model %s' makes one that fits",
                         r->model, r->model);
    }
    return 0;
}

static int run_head(struct replay *r, struct error *err)
{
    int rc = 0;
    if (r->backend.auto_threads) {
        static struct topology topology; /* large */
        topology_read(&topology);
        r->backend.n_threads = topology_cores(&topology);
    }
    const struct replay_head_options options = {.head = r->head,
                                                .target = r->model,
                                                .backend = r->backend,
                                                .n_draft = r->n_draft,
                                                .times = &r->times};
    TRY(replay_head_run(&options, r->files, r->n_files, &r->head_figures, err));
    TRY(print_head(r, err));
out:
    return rc;
}

static int run(struct replay *r, struct error *err)
{
    int rc = 0;
    replay_times_line(&r->times, (double)r->step_us, (double)r->row_us, (double)r->rest_us);
    if (r->times_file) TRY(replay_times_read(&r->times, r->times_file, err));
    if (r->head) return run_head(r, err);
    if (r->model) TRY(tokenizer_open(&r->tok, r->model, err));
    if (r->tok) TRY(check_tokenizers(r, err));
    for (int i = 0; i < r->n_files; i++) {
        TRY(recorded_texts_read(&r->texts, r->tok, r->files[i], r->n_prompt, err));
    }
    TRY(replay_run(&r->texts, r->made, r->n_made, &r->times, &r->figures, err));
    TRY(r->is_json ? print_object(r, err) : print_text(r, err));
out:
    return rc;
}

int replay_main(int argc, char **argv)
{
    struct replay r = {0};
    struct error err;
    int status = CLIENT_OK;
    if (prepare(&r, argc, argv, &err)) {
        status = client_fail_local(&err);
    } else if (run(&r, &err)) {
        status = client_fail(&err);
    }
    for (int i = 0; i < N_REPLAY_FINDERS; i++) {
        replay_drafter_close(&r.made[i]);
    }
    recorded_texts_free(&r.texts);
    tokenizer_close(r.tok);
    free(r.files);
    return status;
}
