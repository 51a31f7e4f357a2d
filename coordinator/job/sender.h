/* Where the answers of a round leave from. To hand a message to its stream costs some microseconds,
 * and a round of many lanes has one for each, so the engine threads only list copies of them. They
 * leave from the engine's thread while the target computes the next step, when it would only wait;
 * where the engine drafts before that, or there are very many, they go to a thread of their own,
 * but for one or two short ones. A message that its stream takes long to format, such as a prompt
 * with alternatives for each of its tokens, goes on to a second thread, so that no other answer
 * waits for it. The messages of one stream leave in order. Locked inside. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/job/response_stream.h"

struct sender;

int sender_open(struct sender **sender, struct error *err);
/* Sends what is listed, and ends the threads. Accepts NULL. */
void sender_close(struct sender *sender);

/* The rest is for engine threads. Lists a message, which is copied. Errors: ERR_NO_MEMORY. An error
 * of the stream itself ends its answer later, as response_stream_failure then says. */
int sender_send(struct sender *sender, struct response_stream *stream,
                const struct answer_message *message, struct error *err);
/* Lists the end of the answer. Where there is no memory for it, the answer ends at once and with an
 * error, because messages that are listed do not leave any more. */
void sender_finish(struct sender *sender, struct response_stream *stream, int code,
                   const char *text, bool is_abort);

/* Lets the list leave. has_time: the engine's thread has nothing to do now, so that more may leave
 * from it. */
void sender_flush(struct sender *sender, bool has_time);
