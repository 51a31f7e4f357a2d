/* The second half of a round: answers are accepted and committed. */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "coordinator/kv/prefix_cache.h"
#include "coordinator/round/parts.h"
#include "coordinator/round/score.h"
#include "coordinator/sequence/sequence.h"

enum { ECHO_TOKENS = 4096 /* of a prompt in one message */ };

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Guesses besides the chain: siblings, guesses behind them, and a branch. */
static int count_besides(const struct round_lane *lane)
{
    return lane->tree ? lane->tree->guesses.n - lane->draft.n : 0;
}

/* Of them, those that are of the branch alone. */
static int count_branch(const struct round_lane *lane)
{
    int n = 0;
    for (int i = 0; lane->tree && i < lane->tree->guesses.n; i++) {
        n += lane->tree->kinds[i] == LANE_TREE_BRANCH ? 1 : 0;
    }
    return n;
}

/* Who made the lane's branch. */
static const struct drafter *branch_drafter(const struct round_part *part,
                                            const struct round_lane *lane)
{
    if (lane->plan.window) return lane->plan.window;
    return part->tools->drafters->finders[lane->plan.branch.offer.finder];
}

/* Guesses from what the request predicts: the chain, or a branch beside that of the draft. */
static void count_predicted(const struct round_part *part, const struct round_lane *lane,
                            int n_accepted)
{
    const struct drafter *predicted = part->tools->drafters->predicted;
    struct generate_counters *c = &lane->seq->counters;
    if (!predicted) return;
    if (lane->draft.n > 0 && lane->plan.drafter == predicted) {
        c->predicted += (uint32_t)lane->draft.n;
        c->predicted_accepted += (uint32_t)n_accepted;
    } else if (count_branch(lane) > 0 && branch_drafter(part, lane) == predicted) {
        c->predicted += (uint32_t)count_branch(lane);
        c->predicted_accepted += (uint32_t)lane->path.n_branch;
    }
}

static void count(struct sequence *seq, const struct round_lane *lane, int n_accepted)
{
    const struct draft *draft = &lane->draft;
    struct generate_counters *c = &seq->counters;
    c->rounds++;
    c->drafted_ahead += (uint32_t)lane->n_ahead;
    c->drafted += (uint32_t)draft->n;
    c->accepted += (uint32_t)n_accepted;
    c->rejections += n_accepted < draft->n ? 1 : 0;
    c->staged += (uint32_t)draft->n_staged;
    c->appended += (uint32_t)draft->n_appended;
    if (draft->n_appended > 0 && n_accepted > round_n_own(lane)) {
        c->appended_accepted += (uint32_t)(n_accepted - round_n_own(lane));
    }
    c->siblings += (uint32_t)count_besides(lane);
    c->siblings_accepted += (uint32_t)(lane->n_accepted - n_accepted);
    int n_own = round_is_found(lane) ? 0 : round_n_own(lane); /* the others were found */
    c->found += (uint32_t)(draft->n - n_own);
    c->found_accepted += n_accepted > n_own ? (uint32_t)(n_accepted - n_own) : 0;
    struct job_work *work = &seq->job->work;
    work->n_rounds++;
    work->n_drafted += draft->n;
    work->n_accepted += n_accepted;
    work->n_rejections += n_accepted < draft->n ? 1 : 0;
    for (int i = 0; i < draft->n; i++) {
        c->drafted_at[i]++;
        c->tested_at[i] += i <= n_accepted ? 1 : 0;
        c->accepted_at[i] += i < n_accepted ? 1 : 0;
    }
}

static void accept_chain(struct round_lane *lane, const struct target_row *rows,
                         int32_t ids[DRAFT_MAX + 1], struct accept_result *result)
{
    struct sequence *seq = lane->seq;
    const struct draft *draft = &lane->draft;
    const struct rng_address at = {seq->seed, (uint32_t)seq->n_tokens, (uint32_t)seq->n_tokens};
    *result = seq->rule->accept(rows, draft->q, draft->tokens, draft->n, &at);
    lane->path = (struct lane_path){.n_chain = result->n_accepted};
    memcpy(ids, draft->tokens, (size_t)result->n_accepted * sizeof *ids);
}

