/* The codecs of generation.proto on any bytes. The first byte chooses the message and, with its
 * top bit, a small arena. What is accepted must be the same after it is encoded, decoded and
 * encoded again. */
/* ctest: libs=proto */
#include <stdlib.h>
#include <string.h>

#include "proto/generation_wire.h"
#include "proto/jobs_wire.h"

enum { N_KINDS = 10, ARENA_BYTES = 16 << 20, SMALL_ARENA_BYTES = 2048 };

union message {
    struct generate_request request;
    struct generate_reply reply;
    struct score_request score_request;
    struct score_reply score_reply;
    struct service_description description;
    struct job_status job;
    struct job_list jobs;
    struct submit_request submit;
    struct watch_request watch;
    struct list_request list;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static int decode(int kind, const uint8_t *data, size_t len, struct arena *arena,
                  union message *message)
{
    struct error err;
    switch (kind) {
    case 0:
        return generate_request_decode(data, len, arena, &message->request, &err);
    case 1:
        return generate_reply_decode(data, len, arena, &message->reply, &err);
    case 2:
        return score_request_decode(data, len, arena, &message->score_request, &err);
    case 3:
        return score_reply_decode(data, len, arena, &message->score_reply, &err);
    case 4:
        return service_description_decode(data, len, arena, &message->description, &err);
    case 5:
        return job_status_decode(data, len, arena, &message->job, &err);
    case 6:
        return job_list_decode(data, len, arena, &message->jobs, &err);
    case 7:
        return submit_request_decode(data, len, arena, &message->submit, &err);
    case 8:
        return watch_request_decode(data, len, arena, &message->watch, &err);
    default:
        return list_request_decode(data, len, arena, &message->list, &err);
    }
}

static int encode(int kind, const union message *message, struct buffer *buf)
{
    struct error err;
    switch (kind) {
    case 0:
        return generate_request_encode(buf, &message->request, &err);
    case 1:
        return generate_reply_encode(buf, &message->reply, &err);
    case 2:
        return score_request_encode(buf, &message->score_request, &err);
    case 3:
        return score_reply_encode(buf, &message->score_reply, &err);
    case 4:
        return service_description_encode(buf, &message->description, &err);
    case 5:
        return job_status_encode(buf, &message->job, &err);
    case 6:
        return job_list_encode(buf, &message->jobs, &err);
    case 7:
        return submit_request_encode(buf, &message->submit, &err);
    case 8:
        return watch_request_encode(buf, &message->watch, &err);
    default:
        return list_request_encode(buf, &message->list, &err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct arena arenas[2];
    static struct buffer first, second;
    struct error err;
    if (!arenas[0].base &&
        (arena_open(&arenas[0], ARENA_BYTES, &err) || arena_open(&arenas[1], ARENA_BYTES, &err))) {
        abort();
    }
    if (!len) return 0;
    int kind = (data[0] & 0x7f) % N_KINDS;
    struct arena arena = arenas[0];
    if (data[0] & 0x80) arena.size_bytes = SMALL_ARENA_BYTES;
    union message message, again;
    if (decode(kind, data + 1, len - 1, &arena, &message)) return 0;
    if (encode(kind, &message, &first)) abort();
    arena_reset(&arenas[1]);
    if (decode(kind, first.data, first.len, &arenas[1], &again)) abort();
    if (encode(kind, &again, &second)) abort();
    if (first.len != second.len || memcmp(first.data, second.data, first.len) != 0) abort();
    return 0;
}
