/* Decides which guesses of a lane stay, and the token after them: the request's rule does, with the
 * rows of p, the guesses with their q and the address of the coins (speculation/accept/tree.h). */
#include <assert.h>

#include "base/clock.h"
#include "coordinator/round/round.h"
#include "coordinator/round/score.h"
#include "coordinator/sequence/sequence.h"
#include "speculation/accept/rules.h"

enum { ECHO_TOKENS = 4096 /* of a prompt in one message */ };

/* The prompt's scores, if this lane has any, and before the first token of the answer all of the
 * prompt, if it is to be echoed. */
static int send_scores(struct round *r, struct round_lane *lane, struct error *err)
{
    struct sequence *seq = lane->seq;
    const struct tokenizer *tok = r->tools->tok;
    int rc = 0;
    if (lane->plan.n_scored) {
        struct score_features features;
        TRY(round_list_features(r, lane, &features, err));
        TRY(score_send(&lane->plan, &r->wants[lane->first_want],
                       &r->result.slices[lane->first_want], target_description(r->tools->target),
                       &features, tok, &r->arena, err));
    }
    bool is_echoed = seq->job->generate.echo && seq->index == 0;
    while (is_echoed && lane->plan.is_last && seq->n_scored < seq->n_prompt) {
        bool is_long = seq->n_prompt - seq->n_scored > ECHO_TOKENS;
        int end = is_long ? seq->n_scored + ECHO_TOKENS : seq->n_prompt;
        TRY(score_send_plain(seq, seq->n_scored, end, tok, &r->arena, err));
    }
out:
    return rc;
}

/* A path of the tree stays: its rows become those of a chain, and its KV blocks the text's. */
static void take_path(struct round *r, struct round_lane *lane, const struct tree_result *result,
                      struct round_accepted *a)
{
    struct sequence *seq = lane->seq;
    const struct guess_tree *draft = &lane->draft;
    a->n = lane->n_accepted = result->n_accepted;
    a->rows[0] = a->all_rows[0];
    for (int i = 0; i < a->n; i++) {
        int node = lane->accepted[i] = result->path[i];
        a->ids[i] = draft->tokens[node];
        a->rows[i + 1] = a->all_rows[1 + node];
    }
    a->ids[a->n] = result->next;
    lane->path = guess_tree_path(draft, result->path, a->n);
    if (!lane->plan.tails) return;
    int last = a->n > 0 ? round_fed_node(lane, result->path[a->n - 1]) : -1;
    int path = last >= 0 ? lane->layout.first_path[last] : 0;
    int changed =
        block_tails_accept(lane->plan.tails, &seq->target_blocks, r->tools->target_pool, path);
    if (seq->n_blocks_sent > changed) seq->n_blocks_sent = changed;
}

int round_accept(struct round *r, struct round_lane *lane, struct round_accepted *a,
                 struct error *err)
{
    struct sequence *seq = lane->seq;
    const struct rng_address at = {seq->seed, (uint32_t)seq->n_tokens, (uint32_t)seq->n_tokens};
    struct tree_result result;
    int rc = 0;
    seq->n_blocks_sent = seq->target_blocks.n;
    TRY(send_scores(r, lane, err));
    if (!lane->plan.is_last) goto out; /* of a prompt that goes on, nothing is accepted */
    a->begin_us = clock_now_us();
    a->all_rows = &r->result.rows[lane->first_want + lane->plan.n_scored];
    TRY(rule_accept(seq->rule, seq->tree_rule, &lane->draft, a->all_rows, &at, &r->arena, &result,
                    err));
    take_path(r, lane, &result, a);
    assert(a->rows[a->n].n > 0 || a->rows[a->n].outside_mass > 0);
out:
    return rc;
}
