/* Commits what a lane has accepted: it becomes text, is streamed, and is counted for its request
 * and its drafter. */
#include <string.h>

#include "base/clock.h"
#include "base/least.h"
#include "coordinator/kv/prefix_cache.h"
#include "coordinator/round/round.h"
#include "coordinator/round/score.h"
#include "coordinator/sequence/sequence.h"

/* Guesses that are of the branch alone. */
static int count_branch(const struct guess_tree *draft)
{
    return draft->n - guess_tree_count(draft, GUESS_CHAIN | GUESS_SIBLING | GUESS_GROWN);
}

/* Drafter of the lane's branch. */
static const struct drafter *branch_drafter(const struct round *r, const struct round_lane *lane)
{
    if (lane->plan.window) return lane->plan.window;
    return r->tools->drafters->finders[lane->plan.branch.offer.finder];
}

/* The lane's guesses and those that stay, for its request. */
static void count(const struct round *r, const struct round_lane *lane)
{
    const struct guess_tree *draft = &lane->draft;
    struct generate_counters *c = &lane->seq->counters;
    struct job_work *work = &lane->seq->job->work;
    int n_accepted = lane->path.n_chain, n_branch = count_branch(draft);
    int n_appended = guess_tree_count(draft, GUESS_APPENDED);
    bool is_rejected = n_accepted < draft->n_chain;
    c->rounds++;
    c->drafted += (uint32_t)draft->n_chain;
    c->accepted += (uint32_t)n_accepted;
    c->rejections += is_rejected ? 1 : 0;
    c->staged += (uint32_t)guess_tree_count(draft, GUESS_STAGED);
    c->appended += (uint32_t)n_appended;
    if (n_appended > 0 && n_accepted > round_n_own(lane)) {
        c->appended_accepted += (uint32_t)(n_accepted - round_n_own(lane));
    }
    c->siblings += (uint32_t)(draft->n - draft->n_chain);
    c->siblings_accepted += (uint32_t)(lane->n_accepted - n_accepted);
    int n_own = round_is_found(lane) ? 0 : round_n_own(lane); /* the others were found */
    c->found += (uint32_t)(draft->n_chain - n_own);
    c->found_accepted += n_accepted > n_own ? (uint32_t)(n_accepted - n_own) : 0;
    for (int i = 0; i < draft->n_chain; i++) {
        c->drafted_at[i]++;
        c->tested_at[i] += i <= n_accepted ? 1 : 0;
        c->accepted_at[i] += i < n_accepted ? 1 : 0;
    }
    /* From what the request brings: the chain, or a branch beside that of the draft. */
    if (draft->n_chain > 0 && lane->plan.drafter->row->is_of_request) {
        c->predicted += (uint32_t)draft->n_chain;
        c->predicted_accepted += (uint32_t)n_accepted;
    } else if (n_branch > 0 && branch_drafter(r, lane)->row->is_of_request) {
        c->predicted += (uint32_t)n_branch;
        c->predicted_accepted += (uint32_t)lane->path.n_branch;
    }
    work->n_rounds++;
    work->n_drafted += draft->n_chain;
    work->n_accepted += n_accepted;
    work->n_rejections += is_rejected ? 1 : 0;
}

/* The text grows by the guesses that stay and the token after them, which may be in the place of
 * others that were tried there. */
static int commit(struct round *r, struct round_lane *lane, const struct round_accepted *a,
                  struct error *err)
{
    struct sequence *seq = lane->seq;
    const struct guess_tree *draft = &lane->draft;
    enum token_origin origins[DRAFT_MAX + 1];
    for (int i = 0; i < a->n; i++) {
        origins[i] = TOKEN_ACCEPTED;
    }
    int n_chain = lane->path.n_chain, last = a->n > 0 ? lane->accepted[a->n - 1] : -1;
    bool has_replaced = guess_tree_child(draft, last) >= 0;
    origins[a->n] = draft->n_chain == 0 ? TOKEN_PLAIN
                    : has_replaced      ? TOKEN_REPLACEMENT
                                        : TOKEN_BONUS;
    /* All guesses that stay, even where the text ends earlier: published KV belongs to the tokens
     * that are there. */
    memcpy(seq->tokens + seq->n_tokens, a->ids, (size_t)a->n * sizeof *a->ids);
    int read = seq->n_tokens + n_chain; /* by the draft models, and right */
    seq->n_target_kv = seq->n_tokens + a->n;
    for (int m = 0; m < PLANNER_MODELS; m++) {
        seq->n_draft_kv[m] = least(seq->n_draft_kv[m], read);
    }
    const struct token_logprob *logprobs = NULL;
    if (seq->job->generate.logprobs >= 0) {
        logprobs = score_list_logprobs(a->rows, a->ids, a->n + 1, r->tools->tok, &r->arena);
        if (!logprobs) return error_set(err, ERR_NO_MEMORY, "no room for the log-probabilities");
    }
    const struct generate_round *trace = NULL;
    if (seq->job->generate.show_drafts) {
        trace = round_trace(r, lane, a);
        if (!trace) return error_set(err, ERR_NO_MEMORY, "no room to show the guesses");
    }
    const struct commit commit = {
        .logprobs = logprobs,
        .round = trace,
        .ids = a->ids,
        .origins = origins,
        .n = a->n + 1,
        .rejected = n_chain < draft->n_chain ? draft->tokens[n_chain] : -1,
        .rejected_at = n_chain,
    };
    return sequence_commit(seq, &commit, r->tools->tok, err);
}

/* Shows the finders what the target says after each token of this step, kept or not.
 * The tokens are committed: if the round could still be repeated, its coins would judge guesses
 * that depend on them. */
