/* The plan of a round. */
#include "coordinator/schedule/scheduler.h"

#include <math.h>

#include "base/least.h"
#include "coordinator/schedule/parts.h"
#include "coordinator/schedule/places.h"
#include "coordinator/sequence/sequence.h"

enum {
    /* Rows of prompts that a step has room for, whatever its predicted time. */
    PROMPT_ROWS_LEAST = 64,
    /* Bytes of the answer to the scores of one step; a row has them for every slice. */
    SCORE_BYTES_MAX = 8 << 20,
    SCORE_ITEM_BYTES = 16,
    SCORE_FEATURE_BYTES_MAX = 8 << 20, /* of one text in a step */
    /* Tokens of texts that finders read in a round: together, and of each text at least. A token
     * takes them about 0.2 us. */
    FINDERS_TOKENS = 1024,
    FINDERS_LEAST = 2 * DRAFT_MAX
};

/* Times a step of one row: how long a step may take in which nobody decodes. The time of a step
 * bends upward, so a longer step would read at most 1 / 15 more tokens a second, and on a CPU
 * hardly any. Where many rows cost little more than one, as on a GPU, the whole step fits. */
static const double reading_stretch = 16;

static struct lane_plan *add_lane(struct planning *p, struct sequence *seq, int n_tokens,
                                  const struct planning_own *own)
{
    struct lane_plan *lane = &p->plan->lanes[p->plan->n_lanes++];
    bool is_last = n_tokens == planning_n_unread(seq) && !seq->is_score;
    *lane = (struct lane_plan){
        .seq = seq, .n_tokens = n_tokens, .look_ahead = own->look_ahead, .is_last = is_last};
    guess_tree_plan(&lane->tree, own->k, GUESS_CHAIN);
    if (own->k > 0) {
        lane->offer = own->offer;
        lane->drafter = own->drafter;
    }
    p->n_tokens -= n_tokens + planning_own_rows(own);
    p->n_rows -= is_last ? planning_own_rows(own) + 1 : 0;
    p->plan->n_tokens += n_tokens;
    return lane;
}

/* ---- decoding lanes ---- */

/* Lists decoding sequences, those first whose last round is longest ago, so that a lane that found
 * no room in one round finds it in the next. */
static int list_decoding(const struct planning *p, struct sequence **list)
{
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        int at = n;
        if (!planning_decodes(p->seqs[i])) continue;
        for (; at > 0 && list[at - 1]->last_round > p->seqs[i]->last_round; at--) {
            list[at] = list[at - 1];
        }
        list[at] = p->seqs[i];
        n++;
    }
    return n;
}

/* The rows that decoding lanes leave to prompts. In every other round they may take the whole step,
 * because one lane may have a K that needs nearly all of it. */
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
        const struct planning_own own = planning_choose_own(p, list[i]);
        if (own.k > 0 && own.reads_first) continue;
        int n_rows = 1 + planning_own_rows(&own);
        if (n_rows <= p->n_tokens - kept_tokens && n_rows <= p->n_rows - kept_rows) {
            add_lane(p, list[i], 1, &own);
            p->n_decoding++;
        }
    }
}

/* ---- prompts ---- */

/* Tokens of prompts that this step may have. */
static int prompt_room(const struct planning *p)
{
    int used = p->tokens_max - p->n_tokens;
    double stretch = p->s->step_stretch;
    int rows = p->n_decoding == 0
                   ? planner_rows_alone(p->s->planner, fmax(stretch, reading_stretch), used,
                                        used + p->n_tokens)
                   : planner_rows_within(p->s->planner, used, stretch, used, used + p->n_tokens);
    int room = rows - used > PROMPT_ROWS_LEAST ? rows - used : PROMPT_ROWS_LEAST;
    return least(room, p->n_tokens);
}

