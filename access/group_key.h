/* The key of a group: a secret that its ranks and the coordinators that use it have in common, and
 * without which nobody calls a rank. It is shown as API keys are, so a plain connection between
 * hosts shows it to everybody on the way. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { GROUP_KEY_BYTES = 257, GROUP_KEY_CHARS_MIN = 16 };

struct group_key {
    char text[GROUP_KEY_BYTES]; /* "" = there is none */
};

/* Reads the key from the first line of the file; path NULL: from OUTRIDER_GROUP_KEY in the
 * environment, where it may be missing. Errors: ERR_FORMAT others can read or write the file, or it
 * holds no key; those of file_read_text. */
int group_key_open(struct group_key *key, const char *path, struct error *err);

/* True if group_key_open would read one. */
bool group_key_is_given(const char *path);

/* NULL where there is none. */
const char *group_key_text(const struct group_key *key);

/* An rpc_authenticator's admit, whose state is a struct group_key. Errors: ERR_UNAUTHENTICATED. */
int group_key_admit(void *state, const char *authorization, size_t len, void **caller,
                    struct error *err);
