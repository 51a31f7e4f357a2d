/* ctest: libs=backend */
/* The head of a file of packed weights. What is accepted must lie within the file, in order, and
 * encode to the same bytes again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "model/backend/pack_table.h"

enum { HEAD_BYTES = 40, ENTRY_BYTES = 56 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(int is_true)
{
    if (!is_true) abort();
}

static void check(const struct pack_table *table, const uint8_t *data, size_t size)
{
    volatile unsigned sum = 0; /* the reads must not be optimised away */
    size_t head_bytes = pack_table_head_bytes(table->n_entries);
    uint64_t end = head_bytes;
    uint8_t *again = malloc(head_bytes);
    demand(again != NULL && head_bytes <= size);
    for (int i = 0; i < table->n_entries; i++) {
        const struct pack_entry *entry = &table->entries[i];
        demand(entry->offset >= end && entry->offset % PACK_ALIGN == 0);
        end = entry->offset + entry->bytes;
        demand(end >= entry->offset && end <= size);
        for (uint64_t at = entry->offset; at < end; at++) {
            sum += data[at];
        }
    }
    pack_table_encode(table, again);
    demand(memcmp(again, data, head_bytes) == 0);
    free(again);
}

/* The fuzzer cannot guess a checksum or the file's size: the second try has them right. */
static void sign(uint8_t *data, size_t size)
{
    uint32_t n;
    uint64_t bytes = size;
    memcpy(&n, data + 12, sizeof n);
    memcpy(data + 16, &bytes, sizeof bytes);
    if (n > (size - HEAD_BYTES) / ENTRY_BYTES) return;
    uint64_t sum =
        XXH3_64bits_withSeed(data + HEAD_BYTES, (size_t)n * ENTRY_BYTES, XXH3_64bits(data, 32));
    memcpy(data + 32, &sum, sizeof sum);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pack_table table;
    struct error err;
    if (pack_table_parse(&table, data, size, "fuzz", &err) == 0) {
        check(&table, data, size);
        pack_table_free(&table);
    }
    if (size < HEAD_BYTES) return 0;
    uint8_t *copy = malloc(size);
    demand(copy != NULL);
    memcpy(copy, data, size);
    sign(copy, size);
    if (pack_table_parse(&table, copy, size, "fuzz", &err) == 0) {
        check(&table, copy, size);
        pack_table_free(&table);
    }
    free(copy);
    return 0;
}
