/* The colours and marks of guesses. Guesses that were not tried are not shown: those after one that
 * was rejected, and siblings of one that stayed. */
#include "client/painter.h"

#include <string.h>

struct mark {
    enum terminal_style style;
    const char *before, *after; /* where there are no colours */
    const char *divider;        /* before it, dimmed, where there are */
    bool is_quoted;             /* it is no part of the text, and takes one line */
};

static const struct mark marks[] = {
    [TOKEN_PLAIN] = {STYLE_PLAIN, "", "", NULL, false},
    [TOKEN_ACCEPTED] = {STYLE_ACCEPTED, "[", "]", NULL, false},
    [TOKEN_REPLACEMENT] = {STYLE_REPLACEMENT, "{+", "+}", NULL, false},
    [TOKEN_BONUS] = {STYLE_BONUS, "<", ">", NULL, false},
};
static const struct mark sibling_mark = {STYLE_SIBLING, "[|", "]", NULL, false};
static const struct mark rejected_mark = {STYLE_REJECTED, "{-", "-}", NULL, true};
static const struct mark rejected_sibling_mark = {STYLE_REJECTED, "{-|", "-}", "|", true};

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

static void paint_divider(const struct terminal *terminal, const char *divider)
{
    terminal_style(terminal, STYLE_DIM);
    fputs(divider, terminal->out);
    terminal_style(terminal, STYLE_PLAIN);
}

/* *ends_with_line is left as it is when there is nothing to show. */
static void paint(const struct terminal *terminal, const struct mark *mark, struct piece piece,
                  bool *ends_with_line)
{
    bool has_mark = !terminal->has_colors && mark->after[0];
    if (piece.len == 0) return;
    *ends_with_line = piece.text[piece.len - 1] == '\n' && !has_mark && !mark->is_quoted;
    if (!terminal->has_colors) fputs(mark->before, terminal->out);
    if (terminal->has_colors && mark->divider) paint_divider(terminal, mark->divider);
    terminal_style(terminal, mark->style);
    if (mark->is_quoted) {
        terminal_quoted(terminal, piece.text, piece.len);
    } else {
        terminal_text(terminal, piece.text, piece.len);
    }
    terminal_style(terminal, STYLE_PLAIN);
    if (!terminal->has_colors) fputs(mark->after, terminal->out);
}

static void paint_text(const struct terminal *terminal, const struct mark *mark, const char *text,
                       bool *ends_with_line)
{
    paint(terminal, mark, (struct piece){text, strlen(text)}, ends_with_line);
}

/* Which sibling token i is; 0: none. */
static int sibling_of(const struct generate_tokens *tokens, int i)
{
    const struct generate_round *round = tokens->round;
    return round && i < round->n_kept ? round->guesses[i].sibling : 0;
}

/* Paints the siblings that were tried for token i and rejected: if one stayed, the ones before
 * it. */
static void paint_rejected_siblings(const struct terminal *terminal,
                                    const struct generate_tokens *tokens, int i,
                                    bool *ends_with_line)
{
    const struct generate_round *round = tokens->round;
    int n = round ? round->n_guesses : 0, kept = sibling_of(tokens, i);
    for (int g = 0; g < n; g++) {
        const struct generate_guess *guess = &round->guesses[g];
        bool is_rejected =
            guess->sibling > 0 && !guess->is_untried && (kept == 0 || guess->sibling < kept);
        if (guess->place != i || !is_rejected) continue;
        paint_text(terminal, &rejected_sibling_mark, guess->text, ends_with_line);
    }
}

void painter_drafts(const struct terminal *terminal, const struct generate_tokens *tokens,
                    bool *ends_with_line)
{
    const char *rejected = tokens->rejected_id >= 0 ? tokens->rejected_text : "";
    for (int i = 0; i < tokens->n; i++) {
        bool is_sibling = sibling_of(tokens, i) > 0;
        const struct mark *mark = is_sibling ? &sibling_mark : &marks[tokens->origins[i]];
        if (is_sibling || tokens->origins[i] == TOKEN_REPLACEMENT) {
            paint_text(terminal, &rejected_mark, rejected, ends_with_line);
            paint_rejected_siblings(terminal, tokens, i, ends_with_line);
            rejected = "";
        }
        paint(terminal, mark, painter_piece(tokens, i), ends_with_line);
    }
    paint_text(terminal, &rejected_mark, rejected, ends_with_line);
    paint(terminal, &marks[TOKEN_PLAIN], painter_piece(tokens, tokens->n), ends_with_line);
}
