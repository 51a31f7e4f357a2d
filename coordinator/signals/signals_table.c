/* One row for each metric of the coordinator: its name, what it means and its buckets. */
#include "coordinator/signals/signals_table.h"

#include "base/limits.h"
#include "base/metrics/metrics_rows.h"
#include "proto/job_end.h"

#define BY_POSITION .label = "position", .n_values = DRAFT_MAX

/* ---- buckets, in microseconds or pieces ---- */

/* To the first token, from a warm cache to a queue of minutes. */
static const int64_t first_token_us[] = {
    1000,    5000,    10000,   20000,   40000,    80000,    100000,   250000,   500000,   750000,
    1000000, 2500000, 5000000, 7500000, 10000000, 20000000, 40000000, 80000000, 160000000};
static const int64_t token_us[] = {1000,   2000,    5000,    10000,  20000,  30000,
                                   50000,  75000,   100000,  150000, 200000, 300000,
                                   500000, 1000000, 2500000, 5000000};
static const int64_t request_us[] = {1000,     10000,     50000,     100000,    300000,   500000,
                                     1000000,  2000000,   5000000,   10000000,  20000000, 40000000,
                                     60000000, 120000000, 240000000, 480000000, 960000000};
static const int64_t round_us[] = {10,     20,     50,     100,     200,     500,
                                   1000,   2000,   5000,   10000,   20000,   50000,
                                   100000, 200000, 500000, 1000000, 2000000, 5000000};
