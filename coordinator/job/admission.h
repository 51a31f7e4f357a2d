/* Admission: what every door does with a request that it has decoded. The text becomes ids, and the
 * job goes into a bounded queue or is refused at once. Any thread. */
#pragma once

#include <stdatomic.h>

#include "base/threads/queue.h"
#include "coordinator/job/job.h"
#include "coordinator/job/served_chat.h"
#include "coordinator/signals/signals.h"

struct groups;

struct admission {
    const struct tokenizer *tok; /* kept, as groups and queue */
    struct groups *groups;       /* one of them gets the next JOB_GENERATE or JOB_SCORE */
    struct queue *control; /* JOB_DESCRIBE, which is answered between two rounds or in a late one */
    struct budget *budget; /* of what requests occupy from their first byte to their end */
    struct signals *signals; /* counts what is refused */
    struct pool *pool;       /* of threads that decode requests and turn their text into ids */
    struct served_chat *chat;
    bool guards_users; /* texts of messages are no special tokens */
    int max_prompt_bytes;
    bool serves_features; /* requests may ask for the target's features */
    int capacity;         /* jobs that may wait, in the queues and for their first round */
    atomic_int n_waiting; /* of JOB_GENERATE and JOB_SCORE */
    atomic_int n_vocab;   /* ids of the group that serves; the tokenizer's until there is one */
};

/* The most bytes that an encoded request may have: max_prompt_bytes for its prompt, as text or as
 * encoded ids, and 1 MiB for the rest of it, which is at most some 70 KiB. So a text that is a
 * little too long is still refused with a sentence of ours. */
int admission_message_bytes(const struct admission *admission);

/* Gives a job its request: job->prompt gets the ids given, or those of the text or of the
 * conversation as the chat template writes it, and job->generate
 * or job->score a copy of the rest. The request may be forgotten then.
 * Errors: ERR_ARGUMENT an id is outside of the vocabulary, or the text is too long;
 * ERR_UNSUPPORTED, also features that are not served; ERR_NO_MEMORY; those of tokenizer_encode, of
 * served_chat_get and of chat_prompt_encode. */
int admission_fill_generate(const struct admission *admission, struct job *job,
                            const struct generate_request *request, struct error *err);
int admission_fill_score(const struct admission *admission, struct job *job,
                         const struct score_request *request, struct error *err);

/* Hands the job over to the engine thread. Errors: ERR_EXHAUSTED too many requests are waiting, or
 * they occupy too much memory; ERR_UNAVAILABLE the coordinator is shutting down. The job stays the
 * caller's then. */
int admission_submit_take(struct admission *admission, struct job *job, struct error *err);

/* Counts a request that was read and refused before the engine had it. */
void admission_count_refusal(struct admission *admission, int code);

/* A job of those that wait has begun, or has ended before. */
void admission_begun(struct admission *admission);
