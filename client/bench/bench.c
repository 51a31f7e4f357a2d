/* outrider bench: measures a running cluster, or one that it starts. In every repetition it runs
 * all arms one after the other. A slice is the share of one arm in one repetition; it becomes a
 * row. From the rows come ratios, tables and files. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "client/bench/cluster.h"
#include "client/bench/load.h"
#include "client/bench/options.h"
#include "client/bench/report.h"
#include "client/terminal.h"

enum {
    GRACE_MS = 15000, /* a little more than bench_cluster_stop may take */
    DRAWN_PROMPTS_LEAST = 64,
    DRAWN_IDS_MAX = 1 << 24, /* of all prompts together, beyond the least number of prompts */
    NAME_BYTES = 256,
    LOOK_MS = 100
};

struct bench {
    struct bench_options options;
    struct server server;
    struct bench_cluster cluster;
    struct bench_prompts prompts;
    struct bench_draw draw;
    struct load load;
    struct records records; /* of all slices, for --json */
    char target_model[NAME_BYTES], draft_model[NAME_BYTES], arithmetic[NAME_BYTES];
    int n_ranks, n_groups, vocab_size; /* of the cluster; groups that serve */
    struct bench_row *rows;
    int n_rows, n_written, n_slices;
    int n_run;           /* slices that were run, those that warm up included */
    struct tally slice;  /* of the arm that is running */
    struct tally errors; /* requests and errors of all slices */
    FILE *csv, *json;
    struct terminal terminal; /* of the progress line */
    int64_t begin_us;
};

/* ---- before ---- */

static int open_file(FILE **file, const char *path, struct error *err)
{
    if (!path) return 0;
    *file = fopen(path, "w");
    if (*file) return 0;
    return error_set(err, ERR_IO, "cannot open %.200s: %s", path, strerror(errno));
}

/* Everything that needs no server, so that a wrong prompt file is found before a cluster starts. */
static int prepare(struct bench *b, int argc, char **argv, struct error *err)
{
    int rc = 0;
    TRY(bench_options_parse(&b->options, argc, argv, err));
    if (b->options.prompts) TRY(bench_prompts_read(&b->prompts, b->options.prompts, err));
    TRY(open_file(&b->csv, b->options.csv, err));
    TRY(open_file(&b->json, b->options.json, err));
    if (b->csv) TRY(bench_csv_header(b->csv, b->options.csv, err));
    b->n_slices = b->options.n_arms * b->options.n_repetitions;
    TRY(mem_array(&b->rows, (size_t)b->n_slices, sizeof *b->rows, err));
    if (b->options.start && setenv("OUTRIDER_ADDRESS", b->options.connection.address, 1)) {
        rc = error_set(err, ERR_NO_MEMORY, "no memory for the environment");
    }
out:
    return rc;
}

/* Keeps what the coordinator says of itself. Errors: also ERR_UNAVAILABLE, nothing answers. */
static int ask_cluster(struct bench *b, struct error *err)
{
    struct service_description desc;
    int rc = 0;
    TRY(server_describe(&b->server, &desc, err));
    snprintf(b->target_model, NAME_BYTES, "%s", desc.target_model);
    snprintf(b->draft_model, NAME_BYTES, "%s", desc.draft_model);
    snprintf(b->arithmetic, NAME_BYTES, "%s", desc.arithmetic);
    b->n_ranks = desc.n_ranks;
    b->vocab_size = desc.vocab_size;
    b->n_groups = 0;
    for (int i = 0; i < desc.n_groups; i++) {
        b->n_groups += strcmp(desc.groups[i].state, "serving") == 0;
    }
out:
    return rc;
}

/* A prompt for each request of a slice, so that none is met twice in it. */
static int count_drawn(const struct bench_options *o)
{
    int most = DRAWN_IDS_MAX / o->prompt_tokens, n = bench_options_requests_most(o);
    if (n > most) n = most;
    return n < DRAWN_PROMPTS_LEAST ? DRAWN_PROMPTS_LEAST : n;
}

/* Random prompts need the size of the vocabulary, which the first Describe brings. Without --seed
 * they differ from run to run, so that a second run does not find those of the first one in the
 * service's prefix cache. */
