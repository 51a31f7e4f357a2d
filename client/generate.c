/* outrider generate: sends the request, shows the tokens as they come, and then the summary of how
 * they were generated. */
#include <string.h>

#include "client/client.h"
#include "client/figures.h"
#include "client/generate_options.h"
#include "client/painter.h"
#include "client/server.h"
#include "client/terminal.h"

/* One run of the command, and what it has received so far. */
struct generation {
    struct generate_options options;
    struct input prompt;
    struct buffer request;
    struct server server;
    struct terminal terminal;
    bool has_begun;      /* something was shown */
    bool ends_with_line; /* the last character shown was a newline */
    bool has_summary;
    struct buffer text; /* for --json */
    struct token_ids ids;
    json_t *steps; /* for --json with --show-drafts */
};

static int prepare(struct generation *g, int argc, char **argv, struct error *err)
{
    struct generate_request *req = &g->options.request;
    int rc = 0;
    TRY(generate_options_parse(&g->options, argc, argv, err));
    if (g->options.ids.n > GENERATE_PROMPT_IDS_MAX) {
        return error_set(err, ERR_ARGUMENT, "--prompt-ids: more than %d ids",
                         GENERATE_PROMPT_IDS_MAX);
    }
    req->prompt_ids = g->options.ids.data;
    req->n_prompt_ids = (int)g->options.ids.n;
    if (!g->options.ids.n) {
        TRY(input_open(&g->prompt, g->options.argument, g->options.file, "prompt", err));
        req->prompt = g->prompt.text;
        req->prompt_len = g->prompt.len;
    }
    TRY(generate_request_encode(&g->request, req, err));
out:
    return rc;
}

static int send_request(struct generation *g, struct error *err)
{
    enum health_answer health;
    int rc = 0;
    TRY(server_open(&g->server, g->options.address, g->options.timeout_s, err));
    TRY(server_health(&g->server, "", &health, err));
    TRY(server_start(&g->server, "/outrider.generation.v1.Generation/Generate", &g->request, err));
out:
    return rc;
}

/* ---- showing ---- */

static void echo_prompt(struct generation *g)
{
    bool is_shown = !g->has_begun && g->terminal.is_terminal && !g->options.no_echo;
    if (is_shown && g->prompt.len) {
        terminal_style(&g->terminal, STYLE_DIM);
        terminal_text(&g->terminal, g->prompt.text, g->prompt.len);
        terminal_style(&g->terminal, STYLE_PLAIN);
    }
    g->has_begun = true;
}

static int show_tokens(struct generation *g, const struct generate_tokens *tokens,
                       struct error *err)
{
    echo_prompt(g);
    if (g->options.request.show_drafts) {
        painter_drafts(&g->terminal, tokens, &g->ends_with_line);
    } else {
        terminal_text(&g->terminal, tokens->text, tokens->text_len);
        if (tokens->text_len) g->ends_with_line = tokens->text[tokens->text_len - 1] == '\n';
    }
    return client_flush(err);
}

/* What follows the text begins on a line of its own: on a terminal the shell's prompt or the
 * summary; in a file that both streams go to, the summary or a message. The newline is then part of
 * what follows, so the standard output is the generated text alone wherever it is separate. */
static void end_text(struct generation *g, bool is_followed)
{
    bool is_open = g->has_begun && !g->ends_with_line;
    fflush(stdout);
    if (!is_open || g->options.is_json) return;
    if (g->terminal.is_terminal) {
        fputc('\n', stdout);
        fflush(stdout);
    } else if (is_followed && terminal_share_file(stdout, stderr)) {
        fputc('\n', stderr);
    }
}

/* ---- keeping, for --json ---- */

static int keep_text(struct generation *g, const struct generate_tokens *tokens, struct error *err)
{
    int rc = buffer_append(&g->text, tokens->text, tokens->text_len, err);
    if (rc) return rc;
    return token_ids_append(&g->ids, tokens->ids, (size_t)tokens->n, err);
}

static json_t *ids_json(const int32_t *ids, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(array, json_integer(ids[i]));
    }
    return array;
}

