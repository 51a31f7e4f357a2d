/* Pools and tables of KV blocks. */
#include "coordinator/kv/blocks.h"

#include <stdlib.h>

#include "base/memory.h"
#include "model/backend/attention_lane.h"

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
    int rc = 0;
    *pool = (struct block_pool){.n_blocks = n_blocks,
                                .n_groups = (n_blocks + BLOCK_GROUP - 1) / BLOCK_GROUP,
                                .block_tokens = block_tokens,
                                .n_buckets = 1};
    while (pool->n_buckets < 2 * n_blocks) {
        pool->n_buckets *= 2;
    }
    TRY(mem_array(&pool->free, (size_t)pool->n_groups, sizeof *pool->free, err));
    TRY(mem_array(&pool->blocks, (size_t)n_blocks, sizeof *pool->blocks, err));
    TRY(mem_array(&pool->tokens, (size_t)n_blocks * (size_t)block_tokens, sizeof *pool->tokens,
                  err));
    TRY(mem_array(&pool->buckets, (size_t)pool->n_buckets, sizeof *pool->buckets, err));
    block_pool_reset(pool);
out:
    if (rc) block_pool_close(pool);
    return rc;
}

void block_pool_close(struct block_pool *pool)
{
    free(pool->free);
    free(pool->blocks);
    free(pool->tokens);
    free(pool->buckets);
    *pool = (struct block_pool){0};
}

void block_pool_reset(struct block_pool *pool)
{
    pool->n_free = pool->n_blocks;
    pool->n_cached = 0;
    pool->oldest = pool->newest = -1;
    for (int i = 0; i < pool->n_groups; i++) {
        pool->free[i] = group_whole(pool, i);
    }
    for (int i = 0; i < pool->n_blocks; i++) {
        pool->blocks[i] = (struct block){.next = -1, .older = -1, .newer = -1};
    }
    for (int i = 0; i < pool->n_buckets; i++) {
        pool->buckets[i] = -1;
    }
}

int block_pool_room(const struct block_pool *pool)
{
    return pool->n_free + pool->n_cached;
}

/* ---- published blocks that no table holds, by their last use ---- */

/* No table holds this published block any more; it is the most recently used one. */
static void keep(struct block_pool *pool, int i)
{
    struct block *block = &pool->blocks[i];
    block->older = pool->newest;
    block->newer = -1;
    if (pool->newest >= 0) {
        pool->blocks[pool->newest].newer = i;
    } else {
        pool->oldest = i;
    }
    pool->newest = i;
    pool->n_cached++;
}

static void unkeep(struct block_pool *pool, int i)
{
    struct block *block = &pool->blocks[i];
    if (block->older >= 0) {
        pool->blocks[block->older].newer = block->newer;
    } else {
        pool->oldest = block->newer;
    }
    if (block->newer >= 0) {
        pool->blocks[block->newer].older = block->older;
    } else {
        pool->newest = block->older;
    }
    block->older = block->newer = -1;
    pool->n_cached--;
}

/* Forgets the block's content. */
static void forget(struct block_pool *pool, int i)
{
    struct block *block = &pool->blocks[i];
    int32_t *link = &pool->buckets[block->bucket];
    unkeep(pool, i);
    while (*link != i) {
        link = &pool->blocks[*link].next;
    }
    *link = block->next;
    block->next = -1;
    block->serial = 0;
}

void block_pool_hold(struct block_pool *pool, int i)
{
    if (pool->blocks[i].n_refs++ == 0) unkeep(pool, i);
}

/* ---- which block ---- */

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

static void set_free(struct block_pool *pool, int block)
{
    pool->free[block / BLOCK_GROUP] |= (uint16_t)(1u << block % BLOCK_GROUP);
    pool->n_free++;
}

/* Forgets the least recently used published block, and with it those that were used next after it
 * as long as they are of its group: they are of the same text, and a sequence that takes them gets
 * neighbours. A block of the group that was used since stays. */
static void forget_oldest(struct block_pool *pool)
{
    int group = pool->oldest / BLOCK_GROUP;
    while (pool->oldest >= 0 && pool->oldest / BLOCK_GROUP == group) {
        int block = pool->oldest;
        forget(pool, block);
        set_free(pool, block);
    }
}

int block_pool_take(struct block_pool *pool, int last)
{
    if (pool->n_free == 0) forget_oldest(pool);
    int block = choose_block(pool, last);
    pool->free[block / BLOCK_GROUP] ^= (uint16_t)(1u << block % BLOCK_GROUP);
    pool->n_free--;
    pool->blocks[block].n_refs = 1;
    return block;
}

void block_pool_give_back(struct block_pool *pool, int i)
{
    struct block *block = &pool->blocks[i];
    if (--block->n_refs > 0) return;
    if (block->serial) {
        keep(pool, i);
    } else {
        set_free(pool, i);
    }
}

/* ---- tables ---- */

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

int block_table_lacks(const struct block_table *table, const struct block_pool *pool,
                      int n_positions)
{
    int need = (n_positions + pool->block_tokens - 1) / pool->block_tokens;
    return need > table->n ? need - table->n : 0;
}

int block_table_reach(struct block_table *table, struct block_pool *pool, int n_positions,
                      struct error *err)
{
    int n_lacking = block_table_lacks(table, pool, n_positions);
    if (n_lacking > block_pool_room(pool) || table->n + n_lacking > table->capacity) {
        return error_set(err, ERR_EXHAUSTED,
                         "%d KV blocks are wanted up to position %d, %d can "
                         "be had",
                         n_lacking, n_positions, block_pool_room(pool));
    }
    for (; n_lacking > 0; n_lacking--) {
        int block = block_pool_take(pool, table->n ? table->blocks[table->n - 1] : -1);
        table->blocks[table->n++] = block;
    }
    return 0;
}

void block_table_give_up(struct block_table *table, struct block_pool *pool, int position)
{
    int end = attention_first(position, pool->window) / pool->block_tokens;
    if (end > table->n_known) end = table->n_known;
    while (table->n_given_up < end) {
        block_pool_give_back(pool, table->blocks[table->n_given_up++]);
    }
}

/* From the end, so that the beginning of a text, which more texts share, is forgotten last. */
void block_table_release(struct block_table *table, struct block_pool *pool)
{
    while (table->n > table->n_given_up) {
        block_pool_give_back(pool, table->blocks[--table->n]);
    }
    table->n = table->n_given_up = table->n_known = 0;
    table->serial = 0;
}
