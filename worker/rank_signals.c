/* The table of a rank's metrics, and how steps are recorded in it. */
#include "worker/rank_signals.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/metrics/metrics_process.h"
#include "base/metrics/metrics_rows.h"

enum { NAME_BYTES = 1024, LABELS_BYTES = 2048 };

enum rank_signal {
    STEP_TIME,
    STEP_PART_TIME,
    STEP_TOKENS,
    STEP_ROWS,
    STEP_LANES,
    STEP_FEATURES,
    FEATURE_BYTES,
    QUESTIONS,
    BYTES,
    STEPS_REFUSED,
    LANES_REFUSED,
    BAD_MESSAGES,
    LOST_REPLIES,
    STREAMS,
    KV_BLOCKS,
    KV_BLOCKS_WRITTEN,
    KV_BYTES,
    WEIGHT_BYTES,
    RANK_SIGNALS
};

enum part { PART_QUEUE, PART_COMPUTE, PART_COLLECTIVE, PART_CODEC, PARTS };

static const char *const part_names[PARTS] = {"queue", "compute", "collective", "codec"};
static const char *const directions[] = {"received", "sent"};

static const int64_t step_us[] = {50,     100,     200,     500,     1000,    2000,
                                  5000,   10000,   20000,   50000,   100000,  200000,
                                  500000, 1000000, 2000000, 5000000, 20000000};
static const int64_t part_us[] = {10,     20,      50,      100,     200,     500,    1000,
                                  2000,   5000,    10000,   20000,   50000,   100000, 200000,
                                  500000, 1000000, 2000000, 5000000, 20000000};
static const int64_t step_sizes[] = {1,  2,  3,  4,   6,   8,   12,  16,   24,   32,
                                     48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096};

static const struct metric_family families[RANK_SIGNALS] = {
    HISTOGRAM(STEP_TIME, "step_seconds", "Time of a step, from its message to its reply.",
              TIMES(step_us)),
    HISTOGRAM(STEP_PART_TIME, "step_part_seconds",
              "Time of a step's parts: waiting for the step before, computing, collectives with "
              "the other ranks, decoding the message and encoding the reply.",
              TIMES(part_us), BY("part", part_names)),
    HISTOGRAM(STEP_TOKENS, "step_tokens", "Tokens that a step feeds.", SIZES(step_sizes)),
    HISTOGRAM(STEP_ROWS, "step_rows", "Rows of logits that a step answers.", SIZES(step_sizes)),
    HISTOGRAM(STEP_LANES, "step_lanes", "Texts that share a step.", SIZES(step_sizes)),
    HISTOGRAM(STEP_FEATURES, "step_features_seconds",
              "Time of reading the features of a step that wants some, a part of computing.",
              TIMES(part_us)),
    COUNTER(FEATURE_BYTES, "feature_bytes_total", "Bytes of features in replies."),
    COUNTER(QUESTIONS, "questions_total", "Further questions about the rows of the last step."),
    COUNTER(BYTES, "bytes_total", "Bytes of steps and replies.", BY("direction", directions)),
    COUNTER(STEPS_REFUSED, "steps_refused_total", "Steps that made no sense."),
    COUNTER(LANES_REFUSED, "lanes_refused_total", "Lanes that made no sense in steps that did."),
    COUNTER(BAD_MESSAGES, "bad_messages_total", "Messages that were no step."),
    COUNTER(LOST_REPLIES, "lost_replies_total", "Replies whose coordinator was gone."),
    COUNTER(STREAMS, "streams_total", "Times that a coordinator began to use the group."),
    GAUGE(KV_BLOCKS, "kv_blocks", "KV blocks."),
    GAUGE(KV_BLOCKS_WRITTEN, "kv_blocks_written",
          "KV blocks that were written since the stream began. The coordinator knows which of them "
          "are in use."),
    GAUGE(KV_BYTES, "kv_bytes",
          "Memory of all KV blocks; pages that were never written take none."),
    GAUGE(WEIGHT_BYTES, "weight_bytes", "Memory of this rank's packed weights."),
};

static const struct metric_family info = {
    .name = "build_info",
    .help = "What runs here: always 1, the labels say it.",
    .kind = METRIC_GAUGE,
};

struct rank_signals {
    struct metrics *metrics, *info;
    struct metrics_process *process;
    struct metrics_page *page, *build;
};

static int open_pages(struct rank_signals *s, const struct rank_signals_options *options,
                      struct error *err)
{
    static const char prefix[] = "outrider_worker_";
    const struct target_description *d = options->description;
    char model[NAME_BYTES / 2], series[NAME_BYTES], build[LABELS_BYTES];
    metrics_escape(d->model, model, sizeof model);
    snprintf(series, sizeof series, "model_name=\"%s\",rank=\"%d\",ranks=\"%d\"", model, d->rank,
             d->n_ranks);
    snprintf(build, sizeof build,
             "%s,version=\"%s\",arithmetic=\"%s\",kernels=\"%s\",collectives=\"%s\",threads=\"%d\"",
             series, options->version, d->arithmetic, d->kernels, options->collectives,
             d->n_threads);
    const struct metrics_view of_steps = {.prefix = prefix, .labels = series, .n = RANK_SIGNALS};
    const struct metrics_view of_build = {.prefix = prefix, .labels = build, .n = 1};
    int rc = metrics_page_open(&s->page, s->metrics, &of_steps, err);
    return rc ? rc : metrics_page_open(&s->build, s->info, &of_build, err);
}

