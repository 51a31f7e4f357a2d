/* Guesses of the next round, made while the target verifies this one. */
#include "coordinator/draft/ahead.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "coordinator/sequence/sequence.h"

enum {
    ARENA_BYTES = 16 << 20,
    TRIALS = 8, /* rounds with and without it before the two kinds are compared */
    BLOCK = 4,  /* rounds of one kind in a row, because a round shortens the one after it */
    /* every 256 rounds, BLOCK rounds are of the kind that was measured to be longer */
    PROBE_ROUNDS = 256,
    OUTLIER = 4 /* times the mean: a longer time counts as no more than this */
};

/* A running mean; the first few count in full, later ones with a weight of 1 / TRIALS. */
struct mean {
    double value;
    int n;
};

static void mean_add(struct mean *mean, double value)
{
    if (mean->n >= TRIALS && value > OUTLIER * mean->value) value = OUTLIER * mean->value;
    if (mean->n < TRIALS) mean->n++;
    mean->value += (value - mean->value) / mean->n;
}

/* Assumptions of the guesses ahead: the sequence, and its text up to the token after the guesses
 * that were being verified. */
struct assumption {
    uint64_t sequence;             /* its id; 0 = nothing is assumed */
    uint32_t draft_losses;         /* that it had suffered: what was read since then is there */
    int base, n_tokens;            /* the text up to base was committed then */
    int32_t tokens[DRAFT_MAX + 1]; /* [n_tokens] what follows */
};

struct ahead {
    enum ahead_mode mode;
    struct drafter *drafter;
    struct arena arenas[2]; /* q's of what is being made, and of what is being verified */
    int arena;

    struct assumption assumed;
    struct guess_tree draft; /* of the next round */
    bool is_predicted;       /* the last of assumed.tokens is known */
    int n_draft_kv;          /* when the work was stopped */

    /* While the target verifies. */
    struct sequence *seq;
    int n_verified, k;
    const struct end_ids *ends;
    bool is_working, has_worked; /* it may go on; it was begun */
    int64_t start_us;

    /* The round before: what it did ahead shortens the drafting of the next one. */
    struct assumption last;
    int last_k;
    bool last_worked, last_is_plain;
    int64_t last_verify_us;

    /* [K][ahead]: a round's verifying and the drafting that was left to the round after it */
    struct mean round_us[DRAFT_MAX + 1][2];
    struct mean step_us, wire_us, token_us; /* the ranks; the rest of a wait; a token made ahead */
    uint32_t n_rounds;
};

int ahead_open(struct ahead **ahead, enum ahead_mode mode, struct drafter *drafter,
               struct error *err)
{
    int rc = 0;
    struct ahead *a = NULL;
    *ahead = NULL;
    TRY(mem_array(&a, 1, sizeof *a, err));
    a->mode = mode;
    a->drafter = drafter;
    TRY(arena_open(&a->arenas[0], ARENA_BYTES, err));
    TRY(arena_open(&a->arenas[1], ARENA_BYTES, err));
    *ahead = a;
    a = NULL;
out:
    ahead_close(a);
    return rc;
}

void ahead_close(struct ahead *a)
{
    if (!a) return;
    arena_close(&a->arenas[0]);
    arena_close(&a->arenas[1]);
    free(a);
}

void ahead_forget(struct ahead *a)
{
    memset(a->round_us, 0, sizeof a->round_us);
    a->step_us = a->wire_us = a->token_us = (struct mean){0};
    a->last = (struct assumption){0};
}

void ahead_skip(struct ahead *a)
{
    a->last = (struct assumption){0};
    a->is_predicted = false;
}

static bool is_same(const struct assumption *a, const struct sequence *seq)
{
    return a->sequence == seq->id;
}

static bool came_true(const struct ahead *a, const struct sequence *seq)
{
    const struct assumption *assumed = &a->assumed;
    return a->is_predicted && is_same(assumed, seq) && assumed->draft_losses == seq->draft_losses &&
           seq->n_tokens == a->draft.base &&
           memcmp(seq->tokens + assumed->base, assumed->tokens,
                  (size_t)assumed->n_tokens * sizeof *assumed->tokens) == 0;
}

int ahead_count(const struct ahead *a, const struct sequence *seq)
{
    return came_true(a, seq) ? a->draft.n_chain : 0;
}

/* A guess that was made ahead, with as many of its siblings, which follow it, as are wanted now. */
static void take_guess(const struct guess_tree *made, int first, int n_siblings,
                       struct guess_tree *draft)
{
    int parent = guess_tree_last(draft);
    for (int i = first; i < made->n && i <= first + n_siblings; i++) {
        if (i > first && made->marks[i] & GUESS_CHAIN) return;
        guess_tree_add(draft, parent, made->marks[i], made->tokens[i], made->q[i]);
    }
}

void ahead_take(struct ahead *a, struct draft_lane *lane)
{
    const struct guess_tree *made = &a->draft;
    if (came_true(a, lane->seq) && made->n_chain > 0 && made->n_chain <= lane->k) {
        for (int i = 0; i < made->n_chain; i++) {
            take_guess(made, made->chain[i], draft_lane_siblings(lane, i), lane->draft);
        }
        lane->draft->is_over = made->is_over;
        lane->seq->n_draft_kv = a->n_draft_kv;
    }
    a->is_predicted = false;
}

