/* ctest: labels=quick libs=base timeout=60 */
/* Cores, caches, nodes and speeds read from made-up folders like /sys. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system/topology.h"
#include "tests/support/check_util.h"

static char sys[64]; /* the folder of this test */

static void setup(void)
{
    snprintf(sys, sizeof sys, "/tmp/test_topology-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(sys));
}

static void teardown(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", sys);
    ck_assert_int_eq(system(command), 0);
}

/* Writes a file below devices/, with the folders above it. */
static void put(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/devices/%s", sys, name);
    for (char *c = path + strlen(sys) + 1; *c; c++) {
        if (*c != '/') continue;
        *c = '\0';
        ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
        *c = '/';
    }
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static void put_cpu(int cpu, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "system/cpu/cpu%d/%s", cpu, name);
    put(path, text);
}

static void put_cache(int cpu, int index, const char *level, const char *cpus)
{
    char name[64];
    snprintf(name, sizeof name, "cache/index%d/level", index);
    put_cpu(cpu, name, level);
    snprintf(name, sizeof name, "cache/index%d/shared_cpu_list", index);
    put_cpu(cpu, name, cpus);
}

/* Reads CPUs 0 .. n, of which those in `left_out` are not this process's. */
static struct topology read_cpus(int n, const char *left_out)
{
    struct topology t = {0};
    uint8_t mask[TOPOLOGY_MASK_BYTES] = {0};
    topology_parse_list(left_out, mask);
    for (int cpu = 0; cpu < n; cpu++) {
        if (!topology_mask_has(mask, cpu)) t.cpus[t.n_cpus++].cpu = cpu;
    }
    topology_read_cpus(&t, sys);
    return t;
}

/* "cpu:core:cache:node" of each CPU in its order; a "s" after a slow one. */
static void check_cpus(const struct topology *t, const char *want)
{
    char text[512] = "";
    size_t len = 0;
    for (int i = 0; i < t->n_cpus; i++) {
        const struct topology_cpu *c = &t->cpus[i];
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%d:%d:%d:%d%s", i ? " " : "",
                                c->cpu, c->core, c->cache, c->node, c->is_slow ? "s" : "");
    }
    ck_assert_str_eq(text, want);
}

/* Four cores with two threads each, two cores to a cache of the third level. */
static void put_two_caches(void)
{
    static const char *const siblings[] = {"0,4\n", "1,5\n", "2,6\n", "3,7\n"};
    for (int cpu = 0; cpu < 8; cpu++) {
        put_cpu(cpu, "topology/thread_siblings_list", siblings[cpu % 4]);
        put_cache(cpu, 0, "1\n", siblings[cpu % 4]);
        put_cache(cpu, 1, "1\n", siblings[cpu % 4]);
        put_cache(cpu, 2, "2\n", siblings[cpu % 4]);
        put_cache(cpu, 3, "3\n", cpu % 4 < 2 ? "0-1,4-5\n" : "2-3,6-7\n");
    }
}

START_TEST(cores_are_grouped_by_their_last_cache)
{
    put_two_caches();
    struct topology t = read_cpus(8, "");
    check_cpus(&t, "0:0:0:0 4:0:0:0 1:1:0:0 5:1:0:0 2:2:2:0 6:2:2:0 3:3:2:0 7:3:2:0");
    ck_assert_int_eq(topology_cores(&t), 4);
    t = read_cpus(8, "0-1,3,4-5,7");
    check_cpus(&t, "2:2:0:0 6:2:0:0"); /* nothing to share with */
}
END_TEST

START_TEST(nodes_come_before_caches)
{
    put_two_caches();
    put("system/node/online", "0-1,5\n");
    put("system/node/node0/cpulist", "2-3,6-7\n");
    put("system/node/node1/cpulist", "0-1,4-5\n");
    struct topology t = read_cpus(8, "4-7"); /* node 5 has no CPUs */
    check_cpus(&t, "2:2:2:0 3:3:2:0 0:0:0:1 1:1:0:1");
}
END_TEST

