/* outrider jobs watch: shows the text of a job from a token on, while it grows and afterwards. */
#include "client/jobs/jobs.h"

#include <errno.h>
#include <stdio.h>

#include "base/text/options.h"
#include "client/figures/figures.h"
#include "client/terminal.h"
#include "client/token_table.h"

enum { OPT_JSON = 256, OPT_FROM, OPT_SEQUENCE, TOKENS_MAX = 1 << 28 };

struct watch {
    struct connection connection;
    const char *id;
    int from, sequence;
    bool is_json, is_quiet;
    struct server server;
    struct terminal terminal;
    struct buffer request;
    struct error *err;
};

static const struct argp_option options[] = {
    {"from", OPT_FROM, "N", 0, "Leave out the first N tokens; default 0", 0},
    {"sequence", OPT_SEQUENCE, "I", 0, "Which of n texts to show; default 0, the first", 0},
    {"address", 'a', "ADDRESS", 0, CLIENT_ADDRESS_DOC, 0},
    {"json", OPT_JSON, NULL, 0, "Print each message as a JSON object, of all sequences", 0},
    {"quiet", 'q', NULL, 0, "No summary", 0},
    {0},
};

static const char doc[] = "Shows the text of the job ID up to now, and then as it comes.\v"
                          "Watching changes nothing: several may watch a job, and it goes on when "
                          "they leave.\n\n" CLIENT_STATUS_DOC;

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct watch *w = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &w->connection;
        return 0;
    case OPT_FROM:
        return client_parser_result(options_int(&w->from, "--from", arg, 0, TOKENS_MAX, w->err));
    case OPT_SEQUENCE:
        return client_parser_result(
            options_int(&w->sequence, "--sequence", arg, 0, GENERATE_SEQUENCES_MAX - 1, w->err));
    case 'a':
        w->connection.address = arg;
        return 0;
    case OPT_JSON:
        w->is_json = true;
        return 0;
    case 'q':
        w->is_quiet = true;
        return 0;
    case ARGP_KEY_ARG:
        return client_take_argument(&w->id, arg, "job id", w->err);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int prepare(struct watch *w, int argc, char **argv, struct error *err)
{
    const struct argp_child children[] = {{&connection_argp, 0, "Connection:", 0}, {0}};
    const struct argp argp = {.options = options,
                              .parser = parse_option,
                              .args_doc = "ID",
                              .doc = doc,
                              .children = children};
    int rc = 0;
    TRY(client_parse(&argp, argc, argv, w, err));
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
    struct watch w = {.terminal = terminal_of(stdout), .err = &err};
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
