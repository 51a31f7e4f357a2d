/* The plan of a round. */
#include "coordinator/schedule/scheduler.h"

#include <math.h>

#include "base/least.h"
#include "coordinator/draft/trees_option.h"
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

static int n_unread(const struct sequence *seq)
{
    return seq->n_tokens - seq->n_target_kv;
}

/* The most guesses that a draft model may make for the sequence. */
static int model_limit(const struct planning *p, const struct sequence *seq, int model)
{
    if (!planning_may_draft(p, seq, model) || planning_is_first_plain(seq) ||
        planning_lacks_features(p, seq, model)) {
        return 0;
    }
    const struct drafter *drafter = p->s->drafters->models[model];
    int room = drafter_limit(drafter) - seq->n_tokens, k_max = drafter->k_max;
    return least(planning_guess_room(p, seq), k_max ? least(room, k_max) : room);
}

/* Says so where the text has outgrown all models that might guess for it, and nothing else may. */
static void note_outgrown(const struct planning *p, struct sequence *seq)
{
    const struct drafters *drafters = p->s->drafters;
    int n_outgrown = 0;
    for (int m = 0; m < drafters->n_models; m++) {
        if (planning_may_draft(p, seq, m)) return;
        n_outgrown += drafters_may_guess(drafters, seq, m) ? 1 : 0;
    }
    bool has_finder = drafters_look_up(drafters) || drafters_is_brought(drafters, seq);
    if (n_outgrown == 0 || (has_finder && planning_is_planned(seq))) return;
    seq->speculation_off = "the text has outgrown the draft's context or KV cache";
}

/* The guesses of a sequence with a K of its own. */
struct own_guesses {
    int k;
    bool reads_first;        /* the drafter has more to read before it guesses */
    struct drafter *drafter; /* that makes them */
    struct planner_offer offer;
    struct lane_look_ahead look_ahead;
};

/* Rows besides the one of the last committed token. */
static int own_rows(const struct own_guesses *own)
{
    return own->k + lane_look_ahead_rows(&own->look_ahead);
}

/* Without a model the first finder guesses, where it finds something. */
static void choose_found(const struct planning *p, struct sequence *seq, struct own_guesses *own)
{
    const struct drafter *finder = own->drafter;
    bool has_none = !finder && !drafters_is_brought(p->s->drafters, seq);
    struct planner_offer offer = {0};
    if (has_none) seq->speculation_off = DRAFTERS_OWN_K_NEEDS;
    if (planning_is_first_plain(seq) || !finder) return;
    own->reads_first = lookup_read(own->drafter, seq, 0) > 0;
    if (!own->reads_first && !lookup_offer(finder, seq, &offer)) return;
    own->k = planner_own_k(&seq->planner_state, planning_guess_room(p, seq));
}

static struct own_guesses choose_guesses(const struct planning *p, struct sequence *seq)
{
    struct own_guesses own = {0};
    own.drafter = planning_request_finder(p, seq, &own.offer);
    if (own.drafter) {
        own.k = planner_own_k(&seq->planner_state, planning_guess_room(p, seq));
        return own;
    }
    own.offer = (struct planner_offer){0};
    own.drafter = drafters_first(p->s->drafters);
    if (own.drafter && own.drafter->row->model) {
        int model = own.drafter->model;
        note_outgrown(p, seq);
        own.k = planner_own_k(&seq->planner_state, model_limit(p, seq, model));
        own.reads_first = planning_n_missed(seq, model) > CAUGHT_UP_TOKENS;
    } else {
        choose_found(p, seq, &own);
    }
    return own;
}

/* K of a sequence whose strategy does not leave it to the planner, and who guesses; of others, no
 * guesses. */
static struct own_guesses choose_own(const struct planning *p, struct sequence *seq)
{
    struct own_guesses own = {0};
    if (planning_is_planned(seq)) return own;
    own = choose_guesses(p, seq);
    planning_look_ahead_own(p, seq, own.k, &own.look_ahead);
    return own;
}

static struct lane_plan *add_lane(struct planning *p, struct sequence *seq, int n_tokens,
                                  const struct own_guesses *own)
{
    struct lane_plan *lane = &p->plan->lanes[p->plan->n_lanes++];
    bool is_last = n_tokens == n_unread(seq) && !seq->is_score;
    *lane = (struct lane_plan){
        .seq = seq, .n_tokens = n_tokens, .look_ahead = own->look_ahead, .is_last = is_last};
    guess_tree_plan(&lane->tree, own->k, GUESS_CHAIN);
    if (own->k > 0) {
        lane->offer = own->offer;
        lane->drafter = own->drafter;
    }
    p->n_tokens -= n_tokens + own_rows(own);
    p->n_rows -= is_last ? own_rows(own) + 1 : 0;
    p->plan->n_tokens += n_tokens;
    return lane;
}

/* ---- decoding lanes ---- */

static bool decodes(const struct sequence *seq)
{
    return !seq->is_score && n_unread(seq) == 1 && !seq->backpressure.slow_us;
}

