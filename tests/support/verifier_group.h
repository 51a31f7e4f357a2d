/* A group whose ranks are threads: steps go through queues as they otherwise go through gRPC to
 * ranks that are processes, and replies come back through a queue. */
#pragma once

#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/threads/queue.h"
#include "model/backend/cpu/cpu.h"
#include "tests/support/check_util.h"
#include "worker/verifier.h"

#define TALES SOURCE_DIR "/deploy/models/tales/target"

enum {
    GROUP_RANKS_MAX = 4,
    N_SLOTS = 4,
    N_BLOCKS = 16,
    VOCAB = 4096,
    STEP_TOKENS = 64,
    STEP_ROWS = 20,
    WAIT_US = 20000000
};

/* The model of the groups that are opened next, and the head whose fc rank 0 applies; NULL:
 * none. */
static const char *group_model = TALES;
static const struct checkpoint *group_projection;
/* Look-ahead embeddings of all its ranks; NULL: none. */
static const struct look_ahead *group_look_ahead;

struct group;

struct rank {
    struct group *group;
    int rank;
    struct comm *comm;
    struct queue *steps;
    pthread_t thread;
};

/* A rank's reply: a copy, as the coordinator would have decoded it. */
struct answer {
    int rank, rc;
    struct step_reply reply; /* rows are in the rank's verifier until its next step */
    char error_text[ERROR_TEXT_BYTES];
};

struct group {
    int n_ranks, n_slices, n_vocab;
    struct checkpoint *ck;
    struct rank ranks[GROUP_RANKS_MAX];
    struct queue *answers;
    uint64_t last_id;
    int n_refused; /* of the last step */
    struct lane_refusal refused[N_SLOTS];
    char refusal_texts[N_SLOTS][ERROR_TEXT_BYTES];
    int n_features; /* of the last step's lanes; the data is rank 0's until its next step */
    struct lane_features features[N_SLOTS];
    const char *feature_error;
};

static const struct verifier_options verifier_options = {.n_slots = N_SLOTS,
                                                         .n_kv_blocks = N_BLOCKS,
                                                         .max_step_tokens = STEP_TOKENS,
                                                         .max_step_rows = STEP_ROWS,
                                                         .n_vocab = VOCAB};

static void *run_rank(void *arg)
{
    struct rank *rank = arg;
    struct error err;
    struct backend *be;
    struct verifier *verifier;
    void *item;
    const struct backend_cpu_options cpu = {"auto", 1, WEIGHTS_BF16};
    ck_assert_int_eq(backend_cpu_open(&be, &cpu, &err), 0);
    struct verifier_options options = verifier_options;
    options.n_vocab = rank->group->n_vocab;
    options.look_ahead = group_look_ahead;
    options.projection = rank->rank == 0 ? group_projection : NULL;
    ck_assert_int_eq(verifier_open(&verifier, rank->group->ck, rank->comm, be, &options, &err), 0);
    while (queue_pop(rank->steps, &item, INT64_MAX, &err) == 0) {
        struct answer *answer = calloc(1, sizeof *answer);
        answer->rank = rank->rank;
        answer->rc = verifier_step(verifier, item, &answer->reply, &err);
        if (answer->reply.error_text) {
            snprintf(answer->error_text, sizeof answer->error_text, "%s", answer->reply.error_text);
        }
        ck_assert_int_eq(queue_push(rank->group->answers, answer, &err), 0);
    }
    verifier_close(verifier);
    be->ops->close(be);
    comm_close(rank->comm);
    return NULL;
}

static void group_open(struct group *group, int n_ranks)
{
    struct error err;
    struct comm *comms[GROUP_RANKS_MAX];
    *group = (struct group){.n_ranks = n_ranks};
    CHECK_OK(checkpoint_open(&group->ck, group_model, &err));
    const struct model_config *cfg = checkpoint_config(group->ck);
    group->n_slices = config_slices(cfg);
    group->n_vocab = cfg->vocab_size < VOCAB ? cfg->vocab_size : VOCAB;
    CHECK_OK(queue_open(&group->answers, GROUP_RANKS_MAX, &err));
    if (n_ranks == 1) {
        comms[0] = comm_single();
    } else {
        CHECK_OK(comm_threads_open(comms, n_ranks, &err));
    }
    for (int r = 0; r < n_ranks; r++) {
        struct rank *rank = &group->ranks[r];
        *rank = (struct rank){.group = group, .rank = r, .comm = comms[r]};
        CHECK_OK(queue_open(&rank->steps, 4, &err));
        ck_assert_int_eq(pthread_create(&rank->thread, NULL, run_rank, rank), 0);
    }
}

