/* How much a draft agrees with its target. Both read texts that the target writes at temperature 1,
 * and p and q are compared at every position as the rule `rejection` would. Used by bench_agree and
 * by the test of the table that it fills. One rank in this process; a few texts are written side by
 * side. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "model/backend/cpu/cpu.h"
#include "model/logits/sampling.h"
#include "model/model.h"

enum {
    AGREE_TEXTS = 8,    /* written side by side */
    AGREE_PROMPT = 8,   /* random tokens at the beginning, not counted */
    AGREE_SUPPORT = 64, /* tokens of q, as outrider-coordinator cuts it */
    AGREE_TOKENS_MAX = 1024,
    AGREE_BLOCKS = AGREE_TOKENS_MAX / KV_BLOCK_TOKENS
};

/* Sums over positions. Divided by n they are means. */
struct agree_sums {
    int n;
    double full; /* sum over x of min(p, q), q the whole softmax of the draft: alpha of rejection */
    double cut;  /* the same, q cut to its AGREE_SUPPORT best and renormalised */
    double greedy;  /* p and q have the same best token */
    double entropy; /* of p, in nats */
};

struct agree_side {
    struct checkpoint *ck;
    struct backend *be;
    struct model *model;
};

struct agree_pair {
    struct agree_side target, draft;
    int n_vocab;
    float *p, *q; /* [n_vocab] */
    struct select_item scratch[AGREE_SUPPORT];
    int32_t tokens[AGREE_TEXTS][AGREE_TOKENS_MAX];
    int32_t blocks[AGREE_TEXTS][AGREE_BLOCKS];
};

