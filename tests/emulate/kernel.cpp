/* Kernels: the threads of a block are fibers, and the blocks of a grid run one after the other.
 *
 * A thread runs until it waits, either for the lanes of its warp that a mask names or for its
 * block. The last one to arrive does the exchange for all and goes on; the others are ready again
 * and run when it waits in its turn. While a warp has a ready lane the next one runs in it,
 * otherwise the next warp does. The order is therefore always the same, and a result that depends
 * on a missing barrier is wrong every time or never. EMULATED_ORDER=backward reverses every order,
 * so that it is wrong in one of the two.
 *
 * What is found: barriers out of step (another place, a thread that has returned), exchanges that
 * some lanes of the mask never reach, writes outside of dynamic shared memory or device memory,
 * copies that are read before the thread has waited for them. What is not found: races between
 * exchanges, and use of memory that a device would not let a kernel reach (host memory). A kernel
 * that spins until another block or stream writes something hangs. Everything here runs with
 * emulate_mutex held. */
#include "kernel.h"

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <vector>

#include "fiber.h"
#include "internal.h"
#include "intrinsics.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace
{

enum lane_state { READY, WAITS_WARP, WAITS_BLOCK, WAITS_COPY, RETURNED };

struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    int group;
};

struct lane {
    emulate_fiber fiber;
    uint3 index;
    lane_state state;
    emulate_exchange kind;
    emulate_site site;
    unsigned mask;
    int source;
    uint64_t value, result;
    const uint64_t *bar; /* that it waits for */
    int n_groups;        /* committed groups of copies */
    std::vector<copy> copies;
};

struct warp {
    unsigned existing, ready, arrived;
};

const char *const kind_names[] = {"nothing",           "__syncwarp",         "a shuffle",
                                  "__ballot_sync",     "__any_sync",         "__all_sync",
                                  "mma_bf16_16x8x16",  "__syncthreads",      "__syncthreads_or",
                                  "__syncthreads_and", "__syncthreads_count"};

constexpr size_t shared_guard = 1024;
alignas(128) unsigned char shared_memory[shared_guard + EMULATE_SHARED_MAX + shared_guard];

lane lanes[EMULATE_BLOCK_MAX];
warp warps[EMULATE_BLOCK_MAX / EMULATE_WARP];
int n_threads, n_waiting, n_returned, current;
unsigned ready_warps;
bool is_backward; /* EMULATED_ORDER=backward: the last thread, warp and block first */
bool has_waited;  /* whether a thread of this launch has called grid_dependency_wait */
emulate_fiber main_fiber;
const emulate_launch *running;

void describe(int number)
{
    const lane &l = lanes[number];
    fprintf(stderr, "  thread (%u, %u, %u)", l.index.x, l.index.y, l.index.z);
    if (l.state == RETURNED) {
        fprintf(stderr, " has returned");
    } else if (l.state == READY) {
        fprintf(stderr, " is running");
    } else if (l.state == WAITS_COPY) {
        fprintf(stderr, " waits for a barrier in shared memory at %s:%d", l.site.file, l.site.line);
    } else {
        fprintf(stderr, " waits in %s at %s:%d", kind_names[l.kind], l.site.file, l.site.line);
        if (l.state == WAITS_WARP) fprintf(stderr, " for lanes %08x", l.mask);
    }
}

bool is_alike(const lane &a, const lane &b)
{
    return a.state == b.state && (a.state == RETURNED || a.state == READY ||
                                  (a.kind == b.kind && a.site.line == b.site.line &&
                                   a.site.file == b.site.file && a.mask == b.mask));
}

/* Describes runs of threads that are at the same place, at most 16 runs. */
void describe_all()
{
    int n_runs = 0;
    for (int first = 0; first < n_threads && n_runs < 16; n_runs++) {
        int end = first + 1;
        while (end < n_threads && is_alike(lanes[end], lanes[first]))
            end++;
        describe(first);
        if (end > first + 1) fprintf(stderr, ", and the %d after it", end - first - 1);
        fprintf(stderr, "\n");
        first = end;
    }
}

void fault(const char *what)
{
    Dl_info place = {};
    dladdr(running->function, &place);
    ptrdiff_t offset =
        static_cast<const char *>(running->function) - static_cast<const char *>(place.dli_fbase);
    fprintf(stderr, "emulate: %s, in block (%u, %u, %u) of the launch (%s)\n", what, blockIdx.x,
            blockIdx.y, blockIdx.z, running->text);
    fprintf(stderr, "  its kernel is what addr2line -fCe %s %#tx says\n", place.dli_fname, offset);
    describe_all();
    abort();
}