static int open_load(struct bench *b, struct error *err)
{
    const struct bench_options *o = &b->options;
    const struct generate_request *request = &o->base.generate.request;
    uint64_t seed = request->has_seed ? request->seed : (uint64_t)clock_now_us();
    int rc = 0;
    if (!b->prompts.n) {
        b->draw = (struct bench_draw){.n = count_drawn(o),
                                      .n_tokens = o->prompt_tokens,
                                      .n_shared = o->shared_prefix,
                                      .vocab_size = b->vocab_size,
                                      .seed = seed};
        TRY(bench_prompts_draw(&b->prompts, &b->draw, err));
    }
    if (!b->load.server) {
        TRY(load_open(&b->load, &b->server, &b->prompts, o->timeout_s, seed, err));
    }
out:
    return rc;
}

/* ---- the progress line ---- */

static void clear_progress(const struct bench *b)
{
    if (b->terminal.is_terminal && !b->options.is_quiet) fputs("\r\033[K", stderr);
}

static void show_progress(const struct bench *b, const struct bench_arm *arm, const char *what)
{
    if (!b->terminal.is_terminal || b->options.is_quiet) return;
    clear_progress(b);
    fprintf(stderr, "[%d/%d] %s %s", b->n_rows, b->n_slices, what, arm->label);
    if (b->n_rows) {
        double per_slice = (double)(clock_now_us() - b->begin_us) / 1e6 / b->n_rows;
        fprintf(stderr, ", about %.0f s left", per_slice * (b->n_slices - b->n_rows));
    }
    if (b->errors.n_failed) fprintf(stderr, ", %d requests failed", b->errors.n_failed);
    fflush(stderr);
}

/* ---- slices ---- */

static int run_slice(struct bench *b, const struct bench_arm *arm, int first, int n,
                     struct error *err)
{
    bench_prompts_renew(&b->prompts, &b->draw, b->n_run++);
    int rc = load_run(&b->load, arm, first, n, &b->slice, err);
    tally_merge_errors(&b->errors, &b->slice);
    return rc;
}

/* Runs one slice and adds its row. A slice that was cut short counts if a request was completed. */
static int run_arm(struct bench *b, const struct bench_arm *arm, int repetition, int place,
                   struct error *err)
{
    int n = bench_options_requests(&b->options, arm);
    show_progress(b, arm, "running");
    b->load.records = b->json ? &b->records : NULL;
    b->load.repetition = repetition;
    int rc = run_slice(b, arm, repetition * n, n, err);
    if (b->slice.n_done || !rc) {
        struct bench_row *row = &b->rows[b->n_rows++];
        *row = (struct bench_row){.repetition = repetition, .place = place, .n_ranks = b->n_ranks};
        bench_row_of(row, arm, &b->slice);
    }
    return rc;
}

static int warm_up(struct bench *b, const char *started, struct error *err)
{
    int rc = 0;
    for (int i = 0; i < b->options.n_arms && b->options.n_warmup; i++) {
        const struct bench_arm *arm = &b->options.arms[i];
        if (strcmp(arm->started, started) != 0) continue;
        show_progress(b, arm, "warming up");
        b->load.records = NULL;
        TRY(run_slice(b, arm, 0, b->options.n_warmup, err));
    }
out:
    return rc;
}

/* ---- rows ---- */

static struct bench_results results_of(const struct bench *b)
{
    return (struct bench_results){.rows = b->rows,
                                  .n_rows = b->n_rows,
                                  .arms = b->options.arms,
                                  .n_arms = b->options.n_arms,
                                  .target_model = b->target_model,
                                  .draft_model = b->draft_model,
                                  .arithmetic = b->arithmetic,
                                  .records = &b->records};
}

/* Completes the rows that are not written yet, and writes them. */
static int write_rows(struct bench *b, struct error *err)
{
    const struct bench_options *o = &b->options;
    const struct bench_results results = results_of(b);
    int first = b->n_written;
    bench_row_ratios(b->rows + first, b->n_rows - first, o->arms, o->n_arms);
    b->n_written = b->n_rows;
    return b->csv ? bench_csv_rows(b->csv, o->csv, &results, first, err) : 0;
}

/* ---- clusters ---- */

/* A coordinator serves as soon as one of its groups does. */
static int wait_groups(struct bench *b, int n_groups, struct error *err)
{
    int64_t end_us = clock_now_us() + (int64_t)b->options.start_timeout_s * 1000000;
    int rc = 0;
    while (b->n_groups < n_groups) {
        if (clock_now_us() >= end_us) {
            return error_set(err, ERR_TIMEOUT, "--start: %d of %d groups serve after %d s",
                             b->n_groups, n_groups, b->options.start_timeout_s);
        }
        TRY(server_sleep(&b->server, LOOK_MS, err));
        TRY(ask_cluster(b, err));
    }
out:
    return rc;
}

