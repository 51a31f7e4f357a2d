/* Points of the planner's tables in JSON, as coordinators keep them: [[rows, us, n], ...]. */
#pragma once

#include "base/text/json.h"
#include "speculation/planner/planner.h"

/* Reads root's list `key` into points[PLANNER_KNOTS], of which those after the list stay as they
 * are. path: of the file, for the text of an error. Errors: ERR_FORMAT it is no such list. */
int planner_points_read(const json_t *root, const char *key, const char *path,
                        struct planner_point *points, struct error *err);
