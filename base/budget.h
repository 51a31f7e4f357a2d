/* Bytes that many threads take from one limit and give back: what requests may occupy together. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>

#include "base/error.h"

struct budget { /* locked inside */
    atomic_size_t used_bytes;
    size_t limit_bytes;
    const char *option; /* that sets the limit, for the refusal */
};

void budget_init(struct budget *budget, size_t limit_bytes, const char *option);

/* Errors: ERR_EXHAUSTED so many bytes are not left; ERR_ARGUMENT they never will be. Nothing is
 * taken then. */
int budget_take(struct budget *budget, size_t bytes, struct error *err);
void budget_give(struct budget *budget, size_t bytes);

size_t budget_used(struct budget *budget);
