/* The parts of an answer as JSON text. What one answer repeats in every chunk is made once. */
#pragma once

#include "base/text/buffer.h"
#include "coordinator/openai/logprobs.h"
#include "coordinator/openai/request/request.h"

/* Parts that the chunks of a stream, or the whole answer, have in common. */
struct openai_shape {
    enum openai_kind kind;
    bool is_stream, includes_usage;
    struct buffer head; /* {"id": ..., "object": ..., ..., "system_fingerprint": ... */
};

struct openai_usage {
    int64_t prompt_tokens, completion_tokens, cached_tokens, accepted, rejected;
};

/* Content of a choice in one chunk, or in the whole answer. */
struct openai_said {
    int index;
    const char *text;
    size_t len;
    const struct openai_logprobs *prompt_logprobs, *logprobs; /* NULL = none */
    const char *finish_reason;                                /* NULL = it goes on */
    bool is_first;                                            /* of a stream */
};

/* name: of the model. Errors of all: ERR_NO_MEMORY. */
int openai_shape_open(struct openai_shape *shape, const struct openai_request *request,
                      const char *id, const char *name, const char *fingerprint, int64_t created_s,
                      struct error *err);
/* Accepts a zeroed one. */
void openai_shape_close(struct openai_shape *shape);

/* A choice as an item of "choices", without a comma. */
int openai_shape_choice(const struct openai_shape *shape, struct buffer *out,
                        const struct openai_said *said, struct error *err);
/* {"prompt_tokens": ...} */
int openai_shape_usage(struct buffer *out, const struct openai_usage *usage, struct error *err);
/* data: {...}, with its end: one choice, and `outrider` where that is not NULL. */
int openai_shape_chunk(const struct openai_shape *shape, struct buffer *out,
                       const struct openai_said *said, const json_t *outrider, struct error *err);
/* The chunk with the usage, and the end of the stream. */
int openai_shape_end(const struct openai_shape *shape, struct buffer *out,
                     const struct openai_usage *usage, struct error *err);

/* Make the value of "outrider" for the tokens of a round, for where all tokens of a text came from
 * (each an enum token_origin), and for a text that has ended; NULL: no memory. */
json_t *openai_shape_round(const struct generate_tokens *tokens);
json_t *openai_shape_origins(const uint8_t *list, size_t n);
json_t *openai_shape_summary(const struct generate_summary *summary);
