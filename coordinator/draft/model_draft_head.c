/* The drafter that is a head: a draft model that reads the target's features besides tokens
 * (coordinator/draft/model_draft_inputs.h). Its first pass of a round reads the committed tokens
 * with the features that the target's last steps have shown; each later one reads a guess with its
 * own output in place of them (EAGLE, Li et al. 2024, arXiv 2401.15077). P-EAGLE reads masks in the
 * first pass instead (model_draft_parallel.c), block drafters a block after the features
 * (model_draft_block.c), and heads of places (Medusa, blockwise) read nothing and have no KV. All
 * else is as in model_draft.c. */
#include <assert.h>
#include <string.h>

#include "coordinator/draft/model_draft.h"
#include "coordinator/draft/model_draft_inputs.h"
#include "model/checkpoint/head.h"
#include "model/checkpoint/head_readings.h"
#include "model/head_proof.h"
#include "model/head_wish.h"

enum {
    /* Features of a text that wait to be read: more of them are read at once, so that those of a
     * text which has no guesses for long take no memory. */
    WAITING_MAX = 1024,
    READ_PART = 128
};

/* ---- opening ---- */

static const char *folder_of(const struct drafter_options *options)
{
    return strchr(options->name, ':') + 1;
}

/* A file that should say norm_before_residual and does not is opened with either value: the head's
 * proof finds out which is right. target: NULL = it lends nothing. */
static int open_head(struct checkpoint **ck, const char *folder, const struct checkpoint *target,
                     struct error *err)
{
    struct head_options options = {.target = target};
    struct error again;
    int rc = checkpoint_open_head(ck, folder, &options, err);
    if (rc != ERR_UNSUPPORTED || !checkpoint_is_head_folder(folder)) return rc;
    options.norm_before_residual = HEAD_NO;
    return checkpoint_open_head(ck, folder, &options, &again) ? rc : 0;
}

/* Opens the head with what its target lends it. */
static int open_checkpoints(struct model_draft *d, struct error *err)
{
    const struct drafter_options *options = &d->options;
    const char *folder = folder_of(options);
    int rc = 0;
    if (!options->target) {
        return error_set(err, ERR_ARGUMENT,
                         "the head %s guesses for one target, and may lack what that lends it: "
                         "name the target's folder with --tokenizer",
                         folder);
    }
    if (options->vocabulary) {
        return error_set(err, ERR_ARGUMENT,
                         "--draft-vocab %.60s chooses the tokens of a draft model; the head %s has "
                         "those that it was made with: leave the option out",
                         options->vocabulary, folder);
    }
    TRY(checkpoint_open(&d->target, options->target, err));
    TRY(open_head(&d->checkpoint, folder, d->target, err));
    TRY(checkpoint_demand_target(d->checkpoint, err));
out:
    return rc;
}

/* Sets what the head means by its features from now on. */
static int set_inputs(struct model_draft *d, const struct head_reading *reading, struct error *err)
{
    const struct head_config *head = checkpoint_head(d->checkpoint);
    struct draft_inputs *inputs;
    int rc = 0;
    TRY(draft_inputs_open(&inputs, reading, head->entry.feature_dim,
                          checkpoint_config(d->checkpoint)->dim, d->options.n_sequences, err));
    draft_inputs_close(d->inputs);
    d->inputs = inputs;
    d->base.features = &inputs->wish;
    d->base.feature_dim = head->entry.feature_dim;
out:
    return rc;
}

/* Begins with what the head's file says; its proof may choose another reading. */
static int open_inputs(struct model_draft *d, struct error *err)
{
    struct head_reading readings[HEAD_READINGS_MAX];
    int rc = 0, n;
    TRY(head_readings(checkpoint_head(d->checkpoint), checkpoint_config(d->target)->n_layers,
                      readings, &n, err));
    TRY(set_inputs(d, &readings[0], err));
    d->shift = 1;
    d->first_key = checkpoint_head(d->checkpoint)->block.size > 0 ? 0 : 1;
    d->base.kv_shift = d->shift;
    d->base.head_folder = folder_of(&d->options);
    d->base.head_format = head_format_name(checkpoint_head(d->checkpoint));
out:
    return rc;
}

static int open_files(struct model_draft *d, struct error *err)
{
    int rc = 0;
    TRY(open_checkpoints(d, err));
    if (d->options.is_strict) TRY(checkpoint_demand_known_keys(d->checkpoint, err));
    TRY(open_inputs(d, err));
out:
    return rc;
}

