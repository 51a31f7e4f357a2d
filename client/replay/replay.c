/* outrider replay: what guesses that are found in texts are worth, on recorded texts. Needs no
 * server. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/text/options.h"
#include "client/client.h"
#include "client/replay/run.h"
#include "client/replay/times.h"

enum {
    OPT_PROMPT_TOKENS = 256,
    OPT_TIMES,
    OPT_STEP,
    OPT_ROW,
    OPT_REST,
    OPT_JSON,
    PROMPT_MOST = 1 << 24
};

struct replay {
    const char *model, *drafters, *times_file;
    const char **files; /* [n_files] of argv */
    int n_files, n_prompt;
    float step_us, row_us, rest_us;
    bool is_json;
    struct tokenizer *tok;
    struct recorded_texts texts;
    struct replay_drafter made[N_REPLAY_FINDERS];
    int n_made;
    struct replay_times times;
    struct replay_figures figures;
    struct error *err;
};

static const struct argp_option options[] = {
    {"drafter", 'd', "LIST", 0,
     "Which drafters, separated by commas: session, ngram, store, datastore=FILE, recycled. The "
     "planner chooses among them; default session",
     0},
    {"model", 'm', "FOLDER", 0, "Folder with a tokenizer.json; not needed for lists of ids", 0},
    {"prompt-tokens", OPT_PROMPT_TOKENS, "N", 0,
     "The first N tokens of a plain text are its prompt; default 0", 0},
    {"times", OPT_TIMES, "FILE", 0,
     "Times of a cluster: the file times-*.json in the coordinator's --pack-cache", 0},
    {"step-us", OPT_STEP, "US", 0, "Instead: a step of one row; default 10000", 0},
    {"row-us", OPT_ROW, "US", 0, "What each further row adds to a step; default 100", 0},
    {"rest-us", OPT_REST, "US", 0, "What a round takes besides its step; default 0", 0},
    {"json", OPT_JSON, NULL, 0, "Print one JSON object", 0},
    {0},
};

static const char doc[] =
    "Goes through recorded texts in rounds as the coordinator would, with guesses that are found "
    "in texts, and prints how many stay, what finding them costs and what that is worth.\n"
    "A FILE whose name ends in .jsonl has an object a line with \"prompt\" and \"answer\", or "
    "\"prompt_ids\" and \"answer_ids\"; any other FILE is one text.\v"
    "session: what the prompt and the answer have said before. ngram: the first place where the "
    "last 3 or 2 tokens stood before. store: the texts that were replayed before, in the order of "
    "the command line. datastore: the texts of a FILE of `outrider datastore build`. recycled: "
    "what "
    "stood behind the same token in the answers; a server finds more, because it also knows the "
    "target's second best tokens and what it says behind guesses that were wrong. lookahead, which "
    "the coordinator has, too, cannot be replayed: it learns from what the target says behind its "
    "own guesses, and a recorded text does not tell that.\n"
    "The speed-up is predicted: rounds take the given times, and the drafters what they took "
    "here.\n\n" CLIENT_STATUS_DOC;

static error_t read_us(const struct replay *r, float *out, const char *option, const char *text,
                       float least)
{
    return client_parser_result(options_float(out, option, text, least, 1e9f, r->err));
}

