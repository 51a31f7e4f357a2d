/* The messages of health.proto for clients; the server's side is rpc_health.c. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/target_wire.h"

enum health_answer { HEALTH_ANSWER_UNKNOWN, HEALTH_ANSWER_SERVING, HEALTH_ANSWER_NOT_SERVING };

/* Replaces buf's content; "" asks for the process. Errors: ERR_NO_MEMORY, ERR_ARGUMENT. */
int health_request_encode(struct wire_buffer *buf, const char *service, struct error *err);
/* A status that this version does not know counts as unknown. arena: room for 8 * len + 4096 bytes.
 * Errors: ERR_FORMAT, ERR_NO_MEMORY arena full. */
int health_response_decode(const uint8_t *data, size_t len, struct arena *arena,
                           enum health_answer *answer, struct error *err);
