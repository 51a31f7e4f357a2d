/* The drafter that is a model: a small one in the coordinator's own process. A pass is one step of
 * it over all lanes, each with the tokens that it has not read, and makes one guess for each, or
 * more where its stage has said what is expected; it has its own KV blocks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/comm.h"
#include "coordinator/draft/drafter.h"
#include "coordinator/draft/head.h"
#include "coordinator/draft/internal.h"
#include "coordinator/prefix_cache.h"
#include "coordinator/sequence.h"
#include "model/model.h"
#include "speculation/multi_draft.h"
#include "speculation/rule.h"

enum {
    STEP_TOKENS = 512,      /* tokens that it reads in one step, over all lanes */
    STEP_ROWS = 64,         /* guesses that it makes in one step */
    THREAD_BYTES = 64 << 20 /* of weights, for each compute thread */
};

struct model_draft {
    struct drafter base;
    struct drafter_options options;
    struct checkpoint *checkpoint;
    struct backend *backend;
    struct model *model;
    struct block_pool pool;
    struct block_table *tables;   /* [n_sequences] */
    int n_vocab;                  /* ids that both models have */
    int n_vocab_target;           /* ids that exist for the target */
    struct feeding *feedings;     /* [n_sequences] of the pass that is running */
    struct draft_lane **passing;  /* [n_sequences] its lanes */
    struct forward_lane *forward; /* [n_sequences] and the step of it */
    struct forward_row rows[STEP_ROWS];
    int n_rows_max;
    int32_t *head_ids;                  /* [base.n_choices] ascending; NULL: all n_vocab ids */
    struct select_item *best, *scratch; /* [support], at least as many as siblings may be */
    float *logits;                      /* [support] of q's tokens, for coupled rules */
};

/* What a pass reads of one sequence: its tokens up to `end`. */
struct feeding {
    struct sequence *seq;
    int end;
    int n_rows;              /* that are wanted, of its last tokens */
    struct draft_lane *lane; /* that guesses from the rows; NULL: nobody does */
};

