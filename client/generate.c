/* outrider generate: sends the request, shows the tokens as they come, and then the summary of how
 * they were generated. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "client/ban_texts.h"
#include "client/choice.h"
#include "client/client.h"
#include "client/server.h"
#include "client/token_table.h"

/* One run of the command, and what it has received so far. */
struct generation {
    struct generate_options options;
    uint64_t tokenizer_fingerprint; /* of --ban */
    struct input prompt, prediction;
    struct buffer request;
    struct server server;
    struct terminal terminal;
    struct choice *choices; /* [request.n] */
    int n_open, n_summaries;
    int turn;                    /* the text that is shown as it comes */
    bool has_begun;              /* something was shown */
    int n_echoed;                /* tokens of the prompt */
    json_t *prompt_ids, *echoed; /* for --json */
};

static int open_choices(struct generation *g, struct error *err)
{
    int rc = 0, n = g->options.request.n;
    TRY(mem_array(&g->choices, (size_t)n, sizeof *g->choices, err));
    for (; g->n_open < n; g->n_open++) {
        TRY(choice_open(&g->choices[g->n_open], g->n_open, &g->options, &g->terminal, err));
    }
out:
    return rc;
}

static int read_prediction(struct generation *g, struct error *err)
{
    const struct generate_options *o = &g->options;
    int rc = 0;
    if (!o->prediction && !o->prediction_file) return 0;
    TRY(input_open(&g->prediction, o->prediction, o->prediction_file, "prediction", err));
    g->options.request.prediction = g->prediction.text;
    g->options.request.prediction_len = g->prediction.len;
out:
    return rc;
}

static int prepare(struct generation *g, int argc, char **argv, struct error *err)
{
    struct generate_request *req = &g->options.request;
    int rc = 0;
    TRY(generate_options_parse(&g->options, argc, argv, err));
    if (g->options.is_check) return 0;
    if (g->options.ids.n > GENERATE_PROMPT_IDS_MAX) {
        return error_set(err, ERR_ARGUMENT, "--prompt-ids: more than %d ids",
                         GENERATE_PROMPT_IDS_MAX);
    }
    TRY(ban_texts_apply(&g->options, &g->tokenizer_fingerprint, err));
    req->prompt_ids = g->options.ids.data;
    req->n_prompt_ids = (int)g->options.ids.n;
    if (!g->options.ids.n) {
        TRY(input_open(&g->prompt, g->options.argument, g->options.file, "prompt", err));
        req->prompt = g->prompt.text;
        req->prompt_len = g->prompt.len;
    }
    TRY(read_prediction(g, err));
    TRY(generate_request_encode(&g->request, req, err));
    TRY(open_choices(g, err));
out:
    return rc;
}

static int send_request(struct generation *g, struct error *err)
{
    struct service_description service;
    enum health_answer health;
    int rc = 0;
    TRY(server_open(&g->server, &g->options.connection, g->options.timeout_s, err));
    TRY(server_health(&g->server, "", &health, err));
    if (g->options.n_ban_texts) {
        TRY(server_describe(&g->server, &service, err));
        TRY(ban_texts_check(&g->options, g->tokenizer_fingerprint, &service, err));
    }
    TRY(server_start(&g->server, "/outrider.generation.v1.Generation/Generate", &g->request, err));
out:
    return rc;
}

static bool is_whole(const struct generation *g)
{
    return g->n_summaries == g->options.request.n;
}

/* ---- showing ---- */

/* The prompt comes first where the answer begins with it, and dimmed on a terminal. A table has its
 * tokens instead. */
static void show_prompt(struct generation *g)
{
    const struct generate_request *req = &g->options.request;
    bool is_table = req->logprobs >= 0, is_dim = g->terminal.is_terminal && !req->echo;
    bool is_shown = req->echo ? !is_table : is_dim && !g->options.no_echo;
    if (!is_shown || !g->prompt.len) return;
    if (is_dim) terminal_style(&g->terminal, STYLE_DIM);
    terminal_text(&g->terminal, g->prompt.text, g->prompt.len);
    if (is_dim) terminal_style(&g->terminal, STYLE_PLAIN);
    if (req->n > 1 || is_table) fputc('\n', stdout);
    g->choices[0].has_begun = true;
}

