/* A body of /v1/completions or /v1/chat/completions as requests of ours. Names, defaults and errors
 * are those of OpenAI's API (platform.openai.com/docs/api-reference), and of vLLM's for what only
 * local models have. */
#pragma once

#include <jansson.h>

#include "coordinator/openai/request/values.h"
#include "proto/generation_wire.h"

enum openai_kind { OPENAI_COMPLETION, OPENAI_CHAT };

enum {
    OPENAI_PROMPTS_MAX = 256,
    OPENAI_COMPLETION_TOKENS = 16, /* max_tokens of a completion that does not say */
    OPENAI_IGNORED_BYTES = 256
};

/* One of the prompts: a text, or ids when text is NULL. */
struct openai_prompt {
    const char *text;
    size_t len;
    const int32_t *ids;
    int n_ids;
};

struct openai_limits {
    const char *model; /* the only one that there is */
    int n_stop;        /* stop strings */
    int n;             /* texts of one prompt */
};

struct openai_request {
    enum openai_kind kind;
    struct generate_request generate; /* without a prompt */
    bool scores_only;                 /* max_tokens 0: the prompt comes back, and nothing else */
    int n_prompts;                    /* of a completion */
    const struct openai_prompt *prompts;
    json_t *messages, *template_values; /* of a chat, borrowed; template_values may be NULL */
    bool add_generation_prompt;
    bool is_stream, includes_usage;
    bool tells_outrider;                /* "outrider" was there: the answer has one, too */
    char ignored[OPENAI_IGNORED_BYTES]; /* fields that mean nothing here, for a debug line */
};

/* Each message is an object with a role. Its content, if there is one, is a text or parts of it. */
int openai_check_messages(struct openai_reading *r, const json_t *messages);
/* Messages that were checked, as templates want them: without keys that are null or an empty list
 * of calls, and with content in parts joined to one text where the template takes none. The caller
 * calls json_decref. Errors: ERR_NO_MEMORY. */
int openai_plain_messages(const json_t *messages, bool takes_parts, json_t **plain,
                          struct error *err);

/* Reads a request, which is valid as long as r->root and r->arena. Errors: ERR_ARGUMENT, with
 * *r->wrong. */
int openai_request_read(struct openai_request *request, enum openai_kind kind,
                        const struct openai_limits *limits, struct openai_reading *r);
/* The checks of generate_request_check. Errors: ERR_ARGUMENT, with *r->wrong. */
int openai_request_check(const struct openai_request *request, struct openai_reading *r);
/* Sentences about a request of ours begin with the field's name: *r->err becomes an ERR_ARGUMENT
 * that blames the field. Of other sentences nothing changes. Returns the error's code. */
int openai_request_blame(struct openai_reading *r, enum openai_kind kind);
