/* Text is broken into lines at blanks; each line is filled up to the column's width. */
#include "client/chat/demo_view.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    WIDE_COLUMNS = 72, /* from which on the texts are side by side */
    COLUMNS_DEFAULT = 80,
    MOST_COLUMNS = 120,
    GAP = 3,
    LINES_MAX = 32,
    REDRAW_US = 40000,
    HEAD_BYTES = 128
};

/* A line of a text; blanks and newlines between lines are left out. */
struct text_line {
    const char *text;
    size_t len;
    int columns;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool begins_character(char c)
{
    return ((unsigned char)c & 0xC0) != 0x80;
}

/* The end of the word that begins at `at`, or of its part that fits into a line. */
static size_t word_end(const char *text, size_t len, size_t at, int width, int *columns)
{
    *columns = 0;
    while (at < len && !is_blank(text[at])) {
        if (begins_character(text[at]) && (*columns)++ == width) break;
        at++;
    }
    if (*columns > width) *columns = width;
    return at;
}

/* Lines of at most width columns; returns how many, at most LINES_MAX, of which the last ones are
 * kept. */
static int break_lines(struct text_line lines[LINES_MAX], const char *text, size_t len, int width)
{
    int n = 0, columns;
    size_t at = 0;
    while (at < len) {
        if (is_blank(text[at])) {
            at++;
            continue;
        }
        size_t end = word_end(text, len, at, width, &columns);
        struct text_line *line = n ? &lines[n - 1] : NULL;
        if (line && line->columns + 1 + columns <= width) {
            line->len = (size_t)(text + end - line->text);
            line->columns += 1 + columns;
        } else {
            if (n == LINES_MAX) memmove(lines, lines + 1, (size_t)--n * sizeof *lines);
            lines[n++] = (struct text_line){text + at, end - at, columns};
        }
        at = end;
    }
    return n;
}

/* Prints the line with blanks in place of whatever separates words; returns its columns. */
static int put_line(const struct terminal *to, const struct text_line *line)
{
    int columns = 0;
    for (size_t i = 0; i < line->len;) {
        if (is_blank(line->text[i])) {
            while (i < line->len && is_blank(line->text[i]))
                i++;
            fputc(' ', to->out);
            columns++;
            continue;
        }
        size_t end = i;
        while (end < line->len && !is_blank(line->text[end]))
            end++;
        columns += terminal_quoted(to, line->text + i, end - i);
        i = end;
    }
    return columns;
}

static int terminal_columns(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || size.ws_col < 2) return COLUMNS_DEFAULT;
    return size.ws_col < MOST_COLUMNS ? size.ws_col : MOST_COLUMNS;
}

const char *demo_time(char text[DEMO_TIME_BYTES], int64_t us)
{
    bool is_short = us < 1000000;
    snprintf(text, DEMO_TIME_BYTES, is_short ? "%.0f ms" : "%.2f s",
             (double)us / (is_short ? 1e3 : 1e6));
    return text;
}

static void head_of(char head[HEAD_BYTES], const struct demo_side *side)
{
    char time[DEMO_TIME_BYTES];
    if (!side->has_begun) {
        snprintf(head, HEAD_BYTES, "%s: waits for its turn", side->title);
        return;
    }
    snprintf(head, HEAD_BYTES, "%s: %s, %d rounds", side->title, demo_time(time, side->us),
             side->n_rounds);
}

static void pad(FILE *out, int columns)
{
    while (columns-- > 0)
        fputc(' ', out);
}

static void put_head(const struct terminal *to, const char *head, int width)
{
    int len = (int)strlen(head) < width ? (int)strlen(head) : width;
    terminal_style(to, STYLE_ACCEPTED);
    fprintf(to->out, "%.*s", len, head);
    terminal_style(to, STYLE_PLAIN);
    pad(to->out, width - len);
}

static int draw_wide(const struct demo_view *v, const struct terminal *to, int columns)
{
    struct text_line lines[2][LINES_MAX];
    int n[2], n_most = 0, width = (columns - GAP) / 2;
    char head[HEAD_BYTES];
    for (int i = 0; i < 2; i++) {
        const struct buffer *text = &v->sides[i]->text;
        n[i] = break_lines(lines[i], (const char *)text->data, text->len, width);
        if (n[i] > n_most) n_most = n[i];
        head_of(head, v->sides[i]);
        if (i) pad(to->out, GAP);
        put_head(to, head, width);
    }
    fputs("\033[K\n", to->out);
    for (int row = 0; row < n_most; row++) {
        int used = row < n[0] ? put_line(to, &lines[0][row]) : 0;
        pad(to->out, width - used + GAP);
        if (row < n[1]) put_line(to, &lines[1][row]);
        fputs("\033[K\n", to->out);
    }
    return 1 + n_most;
}

static int draw_narrow(const struct demo_view *v, const struct terminal *to, int columns)
{
    struct text_line lines[LINES_MAX];
    int n_drawn = 0;
    char head[HEAD_BYTES];
    for (int i = 0; i < 2; i++) {
        const struct buffer *text = &v->sides[i]->text;
        int n = break_lines(lines, (const char *)text->data, text->len, columns - 1);
        head_of(head, v->sides[i]);
        put_head(to, head, (int)strlen(head) < columns ? (int)strlen(head) : columns - 1);
        fputs("\033[K\n", to->out);
        for (int row = 0; row < n; row++) {
            put_line(to, &lines[row]);
            fputs("\033[K\n", to->out);
        }
        n_drawn += 1 + n;
    }
    return n_drawn;
}

void demo_view_begin(struct demo_view *v, const char *prompt, const struct demo_side *left,
                     const struct demo_side *right)
{
    v->prompt = prompt;
    v->sides[0] = left;
    v->sides[1] = right;
    v->n_lines = 0;
    v->drawn_us = 0;
    if (!v->terminal.is_terminal) return;
    fputc('\n', v->terminal.out);
    terminal_style(&v->terminal, STYLE_DIM);
    terminal_quoted(&v->terminal, prompt, strlen(prompt));
    fputs(" ...", v->terminal.out);
    terminal_style(&v->terminal, STYLE_PLAIN);
    fputc('\n', v->terminal.out);
}

/* Written at once, so that nothing is seen half drawn. */
void demo_view_draw(struct demo_view *v, bool is_last)
{
    int columns = terminal_columns();
    struct terminal to = v->terminal;
    char *drawn = NULL;
    size_t len = 0;
    int64_t now_us = clock_now_us();
    if (!to.is_terminal || (!is_last && now_us - v->drawn_us < REDRAW_US)) return;
    to.out = open_memstream(&drawn, &len);
    if (!to.out) return;
    if (v->n_lines) fprintf(to.out, "\r\033[%dA", v->n_lines);
    int n = columns >= WIDE_COLUMNS ? draw_wide(v, &to, columns) : draw_narrow(v, &to, columns);
    fputs("\033[J", to.out);
    fclose(to.out);
    fwrite(drawn, 1, len, stdout);
    fflush(stdout);
    free(drawn);
    v->n_lines = n;
    v->drawn_us = now_us;
}
