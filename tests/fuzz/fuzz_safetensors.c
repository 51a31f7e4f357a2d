/* ctest: libs=checkpoint */
/* A whole safetensors file. Of what is accepted every byte of every tensor is touched, and the
 * tensors must cover the data exactly. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(int is_true)
{
    if (!is_true) abort();
}

static void check(const struct safetensors *table, const uint8_t *data, size_t size)
{
    volatile unsigned sum = 0; /* the reads must not be optimised away */
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < table->n_entries; i++) {
        const struct safetensors_entry *entry = &table->entries[i];
        demand(entry->begin <= entry->end && entry->end <= size);
        demand(entry->n_dims >= 0 && entry->n_dims <= SAFETENSORS_DIMS_MAX);
        demand(i == 0 || strcmp(table->entries[i - 1].name, entry->name) < 0);
        demand(safetensors_find(table, entry->name) == entry);
        for (uint64_t at = entry->begin; at < entry->end; at++) {
            sum += data[at];
        }
        n_bytes += entry->end - entry->begin;
    }
    demand(n_bytes <= size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors table;
    struct error err;
    if (safetensors_parse(&table, data, size, "fuzz", &err) == 0) {
        check(&table, data, size);
        safetensors_free(&table);
    }
    return 0;
}
