/* The messages of rpc/health.proto as a client needs them; rpc/health.c has the server's side. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text/buffer.h"

enum health_answer { HEALTH_ANSWER_UNKNOWN, HEALTH_ANSWER_SERVING, HEALTH_ANSWER_NOT_SERVING };

/* Replaces buf's content; service "" asks for the process. Errors: ERR_NO_MEMORY. */
int health_request_encode(struct buffer *buf, const char *service, struct error *err);

/* A status that this version does not know counts as unknown. Errors: ERR_FORMAT. */
int health_response_decode(const uint8_t *data, size_t len, enum health_answer *answer,
                           struct error *err);
