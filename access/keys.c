/* The keys are a list in which every search looks at all hashes, in time that does not depend on
 * their bits. So how long an answer takes says nothing of the keys that there are. */
#include "access/keys.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "access/authorization.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system/file.h"

struct known_key {
    uint8_t hash[KEY_HASH_BYTES];
    struct grant *grant; /* a reference is held */
};

/* The contents of a file of keys. */
struct key_set {
    struct known_key *keys; /* [n] */
    int n;
};

struct keys {
    char *path;
    pthread_mutex_t lock; /* of set */
    struct key_set set;
    atomic_llong n_refused;
};

/* ---- grants ---- */

void grant_ref(struct grant *grant)
{
    atomic_fetch_add(&grant->n_refs, 1);
}

void grant_release(struct grant *grant)
{
    if (grant && atomic_fetch_sub(&grant->n_refs, 1) == 1) free(grant);
}

const char *grant_name(const struct grant *grant)
{
    return grant ? grant->name : "";
}

int grant_enter(struct grant *grant, struct error *err)
{
    int most = atomic_load(&grant->max_jobs);
    if (atomic_fetch_add(&grant->n_jobs, 1) < most || most == 0) return 0;
    atomic_fetch_sub(&grant->n_jobs, 1);
    return error_set(err, ERR_EXHAUSTED,
                     "the key of '%s' allows %d request%s at once; try again when one has ended",
                     grant->name, most, most == 1 ? "" : "s");
}

void grant_leave(struct grant *grant)
{
    atomic_fetch_sub(&grant->n_jobs, 1);
}

/* ---- the file ---- */

static void set_free(struct key_set *set)
{
    for (int i = 0; i < set->n; i++) {
        grant_release(set->keys[i].grant);
    }
    free(set->keys);
    *set = (struct key_set){0};
}

static struct grant *find_name(const struct key_set *set, const char *name)
{
    for (int i = 0; i < set->n; i++) {
        if (strcmp(set->keys[i].grant->name, name) == 0) return set->keys[i].grant;
    }
    return NULL;
}

/* That of the name in the earlier set, which its jobs are counted in, or a new one. */
static int open_grant(struct grant **grant, const struct key_set *earlier, const char *name,
                      struct error *err)
{
    *grant = find_name(earlier, name);
    if (*grant) {
        grant_ref(*grant);
        return 0;
    }
    int rc = mem_array(grant, 1, sizeof **grant, err);
    if (rc) return rc;
    memcpy((*grant)->name, name, strlen(name) + 1);
    atomic_init(&(*grant)->n_refs, 1);
    return 0;
}

static void set_limits(struct grant *grant, const struct key_entry *entry)
{
    atomic_store(&grant->weight, entry->weight);
    atomic_store(&grant->max_jobs, entry->max_jobs);
    atomic_store(&grant->max_priority, (int)entry->max_priority);
}

/* The limits change only once nothing can fail any more. */
static int set_open(struct key_set *set, const struct key_list *list, const struct key_set *earlier,
                    struct error *err)
{
    int rc = 0;
    *set = (struct key_set){0};
    TRY(mem_array(&set->keys, (size_t)list->n, sizeof *set->keys, err));
    for (; set->n < list->n; set->n++) {
        struct known_key *key = &set->keys[set->n];
        memcpy(key->hash, list->entries[set->n].hash, sizeof key->hash);
        TRY(open_grant(&key->grant, earlier, list->entries[set->n].name, err));
    }
    for (int i = 0; i < set->n; i++) {
        set_limits(set->keys[i].grant, &list->entries[i]);
    }
out:
    if (rc) set_free(set);
    return rc;
}

/* Refuses a file that others can write, because they could add a key of their own. */
static int check_mode(const char *path, struct error *err)
{
    struct stat st;
    if (stat(path, &st) || !(st.st_mode & (S_IWGRP | S_IWOTH))) return 0;
    return error_set(err, ERR_FORMAT, "%s can be written by others than its owner: chmod go-w %s",
                     path, path);
}

static int read_list(const char *path, struct key_list *list, struct error *err)
{
    char *text = NULL;
    size_t len;
    int rc = 0;
    *list = (struct key_list){0};
    TRY(check_mode(path, err));
    TRY(file_read_text(&text, &len, path, KEY_FILE_BYTES_MAX, err));
    TRY(key_list_parse(list, text, len, path, err));
out:
    free(text);
    return rc;
}

/* Puts what the file holds in the place of the set. */
static int read_keys(struct keys *keys, int *n, struct error *err)
{
    struct key_list list;
    struct key_set set;
    int rc = read_list(keys->path, &list, err);
    if (rc) return rc;
    pthread_mutex_lock(&keys->lock);
    rc = set_open(&set, &list, &keys->set, err);
    if (!rc) {
        set_free(&keys->set);
        keys->set = set;
        *n = set.n;
    }
    pthread_mutex_unlock(&keys->lock);
    key_list_free(&list);
    return rc;
}

void keys_reload(struct keys *keys)
{
    struct error err;
    int n;
    if (!keys) return;
    if (read_keys(keys, &n, &err)) {
        log_line(LOG_LEVEL_WARN, "keys_refused", "text=\"%s; the earlier ones stay\"", err.text);
    } else {
        log_line(LOG_LEVEL_INFO, "keys_read", "file=%s n=%d", keys->path, n);
    }
}

/* ---- who calls ---- */

int keys_find(struct keys *keys, const char *key, size_t len, struct grant **grant,
              struct error *err)
{
    uint8_t hash[KEY_HASH_BYTES];
    struct grant *found = NULL;
    key_hash(key, len, hash);
    pthread_mutex_lock(&keys->lock);
    for (int i = 0; i < keys->set.n; i++) {
        const struct known_key *known = &keys->set.keys[i];
        if (CRYPTO_memcmp(known->hash, hash, sizeof hash) == 0) found = known->grant;
    }
    if (found) grant_ref(found);
    pthread_mutex_unlock(&keys->lock);
    *grant = found;
    return found ? 0 : error_set(err, ERR_UNAUTHENTICATED, "the API key is not known here");
}

int keys_authorize(struct keys *keys, const char *authorization, size_t len, struct grant **grant,
                   struct error *err)
{
    struct authorization a;
    *grant = NULL;
    if (!keys) return 0;
    int rc = authorization_read(&a, authorization, len, err);
    if (!rc) rc = keys_find(keys, a.key, a.len, grant, err);
    if (rc) atomic_fetch_add_explicit(&keys->n_refused, 1, memory_order_relaxed);
    return rc;
}

int64_t keys_refused(const struct keys *keys)
{
    return keys ? atomic_load_explicit(&keys->n_refused, memory_order_relaxed) : 0;
}

/* ---- life ---- */

int keys_open(struct keys **keys, const char *path, struct error *err)
{
    int n, rc = 0;
    struct keys *k = NULL;
    size_t size = strlen(path) + 1;
    *keys = NULL;
    TRY(mem_array(&k, 1, sizeof *k, err));
    pthread_mutex_init(&k->lock, NULL);
    TRY(mem_array(&k->path, size, 1, err));
    memcpy(k->path, path, size);
    TRY(read_keys(k, &n, err));
    *keys = k;
    k = NULL;
out:
    keys_close(k);
    return rc;
}

void keys_close(struct keys *keys)
{
    if (!keys) return;
    set_free(&keys->set);
    pthread_mutex_destroy(&keys->lock);
    free(keys->path);
    free(keys);
}