/* Where the rows of the prompt are wanted, the rows and bytes of a step are a limit, too. */
static int scored_room(const struct planning *p, const struct sequence *seq)
{
    const struct job *job = seq->job;
    int n_top = seq->is_score ? job->score.top_n : job->generate.logprobs;
    int row_bytes = (n_top + 1) * SCORE_ITEM_BYTES * p->s->target->n_slices;
    int n = least(p->n_rows, SCORE_BYTES_MAX / row_bytes);
    const struct feature_wish *wish = sequence_features(seq);
    if (!wish) return n;
    if (!feature_wish_holds(&p->features, wish)) return 0; /* another text's wish comes first */
    size_t feature_bytes = features_bytes(wish, p->s->target->dim, 1);
    return least(n, (int)(SCORE_FEATURE_BYTES_MAX / feature_bytes));
}

/* Tokens fed that leave the last one to a round with guesses: with a K of its own the lane waits
 * for the draft. */
static bool must_wait_for_draft(const struct planning *p, const struct sequence *seq,
                                const struct planning_own *own, int n_rows)
{
    int n = planning_own_rows(own);
    if (own->k > 0 && own->reads_first) return true;
    return n > 0 && (n + 1 > n_rows || planning_n_unread(seq) + n > p->n_tokens);
}

/* A text that is read again, because it lost its place, had guesses after its last token: the last
 * step of it waits for the features that they are made from, and the text goes on as it would have
 * without that. */
static bool waits_for_features(const struct planning *p, const struct sequence *seq)
{
    const struct drafters *drafters = p->s->drafters;
    for (int m = 0; m < drafters->n_models && seq->n_tokens > seq->n_prompt; m++) {
        if (drafters_may_guess(drafters, seq, m) && planning_lacks_features(p, seq, m)) return true;
    }
    return false;
}

static void plan_prompt(struct planning *p, struct sequence *seq, int room)
{
    int n = least(planning_n_unread(seq), least(room, p->n_tokens));
    struct planning_own own = {0};
    bool is_scored = sequence_scores_prompt(seq) && seq->n_scored < seq->n_prompt;
    if (is_scored) n = least(n, scored_room(p, seq));
    if (n == planning_n_unread(seq) && waits_for_features(p, seq)) {
        n--;
    } else if (n == planning_n_unread(seq) && !seq->is_score) {
        int n_rows = p->n_rows - (is_scored ? n - 1 : 0); /* the last token has no score */
        own = planning_choose_own(p, seq);
        if (n_rows < 1 || must_wait_for_draft(p, seq, &own, n_rows)) {
            n--;
            own.k = 0;
            own.look_ahead.n = 0;
        }
    }
    if (n <= 0) return;
    struct lane_plan *lane = add_lane(p, seq, n, &own);
    p->plan->n_prompt += lane->is_last ? n - 1 : n;
    if (!is_scored) return;
    /* Row i scores the token after token i; the first token has no score. */
    int first = (seq->n_scored > 1 ? seq->n_scored : 1) - 1 - seq->n_target_kv;
    int end = least(n, seq->n_prompt - 1 - seq->n_target_kv);
    lane->first_scored = first > 0 ? first : 0;
    lane->n_scored = end > lane->first_scored ? end - lane->first_scored : 0;
    p->n_rows -= lane->n_scored;
}

/* The features that lanes of this step may want: those of a draft model, and of the oldest text
 * that is scored with features, which is never kept waiting by others that want other ones. A reply
 * has room for the features of so many tokens. */
static void plan_features(struct planning *p)
{
    const struct drafter *reader = drafters_reader(p->s->drafters);
    const struct feature_wish *wish = NULL;
    if (reader) feature_wish_add(&p->features, reader->features);
    for (int i = 0; i < p->n && !wish; i++) {
        if (planning_feeds(p->seqs[i])) wish = sequence_features(p->seqs[i]);
    }
    if (wish) feature_wish_add(&p->features, wish);
    p->tokens_max =
        least(p->s->target->max_step_tokens, features_rows_max(&p->features, p->s->target->dim));
    p->n_tokens = p->tokens_max;
}