int rank_signals_open(struct rank_signals **signals, const struct rank_signals_options *options,
                      struct error *err)
{
    int rc = 0;
    struct rank_signals *s = NULL;
    *signals = NULL;
    TRY(mem_array(&s, 1, sizeof *s, err));
    TRY(metrics_open(&s->metrics, families, RANK_SIGNALS, err));
    TRY(metrics_open(&s->info, &info, 1, err));
    TRY(metrics_process_open(&s->process, err));
    TRY(open_pages(s, options, err));
    metrics_set(s->info, 0, 0, 1);
    metrics_set(s->metrics, KV_BLOCKS, 0, options->description->n_kv_blocks);
    metrics_set(s->metrics, KV_BYTES, 0, (int64_t)options->kv_bytes);
    metrics_set(s->metrics, WEIGHT_BYTES, 0, (int64_t)options->weight_bytes);
    *signals = s;
    s = NULL;
out:
    rank_signals_close(s);
    return rc;
}

void rank_signals_close(struct rank_signals *s)
{
    if (!s) return;
    metrics_page_close(s->page);
    metrics_page_close(s->build);
    metrics_close(s->metrics);
    metrics_close(s->info);
    metrics_process_close(s->process);
    free(s);
}

int rank_signals_write(struct rank_signals *s, struct buffer *out, struct error *err)
{
    int rc = metrics_page_write(s->page, out, err);
    if (!rc) rc = metrics_page_write(s->build, out, err);
    return rc ? rc : metrics_process_write(s->process, out, err);
}

/* ---- recording ---- */

static void observe(struct rank_signals *s, enum rank_signal signal, int value, int64_t what)
{
    metrics_observe(s->metrics, (int)signal, value, what > 0 ? what : 0, 1);
}

static void count(struct rank_signals *s, enum rank_signal signal, int64_t n)
{
    metrics_add(s->metrics, (int)signal, 0, n);
}

static void observe_times(struct rank_signals *s, const struct rank_signals_step *r)
{
    int64_t compute_us = r->reply->compute_us, collective_us = r->reply->collective_us;
    observe(s, STEP_TIME, 0, r->total_us);
    observe(s, STEP_PART_TIME, PART_QUEUE, r->reply->queue_us);
    observe(s, STEP_PART_TIME, PART_COMPUTE, compute_us);
    observe(s, STEP_PART_TIME, PART_COLLECTIVE, collective_us);
    observe(s, STEP_PART_TIME, PART_CODEC, r->total_us - compute_us - collective_us);
}

static void count_features(struct rank_signals *s, const struct step_reply *reply)
{
    int64_t bytes = 0;
    if (reply->n_features == 0) return;
    for (int i = 0; i < reply->n_features; i++) {
        bytes += (int64_t)reply->features[i].n * (int64_t)sizeof *reply->features[i].data;
    }
    observe(s, STEP_FEATURES, 0, reply->feature_us);
    count(s, FEATURE_BYTES, bytes);
}

void rank_signals_step(struct rank_signals *s, const struct rank_signals_step *r)
{
    int64_t n_tokens = 0;
    metrics_add(s->metrics, BYTES, 0, (int64_t)r->bytes_in);
    metrics_add(s->metrics, BYTES, 1, (int64_t)r->bytes_out);
    if (r->reply->error_text) count(s, STEPS_REFUSED, 1);
    if (r->reply->error_text) return;
    if (r->step->n_lanes == 0) {
        count(s, QUESTIONS, 1);
        return;
    }
    for (int i = 0; i < r->step->n_lanes; i++) {
        n_tokens += r->step->lanes[i].n_tokens;
    }
    observe_times(s, r);
    observe(s, STEP_TOKENS, 0, n_tokens);
    observe(s, STEP_ROWS, 0, r->reply->n_rows);
    observe(s, STEP_LANES, 0, r->step->n_lanes);
    count(s, LANES_REFUSED, r->reply->n_refused);
    count_features(s, r->reply);
    metrics_set(s->metrics, KV_BLOCKS_WRITTEN, 0, r->n_blocks_written);
}

void rank_signals_stream(struct rank_signals *s)
{
    count(s, STREAMS, 1);
    metrics_set(s->metrics, KV_BLOCKS_WRITTEN, 0, 0);
}

void rank_signals_bad_message(struct rank_signals *s)
{
    count(s, BAD_MESSAGES, 1);
}

void rank_signals_lost_reply(struct rank_signals *s)
{
    count(s, LOST_REPLIES, 1);
}
