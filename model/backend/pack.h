/* Packing a matrix: the threads that do it, and the file that can save the work (pack_cache.h). The
 * caller chooses the packed form, so another form only needs another fill function. Packed memory
 * is written once, each run of blocks by the thread that will probably read it. */
#pragma once

#include "model/backend/backend.h"
#include "model/backend/pack_cache.h"

/* Packs blocks first_block .. end_block into data. Called by every member of the team. */
typedef void pack_fn(const void *arg, void *data, int first_block, int end_block);

struct pack_request {
    const char *form; /* name and version of the packed form: another layout, another name */
    const struct matrix_source *source;
    size_t bytes;
    int n_blocks;      /* equal portions of work */
    int block_columns; /* of the matrix, in a block */
    int n_folds;       /* equal runs of blocks, each of which the threads divide among them */
    pack_fn *fill;
    const void *arg; /* of fill */
};

/* Adds to source->digests what packing the source would add, without packing it; be->cache may know
 * it. Errors: ERR_NO_MEMORY. */
int pack_digest(struct backend *be, struct team *team, const struct matrix_source *source,
                struct error *err);

/* *data: the packed matrix, 64-byte aligned. It comes from be->cache (then it is read-only) or is
 * packed into a buffer of the backend, whose memory must be host memory. team: the backend's.
 * Released with pack_close. Errors: ERR_NO_MEMORY. */
int pack_open(struct backend *be, struct team *team, void **data,
              const struct pack_request *request, struct error *err);

/* Accepts NULL data. */
void pack_close(struct backend *be, void *data, size_t bytes);
