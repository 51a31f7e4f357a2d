/* Questions and news of threads; each call is one visit to the store's monitor. */
#include "coordinator/store/jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "coordinator/store/jobs_record.h"

int jobs_open(struct jobs **jobs, const struct jobs_options *options, struct error *err)
{
    int rc = 0;
    struct jobs *j = NULL;
    *jobs = NULL;
    TRY(mem_array(&j, 1, sizeof *j, err));
    TRY(mem_array(&j->records, (size_t)options->n_kept, sizeof *j->records, err));
    j->options = *options;
    j->newest_ended = &j->oldest_ended;
    monitor_open(&j->monitor);
    *jobs = j;
    return 0;
out:
    free(j);
    return rc;
}

void jobs_close(struct jobs *j)
{
    if (!j) return;
    for (int i = 0; i < j->n_records; i++) {
        record_free(j->records[i]);
    }
    monitor_close(&j->monitor);
    free(j->records);
    free(j);
}

void jobs_set_serving(struct jobs *j, bool is_serving, const char *why)
{
    monitor_enter(&j->monitor);
    snprintf(j->absence, sizeof j->absence, "%s", is_serving ? "" : why);
    monitor_leave(&j->monitor);
}

void jobs_size(const struct jobs *j, int *n_jobs, size_t *n_bytes)
{
    *n_jobs = atomic_load_explicit(&j->shown_records, memory_order_relaxed);
    *n_bytes = atomic_load_explicit(&j->shown_bytes, memory_order_relaxed);
}

/* ---- submitting ---- */

/* A job that ended through the service's fault has no key any more: a key is for sending a request
 * again after just such a fault. */
static bool holds_key(const struct record *r, const struct job_submission *s)
{
    const struct job_info *info = &r->info;
    if (strcmp(info->key, s->key) != 0 || strcmp(info->owner, s->owner) != 0) return false;
    return info->state != JOB_STATE_ENDED || !job_end_is_of_service(info->end);
}

/* Looks for the key inside the monitor. */
static int look_up(struct jobs *j, const struct job_submission *s, struct job_info *info,
                   bool *existed, struct error *err)
{
    struct record *r = s->key[0] ? *record_bucket(j, s->key) : NULL;
    while (r && !holds_key(r, s)) {
        r = r->bucket;
    }
    *existed = r;
    if (!r) return 0;
    if (memcmp(r->digest, s->digest, sizeof r->digest) != 0) {
        return error_set(err, ERR_ARGUMENT,
                         "key '%s' belongs to %s, whose request differs from this one; give every "
                         "request a key of its own",
                         s->key, r->info.id);
    }
    if (!r->is_admitted) {
        return error_set(err, ERR_UNAVAILABLE,
                         "a request with key '%s' is being admitted at this moment; try again",
                         s->key);
    }
    *info = r->info;
    return 0;
}

/* Drops ended jobs for so many bytes more, but none if that is not enough. */
static bool free_bytes(struct jobs *j, size_t bytes)
{
    if (j->bytes - j->ended_bytes + bytes > j->options.bytes_max) return false;
    while (j->bytes + bytes > j->options.bytes_max && record_drop_oldest(j)) {
    }
    return true;
}

static int make_room(struct jobs *j, struct error *err)
{
    bool has_room = free_bytes(j, 1);
    while (has_room && j->n_records == j->options.n_kept) {
        has_room = record_drop_oldest(j);
    }
    if (!has_room) {
        return error_set(
            err, ERR_EXHAUSTED,
            "%d jobs are kept, those that have not ended with %zu bytes of answers, and "
            "--jobs-kept %d and --jobs-bytes %zu allow no more; try again later",
            j->n_records, j->bytes - j->ended_bytes, j->options.n_kept, j->options.bytes_max);
    }
    return 0;
}

static int submit(struct jobs *j, const struct job_submission *s, struct job_info *info,
                  bool *existed, struct error *err)
{
    int rc = 0;
    struct record *r;
    TRY(look_up(j, s, info, existed, err));
    if (*existed) return 0;
    if (j->absence[0]) return error_set(err, ERR_UNAVAILABLE, "%s", j->absence);
    TRY(make_room(j, err));
    TRY(record_make(&r, j, s, err));
    record_change(j, r, &(struct change){.kind = CHANGE_SUBMITTED, .submission = s}, err);
    *info = r->info;
out:
    return rc;
}

int jobs_submit(struct jobs *j, const struct job_submission *submission, struct job_info *info,
                bool *existed, struct error *err)
{
    monitor_enter(&j->monitor);
    int rc = submit(j, submission, info, existed, err);
    monitor_leave(&j->monitor);
    return rc;
}

int jobs_find_key(struct jobs *j, const struct job_submission *submission, struct job_info *info,
                  bool *existed, struct error *err)
{
    monitor_enter(&j->monitor);
    int rc = look_up(j, submission, info, existed, err);
    monitor_leave(&j->monitor);
    return rc;
}

void jobs_admit(struct jobs *j, uint64_t number, bool is_admitted)
{
    struct error err;
    monitor_enter(&j->monitor);
    struct record *r = record_find(j, number);
    enum change_kind kind = is_admitted ? CHANGE_ADMITTED : CHANGE_DROPPED;
    if (r) record_change(j, r, &(struct change){.kind = kind}, &err);
    monitor_leave(&j->monitor);
}

/* ---- asking ---- */