static error_t parse_times(int key, char *arg, struct replay *r)
{
    switch (key) {
    case OPT_TIMES:
        r->times_file = arg;
        return 0;
    case OPT_STEP:
        return read_us(r, &r->step_us, "--step-us", arg, 1);
    case OPT_ROW:
        return read_us(r, &r->row_us, "--row-us", arg, 0);
    case OPT_REST:
        return read_us(r, &r->rest_us, "--rest-us", arg, 0);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct replay *r = state->input;
    switch (key) {
    case 'd':
        r->drafters = arg;
        return 0;
    case 'm':
        r->model = arg;
        return 0;
    case OPT_PROMPT_TOKENS:
        return client_parser_result(
            options_int(&r->n_prompt, "--prompt-tokens", arg, 0, PROMPT_MOST, r->err));
    case OPT_JSON:
        r->is_json = true;
        return 0;
    case ARGP_KEY_ARG:
        r->files[r->n_files++] = arg;
        return 0;
    default:
        return parse_times(key, arg, r);
    }
}

static int prepare(struct replay *r, int argc, char **argv, struct error *err)
{
    const struct argp argp = {
        .options = options, .parser = parse_option, .args_doc = "FILE...", .doc = doc};
    int rc = 0;
    r->err = err;
    TRY(mem_array(&r->files, (size_t)argc, sizeof *r->files, err));
    TRY(client_parse(&argp, argc, argv, r, err));
    if (r->n_files == 0) {
        return error_set(err, ERR_ARGUMENT, "no text: give files of recorded texts");
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

static void print_positions(const struct replay_figures *f, int i)
{
    printf("  stays by position:");
    for (int k = 0; k < DRAFT_MAX && f->tested[i][k] > 0; k++) {
        printf(" %.2f", ratio((double)f->accepted[i][k], (double)f->tested[i][k]));
    }
    fputc('\n', stdout);
}

static void print_drafter(const struct replay *r, int i)
{
    const struct replay_figures *f = &r->figures;
    printf("%s: found in %.1f %% of rounds, guessed in %.1f %%, %.2f accepted per such round\n",
           replay_names[r->made[i].finder],
           100 * ratio((double)f->n_offered[i], (double)f->n_rounds),
           100 * ratio((double)f->n_chosen[i], (double)f->n_rounds),
           ratio(sum(f->accepted[i]), (double)f->n_chosen[i]));
    print_positions(f, i);
    printf("  %.2f us a round, %.1f bytes a token\n", us_a_round(r, i), bytes_a_token(&r->made[i]));
}

static int print_text(const struct replay *r, struct error *err)
{
    const struct replay_figures *f = &r->figures;
    printf("%lld texts, %lld tokens, %lld rounds: %.2f tokens a round\n", (long long)f->n_texts,
           (long long)f->n_tokens, (long long)f->n_rounds,
           ratio((double)f->n_tokens, (double)f->n_rounds));
    for (int i = 0; i < r->n_made; i++) {
        print_drafter(r, i);
    }
    printf("predicted speed-up over plain: %.3f\n", ratio(f->plain_us, f->round_us));
    return client_flush(err);
}

static json_t *drafter_json(const struct replay *r, int i)
{
    const struct replay_figures *f = &r->figures;
    json_t *positions = json_array();
    for (int k = 0; k < DRAFT_MAX && f->tested[i][k] > 0; k++) {
        json_array_append_new(positions, json_pack("[II]", (json_int_t)f->tested[i][k],
                                                   (json_int_t)f->accepted[i][k]));
    }
    return json_pack("{ss sI sI so sf sf}", "drafter", replay_names[r->made[i].finder],
                     "rounds_found", (json_int_t)f->n_offered[i], "rounds_guessed",
                     (json_int_t)f->n_chosen[i], "tested_accepted", positions, "us_per_round",
                     us_a_round(r, i), "bytes_per_token", bytes_a_token(&r->made[i]));
}

static int print_object(const struct replay *r, struct error *err)
{
    const struct replay_figures *f = &r->figures;
    json_t *list = json_array();
    for (int i = 0; i < r->n_made; i++) {
        json_array_append_new(list, drafter_json(r, i));
    }
    json_t *object = json_pack("{sI sI sI sf sf so}", "texts", (json_int_t)f->n_texts, "tokens",
                               (json_int_t)f->n_tokens, "rounds", (json_int_t)f->n_rounds,
                               "tokens_per_round", ratio((double)f->n_tokens, (double)f->n_rounds),
                               "speedup", ratio(f->plain_us, f->round_us), "drafters", list);
    return client_print_json(object, err);
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

static int run(struct replay *r, struct error *err)
{
    int rc = 0;
    replay_times_line(&r->times, (double)r->step_us, (double)r->row_us, (double)r->rest_us);
    if (r->times_file) TRY(replay_times_read(&r->times, r->times_file, err));
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
    struct replay r = {.drafters = "session", .step_us = 10000, .row_us = 100};
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
