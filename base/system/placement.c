/* How many threads, and on which CPUs. */
#include "base/system/placement.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/text/options.h"

enum { SPARE_LEAST = 5 }; /* cores of a machine that can leave one to the coordinator */

static int at_least_one(int n)
{
    return n > 0 ? n : 1;
}

static int most_threads(const struct topology *topology, const struct placement_wish *wish)
{
    int n = topology_cores(topology);
    if (topology->quota_cpus && topology->quota_cpus < n) n = topology->quota_cpus;
    if (wish->has_coordinator && n >= SPARE_LEAST) n--;
    n = at_least_one(n / at_least_one(wish->n_sharing));
    return n < PLACEMENT_THREADS_MAX ? n : PLACEMENT_THREADS_MAX;
}

static bool is_allowed(const struct topology *topology, int cpu)
{
    for (int i = 0; i < topology->n_cpus; i++) {
        if (topology->cpus[i].cpu == cpu) return true;
    }
    return false;
}

static int check_list(const struct topology *topology, const struct placement_wish *wish,
                      int n_threads, struct error *err)
{
    if (wish->n_cpus < n_threads) {
        return error_set(err, ERR_ARGUMENT,
                         "--pin lists %d CPUs for %d threads: list one for each, or give --threads",
                         wish->n_cpus, n_threads);
    }
    for (int i = 0; i < wish->n_cpus; i++) {
        if (!is_allowed(topology, wish->cpus[i])) {
            return error_set(err, ERR_ARGUMENT, "--pin: this process may not run on CPU %d",
                             wish->cpus[i]);
        }
        for (int k = 0; k < i; k++) {
            if (wish->cpus[k] == wish->cpus[i]) {
                return error_set(err, ERR_ARGUMENT, "--pin lists CPU %d twice", wish->cpus[i]);
            }
        }
    }
    return 0;
}

/* ---- which cores ---- */

/* A physical core. Cores are in the order of the topology, so those of a node or a cache follow
 * each other, and neighbouring threads get neighbouring cores. */
struct core {
    const struct topology_cpu *cpu; /* its first */
    bool is_taken, is_mine;
};

struct cores {
    int n, n_slow;
    struct core at[TOPOLOGY_CPUS_MAX];
};

static void list_cores(const struct topology *topology, struct cores *cores)
{
    *cores = (struct cores){0};
    for (int i = 0; i < topology->n_cpus; i++) {
        const struct topology_cpu *cpu = &topology->cpus[i];
        if (i > 0 && cpu->core == cpu[-1].core) continue;
        cores->at[cores->n++].cpu = cpu;
        cores->n_slow += cpu->is_slow;
    }
}

/* Cores begin .. end of one node or of one cache, of which n_free are of the wanted speed and not
 * taken. */
struct span {
    int begin, end, n_free;
};

static bool is_free(const struct core *core, bool is_slow)
{
    return !core->is_taken && core->cpu->is_slow == is_slow;
}

static struct span span_at(const struct cores *cores, int begin, bool is_node, bool is_slow)
{
    const struct topology_cpu *first = cores->at[begin].cpu;
    struct span span = {.begin = begin, .end = begin};
    for (; span.end < cores->n; span.end++) {
        const struct core *core = &cores->at[span.end];
        if (core->cpu->node != first->node) break;
        if (!is_node && core->cpu->cache != first->cache) break;
        span.n_free += is_free(core, is_slow);
    }
    return span;
}

/* Returns the node or cache in `in` with the fewest free cores that are enough; if none has enough,
 * the one with most. */
static struct span best_span(const struct cores *cores, struct span in, bool is_node, bool is_slow,
                             int n_wanted)
{
    struct span best = {0};
    for (int i = in.begin; i < in.end;) {
        struct span span = span_at(cores, i, is_node, is_slow);
        bool is_enough = span.n_free >= n_wanted, was_enough = best.n_free >= n_wanted;
        bool is_better =
            is_enough && was_enough ? span.n_free < best.n_free : span.n_free > best.n_free;
        if (is_better) best = span;
        i = span.end;
    }
    return best;
}

static int take_cores(struct cores *cores, struct span span, bool is_slow, int n_wanted,
                      bool is_mine)
{
    int n = 0;
    for (int i = span.begin; i < span.end && n < n_wanted; i++) {
        struct core *core = &cores->at[i];
        if (!is_free(core, is_slow)) continue;
        core->is_taken = true;
        core->is_mine = is_mine;
        n++;
    }
    return n;
}

