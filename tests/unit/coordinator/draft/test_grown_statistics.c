/* ctest: labels=full,statistics libs=coordinator timeout=1200 long=1800 */
/* The text keeps the target's distribution where a draft model guesses after siblings: a small
 * model makes each round's guesses as a plan says, a lane's tree is made of them, and the rules
 * decide over rows of a known p. Each chi-square test, over three tokens together, is held to 1e-5
 * and prints the total-variation distance that it finds with 90 % probability. Deliberately wrong
 * ways must be found by the same test. Seeds are fixed. */
#include <stdio.h>

#include "coordinator/draft/options.h"
#include "tests/support/drafter_world.h"
#include "tests/support/draws.h"
#include "tests/support/edited_lanes.h"
#include "tests/support/guess_tables.h"
#include "tests/support/lane_statistics.h"
#include "tests/support/parallel_draft.h"

enum { GUESSES = 2, BASE = 14 };
enum { GROWN_COIN = 1 + SIBLINGS_MAX /* of the first guess for a place after siblings */ };
#define SMALL "synthetic:tiny,seed=3,layers=1,vocab=64"

/* The draft makes all guesses in one pass: those for a place have one q, whatever is before. */
static bool is_parallel;

/* After both siblings of the first guess, the first of them with siblings, three deep; the chain
 * has two guesses. */
static const struct growth plan = {.n = 7, .parents = {-1, -1, -2, 0, 0, 1, 2}};
/* Where the growth follows q: 2, 9 and 4 guesses beside the chain for the places, which may follow
 * any. The chain's guess for place 1 has at most three of them. */
static const struct growth wide = {.n = 10, .parents = {-1, -1, -1, -2, -2, -2, 0, 1, 2, 3}};
static const uint8_t wide_siblings[DRAFT_MAX] = {2, 3};

/* Wrong: a guess after a sibling is said to come from the q of the chain at its place, or where the
 * draft is parallel from that of the place before; all guesses after siblings are left out after a
 * look at one; or the first guesses after siblings of guess 0 have the coin of the chain's guess
 * for their place. Rules that try a guess before they look at the guesses after it do not mind that
 * coin, because whether the sibling is tried does not depend on it. Block verification looks at the
 * chain's last guess first. Where the growth follows q: as it is, left out after a look, or a
 * place's guesses are shared after a look at them, so that the likelier of two groups stays. With
 * edits of p and q: as they are, where the growth follows q, and wrong: the target's rows miss the
 * edits of the guesses before them. */
enum way {
    RIGHT,
    OTHER_Q,
    DROPPED,
    SAME_COIN,
    FOLLOWS,
    FOLLOWS_DROPPED,
    FOLLOWS_LOOKS,
    EDITED,
    EDITED_FOLLOWS,
    EDITED_WRONG
};

static bool way_follows(enum way way)
{
    return way == EDITED_FOLLOWS || (way >= FOLLOWS && way < EDITED);
}

/* Draws a guess again that is the first after a sibling, with another coin, and its own sibling, if
 * it has one, with its own. Those after them stay: they were drawn from the q that is told,
 * whatever is before them. index: of the guess among those of its place. */
static void draw_again(const struct bench *b, struct guess_tree *draft, int node, int index,
                       int coin)
{
    const struct rng_address at = {b->seq->seed, (uint32_t)draft->base + 1, (uint32_t)draft->base};
    const struct sparse_dist *q = draft->q[node];
    draft->tokens[node] = sparse_draw(q, rng_uniform(&at, RNG_DRAFT, (uint32_t)coin));
    int sibling = guess_tree_sibling(draft, node);
    if (sibling < 0) return;
    double u = rng_uniform(&at, RNG_DRAFT, (uint32_t)(GROWN_COIN + index + 1));
    draft->tokens[sibling] = multi_draft_draw(q, &draft->tokens[node], 1, u);
}

enum { LEFT_OUT = 128 /* a mark of guesses that are taken away */ };

