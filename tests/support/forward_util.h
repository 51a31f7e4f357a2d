/* A model on T ranks that are threads, and a function that feeds it tokens in a given way and
 * returns the logits of every position: what the tests of the forward pass compare. It runs on the
 * CPU, or on the device that the environment variable OUTRIDER_TEST_DEVICE names. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "comm/comm.h"
#include "comm/comm_nccl.h"
#include "model/backend/open.h"
#include "model/model.h"
#include "tests/support/check_util.h"

enum { RIG_RANKS_MAX = 8, RIG_TOKENS_MAX = 512, RIG_LANES_MAX = 4, RIG_BLOCKS = 160 };

/* The form of weights, as --weights names it, of the rigs that are opened next. */
static const char *rig_weights = "bf16";

/* The head whose fc rank 0 of the rigs that are opened next applies; NULL: none. */
static const struct checkpoint *rig_projection;

/* Look-ahead embeddings of the rigs that are opened next; NULL: none. */
static const struct weight *rig_look_ahead;

struct rig {
    struct checkpoint *ck;
    int n_ranks, n_vocab;
    struct comm *comms[RIG_RANKS_MAX];
    struct backend *backends[RIG_RANKS_MAX];
    struct model *models[RIG_RANKS_MAX];
};

/* A sequence's part of one call of rig_feed: tokens[first .. first + n) go in. */
struct rig_lane {
    const int32_t *tokens; /* from position 0 */
    int first, n;
    const int32_t *blocks;
    float *logits; /* [first + n][n_vocab]: rows first.. are written; NULL: no rows wanted */
    const struct forward_tree *tree; /* of the last tokens; NULL: a chain */
};

struct rig_rank {
    struct rig *rig;
    int rank;
    const char *kernels;
    int n_threads;
    const struct rig_lane *lanes;
    int n_lanes;
    bool failed;
    struct error err;
};

/* With RIG_NCCL the ranks of a rig of several meet over NCCL, whose library the test chooses. */
static inline int rig_connect(struct rig_rank *r)
{
#ifdef RIG_NCCL
    struct comm **comm = &r->rig->comms[r->rank], *nccl = NULL;
    const struct comm_nccl_options options = {.path = RIG_NCCL, .timeout_ms = 20000};
    if (r->rig->n_ranks == 1) return 0;
    if (comm_nccl_open_take(&nccl, *comm, r->rank, r->rig->n_ranks, &options, &r->err)) return -1;
    *comm = nccl;
    return comm_nccl_connect(nccl, NULL, &r->err);
#else
    (void)r;
    return 0;
#endif
}

static inline void *rig_open_rank(void *arg)
{
    struct rig_rank *r = arg;
    struct rig *rig = r->rig;
    const char *device = getenv("OUTRIDER_TEST_DEVICE");
    const struct backend_options backend = {.device = device ? device : "cpu",
                                            .weights = rig_weights,
                                            .stored = checkpoint_config(rig->ck)->stored,
                                            .kernels = r->kernels,
                                            .n_threads = r->n_threads,
                                            .no_graphs = getenv("OUTRIDER_TEST_NO_GRAPHS") != NULL};
    const struct model_options options = {.n_kv_blocks = RIG_BLOCKS,
                                          .max_tokens = RIG_TOKENS_MAX,
                                          .max_rows = RIG_TOKENS_MAX,
                                          .max_lanes = RIG_LANES_MAX,
                                          .n_vocab = rig->n_vocab,
                                          .look_ahead = rig_look_ahead,
                                          .projection = r->rank == 0 ? rig_projection : NULL};
    r->failed = rig_connect(r) || backend_open(&rig->backends[r->rank], &backend, &r->err) ||
                model_open(&rig->models[r->rank], rig->ck, rig->comms[r->rank],
                           rig->backends[r->rank], &options, &r->err);
    return NULL;
}

static inline void rig_each(struct rig *rig, void *(*fn)(void *), struct rig_rank *ranks)
{
    pthread_t threads[RIG_RANKS_MAX];
    for (int i = 0; i < rig->n_ranks; i++) {
        ranks[i].rig = rig;
        ranks[i].rank = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, fn, &ranks[i]), 0);
    }
    for (int i = 0; i < rig->n_ranks; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_msg(!ranks[i].failed, "rank %d: %s", i, ranks[i].err.text);
    }
}