/* Some machines tell of no caches, or only of private ones. */
START_TEST(clusters_count_where_no_cache_is_known)
{
    for (int cpu = 0; cpu < 4; cpu++)
        put_cpu(cpu, "topology/cluster_cpus_list", cpu < 2 ? "0-1\n" : "2-3\n");
    struct topology t = read_cpus(4, "");
    check_cpus(&t, "0:0:0:0 1:1:0:0 2:2:2:0 3:3:2:0");
    static const char *const own[] = {"0\n", "1\n", "2\n", "3\n"};
    for (int cpu = 0; cpu < 4; cpu++)
        put_cache(cpu, 0, "2\n", own[cpu]);
    t = read_cpus(4, "");
    check_cpus(&t, "0:0:0:0 1:1:0:0 2:2:0:0 3:3:0:0");
}
END_TEST

START_TEST(slow_cores_are_known_from_intels_list_or_by_capacity)
{
    put("cpu_atom/cpus", "2-3\n");
    struct topology t = read_cpus(4, "");
    check_cpus(&t, "0:0:0:0 1:1:0:0 2:2:0:0s 3:3:0:0s");
    put("cpu_atom/cpus", "\n");
    static const char *const capacities[] = {"430\n", "1024\n", "1000\n", "430\n"};
    for (int cpu = 0; cpu < 4; cpu++)
        put_cpu(cpu, "cpu_capacity", capacities[cpu]);
    t = read_cpus(4, "");
    check_cpus(&t, "0:0:0:0s 1:1:0:0 2:2:0:0 3:3:0:0s");
}
END_TEST

START_TEST(nonsense_and_missing_files_count_as_unknown)
{
    struct topology t = read_cpus(2, "");
    check_cpus(&t, "0:0:0:0 1:1:0:0");
    put_cpu(0, "topology/thread_siblings_list", "");
    put_cpu(1, "topology/thread_siblings_list", "x\n");
    put_cache(0, 0, "three\n", "0-1\n");
    put_cache(1, 0, "3\n", "\n");
    put_cpu(0, "cpu_capacity", "-5\n");
    put("system/node/online", "0-99999999999999999999\n");
    put("system/node/node3/cpulist", "1-\n");
    put("cpu_atom/cpus", ",\n");
    t = read_cpus(2, "");
    check_cpus(&t, "0:0:0:0 1:1:0:3");
}
END_TEST

START_TEST(lists_of_cpus_are_read)
{
    uint8_t mask[TOPOLOGY_MASK_BYTES] = {0};
    ck_assert_int_eq(topology_parse_list("0-2,9,1022-5000\n", mask), 6);
    ck_assert_uint_eq(mask[0], 7);
    ck_assert_uint_eq(mask[1], 2);
    ck_assert_uint_eq(mask[TOPOLOGY_MASK_BYTES - 1], 0xc0);
    ck_assert(topology_mask_has(mask, 9) && !topology_mask_has(mask, 8));
    ck_assert(!topology_mask_has(mask, -1) && !topology_mask_has(mask, TOPOLOGY_CPUS_MAX));
    ck_assert_int_eq(topology_parse_list("", mask), 0);
    ck_assert_int_eq(topology_parse_list("x", mask), 0);
    ck_assert_int_eq(topology_parse_list("5-3", mask), 0);
    ck_assert_int_eq(topology_parse_list("99999999999999999999", mask), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("topology");
    TCase *tcase = tcase_create("topology");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, cores_are_grouped_by_their_last_cache);
    tcase_add_test(tcase, nodes_come_before_caches);
    tcase_add_test(tcase, clusters_count_where_no_cache_is_known);
    tcase_add_test(tcase, slow_cores_are_known_from_intels_list_or_by_capacity);
    tcase_add_test(tcase, nonsense_and_missing_files_count_as_unknown);
    tcase_add_test(tcase, lists_of_cpus_are_read);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
