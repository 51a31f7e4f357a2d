/* Blocks of weights as GGUF files store them: 32 or 256 neighbours along k with their scales, or
 * plain numbers, which are blocks of one. Every kind that is read here is one of the forms of
 * model/numerics/group.h, which keep all bits. The layouts are ggml's (ggml-common.h). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "model/numerics/group.h"

enum block_kind {
    BLOCK_UNREAD, /* a kind that is known by its name only */
    BLOCK_F32,
    BLOCK_F16,
    BLOCK_BF16,
    BLOCK_Q4_0,
    BLOCK_Q4_1,
    BLOCK_Q5_0,
    BLOCK_Q5_1,
    BLOCK_Q8_0,
    BLOCK_Q2_K,
    BLOCK_Q3_K,
    BLOCK_Q4_K,
    BLOCK_Q5_K,
    BLOCK_Q6_K,
    BLOCK_IQ4_NL,
    BLOCK_IQ4_XS,
    BLOCK_KINDS
};

struct block_type {
    const char *name;     /* "Q4_K", as ggml has it */
    enum block_kind kind; /* BLOCK_UNREAD: not supported */
    int n_elements;       /* of a block: 1, 32 or 256; 0 if it is not read */
    int n_bytes;          /* of a block */
};

/* The type of a tensor's id in a file; NULL: no such type is known. */
const struct block_type *block_type_find(uint32_t id);
/* The type of a kind that is read. */
const struct block_type *block_type_of(enum block_kind kind);

/* The form of the kind's matrices; WEIGHTS_BF16 for plain numbers. */
enum weight_form block_form(enum block_kind kind);

/* Bytes of n elements, a multiple of the block's. */
size_t block_bytes(enum block_kind kind, size_t n);

/* Reads group `group` (of 32 elements) of a row that begins at `row`. Not for plain numbers. */
void block_read_group(enum block_kind kind, const uint8_t *row, int group,
                      struct weight_group *out);

/* Reads elements first .. first + n of a row that begins at `row`, each rounded once from its exact
 * value. Not for plain numbers. */
void block_read_f32(enum block_kind kind, const uint8_t *row, int first, int n, float *out);