/* A prompt that is read, and how much of it in this step. */
struct feeding {
    struct sequence *seq;
    int n_tokens;
};

static int list_feeding(const struct planning *p, struct feeding *list)
{
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        if (!planning_feeds(p->seqs[i])) continue;
        places_reuse_target(p->seqs[i], p->s->target_pool, p->s->drafters);
        list[n++] = (struct feeding){.seq = p->seqs[i]};
    }
    return n;
}

/* A prompt overtakes older ones that have at least twice as much to read. With half of the room for
 * each of two, the younger one then ends at least as much earlier as the older one ends later. */
static void sort_by_length(struct feeding *list, int n, struct feeding **sorted)
{
    for (int i = 0; i < n; i++) {
        int at = i, n_tokens = planning_n_unread(list[i].seq);
        for (; at > 0 && planning_n_unread(sorted[at - 1]->seq) >= 2 * n_tokens; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = &list[i];
    }
}

static int hand_out(struct feeding *feeding, int room)
{
    int n = least(planning_n_unread(feeding->seq) - feeding->n_tokens, room);
    feeding->n_tokens += n;
    return room - n;
}

/* Half of the room is for those that came first, so that each is read at most twice as late as in
 * order of arrival, however many come after it. The other half is for short ones, so that they do
 * not wait until a long one is read. Returns what nobody needs. */
static int share_room(struct feeding *list, int n, int room)
{
    struct feeding *sorted[SEQUENCES_MAX];
    int left = (room + 1) / 2;
    for (int i = 0; i < n; i++) {
        left = hand_out(&list[i], left);
    }
    left += room / 2;
    sort_by_length(list, n, sorted);
    for (int i = 0; i < n; i++) {
        left = hand_out(sorted[i], left);
    }
    return left;
}

/* Rows that one prompt leaves, because the rows of a step end or its guesses wait for the draft, go
 * to the prompts after it; and its guesses may use up what was meant for them. */
static void plan_prompts(struct planning *p)
{
    struct feeding list[SEQUENCES_MAX];
    int n = list_feeding(p, list);
    int spare = share_room(list, n, prompt_room(p));
    for (int i = 0; i < n; i++) {
        int before = p->n_tokens;
        plan_prompt(p, list[i].seq, list[i].n_tokens + spare);
        spare += list[i].n_tokens - (before - p->n_tokens);
    }
}

/* ---- the plan ---- */

/* Finders read what was committed. Of a long text that others have read before, which decodes at
 * once, they read a part in each round. */
static void read_texts(const struct planning *p)
{
    int room = FINDERS_TOKENS;
    for (int i = 0; i < p->n * p->s->drafters->n_finders; i++) {
        struct drafter *finder = p->s->drafters->finders[i / p->n];
        const struct sequence *seq = p->seqs[i % p->n];
        if (seq->is_score || seq->n_draft == 0) continue;
        int before = lookup_read(finder, seq, 0);
        if (before == 0) continue;
        room -= before - lookup_read(finder, seq, room > FINDERS_LEAST ? room : FINDERS_LEAST);
    }
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
        .n_rows = s->target->max_step_rows,
    };
    int n_feeding = 0;
    plan->n_lanes = plan->n_readings = plan->n_tokens = plan->n_prompt = plan->n_tails = 0;
    s->n_rounds++;
    planning_drop_features(&p);
    plan_features(&p);
    read_texts(&p);
    for (int i = 0; i < n; i++) {
        n_feeding += planning_feeds(seqs[i]) ? 1 : 0;
    }
    plan_decoding(&p, n_feeding);
    if (n_feeding) plan_prompts(&p);
    planning_guess(&p);
    planning_read(&p);
    planning_reserve(&p);
    count(plan);
    int n_read[PLANNER_MODELS] = {0};
    for (int i = 0; i < plan->n_readings; i++) {
        n_read[plan->readings[i].model] += plan->readings[i].n_tokens;
    }
    plan->expected_us = planner_round_us(s->planner, n_read);
}
