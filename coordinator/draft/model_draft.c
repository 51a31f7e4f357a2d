/* The drafter that is a model: a small one in the coordinator's own process. A pass is one step of
 * it over all lanes, each with the tokens that it has not read, and makes one guess for each, or
 * more where its stage has said what is expected, or all of them (model_draft_parallel.c); it has
 * its own KV blocks. This file opens it and reads; the guesses are in model_draft_guess.c. */
#include "coordinator/draft/model_draft.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/least.h"
#include "base/log.h"
#include "comm/comm.h"
#include "coordinator/draft/model_draft_inputs.h"
#include "coordinator/draft/vocabulary.h"
#include "model/backend/backend.h"
#include "model/checkpoint/head.h"

enum { THREAD_BYTES = 64 << 20 /* of weights, for each compute thread */ };

/* Logs what was noticed about the model; further drafts of the same weights need not repeat it. */
static void show_remarks(const struct model_draft *d)
{
    for (int i = 0; !d->options.like && i < CHECKPOINT_REMARKS; i++) {
        const char *text = checkpoint_remark(d->checkpoint, (enum checkpoint_remark)i);
        if (!text) continue;
        log_line(LOG_LEVEL_WARN, "model_remark", "draft=%s text=\"%s\"", d->options.name, text);
    }
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
    d->pool.window = config_window(checkpoint_config(d->checkpoint));
    TRY(mem_array(&d->tables, (size_t)d->options.n_sequences, sizeof *d->tables, err));
    for (int i = 0; i < d->options.n_sequences; i++) {
        TRY(block_table_open(&d->tables[i], n_blocks, err));
    }
out:
    return rc;
}

int model_draft_new(struct model_draft **draft, const struct drafter_options *options,
                    struct error *err)
{
    int rc = mem_array(draft, 1, sizeof **draft, err);
    if (!rc) (*draft)->options = *options;
    return rc;
}

int model_draft_choose_vocabulary(struct model_draft *d, const struct tokenizer *tok,
                                  struct error *err)
{
    const struct model_config *cfg = checkpoint_config(d->checkpoint);
    const struct head_config *head = checkpoint_head(d->checkpoint);
    int n_vocab = tokenizer_vocab_size(tok), rc = 0;
    d->n_vocab = n_vocab < cfg->vocab_size ? n_vocab : cfg->vocab_size;
    d->n_vocab_target = d->n_vocab;
    if (head && head->block.size > 0) {
        model_draft_open_block(d, head);
    } else {
        TRY(model_draft_open_parallel(d, err));
    }
    d->base.n_choices = head && head->n_columns < d->n_vocab ? head->n_columns : d->n_vocab;
    if (d->options.vocabulary) {
        TRY(draft_vocabulary_choose(&d->head_ids, &d->base.n_choices, d->options.vocabulary, tok,
                                    cfg, d->n_vocab, err));
    }
    if (d->options.support > d->base.n_choices) d->options.support = d->base.n_choices;
out:
    return rc;
}

