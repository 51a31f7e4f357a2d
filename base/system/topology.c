/* Reads sched_getaffinity, /sys and cgroups. If a file is missing, the machine counts as one
 * without that limit. */
#include "base/system/topology.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/least.h"

enum { LINE_BYTES = 4096, PATH_BYTES = 4200 };

/* The first line of a file; false when there is none. */
static bool read_line(const char *path, char line[LINE_BYTES])
{
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool is_read = fgets(line, LINE_BYTES, file) != NULL;
    fclose(file);
    return is_read;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int topology_parse_first(const char *text)
{
    if (!is_digit(text[0])) return -1;
    long value = strtol(text, NULL, 10);
    return value < (1 << 20) ? (int)value : -1;
}

static int whole_cpus(long quota, long period)
{
    if (quota <= 0 || period <= 0) return 0;
    long cpus = quota / period;
    if (cpus > TOPOLOGY_CPUS_MAX) return 0;
    return cpus > 0 ? (int)cpus : 1;
}

int topology_parse_quota(const char *text)
{
    char *end = NULL;
    if (!is_digit(text[0])) return 0;
    long quota = strtol(text, &end, 10);
    if (*end != ' ' || !is_digit(end[1])) return 0;
    return whole_cpus(quota, strtol(end + 1, NULL, 10));
}

/* The smaller of two quotas, of which 0 is none. */
static int tighter_quota(int a, int b)
{
    return a && b ? least(a, b) : a + b;
}

/* Cgroup version 2: every group above this one may have a quota of its own. path is "/a/b"; it is
 * cut. */
static int quota_v2(char *path)
{
    char file[PATH_BYTES], line[LINE_BYTES];
    int quota = 0;
    for (;;) {
        snprintf(file, sizeof file, "/sys/fs/cgroup%.3900s/cpu.max", path);
        if (read_line(file, line)) quota = tighter_quota(quota, topology_parse_quota(line));
        char *slash = strrchr(path, '/');
        if (!slash) return quota;
        *slash = '\0';
    }
}

static long read_number(const char *folder, const char *path, const char *name)
{
    char file[PATH_BYTES], line[LINE_BYTES];
    snprintf(file, sizeof file, "/sys/fs/cgroup/%.20s%.3900s/%.30s", folder, path, name);
    return read_line(file, line) ? strtol(line, NULL, 10) : 0;
}

/* Cgroup version 1. Inside a container the path of its own group is often not visible, but the root
 * is. */
static int quota_v1(const char *path)
{
    static const char *const folders[] = {"cpu", "cpu,cpuacct"};
    int quota = 0;
    for (int i = 0; i < 2; i++) {
        const char *const paths[] = {path, ""};
        for (int k = 0; k < 2; k++) {
            long us = read_number(folders[i], paths[k], "cpu.cfs_quota_us");
            quota = tighter_quota(
                quota, whole_cpus(us, read_number(folders[i], paths[k], "cpu.cfs_period_us")));
        }
    }
    return quota;
}

/* Lines are "0::/path" (version 2) or "4:cpu,cpuacct:/path". */
static int read_quota(void)
{
    char line[LINE_BYTES];
    int quota = 0;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        if (controllers[1] == '\0') quota = tighter_quota(quota, quota_v2(path));
        if (strncmp(controllers + 1, "cpu", 3) == 0 && strcmp(controllers + 1, "cpuset") != 0) {
            quota = tighter_quota(quota, quota_v1(path));
        }
    }
    if (file) fclose(file);
    return quota;
}

int topology_parse_list(const char *text, uint8_t mask[TOPOLOGY_MASK_BYTES])
{
    int n = 0;
    while (is_digit(text[0])) {
        char *end;
        long first = strtol(text, &end, 10), last = first;
        if (end[0] == '-' && is_digit(end[1])) last = strtol(end + 1, &end, 10);
        if (last >= TOPOLOGY_CPUS_MAX) last = TOPOLOGY_CPUS_MAX - 1;
        for (long cpu = first; cpu <= last; cpu++, n++)
            mask[cpu / 8] |= (uint8_t)(1u << (cpu % 8));
        if (*end != ',') break;
        text = end + 1;
    }
    return n;
}

/* The first line of a file below sys. */
static bool read_below(const char *sys, const char *name, char line[LINE_BYTES])
{
    char file[PATH_BYTES];
    snprintf(file, sizeof file, "%.3900s/devices/%.200s", sys, name);
    return read_line(file, line);
}

/* The first CPU of the list in a file of a CPU's folder; -1 if there is none. */
static int read_first(const char *sys, int cpu, const char *name)
{
    char path[256], line[LINE_BYTES];
    snprintf(path, sizeof path, "system/cpu/cpu%d/%.200s", cpu, name);
    return read_below(sys, path, line) ? topology_parse_first(line) : -1;
}

enum { CACHE_INDEXES = 16 };

/* The lowest CPU that shares the cache of the highest level; where /sys tells of no caches, the
 * lowest CPU of the cluster; -1 if neither is known. */
