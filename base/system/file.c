/* Read-only views of files, and files that are replaced as a whole. */
#include "base/system/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/file_guard.h"

enum { PATH_BYTES = 4096 };

static int open_regular(const char *path, int *fd, struct stat *st, struct error *err)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for its writer */
    if (*fd < 0) {
        int code = ERR_IO;
        if (errno == ENOENT) code = ERR_NOT_FOUND;
        if (errno == EACCES || errno == EPERM) code = ERR_ARGUMENT; /* it will be so again */
        return error_set(err, code, "cannot open %s: %s", path, strerror(errno));
    }
    if (fstat(*fd, st)) {
        return error_set(err, ERR_IO, "cannot look at %s: %s", path, strerror(errno));
    }
    if (!S_ISREG(st->st_mode)) {
        return error_set(err, ERR_FORMAT, "%s is not a regular file", path);
    }
    return 0;
}

int file_map(struct file_view *view, const char *path, struct error *err)
{
    int fd = -1;
    struct stat st = {0};
    *view = (struct file_view){0};
    int rc = open_regular(path, &fd, &st, err);
    size_t size = (size_t)st.st_size;
    if (!rc && size) {
        void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            rc = error_set(err, ERR_IO, "cannot map %s: %s", path, strerror(errno));
        } else {
            *view = (struct file_view){.data = data, .size_bytes = size};
            file_guard_add(data, size, path);
        }
    }
    if (!rc) {
        view->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        view->ctime_ns = (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec;
        view->inode = (uint64_t)st.st_ino;
        view->owner = st.st_uid;
        view->mode = st.st_mode & 07777;
    }
    if (fd >= 0) close(fd);
    return rc;
}

/* munmap and madvise want a pointer that is not const. */
static void *plain(const struct file_view *view)
{
    union {
        const uint8_t *in;
        void *out;
    } data = {.in = view->data};
    return data.out;
}

void file_unmap(struct file_view *view)
{
    file_guard_remove(view->data);
    if (view->data) munmap(plain(view), view->size_bytes);
    *view = (struct file_view){0};
}

void file_advise(const struct file_view *view, enum file_advice advice)
{
    static const int advices[] = {[FILE_WANT_HUGE] = MADV_HUGEPAGE,
                                  [FILE_DROP] = MADV_DONTNEED,
                                  [FILE_IN_PARTS] = MADV_RANDOM,
                                  [FILE_WHOLE] = MADV_SEQUENTIAL};
    if (view->data) madvise(plain(view), view->size_bytes, advices[advice]);
}

/* The kernel follows a hint only as far as it would read ahead in any case, 128 KiB by default. */
void file_expect(const uint8_t *data, size_t len)
{
    enum { PIECE = 128 << 10 };
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), end = (uintptr_t)data + len;
    for (uintptr_t at = (uintptr_t)data & ~(page - 1); at < end; at += PIECE) {
        posix_madvise((void *)at, end - at < PIECE ? end - at : PIECE, POSIX_MADV_WILLNEED);
    }
}

/* Where less than a page is between two runs, every page holds some of a run, and one hint for all
 * of them names the same pages. */
void file_expect_runs(const uint8_t *first, size_t stride, size_t len, int n)
{
    if (n > 0 && stride - len < (size_t)sysconf(_SC_PAGESIZE)) {
        file_expect(first, stride * (size_t)(n - 1) + len);
        return;
    }
    for (int i = 0; i < n; i++) {
        file_expect(first + (size_t)i * stride, len);
    }
}

/* FilePmdMapped, in bytes, of the mapping that begins at `data`; 0 if it is not found. */
static size_t huge_bytes(const uint8_t *data)
{
    char line[512], begin[32];
    bool is_ours = false;
    unsigned long kb = 0;
    int len = snprintf(begin, sizeof begin, "%lx-", (unsigned long)(uintptr_t)data);
    FILE *file = fopen("/proc/self/smaps", "re");
    while (file && fgets(line, sizeof line, file)) {
        bool is_head = line[0] >= '0' && line[0] <= 'f' && !(line[0] >= 'A' && line[0] <= 'Z');
        if (is_head) is_ours = strncmp(line, begin, (size_t)len) == 0;
        if (is_ours && sscanf(line, "FilePmdMapped: %lu kB", &kb) == 1) break;
    }
    if (file) fclose(file);
    return (size_t)kb << 10;
}

bool file_is_huge(const struct file_view *view)
{
    static const size_t huge_page = (size_t)2 << 20;
    size_t whole = view->size_bytes / huge_page * huge_page;
    volatile uint8_t sum = 0; /* the reads must not be optimised away */
    for (size_t at = 0; at < whole; at += huge_page) {
        sum = (uint8_t)(sum + view->data[at]);
    }
    return whole && huge_bytes(view->data) >= whole / 10 * 8;
}

int file_read_text(char **text, size_t *len, const char *path, size_t limit_bytes,
                   struct error *err)
{
    int fd = -1;
    struct stat st = {0};
    size_t size = 0, got = 0;
    char *buf = NULL;
    *text = NULL;
    *len = 0;
    int rc = 0;
    TRY(open_regular(path, &fd, &st, err));
    size = (size_t)st.st_size;
    if (size > limit_bytes) {
        rc = error_set(err, ERR_FORMAT, "%s has %zu bytes, more than the %zu allowed", path, size,
                       limit_bytes);
        goto out;
    }
    buf = malloc(size + 1);
    if (!buf) {
        rc = error_set(err, ERR_NO_MEMORY, "no memory for the %zu bytes of %s", size, path);
        goto out;
    }
    while (got < size) {
        ssize_t n = read(fd, buf + got, size - got);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            rc = error_set(err, ERR_IO, "cannot read %s: %s", path,
                           n < 0 ? strerror(errno) : "it became shorter");
            goto out;
        }
        got += (size_t)n;
    }
    buf[size] = '\0';
    *text = buf;
    *len = size;
    buf = NULL;
out:
    if (fd >= 0) close(fd);
    free(buf);
    return rc;
}

static int write_part(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static int write_all(int fd, const struct file_part *parts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (write_part(fd, parts[i].data, parts[i].len)) return -1;
    }
    return fsync(fd);
}

int file_replace_parts(const char *path, const struct file_part *parts, size_t n, struct error *err)
{
    char partial[PATH_BYTES];
    int len = snprintf(partial, sizeof partial, "%s.%ld-%llx.partial", path, (long)getpid(),
                       (unsigned long long)clock_now_ns()); /* pids in containers may be equal */
    if (len >= (int)sizeof partial) {
        return error_set(err, ERR_ARGUMENT, "the path %.100s... is too long", path);
    }
    int rc = 0, fd = open(partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return error_set(err, ERR_IO, "cannot write %s: %s", path, strerror(errno));
    if (write_all(fd, parts, n)) {
        rc = error_set(err, ERR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    if (close(fd) && !rc) rc = error_set(err, ERR_IO, "cannot write %s: %s", path, strerror(errno));
    if (!rc && rename(partial, path)) {
        rc = error_set(err, ERR_IO, "cannot rename %s to %s: %s", partial, path, strerror(errno));
    }
    if (rc) unlink(partial);
    return rc;
}

int file_replace(const char *path, const char *data, size_t len, struct error *err)
{
    const struct file_part whole = {data, len};
    return file_replace_parts(path, &whole, 1, err);
}
