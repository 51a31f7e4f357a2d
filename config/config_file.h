/* Files of options, in YAML: a mapping of an option's name to its value, or to a list of values
 * where the option may be given again.
 *
 *   kv-tokens: 65536
 *   metrics-vllm: on
 *   client-weight: [alice=2, bob=1]
 */
#pragma once

#include "base/error.h"
#include "base/text/option_table.h"

/* For read_file of a program: reads the file at path. The values are kept until the process ends.
 * Errors: ERR_NOT_FOUND, ERR_IO; ERR_ARGUMENT the file is not such a mapping; those of put. */
int config_file_read(const char *path, option_put *put, void *arg, struct error *err);
