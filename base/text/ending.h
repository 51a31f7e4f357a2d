/* Endings of names. */
#pragma once

#include <stdbool.h>
#include <string.h>

/* True if the name ends so, or is nothing else. */
static inline bool ending_is(const char *name, const char *ending)
{
    size_t len = strlen(name), ending_len = strlen(ending);
    return len >= ending_len && strcmp(name + len - ending_len, ending) == 0;
}
