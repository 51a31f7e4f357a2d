/* Folders that are removed when all that use them have ended, and those of starts that were killed
 * at the next start. Their locks, which every program that is started then inherits, say that they
 * are in use.
 *
 * The folders where mpirun keeps its session and the ranks their shared memory. Both remain when
 * they are killed, so they get folders of their own, which are removed when all have ended;
 * deploy/mpirun/common does the same. */
#pragma once

enum { SCRATCH_PATH_BYTES = 256 };

struct scratch {
    char memory[SCRATCH_PATH_BYTES], session[SCRATCH_PATH_BYTES];
};

/* Makes the two. -1 with errno: one cannot be made. */
int scratch_open(struct scratch *scratch);
/* Removes both with all that is in them. */
void scratch_remove(const struct scratch *scratch);

/* A folder for sockets, which only this user can enter: at most 107 bytes with a short name in it.
 * -1 with errno: it cannot be made. */
int scratch_open_folder(char path[SCRATCH_PATH_BYTES]);
void scratch_remove_folder(const char *path);