/* n_vocab: ids that exist; 0 = all of the config's. */
static inline void rig_open_cut(struct rig *rig, const char *model, int n_ranks,
                                const char *kernels, int n_threads, int n_vocab)
{
    struct error err;
    struct rig_rank ranks[RIG_RANKS_MAX] = {0};
    *rig = (struct rig){.n_ranks = n_ranks};
    CHECK_OK(checkpoint_open(&rig->ck, model, &err));
    rig->n_vocab = n_vocab ? n_vocab : checkpoint_config(rig->ck)->vocab_size;
    if (n_ranks == 1) {
        rig->comms[0] = comm_single();
    } else {
        CHECK_OK(comm_threads_open(rig->comms, n_ranks, &err));
    }
    for (int i = 0; i < n_ranks; i++) {
        ranks[i] = (struct rig_rank){.kernels = kernels, .n_threads = n_threads};
    }
    rig_each(rig, rig_open_rank, ranks);
}

static inline void rig_open(struct rig *rig, const char *model, int n_ranks, const char *kernels,
                            int n_threads)
{
    rig_open_cut(rig, model, n_ranks, kernels, n_threads, 0);
}

static inline void *rig_close_rank(void *arg)
{
    struct rig_rank *r = arg;
    model_close(r->rig->models[r->rank]);
    r->rig->backends[r->rank]->ops->close(r->rig->backends[r->rank]);
    comm_close(r->rig->comms[r->rank]);
    return NULL;
}

static inline void rig_close(struct rig *rig)
{
    struct rig_rank ranks[RIG_RANKS_MAX] = {0};
    rig_each(rig, rig_close_rank, ranks);
    checkpoint_close(rig->ck);
}

/* Each rank copies its slices' columns to where they belong. */
static inline void *rig_feed_rank(void *arg)
{
    struct rig_rank *r = arg;
    struct model *model = r->rig->models[r->rank];
    const struct shard *shard = model_shard(model);
    struct forward_lane lanes[RIG_LANES_MAX];
    struct forward_row rows[RIG_TOKENS_MAX];
    int n_rows = 0;
    for (int i = 0; i < r->n_lanes; i++) {
        const struct rig_lane *lane = &r->lanes[i];
        lanes[i] = (struct forward_lane){lane->first, lane->n, lane->tokens + lane->first,
                                         lane->blocks, lane->tree};
        for (int t = 0; lane->logits && t < lane->n; t++) {
            rows[n_rows++] = (struct forward_row){i, t};
        }
    }
    r->failed = model_forward(model, lanes, r->n_lanes, rows, n_rows, &r->err) != 0;
    for (int row = 0; !r->failed && row < n_rows; row++) {
        const struct rig_lane *lane = &r->lanes[rows[row].lane];
        float *out =
            lane->logits + (size_t)(lane->first + rows[row].index) * (size_t)shard->n_vocab;
        for (int s = 0; s < shard->n_local; s++) {
            int32_t first_id;
            int n_cols;
            row_slice_range(shard->n_vocab, shard->n_slices, shard->first_slice + s, &first_id,
                            &n_cols);
            memcpy(out + first_id,
                   model_logits(model, row) + (size_t)s * (size_t)shard->vocab_slice,
                   (size_t)n_cols * sizeof *out);
        }
    }
    return NULL;
}

static inline void rig_feed(struct rig *rig, const struct rig_lane *lanes, int n_lanes)
{
    struct rig_rank ranks[RIG_RANKS_MAX] = {0};
    for (int i = 0; i < rig->n_ranks; i++) {
        ranks[i] = (struct rig_rank){.lanes = lanes, .n_lanes = n_lanes};
    }
    rig_each(rig, rig_feed_rank, ranks);
}

/* Feeds tokens[n] in chunks of `chunk`; logits[n][V] of every position. */
static inline void rig_logits(struct rig *rig, const int32_t *tokens, int n, int chunk,
                              const int32_t *blocks, float *logits)
{
    for (int first = 0; first < n; first += chunk) {
        const struct rig_lane lane = {.tokens = tokens,
                                      .first = first,
                                      .n = n - first < chunk ? n - first : chunk,
                                      .blocks = blocks,
                                      .logits = logits};
        rig_feed(rig, &lane, 1);
    }
}

static inline int slices_of(const char *model)
{
    struct error err;
    struct checkpoint *ck;
    CHECK_OK(checkpoint_open(&ck, model, &err));
    int n_slices = config_slices(checkpoint_config(ck));
    checkpoint_close(ck);
    return n_slices;
}
