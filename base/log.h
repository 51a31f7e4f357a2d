/* One line per event on stderr: time, level, program, event name, and key=value pairs with units.
 * At level info nothing is logged while all is well, except start, ready and stop. Locked
 * inside. */
#pragma once

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

/* keeps program, a string literal. Lines below the level are dropped. */
void log_open(const char *program, enum log_level level);

/* Returns 0 and the level for "debug", "info", "warn" or "error", otherwise -1. */
int log_parse_level(const char *name, enum log_level *level);

/* event is a word such as "target_lost"; the rest is as for printf. A line longer than 1 KiB is
 * cut; control characters become '?'. */
void log_line(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
