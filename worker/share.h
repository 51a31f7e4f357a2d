/* Exchange of bytes among the ranks of a group, also where they have nothing but NCCL. */
#pragma once

#include "model/backend/backend.h"
#include "worker/group.h"

/* Every rank gives n_bytes at mine and gets size * n_bytes at all, in the order of ranks. All ranks
 * call it, and each waits for the slowest. Errors: those of comm_exchange and of the backend. */
int share_bytes(const struct group *group, struct backend *be, const void *mine, void *all,
                size_t n_bytes, struct error *err);

/* As share_bytes, by the sum of the backend, which every group has: each rank adds its bytes to the
 * zeros of the others. */
int share_by_sum(struct comm *comm, struct backend *be, const void *mine, void *all, size_t n_bytes,
                 struct error *err);