/* The member of a set that follows a number in the order of this launch; after the last one comes
 * the first. */
int next_of(unsigned set, int after, bool *has_wrapped)
{
    unsigned later = is_backward ? set & ((1u << after) - 1) : set & ~1u << after;
    *has_wrapped = later == 0;
    if (later == 0) later = set;
    return is_backward ? 31 - __builtin_clz(later) : __builtin_ctz(later);
}

/* Switches to the next ready thread: one of the same warp if possible, unless the thread gives way
 * to others. */
void switch_to_next(bool gives_way)
{
    int from = current, w = from / EMULATE_WARP, l = from % EMULATE_WARP;
    bool has_wrapped = true;
    if (warps[w].ready == 0) {
        ready_warps &= ~(1u << w);
        while (ready_warps == 0 && emulate_land_bulk())
            ;
        if (ready_warps == 0) fault("lanes wait for others that never come");
    }
    if (warps[w].ready) l = next_of(warps[w].ready, l, &has_wrapped);
    if (warps[w].ready == 0 || (gives_way && has_wrapped)) {
        w = next_of(ready_warps, w, &has_wrapped);
        l = next_of(warps[w].ready, is_backward ? 0 : 31, &has_wrapped);
    }
    current = w * EMULATE_WARP + l;
    threadIdx = lanes[current].index;
    if (from != current) emulate_fiber_switch(&lanes[from].fiber, &lanes[current].fiber);
}

void wait(lane_state state)
{
    lanes[current].state = state;
    warps[current / EMULATE_WARP].ready &= ~(1u << current % EMULATE_WARP);
    switch_to_next(false);
}

void finish_copies(lane &l, int n_groups)
{
    size_t n_left = 0;
    for (const copy &c : l.copies) {
        if (c.group >= n_groups) {
            l.copies[n_left++] = c;
        } else if (c.from) {
            memcpy(c.to, c.from, 16);
        } else {
            memset(c.to, 0, 16);
        }
    }
    l.copies.resize(n_left);
}

void run_thread()
{
    running->thread();
    lane &l = lanes[current];
    finish_copies(l, INT_MAX);
    if (!emulate_fiber_is_intact(current)) fault("a thread's stack has overflown");
    l.state = RETURNED;
    n_returned++;
    if (n_waiting) fault("a thread has returned while others wait in a barrier");
    if (n_returned == n_threads) {
        emulate_fiber_switch(&l.fiber, &main_fiber);
    } else {
        wait(RETURNED);
    }
    abort(); /* no thread switches to one that has returned */
}

void start_block(uint3 index)
{
    blockIdx = index;
    n_waiting = n_returned = 0;
    current = is_backward ? n_threads - 1 : 0;
    ready_warps = 0;
    for (int w = 0; w * EMULATE_WARP < n_threads; w++) {
        int n_lanes = std::min(n_threads - w * EMULATE_WARP, EMULATE_WARP);
        unsigned all = n_lanes == 32 ? ~0u : (1u << n_lanes) - 1;
        warps[w] = {all, all, 0};
        ready_warps |= 1u << w;
    }
    unsigned i = 0;
    for (unsigned z = 0; z < blockDim.z; z++) {
        for (unsigned y = 0; y < blockDim.y; y++) {
            for (unsigned x = 0; x < blockDim.x; x++, i++) {
                lanes[i].index = {x, y, z};
                lanes[i].state = READY;
                lanes[i].n_groups = 0;
                emulate_fiber_prepare(&lanes[i].fiber, int(i), run_thread);
            }
        }
    }
    threadIdx = lanes[current].index;
}

void run_block(uint3 index)
{
    unsigned char *shared = shared_memory + shared_guard;
    memset(shared, 0xff, running->shared_bytes);
    start_block(index);
    emulate_fiber_switch(&main_fiber, &lanes[current].fiber);
    if (!emulate_is_bulk_over()) fault("the block has ended before its bulk copies");
    if (!emulate_guard_is_intact(shared_memory, shared_guard) ||
        !emulate_guard_is_intact(shared + running->shared_bytes, shared_guard)) {
        fault("the block has written outside of its dynamic shared memory");
    }
}

float from_bf16(uint32_t bits)
{
    return __uint_as_float(bits << 16);
}