static int head_draft_check(const struct drafter_options *options, const struct tokenizer *tok,
                            struct error *err)
{
    int rc = 0;
    struct model_draft *d = NULL;
    TRY(model_draft_new(&d, options, err));
    TRY(open_files(d, err));
    TRY(model_draft_choose_vocabulary(d, tok, err));
out:
    if (d) model_draft_close(&d->base);
    return rc;
}

static int head_draft_open(struct drafter **drafter, const struct drafter_options *options,
                           const struct tokenizer *tok, struct error *err)
{
    int rc = 0;
    struct model_draft *d = NULL;
    *drafter = NULL;
    TRY(model_draft_new(&d, options, err));
    TRY(open_files(d, err));
    TRY(model_draft_start(d, tok, err));
    if (d->block.size == 0) TRY(model_keep_output(d->model, err));
    *drafter = &d->base;
    d = NULL;
out:
    if (d) model_draft_close(&d->base);
    return rc;
}

double head_draft_weight_bytes(const struct checkpoint *ck)
{
    const struct head_config *head = checkpoint_head(ck);
    double n_elements = 0;
    size_t n;
    const struct tensor_spec *tensors = checkpoint_tensors(ck, &n);
    for (size_t i = 0; i < n; i++) {
        bool is_lm_head = strcmp(tensors[i].name, head->names[HEAD_LOGITS]) == 0;
        if (is_lm_head || tensors[i].role == ROLE_EMBEDDING) continue;
        n_elements += (double)tensors[i].n_rows * tensors[i].n_cols;
    }
    if (head->logits_from != HEAD_UNUSED) { /* the rows of lm_head that it scores */
        n_elements += (double)head->n_columns * checkpoint_config(ck)->dim;
    }
    return 2 * n_elements;
}

static int head_draft_count_threads(const struct drafter_options *options, int n_cores,
                                    int *n_threads, struct error *err)
{
    struct checkpoint *ck = NULL, *target = NULL;
    int rc = 0;
    *n_threads = 1; /* feeds a GPU */
    if (strcmp(options->backend.device, "cpu") != 0) return 0;
    if (options->target) TRY(checkpoint_open(&target, options->target, err));
    TRY(open_head(&ck, folder_of(options), target, err));
    *n_threads = model_draft_threads(head_draft_weight_bytes(ck), n_cores);
out:
    checkpoint_close(ck);
    checkpoint_close(target);
    return rc;
}

/* ---- the proof ---- */

static int head_draft_open_proof(struct drafter *drafter, int n_layers, int n_tokens_max,
                                 struct head_proof **proof, struct error *err)
{
    struct model_draft *d = model_draft(drafter);
    struct head_proof_options options = {.folder = d->base.head_folder,
                                         .head = {.target = d->target},
                                         .n_layers = n_layers,
                                         .backend = d->options.backend,
                                         .like = d->model,
                                         .n_tokens_max = n_tokens_max,
                                         .every = 1};
    options.backend.cpus = NULL; /* they are the draft's */
    return head_proof_open(proof, &options, err);
}

/* The head with another value of norm_before_residual. What it was opened as lends it its weights,
 * and goes back to where it was when that is taken again. */
static int reopen(struct model_draft *d, bool keeps_normed, struct error *err)
{
    const struct head_options head = {.target = d->target,
                                      .norm_before_residual = keeps_normed ? HEAD_YES : HEAD_NO};
    struct checkpoint *ck = NULL;
    struct model *model = NULL;
    int rc = 0;
    if (d->lender) {
        model_close(d->model);
        checkpoint_close(d->checkpoint);
        d->model = d->lender;
        d->checkpoint = d->lender_checkpoint;
        d->lender = NULL;
        d->lender_checkpoint = NULL;
        return 0;
    }
    TRY(checkpoint_open_head(&ck, d->base.head_folder, &head, err));
    TRY(model_draft_open_model(d, ck, d->model, &model, err));
    TRY(model_keep_output(model, err));
    d->lender = d->model;
    d->lender_checkpoint = d->checkpoint;
    d->model = model;
    d->checkpoint = ck;
    return 0;
out:
    model_close(model);
    checkpoint_close(ck);
    return rc;
}

/* Nothing that has been read is true any more; no text has a place. */
static void forget_read(struct model_draft *d)
{
    for (int i = 0; d->tables && i < d->options.n_sequences; i++) {
        assert(d->tables[i].n == 0);
    }
    if (d->pool.n_blocks > 0) block_pool_reset(&d->pool);
}

static void head_draft_forget_target(struct drafter *drafter)
{
    forget_read(model_draft(drafter));
}

