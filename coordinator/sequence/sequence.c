/* Settles the parameters of a request, and turns its tokens into text. */
#include "coordinator/sequence/sequence.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/least.h"
#include "base/limits.h"
#include "coordinator/kv/prefix_cache.h"

enum {
    /* Ids that edits may name, so that a text has trees: each row of a step names them all. */
    EDITED_IDS_WIDE = 8192,
    FIXED_DEFAULT = 4, /* K of strategy fixed where neither the request nor the coordinator says */
    REJECTED_BYTES = 1024
};

static int choose_rule(struct sequence *seq, const struct generate_request *req, struct error *err)
{
    seq->rule = rule_default(req->sampling.temperature, req->has_seed);
    if (req->rule[0]) {
        int rc = rule_parse(req->rule, &seq->rule, err);
        if (rc) return rc;
    }
    if (seq->rule->is_greedy && req->sampling.temperature != 0) {
        return error_set(err, ERR_ARGUMENT,
                         "rule %s means temperature 0, but the temperature is %g; set it to 0 or "
                         "choose another rule, such as %s",
                         seq->rule->name, (double)req->sampling.temperature,
                         rule_default(req->sampling.temperature, req->has_seed)->name);
    }
    return 0;
}

/* A request that names K but no strategy gets exactly that K; one that names a threshold gets the
 * strategy that stops there. */
static int choose_strategy(struct sequence *seq, const struct generate_request *req,
                           const struct sequence_defaults *defaults, struct error *err)
{
    enum strategy strategy = req->strategy        ? req->strategy
                             : req->has_threshold ? STRATEGY_THRESHOLD
                             : req->n_draft >= 0  ? STRATEGY_FIXED
                                                  : defaults->strategy;
    if (req->has_threshold && strategy != STRATEGY_THRESHOLD) {
        return error_set(err, ERR_ARGUMENT,
                         "a threshold of %g belongs to strategy threshold, but the strategy is %s; "
                         "leave one of the two out",
                         (double)req->threshold, strategy_names[strategy]);
    }
    seq->planner_state = (struct planner_sequence){.strategy = strategy};
    seq->threshold = 0;
    if (strategy == STRATEGY_THRESHOLD) {
        seq->threshold = req->has_threshold ? req->threshold : defaults->threshold;
    }
    return 0;
}

int sequence_default_k(enum strategy strategy, int n_draft)
{
    if (n_draft >= 0) return n_draft;
    return strategy == STRATEGY_FIXED ? FIXED_DEFAULT : DRAFT_MAX;
}

/* A text with a seed may be the second one of its request: what was kept of the first one was
 * decided by the very coins that would judge it as a guess, so its chance to stay would be another
 * one. Rules that take the target's choice do not draw. */
bool sequence_ignores_texts(const struct sequence *seq)
{
    return seq->job->generate.has_seed && !seq->rule->is_greedy && !seq->rule->is_coupled;
}

static void choose_draft(struct sequence *seq, const struct generate_request *req,
                         const struct sequence_defaults *defaults)
{
    seq->n_draft = req->n_draft >= 0
                       ? req->n_draft
                       : sequence_default_k(seq->planner_state.strategy, defaults->n_draft);
    bool has_prediction = seq->job->predicted && !sequence_ignores_texts(seq);
    if (!defaults->has_draft && !has_prediction) {
        seq->speculation_off = seq->job->predicted
                                   ? "a prediction is not used with a seed under this rule"
                                   : "there is no draft model, and nothing is looked up";
        seq->n_draft = 0;
    } else if (seq->n_draft == 0) {
        seq->speculation_off = req->n_draft == 0 ? "K = 0 was asked for" : "K = 0 is the default";
    } else {
        seq->speculation_off = "";
    }
    bool is_planned = seq->planner_state.strategy == STRATEGY_PLANNED;
    seq->siblings_max = is_planned ? defaults->siblings_max : 0;
    seq->grows = is_planned && defaults->grows;
    seq->tree = seq->planner_state.strategy == STRATEGY_FIXED ? defaults->tree : NULL;
    seq->follows_q = is_planned ? defaults->follows_q : defaults->tree_follows_q;
}

/* Chooses how trees of independent chains are judged. The coordinator's default applies where it
 * can; a request's own that never would is refused. */
