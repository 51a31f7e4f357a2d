/* `outrider plan --cluster FILE` and `outrider plan --measure ADDRESS --cluster-out FILE`. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

struct service_description;

/* Answers the questions of the file, as tables or as one JSON object.
 * Errors: those of plan_file_open, ERR_NO_MEMORY, ERR_IO. */
int plan_cluster(const char *path, bool is_json, struct error *err);

/* Writes what a coordinator has measured as a file for plan_cluster, with one question about the
 * cluster as it is. Errors: ERR_NOT_FOUND there is nothing measured yet, ERR_IO, ERR_NO_MEMORY. */
int plan_cluster_write(const char *path, const struct service_description *desc, struct error *err);
