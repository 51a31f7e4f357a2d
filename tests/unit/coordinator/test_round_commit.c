/* ctest: labels=quick libs=coordinator timeout=60 */
/* A round whose step is done: the tokens that stay are committed, and each guess is counted for the
 * drafter that has made it. The drafts and what the target says are given; the text, its blocks,
 * the tree of the guesses, the planner and the metrics are real. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "coordinator/draft/finder.h"
#include "coordinator/round/round.h"
#include "tests/support/drafter_world.h"
#include "tests/support/guess_tables.h"

enum { SESSION, STORE, LOOKAHEAD, PREDICTED, MOST = 6, NODES = 1 + TREE_NODES_MAX };

/* Counts of guesses that a drafter has made, and of those that were accepted. */
struct counted {
    int n, n_kept;
};

/* A round of one text. Lists end with 0. */
struct case_ {
    const char *name;
    int32_t chain[MOST], siblings[MOST], branch[MOST];
    int place;         /* of the guess whose siblings these are */
    int n_appended;    /* the last guesses of the chain */
    int finder;        /* that has made the chain; -1: the draft model */
    bool has_window;   /* the branch is the window of lookahead, otherwise it is the store's */
    bool is_predicted; /* or that of what the request predicts */
    int32_t said[MOST];
    struct counted guesses[SIGNALS_DRAFTERS], besides[SIGNALS_DRAFTERS];
    int n_found, n_found_kept;
    int32_t grown[MOST]; /* after siblings */
    int8_t parents[MOST];
    struct counted learned; /* of these: what the planner is told */
    int n_planned;          /* of a tree that follows q: guesses planned after sibling 0 */
    int n_siblings_learned; /* of such a tree: siblings whose test the planner is told of */
    bool is_fixed;          /* such a tree is that of the option, and not planned */
};