/* Multiplies the tile of kernel.h, from and to the fragments of 32 lanes. */
void multiply(const lane *warp_lanes)
{
    float a[16][16], b[16][8], d[16][8];
    for (int i = 0; i < EMULATE_WARP; i++) {
        const emulate_fragments *f =
            reinterpret_cast<const emulate_fragments *>(warp_lanes[i].value);
        int g = i / 4, t = i % 4;
        for (int h = 0; h < 2; h++) {
            for (int half = 0; half < 2; half++) {
                int k = 2 * t + half + 8 * h, shift = 16 * half;
                a[g][k] = from_bf16(f->a[2 * h] >> shift & 0xffff);
                a[g + 8][k] = from_bf16(f->a[2 * h + 1] >> shift & 0xffff);
                b[k][g] = from_bf16(f->b[h] >> shift & 0xffff);
                d[g + 8 * h][2 * t + half] = f->d[2 * h + half];
            }
        }
    }
    for (int i = 0; i < 16; i++) {
        for (int k = 0; k < 16; k++) {
            for (int j = 0; j < 8; j++)
                d[i][j] += a[i][k] * b[k][j];
        }
    }
    for (int i = 0; i < EMULATE_WARP; i++) {
        const emulate_fragments *f =
            reinterpret_cast<const emulate_fragments *>(warp_lanes[i].value);
        for (int j = 0; j < 4; j++)
            f->d[j] = d[i / 4 + j / 2 * 8][2 * (i % 4) + j % 2];
    }
}

void exchange(emulate_exchange kind, unsigned mask, lane *warp_lanes)
{
    unsigned votes = 0;
    for (unsigned left = mask; left; left &= left - 1) {
        int i = __builtin_ctz(left);
        if (warp_lanes[i].value) votes |= 1u << i;
    }
    if (kind == EMULATE_MMA) {
        if (mask != ~0u) fault("mma_bf16_16x8x16 in a warp of fewer than 32 lanes");
        multiply(warp_lanes);
    }
    for (unsigned left = mask; left; left &= left - 1) {
        lane &l = warp_lanes[__builtin_ctz(left)];
        if (kind == EMULATE_SHUFFLE) {
            bool is_there = mask >> (l.source & 31) & 1; /* else undefined on a device */
            l.result = is_there ? warp_lanes[l.source & 31].value : 0x7ff8dead7fc0deadu;
        } else if (kind == EMULATE_BALLOT) {
            l.result = votes;
        } else {
            l.result = kind == EMULATE_ALL ? votes == mask : votes != 0;
        }
    }
}

/* All lanes of the mask have arrived, at the same exchange. */
bool is_complete(const warp &w, const lane *warp_lanes, const lane &me)
{
    if ((w.arrived & me.mask) != me.mask) return false;
    for (unsigned left = me.mask; left; left &= left - 1) {
        const lane &l = warp_lanes[__builtin_ctz(left)];
        if (l.kind != me.kind || l.mask != me.mask) return false;
    }
    return true;
}

} // namespace

uint64_t emulate_warp(emulate_exchange kind, unsigned mask, uint64_t value, int source,
                      emulate_site site)
{
    lane &me = lanes[current];
    warp &w = warps[current / EMULATE_WARP];
    lane *warp_lanes = &lanes[current / EMULATE_WARP * EMULATE_WARP];
    unsigned bit = 1u << current % EMULATE_WARP;
    if (!(mask & bit)) emulate_fault("a lane is not in its own mask", site);
    me.kind = kind;
    me.mask = mask & w.existing;
    me.value = value;
    me.source = source;
    me.site = site;
    w.arrived |= bit;
    if (!is_complete(w, warp_lanes, me)) {
        wait(WAITS_WARP);
        return me.result;
    }
    exchange(kind, me.mask, warp_lanes);
    w.arrived &= ~me.mask;
    w.ready |= me.mask;
    for (unsigned left = me.mask; left; left &= left - 1) {
        warp_lanes[__builtin_ctz(left)].state = READY;
    }
    return me.result;
}

