/* Barriers in shared memory and the bulk copies that complete them
 * (model/backend/cuda/matmul/bulk.cuh).
 * Bytes arrive as late as the promise allows: when all threads of the block wait, and only those of
 * a barrier that somebody waits for. Until then they are NaN. */
#include <cstring>
#include <vector>

#include "internal.h"
#include "kernel.h"

namespace
{

struct barrier {
    unsigned phase; /* the parity of the one under way */
    unsigned n_arrivals, n_missing;
    int bytes_missing; /* below zero: copied before they were announced */
};

struct bulk {
    void *to;
    const void *from;
    uint32_t bytes;
    uint64_t *bar;
};

std::vector<bulk> under_way; /* of the block */

barrier load(const uint64_t *bar, emulate_site site)
{
    if (reinterpret_cast<uintptr_t>(bar) % 8) emulate_fault("a barrier is not aligned to 8", site);
    if (*bar == ~uint64_t(0)) emulate_fault("a barrier that was never initialised", site);
    return {unsigned(*bar & 1), unsigned(*bar >> 1 & 0x7fff), unsigned(*bar >> 16 & 0xffff),
            int(uint32_t(*bar >> 32))};
}

/* Packs the barrier into its 64 bits and ends its phase if nothing is missing. */
void store(uint64_t *bar, barrier b)
{
    bool is_over = b.n_missing == 0 && b.bytes_missing == 0;
    if (is_over) {
        b.phase ^= 1;
        b.n_missing = b.n_arrivals;
    }
    *bar =
        b.phase | b.n_arrivals << 1 | b.n_missing << 16 | uint64_t(uint32_t(b.bytes_missing)) << 32;
    if (is_over) emulate_wake(bar);
}

} // namespace

void barrier_init(uint64_t *bar, int n_arrivals, emulate_site site)
{
    if (n_arrivals < 1 || n_arrivals > 0x7fff) emulate_fault("a barrier for no thread", site);
    store(bar, {0, unsigned(n_arrivals), unsigned(n_arrivals), 0});
}

void barrier_expect(uint64_t *bar, uint32_t bytes, emulate_site site)
{
    barrier b = load(bar, site);
    if (b.n_missing == 0) emulate_fault("more threads arrive than a barrier was made for", site);
    b.bytes_missing += int32_t(bytes);
    b.n_missing--;
    store(bar, b);
}

void barrier_arrive(uint64_t *bar, emulate_site site)
{
    barrier_expect(bar, 0, site);
}

void barrier_wait(uint64_t *bar, int phase, emulate_site site)
{
    while (load(bar, site).phase == unsigned(phase)) {
        emulate_sleep(bar, site);
    }
}

void bulk_copy(void *shared, const void *global, uint32_t bytes, uint64_t *bar, emulate_site site)
{
    if (bytes == 0 || bytes % 16 || reinterpret_cast<uintptr_t>(shared) % 16 ||
        reinterpret_cast<uintptr_t>(global) % 16) {
        emulate_fault("bulk_copy of bytes or addresses that are not multiples of 16", site);
    }
    load(bar, site);
    memset(shared, 0xff, bytes);
    under_way.push_back({shared, global, bytes, bar});
}

void bulk_prefetch(const void *global, uint32_t bytes, emulate_site site)
{
    if (bytes % 16 || reinterpret_cast<uintptr_t>(global) % 16) {
        emulate_fault("bulk_prefetch of bytes or an address that are not multiples of 16", site);
    }
    /* The device may read them from now on, so they must exist. */
    const volatile char *at = static_cast<const volatile char *>(global);
    if (bytes) (void)at[0], (void)at[bytes - 1];
}

bool emulate_land_bulk()
{
    for (size_t i = 0; i < under_way.size(); i++) {
        bulk one = under_way[i];
        if (!emulate_is_waited_for(one.bar)) continue;
        memcpy(one.to, one.from, one.bytes);
        under_way.erase(under_way.begin() + ptrdiff_t(i));
        barrier b = load(one.bar, emulate_site::here());
        b.bytes_missing -= int32_t(one.bytes);
        store(one.bar, b);
        return true;
    }
    return false;
}

bool emulate_is_bulk_over()
{
    bool is_over = under_way.empty();
    under_way.clear();
    return is_over;
}
