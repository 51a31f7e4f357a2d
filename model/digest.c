/* Digests of a whole model. */
#include "model/digest.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"

int digest_table_open(struct digest_table *table, const struct checkpoint *ck, struct error *err)
{
    *table = (struct digest_table){0};
    table->tensors = checkpoint_tensors(ck, &table->n);
    return mem_array(&table->parts, table->n, sizeof *table->parts, err);
}

void digest_table_close(struct digest_table *table)
{
    free(table->parts);
    *table = (struct digest_table){0};
}

size_t digest_table_find(struct digest_table *table, const char *name)
{
    size_t at = table->next % table->n;
    for (size_t i = 1; strcmp(table->tensors[at].name, name) != 0; i++) {
        assert(i < table->n);
        at = (at + 1) % table->n;
    }
    table->next = at + 1;
    return at;
}

void digest_table_add(struct digest_table *table, size_t tensor, const struct part_digest *part)
{
    struct part_digest *sum = &table->parts[tensor];
    sum->first = sum->n && sum->first < part->first ? sum->first : part->first;
    sum->sum += part->sum;
    sum->n += part->n;
}

static bool is_same_part(const struct part_digest *a, const struct part_digest *b)
{
    return a->n == b->n && a->first == b->first;
}

/* The lowest rank that holds the same part of the tensor as `rank`; rank itself: no lower one. */
static int first_holder(const struct part_digest *tables, size_t n, size_t tensor, int rank)
{
    int other = 0;
    const struct part_digest *part = &tables[(size_t)rank * n + tensor];
    while (other < rank && !is_same_part(&tables[(size_t)other * n + tensor], part)) {
        other++;
    }
    return other;
}

bool digest_ranks_agree(const struct part_digest *tables, int n_ranks, size_t n,
                        struct digest_conflict *conflict)
{
    for (size_t t = 0; t < n; t++) {
        for (int rank = 1; rank < n_ranks; rank++) {
            int other = first_holder(tables, n, t, rank);
            if (tables[(size_t)other * n + t].sum == tables[(size_t)rank * n + t].sum) continue;
            *conflict = (struct digest_conflict){t, rank, other};
            return false;
        }
    }
    return true;
}

size_t digest_witness_differs(const struct part_digest *own, const struct part_digest *witnessed,
                              size_t n)
{
    size_t t = 0;
    while (t < n && (!is_same_part(&own[t], &witnessed[t]) || own[t].sum == witnessed[t].sum)) {
        t++;
    }
    return t;
}

uint64_t digest_fingerprint(const struct checkpoint *ck, const struct part_digest *tables,
                            int n_ranks)
{
    size_t n;
    const struct tensor_spec *tensors = checkpoint_tensors(ck, &n);
    uint64_t hash = checkpoint_fingerprint(ck);
    for (size_t t = 0; t < n; t++) {
        uint64_t sum = 0;
        for (int rank = 0; rank < n_ranks; rank++) {
            if (first_holder(tables, n, t, rank) == rank) sum += tables[(size_t)rank * n + t].sum;
        }
        hash = XXH3_64bits_withSeed(tensors[t].name, strlen(tensors[t].name), hash);
        hash = XXH3_64bits_withSeed(&sum, sizeof sum, hash);
    }
    return hash;
}
