/* The decisions that the host takes before a device runs a step: the sizes it is padded to, so that
 * it can be replayed from a recording, and where each of its inputs lies in the one block of memory
 * that is copied to the device. Plain C, tested without a GPU. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "model/backend/backend.h"

enum {
    STEP_EXACT_ROWS = 8,      /* up to this many rows a step is not padded */
    STEP_RECORDED_ROWS = 512, /* larger steps are not recorded: their kernels hide the launches */
    STEP_SPLIT_ROWS = 64,     /* in larger steps a block attends to all partitions of its tile */
    STEP_TILE_QUERIES = 16,   /* query vectors (row, head) of one kv head that attend together */
    STEP_WIDE_QUERIES = 64 /* the same in a wide tile, which has more than half as many vectors */
};

/* The rows that a launch has for n fed rows of a step: 0..8 as they are, then multiples of 8 up to
 * 64, of 16 up to 128, of 32 up to 256 and of 64 up to STEP_RECORDED_ROWS, so that there are few
 * sizes and a recorded step has less than a quarter of its rows as padding. More rows are padded to
 * multiples of 8. */
int step_plan_pad(int n);

/* As step_plan_pad, for n wanted rows of a step that has n_rows rows after padding. Steps that want
 * all of their rows or one are the most common ones; other numbers become powers of two. */
int step_plan_pad_wanted(int n, int n_rows);

/* The most wanted rows that a launch has in steps that want at most n. */
int step_plan_wanted_capacity(int n);

/* A step's sizes after padding. A recording can be replayed for every step of the same size. */
struct step_size {
    int n_rows;   /* fed */
    int n_wanted; /* whose logits are wanted */
    /* Runs of ATTENTION_PARTITION positions that the longest lane has: a power of two. 1 beyond
     * STEP_SPLIT_ROWS in a step that is recorded: no launch depends on it then. */
    int n_partitions;
    /* Room for tiles: as many as so many rows can have; beyond STEP_SPLIT_ROWS half or a quarter of
     * them where that is enough, and the exact number in a step that is not recorded. */
    int n_tiles;
    bool has_wide; /* tiles */
    int n_copies;  /* 0 if the step copies no positions, otherwise n_rows */
    int variant;   /* of its operations */
};

/* Query vectors first .. first + STEP_TILE_QUERIES - 1 of a lane, or STEP_WIDE_QUERIES of them.
 * Vector v is the lane's row v / G and head v % G of the kv head's G heads. Wide tiles come first;
 * a step of up to STEP_SPLIT_ROWS rows has none. */
struct step_tile {
    int32_t lane, first;
};

/* A run of rows at ascending positions with one block table: a chain, or of a tree the rows that a
 * path has and no earlier path. The runs of a tree are in the order of its paths. */
struct step_lane {
    int32_t first_row, n_rows, position;
    int32_t first_block; /* of its block table in `blocks` */
};

/* The first n positions of a block that are copied to another one before rows are stored after
 * them; n = 0: nothing. */
struct step_copy {
    int32_t from, to, n;
};

/* The exact numbers of a step that kernels need: indices of `counts`. */
enum step_count {
    STEP_COUNT_ROWS,
    STEP_COUNT_WANTED,
    STEP_COUNT_LANES,
    STEP_COUNT_TILES,
    STEP_COUNT_WIDE, /* of the tiles */
    STEP_COUNTS
};

/* The size, and the offset in bytes of each input. All offsets follow from the size alone, and only
 * the length of `blocks`, which comes last, does not: the kernels of a recording therefore find
 * every input where it was. */
struct step_plan {
    struct step_size size;
    size_t counts;      /* int32 [STEP_COUNTS] */
    size_t lanes;       /* struct step_lane [size.n_rows] */
    size_t row_lane;    /* int32 [size.n_rows]: -1 for padding */
    size_t row_pos;     /* int32 [size.n_rows] */
    size_t row_end;     /* int32 [size.n_rows]: K and V go to the lanes row_lane .. row_end - 1 */
    size_t tokens;      /* int32 [size.n_rows]: 0 for padding */
    size_t wanted;      /* int32 [size.n_wanted]: 0 for padding */
    size_t tiles;       /* struct step_tile [size.n_tiles] */
    size_t copies;      /* struct step_copy [size.n_copies] */
    size_t cos, sin;    /* float [size.n_rows][n_ropes][E / 2] */
    size_t query_scale; /* float [size.n_rows]; absent without such scales */
    size_t embedding;   /* float [size.n_rows][D]: zeros for padding; if step_plan_has_embedding */
    size_t features,
        recycled;  /* uint16 [size.n_rows][feature_width], int32 [size.n_rows]: zeros for
                                  padding; absent without features */
    size_t blocks; /* int32: the lanes' block tables as far as their positions reach */
    size_t bytes;  /* of all inputs together */
};

/* True if the inputs have embedding rows: those of a file that the device has no copy of. */
bool step_plan_has_embedding(const struct backend_step *step);

void step_plan_init(struct step_plan *plan, const struct backend_step *step);

/* Writes the step's inputs into host memory of plan->bytes. */
void step_plan_write(const struct step_plan *plan, const struct backend_step *step, void *inputs);
