/* The words of --target: where the ranks of all groups can be called, in any order. A word is an
 * address, a name that DNS knows, or the pods of a LeaderWorkerSet group. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

enum { TARGET_ADDRESS_BYTES = 256, TARGET_WORDS_MAX = 256, TARGET_NAMES_MAX = 16 };

/* A name all of whose addresses are ranks, such as that of a headless service. */
struct target_name {
    char name[TARGET_ADDRESS_BYTES];
    int port;
};

struct target_list {
    char addresses[TARGET_WORDS_MAX][TARGET_ADDRESS_BYTES];
    struct target_name names[TARGET_NAMES_MAX];
    int n_addresses, n_names;
};

/* Adds the words of "ADDRESS,dns:NAME:PORT,lws:PORT,...". lws:PORT means the pods of the group that
 * this process's own pod leads, as LWS_LEADER_ADDRESS and LWS_GROUP_SIZE in the environment say:
 * pod i of the group is called as its leader with -i after the first part of the name. Errors:
 * ERR_ARGUMENT a word that is none, an address that is there already, too many. */
int target_list_add(struct target_list *list, const char *words, struct error *err);

/* Adds one address. Errors: ERR_ARGUMENT. */
int target_list_add_address(struct target_list *list, const char *address, struct error *err);
