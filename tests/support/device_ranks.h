/* Helpers that the tests of comm/comm_nccl.c share: ranks as threads over
 * tests/support/fake_nccl.c, and its counts. */
#pragma once

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>

#include "base/clock.h"
#include "comm/comm_nccl.h"
#include "tests/support/check_util.h"

#define FAKE BINARY_DIR "/tests/fake_nccl.so"

enum { MAX_RANKS = 8, SHORT_MS = 300, LATE_MS = 15000 };

/* How often this process has called a function of the fake: fake_nccl_count. */
static inline int count_of(const char *name)
{
    int (*count)(const char *);
    void *library = dlopen(FAKE, RTLD_NOW), *symbol = dlsym(library, "fake_nccl_count");
    ck_assert_ptr_nonnull(symbol);
    memcpy(&count, &symbol, sizeof count);
    int n = count(name);
    dlclose(library);
    return n;
}

static inline void check_counts(int n_finalizes, int n_destroys, int n_aborts)
{
    ck_assert_int_eq(count_of("Finalize"), n_finalizes);
    ck_assert_int_eq(count_of("Destroy"), n_destroys);
    ck_assert_int_eq(count_of("Abort"), n_aborts);
}

typedef void rank_fn(struct comm *comm);

struct rank_run {
    struct comm *base;
    rank_fn *fn;
    int timeout_ms;
    pthread_t thread;
};

static inline void *rank_main(void *arg)
{
    struct rank_run *run = arg;
    struct error err;
    struct comm *comm;
    const struct comm_nccl_options options = {.path = FAKE, .timeout_ms = run->timeout_ms};
    int64_t start_ms = clock_now_ms();
    CHECK_OK(
        comm_nccl_open_take(&comm, run->base, run->base->rank, run->base->size, &options, &err));
    run->fn(comm);
    comm_close(comm);
    if (run->timeout_ms) ck_assert_int_lt(clock_now_ms() - start_ms, LATE_MS);
    return NULL;
}

/* Runs fn on every rank, not yet connected; timeout_ms 0: the default. */
static inline void run_ranks(int size, int timeout_ms, rank_fn *fn)
{
    struct error err;
    struct comm *bases[MAX_RANKS];
    struct rank_run runs[MAX_RANKS];
    CHECK_OK(comm_threads_open(bases, size, &err));
    for (int i = 0; i < size; i++) {
        runs[i] = (struct rank_run){.base = bases[i], .fn = fn, .timeout_ms = timeout_ms};
        ck_assert_int_eq(pthread_create(&runs[i].thread, NULL, rank_main, &runs[i]), 0);
    }
    for (int i = 0; i < size; i++)
        pthread_join(runs[i].thread, NULL);
}
