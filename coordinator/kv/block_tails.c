/* Tails of a tree's paths, and what becomes of them. */
#include "coordinator/kv/block_tails.h"

#include <assert.h>

int block_tails_reserve(struct block_tails *tails, struct block_pool *pool,
                        const struct block_table *table, const struct tree_layout *tree, int first,
                        struct error *err)
{
    int n = tree_layout_tails(tree, first, pool->block_tokens);
    int last = table->n ? table->blocks[table->n - 1] : -1;
    *tails = (struct block_tails){.first_block = first / pool->block_tokens};
    if (n > block_pool_room(pool)) {
        return error_set(err, ERR_EXHAUSTED,
                         "%d KV blocks are wanted for a tree of %d paths at position %d, %d can be "
                         "had",
                         n, tree->n_paths, first, block_pool_room(pool));
    }
    tails->n_paths = tree->n_paths;
    for (int path = 1; path < tree->n_paths; path++) {
        tails->ends[path] =
            tails->ends[path - 1] + tree_layout_tail(tree, path, first, pool->block_tokens);
        while (tails->n < tails->ends[path]) {
            tails->blocks[tails->n++] = last = block_pool_take(pool, last);
        }
    }
    return 0;
}

/* Puts a block into the table at `at`, which may be its end; returns the one that was there, -1:
 * none. */
static int32_t exchange(struct block_table *table, int at, int32_t block)
{
    int32_t before = at < table->n ? table->blocks[at] : -1;
    assert(at >= table->n_known && at <= table->n && at < table->capacity);
    if (before < 0) table->n++;
    table->blocks[at] = block;
    return before;
}

int block_tails_accept(struct block_tails *tails, struct block_table *table,
                       struct block_pool *pool, int path)
{
    int changed = path ? tails->first_block : table->n, at = tails->first_block;
    assert(path >= 0 && (path == 0 || path < tails->n_paths));
    for (int i = path ? tails->ends[path - 1] : 0; i < tails->ends[path]; i++, at++) {
        tails->blocks[i] = exchange(table, at, tails->blocks[i]);
    }
    block_tails_release(tails, pool);
    return changed;
}

void block_tails_release(struct block_tails *tails, struct block_pool *pool)
{
    while (tails->n > 0) {
        int32_t block = tails->blocks[--tails->n];
        if (block >= 0) block_pool_give_back(pool, block);
    }
    tails->n_paths = 0;
}
