/* The drafter that is a model: a small one in the coordinator's own process. Each guess is one step
 * of it over the tokens that it has not read; it has its own KV blocks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "coordinator/blocks.h"
#include "coordinator/draft/drafter.h"
#include "coordinator/draft/head.h"
#include "coordinator/draft/internal.h"
#include "coordinator/sequence.h"
#include "model/model.h"
#include "speculation/rule.h"

enum {
    STEP_TOKENS = 256,      /* tokens that it reads in one step */
    THREAD_BYTES = 64 << 20 /* of weights, for each compute thread */
};

struct model_draft {
    struct drafter base;
    struct drafter_options options;
    struct checkpoint *checkpoint;
    struct backend *backend;
    struct model *model;
    struct block_pool pool;
    struct block_table *tables; /* [n_sequences] */
    int n_vocab;
    int32_t *head_ids;                  /* [base.n_choices] ascending; NULL: all n_vocab ids */
    struct select_item *best, *scratch; /* [support] */
    float *logits;                      /* [support] of q's tokens, for coupled rules */
};

static struct model_draft *model_draft(struct drafter *drafter)
{
    return (struct model_draft *)drafter;
}

/* Equal tables are required; a padded tail of the embedding may differ. */
static int check_tokenizer(const struct model_draft *d, const struct tokenizer *tok,
                           struct error *err)
{
    struct tokenizer *own = NULL;
    int rc = 0;
    if (checkpoint_is_synthetic(d->checkpoint)) return 0;
    TRY(tokenizer_open(&own, d->options.name, err));
    if (tokenizer_fingerprint(own) != tokenizer_fingerprint(tok)) {
        rc = error_set(err, ERR_ARGUMENT,
                       "the draft %s has another vocabulary than the tokenizer in use (%d and %d "
                       "tokens): draft and target must share one token table",
                       d->options.name, tokenizer_vocab_size(own), tokenizer_vocab_size(tok));
    }
out:
    tokenizer_close(own);
    return rc;
}

static int open_blocks(struct model_draft *d, int n_blocks, struct error *err)
{
    int rc = 0;
    TRY(block_pool_open(&d->pool, n_blocks, KV_BLOCK_TOKENS, err));
    TRY(mem_array(&d->tables, (size_t)d->options.n_sequences, sizeof *d->tables, err));
    for (int i = 0; i < d->options.n_sequences; i++) {
        TRY(block_table_open(&d->tables[i], n_blocks, err));
    }
out:
    return rc;
}

static void model_draft_close(struct drafter *drafter);