/* The accepted path's blocks become the text's, and its rows those of a chain. */
static int accept_tree(struct round_part *part, struct round_lane *lane,
                       const struct target_row *rows, int32_t ids[DRAFT_MAX + 1],
                       struct target_row path_rows[DRAFT_MAX + 1], struct accept_result *result,
                       struct error *err)
{
    struct sequence *seq = lane->seq;
    const struct tree *guesses = &lane->tree->guesses;
    const struct rng_address at = {seq->seed, (uint32_t)seq->n_tokens, (uint32_t)seq->n_tokens};
    double *scratch = arena_take(&part->arena, tree_scratch_count(guesses, rows), sizeof *scratch);
    if (!scratch) return error_set(err, ERR_NO_MEMORY, "no room to accept a tree of guesses");
    struct tree_result tree = seq->rule->accept_tree(guesses, rows, &at, scratch);
    path_rows[0] = rows[0];
    for (int i = 0; i < tree.n_accepted; i++) {
        lane->accepted[i] = (uint8_t)tree.path[i];
        ids[i] = guesses->tokens[tree.path[i]];
        path_rows[i + 1] = rows[1 + tree.path[i]];
    }
    /* Even where the text ends before all of them: what is published of its KV stands behind the
     * tokens that are there. */
    memcpy(seq->tokens + seq->n_tokens, ids, (size_t)tree.n_accepted * sizeof *ids);
    int n = tree.n_accepted, last = n > 0 ? tree.path[n - 1] : -1;
    int path = last < 0 ? 0 : lane->tree->shape.first_path[last];
    int changed =
        block_tails_accept(lane->plan.tails, &seq->target_blocks, part->tools->target_pool, path);
    if (seq->n_blocks_sent > changed) seq->n_blocks_sent = changed;
    *result = (struct accept_result){n, tree.next};
    lane->path = lane_tree_path(lane->tree, &lane->draft, &tree);
    return 0;
}

/* Whether the token behind the n_accepted guesses that stay is in the place of others that were
 * tried there. */
static bool has_replaced(const struct round_lane *lane, int n_accepted)
{
    if (!lane->tree) return n_accepted < lane->draft.n;
    int last = n_accepted > 0 ? lane->accepted[n_accepted - 1] : -1;
    return tree_child(&lane->tree->guesses, last) >= 0;
}

/* Accepts, then commits n_accepted guesses and the token after them. */
static int commit_lane(struct round_part *part, struct round_lane *lane,
                       const struct target_row *rows, struct error *err)
{
    struct sequence *seq = lane->seq;
    const struct draft *draft = &lane->draft;
    int32_t ids[DRAFT_MAX + 1];
    enum token_origin origins[DRAFT_MAX + 1];
    struct target_row path_rows[DRAFT_MAX + 1];
    struct accept_result result = {0, -1};
    if (lane->tree) {
        int rc = accept_tree(part, lane, rows, ids, path_rows, &result, err);
        if (rc) return rc;
        rows = path_rows;
    } else {
        accept_chain(lane, rows, ids, &result);
    }
    assert(rows[result.n_accepted].n > 0 || rows[result.n_accepted].outside_mass > 0);
    for (int i = 0; i < result.n_accepted; i++) {
        origins[i] = TOKEN_ACCEPTED;
    }
    bool is_rejected = lane->path.n_chain < draft->n;
    ids[result.n_accepted] = result.next;
    origins[result.n_accepted] = draft->n == 0                           ? TOKEN_PLAIN
                                 : has_replaced(lane, result.n_accepted) ? TOKEN_REPLACEMENT
                                                                         : TOKEN_BONUS;
    lane->n_accepted = result.n_accepted;
    count(seq, lane, lane->path.n_chain);
    count_predicted(part, lane, lane->path.n_chain);
    int read = seq->n_tokens + lane->path.n_chain; /* by the draft, and right */
    seq->n_target_kv = seq->n_tokens + result.n_accepted;
    if (seq->n_draft_kv > read) seq->n_draft_kv = read;
    const struct token_logprob *logprobs = NULL;
    if (seq->job->generate.logprobs >= 0) {
        logprobs =
            score_list_logprobs(rows, ids, result.n_accepted + 1, part->tools->tok, &part->arena);
        if (!logprobs) return error_set(err, ERR_NO_MEMORY, "no room for the log-probabilities");
    }
    const struct generate_round *round = NULL;
    if (seq->job->generate.show_drafts) {
        round = round_show(part, lane, rows, result.next);
        if (!round) return error_set(err, ERR_NO_MEMORY, "no room to show the guesses");
    }
    const struct commit commit = {
        .logprobs = logprobs,
        .round = round,
        .ids = ids,
        .origins = origins,
        .n = result.n_accepted + 1,
        .rejected = is_rejected ? draft->tokens[lane->path.n_chain] : -1,
        .rejected_at = lane->path.n_chain,
    };
    return sequence_commit(seq, &commit, part->tools->tok, err);
}