static const struct case_ cases[] = {
    {.name = "a chain of the draft's",
     .chain = {20, 21, 22},
     .finder = -1,
     .said = {20, 21, 9},
     .guesses = {[SIGNALS_MODEL] = {3, 2}}},
    {.name = "a chain that was found",
     .chain = {20, 21, 22},
     .finder = STORE,
     .said = {20, 21, 22, 9},
     .guesses = {[SIGNALS_STORE] = {3, 3}},
     .n_found = 3,
     .n_found_kept = 3},
    {.name = "a chain that was predicted",
     .chain = {20, 21, 22},
     .finder = PREDICTED,
     .said = {20, 21, 9},
     .guesses = {[SIGNALS_PREDICTION] = {3, 2}},
     .n_found = 3,
     .n_found_kept = 2},
    {.name = "a branch that was predicted",
     .chain = {20, 21, 22},
     .branch = {20, 25, 26, 27},
     .is_predicted = true,
     .finder = -1,
     .said = {20, 25, 26, 9},
     .guesses = {[SIGNALS_MODEL] = {3, 1}},
     .besides = {[SIGNALS_PREDICTION] = {3, 2}}},
    {.name = "no guesses", .finder = -1, .said = {9}},
    {.name = "a sibling stays",
     .chain = {20, 21},
     .siblings = {30, 31},
     .finder = -1,
     .said = {31, 9},
     .guesses = {[SIGNALS_MODEL] = {2, 0}},
     .besides = {[SIGNALS_MODEL] = {2, 1}}},
    {.name = "siblings of what was found",
     .chain = {20, 21},
     .siblings = {30, 31},
     .finder = SESSION,
     .said = {20, 9},
     .guesses = {[SIGNALS_SESSION] = {2, 1}},
     .besides = {[SIGNALS_SESSION] = {2, 0}},
     .n_found = 2,
     .n_found_kept = 1},
    {.name = "guesses after the draft's, some of which stay",
     .chain = {20, 21, 22, 23},
     .n_appended = 2,
     .finder = -1,
     .said = {20, 21, 22, 9},
     .guesses = {[SIGNALS_MODEL] = {2, 2}, [SIGNALS_SESSION] = {2, 1}},
     .n_found = 2,
     .n_found_kept = 1},
    {.name = "guesses after the draft's, which is wrong",
     .chain = {20, 21, 22, 23},
     .n_appended = 2,
     .finder = -1,
     .said = {20, 9},
     .guesses = {[SIGNALS_MODEL] = {2, 1}, [SIGNALS_SESSION] = {2, 0}},
     .n_found = 2},
    {.name = "a branch leaves the chain",
     .chain = {20, 21, 22},
     .branch = {20, 25, 26, 27},
     .finder = -1,
     .said = {20, 25, 26, 9},
     .guesses = {[SIGNALS_MODEL] = {3, 1}},
     .besides = {[SIGNALS_STORE] = {3, 2}}},
    {.name = "the chain is right, and the branch is not",
     .chain = {20, 21, 22},
     .branch = {20, 25, 26},
     .finder = -1,
     .said = {20, 21, 22, 9},
     .guesses = {[SIGNALS_MODEL] = {3, 3}},
     .besides = {[SIGNALS_STORE] = {2, 0}}},
    {.name = "a branch goes on after a sibling",
     .chain = {20, 21},
     .siblings = {30, 31},
     .branch = {30, 32, 33},
     .finder = -1,
     .said = {30, 32, 9},
     .guesses = {[SIGNALS_MODEL] = {2, 0}},
     .besides = {[SIGNALS_MODEL] = {2, 1}, [SIGNALS_STORE] = {2, 1}}},
    {.name = "a branch goes on after the chain",
     .chain = {20, 21},
     .branch = {20, 21, 22},
     .finder = -1,
     .said = {20, 21, 22, 9},
     .guesses = {[SIGNALS_MODEL] = {2, 2}},
     .besides = {[SIGNALS_STORE] = {1, 1}}},
    {.name = "a window beside the draft's guess",
     .chain = {20},
     .branch = {40, 41, 42},
     .finder = -1,
     .has_window = true,
     .said = {40, 41, 9},
     .guesses = {[SIGNALS_MODEL] = {1, 0}},
     .besides = {[SIGNALS_LOOKAHEAD] = {3, 2}}},
    {.name = "a window beside what was found",
     .chain = {20, 21},
     .branch = {40, 41},
     .finder = STORE,
     .has_window = true,
     .said = {20, 9},
     .guesses = {[SIGNALS_STORE] = {2, 1}},
     .besides = {[SIGNALS_LOOKAHEAD] = {2, 0}},
     .n_found = 2,
     .n_found_kept = 1},
    {.name = "a sibling goes on",
     .chain = {20, 21},
     .siblings = {30, 31},
     .grown = {40, 41, 42},
     .parents = {-1, -1, 0}, /* after 30: 40 and 41; after 40: 42 */
     .finder = -1,
     .said = {30, 40, 42, 9},
     .guesses = {[SIGNALS_MODEL] = {2, 0}},
     .besides = {[SIGNALS_MODEL] = {5, 3}},
     .learned = {2, 2}},
    {.name = "the sibling of a guess after a sibling stays",
     .chain = {20, 21},
     .siblings = {30, 31},
     .grown = {40, 41, 42, 43},
     .parents = {-1, -2, -2, 2}, /* after 30: 40; after 31: 41 and 42; after 42: 43 */
     .finder = -1,
     .said = {31, 42, 9},
     .guesses = {[SIGNALS_MODEL] = {2, 0}},
     .besides = {[SIGNALS_MODEL] = {6, 2}},
     .learned = {3, 1}},
    {.name = "a sibling stays, and the guess after it does not",
     .chain = {20, 21},
     .siblings = {30},
     .grown = {40, 41},
     .parents = {-1, -1},
     .finder = -1,
     .said = {30, 9},
     .guesses = {[SIGNALS_MODEL] = {2, 0}},
     .besides = {[SIGNALS_MODEL] = {3, 1}},
     .learned = {2, 0}},
    {.name = "the chain stays, and siblings would have gone on",
     .chain = {20, 21},
     .siblings = {30},
     .grown = {40},
     .parents = {-1},
     .finder = -1,
     .said = {20, 21, 9},
     .guesses = {[SIGNALS_MODEL] = {2, 2}},
     .besides = {[SIGNALS_MODEL] = {2, 0}}},
    {.name = "q has put guesses after the sibling that stays",
     .chain = {20, 21},
     .siblings = {30, 31},
     .grown = {40, 41, 42},
     .parents = {-2, -2, 1}, /* after 31: 40 and 41; after 41: 42, for a place without a plan */
     .finder = -1,
     .said = {31, 41, 9},
     .guesses = {[SIGNALS_MODEL] = {2, 0}},
     .besides = {[SIGNALS_MODEL] = {5, 2}},
     .learned = {1, 1},
     .n_planned = 2,
     .n_siblings_learned = 2},
    {.name = "q has put no guess after the sibling that stays",
     .chain = {20, 21},
     .siblings = {30, 31},
     .grown = {40, 41},
     .parents = {-1, -1},
     .finder = -1,
     .said = {31, 9},
     .guesses = {[SIGNALS_MODEL] = {2, 0}},
     .besides = {[SIGNALS_MODEL] = {4, 1}},
     .learned = {1, 0},
     .n_planned = 2,
     .n_siblings_learned = 2},
    {.name = "q has put no guess after any sibling",
     .chain = {20, 21},
     .siblings = {30, 31},
     .finder = -1,
     .said = {31, 9},
     .guesses = {[SIGNALS_MODEL] = {2, 0}},
     .besides = {[SIGNALS_MODEL] = {2, 1}},
     .learned = {1, 0},
     .n_planned = 2,
     .n_siblings_learned = 2},
    {.name = "the tree that follows q is that of the option",
     .chain = {20, 21},
     .siblings = {30, 31},
     .grown = {40},
     .parents = {-2},
     .finder = -1,
     .said = {31, 9},
     .guesses = {[SIGNALS_MODEL] = {2, 0}},
     .besides = {[SIGNALS_MODEL] = {3, 1}},
     .n_planned = 2,
     .n_siblings_learned = 2,
     .is_fixed = true},
    {.name = "q has given the second guess siblings, and one of them stays",
     .chain = {20, 21},
     .siblings = {30, 31},
     .place = 1,
     .finder = -1,
     .said = {20, 31, 9},
     .guesses = {[SIGNALS_MODEL] = {2, 1}},
     .besides = {[SIGNALS_MODEL] = {2, 1}},
     .n_planned = 2},
    {.name = "the chain stays, and q would have let siblings go on",
     .chain = {20, 21},
     .siblings = {30},
     .grown = {40},
     .parents = {-1},
     .finder = -1,
     .said = {20, 21, 9},
     .guesses = {[SIGNALS_MODEL] = {2, 2}},
     .besides = {[SIGNALS_MODEL] = {2, 0}},
     .n_planned = 1},
    {.name = "a window alone",
     .branch = {40, 41},
     .finder = -1,
     .has_window = true,
     .said = {40, 9},
     .besides = {[SIGNALS_LOOKAHEAD] = {2, 1}}},
};

