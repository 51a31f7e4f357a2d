/* ctest: labels=quick libs=coordinator timeout=120 */
/* A draft that reads ahead what it is expected to guess: whatever is expected, guesses, their q
 * and siblings are bit for bit those of a pass for each guess, and only the number of passes
 * differs. */
#include "coordinator/draft/options.h"
#include "coordinator/draft/staged.h"
#include "tests/support/drafter_world.h"
#include "tests/support/guess_tables.h"

enum {
    WANTED = 8,     /* guesses */
    N_KINDS = 5,    /* of texts */
    N_CROWD = 40,   /* lanes, with more rows together than a step of the draft has */
    LONG_TEXT = 230 /* tokens */
};

static const struct kind {
    enum accept_rule rule;
    float temperature, threshold;
} kinds[N_KINDS] = {{RULE_REJECTION, 1.0f, 0},
                    {RULE_COUPLED, 1.0f, 0},
                    {RULE_GREEDY, 0, 0},
                    {RULE_BLOCK, 1.3f, 0},
                    {RULE_REJECTION, 0.6f, 0.3f}};

/* ---- what a draft has guessed ---- */

struct guesses {
    int n, is_over;
    int32_t tokens[DRAFT_MAX];
    int n_siblings[DRAFT_MAX];
    int32_t siblings[DRAFT_MAX][SIBLINGS_MAX];
    int n_q[DRAFT_MAX];
    int32_t ids[DRAFT_MAX][64];
    float p[DRAFT_MAX][64];
};

static void keep(const struct guess_tree *draft, struct guesses *kept)
{
    memset(kept, 0, sizeof *kept);
    kept->n = draft->n_chain;
    kept->is_over = draft->is_over;
    chain_tokens(draft, kept->tokens);
    for (int i = 0; i < draft->n_chain; i++) {
        const struct sparse_dist *q = guess_q(draft, i);
        kept->n_siblings[i] = guess_tree_siblings(draft, i);
        for (int s = 0; s < kept->n_siblings[i]; s++) {
            kept->siblings[i][s] = sibling_token(draft, i, s);
        }
        kept->n_q[i] = q->n;
        memcpy(kept->ids[i], q->ids, (size_t)q->n * sizeof *q->ids);
        memcpy(kept->p[i], q->p, (size_t)q->n * sizeof *q->p);
    }
}

/* ---- a stage that expects what it is told ---- */

struct told {
    struct draft_stage base;
    int32_t tokens[SLOTS * 8][DRAFT_MAX]; /* by slot: those that are expected of the draft */
    int n_fed;                            /* in a pass, at most */
    int n_compared;
};

static void expect_told(struct draft_stage *stage, struct draft_lane *const *lanes, int n)
{
    struct told *told = (struct told *)stage;
    for (int i = 0; i < n; i++) {
        struct draft_expected *expected = &lanes[i]->expected;
        ck_assert(lanes[i]->draft->n_chain > 0 || expected->n_passes == 0);
        expected->n_passes++;
        expected->begin = lanes[i]->draft->n_chain;
        expected->n = expected->n_fed = DRAFT_MAX - expected->begin;
        if (expected->n_fed > told->n_fed) expected->n_fed = told->n_fed;
        memcpy(expected->tokens, told->tokens[lanes[i]->seq->slot] + expected->begin,
               (size_t)expected->n * sizeof *expected->tokens);
    }
}

static void compare_told(struct draft_stage *stage, struct draft_lane *const *lanes, int n)
{
    struct told *told = (struct told *)stage;
    for (int i = 0; i < n; i++) {
        ck_assert(lanes[i]->err.code || lanes[i]->draft->n_chain > lanes[i]->expected.begin);
    }
    told->n_compared += n;
}

static void predict_nothing(struct draft_stage *stage, const struct sequence *seq, float *chances)
{
    (void)stage;
    (void)seq;
    (void)chances;
}

static struct told told = {.base = {expect_told, compare_told, predict_nothing}};

static void tell(int slot, const struct guesses *guesses)
{
    told.n_fed = DRAFT_MAX;
    memcpy(told.tokens[slot], guesses->tokens, sizeof guesses->tokens);
}

/* ---- one lane ---- */

