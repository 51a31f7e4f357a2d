/* Copies a struct and all that it points to into one block of just the right size: one function
 * goes over the struct twice, first with a packer that has no block and counts, then with one that
 * has it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct packer {
    uint8_t *block; /* aligned for any type; NULL = only count */
    size_t n_bytes; /* used so far */
};

/* Appends a copy of n elements of `size` bytes, aligned for any type. Returns it, or NULL when
 * there are none and while it counts. Pointers in it are those of the original until they are
 * replaced. */
void *packer_array(struct packer *packer, const void *data, size_t n, size_t size);
/* Appends text[len] and a NUL byte; returns "" for an empty text, and while it counts. */
char *packer_text(struct packer *packer, const char *text, size_t len);
/* Appends a string; NULL counts as an empty one. Returns "" for that, and while it counts. */
const char *packer_string(struct packer *packer, const char *text);
/* Appends a list of strings. Returns as packer_array. */
const char *const *packer_strings(struct packer *packer, const char *const *strings, int n);
