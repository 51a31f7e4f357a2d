/* Shows tokens with what became of each guess, as in figure 1 of Leviathan et al. 2023. */
#pragma once

#include "client/terminal.h"
#include "proto/generation_wire.h"

/* The text of token i: the characters that became complete with it. The pieces of all tokens and
 * the tail (i = n) make up the text, and each consists of whole characters whatever the server
 * says. */
struct piece {
    const char *text;
    size_t len;
};
struct piece painter_piece(const struct generate_tokens *tokens, int i);

/* Shows one message, with colours or, where there are none, with marks. Sets *ends_with_line to
 * whether the last character shown was a newline; leaves it when nothing was shown. */
void painter_drafts(const struct terminal *terminal, const struct generate_tokens *tokens,
                    bool *ends_with_line);
