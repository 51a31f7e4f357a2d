/* The coordinator: doors, engines, drafter and target groups, opened and connected. */
#pragma once

#include "base/error.h"
#include "base/system/placement.h"
#include "comm/comm.h"
#include "coordinator/discovery/target_list.h"
#include "coordinator/draft/appended.h"
#include "coordinator/draft/staged.h"
#include "coordinator/draft/trees_option.h"
#include "coordinator/engine/waiting.h"
#include "model/backend/open.h"
#include "proto/generation_wire.h"

enum { COORDINATOR_NAME_BYTES = 256 };

struct coordinator;
struct credentials; /* coordinator/credentials.h */

struct coordinator_options {
    const char *listen;
    /* Kept; NULL = everybody may call. */
    const struct credentials *credentials;
    const char *http;               /* HOST:PORT of the HTTP door; "off", NULL = none */
    const char *cors_origin;        /* that browsers may come from; NULL = none */
    const char *chat_template;      /* file; NULL = coordinator/job/served_chat.h says which */
    bool guards_users;              /* texts of messages are no special tokens */
    bool ignores_generation_config; /* of the target, for requests that leave sampling open */
    bool serves_features;           /* requests for scores may ask for the target's features */
    int http_connections, max_stops, max_texts; /* of the door; of a request */
    const struct target_list *targets;          /* where ranks of groups are; copied */
    struct comm *world;             /* instead of targets: one mpirun for everything; kept */
    int n_groups;                   /* that are used at a time at most */
    const char *draft;              /* folder, synthetic:... or "none" */
    const char *head;               /* folder of a head, which drafts, too; NULL = none */
    bool head_unchecked;            /* it guesses at once, without a proof */
    int store_tokens;               /* room of --lookup store */
    bool store_is_shared;           /* by all API keys */
    const char *lookup;             /* where guesses are looked up: names, or "none", or NULL */
    const char *tokenizer;          /* folder or synthetic:...; NULL = the draft's */
    struct backend_options backend; /* of the draft */
    struct placement_wish pin_wish; /* of the draft's threads: pin, n_cpus and cpus of it */
    const char *served_name;        /* of the target, for clients; NULL = as its worker says */
    bool is_strict_config; /* keys of the draft's config.json that nobody knows are an error */
    const char *draft_vocabulary; /* "FILE[:N]", tokens that the draft guesses among; NULL = all */
    const char *count_tokens;     /* a list that served tokens are counted in; NULL = none */
    enum staged_mode draft_staged;
    enum append_mode lookup_append;
    struct trees trees;
    const struct tree_rule *tree_rule; /* of independent chains; NULL = the rule's own */
    int n_draft;                       /* K; -1 = by strategy */
    enum strategy strategy;
    float threshold;
    int support;
    int draft_kv_tokens;
    int queue_capacity;
    const char *client_weights[WAITING_WEIGHTS_MAX]; /* "NAME=W", of clients that share unevenly */
    int n_client_weights;
    int n_sequences;     /* that are served at a time */
    double step_stretch; /* of a step with prompts over one without */
    int calibrate_ms;
    int step_timeout_s;
    int reader_timeout_s; /* a client that does not read at all for so long is ended */
    int drain_timeout_s;  /* for what was accepted, after coordinator_stop */
    int max_prompt_bytes;
    int queue_bytes;       /* of requests that wait, together */
    int jobs_kept;         /* submitted jobs, ended or not */
    int jobs_bytes;        /* of their answers */
    const char *metrics;   /* where /metrics is served alone; NULL = nowhere */
    bool has_vllm_metrics; /* vLLM's metrics are shown under vLLM's names, too */
    bool log_jobs;         /* a line for each job that ends */
    int log_load_s;        /* between two lines of figures while there is work; 0 = none */
};

/* Checks what the options say of tokenizer, draft and head, without loading weights and without a
 * target. Errors: those of coordinator_open. */
int coordinator_check(const struct coordinator_options *options, struct error *err);

int coordinator_open(struct coordinator **coordinator, const struct coordinator_options *options,
                     struct error *err);

/* Serves until coordinator_stop. Errors: those of fleet_run. */
int coordinator_run(struct coordinator *coordinator, struct error *err);

/* From any thread. */
void coordinator_stop(struct coordinator *coordinator);

void coordinator_close(struct coordinator *coordinator);