/* Takes cores of one cache if there are enough; otherwise of one node, whole caches first;
 * otherwise of several nodes. There are n_wanted free ones. */
static void take_near(struct cores *cores, bool is_slow, int n_wanted, bool is_mine)
{
    const struct span all = {.end = cores->n};
    struct span cache = best_span(cores, all, false, is_slow, n_wanted);
    if (cache.n_free >= n_wanted) {
        take_cores(cores, cache, is_slow, n_wanted, is_mine);
        return;
    }
    while (n_wanted > 0) {
        struct span node = best_span(cores, all, true, is_slow, n_wanted);
        assert(node.n_free > 0);
        while (n_wanted > 0 && (cache = best_span(cores, node, false, is_slow, n_wanted)).n_free) {
            n_wanted -= take_cores(cores, cache, is_slow, n_wanted, is_mine);
        }
    }
}

/* Takes n_each cores for each process up to this one. Fast cores are dealt in turn, and then slow
 * ones. */
static void divide_cores(struct cores *cores, const struct placement_wish *wish, int n_each)
{
    int n_fast = cores->n - cores->n_slow, n_sharing = at_least_one(wish->n_sharing);
    for (int i = 0; i <= wish->sharing; i++) {
        int fast = n_fast / n_sharing + (i < n_fast % n_sharing);
        if (fast > n_each) fast = n_each;
        take_near(cores, false, fast, i == wish->sharing);
        take_near(cores, true, n_each - fast, i == wish->sharing);
    }
}

static void pin_cores(struct placement *placement, const struct cores *cores)
{
    int n = 0;
    for (int i = 0; i < cores->n; i++) {
        if (cores->at[i].is_mine) placement->cpus[n++] = cores->at[i].cpu->cpu;
    }
    placement->is_pinned = true;
}

static bool is_same_cache(const struct topology_cpu *a, const struct topology_cpu *b)
{
    return a->node == b->node && a->cache == b->cache;
}

static void confine(struct placement *placement, const struct topology *topology,
                    const struct cores *cores)
{
    int n = 0;
    for (int i = 0; i < topology->n_cpus; i++) {
        const struct topology_cpu *cpu = &topology->cpus[i];
        for (int k = 0; k < cores->n; k++) {
            if (!cores->at[k].is_mine || !is_same_cache(cpu, cores->at[k].cpu)) continue;
            placement->mask[cpu->cpu / 8] |= (uint8_t)(1u << (cpu->cpu % 8));
            n++;
            break;
        }
    }
    placement->is_confined = n < topology->n_cpus;
}

/* Leaves the threads alone if there are fewer cores than threads. */
static void place_near(struct placement *placement, const struct topology *topology,
                       const struct placement_wish *wish)
{
    struct cores cores;
    list_cores(topology, &cores);
    int n_each = cores.n / at_least_one(wish->n_sharing);
    if (placement->n_threads > n_each) return;
    divide_cores(&cores, wish, n_each);
    if (placement->n_threads * at_least_one(wish->n_sharing) == cores.n) {
        pin_cores(placement, &cores);
    } else {
        confine(placement, topology, &cores);
    }
}

int placement_choose(struct placement *placement, const struct topology *topology,
                     const struct placement_wish *wish, struct error *err)
{
    int rc = 0;
    *placement = (struct placement){.n_threads = wish->n_threads};
    if (!placement->n_threads) placement->n_threads = most_threads(topology, wish);
    if (wish->pin == PIN_LIST) {
        int n_sharing = at_least_one(wish->n_sharing), n_own = wish->n_cpus / n_sharing;
        if (!wish->n_threads) placement->n_threads = at_least_one(n_own);
        TRY(check_list(topology, wish, placement->n_threads * n_sharing, err));
        placement->is_pinned = true;
        memcpy(placement->cpus, wish->cpus + wish->sharing * placement->n_threads,
               (size_t)placement->n_threads * sizeof *wish->cpus);
    } else if (wish->pin == PIN_AUTO && wish->is_safe && !topology->quota_cpus) {
        place_near(placement, topology, wish);
    }
out:
    return rc;
}

struct placement_fact placement_fact(const struct topology *topology)
{
    struct placement_fact fact = {.host = topology->host};
    for (int i = 0; i < topology->n_cpus; i++) {
        int cpu = topology->cpus[i].cpu;
        if (cpu < TOPOLOGY_CPUS_MAX) fact.mask[cpu / 8] |= (uint8_t)(1u << (cpu % 8));
    }
    return fact;
}

