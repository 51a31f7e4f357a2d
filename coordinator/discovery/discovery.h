/* Finds the target groups: asks every address of --target who it is (Describe), again and again as
 * long as no coordinator uses it, and puts the ranks of one group together. So a group that comes
 * back under other addresses is found, and one that was not there before as well. Owned by one
 * thread. */
#pragma once

#include <stdint.h>

#include "base/limits.h"
#include "coordinator/discovery/target_list.h"
#include "proto/target_wire.h"

struct certificates; /* access/certificates.h */
struct discovery;

struct discovery_options {
    const struct target_list *list;    /* copied */
    struct certificates *certificates; /* TLS to the workers; NULL = plain; kept */
    const char *server_name; /* that theirs must have in place of their addresses'; kept */
    const char *group_key;   /* shown to them; NULL = none */
};

/* Says of a group at this address that it is in use. is_known: its ranks see from a key or a
 * certificate who calls. Returns ERR_UNAVAILABLE. */
int discovery_tell_busy(const char *address, bool is_known, struct error *err);

/* Errors: ERR_NO_MEMORY. */
int discovery_open(struct discovery **discovery, const struct discovery_options *options,
                   struct error *err);
void discovery_close(struct discovery *discovery);

/* The name that the ranks' certificates must have in place of their addresses': the options', or,
 * where --target has names alone, the first of them. NULL = none. */
const char *discovery_server_name(const struct discovery *discovery);

/* A whole group, in the order of its ranks. */
struct found_group {
    int n_ranks;
    char addresses[RANKS_MAX][TARGET_ADDRESS_BYTES];
    struct target_description description; /* of rank 0 */
};

/* Asks those whose turn it is, and handles answers until there is news or deadline_us passes. */
void discovery_run(struct discovery *discovery, int64_t deadline_us);

/* A whole group that can be used by what its ranks have said just now; its addresses are not asked
 * again until discovery_give_back. False: there is none. */
bool discovery_take(struct discovery *discovery, struct found_group *group);

/* The group's addresses are asked again in pause_us, as long as --target still leads to them.
 * is_lost: it served, or almost did, so names are looked up often for a while. */
void discovery_give_back(struct discovery *discovery, const struct found_group *group,
                         int64_t pause_us, bool is_lost);

/* Why there is no group to take; 0: an answer is still to come. Errors: ERR_ARGUMENT the list can
 * never work as it is; others as long as something may still change. */
int discovery_why(const struct discovery *discovery, struct error *err);
