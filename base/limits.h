/* Limits that several rooms must agree on. Each is defined here and nowhere else. */
#pragma once

enum {
    /* S: slices of a row-parallel matrix and of the vocabulary (docs/design.md, section 4). */
    SLICES_MAX = 8,
    /* T: ranks of a group. T divides S, hence the same limit. */
    RANKS_MAX = SLICES_MAX,
    /* Target groups of a coordinator. */
    GROUPS_MAX = 16,
    /* Of TCP. */
    PORT_MAX = 65535,
    /* K: guesses of a round, and therefore of one lane of a step. */
    DRAFT_MAX = 16,
    /* Guesses for a position besides the first one. */
    SIBLINGS_MAX = 3,
    /* E: elements of an attention head. */
    HEAD_DIM_MAX = 256,
    /* Logits of one row that are asked for by name. A row under penalties names every token of its
     * text; past this number the whole row is asked for, which is no longer then. 256 such rows are
     * about 25 MB of request and 32 MB of reply, both within MESSAGE_BYTES_MAX. */
    ROW_IDS_MAX = 32768,
    /* The longest gRPC message that either side sends or accepts. */
    MESSAGE_BYTES_MAX = 64 << 20
};