/* Where the time of the step went, charged to each sequence that shared it. */
static void charge(const struct round_part *part, const struct round_lane *lane, int64_t round_us)
{
    const struct target_cost *cost = &part->cost;
    struct sequence *seq = lane->seq;
    struct generate_counters *c = &seq->counters;
    c->verify_us += (uint64_t)cost->compute_us;
    c->collective_us += (uint64_t)cost->collective_us;
    int64_t wire = cost->total_us - cost->compute_us - cost->collective_us;
    c->wire_us += wire > 0 ? (uint64_t)wire : 0;
    c->rounds_us += (uint64_t)round_us;
    if (part->plan.expected_us > 0) {
        c->expected_us += (uint64_t)part->plan.expected_us;
        c->planned_us += (uint64_t)round_us;
    }
    c->draft_us += (uint64_t)(part->draft_us + part->read_us);
    int64_t overhead = round_us - part->draft_us - part->read_us - cost->compute_us -
                       cost->collective_us - round_late_us(part);
    histogram_add(&seq->overhead, overhead > 0 ? (uint64_t)overhead : 0);
    c->bytes_sent += cost->bytes_sent;
    c->bytes_received += cost->bytes_received;
    c->rows += (uint64_t)lane->n_wants;
    c->more_rows += cost->more_rows;
    c->lanes += (uint64_t)part->n_step_lanes;
    c->step_tokens += (uint64_t)part->n_tokens;
}

/* The tokens of an echoed prompt that have no scores. */
static int echo_plain(struct round_part *part, struct sequence *seq, struct error *err)
{
    int rc = 0;
    while (seq->n_scored < seq->n_prompt && !rc) {
        int end = least(seq->n_scored + ECHO_TOKENS, seq->n_prompt);
        rc = score_send_plain(seq, seq->n_scored, end, part->tools->tok, &part->arena, err);
    }
    return rc;
}

/* The prompt's scores, if this lane has any, and before the first token of the answer all of the
 * prompt, if it is to be echoed. */
static int settle_scores(struct round_part *part, struct round_lane *lane, struct error *err)
{
    struct sequence *seq = lane->seq;
    int rc = 0;
    if (lane->plan.n_scored) {
        TRY(score_send(
            &lane->plan, &part->wants[lane->first_want], &part->result.slices[lane->first_want],
            target_description(part->tools->target), part->tools->tok, &part->arena, err));
    }
    bool is_echoed = seq->job->generate.echo && seq->index == 0;
    if (is_echoed && lane->plan.is_last) rc = echo_plain(part, seq, err);
out:
    return rc;
}

/* The sequence's first tokens; those of its job, too, unless it is one of its further sequences. */
static void note_prompt(struct round_part *part, struct sequence *seq)
{
    struct job *job = seq->job;
    int n_reused = (int)seq->counters.target_reused;
    int64_t first_us = -1;
    if (!job->first_token_us) {
        job->first_token_us = seq->first_token_us;
        job->work.n_reused = n_reused;
        first_us = job->first_token_us - job->arrived_us;
    }
    signals_prompt(part->tools->signals, seq->n_prompt, n_reused, first_us);
}

/* What the round has added, n_before and last_us being from before it. */
static void note_commit(struct round_part *part, const struct round_lane *lane, int n_before,
                        int64_t last_us)
{
    struct sequence *seq = lane->seq;
    int n_branch = count_branch(lane);
    struct signals_commit commit = {
        .n_drafted = lane->draft.n,
        .n_accepted = lane->path.n_chain,
        .n_appended = lane->draft.n_appended,
        .n_siblings = count_besides(lane) - n_branch,
        .n_siblings_accepted = lane->n_accepted - lane->path.n_chain - lane->path.n_branch,
        .n_branch = n_branch,
        .n_branch_accepted = lane->path.n_branch,
        .drafter = lane->draft.n > 0 ? lane->plan.drafter->ops->counted : SIGNALS_MODEL,
        .n_tokens = seq->n_tokens - n_before,
        .gap_us = last_us ? seq->last_token_us - last_us : 0,
    };
    if (n_branch > 0) commit.branch_drafter = branch_drafter(part, lane)->ops->counted;
    signals_commit(part->tools->signals, &commit);
    if (!last_us) note_prompt(part, seq);
}

/* What the target says behind each token that it has read in this step, whether it stays or not.
 * The tokens are committed: if the round could still be repeated, its coins would judge guesses
 * that depend on them. */