static void observe(struct round *r, const struct round_lane *lane, const struct target_row *rows)
{
    const struct sequence *seq = lane->seq;
    const struct guess_tree *draft = &lane->draft;
    int32_t before[TREE_NODES_MAX + 1], parents[TREE_NODES_MAX + 1];
    const struct draft_rows said = {rows, before, parents, draft->n + 1};
    if (!drafters_observes(r->tools->drafters)) return;
    before[0] = seq->tokens[draft->base - 1];
    parents[0] = -1;
    for (int i = 0; i < draft->n; i++) {
        before[1 + i] = draft->tokens[i];
        parents[1 + i] = 1 + draft->parents[i];
    }
    drafters_observe_rows(r->tools->drafters, seq, &said);
}

/* A drafter's label in the metrics, which have one for each row of the table of drafters. */
static enum signals_drafter counted(const struct drafter *drafter)
{
    return (enum signals_drafter)drafter_number(drafter);
}

/* Notes what the round has added, for the metrics; n_before and last_us are from before it. The
 * sequence's first tokens are those of its job, too, unless it is one of its further sequences. */
static void note_commit(struct round *r, const struct round_lane *lane, int n_before,
                        int64_t last_us)
{
    struct sequence *seq = lane->seq;
    struct job *job = seq->job;
    const struct guess_tree *draft = &lane->draft;
    int n_branch = count_branch(draft);
    struct signals_commit commit = {
        .n_drafted = draft->n_chain,
        .n_accepted = lane->path.n_chain,
        .n_appended = guess_tree_count(draft, GUESS_APPENDED),
        .n_siblings = draft->n - draft->n_chain - n_branch,
        .n_siblings_accepted = lane->n_accepted - lane->path.n_chain - lane->path.n_branch,
        .n_branch = n_branch,
        .n_branch_accepted = lane->path.n_branch,
        .n_tokens = seq->n_tokens - n_before,
        .gap_us = last_us ? seq->last_token_us - last_us : 0,
    };
    if (commit.n_drafted > 0) commit.drafter = counted(lane->plan.drafter);
    if (commit.n_appended > 0) commit.appended_drafter = counted(r->tools->appended->finder);
    if (n_branch > 0) commit.branch_drafter = counted(branch_drafter(r, lane));
    signals_commit(r->tools->signals, &commit);
    if (last_us) return;
    int n_reused = (int)seq->counters.target_reused;
    int64_t first_us = -1;
    if (!job->first_token_us) {
        job->first_token_us = seq->first_token_us;
        job->work.n_reused = n_reused;
        first_us = job->first_token_us - job->arrived_us;
    }
    signals_prompt(r->tools->signals, seq->n_prompt, n_reused, first_us);
}

/* Charges the time of the step to each sequence that shared it. */
static void charge(const struct round *r, const struct round_lane *lane, int64_t round_us)
{
    const struct target_cost *cost = &r->cost;
    struct sequence *seq = lane->seq;
    struct generate_counters *c = &seq->counters;
    c->verify_us += (uint64_t)cost->compute_us;
    c->collective_us += (uint64_t)cost->collective_us;
    int64_t wire = cost->total_us - cost->compute_us - cost->collective_us;
    c->wire_us += wire > 0 ? (uint64_t)wire : 0;
    c->rounds_us += (uint64_t)round_us;
    if (r->plan.expected_us > 0) {
        c->expected_us += (uint64_t)r->plan.expected_us;
        c->planned_us += (uint64_t)round_us;
    }
    c->draft_us += (uint64_t)(r->draft_us + r->read_us);
    int64_t overhead = round_us - r->draft_us - r->read_us - cost->compute_us - cost->collective_us;
    histogram_add(&seq->overhead, overhead > 0 ? (uint64_t)overhead : 0);
    c->bytes_sent += cost->bytes_sent;
    c->bytes_received += cost->bytes_received;
    c->rows += (uint64_t)lane->n_wants;
    c->more_rows += cost->more_rows;
    c->lanes += (uint64_t)r->n_step_lanes;
    c->step_tokens += (uint64_t)r->n_tokens;
}

int round_commit(struct round *r, struct round_lane *lane, const struct round_accepted *a,
                 struct error *err)
{
    struct sequence *seq = lane->seq;
    struct block_pool *pool = r->tools->target_pool;
    int rc = 0, first = seq->n_target_kv;
    if (!lane->plan.is_last) {
        seq->n_target_kv += lane->plan.n_tokens;
    } else {
        bool is_first = seq->n_tokens == seq->n_prompt;
        int n_before = seq->n_tokens;
        int64_t last_us = seq->last_token_us;
        count(r, lane);
        TRY(commit(r, lane, a, err));
        lane->is_committed = true;
        observe(r, lane, a->all_rows);
        round_show_look_ahead(r, lane, a->all_rows);
        note_commit(r, lane, n_before, last_us);
        int64_t now_us = clock_now_us();
        if (is_first) {
            seq->counters.first_round_tokens = (uint32_t)(seq->n_tokens - seq->n_prompt);
        } else {
            int64_t step_us = r->accept_us - r->verify_us, own_us = now_us - a->begin_us;
            charge(r, lane, r->prepare_us + step_us + own_us);
            seq->counters.accept_us += (uint64_t)(own_us + step_us - r->cost.total_us);
        }
    }
    /* Others whose texts begin alike may use what has been computed, and what no row will see any
     * more is given back. */
    prefix_cache_publish(&seq->target_blocks, pool, seq->tokens, seq->n_target_kv);
    block_table_give_up(&seq->target_blocks, pool, seq->n_target_kv);
    round_show_features(r, lane, first);
    if (!seq->is_score) drafters_commit(r->tools->drafters, seq);
out:
    return rc;
}