/* Leaves guesses for place 1 out that are less likely than the first one, and all after them. */
static void keep_likelier(struct guess_tree *draft)
{
    double most = -1;
    for (int i = 0; i < draft->n; i++) {
        int parent = draft->parents[i];
        if (!(draft->marks[i] & GUESS_GROWN)) continue;
        double q = (double)sparse_prob(draft->q[i], draft->tokens[i]);
        if (most < 0) most = q;
        bool is_out = draft->marks[parent] & LEFT_OUT;
        if (guess_tree_place(draft, i) == 1) is_out = q < most;
        int rank = guess_tree_rank(draft, i);
        if (rank > 0 && draft->marks[guess_tree_child(draft, parent)] & LEFT_OUT) is_out = true;
        if (is_out) draft->marks[i] |= LEFT_OUT;
    }
    guess_tree_drop(draft, LEFT_OUT);
}

/* The first node after sibling `sibling` of the first guess. */
static int first_after(const struct guess_tree *draft, int sibling)
{
    return guess_tree_child(draft, draft->chain[0] + 1 + sibling);
}

static void spoil(const struct bench *b, struct guess_tree *draft, enum way way)
{
    int node = first_after(draft, 0);
    if (way == SAME_COIN) {
        draw_again(b, draft, node, 0, 0);
        draw_again(b, draft, first_after(draft, 1), 2, 0);
    }
    for (int i = 0; way == OTHER_Q && i < draft->n; i++) {
        bool is_grown = draft->marks[i] & GUESS_GROWN;
        int place = is_parallel ? 0 : 1;
        if (is_grown && guess_tree_place(draft, i) == 1) draft->q[i] = guess_q(draft, place);
    }
    /* As they are made, the first of all is after the first sibling, or after the other one. */
    for (node = 0; node < draft->n && !(draft->marks[node] & GUESS_GROWN); node++) {
        continue;
    }
    if (node == draft->n) return;
    int context = tree_context(&world, sibling_token(draft, 0, 0));
    bool is_unlikely =
        world.p[context][draft->tokens[node]] < sparse_prob(draft->q[node], draft->tokens[node]);
    if ((way == DROPPED || way == FOLLOWS_DROPPED) && is_unlikely) {
        guess_tree_drop(draft, GUESS_GROWN);
    }
    if (way == FOLLOWS_LOOKS) keep_likelier(draft);
}

static void make_tree(struct bench *b, enum way way)
{
    static const uint8_t siblings[] = {2, 2};
    struct guess_tree *draft = &round_.tree, wanted;
    struct draft_cost cost;
    guess_tree_begin(draft, b->seq->n_tokens);
    bool follows_q = way_follows(way);
    growth_plan(GUESSES, follows_q ? wide_siblings : siblings, follows_q ? &wide : &plan, &wanted);
    struct draft_lane lane = {.seq = b->seq,
                              .k = GUESSES,
                              .ends = &no_ends,
                              .draft = draft,
                              .siblings_max = 2,
                              .plan = &wanted,
                              .follows_q = follows_q};
    arena_reset(&b->arena);
    drafter_propose(b->drafter, &lane, 1, &b->arena, &cost);
    ck_assert(lane.err.code == 0 && draft->n_chain == GUESSES);
    if (way < EDITED) ck_assert_int_eq(draft->n, wanted.n); /* bans leave some out */
    spoil(b, draft, way);
    guess_tree_sort(draft);
}

/* Rounds until DEPTH tokens are committed; these as a cell. */
static int commit(struct bench *b, enum way way, double *n_grown)
{
    struct sequence *seq = b->seq;
    int cell = 0;
    seq->n_tokens = BASE;
    seq->n_draft_kv[0] = BASE - 1;
    if (way >= EDITED) begin_lane_edits(seq, BASE);
    while (seq->n_tokens < BASE + DEPTH) {
        round_.at =
            (struct rng_address){seq->seed, (uint32_t)seq->n_tokens, (uint32_t)seq->n_tokens};
        make_tree(b, way);
        tree_make_rows(&world, &round_, tree_context(&world, seq->tokens[seq->n_tokens - 1]));
        struct tree_result result =
            seq->rule->accept_tree(&round_.tree, round_.rows, &round_.at, scratch);
        for (int i = 0; i < result.n_accepted; i++) {
            *n_grown += (round_.tree.marks[result.path[i]] & GUESS_GROWN) != 0;
        }
        for (int i = 0; i <= result.n_accepted; i++) {
            int32_t token =
                i < result.n_accepted ? round_.tree.tokens[result.path[i]] : result.next;
            ck_assert(token >= 0 && token < N_IDS);
            if (seq->n_tokens < BASE + DEPTH) cell = cell * N_IDS + token;
            seq->tokens[seq->n_tokens++] = token;
            if (seq->edits) edits_commit(seq->edits, &token, 1);
        }
        int n_chain = 0;
        while (n_chain < result.n_accepted && n_chain < GUESSES &&
               result.path[n_chain] == n_chain) {
            n_chain++;
        }
        int read = (int)round_.at.position + n_chain;
        if (seq->n_draft_kv[0] > read) seq->n_draft_kv[0] = read;
    }
    return cell;
}

