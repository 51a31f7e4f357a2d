/* outrider jobs: finds the command that the next argument names. */
#include "client/jobs/jobs.h"

#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 128 };

int jobs_main(int argc, char **argv)
{
    static const struct client_commands commands = {
        .name = "jobs",
        .list = "submit, watch, list or cancel",
        .help = "Usage: outrider jobs COMMAND [OPTION...]\n"
                "Jobs that go on without their client.\n\n"
                "Commands:\n"
                "  submit  run the requests of a file, one JSON object per line\n"
                "  watch   show the text of a job, also while it grows\n"
                "  list    jobs that the coordinator has, newest first\n"
                "  cancel  end jobs\n\n"
                "Example: outrider jobs submit requests.jsonl > answers.jsonl\n\n"
                "'outrider jobs COMMAND --help' tells more.\n",
        .commands = {{"submit", jobs_submit_main},
                     {"watch", jobs_watch_main},
                     {"list", jobs_list_main},
                     {"cancel", jobs_cancel_main}}};
    return client_run_one(&commands, argc, argv);
}

const char *jobs_state_word(const struct job_status *job)
{
    return job->state == JOB_STATE_ENDED ? job_end_names[job->end] : job_state_names[job->state];
}

json_t *jobs_status_json(const struct job_status *job)
{
    bool has_ended = job->state == JOB_STATE_ENDED;
    json_t *object = json_pack(
        "{ss ss ss ss si si si sI}", "id", job->id, "key", job->key, "request_id", job->request_id,
        "state", job_state_names[job->state], "n", job->n, "prompt_tokens", job->prompt_tokens,
        "completion_tokens", job->completion_tokens, "submitted_ms", (json_int_t)job->submitted_ms);
    if (!object || !has_ended) return object;
    json_object_set_new(object, "end", json_string(job_end_names[job->end]));
    json_object_set_new(object, "ended_ms", json_integer((json_int_t)job->ended_ms));
    if (job->error[0]) {
        json_object_set_new(object, "error", client_json_text(job->error, strlen(job->error)));
    }
    return object;
}

int jobs_call(struct server *server, const char *method, const char *id, struct job_status *job,
              struct error *err)
{
    char path[PATH_BYTES];
    struct buffer request = {0};
    struct arena *arena;
    int rc = 0;
    snprintf(path, sizeof path, JOBS_SERVICE "%s", method);
    TRY(job_request_encode(&request, id, err));
    TRY(server_call(server, path, &request, err));
    TRY(server_arena(server, server->reply.len, &arena, err));
    TRY(job_status_decode(server->reply.data, server->reply.len, arena, job, err));
out:
    buffer_free(&request);
    return rc;
}