/* Before the first text: the prompt, then the turn of text 0. */
static void begin(struct generation *g)
{
    if (g->has_begun) return;
    g->has_begun = true;
    show_prompt(g);
    choice_take_turn(&g->choices[0], stdout);
}

/* Begins a new line for what follows the text: on a terminal the shell's prompt or the summary; in
 * a file that both streams go to, the summary or a message; and the next text. The newline is part
 * of what follows, so the standard output is the generated text alone wherever it is separate. */
static void end_text(struct generation *g, bool is_followed)
{
    const struct choice *choice = &g->choices[g->turn];
    bool is_open = choice->has_begun && !choice->ends_with_line && !choice->kept;
    bool is_among_others = g->options.request.n > 1;
    fflush(stdout);
    if (!is_open || g->options.is_json) return;
    if (g->terminal.is_terminal || is_among_others) {
        fputc('\n', stdout);
        fflush(stdout);
    } else if (is_followed && terminal_share_file(stdout, stderr)) {
        fputc('\n', stderr);
    }
}

static void show_summary(const struct generation *g, const struct choice *choice)
{
    if (g->options.is_quiet) return;
    if (g->terminal.is_terminal) fputc('\n', stderr);
    if (g->options.request.n > 1) fprintf(stderr, "choice %d\n", choice->index);
    fwrite(choice->summary, 1, choice->summary_len, stderr);
}

/* Texts that have ended make room for the next one. */
static void pass_turn(struct generation *g)
{
    while (g->turn < g->n_open && g->choices[g->turn].has_summary) {
        end_text(g, !g->options.is_quiet);
        show_summary(g, &g->choices[g->turn]);
        if (++g->turn < g->n_open) choice_take_turn(&g->choices[g->turn], stdout);
    }
}

/* After a failure: what has come of the texts that have not had their turn. */
static void show_rest(struct generation *g)
{
    if (g->options.is_json || !g->has_begun) return;
    end_text(g, true);
    while (++g->turn < g->n_open) {
        if (!g->choices[g->turn].has_begun) continue;
        choice_take_turn(&g->choices[g->turn], stdout);
        end_text(g, true);
    }
}

/* ---- the prompt, where the answer begins with it ---- */

static void show_echo(struct generation *g, const struct score_reply *echo)
{
    bool is_table = g->options.request.logprobs >= 0;
    if (g->n_echoed == 0 && is_table) {
        token_table_head(&g->terminal, g->options.request.logprobs > 0);
    }
    for (int i = 0; i < echo->n; i++) {
        const struct token_line line = token_line_of_score(&echo->tokens[i]);
        if (is_table) token_table_line(&g->terminal, g->n_echoed + i, &line);
        if (!is_table && !g->prompt.len) terminal_text(&g->terminal, line.text, line.text_len);
    }
}

static int take_echo(struct generation *g, const struct score_reply *echo, struct error *err)
{
    if (!g->options.is_json) show_echo(g, echo);
    for (int i = 0; i < echo->n; i++) {
        const struct token_line line = token_line_of_score(&echo->tokens[i]);
        if (!g->echoed) g->echoed = json_array();
        if (json_array_append_new(g->echoed, token_line_json(&line))) {
            return error_set(err, ERR_NO_MEMORY, "no memory for the prompt's tokens");
        }
    }
    g->n_echoed += echo->n;
    for (int i = 0; i < g->n_open; i++) {
        g->choices[i].n_lines = g->n_echoed;
        g->choices[i].has_head = g->n_open == 1; /* the table of the prompt goes on */
    }
    return 0;
}

/* ---- the end ---- */

static void keep_prompt_ids(struct generation *g, const struct generate_summary *summary)
{
    if (g->prompt_ids) return;
    g->prompt_ids = json_array();
    for (int i = 0; summary->prompt_ids && i < summary->prompt_tokens; i++) {
        json_array_append_new(g->prompt_ids, json_integer(summary->prompt_ids[i]));
    }
}

