/* Scoring: the log-probability under the target of every token of a given text. */
#pragma once

#include "coordinator/job.h"
#include "coordinator/round.h"

/* Feeds the job's ids in chunks on the free sequence `seq` (for its slot and block table), answers
 * with the scores of each chunk, and ends the answer. Errors: ERR_UNAVAILABLE, ERR_TIMEOUT the
 * group is lost; the answer is ended then too. */
int score_run(const struct round_tools *tools, struct job *job, struct sequence *seq,
              struct error *err);
