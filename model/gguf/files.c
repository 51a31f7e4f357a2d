/* The files of a GGUF model, put together. Only the first file of several has metadata besides
 * split.*, and each has a table of its own tensors. */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "model/gguf/internal.h"

enum { PATH_BYTES = 4096, FILES_MOST = 4096, SPLIT_TAIL_BYTES = 20 };

static const char tail_form[] = "-%05d-of-%05d.gguf";

bool gguf_is_file(const char *path)
{
    char magic[4] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for its writer */
    if (fd < 0) return false;
    ssize_t n = read(fd, magic, sizeof magic);
    close(fd);
    return n == (ssize_t)sizeof magic && memcmp(magic, "GGUF", sizeof magic) == 0;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Returns the number of files that a path's numbers announce, and the path's length before them; 0:
 * it has no numbers. */
static int split_count(const char *path, int *prefix_len)
{
    char again[2 * SPLIT_TAIL_BYTES];
    int no = 0, count = 0;
    size_t len = strlen(path);
    if (len <= SPLIT_TAIL_BYTES) return 0;
    const char *tail = path + len - SPLIT_TAIL_BYTES;
    if (sscanf(tail, tail_form, &no, &count) != 2 || no < 1 || count < no) return 0;
    snprintf(again, sizeof again, tail_form, no, count);
    *prefix_len = (int)(len - SPLIT_TAIL_BYTES);
    return strcmp(again, tail) == 0 ? count : 0;
}

static int map_file(struct gguf *gguf, const char *path, struct error *err)
{
    struct gguf_file *file = &gguf->files[gguf->n_files++];
    int rc = 0;
    file->name = strdup(last_part(path));
    if (!file->name) return error_set(err, ERR_NO_MEMORY, "no memory for a file name");
    TRY(file_map(&file->view, path, err));
    file->is_mapped = true;
out:
    return rc;
}

/* Checks what a file says about the split that it is part `no` of. */
static int check_split(const struct gguf_file *file, const char *path, int no, int count,
                       int n_tensors, struct error *err)
{
    int own_no = no, own_count = count, own_tensors = n_tensors, rc = 0;
    TRY(gguf_entry_int(file, path, "split.no", 0, FILES_MOST, &own_no, err));
    TRY(gguf_entry_int(file, path, "split.count", 0, FILES_MOST, &own_count, err));
    TRY(gguf_entry_int(file, path, "split.tensors.count", 0, INT32_MAX, &own_tensors, err));
    if (own_count == 0) own_count = 1; /* a model that was never split */
    if (own_count != count || own_no != no) {
        return error_set(err, ERR_FORMAT,
                         "%s: \"split.no\" = %d and \"split.count\" = %d say that it is file %d of "
                         "%d, but its name says %d of %d; the files of a split model keep their "
                         "names, which end in -00001-of-0000N.gguf",
                         path, own_no, own_count, own_no + 1, own_count, no + 1, count);
    }
    if (own_tensors != n_tensors) {
        rc = error_set(err, ERR_FORMAT,
                       "%s: \"split.tensors.count\" = %d, but the %d files have %d tensors; they "
                       "are not of one model",
                       path, own_tensors, count, n_tensors);
    }
out:
    return rc;
}

/* The path of file i of `count`; the path that was named where it has no numbers. */
static int path_of(const struct gguf *gguf, int i, int count, int prefix_len, char path[PATH_BYTES],
                   struct error *err)
{
    int len = snprintf(path, PATH_BYTES, "%.*s", count ? prefix_len : PATH_BYTES, gguf->origin);
    if (count && len < PATH_BYTES) {
        len += snprintf(path + len, (size_t)(PATH_BYTES - len), tail_form, i + 1, count);
    }
    if (len < PATH_BYTES) return 0;
    return error_set(err, ERR_ARGUMENT, "the path %.100s... is too long", gguf->origin);
}

/* The number in the names of the files, 0: there is none. */
static int count_files(const struct gguf *gguf, int *prefix_len, int *named, struct error *err)
{
    *named = split_count(gguf->origin, prefix_len);
    if (*named <= FILES_MOST) return 0;
    return error_set(err, ERR_UNSUPPORTED, "%s is of a model in %d files; the most is %d",
                     gguf->origin, *named, FILES_MOST);
}

static int map_files(struct gguf *gguf, struct error *err)
{
    char path[PATH_BYTES];
    int prefix_len = 0, named = 0, rc = 0;
    TRY(count_files(gguf, &prefix_len, &named, err));
    int count = named ? named : 1;
    TRY(mem_array(&gguf->files, (size_t)count, sizeof *gguf->files, err));
    for (int i = 0; i < count; i++) {
        TRY(path_of(gguf, i, named, prefix_len, path, err));
        rc = map_file(gguf, path, err);
        if (rc == ERR_NOT_FOUND && named) {
            rc = error_set(err, rc, "%s is missing, one of the %d files of the model", path, count);
        }
        if (rc) goto out;
    }
out:
    return rc;
}

static int parse_files(struct gguf *gguf, struct error *err)
{
    char path[PATH_BYTES];
    size_t n_tensors = 0;
    int prefix_len = 0, named = 0, rc = 0, count = (int)gguf->n_files;
    TRY(count_files(gguf, &prefix_len, &named, err));
    for (int i = 0; i < count; i++) {
        struct gguf_file *file = &gguf->files[i];
        TRY(path_of(gguf, i, named, prefix_len, path, err));
        TRY(gguf_parse(file, path, err));
        file_advise(&file->view, FILE_IN_PARTS);
        n_tensors += file->n_tensors;
    }
    for (int i = 0; i < count; i++) {
        TRY(path_of(gguf, i, named, prefix_len, path, err));
        TRY(check_split(&gguf->files[i], path, i, count, (int)n_tensors, err));
    }
out:
    return rc;
}

static int tensor_by_name(const void *left, const void *right)
{
    const struct gguf_tensor *a = left, *b = right;
    return strcmp(a->name, b->name);
}

static int gather_tensors(struct gguf *gguf, struct error *err)
{
    size_t n = 0;
    int rc = 0;
    for (size_t i = 0; i < gguf->n_files; i++) {
        n += gguf->files[i].n_tensors;
    }
    TRY(mem_array(&gguf->tensors, n, sizeof *gguf->tensors, err));
    for (size_t i = 0; i < gguf->n_files; i++) {
        const struct gguf_file *file = &gguf->files[i];
        for (size_t k = 0; k < file->n_tensors; k++) {
            gguf->tensors[gguf->n_tensors++] = file->tensors[k];
        }
    }
    qsort(gguf->tensors, n, sizeof *gguf->tensors, tensor_by_name);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(gguf->tensors[i - 1].name, gguf->tensors[i].name) != 0) continue;
        return error_set(err, ERR_FORMAT, "%s has the tensor %.100s twice", gguf->origin,
                         gguf->tensors[i].name);
    }
