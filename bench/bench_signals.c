/* Measures the cost of the coordinator's signals.
 *
 *   bench_signals
 *
 * Printed as medians: the time in which the engine records a round of some lanes, each with three
 * guesses, and shows its load; and the time in which a scrape's page is written, beside a thread
 * that records rounds without a pause and without one. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "coordinator/signals/signals.h"

enum { N_ROUNDS = 20001, N_PAGES = 501 };

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double median(int64_t *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return (double)values[n / 2];
}

static struct signals *open_signals(bool has_vllm)
{
    const struct signals_options options = {
        .version = "1", .draft_name = "draft", .has_vllm = has_vllm};
    const struct signals_group group = {
        .model = "target", .arithmetic = "cpu-bf16", .kernels = "avx2", .n_ranks = 2};
    struct error err;
    struct signals *s;
    if (signals_open(&s, &options, &err) || signals_set_group(s, &group, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(EXIT_FAILURE);
    }
    return s;
}

/* Records what the engine tells of one round. */
static void record_round(struct signals *s, int n_lanes, int turn)
{
    static const float alpha[DRAFT_MAX] = {0.8f, 0.7f, 0.6f};
    struct signals_round round = {.n_tokens = 4 * n_lanes,
                                  .n_rows = 4 * n_lanes,
                                  .n_lanes = n_lanes,
                                  .bytes_sent = 100,
                                  .bytes_received = 1000};
    const struct signals_load load = {
        .n_running = n_lanes, .n_places = 64, .kv_blocks = {10, 20, 30}, .alpha = alpha};
    for (int i = 0; i < SIGNALS_PARTS; i++) {
        round.part_us[i] = 100 + (turn * 37 + i * 1009) % 4000;
    }
    for (int i = 0; i < n_lanes; i++) {
        const struct signals_commit commit = {.n_drafted = 3,
                                              .n_accepted = (turn + i) % 4,
                                              .n_tokens = (turn + i) % 4 + 1,
                                              .gap_us = 4000 + turn % 1000};
        signals_commit(s, &commit);
    }
    signals_round(s, &round);
    signals_set_load(s, &load);
}

static void measure_rounds(int n_lanes)
{
    static int64_t ns[N_ROUNDS];
    struct signals *s = open_signals(false);
    for (int i = 0; i < N_ROUNDS; i++) {
        int64_t start_ns = clock_now_ns();
        record_round(s, n_lanes, i);
        ns[i] = clock_now_ns() - start_ns;
    }
    printf("round of %2d lanes   %7.2f us\n", n_lanes, median(ns, N_ROUNDS) / 1000);
    signals_close(s);
}

static atomic_bool is_over;

static void *record_always(void *signals)
{
    for (int i = 0; !is_over; i++) {
        record_round(signals, 8, i);
    }
    return NULL;
}

static void measure_pages(bool has_vllm, bool is_busy)
{
    static int64_t ns[N_PAGES];
    struct signals *s = open_signals(has_vllm);
    struct buffer page = {0};
    struct error err;
    pthread_t writer;
    is_over = false;
    if (is_busy && pthread_create(&writer, NULL, record_always, s)) exit(EXIT_FAILURE);
    for (int i = 0; i < N_PAGES; i++) {
        page.len = 0;
        int64_t start_ns = clock_now_ns();
        if (signals_write(s, &page, &err)) exit(EXIT_FAILURE);
        ns[i] = clock_now_ns() - start_ns;
    }
    is_over = true;
    if (is_busy) pthread_join(writer, NULL);
    printf("page%s%s%*s%7.1f us, %zu bytes\n", has_vllm ? " with vLLM's names" : "",
           is_busy ? ", beside a writer" : "", (has_vllm ? 0 : 18) + (is_busy ? 2 : 19), "",
           median(ns, N_PAGES) / 1000, page.len);
    buffer_free(&page);
    signals_close(s);
}

int main(void)
{
    measure_rounds(1);
    measure_rounds(8);
    measure_rounds(64);
    for (int has_vllm = 0; has_vllm < 2; has_vllm++) {
        measure_pages(has_vllm, false);
        measure_pages(has_vllm, true);
    }
    return EXIT_SUCCESS;
}
