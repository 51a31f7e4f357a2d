/* The key in an authorization header. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { BASIC_BYTES_MAX = 1200 }; /* of USER:KEY; a multiple of 3 */

struct authorization {
    const char *key; /* [len], in the header or in basic */
    size_t len;
    char basic[BASIC_BYTES_MAX];
};

/* True if the header is "Basic ...", which a browser sends by itself once it has asked its user.
 * NULL: there is none. */
bool authorization_is_basic(const char *header, size_t len);

/* Reads "Bearer KEY", or "Basic BASE64" of USER:KEY with any user (RFC 7617). The header is
 * kept; NULL: there is none. Errors: ERR_UNAUTHENTICATED, with what to send. */
int authorization_read(struct authorization *a, const char *header, size_t len, struct error *err);
