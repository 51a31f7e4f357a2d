/* The CPUs that the machine gives to this process, which of them share a core, a cache or a node's
 * memory, and how many of them its cgroup lets it use at a time. These are facts only;
 * base/system/placement.h decides with them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { TOPOLOGY_CPUS_MAX = 1024, TOPOLOGY_MASK_BYTES = TOPOLOGY_CPUS_MAX / 8 };

struct topology_cpu {
    int cpu;
    int core;     /* the lowest CPU of the same physical core; its own number if unknown */
    int cache;    /* the lowest CPU that shares the last cache that cores share; 0 if unknown */
    int node;     /* of memory; 0 if unknown */
    bool is_slow; /* an efficiency core beside faster ones */
};

struct topology {
    int n_cpus; /* that this process may run on, ascending by node, cache, core and CPU */
    struct topology_cpu cpus[TOPOLOGY_CPUS_MAX];
    int quota_cpus; /* whole CPUs of a cgroup's quota; 0: no quota */
    uint64_t host;  /* the same for processes of one machine (and one container) */
};

/* Cannot fail: facts that cannot be read count as no quota, no siblings, one cache and one node.
 * There is at least one CPU. */
void topology_read(struct topology *topology);

/* The part that reads the folder sys ("/sys"): fills in what is known of the CPUs, of which only
 * the numbers are set, and sorts them. */
void topology_read_cpus(struct topology *topology, const char *sys);

/* Physical cores among the CPUs. */
int topology_cores(const struct topology *topology);

/* The quota in the text of a cgroup v2 file "cpu.max" ("max 100000", "150000 100000"), rounded
 * down, but at least 1; 0 if there is none or the text is something else. */
int topology_parse_quota(const char *text);

/* The first CPU of a list such as "0,64" or "0-1"; -1 if the text is no list. */
int topology_parse_first(const char *text);

/* Sets the bits of the CPUs in a list such as "0-3,8" and returns how many CPUs it names. Reads up
 * to the first thing that is no list. CPUs from TOPOLOGY_CPUS_MAX on are left out. */
int topology_parse_list(const char *text, uint8_t mask[TOPOLOGY_MASK_BYTES]);

static inline bool topology_mask_has(const uint8_t *mask, int cpu)
{
    return cpu >= 0 && cpu < TOPOLOGY_CPUS_MAX && (mask[cpu / 8] >> (cpu % 8) & 1);
}