static int head_draft_take_reading(struct drafter *drafter, const struct head_trial *trial,
                                   struct error *err)
{
    struct model_draft *d = model_draft(drafter);
    int rc = 0;
    if (checkpoint_head(d->checkpoint)->entry.keeps_normed != trial->keeps_normed) {
        TRY(reopen(d, trial->keeps_normed, err));
    }
    TRY(set_inputs(d, &trial->reading, err));
out:
    forget_read(d);
    return rc;
}

/* ---- features ---- */

/* A head with masks reads features of theirs, which nobody projects, among the others, and a block
 * drafter applies its fc itself. */
static void head_draft_set_projection(struct drafter *drafter, const struct projection_key *held)
{
    struct model_draft *d = model_draft(drafter);
    const struct projection_key none = {0};
    struct feature_wish wish;
    bool projects = !d->mask_features && d->block.size == 0;
    head_wish(&wish, d->model, &d->inputs->reading, projects ? held : &none);
    draft_inputs_set_wish(d->inputs, &wish);
}

static int head_draft_observe(struct drafter *drafter, struct sequence *seq,
                              const struct draft_features *features, struct error *err)
{
    struct model_draft *d = model_draft(drafter);
    int needed = model_draft_first_unread(d, seq) - 1, rc = 0;
    if (d->n_places) needed = seq->n_tokens > 1 ? seq->n_tokens - 2 : 0;
    TRY(draft_inputs_keep(d->inputs, seq->slot, features, needed, err));
    if (d->n_places) goto out;
    int n_waiting = draft_inputs_end(d->inputs, seq->slot) - needed;
    if (n_waiting <= WAITING_MAX) return 0;
    /* In parts, so that no round waits long for it. */
    int n_read = n_waiting - WAITING_MAX > READ_PART ? n_waiting - WAITING_MAX : READ_PART;
    const struct draft_reading reading = {seq, n_read, drafter->model};
    rc = model_draft_read(drafter, &reading, 1, err);
    /* Others have the KV. A text with a K of its own waits on, because its guesses must not depend
     * on company; it is at most as long as the KV. Another one goes on plain, so that features that
     * wait take no memory without bound. */
    if (rc == ERR_EXHAUSTED && seq->planner_state.strategy != STRATEGY_PLANNED) rc = 0;
out:
    return rc;
}

/* ---- heads of places: nothing is read, and there is no KV ---- */

/* As if all tokens but the last had been read; or but the last two, until the target has computed
 * the first of them: so it computes that one's feature, from which the guesses are made, also where
 * others have computed all of the text. */
static int read_by_places(const struct sequence *seq)
{
    int n = seq->n_tokens - (seq->n_target_kv < seq->n_tokens - 1 ? 2 : 1);
    return n > 0 ? n : 0;
}

static void head_draft_begin(struct drafter *drafter, struct sequence *seq)
{
    if (model_draft(drafter)->n_places) {
        seq->n_draft_kv[drafter->model] = read_by_places(seq);
    } else {
        model_draft_begin(drafter, seq);
    }
}

static int head_draft_read(struct drafter *drafter, const struct draft_reading *readings, int n,
                           struct error *err)
{
    return model_draft(drafter)->n_places ? 0 : model_draft_read(drafter, readings, n, err);
}

static void head_draft_forget(struct drafter *drafter, int slot)
{
    struct model_draft *d = model_draft(drafter);
    if (d->n_places) {
        draft_inputs_forget(d->inputs, slot);
    } else {
        model_draft_forget(drafter, slot);
    }
}

static int head_draft_reserve(struct drafter *drafter, struct sequence *seq, int n_positions,
                              struct error *err)
{
    return model_draft(drafter)->n_places ? 0 : model_draft_reserve(drafter, seq, n_positions, err);
}

static void head_draft_commit(struct drafter *drafter, struct sequence *seq)
{
    if (model_draft(drafter)->n_places) {
        seq->n_draft_kv[drafter->model] = read_by_places(seq);
    } else {
        model_draft_commit(drafter, seq);
    }
}

const struct model_draft_ops head_draft_ops = {
    .open = head_draft_open,
    .close = model_draft_close,
    .set_vocabulary = model_draft_set_vocabulary,
    .begin = head_draft_begin,
    .read = head_draft_read,
    .forget = head_draft_forget,
    .reserve = head_draft_reserve,
    .propose = model_draft_propose,
    .commit = head_draft_commit,
    .extra = {.observe = head_draft_observe,
              .set_projection = head_draft_set_projection,
              .forget_target = head_draft_forget_target,
              .open_proof = head_draft_open_proof,
              .take_reading = head_draft_take_reading,
              .check = head_draft_check,
              .count_threads = head_draft_count_threads},
};
