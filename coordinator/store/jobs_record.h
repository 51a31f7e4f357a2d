/* The inside of the store of jobs (coordinator/store/jobs.h): the records, how they are found, and
 * the one function that changes them. Everything here is called inside the store's monitor. For
 * coordinator/store/ alone. */
#pragma once

#include <stdatomic.h>

#include "base/text/buffer.h"
#include "base/threads/monitor.h"
#include "coordinator/store/job_info.h"

enum { N_BUCKETS = 4096 };

struct message_entry {
    size_t offset, len; /* in the record's log */
    enum job_message_kind kind;
    int sequence, first_token, n_tokens;
};

struct record {
    struct job_info info;
    uint64_t digest[2];
    bool is_admitted, is_cancelled;
    struct buffer log; /* encoded messages, one after the other */
    struct message_entry *messages;
    size_t n_messages, messages_capacity;
    int *n_tokens;         /* [n_sequences] */
    size_t bytes;          /* counted in jobs->bytes */
    struct record *bucket; /* the next one with this hash of its key */
    struct record *later;  /* the next one that has ended */
};

struct jobs {
    struct jobs_options options;
    struct monitor monitor; /* of all below */
    uint64_t n_changes, last_number;
    struct record **records; /* [n_records] by number */
    int n_records;
    size_t bytes, ended_bytes; /* of all records; of those that have ended */
    /* Copies of the two for jobs_size, which reads them from outside of the monitor. */
    atomic_int shown_records;
    atomic_size_t shown_bytes;
    struct record *buckets[N_BUCKETS];
    struct record *oldest_ended, **newest_ended;
    char absence[ERROR_TEXT_BYTES]; /* why no new job would be served; "" = one would */
};

/* A record that is in no list yet; its number is new. Errors: ERR_NO_MEMORY. */
int record_make(struct record **record, struct jobs *j, const struct job_submission *submission,
                struct error *err);
/* Frees one that is in no list. Accepts NULL. */
void record_free(struct record *record);

/* Where those with this key begin. */
struct record **record_bucket(struct jobs *j, const char *key);
/* The place of the first record whose number is not below this one. */
int record_place(const struct jobs *j, uint64_t number);
/* NULL: there is none. */
struct record *record_find(struct jobs *j, uint64_t number);
/* owner NULL: of anybody. Errors: ERR_NOT_FOUND, with what may have happened to the job. */
int record_find_id(struct jobs *j, const char *owner, const char *id, struct record **record,
                   struct error *err);

enum change_kind {
    CHANGE_SUBMITTED, /* record is the new one, which the store takes over; submission */
    CHANGE_ADMITTED,  /* the engine has it */
    CHANGE_STARTED,
    CHANGE_APPENDED, /* message */
    CHANGE_CANCELLED,
    CHANGE_ENDED,   /* end, code, text */
    CHANGE_DROPPED, /* the record is gone afterwards */
};

struct change {
    enum change_kind kind;
    int64_t at_ms; /* since 1970; 0 = now */
    const struct job_submission *submission;
    const struct job_message *message;
    enum job_end end;
    int code;
    const char *text;
};

/* The one place where records change: a journal writes down what it is given here, and replays it
 * through here. Only CHANGE_APPENDED can fail. Errors: ERR_NO_MEMORY. */
int record_change(struct jobs *j, struct record *record, const struct change *change,
                  struct error *err);

/* The bytes by which the record would grow with a message of so many bytes. */
size_t record_growth(const struct record *record, size_t len);

/* Drops the job that ended first; false when none has ended. */
bool record_drop_oldest(struct jobs *j);
