/* Tensors in random blocks of every kind, for what tests and times matrices in blocks. */
#pragma once

#include "tests/gpu/matmul_rig.h"

struct block_case {
    enum block_kind kind;
    int halves[2]; /* offsets of scale and minimum in a block; -1: none */
};

static const struct block_case block_cases[] = {
    {BLOCK_Q4_0, {0, -1}},   {BLOCK_Q4_1, {0, 2}},    {BLOCK_Q5_0, {0, -1}},
    {BLOCK_Q5_1, {0, 2}},    {BLOCK_Q8_0, {0, -1}},   {BLOCK_Q2_K, {80, 82}},
    {BLOCK_Q3_K, {108, -1}}, {BLOCK_Q4_K, {0, 2}},    {BLOCK_Q5_K, {0, 2}},
    {BLOCK_Q6_K, {208, -1}}, {BLOCK_IQ4_NL, {0, -1}}, {BLOCK_IQ4_XS, {0, -1}}};

enum { N_CASES = sizeof block_cases / sizeof *block_cases };

static inline const struct block_case *case_of(enum block_kind kind)
{
    int i = 0;
    while (block_cases[i].kind != kind)
        i++;
    return &block_cases[i];
}

/* Blocks of random bits, but with scales and minimums of 2^-7 to 2^-6. */
static inline struct weight random_blocks(struct rig *rig, enum block_kind kind, int n_rows,
                                          int n_cols)
{
    const struct block_case *at = case_of(kind);
    size_t n = block_bytes(kind, area(n_rows, n_cols));
    size_t size = static_cast<size_t>(block_type_of(kind)->n_bytes);
    uint8_t *data = static_cast<uint8_t *>(malloc(n));
    struct weight weight = {};
    for (size_t i = 0; i < n; i++) {
        rig_number(rig);
        data[i] = static_cast<uint8_t>(rig->state >> 16);
    }
    for (size_t block = 0; block < n; block += size) {
        for (int i = 0; i < 2; i++) {
            if (at->halves[i] < 0) continue;
            uint8_t *half = data + block + at->halves[i];
            half[1] = static_cast<uint8_t>(0x20 | (half[1] & 3));
        }
    }
    weight.dtype = DTYPE_BLOCKS;
    weight.block = kind;
    weight.n_rows = n_rows;
    weight.n_cols = n_cols;
    weight.data = data;
    return weight;
}

static inline void free_blocks(const struct weight *weight)
{
    free(const_cast<uint8_t *>(weight->data));
}
