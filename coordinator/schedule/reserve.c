/* Sets aside the KV of a round before anything is drawn, and plans what the draft reads of
 * prompts. */
#include "coordinator/schedule/parts.h"

#include <string.h>

#include "base/least.h"
#include "base/limits.h"
#include "coordinator/schedule/places.h"

enum {
    /* Tokens of prompts that the draft reads in a round: beside lanes, whatever they take, and at
     * most. */
    READ_TOKENS_LEAST = 64,
    READ_TOKENS_MOST = 512
};

/* Share of a step's time that the draft's reading of prompts may add to a round. */
static const double read_share = 0.5;

/* ---- what the draft reads besides ---- */

static void add_reader(struct planning *p, struct sequence *seq, bool is_urgent)
{
    p->readers[p->n_readers] = seq;
    if (is_urgent) {
        p->readers[p->n_readers] = p->readers[p->n_urgent];
        p->readers[p->n_urgent++] = seq;
    }
    p->n_readers++;
}

/* Prompts are read for lanes that will guess: those with a K of their own, and planned ones where
 * it pays. */
static void list_readers(struct planning *p)
{
    struct drafter *model = p->s->drafters->model;
    for (int i = 0; i < p->n; i++) {
        struct sequence *seq = p->seqs[i];
        if (!planning_has_model(p, seq) || seq->backpressure.slow_us) continue;
        if (planning_n_missed(seq) > CAUGHT_UP_TOKENS) places_reuse_draft(seq, model);
        if (planning_n_missed(seq) <= CAUGHT_UP_TOKENS || seq->n_tokens + 1 >= seq->end) continue;
        if (drafter_limit(model) <= seq->n_tokens) continue;
        if (planning_is_first_plain(seq)) continue;
        bool wants = !planning_is_planned(seq) ||
                     planner_wants_reading(p->s->planner, &seq->planner_state,
                                           planning_n_missed(seq), seq->end - seq->n_tokens, p->n);
        if (wants) add_reader(p, seq, !planning_is_planned(seq));
    }
}

/* Reading must not delay the lanes of the step much. Those that decode would have a step of about
 * one row without it. */
static int reading_room(const struct planning *p)
{
    if (p->plan->n_lanes == 0) return READ_TOKENS_MOST;
    int n_rows = p->n_decoding > 0 ? 1 : p->plan->n_tokens;
    return planner_reading_within(p->s->planner, n_rows, read_share, READ_TOKENS_LEAST,
                                  READ_TOKENS_MOST);
}

/* The sequence's reading of this round, or -1. */
static int find_reading(const struct round_plan *plan, const struct sequence *seq)
{
    int i = plan->n_readings - 1;
    while (i >= 0 && plan->readings[i].seq != seq) {
        i--;
    }
    return i;
}

static void drop_reading(struct round_plan *plan, int at)
{
    plan->n_readings--;
    for (; at < plan->n_readings; at++) {
        plan->readings[at] = plan->readings[at + 1];
    }
}

/* True if the draft's KV of `other` may be given up so that seq gets on. One that guesses no more
 * needs it no more, and one whose client does not read waits anyway. A planned sequence can go on
 * without guesses, so it gives way to those with a K of their own; among equals the younger one
 * gives way, so that the oldest always gets on. */
static bool gives_way(const struct planning *p, const struct sequence *other,
                      const struct sequence *seq)
{
    if (other == seq || other->is_evicted) return false;
    bool guesses =
        planning_has_model(p, other) && other->n_tokens < drafter_limit(p->s->drafters->model);
    if (!guesses || other->backpressure.slow_us) return true;
    if (planning_is_planned(other) != planning_is_planned(seq)) return planning_is_planned(other);
    return other->id > seq->id;
}

/* Takes away what the draft knows of a sequence. It can be read again, unless the draft reads
 * features: they are shown once, as the target computes them. So a text whose guesses must not
 * depend on company gives up its place, too, and both models read it again; others go on plain. */
