/* Memory that may fail with words, big pages for weights, and an arena for what lives one round. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Raises malloc's mmap and trim thresholds. Large messages otherwise cost more in page faults than
 * in copying. Called once at the start of every program. */
void mem_tune(void);

/* Sets *pointer, a pointer to any object, to a zeroed array of n elements of `size` bytes, to be
 * released with free(). n = 0 gives a valid empty array. Errors: ERR_NO_MEMORY (also on overflow);
 * *pointer is NULL then. */
#define mem_array(pointer, n, size, err)                                \
    (*(pointer) = (__typeof__(*(pointer)))mem_zeroed((n), (size), err), \
     *(pointer) ? 0 : ERR_NO_MEMORY)
/* What mem_array calls; NULL when err is set. */
void *mem_zeroed(size_t n, size_t size, struct error *err);

/* Makes room for n elements in the array *pointer, which has room for *capacity (a size_t) and keeps its
 * elements. It at least doubles when it grows; what is new is not zeroed. NULL is an empty array. Errors:
 * ERR_NO_MEMORY; the array is as before then. */
#define mem_grow(pointer, capacity, n, err)                                                       \
    (*(pointer) =                                                                                 \
         (__typeof__(*(pointer)))mem_grown(*(pointer), (capacity), (n), sizeof **(pointer), err), \
     *(capacity) >= (n) ? 0 : ERR_NO_MEMORY)
/* What mem_grow calls; the old array when err is set. */
void *mem_grown(void *array, size_t *capacity, size_t n, size_t size, struct error *err);

/* The same in whole pages, aligned to 2 MiB and backed by huge pages where the kernel has them; for
 * weights and KV. Released with mem_pages_free and the same byte count. */
#define mem_pages(pointer, bytes, err)                                 \
    (*(pointer) = (__typeof__(*(pointer)))mem_map_pages((bytes), err), \
     *(pointer) ? 0 : ERR_NO_MEMORY)
/* What mem_pages calls; NULL when err is set. */
void *mem_map_pages(size_t bytes, struct error *err);
void mem_pages_free(void *pages, size_t bytes);

/* Bump allocator over one block: nothing is freed but everything at once. */
struct arena {
    uint8_t *base;
    size_t size_bytes, used_bytes;
};

int arena_open(struct arena *arena, size_t size_bytes, struct error *err);
void arena_close(struct arena *arena);
void arena_reset(struct arena *arena);
/* 64-byte aligned, not zeroed; NULL when the arena is full. */
void *arena_take(struct arena *arena, size_t n, size_t size);