static int choose_tree_rule(struct sequence *seq, const struct generate_request *req,
                            const struct sequence_defaults *defaults, struct error *err)
{
    enum strategy strategy = seq->planner_state.strategy;
    seq->tree_rule = defaults->tree_rule ? defaults->tree_rule : &tree_rules[TREE_RULE_AUTO];
    if (!req->tree_rule[0]) return 0;
    int rc = tree_rule_parse(req->tree_rule, &seq->tree_rule, err);
    if (rc || !seq->tree_rule->accept) return rc;
    if (!seq->rule->judges_q || seq->sampling.temperature == 0) {
        return error_set(err, ERR_ARGUMENT,
                         "tree_rule %s weighs guesses by the draft's q, which rule %s at "
                         "temperature %g does not; choose rule rejection or block and a "
                         "temperature above 0, or leave tree_rule out",
                         seq->tree_rule->name, seq->rule->name, (double)seq->sampling.temperature);
    }
    if (strategy != STRATEGY_FIXED) {
        return error_set(err, ERR_ARGUMENT,
                         "tree_rule %s belongs to strategy fixed, but the strategy is %s; set "
                         "n_draft or strategy fixed, or leave tree_rule out",
                         seq->tree_rule->name, strategy_names[strategy]);
    }
    if (!defaults->has_chains) {
        return error_set(err, ERR_ARGUMENT,
                         "tree_rule %s is for independent chains, which this coordinator does not "
                         "guess; start it with --trees chains:KxL, or leave tree_rule out",
                         seq->tree_rule->name);
    }
    return 0;
}

static int check_length(const struct job *job, const struct sequence_defaults *defaults,
                        struct error *err)
{
    int n = (int)job->prompt.n, limit = defaults->context_limit;
    if (n == 0) {
        return error_set(err, ERR_ARGUMENT, "the prompt is empty: give at least one token");
    }
    if (job->kind == JOB_SCORE && n > limit) {
        return error_set(err, ERR_TOO_LONG, "the text has %d tokens; scoring takes 1 to %d", n,
                         limit);
    }
    if (job->kind == JOB_GENERATE && n >= limit) {
        return error_set(err, ERR_TOO_LONG,
                         "the prompt has %d tokens; the context of %d leaves no room for an answer",
                         n, limit);
    }
    return 0;
}

/* The target may have fewer rows than the tokenizer has tokens. */
static int check_vocabulary(const struct job *job, const struct sequence_defaults *defaults,
                            struct error *err)
{
    for (size_t i = 0; i < job->prompt.n; i++) {
        int32_t id = job->prompt.data[i];
        if (id >= 0 && id < defaults->vocab_size) continue;
        return error_set(err, ERR_ARGUMENT, "token id %d is outside of the vocabulary of %d",
                         (int)id, defaults->vocab_size);
    }
    return 0;
}

/* The first sequence has the request's own seed; the others have seeds that follow from it, so that
 * the n texts differ and repeat themselves with it. The mixer is that of SplitMix64 (Steele et al.
 * 2014). */
