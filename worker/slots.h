/* A rank's knowledge of its KV cache: the block table of each slot, and how far each block has been
 * written. It checks the changes that a lane of a step makes before anything is changed. Owned by
 * the engine thread. */
#pragma once

#include <stdbool.h>

#include "base/tree_layout.h"
#include "proto/target_wire.h"

/* The state of one sequence. The coordinator owns the block table; this is its copy. */
struct slot {
    int32_t *blocks; /* [table_len] position / 16 -> block */
    int n_blocks;    /* valid entries */
    int n_kv;        /* positions that are known to be written, from the beginning on */
};

/* Blocks may be in several slots at once, so what is written is known of blocks. */
struct kv_block {
    int n_written;    /* its leading positions that hold KV */
    uint64_t step_id; /* of the last step that wrote to it */
    bool is_tail;     /* scratch of a check: it is in a tail of the lane's tree */
};

struct slots {
    struct slot *slots; /* [n_slots] */
    int n_slots, table_len;
    int window;              /* no layer sees more positions; 0: some layer sees all */
    struct kv_block *blocks; /* [n_blocks] */
    int n_blocks;
    int n_blocks_written; /* blocks that were written since the last reset */
};

/* table_len: the most blocks of a slot; window: what a block's entry may be without KV for, because
 * no row sees it (0: none). Errors: ERR_NO_MEMORY. */
int slots_open(struct slots *slots, int n_slots, int n_blocks, int table_len, int window,
               struct error *err);
void slots_close(struct slots *slots);
/* Nothing is written and no slot has a table. */
void slots_reset(struct slots *slots);

/* A lane, and the shape of its guesses where they are a tree; without nodes they are a chain. */
struct shaped_lane {
    const struct step_lane *lane;
    struct tree_layout tree;
};

/* The position after the last one of a path of the lane. */
int shaped_lane_end(const struct shaped_lane *shaped, int path);

/* True if the lane's blocks exist, reach far enough, hold KV before its position as far back as its
 * rows see, and are written by no other lane of the step step_id or path of the lane. False: `why`
 * [ERROR_TEXT_BYTES] has the sentence. The lane's slot exists. */
bool slots_check(struct slots *slots, const struct shaped_lane *shaped, uint64_t step_id,
                 char *why);

/* Enters the new blocks of a lane that was checked into its slot, and what the step will write. */
void slots_take(struct slots *slots, const struct shaped_lane *shaped, uint64_t step_id);
