/* Tokens with their log-probabilities: lines of a table for people, objects for programs. */
#pragma once

#include <jansson.h>

#include "client/terminal.h"
#include "proto/generation_wire.h"

/* One token; its text is whole characters. */
struct token_line {
    int32_t id;
    const char *text;
    size_t text_len;
    bool has_logprob;
    float logprob;
    int n_top;
    const struct token_alternative *top; /* [n_top], best first */
};

/* Lines of a token of a text that was read, and of token i of a message of generated ones. */
struct token_line token_line_of_score(const struct score_token *token);
struct token_line token_line_of(const struct generate_tokens *tokens, int i);

/* has_best: the lines have alternatives. position counts the lines of the table. */
void token_table_head(const struct terminal *terminal, bool has_best);
void token_table_line(const struct terminal *terminal, int position, const struct token_line *line);

/* A new object {id, text, logprob, top}; NULL = no memory. */
json_t *token_line_json(const struct token_line *line);
