/* Files that are there whole or not at all. */
#include "base/file_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, WRITE_MOST = 1 << 30 };

static int complain(struct error *err, const char *what, const char *path, int code)
{
    return error_set(err, ERR_IO, "cannot %s %s: %s", what, path, strerror(code));
}

static int write_piece(int fd, const struct file_piece *piece, const char *path, struct error *err)
{
    const uint8_t *data = piece->data;
    for (size_t done = 0; done < piece->bytes;) {
        size_t n = piece->bytes - done < WRITE_MOST ? piece->bytes - done : WRITE_MOST;
        ssize_t got = pwrite(fd, data + done, n, (off_t)(piece->offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return complain(err, "write", path, got ? errno : ENOSPC);
        done += (size_t)got;
    }
    return 0;
}

static int fill(int fd, const char *path, const struct file_piece *pieces, int n_pieces,
                size_t size_bytes, struct error *err)
{
    int rc = 0;
    int code = size_bytes ? posix_fallocate(fd, 0, (off_t)size_bytes) : 0;
    if (code) return complain(err, "find room for", path, code);
    for (int i = 0; i < n_pieces; i++) {
        TRY(write_piece(fd, &pieces[i], path, err));
    }
    if (fsync(fd)) rc = complain(err, "bring to the disk", path, errno);
out:
    return rc;
}

/* The new name lasts only when its folder is on the disk too. Best effort: some file systems refuse. */
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

int file_write_whole(const char *path, const struct file_piece *pieces, int n_pieces,
                     size_t size_bytes, struct error *err)
{
    char partial[PATH_BYTES];
    if (snprintf(partial, sizeof partial, "%s.XXXXXX", path) >= (int)sizeof partial) {
        return complain(err, "write", path, ENAMETOOLONG);
    }
    int fd = mkstemp(partial);
    if (fd < 0) return complain(err, "write", path, errno);
    int rc = fill(fd, path, pieces, n_pieces, size_bytes, err);
    if (close(fd) && !rc) rc = complain(err, "write", path, errno);
    if (!rc && rename(partial, path)) rc = complain(err, "write", path, errno);
    if (rc) {
        unlink(partial);
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
