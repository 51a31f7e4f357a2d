/* One request to a server, and its answer as it comes. */
#pragma once

#include "client/server.h"
#include "proto/generation_wire.h"

/* Takes tokens as they come. Errors end the answer, and the request is cancelled. */
typedef int answer_fn(void *arg, const struct generate_tokens *tokens, struct error *err);

/* Asks for one text and hands on its tokens. *summary is valid until the server's next call.
 * Errors: those of server_start and server_receive, ERR_FORMAT, ERR_UNAVAILABLE the text ended
 * without a summary; those of take. */
int answer_get(struct server *server, const struct generate_request *request, answer_fn *take,
               void *arg, struct generate_summary *summary, struct error *err);

/* After a failure: asks whether the server is still there, and puts what is known about it into the
 * text of err. */
void answer_explain(struct server *server, struct error *err);