static uint64_t seed_of(uint64_t seed, int index)
{
    if (index == 0) return seed;
    uint64_t z = seed + (uint64_t)index * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* At these tokens the text ends: the model's ends of sequence, unless they are to be ignored, and
 * the request's own. */
static void choose_ends(struct sequence *seq, const struct generate_request *req,
                        const struct end_ids *model_ends)
{
    seq->ends.n = 0;
    for (int i = 0; model_ends && i < model_ends->n && !req->ignore_eos; i++) {
        seq->ends.ids[seq->ends.n++] = model_ends->ids[i];
    }
    for (int i = 0; i < req->n_stop_ids; i++) {
        seq->ends.ids[seq->ends.n++] = req->stop_ids[i];
    }
}

/* The request's changes of p, in the words of speculation/rows/edits.h. */
static int choose_edits(struct sequence *seq, const struct generate_request *req, int n_vocab,
                        struct error *err)
{
    struct edit_rules *rules = &seq->edit_rules;
    struct edit_bias *biases = NULL;
    struct edit_ban *bans = NULL;
    int rc = 0;
    edit_rules_init(rules);
    if (req->n_biases) TRY(mem_array(&biases, (size_t)req->n_biases, sizeof *biases, err));
    rules->biases = biases;
    if (req->n_bans) TRY(mem_array(&bans, (size_t)req->n_bans, sizeof *bans, err));
    rules->bans = bans;
    for (int i = 0; i < req->n_biases; i++) {
        biases[i] = (struct edit_bias){req->biases[i].id, req->biases[i].bias};
    }
    for (int i = 0; i < req->n_bans; i++) {
        bans[i] = (struct edit_ban){req->bans[i].n, req->bans[i].ids};
    }
    rules->n_biases = req->n_biases;
    rules->n_bans = req->n_bans;
    rules->repetition_penalty = req->repetition_penalty;
    rules->presence_penalty = req->presence_penalty;
    rules->frequency_penalty = req->frequency_penalty;
    rules->min_tokens = req->min_tokens;
    rules->n_end_ids = seq->ends.n;
    rules->end_ids = seq->ends.ids;
    rc = edit_rules_check(rules, n_vocab, err);
out:
    return rc;
}

static int check_features(const struct feature_wish *wish, const struct sequence_defaults *defaults,
                          struct error *err)
{
    int last = wish->n ? wish->boundaries[wish->n - 1] : 0;
    if (last <= defaults->n_layers) return 0;
    return error_set(err, ERR_ARGUMENT,
                     "boundary %d does not exist: the target has %d layers, and its last boundary "
                     "is %d",
                     last, defaults->n_layers, defaults->n_layers);
}

/* Settles the parameters of a request for a text. */
static int settle_request(struct sequence *seq, const struct tokenizer *tok,
                          const struct sequence_defaults *defaults, struct error *err)
{
    struct job *job = seq->job;
    struct generate_request *req = &job->generate;
    int rc = 0;
    generate_request_settle(req, defaults->sampling); /* once for all of the job's sequences */
    TRY(sampling_check(&req->sampling, err));
    if (req->n_draft > DRAFT_MAX) {
        return error_set(err, ERR_ARGUMENT, "n_draft is %d, must be at most %d", req->n_draft,
                         DRAFT_MAX);
    }
    TRY(choose_rule(seq, req, err));
    TRY(choose_strategy(seq, req, defaults, err));
    choose_draft(seq, req, defaults);
    seq->sampling = req->sampling;
    TRY(choose_tree_rule(seq, req, defaults, err));
    if (seq->sampling.top_k >= defaults->vocab_size) seq->sampling.top_k = 0; /* cuts nothing */
    if (!job->has_seed) {
        job->has_seed = true;
        job->seed = req->seed;
        if (!req->has_seed && getrandom(&job->seed, sizeof job->seed, 0) < 0) {
            job->seed = (uint64_t)clock_now_ns();
        }
    }
    seq->seed = seed_of(job->seed, seq->index);
    choose_ends(seq, req, defaults->ends);
    TRY(choose_edits(seq, req, defaults->vocab_size, err));
    TRY(output_open(&seq->output, tok, req->stop, req->n_stop, !req->shows_special, err));
    seq->end = defaults->context_limit;
    if (req->max_tokens > 0 && req->max_tokens < seq->end - seq->n_prompt) {
        seq->end = seq->n_prompt + req->max_tokens;
    }
out:
    return rc;
}

static void free_parts(struct sequence *seq)
{
    output_close(&seq->output);
    block_table_close(&seq->target_blocks);
    edits_close(seq->edits);
    free((void *)(uintptr_t)seq->edit_rules.biases); /* the rules only read them */
    free((void *)(uintptr_t)seq->edit_rules.bans);
    free(seq->tokens);
    free(seq);
}

int sequence_open(struct sequence **seq, struct job *job, int index, const struct tokenizer *tok,
                  const struct sequence_defaults *defaults, struct error *err)
{
    static atomic_uint_fast64_t last_id; /* of all engines */
    int rc = 0;
    struct sequence *s = NULL;
    *seq = NULL;
    TRY(check_length(job, defaults, err));
    TRY(check_vocabulary(job, defaults, err));
    TRY(mem_array(&s, 1, sizeof *s, err));
    s->id = atomic_fetch_add(&last_id, 1) + 1;
    s->job = job;
    s->index = index;
    s->n_vocab = defaults->vocab_size;
    s->slot = -1;
    s->is_score = job->kind == JOB_SCORE;
    s->n_prompt = s->n_tokens = (int)job->prompt.n;
    s->speculation_off = "";
    if (s->is_score) {
        TRY(check_features(&job->score.features, defaults, err));
        s->n_tokens = s->end = s->n_prompt - 1; /* nothing follows the last one */
    } else {
        TRY(settle_request(s, tok, defaults, err));
    }
    job->n_open++;
    *seq = s;
    s = NULL;
out:
    if (s) free_parts(s);
    return rc;
}

void sequence_close(struct sequence *seq)
{
    if (!seq) return;
    struct job *job = seq->job;
    free_parts(seq);
    if (--job->n_open == 0) job_free(job);
}

bool sequence_scores_prompt(const struct sequence *seq)
{
    const struct generate_request *req = &seq->job->generate;
    return seq->is_score || (req->echo && req->logprobs >= 0 && seq->index == 0);
}

const struct feature_wish *sequence_features(const struct sequence *seq)
{
    bool wants = seq->is_score && feature_wish_columns(&seq->job->score.features) > 0;
    return wants ? &seq->job->score.features : NULL;
}

int sequence_open_tokens(struct sequence *seq, int block_tokens, struct error *err)
{
    int rc = 0;
    if (seq->tokens) return 0;
    /* After the last committed token a round may hold a chain of guesses, which a draft model
     * reads, and the token that follows them. */
    seq->capacity = seq->end + DRAFT_MAX + 2;
    TRY(mem_array(&seq->tokens, (size_t)seq->capacity, sizeof *seq->tokens, err));
    TRY(block_table_open(&seq->target_blocks, seq->capacity / block_tokens + 1, err));
    memcpy(seq->tokens, seq->job->prompt.data, (size_t)seq->n_prompt * sizeof *seq->tokens);
    if (!seq->is_score && edit_rules_change(&seq->edit_rules)) {
        if (seq->end + seq->edit_rules.n_biases > EDITED_IDS_WIDE) {
            seq->siblings_max = 0;
            seq->grows = false;
            seq->tree = NULL;
        }
        TRY(edits_open(&seq->edits, &seq->edit_rules, seq->n_vocab, seq->tokens, seq->n_prompt,
                       seq->end - seq->n_prompt, err));
    }
out:
    if (rc) {
        free(seq->tokens);
        seq->tokens = NULL;
    }
    return rc;
}

int sequence_draft_reused(const struct sequence *seq)
{
    int n = 0;
    for (int m = 0; m < PLANNER_MODELS; m++) {
        n = most(n, seq->n_draft_kv[m]);
    }
    return least(n, seq->n_prompt);
}

void sequence_admit(struct sequence *seq)
{
    if (seq->admitted_us) return;
    if (seq->index == 0) job_started(seq->job);
    int target = seq->n_target_kv < seq->n_prompt ? seq->n_target_kv : seq->n_prompt;
    seq->counters.target_reused = (uint32_t)target;
    seq->counters.draft_reused = (uint32_t)sequence_draft_reused(seq);
    seq->admitted_us = clock_now_us();
    seq->counters.queue_us = (uint64_t)(seq->admitted_us - seq->job->arrived_us);
}

void sequence_reuse(struct sequence *seq, struct block_pool *target_pool, int n_most)
{
    struct block_table *table = &seq->target_blocks;
    bool must_read_all = sequence_scores_prompt(seq) && seq->n_scored < seq->n_prompt;
    bool has_own =
        table->n_known < table->n || seq->n_target_kv != table->n * target_pool->block_tokens;
    if (must_read_all || has_own) return;
    int before = seq->n_target_kv, n = n_most < seq->n_tokens ? n_most + 1 : seq->n_tokens;
    seq->n_target_kv = prefix_cache_take(table, target_pool, seq->tokens, n);
    if (seq->admitted_us && seq->n_tokens == seq->n_prompt && seq->counters.preemptions == 0) {
        seq->counters.target_reused += (uint32_t)(seq->n_target_kv - before);
    }
}

/* Appends one token; sets finish_reason when it is the last. */
static int append_token(struct sequence *seq, int32_t id, struct error *err)
{
    int rc = 0;
    seq->tokens[seq->n_tokens++] = id;
    if (seq->edits) edits_commit(seq->edits, &id, 1);
    bool is_end = end_ids_have(&seq->ends, id);
    if (!is_end) TRY(output_push(&seq->output, id, err));
    if (is_end || seq->output.matched) {
        seq->finish_reason = "stop";
    } else if (seq->n_tokens >= seq->end) {
        seq->finish_reason = "length";
    }
    if (seq->finish_reason) TRY(output_finish(&seq->output, err));
out:
    return rc;
}

int sequence_commit(struct sequence *seq, const struct commit *commit, const struct tokenizer *tok,
                    struct error *err)
{
    int rc = 0, done = 0;
    uint32_t text_ends[DRAFT_MAX + 1];
    char rejected_text[REJECTED_BYTES] = "";
    for (; done < commit->n && !seq->finish_reason; done++) {
        TRY(append_token(seq, commit->ids[done], err));
        text_ends[done] = (uint32_t)output_ready(&seq->output);
    }
    seq->job->work.n_tokens += done;
    seq->last_token_us = clock_now_us();
    if (!seq->first_token_us) seq->first_token_us = seq->last_token_us;
    bool show = seq->job->generate.show_drafts && commit->rejected >= 0;
    show = show && done > commit->rejected_at;
    if (show) {
        TRY(tokenizer_token_text(tok, commit->rejected, rejected_text, sizeof rejected_text, err));
    }
    size_t ready = output_ready(&seq->output);
    for (int i = 0; i < done; i++) {
        if (text_ends[i] > ready) text_ends[i] = (uint32_t)ready; /* a stop string cut it later */
    }
    const struct generate_tokens tokens = {
        .index = seq->index,
        .n = done,
        .ids = commit->ids,
        .origins = commit->origins,
        .text_ends = text_ends,
        .text = seq->output.text,
        .text_len = ready,
        .rejected_id = show ? commit->rejected : -1,
        .rejected_text = rejected_text,
        .logprobs = commit->logprobs,
        .round = commit->round,
    };
    struct reply *reply = seq->job->reply;
    rc = reply->ops->tokens(reply, &tokens, err);
    output_drop(&seq->output, ready);
out:
    return rc;
}

/* Why a text has no guesses though they were allowed. */
static const char *why_plain(const struct sequence *seq)
{
    bool is_planned = seq->planner_state.strategy == STRATEGY_PLANNED && seq->n_draft > 0;
    if (seq->speculation_off[0] || seq->counters.drafted > 0 || !is_planned) {
        return seq->speculation_off;
    }
    if (seq->n_tokens - seq->n_prompt <= 1) return "one token leaves nothing to guess";
    if (seq->lacked_draft_kv) return "the draft's KV cache was full";
    return "the planner found plain decoding to be faster";
}

void sequence_finish(struct sequence *seq, const char *arithmetic, const struct planner *planner)
{
    struct error err;
    struct generate_counters *c = &seq->counters;
    c->total_us = (uint64_t)(clock_now_us() - seq->admitted_us);
    c->overhead_p50_us = (uint32_t)histogram_quantile_us(&seq->overhead, 0.5);
    c->overhead_p99_us = (uint32_t)histogram_quantile_us(&seq->overhead, 0.99);
    c->prompt_us = (uint64_t)(seq->first_token_us - seq->admitted_us);
    const struct generate_summary summary = {
        .index = seq->index,
        .finish_reason = seq->finish_reason,
        .stop_match = seq->output.matched ? seq->output.matched : "",
        .rule = seq->rule->name,
        .speculation_off = why_plain(seq),
        .request_id = seq->job->request_id,
        .arithmetic = arithmetic,
        .prompt_tokens = seq->n_prompt,
        .completion_tokens = seq->n_tokens - seq->n_prompt,
        .n_draft = seq->n_draft,
        .strategy = seq->planner_state.strategy,
        .threshold = seq->threshold,
        .estimates = planner_estimates(planner, &seq->planner_state),
        .seed = seq->seed,
        .prompt_ids = seq->tokens,
        .counters = *c,
    };
    struct job *job = seq->job;
    bool is_stop = seq->finish_reason[0] == 's';
    int rc = job->reply->ops->summary(job->reply, &summary, &err);
    job->n_finished++;
    seq->is_over = true;
    if (rc || job->n_finished == job->generate.n) {
        enum job_end end = is_stop ? JOB_END_STOP : JOB_END_LENGTH;
        job_end(job, rc ? job_end_of_error(rc) : end, rc, &err);
    }
}

void sequence_fail(struct sequence *seq, enum job_end end, const struct error *why)
{
    seq->is_over = true;
    if (seq->job->is_over) return; /* another sequence of the job has failed before */
    job_end(seq->job, end, why->code, why);
}
