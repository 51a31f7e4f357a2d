/* The plan of a round. */
#include "coordinator/scheduler.h"

#include "coordinator/sequence.h"

enum {
    /* Rows of prompts that a step has room for, whatever its predicted time. */
    PROMPT_ROWS_LEAST = 64,
    /* Tokens of prompts that the draft reads in a round, if nothing is known of its speed. */
    READ_TOKENS_LEAST = 64,
    READ_TOKENS_MOST = 512,
    /* Bytes of the answer to the scores of one step; a row has them for every slice. */
    SCORE_BYTES_MAX = 8 << 20,
    SCORE_ITEM_BYTES = 16
};

/* Share of a step's time that the draft's reading of prompts may add to a round. */
static const double read_share = 0.5;

/* A plan in the making. */
struct planning {
    struct scheduler *s;
    struct sequence **seqs; /* oldest first */
    int n;
    struct round_plan *plan;
    int n_tokens, n_rows;                    /* that the step still has room for */
    int n_decoding;                          /* lanes of the plan that decode */
    struct sequence *readers[SEQUENCES_MAX]; /* for which the draft reads, the urgent ones first */
    int n_readers, n_urgent;
};

static int least(int a, int b)
{
    return a < b ? a : b;
}

static bool is_planned(const struct sequence *seq)
{
    return seq->planner_state.strategy == STRATEGY_PLANNED;
}

static int n_unread(const struct sequence *seq)
{
    return seq->n_tokens - seq->n_target_kv;
}

static int n_missed(const struct sequence *seq)
{
    return seq->n_tokens - seq->n_draft_kv;
}

/* The most guesses of the next round. It depends on the sequence and the limits of the two models,
 * and never on company. */
static int guess_limit(const struct planning *p, struct sequence *seq)
{
    const struct scheduler *s = p->s;
    if (!s->drafter || seq->is_score || seq->n_draft == 0) return 0;
    int draft_room = drafter_limit(s->drafter) - seq->n_tokens;
    if (draft_room <= 0) {
        seq->speculation_off = "the text has outgrown the draft's context or KV cache";
        return 0;
    }
    if (seq->n_tokens == seq->n_prompt && seq->n_prompt > FIRST_GUESS_TOKENS) return 0;
    int room = least(seq->end - seq->n_tokens - 1, draft_room);
    int step = least(s->target->max_step_tokens, s->target->max_step_rows) - 1;
    return least(least(seq->n_draft, room), step);
}

/* K of a sequence whose strategy does not leave it to the planner. */
static int own_k(const struct planning *p, struct sequence *seq)
{
    return is_planned(seq) ? 0 : planner_own_k(&seq->planner_state, guess_limit(p, seq));
}

static void add_reader(struct planning *p, struct sequence *seq, bool is_urgent)
{
    p->readers[p->n_readers] = seq;
    if (is_urgent) {
        p->readers[p->n_readers] = p->readers[p->n_urgent];
        p->readers[p->n_urgent++] = seq;
    }
    p->n_readers++;
}

static struct lane_plan *add_lane(struct planning *p, struct sequence *seq, int n_tokens, int k)
{
    struct lane_plan *lane = &p->plan->lanes[p->plan->n_lanes++];
    bool is_last = n_tokens == n_unread(seq) && !seq->is_score;
    *lane = (struct lane_plan){.seq = seq, .n_tokens = n_tokens, .k = k, .is_last = is_last};
    p->n_tokens -= n_tokens + k;
    p->n_rows -= is_last ? k + 1 : 0;
    p->plan->n_tokens += n_tokens;
    return lane;
}

/* ---- decoding lanes ---- */

static bool decodes(const struct sequence *seq)
{
    return !seq->is_score && n_unread(seq) == 1 && !seq->paused_us;
}

/* A sequence that reads a prompt, is replayed, or is scored. */
static bool feeds(const struct sequence *seq)
{
    return !seq->paused_us && !decodes(seq);
}

