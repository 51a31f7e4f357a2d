/* Files that exist as a whole or not at all: written under another name, synced to the disk, and
 * then renamed. */
#pragma once

#include <stddef.h>

#include "base/error.h"

struct file_piece {
    const void *data;
    size_t bytes, offset; /* offsets ascend; gaps are filled with zeros */
};

/* Makes or replaces the file at path, which only this user can read and write. If two processes do
 * this at once, both succeed and one of the two files remains. The space is reserved first, so that
 * a full disk is noticed at once.
 * Errors: ERR_IO, with the path; nothing is left behind then. */
int file_write_whole(const char *path, const struct file_piece *pieces, int n_pieces,
                     size_t size_bytes, struct error *err);

/* Makes a folder and those above it; folders that exist are left as they are.
 * Errors: ERR_IO. */
int file_make_folder(const char *path, struct error *err);