static bool overlap(const struct placement_fact *a, const struct placement_fact *b)
{
    for (size_t i = 0; i < sizeof a->mask; i++) {
        if (a->mask[i] & b->mask[i]) return true;
    }
    return false;
}

void placement_meet(struct placement_wish *wish, const struct placement_fact *facts, int n, int me)
{
    int n_local = 0, n_equal = 0, n_overlap = 0, local = 0, equal = 0;
    for (int i = 0; i < n; i++) {
        if (facts[i].host != facts[me].host) continue;
        if (i == me) {
            local = n_local;
            equal = n_equal;
        }
        n_local++;
        n_equal += memcmp(facts[i].mask, facts[me].mask, sizeof facts[i].mask) == 0;
        n_overlap += overlap(&facts[i], &facts[me]);
    }
    bool is_clean = n_overlap == n_equal; /* no process shares only some of our CPUs */
    wish->n_sharing = is_clean ? n_equal : n_local;
    wish->sharing = is_clean ? equal : local;
    wish->is_safe = is_clean && n_local > 1;
}

int placement_parse_pin(struct placement_wish *wish, const char *text, struct error *err)
{
    wish->pin = PIN_LIST;
    if (strcmp(text, "auto") == 0) wish->pin = PIN_AUTO;
    if (strcmp(text, "off") == 0) wish->pin = PIN_OFF;
    if (wish->pin != PIN_LIST) return 0;
    if (options_int_list(wish->cpus, &wish->n_cpus, PLACEMENT_THREADS_MAX, "--pin", text,
                         (struct options_range){0, CPU_SETSIZE - 1}, err) == 0) {
        return 0;
    }
    return error_set(err, ERR_ARGUMENT,
                     "--pin: '%.60s' is not auto, off or a list of CPUs from 0 to %d such as 0,2",
                     text, CPU_SETSIZE - 1);
}

/* Appends to the text in out[out_bytes], which is cut where it is full. */
static int append(char *out, int out_bytes, int len, const char *before, int value)
{
    if (len >= out_bytes) return len;
    return len + snprintf(out + len, (size_t)(out_bytes - len), "%s%d", before, value);
}

static void show_mask(const uint8_t *mask, char *out, int out_bytes)
{
    int len = snprintf(out, (size_t)out_bytes, "within:");
    for (int cpu = 0, n = 0; cpu < TOPOLOGY_CPUS_MAX; cpu++) {
        if (!topology_mask_has(mask, cpu)) continue;
        bool is_first = !topology_mask_has(mask, cpu - 1);
        if (is_first) len = append(out, out_bytes, len, n++ ? "," : "", cpu);
        if (!is_first && !topology_mask_has(mask, cpu + 1)) {
            len = append(out, out_bytes, len, "-", cpu);
        }
    }
}

const char *placement_show(const struct placement *placement, char *out, int out_bytes)
{
    int len = 0;
    if (placement->is_confined) {
        show_mask(placement->mask, out, out_bytes);
    } else if (!placement->is_pinned) {
        snprintf(out, (size_t)out_bytes, "off");
    }
    for (int i = 0; placement->is_pinned && i < placement->n_threads; i++) {
        len = append(out, out_bytes, len, i ? "," : "", placement->cpus[i]);
    }
    return out;
}

int placement_enter(int cpu, struct error *err)
{
    cpu_set_t set;
    if (cpu < 0) return 0;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) == 0) return 0;
    return error_set(err, ERR_IO, "cannot keep a thread on CPU %d: %s", cpu, strerror(errno));
}

int placement_confine(const struct placement *placement, struct error *err)
{
    cpu_set_t set;
    char text[64];
    if (!placement->is_confined) return 0;
    CPU_ZERO(&set);
    for (int cpu = 0; cpu < TOPOLOGY_CPUS_MAX; cpu++) {
        if (topology_mask_has(placement->mask, cpu)) CPU_SET((size_t)cpu, &set);
    }
    if (sched_setaffinity(0, sizeof set, &set) == 0) return 0;
    return error_set(err, ERR_IO, "cannot keep a thread %s: %s",
                     placement_show(placement, text, sizeof text), strerror(errno));
}

void placement_leave(const struct topology *topology)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < topology->n_cpus; i++) {
        CPU_SET((size_t)topology->cpus[i].cpu, &set);
    }
    (void)sched_setaffinity(0, sizeof set, &set);
}
