/* Packed weights kept on disk. */
#include "model/backend/pack_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/system/file.h"
#include "base/system/file_write.h"

enum { PATH_BYTES = 4096, CHUNK_BYTES = 1 << 20, KEY_TEXT_BYTES = 256 };

struct pack_cache {
    char folder[PATH_BYTES], path[PATH_BYTES];
    uint64_t key;
    struct file_view view; /* zeroed: no file, or one that was refused */
    bool is_huge;          /* its pages are huge ones */
    struct pack_table old; /* of view */
    int next;              /* where the search begins, because matrices come in the file's order */
    struct pack_table new; /* of this start */
    const void **data;     /* of new's matrices */
    size_t n_entry_room, n_data_room; /* of new.entries and of data */
    int n_missed;
    struct pack_cache_report report;
};

static uint64_t key_digest(const struct pack_cache_key *key)
{
    char text[KEY_TEXT_BYTES];
    int len = snprintf(text, sizeof text,
                       "%016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %.60s %d/%d", key->fingerprint,
                       key->stamp, key->shard, key->arithmetic, key->rank, key->n_ranks);
    return XXH3_64bits(text, (size_t)len);
}

/* Only the first failure goes into the report: later ones follow from it. */
static void keep_reason(struct pack_cache *cache, const struct error *err)
{
    if (!cache->report.text[0]) {
        snprintf(cache->report.text, sizeof cache->report.text, "%s", err->text);
    }
}

static int check_owner(const struct pack_cache *cache, struct error *err)
{
    const struct file_view *view = &cache->view;
    if (view->owner != geteuid() && view->owner != 0) {
        return error_set(err, ERR_FORMAT, "%s belongs to user %ld, not to this one", cache->path,
                         (long)view->owner);
    }
    if (view->mode & 022) {
        return error_set(err, ERR_FORMAT, "%s can be written by others (mode %03o)", cache->path,
                         (unsigned)view->mode & 0777u);
    }
    return 0;
}

static int read_file(struct pack_cache *cache, struct error *err)
{
    int rc = 0;
    TRY(file_map(&cache->view, cache->path, err));
    TRY(check_owner(cache, err));
    TRY(pack_table_parse(&cache->old, cache->view.data, cache->view.size_bytes, cache->path, err));
    if (cache->old.key != cache->key) {
        rc = error_set(err, ERR_FORMAT, "%s belongs to another model or shard", cache->path);
        goto out;
    }
    file_advise(&cache->view, FILE_WANT_HUGE);
    cache->is_huge = file_is_huge(&cache->view);
out:
    if (rc) {
        pack_table_free(&cache->old);
        file_unmap(&cache->view);
    }
    return rc;
}

int pack_cache_open(struct pack_cache **cache, const char *folder, const struct pack_cache_key *key,
                    struct error *err)
{
    struct error reason;
    struct pack_cache *c = NULL;
    int rc = mem_array(&c, 1, sizeof *c, err);
    *cache = c;
    if (rc) return rc;
    c->key = c->new.key = key_digest(key);
    int len = snprintf(c->path, sizeof c->path, "%s/%s-%dof%d-%016" PRIx64 ".pack", folder,
                       key->arithmetic, key->rank, key->n_ranks, c->key);
    if (len >= (int)sizeof c->path) {
        error_set(&reason, ERR_ARGUMENT, "the folder's name has more than %d bytes", PATH_BYTES);
        keep_reason(c, &reason);
        c->path[0] = '\0';
        return 0;
    }
    snprintf(c->folder, sizeof c->folder, "%s", folder);
    int failure = read_file(c, &reason);
    if (failure && failure != ERR_NOT_FOUND) keep_reason(c, &reason);
    return 0;
}

/* Checksums. All threads hash chunks of a matrix; then the hashes of the chunks are hashed. */

struct sum_job {
    const uint8_t *data;
    size_t bytes;
    int n_chunks;
    uint64_t *sums;
};

static void sum_member(void *arg, int member, int n_members)
{
    const struct sum_job *job = arg;
    int begin, end;
    team_range(job->n_chunks, 1, member, n_members, &begin, &end);
    for (int i = begin; i < end; i++) {
        size_t at = (size_t)i * CHUNK_BYTES, left = job->bytes - at;
        job->sums[i] = XXH3_64bits(job->data + at, left < CHUNK_BYTES ? left : CHUNK_BYTES);
    }
}

static int checksum(uint64_t *sum, struct team *team, const void *data, size_t bytes,
                    struct error *err)
{
    struct sum_job job = {
        .data = data, .bytes = bytes, .n_chunks = (int)((bytes + CHUNK_BYTES - 1) / CHUNK_BYTES)};
    *sum = 0;
    if (!bytes) return 0;
    int rc = mem_array(&job.sums, (size_t)job.n_chunks, sizeof *job.sums, err);
    if (rc) return rc;
    team_run(team, sum_member, &job);
    *sum = XXH3_64bits(job.sums, (size_t)job.n_chunks * sizeof *job.sums);
    free(job.sums);
    return 0;
}

