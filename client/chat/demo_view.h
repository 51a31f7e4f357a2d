/* Two texts with their clocks: side by side where the terminal is wide enough, otherwise one below
 * the other. Drawn again over itself as tokens come. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/text/buffer.h"
#include "client/terminal.h"

enum { DEMO_TIME_BYTES = 32 };
/* "25 ms" or "1.42 s". */
const char *demo_time(char text[DEMO_TIME_BYTES], int64_t us);

/* A text that is written, and how long it took so far. */
struct demo_side {
    const char *title;
    struct buffer text; /* the answer */
    int n_rounds;
    int64_t us;
    bool is_over, has_begun;
};

struct demo_view {
    struct terminal terminal; /* of stdout */
    const char *prompt;
    const struct demo_side *sides[2];
    int n_lines; /* that were drawn; the cursor is below them */
    int64_t drawn_us;
};

/* Begins a new pair below all that was printed. */
void demo_view_begin(struct demo_view *view, const char *prompt, const struct demo_side *left,
                     const struct demo_side *right);
/* Draws it, unless it has just been drawn and is_last is false; nothing where there is no terminal
 * that can move its cursor. */
void demo_view_draw(struct demo_view *view, bool is_last);
