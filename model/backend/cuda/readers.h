/* Threads that read rows of files into pinned memory while a model is loaded, because one thread
 * reads less than a disk, or memory that holds the file, can give. Owned by the engine thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/backend/backend.h"

struct readers;

/* Reads one slot to `out` and adds what it has read of each part to digests[MATRIX_PARTS_MAX]. Runs
 * on several threads at once. */
typedef void readers_read(const void *arg, int slot, void *out, uint64_t *digests);

/* Slots first .. first + n, each to `stride` bytes of out. */
struct readers_job {
    readers_read *read;
    const void *arg;
    int first, n;
    uint8_t *out;
    size_t stride;
};

/* As many threads as the process has CPUs, at most 8; idle ones sleep. Errors: team_open's. */
int readers_open(struct readers **readers, struct error *err);
/* Accepts NULL. */
void readers_close(struct readers *readers);

/* Reads all slots and adds the digests of n_parts parts to digests, unless that is NULL. */
void readers_run(struct readers *readers, const struct readers_job *job, uint64_t *digests,
                 int n_parts);
