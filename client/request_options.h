/* The parts of generate_request_argp: each parser takes the keys that it knows, and returns
 * ARGP_ERR_UNKNOWN for the others. */
#pragma once

#include "client/generate_options.h"

enum request_option {
    OPT_REQUEST_FIRST = 512, /* commands that use the parser have their own keys below it */
    OPT_STOP,
    OPT_STOP_ID,
    OPT_IGNORE_EOS,
    OPT_MIN_TOKENS,
    OPT_CHOICES,
    OPT_LOGPROBS,
    OPT_WITH_PROMPT,
    OPT_NO_BOS,
    OPT_NO_SPECIAL,
    OPT_SHOW_SPECIAL,
    OPT_TEMPERATURE,
    OPT_TOP_K,
    OPT_TOP_P,
    OPT_MIN_P,
    OPT_SEED,
    OPT_REPETITION,
    OPT_PRESENCE,
    OPT_FREQUENCY,
    OPT_BIAS,
    OPT_BAN_IDS,
    OPT_STRATEGY,
    OPT_THRESHOLD,
    OPT_RULE,
    OPT_FULL_ROWS,
    OPT_PRIORITY,
    OPT_CLIENT,
    OPT_DEADLINE
};

/* edit_options.c: what changes the target's distribution, and which tokens end the text. */
error_t edit_options_parse(int key, const char *arg, struct generate_parse *parse);
