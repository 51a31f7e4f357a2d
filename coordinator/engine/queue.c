/* The queue of sequences for which there is no place: those that never had one, and those that have
 * lost it. */
#include "coordinator/engine/internal.h"

int engine_queue(struct engine *e, struct sequence *seq, struct error *err)
{
    const struct waiting_job item = {
        .item = seq,
        .job_class = job_class_of(seq->job),
        .client = job_client(seq->job),
        .weight = job_weight(seq->job),
        .n_tokens = (int64_t)job_n_texts(seq->job) * (seq->end + 1),
        .arrival = seq->id,
    };
    return waiting_push(e->waiting, &item, err);
}

int engine_return_to_queue(struct engine *e, struct sequence *seq, struct error *err)
{
    const struct waiting_job job = {
        .item = seq,
        .job_class = job_class_of(seq->job),
        .client = job_client(seq->job),
        .weight = job_weight(seq->job),
        .n_tokens = 1,
        .arrival = seq->id,
    };
    int rc = waiting_push_front(e->waiting, &job, err);
    if (!rc && seq->backpressure.slow_us) waiting_set_aside(e->waiting, seq, true);
    return rc;
}