/* As if the text had just been committed: the draft has read `n_read` tokens of it. */
static void propose(struct bench *b, int n_read, const struct end_ids *ends,
                    struct guess_tree *draft, struct draft_cost *cost)
{
    struct draft_lane lane = {
        .seq = b->seq, .k = WANTED, .ends = ends, .draft = draft, .siblings_max = SIBLINGS_MAX};
    *draft = (struct guess_tree){.base = b->seq->n_tokens};
    lane.expected.n_passes = 3; /* those of the round before */
    b->seq->n_draft_kv[0] = n_read;
    arena_reset(&b->arena);
    drafter_propose(b->drafter, &lane, 1, &b->arena, cost);
    ck_assert_msg(lane.err.code == 0, "%s", lane.err.text);
}

static void setup_kind(struct bench *b, int kind)
{
    setup(b, kinds[kind].rule, kinds[kind].temperature);
    b->seq->threshold = kinds[kind].threshold;
    b->seq->seed = 77;
}

/* A pass for each guess. */
static void guess_plainly(struct bench *b, int n_read, const struct end_ids *ends,
                          struct guesses *kept)
{
    struct guess_tree draft;
    struct draft_cost cost;
    b->drafter->stage = NULL;
    propose(b, n_read, ends, &draft, &cost);
    ck_assert_int_eq(cost.n_passes, draft.n_chain);
    ck_assert_int_eq(guess_tree_count(&draft, GUESS_STAGED), 0);
    keep(&draft, kept);
}

/* With what was told, in so many passes, of which the first reads so many tokens ahead. */
static void check_staged(struct bench *b, int n_read, const struct end_ids *ends,
                         const struct guesses *plain, int n_passes, int n_expected)
{
    static struct guesses staged;
    struct guess_tree draft;
    struct draft_cost cost;
    int n_compared = told.n_compared;
    b->drafter->stage = &told.base;
    propose(b, n_read, ends, &draft, &cost);
    keep(&draft, &staged);
    ck_assert_mem_eq(&staged, plain, sizeof staged);
    ck_assert_int_eq(cost.n_passes, n_passes);
    ck_assert_int_eq(told.n_compared - n_compared, n_passes);
    ck_assert_int_eq(guess_tree_count(&draft, GUESS_STAGED), draft.n_chain - n_passes);
    ck_assert_int_eq(cost.pass_expected[0], n_expected);
    ck_assert_int_eq(cost.first_pass_tokens, b->seq->n_tokens - n_read);
    ck_assert_int_eq(b->seq->n_draft_kv[0], b->seq->n_tokens + draft.n_chain - 1);
}

START_TEST(one_pass_makes_all_guesses_that_were_expected)
{
    static struct guesses plain;
    struct bench b;
    setup_kind(&b, _i);
    guess_plainly(&b, 0, &no_ends, &plain);
    ck_assert(plain.n == WANTED || kinds[_i].threshold > 0);
    for (int n_read = 0; n_read < N_PROMPT; n_read += 4) {
        tell(0, &plain);
        if (plain.n == WANTED) check_staged(&b, n_read, &no_ends, &plain, 1, WANTED - 1);
        for (told.n_fed = 0; told.n_fed < plain.n; told.n_fed++) {
            int a_pass = told.n_fed + 1;
            check_staged(&b, n_read, &no_ends, &plain, (plain.n + a_pass - 1) / a_pass, told.n_fed);
        }
    }
    teardown(&b);
}
END_TEST

/* The pass of the first guess that was another one is the last of its stage, and the next one goes
 * on with what is expected after it. */
START_TEST(a_guess_that_was_not_expected_is_kept)
{
    static struct guesses plain;
    struct bench b;
    setup_kind(&b, _i);
    guess_plainly(&b, 0, &no_ends, &plain);
    for (int wrong = 0; wrong < plain.n; wrong++) {
        bool is_read = wrong < WANTED - 1, goes_on = wrong < plain.n - 1;
        tell(0, &plain);
        told.tokens[0][wrong] = plain.tokens[wrong] == 300 ? 301 : 300;
        check_staged(&b, N_PROMPT - 1, &no_ends, &plain, is_read && goes_on ? 2 : 1, WANTED - 1);
    }
    for (int i = 0; i < DRAFT_MAX; i++) {
        told.tokens[0][i] = i < plain.n && plain.tokens[i] == 300 ? 301 : 300;
    }
    check_staged(&b, N_PROMPT - 1, &no_ends, &plain, plain.n, WANTED - 1);
    teardown(&b);
}
END_TEST

