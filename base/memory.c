/* Allocation that fails with an error. */
#include "base/memory.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ARENA_ALIGN = 64, ARENA_MAPPED_BYTES = 1 << 20, GROW_LEAST_BYTES = 256 };
static const size_t huge_page_bytes = (size_t)2 << 20;

void mem_tune(void)
{
    mallopt(M_MMAP_THRESHOLD, 256 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_ARENA_MAX, 1); /* malloc_trim leaves the upper end of every other one as it is */
}

/* 0 where the system does not say. */
static size_t resident_now(void)
{
    unsigned long n_all, n_resident;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    int n = fscanf(file, "%lu %lu", &n_all, &n_resident);
    fclose(file);
    return n == 2 ? n_resident * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

void mem_trim(size_t *resident_bytes, size_t grown_bytes)
{
    size_t now = resident_now();
    if (now < *resident_bytes) *resident_bytes = now;
    if (now - *resident_bytes < grown_bytes) return;
    malloc_trim(0);
    *resident_bytes = resident_now();
}

void *mem_zeroed(size_t n, size_t size, struct error *err)
{
    bool fits = size == 0 || n <= SIZE_MAX / size;
    void *block = fits ? calloc(n ? n : 1, size ? size : 1) : NULL;
    if (!block) {
        error_set(err, ERR_NO_MEMORY, "no memory for %zu elements of %zu bytes", n, size);
    }
    return block;
}

void *mem_grown(void *array, size_t *capacity, size_t n, size_t size, struct error *err)
{
    if (n <= *capacity) return array;
    size_t wanted = *capacity > SIZE_MAX / 2 ? n : 2 * *capacity;
    if (wanted < n) wanted = n;
    if (wanted < GROW_LEAST_BYTES / size) wanted = GROW_LEAST_BYTES / size;
    void *grown = wanted <= SIZE_MAX / size ? realloc(array, wanted * size) : NULL;
    if (!grown) {
        error_set(err, ERR_NO_MEMORY, "no memory for %zu elements of %zu bytes", n, size);
        return array;
    }
    *capacity = wanted;
    return grown;
}

static size_t pages_round(size_t bytes)
{
    return (bytes + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
}

void *mem_map_pages(size_t bytes, struct error *err)
{
    size_t size = pages_round(bytes ? bytes : 1);
    /* Map one huge page more than needed, then cut both ends so that the rest is aligned. */
    uint8_t *map = size < bytes ? MAP_FAILED
                                : mmap(NULL, size + huge_page_bytes, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        error_set(err, ERR_NO_MEMORY, "no memory for %zu bytes of pages", bytes);
        return NULL;
    }
    size_t skip = (huge_page_bytes - (uintptr_t)map % huge_page_bytes) % huge_page_bytes;
    if (skip) munmap(map, skip);
    if (skip < huge_page_bytes) munmap(map + skip + size, huge_page_bytes - skip);
    madvise(map + skip, size, MADV_HUGEPAGE);
    return map + skip;
}

void mem_pages_free(void *pages, size_t bytes)
{
    if (pages) munmap(pages, pages_round(bytes ? bytes : 1));
}

int arena_open(struct arena *arena, size_t size_bytes, struct error *err)
{
    *arena = (struct arena){0};
    void *block = NULL;
    if (size_bytes >= ARENA_MAPPED_BYTES) {
        block = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED) block = NULL;
    } else if (posix_memalign(&block, ARENA_ALIGN, size_bytes ? size_bytes : ARENA_ALIGN)) {
        block = NULL;
    }
    if (!block) {
        return error_set(err, ERR_NO_MEMORY, "no memory for an arena of %zu bytes", size_bytes);
    }
    *arena = (struct arena){.base = block, .size_bytes = size_bytes};
    return 0;
}

void arena_close(struct arena *arena)
{
    if (arena->size_bytes >= ARENA_MAPPED_BYTES) {
        munmap(arena->base, arena->size_bytes);
    } else {
        free(arena->base);
    }
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
