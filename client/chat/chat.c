/* outrider chat: a conversation with a model that is served, or that it serves for itself. */
#include "client/chat/chat.h"

#include <stdlib.h>
#include <string.h>

#include "client/client.h"

enum { HISTORY_PATH_BYTES = 4096, GRACE_MS = 15000 /* in which a server of its own ends */ };

static int take_word(void *fields, char *word, struct error *err)
{
    struct chat *chat = fields;
    return client_take_argument(&chat->model, word, "model", err);
}

#define FIELD(member) OPTION_FIELD(struct chat, member)

static const struct option_row rows[] = {
    OPTION_GROUP("Conversation", "--system='Answer in one sentence.'"),
    {"system", 0, "TEXT", FIELD(system), .help = "What the model is told first"},
    {"plain", 0, NULL, FIELD(is_plain),
     .help = "Use no chat template: the model goes on with what is typed, as it does where there "
             "is none"},
    {"show-drafts", 0, NULL, FIELD(has_colors),
     .help = "Mark what became of each guess, from the beginning; Ctrl-G changes it"},
    {"no-history", 0, NULL, FIELD(no_history), .help = "Keep nothing of what is typed in a file"},
    {0},
};

static const struct option_row address_rows[] = {
    OPTION_GROUP("Connection", "--address=10.0.0.1:7070"),
    CLIENT_ADDRESS_ROW(struct generate_options),
    {0},
};

static const char doc[] =
    "Talks with the model of a running server. With MODEL it starts `outrider serve MODEL` for "
    "itself, with the options after --, and ends it again.\v"
    "/help lists what may be typed in place of a message. Ctrl-C stops an answer, Ctrl-D ends, "
    "Ctrl-G shows and hides what became of each guess. Without a terminal each line of the input "
    "is a message, and the answers are printed plainly.\n\n"
    "The lines are kept in $XDG_STATE_HOME/outrider/chat_history "
    "(~/.local/state/outrider/chat_history) unless --no-history is given.\n\n" CLIENT_STATUS_DOC;

static int parse(struct chat *chat, int argc, char **argv, struct error *err)
{
    const struct option_program program = {
        .variables = "OUTRIDER_CHAT_",
        .example = "outrider chat Qwen/Qwen3-0.6B --temperature 0",
        .args_doc = "[MODEL] [-- OPTION OF SERVE...]",
        .doc = doc,
        .parts = {{rows, chat, NULL},
                  {request_rows, &chat->options, NULL},
                  {address_rows, &chat->options, NULL},
                  {connection_rows, &chat->options.connection, NULL}},
        .take = take_word};
    int rc = 0;
    generate_options_init(&chat->options);
    TRY(started_words_take(&chat->words, &argc, argv, err));
    TRY(option_program_parse(&program, argc, argv, err));
    if (chat->words.n && !chat->model) {
        return error_set(err, ERR_ARGUMENT,
                         "what is after -- is for a server, but no MODEL is named to serve");
    }
    if (chat->model) {
        TRY(started_prepare(&chat->started, err));
        chat->options.connection.address = chat->started.address;
    }
    TRY(connection_open(&chat->options.connection, err));
    TRY(generate_options_check(&chat->options, err));
    if (chat->system) TRY(conversation_set_system(&chat->conversation, chat->system, err));
out:
    return rc;
}

/* ---- the conversation ---- */

static bool ends_with_quotes(const struct buffer *text, size_t from)
{
    return text->len >= from + 3 && memcmp(text->data + text->len - 3, "\"\"\"", 3) == 0;
}

/* Lines up to one that ends with three quotes, or up to the first without a \ at its end. */
static int read_message(struct chat *chat, struct buffer *message, enum line_end *end,
                        struct error *err)
{
    struct buffer line = {0};
    bool is_quoted = false, goes_on = true;
    int rc = 0;
    message->len = 0;
    for (bool is_first = true; goes_on; is_first = false) {
        TRY(lines_read(chat->lines, is_first ? ">>> " : "... ", &line, end, err));
        if (*end != LINE_READ) break;
        size_t at = message->len;
        if (!is_first) TRY(buffer_append(message, "\n", 1, err));
        TRY(buffer_append(message, line.data, line.len, err));
        if (is_first) {
            at = 3;
            is_quoted = line.len >= 3 && memcmp(line.data, "\"\"\"", 3) == 0;
        }
        bool has_backslash = line.len && line.data[line.len - 1] == '\\';
        goes_on = is_quoted ? !ends_with_quotes(message, at) : has_backslash;
        if (!is_quoted && has_backslash) message->len--;
    }
    TRY(buffer_append(message, "", 1, err));
    message->len--;
    if (*end == LINE_READ) lines_remember(chat->lines, (const char *)message->data);
    if (is_quoted && *end == LINE_READ) {
        message->len -= 6;
        memmove(message->data, message->data + 3, message->len);
        message->data[message->len] = '\0';
    }
out:
    buffer_free(&line);
    return rc;
}