/* A sequence that reads a prompt, is replayed, or is scored. */
static bool feeds(const struct sequence *seq)
{
    return !seq->backpressure.slow_us && !decodes(seq);
}

/* Lists decoding sequences, those first whose last round is longest ago, so that a lane that found
 * no room in one round finds it in the next. */
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
        const struct own_guesses own = choose_own(p, list[i]);
        if (own.k > 0 && own.reads_first) continue;
        int n_rows = 1 + own_rows(&own);
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
                                const struct own_guesses *own, int n_rows)
{
    int n = own_rows(own);
    if (own->k > 0 && own->reads_first) return true;
    return n > 0 && (n + 1 > n_rows || n_unread(seq) + n > p->n_tokens);
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
    int n = least(n_unread(seq), least(room, p->n_tokens));
    struct own_guesses own = {0};
    bool is_scored = sequence_scores_prompt(seq) && seq->n_scored < seq->n_prompt;
    if (is_scored) n = least(n, scored_room(p, seq));
    if (n == n_unread(seq) && waits_for_features(p, seq)) {
        n--;
    } else if (n == n_unread(seq) && !seq->is_score) {
        int n_rows = p->n_rows - (is_scored ? n - 1 : 0); /* the last token has no score */
        own = choose_own(p, seq);
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
        if (feeds(p->seqs[i])) wish = sequence_features(p->seqs[i]);
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
        if (!feeds(p->seqs[i])) continue;
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
        int at = i, n_tokens = n_unread(list[i].seq);
        for (; at > 0 && n_unread(sorted[at - 1]->seq) >= 2 * n_tokens; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = &list[i];
    }
}

static int hand_out(struct feeding *feeding, int room)
{
    int n = least(n_unread(feeding->seq) - feeding->n_tokens, room);
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

/* ---- guesses ---- */

/* Lists the guesses that finders have for a lane; returns how many offers there are. */
static int list_offers(const struct planning *p, struct lane_plan *lane,
                       struct planner_offer *offers)
{
    const struct sequence *seq = lane->seq;
    int n = 0, room = planning_guess_room(p, seq);
    for (int i = 0; i < p->s->drafters->n_finders && room > 0; i++) {
        const struct drafter *finder = p->s->drafters->finders[i];
        if (!drafters_may_look(finder, seq)) continue;
        offers[n] = (struct planner_offer){.finder = i};
        if (!lookup_offer(finder, seq, &offers[n])) continue;
        offers[n].k_max = least(offers[n].k_max, room);
        struct lane_found *found = &lane->found[n];
        found->n = lookup_preview(finder, seq, found->tokens, FORESEEN_MAX);
        offers[n].is_fixed = found->n > 0;
        found->offer = offers[n++];
    }
    lane->n_found = n;
    return n;
}

/* Takes over the planner's choice for a lane. */
static void take_choice(struct planning *p, struct lane_plan *lane,
                        const struct planner_lane *choice)
{
    struct drafters *drafters = p->s->drafters;
    lane->tree = choice->tree;
    lane->follows_q = guess_tree_count(&lane->tree, GUESS_GROWN) > 0 && lane->seq->follows_q;
    lane->branch = choice->branch;
    p->n_tokens -= lane->tree.n;
    p->n_rows -= lane->tree.n;
    if (lane->tree.n == 0) return;
    if (!choice->offer) {
        lane->drafter = drafters->models[choice->model];
        return;
    }
    lane->drafter = drafters->finders[choice->offer->finder];
    lane->offer = *choice->offer;
}

/* Lists what a draft model may do for a lane: how many passes it may save, and whether it may guess
 * after siblings. One that reads ahead what it is expected to guess would need further passes for
 * these. */
static struct planner_drafting list_drafting(const struct planning *p, struct sequence *seq,
                                             int model)
{
    int n_missed = planning_n_missed(seq, model);
    struct planner_drafting drafting = {
        .k_max = n_missed > CAUGHT_UP_TOKENS ? 0 : model_limit(p, seq, model),
        .n_missed = n_missed,
    };
    struct draft_stage *stage = p->s->drafters->models[model]->stage;
    if (stage && drafting.k_max > 0) stage->predict(stage, seq, drafting.staged);
    drafting.grows = seq->grows && drafting.staged[1] <= 0;
    return drafting;
}

/* Makes room, of what all lanes have left, after the draft's guesses for such as are found there.
 * How much of it is used depends on guesses, all of which are sent then. A lane that guesses after
 * siblings has none: both are for the rows that are left. Independent chains stay equally long. */
static void make_room_after(struct planning *p, struct lane_plan *lane)
{
    int k = lane->tree.n_chain;
    if (k == 0 || !lane_plan_is_drafted(lane)) return;
    if (guess_tree_count(&lane->tree, GUESS_GROWN) > 0 || lane->tree.is_independent) return;
    int room = least(least(DRAFT_MAX, planning_guess_room(p, lane->seq)) - k,
                     least(p->n_tokens, p->n_rows));
    guess_tree_plan(&lane->tree, least(room, p->s->append_max), GUESS_CHAIN | GUESS_APPENDED);
    p->n_tokens -= lane->tree.n_chain - k;
    p->n_rows -= lane->tree.n_chain - k;
}

/* The tree of a lane whose tree is given, or its chain alone where the step has no room for it. */
static void plan_fixed_tree(struct planning *p, struct lane_plan *lane)
{
    const struct tree_widths *widths = lane->seq->tree;
    if (!widths || !lane_plan_is_drafted(lane)) return;
    struct guess_tree tree;
    tree_widths_plan(widths, lane->tree.n_chain, &tree);
    int n = tree.n - lane->tree.n;
    if (n > least(p->n_tokens, p->n_rows)) return;
    /* Where tokens are matched, two guesses of the same token are one. */
    tree.is_independent &= lane->seq->rule->judges_q && lane->seq->sampling.temperature > 0;
    lane->tree = tree;
    lane->follows_q = guess_tree_count(&tree, GUESS_GROWN) > 0 && lane->seq->follows_q;
    p->n_tokens -= n;
    p->n_rows -= n;
}

/* Counts the rows that a lane adds to the step before guesses are planned, and adds its guesses to
 * the passes of its draft model, which has no rows for siblings, and a parallel one has none for
 * what is after them. */
static int load_of(const struct planning *p, const struct lane_plan *lane,
                   struct planner_load *load)
{
    const struct guess_tree *tree = &lane->tree;
    bool has_features = drafters_features(p->s->drafters, lane->seq) != NULL;
    if (has_features) load->n_features += lane->n_tokens + tree->n;
    bool is_drafted = lane_plan_is_drafted(lane);
    int without = GUESS_SIBLING | (is_drafted && lane->drafter->is_parallel ? GUESS_GROWN : 0);
    for (int i = 0; i < tree->n && is_drafted; i++) {
        if (tree->marks[i] & without) continue;
        load->n_guessing[lane->drafter->model][guess_tree_place(tree, i)]++;
    }
    return lane->n_tokens + tree->n + lane_look_ahead_rows(&lane->look_ahead);
}

/* Texts that go on reading a prompt after this step. */
static int count_waiting(const struct planning *p)
{
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        n += feeds(p->seqs[i]) ? 1 : 0;
    }
    for (int i = 0; i < p->plan->n_lanes; i++) {
        n -= p->plan->lanes[i].is_last && feeds(p->plan->lanes[i].seq) ? 1 : 0;
    }
    return n;
}

static void plan_guesses(struct planning *p)
{
    struct planner_lane lanes[SEQUENCES_MAX];
    struct planner_offer offers[SEQUENCES_MAX][PLANNER_FINDERS];
    struct lane_plan *owners[SEQUENCES_MAX];
    struct planner_load load = {.n_prompt = p->plan->n_prompt};
    int n = 0, n_rows = 0;
    for (int i = 0; i < p->plan->n_lanes; i++) {
        plan_fixed_tree(p, &p->plan->lanes[i]);
    }
    for (int i = 0; i < p->plan->n_lanes; i++) {
        struct lane_plan *lane = &p->plan->lanes[i];
        struct sequence *seq = lane->seq;
        n_rows += load_of(p, lane, &load);
        if (lane->is_last && !planning_is_planned(seq)) load.n_decoding++;
        if (!lane->is_last || !planning_is_planned(seq)) continue;
        lanes[n] = (struct planner_lane){
            .seq = &seq->planner_state,
            .has_features = drafters_features(p->s->drafters, seq) != NULL,
            .n_left = seq->end - seq->n_tokens,
            .offers = offers[n],
            .n_offers = list_offers(p, lane, offers[n]),
            .siblings_max = seq->siblings_max,
            .nodes_max = TREE_PATHS_MAX - 1, /* each sibling ends a path, and so does a branch */
        };
        note_outgrown(p, seq);
        for (int m = 0; m < p->s->drafters->n_models; m++) {
            lanes[n].models[m] = list_drafting(p, seq, m);
        }
        owners[n++] = lane;
    }
    load.n_waiting = p->plan->n_waiting = count_waiting(p);
    load.n_rows = n_rows - n;
    load.n_rows_max = n_rows + least(p->n_tokens, p->n_rows);
    planner_share(p->s->planner, lanes, n, &load);
    for (int i = 0; i < n; i++) {
        take_choice(p, owners[i], &lanes[i]);
    }
    for (int i = 0; i < n; i++) {
        make_room_after(p, owners[i]);
    }
    planning_share_look_ahead(p, owners, n);
    planning_open_windows(p, owners, n);
}

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
        n_feeding += feeds(seqs[i]) ? 1 : 0;
    }
    plan_decoding(&p, n_feeding);
    if (n_feeding) plan_prompts(&p);
    plan_guesses(&p);
    planning_read(&p);
    planning_reserve(&p);
    count(plan);
    int n_read[PLANNER_MODELS] = {0};
    for (int i = 0; i < plan->n_readings; i++) {
        n_read[plan->readings[i].model] += plan->readings[i].n_tokens;
    }
    plan->expected_us = planner_round_us(s->planner, n_read);
}
