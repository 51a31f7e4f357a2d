/* Memory that may fail with words, big pages for weights, and an arena for what lives one round. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Raises malloc's mmap and trim thresholds. Large messages otherwise cost more in page faults than
 * in copying. Called once at the start of every program. */
void mem_tune(void);

/* Stores a zeroed array of n elements of `size` bytes at *pointer (any object pointer type), to be
 * released with free(). n = 0 gives a valid empty array. Errors: ERR_NO_MEMORY (also on overflow). */
int mem_array(void *pointer, size_t n, size_t size, struct error *err);

/* The same in whole pages, aligned to 2 MiB and backed by huge pages where the kernel has them; for
 * weights and KV. Released with mem_pages_free and the same byte count. */
int mem_pages(void *pointer, size_t bytes, struct error *err);
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
