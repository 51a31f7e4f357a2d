/* JSON that is written as text, where a tree of values would cost too much. */
#pragma once

#include <jansson.h>

#include "base/text/buffer.h"

/* Appends text[len], which is UTF-8, as a JSON string with its quotation marks. No character of it
 * ends a line, not even U+2028, so that it can be in a server-sent event. Errors: ERR_NO_MEMORY. */
int json_text_string(struct buffer *buf, const char *text, size_t len, struct error *err);
/* Appends a value, in ASCII; NULL, where there was no memory for it, is an error, too.
 * Errors: ERR_NO_MEMORY. */
int json_text_value(struct buffer *buf, const json_t *value, struct error *err);
/* As json_text_value, and calls json_decref. */
int json_text_take(struct buffer *buf, json_t *value, struct error *err);
/* Appends what printf makes of the format, at most 255 bytes. */
int json_text_format(struct buffer *buf, struct error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
