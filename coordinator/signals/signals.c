/* Records events of the engine, several families at once, and writes the page. */
#include "coordinator/signals/signals.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/memory.h"
#include "base/metrics/metrics_process.h"
#include "base/metrics/metrics_rows.h"
#include "base/threads/monitor.h"
#include "coordinator/signals/job_report.h"
#include "coordinator/signals/signals_table.h"

enum { NAME_BYTES = 512, LABELS_BYTES = 2048 };

/* The page's parts: our families, what the labels say of the build and of the cache, and, by
 * option, vLLM's families and cache. */
enum { OUR_PAGES = 3, PAGES = 5 };

/* The group's part of the page. Immutable once it is published. */
struct group {
    struct group *next; /* of all groups that there were; a scrape may still read them */
    char series[NAME_BYTES], build[LABELS_BYTES], cache[LABELS_BYTES]; /* labels */
    struct metrics_page *pages[PAGES];                                 /* NULL = not shown */
};

struct signals {
    struct signals_options options;
    struct metrics *metrics, *infos;
    struct metrics_process *process;
    struct monitor monitor; /* of the list of groups */
    struct group *groups;
    _Atomic(struct group *) group; /* the one that came last: engines publish it, scrapes read it */
};

/* Families whose number is 1, because all that they say is in their labels. */
enum info { INFO_BUILD, INFO_CACHE, INFOS };

static const struct metric_family infos[INFOS] = {
    GAUGE(INFO_BUILD, "build_info", "What runs here: always 1, the labels say it."),
    GAUGE(INFO_CACHE, "cache_config_info", "The target's KV cache: always 1, the labels say it."),
};

/* ---- groups ---- */

static void fill_labels(struct group *group, const struct signals_options *options,
                        const struct signals_group *g)
{
    char model[NAME_BYTES / 2], draft[NAME_BYTES / 2];
    metrics_escape(options->served_name ? options->served_name : g->model, model, sizeof model);
    metrics_escape(options->draft_name, draft, sizeof draft);
    snprintf(group->series, sizeof group->series, "model_name=\"%s\"", model);
    snprintf(group->build, sizeof group->build,
             "%s,version=\"%s\",arithmetic=\"%s\",kernels=\"%s\",ranks=\"%d\",draft=\"%s\"",
             group->series, options->version, g->arithmetic, g->kernels, g->n_ranks, draft);
    snprintf(group->cache, sizeof group->cache, "%s,block_size=\"%d\",num_gpu_blocks=\"%d\"",
             group->series, g->block_tokens, g->n_kv_blocks);
}

static int open_pages(const struct signals *s, struct group *group, struct error *err)
{
    static const char ours[] = "outrider_", of_vllm[] = "vllm:";
    const struct {
        const struct metrics *metrics;
        struct metrics_view view;
    } parts[PAGES] = {
        {s->metrics, {.prefix = ours, .labels = group->series, .n = SIGNALS}},
        {s->infos, {.prefix = ours, .labels = group->build, .first = INFO_BUILD, .n = 1}},
        {s->infos, {.prefix = ours, .labels = group->cache, .first = INFO_CACHE, .n = 1}},
        {s->metrics, {.prefix = of_vllm, .labels = group->series, .n = SIGNALS_OF_VLLM}},
        {s->infos, {.prefix = of_vllm, .labels = group->cache, .first = INFO_CACHE, .n = 1}},
    };
    const int n = s->options.has_vllm ? PAGES : OUR_PAGES;
    int rc = 0;
    for (int i = 0; i < n && !rc; i++) {
        rc = metrics_page_open(&group->pages[i], parts[i].metrics, &parts[i].view, err);
    }
    return rc;
}

static void free_group(struct group *group)
{
    for (int i = 0; i < PAGES; i++) {
        metrics_page_close(group->pages[i]);
    }
    free(group);
}

/* A group that was there before has its page already. */
static struct group *find_group(const struct signals *s, const struct group *like)
{
    struct group *g = s->groups;
    while (g && (strcmp(g->build, like->build) != 0 || strcmp(g->cache, like->cache) != 0)) {
        g = g->next;
    }
    return g;
}

int signals_set_group(struct signals *s, const struct signals_group *group, struct error *err)
{
    struct group *made;
    int rc = mem_array(&made, 1, sizeof *made, err);
    if (rc) return rc;
    fill_labels(made, &s->options, group);
    monitor_enter(&s->monitor);
    struct group *known = find_group(s, made);
    if (!known) rc = open_pages(s, made, err);
    if (known || rc) {
        free_group(made);
    } else {
        made->next = s->groups;
        s->groups = known = made;
    }
    if (!rc) atomic_store_explicit(&s->group, known, memory_order_release);
    monitor_leave(&s->monitor);
    return rc;
}