/* True if this round should draft ahead: the kind measured to be shorter, except in BLOCK of every
 * PROBE_ROUNDS rounds. */
static bool is_worth_it(const struct ahead *a, int k)
{
    const struct mean *off = &a->round_us[k][0], *on = &a->round_us[k][1];
    bool is_trial = off->n < TRIALS || on->n < TRIALS;
    if (a->mode != AHEAD_AUTO) return a->mode == AHEAD_ON;
    if (is_trial) return a->n_rounds / BLOCK % 2;
    bool is_shorter = on->value < off->value;
    return a->n_rounds % PROBE_ROUNDS < BLOCK ? !is_shorter : is_shorter;
}

void ahead_begin(struct ahead *a, struct sequence *seq, const struct guess_tree *draft, int k,
                 const struct end_ids *ends)
{
    a->n_rounds++;
    a->n_verified = draft->n_chain;
    a->is_predicted = false;
    a->is_working = a->drafter->row->model->extra.predict && draft->n_chain > 0 &&
                    !draft->is_over && k > 0 && is_worth_it(a, draft->n_chain);
    a->has_worked = a->is_working;
    a->start_us = clock_now_us();
    if (!a->is_working) return;
    a->seq = seq;
    a->assumed = (struct assumption){.sequence = seq->id,
                                     .draft_losses = seq->draft_losses,
                                     .base = seq->n_tokens,
                                     .n_tokens = draft->n_chain + 1};
    for (int i = 0; i < draft->n_chain; i++) {
        a->assumed.tokens[i] = draft->tokens[draft->chain[i]];
    }
    guess_tree_begin(&a->draft, seq->n_tokens + draft->n_chain + 1);
    a->k = k;
    a->ends = ends;
    a->arena = !a->arena;
    arena_reset(&a->arenas[a->arena]);
}

/* True when the answer is likely to come before the next token is done, and would wait for it. */
static bool is_too_late(const struct ahead *a, int64_t now_us)
{
    if (a->mode == AHEAD_ON || a->step_us.n < TRIALS || a->token_us.n < TRIALS) return false;
    double wait_us = a->step_us.value + a->wire_us.value;
    return (double)(now_us - a->start_us) + a->token_us.value > wait_us;
}

/* Predicts the token after the guesses first, then makes one guess at each call. */
static int work_once(struct ahead *a, struct error *err)
{
    struct arena *arena = &a->arenas[a->arena];
    if (a->is_predicted) {
        struct draft_lane lane = {.seq = a->seq,
                                  .k = a->draft.n_chain + 1,
                                  .ends = a->ends,
                                  .draft = &a->draft,
                                  .siblings_max = a->seq->siblings_max};
        struct draft_cost cost;
        drafter_propose(a->drafter, &lane, 1, arena, &cost);
        return lane.err.code;
    }
    int position = a->draft.base - 1;
    int32_t *next = &a->assumed.tokens[a->assumed.n_tokens - 1];
    int rc = a->drafter->row->model->extra.predict(a->drafter, a->seq, position, arena, next, err);
    a->seq->tokens[position] = *next;
    a->is_predicted = rc == 0;
    return rc;
}

bool ahead_work(struct ahead *a)
{
    struct error err;
    int64_t now_us = clock_now_us();
    if (!a->is_working || a->draft.n_chain == a->k || a->draft.is_over || is_too_late(a, now_us)) {
        return false;
    }
    if (a->is_predicted && end_ids_have(a->ends, a->assumed.tokens[a->assumed.n_tokens - 1])) {
        return false;
    }
    if (work_once(a, &err)) {
        a->is_working = a->is_predicted = false;
        return false;
    }
    mean_add(&a->token_us, (double)(clock_now_us() - now_us));
    return true;
}

/* Counts the round before this one, now that it is known how much drafting it has left to do. */
static void count_last_round(struct ahead *a, const struct sequence *seq,
                             const struct ahead_times *times)
{
    if (!a->last_is_plain || !times->is_plain || !is_same(&a->last, seq)) return;
    if (a->last_k != a->n_verified || a->last_k == 0) return;
    mean_add(&a->round_us[a->last_k][a->last_worked],
             (double)(a->last_verify_us + times->draft_us));
}

void ahead_end(struct ahead *a, struct sequence *seq, const struct ahead_times *times)
{
    if (a->is_predicted) a->n_draft_kv = seq->n_draft_kv;
    count_last_round(a, seq, times);
    if (times->is_plain) mean_add(&a->step_us, (double)times->step_us);
    if (times->is_plain && !a->has_worked) { /* or the answer may have waited for a token */
        mean_add(&a->wire_us, (double)(times->verify_us - times->step_us));
    }
    a->last = (struct assumption){.sequence = seq->id};
    a->last_k = a->n_verified;
    a->last_worked = a->has_worked;
    a->last_is_plain = times->is_plain;
    a->last_verify_us = times->verify_us;
    a->is_working = false;
}
