/* Packed weights kept on disk: one file for a model, an arithmetic and a rank's shard, mapped read-only
 * at the next start, so that processes with the same shard share its pages. Where the file system has
 * no huge pages, reading through the mapping would cost a quarter of the bandwidth for ever: there the
 * matrices are copied out of it. What a matrix is packed into is its backend's business: here it is
 * bytes under an identity.
 *
 * A file is used only when it belongs to this user (or root), nobody else can write it, its head is
 * sound and of this key, and for each matrix when identity, size and the checksum of its bytes are
 * right. Anything else is packed again, and the file is replaced. Nothing here fails a start.
 * Cutting a file short under a running program kills it, as with every mapped file.
 * Owned by the thread that loads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/team.h"

struct pack_cache;

struct pack_cache_key {
    uint64_t fingerprint;   /* of the model */
    uint64_t stamp;         /* of its files: sizes and times */
    uint64_t shard;         /* a digest of all that says what the rank holds */
    const char *arithmetic; /* "cpu-bf16" */
    int rank, n_ranks;
};

enum pack_cache_state {
    PACK_CACHE_OFF,
    PACK_CACHE_HIT,     /* every matrix came from the file */
    PACK_CACHE_WRITTEN, /* packed, and the file is there for the next start */
    PACK_CACHE_FAILED   /* packed, and the file could not be written */
};

struct pack_cache_report {
    enum pack_cache_state state;
    char text[ERROR_TEXT_BYTES]; /* why a file was refused or could not be written; "" otherwise */
};

/* The folder need not be there; it is made when the file is written. Errors: ERR_NO_MEMORY. A file that
 * is refused is told by the report. */
int pack_cache_open(struct pack_cache **cache, const char *folder, const struct pack_cache_key *key,
                    struct error *err);

/* The matrix's bytes in the mapping, 4096-byte aligned, or NULL; reads them all with the whole team for
 * the checksum, which also brings them into the page table. They live until the close. */
void *pack_cache_find(struct pack_cache *cache, struct team *team, uint64_t identity, size_t bytes);

/* Remembers a matrix that was packed; keeps data, which must live until the commit.
 * Errors: ERR_NO_MEMORY. */
int pack_cache_add(struct pack_cache *cache, struct team *team, uint64_t identity, void *data,
                   size_t bytes, struct error *err);

/* All matrices have been found or added, in the order of the next start. Unless all were found, writes
 * the file: under another name, to the disk, then renamed, so that others see all of it or nothing. */
void pack_cache_commit(struct pack_cache *cache);

/* The pages of a found matrix are small: copy it, then let them go. */
bool pack_cache_wants_copies(const struct pack_cache *cache);
void pack_cache_let_go(struct pack_cache *cache);

/* Matrices that were found or added so far. */
int pack_cache_count(const struct pack_cache *cache);
bool pack_cache_holds(const struct pack_cache *cache, const void *data);
const struct pack_cache_report *pack_cache_report(const struct pack_cache *cache);
const char *pack_cache_path(const struct pack_cache *cache);

/* Accepts NULL. Pointers from find are dead then. */
void pack_cache_close(struct pack_cache *cache);

/* "off", "hit", "written", "failed" */
const char *pack_cache_state_name(enum pack_cache_state state);