START_TEST(ids_that_are_no_tokens_are_not_read)
{
    static const int32_t ids[] = {-1, 4096, INT32_MAX, INT32_MIN};
    static struct guesses plain;
    struct bench b;
    setup_kind(&b, _i);
    guess_plainly(&b, 0, &no_ends, &plain);
    for (int at = 0; at < plain.n - 1; at++) {
        tell(0, &plain);
        told.tokens[0][at] = ids[at % 4];
        check_staged(&b, 0, &no_ends, &plain, 2, at);
    }
    teardown(&b);
}
END_TEST

/* Ids that exist for the draft alone. */
START_TEST(ids_that_the_target_lacks_are_not_read)
{
    enum { N_VOCAB = 2000 };
    static struct guesses plain;
    struct bench b;
    setup_kind(&b, _i);
    drafter_set_vocabulary(b.drafter, N_VOCAB);
    guess_plainly(&b, 0, &no_ends, &plain);
    tell(0, &plain);
    told.tokens[0][2] = N_VOCAB;
    if (plain.n == WANTED) check_staged(&b, 0, &no_ends, &plain, 2, 2);
    teardown(&b);
}
END_TEST

START_TEST(nothing_is_guessed_after_an_end)
{
    static struct guesses all, plain;
    struct bench b;
    setup_kind(&b, _i);
    guess_plainly(&b, 0, &no_ends, &all);
    for (int at = 0; at < all.n; at++) {
        int32_t end = all.tokens[at];
        const struct end_ids ends = {1, {end}};
        int first = 0;
        while (all.tokens[first] != end)
            first++;
        guess_plainly(&b, 0, &ends, &plain);
        ck_assert(plain.n == first + 1 && plain.is_over);
        tell(0, &all);
        check_staged(&b, 0, &ends, &plain, 1, first < WANTED - 1 ? first : WANTED - 1);
        /* An end that is expected and not guessed. */
        tell(0, &all);
        if (first < 1) continue;
        told.tokens[0][0] = end;
        check_staged(&b, 0, &ends, &plain, 2, 0);
    }
    teardown(&b);
}
END_TEST

/* Positions that were read for nothing are written again when the text goes on otherwise. */
START_TEST(later_rounds_make_the_same_guesses)
{
    static struct guesses plain[4];
    static const int kept[] = {2, 0, 5, 1};
    struct guess_tree draft;
    struct draft_cost cost;
    struct bench b;
    for (int staged = 0; staged < 2; staged++) {
        setup_kind(&b, _i);
        for (int round = 0; round < 4; round++) {
            int n_read = b.seq->n_draft_kv[0];
            if (staged) {
                tell(0, &plain[round]);
                told.tokens[0][3] = 17 + round; /* and what comes after it is right again */
                b.drafter->stage = &told.base;
                propose(&b, n_read, &no_ends, &draft, &cost);
                static struct guesses now;
                keep(&draft, &now);
                ck_assert_mem_eq(&now, &plain[round], sizeof now);
                if (draft.n_chain == WANTED) ck_assert_int_eq(cost.n_passes, 2);
            } else {
                guess_plainly(&b, n_read, &no_ends, &plain[round]);
            }
            int n = kept[round] < plain[round].n ? kept[round] : plain[round].n - 1;
            b.seq->n_tokens += n;
            b.seq->tokens[b.seq->n_tokens++] = 400 + round; /* the target's own */
            if (b.seq->n_draft_kv[0] > b.seq->n_tokens - 1)
                b.seq->n_draft_kv[0] = b.seq->n_tokens - 1;
            drafter_commit(b.drafter, b.seq);
        }
        teardown(&b);
    }
}
END_TEST

/* ---- company ---- */

static void open_crowd(struct bench *b)
{
    const struct drafter_options options = {
        .name = DRAFT,
        .backend = {.device = "cpu", .weights = "bf16", .kernels = "auto", .n_threads = 2},
        .n_sequences = N_CROWD,
        .support = 64,
        .kv_tokens = N_CROWD * CAPACITY};
    *b = (struct bench){0};
    setup_draft(b, &options);
    block_pool_close(&b->target_pool);
    struct error err;
    CHECK_OK(block_pool_open(&b->target_pool, N_CROWD * CAPACITY / 16, 16, &err));
}

