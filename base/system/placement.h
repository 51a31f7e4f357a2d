/* How many threads compute in this process, and on which CPUs: a pure function of the machine's
 * facts (base/system/topology.h), of the other processes on the machine, and of what the options
 * ask for. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/system/topology.h"

enum { PLACEMENT_THREADS_MAX = 256 };

enum placement_pin { PIN_AUTO, PIN_OFF, PIN_LIST };

struct placement_wish {
    int n_threads; /* 0: as many as make sense */
    enum placement_pin pin;
    int n_cpus;                          /* of PIN_LIST */
    int32_t cpus[PLACEMENT_THREADS_MAX]; /* n_threads for each of the n_sharing, in their order */
    /* Processes of the group that may run on exactly the same CPUs, and which of them this one is:
     * 0 of 1 if it has its CPUs to itself. */
    int n_sharing, sharing;
    bool is_safe; /* to pin: all of the group on this machine are known, none overlaps in part */
    bool has_coordinator; /* that drafts on these CPUs too */
};

/* Facts that a process tells the others of its group. */
struct placement_fact {
    uint64_t host;
    uint8_t mask[TOPOLOGY_MASK_BYTES];
};

/* At most one of is_pinned and is_confined holds. */
struct placement {
    int n_threads;
    bool is_pinned;
    int cpus[PLACEMENT_THREADS_MAX]; /* if is_pinned, thread i runs on cpus[i] */
    bool is_confined;
    uint8_t mask[TOPOLOGY_MASK_BYTES]; /* if is_confined, the CPUs that all threads run on */
};

/* Number of threads: the physical cores, at most the quota, divided among the processes; at least
 * one. If there are more than four cores, one is left to a coordinator. With fewer, none is: the
 * coordinator drafts while the ranks wait, so it can use their cores. More threads than cores are
 * never chosen, because a fork-join on a contended core costs milliseconds.
 *
 * PIN_AUTO gives each thread a core of its own if the group has exactly as many threads as there
 * are cores; with fewer threads, another group could choose the same cores while others stay free.
 * For the same reason a single process is not pinned: a second one, or its coordinator, would
 * choose the same cores. Nor is a process under a quota, because it does not own its cores.
 *
 * The processes of a group divide the cores so that each has cores that share a cache, or at least
 * a node's memory, as far as the numbers permit, and as many slow cores as the others, because they
 * wait for each other. Where PIN_AUTO cannot give each thread a core because some cores are left
 * over, a process is confined to all CPUs of the caches that its share of the cores lies on. Other
 * groups then still find the cores that are free, because every cache has about its share of
 * threads.
 * Errors: ERR_ARGUMENT a list with too few CPUs, with one twice, or with one that this process may
 * not use. */
int placement_choose(struct placement *placement, const struct topology *topology,
                     const struct placement_wish *wish, struct error *err);

struct placement_fact placement_fact(const struct topology *topology);

/* Sets n_sharing, sharing and is_safe from the facts of all n processes of the group; this process
 * is facts[me]. */
void placement_meet(struct placement_wish *wish, const struct placement_fact *facts, int n, int me);

/* Reads the value of --pin into wish: auto, off or a list of CPUs. Errors: ERR_ARGUMENT. */
int placement_parse_pin(struct placement_wish *wish, const char *text, struct error *err);

/* "off", or the CPUs as a list, "0,2", or the CPUs that the process is confined to, "within:0-7".
 * Returns out. */
const char *placement_show(const struct placement *placement, char *out, int out_bytes);

/* Keeps the calling thread on a CPU until placement_leave. Threads that it starts meanwhile inherit
 * the CPU. A CPU of -1 changes nothing.
 * Errors: ERR_IO. */
int placement_enter(int cpu, struct error *err);
/* Confines the thread to the CPUs that the placement is confined to; changes nothing if it is not.
 * Errors: ERR_IO. */
int placement_confine(const struct placement *placement, struct error *err);
/* Lets the thread run on all CPUs of topology again. */
void placement_leave(const struct topology *topology);
