/* KV blocks: the coordinator owns which block holds which positions of which sequence, for the
 * target group and for its own draft. Owned by the engine thread. */
#pragma once

#include <stdint.h>

#include "base/error.h"

/* A sequence gets runs of neighbouring blocks, group after group, because attention reads those
 * fastest. */
enum { BLOCK_GROUP = 16 };

struct block_pool {
    uint16_t *free; /* [n_groups] a bit for each block */
    int n_free, n_blocks, n_groups, block_tokens;
};

/* Block table of one sequence: blocks[position / block_tokens]. */
struct block_table {
    int32_t *blocks;
    int n, capacity;
};

int block_pool_open(struct block_pool *pool, int n_blocks, int block_tokens, struct error *err);
void block_pool_close(struct block_pool *pool);

/* All blocks are free again; tables that were filled before are no longer valid. */
void block_pool_reset(struct block_pool *pool);

int block_table_open(struct block_table *table, int capacity, struct error *err);
void block_table_close(struct block_table *table);

/* Takes blocks until the table reaches n_positions. Errors: ERR_EXHAUSTED the pool is empty (what
 * was taken stays in the table). */
int block_table_reach(struct block_table *table, struct block_pool *pool, int n_positions,
                      struct error *err);
void block_table_release(struct block_table *table, struct block_pool *pool);