/* ---- open, close ---- */

int signals_open(struct signals **signals, const struct signals_options *options, struct error *err)
{
    static const struct signals_group none = {
        .model = "unknown", .arithmetic = "unknown", .kernels = "unknown"};
    int rc = 0;
    struct signals *s = NULL;
    *signals = NULL;
    TRY(mem_array(&s, 1, sizeof *s, err));
    s->options = *options;
    monitor_open(&s->monitor);
    TRY(metrics_open(&s->metrics, signals_families, SIGNALS, err));
    TRY(metrics_open(&s->infos, infos, INFOS, err));
    TRY(metrics_process_open(&s->process, err));
    TRY(signals_set_group(s, &none, err));
    for (int i = 0; i < INFOS; i++) {
        metrics_set(s->infos, i, 0, 1);
    }
    *signals = s;
    s = NULL;
out:
    signals_close(s);
    return rc;
}

void signals_close(struct signals *s)
{
    if (!s) return;
    while (s->groups) {
        struct group *next = s->groups->next;
        free_group(s->groups);
        s->groups = next;
    }
    metrics_close(s->metrics);
    metrics_close(s->infos);
    metrics_process_close(s->process);
    monitor_close(&s->monitor);
    free(s);
}

/* ---- the page ---- */

void signals_look(struct signals *s)
{
    if (s->options.look) s->options.look(s->options.look_arg, s);
}

int signals_write(struct signals *s, struct buffer *out, struct error *err)
{
    int rc = 0;
    signals_look(s);
    const struct group *group = atomic_load_explicit(&s->group, memory_order_acquire);
    for (int i = 0; i < PAGES; i++) {
        if (group->pages[i]) TRY(metrics_page_write(group->pages[i], out, err));
    }
    rc = metrics_process_write(s->process, out, err);
out:
    return rc;
}

const char *signals_labels(const struct signals *s)
{
    return atomic_load_explicit(&s->group, memory_order_acquire)->series;
}

/* ---- recording ---- */

void signals_add(struct signals *s, enum signal signal, int value, int64_t by)
{
    metrics_add(s->metrics, (int)signal, value, by);
}

void signals_set(struct signals *s, enum signal signal, int value, int64_t to)
{
    metrics_set(s->metrics, (int)signal, value, to);
}

int64_t signals_get(const struct signals *s, enum signal signal, int value)
{
    return metrics_get(s->metrics, (int)signal, value);
}

static void observe(struct signals *s, enum signal signal, int64_t what)
{
    metrics_observe(s->metrics, (int)signal, 0, what, 1);
}

void signals_set_load(struct signals *s, const struct signals_load *load)
{
    int n_blocks = 0;
    signals_set(s, SIGNAL_RUNNING, 0, load->n_running);
    signals_set(s, SIGNAL_PLACES, 0, load->n_places);
    signals_set(s, SIGNAL_WAITING_AGAIN, 0, load->n_waiting_again);
    for (int i = 0; i < SIGNALS_BLOCK_STATES; i++) {
        signals_set(s, SIGNAL_KV_BLOCKS, i, load->kv_blocks[i]);
        signals_set(s, SIGNAL_DRAFT_KV_BLOCKS, i, load->draft_kv_blocks[i]);
        n_blocks += load->kv_blocks[i];
    }
    int64_t in_use = (int64_t)load->kv_blocks[SIGNALS_IN_USE] * 1000000;
    signals_set(s, SIGNAL_KV_USAGE, 0, n_blocks ? in_use / n_blocks : 0);
    for (int i = 0; i < DRAFT_MAX; i++) {
        signals_set(s, SIGNAL_ALPHA, i, (int64_t)(load->alpha[i] * 1e6f));
    }
}

void signals_round(struct signals *s, const struct signals_round *round)
{
    int64_t total_us = 0;
    for (int i = 0; i < SIGNALS_PARTS; i++) {
        int64_t us = round->part_us[i] > 0 ? round->part_us[i] : 0;
        metrics_observe(s->metrics, SIGNAL_ROUND_PART_TIME, i, us, 1);
        total_us += us;
    }
    observe(s, SIGNAL_ROUND_TIME, total_us);
    if (round->expected_us > 0) {
        signals_add(s, SIGNAL_PREDICTED_TIME, round->has_guesses, round->expected_us);
        signals_add(s, SIGNAL_PLANNED_TIME, round->has_guesses, total_us);
    }
    observe(s, SIGNAL_STEP_TOKENS, round->n_tokens);
    observe(s, SIGNAL_STEP_ROWS, round->n_rows);
    observe(s, SIGNAL_STEP_LANES, round->n_lanes);
    signals_add(s, SIGNAL_STEP_BYTES, 0, (int64_t)round->bytes_sent);
    signals_add(s, SIGNAL_STEP_BYTES, 1, (int64_t)round->bytes_received);
    signals_add(s, SIGNAL_FEATURE_BYTES, 0, (int64_t)round->feature_bytes);
    signals_add(s, SIGNAL_FEATURE_TIME, 0, round->feature_us);
}

