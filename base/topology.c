/* Reads sched_getaffinity, /sys and cgroups. If a file is missing, the machine counts as one
 * without that limit. */
#include "base/topology.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static int least(int a, int b)
{
    if (!a || !b) return a + b;
    return a < b ? a : b;
}

/* Cgroup version 2: every group above this one may have a quota of its own. path is "/a/b"; it is
 * cut. */
static int quota_v2(char *path)
{
    char file[PATH_BYTES], line[LINE_BYTES];
    int quota = 0;
    for (;;) {
        snprintf(file, sizeof file, "/sys/fs/cgroup%.3900s/cpu.max", path);
        if (read_line(file, line)) quota = least(quota, topology_parse_quota(line));
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
            quota = least(quota,
                          whole_cpus(us, read_number(folders[i], paths[k], "cpu.cfs_period_us")));
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
        if (controllers[1] == '\0') quota = least(quota, quota_v2(path));
        if (strncmp(controllers + 1, "cpu", 3) == 0 && strcmp(controllers + 1, "cpuset") != 0) {
            quota = least(quota, quota_v1(path));
        }
    }
    if (file) fclose(file);
    return quota;
}

static int core_of(int cpu)
{
    char file[PATH_BYTES], line[LINE_BYTES];
    snprintf(file, sizeof file, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    int first = read_line(file, line) ? topology_parse_first(line) : -1;
    return first >= 0 ? first : cpu;
}

static int by_core(const void *left, const void *right)
{
    const struct topology_cpu *a = left, *b = right;
    return a->core != b->core ? a->core - b->core : a->cpu - b->cpu;
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
        topology->cpus[topology->n_cpus++] = (struct topology_cpu){cpu, core_of(cpu)};
    }
    qsort(topology->cpus, (size_t)topology->n_cpus, sizeof *topology->cpus, by_core);
}

int topology_cores(const struct topology *topology)
{
    int n = 0;
    for (int i = 0; i < topology->n_cpus; i++) {
        if (i == 0 || topology->cpus[i].core != topology->cpus[i - 1].core) n++;
    }
    return n;
}
