/* The chat template that conversations are written with: that of --chat-template or of --tokenizer,
 * otherwise the target's, which its group brings, and the draft's only where the target has none.
 * Engines' threads bring it, any thread takes it. Locked inside. */
#pragma once

#include "base/threads/monitor.h"
#include "model/tokenizer/chat_template.h"
#include "proto/target_wire.h"

struct served_chat_options {
    const char *file;      /* --chat-template; NULL = none */
    const char *tokenizer; /* folder of --tokenizer; NULL = it is not given, or synthetic */
    const char *draft;     /* folder of the draft; NULL = there is none, or it is synthetic */
};

struct served_chat {
    struct monitor monitor;
    struct chat_source own; /* what the options name, otherwise the draft's */
    bool has_own_text;      /* the options name the template, so that the target's is not used */
    bool has_own_special;   /* the same of the texts of special tokens */
    bool awaits_target;     /* no group has been there, and what is used depends on it */
    struct chat_source used;
    struct chat_template *chat; /* of `used`; NULL = there is none, or it cannot be read */
    struct error refusal;       /* why it cannot be read; code 0 = it can */
};

/* Reads what the options name. Errors: those of chat_source_read and chat_template_make. */
int served_chat_open(struct served_chat *served, const struct served_chat_options *options,
                     struct error *err);
/* Accepts one that is zeroed. */
void served_chat_close(struct served_chat *served);

/* A group has been reached. What cannot be read, or differs from what the draft or the options
 * have, is told in the log. */
void served_chat_take_target(struct served_chat *served,
                             const struct target_conventions *conventions);

/* The template; the caller calls chat_template_close. Errors: ERR_UNSUPPORTED there is none, or why
 * it cannot be read; ERR_UNAVAILABLE it is not known yet. */
int served_chat_get(struct served_chat *served, struct chat_template **chat, struct error *err);
bool served_chat_has(struct served_chat *served);
