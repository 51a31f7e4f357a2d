/* Published KV blocks, by content. */
#include "coordinator/kv/prefix_cache.h"

#include <string.h>
#include <xxhash.h>

static int32_t *tokens_of(const struct block_pool *pool, int block)
{
    return pool->tokens + (size_t)block * (size_t)pool->block_tokens;
}

static int32_t bucket_of(const struct block_pool *pool, uint64_t parent, const int32_t *tokens)
{
    size_t n_bytes = (size_t)pool->block_tokens * sizeof *tokens;
    uint64_t hash = XXH3_64bits_withSeed(tokens, n_bytes, parent);
    return (int32_t)(hash & (uint64_t)(pool->n_buckets - 1));
}

/* Returns the published block with this content after `parent`, or -1. */
static int find(const struct block_pool *pool, uint64_t parent, const int32_t *tokens)
{
    size_t n_bytes = (size_t)pool->block_tokens * sizeof *tokens;
    int32_t i = pool->buckets[bucket_of(pool, parent, tokens)];
    while (i >= 0 &&
           (pool->blocks[i].parent != parent || memcmp(tokens_of(pool, i), tokens, n_bytes) != 0)) {
        i = pool->blocks[i].next;
    }
    return i;
}

int prefix_cache_take(struct block_table *table, struct block_pool *pool, const int32_t *tokens,
                      int n)
{
    int most = (n - 1) / pool->block_tokens;
    if (most > table->capacity) most = table->capacity;
    while (table->n < most) {
        int i = find(pool, table->serial, tokens + table->n * pool->block_tokens);
        if (i < 0) break;
        block_pool_hold(pool, i);
        table->serial = pool->blocks[i].serial;
        table->blocks[table->n++] = i;
    }
    table->n_known = table->n;
    return table->n * pool->block_tokens;
}

static uint64_t publish(struct block_pool *pool, int i, uint64_t parent, const int32_t *tokens)
{
    struct block *block = &pool->blocks[i];
    memcpy(tokens_of(pool, i), tokens, (size_t)pool->block_tokens * sizeof *tokens);
    block->serial = ++pool->last_serial;
    block->parent = parent;
    block->bucket = bucket_of(pool, parent, tokens);
    block->next = pool->buckets[block->bucket];
    pool->buckets[block->bucket] = i;
    return block->serial;
}

void prefix_cache_publish(struct block_table *table, struct block_pool *pool, const int32_t *tokens,
                          int n_kv)
{
    for (; (table->n_known + 1) * pool->block_tokens <= n_kv; table->n_known++) {
        const int32_t *content = tokens + table->n_known * pool->block_tokens;
        int other = find(pool, table->serial, content);
        table->serial = other >= 0
                            ? pool->blocks[other].serial
                            : publish(pool, table->blocks[table->n_known], table->serial, content);
    }
}