static json_t *step_json(const struct generate_tokens *tokens)
{
    static const char *const names[] = {"plain", "accepted", "replacement", "bonus"};
    json_t *list = json_array();
    for (int i = 0; i < tokens->n; i++) {
        struct piece piece = painter_piece(tokens, i);
        json_array_append_new(list, json_pack("{si ss so}", "id", (int)tokens->ids[i], "origin",
                                              names[tokens->origins[i]], "text",
                                              client_json_text(piece.text, piece.len)));
    }
    json_t *step = json_pack("{so}", "tokens", list);
    if (step && tokens->rejected_id >= 0) {
        json_object_set_new(
            step, "rejected",
            json_pack("{si ss}", "id", (int)tokens->rejected_id, "text", tokens->rejected_text));
    }
    return step;
}

static int keep_tokens(struct generation *g, const struct generate_tokens *tokens,
                       struct error *err)
{
    int rc = keep_text(g, tokens, err);
    if (rc || !g->options.request.show_drafts) return rc;
    if (!g->steps) g->steps = json_array();
    if (json_array_append_new(g->steps, step_json(tokens)) == 0) return 0;
    return error_set(err, ERR_NO_MEMORY, "no memory for the steps");
}

static int print_object(struct generation *g, const struct generate_summary *summary,
                        struct error *err)
{
    json_t *object = json_pack(
        "{so so so}", "text", client_json_text((const char *)g->text.data, g->text.len),
        "token_ids", ids_json(g->ids.data, g->ids.n), "prompt_token_ids",
        ids_json(summary->prompt_ids, summary->prompt_ids ? (size_t)summary->prompt_tokens : 0));
    json_t *figures = figures_json(summary);
    bool failed = !object || !figures || json_object_update(object, figures) != 0;
    json_decref(figures);
    if (!failed && g->steps) failed = json_object_set(object, "steps", g->steps) != 0;
    if (!failed) return client_print_json(object, err);
    json_decref(object);
    return error_set(err, ERR_NO_MEMORY, "no memory for the JSON object");
}

/* ---- replies ---- */

static int take_summary(struct generation *g, const struct generate_summary *summary,
                        struct error *err)
{
    g->has_summary = true;
    if (g->options.is_json) return print_object(g, summary, err);
    end_text(g, !g->options.is_quiet);
    if (!g->options.is_quiet) {
        if (g->terminal.is_terminal) fputc('\n', stderr);
        figures_print(stderr, summary);
    }
    return 0;
}

static int take_reply(struct generation *g, const uint8_t *data, size_t len, struct error *err)
{
    struct generate_reply reply;
    struct arena *arena;
    int rc = 0;
    if (g->has_summary) {
        return error_set(err, ERR_FORMAT, "%.160s goes on after the summary", g->server.address);
    }
    TRY(server_arena(&g->server, len, &arena, err));
    rc = generate_reply_decode(data, len, arena, &reply, err);
    if (rc) {
        error_wrap(err, "%.160s sends what this client does not understand", g->server.address);
        goto out;
    }
    if (reply.summary) return take_summary(g, reply.summary, err);
    if (!reply.tokens) return 0; /* an echo, which no option of ours asks for */
    TRY(g->options.is_json ? keep_tokens(g, reply.tokens, err) : show_tokens(g, reply.tokens, err));
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
        if (rc == ERR_CLOSED && g->has_summary) return 0;
        if (rc == ERR_CLOSED) {
            return error_set(err, ERR_UNAVAILABLE, "%.160s ended the text without a summary",
                             g->server.address);
        }
        if (!rc) rc = take_reply(g, data, len, err);
    }
    if (!g->has_summary) end_text(g, true);
    return rc;
}

static void free_generation(struct generation *g)
{
    server_close(&g->server);
    input_close(&g->prompt);
    buffer_free(&g->request);
    buffer_free(&g->text);
    token_ids_free(&g->ids);
    json_decref(g->steps);
    generate_options_free(&g->options);
}

int generate_main(int argc, char **argv)
{
    struct generation g = {.terminal = terminal_of(stdout)};
    struct error err;
    int status = CLIENT_OK;
    if (prepare(&g, argc, argv, &err)) {
        status = client_fail_local(&err);
    } else if (send_request(&g, &err) || receive_all(&g, &err)) {
        server_explain(&g.server, &err);
        status = client_fail(&err);
    }
    free_generation(&g);
    return status;
}
