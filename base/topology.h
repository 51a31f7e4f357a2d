/* What the machine gives to this process: the CPUs that it may run on, which of them share a core,
 * and how many of them its cgroup lets it use at a time. These are facts only; base/placement.h
 * decides with them. */
#pragma once

#include <stdint.h>

enum { TOPOLOGY_CPUS_MAX = 1024 };

struct topology_cpu {
    int cpu;
    int core; /* the lowest CPU of the same physical core; its own number if unknown */
};

struct topology {
    int n_cpus; /* that this process may run on, ascending by core, then by CPU */
    struct topology_cpu cpus[TOPOLOGY_CPUS_MAX];
    int quota_cpus; /* whole CPUs of a cgroup's quota; 0: no quota */
    uint64_t host;  /* the same for processes of one machine (and one container) */
};

/* Cannot fail: facts that cannot be read count as no quota and no siblings. There is at least one
 * CPU. */
void topology_read(struct topology *topology);

/* Physical cores among the CPUs. */
int topology_cores(const struct topology *topology);

/* The quota in the text of a cgroup v2 file "cpu.max" ("max 100000", "150000 100000"), rounded
 * down, but at least 1; 0 if there is none or the text is something else. */
int topology_parse_quota(const char *text);

/* The first CPU of a list such as "0,64" or "0-1"; -1 if the text is no list. */
int topology_parse_first(const char *text);