static const int64_t sizes[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
static const int64_t step_sizes[] = {1,  2,  3,  4,   6,   8,   12,  16,   24,   32,
                                     48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096};
static const int64_t draft_lengths[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, DRAFT_MAX};

/* ---- labels ---- */

static const char *const part_names[SIGNALS_PARTS] = {
    [SIGNALS_PLAN] = "plan",     [SIGNALS_DRAFT] = "draft",           [SIGNALS_WIRE] = "wire",
    [SIGNALS_VERIFY] = "verify", [SIGNALS_COLLECTIVE] = "collective", [SIGNALS_ACCEPT] = "accept",
};
static const char *const block_states[SIGNALS_BLOCK_STATES] = {
    [SIGNALS_IN_USE] = "in_use", [SIGNALS_FREE] = "free", [SIGNALS_CACHED] = "cached"};
static const char *const drafters[SIGNALS_DRAFTERS] = {
    [SIGNALS_MODEL] = "model",          [SIGNALS_SESSION] = "session",
    [SIGNALS_STORE] = "store",          [SIGNALS_DATASTORE] = "datastore",
    [SIGNALS_RECYCLED] = "recycled",    [SIGNALS_LOOKAHEAD] = "lookahead",
    [SIGNALS_PREDICTION] = "prediction"};
static const char *const has_guesses[] = {"no", "yes"};
static const char *const directions[] = {"sent", "received"};
static const char *const reasons[SIGNALS_REASONS] = {
    [SIGNALS_STOPPED] = "stop",
    [SIGNALS_LENGTH] = "length",
    [SIGNALS_ABORTED] = "abort",
    [SIGNALS_FAILED] = "error",
};

const struct metric_family signals_families[SIGNALS] = {
    GAUGE(SIGNAL_RUNNING, "num_requests_running",
          "Texts that are being made: sequences that have a place."),
    GAUGE(SIGNAL_WAITING, "num_requests_waiting",
          "Requests, and texts that lost their place, that wait for one."),
    GAUGE(SIGNAL_KV_USAGE, "kv_cache_usage_perc",
          "Share of the target's KV blocks that are in use, from 0 to 1.",
          .scale = METRIC_MILLIONTH),
    COUNTER(SIGNAL_PREFIX_QUERIES, "prefix_cache_queries_total",
            "Prompt tokens that were looked for in the KV cache."),
    COUNTER(SIGNAL_PREFIX_HITS, "prefix_cache_hits_total",
            "Prompt tokens that the target need not compute again."),
    COUNTER(SIGNAL_PREEMPTIONS, "num_preemptions_total",
            "Times that a text lost its place to others."),
    COUNTER(SIGNAL_PROMPT_TOKENS, "prompt_tokens_total",
            "Tokens of prompts that were read, cached ones included."),
    COUNTER(SIGNAL_GENERATION_TOKENS, "generation_tokens_total", "Tokens that were committed."),
    COUNTER(SIGNAL_SUCCESS, "request_success_total",
            "Requests that had a place and have ended, by reason.", BY("finished_reason", reasons)),
    HISTOGRAM(SIGNAL_FIRST_TOKEN_TIME, "time_to_first_token_seconds",
              "From a request's arrival to its first token.", TIMES(first_token_us)),
    HISTOGRAM(SIGNAL_INTER_TOKEN_TIME, "inter_token_latency_seconds",
              "Time for each further token of a text: that of a round over the tokens that "
              "it committed.",
              TIMES(token_us)),
    HISTOGRAM(SIGNAL_TOTAL_TIME, "e2e_request_latency_seconds",
              "From a request's arrival to the end of its answer.", TIMES(request_us)),
    HISTOGRAM(SIGNAL_QUEUE_TIME, "request_queue_time_seconds",
              "From a request's arrival to its place.", TIMES(request_us)),
    HISTOGRAM(SIGNAL_PREFILL_TIME, "request_prefill_time_seconds",
              "From a request's place to its first token.", TIMES(request_us)),
    HISTOGRAM(SIGNAL_DECODE_TIME, "request_decode_time_seconds",
              "From a request's first token to the end of its answer.", TIMES(request_us)),
    HISTOGRAM(SIGNAL_REQUEST_PROMPT, "request_prompt_tokens", "Tokens of a request's prompt.",
              SIZES(sizes)),
    HISTOGRAM(SIGNAL_REQUEST_GENERATION, "request_generation_tokens",
              "Tokens of a request's answer, all of its texts.", SIZES(sizes)),
    COUNTER(SIGNAL_DRAFTS, "spec_decode_num_drafts_total",
            "Times that guesses of a text were checked."),
    COUNTER(SIGNAL_DRAFT_TOKENS, "spec_decode_num_draft_tokens_total",
            "Guesses that were checked."),
    COUNTER(SIGNAL_ACCEPTED_TOKENS, "spec_decode_num_accepted_tokens_total",
            "Guesses that stayed."),
    COUNTER(SIGNAL_ACCEPTED_AT, "spec_decode_num_accepted_tokens_per_pos_total",
            "Guesses that stayed, by position in their round.", BY_POSITION),

    COUNTER(SIGNAL_TESTED_AT, "spec_decode_num_tested_tokens_per_pos_total",
            "Guesses whose predecessors stayed, by position: accepted over tested is alpha.",
            BY_POSITION),
    GAUGE(SIGNAL_ALPHA, "planner_acceptance_ratio",
          "The planner's estimate of alpha, by position; 0 where it knows nothing.",
          .scale = METRIC_MILLIONTH, BY_POSITION),
    COUNTER(SIGNAL_DRAFTER_TOKENS, "drafter_tokens_total",
            "Guesses that were checked, by who made them: the draft model, or a name of --lookup.",
            BY("drafter", drafters)),
    COUNTER(SIGNAL_DRAFTER_ACCEPTED, "drafter_accepted_tokens_total",
            "Guesses that stayed, by who made them.", BY("drafter", drafters)),
    COUNTER(SIGNAL_SIBLING_TOKENS, "sibling_tokens_total",
            "Siblings that were checked, and other guesses for a place besides the one that "
            "drafter_tokens_total counts, by who made them.",
            BY("drafter", drafters)),
    COUNTER(SIGNAL_SIBLING_ACCEPTED, "sibling_accepted_tokens_total",
            "Of those, the guesses that stayed, by who made them.", BY("drafter", drafters)),
    HISTOGRAM(SIGNAL_DRAFT_LENGTH, "draft_length_tokens",
              "K: guesses of a text in a round, 0 included.", SIZES(draft_lengths)),
    HISTOGRAM(SIGNAL_ROUND_TIME, "round_seconds", "Time of a round, from its plan to its commit.",
              TIMES(round_us)),
    HISTOGRAM(SIGNAL_ROUND_PART_TIME, "round_part_seconds",
              "Time of a round's parts. verify is the slowest rank's computing, wire what "
              "the step takes beyond its ranks.",
              TIMES(round_us), BY("part", part_names)),
    COUNTER(SIGNAL_PREDICTED_TIME, "planner_predicted_seconds_total",
            "Time that the planner expected of the rounds that it planned, by whether they had "
            "guesses.",
            .scale = METRIC_US, BY("guesses", has_guesses)),
    COUNTER(SIGNAL_PLANNED_TIME, "planner_planned_seconds_total",
            "Time that these rounds took. planner_predicted_seconds_total over it is far from 1 "
            "where the planner chooses by wrong prices.",
            .scale = METRIC_US, BY("guesses", has_guesses)),
    HISTOGRAM(SIGNAL_STEP_TOKENS, "step_tokens",
              "Tokens that a step feeds: prompts, last tokens, guesses.", SIZES(step_sizes)),
    HISTOGRAM(SIGNAL_STEP_ROWS, "step_rows", "Rows of logits that a step asks for.",
              SIZES(step_sizes)),
    HISTOGRAM(SIGNAL_STEP_LANES, "step_lanes", "Batch size: texts that share a step.",
              SIZES(step_sizes)),
    COUNTER(SIGNAL_STEP_BYTES, "step_bytes_total", "Bytes of steps to and from all ranks.",
            BY("direction", directions)),
    COUNTER(SIGNAL_DRAFT_PREFIX_HITS, "draft_prefix_cache_hits_total",
            "Prompt tokens that the draft need not compute again."),
    COUNTER(SIGNAL_ENDS, "job_ends_total",
            "Requests that have ended, refused ones included, by end.", BY("end", job_end_names)),
    GAUGE(SIGNAL_TARGET_UP, "target_up",
          "1 while a request would be served, 0 while there is no group."),
    COUNTER(SIGNAL_TARGET_CONNECTS, "target_connects_total",
            "Times that a group was connected; more than one means that one was lost."),
    GAUGE(SIGNAL_PLACES, "places", "Texts that can be made at a time with this group."),
    GAUGE(SIGNAL_WAITING_AGAIN, "sequences_waiting_again",
          "Texts that wait for a place and whose request has had one."),
    GAUGE(SIGNAL_KV_BLOCKS, "kv_blocks",
          "The target's KV blocks. Cached ones can be taken and keep a prefix until then.",
          BY("state", block_states)),
    GAUGE(SIGNAL_DRAFT_KV_BLOCKS, "draft_kv_blocks", "The draft's KV blocks.",
          BY("state", block_states)),
    GAUGE(SIGNAL_QUEUE_CAPACITY, "queue_capacity", "Requests that may wait, as --queue says."),
    GAUGE(SIGNAL_QUEUE_BYTES, "queue_bytes", "Memory that requests occupy while they wait or run."),
    GAUGE(SIGNAL_QUEUE_BYTES_LIMIT, "queue_bytes_limit",
          "What they may occupy, as --queue-bytes says."),
    GAUGE(SIGNAL_STORED_JOBS, "stored_jobs", "Submitted jobs that are kept, ended or not."),
    GAUGE(SIGNAL_STORED_BYTES, "stored_jobs_bytes", "Memory that they and their answers occupy."),
    COUNTER(SIGNAL_LOST_LINES, "log_lines_lost_total",
            "Lines about jobs that were left out because nobody reads the log fast enough."),
    COUNTER(SIGNAL_UNAUTHENTICATED, "unauthenticated_requests_total",
            "Requests that were refused because they had no API key, or one that is not known."),
};
