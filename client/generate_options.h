/* The command line of `outrider generate`, and the part of it that every command has which sends
 * requests. */
#pragma once

#include <stdbool.h>

#include "base/text/option_table.h"
#include "client/connection.h"
#include "client/input.h"
#include "proto/generation_wire.h"

/* Zero it before; free with generate_options_free. */
struct generate_options {
    struct connection connection;
    const char *argument, *file;              /* of the prompt */
    const char *prediction, *prediction_file; /* NULL = none */
    int timeout_s;                            /* 0 = none */
    bool is_json, is_quiet, has_stats, no_echo, is_check;
    struct token_ids ids;  /* of --prompt-ids; empty: the prompt is text */
    const char *tokenizer; /* a folder, for --ban; NULL = none */
    int n_ban_texts;
    const char *ban_texts[GENERATE_BANS_MAX];

    struct generate_request request; /* without the prompt; points to the lists that follow */
    const char *stops[GENERATE_STOPS_MAX];
    int32_t stop_ids[GENERATE_STOP_IDS_MAX];
    struct token_bias biases[GENERATE_BIASES_MAX];
    struct token_ban bans[GENERATE_BANS_MAX];
    int32_t ban_ids[GENERATE_BANS_MAX][GENERATE_BAN_TOKENS_MAX];
};

/* The options that say how to generate, for every command that sends requests. They fill the
 * request of a struct generate_options, their fields, which went through generate_options_init. */
extern const struct option_row request_rows[];
/* More of them, which say how many texts there are and what an answer shows; for commands that hand
 * answers on. */
extern const struct option_row answer_rows[];
void generate_options_init(struct generate_options *options);

/* Makes a copy's request point to the copy's own lists. */
void generate_options_own(struct generate_options *copy);

/* Sets one of these options as the command line would; name is its long name, or its letter.
 * Errors: ERR_ARGUMENT, also when there is no such option or it takes no value. */
int generate_options_set(struct generate_options *options, const char *name, const char *value,
                         struct error *err);

/* Bans the sequence; one that is banned already is left out. Errors: ERR_ARGUMENT there are too
 * many, or it is too long; its text begins with the option's name. */
int generate_options_ban(struct generate_options *options, const char *option,
                         const struct token_ids *ids, struct error *err);

/* Checks that the options go together, once all are set. Errors: ERR_ARGUMENT. */
int generate_options_check(const struct generate_options *options, struct error *err);

/* Errors: ERR_ARGUMENT. */
int generate_options_parse(struct generate_options *options, int argc, char **argv,
                           struct error *err);
void generate_options_free(struct generate_options *options);
