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

/* Lists what the models have missed of a planned sequence, where `model` is asked about. */
static struct planner_missed missed_of(const struct planning *p, const struct sequence *seq,
                                       int model)
{
    struct planner_missed missed = {
        .model = model, .n_left = seq->end - seq->n_tokens, .n_lanes = p->n};
    for (int m = 0; m < p->s->drafters->n_models; m++) {
        missed.n_missed[m] = planning_n_missed(seq, m);
        missed.may_guess[m] = planning_may_draft(p, seq, m);
    }
    return missed;
}

static bool wants_reading(const struct planning *p, struct sequence *seq, int model)
{
    const struct planner_missed missed = missed_of(p, seq, model);
    return planner_wants_reading(p->s->planner, &seq->planner_state, &missed);
}

/* Prompts are read for lanes that will guess: those with a K of their own, and planned ones where
 * it pays. What other models have guessed is read in the same way. */
static void list_readers(struct planning *p, int model)
{
    p->n_readers = p->n_urgent = 0;
    for (int i = 0; i < p->n; i++) {
        struct sequence *seq = p->seqs[i];
        if (seq->is_evicted || seq->backpressure.slow_us) continue;
        if (!drafters_may_guess(p->s->drafters, seq, model)) continue;
        if (planning_n_missed(seq, model) > CAUGHT_UP_TOKENS) {
            places_reuse_draft(seq, p->s->drafters->models[model]);
        }
        bool has_caught_up = planning_n_missed(seq, model) <= CAUGHT_UP_TOKENS;
        if (has_caught_up || seq->n_tokens + 1 >= seq->end) continue;
        if (!planning_may_draft(p, seq, model) || planning_is_first_plain(seq)) continue;
        bool wants = !planning_is_planned(seq) || wants_reading(p, seq, model);
        if (wants) add_reader(p, seq, !planning_is_planned(seq));
    }
}

/* Reading must not delay the lanes of the step much. Those that decode would have a step of about
 * one row without it. share: of the time that all models together may read. */
static int reading_room(const struct planning *p, int model, double share)
{
    if (p->plan->n_lanes == 0) return READ_TOKENS_MOST;
    int n_rows = p->n_decoding > 0 ? 1 : p->plan->n_tokens;
    return planner_reading_within(p->s->planner, model, n_rows, share * read_share,
                                  READ_TOKENS_LEAST, READ_TOKENS_MOST);
}