/* ---- a reply that nobody reads ---- */

static int take_tokens(struct reply *reply, const struct generate_tokens *tokens, struct error *err)
{
    (void)reply;
    (void)tokens;
    (void)err;
    return 0;
}

static void take_close(struct reply *reply)
{
    (void)reply;
}

static const struct reply_ops ops = {.tokens = take_tokens, .close = take_close};
static struct reply no_reader = {.ops = &ops};

/* ---- a round ---- */

static struct bench b;
static struct planner planner;
static struct signals *signals;
static struct appended appended;
static struct round_tools tools;
static struct round r;
static struct target_row rows[NODES];
static int32_t said[NODES];
static int32_t blocks[MOST]; /* of the text, as they must be after the round */
static int n_sent;           /* of them, those that the ranks know then */

static int length(const int32_t *ids)
{
    int n = 0;
    while (n < MOST && ids[n]) {
        n++;
    }
    return n;
}

static void open_round(void)
{
    const struct lookup_options lookups = {.lookup = "session,store,lookahead",
                                           .n_sequences = SLOTS,
                                           .store_tokens = 4096,
                                           .reads_predictions = true};
    const struct signals_options options = {.version = "1", .draft_name = ""};
    struct error err;
    setup(&b, RULE_GREEDY, 0);
    take_away(&b, b.seq);
    struct lookup_options own = lookups;
    own.tok = b.tok;
    CHECK_OK(drafters_open(&b.drafters, b.drafter, &own, &err));
    drafters_set_vocabulary(&b.drafters, 4096);
    b.seq = place_text(&b, 0, prompt, N_PROMPT);
    follow(b.seq, RULE_GREEDY, 0);
    b.seq->job->reply = &no_reader;
    b.seq->n_target_kv = N_PROMPT - 1;
    CHECK_OK(signals_open(&signals, &options, &err));
    appended_begin(&appended, APPEND_ON, &b.drafters, &planner);
    tools = (struct round_tools){.drafters = &b.drafters,
                                 .appended = &appended,
                                 .target_pool = &b.target_pool,
                                 .planner = &planner,
                                 .tok = b.tok,
                                 .signals = signals};
    r.tools = &tools;
    CHECK_OK(arena_open(&r.arena, 4 << 20, &err));
}