int jobs_find(struct jobs *j, const char *owner, const char *id, struct job_info *info,
              struct error *err)
{
    struct record *r;
    monitor_enter(&j->monitor);
    int rc = record_find_id(j, owner, id, &r, err);
    if (!rc) *info = r->info;
    monitor_leave(&j->monitor);
    return rc;
}

int jobs_list(struct jobs *j, const char *owner, uint64_t before, enum job_state state,
              struct job_info *infos, int n, bool *is_last)
{
    int n_made = 0;
    monitor_enter(&j->monitor);
    int i = record_place(j, before);
    for (; i > 0; i--) {
        const struct job_info *info = &j->records[i - 1]->info;
        if (!j->records[i - 1]->is_admitted) continue; /* it may still be refused */
        if (strcmp(info->owner, owner) != 0) continue;
        if (state != JOB_STATE_ANY && info->state != state) continue;
        if (n_made == n) break;
        infos[n_made++] = *info;
    }
    *is_last = i == 0;
    monitor_leave(&j->monitor);
    return n_made;
}

int jobs_cancel(struct jobs *j, const char *owner, const char *id, struct job_info *info,
                struct error *err)
{
    struct record *r;
    monitor_enter(&j->monitor);
    int rc = record_find_id(j, owner, id, &r, err);
    if (!rc && r->info.state != JOB_STATE_ENDED) {
        record_change(j, r, &(struct change){.kind = CHANGE_CANCELLED}, err);
    }
    if (!rc) *info = r->info;
    monitor_leave(&j->monitor);
    return rc;
}

bool jobs_is_cancelled(struct jobs *j, uint64_t number)
{
    monitor_enter(&j->monitor);
    const struct record *r = record_find(j, number);
    bool is_cancelled = r && r->is_cancelled;
    monitor_leave(&j->monitor);
    return is_cancelled;
}

/* ---- the answer ---- */

void jobs_start(struct jobs *j, uint64_t number)
{
    struct error err;
    monitor_enter(&j->monitor);
    struct record *r = record_find(j, number);
    if (r) record_change(j, r, &(struct change){.kind = CHANGE_STARTED}, &err);
    monitor_leave(&j->monitor);
}

int jobs_append(struct jobs *j, uint64_t number, const struct job_message *message,
                struct error *err)
{
    int rc = 0;
    monitor_enter(&j->monitor);
    struct record *r = record_find(j, number);
    if (r && r->info.state == JOB_STATE_ENDED) {
        monitor_leave(&j->monitor);
        return error_set(err, ERR_CANCELLED, "the job has ended");
    }
    size_t growth = r ? record_growth(r, message->len) : 0;
    if (!r || message->sequence < 0 || message->sequence >= r->info.n_sequences) {
        rc = error_set(err, ERR_INTERNAL, "sequence %d has no place in its job", message->sequence);
    } else if (!free_bytes(j, growth)) {
        rc = error_set(err, ERR_EXHAUSTED,
                       "answers of jobs that run occupy %zu bytes, and --jobs-bytes %zu allows no "
                       "more",
                       j->bytes - j->ended_bytes, j->options.bytes_max);
    } else {
        rc =
            record_change(j, r, &(struct change){.kind = CHANGE_APPENDED, .message = message}, err);
    }
    monitor_leave(&j->monitor);
    return rc;
}

void jobs_end(struct jobs *j, uint64_t number, enum job_end end, int code, const char *text)
{
    struct error err;
    monitor_enter(&j->monitor);
    struct record *r = record_find(j, number);
    if (r && r->info.state != JOB_STATE_ENDED) {
        const struct change ended = {.kind = CHANGE_ENDED, .end = end, .code = code, .text = text};
        record_change(j, r, &ended, &err);
    }
    monitor_leave(&j->monitor);
}

static int read_message(const struct record *r, size_t position, struct buffer *buf,
                        struct job_message *message, bool *is_there, struct error *err)
{
    *is_there = position < r->n_messages;
    if (!*is_there) return 0;
    const struct message_entry *entry = &r->messages[position];
    buf->len = 0;
    int rc = entry->len ? buffer_append(buf, r->log.data + entry->offset, entry->len, err) : 0;
    *message = (struct job_message){.kind = entry->kind,
                                    .sequence = entry->sequence,
                                    .first_token = entry->first_token,
                                    .n_tokens = entry->n_tokens,
                                    .data = buf->data,
                                    .len = entry->len};
    return rc;
}

int jobs_read(struct jobs *j, const char *id, size_t position, struct buffer *buf,
              struct job_message *message, bool *is_there, struct job_info *info, struct error *err)
{
    struct record *r;
    monitor_enter(&j->monitor);
    int rc = record_find_id(j, NULL, id, &r, err);
    if (!rc) *info = r->info;
    if (!rc) rc = read_message(r, position, buf, message, is_there, err);
    monitor_leave(&j->monitor);
    return rc;
}

uint64_t jobs_wait(struct jobs *j, uint64_t seen, int64_t deadline_us)
{
    monitor_enter(&j->monitor);
    while (j->n_changes == seen && monitor_wait(&j->monitor, deadline_us)) {
    }
    uint64_t now = j->n_changes;
    monitor_leave(&j->monitor);
    return now;
}

void jobs_wake(struct jobs *j)
{
    monitor_enter(&j->monitor);
    j->n_changes++;
    monitor_wake(&j->monitor);
    monitor_leave(&j->monitor);
}