static int model_draft_open(struct drafter **drafter, const struct drafter_options *options,
                            const struct tokenizer *tok, struct error *err)
{
    int rc = 0;
    struct model_draft *d = NULL;
    *drafter = NULL;
    TRY(mem_array(&d, 1, sizeof *d, err));
    d->base.ops = &model_draft_ops;
    d->options = *options;
    TRY(checkpoint_open(&d->checkpoint, options->name, err));
    TRY(check_tokenizer(d, tok, err));
    const struct model_config *cfg = checkpoint_config(d->checkpoint);
    int n_vocab = tokenizer_vocab_size(tok);
    d->n_vocab = n_vocab < cfg->vocab_size ? n_vocab : cfg->vocab_size;
    d->base.n_choices = d->n_vocab;
    if (options->head) {
        TRY(draft_head_choose(&d->head_ids, &d->base.n_choices, options->head, tok, cfg, d->n_vocab,
                              err));
    }
    if (d->options.support > d->base.n_choices) d->options.support = d->base.n_choices;
    const struct model_options mo = {
        .n_kv_blocks = (options->kv_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS,
        .max_tokens = STEP_TOKENS,
        .max_rows = 1,
        .max_lanes = 1,
        .n_vocab = d->n_vocab,
        .head_ids = d->head_ids,
        .n_head_ids = d->base.n_choices,
    };
    TRY(open_blocks(d, mo.n_kv_blocks, err));
    TRY(mem_array(&d->best, (size_t)d->options.support, sizeof *d->best, err));
    TRY(mem_array(&d->scratch, (size_t)d->options.support, sizeof *d->scratch, err));
    TRY(mem_array(&d->logits, (size_t)d->options.support, sizeof *d->logits, err));
    d->options.backend.stored = cfg->stored;
    TRY(backend_open(&d->backend, &d->options.backend, err));
    d->base.kernels = d->backend->ops->kernels(d->backend);
    d->base.kernels_reason = d->backend->kernels_reason;
    TRY(model_open(&d->model, d->checkpoint, comm_single(), d->backend, &mo, err));
    *drafter = &d->base;
    d = NULL;
out:
    if (d) model_draft_close(&d->base);
    return rc;
}

static void model_draft_close(struct drafter *drafter)
{
    struct model_draft *d = model_draft(drafter);
    model_close(d->model);
    if (d->backend) d->backend->ops->close(d->backend);
    checkpoint_close(d->checkpoint);
    for (int i = 0; d->tables && i < d->options.n_sequences; i++) {
        block_table_close(&d->tables[i]);
    }
    free(d->tables);
    block_pool_close(&d->pool);
    free(d->head_ids);
    free(d->scratch);
    free(d->logits);
    free(d->best);
    free(d);
}

/* Its context or its KV cache, whichever ends first. */
static int model_draft_limit(const struct drafter *drafter)
{
    const struct model_draft *d = (const struct model_draft *)drafter;
    int context = config_context_limit(checkpoint_config(d->checkpoint));
    int kv = d->pool.n_blocks * KV_BLOCK_TOKENS;
    return context < kv ? context : kv;
}

static void model_draft_forget(struct drafter *drafter, int slot)
{
    struct model_draft *d = model_draft(drafter);
    block_table_release(&d->tables[slot], &d->pool);
}

/* Weights that a guess reads, as bf16. */
static double weight_bytes(const struct model_config *cfg)
{
    double dim = cfg->dim, heads = (double)cfg->n_heads * cfg->head_dim;
    double kv = 2.0 * cfg->n_kv_heads * cfg->head_dim;
    double layer = dim * (2 * heads + kv) + 3 * dim * cfg->ffn_dim;
    return 2 * (cfg->n_layers * layer + dim * cfg->vocab_size);
}

/* While the draft computes the ranks wait, so their cores are free. But waking a thread costs more
 * than its share of a small draft's work, so there is one thread for every THREAD_BYTES. */
static int model_draft_count_threads(const struct drafter_options *options, int n_cores,
                                     int *n_threads, struct error *err)
{
    struct checkpoint *ck = NULL;
    int rc = 0;
    *n_threads = 1; /* feeds a GPU */
    if (strcmp(options->backend.device, "cpu") != 0) return 0;
    TRY(checkpoint_open(&ck, options->name, err));
    double wanted = weight_bytes(checkpoint_config(ck)) / THREAD_BYTES;
    *n_threads = wanted < 1 ? 1 : wanted > n_cores ? n_cores : (int)wanted;
out:
    checkpoint_close(ck);
    return rc;
}

/* Reads tokens[n_draft_kv .. end) in chunks; the logits of the last row stay in the model. */
static int feed(struct model_draft *d, struct sequence *seq, int end, struct error *err)
{
    int rc = 0;
    struct block_table *table = &d->tables[seq->slot];
    TRY(block_table_reach(table, &d->pool, end, err));
    while (seq->n_draft_kv < end) {
        int n = end - seq->n_draft_kv;
        if (n > STEP_TOKENS) n = STEP_TOKENS;
        const struct forward_lane lane = {seq->n_draft_kv, n, seq->tokens + seq->n_draft_kv,
                                          table->blocks};
        const struct forward_row row = {0, n - 1};
        int n_rows = seq->n_draft_kv + n == end ? 1 : 0;
        TRY(model_forward(d->model, &lane, 1, &row, n_rows, err));
        seq->n_draft_kv += n;
    }
out:
    return rc;
}

/* Reads the tokens before position. The last of them is read in any case, because its row is what
 * comes next. */
static int feed_before(struct model_draft *d, struct sequence *seq, int position, struct error *err)
{
    if (seq->n_draft_kv >= position) seq->n_draft_kv = position - 1;
    return feed(d, seq, position, err);
}

/* A guess that is being made: for `position`, in a draft that continues `base` committed tokens. */
struct guess {
    int position, base;
    struct sparse_dist *q;
    int32_t id;
    float chance; /* what the draft gave it, also where q is made one-hot */
};

/* Coupled rules pick among q's tokens with the noise of the position, so q becomes one-hot.
 * best[n_best]: the row's best with their logits. */
static void pick_coupled(struct model_draft *d, const struct sequence *seq, int n_best,
                         struct guess *guess)
{
    struct sparse_dist *q = guess->q;
    select_sort_ids(d->best, n_best); /* q's ids ascend too, and all are among these */
    for (int i = 0, j = 0; i < q->n; i++, j++) {
        while (d->best[j].id != q->ids[i])
            j++;
        d->logits[i] = (float)d->best[j].score;
    }
    guess->id = sampling_coupled_pick(q->ids, d->logits, q->n, seq->sampling.temperature, seq->seed,
                                      (uint32_t)guess->position);
    guess->chance = sparse_prob(q, guess->id);
    q->n = 1;
    q->ids[0] = guess->id;
    q->p[0] = 1.0f;
}

/* What the draft gives its best token at temperature 1, among best[n]. At temperature 0 q is
 * one-hot and does not say. */
static float greedy_chance(const struct model_draft *d, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += exp(d->best[i].score - d->best[0].score);
    }
    return (float)(1 / sum);
}

