/* KV blocks. */
#include "coordinator/blocks.h"

#include <stdlib.h>

#include "base/memory.h"

int block_pool_open(struct block_pool *pool, int n_blocks, int block_tokens, struct error *err)
{
    *pool = (struct block_pool){.n_blocks = n_blocks, .block_tokens = block_tokens};
    int rc = mem_array(&pool->free, (size_t)n_blocks, sizeof *pool->free, err);
    if (!rc) block_pool_reset(pool);
    return rc;
}

void block_pool_close(struct block_pool *pool)
{
    free(pool->free);
    *pool = (struct block_pool){0};
}

void block_pool_reset(struct block_pool *pool)
{
    pool->n_free = pool->n_blocks;
    for (int i = 0; i < pool->n_blocks; i++) {
        pool->free[i] = pool->n_blocks - 1 - i; /* low blocks first */
    }
}

int block_table_open(struct block_table *table, int capacity, struct error *err)
{
    *table = (struct block_table){.capacity = capacity};
    return mem_array(&table->blocks, (size_t)capacity, sizeof *table->blocks, err);
}

void block_table_close(struct block_table *table)
{
    free(table->blocks);
    *table = (struct block_table){0};
}

int block_table_reach(struct block_table *table, struct block_pool *pool, int n_positions,
                      struct error *err)
{
    int need = (n_positions + pool->block_tokens - 1) / pool->block_tokens;
    while (table->n < need) {
        if (pool->n_free == 0 || table->n == table->capacity) {
            return error_set(err, ERR_EXHAUSTED, "no KV block is free for position %d",
                             table->n * pool->block_tokens);
        }
        table->blocks[table->n++] = pool->free[--pool->n_free];
    }
    return 0;
}

void block_table_release(struct block_table *table, struct block_pool *pool)
{
    while (table->n > 0) {
        pool->free[pool->n_free++] = table->blocks[--table->n];
    }
}
