/* Digests of the bytes of tensors, taken while they are read. The digest of a part of a tensor is
 * the sum (mod 2^64) of a hash for each of its units, so threads and ranks can take the units in
 * any order and add up what they have. A unit of a matrix is a run of columns of one row: all of
 * them, or those of one of the model's slices, whatever the number of ranks is. A unit of a vector
 * is an element. The hash covers the bytes as they are stored, and where they belong; it depends on
 * neither the form in which they are packed nor the way they are spread over files. Synthetic
 * weights have no bytes, and their digest is 0. */
#pragma once

#include "model/checkpoint/read.h"

/* A digest of the part of one tensor that was read. Two ranks that have read the same part have the
 * same `first` and `n` because parts never overlap otherwise. */
struct part_digest {
    uint64_t sum;
    uint64_t first; /* the lowest element, counted row by row */
    uint64_t n;     /* elements; 0: nothing was read */
};

/* The hash of elements [row][col .. col + n), with their scales where the weight is packed; of
 * blocks, all those that the run touches. */
uint64_t weight_digest_unit(const struct weight *weight, int row, int col, int n);

/* The sum over elements first .. first + n of a vector. */
uint64_t weight_digest_vector(const struct weight *weight, int first, int n);
