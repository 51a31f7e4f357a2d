/* Requests of clients about stored jobs. */
#include "proto/jobs_wire.h"

#include "proto/codec.h"
#include "proto/generation_wire_parts.h"

static const ProtobufCMessage *submit_build(struct arena *scratch, const void *value)
{
    const struct submit_request *req = value;
    Outrider__Generation__V1__SubmitRequest *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__submit_request__init(out);
    out->request = request_make(scratch, &req->request);
    out->key = codec_copy_string(scratch, req->key);
    return out->request && out->key ? &out->base : NULL;
}

int submit_request_encode(struct buffer *buf, const struct submit_request *req, struct error *err)
{
    int rc = request_check(&req->request, err);
    return rc ? rc : codec_encode(buf, submit_build, req, err);
}

int submit_request_decode(const uint8_t *data, size_t len, struct arena *arena,
                          struct submit_request *req, struct error *err)
{
    int rc = 0;
    *req = (struct submit_request){0};
    const Outrider__Generation__V1__SubmitRequest *msg = codec_unpack_strict(
        &outrider__generation__v1__submit_request__descriptor, data, len, arena, err);
    if (!msg) return err->code;
    if (!msg->request) return error_set(err, ERR_FORMAT, "request is not set");
    TRY(word_decode(&req->key, msg->key, JOB_KEY_BYTES - 1, "key", err));
    TRY(request_read(msg->request, arena, &req->request, err));
out:
    if (rc) *req = (struct submit_request){0};
    return rc;
}

static const ProtobufCMessage *watch_build(struct arena *scratch, const void *value)
{
    const struct watch_request *req = value;
    Outrider__Generation__V1__WatchRequest *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__watch_request__init(out);
    out->id = codec_copy_string(scratch, req->id);
    out->from_token = req->from_token;
    return out->id ? &out->base : NULL;
}

int watch_request_encode(struct buffer *buf, const struct watch_request *req, struct error *err)
{
    return codec_encode(buf, watch_build, req, err);
}

int watch_request_decode(const uint8_t *data, size_t len, struct arena *arena,
                         struct watch_request *req, struct error *err)
{
    *req = (struct watch_request){0};
    const Outrider__Generation__V1__WatchRequest *msg = codec_unpack_strict(
        &outrider__generation__v1__watch_request__descriptor, data, len, arena, err);
    if (!msg) return err->code;
    req->from_token = msg->from_token;
    return word_decode(&req->id, msg->id, JOB_ID_BYTES - 1, "id", err);
}

static const ProtobufCMessage *job_build(struct arena *scratch, const void *id)
{
    Outrider__Generation__V1__JobRequest *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__job_request__init(out);
    out->id = codec_copy_string(scratch, id);
    return out->id ? &out->base : NULL;
}

int job_request_encode(struct buffer *buf, const char *id, struct error *err)
{
    return codec_encode(buf, job_build, id, err);
}

int job_request_decode(const uint8_t *data, size_t len, struct arena *arena, const char **id,
                       struct error *err)
{
    const Outrider__Generation__V1__JobRequest *msg = codec_unpack_strict(
        &outrider__generation__v1__job_request__descriptor, data, len, arena, err);
    if (!msg) return err->code;
    return word_decode(id, msg->id, JOB_ID_BYTES - 1, "id", err);
}

static const ProtobufCMessage *list_build(struct arena *scratch, const void *value)
{
    const struct list_request *req = value;
    Outrider__Generation__V1__ListRequest *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__list_request__init(out);
    out->page_size = (uint32_t)req->page_size;
    out->page_token = codec_copy_string(scratch, req->page_token);
    out->state = (Outrider__Generation__V1__JobState)req->state;
    return out->page_token ? &out->base : NULL;
}

int list_request_encode(struct buffer *buf, const struct list_request *req, struct error *err)
{
    return codec_encode(buf, list_build, req, err);
}

int list_request_decode(const uint8_t *data, size_t len, struct arena *arena,
                        struct list_request *req, struct error *err)
{
    int rc = 0;
    *req = (struct list_request){0};
    const Outrider__Generation__V1__ListRequest *msg = codec_unpack_strict(
        &outrider__generation__v1__list_request__descriptor, data, len, arena, err);
    if (!msg) return err->code;
    TRY(codec_read_int(&req->page_size, msg->page_size, 0, JOB_LIST_MAX, "page_size", err));
    TRY(word_decode(&req->page_token, msg->page_token, JOB_ID_BYTES - 1, "page_token", err));
    TRY(job_state_decode(&req->state, (int)msg->state, err));
out:
    return rc;
}