/* A lane with a text of another length for each slot; some are as long as half a step. */
static struct sequence *place_one(struct bench *b, int slot)
{
    int32_t text[LONG_TEXT];
    int n = slot % 3 == 0 ? LONG_TEXT : N_PROMPT + slot % 7;
    memcpy(text, prompt, sizeof prompt);
    for (int i = N_PROMPT; i < n; i++) {
        text[i] = 250 + (i * 37 + slot * 101) % 3000;
    }
    struct sequence *seq = place_text(b, slot, text, n);
    follow(seq, kinds[slot % 4].rule, kinds[slot % 4].temperature);
    seq->seed = (uint64_t)slot;
    return seq;
}

static int wanted_of(int slot)
{
    return 1 + slot * 5 % WANTED;
}

static void propose_crowd(struct bench *b, struct guesses *kept, struct draft_cost *cost)
{
    static struct guess_tree drafts[N_CROWD];
    static struct draft_lane lanes[N_CROWD];
    struct sequence *seqs[N_CROWD];
    arena_reset(&b->arena);
    for (int i = 0; i < N_CROWD; i++) {
        seqs[i] = place_one(b, i);
        drafts[i] = (struct guess_tree){.base = seqs[i]->n_tokens};
        lanes[i] = (struct draft_lane){.seq = seqs[i],
                                       .k = wanted_of(i),
                                       .ends = &no_ends,
                                       .draft = &drafts[i],
                                       .siblings_max = i % 2};
    }
    drafter_propose(b->drafter, lanes, N_CROWD, &b->arena, cost);
    for (int i = 0; i < N_CROWD; i++) {
        ck_assert_msg(lanes[i].err.code == 0, "lane %d: %s", i, lanes[i].err.text);
        ck_assert_int_eq(seqs[i]->n_draft_kv[0], seqs[i]->n_tokens + drafts[i].n_chain - 1);
        keep(&drafts[i], &kept[i]);
        take_away(b, seqs[i]);
    }
}

/* All that is expected is right, or every other lane's; there are more rows than a step has, and
 * texts are read in parts. */
START_TEST(lanes_in_company_are_guessed_alike)
{
    static struct guesses plain[N_CROWD], staged[N_CROWD];
    struct draft_cost cost;
    struct bench b;
    open_crowd(&b);
    propose_crowd(&b, plain, &cost);
    ck_assert_int_eq(cost.n_passes, WANTED);
    int n_missed = cost.first_pass_tokens;
    for (int way = 0; way < 2; way++) {
        int n_expected = 0;
        for (int i = 0; i < N_CROWD; i++) {
            tell(i, &plain[i]);
            n_expected += wanted_of(i) - 1;
            if (way == 1 && i % 2) told.tokens[i][0] = plain[i].tokens[0] == 300 ? 301 : 300;
        }
        b.drafter->stage = &told.base;
        propose_crowd(&b, staged, &cost);
        ck_assert_mem_eq(staged, plain, sizeof plain);
        ck_assert_int_eq(cost.n_passes, way + 1);
        ck_assert_int_eq(cost.first_pass_tokens, n_missed);
        ck_assert_int_eq(cost.pass_lanes[0], N_CROWD);
        ck_assert_int_eq(cost.pass_expected[0], n_expected);
    }
    ck_assert_int_eq(drafter_kv(b.drafter).n_free + drafter_kv(b.drafter).n_cached,
                     drafter_kv(b.drafter).n_blocks);
    teardown(&b);
}
END_TEST

/* Two texts, of which the next token alone is guessed, leave so many tokens of the draft's first
 * step, of 512, for the third one: with what is expected it has 27, and rows of the last 8 are
 * wanted. */
