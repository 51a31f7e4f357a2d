/* One sequence. */
#include "coordinator/sequence.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"

enum { FIXED_DEFAULT = 4 }; /* K of strategy fixed where nobody says */

int sequence_open(struct sequence *seq, int slot, int capacity, int target_table, int draft_table,
                  struct error *err)
{
    int rc = 0;
    *seq = (struct sequence){.slot = slot, .capacity = capacity};
    /* One round may hold K guesses and their successor past the last committed token. */
    TRY(mem_array(&seq->tokens, (size_t)capacity + DRAFT_MAX + 1, sizeof *seq->tokens, err));
    TRY(block_table_open(&seq->target_blocks, target_table, err));
    TRY(block_table_open(&seq->draft_blocks, draft_table, err));
out:
    if (rc) sequence_close(seq);
    return rc;
}

void sequence_close(struct sequence *seq)
{
    job_free(seq->job);
    if (seq->is_active) output_close(&seq->output);
    block_table_close(&seq->target_blocks);
    block_table_close(&seq->draft_blocks);
    free(seq->tokens);
    *seq = (struct sequence){0};
}

static int choose_rule(struct sequence *seq, const struct generate_request *req, struct error *err)
{
    if (req->rule[0]) {
        int rc = accept_rule_parse(req->rule, &seq->rule, err);
        if (rc) return rc;
    } else if (req->sampling.temperature == 0) {
        seq->rule = RULE_GREEDY;
    } else {
        seq->rule = req->has_seed ? RULE_COUPLED : RULE_REJECTION;
    }
    if (seq->rule == RULE_GREEDY && req->sampling.temperature != 0) {
        return error_set(
            err, ERR_ARGUMENT,
            "rule greedy means temperature 0, but the temperature is %g; set it to 0 or "
            "choose rejection, coupled or block",
            (double)req->sampling.temperature);
    }
    return 0;
}

/* Who names K wants that K; who names a threshold wants to stop there. */
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
    seq->plan = (struct planner_sequence){.strategy = strategy};
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
    seq->n_draft = req->n_draft >= 0 ? req->n_draft
                                     : sequence_default_k(seq->plan.strategy, defaults->n_draft);
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

/* The client's name for it, or one of our own; seq->admitted_us is set. */
static void name_request(struct sequence *seq, const char *name)
{
    if (name[0]) {
        snprintf(seq->request_id, sizeof seq->request_id, "%.63s", name);
    } else {
        snprintf(seq->request_id, sizeof seq->request_id, "gen-%016" PRIx64,
                 (uint64_t)seq->admitted_us * 0x9E3779B97F4A7C15u);
    }
}

static void begin_counting(struct sequence *seq, const struct job *job)
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
    begin_counting(seq, job);
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

int sequence_commit(struct sequence *seq, const int32_t *ids, const enum token_origin *origins,
                    int n, int32_t rejected, const struct tokenizer *tok,
                    const struct end_ids *ends, struct buffer *scratch, struct error *err)
{
    int rc = 0, done = 0;
    uint32_t text_ends[DRAFT_MAX + 1];
    char rejected_text[256] = "";
    for (; done < n && !seq->finish_reason; done++) {
        TRY(append_token(seq, ids[done], ends, err));
        text_ends[done] = (uint32_t)output_ready(&seq->output);
    }
    if (!seq->first_token_us) seq->first_token_us = clock_now_us();
    bool show = seq->job->generate.show_drafts && rejected >= 0 && done == n;
    if (show) TRY(tokenizer_token_text(tok, rejected, rejected_text, sizeof rejected_text, err));
    size_t ready = output_ready(&seq->output);
    for (int i = 0; i < done; i++) {
        if (text_ends[i] > ready) text_ends[i] = (uint32_t)ready; /* a later stop string cut it */
    }
    const struct generate_tokens tokens = {
        .n = done,
        .ids = ids,
        .origins = origins,
        .text_ends = text_ends,
        .text = seq->output.text,
        .text_len = ready,
        .rejected_id = show ? rejected : -1,
        .rejected_text = rejected_text,
    };
    const struct generate_reply reply = {.tokens = &tokens};
    TRY(generate_reply_encode(scratch, &reply, err));
    output_drop(&seq->output, ready);
    TRY(rpc_call_send(seq->job->call, scratch->data, scratch->len, err));
out:
    return rc;
}

/* Why a text has no guesses though they were allowed. */
static const char *why_plain(const struct sequence *seq)
{
    bool is_planned = seq->plan.strategy == STRATEGY_PLANNED && seq->n_draft > 0;
    if (seq->speculation_off[0] || seq->counters.drafted > 0 || !is_planned) {
        return seq->speculation_off;
    }
    if (seq->n_tokens - seq->n_prompt <= 1) return "one token leaves nothing to guess";
    return "the planner found plain decoding to be faster";
}

void sequence_finish(struct sequence *seq, const char *arithmetic, const struct planner *planner,
                     struct buffer *scratch)
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
        .rule = accept_rule_name(seq->rule),
        .speculation_off = why_plain(seq),
        .request_id = seq->request_id,
        .arithmetic = arithmetic,
        .prompt_tokens = seq->n_prompt,
        .completion_tokens = seq->n_tokens - seq->n_prompt,
        .n_draft = seq->n_draft,
        .strategy = seq->plan.strategy,
        .threshold = seq->threshold,
        .estimates = planner_estimates(planner, &seq->plan),
        .seed = seq->seed,
        .prompt_ids = seq->tokens,
        .counters = *c,
    };
    const struct generate_reply reply = {.summary = &summary};
    int rc = generate_reply_encode(scratch, &reply, &err);
    if (!rc) rc = rpc_call_send(seq->job->call, scratch->data, scratch->len, &err);
    rpc_call_finish(seq->job->call, rc, rc ? err.text : "");
}

void sequence_fail(struct sequence *seq, const struct error *why)
{
    log_line(LOG_LEVEL_WARN, "request_failed", "request_id=%s reason=%s tokens=%d text=\"%s\"",
             seq->request_id, error_name(why->code), seq->n_tokens - seq->n_prompt, why->text);
    rpc_call_finish(seq->job->call, why->code, why->text);
}

void sequence_end(struct sequence *seq, struct block_pool *target_pool,
                  struct block_pool *draft_pool)
{
    block_table_release(&seq->target_blocks, target_pool);
    if (draft_pool) block_table_release(&seq->draft_blocks, draft_pool);
    output_close(&seq->output);
    job_free(seq->job);
    seq->job = NULL;
    seq->is_active = false;
}