/* Makes sure that the cluster that the arm needs is running and warm. */
static int provide_cluster(struct bench *b, const struct bench_arm *arm, bool is_first,
                           struct error *err)
{
    const struct bench_options *o = &b->options;
    int rc = 0;
    if (!is_first && strcmp(b->cluster.started, arm->started) == 0) return 0;
    if (o->start) {
        TRY(write_rows(b, err)); /* what they say of the cluster is asked anew below */
        show_progress(b, arm, "starting a cluster for");
        bench_cluster_stop(&b->cluster);
        TRY(bench_cluster_start(&b->cluster, o->start, arm, &b->server, o->start_timeout_s, err));
    }
    TRY(ask_cluster(b, err));
    TRY(wait_groups(b, arm->n_groups, err));
    if (arm->n_ranks && arm->n_ranks != b->n_ranks) {
        return error_set(err, ERR_ARGUMENT, "--start: the cluster has %d ranks, not T = %d",
                         b->n_ranks, arm->n_ranks);
    }
    TRY(open_load(b, err));
    TRY(warm_up(b, arm->started, err));
    b->begin_us = is_first ? clock_now_us() : b->begin_us;
out:
    return rc;
}

/* Every second repetition runs the arms from the last to the first, so that a machine that gets
 * slower or faster over time favours no arm. It also lets one cluster serve two repetitions of its
 * arms. */
static int run_all(struct bench *b, struct error *err)
{
    const struct bench_options *o = &b->options;
    int rc = 0;
    for (int repetition = 0; repetition < o->n_repetitions; repetition++) {
        for (int place = 0; place < o->n_arms; place++) {
            const struct bench_arm *arm = &o->arms[repetition % 2 ? o->n_arms - 1 - place : place];
            TRY(provide_cluster(b, arm, repetition == 0 && place == 0, err));
            TRY(run_arm(b, arm, repetition, place, err));
        }
        TRY(write_rows(b, err));
    }
out:
    return rc;
}

static void print_errors(const struct bench *b)
{
    const struct terminal terminal = terminal_of(stderr);
    for (int i = 0; i < b->errors.n_errors; i++) {
        const struct tally_error *error = &b->errors.errors[i];
        fprintf(stderr, "outrider: %d of %d requests failed: ", error->n,
                b->errors.n_done + b->errors.n_failed);
        terminal_text(&terminal, error->text, strlen(error->text));
        fputc('\n', stderr);
    }
}

/* Reports the rows that there are, whether or not the measurement was completed. */
static int report(struct bench *b, struct error *err)
{
    const struct bench_options *o = &b->options;
    const struct bench_results results = results_of(b);
    int rc = 0;
    clear_progress(b);
    TRY(write_rows(b, err));
    if (b->json) TRY(bench_json_write(b->json, o->json, &results, err));
    if (b->n_rows && !o->is_quiet) bench_print(stdout, &results);
    TRY(client_flush(err));
    print_errors(b);
out:
    return rc;
}

static int measure(struct bench *b)
{
    struct error err, failure;
    int grace_ms = b->options.start ? GRACE_MS : GRACE_MS / 10;
    int rc = server_open_with_grace(&b->server, &b->options.connection, 0, grace_ms, &err);
    if (!rc) rc = run_all(b, &err);
    int report_rc = report(b, &failure);
    if (rc) {
        server_explain(&b->server, &err);
        return client_fail(&err);
    }
    if (report_rc) return client_fail(&failure);
    return b->errors.n_failed ? CLIENT_FAILED : CLIENT_OK;
}

static void free_bench(struct bench *b)
{
    bench_cluster_stop(&b->cluster);
    load_close(&b->load);
    server_close(&b->server);
    bench_prompts_close(&b->prompts);
    if (b->csv) fclose(b->csv);
    if (b->json) fclose(b->json);
    free(b->rows);
    records_free(&b->records);
    bench_options_free(&b->options);
}

int bench_main(int argc, char **argv)
{
    static struct bench bench; /* histograms make it large */
    struct error err;
    int status;
    bench = (struct bench){.terminal = terminal_of(stderr)};
    status = prepare(&bench, argc, argv, &err) ? client_fail_local(&err) : measure(&bench);
    free_bench(&bench);
    return status;
}
