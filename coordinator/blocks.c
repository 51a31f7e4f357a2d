/* Pools and tables of KV blocks. */
#include "coordinator/blocks.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/memory.h"

static int group_size(const struct block_pool *pool, int group)
{
    int rest = pool->n_blocks - group * BLOCK_GROUP;
    return rest < BLOCK_GROUP ? rest : BLOCK_GROUP;
}

static uint16_t group_whole(const struct block_pool *pool, int group)
{
    return (uint16_t)((1u << group_size(pool, group)) - 1);
}

int block_pool_open(struct block_pool *pool, int n_blocks, int block_tokens, struct error *err)
{
    *pool = (struct block_pool){.n_blocks = n_blocks,
                                .n_groups = (n_blocks + BLOCK_GROUP - 1) / BLOCK_GROUP,
                                .block_tokens = block_tokens};
    int rc = mem_array(&pool->free, (size_t)pool->n_groups, sizeof *pool->free, err);
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
    for (int i = 0; i < pool->n_groups; i++) {
        pool->free[i] = group_whole(pool, i);
    }
}

static bool is_free(const struct block_pool *pool, int block)
{
    return block < pool->n_blocks && (pool->free[block / BLOCK_GROUP] >> block % BLOCK_GROUP & 1);
}

/* The lowest group of which every block is free, or -1. */
static int find_group(const struct block_pool *pool)
{
    for (int i = 0; i < pool->n_groups; i++) {
        if (pool->free[i] == group_whole(pool, i)) return i;
    }
    return -1;
}

static int find_any(const struct block_pool *pool)
{
    int i = 0;
    while (!pool->free[i]) {
        i++;
    }
    return i * BLOCK_GROUP + __builtin_ctz(pool->free[i]);
}

/* The block that follows `last` (-1: none) best: its neighbour within a group, the next group if
 * all of it is free, another group that is, and otherwise any free block. */
static int choose_block(const struct block_pool *pool, int last)
{
    int next = last + 1, group = next / BLOCK_GROUP;
    if (last >= 0 && is_free(pool, next)) {
        if (next % BLOCK_GROUP || pool->free[group] == group_whole(pool, group)) return next;
    }
    group = find_group(pool);
    return group >= 0 ? group * BLOCK_GROUP : find_any(pool);
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
        int block = choose_block(pool, table->n ? table->blocks[table->n - 1] : -1);
        pool->free[block / BLOCK_GROUP] ^= (uint16_t)(1u << block % BLOCK_GROUP);
        pool->n_free--;
        table->blocks[table->n++] = block;
    }
    return 0;
}

void block_table_release(struct block_table *table, struct block_pool *pool)
{
    while (table->n > 0) {
        int block = table->blocks[--table->n];
        pool->free[block / BLOCK_GROUP] |= (uint16_t)(1u << block % BLOCK_GROUP);
        pool->n_free++;
    }
}
