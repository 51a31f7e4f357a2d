/* Packed weights kept on disk: one file for a model, an arithmetic and a rank's shard. It is mapped
 * read-only at the next start, so that processes with the same shard share its pages. Where the
 * file system has no huge pages, reading through the mapping would cost a quarter of the bandwidth
 * in every step, so there the matrices are copied out of it. The cache does not know what a packed
 * matrix looks like; to it a matrix is bytes with an identity.
 *
 * A file is used only when it belongs to this user (or root), nobody else can write it, and its
 * head is sound and has this key; a matrix in it is used only when identity, size and the checksum
 * of its bytes are right. Everything else is packed again, and the file is replaced. No failure
 * here makes a start fail. If somebody truncates the file while a program uses it, the program is
 * killed, as with every mapped file. Owned by the thread that loads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/threads/team.h"
#include "model/backend/pack_table.h"

struct pack_cache;

struct pack_cache_key {
    uint64_t fingerprint;   /* of the model */
    uint64_t stamp;         /* of its files: sizes, times, inodes */
    uint64_t shard;         /* a digest of everything that says what the rank holds */
    const char *arithmetic; /* "cpu-bf16" */
    int rank, n_ranks;
};

enum pack_cache_state {
    PACK_CACHE_OFF,
    PACK_CACHE_HIT,     /* every matrix came from the file */
    PACK_CACHE_WRITTEN, /* packed, and the file has been written for the next start */
    PACK_CACHE_FAILED   /* packed, and the file could not be written */
};

struct pack_cache_report {
    enum pack_cache_state state;
    char text[ERROR_TEXT_BYTES]; /* why a file was refused or could not be written; "" otherwise */
};

/* The folder need not exist; it is made when the file is written. The report says why a file was
 * refused. Errors: ERR_NO_MEMORY. */
int pack_cache_open(struct pack_cache **cache, const char *folder, const struct pack_cache_key *key,
                    struct error *err);

/* A matrix as the cache knows it. bytes = 0: only the digests are kept. */
struct pack_item {
    uint64_t identity;
    size_t bytes;
    /* Digests of the tensors that the matrix was packed from (model/checkpoint/digest.h), so that a
     * start that finds it knows them without reading the model. */
    uint64_t digests[PACK_DIGESTS];
};

/* The matrix's bytes in the mapping, 4096-byte aligned, or NULL; item->digests is set if it is
 * found. The whole team reads the bytes for the checksum, which also brings them into the page
 * table. They stay valid until the close. */
void *pack_cache_find(struct pack_cache *cache, struct team *team, struct pack_item *item);

/* Remembers a matrix that was packed. Keeps data, which must stay valid until the commit. Errors:
 * ERR_NO_MEMORY. */
int pack_cache_add(struct pack_cache *cache, struct team *team, const struct pack_item *item,
                   void *data, struct error *err);

/* Called when all matrices have been found or added, in the order of the next start. Unless all
 * were found, writes the file: under another name and to the disk, then it is renamed, so that
 * other processes see all of it or nothing. */
void pack_cache_commit(struct pack_cache *cache);

/* True if found matrices should be copied because their pages are small; the second function gives
 * the pages back after a copy. */
bool pack_cache_wants_copies(const struct pack_cache *cache);
void pack_cache_release_pages(struct pack_cache *cache);

/* Number of matrices that were found or added so far. */
int pack_cache_count(const struct pack_cache *cache);
bool pack_cache_holds(const struct pack_cache *cache, const void *data);
const struct pack_cache_report *pack_cache_report(const struct pack_cache *cache);
const char *pack_cache_path(const struct pack_cache *cache);

/* Accepts NULL. Pointers from pack_cache_find are invalid afterwards. */
void pack_cache_close(struct pack_cache *cache);

/* "off", "hit", "written", "failed" */
const char *pack_cache_state_name(enum pack_cache_state state);
