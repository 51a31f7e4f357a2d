/* Packing a matrix: the memory it goes to, the threads that do it, and the file that may spare the work.
 * The packed form is the caller's; so a form of another arithmetic needs only another fill.
 *
 * Packed memory is written once: it comes in huge pages that nothing has touched, and every thread
 * fills its own run of blocks. */
#pragma once

#include "base/team.h"
#include "model/pack_cache.h"

struct matrix_source;

/* Packs blocks first_block .. end_block into data. Called by every member of the team. */
typedef void pack_fn(void *arg, void *data, int member, int first_block, int end_block);

struct pack_request {
    const char *form; /* name and version of the packed form: another layout, another name */
    const struct matrix_source *source;
    size_t bytes;
    int n_blocks; /* equal portions of work */
    pack_fn *fill;
    void *arg;
};

/* *data: the packed matrix, 4096-byte aligned, from the cache (then read-only) or packed; cache NULL:
 * always packed. Released with pack_close and the same cache. Errors: ERR_NO_MEMORY. */
int pack_open(void **data, const struct pack_request *request, struct team *team,
              struct pack_cache *cache, struct error *err);

/* Accepts NULL data. */
void pack_close(void *data, size_t bytes, const struct pack_cache *cache);
