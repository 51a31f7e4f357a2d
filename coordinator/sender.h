/* Where the answers of a round leave from. To hand a message to its outlet costs some microseconds,
 * and a round of many lanes has one for each, so the engine threads only list them. At the end of
 * the round they go to a thread of their own, or, where there is little, leave from the engine's
 * thread, which is faster for a single stream. What an outlet takes long to format, such as a
 * prompt with alternatives for each of its tokens, goes on to a second thread, so that no other
 * answer waits for it. What belongs to one outlet leaves in order. Locked inside. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/outlet.h"

struct sender;

int sender_open(struct sender **sender, struct error *err);
/* Sends what is listed, and ends the threads. Accepts NULL. */
void sender_close(struct sender *sender);

/* The rest is for engine threads. Lists a message, which is copied. Errors: ERR_NO_MEMORY. What
 * the outlet finds wrong later is seen by its is_cancelled and progress. */
int sender_send(struct sender *sender, struct outlet *outlet, const uint8_t *data, size_t len,
                struct error *err);
/* Lists the end of the answer. Where there is no memory for it, it leaves at once. */
void sender_finish(struct sender *sender, struct outlet *outlet, int code, const char *text,
                   bool is_abort);

/* Lets what is listed leave. */
void sender_flush(struct sender *sender);
