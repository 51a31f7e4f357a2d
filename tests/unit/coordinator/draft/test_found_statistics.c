/* ctest: labels=full,statistics libs=coordinator timeout=300 long=1800 */
/* The text keeps the target's distribution where guesses and their siblings are found: drawn from
 * the counts of a store, or with one-hot q's in the text itself. A finder guesses, a lane's tree is
 * made of that, and the rules decide over rows of a known p. The texts in the store and the prompt
 * come from another distribution. Each chi-square test, over three tokens together, is held to 1e-5
 * and prints the total-variation distance that it finds with 90 % probability. Deliberately wrong
 * ways must be found by the same test. Seeds are fixed. */
#include <stdio.h>

#include "tests/support/draws.h"
#include "tests/support/edited_lanes.h"
#include "tests/support/finder_bench.h"
#include "tests/support/guess_tables.h"
#include "tests/support/lane_statistics.h"

enum { N_TEXTS = 40, TEXT = 60, PROMPT = 30, GUESSES = 3, SLOT = 1 };
static int32_t prompt[PROMPT];

enum way { RIGHT, UNIFORM, DROPPED, EDITED, EDITED_WRONG };
enum { LEFT_OUT = 128 /* a mark of guesses that are taken away */ };

static void make_text(int number, int32_t *text, int n)
{
    for (int i = 0; i < n; i++) {
        int context = i ? tree_context(&world, text[i - 1]) : number % TREE_CONTEXTS;
        text[i] = sparse_draw(&world.q[context], tree_uniform(100 + number, i));
    }
}

static void fill_store(struct bench *b)
{
    int32_t text[TEXT];
    for (int t = 0; t < N_TEXTS; t++) {
        make_text(t, text, TEXT);
        struct sequence *seq = place_studied(b, 0, NULL, text, TEXT);
        drafters_observe_text(&b->drafters, seq);
        take_away(b, seq);
    }
}

/* Guesses with 1, 3 and 2 siblings at most. Wrong: the q that is told is not the one that they were
 * drawn from; or siblings are left out after a look at them. With edits of p: as they are, and
 * wrong: the rows miss the edits of the guesses before them. */
static void make_tree(struct bench *b, struct sequence *seq, enum way way)
{
    static const uint8_t siblings[GUESSES] = {1, 3, 2};
    struct guess_tree *draft = &round_.tree, plan;
    struct draft_cost cost;
    guess_tree_begin(draft, seq->n_tokens);
    growth_plan(GUESSES, siblings, NULL, &plan);
    struct draft_lane lane = {.seq = seq,
                              .k = GUESSES,
                              .ends = &no_ends,
                              .draft = draft,
                              .siblings_max = SIBLINGS_MAX,
                              .plan = &plan};
    lookup_read(b->finder, seq, seq->n_tokens);
    arena_reset(&b->arena);
    drafter_propose(b->finder, &lane, 1, &b->arena, &cost);
    for (int i = 0; i < draft->n_chain; i++) {
        int n_siblings = guess_tree_siblings(draft, i);
        ck_assert_int_le(n_siblings, siblings[i]);
        bool is_dropped =
            way == DROPPED && n_siblings > 0 && sibling_token(draft, i, 0) < N_IDS / 2;
        for (int s = 0; is_dropped && s < n_siblings; s++) {
            draft->marks[draft->chain[i] + 1 + s] |= LEFT_OUT;
        }
        const struct sparse_dist *q = guess_q(draft, i);
        for (int k = 0; way == UNIFORM && k < q->n; k++) {
            q->p[k] = 1.0f / (float)q->n;
        }
    }
    guess_tree_drop(draft, LEFT_OUT);
    guess_tree_sort(draft);
}

