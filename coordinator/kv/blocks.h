/* KV blocks: the coordinator owns which block holds which positions of which sequence, for the
 * target group and for its own draft. A block may be in several tables at once, as long as nobody
 * writes to it: only full blocks of equal texts are shared (coordinator/kv/prefix_cache.h). Owned
 * by the engine thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* A sequence gets runs of neighbouring blocks, group after group, because attention reads those
 * fastest. */
enum { BLOCK_GROUP = 16, BLOCK_TOKENS_MAX = 64 };

/* A published block has a serial number that was never used before. With the serial of the block
 * before it in the text, its key is (parent, tokens): a chain of keys from the beginning of the
 * text, so that no two texts can be taken for one, whatever their hashes are. */
struct block {
    int n_refs;           /* tables that hold it */
    uint64_t serial;      /* 0 = its content is not published */
    uint64_t parent;      /* 0 = it is the first of its text */
    int32_t bucket, next; /* of the prefix cache; the block after it there, -1 = the last */
    int32_t older, newer; /* among the published blocks that no table holds, -1 = none */
};

struct block_pool {
    uint16_t *free; /* [n_groups] a bit for each block that nobody holds and nobody knows */
    int n_free, n_blocks, n_groups, block_tokens;
    int window; /* no layer of the model sees more positions; 0: some layer sees all. Set by the one
                   who opens the pool */
    struct block *blocks; /* [n_blocks] */
    int32_t *tokens;      /* [n_blocks][block_tokens] of published blocks */
    int32_t *buckets;     /* [n_buckets] of the prefix cache, -1 = empty */
    int n_buckets;        /* a power of two */
    int32_t oldest, newest;
    int n_cached; /* published blocks that no table holds: they are taken when none is free */
    uint64_t last_serial;
};

/* Block table of one sequence: blocks[position / block_tokens]. */
struct block_table {
    int32_t *blocks;
    int n, capacity;
    int n_given_up;  /* leading entries that the table does not hold any more */
    int n_known;     /* leading blocks whose content is published, by this table or another */
    uint64_t serial; /* of the last of them */
};

/* 1 <= block_tokens <= BLOCK_TOKENS_MAX. */
int block_pool_open(struct block_pool *pool, int n_blocks, int block_tokens, struct error *err);
void block_pool_close(struct block_pool *pool);

/* All blocks are free again and nothing is published; tables that were filled before are no longer
 * valid. */
void block_pool_reset(struct block_pool *pool);

/* Blocks that a table could take. */
int block_pool_room(const struct block_pool *pool);

/* One table more holds this published block. */
void block_pool_hold(struct block_pool *pool, int block);

/* Takes a block, which follows `last` (-1: none) as closely as one can. The pool has room; a
 * published block that no table holds may be forgotten for it. */
int block_pool_take(struct block_pool *pool, int last);
/* One table less holds the block. A published one keeps its content until it is needed. */
void block_pool_give_back(struct block_pool *pool, int block);

int block_table_open(struct block_table *table, int capacity, struct error *err);
void block_table_close(struct block_table *table);

/* The blocks that the table still needs to reach n_positions. */
int block_table_lacks(const struct block_table *table, const struct block_pool *pool,
                      int n_positions);

/* Takes blocks until the table reaches n_positions, all of them or none. Published blocks that no
 * table holds are forgotten for it, the least recently used first. Errors: ERR_EXHAUSTED. */
int block_table_reach(struct block_table *table, struct block_pool *pool, int n_positions,
                      struct error *err);

/* Gives the blocks back that no row from `position` on sees through the pool's window, as far as
 * their content is published, so that texts which begin alike may find it. Their entries stay, and
 * nobody may read through them. */
void block_table_give_up(struct block_table *table, struct block_pool *pool, int position);

/* Gives all blocks back. Published ones keep their content until they are needed. */
void block_table_release(struct block_table *table, struct block_pool *pool);
