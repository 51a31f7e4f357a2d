/* The times that `outrider replay` predicts with. */
#pragma once

#include "client/replay/run.h"

/* A step of one row takes step_us, each further row row_us more, the rest of a round rest_us. */
void replay_times_line(struct replay_times *times, double step_us, double row_us, double rest_us);

/* From a file that a coordinator has kept beside the packed weights of its draft
 * (coordinator/engine/times_file.h). Errors: ERR_NOT_FOUND, ERR_IO, ERR_FORMAT. */
int replay_times_read(struct replay_times *times, const char *path, struct error *err);
