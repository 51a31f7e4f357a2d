/* The head of a file of packed weights: which matrices it holds, where, and their checksums. Packed
 * weights may be kept on disk between starts (pack_cache.h); this code checks what is read back.
 *
 *   0  "OUTRPACK"        8  u32 version      12  u32 n entries     16  u64 bytes of the file
 *  24  u64 key          32  u64 xxh3 of bytes 0..31 and of the entries
 *  40  n x { u64 identity, u64 checksum, u64 offset, u64 bytes, 3 u64 digests }   little-endian
 *
 * Matrices follow at multiples of 4096 in the order of the entries, without overlap. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { PACK_TABLE_VERSION = 2, PACK_TABLE_ENTRIES_MAX = 1 << 20, PACK_ALIGN = 4096 };
enum { PACK_DIGESTS = 3 };

struct pack_entry {
    uint64_t identity; /* of the source and the packed form */
    uint64_t checksum; /* of the packed bytes */
    uint64_t offset, bytes;
    uint64_t digests[PACK_DIGESTS]; /* of what the parts of the matrix were packed from */
};

struct pack_table {
    uint64_t key; /* whose file it is: model, arithmetic, shard */
    uint64_t file_bytes;
    int n_entries;
    struct pack_entry *entries;
};

/* Reads and checks the head of a file of size_bytes bytes, but not the matrices' bytes. Released
 * with pack_table_free. Errors: ERR_FORMAT, one sentence that begins with origin; ERR_NO_MEMORY. */
int pack_table_parse(struct pack_table *table, const uint8_t *data, size_t size_bytes,
                     const char *origin, struct error *err);
void pack_table_free(struct pack_table *table);

/* Gives every entry its offset and sets file_bytes. The entries' bytes must be set. */
void pack_table_place(struct pack_table *table);

size_t pack_table_head_bytes(int n_entries);

/* Writes the head to out[pack_table_head_bytes(n_entries)]. */
void pack_table_encode(const struct pack_table *table, uint8_t *out);
