/* The line that says how far a start is. */
#include "client/serve/screen.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/terminal.h"

enum { COLUMNS = 80, SAID_BYTES = 2048 };

void screen_open(struct screen *screen)
{
    const char *kind = getenv("TERM");
    bool is_dumb = !kind || !*kind || strcmp(kind, "dumb") == 0;
    *screen = (struct screen){.is_terminal = isatty(STDERR_FILENO) && !is_dumb};
}

/* A line that is wider would not go away. */
static int columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || size.ws_col < 2) return COLUMNS;
    return size.ws_col;
}

void screen_show(struct screen *screen, const char *text, const char *detail, int64_t now_ms)
{
    char line[2 * SCREEN_TEXT_BYTES];
    bool is_new = strcmp(screen->text, text) != 0;
    if (is_new) screen->since_ms = now_ms;
    if (is_new) snprintf(screen->text, sizeof screen->text, "%s", text);
    if (!screen->is_terminal) {
        if (is_new) fprintf(stderr, "%s ...\n", text);
        return;
    }
    long long seconds = (long long)(now_ms - screen->since_ms) / 1000;
    snprintf(line, sizeof line, "%s%s%s ... %lld s", text, *detail ? ", " : "", detail, seconds);
    if (screen->is_shown && strcmp(screen->line, line) == 0) return;
    snprintf(screen->line, sizeof screen->line, "%s", line);
    fprintf(stderr, "\r%.*s\033[K", columns() - 1, line);
    fflush(stderr);
    screen->is_shown = true;
}

void screen_clear(struct screen *screen)
{
    if (screen->is_shown) fputs("\r\033[K", stderr);
    if (screen->is_shown) fflush(stderr);
    screen->is_shown = false;
}

void screen_say(struct screen *screen, const char *format, ...)
{
    const struct terminal terminal = terminal_of(stderr);
    char text[SAID_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    screen_clear(screen);
    fputs("outrider: ", stderr);
    terminal_text(&terminal, text, strlen(text));
    fputc('\n', stderr);
    fflush(stderr);
}
