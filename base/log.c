/* Formats a whole line first and writes it with one call, so that lines of several threads, or of
 * ranks that share a terminal, do not mix. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 1024 };

/* Set before threads start, read afterwards. */
static const char *log_program = "outrider";
static enum log_level log_least = LOG_LEVEL_INFO;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_open(const char *program, enum log_level level)
{
    log_program = program;
    log_least = level;
}

int log_parse_level(const char *name, enum log_level *level)
{
    for (int i = 0; i < 4; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *level = (enum log_level)i;
            return 0;
        }
    }
    return -1;
}

void log_line(enum log_level level, const char *event, const char *format, ...)
{
    if (level < log_least) return;
    char line[LINE_BYTES];
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t len = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &parts);
    int n = snprintf(line + len, sizeof line - len, ".%03dZ %s %s[%d] %s ",
                     (int)(now.tv_nsec / 1000000), level_names[level], log_program, (int)getpid(),
                     event);
    len += n > 0 ? (size_t)n : 0;
    if (len < sizeof line) {
        va_list args;
        va_start(args, format);
        n = vsnprintf(line + len, sizeof line - len, format, args);
        va_end(args);
        len += n > 0 ? (size_t)n : 0;
    }
    if (len > sizeof line - 1) len = sizeof line - 1;
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f) line[i] = '?';
    }
    line[len] = '\n';
    ssize_t written = write(STDERR_FILENO, line, len + 1);
    (void)written; /* if the log cannot be written, there is nowhere to report it */
}
