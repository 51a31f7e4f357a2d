/* outrider jobs watch: shows the text of a job from a token on, while it grows and afterwards. */
#include "client/jobs/jobs.h"

#include <stdio.h>

#include "client/figures/figures.h"
#include "client/terminal.h"
#include "client/token_table.h"

enum { TOKENS_MAX = 1 << 28 };

struct watch {
    struct connection connection;
    const char *id;
    int from, sequence;
    bool is_json, is_quiet;
    struct server server;
    struct terminal terminal;
    struct buffer request;
};

static int take_word(void *fields, char *word, struct error *err)
{
    struct watch *command = fields;
    return client_take_argument(&command->id, word, "job id", err);
}

#define FIELD(member) OPTION_FIELD(struct watch, member)

static const struct option_row rows[] = {
    OPTION_GROUP("Text", "--from=100"),
    {"from", 0, "N", FIELD(from), .most = TOKENS_MAX, .standard = "0",
     .help = "Leave out the first N tokens"},
    {"sequence", 0, "I", FIELD(sequence), .most = GENERATE_SEQUENCES_MAX - 1,
     .help = "Which of n texts to show; default 0, the first"},
    OPTION_GROUP("Output", "--json"),
    {"json", 0, NULL, FIELD(is_json),
     .help = "Print each message as a JSON object, of all sequences"},
    {"quiet", 'q', NULL, FIELD(is_quiet), .help = "No summary"},
    OPTION_GROUP("Connection", "--address=10.0.0.1:7070"),
    CLIENT_ADDRESS_ROW(struct watch),
    {0},
};

static const char doc[] = "Shows the text of the job ID up to now, and then as it comes.\v"
                          "Watching changes nothing: several may watch a job, and it goes on when "
                          "they leave.\n\n" CLIENT_STATUS_DOC;

static int prepare(struct watch *w, int argc, char **argv, struct error *err)
{
    const struct option_program program = {
        .variables = "OUTRIDER_JOBS_WATCH_",
        .example = "outrider jobs watch job-1",
        .args_doc = "ID",
        .doc = doc,
        .parts = {{rows, w, NULL}, {connection_rows, &w->connection, NULL}},
        .take = take_word};
    int rc = 0;
    TRY(option_program_parse(&program, argc, argv, err));
    if (!w->id) return error_set(err, ERR_ARGUMENT, "no job: give the id of one");
    TRY(connection_open(&w->connection, err));
    const struct watch_request request = {.id = w->id, .from_token = (uint32_t)w->from};
    TRY(watch_request_encode(&w->request, &request, err));
out:
    return rc;
}

static int print_tokens(const struct generate_tokens *tokens, struct error *err)
{
    json_t *ids = json_array(), *logprobs = tokens->logprobs ? json_array() : NULL;
    for (int i = 0; i < tokens->n; i++) {
        json_array_append_new(ids, json_integer(tokens->ids[i]));
        if (!logprobs) continue;
        const struct token_line line = token_line_of(tokens, i);
        json_array_append_new(logprobs, token_line_json(&line));
    }
    json_t *object = json_pack("{si so so}", "index", tokens->index, "token_ids", ids, "text",
                               client_json_text(tokens->text, tokens->text_len));
    if (logprobs) json_object_set_new(object, "logprobs", logprobs);
    return client_print_json(object, err);
}

/* The tokens of the prompt, for jobs that asked for them. */
static int print_echo(const struct watch *w, const struct score_reply *echo, struct error *err)
{
    json_t *prompt = w->is_json ? json_array() : NULL;
    for (int i = 0; i < echo->n; i++) {
        const struct token_line line = token_line_of_score(&echo->tokens[i]);
        if (w->is_json) {
            json_array_append_new(prompt, token_line_json(&line));
        } else {
            terminal_text(&w->terminal, line.text, line.text_len);
        }
    }
    return w->is_json ? client_print_json(json_pack("{so}", "prompt", prompt), err)
                      : client_flush(err);
}

static int print_summary(const struct generate_summary *summary, struct error *err)
{
    json_t *object = figures_json(summary);
    if (object) json_object_set_new(object, "index", json_integer(summary->index));
    return client_print_json(object, err);
}

static int show_reply(const struct watch *w, const struct generate_reply *reply, struct error *err)
{
    if (reply->echo) return print_echo(w, reply->echo, err);
    if (w->is_json) {
        return reply->tokens ? print_tokens(reply->tokens, err)
                             : print_summary(reply->summary, err);
    }
    if (reply->tokens && reply->tokens->index == w->sequence) {
        terminal_text(&w->terminal, reply->tokens->text, reply->tokens->text_len);
        return client_flush(err);
    }
    if (reply->summary && reply->summary->index == w->sequence) {
        if (w->terminal.is_terminal) fputc('\n', stdout);
        int rc = client_flush(err);
        if (!rc && !w->is_quiet) figures_print(stderr, reply->summary);
        return rc;
    }
    return 0;
}

static int run(struct watch *w, struct error *err)
{
    enum health_answer health;
    const uint8_t *data;
    size_t len;
    int rc = 0;
    TRY(server_open(&w->server, &w->connection, 0, err));
    TRY(server_health(&w->server, "", &health, err));
    TRY(server_start(&w->server, JOBS_SERVICE "Watch", &w->request, err));
    while (!(rc = server_receive(&w->server, &data, &len, err))) {
        struct generate_reply reply;
        struct arena *arena;
        TRY(server_arena(&w->server, len, &arena, err));
        TRY(generate_reply_decode(data, len, arena, &reply, err));
        TRY(show_reply(w, &reply, err));
    }
    if (rc == ERR_CLOSED) rc = 0;
    /* The job was cancelled; the status of an interrupted command is for that alone. */
    if (rc == ERR_CANCELLED && !queue_is_shut(w->server.interrupts)) rc = err->code = ERR_CLOSED;
out:
    return rc;
}

int jobs_watch_main(int argc, char **argv)
{
    struct error err;
    struct watch w = {.terminal = terminal_of(stdout)};
    int status = CLIENT_OK;
    if (prepare(&w, argc, argv, &err)) {
        status = client_fail_local(&err);
    } else if (run(&w, &err)) {
        server_explain(&w.server, &err);
        status = client_fail(&err);
    }
    server_close(&w.server);
    connection_close(&w.connection);
    buffer_free(&w.request);
    return status;
}
