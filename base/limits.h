/* Limits that several rooms must agree on. Each is said here and nowhere else. */
#pragma once

enum {
    /* S: the slices of a row-parallel matrix and of the vocabulary (docs/design.md section 4). */
    SLICES_MAX = 8,
    /* T: the ranks of a group; T divides S. */
    RANKS_MAX = SLICES_MAX,
    /* K: the guesses of a round, and of a lane of a step. */
    DRAFT_MAX = 16,
    /* The longest gRPC message that either side sends or takes. */
    MESSAGE_BYTES_MAX = 64 << 20
};
