/* The limits that benchmarks print their share of: see bench/limits.h. */
#include "bench/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/system/topology.h"
#include "base/threads/team.h"
#include "bench/bench_read.h"

enum {
    SPIN_US = 200,
    MULTIPLY_STEPS =
        50000, /* of the register loop in one job, so long that fork and join do not count */
    READ_UNIT = 256,
    PORTION_BYTES = 16 << 20,
    PATH_BYTES = 128,
    LINE_BYTES = 4096
};

/* ---- computed from measured rates ---- */

const char *bench_bound_name(enum bench_bound bound)
{
    return bound == BOUND_READING ? "reading" : "multiplying";
}

double bench_limit_seconds(struct bench_cost cost, double gb_per_s, double gflop_per_s,
                           enum bench_bound *bound)
{
    double reading = cost.gb > 0 ? cost.gb / gb_per_s : 0;
    double multiplying = cost.gflop > 0 ? cost.gflop / gflop_per_s : 0;
    *bound = reading > multiplying ? BOUND_READING : BOUND_MULTIPLYING;
    return reading > multiplying ? reading : multiplying;
}

struct bench_share bench_share(struct bench_cost cost, const double *units_per_s,
                               const double *gb_per_s, const double *gflop_per_s, int n)
{
    double ratios[BENCH_PAIRS_MAX];
    int n_reading = 0;
    for (int i = 0; i < n; i++) {
        enum bench_bound bound;
        double least =
            bench_limit_seconds(cost, gb_per_s ? gb_per_s[i] : 0, gflop_per_s[i], &bound);
        ratios[i] = least * units_per_s[i];
        n_reading += bound == BOUND_READING;
    }
    return (struct bench_share){2 * n_reading > n ? BOUND_READING : BOUND_MULTIPLYING,
                                sample_quartiles(ratios, n)};
}

struct bench_cost bench_step_cost(const struct model_config *cfg, size_t weight_bytes, int n_tokens,
                                  int n_rows)
{
    double dim = cfg->dim, heads = (double)cfg->n_heads * cfg->head_dim;
    double kv = 2.0 * cfg->n_kv_heads * cfg->head_dim;
    double layer = dim * (2 * heads + kv) + 3 * dim * cfg->ffn_dim;
    double head = dim * cfg->vocab_size;
    return (struct bench_cost){
        .gb = 1e-9 * (double)weight_bytes,
        .gflop = 2e-9 * (cfg->n_layers * layer * n_tokens + head * n_rows),
    };
}

/* ---- the cache and cold memory ---- */

/* The first line of a file about cache `index` of a CPU; false when there is none. */
static bool cache_line(int cpu, int index, const char *file, char line[LINE_BYTES])
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/%s", cpu, index, file);
    FILE *opened = fopen(path, "re");
    if (!opened) return false;
    bool is_read = fgets(line, LINE_BYTES, opened) != NULL;
    fclose(opened);
    return is_read;
}

struct last_cache {
    int first_cpu; /* of those that share it */
    size_t bytes;  /* 0: not known */
};

static struct last_cache last_cache_of(int cpu)
{
    struct last_cache cache = {cpu, 0};
    char line[LINE_BYTES];
    for (int i = 0; cache_line(cpu, i, "size", line); i++) { /* "32768K" */
        cache.bytes = (size_t)strtoull(line, NULL, 10) << 10;
        if (cache_line(cpu, i, "shared_cpu_list", line)) {
            cache.first_cpu = topology_parse_first(line);
        }
    }
    return cache;
}

size_t bench_cache_bytes(void)
{
    static struct topology topology;
    static int seen[TOPOLOGY_CPUS_MAX];
    size_t bytes = 0;
    topology_read(&topology);
    for (int i = 0; i < topology.n_cpus; i++) {
        struct last_cache cache = last_cache_of(topology.cpus[i].cpu);
        bool is_new = true;
        seen[i] = cache.first_cpu;
        for (int j = 0; j < i; j++) {
            is_new = is_new && seen[j] != cache.first_cpu;
        }
        if (is_new) bytes += cache.bytes;
    }
    return bytes;
}

size_t bench_cold_bytes(size_t least)
{
    size_t cold = 2 * bench_cache_bytes();
    size_t most = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE) / 4;
    if (cold < least) cold = least;
    return cold < most ? cold : most;
}

/* ---- measured ---- */

int bench_limits_open(struct bench_limits *l, int n_threads, const char *kernels,
                      enum weight_form form, struct error *err)
{
    int rc = 0;
    *l = (struct bench_limits){.team = NULL};
    TRY(bench_peak_find(&l->peak, kernels, form, err));
    TRY(team_open(&l->team, n_threads, SPIN_US, err));
out:
    return rc;
}