/* The model's reading of this round for the sequence, or -1. */
static int find_reading(const struct round_plan *plan, const struct sequence *seq, int model)
{
    int i = plan->n_readings - 1;
    while (i >= 0 && (plan->readings[i].seq != seq || plan->readings[i].model != model)) {
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

/* True if a model's KV of `other` may be given up so that seq gets on. One that guesses no more
 * needs it no more, and one whose client does not read waits anyway. A planned sequence can go on
 * without guesses, so it gives way to those with a K of their own; among equals the younger one
 * gives way, so that the oldest always gets on. */
static bool gives_way(const struct planning *p, const struct sequence *other,
                      const struct sequence *seq, int model)
{
    if (other == seq || other->is_evicted) return false;
    if (!planning_may_draft(p, other, model) || other->backpressure.slow_us) return true;
    if (planning_is_planned(other) != planning_is_planned(seq)) return planning_is_planned(other);
    return other->id > seq->id;
}

/* Takes away what a model knows of a sequence. It can be read again, unless the model reads
 * features: they are shown once, as the target computes them. So a text whose guesses must not
 * depend on company gives up its place, too, and both models read it again; others go on without
 * this model. */
static void take_draft_kv(struct planning *p, struct sequence *seq, int model)
{
    struct drafter *drafter = p->s->drafters->models[model];
    if (drafter->features && !planning_is_planned(seq) && planning_may_draft(p, seq, model)) {
        places_evict(seq, p->s->target_pool, p->s->drafters);
        return;
    }
    drafter_forget(drafter, seq->slot);
    seq->n_draft_kv[model] = 0;
    seq->draft_forgot = true;
    if (!drafter->features || seq->lost_draft[model]) return;
    drafters_lose(p->s->drafters, seq, model,
                  "the draft's KV cache has no room for it (--draft-kv-tokens)");
}

/* The youngest sequence that gives way to seq gives up what the model knows of it. What was set
 * aside for lanes[n_reserved] of the plan stays. */
static bool free_draft_kv(struct planning *p, const struct sequence *seq, int model, int n_reserved)
{
    for (int i = p->n - 1; i >= 0; i--) {
        struct sequence *other = p->seqs[i];
        int reading = find_reading(p->plan, other, model);
        bool is_used = other->n_draft_kv[model] == 0 && reading < 0;
        for (int l = 0; l < n_reserved && !is_used; l++) {
            const struct lane_plan *lane = &p->plan->lanes[l];
            is_used = lane->seq == other && lane->tree.n_chain > 0 &&
                      lane->drafter == p->s->drafters->models[model];
        }
        if (is_used || !gives_way(p, other, seq, model)) continue;
        if (reading >= 0) drop_reading(p->plan, reading);
        take_draft_kv(p, other, model);
        return true;
    }
    return false;
}

void planning_drop_features(struct planning *p)
{
    struct drafter *reader = drafters_reader(p->s->drafters);
    for (int i = 0; i < p->n && reader; i++) {
        struct sequence *seq = p->seqs[i];
        int model = reader->model;
        if (!planning_is_planned(seq) || !planning_may_draft(p, seq, model)) continue;
        const struct planner_missed missed = missed_of(p, seq, model);
        if (planner_wants_features(p->s->planner, &seq->planner_state, &missed)) continue;
        drafter_forget(reader, seq->slot);
        seq->n_draft_kv[model] = 0;
        seq->draft_forgot = true;
        drafters_lose(p->s->drafters, seq, model, "");
    }
}

/* False: there is no room in the model's KV for the first n_positions. */
static bool reserve_reading(struct planning *p, struct sequence *seq, int model, int n_positions,
                            bool is_urgent)
{
    struct error err;
    while (drafter_reserve(p->s->drafters->models[model], seq, n_positions, &err)) {
        if (!is_urgent || !free_draft_kv(p, seq, model, 0)) return false;
    }
    return true;
}

/* The first token of the sequence that the model reads next. */
static int first_unread(const struct drafter *model, const struct sequence *seq)
{
    return most(seq->n_draft_kv[model->model], model->kv_shift);
}

/* True if the model reads for another sequence in this round what it would read next for this one,
 * which then finds it in the next round. */
static bool reads_the_same(const struct planning *p, const struct sequence *seq, int model)
{
    const struct round_plan *plan = p->plan;
    for (int i = 0; i < plan->n_readings; i++) {
        const struct draft_reading *reading = &plan->readings[i];
        const struct sequence *other = reading->seq;
        int begin = other->n_draft_kv[model];
        int n = first_unread(p->s->drafters->models[model], other) + KV_BLOCK_TOKENS;
        if (reading->model != model || begin + reading->n_tokens < n) continue;
        if (seq->n_draft_kv[model] != begin) continue;
        if (n < seq->n_tokens &&
            memcmp(seq->tokens, other->tokens, (size_t)n * sizeof(int32_t)) == 0)
            return true;
    }
    return false;
}

/* Tokens by which a model gets on with a sequence: where it reads features, only as far as the
 * target has computed these. A part ends with a block of the model, so that others that begin alike
 * find all of it. */
static int reading_tokens(const struct drafter *model, const struct sequence *seq, int room)
{
    int begin = first_unread(model, seq), end = seq->n_tokens - 1, shift = model->kv_shift;
    if (model->features) end = least(end, seq->n_target_kv + shift);
    if (end - begin > room) end = begin + room - (begin + room - shift) % KV_BLOCK_TOKENS;
    return end > begin ? end - seq->n_draft_kv[model->model] : 0;
}

/* Chooses what a model reads, in a share of the time for it; returns the share that is left. */
static double read_with(struct planning *p, int model, double share)
{
    list_readers(p, model);
    if (p->n_readers == 0) return share;
    const struct drafter *drafter = p->s->drafters->models[model];
    int all = reading_room(p, model, share), room = all;
    for (int i = 0; i < p->n_readers && room > 0; i++) {
        struct sequence *seq = p->readers[i];
        if (seq->is_evicted) continue; /* for another reader */
        int n = reading_tokens(drafter, seq, room);
        if (n <= 0 || reads_the_same(p, seq, model)) continue;
        if (!reserve_reading(p, seq, model, seq->n_draft_kv[model] + n, i < p->n_urgent)) continue;
        p->plan->readings[p->plan->n_readings++] = (struct draft_reading){seq, n, model};
        room -= n;
    }
    return share * room / all;
}

void planning_read(struct planning *p)
{
    double share = 1;
    for (int m = 0; m < p->s->drafters->n_models; m++) {
        share = read_with(p, m, share);
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
    struct error err;
    while (lane->tree.n_chain > 0 && lane_plan_is_drafted(lane)) {
        int model = lane->drafter->model;
        /* An older sequence may have taken what the model knew of this one. */
        bool reads_first = planning_n_missed(seq, model) > CAUGHT_UP_TOKENS;
        int end = seq->n_tokens + lane_plan_k(lane);
        if (!reads_first && !drafter_reserve(lane->drafter, seq, end, &err)) break;
        if (!reads_first && free_draft_kv(p, seq, model, n_reserved)) continue;
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
