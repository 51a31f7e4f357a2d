/* What a request asks for, and how its tokens become text. */
#include "coordinator/sequence.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "coordinator/draft/drafter.h"

enum {
    FIXED_DEFAULT = 4, /* K of strategy fixed where neither the request nor the coordinator says */
    REJECTED_BYTES = 1024
};

int sequence_open(struct sequence *seq, int slot, int capacity, int n_blocks, struct error *err)
{
    int rc = 0;
    *seq = (struct sequence){.slot = slot, .capacity = capacity};
    /* Behind the last committed token a round may hold K guesses and the token that follows
     * them. */
    TRY(mem_array(&seq->tokens, (size_t)capacity + DRAFT_MAX + 1, sizeof *seq->tokens, err));
    TRY(block_table_open(&seq->target_blocks, n_blocks, err));
out:
    if (rc) sequence_close(seq);
    return rc;
}

void sequence_close(struct sequence *seq)
{
    job_free(seq->job);
    if (seq->is_active) output_close(&seq->output);
    block_table_close(&seq->target_blocks);
    free(seq->tokens);
    *seq = (struct sequence){0};
}

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

static void choose_draft(struct sequence *seq, const struct generate_request *req,
                         const struct sequence_defaults *defaults)
{
    seq->n_draft = req->n_draft >= 0
                       ? req->n_draft
                       : sequence_default_k(seq->planner_state.strategy, defaults->n_draft);
    if (!defaults->has_draft) {
        seq->speculation_off = "no draft model is loaded";
        seq->n_draft = 0;
    } else if (seq->n_draft == 0) {
        seq->speculation_off = req->n_draft == 0 ? "K = 0 was asked for" : "K = 0 is the default";
    } else {
        seq->speculation_off = "";
    }
}

static int check_length(const struct sequence *seq, const struct job *job,
                        const struct sequence_defaults *defaults, struct error *err)
{
    int n = (int)job->prompt.n;
    if (n == 0) {
        return error_set(err, ERR_ARGUMENT, "the prompt is empty: give at least one token");
    }
    if (n >= defaults->context_limit || n >= seq->capacity) {
        return error_set(err, ERR_ARGUMENT,
                         "the prompt has %d tokens; the context of %d leaves no room for an answer",
                         n, defaults->context_limit);
    }
    return 0;
}

/* The client's name for the request, or a new one, which needs seq->admitted_us. */
static void name_request(struct sequence *seq, const char *name)
{
    if (name[0]) {
        snprintf(seq->request_id, sizeof seq->request_id, "%.63s", name);
    } else {
        snprintf(seq->request_id, sizeof seq->request_id, "gen-%016" PRIx64,
                 (uint64_t)seq->admitted_us * 0x9E3779B97F4A7C15u);
    }
}

static void reset_progress(struct sequence *seq, const struct job *job)
{
    seq->n_target_kv = seq->n_draft_kv = 0;
    seq->n_blocks_sent = 0;
    seq->n_counted = 0;
    seq->finish_reason = NULL;
    seq->counters = (struct generate_counters){0};
    seq->overhead = (struct histogram){0};
    seq->admitted_us = clock_now_us();
    seq->first_token_us = 0;
    seq->counters.queue_us = (uint64_t)(seq->admitted_us - job->arrived_us);
}

int sequence_begin(struct sequence *seq, struct job *job, const struct tokenizer *tok,
                   const struct sequence_defaults *defaults, struct error *err)
{
    const struct generate_request *req = &job->generate;
    int rc = 0;
    TRY(check_length(seq, job, defaults, err));
    TRY(sampling_check(&req->sampling, err));
    if (req->n_draft > DRAFT_MAX) {
        return error_set(err, ERR_ARGUMENT, "n_draft is %d, must be at most %d", req->n_draft,
                         DRAFT_MAX);
    }
    TRY(choose_rule(seq, req, err));
    TRY(choose_strategy(seq, req, defaults, err));
    choose_draft(seq, req, defaults);
    seq->sampling = req->sampling;
    if (seq->sampling.top_k >= defaults->vocab_size) seq->sampling.top_k = 0; /* cuts nothing */
    seq->seed = req->seed;
    if (!req->has_seed && getrandom(&seq->seed, sizeof seq->seed, 0) < 0) {
        seq->seed = (uint64_t)clock_now_ns();
    }
    TRY(output_open(&seq->output, tok, req->stop, req->n_stop, err));

    seq->n_prompt = seq->n_tokens = (int)job->prompt.n;
    memcpy(seq->tokens, job->prompt.data, job->prompt.n * sizeof *seq->tokens);
    int limit = defaults->context_limit < seq->capacity ? defaults->context_limit : seq->capacity;
    seq->end = limit;
    if (req->max_tokens > 0 && req->max_tokens < limit - seq->n_prompt) {
        seq->end = seq->n_prompt + req->max_tokens;
    }
    reset_progress(seq, job);
    name_request(seq, req->request_id);
    seq->job = job;
    seq->is_active = true;
out:
    return rc;
}

/* Appends one token; sets finish_reason when it is the last. */
static int append_token(struct sequence *seq, int32_t id, const struct end_ids *ends,
                        struct error *err)
{
    int rc = 0;
    seq->tokens[seq->n_tokens++] = id;
    bool is_end = !seq->job->generate.ignore_eos && end_ids_have(ends, id);
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
                    const struct end_ids *ends, struct error *err)
{
    int rc = 0, done = 0;
    uint32_t text_ends[DRAFT_MAX + 1];
    char rejected_text[REJECTED_BYTES] = "";
    for (; done < commit->n && !seq->finish_reason; done++) {
        TRY(append_token(seq, commit->ids[done], ends, err));
        text_ends[done] = (uint32_t)output_ready(&seq->output);
    }
    if (!seq->first_token_us) seq->first_token_us = clock_now_us();
    bool show = seq->job->generate.show_drafts && commit->rejected >= 0 && done == commit->n;
    if (show) {
        TRY(tokenizer_token_text(tok, commit->rejected, rejected_text, sizeof rejected_text, err));
    }
    size_t ready = output_ready(&seq->output);
    for (int i = 0; i < done; i++) {
        if (text_ends[i] > ready) text_ends[i] = (uint32_t)ready; /* a stop string cut it later */
    }
    const struct generate_tokens tokens = {
        .n = done,
        .ids = commit->ids,
        .origins = commit->origins,
        .text_ends = text_ends,
        .text = seq->output.text,
        .text_len = ready,
        .rejected_id = show ? commit->rejected : -1,
        .rejected_text = rejected_text,
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
        .finish_reason = seq->finish_reason,
        .stop_match = seq->output.matched ? seq->output.matched : "",
        .rule = seq->rule->name,
        .speculation_off = why_plain(seq),
        .request_id = seq->request_id,
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
    struct reply *reply = seq->job->reply;
    job_end(seq->job, reply->ops->summary(reply, &summary, &err), &err);
}

void sequence_fail(struct sequence *seq, const struct error *why)
{
    log_line(LOG_LEVEL_WARN, "request_failed", "request_id=%s reason=%s tokens=%d text=\"%s\"",
             seq->request_id, error_name(why->code), seq->n_tokens - seq->n_prompt, why->text);
    job_end(seq->job, why->code, why);
}

void sequence_end(struct sequence *seq, struct block_pool *target_pool, struct drafter *drafter)
{
    block_table_release(&seq->target_blocks, target_pool);
    if (drafter) drafter_forget(drafter, seq->slot);
    output_close(&seq->output);
    job_free(seq->job);
    seq->job = NULL;
    seq->is_active = false;
}
