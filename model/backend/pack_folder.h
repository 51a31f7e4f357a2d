/* Where files that are kept beside a model lie: packed weights, and times that were measured. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { PACK_FOLDER_BYTES = 4096 };

/* The folder that --pack-cache names. "auto" is a folder inside the model's own, beside its file
 * where the model is one, or in the user's cache for a synthetic model. It need not exist. Errors:
 * ERR_ARGUMENT there is none for "auto", or its name is too long. */
int pack_folder_find(char out[PACK_FOLDER_BYTES], const char *option, const char *model,
                     bool is_synthetic, struct error *err);
