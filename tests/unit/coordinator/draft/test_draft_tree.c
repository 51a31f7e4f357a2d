/* ctest: labels=quick libs=coordinator timeout=60 */
/* Guesses of finders in a lane: each keeps its place and the q that it was drawn from, and a
 * row names the tokens that all q's after it can give. Siblings that were found have q's of their
 * own. */
#include "base/end_ids.h"
#include "coordinator/draft/drafter.h"
#include "coordinator/draft/finder.h"
#include "coordinator/sequence/sequence.h"
#include "speculation/accept/multi_draft.h"
#include "speculation/accept/rules.h"
#include "tests/support/check_util.h"
#include "tests/support/guess_tables.h"

enum { N_TOKENS = 2, END = 9 };

static struct arena arena;
static int32_t text[64];
static struct sequence seq;
static const struct end_ids no_ends;

static void setup(void)
{
    struct error err;
    CHECK_OK(arena_open(&arena, 1 << 16, &err));
    seq = (struct sequence){.tokens = text, .n_tokens = N_TOKENS};
}

static void teardown(void)
{
    arena_close(&arena);
}

static struct draft_lane new_lane(struct guess_tree *draft, int siblings_max,
                                  const struct end_ids *ends)
{
    *draft = (struct guess_tree){.base = N_TOKENS};
    return (struct draft_lane){
        .seq = &seq, .k = DRAFT_MAX, .ends = ends, .draft = draft, .siblings_max = siblings_max};
}

static bool is_one_hot(const struct sparse_dist *q, int32_t id)
{
    return q->n == 1 && q->ids[0] == id && q->p[0] == 1;
}

/* The ids that the row after `node` names. */
static void check_ids(const struct guess_tree *tree, int node, const int32_t *ids, int n)
{
    struct target_want want = {0};
    struct error err;
    CHECK_OK(multi_draft_want(tree, node, &arena, &want, &err));
    ck_assert((want.q != NULL) == (n > 0) && !want.full_rows);
    if (n > 0) ck_assert_int_eq(want.q->n, n);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(want.q->ids[i], ids[i]);
    }
}

static const struct finder_guess found[] = {
    {.n = 3, .tokens = {5, 7, 3}}, {.n = 1, .tokens = {6}}, {.n = 2, .tokens = {END, 4}}};

START_TEST(found_guesses_have_one_hot_qs)
{
    struct guess_tree tree;
    struct error err;
    struct draft_lane lane = new_lane(&tree, SIBLINGS_MAX, &no_ends);
    memset(text, 0, sizeof text);
    finder_take(&lane, found, 3, &arena);
    ck_assert(lane.err.code == 0 && tree.n_chain == 3);
    ck_assert_int_eq(guess_tree_count(&tree, GUESS_SIBLING), 3);
    ck_assert(text[N_TOKENS] == 0 && text[N_TOKENS + 1] == 0); /* the text is what is committed */
    guess_tree_sort(&tree);
    const int32_t tokens[] = {5, 6, END, 4, 7, 3}, parents[] = {-1, 0, 1, 1, -1, -1};
    ck_assert_int_eq(tree.n, 6);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(tree.tokens[i], tokens[i]);
        ck_assert_int_eq(tree.parents[i], parents[i]);
        ck_assert(is_one_hot(tree.q[i], tokens[i]));
    }
    CHECK_OK(tree_check(&tree, 10, &err));
    check_ids(&tree, -1, (const int32_t[]){3, 5, 7}, 3);
    check_ids(&tree, 0, (const int32_t[]){6}, 1);
    check_ids(&tree, 1, (const int32_t[]){4, END}, 2);
    check_ids(&tree, 2, NULL, 0);
    check_ids(&tree, 4, NULL, 0);
}
END_TEST

START_TEST(lane_has_no_more_siblings_than_it_may_and_none_after_an_end)
{
    struct guess_tree draft;
    static const struct end_ids ends = {.ids = {END}, .n = 1};
    const struct finder_guess guesses[] = {found[0], found[2], found[1]};
    struct draft_lane lane = new_lane(&draft, 1, &ends);
    finder_take(&lane, guesses, 3, &arena);
    ck_assert(draft.n_chain == 2 && draft.is_over);
    ck_assert(guess_tree_siblings(&draft, 0) == 1 && sibling_token(&draft, 0, 0) == 7);
    ck_assert_int_eq(guess_tree_siblings(&draft, 1), 1);
    lane = new_lane(&draft, 0, &ends);
    finder_take(&lane, guesses, 3, &arena);
    ck_assert(draft.n_chain == 2 && draft.n == 2);
    /* A plan says how many each guess has. */
    static const uint8_t siblings[] = {2, 0};
    struct guess_tree plan;
    growth_plan(2, siblings, NULL, &plan);
    lane = new_lane(&draft, SIBLINGS_MAX, &ends);
    lane.plan = &plan;
    finder_take(&lane, guesses, 3, &arena);
    ck_assert(draft.n_chain == 2 && draft.n == 4 && guess_tree_siblings(&draft, 0) == 2);
}
END_TEST

START_TEST(drawn_siblings_share_their_q)
{
    struct guess_tree tree;
    int32_t ids[] = {3, 5, 8};
    float p[] = {0.25f, 0.5f, 0.25f};
    const struct finder_guess drawn = {.n = 2, .tokens = {5, 3}, .q = {3, ids, p}};
    struct draft_lane lane = new_lane(&tree, SIBLINGS_MAX, &no_ends);
    finder_begin(&lane);
    ck_assert(finder_add(&lane, &drawn, &arena) && finder_add(&lane, &found[2], &arena));
    guess_tree_sort(&tree);
    ck_assert_int_eq(tree.n, 4); /* 5, END, then the sibling of END, then that of 5 */
    ck_assert(tree.q[3] == tree.q[0] && tree.q[2] != tree.q[1]);
    ck_assert(tree_q_left(&tree, 3) == 0.5 && tree_q_left(&tree, 2) == 1);
    check_ids(&tree, -1, ids, 3);
    check_ids(&tree, 0, (const int32_t[]){4, END}, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("draft_tree");
    TCase *tcase = tcase_create("draft_tree");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, found_guesses_have_one_hot_qs);
    tcase_add_test(tcase, lane_has_no_more_siblings_than_it_may_and_none_after_an_end);
    tcase_add_test(tcase, drawn_siblings_share_their_q);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
