/* Files that exist as a whole or not at all. */
#include "base/system/file_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

enum { PATH_BYTES = 4096, BLOCK_BYTES = 2 << 20 };

static int complain(struct error *err, const char *what, const char *path, int code)
{
    return error_set(err, ERR_IO, "cannot %s %s: %s", what, path, strerror(code));
}

static int write_block(int fd, const uint8_t *block, size_t bytes, size_t offset, const char *path,
                       struct error *err)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pwrite(fd, block + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return complain(err, "write", path, got ? errno : ENOSPC);
        done += (size_t)got;
    }
    return 0;
}

/* Collects bytes [begin, begin + bytes) of the file from the pieces. *first is the index of the
 * first piece to look at; it is moved on for the next block. */
static void gather(uint8_t *block, size_t begin, size_t bytes, const struct file_piece *pieces,
                   int n_pieces, int *first)
{
    size_t end = begin + bytes;
    memset(block, 0, bytes);
    for (int i = *first; i < n_pieces && pieces[i].offset < end; i++) {
        const struct file_piece *piece = &pieces[i];
        size_t from = piece->offset > begin ? piece->offset : begin;
        size_t to = piece->offset + piece->bytes < end ? piece->offset + piece->bytes : end;
        if (from < to) {
            memcpy(block + (from - begin), (const uint8_t *)piece->data + (from - piece->offset),
                   to - from);
        }
        if (piece->offset + piece->bytes <= end) *first = i + 1;
    }
}

/* Writes in whole blocks, at multiples of their size: a page cache that has large pages then uses
 * them for this file. */
static int fill(int fd, const char *path, const struct file_piece *pieces, int n_pieces,
                size_t size_bytes, struct error *err)
{
    int rc = 0, first = 0;
    uint8_t *block = NULL;
    int code = size_bytes ? posix_fallocate(fd, 0, (off_t)size_bytes) : 0;
    if (code) return complain(err, "find room for", path, code);
    TRY(mem_pages(&block, BLOCK_BYTES, err));
    for (size_t at = 0; at < size_bytes; at += BLOCK_BYTES) {
        size_t n = size_bytes - at < BLOCK_BYTES ? size_bytes - at : BLOCK_BYTES;
        gather(block, at, n, pieces, n_pieces, &first);
        TRY(write_block(fd, block, n, at, path, err));
    }
    if (fsync(fd)) rc = complain(err, "sync", path, errno);
out:
    mem_pages_free(block, BLOCK_BYTES);
    return rc;
}

/* The new name survives a crash only when its folder is on the disk too. Best effort, because some
 * file systems refuse to sync a folder. */
static void sync_folder(const char *path)
{
    char folder[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    memcpy(folder, path, len);
    folder[len] = '\0';
    int fd = open(slash ? (len ? folder : "/") : ".", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

/* Opens a file without a name, which vanishes if the process dies while it writes; *partial is ""
 * then. On a file system without such files, it opens one beside path. */
static int open_new(const char *path, char partial[PATH_BYTES])
{
    char folder[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    int len = slash ? (int)(slash - path) + 1 : 0;
    snprintf(folder, sizeof folder, "%.*s.", len, path);
    partial[0] = '\0';
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0) return fd;
    if (snprintf(partial, PATH_BYTES, "%s.XXXXXX", path) >= PATH_BYTES) {
        partial[0] = '\0';
        errno = ENAMETOOLONG;
        return -1;
    }
    return mkstemp(partial);
}

/* Gives a name to a file that has none. It is a name of its own, because a link cannot replace the
 * file at path, while a rename can. */
static int give_name(int fd, const char *path, char partial[PATH_BYTES], struct error *err)
{
    char self[64];
    if (partial[0]) return 0;
    int len = snprintf(partial, PATH_BYTES, "%s.%ld", path, (long)getpid());
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (len >= PATH_BYTES) return complain(err, "write", path, ENAMETOOLONG);
    unlink(partial); /* of a process with the same pid that died at this point */
    if (linkat(AT_FDCWD, self, AT_FDCWD, partial, AT_SYMLINK_FOLLOW) == 0) return 0;
    int code = errno;
    partial[0] = '\0';
    return complain(err, "write", path, code);
}

/* Before it has its name, so that nobody can put another file in its place meanwhile. */
static void give(int fd, struct file_owner *owner)
{
    owner->was_given = fchown(fd, owner->user, owner->group) == 0 && fchmod(fd, owner->mode) == 0;
}

int file_write_whole(const char *path, const struct file_piece *pieces, int n_pieces,
                     size_t size_bytes, struct file_owner *owner, struct error *err)
{
    char partial[PATH_BYTES];
    int fd = open_new(path, partial);
    if (fd < 0) return complain(err, "write", path, errno);
    int rc = fill(fd, path, pieces, n_pieces, size_bytes, err);
    if (!rc && owner) give(fd, owner);
    if (!rc) rc = give_name(fd, path, partial, err);
    if (close(fd) && !rc) rc = complain(err, "write", path, errno);
    if (!rc && rename(partial, path)) rc = complain(err, "write", path, errno);
    if (rc) {
        if (partial[0]) unlink(partial);
    } else {
        sync_folder(path);
    }
    return rc;
}

/* True when there is a folder of this name now. */
static bool make_one(const char *path)
{
    struct stat st;
    if (mkdir(path, 0700) == 0) return true;
    int code = errno;
    bool is_there = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    errno = code;
    return is_there;
}

int file_make_folder(const char *path, struct error *err)
{
    char part[PATH_BYTES];
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof part) return complain(err, "make the folder", path, ENOENT);
    memcpy(part, path, len + 1);
    for (size_t i = 1; i < len; i++) {
        if (part[i] != '/') continue;
        part[i] = '\0';
        if (!make_one(part)) return complain(err, "make the folder", part, errno);
        part[i] = '/';
    }
    return make_one(part) ? 0 : complain(err, "make the folder", path, errno);
}
