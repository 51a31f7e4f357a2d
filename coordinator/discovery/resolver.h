/* Looks names up again and again, on a thread of its own, because the system's resolver may take
 * many seconds to answer. Locked inside. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/discovery/target_list.h"

struct resolver;

/* Copies the names. Errors: ERR_NO_MEMORY. */
int resolver_open(struct resolver **resolver, const struct target_name *names, int n_names,
                  struct error *err);
/* Returns at once, though a look-up may be under way: its thread frees what is left. Accepts
 * NULL. */
void resolver_close(struct resolver *resolver);

/* How long to wait from one look-up of a name to the next. */
void resolver_set_pause(struct resolver *resolver, int64_t pause_us);

/* The addresses that are known of a name, with its port: "10.1.0.7:7071" or "[fd00::7]:7071". A
 * name that cannot be looked up at the moment keeps the addresses that it had. */
struct resolved {
    char addresses[TARGET_WORDS_MAX][TARGET_ADDRESS_BYTES];
    int n;
    char why[ERROR_TEXT_BYTES]; /* the last look-up failed; "" = it did not */
    uint64_t version;           /* grows with each change; 0 = nothing is known yet */
};

/* Copies what is known, if that is newer than resolved->version; true: it was. */
bool resolver_get(struct resolver *resolver, int name, struct resolved *resolved);
