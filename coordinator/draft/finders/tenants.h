/* Numbers the owners of a finder's texts, which are the holders of API keys. Texts without a key
 * have one number together. Owned by the engine thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grant; /* access/keys.h */
struct sequence;

/* Zero it, then set is_shared. */
struct tenants {
    bool is_shared;        /* all tenants are one */
    struct grant **grants; /* [n] of API keys, held; NULL: texts without one */
    size_t n, room;
};

void tenants_free(struct tenants *tenants);

/* The number of the sequence's tenant, from 1 on; a new one is added. A tenant is the holder of a
 * key (access/keys.h): another key under the same name is another tenant, unless the name was
 * listed all the time. 0: there is no memory for it. */
uint64_t tenants_number(struct tenants *tenants, const struct sequence *seq);
