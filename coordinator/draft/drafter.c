/* The draft. */
#include "coordinator/draft/drafter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "coordinator/draft/head.h"

enum { DRAFT_STEP_TOKENS = 256 };

struct drafter {
    struct drafter_options options;
    struct checkpoint *checkpoint;
    struct backend *backend;
    struct model *model;
    struct block_pool pool;
    int n_vocab;
    int32_t *head_ids; /* [n_head] ascending; NULL: all n_vocab ids */
    int n_head;
    struct select_item *best, *scratch; /* [support] */
    float *logits;                      /* [support] of q's tokens, for `coupled` */
};

/* Equal tables are required; a padded tail of the embedding may differ. */
static int check_tokenizer(const struct drafter *d, const struct tokenizer *tok, struct error *err)
{
    struct tokenizer *own = NULL;
    int rc = 0;
    if (checkpoint_is_synthetic(d->checkpoint)) return 0;
    TRY(tokenizer_open(&own, d->options.model, err));
    if (tokenizer_fingerprint(own) != tokenizer_fingerprint(tok)) {
        rc = error_set(err, ERR_ARGUMENT,
                       "the draft %s has another vocabulary than the tokenizer in use (%d and %d "
                       "tokens): draft and target must share one token table",
                       d->options.model, tokenizer_vocab_size(own), tokenizer_vocab_size(tok));
    }
out:
    tokenizer_close(own);
    return rc;
}

int drafter_open(struct drafter **drafter, const struct drafter_options *options,
                 const struct tokenizer *tok, struct error *err)
{
    int rc = 0;
    struct drafter *d = NULL;
    *drafter = NULL;
    TRY(mem_array(&d, 1, sizeof *d, err));
    d->options = *options;
    TRY(checkpoint_open(&d->checkpoint, options->model, err));
    TRY(check_tokenizer(d, tok, err));
    const struct model_config *cfg = checkpoint_config(d->checkpoint);
    int n_vocab = tokenizer_vocab_size(tok);
    d->n_vocab = n_vocab < cfg->vocab_size ? n_vocab : cfg->vocab_size;
    d->n_head = d->n_vocab;
    if (options->head) {
        TRY(draft_head_choose(&d->head_ids, &d->n_head, options->head, tok, cfg, d->n_vocab, err));
    }
    if (d->options.support > d->n_head) d->options.support = d->n_head;
    const struct model_options mo = {
        .n_kv_blocks = (options->kv_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS,
        .max_tokens = DRAFT_STEP_TOKENS,
        .max_rows = 1,
        .max_lanes = 1,
        .n_vocab = d->n_vocab,
        .head_ids = d->head_ids,
        .n_head_ids = d->n_head,
    };
    TRY(block_pool_open(&d->pool, mo.n_kv_blocks, KV_BLOCK_TOKENS, err));
    TRY(mem_array(&d->best, (size_t)d->options.support, sizeof *d->best, err));
    TRY(mem_array(&d->scratch, (size_t)d->options.support, sizeof *d->scratch, err));
    TRY(mem_array(&d->logits, (size_t)d->options.support, sizeof *d->logits, err));
    d->options.backend.stored = cfg->stored;
    TRY(backend_open(&d->backend, &d->options.backend, err));
    TRY(model_open(&d->model, d->checkpoint, comm_single(), d->backend, &mo, err));
    *drafter = d;
    d = NULL;
out:
    drafter_close(d);
    return rc;
}

void drafter_close(struct drafter *d)
{
    if (!d) return;
    model_close(d->model);
    if (d->backend) d->backend->ops->close(d->backend);
    checkpoint_close(d->checkpoint);
    block_pool_close(&d->pool);
    free(d->head_ids);
    free(d->scratch);
    free(d->logits);
    free(d->best);
    free(d);
}

struct block_pool *drafter_pool(struct drafter *d)
{
    return &d->pool;
}

int drafter_head_tokens(const struct drafter *d)
{
    return d->n_head;
}

int drafter_limit(const struct drafter *d)
{
    int context = config_context_limit(checkpoint_config(d->checkpoint));
    int kv = d->pool.n_blocks * KV_BLOCK_TOKENS;
    return context < kv ? context : kv;
}

/* Feeds tokens[n_draft_kv .. end) in chunks; the last row's logits stay behind. */
static int feed(struct drafter *d, struct sequence *seq, int end, struct error *err)
{
    int rc = 0;
    TRY(block_table_reach(&seq->draft_blocks, &d->pool, end, err));
    while (seq->n_draft_kv < end) {
        int n = end - seq->n_draft_kv;
        if (n > DRAFT_STEP_TOKENS) n = DRAFT_STEP_TOKENS;
        const struct forward_lane lane = {seq->n_draft_kv, n, seq->tokens + seq->n_draft_kv,
                                          seq->draft_blocks.blocks};
        const struct forward_row row = {0, n - 1};
        int n_rows = seq->n_draft_kv + n == end ? 1 : 0;
        TRY(model_forward(d->model, &lane, 1, &row, n_rows, err));
        seq->n_draft_kv += n;
    }
out:
    return rc;
}

/* `coupled` picks among q's tokens with the noise of the position, so q becomes one-hot. best[n_best]:
 * the row's best with their logits. */
static int32_t pick_coupled(struct drafter *d, const struct sequence *seq, int position, int n_best,
                            struct sparse_dist *q, float *chance)
{
    select_sort_ids(d->best, n_best); /* q's ids ascend too, and all are among these */
    for (int i = 0, j = 0; i < q->n; i++, j++) {
        while (d->best[j].id != q->ids[i])
            j++;
        d->logits[i] = (float)d->best[j].score;
    }
    int32_t guess = sampling_coupled_pick(q->ids, d->logits, q->n, seq->sampling.temperature,
                                          seq->seed, (uint32_t)position);
    *chance = sparse_prob(q, guess);
    q->n = 1;
    q->ids[0] = guess;
    q->p[0] = 1.0f;
    return guess;
}

/* What the draft gives its best token, where q is one-hot because the temperature is 0: at temperature 1,
 * among best[n]. */
static float greedy_chance(const struct drafter *d, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += exp(d->best[i].score - d->best[0].score);
    }
    return (float)(1 / sum);
}