/* Those whose last round is longest ago come first, so that a lane that found no room in one round
 * finds it in the next. */
static int list_decoding(const struct planning *p, struct sequence **list)
{
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        int at = n;
        if (!decodes(p->seqs[i])) continue;
        for (; at > 0 && list[at - 1]->last_round > p->seqs[i]->last_round; at--) {
            list[at] = list[at - 1];
        }
        list[at] = p->seqs[i];
        n++;
    }
    return n;
}

/* What decoding lanes leave to prompts. In every other round they may take the whole step, because
 * one lane may have a K that needs nearly all of it. */
static int kept_for_prompts(const struct planning *p, int n_feeding, int n_left)
{
    if (n_feeding == 0 || p->s->n_rounds % 2) return 0;
    return least(PROMPT_ROWS_LEAST, (n_left + 3) / 4);
}

/* A lane with a K of its own gets that K, or waits until the draft has caught up and the step has
 * room. */
static void plan_decoding(struct planning *p, int n_feeding)
{
    struct sequence *list[SEQUENCES_MAX];
    int n = list_decoding(p, list);
    int kept_tokens = kept_for_prompts(p, n_feeding, p->n_tokens);
    int kept_rows = kept_for_prompts(p, n_feeding, p->n_rows);
    for (int i = 0; i < n; i++) {
        int k = own_k(p, list[i]);
        if (k > 0 && n_missed(list[i]) > CAUGHT_UP_TOKENS) continue;
        if (k + 1 <= p->n_tokens - kept_tokens && k + 1 <= p->n_rows - kept_rows) {
            add_lane(p, list[i], 1, k);
            p->n_decoding++;
        }
    }
}

/* ---- prompts ---- */

/* Tokens of prompts that this step may have. */
static int prompt_room(const struct planning *p)
{
    int used = p->s->target->max_step_tokens - p->n_tokens;
    if (p->n_decoding == 0) return p->n_tokens;
    int rows =
        planner_rows_within(p->s->planner, used, p->s->step_stretch, used, used + p->n_tokens);
    int room = rows - used > PROMPT_ROWS_LEAST ? rows - used : PROMPT_ROWS_LEAST;
    return least(room, p->n_tokens);
}

/* Where the rows of the prompt are wanted, the rows and bytes of a step are a limit, too. */
static int scored_room(const struct planning *p, const struct sequence *seq)
{
    const struct job *job = seq->job;
    int n_top = seq->is_score ? job->score.top_n : job->generate.logprobs;
    int row_bytes = (n_top + 1) * SCORE_ITEM_BYTES * p->s->target->n_slices;
    return least(p->n_rows, SCORE_BYTES_MAX / row_bytes);
}

/* Tokens fed that leave the last one to a round with guesses: with a K of its own the lane waits
 * for the draft. */
static bool must_wait_for_draft(const struct planning *p, struct sequence *seq, int n_rows)
{
    int k = own_k(p, seq);
    return k > 0 &&
           (n_missed(seq) > CAUGHT_UP_TOKENS || k + 1 > n_rows || n_unread(seq) + k > p->n_tokens);
}

static void plan_prompt(struct planning *p, struct sequence *seq, int room)
{
    int n = least(n_unread(seq), least(room, p->n_tokens)), k = 0;
    bool is_scored = sequence_scores_prompt(seq) && seq->n_scored < seq->n_prompt;
    if (is_scored) n = least(n, scored_room(p, seq));
    if (n == n_unread(seq) && !seq->is_score) {
        int n_rows = p->n_rows - (is_scored ? n - 1 : 0); /* the last token has no score */
        if (n_rows < 1 || must_wait_for_draft(p, seq, n_rows)) {
            n--;
        } else {
            k = own_k(p, seq);
        }
    }
    if (n <= 0) return;
    struct lane_plan *lane = add_lane(p, seq, n, k);
    p->plan->n_prompt += lane->is_last ? n - 1 : n;
    if (!is_scored) return;
    /* Row i scores the token behind token i; the first token has no score. */
    int first = (seq->n_scored > 1 ? seq->n_scored : 1) - 1 - seq->n_target_kv;
    int end = least(n, seq->n_prompt - 1 - seq->n_target_kv);
    lane->first_scored = first > 0 ? first : 0;
    lane->n_scored = end > lane->first_scored ? end - lane->first_scored : 0;
    p->n_rows -= lane->n_scored;
}

