/* The command line of `outrider generate`. */
#pragma once

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

/* Errors: ERR_ARGUMENT. */
int generate_options_parse(struct generate_options *options, int argc, char **argv,
                           struct error *err);
void generate_options_free(struct generate_options *options);
