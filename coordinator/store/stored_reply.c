/* struct reply that appends to the store of jobs. */
#include "coordinator/store/stored_reply.h"

#include <stdlib.h>
#include <string.h>

struct stored_reply {
    struct reply base;
    struct jobs *jobs;
    uint64_t number;
    bool has_reached_length; /* the last summary said so */
};

static struct stored_reply *stored(struct reply *reply)
{
    return (struct stored_reply *)reply;
}

static int append(struct reply *reply, const struct generate_reply *message,
                  struct job_message entry, struct error *err)
{
    struct stored_reply *s = stored(reply);
    int rc = generate_reply_encode(reply->buffer, message, err);
    if (rc) return rc;
    entry.data = reply->buffer->data;
    entry.len = reply->buffer->len;
    return jobs_append(s->jobs, s->number, &entry, err);
}

static int append_tokens(struct reply *reply, const struct generate_tokens *tokens,
                         struct error *err)
{
    const struct generate_reply message = {.tokens = tokens};
    const struct job_message entry = {
        .kind = JOB_MESSAGE_TOKENS, .sequence = tokens->index, .n_tokens = tokens->n};
    return append(reply, &message, entry, err);
}

static int append_echo(struct reply *reply, const struct score_reply *scores, struct error *err)
{
    const struct generate_reply message = {.echo = scores};
    const struct job_message entry = {.kind = JOB_MESSAGE_ECHO};
    return append(reply, &message, entry, err);
}

static int append_summary(struct reply *reply, const struct generate_summary *summary,
                          struct error *err)
{
    const struct generate_reply message = {.summary = summary};
    const struct job_message entry = {.kind = JOB_MESSAGE_SUMMARY, .sequence = summary->index};
    stored(reply)->has_reached_length = strcmp(summary->finish_reason, "length") == 0;
    return append(reply, &message, entry, err);
}

static void end_well(struct reply *reply)
{
    struct stored_reply *s = stored(reply);
    enum job_end end = s->has_reached_length ? JOB_END_LENGTH : JOB_END_STOP;
    jobs_end(s->jobs, s->number, reply->end == JOB_ENDS ? end : reply->end, 0, "");
}

static void end_with_error(struct reply *reply, int code, const char *text)
{
    struct stored_reply *s = stored(reply);
    enum job_end end = reply->end == JOB_ENDS ? job_end_of_refusal(code) : reply->end;
    bool is_cancelled = code == ERR_CANCELLED; /* there is no client that could be gone */
    jobs_end(s->jobs, s->number, end, code, is_cancelled ? "the job was cancelled" : text);
}

static bool is_cancelled(const struct reply *reply)
{
    const struct stored_reply *s = (const struct stored_reply *)reply;
    return jobs_is_cancelled(s->jobs, s->number);
}

static void close_reply(struct reply *reply)
{
    free(reply);
}

static void note_start(struct reply *reply)
{
    jobs_start(stored(reply)->jobs, stored(reply)->number);
}

static const struct reply_ops ops = {
    .started = note_start,
    .tokens = append_tokens,
    .echo = append_echo,
    .summary = append_summary,
    .done = end_well,
    .fail = end_with_error,
    .is_cancelled = is_cancelled,
    .close = close_reply,
};

int stored_reply_open(struct reply **reply, struct jobs *jobs, uint64_t number, struct error *err)
{
    struct stored_reply *made;
    *reply = NULL;
    int rc = mem_array(&made, 1, sizeof *made, err);
    if (rc) return rc;
    *made = (struct stored_reply){
        .base = {.ops = &ops, .end = JOB_ENDS}, .jobs = jobs, .number = number};
    *reply = &made->base;
    return 0;
}