/* The room is shared out evenly as far as prompts are short, so that a short one gets its rows at
 * once beside a long one; what is left goes to the oldest. */
static void plan_prompts(struct planning *p)
{
    struct sequence *list[SEQUENCES_MAX];
    int n = 0, room = prompt_room(p);
    for (int i = 0; i < p->n; i++) {
        if (!feeds(p->seqs[i])) continue;
        sequence_reuse(p->seqs[i], p->s->target_pool);
        list[n++] = p->seqs[i];
    }
    for (bool again = true; again && n > 0;) {
        int share = room / n, n_left = 0;
        again = false;
        for (int i = 0; i < n; i++) {
            if (n_unread(list[i]) > share) {
                list[n_left++] = list[i];
                continue;
            }
            int before = p->n_tokens;
            plan_prompt(p, list[i], room); /* guesses behind an earlier one may have used it up */
            room -= before - p->n_tokens;
            again = true;
        }
        n = n_left;
    }
    for (int i = 0; i < n && room > 0; i++) {
        int before = p->n_tokens;
        plan_prompt(p, list[i], least(room, p->n_tokens));
        room -= before - p->n_tokens;
    }
}

/* ---- guesses ---- */

static void plan_guesses(struct planning *p)
{
    struct planner_lane lanes[SEQUENCES_MAX];
    struct lane_plan *owners[SEQUENCES_MAX];
    struct planner_load load = {.n_prompt = p->plan->n_prompt};
    int n = 0, n_rows = 0;
    for (int i = 0; i < p->plan->n_lanes; i++) {
        struct lane_plan *lane = &p->plan->lanes[i];
        struct sequence *seq = lane->seq;
        n_rows += lane->n_tokens + lane->k;
        for (int g = 0; g < lane->k; g++) {
            load.n_guessing[g]++;
        }
        if (lane->is_last && !is_planned(seq)) load.n_decoding++;
        if (!lane->is_last || !is_planned(seq)) continue;
        bool is_behind = n_missed(seq) > CAUGHT_UP_TOKENS;
        lanes[n] = (struct planner_lane){
            .seq = &seq->planner_state,
            .k_max = is_behind ? 0 : guess_limit(p, seq),
            .n_missed = n_missed(seq),
            .n_left = seq->end - seq->n_tokens,
        };
        owners[n++] = lane;
    }
    load.n_rows = n_rows - n;
    load.n_rows_max = n_rows + least(p->n_tokens, p->n_rows);
    load.is_alone = p->n == 1;
    load.n_hidden_rows = p->s->n_hidden_rows;
    planner_share(p->s->planner, lanes, n, &load);
    if (p->n == 1 && n == 1 && lanes[0].k > 0 && lanes[0].k < p->s->n_ahead) {
        int room = least(p->n_tokens, p->n_rows);
        lanes[0].k = least(least(p->s->n_ahead, lanes[0].k_max), room);
    }
    for (int i = 0; i < n; i++) {
        owners[i]->k = lanes[i].k;
        p->n_tokens -= lanes[i].k;
        p->n_rows -= lanes[i].k;
    }
}

/* ---- what the draft reads besides ---- */

/* Prompts are read for lanes that will guess: those with a K of their own, and planned ones where
 * it pays. */
