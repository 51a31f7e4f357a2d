/* Decides which guesses of a lane stay, and the token after them: the request's rule does, with the
 * rows of p, the draft's q, the guesses and the address of the coins (speculation/accept/chain.c,
 * speculation/accept/tree.h). */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "coordinator/round/round.h"
#include "coordinator/round/score.h"
#include "coordinator/sequence/sequence.h"

enum { ECHO_TOKENS = 4096 /* of a prompt in one message */ };

/* The prompt's scores, if this lane has any, and before the first token of the answer all of the
 * prompt, if it is to be echoed. */
static int send_scores(struct round *r, struct round_lane *lane, struct error *err)
{
    struct sequence *seq = lane->seq;
    const struct tokenizer *tok = r->tools->tok;
    int rc = 0;
    if (lane->plan.n_scored) {
        TRY(score_send(&lane->plan, &r->wants[lane->first_want],
                       &r->result.slices[lane->first_want], target_description(r->tools->target),
                       tok, &r->arena, err));
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

/* Takes the longest prefix of the chain that the rule accepts; returns the token that it draws
 * after that. */
static int32_t accept_chain(struct round_lane *lane, const struct rng_address *at,
                            struct round_accepted *a)
{
    const struct draft *draft = &lane->draft;
    struct accept_result result =
        lane->seq->rule->accept(a->all_rows, draft->q, draft->tokens, draft->n, at);
    a->n = result.n_accepted;
    a->rows = a->all_rows;
    memcpy(a->ids, draft->tokens, (size_t)a->n * sizeof *a->ids);
    lane->path = (struct lane_path){.n_chain = a->n};
    return result.next;
}

/* Does so with a path of the tree, whose blocks become the text's, and whose rows become those of a
 * chain. */
static int accept_tree(struct round *r, struct round_lane *lane, const struct rng_address *at,
                       struct round_accepted *a, int32_t *next, struct error *err)
{
    struct sequence *seq = lane->seq;
    const struct tree *guesses = &lane->tree->guesses;
    double *scratch =
        arena_take(&r->arena, tree_scratch_count(guesses, a->all_rows), sizeof *scratch);
    if (!scratch) return error_set(err, ERR_NO_MEMORY, "no room to accept a tree of guesses");
    struct tree_result tree = seq->rule->accept_tree(guesses, a->all_rows, at, scratch);
    a->n = tree.n_accepted;
    a->rows = a->path_rows;
    a->path_rows[0] = a->all_rows[0];
    for (int i = 0; i < a->n; i++) {
        lane->accepted[i] = (uint8_t)tree.path[i];
        a->ids[i] = guesses->tokens[tree.path[i]];
        a->path_rows[i + 1] = a->all_rows[1 + tree.path[i]];
    }
    /* All of them, even where the text ends earlier: published KV belongs to the tokens that are
     * there. */
    memcpy(seq->tokens + seq->n_tokens, a->ids, (size_t)a->n * sizeof *a->ids);
    int last = a->n > 0 ? tree.path[a->n - 1] : -1;
    int path = last < 0 ? 0 : lane->tree->shape.first_path[last];
    int changed =
        block_tails_accept(lane->plan.tails, &seq->target_blocks, r->tools->target_pool, path);
    if (seq->n_blocks_sent > changed) seq->n_blocks_sent = changed;
    lane->path = lane_tree_path(lane->tree, &lane->draft, &tree);
    *next = tree.next;
    return 0;
}

int round_accept(struct round *r, struct round_lane *lane, struct round_accepted *a,
                 struct error *err)
{
    struct sequence *seq = lane->seq;
    const struct rng_address at = {seq->seed, (uint32_t)seq->n_tokens, (uint32_t)seq->n_tokens};
    int32_t next = -1;
    int rc = 0;
    seq->n_blocks_sent = seq->target_blocks.n;
    TRY(send_scores(r, lane, err));
    if (!lane->plan.is_last) goto out; /* of a prompt that goes on, nothing is accepted */
    a->begin_us = clock_now_us();
    a->all_rows = &r->result.rows[lane->first_want + lane->plan.n_scored];
    if (lane->tree) {
        TRY(accept_tree(r, lane, &at, a, &next, err));
    } else {
        next = accept_chain(lane, &at, a);
    }
    assert(a->rows[a->n].n > 0 || a->rows[a->n].outside_mass > 0);
    a->ids[a->n] = next;
    lane->n_accepted = a->n;
out:
    return rc;
}
