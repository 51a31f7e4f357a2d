/* Counters and times of the coordinator's work: one table of metrics, which /metrics shows,
 * Describe reads and the log's line of figures is made from. The engine records here and nowhere
 * else. Recording is a few relaxed atomic additions, without a lock, an allocation or a line of
 * log; a scrape only reads. Any thread, at any time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/text/buffer.h"
#include "coordinator/signals/signals_list.h"

struct signals;
struct job_report;

struct signals_options {
    const char *version;
    const char *served_name; /* of the target, for clients; NULL = as its worker says */
    const char *draft_name;  /* "" = no draft */
    bool has_vllm;           /* vLLM's metrics are shown under vLLM's names, too */
    /* See signals_look; any thread. */
    void (*look)(void *arg, struct signals *signals);
    void *look_arg;
};

/* keeps the names and look_arg. Errors: ERR_NO_MEMORY. */
int signals_open(struct signals **signals, const struct signals_options *options,
                 struct error *err);
void signals_close(struct signals *signals);

/* Sets the gauges that nobody records, by options.look: a page does it by itself. */
void signals_look(struct signals *signals);

/* Appends the page, also before there is a group. Errors: ERR_NO_MEMORY. */
int signals_write(struct signals *signals, struct buffer *out, struct error *err);

/* The labels of every metric of ours: model_name="...". Any thread; valid as long as
 * the signals. */
const char *signals_labels(const struct signals *signals);

/* value: the index in the family's label, 0 without one. */
void signals_add(struct signals *signals, enum signal signal, int value, int64_t by);
void signals_set(struct signals *signals, enum signal signal, int value, int64_t to);
/* Returns the value of a counter or a gauge; of a histogram, how often it was observed. */
int64_t signals_get(const struct signals *signals, enum signal signal, int value);

/* ---- engine threads ---- */

/* The group that serves from now on: what labels say. */
struct signals_group {
    const char *model, *arithmetic, *kernels;
    int n_ranks, n_kv_blocks, block_tokens;
};

/* Errors: ERR_NO_MEMORY; the labels are as before then. */
int signals_set_group(struct signals *signals, const struct signals_group *group,
                      struct error *err);

/* The engine's load at this moment. */
struct signals_load {
    int n_running, n_places;
    int n_waiting_again; /* sequences whose job has had a place before */
    int kv_blocks[SIGNALS_BLOCK_STATES], draft_kv_blocks[SIGNALS_BLOCK_STATES];
    const float *alpha; /* [DRAFT_MAX] what the planner expects of each position */
};

void signals_set_load(struct signals *signals, const struct signals_load *load);

/* A step that was settled. */
struct signals_round {
    int64_t part_us[SIGNALS_PARTS];
    int n_tokens, n_rows, n_lanes;
    uint64_t bytes_sent, bytes_received;
    uint64_t feature_bytes; /* of bytes_received */
    int64_t feature_us;     /* of part_us[SIGNALS_VERIFY], on rank 0 */
    int64_t expected_us;    /* by the planner, of all parts; 0 = it has not said */
    bool has_guesses;
};

void signals_round(struct signals *signals, const struct signals_round *round);

/* The tokens and guesses that a round has added to one sequence. */
struct signals_commit {
    int n_drafted, n_accepted;             /* of the chain of guesses */
    int n_appended;                        /* the last of n_drafted, which a finder has made */
    int n_siblings, n_siblings_accepted;   /* further guesses for its places */
    int n_branch, n_branch_accepted;       /* the same, of a second chain */
    enum signals_drafter drafter;          /* of the others; with n_drafted > 0 */
    enum signals_drafter appended_drafter; /* of the last ones; with n_appended > 0 */
    enum signals_drafter branch_drafter;   /* of the second chain; with n_branch > 0 */
    int n_tokens;                          /* that were committed */
    int64_t gap_us; /* since the sequence's last token; 0 = these are the first */
};

void signals_commit(struct signals *signals, const struct signals_commit *commit);

/* Counts the prefill of a prompt, n_reused tokens of which the target did not have to compute.
 * first_token_us: since the request came; -1 = this is not its first token. */
void signals_prompt(struct signals *signals, int n_prompt, int n_reused, int64_t first_token_us);

/* A job has ended. */
void signals_job(struct signals *signals, const struct job_report *report);
