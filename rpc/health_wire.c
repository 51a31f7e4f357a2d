/* The requests of a client of grpc.health.v1.Health, and the answers. */
#include "rpc/health_wire.h"

#include <stdlib.h>
#include <string.h>

#include "rpc/health.pb-c.h"

int health_request_encode(struct buffer *buf, const char *service, struct error *err)
{
    char *name = strdup(service); /* protobuf-c's structs have no const */
    if (!name) return error_set(err, ERR_NO_MEMORY, "no memory for the name of a service");
    Grpc__Health__V1__HealthCheckRequest request;
    grpc__health__v1__health_check_request__init(&request);
    request.service = name;
    size_t len = grpc__health__v1__health_check_request__get_packed_size(&request);
    int rc = buffer_reserve(buf, len, err);
    if (!rc) buf->len = grpc__health__v1__health_check_request__pack(&request, buf->data);
    free(name);
    return rc;
}

int health_response_decode(const uint8_t *data, size_t len, enum health_answer *answer,
                           struct error *err)
{
    *answer = HEALTH_ANSWER_UNKNOWN;
    Grpc__Health__V1__HealthCheckResponse *msg =
        grpc__health__v1__health_check_response__unpack(NULL, len, data);
    if (!msg) return error_set(err, ERR_FORMAT, "%zu bytes are not a HealthCheckResponse", len);
    if (msg->status == GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING) {
        *answer = HEALTH_ANSWER_SERVING;
    } else if (msg->status ==
               GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING) {
        *answer = HEALTH_ANSWER_NOT_SERVING;
    }
    grpc__health__v1__health_check_response__free_unpacked(msg, NULL);
    return 0;
}
