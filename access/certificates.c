/* Files are known by what stat says of them, so that looking at them costs a microsecond or two
 * and can be done for every connection. A set of files that was refused is not read again before
 * one of them changes. */
#include "access/certificates.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "access/pem.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system/file.h"

enum { FILE_BYTES_MAX = 1 << 20, N_FILES = 3 };

/* Properties of a file that change when it, or the link that leads to it, is replaced or
 * written. */
struct file_mark {
    int64_t mtime_s, mtime_ns, size;
    uint64_t inode;
};

struct certificates {
    char *paths[N_FILES]; /* certificate, key, ca; NULL = none. Immutable after open, as `name`. */
    const char *name;     /* the path that messages are about */
    pthread_mutex_t lock; /* of all below */
    struct file_mark marks[N_FILES];
    struct certificate_texts texts;
    uint64_t version;
};

/* ---- reading ---- */

void certificate_texts_free(struct certificate_texts *texts)
{
    free(texts->certificate);
    free(texts->key);
    free(texts->ca);
    *texts = (struct certificate_texts){0};
}

static int read_file(char **text, const char *path, struct error *err)
{
    size_t len;
    if (!path) return 0;
    return file_read_text(text, &len, path, FILE_BYTES_MAX, err);
}

static int check_texts(const struct certificates *c, const struct certificate_texts *texts,
                       struct error *err)
{
    int rc = 0;
    if (texts->certificate) {
        TRY(pem_check_pair(c->paths[0], texts->certificate, c->paths[1], texts->key, err));
    }
    if (texts->ca) TRY(pem_check_authorities(c->paths[2], texts->ca, err));
out:
    return rc;
}

/* Refuses a private key that others can read, because they could act as its owner. The group may
 * read it, as containers have it. */
static int check_key_mode(const char *path, struct error *err)
{
    struct stat st;
    if (!path || stat(path, &st) || !(st.st_mode & (S_IROTH | S_IWOTH | S_IWGRP))) return 0;
    return error_set(err, ERR_FORMAT,
                     "the private key %s can be read or written by others than its owner: chmod "
                     "go-w,o-r %s",
                     path, path);
}

static int read_texts(const struct certificates *c, struct certificate_texts *texts,
                      struct error *err)
{
    int rc = 0;
    *texts = (struct certificate_texts){0};
    TRY(read_file(&texts->certificate, c->paths[0], err));
    TRY(read_file(&texts->key, c->paths[1], err));
    TRY(read_file(&texts->ca, c->paths[2], err));
    TRY(check_texts(c, texts, err));
    TRY(check_key_mode(c->paths[1], err));
out:
    if (rc) certificate_texts_free(texts);
    return rc;
}

/* ---- changes ---- */

static struct file_mark mark_of(const char *path)
{
    struct stat st;
    if (!path || stat(path, &st)) return (struct file_mark){0};
    return (struct file_mark){.mtime_s = st.st_mtim.tv_sec,
                              .mtime_ns = st.st_mtim.tv_nsec,
                              .size = st.st_size,
                              .inode = st.st_ino};
}

static bool is_same_mark(const struct file_mark *a, const struct file_mark *b)
{
    return a->mtime_s == b->mtime_s && a->mtime_ns == b->mtime_ns && a->size == b->size &&
           a->inode == b->inode;
}

/* Marks the files as they are now; true if one is another than before. */
static bool mark_files(struct certificates *c)
{
    bool has_changed = false;
    for (int i = 0; i < N_FILES; i++) {
        struct file_mark mark = mark_of(c->paths[i]);
        has_changed |= !is_same_mark(&mark, &c->marks[i]);
        c->marks[i] = mark;
    }
    return has_changed;
}

/* With the lock held. The marks are taken before the reading, so that what changes meanwhile is
 * read next time. */
static void read_again(struct certificates *c)
{
    struct certificate_texts texts;
    struct error err;
    if (read_texts(c, &texts, &err)) {
        log_line(LOG_LEVEL_WARN, "certificates_refused", "text=\"%s; the earlier ones stay\"",
                 err.text);
        return;
    }
    certificate_texts_free(&c->texts);
    c->texts = texts;
    c->version++;
    log_line(LOG_LEVEL_INFO, "certificates_read", "file=%s", c->name);
}

static void look_at_files(struct certificates *c)
{
    if (mark_files(c)) read_again(c);
}

bool certificates_has_own(const struct certificates *c)
{
    return c && c->paths[0];
}

bool certificates_has_authorities(const struct certificates *c)
{
    return c->paths[2] != NULL;
}

uint64_t certificates_version(struct certificates *c)
{
    pthread_mutex_lock(&c->lock);
    look_at_files(c);
    uint64_t version = c->version;
    pthread_mutex_unlock(&c->lock);
    return version;
}

void certificates_reload(struct certificates *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    mark_files(c);
    read_again(c);
    pthread_mutex_unlock(&c->lock);
}

/* ---- the texts ---- */

static int copy_text(char **copy, const char *text, struct error *err)
{
    *copy = NULL;
    if (!text) return 0;
    size_t size = strlen(text) + 1;
    int rc = mem_array(copy, size, 1, err);
    if (!rc) memcpy(*copy, text, size);
    return rc;
}

static int copy_texts(struct certificate_texts *copy, const struct certificate_texts *texts,
                      struct error *err)
{
    int rc = 0;
    TRY(copy_text(&copy->certificate, texts->certificate, err));
    TRY(copy_text(&copy->key, texts->key, err));
    TRY(copy_text(&copy->ca, texts->ca, err));
out:
    if (rc) certificate_texts_free(copy);
    return rc;
}

int certificates_take(struct certificates *c, uint64_t *version, struct certificate_texts *texts,
                      struct error *err)
{
    int rc = 0;
    *texts = (struct certificate_texts){0};
    pthread_mutex_lock(&c->lock);
    look_at_files(c);
    if (c->version != *version) rc = copy_texts(texts, &c->texts, err);
    if (!rc) *version = c->version;
    pthread_mutex_unlock(&c->lock);
    return rc;
}

/* ---- life ---- */

static int copy_paths(struct certificates *c, const struct certificate_files *files,
                      struct error *err)
{
    int rc = 0;
    TRY(copy_text(&c->paths[0], files->certificate, err));
    TRY(copy_text(&c->paths[1], files->key, err));
    TRY(copy_text(&c->paths[2], files->ca, err));
    c->name = c->paths[0] ? c->paths[0] : c->paths[2];
out:
    return rc;
}

static int check_files(const struct certificate_files *files, struct error *err)
{
    if (files->certificate && !files->key) {
        return error_set(err, ERR_ARGUMENT, "the certificate %s comes without its private key",
                         files->certificate);
    }
    if (files->key && !files->certificate) {
        return error_set(err, ERR_ARGUMENT, "the private key %s comes without its certificate",
                         files->key);
    }
    return 0;
}

int certificates_open(struct certificates **certificates, const struct certificate_files *files,
                      struct error *err)
{
    int rc = 0;
    struct certificates *c = NULL;
    *certificates = NULL;
    TRY(check_files(files, err));
    TRY(mem_array(&c, 1, sizeof *c, err));
    pthread_mutex_init(&c->lock, NULL);
    TRY(copy_paths(c, files, err));
    mark_files(c);
    TRY(read_texts(c, &c->texts, err));
    c->version = 1;
    *certificates = c;
    c = NULL;
out:
    certificates_close(c);
    return rc;
}

void certificates_close(struct certificates *c)
{
    if (!c) return;
    for (int i = 0; i < N_FILES; i++) {
        free(c->paths[i]);
    }
    certificate_texts_free(&c->texts);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