static void guess_after_two(struct bench *b, int left, struct guesses *kept)
{
    enum { STEP = 512, FIRST = 250, THIRD = 20 };
    static struct guess_tree drafts[3];
    const int lengths[] = {FIRST, STEP - FIRST - left, THIRD};
    struct draft_lane lanes[3];
    struct draft_cost cost;
    int32_t text[FIRST];
    arena_reset(&b->arena);
    for (int i = 0; i < 3; i++) {
        for (int t = 0; t < lengths[i]; t++) {
            text[t] = 250 + (t * 41 + i * 103) % 3000;
        }
        struct sequence *seq = place_text(b, 1 + i, text, lengths[i]);
        follow(seq, RULE_REJECTION, 1);
        seq->seed = (uint64_t)i;
        drafts[i] = (struct guess_tree){.base = lengths[i]};
        lanes[i] = (struct draft_lane){
            .seq = seq, .k = i < 2 ? 1 : WANTED, .ends = &no_ends, .draft = &drafts[i]};
    }
    drafter_propose(b->drafter, lanes, 3, &b->arena, &cost);
    for (int i = 0; i < 3; i++) {
        ck_assert_msg(lanes[i].err.code == 0, "%s", lanes[i].err.text);
        take_away(b, lanes[i].seq);
    }
    if (b->drafter->stage) ck_assert(cost.n_passes == 1 && cost.pass_expected[0] == WANTED - 1);
    keep(&drafts[2], kept);
}

START_TEST(rows_that_are_wanted_are_read_in_one_step)
{
    static struct guesses plain, staged;
    struct bench b;
    setup(&b, RULE_REJECTION, 1);
    for (int left = 17; left <= 28; left++) {
        b.drafter->stage = NULL;
        guess_after_two(&b, left, &plain);
        ck_assert_int_eq(plain.n, WANTED);
        tell(3, &plain);
        b.drafter->stage = &told.base;
        guess_after_two(&b, left, &staged);
        ck_assert_mem_eq(&staged, &plain, sizeof plain);
    }
    teardown(&b);
}
END_TEST

/* There are blocks for the guesses, and none for what is expected after them. */
START_TEST(without_a_block_nothing_is_read_ahead)
{
    static struct guesses plain, staged;
    struct guess_tree draft = {.base = N_PROMPT};
    struct draft_cost cost;
    struct bench b = {0};
    const struct drafter_options options = {
        .name = DRAFT,
        .backend = {.device = "cpu", .weights = "bf16", .kernels = "auto", .n_threads = 1},
        .n_sequences = 1,
        .support = 64,
        .kv_tokens = 16};
    setup_draft(&b, &options);
    b.seq = place_text(&b, 0, prompt, N_PROMPT);
    follow(b.seq, RULE_REJECTION, 1.0f);
    for (int way = 0; way < 2; way++) {
        struct draft_lane lane = {
            .seq = b.seq, .k = WANTED, .ends = &no_ends, .draft = &draft, .siblings_max = 0};
        draft = (struct guess_tree){.base = N_PROMPT};
        b.seq->n_draft_kv[0] = 0;
        drafter_propose(b.drafter, &lane, 1, &b.arena, &cost);
        ck_assert_int_eq(lane.err.code, ERR_EXHAUSTED); /* that of guess 4 */
        ck_assert_int_eq(cost.n_passes, 4);
        ck_assert_int_eq(cost.pass_expected[0], 0);
        keep(&draft, way ? &staged : &plain);
        tell(0, &plain);
        memset(told.tokens[0] + 4, 0, sizeof told.tokens[0] - 4 * sizeof **told.tokens);
        b.drafter->stage = &told.base;
    }
    ck_assert_int_eq(plain.n, 4);
    ck_assert_mem_eq(&staged, &plain, sizeof plain);
    teardown(&b);
}
END_TEST

/* ---- with the finder and the planner ---- */

/* The model has a stage if it is wanted and a finder can say what it expects. */
START_TEST(a_stage_needs_a_finder_that_expects)
{
    static const struct {
        const char *lookup;
        enum staged_mode mode;
        bool has_stage;
    } cases[] = {{"session", STAGED_AUTO, true}, {"session", STAGED_ON, true},
                 {"session", STAGED_OFF, false}, {"recycled", STAGED_ON, false},
                 {"none", STAGED_ON, false},     {"recycled,session", STAGED_AUTO, true}};
    static struct planner planner;
    struct bench b;
    setup(&b, RULE_GREEDY, 0);
    take_away(&b, b.seq);
    b.seq = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct lookup_options lookups = {.lookup = cases[i].lookup, .n_sequences = SLOTS};
        struct staged staged;
        struct error err;
        b.drafter->stage = NULL;
        CHECK_OK(drafters_open(&b.drafters, b.drafter, &lookups, &err));
        staged_begin(&staged, cases[i].mode, &b.drafters, &planner);
        ck_assert(b.drafter->stage == (cases[i].has_stage ? &staged.base : NULL));
        drafters_close(&b.drafters);
    }
    teardown(&b);
}
END_TEST