/* Makes the guess from the logits that feed has left. */
static int choose(struct model_draft *d, const struct sequence *seq, struct arena *arena,
                  struct guess *guess, struct error *err)
{
    bool wants_q = seq->sampling.temperature > 0 || seq->threshold > 0;
    int rc = 0, n_best = wants_q ? d->options.support : 1;
    struct sparse_dist *q = guess->q;
    *q = (struct sparse_dist){.ids = arena_take(arena, (size_t)n_best, sizeof *q->ids),
                              .p = arena_take(arena, (size_t)n_best, sizeof *q->p)};
    if (!q->ids || !q->p) return error_set(err, ERR_NO_MEMORY, "no room for the draft's q");
    TRY(model_best(d->model, 0, n_best, arena, d->best, &n_best, err));
    memcpy(d->scratch, d->best, (size_t)n_best * sizeof *d->best);
    sampling_draft_best(d->scratch, n_best, &seq->sampling, q);
    if (seq->rule->is_coupled && q->n > 1) {
        pick_coupled(d, seq, n_best, guess);
        return 0;
    }
    const struct rng_address at = {seq->seed, (uint32_t)guess->position, (uint32_t)guess->base};
    guess->id = sparse_draw(q, rng_uniform(&at, RNG_DRAFT, 0));
    guess->chance =
        seq->sampling.temperature > 0 ? sparse_prob(q, guess->id) : greedy_chance(d, n_best);
out:
    return rc;
}

static int propose_lane(struct model_draft *d, struct draft_lane *lane, struct arena *arena,
                        struct error *err)
{
    int rc = 0;
    struct sequence *seq = lane->seq;
    struct draft *draft = lane->draft;
    while (draft->n < lane->k && !draft->is_over) {
        int position = draft->base + draft->n;
        struct guess guess = {.position = position, .base = draft->base, .q = &draft->q[draft->n]};
        TRY(feed_before(d, seq, position, err));
        TRY(choose(d, seq, arena, &guess, err));
        draft->tokens[draft->n++] = guess.id;
        seq->tokens[position] =
            guess.id; /* behind the committed ones, where the next feed reads it */
        draft->is_over = end_ids_have(lane->ends, guess.id) || guess.chance < seq->threshold;
    }
out:
    return rc;
}

static void model_draft_propose(struct drafter *drafter, struct draft_lane *lanes, int n,
                                struct arena *arena)
{
    for (int i = 0; i < n; i++) {
        int rc = propose_lane(model_draft(drafter), &lanes[i], arena, &lanes[i].err);
        if (!rc) lanes[i].err.code = 0;
    }
}

static int model_draft_predict(struct drafter *drafter, struct sequence *seq, int position,
                               struct arena *arena, int32_t *id, struct error *err)
{
    struct model_draft *d = model_draft(drafter);
    int rc = 0, n_best = 1;
    TRY(feed_before(d, seq, position, err));
    if (seq->rule->is_coupled) {
        struct sparse_dist q;
        struct guess guess = {.position = position, .base = position, .q = &q};
        TRY(choose(d, seq, arena, &guess, err));
        *id = guess.id;
        return 0;
    }
    TRY(model_best(d->model, 0, n_best, arena, d->best, &n_best, err));
    *id = n_best ? d->best[0].id : 0;
out:
    return rc;
}

const struct drafter_ops model_draft_ops = {
    .open = model_draft_open,
    .close = model_draft_close,
    .limit = model_draft_limit,
    .propose = model_draft_propose,
    .predict = model_draft_predict,
    .forget = model_draft_forget,
    .count_threads = model_draft_count_threads,
    .has_tokenizer = true,
};