out:
    return rc;
}

/* ---- files that are open, and shared ---- */

enum { SHARED_MOST = 16 }; /* more that are open at a time are not shared */

static struct gguf *shared[SHARED_MOST];
static atomic_flag shared_is_busy = ATOMIC_FLAG_INIT; /* held for a look at the list */

static void enter_shared(void)
{
    while (atomic_flag_test_and_set(&shared_is_busy)) {
        sched_yield();
    }
}

static void leave_shared(void)
{
    atomic_flag_clear(&shared_is_busy);
}

static bool is_same_file(const struct gguf_file *a, const struct gguf_file *b)
{
    return strcmp(a->name, b->name) == 0 && a->view.inode == b->view.inode &&
           a->view.size_bytes == b->view.size_bytes && a->view.mtime_ns == b->view.mtime_ns &&
           a->view.ctime_ns == b->view.ctime_ns;
}

/* True if both are of one path, and nothing was written there since the first was opened. */
static bool is_same(const struct gguf *a, const struct gguf *b)
{
    bool is_same = strcmp(a->origin, b->origin) == 0 && a->n_files == b->n_files;
    for (size_t i = 0; i < a->n_files && is_same; i++) {
        is_same = is_same_file(&a->files[i], &b->files[i]);
    }
    return is_same;
}

