/* Files that exist as a whole or not at all: written under another name, synced to the disk, and
 * then renamed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"

/* Whose a file is to be, and who may use it. */
struct file_owner {
    uid_t user;
    gid_t group;
    mode_t mode;
    bool was_given; /* set: this user could make it so */
};

struct file_piece {
    const void *data;
    size_t bytes, offset; /* offsets ascend; gaps are filled with zeros */
};

/* Makes or replaces the file at path. Only this user can read and write it, or it is given to
 * `owner`, if that is not NULL and this user may do so. If two processes do
 * this at once, both succeed and one of the two files remains. The space is reserved first, so that
 * a full disk is noticed at once.
 * Errors: ERR_IO, with the path; no part of the file remains then. */
int file_write_whole(const char *path, const struct file_piece *pieces, int n_pieces,
                     size_t size_bytes, struct file_owner *owner, struct error *err);

/* Makes a folder and those above it; folders that exist are left as they are.
 * Errors: ERR_IO. */
int file_make_folder(const char *path, struct error *err);