static void group_close(struct group *group)
{
    for (int r = 0; r < group->n_ranks; r++) {
        queue_shut(group->ranks[r].steps);
    }
    for (int r = 0; r < group->n_ranks; r++) {
        pthread_join(group->ranks[r].thread, NULL);
        queue_close(group->ranks[r].steps);
    }
    queue_close(group->answers);
    checkpoint_close(group->ck);
}

/* Every rank must refuse the same lanes with the same words. */
static void take_refusals(struct group *group, const struct step_reply *reply, bool is_first)
{
    if (is_first) {
        group->n_refused = reply->n_refused;
        for (int i = 0; i < reply->n_refused; i++) {
            snprintf(group->refusal_texts[i], ERROR_TEXT_BYTES, "%s", reply->refused[i].text);
            group->refused[i] =
                (struct lane_refusal){reply->refused[i].lane, group->refusal_texts[i]};
        }
    }
    ck_assert_int_eq(reply->n_refused, group->n_refused);
    for (int i = 0; i < reply->n_refused; i++) {
        ck_assert_int_eq(reply->refused[i].lane, group->refused[i].lane);
        ck_assert_str_eq(reply->refused[i].text, group->refused[i].text);
    }
}

/* Rank 0 alone sends features. */
static void take_features(struct group *group, const struct answer *answer)
{
    const struct step_reply *reply = &answer->reply;
    if (answer->rank > 0) {
        ck_assert_int_eq(reply->n_features, 0);
        ck_assert_ptr_null(reply->feature_error);
        return;
    }
    group->n_features = reply->n_features;
    group->feature_error = reply->feature_error;
    for (int i = 0; i < reply->n_features; i++) {
        group->features[i] = reply->features[i];
    }
}

/* One lane is refused, with a sentence that says so. */
static void expect_refused(const struct group *group, int lane, const char *says)
{
    ck_assert_int_eq(group->n_refused, 1);
    ck_assert_int_eq(group->refused[0].lane, lane);
    ck_assert_msg(strstr(group->refused[0].text, says) != NULL, "'%s' lacks '%s'",
                  group->refused[0].text, says);
}

/* Sends the step to every rank and puts the slices of its rows together: slices[n_rows][S]. Returns
 * the number of rows, or -1 and the refusal, which must be the same on every rank. */
static int group_step(struct group *group, struct step *step, struct slice_row *slices,
                      char *refusal, int *refused_lane)
{
    struct error err;
    int n_rows = 0, n_local = group->n_slices / group->n_ranks, n_refused = 0;
    if (!step->id) step->id = group->last_id + 1;
    group->last_id = step->id;
    for (int r = 0; r < group->n_ranks; r++) {
        CHECK_OK(queue_push(group->ranks[r].steps, step, &err));
    }
    for (int r = 0; r < group->n_ranks; r++) {
        void *item;
        CHECK_OK(queue_pop(group->answers, &item, clock_now_us() + WAIT_US, &err));
        struct answer *answer = item;
        ck_assert_int_eq(answer->rc, 0);
        ck_assert_uint_eq(answer->reply.id, step->id);
        if (answer->reply.error_text) {
            ck_assert(n_refused == 0 || strcmp(refusal, answer->error_text) == 0);
            snprintf(refusal, ERROR_TEXT_BYTES, "%s", answer->error_text);
            *refused_lane = answer->reply.error_lane;
            n_refused++;
        }
        take_refusals(group, &answer->reply, r == 0);
        take_features(group, answer);
        n_rows = answer->reply.n_rows;
        for (int row = 0; row < n_rows; row++) {
            ck_assert_int_eq(answer->reply.rows[row].n_slices, n_local);
            memcpy(&slices[row * group->n_slices + answer->rank * n_local],
                   answer->reply.rows[row].slices, (size_t)n_local * sizeof *slices);
        }
        free(answer);
    }
    ck_assert(n_refused == 0 || n_refused == group->n_ranks);
    return n_refused ? -1 : n_rows;
}

/* Runs a step of lanes that want whole rows: logits[n_rows][VOCAB]. Returns the number of rows. */
static inline int group_logits(struct group *group, const struct step_lane *lanes, int n_lanes,
                               float *logits)
{
    static struct slice_row slices[STEP_ROWS * SLICES_MAX];
    char refusal[ERROR_TEXT_BYTES] = "";
    int refused_lane;
    struct step step = {.n_lanes = n_lanes, .lanes = lanes};
    int n_rows = group_step(group, &step, slices, refusal, &refused_lane);
    ck_assert_msg(n_rows >= 0, "%s", refusal);
    for (int s = 0; s < n_rows * group->n_slices; s++) {
        float *row = logits + s / group->n_slices * VOCAB;
        memcpy(row + slices[s].first_id, slices[s].full, (size_t)slices[s].n_cols * sizeof *row);
    }
    return n_rows;
}