static int cache_of(const char *sys, int cpu)
{
    int highest = 0, first = read_first(sys, cpu, "topology/cluster_cpus_list");
    for (int i = 0; i < CACHE_INDEXES; i++) {
        char name[64];
        snprintf(name, sizeof name, "cache/index%d/level", i);
        int level = read_first(sys, cpu, name);
        if (level < 0) break;
        snprintf(name, sizeof name, "cache/index%d/shared_cpu_list", i);
        int sharing = read_first(sys, cpu, name);
        if (sharing < 0 || level <= highest) continue;
        highest = level;
        first = sharing;
    }
    return first;
}

static int by_place(const void *left, const void *right)
{
    const struct topology_cpu *a = left, *b = right;
    if (a->node != b->node) return a->node - b->node;
    if (a->cache != b->cache) return a->cache - b->cache;
    return a->core != b->core ? a->core - b->core : a->cpu - b->cpu;
}

static void read_nodes(struct topology *topology, const char *sys)
{
    char line[LINE_BYTES], name[64];
    uint8_t nodes[TOPOLOGY_MASK_BYTES] = {0};
    if (!read_below(sys, "system/node/online", line)) return;
    topology_parse_list(line, nodes);
    for (int node = 0; node < TOPOLOGY_CPUS_MAX; node++) {
        uint8_t cpus[TOPOLOGY_MASK_BYTES] = {0};
        snprintf(name, sizeof name, "system/node/node%d/cpulist", node);
        if (!topology_mask_has(nodes, node) || !read_below(sys, name, line)) continue;
        topology_parse_list(line, cpus);
        for (int i = 0; i < topology->n_cpus; i++) {
            if (topology_mask_has(cpus, topology->cpus[i].cpu)) topology->cpus[i].node = node;
        }
    }
}

/* Intel says which cores are efficiency cores. Elsewhere a core counts as one if it has less than
 * three quarters of the largest capacity: equal cores differ by a few percent in what they may
 * boost to. */
static void read_speeds(struct topology *topology, const char *sys)
{
    char line[LINE_BYTES];
    uint8_t slow[TOPOLOGY_MASK_BYTES] = {0};
    static const char capacity[] = "cpu_capacity";
    int most = 0;
    if (read_below(sys, "cpu_atom/cpus", line)) topology_parse_list(line, slow);
    for (int i = 0; i < topology->n_cpus; i++) {
        int n = read_first(sys, topology->cpus[i].cpu, capacity);
        most = n > most ? n : most;
    }
    for (int i = 0; i < topology->n_cpus; i++) {
        struct topology_cpu *cpu = &topology->cpus[i];
        int n = read_first(sys, cpu->cpu, capacity);
        cpu->is_slow = topology_mask_has(slow, cpu->cpu) || (n >= 0 && n < most * 3 / 4);
    }
}

/* A cache that no two cores share says nothing about where threads belong. */
static void drop_private_caches(struct topology *topology)
{
    for (int i = 1; i < topology->n_cpus; i++) {
        const struct topology_cpu *cpu = &topology->cpus[i];
        if (cpu->core != cpu[-1].core && cpu->cache == cpu[-1].cache) return;
    }
    for (int i = 0; i < topology->n_cpus; i++)
        topology->cpus[i].cache = 0;
}

static void sort_cpus(struct topology *topology)
{
    qsort(topology->cpus, (size_t)topology->n_cpus, sizeof *topology->cpus, by_place);
}

void topology_read_cpus(struct topology *topology, const char *sys)
{
    for (int i = 0; i < topology->n_cpus; i++) {
        struct topology_cpu *cpu = &topology->cpus[i];
        int core = read_first(sys, cpu->cpu, "topology/thread_siblings_list");
        int cache = cache_of(sys, cpu->cpu);
        cpu->core = core >= 0 ? core : cpu->cpu;
        cpu->cache = cache >= 0 ? cache : 0;
    }
    read_nodes(topology, sys);
    read_speeds(topology, sys);
    sort_cpus(topology);
    drop_private_caches(topology);
    sort_cpus(topology);
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 0x100000001B3u; /* FNV-1a */
    return hash;
}

/* Containers on one kernel have the same boot id; each has its own host name, and its own CPUs. */
static uint64_t host_number(void)
{
    char line[LINE_BYTES], name[256] = "";
    uint64_t hash = 0xCBF29CE484222325u;
    if (read_line("/proc/sys/kernel/random/boot_id", line)) hash = hash_text(hash, line);
    if (gethostname(name, sizeof name - 1) == 0) hash = hash_text(hash, name);
    return hash;
}

void topology_read(struct topology *topology)
{
    cpu_set_t set;
    *topology = (struct topology){.quota_cpus = read_quota(), .host = host_number()};
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set)) { /* a machine with more CPUs than a set holds */
        long n_online = sysconf(_SC_NPROCESSORS_ONLN);
        for (long cpu = 0; cpu < (n_online > 0 ? n_online : 1) && cpu < CPU_SETSIZE; cpu++)
            CPU_SET((size_t)cpu, &set);
    }
    for (int cpu = 0; cpu < CPU_SETSIZE && topology->n_cpus < TOPOLOGY_CPUS_MAX; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &set)) continue;
        topology->cpus[topology->n_cpus++].cpu = cpu;
    }
    topology_read_cpus(topology, "/sys");
}

int topology_cores(const struct topology *topology)
{
    int n = 0;
    for (int i = 0; i < topology->n_cpus; i++) {
        if (i == 0 || topology->cpus[i].core != topology->cpus[i - 1].core) n++;
    }
    return n;
}