static void list_readers(struct planning *p)
{
    for (int i = 0; i < p->n; i++) {
        struct sequence *seq = p->seqs[i];
        if (!p->s->drafter || seq->is_score || seq->n_draft == 0 || seq->paused_us) continue;
        if (n_missed(seq) <= CAUGHT_UP_TOKENS || seq->n_tokens + 1 >= seq->end) continue;
        if (drafter_limit(p->s->drafter) <= seq->n_tokens) continue;
        /* Behind a long prompt the first token comes plainly: it does not wait for the draft. */
        if (seq->n_tokens == seq->n_prompt && seq->n_prompt > FIRST_GUESS_TOKENS) continue;
        bool wants = !is_planned(seq) ||
                     planner_wants_reading(p->s->planner, &seq->planner_state, n_missed(seq),
                                           seq->end - seq->n_tokens, p->n);
        if (wants) add_reader(p, seq, !is_planned(seq));
    }
}

/* Reading must not delay decoding lanes much. */
static int reading_room(const struct planning *p)
{
    if (p->n_decoding == 0) return READ_TOKENS_MOST;
    const struct estimates e = planner_estimates(p->s->planner, NULL);
    if (!(e.read_us > 0)) return READ_TOKENS_LEAST;
    double n = read_share * (double)e.step_us / (double)e.read_us;
    if (n < READ_TOKENS_LEAST) return READ_TOKENS_LEAST;
    return n > READ_TOKENS_MOST ? READ_TOKENS_MOST : (int)n;
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

/* Whether what the draft knows of `other` may be forgotten so that seq gets on. One that guesses no
 * more needs it no more, and one whose client does not read waits anyway. A planned sequence can go
 * on without guesses, so it gives way to those with a K of their own; among equals the younger one
 * gives way, so that the oldest always gets on. */
static bool gives_way(const struct planning *p, const struct sequence *other,
                      const struct sequence *seq)
{
    if (other == seq || other->is_evicted) return false;
    bool guesses = other->n_draft > 0 && other->n_tokens < drafter_limit(p->s->drafter);
    if (!guesses || other->paused_us) return true;
    if (is_planned(other) != is_planned(seq)) return is_planned(other);
    return other->id > seq->id;
}

/* The youngest sequence that gives way to seq gives up what the draft knows of it, which can be
 * read again. What was set aside for lanes[n_reserved] of the plan stays. */
static bool free_draft_kv(struct planning *p, const struct sequence *seq, int n_reserved)
{
    for (int i = p->n - 1; i >= 0; i--) {
        struct sequence *other = p->seqs[i];
        int reading = find_reading(p->plan, other);
        bool is_used = other->n_draft_kv == 0 && reading < 0;
        for (int l = 0; l < n_reserved && !is_used; l++) {
            is_used = p->plan->lanes[l].seq == other && p->plan->lanes[l].k > 0;
        }
        if (is_used || !gives_way(p, other, seq)) continue;
        if (reading >= 0) drop_reading(p->plan, reading);
        drafter_forget(p->s->drafter, other->slot);
        other->n_draft_kv = 0;
        other->draft_losses++;
        return true;
    }
    return false;
}

/* False: there is no room in the draft's KV for the first n_positions. */
static bool reserve_reading(struct planning *p, struct sequence *seq, int n_positions,
                            bool is_urgent)
{
    struct error err;
    while (drafter_reserve(p->s->drafter, seq, n_positions, &err)) {
        if (!is_urgent || !free_draft_kv(p, seq, 0)) return false;
    }
    return true;
}

static void plan_readings(struct planning *p)
{
    list_readers(p);
    int room = p->n_readers ? reading_room(p) : 0;
    for (int i = 0; i < p->n_readers && room > 0; i++) {
        struct sequence *seq = p->readers[i];
        int n = least(n_missed(seq) - 1, room);
        if (!reserve_reading(p, seq, seq->n_draft_kv + n, i < p->n_urgent)) continue;
        p->plan->readings[p->plan->n_readings++] = (struct draft_reading){seq, n};
        room -= n;
    }
}

/* ---- setting KV aside ---- */

static void evict(struct planning *p, struct sequence *seq)
{
    seq->evicted_slot = seq->slot;
    seq->is_evicted = true;
    sequence_displace(seq, p->s->target_pool, p->s->drafter);
    seq->counters.preemptions++;
}

/* Who gives up its place: the youngest whose client does not read, otherwise the youngest. */
static struct sequence *choose_victim(const struct planning *p)
{
    struct sequence *victim = NULL;
    for (int i = p->n - 1; i >= 0; i--) {
        struct sequence *seq = p->seqs[i];
        if (seq->is_evicted) continue;
        if (seq->paused_us) return seq;
        if (!victim) victim = seq;
    }
    return victim;
}

/* False: the lane's own sequence had to give up its place. */
static bool reserve_target(struct planning *p, struct lane_plan *lane)
{
    struct sequence *seq = lane->seq;
    struct error err;
    while (block_table_reach(&seq->target_blocks, p->s->target_pool,
                             seq->n_target_kv + lane->n_tokens + lane->k, &err)) {
        if (lane->k > 0 && is_planned(seq)) {
            lane->k = 0;
            continue;
        }
        struct sequence *victim = choose_victim(p);
        evict(p, victim);
        if (victim == seq) return false;
    }
    return true;
}

/* False: a lane with a K of its own waits a round. */
static bool reserve_draft(struct planning *p, struct lane_plan *lane, int n_reserved)
{
    struct sequence *seq = lane->seq;
    struct error err;
    while (lane->k > 0) {
        /* An older sequence may have taken what the draft knew of this one. */
        bool is_behind = n_missed(seq) > CAUGHT_UP_TOKENS;
        if (!is_behind && !drafter_reserve(p->s->drafter, seq, seq->n_tokens + lane->k, &err))
            break;
        if (!is_behind && free_draft_kv(p, seq, n_reserved)) continue;
        if (!is_planned(seq)) return false;
        seq->lacked_draft_kv = true;
        lane->k = 0;
    }
    return true;
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
        struct lane_plan lane = plan->lanes[i];
        int at = i;
        for (; at > 0 && plan->lanes[at - 1].seq->id > lane.seq->id; at--) {
            plan->lanes[at] = plan->lanes[at - 1];
        }
        plan->lanes[at] = lane;
    }
}

