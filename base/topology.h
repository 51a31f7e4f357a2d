/* What the machine gives this process: the CPUs it may run on, which of them share a core, and how many
 * of them its cgroup lets it use at a time. Facts only; placement.h decides with them. */
#pragma once

#include <stdint.h>

enum { TOPOLOGY_CPUS_MAX = 1024 };

struct topology_cpu {
    int cpu;
    int core; /* the lowest CPU of the same physical core; its own number where nobody knows */
};

struct topology {
    int n_cpus; /* that this process may run on, ascending by core, then by CPU */
    struct topology_cpu cpus[TOPOLOGY_CPUS_MAX];
    int quota_cpus; /* whole CPUs of a cgroup's quota; 0: no quota */
    uint64_t host;  /* the same for processes of one machine (and one container) */
};

/* Cannot fail: what cannot be read counts as unlimited, without siblings; at least one CPU is there. */
void topology_read(struct topology *topology);

/* Physical cores among the CPUs. */
int topology_cores(const struct topology *topology);

/* The quota in the text of a cgroup v2 "cpu.max" ("max 100000", "150000 100000"), rounded down but at
 * least 1; 0: none, or no such text. */
int topology_parse_quota(const char *text);

/* The first CPU of a list such as "0,64" or "0-1"; -1: no list. */
int topology_parse_first(const char *text);
