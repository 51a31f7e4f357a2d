/* Digests of a whole model. Each rank knows the digests of what it has read of each tensor, rank by
 * rank in the order of the checkpoint's tensors. Here they are compared, where several ranks have
 * read the same part, and combined into the model's fingerprint: a number that depends on every
 * byte that is used and is the same for any number of ranks. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/digest.h"

/* One rank's digests: parts[n] in the order of checkpoint_tensors. */
struct digest_table {
    const struct tensor_spec *tensors;
    size_t n;
    struct part_digest *parts;
    size_t next; /* where the search begins, because tensors are read nearly in this order */
};

/* Keeps the checkpoint's table of tensors. Errors: ERR_NO_MEMORY. */
int digest_table_open(struct digest_table *table, const struct checkpoint *ck, struct error *err);
void digest_table_close(struct digest_table *table);

/* The place of a tensor, which must be one that the checkpoint has. */
size_t digest_table_find(struct digest_table *table, const char *name);

/* Adds a further part of a tensor. */
void digest_table_add(struct digest_table *table, size_t tensor, const struct part_digest *part);

/* Two ranks that do not have the same bytes of a tensor. */
struct digest_conflict {
    size_t tensor;
    int rank, other;
};

/* tables: [n_ranks][n], what each rank holds. True if ranks that hold the same part of a tensor
 * have the same digest of it; otherwise *conflict is the first pair that has not. */
bool digest_ranks_agree(const struct part_digest *tables, int n_ranks, size_t n,
                        struct digest_conflict *conflict);

/* witnessed: [n], what another rank has read of its own copy in place of the rank whose table is
 * `own`. Parts that it has not read are not compared. Returns the first tensor that differs; n:
 * none. */
size_t digest_witness_differs(const struct part_digest *own, const struct part_digest *witnessed,
                              size_t n);

/* The fingerprint of a model whose ranks hold tables[n_ranks][n] and agree. A part that several
 * ranks hold counts once. For a synthetic model, which has no bytes, the fingerprint depends on its
 * config and the seeds of its tensors alone. */
uint64_t digest_fingerprint(const struct checkpoint *ck, const struct part_digest *tables,
                            int n_ranks);
