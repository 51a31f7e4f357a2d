/* Limits that several rooms must agree on. Each is defined here and nowhere else. */
#pragma once

enum {
    /* S: slices of a row-parallel matrix and of the vocabulary (docs/design.md, section 4). */
    SLICES_MAX = 8,
    /* T: ranks of a group. T divides S, hence the same limit. */
    RANKS_MAX = SLICES_MAX,
    /* Target groups of a coordinator. */
    GROUPS_MAX = 16,
    /* The highest port number of TCP. */
    PORT_MAX = 65535,
    /* K: guesses of a round that follow each other. */
    DRAFT_MAX = 16,
    /* Guesses for a position besides the first one. */
    SIBLINGS_MAX = 3,
    /* Guesses of a tree, and its paths from the root to a leaf. A path has at most DRAFT_MAX
     * guesses. */
    TREE_NODES_MAX = 64,
    TREE_PATHS_MAX = 32,
    /* Blocks of all paths but the first, whatever the length of a block: a path touches at most
     * one for each of its guesses. */
    TREE_TAILS_MAX = (TREE_PATHS_MAX - 1) * DRAFT_MAX,
    /* Positions of a block of a model's KV. */
    KV_BLOCK_TOKENS = 16,
    /* E: elements of an attention head. */
    HEAD_DIM_MAX = 256,
    /* Boundaries between layers whose features a step may ask for, and those that one request or
     * one drafter may want, so that a step has room for both. */
    FEATURE_BOUNDARIES_MAX = 16,
    FEATURE_WISH_MAX = FEATURE_BOUNDARIES_MAX / 2,
    /* The width of what a head's fc makes of them. */
    PROJECTION_WIDTH_MAX = 1 << 16,
    /* Bytes of features in one reply; the rest of the message is for its rows. */
    FEATURE_BYTES_MAX = 32 << 20,
    /* Logits of one row that are asked for by name. A row under penalties names every token of its
     * text; past this number the whole row is asked for, which is no longer then. 256 such rows are
     * about 25 MB of request and 32 MB of reply, both within MESSAGE_BYTES_MAX; where more rows
     * would pass it, whole rows are asked for, too (coordinator/target/step_fit.h). */
    ROW_IDS_MAX = 32768,
    /* The longest gRPC message that either side sends or accepts. */
    MESSAGE_BYTES_MAX = 64 << 20
};

/* The repetition penalty, of requests and of a model's defaults: logits are divided by it or
 * multiplied with it. */
#define REPETITION_PENALTY_MIN 0.01f
#define REPETITION_PENALTY_MAX 10.0f
