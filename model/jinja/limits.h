/* How much of the machine a template may take. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Limits of one rendering. */
struct jinja_limits {
    int64_t steps;       /* nodes of the template that are evaluated, and 64 bytes of copied text */
    int depth;           /* of expressions, blocks and macros within each other */
    size_t memory_bytes; /* of values and of the text, each */
};
