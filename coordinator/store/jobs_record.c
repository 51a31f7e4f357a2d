/* Records in an array by number, found by key through a small hash table; those that have ended are
 * also in a list in the order of their ends, whose first one is the next to be dropped. */
#include "coordinator/store/jobs_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"

void record_free(struct record *r)
{
    if (!r) return;
    buffer_free(&r->log);
    free(r->messages);
    free(r->n_tokens);
    free(r);
}

/* ---- finding ---- */

/* FNV-1a */
struct record **record_bucket(struct jobs *j, const char *key)
{
    uint32_t hash = 2166136261u;
    for (const char *at = key; *at; at++) {
        hash = (hash ^ (uint8_t)*at) * 16777619u;
    }
    return &j->buckets[hash % N_BUCKETS];
}

int record_place(const struct jobs *j, uint64_t number)
{
    int low = 0, high = j->n_records;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (j->records[middle]->info.number < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct record *record_find(struct jobs *j, uint64_t number)
{
    int i = record_place(j, number);
    bool is_there = i < j->n_records && j->records[i]->info.number == number;
    return is_there ? j->records[i] : NULL;
}

static void make_id(const struct jobs *j, uint64_t number, char id[JOBS_ID_BYTES])
{
    snprintf(id, JOBS_ID_BYTES, "job-%016" PRIx64 "-%" PRIu64, j->options.run, number);
}

int record_find_id(struct jobs *j, const char *owner, const char *id, struct record **record,
                   struct error *err)
{
    uint64_t run, number = 0;
    char canonical[JOBS_ID_BYTES];
    bool is_ours = sscanf(id, "job-%" SCNx64 "-%" SCNu64, &run, &number) == 2;
    make_id(j, number, canonical);
    is_ours = is_ours && strcmp(id, canonical) == 0 && number <= j->last_number;
    *record = is_ours ? record_find(j, number) : NULL;
    if (*record && owner && strcmp((*record)->info.owner, owner) != 0) {
        *record = NULL;
        is_ours = false;
    }
    if (*record) return 0;
    if (!is_ours) {
        return error_set(err, ERR_NOT_FOUND,
                         "there is no job '%s': it is misspelt, or the coordinator was started "
                         "again since, and jobs are kept in memory",
                         id);
    }
    return error_set(err, ERR_NOT_FOUND,
                     "job '%s' ended and is no longer kept: --jobs-kept %d and --jobs-bytes %zu of "
                     "the coordinator limit how many are",
                     id, j->options.n_kept, j->options.bytes_max);
}

/* ---- changes ---- */

static int64_t wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void count_bytes(struct jobs *j, struct record *r)
{
    size_t bytes = sizeof *r + r->log.capacity + r->messages_capacity * sizeof *r->messages +
                   (size_t)r->info.n_sequences * sizeof *r->n_tokens;
    j->bytes += bytes - r->bytes;
    r->bytes = bytes;
}

static void insert(struct jobs *j, struct record *r, int64_t at_ms)
{
    struct record **bucket = record_bucket(j, r->info.key);
    r->info.submitted_ms = at_ms;
    j->records[j->n_records++] = r;
    if (!r->info.key[0]) return;
    r->bucket = *bucket;
    *bucket = r;
}

/* A log grows by a quarter, so that little of what --jobs-bytes allows is spent on room. */
size_t record_growth(const struct record *r, size_t len)
{
    size_t wanted = r->log.len + len;
    return wanted > r->log.capacity ? wanted + wanted / 4 - r->log.capacity : 0;
}

/* buffer_reserve would double it. */
static int grow_log(struct record *r, size_t bytes, struct error *err)
{
    uint8_t *grown;
    if (!bytes) return 0;
    int rc = mem_array(&grown, r->log.capacity + bytes, 1, err);
    if (rc) return rc;
    if (r->log.len) memcpy(grown, r->log.data, r->log.len);
    free(r->log.data);
    r->log.data = grown;
    r->log.capacity += bytes;
    return 0;
}

static int append(struct record *r, const struct job_message *message, struct error *err)
{
    int rc = 0;
    TRY(mem_grow(&r->messages, &r->messages_capacity, r->n_messages + 1, err));
    TRY(grow_log(r, record_growth(r, message->len), err));
    size_t offset = r->log.len;
    TRY(buffer_append(&r->log, message->data, message->len, err));
    int *n_tokens = &r->n_tokens[message->sequence];
    r->messages[r->n_messages++] = (struct message_entry){.offset = offset,
                                                          .len = message->len,
                                                          .kind = message->kind,
                                                          .sequence = message->sequence,
                                                          .first_token = *n_tokens,
                                                          .n_tokens = message->n_tokens};
    *n_tokens += message->n_tokens;
    r->info.n_tokens += message->n_tokens;
    r->info.state = JOB_STATE_RUNNING;
out:
    return rc;
}

static void end(struct jobs *j, struct record *r, const struct change *change, int64_t at_ms)
{
    r->info.state = JOB_STATE_ENDED;
    r->info.end = change->end;
    r->info.error_code = change->code;
    r->info.ended_ms = at_ms;
    snprintf(r->info.error, sizeof r->info.error, "%s", change->text);
    *j->newest_ended = r;
    j->newest_ended = &r->later;
}

static void unlink_ended(struct jobs *j, struct record *r)
{
    struct record **at = &j->oldest_ended;
    while (*at && *at != r) {
        at = &(*at)->later;
    }
    if (!*at) return;
    j->ended_bytes -= r->bytes;
    *at = r->later;
    if (j->newest_ended == &r->later) j->newest_ended = at;
}

static void drop(struct jobs *j, struct record *r)
{
    int i = record_place(j, r->info.number);
    struct record **at = record_bucket(j, r->info.key);
    unlink_ended(j, r);
    while (*at && *at != r) {
        at = &(*at)->bucket;
    }
    if (*at) *at = r->bucket;
    j->n_records--;
    memmove(&j->records[i], &j->records[i + 1], (size_t)(j->n_records - i) * sizeof *j->records);
    j->bytes -= r->bytes;
    record_free(r);
}

static int apply(struct jobs *j, struct record *r, const struct change *change, struct error *err)
{
    int64_t at_ms = change->at_ms ? change->at_ms : wall_ms();
    int rc = 0;
    j->n_changes++;
    monitor_wake(&j->monitor);
    switch (change->kind) {
    case CHANGE_SUBMITTED:
        insert(j, r, at_ms);
        break;
    case CHANGE_ADMITTED:
        r->is_admitted = true;
        break;
    case CHANGE_STARTED:
        r->info.state = JOB_STATE_RUNNING;
        break;
    case CHANGE_APPENDED:
        rc = append(r, change->message, err);
        break;
    case CHANGE_CANCELLED:
        r->is_cancelled = true;
        break;
    case CHANGE_ENDED:
        end(j, r, change, at_ms);
        break;
    case CHANGE_DROPPED:
        drop(j, r);
        return 0;
    }
    count_bytes(j, r);
    if (change->kind == CHANGE_ENDED) j->ended_bytes += r->bytes;
    return rc;
}

int record_change(struct jobs *j, struct record *r, const struct change *change, struct error *err)
{
    int rc = apply(j, r, change, err);
    atomic_store_explicit(&j->shown_records, j->n_records, memory_order_relaxed);
    atomic_store_explicit(&j->shown_bytes, j->bytes, memory_order_relaxed);
    return rc;
}

bool record_drop_oldest(struct jobs *j)
{
    struct error err;
    if (!j->oldest_ended) return false;
    record_change(j, j->oldest_ended, &(struct change){.kind = CHANGE_DROPPED}, &err);
    return true;
}

int record_make(struct record **record, struct jobs *j, const struct job_submission *s,
                struct error *err)
{
    int rc = 0;
    struct record *r = NULL;
    *record = NULL;
    TRY(mem_array(&r, 1, sizeof *r, err));
    TRY(mem_array(&r->n_tokens, (size_t)s->n_sequences, sizeof *r->n_tokens, err));
    struct job_info *info = &r->info;
    info->number = ++j->last_number;
    make_id(j, info->number, info->id);
    snprintf(info->key, sizeof info->key, "%s", s->key);
    snprintf(info->owner, sizeof info->owner, "%s", s->owner);
    snprintf(info->request_id, sizeof info->request_id, "%s", s->request_id);
    info->state = JOB_STATE_WAITING;
    info->n_sequences = s->n_sequences;
    info->n_prompt = s->n_prompt;
    memcpy(r->digest, s->digest, sizeof r->digest);
    *record = r;
    r = NULL;
out:
    record_free(r);
    return rc;
}
