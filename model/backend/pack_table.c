/* The head of a file of packed weights. */
#include "model/backend/pack_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"

enum { AT_VERSION = 8, AT_COUNT = 12, AT_BYTES = 16, AT_KEY = 24, AT_SUM = 32, HEAD = 40 };
enum { AT_DIGESTS = 32, ENTRY_BYTES = AT_DIGESTS + 8 * PACK_DIGESTS }; /* of an entry */

static const char magic[8] = {'O', 'U', 'T', 'R', 'P', 'A', 'C', 'K'};

static uint64_t get(const uint8_t *at, int n)
{
    uint64_t value = 0;
    for (int i = 0; i < n; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static void put(uint8_t *at, uint64_t value, int n)
{
    for (int i = 0; i < n; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

size_t pack_table_head_bytes(int n_entries)
{
    return HEAD + (size_t)n_entries * ENTRY_BYTES;
}

static uint64_t head_sum(const uint8_t *data, int n_entries)
{
    uint64_t begin = XXH3_64bits(data, AT_SUM);
    return XXH3_64bits_withSeed(data + HEAD, (size_t)n_entries * ENTRY_BYTES, begin);
}

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + PACK_ALIGN - 1) / PACK_ALIGN * PACK_ALIGN;
}

/* The fixed part; *n is the number of entries, all of which are within the file. */
static int read_head(struct pack_table *table, const uint8_t *data, size_t size_bytes, int *n,
                     const char *origin, struct error *err)
{
    if (size_bytes < HEAD || memcmp(data, magic, sizeof magic) != 0) {
        return error_set(err, ERR_FORMAT, "%s holds no packed weights", origin);
    }
    uint64_t version = get(data + AT_VERSION, 4), count = get(data + AT_COUNT, 4);
    if (version != PACK_TABLE_VERSION) {
        return error_set(err, ERR_FORMAT, "%s has version %" PRIu64 ", this program writes %d",
                         origin, version, PACK_TABLE_VERSION);
    }
    table->file_bytes = get(data + AT_BYTES, 8);
    if (table->file_bytes != size_bytes) {
        return error_set(err, ERR_FORMAT, "%s has %zu bytes and says that it has %" PRIu64, origin,
                         size_bytes, table->file_bytes);
    }
    if (count > PACK_TABLE_ENTRIES_MAX || pack_table_head_bytes((int)count) > size_bytes) {
        return error_set(err, ERR_FORMAT, "%s says that it has %" PRIu64 " matrices", origin,
                         count);
    }
    *n = (int)count;
    table->key = get(data + AT_KEY, 8);
    if (get(data + AT_SUM, 8) != head_sum(data, *n)) {
        return error_set(err, ERR_FORMAT, "%s: the head's checksum is wrong", origin);
    }
    return 0;
}

/* A wrong file can have a right checksum, so every entry is checked. */
static int read_entries(struct pack_table *table, const uint8_t *data, int n, const char *origin,
                        struct error *err)
{
    uint64_t end = pack_table_head_bytes(n);
    for (int i = 0; i < n; i++) {
        const uint8_t *at = data + pack_table_head_bytes(i);
        struct pack_entry *entry = &table->entries[i];
        *entry =
            (struct pack_entry){get(at, 8), get(at + 8, 8), get(at + 16, 8), get(at + 24, 8), {0}};
        for (int d = 0; d < PACK_DIGESTS; d++) {
            entry->digests[d] = get(at + AT_DIGESTS + 8 * d, 8);
        }
        if (entry->offset % PACK_ALIGN || entry->offset < end ||
            entry->offset > table->file_bytes || entry->bytes > table->file_bytes - entry->offset) {
            return error_set(err, ERR_FORMAT,
                             "%s: matrix %d lies at byte %" PRIu64 " with %" PRIu64
                             " bytes, which is no place in a file of %" PRIu64,
                             origin, i, entry->offset, entry->bytes, table->file_bytes);
        }
        end = entry->offset + entry->bytes;
        table->n_entries++;
    }
    return 0;
}

int pack_table_parse(struct pack_table *table, const uint8_t *data, size_t size_bytes,
                     const char *origin, struct error *err)
{
    int rc = 0, n = 0;
    *table = (struct pack_table){0};
    TRY(read_head(table, data, size_bytes, &n, origin, err));
    TRY(mem_array(&table->entries, (size_t)n, sizeof *table->entries, err));
    TRY(read_entries(table, data, n, origin, err));
out:
    if (rc) pack_table_free(table);
    return rc;
}

void pack_table_free(struct pack_table *table)
{
    free(table->entries);
    *table = (struct pack_table){0};
}

void pack_table_place(struct pack_table *table)
{
    uint64_t at = round_up(pack_table_head_bytes(table->n_entries));
    for (int i = 0; i < table->n_entries; i++) {
        table->entries[i].offset = at;
        at = round_up(at + table->entries[i].bytes);
    }
    table->file_bytes = at;
}

void pack_table_encode(const struct pack_table *table, uint8_t *out)
{
    memcpy(out, magic, sizeof magic);
    put(out + AT_VERSION, PACK_TABLE_VERSION, 4);
    put(out + AT_COUNT, (uint64_t)table->n_entries, 4);
    put(out + AT_BYTES, table->file_bytes, 8);
    put(out + AT_KEY, table->key, 8);
    for (int i = 0; i < table->n_entries; i++) {
        const struct pack_entry *entry = &table->entries[i];
        uint8_t *at = out + pack_table_head_bytes(i);
        put(at, entry->identity, 8);
        put(at + 8, entry->checksum, 8);
        put(at + 16, entry->offset, 8);
        put(at + 24, entry->bytes, 8);
        for (int d = 0; d < PACK_DIGESTS; d++) {
            put(at + AT_DIGESTS + 8 * d, entry->digests[d], 8);
        }
    }
    put(out + AT_SUM, head_sum(out, table->n_entries), 8);
}
