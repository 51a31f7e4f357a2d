/* Memory of the CPU backend. Weights are read through huge pages, because small ones cost a quarter
 * of the bandwidth. A model has hundreds of matrices that are smaller than a huge page or not a
 * whole number of them, so they lie one after the other in chunks: with pages of their own they
 * would take up to twice the memory. A chunk goes back when all that was in it is closed. */
#include <stdlib.h>
#include <string.h>

#include "model/backend/cpu/internal.h"

enum {
    ALIGNMENT = 64,
    SMALL_BYTES = 64 << 10, /* below which a buffer is the allocator's */
    OWN_BYTES = 32 << 20,   /* from which on it has pages of its own */
    CHUNK_BYTES = 64 << 20  /* pages are taken when they are used */
};

struct cpu_chunk {
    uint8_t *pages;
    size_t used_bytes;
    int n_open; /* buffers */
    struct cpu_chunk *next;
};

static void *open_small(size_t bytes, struct error *err)
{
    void *block = NULL;
    if (posix_memalign(&block, ALIGNMENT, bytes ? bytes : ALIGNMENT)) {
        error_set(err, ERR_NO_MEMORY, "no memory for a buffer of %zu bytes", bytes);
        return NULL;
    }
    memset(block, 0, bytes);
    return block;
}

static int open_chunk(struct backend_cpu *cpu, struct error *err)
{
    struct cpu_chunk *chunk = NULL;
    int rc = 0;
    TRY(mem_array(&chunk, 1, sizeof *chunk, err));
    TRY(mem_pages(&chunk->pages, CHUNK_BYTES, err));
    chunk->next = cpu->chunks;
    cpu->chunks = chunk;
    chunk = NULL;
out:
    free(chunk);
    return rc;
}

void *cpu_buffer_open(struct backend *be, size_t bytes, struct error *err)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    if (bytes < SMALL_BYTES) return open_small(bytes, err);
    if (bytes >= OWN_BYTES) return mem_map_pages(bytes, err);
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    bool has_room = cpu->chunks && CHUNK_BYTES - cpu->chunks->used_bytes >= rounded;
    if (!has_room && open_chunk(cpu, err)) return NULL;
    struct cpu_chunk *chunk = cpu->chunks;
    void *buffer = chunk->pages + chunk->used_bytes;
    chunk->used_bytes += rounded;
    chunk->n_open++;
    return buffer;
}

static void close_chunk(struct cpu_chunk **at)
{
    struct cpu_chunk *chunk = *at;
    *at = chunk->next;
    mem_pages_free(chunk->pages, CHUNK_BYTES);
    free(chunk);
}

void cpu_buffer_close(struct backend *be, void *buffer, size_t bytes)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    const uint8_t *first = buffer;
    if (!buffer) return;
    if (bytes < SMALL_BYTES) {
        free(buffer);
        return;
    }
    if (bytes >= OWN_BYTES) {
        mem_pages_free(buffer, bytes);
        return;
    }
    struct cpu_chunk **at = &cpu->chunks;
    while (first < (*at)->pages || first >= (*at)->pages + CHUNK_BYTES) {
        at = &(*at)->next;
    }
    if (--(*at)->n_open == 0) close_chunk(at);
}

void cpu_buffers_end(struct backend_cpu *cpu)
{
    while (cpu->chunks) {
        close_chunk(&cpu->chunks);
    }
}