void bench_limits_close(struct bench_limits *l)
{
    team_close(l->team);
    if (l->own) mem_pages_free(l->own, l->own_bytes);
    *l = (struct bench_limits){.team = NULL};
}

void bench_limits_lend(struct bench_limits *l, const void *data, size_t portion_bytes,
                       int n_portions)
{
    l->data = data;
    l->portion_bytes = portion_bytes;
    l->n_portions = n_portions;
    l->next = 0;
}

/* Writes to the pages, so that they exist, and on the node of the member that reads them. */
static void touch_member(void *arg, int member, int n_members)
{
    const struct bench_limits *l = arg;
    int begin, end;
    team_range((int)(l->portion_bytes / READ_UNIT), 1, member, n_members, &begin, &end);
    for (int i = 0; i < l->n_portions; i++) {
        memset((uint8_t *)l->own + (size_t)i * l->portion_bytes + (size_t)begin * READ_UNIT, 1,
               (size_t)(end - begin) * READ_UNIT);
    }
}

int bench_limits_fill(struct bench_limits *l, size_t bytes, struct error *err)
{
    size_t most = bench_cold_bytes((size_t)2 << 30);
    size_t portion = bytes < PORTION_BYTES ? bytes / READ_UNIT * READ_UNIT : PORTION_BYTES;
    if (!portion) return error_set(err, ERR_ARGUMENT, "%zu bytes are too few to read", bytes);
    size_t n = (bytes < most ? bytes : most) / portion;
    int rc = mem_pages(&l->own, n * portion, err);
    if (rc) return rc;
    l->own_bytes = n * portion;
    bench_limits_lend(l, l->own, portion, (int)n);
    team_run(l->team, touch_member, l);
    return 0;
}

int bench_limits_next(struct bench_limits *l)
{
    int portion = l->next;
    l->next = (l->next + 1) % l->n_portions;
    return portion;
}

struct read_job {
    int loop;
    const uint8_t *data;
    size_t bytes;
};

static void read_member(void *arg, int member, int n_members)
{
    const struct read_job *job = arg;
    int begin, end;
    team_range((int)(job->bytes / READ_UNIT), 1, member, n_members, &begin, &end);
    bench_read(job->loop, job->data + (size_t)begin * READ_UNIT, (size_t)(end - begin) * READ_UNIT);
}

double bench_limits_read(void *limits)
{
    struct bench_limits *l = limits;
    const uint8_t *data = l->data + (size_t)bench_limits_next(l) * l->portion_bytes;
    struct read_job job = {l->read, data, l->portion_bytes};
    team_run(l->team, read_member, &job);
    return 1e-9 * (double)l->portion_bytes;
}

static void multiply_member(void *arg, int member, int n_members)
{
    const struct bench_peak *peak = arg;
    (void)member;
    (void)n_members;
    peak->run(MULTIPLY_STEPS);
}

double bench_limits_multiply(void *limits)
{
    struct bench_limits *l = limits;
    struct bench_peak peak = *l->peak;
    team_run(l->team, multiply_member, &peak);
    return 1e-9 * MULTIPLY_STEPS * (double)peak.step_operations * team_size(l->team);
}

/* How much of what is read may come from the cache, at most. */
static void show_pool(const struct bench_limits *l)
{
    size_t bytes = (size_t)l->n_portions * l->portion_bytes, cache = bench_cache_bytes();
    printf("  reading goes in turn over %zu MiB; ", bytes >> 20);
    if (!cache) {
        printf("the size of the last-level cache is not known\n");
    } else if (cache >= bytes) {
        printf("the last-level cache of %zu MiB can hold all of it\n", cache >> 20);
    } else {
        printf("the last-level cache of %zu MiB can hold up to %.0f %% of it\n", cache >> 20,
               100.0 * (double)cache / (double)bytes);
    }
}

void bench_limits_show(struct bench_limits *l, int64_t slice_us)
{
    struct sample_quartiles rates[BENCH_READS], peak;
    double samples[BENCH_PAIRS_MIN];
    show_pool(l);
    l->read = bench_best_read(&(struct timed_arm){bench_limits_read, l}, &l->read, slice_us, rates);
    printf("  reading:");
    for (int i = 0; i < BENCH_READS; i++) {
        printf("  %s %.1f [%.1f %.1f] GB/s", bench_read_names[i], rates[i].median, rates[i].low,
               rates[i].high);
    }
    for (int i = 0; i < BENCH_PAIRS_MIN; i++) {
        samples[i] = bench_rate(&(struct timed_arm){bench_limits_multiply, l}, slice_us);
    }
    peak = sample_quartiles(samples, BENCH_PAIRS_MIN);
    printf("\n  multiplying:  %s in registers %.1f [%.1f %.1f] GFLOP/s\n", l->peak->loop,
           peak.median, peak.low, peak.high);
}