static void close_round(void)
{
    take_away(&b, b.seq);
    b.seq = NULL;
    ck_assert_int_eq(block_pool_room(&b.target_pool), b.target_pool.n_blocks);
    drafters_close(&b.drafters);
    signals_close(signals);
    arena_close(&r.arena);
    teardown(&b);
}

/* The chain with its siblings, what grew after these, and the branch, with one-hot q's as finders
 * make them. */
static void make_draft(const struct case_ *c, struct guess_tree *draft)
{
    static struct sparse_dist q[MOST];
    static const float one = 1;
    struct guess_tree branch = {.base = N_PROMPT};
    struct finder_guess guesses[MOST] = {{0}};
    struct draft_lane lane = {.seq = b.seq, .k = MOST, .ends = &no_ends, .draft = &branch};
    int n = length(c->chain), grown[MOST];
    for (int i = 0; i < length(c->branch); i++) {
        guesses[i] = (struct finder_guess){.n = 1, .tokens = {c->branch[i]}};
    }
    finder_take(&lane, guesses, length(c->branch), &r.arena);
    for (int i = 0; i < n; i++) {
        guesses[i] = (struct finder_guess){.n = 1, .tokens = {c->chain[i]}};
    }
    for (int i = 0; i < length(c->siblings); i++) {
        guesses[c->place].tokens[guesses[c->place].n++] = c->siblings[i];
    }
    guess_tree_begin(draft, N_PROMPT);
    lane.draft = draft;
    lane.siblings_max = SIBLINGS_MAX;
    finder_take(&lane, guesses, n, &r.arena);
    ck_assert_int_eq(draft->n_chain, n);
    for (int i = n - c->n_appended; i < n; i++) {
        draft->marks[draft->chain[i]] |= GUESS_APPENDED;
    }
    for (int i = 0; i < length(c->grown); i++) {
        int name = c->parents[i];
        int parent =
            name >= 0 ? grown[name] : draft->chain[growth_guess(name)] + 1 + growth_sibling(name);
        q[i] =
            (struct sparse_dist){1, (int32_t *)(uintptr_t)&c->grown[i], (float *)(uintptr_t)&one};
        grown[i] = guess_tree_add(draft, parent, GUESS_GROWN, c->grown[i], &q[i]);
    }
    for (int i = 0, at = -1; i < branch.n; i++) {
        at = guess_tree_branch(draft, at, branch.tokens[i], branch.q[i]);
    }
    guess_tree_sort(draft);
}

static void make_plan(const struct case_ *c, struct lane_plan *plan)
{
    int n = length(c->chain);
    struct drafter *made = c->finder < 0 ? b.drafters.models[0] : b.drafters.finders[c->finder];
    *plan = (struct lane_plan){
        .seq = b.seq, .n_tokens = 1, .drafter = n > 0 ? made : NULL, .is_last = true};
    plan->follows_q = c->n_planned > 0;
    b.seq->planner_state.strategy =
        plan->follows_q && !c->is_fixed ? STRATEGY_PLANNED : STRATEGY_FIXED;
    guess_tree_plan(&plan->tree, n - c->n_appended, GUESS_CHAIN);
    guess_tree_plan(&plan->tree, c->n_appended, GUESS_CHAIN | GUESS_APPENDED);
    for (int i = 0; c->n_planned > 0 && i < length(c->siblings); i++) {
        guess_tree_add(&plan->tree, -1, GUESS_SIBLING, -1, NULL);
    }
    for (int i = 0; i < c->n_planned; i++) {
        guess_tree_add(&plan->tree, n, GUESS_GROWN, -1, NULL); /* after the first sibling */
    }
    guess_tree_plan(&plan->tree, length(c->branch), GUESS_BRANCH);
    if (c->has_window) {
        plan->window = b.drafters.finders[LOOKAHEAD];
    } else {
        plan->branch =
            (struct planner_branch){.offer = {.finder = c->is_predicted ? PREDICTED : STORE}};
    }
}

/* Blocks and a tree, as a step would leave them, and the target's rows: after every guess of a
 * place it says the same. */
