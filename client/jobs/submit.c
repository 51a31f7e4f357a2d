/* outrider jobs submit: a file of requests in, a JSON line for each as it ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/system/file.h"
#include "client/input.h"
#include "client/jobs/jobs.h"
#include "client/jobs/run.h"
#include "client/terminal.h"

enum {
    CONCURRENCY_MAX = 1000, /* one connection carries 1024 calls */
    RETRY_MAX_S = 86400,
    FILE_BYTES_MAX = 1 << 30,
    SHOW_US = 200000,
    RUN_BYTES = 64
};

struct submit {
    struct connection connection;
    const char *file;
    bool is_strict, is_quiet;
    struct jobs_run run;
    struct input input; /* of the standard input */
    char *text;         /* of a file */
    struct jobs_line *lines;
    struct server server;
    bool has_progress; /* standard error is a terminal */
    int64_t begin_us, shown_us;
    int n_done, n_failed;
};

static int read_run(void *field, const char *option, const char *text, struct error *err)
{
    struct jobs_run *run = field;
    size_t len = strlen(text);
    if (!len || len >= RUN_BYTES) {
        return error_set(err, ERR_ARGUMENT, "%s: the name has %zu bytes, must have 1 to %d", option,
                         len, RUN_BYTES - 1);
    }
    run->run = text;
    return 0;
}

static int take_word(void *fields, char *word, struct error *err)
{
    struct submit *command = fields;
    return client_take_argument(&command->file, word, "file", err);
}

#define FIELD(member) OPTION_FIELD(struct submit, member)

static const struct option_row rows[] = {
    OPTION_GROUP("Jobs", "--concurrency=64 --run=monday"),
    {"concurrency", 'c', "N", FIELD(run.concurrency), .least = 1, .most = CONCURRENCY_MAX,
     .standard_int = 16, .help = "Jobs that wait or run at a time"},
    {"strict", 0, NULL, FIELD(is_strict),
     .help = "Submit nothing when a line is bad; default: say so, and go on with the others"},
    {"run", 0, "NAME", OPTION_READ(struct submit, run, read_run), .standard = "file",
     .help = "Begins the keys of lines without one of their own; another name computes them "
             "anew"},
    {"retry", 0, "SECONDS", FIELD(run.retry_s), .least = 1, .most = RETRY_MAX_S, .standard_int = 60,
     .help = "Give up when no coordinator, or none with a target group, could be reached for "
             "that long"},
    {"quiet", 'q', NULL, FIELD(is_quiet), .help = "No progress line on a terminal"},
    OPTION_GROUP("Connection", "--address=10.0.0.1:7070"),
    CLIENT_ADDRESS_ROW(struct submit),
    {0},
};

static const char doc[] =
    "Runs the requests of FILE, one JSON object per line, and prints a JSON object for each as it "
    "ends.\n"
    "FILE may be - for the standard input.\v"
    "A line has \"prompt\" or \"prompt_ids\", and may have: max_tokens, min_tokens, n, logprobs, "
    "echo, ignore_eos, add_special_tokens, parse_special, skip_special_tokens, stop, "
    "stop_token_ids, temperature, top_k, top_p, min_p, seed, "
    "repetition_penalty, presence_penalty, frequency_penalty, logit_bias, bad_words, draft_tokens, "
    "prediction, strategy, threshold, rule, priority, timeout_ms, user, request_id, custom_id, "
    "key.\n\n"
    "A job is submitted under its line's \"key\", or under one made of --run, the number of the "
    "line and its text. When the connection breaks, the command goes on by itself; when it was "
    "ended, the same command takes up the answers of the jobs that it had submitted, which go on "
    "without it. A job that ended because the service could not serve it is submitted again.\n\n"
    "Exit status 1 also when a line was bad or a job did not end well.\n\n" CLIENT_STATUS_DOC;

static int check_lines(const struct submit *s, struct error *err)
{
    int rc = 0;
    for (int i = 0; i < s->run.n_lines && !rc; i++) {
        struct jobs_entry entry;
        rc = jobs_entry_read(&entry, &s->lines[i], s->run.run, err);
        if (!rc) jobs_entry_free(&entry);
    }
    if (rc) error_wrap(err, "%.120s", s->file);
    return rc;
}

static int read_file(struct submit *s, struct error *err)
{
    int rc = 0;
    const char *text;
    size_t len;
    if (strcmp(s->file, "-") == 0) {
        TRY(input_open(&s->input, "-", NULL, "file", err));
        text = s->input.text;
        len = s->input.len;
    } else {
        TRY(file_read_text(&s->text, &len, s->file, FILE_BYTES_MAX, err));
        text = s->text;
    }
    TRY(jobs_lines(&s->lines, &s->run.n_lines, text, len, err));
    s->run.lines = s->lines;
    if (!s->run.n_lines) {
        return error_set(err, ERR_FORMAT, "%.120s has no line with a request", s->file);
    }
    if (s->is_strict) TRY(check_lines(s, err));
out:
    return rc;
}

