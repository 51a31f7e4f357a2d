/* The record of what a head has shown of itself with a target (model/head_table.h), on disk beside
 * the head's packed weights (--pack-cache), so that the next start with both need not try it again.
 * Owned by the engine thread. */
#pragma once

#include "model/head_table.h"
#include "proto/target_wire.h"

enum { PROOF_FILE_PATH_BYTES = 4200, PROOF_FILE_PAIR_BYTES = 256 };

/* The file of a head and a target, and the name of the pair that it must have. */
struct proof_file {
    char path[PROOF_FILE_PATH_BYTES];
    char pair[PROOF_FILE_PAIR_BYTES];
};

/* folder: as --pack-cache names it. digest: of head_proof_digest. The target is told apart by model
 * and arithmetic. Errors: ERR_ARGUMENT there is no such folder. */
int proof_file_find(struct proof_file *file, const char *folder, const char *head, uint64_t digest,
                    const struct target_description *group, struct error *err);

/* Fills the counts of the table, whose trials are listed, and chooses among them. Errors:
 * ERR_NOT_FOUND there is no file, ERR_FORMAT it is not ours, of another pair, or makes no sense;
 * the table is as before then. */
int proof_file_read(const struct proof_file *file, struct head_table *table, struct error *err);

/* Errors: ERR_IO, ERR_NO_MEMORY. */
int proof_file_write(const struct proof_file *file, const struct head_table *table,
                     struct error *err);
