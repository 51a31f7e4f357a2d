/* Replies to clients about stored jobs. */
#include "proto/jobs_wire.h"

#include "proto/codec.h"
#include "proto/generation_wire_parts.h"

enum { ERROR_BYTES_MAX = 1024, JOB_TOKENS_MAX = 1 << 28 };

static Outrider__Generation__V1__JobText *text_make(struct arena *scratch,
                                                    const struct job_text *text)
{
    Outrider__Generation__V1__JobText *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__job_text__init(out);
    out->n_ids = (size_t)text->n_ids;
    out->ids = codec_lend(text->ids);
    out->text = codec_copy_text(scratch, text->text, text->text_len);
    if (!text->summary) return out->text ? out : NULL;
    out->summary = summary_make(scratch, text->summary);
    return out->text && out->summary ? out : NULL;
}

static bool texts_make(Outrider__Generation__V1__Job *out, struct arena *scratch,
                       const struct job_status *job)
{
    if (!job->texts) return true;
    out->n_texts = (size_t)job->n_texts;
    out->texts = arena_take(scratch, out->n_texts, sizeof *out->texts);
    for (int i = 0; out->texts && i < job->n_texts; i++) {
        out->texts[i] = text_make(scratch, &job->texts[i]);
        if (!out->texts[i]) return false;
    }
    return out->texts;
}

static Outrider__Generation__V1__Job *status_make(struct arena *scratch,
                                                  const struct job_status *job)
{
    Outrider__Generation__V1__Job *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__job__init(out);
    out->id = codec_copy_string(scratch, job->id);
    out->key = codec_copy_string(scratch, job->key);
    out->error = codec_copy_string(scratch, job->error);
    out->request_id = codec_copy_string(scratch, job->request_id);
    out->state = (Outrider__Generation__V1__JobState)job->state;
    int end = job->state == JOB_STATE_ENDED ? (int)job->end + 1 : 0;
    out->end = (Outrider__Generation__V1__JobEnd)end;
    out->n = (uint32_t)job->n;
    out->prompt_tokens = (uint32_t)job->prompt_tokens;
    out->completion_tokens = (uint32_t)job->completion_tokens;
    out->submitted_ms = job->submitted_ms;
    out->ended_ms = job->ended_ms;
    out->existed = job->existed;
    bool is_whole = out->id && out->key && out->error && out->request_id;
    return is_whole && texts_make(out, scratch, job) ? out : NULL;
}

static const ProtobufCMessage *status_build(struct arena *scratch, const void *value)
{
    Outrider__Generation__V1__Job *out = status_make(scratch, value);
    return out ? &out->base : NULL;
}

int job_status_encode(struct buffer *buf, const struct job_status *job, struct error *err)
{
    return codec_encode(buf, status_build, job, err);
}

int job_state_decode(enum job_state *state, int value, struct error *err)
{
    if (value < 0 || value >= JOB_STATES) {
        return error_set(err, ERR_FORMAT, "state is %d, must be 0 to %d", value, JOB_STATES - 1);
    }
    *state = (enum job_state)value;
    return 0;
}

static int text_decode(const Outrider__Generation__V1__JobText *msg, struct arena *arena,
                       struct job_text *text, struct error *err)
{
    int rc = 0;
    *text = (struct job_text){.ids = msg->ids};
    TRY(codec_read_count(&text->n_ids, msg->n_ids, JOB_TOKENS_MAX, "ids", err));
    TRY(codec_check_ids(msg->ids, msg->n_ids, "ids", err));
    TRY(codec_read_string(&text->text, &text->text_len, msg->text, MESSAGE_BYTES_MAX, "text", err));
    if (!msg->summary) return 0;
    struct generate_summary *summary = codec_take(arena, 1, sizeof *summary, err);
    if (!summary) return err->code;
    text->summary = summary;
    TRY(summary_decode(msg->summary, summary, err));
out:
    return rc;
}

static int texts_decode(const Outrider__Generation__V1__Job *msg, struct arena *arena,
                        struct job_status *job, struct error *err)
{
    int rc = codec_read_count(&job->n_texts, msg->n_texts, GENERATE_SEQUENCES_MAX, "texts", err);
    if (rc || !job->n_texts) return rc;
    struct job_text *texts = codec_take(arena, msg->n_texts, sizeof *texts, err);
    if (!texts) return err->code;
    job->texts = texts;
    for (int i = 0; i < job->n_texts && !rc; i++) {
        rc = text_decode(msg->texts[i], arena, &texts[i], err);
    }
    return rc;
}

