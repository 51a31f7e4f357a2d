/* Allocation that fails with an error instead of a crash, huge pages for weights, and an arena for
 * data of one round. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Raises malloc's mmap and trim thresholds. Otherwise the page faults of a large message cost more
 * than copying it. All threads share one of malloc's arenas, because mem_trim could not empty the
 * others: up to 64 MiB of old messages stayed in each. Called once at the start of every program,
 * before there is another thread. */
void mem_tune(void);
/* Gives malloc's free pages back to the system, which it does not do by itself, if the process
 * occupies so much more than at some time since the last call that did. *resident_bytes belongs to
 * this function; 0 at first. Takes milliseconds for each 100 MB, otherwise microseconds. */
void mem_trim(size_t *resident_bytes, size_t grown_bytes);

/* The macros here evaluate their arguments more than once. */

/* Sets *pointer, a pointer to any object, to a zeroed array of n elements of `size` bytes, which
 * free() releases. n = 0 gives a valid empty array.
 * Errors: ERR_NO_MEMORY (also if n * size overflows); *pointer is NULL then. */
#define mem_array(pointer, n, size, err)                                \
    (*(pointer) = (__typeof__(*(pointer)))mem_zeroed((n), (size), err), \
     *(pointer) ? 0 : ERR_NO_MEMORY)
/* The function of mem_array; returns NULL when err is set. */
void *mem_zeroed(size_t n, size_t size, struct error *err);

/* Makes room for n elements in the array *pointer, which has room for *capacity (a size_t), and
 * keeps its elements. If the array grows, it at least doubles; new elements are not zeroed. NULL is
 * an empty array.
 * Errors: ERR_NO_MEMORY; the array is as before then. */
#define mem_grow(pointer, capacity, n, err)                                                       \
    (*(pointer) =                                                                                 \
         (__typeof__(*(pointer)))mem_grown(*(pointer), (capacity), (n), sizeof **(pointer), err), \
     *(capacity) >= (n) ? 0 : ERR_NO_MEMORY)
/* The function of mem_grow; returns the old array when err is set. */
void *mem_grown(void *array, size_t *capacity, size_t n, size_t size, struct error *err);

/* Sets *pointer to zeroed memory of at least `bytes` bytes in whole pages, aligned to 2 MiB and
 * backed by huge pages where the kernel has them; for weights and KV. mem_pages_free releases it,
 * given the same byte count.
 * Errors: ERR_NO_MEMORY; *pointer is NULL then. */
#define mem_pages(pointer, bytes, err)                                 \
    (*(pointer) = (__typeof__(*(pointer)))mem_map_pages((bytes), err), \
     *(pointer) ? 0 : ERR_NO_MEMORY)
/* The function of mem_pages; returns NULL when err is set. */
void *mem_map_pages(size_t bytes, struct error *err);
void mem_pages_free(void *pages, size_t bytes);

/* Bump allocator over one block: nothing is freed by itself, only everything at once
 * (arena_reset). */
struct arena {
    uint8_t *base;
    size_t size_bytes, used_bytes;
};

/* An arena of 1 MiB or more is mapped by itself: pages that are never used cost nothing, and
 * arena_close gives all of them back. */
int arena_open(struct arena *arena, size_t size_bytes, struct error *err);
void arena_close(struct arena *arena);
void arena_reset(struct arena *arena);
/* 64-byte aligned, not zeroed; NULL when the arena is full. */
void *arena_take(struct arena *arena, size_t n, size_t size);
