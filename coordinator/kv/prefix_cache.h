/* Equal beginnings of texts share their KV. A full block is found by its tokens and the block
 * before it; a hit compares both, so that no collision of hashes can mix texts. With one arithmetic
 * (docs/design.md section 4) a shared block holds bit for bit what the sequence would have
 * computed. Pools are of one model on one group, so the key needs to name neither. Owned by the
 * engine thread. */
#pragma once

#include "coordinator/kv/blocks.h"

/* Extends a table whose blocks are all published, an empty one above all, by the published blocks
 * with which tokens[n] go on, at most those that leave one token to be read, because its row is
 * wanted. Returns the number of tokens that the table then holds. */
int prefix_cache_take(struct block_table *table, struct block_pool *pool, const int32_t *tokens,
                      int n);

/* Publishes the table's full blocks below n_kv: their positions have been written, and the tokens
 * there are committed. Where another table has published the same text, that one stays, and this
 * table's block remains its own. */
void prefix_cache_publish(struct block_table *table, struct block_pool *pool, const int32_t *tokens,
                          int n_kv);
