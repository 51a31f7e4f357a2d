/* Host-side plan of a step on a device: sizes are rounded up to buckets, so that a step can be replayed
 * from a recording, and what the step is about goes over in one copy. Plain C, tested without a GPU. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "model/backend/backend.h"

enum {
    PLAN_EXACT_ROWS = 8,   /* up to here a bucket is its own size */
    PLAN_RECORD_ROWS = 64, /* larger steps are not recorded: their launches are hidden anyway */
    PLAN_TILE_QUERIES = 16 /* query vectors (row, head) of one kv head that attend together */
};

/* 0..8 as they are, then multiples of 8. */
int plan_bucket(int n);

/* What a recording depends on. */
struct plan_key {
    int n, n_rows;    /* buckets */
    int n_partitions; /* of ATTENTION_PARTITION positions of the longest lane: a power of two */
};

/* Query vectors first .. first + PLAN_TILE_QUERIES - 1 of a lane: vector v is the lane's row v / G, head
 * v % G of the kv head's G heads. */
struct plan_tile {
    int32_t lane, first;
};

struct plan_lane {
    int32_t first_row, n_rows, position;
    int32_t first_block; /* of its block table in `blocks` */
};

/* Where the parts of a plan lie, in bytes from its start. All but the length of `blocks`, which is the
 * last part, follows from the buckets: kernels of a recording find everything in its place. */
struct plan_layout {
    struct plan_key key;
    size_t counts;    /* int32 n, n_wanted, n_lanes, n_tiles */
    size_t lanes;     /* struct plan_lane [key.n] */
    size_t row_lane;  /* int32 [key.n]: -1 past n */
    size_t row_pos;   /* int32 [key.n] */
    size_t tokens;    /* int32 [key.n]: 0 past n */
    size_t wanted;    /* int32 [key.n_rows]: 0 past n_rows */
    size_t tiles;     /* struct plan_tile [key.n * ceil(G / 16)], G query heads of a kv head */
    size_t cos, sin;  /* float [key.n][E / 2] */
    size_t embedding; /* float [key.n][D]: zeros past n; nothing for a synthetic table */
    size_t blocks;    /* int32: the lanes' block tables as far as their positions reach */
    size_t bytes;
};

void plan_layout_init(struct plan_layout *layout, const struct backend_step *step);

/* Writes the step into host memory `plan` of layout->bytes; returns the number of tiles. */
int plan_write(const struct plan_layout *layout, const struct backend_step *step, void *plan);
