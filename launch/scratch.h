/* The folders where mpirun keeps its session and the ranks their shared memory. Both remain when
 * they are killed, so they get folders of their own, which are removed when all have ended;
 * deploy/mpirun/common does the same. */
#pragma once

enum { SCRATCH_PATH_BYTES = 256 };

struct scratch {
    char memory[SCRATCH_PATH_BYTES], session[SCRATCH_PATH_BYTES];
};

/* Makes the two, and removes those of starts that were killed. Their locks, which mpirun and the
 * ranks inherit, say that they are in use. -1 with errno: one cannot be made. */
int scratch_open(struct scratch *scratch);
/* Removes both with all that is in them. */
void scratch_remove(const struct scratch *scratch);