static void observe(struct round_part *part, const struct round_lane *lane,
                    const struct target_row *rows)
{
    const struct sequence *seq = lane->seq;
    int32_t before[TREE_NODES_MAX + 1], parents[TREE_NODES_MAX + 1];
    int n = lane->tree ? lane->tree->guesses.n : lane->draft.n;
    const int32_t *guesses = lane->tree ? lane->tree->guesses.tokens : lane->draft.tokens;
    const struct draft_rows said = {rows, before, parents, n + 1};
    if (!drafters_observes(part->tools->drafters)) return;
    before[0] = seq->tokens[lane->draft.base - 1];
    parents[0] = -1;
    memcpy(before + 1, guesses, (size_t)n * sizeof *before);
    for (int i = 0; i < n; i++) {
        parents[1 + i] = lane->tree ? 1 + lane->tree->guesses.parents[i] : i;
    }
    drafters_observe(part->tools->drafters, seq, &said);
}

/* After the step: the sequence's rows become tokens. */
static int settle_lane(struct round_part *part, struct round_lane *lane, int64_t settle_us,
                       struct error *err)
{
    struct sequence *seq = lane->seq;
    int rc = 0;
    seq->n_blocks_sent = seq->target_blocks.n;
    TRY(settle_scores(part, lane, err));
    if (!lane->plan.is_last) {
        seq->n_target_kv += lane->plan.n_tokens;
        goto out;
    }
    bool is_first = seq->n_tokens == seq->n_prompt;
    int n_before = seq->n_tokens;
    int64_t accept_us = clock_now_us(), last_us = seq->last_token_us;
    const struct target_row *rows = &part->result.rows[lane->first_want + lane->plan.n_scored];
    TRY(commit_lane(part, lane, rows, err));
    lane->is_settled = true;
    observe(part, lane, rows);
    note_commit(part, lane, n_before, last_us);
    int64_t now_us = clock_now_us();
    if (is_first) {
        seq->counters.first_round_tokens = (uint32_t)(seq->n_tokens - seq->n_prompt);
    } else {
        charge(part, lane, part->prepare_us + settle_us - part->verify_us + now_us - accept_us);
        int64_t merge_us = settle_us - part->verify_us - part->cost.total_us;
        seq->counters.accept_us += (uint64_t)(now_us - accept_us + merge_us);
    }
out:
    return rc;
}

/* Others whose texts begin alike may use what has been computed, and what no row will see any more
 * is given back. */
static void publish(struct round_part *part, struct sequence *seq)
{
    struct block_pool *pool = part->tools->target_pool;
    prefix_cache_publish(&seq->target_blocks, pool, seq->tokens, seq->n_target_kv);
    block_table_give_up(&seq->target_blocks, pool, seq->n_target_kv);
    if (!seq->is_score) drafters_commit(part->tools->drafters, seq);
}

static void settle_lanes(struct round_part *part)
{
    int64_t settle_us = clock_now_us();
    for (int i = 0; i < part->n_lanes; i++) {
        struct round_lane *lane = &part->lanes[i];
        if (lane->err.code || lane->seq->job->is_over) continue; /* it has ended in the step */
        const struct error *why = part->result.lane_errors[lane->step_lane];
        if (why) {
            lane->err = *why;
            lane->end = JOB_END_FAILED;
        } else if (settle_lane(part, lane, settle_us, &lane->err)) {
            lane->end = job_end_of_error(lane->err.code);
        } else {
            lane->err.code = 0;
            publish(part, lane->seq);
        }
    }
}

static bool has_guesses(const struct round_part *part)
{
    for (int i = 0; i < part->n_lanes; i++) {
        if (part->lanes[i].draft.n > 0) return true;
    }
    return false;
}

/* Where the round's time went, and the size of its step. */
static void record(const struct round_part *part)
{
    const struct target_cost *cost = &part->cost;
    int64_t ranks_us = cost->compute_us + cost->collective_us;
    const struct signals_round round = {
        .part_us = {[SIGNALS_PLAN] = part->prepare_us - part->draft_us - part->read_us,
                    [SIGNALS_DRAFT] = part->draft_us + part->read_us,
                    [SIGNALS_WIRE] = cost->total_us - ranks_us - round_late_us(part),
                    [SIGNALS_VERIFY] = cost->compute_us,
                    [SIGNALS_COLLECTIVE] = cost->collective_us,
                    [SIGNALS_ACCEPT] = clock_now_us() - part->verify_us - cost->total_us},
        .n_tokens = part->n_tokens,
        .n_rows = part->n_wants,
        .n_lanes = part->n_step_lanes,
        .bytes_sent = cost->bytes_sent,
        .bytes_received = cost->bytes_received,
        .expected_us = (int64_t)part->plan.expected_us,
        .has_guesses = has_guesses(part),
    };
    signals_round(part->tools->signals, &round);
}

void round_settle(struct round_part *part)
{
    settle_lanes(part);
    record(part);
    round_teach(part);
}
