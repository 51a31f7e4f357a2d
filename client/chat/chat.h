/* A conversation in the terminal. For the files of this folder. */
#pragma once

#include "client/chat/conversation.h"
#include "client/chat/lines.h"
#include "client/chat/started.h"
#include "client/generate_options.h"
#include "client/terminal.h"

enum { CHAT_NAME_BYTES = 256 };

struct chat {
    struct generate_options options; /* of every request */
    const char *model, *system;      /* as the command line says; NULL = nothing */
    bool no_history, is_plain;       /* is_plain: no chat template, or not wanted */
    bool has_colors;                 /* of guesses */
    bool has_no_guesses;             /* /speculation off */

    struct started_words words;
    struct started started;
    struct server server;
    struct lines *lines;
    struct terminal terminal;
    bool is_edited; /* with a terminal on both sides */
    char name[CHAT_NAME_BYTES];
    int context_limit;

    struct conversation conversation;
    struct buffer failed; /* the message that had no answer, for /retry */
    struct buffer answer; /* the text of the last one */
    char *painted;        /* the same with guesses */
    size_t painted_len;
    FILE *painting; /* writes painted */
    char *figures;  /* of the last answer, for /stats; NULL = there is none */
    size_t figures_len;
    bool ends_with_line, paint_ends_with_line;
};

/* Says the text as the user, and shows the answer. Errors: those of answer_get that end the
 * program; what does not is told. */
int chat_say(struct chat *chat, const char *text, size_t len, struct error *err);

/* Shows the last answer again, with or without guesses. */
void chat_show_again(struct chat *chat);

/* Obeys a line that begins with "/". *is_over: it was /quit. Errors: those of chat_say; a command
 * that cannot be done is told. */
int chat_command(struct chat *chat, const char *line, bool *is_over, struct error *err);

/* Tells a failure in a line of the standard error, and goes on. */
void chat_tell(const struct error *err);