static void reserve(struct planning *p)
{
    struct round_plan *plan = p->plan;
    int n = 0;
    sort_by_age(plan);
    for (int i = 0; i < plan->n_lanes; i++) {
        struct lane_plan lane = plan->lanes[i];
        if (lane.seq->is_evicted || !reserve_target(p, &lane)) continue;
        /* A lane that must wait for the draft has had its turn, too. Otherwise it would keep the
         * step's rows from lanes that the draft has room for. */
        lane.seq->last_round = p->s->n_rounds;
        if (!reserve_draft(p, &lane, n)) continue;
        plan->lanes[n++] = lane;
    }
    plan->n_lanes = n;
    drop_readings(p);
}

static void count(struct round_plan *plan)
{
    plan->n_tokens = plan->n_prompt = 0;
    for (int i = 0; i < plan->n_lanes; i++) {
        const struct lane_plan *lane = &plan->lanes[i];
        plan->n_tokens += lane->n_tokens;
        plan->n_prompt += lane->n_tokens - (lane->is_last ? 1 : 0);
    }
}

void scheduler_plan(struct scheduler *s, struct sequence **seqs, int n, struct round_plan *plan)
{
    struct planning p = {
        .s = s,
        .seqs = seqs,
        .n = n,
        .plan = plan,
        .n_tokens = s->target->max_step_tokens,
        .n_rows = s->target->max_step_rows,
    };
    int n_feeding = 0;
    plan->n_lanes = plan->n_readings = plan->n_tokens = plan->n_prompt = 0;
    s->n_rounds++;
    for (int i = 0; i < n; i++) {
        n_feeding += feeds(seqs[i]) ? 1 : 0;
    }
    plan_decoding(&p, n_feeding);
    if (n_feeding) plan_prompts(&p);
    plan_guesses(&p);
    plan_readings(&p);
    reserve(&p);
    count(plan);
}
