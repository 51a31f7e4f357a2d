/* A request on its way from the client to the engine thread, and the way back for its answer. */
#pragma once

#include "base/budget.h"
#include "base/memory.h"
#include "coordinator/job/backpressure.h"
#include "coordinator/signals/job_report.h"
#include "model/tokenizer/tokenizer.h"
#include "proto/generation_wire.h"
#include "proto/job_end.h"

struct grant;     /* access/keys.h */
struct predicted; /* lookup/predicted.h */
struct reply;
struct sequence;

/* How the engine thread answers a job. It does not know who asked: a client that waits
 * (coordinator/job/sent_reply.h), or the store of submitted jobs
 * (coordinator/store/stored_reply.h). Each of the five after `started` sends one message; a job of
 * one kind gets only its own messages, which the reply copies or encodes. Then comes either done or
 * fail, once. Errors of a message: ERR_CANCELLED nobody waits for the answer any more,
 * ERR_EXHAUSTED there is no room to keep it (--jobs-bytes), ERR_NO_MEMORY, those of encoding. */
struct reply_ops {
    /* The engine has begun with the job. NULL: nobody is told. */
    void (*started)(struct reply *reply);
    /* JOB_GENERATE: committed tokens, again and again, and at the end the summary. */
    int (*tokens)(struct reply *reply, const struct generate_tokens *tokens, struct error *err);
    int (*summary)(struct reply *reply, const struct generate_summary *summary, struct error *err);
    /* JOB_GENERATE with echo, before its first tokens: a chunk of the prompt. */
    int (*echo)(struct reply *reply, const struct score_reply *scores, struct error *err);
    /* JOB_SCORE: the scores of a chunk of the text. */
    int (*scores)(struct reply *reply, const struct score_reply *scores, struct error *err);
    /* JOB_DESCRIBE */
    int (*description)(struct reply *reply, const struct service_description *description,
                       struct error *err);
    /* The answer is complete. */
    void (*done)(struct reply *reply);
    /* The answer ends with an error; text says what is wrong, for the client. */
    void (*fail)(struct reply *reply, int code, const char *text);
    /* Returns how much the client has read, and how much it has not. NULL: none reads slowly. */
    struct backpressure_progress (*progress)(const struct reply *reply);
    /* True once nobody waits for the answer any more. The engine asks between rounds. */
    bool (*is_cancelled)(const struct reply *reply);
    /* Returns why a message of the answer could not be sent, which the caller has been told; NULL:
     * all could be. The engine asks between rounds, and before is_cancelled. NULL: errors come with
     * the message. */
    const struct error *(*failure)(const struct reply *reply);
    /* Frees the reply; the door that made it may be closed already. */
    void (*close)(struct reply *reply);
};

struct reply {
    const struct reply_ops *ops;
    struct buffer *buffer; /* of the engine that has the job, for a reply that encodes */
    enum job_end end;      /* the engine writes it before it calls done or fail */
};

enum job_kind { JOB_GENERATE, JOB_SCORE, JOB_DESCRIBE };

struct job {
    enum job_kind kind;
    struct reply *reply; /* owned */
    struct arena arena;  /* what generate points into, no larger than that */
    /* Without its prompt and its prediction. Of a score that came over HTTP: its name, client,
     * class and time. */
    struct generate_request generate;
    struct score_request score;  /* without its text */
    struct token_ids prompt;     /* the text as ids, or the ids given */
    struct predicted *predicted; /* what the request predicts as its answer; NULL = nothing */
    int64_t arrived_us;
    int64_t deadline_us;   /* of clock_now_us: the client's own and its timeout; INT64_MAX = none */
    struct grant *grant;   /* of the key that it came with; a reference is held; NULL = none */
    struct budget *budget; /* that charged_bytes were taken from; NULL = none */
    size_t charged_bytes;
    struct job_origin origin; /* the door's; zeros = nothing is known of it */

    /* From here on, the engine's own. */
    char request_id[JOB_REQUEST_BYTES]; /* the client's name for it or a new one (job_name) */
    int64_t started_us, first_token_us; /* 0 = not yet */
    struct job_work work;
    struct error failure;   /* why the answer has ended; code 0: it is complete */
    bool has_seed, is_over; /* the seed is settled; the answer has ended */
    bool is_counted;        /* among the ends of the service */
    bool has_left;          /* it is no longer among the jobs of its grant */
    uint64_t seed;
    int n_open, n_finished; /* sequences that there are; that have sent their summary */
    bool is_split;          /* all sequences of it have been made */
    /* On its way from one engine to another: the sequences that it has; the job that follows. */
    struct sequence *moved;
    struct job *next_moved;
    bool was_moved; /* to a group that had a place free */
};

/* A job of this kind that has no request and no reply yet. Errors: ERR_NO_MEMORY. */
int job_open(struct job **job, enum job_kind kind, struct error *err);

/* Takes the memory that the job holds now from the budget; job_free gives it back.
 * Errors: ERR_EXHAUSTED. */
int job_charge(struct job *job, struct budget *budget, struct error *err);

/* Gives a new job to the holder of a key, whose name, share and limits are the job's from now on.
 * It is one of the holder's jobs until its answer has ended, or else job_free. NULL: there are no
 * keys.
 * Errors: ERR_EXHAUSTED the holder has as many jobs as the key allows. */
int job_hold_grant(struct job *job, struct grant *grant, struct error *err);

/* Where the job waits: as whom, with what share (0: as the client's name says) and in which class.
 * A grant has the last word. */
const char *job_client(const struct job *job);
int job_weight(const struct job *job);
enum job_class job_class_of(const struct job *job);

/* How a job ends whose answer cannot be given away (errors of a message). */
enum job_end job_end_of_error(int code);
/* How a job ends that the engine did not begin, or did not name an end for. */
enum job_end job_end_of_refusal(int code);

/* Settles job->request_id: the request's own, that of its header, or a new one. */
void job_name(struct job *job);

/* Notes the time, and tells the reply that the engine has begun with the job. */
void job_started(struct job *job);

/* Ends the answer, once: done when rc is 0, otherwise fail with rc and the text of `why`. */
void job_end(struct job *job, enum job_end end, int rc, const struct error *why);

/* Makes the report of a job that has ended just now. */
void job_make_report(const struct job *job, struct job_report *report);

bool job_is_cancelled(const struct job *job);
/* Returns why the answer has ended before its job, or NULL. */
const struct error *job_failure(const struct job *job);

/* Texts that are made or scored for it. */
int job_n_texts(const struct job *job);

/* Closes the reply and frees the request. Accepts NULL. */
void job_free(struct job *job);
