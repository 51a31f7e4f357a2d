/* Declarations that the commands of `outrider jobs` share. Each is a file: submit.c, watch.c,
 * list.c (list and cancel). */
#pragma once

#include "client/client.h"
#include "client/server.h"
#include "proto/jobs_wire.h"

int jobs_submit_main(int argc, char **argv);
int jobs_watch_main(int argc, char **argv);
int jobs_list_main(int argc, char **argv);
int jobs_cancel_main(int argc, char **argv);

#define JOBS_SERVICE "/outrider.generation.v1.Generation/"

/* "running", or how it ended. */
const char *jobs_state_word(const struct job_status *job);

/* A job without its answer as a JSON object. */
json_t *jobs_status_json(const struct job_status *job);

/* Cancel or Get of one job; what is in *job is valid until the next call. */
int jobs_call(struct server *server, const char *method, const char *id, struct job_status *job,
              struct error *err);
