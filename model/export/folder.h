/* A folder that is written as a whole: every file has a temporary name, NAME.partial, until all are
 * complete and on the disk; then they get their names in the order in which they were written. If
 * the file that readers look for first (config.json) is written last, an export that breaks off at
 * any moment cannot be taken for a whole one. Owned by one thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

enum { EXPORT_NAME_BYTES = 64 };

struct export_folder {
    const char *path;
    bool is_made; /* by us: removed again when the export fails */
    bool is_complete;
    char (*names)[EXPORT_NAME_BYTES];
    size_t n_names, capacity;
    FILE *file; /* being written: the last of names */
};

/* Makes the folder, or takes one that is empty. Keeps path. Errors: ERR_ARGUMENT it holds
 * something; ERR_IO it cannot be made, or is no folder. */
int export_folder_open(struct export_folder *folder, const char *path, struct error *err);
/* Without export_folder_publish before it, whatever was written is removed. */
void export_folder_close(struct export_folder *folder);

/* Errors: ERR_IO the disk has less than `bytes` free; both are named. */
int export_folder_needs(const struct export_folder *folder, uint64_t bytes, struct error *err);

/* One file at a time: begin, write any number of times, end, which waits for the disk.
 * Errors: ERR_IO names file and reason; ERR_NO_MEMORY. */
int export_file_begin(struct export_folder *folder, const char *name, struct error *err);
int export_file_write(struct export_folder *folder, const void *data, size_t n_bytes,
                      struct error *err);
int export_file_end(struct export_folder *folder, struct error *err);
/* All three at once. */
int export_file_whole(struct export_folder *folder, const char *name, const void *data,
                      size_t n_bytes, struct error *err);

/* Gives every file its name. Errors: ERR_IO. */
int export_folder_publish(struct export_folder *folder, struct error *err);
