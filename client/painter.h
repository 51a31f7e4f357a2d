/* Shows generated tokens: plainly, or with what became of each guess, as in figure 1 of Leviathan et
 * al. 2023. */
#pragma once

#include "client/terminal.h"
#include "proto/generation_wire.h"

/* The text of token i: what became complete with it. The pieces of all tokens and the tail (i = n)
 * make up the text; each is whole characters whatever the server says. */
struct piece {
    const char *text;
    size_t len;
};
struct piece painter_piece(const struct generate_tokens *tokens, int i);

/* One message, with colours or, without them, with marks. */
void painter_drafts(const struct terminal *terminal, const struct generate_tokens *tokens);
