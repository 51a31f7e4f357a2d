/* The progress of `outrider serve`, on the standard error: one line that changes on a terminal, and
 * elsewhere a line for each step of the start, without control codes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { SCREEN_TEXT_BYTES = 256 };

struct screen {
    bool is_terminal;
    bool is_shown; /* the line that changes */
    char text[SCREEN_TEXT_BYTES], line[2 * SCREEN_TEXT_BYTES];
    int64_t since_ms;
};

void screen_open(struct screen *screen);
/* Shows what is done, with the seconds that it has taken on a terminal. The detail is for terminals
 * alone; "": there is none. */
void screen_show(struct screen *screen, const char *text, const char *detail, int64_t now_ms);
/* Takes the line that changes away, before something else is printed. */
void screen_clear(struct screen *screen);
/* Prints a sentence: "outrider: TEXT". Control characters are escaped on a terminal. */
void screen_say(struct screen *screen, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
