/* Exchange of bytes among the ranks of a group. */
#include "worker/share.h"

#include <stdlib.h>
#include <string.h>

/* The bytes of one rank's part of a sum, and the floats that hold them. All sums have the same
 * size, because NCCL connects the ranks at the first use of a size's algorithm and lets them wait
 * for each other only for a limited time then: a small exchange right after the ranks have joined
 * makes all later ones quick to begin. */
enum { CHUNK_BYTES = 4096, CHUNK_FLOATS = CHUNK_BYTES / 2 };

/* Two bytes are a whole number below 2^16, which fp32 holds and adds to zero exactly. */
static void to_floats(float *out, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned value = bytes[i];
        out[i / 2] += (float)(i % 2 ? value << 8 : value);
    }
}

static void to_bytes(uint8_t *out, const float *floats, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned value = (unsigned)floats[i / 2];
        out[i] = (uint8_t)(i % 2 ? value >> 8 : value);
    }
}

/* The ranks' chunks of n bytes from byte `at` on. sums: [size][CHUNK_FLOATS] of the backend, host:
 * as many floats. */
static int share_chunk(struct comm *comm, struct backend *be, float *sums, float *host,
                       const uint8_t *mine, uint8_t *all, size_t n_bytes, size_t at,
                       struct error *err)
{
    int rc = 0;
    size_t n_left = n_bytes - at, n = n_left < CHUNK_BYTES ? n_left : CHUNK_BYTES;
    size_t n_floats = (size_t)comm->size * CHUNK_FLOATS;
    struct slice_sums slices = {.data = sums, .n_parts = 1};
    memset(host, 0, n_floats * sizeof *host);
    to_floats(host + (size_t)comm->rank * CHUNK_FLOATS, mine + at, n);
    be->ops->upload(be, sums, host, n_floats * sizeof *host);
    TRY(be->ops->tree_sum(be, comm, &slices, comm->size, CHUNK_FLOATS, err));
    const float *found = be->ops->read(be, sums, n_floats);
    if (!found) {
        rc = error_set(err, ERR_UNAVAILABLE, "the device is lost while ranks compare weights");
        goto out;
    }
    for (int rank = 0; rank < comm->size; rank++) {
        to_bytes(all + (size_t)rank * n_bytes + at, found + (size_t)rank * CHUNK_FLOATS, n);
    }
out:
    return rc;
}

int share_by_sum(struct comm *comm, struct backend *be, const void *mine, void *all, size_t n_bytes,
                 struct error *err)
{
    int rc = 0;
    float *sums = NULL, *host = NULL;
    size_t row = CHUNK_FLOATS * sizeof *sums;
    size_t bytes = (size_t)be->ops->capacity(be, comm->size) * row;
    TRY(mem_array(&host, (size_t)comm->size * CHUNK_FLOATS, sizeof *host, err));
    TRY(backend_buffer(be, &sums, bytes, err));
    for (size_t at = 0; at < n_bytes; at += CHUNK_BYTES) {
        TRY(share_chunk(comm, be, sums, host, mine, all, n_bytes, at, err));
    }
out:
    if (sums) be->ops->buffer_close(be, sums, bytes);
    free(host);
    return rc;
}

int share_bytes(const struct group *group, struct backend *be, const void *mine, void *all,
                size_t n_bytes, struct error *err)
{
    if (group_has_exchange(group)) return comm_exchange(group->comm, mine, all, n_bytes, err);
    return share_by_sum(group->comm, be, mine, all, n_bytes, err);
}
