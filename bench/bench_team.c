/* Measures the cost of a fork-join: with the members spinning, after they have gone to sleep, and
 * with all members on one core, where a spinning member only takes time from the thread it waits
 * for.
 *
 *   bench_team [--threads N] [--jobs N]
 *
 * Prints quartiles in microseconds: "hot" (jobs one after the other), "asleep" (a pause before each
 * job) and "one core" (hot, all members on the first CPU). "hot" should be at most 3 us. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/memory.h"
#include "base/system/placement.h"
#include "base/threads/team.h"
#include "bench/bench_util.h"
#include "bench/options.h"

enum { SPIN_US = 200, PAUSE_MS = 2, JOBS_PER_SAMPLE = 100, ASLEEP_SHARE = 100 };

struct settings {
    int n_threads, n_jobs;
};

static void do_nothing(void *arg, int member, int n_members)
{
    (void)arg;
    (void)member;
    (void)n_members;
}

static void show(const char *name, double *samples, int n)
{
    struct sample_quartiles q = sample_quartiles(samples, n);
    printf("%-10s %10.2f %10.2f %10.2f %10.2f\n", name, q.low, q.median, q.high,
           samples[n - 1 - n / 100]); /* sorted by now */
}

/* Each sample is the mean of JOBS_PER_SAMPLE jobs. */
static void run_hot(struct team *team, const char *name, double *samples, int n_jobs)
{
    int n = n_jobs / JOBS_PER_SAMPLE;
    for (int i = 0; i < n; i++) {
        int64_t start_ns = clock_now_ns();
        for (int k = 0; k < JOBS_PER_SAMPLE; k++) {
            team_run(team, do_nothing, NULL);
        }
        samples[i] = (double)(clock_now_ns() - start_ns) * 1e-3 / JOBS_PER_SAMPLE;
    }
    show(name, samples, n);
}

static void run_asleep(struct team *team, double *samples, int n_jobs)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
    int n = n_jobs / JOBS_PER_SAMPLE / ASLEEP_SHARE;
    n = n < 100 ? 100 : n;
    for (int i = 0; i < n; i++) {
        nanosleep(&pause, NULL);
        int64_t start_ns = clock_now_ns();
        team_run(team, do_nothing, NULL);
        samples[i] = (double)(clock_now_ns() - start_ns) * 1e-3;
    }
    show("asleep", samples, n);
}

static int run(const struct settings *s, double *samples, struct error *err)
{
    int rc = 0, cpus[PLACEMENT_THREADS_MAX];
    static struct topology topology;
    struct team *team = NULL;
    topology_read(&topology);
    printf("%d members, %d cores, fork-join in us\n%-10s %10s %10s %10s %10s\n", s->n_threads,
           topology_cores(&topology), "", "25%", "50%", "75%", "99%");
    TRY(team_open(&team, s->n_threads, SPIN_US, err));
    run_hot(team, "hot", samples, s->n_jobs);
    run_asleep(team, samples, s->n_jobs);
    for (int i = 0; i < s->n_threads; i++) {
        cpus[i] = topology.cpus[0].cpu;
    }
    TRY(team_pin(team, cpus, err));
    TRY(placement_enter(cpus[0], err));
    run_hot(team, "one core", samples, 20000);
    placement_leave(&topology);
out:
    team_close(team);
    return rc;
}

int main(int argc, char **argv)
{
    struct settings s = {.n_threads = 2, .n_jobs = 200000};
    const struct bench_option options[] = {
        {"threads", 't', "N", "members; default 2", 1, PLACEMENT_THREADS_MAX,
         .number = &s.n_threads},
        {"jobs", 'j', "N", "jobs of the hot run; default 200000", 20000, 100000000,
         .number = &s.n_jobs},
        {0},
    };
    const struct bench_command command = {.options = options};
    struct error err;
    double *samples = NULL;
    bench_parse(argc, argv, &command);
    int rc = mem_array(&samples, (size_t)(s.n_jobs / JOBS_PER_SAMPLE), sizeof *samples, &err);
    if (!rc) rc = run(&s, samples, &err);
    if (rc) fprintf(stderr, "bench_team: %s\n", err.text);
    free(samples);
    return rc ? 1 : 0;
}
