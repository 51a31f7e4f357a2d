/* How many threads, and on which CPUs. */
#include "base/placement.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/options.h"

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

/* The first CPU of each core, in the order of cores: neighbouring threads get neighbouring
 * cores. */
static int list_cores(const struct topology *topology, int cores[TOPOLOGY_CPUS_MAX])
{
    int n = 0;
    for (int i = 0; i < topology->n_cpus; i++) {
        const struct topology_cpu *cpu = &topology->cpus[i];
        if (i == 0 || cpu->core != cpu[-1].core) cores[n++] = cpu->cpu;
    }
    return n;
}

static void pin_cores(struct placement *placement, const struct topology *topology,
                      const struct placement_wish *wish)
{
    int cores[TOPOLOGY_CPUS_MAX];
    int n = list_cores(topology, cores), first = wish->sharing * placement->n_threads;
    /* Fewer cores than threads, or so many that another group could choose the same cores. */
    if (placement->n_threads * at_least_one(wish->n_sharing) != n) return;
    placement->is_pinned = true;
    memcpy(placement->cpus, cores + first, (size_t)placement->n_threads * sizeof *cores);
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
        pin_cores(placement, topology, wish);
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

const char *placement_show(const struct placement *placement, char *out, int out_bytes)
{
    int len = snprintf(out, (size_t)out_bytes, "off");
    if (placement->is_pinned) len = 0;
    for (int i = 0; placement->is_pinned && i < placement->n_threads && len < out_bytes; i++) {
        len += snprintf(out + len, (size_t)(out_bytes - len), i ? ",%d" : "%d", placement->cpus[i]);
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

void placement_leave(const struct topology *topology)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < topology->n_cpus; i++) {
        CPU_SET((size_t)topology->cpus[i].cpu, &set);
    }
    (void)sched_setaffinity(0, sizeof set, &set);
}
