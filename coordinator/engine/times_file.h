/* The planner's tables on disk, beside the packed weights of the draft (--pack-cache), so that the
 * next start with the same pair of models on the same group need not measure it. A file of another
 * pair, or one that makes no sense, is not used. Owned by the engine thread. */
#pragma once

#include "proto/target_wire.h"
#include "speculation/planner/planner.h"

enum { TIMES_FILE_PATH_BYTES = 4200, TIMES_FILE_PAIR_BYTES = 512 };

/* The file of a pair of models, and the name of the pair that it must have. */
struct times_file {
    char path[TIMES_FILE_PATH_BYTES];
    char pair[TIMES_FILE_PAIR_BYTES];
};

/* folder: as --pack-cache names it. drafts: as in struct engine_options. The group is told apart by
 * model, arithmetic, kernels, ranks and threads. Errors: ERR_ARGUMENT there is no such folder. */
int times_file_find(struct times_file *file, const char *folder,
                    const char *const drafts[PLANNER_MODELS], const char *draft_kernels,
                    const struct target_description *group, struct error *err);

/* Errors: ERR_NOT_FOUND there is no file, ERR_FORMAT it is not ours or of another pair; the planner
 * is as before then. */
int times_file_read(const struct times_file *file, struct planner *planner, struct error *err);

/* Errors: ERR_IO, ERR_NO_MEMORY. */
int times_file_write(const struct times_file *file, const struct planner *planner,
                     struct error *err);
