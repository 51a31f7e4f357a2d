/* The side of `outrider link` that measures. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

struct link_probe {
    int n_rounds;
    double round_trip_us, least_us, p90_us; /* of a small message: median, least, 90 of 100 */
    double bytes_per_second;                /* of large messages, one way; 0 = not measured */
};

/* quick: a few round trips and no bandwidth, to see that there is a link.
 * Errors: those of link_connect, link_send and link_receive, with the address. */
int link_probe(struct link_probe *out, const char *address, int timeout_ms, bool is_quick,
               struct error *err);
