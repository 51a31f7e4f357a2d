/* Memory of one template or of one rendering: it only grows, up to a limit, and is freed as a
 * whole. Owned by one thread while it grows. */
#pragma once

#include <stddef.h>

#include "base/error.h"

struct heap {
    struct heap_block *blocks; /* the newest first */
    size_t used_bytes, most_bytes;
};

/* Sets *pointer to an array of n elements, zeroed. Errors: ERR_EXHAUSTED, ERR_NO_MEMORY; *pointer
 * is NULL then. */
#define heap_array(heap, pointer, n, err)                                                    \
    (*(pointer) = (__typeof__(*(pointer)))heap_take((heap), (n), sizeof **(pointer), (err)), \
     *(pointer) ? 0 : (err)->code)
/* Makes room for one more than n in the array *pointer of the heap, which has room for *capacity (a
 * size_t). Errors: ERR_EXHAUSTED, ERR_NO_MEMORY; the array is as before then. */
#define heap_grow(heap, pointer, capacity, n, err)                                        \
    (*(pointer) = (__typeof__(*(pointer)))heap_grown((heap), *(pointer), (capacity), (n), \
                                                     sizeof **(pointer), (err)),          \
     *(capacity) > (n) ? 0 : (err)->code)
/* The functions of the two macros; memory is aligned to 16 bytes. */
void *heap_take(struct heap *heap, size_t n, size_t size, struct error *err);
void *heap_grown(struct heap *heap, void *array, size_t *capacity, size_t n, size_t size,
                 struct error *err);
void heap_free(struct heap *heap);
