/* outrider run: one answer of a model that is served for it alone. */
#include <stdlib.h>
#include <string.h>

#include "client/chat/answer.h"
#include "client/chat/conversation.h"
#include "client/chat/started.h"
#include "client/client.h"
#include "client/figures/figures.h"
#include "client/generate_options.h"
#include "client/input.h"
#include "client/painter.h"
#include "client/terminal.h"

enum { GRACE_MS = 15000 /* in which the server ends */ };

struct run {
    struct generate_options options;
    const char *model, *prompt, *file, *system;
    bool is_plain, is_quiet, has_stats, shows_drafts;
    struct started_words words;
    struct started started;
    struct server server;
    struct terminal terminal;
    struct input input;
    struct conversation conversation;
    bool ends_with_line;
};

static int take_word(void *fields, char *word, struct error *err)
{
    struct run *run = fields;
    if (!run->model) return client_take_argument(&run->model, word, "model", err);
    return client_take_argument(&run->prompt, word, "prompt, in quotes", err);
}

#define FIELD(member) OPTION_FIELD(struct run, member)

static const struct option_row rows[] = {
    OPTION_GROUP("Prompt", "--file=question.txt"),
    {"file", 0, "FILE", FIELD(file), .help = "Read the prompt from FILE"},
    {"system", 0, "TEXT", FIELD(system), .help = "What the model is told first"},
    {"plain", 0, NULL, FIELD(is_plain),
     .help = "Use no chat template: the model goes on with the prompt, as it does where there is "
             "none"},
    OPTION_GROUP("Output", "--show-drafts"),
    {"show-drafts", 0, NULL, FIELD(shows_drafts), .help = "Mark what became of each guess"},
    {"quiet", 'q', NULL, FIELD(is_quiet), .help = "No summary"},
    {"stats", 0, NULL, FIELD(has_stats), .help = "All figures in place of the three lines"},
    {0},
};

static const char doc[] =
    "Starts `outrider serve MODEL` with the options after --, prints one answer as it comes, and "
    "ends the server again.\n"
    "The prompt is the argument, --file FILE, or the standard input (when it is no terminal, or "
    "with -). It is a message where the model has a chat template, otherwise a text that the model "
    "goes on with.\v" CLIENT_STATUS_DOC;

static int prepare(struct run *run, int argc, char **argv, struct error *err)
{
    const struct option_program program = {
        .variables = "OUTRIDER_RUN_",
        .example = "outrider run Qwen/Qwen3-0.6B \"What is a fox?\" -- --threads 4",
        .args_doc = "MODEL [PROMPT] [-- OPTION OF SERVE...]",
        .doc = doc,
        .parts = {{rows, run, NULL}, {request_rows, &run->options, NULL}},
        .take = take_word};
    int rc = 0;
    generate_options_init(&run->options);
    TRY(started_words_take(&run->words, &argc, argv, err));
    TRY(option_program_parse(&program, argc, argv, err));
    if (!run->model) {
        return error_set(err, ERR_ARGUMENT,
                         "no model: name a folder, a .gguf file, or ORG/NAME of the Hugging Face "
                         "cache");
    }
    TRY(generate_options_check(&run->options, err));
    TRY(input_open(&run->input, run->prompt, run->file, "prompt", err));
    TRY(started_prepare(&run->started, err));
    run->options.connection.address = run->started.address;
    TRY(connection_open(&run->options.connection, err));
out:
    return rc;
}

static int show(void *arg, const struct generate_tokens *tokens, struct error *err)
{
    struct run *run = arg;
    if (run->shows_drafts) {
        painter_drafts(&run->terminal, tokens, &run->ends_with_line);
    } else if (tokens->text_len) {
        terminal_text(&run->terminal, tokens->text, tokens->text_len);
        run->ends_with_line = tokens->text[tokens->text_len - 1] == '\n';
    }
    return client_flush(err);
}

static int fill_request(struct run *run, struct generate_request *request, struct error *err)
{
    struct service_description desc;
    int rc = 0;
    TRY(server_describe(&run->server, &desc, err));
    *request = run->options.request;
    request->show_drafts = run->shows_drafts;
    if (run->is_plain || !desc.has_chat) {
        if (run->system) {
            return error_set(err, ERR_ARGUMENT,
                             "--system needs a chat template, and there is none: leave it out");
        }
        request->prompt = run->input.text;
        request->prompt_len = run->input.len;
        return 0;
    }
    if (run->system) TRY(conversation_set_system(&run->conversation, run->system, err));
    TRY(conversation_add(&run->conversation, "user", run->input.text, run->input.len, err));
    request->messages = run->conversation.messages;
    request->n_messages = (int)run->conversation.n;
out:
    return rc;
}

static void show_summary(const struct run *run, const struct generate_summary *summary)
{
    const struct terminal to = terminal_of(stderr);
    if (run->is_quiet) return;
    if (to.is_terminal) fputc('\n', stderr);
    if (run->has_stats) {
        figures_show(&to, summary);
    } else {
        figures_show_brief(&to, summary);
    }
}

static int run_once(struct run *run, struct error *err)
{
    struct generate_request request;
    struct generate_summary summary = {0};
    int rc = 0;
    TRY(server_open_with_grace(&run->server, &run->options.connection, 0, GRACE_MS, err));
    TRY(started_run(&run->started, run->model, &run->words, &run->server, err));
    TRY(fill_request(run, &request, err));
    run->ends_with_line = true; /* nothing has been shown */
    rc = answer_get(&run->server, &request, show, run, &summary, err);
    if (!run->ends_with_line && run->terminal.is_terminal) fputc('\n', stdout);
    fflush(stdout);
    if (rc) {
        answer_explain(&run->server, err);
        return err->code;
    }
    show_summary(run, &summary);
out:
    return rc;
}

int run_main(int argc, char **argv)
{
    static struct run run; /* the lists of its options make it large */
    struct error err;
    int status = CLIENT_OK;
    run = (struct run){.terminal = terminal_of(stdout)};
    if (prepare(&run, argc, argv, &err)) {
        status = client_fail_local(&err);
    } else if (run_once(&run, &err)) {
        status = client_fail(&err);
    }
    started_stop(&run.started, &run.server);
    server_close(&run.server);
    conversation_free(&run.conversation);
    input_close(&run.input);
    generate_options_free(&run.options);
    return status;
}