static int prepare(struct submit *s, int argc, char **argv, struct error *err)
{
    const struct option_program program = {
        .variables = "OUTRIDER_JOBS_SUBMIT_",
        .example = "outrider jobs submit requests.jsonl > answers.jsonl",
        .args_doc = "FILE",
        .doc = doc,
        .parts = {{rows, s, NULL}, {connection_rows, &s->connection, NULL}},
        .take = take_word};
    int rc = 0;
    TRY(option_program_parse(&program, argc, argv, err));
    if (!s->file) return error_set(err, ERR_ARGUMENT, "no file: give one, or - for the input");
    TRY(connection_open(&s->connection, err));
    TRY(read_file(s, err));
out:
    return rc;
}

/* ---- the progress line ---- */

static void clear_progress(const struct submit *s)
{
    if (s->has_progress && s->shown_us) fputs("\r\x1b[K", stderr);
}

static void show_progress(void *arg)
{
    struct submit *s = arg;
    int64_t now_us = clock_now_us();
    if (!s->has_progress || now_us - s->shown_us < SHOW_US) return;
    s->shown_us = now_us;
    double seconds = (double)(now_us - s->begin_us) / 1e6;
    fprintf(stderr, "\r\x1b[K%d of %d done, %d failed, %d under way, %.1f tokens/s",
            s->n_done - s->n_failed, s->run.n_lines, s->n_failed, s->run.n_running,
            (double)s->run.n_tokens / seconds);
    fflush(stderr);
}

/* ---- results ---- */

static json_t *answer_json(const struct jobs_answer *answer, int index)
{
    json_t *ids = json_array();
    for (size_t i = 0; i < answer->ids.n; i++) {
        json_array_append_new(ids, json_integer(answer->ids.data[i]));
    }
    json_t *object = json_pack("{si so so}", "index", index, "text",
                               client_json_text((const char *)answer->text.data, answer->text.len),
                               "token_ids", ids);
    if (object && answer->finish_reason[0]) {
        json_object_set_new(object, "finish_reason", json_string(answer->finish_reason));
    }
    if (object && answer->logprobs) json_object_set(object, "logprobs", answer->logprobs);
    return object;
}

static json_t *usage_json(const struct jobs_result *result)
{
    json_int_t completion = 0;
    for (int i = 0; i < result->n; i++) {
        completion += (json_int_t)result->answers[i].ids.n;
    }
    return json_pack("{si sI}", "prompt_tokens", result->answers[0].prompt_tokens,
                     "completion_tokens", completion);
}

static json_t *result_json(const struct jobs_result *result)
{
    json_t *choices = json_array();
    for (int i = 0; i < result->n; i++) {
        json_array_append_new(choices, answer_json(&result->answers[i], i));
    }
    json_t *object =
        json_pack("{si ss ss ss so so}", "line", result->line->number, "key", result->entry->key,
                  "id", result->id, "end", job_end_names[result->end], "choices", choices, "usage",
                  usage_json(result));
    if (!object) return NULL;
    if (result->entry->custom_id[0]) {
        json_object_set_new(object, "custom_id", json_string(result->entry->custom_id));
    }
    if (result->echoed) json_object_set(object, "prompt", result->echoed);
    if (result->existed) json_object_set_new(object, "existed", json_true());
    if (result->error[0]) {
        json_object_set_new(object, "error",
                            client_json_text(result->error, strlen(result->error)));
    }
    return object;
}

static int print_result(void *arg, const struct jobs_result *result, struct error *err)
{
    struct submit *s = arg;
    clear_progress(s);
    s->n_done++;
    if (result->error[0]) s->n_failed++;
    return client_print_json(result_json(result), err);
}

static int print_bad_line(void *arg, const struct jobs_line *line, const struct error *why)
{
    struct submit *s = arg;
    struct error shown = *why;
    (void)line;
    clear_progress(s);
    s->n_done++;
    s->n_failed++;
    error_wrap(&shown, "%.120s", s->file);
    client_fail(&shown);
    return 0;
}

static int run(struct submit *s, struct error *err)
{
    enum health_answer health;
    int rc = 0;
    TRY(server_open(&s->server, &s->connection, 0, err));
    TRY(server_health(&s->server, "", &health, err));
    s->run.server = &s->server;
    s->begin_us = clock_now_us();
    s->has_progress = !s->is_quiet && terminal_of(stderr).is_terminal;
    rc = jobs_run(&s->run, err);
    clear_progress(s);
    if (!rc && s->n_failed) {
        rc = error_set(err, ERR_FORMAT, "%d of %d requests did not end well", s->n_failed,
                       s->run.n_lines);
    }
out:
    return rc;
}

int jobs_submit_main(int argc, char **argv)
{
    struct error err;
    struct submit s = {.run = {.on_result = print_result,
                               .on_bad_line = print_bad_line,
                               .on_turn = show_progress,
                               .arg = &s}};
    int status = CLIENT_OK;
    if (prepare(&s, argc, argv, &err)) {
        status = client_fail_local(&err);
    } else if (run(&s, &err)) {
        server_explain(&s.server, &err);
        status = client_fail(&err);
    }
    server_close(&s.server);
    connection_close(&s.connection);
    input_close(&s.input);
    free(s.text);
    free(s.lines);
    return status;
}
