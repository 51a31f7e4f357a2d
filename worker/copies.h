/* Checks that all ranks of a group have the same weights. Each rank digests every byte that it
 * reads while it loads them (model/digest.h). But ranks read different parts of the model, so
 * damage in a part that one rank alone reads would never be noticed. Therefore ranks with different
 * copies of the model read for each other: of each rank's part, a rank with another copy (the
 * witness) digests its own copy of that part. Ranks that read the same files need no witness: a
 * file is the same if its size, its times and its inode are, and so a folder on a shared file
 * system is read once by each rank and no more. */
#pragma once

#include "base/limits.h"
#include "model/model.h"
#include "worker/group.h"

struct copies {
    unsigned witnessed; /* bit r: this rank is the witness of rank r */
};

/* The rank that is the witness of `rank`, where stamps[n] (checkpoint_stamp) tell the copies of the
 * ranks apart; -1: all ranks read the same files. Ranks with equal stamps have different witnesses
 * as far as there are enough. */
int copies_witness(const uint64_t *stamps, int n, int rank);

/* Finds out, with all other ranks, whose witness this rank is. Called after they have joined and
 * before they load. Errors: those of share_bytes. */
int copies_plan(struct copies *copies, const struct group *group, const struct checkpoint *ck,
                struct backend *be, struct error *err);

/* Compares what all ranks have loaded, and sets the model's fingerprint, which is the same on all
 * ranks. model was opened with copies->witnessed.
 * Errors: ERR_FORMAT two ranks have different bytes of a tensor: all ranks fail with the same
 * sentence; those of share_bytes; ERR_NO_MEMORY. */
int copies_check(const struct copies *copies, const struct group *group,
                 const struct checkpoint *ck, struct backend *be, const struct model *model,
                 uint64_t *fingerprint, struct error *err);