/* One text is the object itself; several are its "choices". */
static int print_object(struct generation *g, struct error *err)
{
    json_t *object = NULL;
    bool failed = false;
    if (g->options.request.n == 1) {
        object = choice_json(&g->choices[0]);
    } else {
        json_t *list = json_array();
        for (int i = 0; i < g->n_open; i++) {
            if (json_array_append_new(list, choice_json(&g->choices[i]))) failed = true;
        }
        object = json_pack("{so}", "choices", list);
    }
    failed = failed || !object || json_object_set(object, "prompt_token_ids", g->prompt_ids);
    if (!failed && g->echoed) failed = json_object_set(object, "prompt", g->echoed) != 0;
    if (!failed) return client_print_json(object, err);
    json_decref(object);
    return error_set(err, ERR_NO_MEMORY, "no memory for the JSON object");
}

static int take_summary(struct generation *g, struct choice *choice,
                        const struct generate_summary *summary, struct error *err)
{
    const struct terminal shown = terminal_of(stderr);
    int rc = 0;
    choice->has_summary = true;
    g->n_summaries++;
    if (g->options.is_json) {
        keep_prompt_ids(g, summary);
        TRY(choice_add_summary(choice, summary, err));
        return is_whole(g) ? print_object(g, err) : 0;
    }
    TRY(choice_keep_summary(choice, summary, &shown, err));
    begin(g);
    pass_turn(g);
    rc = client_flush(err);
out:
    return rc;
}

/* ---- replies ---- */

/* The text that a reply belongs to. */
static int find_choice(struct generation *g, int index, struct choice **choice, struct error *err)
{
    *choice = g->choices;
    if (index >= g->n_open) {
        return error_set(err, ERR_FORMAT, "%.160s sends text %d of a request for %d",
                         g->server.address, index, g->n_open);
    }
    *choice += index;
    if (!(*choice)->has_summary) return 0;
    return error_set(err, ERR_FORMAT, "%.160s goes on after the summary", g->server.address);
}

static int take_tokens(struct generation *g, const struct generate_tokens *tokens,
                       struct error *err)
{
    struct choice *choice;
    int rc = 0;
    TRY(find_choice(g, tokens->index, &choice, err));
    if (g->options.is_json) return choice_add(choice, tokens, err);
    begin(g);
    TRY(choice_show(choice, tokens, err));
out:
    return rc;
}

static int take_reply(struct generation *g, const uint8_t *data, size_t len, struct error *err)
{
    struct generate_reply reply;
    struct choice *choice;
    struct arena *arena;
    int rc = 0;
    TRY(server_arena(&g->server, len, &arena, err));
    rc = generate_reply_decode(data, len, arena, &reply, err);
    if (rc) {
        error_wrap(err, "%.160s sends what this client does not understand", g->server.address);
        goto out;
    }
    if (reply.echo && !is_whole(g)) return take_echo(g, reply.echo, err);
    if (reply.tokens) return take_tokens(g, reply.tokens, err);
    TRY(find_choice(g, reply.summary ? reply.summary->index : 0, &choice, err));
    TRY(take_summary(g, choice, reply.summary, err));
out:
    return rc;
}

static int receive_all(struct generation *g, struct error *err)
{
    int rc = 0;
    while (!rc) {
        const uint8_t *data;
        size_t len;
        rc = server_receive(&g->server, &data, &len, err);
        if (rc == ERR_CLOSED && is_whole(g)) return 0;
        if (rc == ERR_CLOSED) {
            rc = error_set(err, ERR_UNAVAILABLE, "%.160s ended the text without a summary",
                           g->server.address);
        }
        if (!rc) rc = take_reply(g, data, len, err);
    }
    if (!is_whole(g)) show_rest(g);
    return rc;
}

static void free_generation(struct generation *g)
{
    server_close(&g->server);
    input_close(&g->prompt);
    input_close(&g->prediction);
    buffer_free(&g->request);
    for (int i = 0; i < g->n_open; i++) {
        choice_close(&g->choices[i]);
    }
    free(g->choices);
    json_decref(g->prompt_ids);
    json_decref(g->echoed);
    generate_options_free(&g->options);
}

int generate_main(int argc, char **argv)
{
    static struct generation g; /* the lists of its options make it large */
    struct error err;
    int status = CLIENT_OK;
    g = (struct generation){.terminal = terminal_of(stdout)};
    if (prepare(&g, argc, argv, &err)) {
        status = client_fail_local(&err);
    } else if (!g.options.is_check && (send_request(&g, &err) || receive_all(&g, &err))) {
        server_explain(&g.server, &err);
        status = client_fail(&err);
    }
    free_generation(&g);
    return status;
}
