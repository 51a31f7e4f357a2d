/* Keeps a step's message within MESSAGE_BYTES_MAX, whatever its rows name; a part of
 * target_verify_send. */
#pragma once

#include "proto/target_wire.h"

/* Asks for the whole of a row, which names no id, where the message would be too long otherwise:
 * first of the rows at the end. Merging gives the same row of it (speculation/rows/target_row.h).
 * rows[n_rows] are those of the step, which points to them. Rows with few ids stay as they are. */
void step_fit(const struct step *step, struct step_row *rows, int n_rows);
