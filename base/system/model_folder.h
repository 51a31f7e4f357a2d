/* Why a name is no model: sentences for those who have named a file of another format, a model of a
 * hub, or a folder that lacks something. GGUF files have been tried before. */
#pragma once

#include "base/error.h"

/* For a name where the file `wanted` (such as "config.json") could not be opened: if the name
 * itself is the reason, writes a better sentence than *err has. rc: that of the failure.
 * Returns rc, or: ERR_NOT_FOUND there is no such folder or file, or the file is missing in the
 * folder, which may have a GGUF file. */
int model_folder_explain(const char *name, const char *wanted, int rc, struct error *err);