static void take_draft_kv(struct planning *p, struct sequence *seq)
{
    struct drafter *model = p->s->drafters->model;
    if (model->features && planning_has_model(p, seq) && !planning_is_planned(seq) &&
        seq->n_tokens < drafter_limit(model)) {
        places_evict(seq, p->s->target_pool, p->s->drafters);
        return;
    }
    drafter_forget(model, seq->slot);
    seq->n_draft_kv = 0;
    seq->draft_forgot = true;
    if (!model->features || seq->lost_draft) return;
    seq->lost_draft = true;
    seq->speculation_off = "the draft's KV cache has no room for it (--draft-kv-tokens)";
}

/* The youngest sequence that gives way to seq gives up what the draft knows of it. What was set
 * aside for lanes[n_reserved] of the plan stays. */
static bool free_draft_kv(struct planning *p, const struct sequence *seq, int n_reserved)
{
    for (int i = p->n - 1; i >= 0; i--) {
        struct sequence *other = p->seqs[i];
        int reading = find_reading(p->plan, other);
        bool is_used = other->n_draft_kv == 0 && reading < 0;
        for (int l = 0; l < n_reserved && !is_used; l++) {
            const struct lane_plan *lane = &p->plan->lanes[l];
            is_used = lane->seq == other && lane->tree.n_chain > 0 &&
                      lane->drafter == p->s->drafters->model;
        }
        if (is_used || !gives_way(p, other, seq)) continue;
        if (reading >= 0) drop_reading(p->plan, reading);
        take_draft_kv(p, other);
        return true;
    }
    return false;
}

/* False: there is no room in the draft's KV for the first n_positions. */
static bool reserve_reading(struct planning *p, struct sequence *seq, int n_positions,
                            bool is_urgent)
{
    struct error err;
    while (drafter_reserve(p->s->drafters->model, seq, n_positions, &err)) {
        if (!is_urgent || !free_draft_kv(p, seq, 0)) return false;
    }
    return true;
}

/* The first token of the sequence that the draft reads next. */
static int first_unread(const struct drafter *model, const struct sequence *seq)
{
    return most(seq->n_draft_kv, model->kv_shift);
}

/* True if the draft reads for another sequence in this round what it would read next for this one,
 * which then finds it in the next round. */
static bool reads_the_same(const struct planning *p, const struct sequence *seq)
{
    const struct round_plan *plan = p->plan;
    for (int i = 0; i < plan->n_readings; i++) {
        const struct sequence *other = plan->readings[i].seq;
        int begin = other->n_draft_kv;
        int n = first_unread(p->s->drafters->model, other) + KV_BLOCK_TOKENS;
        if (seq->n_draft_kv != begin || begin + plan->readings[i].n_tokens < n) continue;
        if (n < seq->n_tokens &&
            memcmp(seq->tokens, other->tokens, (size_t)n * sizeof(int32_t)) == 0)
            return true;
    }
    return false;
}

/* Tokens by which the draft gets on with a sequence: where it reads features, only as far as the
 * target has computed these. A part ends with a block of the draft, so that others that begin alike
 * find all of it. */
static int reading_tokens(const struct drafter *model, const struct sequence *seq, int room)
{
    int begin = first_unread(model, seq), end = seq->n_tokens - 1, shift = model->kv_shift;
    if (model->features) end = least(end, seq->n_target_kv + shift);
    if (end - begin > room) end = begin + room - (begin + room - shift) % KV_BLOCK_TOKENS;
    return end > begin ? end - seq->n_draft_kv : 0;
}

void planning_read(struct planning *p)
{
    list_readers(p);
    int room = p->n_readers ? reading_room(p) : 0;
    for (int i = 0; i < p->n_readers && room > 0; i++) {
        struct sequence *seq = p->readers[i];
        if (seq->is_evicted) continue; /* for another reader */
        int n = reading_tokens(p->s->drafters->model, seq, room);
        if (n <= 0 || reads_the_same(p, seq)) continue;
        if (!reserve_reading(p, seq, seq->n_draft_kv + n, i < p->n_urgent)) continue;
        p->plan->readings[p->plan->n_readings++] = (struct draft_reading){seq, n};
        room -= n;
    }
}