static void make_step(const struct case_ *c, struct round_lane *lane)
{
    static const float one = 1;
    static const struct error *no_errors[1];
    struct sequence *seq = b.seq;
    struct error err;
    const struct guess_tree *draft = &lane->draft;
    int end = seq->n_tokens + MOST;
    CHECK_OK(block_table_reach(&seq->target_blocks, &b.target_pool, end, &err));
    if (draft->n > draft->n_chain) {
        CHECK_OK(tree_layout_init(&lane->layout, draft->parents, draft->n, &err));
        lane->plan.tails = &r.plan.tails[0];
        CHECK_OK(block_tails_reserve(lane->plan.tails, &b.target_pool, &seq->target_blocks,
                                     &lane->layout, seq->n_tokens, &err));
    }
    for (int i = 0; i <= draft->n; i++) {
        int place = guess_tree_depth(draft, i - 1);
        said[i] = place < length(c->said) ? c->said[place] : 8;
        rows[i] = (struct target_row){.n = 1, .ids = &said[i], .p = &one, .outside_id = -1};
    }
    r.result = (struct target_result){.rows = rows, .lane_errors = no_errors};
}

/* The guess with which the path that stays ends; -1: none stays. */
static int last_kept(const struct case_ *c, const struct guess_tree *tree)
{
    int last = -1;
    for (int i = 0, at = 0; i < length(c->said) && at < tree->n; i++) {
        at = last + 1;
        while (at < tree->n && (tree->parents[at] != last || tree->tokens[at] != c->said[i])) {
            at++;
        }
        if (at < tree->n) last = at;
    }
    return last;
}

/* The text's blocks with those of the path that stays. Guesses are in depth-first order, so the
 * first path that has a guess comes after one for each leaf before that. */
static void expect_blocks(const struct case_ *c, const struct round_lane *lane)
{
    const struct block_table *table = &b.seq->target_blocks;
    const struct block_tails *tails = lane->plan.tails;
    int path = 0, last = tails ? last_kept(c, &lane->draft) : -1;
    ck_assert_int_le(table->n, MOST);
    memcpy(blocks, table->blocks, (size_t)table->n * sizeof *blocks);
    n_sent = table->n;
    for (int i = 0; i < last; i++) {
        path += lane->draft.parents[i + 1] != i ? 1 : 0;
    }
    if (path == 0) return;
    n_sent = N_PROMPT / b.target_pool.block_tokens;
    for (int i = tails->ends[path - 1], at = n_sent; i < tails->ends[path]; i++, at++) {
        blocks[at] = tails->blocks[i];
    }
}

/* Checks what each model has read of the text, and where that is. */
static void check_kv(const struct case_ *c, int n_kept)
{
    const struct sequence *seq = b.seq;
    ck_assert_int_eq(seq->n_draft_kv[0], N_PROMPT + n_kept);
    ck_assert_int_eq(seq->n_target_kv, N_PROMPT + length(c->said) - 1);
    ck_assert_int_ge(seq->target_blocks.n * b.target_pool.block_tokens, seq->n_target_kv);
    ck_assert_mem_eq(seq->target_blocks.blocks, blocks,
                     (size_t)seq->target_blocks.n * sizeof *blocks);
    ck_assert_int_eq(seq->n_blocks_sent, n_sent);
}

static void prepare(const struct case_ *c)
{
    struct round_lane *lane = &r.lanes[0];
    arena_reset(&r.arena);
    *lane = (struct round_lane){.seq = b.seq};
    r.n_lanes = r.n_step_lanes = 1;
    make_plan(c, &lane->plan);
    planner_prior_of(&planner.models[0].counts, PLANNER_FIRST_ALPHA, &planner.models[0].prior);
    make_draft(c, &lane->draft);
    lane->fed = &lane->draft;
    make_step(c, lane);
    expect_blocks(c, lane);
    b.seq->n_draft_kv[0] = N_PROMPT + lane->draft.n_chain; /* the draft has read its whole chain */
}

/* Finishes a lane whose answer is there, as round_run does. */
static void finish(struct round_lane *lane)
{
    struct round_accepted accepted;
    struct error err;
    if (round_take_answer(&r, lane)) {
        CHECK_OK(round_accept(&r, lane, &accepted, &err));
        CHECK_OK(round_commit(&r, lane, &accepted, &err));
    }
    round_learn(&r);
}

static void play(const struct case_ *c)
{
    struct round_lane *lane = &r.lanes[0];
    prepare(c);
    finish(lane);
    ck_assert_msg(lane->err.code == 0, "%s: %s", c->name, lane->err.text);
    if (lane->plan.tails) block_tails_release(lane->plan.tails, &b.target_pool);
}

