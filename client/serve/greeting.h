/* The lines that `outrider serve` prints when it serves: the address, and how to ask there. */
#pragma once

#include <stdbool.h>

#include "client/serve/options.h"

enum { GREETING_BYTES = 256 };

struct greeting {
    char http[GREETING_BYTES], address[GREETING_BYTES]; /* of HTTP and gRPC, as the log has them */
    char model[GREETING_BYTES];
    const char *served_name; /* or NULL */
    bool has_tls, has_keys;
};

void greeting_open(struct greeting *greeting, const struct serve_options *options);
/* On the standard output. */
void greeting_print(const struct greeting *greeting);