/* ---- setting KV aside ---- */

/* Chooses the sequence that gives up its place: the youngest whose client does not read, otherwise
 * the youngest. */
static struct sequence *choose_victim(const struct planning *p)
{
    struct sequence *victim = NULL;
    for (int i = p->n - 1; i >= 0; i--) {
        struct sequence *seq = p->seqs[i];
        if (seq->is_evicted) continue;
        if (seq->backpressure.slow_us) return seq;
        if (!victim) victim = seq;
    }
    return victim;
}

/* Takes away the lane's guesses; a window needs none of them. */
static void drop_guesses(struct lane_plan *lane)
{
    lane->follows_q = false;
    guess_tree_drop(&lane->tree,
                    GUESS_CHAIN | GUESS_SIBLING | GUESS_GROWN | (lane->window ? 0 : GUESS_BRANCH));
}

/* False: the lane's own sequence had to give up its place. */
static bool reserve_target(struct planning *p, struct lane_plan *lane)
{
    struct sequence *seq = lane->seq;
    struct error err;
    while (block_table_reach(&seq->target_blocks, p->s->target_pool,
                             seq->n_target_kv + lane->n_tokens + lane_plan_k(lane), &err)) {
        if (lane->tree.n_chain > 0 && planning_is_planned(seq)) {
            drop_guesses(lane);
            continue;
        }
        struct sequence *victim = choose_victim(p);
        places_evict(victim, p->s->target_pool, p->s->drafters);
        if (victim == seq) return false;
    }
    return true;
}

/* False: a lane with a K of its own waits a round. */
static bool reserve_draft(struct planning *p, struct lane_plan *lane, int n_reserved)
{
    struct sequence *seq = lane->seq;
    struct drafter *model = p->s->drafters->model;
    struct error err;
    while (lane->tree.n_chain > 0 && lane->drafter == model) {
        /* An older sequence may have taken what the draft knew of this one. */
        bool reads_first = planning_n_missed(seq) > CAUGHT_UP_TOKENS;
        int end = seq->n_tokens + lane_plan_k(lane);
        if (!reads_first && !drafter_reserve(model, seq, end, &err)) break;
        if (!reads_first && free_draft_kv(p, seq, n_reserved)) continue;
        if (!planning_is_planned(seq)) return false;
        seq->lacked_draft_kv = true;
        drop_guesses(lane);
    }
    return true;
}

/* Guesses after those of the draft get, like siblings, what is left. */
static void reserve_appended(struct planning *p, struct lane_plan *lane)
{
    struct sequence *seq = lane->seq;
    struct error err;
    int end = seq->n_target_kv + lane->n_tokens + lane->tree.n_chain;
    if (lane->tree.n_chain > 0 &&
        block_table_reach(&seq->target_blocks, p->s->target_pool, end, &err)) {
        guess_tree_drop(&lane->tree, GUESS_APPENDED);
    }
}

/* The end of path 0. It goes on with the branch where the chain is the beginning of that; and with
 * look-ahead tokens, which are after fewer guesses than planned where no more come. */
static int path_end(const struct lane_plan *lane, const struct tree_layout *shape)
{
    int n = guess_tree_count(&lane->tree, GUESS_BRANCH);
    if (lane->look_ahead.n > 0 && n < tree_layout_levels(shape)) n = tree_layout_levels(shape);
    return lane->seq->n_target_kv + lane->n_tokens + n;
}

/* True if there are blocks for path 0 and for the tails. It is asked before any is taken: otherwise
 * those of path 0 would stay with a sequence that gets no tails, and published ones would have been
 * forgotten for them. */
static bool has_blocks(const struct planning *p, const struct lane_plan *lane, int end,
                       const struct tree_layout *shape)
{
    const struct block_pool *pool = p->s->target_pool;
    int n = block_table_lacks(&lane->seq->target_blocks, pool, end);
    n += tree_layout_tails(shape, lane->seq->n_tokens, pool->block_tokens);
    return n <= block_pool_room(pool);
}

