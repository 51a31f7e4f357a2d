/* The colours and marks of guesses. */
#include "client/painter.h"

#include <string.h>

struct mark {
    enum terminal_style style;
    const char *before, *after; /* where there are no colours */
};

static const struct mark marks[] = {
    [TOKEN_PLAIN] = {STYLE_PLAIN, "", ""},
    [TOKEN_ACCEPTED] = {STYLE_ACCEPTED, "[", "]"},
    [TOKEN_REPLACEMENT] = {STYLE_REPLACEMENT, "{+", "+}"},
    [TOKEN_BONUS] = {STYLE_BONUS, "<", ">"},
};
static const struct mark rejected_mark = {STYLE_REJECTED, "{-", "-}"};

/* Where the text of the tokens up to i ends. It never ends inside a character, nor before the end
 * of an earlier token, whatever text_ends says. */
static size_t end_of(const struct generate_tokens *tokens, int i)
{
    size_t end = 0;
    if (i >= tokens->n) return tokens->text_len;
    for (int j = 0; j <= i; j++) {
        if (tokens->text_ends[j] > end) end = tokens->text_ends[j];
    }
    if (end > tokens->text_len) end = tokens->text_len;
    while (end < tokens->text_len && ((unsigned char)tokens->text[end] & 0xC0) == 0x80) {
        end++;
    }
    return end;
}

struct piece painter_piece(const struct generate_tokens *tokens, int i)
{
    size_t begin = i > 0 ? end_of(tokens, i - 1) : 0;
    return (struct piece){tokens->text + begin, end_of(tokens, i) - begin};
}

/* *ends_with_line is left as it is when there is nothing to show. */
static void paint(const struct terminal *terminal, const struct mark *mark, struct piece piece,
                  bool *ends_with_line)
{
    bool has_mark = !terminal->has_colors && mark->after[0];
    if (piece.len == 0) return;
    *ends_with_line = piece.text[piece.len - 1] == '\n' && !has_mark && mark != &rejected_mark;
    if (!terminal->has_colors) fputs(mark->before, terminal->out);
    terminal_style(terminal, mark->style);
    if (mark == &rejected_mark) {
        terminal_quoted(terminal, piece.text, piece.len);
    } else {
        terminal_text(terminal, piece.text, piece.len);
    }
    terminal_style(terminal, STYLE_PLAIN);
    if (!terminal->has_colors) fputs(mark->after, terminal->out);
}

void painter_drafts(const struct terminal *terminal, const struct generate_tokens *tokens,
                    bool *ends_with_line)
{
    const char *rejected = tokens->rejected_id >= 0 ? tokens->rejected_text : "";
    for (int i = 0; i < tokens->n; i++) {
        if (tokens->origins[i] == TOKEN_REPLACEMENT) {
            paint(terminal, &rejected_mark, (struct piece){rejected, strlen(rejected)},
                  ends_with_line);
            rejected = "";
        }
        paint(terminal, &marks[tokens->origins[i]], painter_piece(tokens, i), ends_with_line);
    }
    paint(terminal, &rejected_mark, (struct piece){rejected, strlen(rejected)}, ends_with_line);
    paint(terminal, &marks[TOKEN_PLAIN], painter_piece(tokens, tokens->n), ends_with_line);
}
