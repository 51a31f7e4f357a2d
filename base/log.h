/* One line per event on stderr: time, level, program, event name, and key=value pairs with units;
 * or the same as one JSON object. At level info nothing is logged while there is no work and all is
 * well, except start, ready and stop. Locked inside. */
#pragma once

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

/* keeps program, a string literal. Lines below the level are dropped. Before other threads
 * start. */
void log_open(const char *program, enum log_level level);
void log_set_format(enum log_format format);

/* event is a word such as "target_lost"; the rest is as for printf. The format consists of fields,
 * KEY=VALUE or KEY="VALUE", with a blank between two: "rank=%d text=\"%s\"". Where a field ends is
 * taken from the format alone, so that no argument can pretend to be another field: a value that
 * has blanks or quotes is quoted and escaped. A field whose value is empty or not finite is left
 * out. In JSON a value that is a single number in the format is a number, and any other one is a
 * string. Values of more than 1.5 kB together are cut; control characters and bytes that are not
 * UTF-8 become '?'. */
void log_line(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