static void count_drafters(struct signals *s, const struct signals_commit *c)
{
    int n_own = c->n_drafted - c->n_appended;
    int n_kept = c->n_accepted < n_own ? c->n_accepted : n_own;
    signals_add(s, SIGNAL_DRAFTER_TOKENS, (int)c->drafter, n_own);
    signals_add(s, SIGNAL_DRAFTER_ACCEPTED, (int)c->drafter, n_kept);
    if (c->n_appended == 0) return;
    signals_add(s, SIGNAL_DRAFTER_TOKENS, (int)c->appended_drafter, c->n_appended);
    signals_add(s, SIGNAL_DRAFTER_ACCEPTED, (int)c->appended_drafter, c->n_accepted - n_kept);
}

static void count_siblings(struct signals *s, const struct signals_commit *c)
{
    signals_add(s, SIGNAL_SIBLING_TOKENS, (int)c->drafter, c->n_siblings);
    signals_add(s, SIGNAL_SIBLING_ACCEPTED, (int)c->drafter, c->n_siblings_accepted);
    if (c->n_branch == 0) return;
    signals_add(s, SIGNAL_SIBLING_TOKENS, (int)c->branch_drafter, c->n_branch);
    signals_add(s, SIGNAL_SIBLING_ACCEPTED, (int)c->branch_drafter, c->n_branch_accepted);
}

void signals_commit(struct signals *s, const struct signals_commit *c)
{
    observe(s, SIGNAL_DRAFT_LENGTH, c->n_drafted);
    signals_add(s, SIGNAL_GENERATION_TOKENS, 0, c->n_tokens);
    if (c->gap_us > 0 && c->n_tokens > 0) {
        int64_t each_us = (c->gap_us + c->n_tokens / 2) / c->n_tokens;
        metrics_observe(s->metrics, SIGNAL_INTER_TOKEN_TIME, 0, each_us, c->n_tokens);
    }
    count_siblings(s, c); /* a window may be alone */
    if (c->n_drafted == 0) return;
    signals_add(s, SIGNAL_DRAFTS, 0, 1);
    signals_add(s, SIGNAL_DRAFT_TOKENS, 0, c->n_drafted);
    signals_add(s, SIGNAL_ACCEPTED_TOKENS, 0, c->n_accepted);
    count_drafters(s, c);
    for (int i = 0; i < c->n_drafted && i <= c->n_accepted; i++) {
        signals_add(s, SIGNAL_TESTED_AT, i, 1);
        if (i < c->n_accepted) signals_add(s, SIGNAL_ACCEPTED_AT, i, 1);
    }
}

void signals_prompt(struct signals *s, int n_prompt, int n_reused, int64_t first_token_us)
{
    signals_add(s, SIGNAL_PROMPT_TOKENS, 0, n_prompt);
    signals_add(s, SIGNAL_PREFIX_QUERIES, 0, n_prompt);
    signals_add(s, SIGNAL_PREFIX_HITS, 0, n_reused);
    if (first_token_us >= 0) observe(s, SIGNAL_FIRST_TOKEN_TIME, first_token_us);
}

/* Returns the reason for which a request that had a place ended. */
static enum signals_reason reason_of(enum job_end end)
{
    switch (end) {
    case JOB_END_STOP:
    case JOB_END_ANSWERED:
        return SIGNALS_STOPPED;
    case JOB_END_LENGTH:
        return SIGNALS_LENGTH;
    case JOB_END_CANCELLED:
    case JOB_END_DEADLINE:
    case JOB_END_SLOW_READER:
        return SIGNALS_ABORTED;
    default:
        return SIGNALS_FAILED;
    }
}

void signals_job(struct signals *s, const struct job_report *r)
{
    signals_add(s, SIGNAL_ENDS, (int)r->end, 1);
    if (r->queue_us < 0) return;
    signals_add(s, SIGNAL_SUCCESS, (int)reason_of(r->end), 1);
    observe(s, SIGNAL_QUEUE_TIME, r->queue_us);
    observe(s, SIGNAL_TOTAL_TIME, r->total_us);
    observe(s, SIGNAL_REQUEST_PROMPT, r->n_prompt);
    if (r->first_token_us < 0) return;
    observe(s, SIGNAL_PREFILL_TIME, r->first_token_us - r->queue_us);
    observe(s, SIGNAL_DECODE_TIME, r->total_us - r->first_token_us);
    observe(s, SIGNAL_REQUEST_GENERATION, r->work.n_tokens);
}