/* Chooses the guess for position `position` of a draft that continues `base` tokens from the logits
 * left by feed. chance: what the draft gave it, also where q is made one-hot. */
static int choose(struct drafter *d, const struct sequence *seq, int position, int base,
                  struct arena *arena, struct sparse_dist *q, int32_t *guess, float *chance,
                  struct error *err)
{
    bool wants_q = seq->sampling.temperature > 0 || seq->threshold > 0;
    int rc = 0, n_best = wants_q ? d->options.support : 1;
    *q = (struct sparse_dist){.ids = arena_take(arena, (size_t)n_best, sizeof *q->ids),
                              .p = arena_take(arena, (size_t)n_best, sizeof *q->p)};
    if (!q->ids || !q->p) return error_set(err, ERR_NO_MEMORY, "no room for the draft's q");
    TRY(model_best(d->model, 0, n_best, arena, d->best, &n_best, err));
    memcpy(d->scratch, d->best, (size_t)n_best * sizeof *d->best);
    sampling_draft_best(d->scratch, n_best, &seq->sampling, q);
    if (seq->rule == RULE_COUPLED && q->n > 1) {
        *guess = pick_coupled(d, seq, position, n_best, q, chance);
        return 0;
    }
    const struct rng_address at = {seq->seed, (uint32_t)position, (uint32_t)base};
    *guess = sparse_draw(q, rng_uniform(&at, RNG_DRAFT, 0));
    *chance = seq->sampling.temperature > 0 ? sparse_prob(q, *guess) : greedy_chance(d, n_best);
out:
    return rc;
}

/* The tokens before position are fed, the last of them in any case: its row is what comes next. */
static int feed_before(struct drafter *d, struct sequence *seq, int position, struct error *err)
{
    if (seq->n_draft_kv >= position) seq->n_draft_kv = position - 1;
    return feed(d, seq, position, err);
}

int drafter_propose(struct drafter *d, struct sequence *seq, int k, const struct end_ids *ends,
                    struct arena *arena, struct draft *draft, struct error *err)
{
    int rc = 0;
    while (draft->n < k && !draft->is_over) {
        int position = draft->base + draft->n;
        TRY(feed_before(d, seq, position, err));
        int32_t guess = 0;
        float chance = 1;
        TRY(choose(d, seq, position, draft->base, arena, &draft->q[draft->n], &guess, &chance,
                   err));
        draft->tokens[draft->n++] = guess;
        seq->tokens[position] = guess; /* past the committed ones: room for the next feed */
        /* A guess that was looked at is sent: docs/design.md section 5. */
        draft->is_over = end_ids_have(ends, guess) || chance < seq->threshold;
    }
out:
    return rc;
}

int drafter_predict(struct drafter *d, struct sequence *seq, int position, struct arena *arena,
                    int32_t *id, struct error *err)
{
    int rc = 0, n_best = 1;
    float chance;
    struct sparse_dist q;
    TRY(feed_before(d, seq, position, err));
    if (seq->rule == RULE_COUPLED) {
        return choose(d, seq, position, position, arena, &q, id, &chance, err);
    }
    TRY(model_best(d->model, 0, n_best, arena, d->best, &n_best, err));
    *id = n_best ? d->best[0].id : 0;
out:
    return rc;
}