static void setup_small(struct bench *b, enum accept_rule rule, float temperature)
{
    struct error err;
    int32_t text[BASE];
    char name[128] = SMALL;
    struct parallel_draft made = make_parallel_draft(DRAFT, "\"pard_token\": 63");
    if (is_parallel) {
        snprintf(name, sizeof name, "synthetic:%s,seed=3,layers=1,vocab=64", made.config);
    }
    const struct drafter_options options = {
        .name = name,
        .backend = {.device = "cpu", .weights = "bf16", .kernels = "auto", .n_threads = 1},
        .n_sequences = SLOTS,
        .support = 64,
        .kv_tokens = SLOTS * CAPACITY};
    CHECK_OK(tokenizer_open_bytes(&b->tok, 256, &err));
    CHECK_OK(drafter_open(&b->drafter, &options, b->tok, &err));
    remove_parallel_draft(&made);
    ck_assert(b->drafter->is_parallel == is_parallel);
    drafter_set_vocabulary(b->drafter, N_IDS);
    b->drafters = (struct drafters){.n_models = 1, .models = {b->drafter}};
    CHECK_OK(block_pool_open(&b->target_pool, SLOTS * CAPACITY / 16, 16, &err));
    CHECK_OK(arena_open(&b->arena, 4 << 20, &err));
    for (int i = 0; i < BASE; i++) {
        text[i] = i * i % N_IDS;
    }
    b->seq = place_text(b, 0, text, BASE);
    follow(b->seq, rule, temperature);
}

/* As many as each wrong way needs to be found, and for what is right as many as time allows. The
 * cheapest wrong way is found by every run; the others take most of the time, so they are looked
 * for only where all draws are made. */
static int n_draws_of(enum accept_rule rule, enum way way)
{
    int n = draws_part(64000, 1000);
    if (way == SAME_COIN) return 2 * n;
    if (way == OTHER_Q) return draws_all(64000, 1000) / 4;
    if (way != RIGHT && way != FOLLOWS) return n;
    return rule == RULE_NAIVE ? n / 12 * 5 : n / 6 * 5;
}

/* The sharper q is, the more it errs to share after a look. */
static const float sharp = 0.7F, flat = 2;

static double p_value(enum accept_rule rule, float temperature, enum way way, const char *name)
{
    static int64_t seen[CELLS];
    struct bench b = {0};
    double n_grown = 0;
    int n_draws = n_draws_of(rule, way);
    setup_small(&b, rule, temperature);
    memset(seen, 0, sizeof seen);
    int32_t text[BASE];
    memcpy(text, b.seq->tokens, sizeof text);
    world.edit = way >= EDITED ? edit_lane_row : NULL;
    lane_edits_miss_guesses = way == EDITED_WRONG;
    for (int d = 0; d < n_draws; d++) {
        b.seq->seed = (uint64_t)d * 0x9E3779B97F4A7C15u + 1;
        seen[commit(&b, way, &n_grown)]++;
    }
    b.seq->n_tokens = BASE;
    teardown(&b);
    struct stats_result result =
        way >= EDITED ? test_edited_cells(seen, text, BASE) : test_cells(seen, text[BASE - 1]);
    printf("%-10s %-36s %d cells chi2 %8.1f p %.2e finds TV %.4f; %.2f guesses after siblings "
           "stay in a text\n",
           accept_rules[rule].name, name, result.n_cells, result.chi_square, result.p_value,
           stats_detectable_tv(n_draws, result.n_cells, P_LEAST_Z), n_grown / n_draws);
    fflush(stdout);
    ck_assert(n_grown > 0.05 * n_draws);
    return result.p_value;
}