/* Blocks for all of the lane's tree that is beside path 0. False: there are not enough. */
static bool reserve_tree(struct planning *p, struct lane_plan *lane)
{
    if (lane->tree.n == lane->tree.n_chain && lane->look_ahead.n == 0) return true;
    struct guess_tree largest = lane->tree;
    struct tree_layout shape;
    struct error err;
    struct block_pool *pool = p->s->target_pool;
    struct block_table *table = &lane->seq->target_blocks;
    struct block_tails *tails = &p->plan->tails[p->plan->n_tails];
    if (lane->follows_q) guess_tree_pack(&lane->tree, &largest);
    lane_look_ahead_add(&lane->look_ahead, -1, &largest);
    guess_tree_sort(&largest);
    if (tree_layout_init(&shape, largest.parents, largest.n, &err) ||
        !has_blocks(p, lane, path_end(lane, &shape), &shape) ||
        block_table_reach(table, pool, path_end(lane, &shape), &err) ||
        block_tails_reserve(tails, pool, table, &shape, lane->seq->n_tokens, &err)) {
        return false;
    }
    lane->tails = tails;
    p->plan->n_tails++;
    return true;
}

/* Siblings and branches get what is left when all lanes have what they need: nobody loses a place
 * for them. Look-ahead tokens give way first. Where there are not enough for any tree that may
 * follow q, it is the planned one. Guesses after siblings give way next, and a window gives way to
 * siblings. */
static void reserve_siblings(struct planning *p, struct lane_plan *lane)
{
    lane->tails = NULL;
    if (reserve_tree(p, lane)) return;
    if (lane->look_ahead.n > 0) {
        lane->look_ahead.n = 0;
        if (reserve_tree(p, lane)) return;
    }
    bool follows_q = lane->follows_q;
    lane->follows_q = false;
    if (follows_q && reserve_tree(p, lane)) return;
    bool grows = guess_tree_count(&lane->tree, GUESS_GROWN) > 0;
    guess_tree_drop(&lane->tree, GUESS_GROWN);
    if (grows && reserve_tree(p, lane)) return;
    if (lane->window) {
        lane->window = NULL;
        guess_tree_drop(&lane->tree, GUESS_BRANCH);
        if (reserve_tree(p, lane)) return;
    }
    guess_tree_drop(&lane->tree, GUESS_SIBLING | GUESS_BRANCH);
}

static void drop_readings(struct planning *p)
{
    int n = 0;
    for (int i = 0; i < p->plan->n_readings; i++) {
        if (!p->plan->readings[i].seq->is_evicted) p->plan->readings[n++] = p->plan->readings[i];
    }
    p->plan->n_readings = n;
}

/* From the oldest on, so that it is never an earlier lane of the same pass that gives way. */
static void sort_by_age(struct round_plan *plan)
{
    for (int i = 1; i < plan->n_lanes; i++) {
        if (plan->lanes[i - 1].seq->id <= plan->lanes[i].seq->id) continue;
        struct lane_plan lane = plan->lanes[i];
        int at = i;
        for (; at > 0 && plan->lanes[at - 1].seq->id > lane.seq->id; at--) {
            plan->lanes[at] = plan->lanes[at - 1];
        }
        plan->lanes[at] = lane;
    }
}

void planning_reserve(struct planning *p)
{
    struct round_plan *plan = p->plan;
    int n = 0;
    sort_by_age(plan);
    for (int i = 0; i < plan->n_lanes; i++) {
        struct lane_plan *lane = &plan->lanes[i];
        if (lane->seq->is_evicted || !reserve_target(p, lane)) continue;
        /* A lane that must wait for the draft has had its turn, too. Otherwise it would keep the
         * step's rows from lanes that the draft has room for. */
        lane->seq->last_round = p->s->n_rounds;
        if (!reserve_draft(p, lane, n)) continue;
        if (n != i) plan->lanes[n] = *lane;
        n++;
    }
    plan->n_lanes = n;
    for (int i = 0; i < n; i++) {
        reserve_appended(p, &plan->lanes[i]);
        reserve_siblings(p, &plan->lanes[i]);
    }
    drop_readings(p);
}
