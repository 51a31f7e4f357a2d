/* The key is looked up, the job made, and its record admitted or taken back. */
#include "coordinator/store/submission.h"

#include <stdio.h>
#include <xxhash.h>

#include "access/keys.h"
#include "coordinator/store/stored_reply.h"

static void fill_submission(struct job_submission *submission,
                            const struct generate_request *request, const char *owner,
                            const char *key, const struct buffer *encoded)
{
    XXH128_hash_t digest = XXH3_128bits(encoded->data, encoded->len);
    *submission = (struct job_submission){.owner = owner,
                                          .key = key,
                                          .digest = {digest.low64, digest.high64},
                                          .request_id = request->request_id,
                                          .n_sequences = request->n,
                                          .request = encoded->data,
                                          .request_len = encoded->len};
}

/* Makes the job that the store then knows by a number; the record goes if the engine does not take
 * the job. */
static int admit(struct intake_task *task, struct jobs *jobs,
                 const struct generate_request *request, struct job_submission *submission,
                 struct job_info *info, bool *existed, struct error *err)
{
    struct job *job = NULL;
    int rc = 0;
    TRY(job_open(&job, JOB_GENERATE, err));
    TRY(job_hold_grant(job, task->grant, err));
    TRY(admission_fill_generate(task->admission, job, request, err));
    submission->n_prompt = (int)job->prompt.n;
    TRY(jobs_submit(jobs, submission, info, existed, err));
    if (*existed) goto out;
    rc = stored_reply_open(&job->reply, jobs, info->number, err);
    if (!rc) {
        task->deadline_us = INT64_MAX; /* that of submitting is not the job's */
        snprintf(task->origin.stored_id, sizeof task->origin.stored_id, "%s", info->id);
        rc = intake_submit_take(task, job, err);
        job = NULL;
    }
    jobs_admit(jobs, info->number, rc == 0);
out:
    job_free(job);
    return rc;
}

/* A request is compared in our own encoding, because another client may write the same one in
 * another order, and without its name for logs, which a second try may not repeat. */
int submission_make(struct intake_task *task, struct jobs *jobs,
                    const struct generate_request *request, const char *key, struct job_info *info,
                    bool *existed, struct error *err)
{
    struct job_submission submission;
    struct buffer encoded = {0};
    struct generate_request nameless = *request;
    int rc = 0;
    nameless.request_id = "";
    TRY(generate_request_encode(&encoded, &nameless, err));
    fill_submission(&submission, request, grant_name(task->grant), key, &encoded);
    TRY(jobs_find_key(jobs, &submission, info, existed, err));
    if (!*existed) TRY(admit(task, jobs, request, &submission, info, existed, err));
    task->makes_job = false; /* it is there, whatever becomes of the answer */
out:
    buffer_free(&encoded);
    return rc;
}
