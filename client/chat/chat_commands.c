/* Commands that may be typed in place of a message. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "client/chat/chat.h"
#include "client/client.h"

static const char help[] =
    "/system TEXT         what the model is told first; without TEXT: nothing\n"
    "/temperature T       0 = always the best token; \"default\": as the model says\n"
    "/seed N              the same seed, the same answers; \"off\": another one each time\n"
    "/undo                forget the last message and its answer\n"
    "/retry               ask the last message again\n"
    "/save FILE           the conversation as JSON\n"
    "/load FILE           go on with a conversation that was saved\n"
    "/speculation on|off  with or without guesses\n"
    "/stats               all figures of the last answer\n"
    "/quit                end; so does Ctrl-D\n"
    "A message of several lines begins with \"\"\" and ends with \"\"\", or has a \\ at the end "
    "of\n"
    "each line but the last. //TEXT is a message that begins with /. Ctrl-G shows and hides the\n"
    "guesses, Ctrl-C stops an answer.\n";

typedef int command_fn(struct chat *chat, const char *value, struct error *err);

static int show_help(struct chat *chat, const char *value, struct error *err)
{
    (void)chat, (void)value;
    fputs(help, stdout);
    return client_flush(err);
}

static int set_system(struct chat *chat, const char *value, struct error *err)
{
    return conversation_set_system(&chat->conversation, value, err);
}

static int set_temperature(struct chat *chat, const char *value, struct error *err)
{
    if (strcmp(value, "default") == 0) {
        chat->options.request.sampling.temperature = GENERATE_OPEN;
        return 0;
    }
    return generate_options_set(&chat->options, "temperature", value, err);
}

static int set_seed(struct chat *chat, const char *value, struct error *err)
{
    if (strcmp(value, "off") == 0) {
        chat->options.request.has_seed = false;
        return 0;
    }
    return generate_options_set(&chat->options, "seed", value, err);
}

static int undo(struct chat *chat, const char *value, struct error *err)
{
    (void)value;
    bool had_answer = conversation_ends_with(&chat->conversation, "assistant");
    if (had_answer) conversation_drop(&chat->conversation);
    if (conversation_drop(&chat->conversation) || had_answer) return 0;
    return error_set(err, ERR_ARGUMENT, "/undo: there is nothing to forget");
}

static int retry(struct chat *chat, const char *value, struct error *err)
{
    struct conversation *c = &chat->conversation;
    struct buffer text = {0};
    int rc = 0;
    (void)value;
    if (chat->failed.len) {
        TRY(buffer_append(&text, chat->failed.data, chat->failed.len, err));
        chat->failed.len = 0;
    } else if (c->n >= 2 && conversation_ends_with(c, "assistant") &&
               strcmp(c->messages[c->n - 2].role, "user") == 0) {
        conversation_drop(c);
        TRY(buffer_append(&text, c->messages[c->n - 1].content, c->messages[c->n - 1].content_len,
                          err));
        conversation_drop(c);
    } else {
        return error_set(err, ERR_ARGUMENT, "/retry: there is no message to ask again");
    }
    rc = chat_say(chat, text.len ? (const char *)text.data : "", text.len, err);
out:
    buffer_free(&text);
    return rc;
}

static int save(struct chat *chat, const char *value, struct error *err)
{
    if (!*value) return error_set(err, ERR_ARGUMENT, "/save: name a file");
    return conversation_save(&chat->conversation, value, err);
}

static int load(struct chat *chat, const char *value, struct error *err)
{
    if (!*value) return error_set(err, ERR_ARGUMENT, "/load: name a file");
    return conversation_load(&chat->conversation, value, err);
}

static int set_speculation(struct chat *chat, const char *value, struct error *err)
{
    bool is_on = strcmp(value, "on") == 0;
    if (!is_on && strcmp(value, "off") != 0) {
        return error_set(err, ERR_ARGUMENT, "/speculation: expected on or off");
    }
    chat->has_no_guesses = !is_on;
    return 0;
}

static int show_stats(struct chat *chat, const char *value, struct error *err)
{
    (void)value;
    if (!chat->figures) return error_set(err, ERR_ARGUMENT, "/stats: there is no answer yet");
    fwrite(chat->figures, 1, chat->figures_len, stdout);
    return client_flush(err);
}

static const struct {
    const char *name;
    command_fn *run;
    bool ends; /* its failures end the program, because they are those of an answer */
} commands[] = {{"help", show_help, false},
                {"system", set_system, false},
                {"temperature", set_temperature, false},
                {"seed", set_seed, false},
                {"undo", undo, false},
                {"retry", retry, true},
                {"save", save, false},
                {"load", load, false},
                {"speculation", set_speculation, false},
                {"stats", show_stats, false}};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

int chat_command(struct chat *chat, const char *line, bool *is_over, struct error *err)
{
    const char *word = line + 1;
    size_t len = strcspn(word, " \t");
    const char *value = word + len + strspn(word + len, " \t");
    *is_over = len == 4 && memcmp(word, "quit", 4) == 0;
    if (*is_over) return 0;
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strlen(commands[i].name) != len || memcmp(word, commands[i].name, len) != 0) continue;
        int rc = commands[i].run(chat, value, err);
        bool is_told = rc && rc != ERR_CANCELLED && (!commands[i].ends || rc == ERR_ARGUMENT);
        if (is_told) chat_tell(err);
        return is_told ? 0 : rc;
    }
    error_set(err, ERR_ARGUMENT, "'%.60s' is not a command; /help lists them", line);
    chat_tell(err);
    return 0;
}
