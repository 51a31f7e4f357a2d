/* Counts of the tokens that were served, prompts and answers, kept in a list (model/tokenizer/token_counts.h):
 * what --count-tokens asks for. The list goes on where it was after a restart. One coordinator for each
 * list: the last one that writes wins. Owned by the engine thread; a NULL pointer counts nothing. */
#pragma once

#include "model/tokenizer/tokenizer.h"

struct served_tokens;

/* Reads the list at path, if there is one, and writes it once, so that what will not do is found at the
 * start. Keeps path. Errors: token_counts_read's but for ERR_NOT_FOUND, token_counts_write's. */
int served_tokens_open(struct served_tokens **served, const char *path, const struct tokenizer *tok,
                       struct error *err);
/* Writes what has not been written. */
void served_tokens_close(struct served_tokens *served);

void served_tokens_count(struct served_tokens *served, const int32_t *ids, int n);

/* Writes the list when it has changed and the last writing is minutes ago: 5 when nobody is being
 * served, 15 otherwise, since a vocabulary of 128,256 takes some 70 ms. What goes wrong is logged, and
 * tried again. */
void served_tokens_tick(struct served_tokens *served, int64_t now_us, bool is_idle);
