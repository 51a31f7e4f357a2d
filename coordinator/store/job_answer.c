/* Messages of a job become one text for each of its sequences. */
#include "coordinator/store/job_answer.h"

#include <stdlib.h>

#include "coordinator/store/stored_message.h"
#include "model/tokenizer/ids.h"

/* Parts of one text, which grow while the messages are read. */
struct answer_parts {
    struct token_ids ids;
    struct buffer text;
    struct arena arena; /* of the summary */
    struct generate_summary summary;
};

static int add_tokens(struct answer_parts *parts, const struct generate_tokens *tokens,
                      struct error *err)
{
    int rc = token_ids_append(&parts->ids, tokens->ids, (size_t)tokens->n, err);
    return rc ? rc : buffer_append(&parts->text, tokens->text, tokens->text_len, err);
}

/* A summary points into its arena, so it has one of its own. */
static int add_message(struct job_answer *answer, const struct job_message *message,
                       struct error *err)
{
    struct generate_reply reply;
    struct answer_parts *parts = &answer->parts[message->sequence];
    bool is_summary = message->kind == JOB_MESSAGE_SUMMARY;
    if (message->kind == JOB_MESSAGE_ECHO) return 0; /* for those who watch */
    int rc =
        stored_message_decode(&reply, is_summary ? &parts->arena : &answer->arena, message, err);
    if (rc) return rc;
    if (!is_summary) return add_tokens(parts, reply.tokens, err);
    parts->summary = *reply.summary;
    answer->texts[message->sequence].summary = &parts->summary;
    return 0;
}

static int read_messages(struct job_answer *answer, struct jobs *jobs, const char *id,
                         struct job_info *info, struct error *err)
{
    for (size_t position = 0;; position++) {
        struct job_message message;
        bool is_there;
        int rc = jobs_read(jobs, id, position, &answer->message, &message, &is_there, info, err);
        if (rc || !is_there) return rc;
        rc = add_message(answer, &message, err);
        if (rc) return rc;
    }
}

int job_answer_read(struct job_answer *answer, struct jobs *jobs, const char *owner, const char *id,
                    struct job_info *info, struct error *err)
{
    int rc = 0;
    *answer = (struct job_answer){0};
    TRY(jobs_find(jobs, owner, id, info, err));
    TRY(mem_array(&answer->texts, (size_t)info->n_sequences, sizeof *answer->texts, err));
    TRY(mem_array(&answer->parts, (size_t)info->n_sequences, sizeof *answer->parts, err));
    answer->n = info->n_sequences;
    TRY(read_messages(answer, jobs, id, info, err));
    for (int i = 0; i < answer->n; i++) {
        const struct answer_parts *parts = &answer->parts[i];
        answer->texts[i].n_ids = (int)parts->ids.n;
        answer->texts[i].ids = parts->ids.data;
        answer->texts[i].text = (const char *)parts->text.data;
        answer->texts[i].text_len = parts->text.len;
    }
out:
    return rc;
}

void job_answer_free(struct job_answer *answer)
{
    for (int i = 0; i < answer->n; i++) {
        token_ids_free(&answer->parts[i].ids);
        buffer_free(&answer->parts[i].text);
        arena_close(&answer->parts[i].arena);
    }
    free(answer->parts);
    free(answer->texts);
    buffer_free(&answer->message);
    arena_close(&answer->arena);
    *answer = (struct job_answer){0};
}
