/* Read-only views of files, and files that are replaced as a whole. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A mapped file. A zeroed view is valid to close. */
struct file_view {
    const uint8_t *data;
    size_t size_bytes;
    int64_t mtime_ns; /* when it was last written */
    uint32_t owner;   /* user id */
    uint32_t mode;    /* permission bits */
};

enum file_advice {
    FILE_WANT_HUGE, /* large pages, where the file system has them */
    FILE_DROP /* the pages leave this process; they stay in the page cache and come back when read */
};

/* Errors: ERR_NOT_FOUND no such file, ERR_IO cannot be opened or mapped, ERR_FORMAT not a regular
 * file. An empty file gives data = NULL. */
int file_map(struct file_view *view, const char *path, struct error *err);
void file_unmap(struct file_view *view);

/* A hint: what the kernel cannot do is left undone. */
void file_advise(const struct file_view *view, enum file_advice advice);

/* True when four fifths of a mapping have huge pages: reading weights through small ones costs a quarter
 * of the bandwidth, so a fifth of them costs 5 %. Reads a byte of every 2 MiB. False where the kernel
 * does not say. */
bool file_is_huge(const struct file_view *view);

/* Reads a whole text file, adds a NUL after it; the caller frees *text. Errors: as file_map, and
 * ERR_FORMAT when it is longer than limit_bytes. */
int file_read_text(char **text, size_t *len, const char *path, size_t limit_bytes,
                   struct error *err);

/* Writes data[len] beside path and renames it to path: a reader finds the old file or the new one,
 * never a part. Errors: ERR_ARGUMENT the path is too long, ERR_IO. */
int file_replace(const char *path, const char *data, size_t len, struct error *err);
