/* outrider score: the log-probability of each token of a text under the target. */
#include <math.h>
#include <string.h>

#include "client/client.h"
#include "client/input.h"
#include "client/server.h"
#include "client/token_table.h"
#include "proto/generation_wire.h"

enum { TIMEOUT_MAX_S = 86400 };

struct score {
    struct connection connection;
    const char *argument, *file;
    int top_n, timeout_s;
    bool is_json, adds_no_special, parses_no_special;
    struct token_ids ids;
    struct input input;
    struct buffer request;
    struct server server;
    struct terminal terminal;
    json_t *tokens; /* for --json */
    int n, n_scored;
    double total; /* of the log-probabilities */
};

static int take_word(void *fields, char *word, struct error *err)
{
    struct score *command = fields;
    return client_take_argument(&command->argument, word, "text, in quotes", err);
}

#define FIELD(member) OPTION_FIELD(struct score, member)

static const struct option_row rows[] = {
    OPTION_GROUP("Text", "--file=answer.txt"),
    {"file", 0, "FILE", FIELD(file), .help = "Read the text from FILE"},
    {"ids", 0, "IDS", OPTION_READ(struct score, ids, input_read_ids),
     .help = "The text as token ids: 1,2,3"},
    {"no-bos", 0, NULL, FIELD(adds_no_special),
     .help = "Add no token at the beginning or end of the text"},
    {"no-special", 0, NULL, FIELD(parses_no_special),
     .help = "Texts of special tokens are plain text; otherwise they become these tokens"},
    OPTION_GROUP("Output", "--top=5 --json"),
    {"top", 't', "N", FIELD(top_n), .most = SCORE_TOP_MAX, .standard = "0",
     .help = "Show the N best tokens of each position, 0 to 64"},
    {"json", 0, NULL, FIELD(is_json), .help = "Print one JSON object at the end and nothing else"},
    OPTION_GROUP("Connection", "--address=10.0.0.1:7070"),
    CLIENT_ADDRESS_ROW(struct score),
    {"timeout", 0, "SECONDS", FIELD(timeout_s), .least = 1, .most = TIMEOUT_MAX_S,
     .help = "Give up after that long; default: never"},
    {0},
};

static const char doc[] =
    "Prints the log-probability of each token of TEXT under the target model, and the perplexity.\n"
    "The text is the argument, --file FILE, or the standard input (when it is no terminal, or with "
    "-); one newline at the end of a file or of the input is left out.\v"
    "Log-probabilities are natural logarithms at temperature 1. The first token has none. "
    "Perplexity = exp(-total / scored tokens).\n\n" CLIENT_STATUS_DOC;

static int prepare(struct score *s, int argc, char **argv, struct error *err)
{
    const struct option_program program = {
        .variables = "OUTRIDER_SCORE_",
        .example = "outrider score \"Once upon a time there was a king.\"",
        .args_doc = "[TEXT]",
        .doc = doc,
        .parts = {{rows, s, NULL}, {connection_rows, &s->connection, NULL}},
        .take = take_word};
    struct score_request request = {0};
    int rc = 0;
    TRY(option_program_parse(&program, argc, argv, err));
    TRY(connection_open(&s->connection, err));
    if (s->ids.n && (s->argument || s->file)) {
        return error_set(err, ERR_ARGUMENT, "give the text as text or by --ids, not both");
    }
    if (s->ids.n > GENERATE_PROMPT_IDS_MAX) {
        return error_set(err, ERR_ARGUMENT, "--ids: more than %d ids", GENERATE_PROMPT_IDS_MAX);
    }
    if (!s->ids.n) TRY(input_open(&s->input, s->argument, s->file, "text", err));
    request = (struct score_request){.text = s->input.text,
                                     .text_len = s->input.len,
                                     .ids = s->ids.data,
                                     .n_ids = (int)s->ids.n,
                                     .top_n = s->top_n,
                                     .adds_no_special = s->adds_no_special,
                                     .parses_no_special = s->parses_no_special};
    TRY(score_request_encode(&s->request, &request, err));
out:
    return rc;
}

/* ---- for people ---- */

static double perplexity(const struct score *s)
{
    return s->n_scored ? exp(-s->total / s->n_scored) : (double)NAN;
}

static void print_total(const struct score *s)
{
    printf("%d tokens, %d scored; total log-probability %.4f", s->n, s->n_scored, s->total);
    if (s->n_scored) printf(", perplexity %.4f", perplexity(s));
    fputc('\n', stdout);
}

/* ---- for programs ---- */

static int print_object(struct score *s, struct error *err)
{
    json_t *object = json_pack("{si si so so sO}", "n_tokens", s->n, "n_scored", s->n_scored,
                               "total_logprob", client_json_number(s->total), "perplexity",
                               client_json_number(perplexity(s)), "tokens", s->tokens);
    return client_print_json(object, err);
}

/* ---- replies ---- */

static int take_tokens(struct score *s, const struct score_reply *reply, struct error *err)
{
    if (!s->is_json && s->n == 0) token_table_head(&s->terminal, s->top_n > 0);
    for (int i = 0; i < reply->n; i++) {
        const struct token_line token = token_line_of_score(&reply->tokens[i]);
        if (token.has_logprob) {
            s->total += (double)token.logprob;
            s->n_scored++;
        }
        if (!s->is_json) {
            token_table_line(&s->terminal, s->n, &token);
        } else if (json_array_append_new(s->tokens, token_line_json(&token))) {
            return error_set(err, ERR_NO_MEMORY, "no memory for the tokens");
        }
        s->n++;
    }
    return s->is_json ? 0 : client_flush(err);
}

static int take_reply(struct score *s, const uint8_t *data, size_t len, struct error *err)
{
    struct score_reply reply;
    struct arena *arena;
    int rc = 0;
    TRY(server_arena(&s->server, len, &arena, err));
    rc = score_reply_decode(data, len, arena, &reply, err);
    if (rc) {
        error_wrap(err, "%.160s sends what this client does not understand", s->server.address);
        goto out;
    }
    TRY(take_tokens(s, &reply, err));
out:
    return rc;
}

static int run(struct score *s, struct error *err)
{
    const uint8_t *data;
    size_t len;
    enum health_answer health;
    int rc = 0;
    if (s->is_json) s->tokens = json_array();
    TRY(server_open(&s->server, &s->connection, s->timeout_s, err));
    TRY(server_health(&s->server, "", &health, err));
    TRY(server_start(&s->server, "/outrider.generation.v1.Generation/Score", &s->request, err));
    while (!(rc = server_receive(&s->server, &data, &len, err))) {
        TRY(take_reply(s, data, len, err));
    }
    if (rc != ERR_CLOSED) goto out;
    if (s->is_json) return print_object(s, err);
    print_total(s);
    rc = client_flush(err);
out:
    return rc;
}

int score_main(int argc, char **argv)
{
    struct score s = {.terminal = terminal_of(stdout)};
    struct error err;
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
    token_ids_free(&s.ids);
    buffer_free(&s.request);
    json_decref(s.tokens);
    return status;
}
