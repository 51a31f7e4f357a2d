/* The command line of `outrider generate`. */
#pragma once

#include <argp.h>
#include <stdbool.h>

#include "client/input.h"
#include "proto/generation_wire.h"

/* Zero it before; free with generate_options_free. */
struct generate_options {
    const char *address;
    const char *argument, *file; /* of the prompt */
    int timeout_s;               /* 0 = none */
    bool is_json, is_quiet, no_echo;
    struct generate_request request; /* but for the prompt */
    const char *stops[GENERATE_STOPS_MAX];
    struct token_ids ids; /* --prompt-ids; none: the prompt is text */
};

/* The options that say how to generate, for every command that asks for it; they fill options->request. Input
 * of the parser: struct generate_parse, its options after generate_options_init. */
struct generate_parse {
    struct generate_options *options;
    struct error *err;
};
extern const struct argp generate_request_argp;
void generate_options_init(struct generate_options *options);

/* Sets one of these options by its long name, or a short one of one letter, as the command line would.
 * Errors: ERR_ARGUMENT also when there is none of that name, or it takes no value. */
int generate_options_set(struct generate_options *options, const char *name, const char *value,
                         struct error *err);

/* Whether they go together, once all are set. Errors: ERR_ARGUMENT. */
int generate_options_check(const struct generate_options *options, struct error *err);

/* Errors: ERR_ARGUMENT. */
int generate_options_parse(struct generate_options *options, int argc, char **argv,
                           struct error *err);
void generate_options_free(struct generate_options *options);
