/* Writes a model, from a folder or synthetic, as a Hugging Face folder that other engines read:
 * config.json, the tokenizer's files, and weights in bf16 as weight_read_bf16 gives them, or the
 * layers' matrices in 8 or 4 bits. It needs a few MB of memory whatever the size of the model. A
 * source folder is mapped: its pages count as resident, but the kernel may take them back at any
 * time. Used by `outrider export`, not by any server. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "model/numerics/quant.h"

/* Called every few MB; false ends the export with ERR_CANCELLED. */
typedef bool export_progress_fn(void *arg, uint64_t done_bytes, uint64_t total_bytes);

struct export_options {
    uint64_t shard_bytes;         /* most bytes of tensors in a file; a larger tensor is alone */
    export_progress_fn *progress; /* may be NULL */
    void *arg;
    enum weight_form form; /* of the layers' matrices */
};

struct export_result {
    uint64_t n_bytes; /* of tensors */
    int n_shards;
    bool has_tokenizer; /* false: the source has none, or fewer than 256 ids for one of bytes */
};

/* model: as checkpoint_open takes it. folder: new, or empty. What is not bf16 in the source loses
 * what bf16 does not hold, norms and biases too. On failure the folder is removed or left empty.
 * Errors: checkpoint_open's; export_list_init's; ERR_ARGUMENT the folder is not empty; ERR_IO it
 * cannot be written, or the disk is too small (found out before anything is written);
 * ERR_CANCELLED; ERR_NO_MEMORY. */
int model_export(const char *model, const char *folder, const struct export_options *options,
                 struct export_result *result, struct error *err);