START_TEST(guesses_after_siblings_keep_the_distribution)
{
    static const enum accept_rule rules[] = {RULE_REJECTION, RULE_BLOCK, RULE_NAIVE};
    ck_assert(p_value(rules[_i], flat, RIGHT, "as they are") >= P_LEAST);
}
END_TEST

START_TEST(guesses_that_follow_q_keep_the_distribution)
{
    static const enum accept_rule rules[] = {RULE_REJECTION, RULE_BLOCK, RULE_NAIVE};
    ck_assert(p_value(rules[_i], flat, FOLLOWS, "following q") >= P_LEAST);
}
END_TEST

START_TEST(edits_of_each_path_keep_the_distribution)
{
    static const enum accept_rule rules[] = {RULE_REJECTION, RULE_BLOCK, RULE_NAIVE};
    ck_assert(p_value(rules[_i], flat, EDITED, "edited") >= P_LEAST);
    ck_assert(p_value(rules[_i], flat, EDITED_FOLLOWS, "edited, following q") >= P_LEAST);
}
END_TEST

START_TEST(parallel_drafts_keep_the_distribution)
{
    static const enum accept_rule rules[] = {RULE_REJECTION, RULE_BLOCK, RULE_NAIVE};
    is_parallel = true;
    ck_assert(p_value(rules[_i], flat, RIGHT, "parallel") >= P_LEAST);
    ck_assert(p_value(rules[_i], flat, FOLLOWS, "parallel, following q") >= P_LEAST);
    ck_assert(p_value(rules[_i], flat, EDITED, "parallel, edited") >= P_LEAST);
}
END_TEST

START_TEST(wrong_q_of_a_parallel_draft_is_found)
{
    is_parallel = true;
    double other = p_value(RULE_REJECTION, flat, OTHER_Q, "parallel, the q before is told");
    ck_assert(DRAWS_ARE_FEW || other < P_LEAST);
}
END_TEST

START_TEST(edits_that_miss_guesses_are_found)
{
    ck_assert(p_value(RULE_REJECTION, flat, EDITED_WRONG, "edits miss guesses") < P_LEAST ||
              DRAWS_ARE_FEW);
}
END_TEST

START_TEST(wrong_ways_to_follow_are_found)
{
    ck_assert(p_value(RULE_REJECTION, sharp, FOLLOWS, "following a sharp q") >= P_LEAST);
    if (!draws_are_all()) return;
    ck_assert(p_value(RULE_REJECTION, flat, FOLLOWS_DROPPED, "following, left out after a look") <
              P_LEAST);
    ck_assert(p_value(RULE_REJECTION, sharp, FOLLOWS_LOOKS, "following, shared after a look") <
              P_LEAST);
}
END_TEST

START_TEST(wrong_ways_are_found)
{
    double other = p_value(RULE_REJECTION, flat, OTHER_Q, "the chain's q is told");
    ck_assert(DRAWS_ARE_FEW || other < P_LEAST);
    if (!draws_are_all()) return;
    ck_assert(p_value(RULE_REJECTION, flat, DROPPED, "left out after a look") < P_LEAST);
    ck_assert(p_value(RULE_BLOCK, flat, SAME_COIN, "the chain's coin is used again") < P_LEAST);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grown_statistics");
    TCase *tcase = tcase_create("statistics");
    tree_world_open(&world);
    tcase_set_timeout(tcase, 600);
    tcase_add_loop_test(tcase, guesses_after_siblings_keep_the_distribution, 0, 3);
    tcase_add_test(tcase, wrong_ways_are_found);
    tcase_add_loop_test(tcase, guesses_that_follow_q_keep_the_distribution, 0, 3);
    tcase_add_loop_test(tcase, edits_of_each_path_keep_the_distribution, 0, 3);
    tcase_add_loop_test(tcase, parallel_drafts_keep_the_distribution, 0, 3);
    tcase_add_test(tcase, wrong_q_of_a_parallel_draft_is_found);
    tcase_add_test(tcase, edits_that_miss_guesses_are_found);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("wrong");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, wrong_ways_to_follow_are_found);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
