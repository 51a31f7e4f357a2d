/* Mapped files that become shorter while they are in use. Reading what was cut off raises SIGBUS,
 * which ends a process without a word, and `cp new old` cuts a file before it writes. Every mapping
 * of base/system/file.h is guarded: the process ends with a sentence that names the file, or, where
 * the file can be done without, zeros take its place and a flag says that it is lost. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { FILE_GUARDS_MAX = 1024, FILE_GUARD_EXIT = 72 };

/* data[bytes] is a mapping of the file at `path`, from its beginning; path is copied. Any thread.
 * More than FILE_GUARDS_MAX at a time are not guarded. */
void file_guard_add(const void *data, size_t bytes, const char *path);
/* Before it is unmapped. Does nothing for data that is not guarded. Any thread. */
void file_guard_remove(const void *data);

/* For a file that can be done without: when a part of it is missing, all of data reads as zeros
 * from then on and *is_lost is set. is_lost is kept until file_guard_remove. False: data is not
 * guarded. */
bool file_guard_set_flag(const void *data, atomic_bool *is_lost);