static inline int agree_open_side(struct agree_side *side, const char *name, int n_tokens,
                                  int n_threads, struct error *err)
{
    const struct backend_cpu_options cpu = {"auto", n_threads, WEIGHTS_BF16};
    const struct model_options options = {
        .n_kv_blocks = AGREE_TEXTS * ((n_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS),
        .max_tokens = AGREE_TEXTS,
        .max_rows = AGREE_TEXTS,
        .max_lanes = AGREE_TEXTS,
    };
    int rc = 0;
    TRY(checkpoint_open(&side->ck, name, err));
    TRY(backend_cpu_open(&side->be, &cpu, err));
    TRY(model_open(&side->model, side->ck, comm_single(), side->be, &options, err));
out:
    return rc;
}

static inline void agree_close_side(struct agree_side *side)
{
    model_close(side->model);
    if (side->be) side->be->ops->close(side->be);
    checkpoint_close(side->ck);
}

static inline void agree_close(struct agree_pair *pair)
{
    agree_close_side(&pair->target);
    agree_close_side(&pair->draft);
    free(pair->p);
    free(pair->q);
    *pair = (struct agree_pair){0};
}

/* n_tokens: of a text with its prompt. On failure agree_close releases what was opened. */
static inline int agree_open(struct agree_pair *pair, const char *target, const char *draft,
                             int n_tokens, int n_threads, struct error *err)
{
    int rc = 0, n_blocks = (n_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    *pair = (struct agree_pair){0};
    TRY(agree_open_side(&pair->target, target, n_tokens, n_threads, err));
    TRY(agree_open_side(&pair->draft, draft, n_tokens, n_threads, err));
    pair->n_vocab = checkpoint_config(pair->target.ck)->vocab_size;
    if (checkpoint_config(pair->draft.ck)->vocab_size != pair->n_vocab) {
        rc = error_set(err, ERR_ARGUMENT, "%s and %s have vocabularies of %d and %d", target, draft,
                       pair->n_vocab, checkpoint_config(pair->draft.ck)->vocab_size);
        goto out;
    }
    TRY(mem_array(&pair->p, (size_t)pair->n_vocab, sizeof *pair->p, err));
    TRY(mem_array(&pair->q, (size_t)pair->n_vocab, sizeof *pair->q, err));
    for (int text = 0; text < AGREE_TEXTS; text++) {
        for (int i = 0; i < n_blocks; i++) {
            pair->blocks[text][i] = text * n_blocks + i;
        }
    }
out:
    return rc;
}

/* Returns the best token. */
static inline int agree_softmax(const float *logits, int n, float *p)
{
    int best = 0;
    double sum = 0;
    for (int i = 1; i < n; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    for (int i = 0; i < n; i++) {
        p[i] = num_exp(logits[i] - logits[best]);
        sum += (double)p[i];
    }
    for (int i = 0; i < n; i++) {
        p[i] = (float)((double)p[i] / sum);
    }
    return best;
}

static inline double agree_overlap_cut(struct agree_pair *pair, const float *logits)
{
    const struct sampling_params plain = {.temperature = 1, .top_p = 1};
    int32_t ids[AGREE_SUPPORT];
    float q[AGREE_SUPPORT];
    struct sparse_dist dist = {.ids = ids, .p = q};
    double overlap = 0;
    int support = pair->n_vocab < AGREE_SUPPORT ? pair->n_vocab : AGREE_SUPPORT;
    sampling_draft_dist(logits, pair->n_vocab, &plain, support, pair->scratch, &dist);
    for (int i = 0; i < dist.n; i++) {
        float p = pair->p[ids[i]];
        overlap += (double)(p < q[i] ? p : q[i]);
    }
    return overlap;
}

static inline void agree_compare(struct agree_pair *pair, int row, struct agree_sums *sums)
{
    const float *logits = model_logits(pair->draft.model, row);
    int p_best = agree_softmax(model_logits(pair->target.model, row), pair->n_vocab, pair->p);
    int q_best = agree_softmax(logits, pair->n_vocab, pair->q);
    double overlap = 0;
    for (int i = 0; i < pair->n_vocab; i++) {
        if (pair->p[i] > 0) sums->entropy -= (double)pair->p[i] * num_log((double)pair->p[i]);
        overlap += (double)(pair->p[i] < pair->q[i] ? pair->p[i] : pair->q[i]);
    }
    sums->n++;
    sums->full += overlap;
    sums->cut += agree_overlap_cut(pair, logits);
    sums->greedy += p_best == q_best;
}

static inline int32_t agree_draw(const struct agree_pair *pair, double u)
{
    for (int i = 0; i < pair->n_vocab; i++) {
        u -= (double)pair->p[i];
        if (u < 0) return i;
    }
    return 0; /* because rounding may leave a little mass over */
}

/* Feeds position `position` of all texts to both models. */
static inline int agree_feed(struct agree_pair *pair, int position, struct error *err)
{
    struct forward_lane lanes[AGREE_TEXTS];
    struct forward_row rows[AGREE_TEXTS];
    int rc = 0;
    for (int i = 0; i < AGREE_TEXTS; i++) {
        lanes[i] =
            (struct forward_lane){position, 1, &pair->tokens[i][position], pair->blocks[i], NULL};
        rows[i] = (struct forward_row){i, 0};
    }
    TRY(model_forward(pair->target.model, lanes, AGREE_TEXTS, rows, AGREE_TEXTS, err));
    TRY(model_forward(pair->draft.model, lanes, AGREE_TEXTS, rows, AGREE_TEXTS, err));
out:
    return rc;
}

/* Writes AGREE_TEXTS texts of n_tokens with this seed and adds up what it finds after the prompts.
 * n_tokens is that of agree_open, at most AGREE_TOKENS_MAX. Errors: those of model_forward. */
static inline int agree_measure(struct agree_pair *pair, int n_tokens, uint64_t seed,
                                struct agree_sums *sums, struct error *err)
{
    int rc = 0;
    for (int position = 0; position < n_tokens; position++) {
        if (position > 0) TRY(agree_feed(pair, position - 1, err));
        for (int text = 0; text < AGREE_TEXTS; text++) {
            const struct rng_address at = {seed, (uint32_t)position, (uint32_t)text};
            double u = rng_uniform(&at, RNG_DRAFT, 0);
            if (position < AGREE_PROMPT) {
                pair->tokens[text][position] = (int32_t)(u * pair->n_vocab);
                continue;
            }
            agree_compare(pair, text, sums);
            pair->tokens[text][position] = agree_draw(pair, u);
        }
    }
out:
    return rc;
}