static int status_read(const Outrider__Generation__V1__Job *msg, struct arena *arena,
                       struct job_status *job, struct error *err)
{
    int rc = 0;
    *job = (struct job_status){
        .submitted_ms = msg->submitted_ms, .ended_ms = msg->ended_ms, .existed = msg->existed};
    TRY(word_decode(&job->id, msg->id, JOB_ID_BYTES - 1, "id", err));
    TRY(word_decode(&job->key, msg->key, JOB_KEY_BYTES - 1, "key", err));
    TRY(word_decode(&job->request_id, msg->request_id, GENERATE_WORD_BYTES_MAX, "request_id", err));
    TRY(codec_read_string(&job->error, NULL, msg->error, ERROR_BYTES_MAX, "error", err));
    TRY(job_state_decode(&job->state, (int)msg->state, err));
    if (job->state == JOB_STATE_ENDED) TRY(job_end_decode(&job->end, (int)msg->end, err));
    TRY(codec_read_int(&job->n, msg->n, 0, GENERATE_SEQUENCES_MAX, "n", err));
    TRY(codec_read_int(&job->prompt_tokens, msg->prompt_tokens, 0, INT32_MAX, "prompt_tokens",
                       err));
    TRY(codec_read_int(&job->completion_tokens, msg->completion_tokens, 0, INT32_MAX,
                       "completion_tokens", err));
    TRY(texts_decode(msg, arena, job, err));
out:
    return rc;
}

int job_status_decode(const uint8_t *data, size_t len, struct arena *arena, struct job_status *job,
                      struct error *err)
{
    *job = (struct job_status){0};
    const Outrider__Generation__V1__Job *msg =
        codec_unpack(&outrider__generation__v1__job__descriptor, data, len, arena, err);
    if (!msg) return err->code;
    int rc = status_read(msg, arena, job, err);
    if (rc) *job = (struct job_status){0};
    return rc;
}

static const ProtobufCMessage *list_build(struct arena *scratch, const void *value)
{
    const struct job_list *list = value;
    size_t n = (size_t)list->n;
    Outrider__Generation__V1__JobList *out = arena_take(scratch, 1, sizeof *out);
    Outrider__Generation__V1__Job **jobs = arena_take(scratch, n, sizeof *jobs);
    if (!out || !jobs) return NULL;
    outrider__generation__v1__job_list__init(out);
    for (size_t i = 0; i < n; i++) {
        jobs[i] = status_make(scratch, &list->jobs[i]);
        if (!jobs[i]) return NULL;
    }
    out->n_jobs = n;
    out->jobs = jobs;
    out->next_page_token = codec_copy_string(scratch, list->next_page_token);
    return out->next_page_token ? &out->base : NULL;
}

int job_list_encode(struct buffer *buf, const struct job_list *list, struct error *err)
{
    return codec_encode(buf, list_build, list, err);
}

int job_list_decode(const uint8_t *data, size_t len, struct arena *arena, struct job_list *list,
                    struct error *err)
{
    int rc = 0;
    *list = (struct job_list){0};
    const Outrider__Generation__V1__JobList *msg =
        codec_unpack(&outrider__generation__v1__job_list__descriptor, data, len, arena, err);
    if (!msg) return err->code;
    TRY(codec_read_count(&list->n, msg->n_jobs, JOB_LIST_MAX, "jobs", err));
    TRY(word_decode(&list->next_page_token, msg->next_page_token, JOB_ID_BYTES - 1,
                    "next_page_token", err));
    struct job_status *jobs = codec_take(arena, msg->n_jobs, sizeof *jobs, err);
    if (!jobs) {
        rc = err->code;
        goto out;
    }
    list->jobs = jobs;
    for (int i = 0; i < list->n && !rc; i++) {
        rc = status_read(msg->jobs[i], arena, &jobs[i], err);
        if (rc) error_wrap(err, "job %d", i);
    }
out:
    if (rc) *list = (struct job_list){0};
    return rc;
}
