/* Counts the tokens that were served, prompts and answers, in a list
 * (model/tokenizer/token_counts.h), as --count-tokens asks. After a restart it goes on with the
 * list. Each coordinator needs a list of its own, because each writes the whole list and the last
 * one wins. Locked inside; a NULL pointer counts nothing. */
#pragma once

#include "model/tokenizer/tokenizer.h"

struct served_tokens;

/* Reads the list at path, if there is one, and writes it once, so that a path that does not work is
 * found at the start. Keeps path. Errors: token_counts_read's but for ERR_NOT_FOUND,
 * token_counts_write's. */
int served_tokens_open(struct served_tokens **served, const char *path, const struct tokenizer *tok,
                       struct error *err);
/* Writes what has not been written. */
void served_tokens_close(struct served_tokens *served);

void served_tokens_count(struct served_tokens *served, const int32_t *ids, int n);

/* Writes the list when it has changed and the last writing is minutes ago: 5 when no job is active,
 * 15 otherwise, because writing a vocabulary of 128,256 takes about 70 ms. An error is logged and
 * writing tried again later. */
void served_tokens_tick(struct served_tokens *served, int64_t now_us, bool is_idle);