static int least(int a, int b)
{
    return a < b ? a : b;
}

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
    TRY(tokenizer_open(&own, checkpoint_name(d->checkpoint), err));
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
    d->n_vocab_target = d->n_vocab;
    d->base.n_choices = d->n_vocab;
    if (options->head) {
        TRY(draft_head_choose(&d->head_ids, &d->base.n_choices, options->head, tok, cfg, d->n_vocab,
                              err));
    }
    if (d->options.support > d->base.n_choices) d->options.support = d->base.n_choices;
    struct model_options mo = {
        .n_kv_blocks = (options->kv_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS,
        .max_tokens = STEP_TOKENS,
        .max_rows = least(options->n_sequences + DRAFT_MAX, STEP_ROWS),
        .max_lanes = options->n_sequences,
        .n_vocab = d->n_vocab,
        .head_ids = d->head_ids,
        .n_head_ids = d->base.n_choices,
    };
    if (options->like) mo.like = ((const struct model_draft *)options->like)->model;
    d->n_rows_max = mo.max_rows;
    TRY(open_blocks(d, mo.n_kv_blocks, err));
    TRY(mem_array(&d->feedings, (size_t)options->n_sequences, sizeof *d->feedings, err));
    TRY(mem_array(&d->passing, (size_t)options->n_sequences, sizeof *d->passing, err));
    TRY(mem_array(&d->forward, (size_t)options->n_sequences, sizeof *d->forward, err));
    size_t n_best = (size_t)(options->support > SIBLINGS_MAX ? options->support : 1 + SIBLINGS_MAX);
    TRY(mem_array(&d->best, n_best, sizeof *d->best, err));
    TRY(mem_array(&d->scratch, n_best, sizeof *d->scratch, err));
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
    free(d->feedings);
    free(d->passing);
    free(d->forward);
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

static void model_draft_set_vocabulary(struct drafter *drafter, int n_vocab)
{
    struct model_draft *d = model_draft(drafter);
    d->n_vocab_target = n_vocab < d->n_vocab ? n_vocab : d->n_vocab;
}

static void model_draft_begin(struct drafter *drafter, struct sequence *seq)
{
    struct model_draft *d = model_draft(drafter);
    struct block_table *table = &d->tables[seq->slot];
    bool has_own = table->n_known < table->n || seq->n_draft_kv != table->n * d->pool.block_tokens;
    if (has_own) return;
    seq->n_draft_kv = prefix_cache_take(table, &d->pool, seq->tokens, seq->n_tokens);
}

static int model_draft_reserve(struct drafter *drafter, struct sequence *seq, int n_positions,
                               struct error *err)
{
    struct model_draft *d = model_draft(drafter);
    return block_table_reach(&d->tables[seq->slot], &d->pool, n_positions, err);
}

static void model_draft_commit(struct drafter *drafter, struct sequence *seq)
{
    struct model_draft *d = model_draft(drafter);
    prefix_cache_publish(&d->tables[seq->slot], &d->pool, seq->tokens, seq->n_draft_kv);
}

static struct draft_kv model_draft_kv(const struct drafter *drafter)
{
    const struct model_draft *d = (const struct model_draft *)drafter;
    return (struct draft_kv){d->pool.n_blocks, d->pool.n_free, d->pool.n_cached};
}

/* ---- reading ---- */

/* One step over the first feedings that fit. Those that it finishes, with their rows, come first:
 * *n_done of them; one more may have been read in part, but for the tokens whose rows are
 * wanted. */
static int feed_step(struct model_draft *d, const struct feeding *feedings, int n, int *n_done,
                     struct error *err)
{
    int n_lanes = 0, n_rows = 0, left = STEP_TOKENS, rc = 0;
    *n_done = 0;
    for (bool is_whole = true; is_whole && n_lanes < n;) {
        const struct feeding *f = &feedings[n_lanes];
        int begin = f->seq->n_draft_kv, n_tokens = f->end - begin;
        is_whole = n_tokens <= left;
        if (!is_whole) n_tokens = least(left, n_tokens - f->n_rows);
        if (n_tokens <= 0 || n_rows + f->n_rows > d->n_rows_max) break;
        for (int r = is_whole ? f->n_rows : 0; r > 0; r--) {
            d->rows[n_rows++] = (struct forward_row){n_lanes, n_tokens - r};
        }
        d->forward[n_lanes++] = (struct forward_lane){begin, n_tokens, f->seq->tokens + begin,
                                                      d->tables[f->seq->slot].blocks, NULL};
        *n_done += is_whole ? 1 : 0;
        left -= n_tokens;
    }
    TRY(model_forward(d->model, d->forward, n_lanes, d->rows, n_rows, err));
    for (int i = 0; i < n_lanes; i++) {
        feedings[i].seq->n_draft_kv += d->forward[i].n_tokens;
    }
out:
    return rc;
}

static int model_draft_read(struct drafter *drafter, const struct draft_reading *readings, int n,
                            struct error *err)
{
    struct model_draft *d = model_draft(drafter);
    int rc = 0, n_done;
    for (int i = 0; i < n; i++) {
        struct sequence *seq = readings[i].seq;
        int end = seq->n_draft_kv + readings[i].n_tokens;
        TRY(block_table_reach(&d->tables[seq->slot], &d->pool, end, err));
        d->feedings[i] = (struct feeding){.seq = seq, .end = end};
    }
    for (int i = 0; i < n; i += n_done) {
        TRY(feed_step(d, d->feedings + i, n - i, &n_done, err));
    }
out:
    return rc;
}

/* A sequence that is fed up to position. The last token before it is read in any case, because its
 * row is what comes next. */
static int plan_feeding(struct model_draft *d, struct feeding *feeding, struct sequence *seq,
                        int position, struct error *err)
{
    if (seq->n_draft_kv >= position) seq->n_draft_kv = position - 1;
    *feeding = (struct feeding){.seq = seq, .end = position, .n_rows = 1};
    return block_table_reach(&d->tables[seq->slot], &d->pool, position, err);
}

/* Reads the tokens of one sequence before position; the logits of the last row stay in the
 * model. */
static int feed_before(struct model_draft *d, struct sequence *seq, int position, struct error *err)
{
    struct feeding feeding;
    int rc = 0, n_done = 0;
    TRY(plan_feeding(d, &feeding, seq, position, err));
    while (n_done == 0) {
        TRY(feed_step(d, &feeding, 1, &n_done, err));
    }
out:
    return rc;
}

/* ---- guessing ---- */

/* A guess that is being made: for `position`, in a draft that continues `base` committed tokens. */
struct guess {
    int position, base;
    struct sparse_dist *q;
    int32_t id;
    int n_siblings;
    int32_t *siblings; /* [siblings_max] */
    int siblings_max;
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
    int32_t best[1 + SIBLINGS_MAX];
    const struct rng_address at = {.seed = seq->seed, .position = (uint32_t)guess->position};
    int n = multi_draft_coupled(q->ids, d->logits, q->n, seq->sampling.temperature, &at,
                                1 + guess->siblings_max, best);
    guess->id = best[0];
    guess->chance = sparse_prob(q, guess->id);
    guess->n_siblings = n - 1;
    if (n > 1) memcpy(guess->siblings, best + 1, (size_t)guess->n_siblings * sizeof *best);
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

/* The n best of the row that exist for the target, too. */
static int best_of_row(struct model_draft *d, int row, int n, struct arena *arena, int *n_best,
                       struct error *err)
{
    int n_kept = 0;
    int rc = model_best(d->model, row, n, arena, d->best, n_best, err);
    if (rc || d->n_vocab_target >= d->n_vocab) return rc;
    for (int i = 0; i < *n_best; i++) {
        if (d->best[i].id < d->n_vocab_target) d->best[n_kept++] = d->best[i];
    }
    *n_best = n_kept;
    return 0;
}

/* Siblings of a guess that was drawn from q or, at temperature 0, is the first of best[n_best]. */
static void choose_siblings(const struct model_draft *d, const struct sequence *seq, int n_best,
                            const struct rng_address *at, struct guess *guess)
{
    const struct sparse_dist *q = guess->q;
    int32_t taken[1 + SIBLINGS_MAX] = {guess->id};
    bool is_best = seq->rule->is_greedy, is_drawn = seq->sampling.temperature > 0 && !is_best;
    for (int i = 1; i <= guess->siblings_max; i++) {
        taken[i] = -1;
        if (is_best && i < n_best) taken[i] = d->best[i].id;
        if (is_drawn) {
            taken[i] = multi_draft_draw(q, taken, i, rng_uniform(at, RNG_DRAFT, (uint32_t)i));
        }
        if (taken[i] < 0) return;
        guess->siblings[guess->n_siblings++] = taken[i];
    }
}

/* Makes the guess from a row of logits of the last step. */
static int choose(struct model_draft *d, const struct sequence *seq, int row, struct arena *arena,
                  struct guess *guess, struct error *err)
{
    bool wants_q = seq->sampling.temperature > 0 || seq->threshold > 0 || seq->edits;
    int rc = 0, n_best = wants_q ? d->options.support : 1 + guess->siblings_max;
    struct sparse_dist *q = guess->q;
    *q = (struct sparse_dist){.ids = arena_take(arena, (size_t)n_best, sizeof *q->ids),
                              .p = arena_take(arena, (size_t)n_best, sizeof *q->p)};
    if (!q->ids || !q->p) return error_set(err, ERR_NO_MEMORY, "no room for the draft's q");
    TRY(best_of_row(d, row, n_best, arena, &n_best, err));
    if (seq->edits) {
        const struct edit_list *edits;
        int n_before = guess->position - seq->n_tokens; /* not committed yet */
        TRY(edits_at(seq->edits, seq->tokens + seq->n_tokens, n_before, arena, &edits, err));
        n_best = edits_apply_items(edits, d->best, n_best);
    }
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
    choose_siblings(d, seq, n_best, &at, guess);
out:
    return rc;
}

/* The lane's next guess, from its row of the last step. */
static int guess_once(struct model_draft *d, struct draft_lane *lane, int row, struct arena *arena,
                      struct error *err)
{
    struct sequence *seq = lane->seq;
    struct draft *draft = lane->draft;
    int position = draft->base + draft->n;
    struct guess guess = {.position = position,
                          .base = draft->base,
                          .q = &draft->q[draft->n],
                          .siblings = draft->siblings[draft->n],
                          .siblings_max = lane->siblings_max};
    int rc = choose(d, seq, row, arena, &guess, err);
    if (rc) return rc;
    draft->n_siblings[draft->n] = (uint8_t)guess.n_siblings;
    memset(draft->sibling_q[draft->n], 0, sizeof draft->sibling_q[draft->n]);
    draft->tokens[draft->n++] = guess.id;
    seq->tokens[position] = guess.id; /* behind the committed ones, where the next pass reads it */
    draft->is_over = end_ids_have(lane->ends, guess.id) || guess.chance < seq->threshold;
    return 0;
}

/* The lanes that want another guess, and what must be read for it. */
static int list_feedings(struct model_draft *d, struct draft_lane *lanes, int n)
{
    int n_feedings = 0;
    for (int i = 0; i < n; i++) {
        struct draft_lane *lane = &lanes[i];
        struct draft *draft = lane->draft;
        if (lane->err.code || draft->n >= lane->k || draft->is_over) continue;
        struct feeding *feeding = &d->feedings[n_feedings];
        if (plan_feeding(d, feeding, lane->seq, draft->base + draft->n, &lane->err)) continue;
        feeding->lane = lane;
        d->passing[n_feedings++] = lane;
    }
    return n_feedings;
}

/* Behind the last token of a feeding, what its lane is expected to guess, as far as another guess
 * may follow it. The KV for that was set aside with that for the guesses. Returns how many
 * tokens. */
static int add_expected(struct model_draft *d, struct feeding *feeding)
{
    const struct draft_lane *lane = feeding->lane;
    const int32_t *tokens = lane->expected.tokens;
    struct error err;
    int n = 0, n_most = least(lane->expected.n_fed, lane->k - lane->draft->n - 1);
    while (n < n_most && tokens[n] >= 0 && tokens[n] < d->n_vocab_target &&
           !end_ids_have(lane->ends, tokens[n])) {
        n++;
    }
    struct block_table *table = &d->tables[lane->seq->slot];
    if (n == 0 || block_table_reach(table, &d->pool, feeding->end + n, &err)) return 0;
    memcpy(lane->seq->tokens + feeding->end, tokens, (size_t)n * sizeof *tokens);
    feeding->end += n;
    feeding->n_rows += n;
    return n;
}

/* Adds what is expected to the feedings of a pass; returns how many tokens. */
static int read_ahead(struct model_draft *d, int n_feedings)
{
    struct draft_stage *stage = d->base.stage;
    int n = 0;
    if (!stage) return 0;
    stage->expect(stage, d->passing, n_feedings);
    for (int i = 0; i < n_feedings; i++) {
        n += add_expected(d, &d->feedings[i]);
    }
    return n;
}

/* The lane's guesses from the rows of its feeding, the first of which is number `row` of the step.
 * If a guess is the token that was read ahead in its place, the next row is what a pass of its own
 * would compute after that guess, bit for bit (docs/design.md section 4), so the next guess is made
 * from it. At the first other one the rows behind it belong to another text: the guess is kept, and
 * n_draft_kv says that what was read behind it must be written again.
 *
 * This is speculative sampling of the draft's own text (Spector and Re 2023, arXiv 2308.04623) with
 * a shared coin: the guess is drawn from q with the coin of its position, whatever was expected,
 * and what was expected only decides whether the next row is there already. So no token is tested
 * with a coin of its own, there is no residual to draw from, and q is still exactly what the guess
 * was drawn from. */
static int guess_from_rows(struct model_draft *d, const struct feeding *feeding, int row,
                           struct arena *arena, struct error *err)
{
    struct draft_lane *lane = feeding->lane;
    struct draft *draft = lane->draft;
    const int32_t *expected = lane->expected.tokens;
    int rc = 0, i = 0;
    bool has_next = true;
    for (; has_next && !(rc = guess_once(d, lane, row + i, arena, err)); i++) {
        has_next = i + 1 < feeding->n_rows && !draft->is_over &&
                   draft->tokens[draft->n - 1] == expected[i];
    }
    if (i > 1) draft->n_staged += i - 1;
    feeding->seq->n_draft_kv = draft->base + draft->n - 1;
    return rc;
}

/* Guesses for each feeding's lane. A step that fails fails all lanes that were in it. */
static void run_pass(struct model_draft *d, const struct feeding *feedings, int n,
                     struct arena *arena)
{
    struct error err;
    for (int i = 0, n_done = 0; i < n; i += n_done) {
        int rc = feed_step(d, feedings + i, n - i, &n_done, &err);
        if (rc) n_done = n - i;
        for (int f = i, row = 0; f < i + n_done; row += feedings[f++].n_rows) {
            struct draft_lane *lane = feedings[f].lane;
            if (rc) {
                lane->err = err;
            } else if (!guess_from_rows(d, &feedings[f], row, arena, &lane->err)) {
                lane->err.code = 0;
            }
        }
    }
}

static void note_pass(struct draft_cost *cost, int n_lanes, int n_expected, int64_t us)
{
    if (cost->n_passes == DRAFT_MAX) return;
    cost->pass_lanes[cost->n_passes] = n_lanes;
    cost->pass_expected[cost->n_passes] = n_expected;
    cost->pass_us[cost->n_passes++] = us;
}

static void model_draft_propose(struct drafter *drafter, struct draft_lane *lanes, int n,
                                struct arena *arena, struct draft_cost *cost)
{
    struct model_draft *d = model_draft(drafter);
    int n_feedings;
    *cost = (struct draft_cost){0};
    for (int i = 0; i < n; i++) {
        lanes[i].err.code = 0;
        lanes[i].expected.n_passes = 0;
    }
    while ((n_feedings = list_feedings(d, lanes, n)) > 0) {
        for (int i = 0; i < n_feedings && cost->n_passes == 0; i++) {
            cost->first_pass_tokens += d->feedings[i].end - d->feedings[i].seq->n_draft_kv;
        }
        int n_expected = read_ahead(d, n_feedings);
        int64_t start_us = clock_now_us();
        run_pass(d, d->feedings, n_feedings, arena);
        note_pass(cost, n_feedings, n_expected, clock_now_us() - start_us);
        if (d->base.stage) d->base.stage->compare(d->base.stage, d->passing, n_feedings);
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
        TRY(choose(d, seq, 0, arena, &guess, err));
        *id = guess.id;
        return 0;
    }
    TRY(best_of_row(d, 0, n_best, arena, &n_best, err));
    *id = n_best ? d->best[0].id : 0;
out:
    return rc;
}

const struct drafter_ops model_draft_ops = {
    .open = model_draft_open,
    .close = model_draft_close,
    .limit = model_draft_limit,
    .set_vocabulary = model_draft_set_vocabulary,
    .begin = model_draft_begin,
    .reserve = model_draft_reserve,
    .read = model_draft_read,
    .propose = model_draft_propose,
    .commit = model_draft_commit,
    .predict = model_draft_predict,
    .forget = model_draft_forget,
    .kv = model_draft_kv,
    .count_threads = model_draft_count_threads,
    .name = "model",
    .counted = SIGNALS_MODEL,
    .has_tokenizer = true,
};
