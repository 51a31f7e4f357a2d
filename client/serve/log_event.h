/* A line of the log of a worker or coordinator (base/log.h), as text or as JSON. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { LOG_EVENT_BYTES = 2048, LOG_WORD_BYTES = 64 };

struct log_event {
    char name[LOG_WORD_BYTES]; /* "ready" */
    char level[LOG_WORD_BYTES];
    char program[LOG_WORD_BYTES]; /* "outrider-worker" */
    char fields[LOG_EVENT_BYTES]; /* as the line has them */
    bool is_json;
};

/* False: it is no line of a log. */
bool log_event_read(struct log_event *event, const char *line);

/* Copies the value of a field into text[size], unescaped; "" if there is none. Returns text. */
const char *log_event_field(const struct log_event *event, const char *key, char *text,
                            size_t size);
