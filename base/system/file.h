/* Read-only views of files, and files that are replaced as a whole. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A mapped file. A zeroed view can be unmapped. If the file becomes shorter while it is mapped, the
 * process ends with a sentence when it reads what is missing (base/system/file_guard.h). */
struct file_view {
    const uint8_t *data;
    size_t size_bytes;
    int64_t mtime_ns; /* when it was last written; programs can set it */
    int64_t ctime_ns; /* when the file or anything about it last changed */
    uint64_t inode;
    uint32_t owner; /* user id */
    uint32_t mode;  /* permission bits */
};

enum file_advice {
    FILE_WANT_HUGE, /* large pages, where the file system has them */
    FILE_DROP,      /* the pages leave this process, but stay in the page cache */
    FILE_IN_PARTS,  /* nothing is read ahead but what file_expect names */
    FILE_WHOLE      /* from the first byte to the last, so much is read ahead */
};

/* Errors: ERR_NOT_FOUND no such file, ERR_ARGUMENT one that we may not read, ERR_IO cannot be
 * opened or mapped, ERR_FORMAT not a regular file. An empty file gives data = NULL. */
int file_map(struct file_view *view, const char *path, struct error *err);
void file_unmap(struct file_view *view);

/* A hint: nothing happens where the kernel cannot follow it. */
void file_advise(const struct file_view *view, enum file_advice advice);

/* A hint that data[len] of a mapped file will be read soon: it begins to be read, in the pages that
 * hold it and no others. */
void file_expect(const uint8_t *data, size_t len);
/* As file_expect, for n runs of len bytes that begin `stride` bytes apart. */
void file_expect_runs(const uint8_t *first, size_t stride, size_t len, int n);

/* True if huge pages back at least four fifths of a mapping. Reading weights through small pages
 * costs a quarter of the bandwidth, so one fifth of small pages costs 5 %. Reads one byte of every
 * 2 MiB. False where the kernel does not tell. */
bool file_is_huge(const struct file_view *view);

/* Reads a whole text file and adds a NUL after it; the caller frees *text.
 * Errors: as file_map, and ERR_FORMAT when the file is longer than limit_bytes. */
int file_read_text(char **text, size_t *len, const char *path, size_t limit_bytes,
                   struct error *err);

/* Writes data[len] to a new file beside path and renames it to path, so that a reader finds either
 * the old file or the new one, and never a part of it.
 * Errors: ERR_ARGUMENT the path is too long, ERR_IO. */
int file_replace(const char *path, const char *data, size_t len, struct error *err);

/* Bytes of a file that is written from several places. */
struct file_part {
    const void *data;
    size_t len;
};
/* As file_replace; the file is the parts, one after the other. */
int file_replace_parts(const char *path, const struct file_part *parts, size_t n,
                       struct error *err);