static void check_count(const struct case_ *c, enum signal signal, int value, int wanted)
{
    int n = (int)signals_get(signals, signal, value);
    ck_assert_msg(n == wanted, "%s: signal %d of %d is %d and not %d", c->name, (int)signal, value,
                  n, wanted);
}

START_TEST(each_guess_is_counted_for_its_drafter)
{
    const struct case_ *c = &cases[_i];
    int n_kept = 0, n_besides = 0, n_besides_kept = 0, n_said = length(c->said), n_learned = 0;
    open_round();
    play(c);
    ck_assert_int_eq(b.seq->n_tokens, N_PROMPT + n_said);
    ck_assert_mem_eq(b.seq->tokens + N_PROMPT, c->said, (size_t)n_said * sizeof *c->said);
    for (int i = 0; i < SIGNALS_DRAFTERS; i++) {
        check_count(c, SIGNAL_DRAFTER_TOKENS, i, c->guesses[i].n);
        check_count(c, SIGNAL_DRAFTER_ACCEPTED, i, c->guesses[i].n_kept);
        check_count(c, SIGNAL_SIBLING_TOKENS, i, c->besides[i].n);
        check_count(c, SIGNAL_SIBLING_ACCEPTED, i, c->besides[i].n_kept);
        n_kept += c->guesses[i].n_kept;
        n_besides += c->besides[i].n;
        n_besides_kept += c->besides[i].n_kept;
    }
    check_kv(c, n_kept);
    check_count(c, SIGNAL_DRAFT_TOKENS, 0, length(c->chain));
    check_count(c, SIGNAL_ACCEPTED_TOKENS, 0, n_kept);
    ck_assert_int_eq(n_said, 1 + n_kept + n_besides_kept);
    const struct generate_counters *counters = &b.seq->counters;
    ck_assert_uint_eq(counters->drafted, (uint32_t)length(c->chain));
    ck_assert_uint_eq(counters->accepted, (uint32_t)n_kept);
    ck_assert_uint_eq(counters->siblings, (uint32_t)n_besides);
    ck_assert_uint_eq(counters->siblings_accepted, (uint32_t)n_besides_kept);
    ck_assert_int_eq((int)roundf(planner.models[0].grown.tested), c->learned.n);
    ck_assert_int_eq((int)roundf(planner.models[0].grown.accepted), c->learned.n_kept);
    for (int i = 0; i < SIBLINGS_MAX; i++) {
        n_learned += (int)round(planner.siblings[0].tested[i]);
    }
    ck_assert(c->n_planned == 0 || n_learned == c->n_siblings_learned);
    ck_assert_uint_eq(counters->found, (uint32_t)c->n_found);
    ck_assert_uint_eq(counters->found_accepted, (uint32_t)c->n_found_kept);
    const struct counted *chain = &c->guesses[SIGNALS_PREDICTION];
    const struct counted *branch = &c->besides[SIGNALS_PREDICTION];
    ck_assert_uint_eq(counters->predicted, (uint32_t)(chain->n + branch->n));
    ck_assert_uint_eq(counters->predicted_accepted, (uint32_t)(chain->n_kept + branch->n_kept));
    ck_assert_uint_eq(counters->appended, (uint32_t)c->n_appended);
    ck_assert_uint_eq(counters->appended_accepted, c->n_appended ? (uint32_t)c->n_found_kept : 0);
    close_round();
}
END_TEST

/* Its time was over, or its client left: it has been answered, and its place is still to be
 * freed. */
START_TEST(a_job_that_ended_in_the_step_gets_nothing_more)
{
    open_round();
    prepare(&cases[0]);
    b.seq->job->is_over = true;
    finish(&r.lanes[0]);
    ck_assert_int_eq(b.seq->n_tokens, N_PROMPT);
    ck_assert_int_eq(r.lanes[0].err.code, 0);
    ck_assert(!r.lanes[0].is_committed);
    ck_assert_uint_eq(b.seq->counters.drafted, 0);
    check_count(&cases[0], SIGNAL_DRAFT_TOKENS, 0, 0);
    if (r.lanes[0].plan.tails) block_tails_release(r.lanes[0].plan.tails, &b.target_pool);
    close_round();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("round_commit");
    TCase *tcase = tcase_create("tales");
    tcase_add_loop_test(tcase, each_guess_is_counted_for_its_drafter, 0,
                        sizeof cases / sizeof *cases);
    tcase_add_test(tcase, a_job_that_ended_in_the_step_gets_nothing_more);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
