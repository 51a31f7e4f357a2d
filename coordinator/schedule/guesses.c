/* Guesses of a plan: how many each lane makes, and who makes them. Sequences with a K of their own
 * choose by themselves, and the planner shares out what is left among the others. */
#include "coordinator/schedule/parts.h"

#include "base/least.h"
#include "coordinator/draft/trees_option.h"
#include "coordinator/schedule/scheduler.h"

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

/* ---- with a K of its own ---- */

/* For a sequence with a K of its own the finder of what its request brings guesses, where the text
 * follows that: where it does not, the draft model guesses, if there is one. */
static struct drafter *request_finder(const struct planning *p, const struct sequence *seq,
                                      struct planner_offer *offer)
{
    const struct drafters *drafters = p->s->drafters;
    struct drafter *finder = drafters_brought(drafters, seq, offer);
    return finder && (offer->evidence > 0 || drafters->n_models == 0) ? finder : NULL;
}

/* Without a model the first finder guesses, where it finds something. */
static void choose_found(const struct planning *p, struct sequence *seq, struct planning_own *own)
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

static struct planning_own choose_guesses(const struct planning *p, struct sequence *seq)
{
    struct planning_own own = {0};
    own.drafter = request_finder(p, seq, &own.offer);
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

struct planning_own planning_choose_own(const struct planning *p, struct sequence *seq)
{
    struct planning_own own = {0};
    if (planning_is_planned(seq)) return own;
    own = choose_guesses(p, seq);
    planning_look_ahead_own(p, seq, own.k, &own.look_ahead);
    return own;
}

/* ---- planned ---- */

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
        n += planning_feeds(p->seqs[i]) ? 1 : 0;
    }
    for (int i = 0; i < p->plan->n_lanes; i++) {
        n -= p->plan->lanes[i].is_last && planning_feeds(p->plan->lanes[i].seq) ? 1 : 0;
    }
    return n;
}

void planning_guess(struct planning *p)
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