int model_draft_open_model(struct model_draft *d, const struct checkpoint *ck,
                           const struct model *like, struct model **model, struct error *err)
{
    const struct drafter_options *options = &d->options;
    const struct model_options mo = {
        .n_kv_blocks =
            d->n_places ? 0 : (options->kv_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS,
        .max_tokens = STEP_TOKENS,
        .max_rows = d->n_rows_max,
        .max_lanes = options->n_sequences,
        .n_vocab = d->n_vocab,
        .head_ids = d->head_ids,
        .n_head_ids = d->head_ids ? d->base.n_choices : 0,
        .like = like,
    };
    return model_open(model, ck, comm_single(), d->backend, &mo, err);
}

int model_draft_start(struct model_draft *d, const struct tokenizer *tok, struct error *err)
{
    const struct drafter_options *options = &d->options;
    const struct model_config *cfg = checkpoint_config(d->checkpoint);
    int rc = 0;
    show_remarks(d);
    TRY(model_draft_choose_vocabulary(d, tok, err));
    int n_kv_blocks = (options->kv_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    d->n_rows_max = least(1 + SIBLINGS_MAX + options->n_sequences * DRAFT_MAX, STEP_ROWS);
    if (d->n_places) {
        d->base.limit = INT_MAX;
    } else {
        TRY(open_blocks(d, n_kv_blocks, err));
        d->base.pool = &d->pool;
        d->base.limit = n_kv_blocks * KV_BLOCK_TOKENS + d->shift;
        if (d->block.size > 0) d->base.limit += 1 - d->block.size; /* all of a block has KV */
    }
    /* Published heads were trained on short texts, and their config says so; they go on after. */
    if (!d->inputs) d->base.limit = least(cfg->max_positions, d->base.limit);
    TRY(mem_array(&d->feedings, (size_t)options->n_sequences, sizeof *d->feedings, err));
    TRY(mem_array(&d->passing, (size_t)options->n_sequences, sizeof *d->passing, err));
    TRY(mem_array(&d->forward, (size_t)options->n_sequences, sizeof *d->forward, err));
    TRY(mem_array(&d->draws, (size_t)options->n_sequences, sizeof *d->draws, err));
    TRY(model_draft_open_block_tokens(d, err));
    size_t n_best = (size_t)(options->support > FOLLOW_BEST ? options->support : FOLLOW_BEST);
    TRY(mem_array(&d->best, n_best + 1, sizeof *d->best, err));
    TRY(mem_array(&d->scratch, n_best + 1, sizeof *d->scratch, err));
    TRY(mem_array(&d->logits, (size_t)options->support, sizeof *d->logits, err));
    TRY(model_draft_open_growers(d, err));
    d->options.backend.stored = cfg->stored;
    TRY(backend_open(&d->backend, &d->options.backend, err));
    d->base.kernels = d->backend->ops->kernels(d->backend);
    d->base.kernels_reason = d->backend->kernels_reason;
    const struct model_draft *like = (const struct model_draft *)options->like;
    TRY(model_draft_open_model(d, d->checkpoint, like ? like->model : NULL, &d->model, err));
    size_t left_out = model_lacks_copy(d->model);
    if (left_out) {
        log_line(LOG_LEVEL_WARN, "embedding_on_host",
                 "draft=%s table_mb=%zu text=\"the GPU has no room for the draft's table of "
                 "embeddings, so the host sends the rows of every step\"",
                 d->options.name, left_out >> 20);
    }
out:
    return rc;
}

static int open_files(struct model_draft *d, const struct tokenizer *tok, struct error *err)
{
    int rc = 0;
    TRY(checkpoint_open(&d->checkpoint, d->options.name, err));
    if (d->options.is_strict) TRY(checkpoint_demand_known_keys(d->checkpoint, err));
    TRY(check_tokenizer(d, tok, err));
out:
    return rc;
}

static int model_draft_check(const struct drafter_options *options, const struct tokenizer *tok,
                             struct error *err)
{
    int rc = 0;
    struct model_draft *d = NULL;
    TRY(model_draft_new(&d, options, err));
    TRY(open_files(d, tok, err));
    TRY(model_draft_choose_vocabulary(d, tok, err));
out:
    if (d) model_draft_close(&d->base);
    return rc;
}

static int model_draft_open(struct drafter **drafter, const struct drafter_options *options,
                            const struct tokenizer *tok, struct error *err)
{
    int rc = 0;
    struct model_draft *d = NULL;
    *drafter = NULL;
    TRY(model_draft_new(&d, options, err));
    TRY(open_files(d, tok, err));
    TRY(model_draft_start(d, tok, err));
    *drafter = &d->base;
    d = NULL;
out:
    if (d) model_draft_close(&d->base);
    return rc;
}

void model_draft_close(struct drafter *drafter)
{
    struct model_draft *d = model_draft(drafter);
    if (d->lender) model_close(d->model); /* its weights are the lender's */
    model_close(d->lender ? d->lender : d->model);
    if (d->backend) d->backend->ops->close(d->backend);
    checkpoint_close(d->checkpoint);
    checkpoint_close(d->lender_checkpoint);
    checkpoint_close(d->target);
    draft_inputs_close(d->inputs);
    for (int i = 0; d->tables && i < d->options.n_sequences; i++) {
        block_table_close(&d->tables[i]);
    }
    free(d->tables);
    free(d->feedings);
    free(d->passing);
    free(d->forward);
    free(d->draws);
    free(d->block_tokens);
    block_pool_close(&d->pool);
    free(d->head_ids);
    free(d->scratch);
    model_draft_close_growers(d);
    free(d->logits);
    free(d->best);
    free(d);
}

void model_draft_forget(struct drafter *drafter, int slot)
{
    struct model_draft *d = model_draft(drafter);
    block_table_release(&d->tables[slot], &d->pool);
    if (d->inputs) draft_inputs_forget(d->inputs, slot);
}

double model_draft_weight_bytes(const struct model_config *cfg)
{
    double dim = cfg->dim, heads = (double)cfg->n_heads * cfg->head_dim;
    double kv = 2.0 * cfg->n_kv_heads * cfg->head_dim;
    double layer = dim * (2 * heads + kv) + 3 * dim * cfg->ffn_dim;
    return 2 * (cfg->n_layers * layer + dim * cfg->vocab_size);
}

/* While the draft computes the ranks wait, so their cores are free. But waking a thread costs more
 * than its share of a small draft's work, so there is one thread for every THREAD_BYTES. */
int model_draft_threads(double weight_bytes, int n_cores)
{
    double wanted = weight_bytes / THREAD_BYTES;
    return wanted < 1 ? 1 : wanted > n_cores ? n_cores : (int)wanted;
}

static int model_draft_count_threads(const struct drafter_options *options, int n_cores,
                                     int *n_threads, struct error *err)
{
    struct checkpoint *ck = NULL;
    int rc = 0;
    *n_threads = 1; /* feeds a GPU */
    if (strcmp(options->backend.device, "cpu") != 0) return 0;
    TRY(checkpoint_open(&ck, options->name, err));
    *n_threads = model_draft_threads(model_draft_weight_bytes(checkpoint_config(ck)), n_cores);
out:
    checkpoint_close(ck);
    return rc;
}

void model_draft_set_vocabulary(struct drafter *drafter, int n_vocab)
{
    struct model_draft *d = model_draft(drafter);
    d->n_vocab_target = n_vocab < d->n_vocab ? n_vocab : d->n_vocab;
}

/* The rows of a head depend on the tokens before its own first one, too: they are another text
 * after another beginning. Serial numbers of blocks are far below. */
static void begin_content(const struct model_draft *d, const struct sequence *seq,
                          struct block_table *table)
{
    if (d->first_key && table->n_known == 0) table->serial = UINT64_MAX - (uint32_t)seq->tokens[0];
}

void model_draft_begin(struct drafter *drafter, struct sequence *seq)
{
    struct model_draft *d = model_draft(drafter);
    struct block_table *table = &d->tables[seq->slot];
    int n_held = table->n * d->pool.block_tokens;
    bool has_own = table->n_known < table->n ||
                   seq->n_draft_kv[d->base.model] != (n_held > 0 ? n_held + d->shift : 0);
    if (has_own) return;
    begin_content(d, seq, table);
    int n = prefix_cache_take(table, &d->pool, seq->tokens + d->first_key,
                              seq->n_tokens - d->first_key);
    seq->n_draft_kv[d->base.model] = n > 0 ? n + d->shift : 0;
}

int model_draft_reserve(struct drafter *drafter, struct sequence *seq, int n_positions,
                        struct error *err)
{
    struct model_draft *d = model_draft(drafter);
    int n = n_positions - d->shift;
    bool guesses = n_positions > seq->n_tokens;
    if (d->block.size > 0 && guesses) n = model_draft_block_end(d, seq->n_tokens);
    return block_table_reach(&d->tables[seq->slot], &d->pool, n, err);
}

void model_draft_commit(struct drafter *drafter, struct sequence *seq)
{
    struct model_draft *d = model_draft(drafter);
    struct block_table *table = &d->tables[seq->slot];
    begin_content(d, seq, table);
    prefix_cache_publish(table, &d->pool, seq->tokens + d->first_key,
                         seq->n_draft_kv[d->base.model] - d->shift);
    /* The last token may be read once more, for its row. */
    block_table_give_up(table, &d->pool, seq->n_draft_kv[d->base.model] - d->shift - 1);
}

/* ---- reading ---- */

/* Places a feeding into a step, as lane `number`: all of it, or a part if more than `left` tokens
 * are wanted. Returns its tokens; 0: none. *is_whole: it is all. */
static int place_feeding(struct model_draft *d, const struct feeding *f, int left, int number,
                         bool *is_whole)
{
    struct forward_lane *lane = &d->forward[number];
    if (d->block.size > 0) return model_draft_place_block(d, number, f, left, is_whole);
    if (d->n_places) {
        *lane = (struct forward_lane){.n_tokens = f->n_rows};
        *is_whole = lane->n_tokens <= left;
        return *is_whole ? lane->n_tokens : 0;
    }
    const struct block_table *table = &d->tables[f->seq->slot];
    int begin = model_draft_first_unread(d, f->seq);
    *lane = (struct forward_lane){begin - d->shift, f->end - begin, f->seq->tokens + begin,
                                  table->blocks, NULL};
    if (f->grower) {
        *lane = model_draft_growth_lane(f->grower, f, table->blocks);
        lane->position -= d->shift;
    }
    assert(attention_first(lane->position, d->pool.window) / KV_BLOCK_TOKENS >= table->n_given_up);
    *is_whole = lane->n_tokens <= left;
    if (!*is_whole && f->grower) return 0;
    if (!*is_whole) lane->n_tokens = least(left, lane->n_tokens - f->n_rows);
    return lane->n_tokens;
}

/* The token of a lane whose row is number r of its feeding's. */
static int index_of_row(const struct model_draft *d, const struct feeding *f, int n_tokens, int r)
{
    if (d->block.size > 0) return head_block_row(&d->block, r);
    return f->grower ? model_draft_growth_row(f->grower, f, r) : n_tokens - f->n_rows + r;
}

int model_draft_step(struct model_draft *d, const struct feeding *feedings, int n, int *n_done,
                     struct error *err)
{
    int n_lanes = 0, n_rows = 0, left = STEP_TOKENS, rc = 0;
    *n_done = 0;
    for (bool is_whole = true; is_whole && n_lanes < n;) {
        const struct feeding *f = &feedings[n_lanes];
        int n_tokens = place_feeding(d, f, left, n_lanes, &is_whole);
        if (n_tokens <= 0 || n_rows + f->n_rows > d->n_rows_max) break;
        if (d->inputs) model_draft_place_features(d, n_lanes, f, &d->forward[n_lanes]);
        for (int r = 0; r < (is_whole ? f->n_rows : 0); r++) {
            d->rows[n_rows++] = (struct forward_row){n_lanes, index_of_row(d, f, n_tokens, r)};
        }
        n_lanes++;
        *n_done += is_whole ? 1 : 0;
        left -= n_tokens;
    }
    if (d->inputs) {
        TRY(model_forward_head(d->model, d->forward, d->inputs->features, n_lanes, d->rows, n_rows,
                               err));
    } else {
        TRY(model_forward(d->model, d->forward, n_lanes, d->rows, n_rows, err));
    }
    for (int i = 0, token = 0, row = 0; i < *n_done && d->inputs; i++) {
        TRY(model_draft_keep_outputs(d, &feedings[i], token, d->rows + row, err));
        token += d->forward[i].n_tokens;
        row += feedings[i].n_rows;
    }
    for (int i = 0; i < n_lanes && !d->n_places; i++) {
        const struct forward_lane *lane = &d->forward[i];
        int n_read = d->block.size > 0 ? d->inputs->features[i].n_target : lane->n_tokens;
        int read = lane->position + n_read + d->shift;
        feedings[i].seq->n_draft_kv[d->base.model] = feedings[i].grower ? feedings[i].end : read;
    }
out:
    return rc;
}

int model_draft_read(struct drafter *drafter, const struct draft_reading *readings, int n,
                     struct error *err)
{
    struct model_draft *d = model_draft(drafter);
    int rc = 0, n_feedings = 0, n_done;
    for (int i = 0; i < n; i++) {
        struct sequence *seq = readings[i].seq;
        int end =
            model_draft_readable(d, seq, seq->n_draft_kv[d->base.model] + readings[i].n_tokens);
        if (end <= model_draft_first_unread(d, seq)) continue;
        TRY(block_table_reach(&d->tables[seq->slot], &d->pool, end - d->shift, err));
        d->feedings[n_feedings++] = (struct feeding){.seq = seq, .end = end};
    }
    for (int i = 0; i < n_feedings; i += n_done) {
        TRY(model_draft_step(d, d->feedings + i, n_feedings - i, &n_done, err));
    }
out:
    return rc;
}

int model_draft_plan_feeding(struct model_draft *d, struct feeding *feeding, struct sequence *seq,
                             int position, struct error *err)
{
    *feeding = (struct feeding){.seq = seq, .end = position, .n_rows = 1};
    if (d->block.size > 0) return model_draft_plan_block(d, feeding, position, err);
    if (seq->n_draft_kv[d->base.model] >= position) seq->n_draft_kv[d->base.model] = position - 1;
    if (d->n_places) return 0;
    return block_table_reach(&d->tables[seq->slot], &d->pool, position - d->shift, err);
}

const struct model_draft_ops model_draft_ops = {
    .open = model_draft_open,
    .close = model_draft_close,
    .set_vocabulary = model_draft_set_vocabulary,
    .begin = model_draft_begin,
    .read = model_draft_read,
    .forget = model_draft_forget,
    .reserve = model_draft_reserve,
    .propose = model_draft_propose,
    .commit = model_draft_commit,
    .extra = {.check = model_draft_check, .count_threads = model_draft_count_threads},
};