int emulate_block(emulate_exchange kind, int predicate, emulate_site site)
{
    static int n_true;
    static const lane *first;
    lane &me = lanes[current];
    me.kind = kind;
    me.site = site;
    if (n_waiting == 0) {
        n_true = 0;
        first = &me;
    }
    if (n_returned) emulate_fault("a barrier after a thread has returned", site);
    if (first->kind != kind || first->site.line != site.line ||
        strcmp(first->site.file, site.file) != 0) {
        emulate_fault("threads have come to different barriers", site);
    }
    n_true += predicate != 0;
    if (++n_waiting < n_threads) {
        wait(WAITS_BLOCK);
        return int(me.result);
    }
    int result = kind == EMULATE_BARRIER_COUNT ? n_true
                 : kind == EMULATE_BARRIER_AND ? n_true == n_threads
                                               : n_true != 0;
    n_waiting = 0;
    for (int i = 0; i < n_threads; i++) {
        lanes[i].result = uint64_t(result);
        lanes[i].state = READY;
    }
    for (int w = 0; w * EMULATE_WARP < n_threads; w++) {
        warps[w].ready = warps[w].existing;
        ready_warps |= 1u << w;
    }
    return result;
}

void emulate_fault(const char *what, emulate_site site)
{
    fprintf(stderr, "emulate: %s:%d: thread (%u, %u, %u): %s\n", site.file, site.line, threadIdx.x,
            threadIdx.y, threadIdx.z, what);
    fault(what);
}

void emulate_yield()
{
    switch_to_next(true);
}

void emulate_sleep(const uint64_t *bar, emulate_site site)
{
    lanes[current].bar = bar;
    lanes[current].site = site;
    wait(WAITS_COPY);
}

void emulate_wake(const uint64_t *bar)
{
    for (int i = 0; i < n_threads; i++) {
        if (lanes[i].state != WAITS_COPY || lanes[i].bar != bar) continue;
        lanes[i].state = READY;
        warps[i / EMULATE_WARP].ready |= 1u << i % EMULATE_WARP;
        ready_warps |= 1u << i / EMULATE_WARP;
    }
}

bool emulate_is_waited_for(const uint64_t *bar)
{
    for (int i = 0; i < n_threads; i++) {
        if (lanes[i].state == WAITS_COPY && lanes[i].bar == bar) return true;
    }
    return false;
}

unsigned emulate_active()
{
    const lane *warp_lanes = &lanes[current / EMULATE_WARP * EMULATE_WARP];
    unsigned active = 0;
    for (int i = 0; i < EMULATE_WARP; i++) {
        bool exists = warps[current / EMULATE_WARP].existing >> i & 1;
        if (exists && warp_lanes[i].state != RETURNED) active |= 1u << i;
    }
    return active;
}

void emulate_dependency_wait()
{
    has_waited = true;
}

int emulate_lane()
{
    return current % EMULATE_WARP;
}

void *emulate_shared()
{
    return shared_memory + shared_guard;
}

void emulate_copy(void *shared, const void *global, bool valid, emulate_site site)
{
    lane &me = lanes[current];
    if (reinterpret_cast<uintptr_t>(shared) % 16 ||
        (valid && reinterpret_cast<uintptr_t>(global) % 16)) {
        emulate_fault("copy_async_16 of an address that is not a multiple of 16", site);
    }
    memset(shared, 0xff, 16);
    me.copies.push_back({shared, valid ? global : nullptr, me.n_groups});
}

void emulate_copy_commit()
{
    lanes[current].n_groups++;
}

void emulate_copy_wait(int n_left)
{
    finish_copies(lanes[current], lanes[current].n_groups - n_left);
}

void emulate_run(const emulate_launch &launch)
{
    const char *kernels = getenv("EMULATED_KERNELS");
    if (kernels && strcmp(kernels, "skipped") == 0) return;
    std::lock_guard<std::recursive_mutex> lock(emulate_mutex());
    emulate_memory_access access;
    unsigned char *shared = shared_memory + shared_guard;
    running = &launch;
    has_waited = false;
    gridDim = launch.grid;
    blockDim = launch.block;
    n_threads = int(launch.block.x * launch.block.y * launch.block.z);
    emulate_guard_write(shared_memory, shared_guard);
    emulate_guard_write(shared + launch.shared_bytes, shared_guard);
    const char *order = getenv("EMULATED_ORDER");
    is_backward = order && strcmp(order, "backward") == 0;
    uint64_t n_blocks = uint64_t(gridDim.x) * gridDim.y * gridDim.z;
    for (uint64_t i = 0; i < n_blocks; i++) {
        uint64_t b = is_backward ? n_blocks - 1 - i : i;
        run_block({unsigned(b % gridDim.x), unsigned(b / gridDim.x % gridDim.y),
                   unsigned(b / gridDim.x / gridDim.y)});
    }
    if (!emulate_check_guards()) fault("a block has written outside of device memory");
    if (launch.may_start_early && !has_waited) fault("no thread has called grid_dependency_wait");
}
