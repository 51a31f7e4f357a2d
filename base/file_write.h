/* Files that are there whole or not at all: written under another name, brought to the disk, renamed. */
#pragma once

#include <stddef.h>

#include "base/error.h"

struct file_piece {
    const void *data;
    size_t bytes, offset; /* offsets ascend; what lies between is zero */
};

/* Makes or replaces path, readable and writable for this user alone; two processes at once both succeed,
 * and one of their files stays. The space is asked for first, so that a full disk is found at once.
 * Errors: ERR_IO, with the path; nothing is left behind then. */
int file_write_whole(const char *path, const struct file_piece *pieces, int n_pieces,
                     size_t size_bytes, struct error *err);

/* Makes a folder and those above it; is content with what is there. Errors: ERR_IO. */
int file_make_folder(const char *path, struct error *err);