static int take_message(struct chat *chat, const struct buffer *message, bool *is_over,
                        struct error *err)
{
    const char *text = (const char *)message->data;
    bool is_doubled = strncmp(text, "//", 2) == 0;
    if (text[0] == '/' && !is_doubled) return chat_command(chat, text, is_over, err);
    if (!message->len && !(chat->is_plain && chat->conversation.n)) return 0;
    return chat_say(chat, text + is_doubled, message->len - is_doubled, err);
}

static int talk(struct chat *chat, struct error *err)
{
    struct buffer message = {0};
    enum line_end end = LINE_READ;
    bool is_over = false;
    int rc = 0;
    while (end != LINE_END && !is_over && !rc) {
        rc = read_message(chat, &message, &end, err);
        if (!rc && end == LINE_READ) rc = take_message(chat, &message, &is_over, err);
    }
    buffer_free(&message);
    return rc;
}

/* ---- the beginning ---- */

static void greet(const struct chat *chat)
{
    if (!chat->is_edited) return;
    terminal_style(&chat->terminal, STYLE_DIM);
    terminal_quoted(&chat->terminal, chat->name, strlen(chat->name));
    printf(", %d tokens of context. /help lists commands, Ctrl-D ends.", chat->context_limit);
    terminal_style(&chat->terminal, STYLE_PLAIN);
    fputc('\n', stdout);
}

static void tell_plain(const struct chat *chat)
{
    fprintf(stderr, "outrider: ");
    const struct terminal to = terminal_of(stderr);
    terminal_quoted(&to, chat->name, strlen(chat->name));
    fprintf(stderr,
            " has no chat template, so it goes on with what is typed instead of answering "
            "it%s\n",
            chat->is_edited ? "; an empty line lets it go on" : "");
}

static int ask_what_is_served(struct chat *chat, struct error *err)
{
    struct service_description desc;
    const char *name;
    int rc = 0;
    TRY(server_describe(&chat->server, &desc, err));
    name = strrchr(desc.target_model, '/');
    name = name && name[1] ? name + 1 : desc.target_model;
    snprintf(chat->name, sizeof chat->name, "%s", *name ? name : "this model");
    chat->context_limit = desc.context_limit;
    greet(chat);
    if (!desc.has_chat && !chat->is_plain) {
        chat->is_plain = true;
        tell_plain(chat);
    }
    if (chat->is_plain && chat->system) {
        rc = error_set(err, ERR_ARGUMENT,
                       "--system needs a chat template, and there is none: leave it out");
    }
out:
    return rc;
}

static void tell_key(void *arg)
{
    chat_show_again(arg);
}

static int run(struct chat *chat, struct error *err)
{
    char history[HISTORY_PATH_BYTES];
    int rc = 0;
    TRY(server_open_with_grace(&chat->server, &chat->options.connection, 0, GRACE_MS, err));
    if (chat->model)
        TRY(started_run(&chat->started, chat->model, &chat->words, &chat->server, err));
    TRY(ask_what_is_served(chat, err));
    bool has_history = chat->is_edited && !chat->no_history &&
                       lines_state_path(history, sizeof history, "chat_history");
    const struct lines_options lines = {.server = &chat->server,
                                        .history = has_history ? history : NULL,
                                        .on_key = tell_key,
                                        .arg = chat};
    TRY(lines_open(&chat->lines, &lines, err));
    rc = talk(chat, err);
    lines_close(chat->lines);
out:
    return rc;
}

static void free_chat(struct chat *chat)
{
    started_stop(&chat->started, &chat->server);
    server_close(&chat->server);
    conversation_free(&chat->conversation);
    buffer_free(&chat->failed);
    buffer_free(&chat->answer);
    if (chat->painting) fclose(chat->painting);
    free(chat->painted);
    free(chat->figures);
    generate_options_free(&chat->options);
}

int chat_main(int argc, char **argv)
{
    static struct chat chat; /* the lists of its options make it large */
    struct error err;
    int status = CLIENT_OK;
    chat = (struct chat){.terminal = terminal_of(stdout), .is_edited = lines_are_edited()};
    if (parse(&chat, argc, argv, &err)) {
        status = client_fail_local(&err);
    } else if (run(&chat, &err)) {
        status = client_fail(&err);
    }
    free_chat(&chat);
    return status;
}
