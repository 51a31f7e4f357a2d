/* Memory in blocks; what is taken comes from the newest one. */
#include "model/jinja/heap.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 14, ALIGN_BYTES = 16 };

struct heap_block {
    struct heap_block *next;
    size_t used_bytes, size_bytes;
    _Alignas(ALIGN_BYTES) unsigned char data[];
};

static int block_add(struct heap *heap, size_t bytes, struct error *err)
{
    size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
    struct heap_block *block = malloc(sizeof *block + size);
    if (!block) return error_set(err, ERR_NO_MEMORY, "no memory for a chat template");
    *block = (struct heap_block){.next = heap->blocks, .size_bytes = size};
    heap->blocks = block;
    return 0;
}

void *heap_take(struct heap *heap, size_t n, size_t size, struct error *err)
{
    size_t left = heap->most_bytes - heap->used_bytes;
    if (size && n > (left < ALIGN_BYTES ? 0 : left - ALIGN_BYTES) / size) {
        error_set(err, ERR_EXHAUSTED, "the template needs more than %zu bytes of values",
                  heap->most_bytes);
        return NULL;
    }
    size_t bytes = (n * size + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    struct heap_block *block = heap->blocks;
    if (!block || bytes > block->size_bytes - block->used_bytes) {
        if (block_add(heap, bytes, err)) return NULL;
        block = heap->blocks;
    }
    void *memory = block->data + block->used_bytes;
    block->used_bytes += bytes;
    heap->used_bytes += bytes;
    return memset(memory, 0, bytes);
}

void *heap_grown(struct heap *heap, void *array, size_t *capacity, size_t n, size_t size,
                 struct error *err)
{
    if (n < *capacity) return array;
    size_t wanted = *capacity ? 2 * *capacity : 4;
    void *grown = heap_take(heap, wanted, size, err);
    if (!grown) return array;
    if (n) memcpy(grown, array, n * size);
    *capacity = wanted;
    return grown;
}

void heap_free(struct heap *heap)
{
    while (heap->blocks) {
        struct heap_block *next = heap->blocks->next;
        free(heap->blocks);
        heap->blocks = next;
    }
    heap->used_bytes = 0;
}
