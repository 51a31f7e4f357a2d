/* Look-ahead embeddings of a target (PaSS, Monea et al. 2023, arXiv 2311.13581): rows that are put
 * after the last token of a text in the place of embeddings of further tokens, and at which the
 * target, that is not changed otherwise, guesses what comes later. A folder of them
 * (tools/train/train_head.py --kind pass) has
 *
 *   config.json        {"model_type": "pass", "n_lookahead": n, "hidden_size": width}
 *   model.safetensors  look_ahead.weight [n][width], BF16, F16 or F32
 *
 * Immutable after open. */
#pragma once

#include <stdbool.h>

#include "base/limits.h"
#include "base/system/file.h"
#include "model/checkpoint/read.h"
#include "model/checkpoint/safetensors.h"

struct look_ahead {
    char *folder;
    struct file_view view; /* of its model.safetensors, whose table follows */
    struct safetensors table;
    struct weight rows; /* [n][width] finite numbers */
    int n;              /* 1 .. DRAFT_MAX */
    uint64_t digest;    /* of shape and numbers, whatever dtype they have; not 0 */
};

/* True if the config.json of a folder, or of ORG/NAME, says that it has look-ahead embeddings. */
bool look_ahead_is_folder(const char *name);

/* name: a folder or ORG/NAME. Errors: ERR_NOT_FOUND, ERR_IO; ERR_FORMAT and ERR_UNSUPPORTED name
 * the key, the tensor or the row. */
int look_ahead_open(struct look_ahead *look_ahead, const char *name, struct error *err);
/* Accepts one that is zeroed. */
void look_ahead_close(struct look_ahead *look_ahead);

/* Errors: ERR_FORMAT the target has another width. */
int look_ahead_check_target(const struct look_ahead *look_ahead, const char *target, int width,
                            struct error *err);