static int remember(struct pack_cache *cache, const struct pack_entry *entry, const void *data,
                    struct error *err)
{
    size_t n = (size_t)cache->new.n_entries;
    int rc = 0;
    TRY(mem_grow(&cache->new.entries, &cache->n_entry_room, n + 1, err));
    TRY(mem_grow(&cache->data, &cache->n_data_room, n + 1, err));
    cache->new.entries[n] = *entry;
    cache->data[n] = data;
    cache->new.n_entries++;
out:
    return rc;
}

static const struct pack_entry *find_entry(struct pack_cache *cache, const struct pack_item *item)
{
    int n = cache->old.n_entries;
    for (int i = 0; i < n; i++) {
        int at = (cache->next + i) % n;
        const struct pack_entry *entry = &cache->old.entries[at];
        if (entry->identity != item->identity || entry->bytes != item->bytes) continue;
        cache->next = at + 1;
        return entry;
    }
    return NULL;
}

void *pack_cache_find(struct pack_cache *cache, struct team *team, struct pack_item *item)
{
    struct error err;
    uint64_t sum = 0;
    const struct pack_entry *entry = find_entry(cache, item);
    if (!entry) return NULL;
    union {
        const uint8_t *in;
        void *out;
    } data = {.in = cache->view.data + entry->offset}; /* matrices are read through `void *` */
    if (checksum(&sum, team, data.in, item->bytes, &err)) return NULL;
    if (sum != entry->checksum) {
        error_set(&err, ERR_FORMAT, "%s: the checksum of a matrix is wrong", cache->path);
        keep_reason(cache, &err);
        return NULL;
    }
    if (remember(cache, entry, data.in, &err)) return NULL;
    memcpy(item->digests, entry->digests, sizeof item->digests);
    return data.out;
}

int pack_cache_add(struct pack_cache *cache, struct team *team, const struct pack_item *item,
                   void *data, struct error *err)
{
    struct pack_entry entry = {.identity = item->identity, .bytes = item->bytes};
    int rc = 0;
    memcpy(entry.digests, item->digests, sizeof entry.digests);
    cache->n_missed++;
    TRY(checksum(&entry.checksum, team, data, item->bytes, err));
    TRY(remember(cache, &entry, data, err));
out:
    return rc;
}

static int write_file(struct pack_cache *cache, struct error *err)
{
    struct pack_table *table = &cache->new;
    struct file_piece *pieces = NULL;
    uint8_t *head = NULL;
    size_t head_bytes = pack_table_head_bytes(table->n_entries);
    int rc = 0;
    pack_table_place(table);
    TRY(mem_array(&head, head_bytes, 1, err));
    TRY(mem_array(&pieces, (size_t)table->n_entries + 1, sizeof *pieces, err));
    pack_table_encode(table, head);
    pieces[0] = (struct file_piece){head, head_bytes, 0};
    for (int i = 0; i < table->n_entries; i++) {
        const struct pack_entry *entry = &table->entries[i];
        pieces[i + 1] = (struct file_piece){cache->data[i], entry->bytes, entry->offset};
    }
    TRY(file_make_folder(cache->folder, err));
    TRY(file_write_whole(cache->path, pieces, table->n_entries + 1, table->file_bytes, NULL, err));
out:
    free(head);
    free(pieces);
    return rc;
}

void pack_cache_commit(struct pack_cache *cache)
{
    struct error err;
    if (cache->n_missed == 0) {
        cache->report.state = PACK_CACHE_HIT;
        return;
    }
    cache->report.state = PACK_CACHE_FAILED;
    if (!cache->path[0]) return;
    if (write_file(cache, &err)) {
        keep_reason(cache, &err);
    } else {
        cache->report.state = PACK_CACHE_WRITTEN;
    }
}

bool pack_cache_wants_copies(const struct pack_cache *cache)
{
    return !cache->is_huge;
}

void pack_cache_release_pages(struct pack_cache *cache)
{
    file_advise(&cache->view, FILE_DROP);
}

int pack_cache_count(const struct pack_cache *cache)
{
    return cache->new.n_entries;
}

bool pack_cache_holds(const struct pack_cache *cache, const void *data)
{
    const uint8_t *at = data, *begin = cache->view.data;
    return begin && at >= begin && at < begin + cache->view.size_bytes;
}

const struct pack_cache_report *pack_cache_report(const struct pack_cache *cache)
{
    return &cache->report;
}

const char *pack_cache_path(const struct pack_cache *cache)
{
    return cache->path;
}

void pack_cache_close(struct pack_cache *cache)
{
    if (!cache) return;
    pack_table_free(&cache->old);
    pack_table_free(&cache->new);
    free(cache->data);
    file_unmap(&cache->view);
    free(cache);
}

const char *pack_cache_state_name(enum pack_cache_state state)
{
    static const char *const names[] = {"off", "hit", "written",
                                        "failed"}; /* in the enum's order */
    return names[state];
}