/* A text that says the same again and again, as the draft does in part; passes cost the same
 * whatever their rows, and then as much as their rows. */
START_TEST(a_text_that_repeats_itself_takes_fewer_passes_where_rows_are_cheap)
{
    static struct planner planner;
    static struct guesses plain, now;
    int32_t text[8 * N_PROMPT];
    struct staged staged;
    struct error err;
    struct guess_tree draft;
    struct draft_cost cost;
    struct bench b;
    bool is_cheap = _i == 0;
    int n_passes = 0, n_guesses = 0;
    setup(&b, RULE_GREEDY, 0);
    take_away(&b, b.seq);
    struct lookup_options lookups = {.lookup = "session", .n_sequences = SLOTS};
    CHECK_OK(drafters_open(&b.drafters, b.drafter, &lookups, &err));
    drafters_set_vocabulary(&b.drafters, 4096);
    for (int i = 0; i < 8 * N_PROMPT; i++) {
        text[i] = prompt[i % N_PROMPT];
    }
    b.seq = place_text(&b, 0, text, 8 * N_PROMPT);
    follow(b.seq, RULE_GREEDY, 0);
    planner = (struct planner){0};
    for (int rows = 1; rows <= 16; rows *= 2) {
        planner_calibrate_draft(&planner, 0, rows, is_cheap ? 1000 + rows : 1000.0 * rows);
    }
    planner_curve_fit(&planner.models[0].draft);
    for (int round = 0; round < 20; round++) {
        int n_read = b.seq->n_draft_kv[0];
        guess_plainly(&b, n_read, &no_ends, &plain);
        lookup_read(b.drafters.finders[0], b.seq, 1 << 20);
        staged_begin(&staged, STAGED_AUTO, &b.drafters, &planner);
        ck_assert(b.drafter->stage == &staged.base);
        propose(&b, n_read, &no_ends, &draft, &cost);
        keep(&draft, &now);
        ck_assert_mem_eq(&now, &plain, sizeof now);
        n_passes += cost.n_passes;
        n_guesses += draft.n_chain;
        b.seq->tokens[b.seq->n_tokens] = text[b.seq->n_tokens % N_PROMPT];
        b.seq->n_tokens++;
        b.seq->n_draft_kv[0] = b.seq->n_tokens - 1;
    }
    if (is_cheap) ck_assert_int_lt(10 * n_passes, 8 * n_guesses);
    if (!is_cheap) ck_assert_int_eq(n_passes, n_guesses);
    float chances[DRAFT_MAX];
    staged.base.predict(&staged.base, b.seq, chances);
    ck_assert(chances[0] == 0);
    lookup_read(b.drafters.finders[0], b.seq, 1 << 20);
    staged.base.predict(&staged.base, b.seq, chances);
    ck_assert(chances[1] > 0.5f && chances[1] >= chances[7]);
    take_away(&b, b.seq);
    b.seq = NULL;
    drafters_close(&b.drafters);
    teardown(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("draft_staged");
    TCase *tcase = tcase_create("tales");
    tcase_set_timeout(tcase, 280);
    tcase_add_loop_test(tcase, one_pass_makes_all_guesses_that_were_expected, 0, N_KINDS);
    tcase_add_loop_test(tcase, a_guess_that_was_not_expected_is_kept, 0, N_KINDS);
    tcase_add_loop_test(tcase, ids_that_are_no_tokens_are_not_read, 0, N_KINDS);
    tcase_add_loop_test(tcase, ids_that_the_target_lacks_are_not_read, 0, N_KINDS);
    tcase_add_loop_test(tcase, nothing_is_guessed_after_an_end, 0, N_KINDS);
    tcase_add_loop_test(tcase, later_rounds_make_the_same_guesses, 0, N_KINDS);
    tcase_add_test(tcase, lanes_in_company_are_guessed_alike);
    tcase_add_test(tcase, rows_that_are_wanted_are_read_in_one_step);
    tcase_add_test(tcase, without_a_block_nothing_is_read_ahead);
    tcase_add_test(tcase, a_stage_needs_a_finder_that_expects);
    tcase_add_loop_test(tcase, a_text_that_repeats_itself_takes_fewer_passes_where_rows_are_cheap,
                        0, 2);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
