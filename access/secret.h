/* Secrets that a caller shows. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Compares given[len] with the secret, in time that does not depend on how much of it is right.
 * given NULL: false. */
bool secret_is(const char *given, size_t len, const char *secret);
