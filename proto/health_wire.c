/* What a client says to grpc.health.v1.Health and hears from it. */
#include "proto/health_wire.h"

#include "proto/health.pb-c.h"
#include "proto/wire_util.h"

static const ProtobufCMessage *request_build(struct arena *scratch, const void *value)
{
    Grpc__Health__V1__HealthCheckRequest *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    grpc__health__v1__health_check_request__init(out);
    out->service = wire_string_copy(scratch, value);
    return out->service ? &out->base : NULL;
}

int health_request_encode(struct wire_buffer *buf, const char *service, struct error *err)
{
    return wire_encode(buf, request_build, service, err);
}

int health_response_decode(const uint8_t *data, size_t len, struct arena *arena,
                           enum health_answer *answer, struct error *err)
{
    const Grpc__Health__V1__HealthCheckResponse *msg =
        wire_unpack(&grpc__health__v1__health_check_response__descriptor, data, len, arena, err);
    *answer = HEALTH_ANSWER_UNKNOWN;
    if (!msg) return err->code;
    switch (msg->status) {
    case GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING:
        *answer = HEALTH_ANSWER_SERVING;
        return 0;
    case GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING:
        *answer = HEALTH_ANSWER_NOT_SERVING;
        return 0;
    default:
        return 0;
    }
}
