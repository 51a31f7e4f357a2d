/* One of the texts that a request asked for. Texts grow at the same time, but they are shown one
 * after the other: what comes for a text before its turn is kept. */
#pragma once

#include "base/text/buffer.h"
#include "client/figures/figures.h"
#include "client/generate_options.h"
#include "client/terminal.h"

/* A zeroed one is valid to close. */
struct choice {
    int index;
    const struct generate_options *options;
    struct terminal terminal; /* its stream is the kept one's until the text has its turn */
    FILE *kept;
    char *kept_text;
    size_t kept_len;
    bool has_begun;      /* something of it was shown or kept */
    bool ends_with_line; /* the last character was a newline */
    bool has_head;       /* of its table of tokens */
    int n_lines;         /* the number of the table's next line */
    bool has_summary;
    char *summary; /* the block of lines, until its turn */
    size_t summary_len;
    /* For --json. */
    struct buffer text;
    struct token_ids ids;
    json_t *steps, *logprobs, *figures;
};

/* keeps options. shown: as on this terminal. Errors: ERR_NO_MEMORY. */
int choice_open(struct choice *choice, int index, const struct generate_options *options,
                const struct terminal *shown, struct error *err);
void choice_close(struct choice *choice);

/* From now on the text is shown as it comes; what was kept is shown at once. */
void choice_take_turn(struct choice *choice, FILE *out);

/* Text, marks or table lines, as the options say. Errors: ERR_IO. */
int choice_show(struct choice *choice, const struct generate_tokens *tokens, struct error *err);

/* Keeps the summary's lines, as on this terminal. Errors: ERR_NO_MEMORY. */
int choice_keep_summary(struct choice *choice, const struct generate_summary *summary,
                        const struct terminal *shown, struct error *err);

/* Add a message or a summary for --json; choice_json has what was added. Errors: ERR_NO_MEMORY. */
int choice_add(struct choice *choice, const struct generate_tokens *tokens, struct error *err);
int choice_add_summary(struct choice *choice, const struct generate_summary *summary,
                       struct error *err);
/* A new object; NULL = no memory. */
json_t *choice_json(const struct choice *choice);
