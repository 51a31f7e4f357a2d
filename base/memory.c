/* Memory that may fail with words. */
#include "base/memory.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ARENA_ALIGN = 64 };
static const size_t huge_page_bytes = (size_t)2 << 20;

void mem_tune(void)
{
    mallopt(M_MMAP_THRESHOLD, 256 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

int mem_array(void *pointer, size_t n, size_t size, struct error *err)
{
    bool fits = size == 0 || n <= SIZE_MAX / size;
    void *block = fits ? calloc(n ? n : 1, size ? size : 1) : NULL;
    memcpy(pointer, &block, sizeof block);
    if (!block) {
        return error_set(err, ERR_NO_MEMORY, "no memory for %zu elements of %zu bytes", n, size);
    }
    return 0;
}

static size_t pages_round(size_t bytes)
{
    return (bytes + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
}

int mem_pages(void *pointer, size_t bytes, struct error *err)
{
    void *none = NULL;
    memcpy(pointer, &none, sizeof none);
    size_t size = pages_round(bytes ? bytes : 1);
    if (size < bytes) {
        return error_set(err, ERR_NO_MEMORY, "no memory for %zu bytes of pages", bytes);
    }
    /* Map one huge page too many, then cut both ends so that the rest is aligned. */
    uint8_t *map = mmap(NULL, size + huge_page_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        return error_set(err, ERR_NO_MEMORY, "no memory for %zu bytes of pages", bytes);
    }
    size_t skip = (huge_page_bytes - (uintptr_t)map % huge_page_bytes) % huge_page_bytes;
    if (skip) munmap(map, skip);
    if (skip < huge_page_bytes) munmap(map + skip + size, huge_page_bytes - skip);
    uint8_t *pages = map + skip;
    madvise(pages, size, MADV_HUGEPAGE);
    memcpy(pointer, &pages, sizeof pages);
    return 0;
}

void mem_pages_free(void *pages, size_t bytes)
{
    if (pages) munmap(pages, pages_round(bytes ? bytes : 1));
}

int arena_open(struct arena *arena, size_t size_bytes, struct error *err)
{
    *arena = (struct arena){0};
    void *block = NULL;
    if (posix_memalign(&block, ARENA_ALIGN, size_bytes ? size_bytes : ARENA_ALIGN)) {
        return error_set(err, ERR_NO_MEMORY, "no memory for an arena of %zu bytes", size_bytes);
    }
    *arena = (struct arena){.base = block, .size_bytes = size_bytes};
    return 0;
}

void arena_close(struct arena *arena)
{
    free(arena->base);
    *arena = (struct arena){0};
}

void arena_reset(struct arena *arena)
{
    arena->used_bytes = 0;
}

void *arena_take(struct arena *arena, size_t n, size_t size)
{
    if (size && n > SIZE_MAX / 2 / size) return NULL;
    size_t bytes = (n * size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (bytes > arena->size_bytes - arena->used_bytes) return NULL;
    void *block = arena->base + arena->used_bytes;
    arena->used_bytes += bytes;
    return block;
}