/* Returns the one that is open and the same as one of which only the files are mapped, for a
 * further holder; NULL: there is none. */
static struct gguf *find_shared(const struct gguf *mapped)
{
    struct gguf *found = NULL;
    enter_shared();
    for (int i = 0; i < SHARED_MOST && !found; i++) {
        if (shared[i] && is_same(shared[i], mapped)) found = shared[i];
    }
    if (found) found->n_more_holders++;
    leave_shared();
    return found;
}

static void add_shared(struct gguf *gguf)
{
    enter_shared();
    for (int i = 0; i < SHARED_MOST; i++) {
        if (shared[i]) continue;
        shared[i] = gguf;
        break;
    }
    leave_shared();
}

/* False: others hold it still. */
static bool remove_shared(struct gguf *gguf)
{
    enter_shared();
    bool is_last = gguf->n_more_holders == 0;
    if (!is_last) gguf->n_more_holders--;
    for (int i = 0; i < SHARED_MOST && is_last; i++) {
        if (shared[i] == gguf) shared[i] = NULL;
    }
    leave_shared();
    return is_last;
}

int gguf_open(struct gguf **gguf, const char *path, struct error *err)
{
    struct gguf *self = NULL;
    int rc = 0;
    *gguf = NULL;
    TRY(mem_array(&self, 1, sizeof *self, err));
    TRY(mem_array(&self->origin, strlen(path) + 1, 1, err));
    strcpy(self->origin, path);
    TRY(map_files(self, err));
    *gguf = find_shared(self);
    if (*gguf) goto out;
    TRY(parse_files(self, err));
    TRY(gather_tensors(self, err));
    add_shared(self);
    *gguf = self;
    self = NULL;
out:
    gguf_close(self);
    return rc;
}

int gguf_open_bytes(struct gguf **gguf, const uint8_t *data, size_t size_bytes, const char *origin,
                    struct error *err)
{
    struct gguf *self = NULL;
    int rc = 0;
    *gguf = NULL;
    TRY(mem_array(&self, 1, sizeof *self, err));
    TRY(mem_array(&self->origin, strlen(origin) + 1, 1, err));
    strcpy(self->origin, origin);
    TRY(mem_array(&self->files, 1, sizeof *self->files, err));
    self->files[self->n_files++].view = (struct file_view){.data = data, .size_bytes = size_bytes};
    TRY(gguf_parse(&self->files[0], origin, err));
    TRY(gather_tensors(self, err));
    *gguf = self;
out:
    if (rc) gguf_close(self);
    return rc;
}

void gguf_close(struct gguf *gguf)
{
    if (!gguf || !remove_shared(gguf)) return;
    for (size_t i = 0; i < gguf->n_files; i++) {
        gguf_file_free(&gguf->files[i]);
    }
    free(gguf->files);
    free(gguf->tensors);
    free(gguf->origin);
    free(gguf);
}

const char *gguf_origin(const struct gguf *gguf)
{
    return gguf->origin;
}

const struct gguf_tensor *gguf_tensors(const struct gguf *gguf, size_t *n)
{
    *n = gguf->n_tensors;
    return gguf->tensors;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name)
{
    struct gguf_tensor wanted = {.name = name};
    if (!gguf->n_tensors) return NULL;
    return bsearch(&wanted, gguf->tensors, gguf->n_tensors, sizeof wanted, tensor_by_name);
}

size_t gguf_n_files(const struct gguf *gguf)
{
    return gguf->n_files;
}

const struct file_view *gguf_file(const struct gguf *gguf, size_t i, const char **name)
{
    *name = gguf->files[i].name ? gguf->files[i].name : gguf->origin;
    return &gguf->files[i].view;
}
