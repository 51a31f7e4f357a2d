/* How many threads compute in this process and where: a pure function of the machine's facts
 * (topology.h), of who else is on the machine, and of what was asked for. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/topology.h"

enum { PLACEMENT_THREADS_MAX = 256 };

enum placement_pin { PIN_AUTO, PIN_OFF, PIN_LIST };

struct placement_wish {
    int n_threads; /* 0: as many as make sense */
    enum placement_pin pin;
    int n_cpus;                          /* of PIN_LIST */
    int32_t cpus[PLACEMENT_THREADS_MAX]; /* n_threads for each of the n_sharing, in their order */
    /* Processes of the group that may run on the very same CPUs, and which of them this is: 0 of 1
     * when it has its CPUs for itself. */
    int n_sharing, sharing;
    bool is_safe; /* to pin: every process of the group here is known, none overlaps in part */
    bool has_coordinator; /* which drafts on these CPUs too */
};

/* What a process tells the others of its group. */
struct placement_fact {
    uint64_t host;
    uint8_t mask[TOPOLOGY_CPUS_MAX / 8];
};

struct placement {
    int n_threads;
    bool is_pinned;
    int cpus[PLACEMENT_THREADS_MAX]; /* thread i runs on cpus[i], where is_pinned */
};

/* Threads: the physical cores, at most the quota, less one for a coordinator where there are more
 * than four (it drafts while the ranks wait, so of few cores none is kept for it), shared out among
 * the processes; at least 1. More threads than cores are never chosen: a fork-join on a contended core
 * costs milliseconds.
 * Pinning by itself (PIN_AUTO): each thread gets a core of its own where the group's threads are as many
 * as the cores: nobody else can then choose cores that are free. A lone process is not pinned: two such, or its coordinator, would
 * choose the same cores. Nor is one under a quota, whose cores are anybody's.
 * Errors: ERR_ARGUMENT a list with too few CPUs, with one twice or with one this process may not use. */
int placement_choose(struct placement *placement, const struct topology *topology,
                     const struct placement_wish *wish, struct error *err);

struct placement_fact placement_fact(const struct topology *topology);

/* Sets n_sharing, sharing and is_safe from the facts of all n processes of the group; this is facts[me]. */
void placement_meet(struct placement_wish *wish, const struct placement_fact *facts, int n, int me);

/* Reads the value of --pin into wish: auto, off or a list of CPUs. Errors: ERR_ARGUMENT. */
int placement_parse_pin(struct placement_wish *wish, const char *text, struct error *err);

/* "off", or the CPUs as a list, "0,2". Returns out. */
const char *placement_show(const struct placement *placement, char *out, int out_bytes);

/* Keeps the calling thread on a CPU, until placement_leave. Threads that it starts meanwhile are kept
 * there too. A CPU of -1 changes nothing. Errors: ERR_IO. */
int placement_enter(int cpu, struct error *err);
/* Back to all the CPUs in topology. */
void placement_leave(const struct topology *topology);
