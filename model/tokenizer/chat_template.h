/* How a model wants a conversation to be written: the Jinja template that comes with it, rendered
 * as transformers' apply_chat_template does. Immutable after open; several threads may render at a
 * time. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text/buffer.h"

struct chat_template;

/* Limits of one rendering. Steps are those of model/jinja/jinja.h; so many take about a
 * second. */
enum {
    CHAT_TEMPLATE_STEPS = 4000000,
    CHAT_TEMPLATE_DEPTH = 200,
    CHAT_TEMPLATE_MEMORY_BYTES = 128 << 20
};

enum { CHAT_TEMPLATE_PATH_BYTES = 4096, CHAT_TEMPLATE_SPECIAL_MAX = 7 };

/* A template that has not been parsed yet, and what its folder says beside it. */
struct chat_source {
    char *text; /* owned; NULL = there is no template */
    size_t len;
    char origin[CHAT_TEMPLATE_PATH_BYTES]; /* the file that it comes from */
    json_t *special; /* owned; texts of special tokens by name (bos_token, ...); NULL = none */
};

/* Reads the template: `file`, which may be a GGUF file, where that is not NULL; otherwise
 * FOLDER/chat_template.jinja, or "chat_template" of FOLDER/chat_template.json or of
 * FOLDER/tokenizer_config.json, the first that is there. Of several named ones "default" is taken.
 * The texts of special tokens (bos_token, ...) come from tokenizer_config.json, or from
 * special_tokens_map.json beside it. `folder` may be a GGUF file, which has all of this; or NULL:
 * there is none. Free *source also after an error.
 * Errors: ERR_NOT_FOUND no such `file`; ERR_IO; ERR_FORMAT it is not a template. */
int chat_source_read(struct chat_source *source, const char *folder, const char *file,
                     struct error *err);
/* True if both are one template with the same texts of special tokens. */
bool chat_source_equal(const struct chat_source *a, const struct chat_source *b);
void chat_source_free(struct chat_source *source);

/* *chat is NULL where the source has no template. The template and a reference of source->special
 * are the chat's own, so that the source may be freed.
 * Errors: ERR_FORMAT it is not a template; ERR_UNSUPPORTED it uses something that model/jinja does
 * not have. Both name file, construct and line. */
int chat_template_make(struct chat_template **chat, const struct chat_source *source,
                       struct error *err);
/* Both together. Errors: those of both. */
int chat_template_open(struct chat_template **chat, const char *folder, const char *file,
                       struct error *err);
/* Another holder, who closes it as well. Any thread. */
struct chat_template *chat_template_ref(struct chat_template *chat);
/* With the last holder it is gone. Accepts NULL. */
void chat_template_close(struct chat_template *chat);

/* The file that it was read from. */
const char *chat_template_origin(const struct chat_template *chat);

/* True if the template understands messages whose content is a list of {"type": "text", "text":
 * ...}. Otherwise such a list has to be made one text first, because it would be printed as Python
 * prints lists. */
bool chat_template_takes_parts(const struct chat_template *chat);

/* Replaces text's content. messages: an array of objects; more: an object of further values
 * (enable_thinking, ...), or NULL, which hide special tokens of the same name. Without a value in
 * `more` tools and documents are None. now_s: seconds since 1970, for strftime_now, which prints
 * the time of UTC.
 * Errors: ERR_ARGUMENT the template refuses the conversation and says why; ERR_EXHAUSTED it takes
 * more than a rendering may; ERR_NO_MEMORY. text is empty then. */
int chat_template_render(const struct chat_template *chat, json_t *messages,
                         bool add_generation_prompt, json_t *more, int64_t now_s,
                         struct buffer *text, struct error *err);