/* Rounds until DEPTH tokens are committed; these as a cell. */
static int commit(struct bench *b, struct sequence *seq, enum way way, double *n_guesses)
{
    int cell = 0;
    drafters_forget(&b->drafters, SLOT);
    if (way >= EDITED) begin_lane_edits(seq, seq->n_prompt);
    for (seq->n_tokens = seq->n_prompt; seq->n_tokens < seq->n_prompt + DEPTH;) {
        round_.at =
            (struct rng_address){seq->seed, (uint32_t)seq->n_tokens, (uint32_t)seq->n_tokens};
        make_tree(b, seq, way);
        tree_make_rows(&world, &round_, tree_context(&world, seq->tokens[seq->n_tokens - 1]));
        struct tree_result result =
            seq->rule->accept_tree(&round_.tree, round_.rows, &round_.at, scratch);
        *n_guesses += round_.tree.n;
        for (int i = 0; i <= result.n_accepted; i++) {
            int32_t token =
                i < result.n_accepted ? round_.tree.tokens[result.path[i]] : result.next;
            ck_assert(token >= 0 && token < N_IDS);
            if (seq->n_tokens < seq->n_prompt + DEPTH) cell = cell * N_IDS + token;
            seq->tokens[seq->n_tokens++] = token;
            if (seq->edits) edits_commit(seq->edits, &token, 1);
        }
    }
    return cell;
}

static double p_value(const char *lookup, enum accept_rule rule, enum way way, const char *name)
{
    static int64_t seen[CELLS];
    struct bench b;
    double n_guesses = 0;
    make_text(N_TEXTS, prompt, PROMPT);
    memset(seen, 0, sizeof seen);
    setup(&b, lookup, false);
    fill_store(&b);
    struct sequence *seq = place_studied(&b, SLOT, NULL, prompt, PROMPT);
    seq->rule = &accept_rules[rule];
    seq->sampling.temperature = 1;
    world.edit = way >= EDITED ? edit_lane_row : NULL;
    lane_edits_miss_guesses = way == EDITED_WRONG;
    int n_draws =
        way == RIGHT || way == EDITED ? draws_part(200000, 3000) : draws_all(200000, 3000);
    for (int d = 0; d < n_draws; d++) {
        seq->seed = (uint64_t)d * 0x9E3779B97F4A7C15u + 1;
        seen[commit(&b, seq, way, &n_guesses)]++;
    }
    seq->n_tokens = seq->n_prompt;
    take_away(&b, seq);
    teardown(&b);
    struct stats_result result = way >= EDITED ? test_edited_cells(seen, prompt, PROMPT)
                                               : test_cells(seen, prompt[PROMPT - 1]);
    printf("%-8s %-10s %-28s %d cells chi2 %8.1f p %.2e finds TV %.4f; %.1f guesses a text\n",
           lookup, accept_rules[rule].name, name, result.n_cells, result.chi_square, result.p_value,
           stats_detectable_tv(n_draws, result.n_cells, P_LEAST_Z), n_guesses / n_draws);
    fflush(stdout);
    ck_assert(n_guesses > 4.0 * n_draws);
    return result.p_value;
}

START_TEST(found_guesses_keep_the_distribution)
{
    static const enum accept_rule rules[] = {RULE_REJECTION, RULE_BLOCK, RULE_NAIVE};
    ck_assert(p_value("store", rules[_i], RIGHT, "as they are") >= P_LEAST);
    ck_assert(p_value("session", rules[_i], RIGHT, "as they are") >= P_LEAST);
}
END_TEST

START_TEST(edits_of_each_path_keep_the_distribution)
{
    static const enum accept_rule rules[] = {RULE_REJECTION, RULE_BLOCK, RULE_NAIVE};
    ck_assert(p_value("store", rules[_i], EDITED, "edited") >= P_LEAST);
    ck_assert(p_value("session", rules[_i], EDITED, "edited") >= P_LEAST);
}
END_TEST

START_TEST(wrong_ways_are_found)
{
    double missed = p_value("store", RULE_REJECTION, EDITED_WRONG, "edits miss guesses");
    ck_assert(DRAWS_ARE_FEW || missed < P_LEAST);
    double uniform = p_value("store", RULE_REJECTION, UNIFORM, "another q is told");
    double dropped = p_value("store", RULE_REJECTION, DROPPED, "siblings left out after a look");
    ck_assert(DRAWS_ARE_FEW || (uniform < P_LEAST && dropped < P_LEAST));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("found_statistics");
    TCase *tcase = tcase_create("statistics");
    tree_world_open(&world);
    tcase_set_timeout(tcase, 250);
    tcase_add_loop_test(tcase, found_guesses_keep_the_distribution, 0, 3);
    tcase_add_loop_test(tcase, edits_of_each_path_keep_the_distribution, 0, 3);
    tcase_add_test(tcase, wrong_ways_are_found);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
