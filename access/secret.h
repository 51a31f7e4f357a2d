/* Secrets that a caller shows. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Whether given[len] is the secret, in time that does not depend on how much of it is right. given
 * NULL: it is not. */
bool secret_is(const char *given, size_t len, const char *secret);
