/* Host-side plan of a step on a device: sizes are rounded up to buckets, so that a step can be replayed
 * from a recording, and what the step is about goes over in one copy. Plain C, tested without a GPU. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "model/backend.h"

enum {
    PLAN_EXACT_ROWS = 8,   /* up to here a bucket is its own size */
    PLAN_RECORD_ROWS = 64, /* larger steps are not recorded: their launches are hidden anyway */
    PLAN_TILE_QUERIES = 16 /* query vectors (row, head) of one kv head that attend together */
};

/* 1..8 as they are, then multiples of 8 to 64, of 64 to 512, of 512. 0 stays 0. */
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

/* Where the parts of a plan lie, in bytes from its start; the same for every step of one capacity. */
struct plan_layout {
    int max_rows, max_lanes, max_wanted, max_blocks, half, dim, group;
    size_t counts;    /* int32 n, n_wanted, n_lanes, n_tiles */
    size_t lanes;     /* struct plan_lane [max_lanes] */
    size_t row_lane;  /* int32 [max_rows] */
    size_t row_pos;   /* int32 [max_rows] */
    size_t wanted;    /* int32 [max_wanted] */
    size_t tiles;     /* struct plan_tile [max_rows * ceil(group / 16)] */
    size_t blocks;    /* int32 [max_blocks] */
    size_t cos, sin;  /* float [max_rows][half] */
    size_t embedding; /* float [max_rows][dim] */
    size_t bytes;
};

/* True when `step` fits into a plan of this layout. */
bool plan_fits(const struct plan_layout *layout, const struct backend_step *step);
/* A layout with room for step and, doubling, for what may follow. group: query heads of a kv head;
 * half: E / 2; dim: D. */
void plan_layout_init(struct plan_layout *layout, const struct backend_step *step, int half,
                      int dim, int group);

/* Writes the step into host memory `plan` of layout->bytes; rows past n are of no lane (-1) and embed
 * zeros. Returns the bytes from the start that must go over. */
size_t plan_write(const struct plan_layout *layout, const struct backend_step *step, void *plan,
                  struct plan_key *key);
