/* ctest: labels=quick libs=coordinator timeout=60 */
/* A draft with siblings, and guesses after them, as a tree: each keeps its place and the q that it
 * was drawn from, and a row names the tokens that all q's after it can give. Siblings that were
 * found have q's of their own. */
#include "base/end_ids.h"
#include "base/tree_layout.h"
#include "coordinator/draft/drafter.h"
#include "coordinator/draft/finder.h"
#include "coordinator/sequence/sequence.h"
#include "speculation/accept/multi_draft.h"
#include "speculation/accept/rules.h"
#include "tests/support/check_util.h"
#include "tests/support/growth.h"

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

struct path_case {
    struct tree_result result;
    struct guess_path path;
};

static void check_paths(const struct guess_tree *tree, const struct path_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct tree_result *result = &cases[i].result;
        struct guess_path path = guess_tree_path(tree, result->path, result->n_accepted);
        ck_assert_int_eq(path.n_chain, cases[i].path.n_chain);
        ck_assert_int_eq(path.n_tested, cases[i].path.n_tested);
        ck_assert_int_eq(path.kept, cases[i].path.kept);
        ck_assert_int_eq(path.n_branch, cases[i].path.n_branch);
    }
}

START_TEST(path_holds_the_accepted_guesses)
{
    struct guess_tree tree;
    struct draft_lane lane = new_lane(&tree, SIBLINGS_MAX, &no_ends);
    finder_take(&lane, found, 3, &arena);
    guess_tree_sort(&tree);
    static const struct path_case cases[] = {
        {{.n_accepted = 3, .path = {0, 1, 2}}, {3, 0, 0, 0}},
        {{.n_accepted = 3, .path = {0, 1, 3}}, {2, 1, 0, 0}},
        {{.n_accepted = 2, .path = {0, 1}}, {2, 1, 1, 0}},
        {{.n_accepted = 1, .path = {5}}, {0, 2, 1, 0}},
        {{.n_accepted = 0}, {0, 2, 2, 0}},
    };
    check_paths(&tree, cases, sizeof cases / sizeof *cases);
}
END_TEST

/* The chain of `found` with its siblings, and a branch. */
static void grow(struct guess_tree *tree, const int32_t *branch, int n)
{
    static struct sparse_dist q[5];
    static int32_t ids[5];
    static float one = 1;
    struct draft_lane lane = new_lane(tree, SIBLINGS_MAX, &no_ends);
    finder_take(&lane, found, 3, &arena);
    for (int i = 0, at = -1; i < n; i++) {
        ids[i] = branch[i];
        q[i] = (struct sparse_dist){1, &ids[i], &one};
        at = guess_tree_branch(tree, at, branch[i], &q[i]);
    }
    guess_tree_sort(tree);
}

/* Chain 5 6 END, siblings 7 and 3 of 5 and 4 of END. */
START_TEST(a_branch_leaves_the_chain_where_they_differ)
{
    const struct {
        int32_t branch[5];
        int n, n_shared, n_nodes;
        int32_t tokens[10], parents[10];
    } cases[] = {
        /* from the root, after all siblings */
        {{8, 5}, 2, 0, 8, {5, 6, END, 4, 7, 3, 8, 5}, {-1, 0, 1, 1, -1, -1, -1, 6}},
        {{5, 8, 2}, 3, 1, 8, {5, 6, END, 4, 8, 2, 7, 3}, {-1, 0, 1, 1, 0, 4, -1, -1}},
        /* its first guess is a sibling */
        {{7, 8}, 2, 0, 7, {5, 6, END, 4, 7, 8, 3}, {-1, 0, 1, 1, -1, 4, -1}},
        {{3, 8, 2}, 3, 0, 8, {5, 6, END, 4, 7, 3, 8, 2}, {-1, 0, 1, 1, -1, -1, 5, 6}},
        /* the chain is its beginning, and goes on */
        {{5, 6, END, 2, 1}, 5, 3, 8, {5, 6, END, 2, 1, 4, 7, 3}, {-1, 0, 1, 2, 3, 1, -1, -1}},
        /* it is the chain's beginning, or nothing but a sibling */
        {{5, 6}, 2, 2, 6, {5, 6, END, 4, 7, 3}, {-1, 0, 1, 1, -1, -1}},
        {{5, 6, 4}, 3, 2, 6, {5, 6, END, 4, 7, 3}, {-1, 0, 1, 1, -1, -1}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct guess_tree tree;
        struct error err;
        grow(&tree, cases[c].branch, cases[c].n);
        int n_shared = 0;
        for (int i = 0; i < tree.n_chain; i++) {
            n_shared += tree.marks[i] & GUESS_BRANCH ? 1 : 0;
        }
        ck_assert_int_eq(n_shared, cases[c].n_shared);
        ck_assert_int_eq(guess_tree_count(&tree, GUESS_BRANCH), cases[c].n);
        ck_assert_int_eq(tree.n, cases[c].n_nodes);
        for (int i = 0; i < cases[c].n_nodes; i++) {
            ck_assert_int_eq(tree.tokens[i], cases[c].tokens[i]);
            ck_assert_int_eq(tree.parents[i], cases[c].parents[i]);
            ck_assert(is_one_hot(tree.q[i], cases[c].tokens[i]));
        }
        CHECK_OK(tree_check(&tree, 10, &err));
    }
}
END_TEST

START_TEST(path_holds_the_accepted_guesses_of_a_branch)
{
    struct guess_tree tree;
    grow(&tree, (const int32_t[]){5, 8, 2}, 3);
    static const struct path_case leaving[] = {
        {{.n_accepted = 3, .path = {0, 4, 5}}, {1, 0, 0, 2}},
        {{.n_accepted = 2, .path = {0, 4}}, {1, 0, 0, 1}},
        {{.n_accepted = 3, .path = {0, 1, 3}}, {2, 1, 0, 0}},
        {{.n_accepted = 1, .path = {6}}, {0, 2, 0, 0}},
    };
    check_paths(&tree, leaving, sizeof leaving / sizeof *leaving);
    grow(&tree, (const int32_t[]){3, 8, 2}, 3);
    static const struct path_case after_sibling[] = {
        {{.n_accepted = 3, .path = {5, 6, 7}}, {0, 2, 1, 2}},
        {{.n_accepted = 1, .path = {4}}, {0, 2, 0, 0}},
    };
    check_paths(&tree, after_sibling, 2);
    grow(&tree, (const int32_t[]){5, 6, END, 2, 1}, 5);
    static const struct path_case after_chain[] = {
        {{.n_accepted = 5, .path = {0, 1, 2, 3, 4}}, {3, 0, 0, 2}},
        {{.n_accepted = 3, .path = {0, 1, 2}}, {3, 0, 0, 0}},
    };
    check_paths(&tree, after_chain, 2);
}
END_TEST

/* The tree that a lane sets blocks aside for needs as many as any that comes of its guesses. */
START_TEST(no_tree_needs_more_blocks_than_were_set_aside)
{
    enum { BLOCK = 4 };
    static const uint8_t siblings[] = {2, 0, 1};
    static const int32_t branches[][5] = {
        {8, 5, 1, 1, 1}, {5, 8, 2, 1, 1},   {7, 8, 1, 1, 1}, {3, 8, 2, 1, 1},
        {5, 6, 4, 1, 1}, {5, 6, END, 2, 1}, {5, 6, 2, 1, 1},
    };
    for (int c = 0; c < (int)(sizeof branches / sizeof *branches); c++) {
        for (int n = 1; n <= 5; n++) {
            struct guess_tree tree, plan;
            struct tree_layout layout, most;
            struct error err;
            growth_plan(3, siblings, NULL, &plan);
            guess_tree_plan(&plan, n, GUESS_BRANCH);
            guess_tree_sort(&plan);
            CHECK_OK(tree_layout_init(&most, plan.parents, plan.n, &err));
            grow(&tree, branches[c], n);
            CHECK_OK(tree_layout_init(&layout, tree.parents, tree.n, &err));
            ck_assert_int_le(layout.leaf_depth[0], n > 3 ? n - 1 : 2);
            for (int first = 0; first < BLOCK; first++) {
                ck_assert_int_le(tree_layout_tails(&layout, first, BLOCK),
                                 tree_layout_tails(&most, first, BLOCK));
            }
        }
    }
}
END_TEST

/* Two guesses of a chain with 2 siblings and 1, and what is after these, in the order in which it
 * is drawn. Each group is drawn from a q of its own. */
static const struct growth grown = {6, {-1, -1, -2, 0, -4, 3}};
static const uint8_t n_siblings[] = {2, 1};

static void grow_after(struct guess_tree *tree)
{
    static const int32_t tokens[] = {5, 7, 3, 6, 4, 1, 2, 8, 4, 1, 2};
    static int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8};
    static float p[] = {0.125f, 0.125f, 0.125f, 0.125f, 0.125f, 0.125f, 0.125f, 0.125f};
    static struct sparse_dist even[TREE_NODES_MAX];
    growth_plan(2, n_siblings, &grown, tree);
    tree->base = N_TOKENS;
    for (int i = 0; i < tree->n; i++) {
        even[i] = (struct sparse_dist){8, ids, p};
        tree->tokens[i] = tokens[i];
        tree->q[i] = &even[i - guess_tree_rank(tree, i)]; /* siblings follow each other */
    }
}

START_TEST(grown_guesses_follow_their_sibling)
{
    struct guess_tree tree;
    struct error err;
    grow_after(&tree);
    guess_tree_sort(&tree);
    const int32_t tokens[] = {5, 6, 4, 1, 7, 1, 4, 2, 2, 3, 8};
    const int32_t parents[] = {-1, 0, 0, 2, -1, 4, 5, 6, 4, -1, 9};
    const int ranks[] = {0, 0, 1, 0, 1, 0, 0, 0, 1, 2, 0};
    const int marks[] = {1, 1, 2, 4, 2, 4, 4, 4, 4, 2, 4};
    ck_assert_int_eq(tree.n, 11);
    for (int i = 0; i < 11; i++) {
        ck_assert_int_eq(tree.tokens[i], tokens[i]);
        ck_assert_int_eq(tree.parents[i], parents[i]);
        ck_assert_int_eq(guess_tree_rank(&tree, i), ranks[i]);
        ck_assert_int_eq(tree.marks[i], marks[i]);
    }
    CHECK_OK(tree_check(&tree, 10, &err));
    /* Siblings share a q, also after siblings, and others do not. */
    ck_assert(tree.q[8] == tree.q[5] && tree.q[5] != tree.q[1]);
    ck_assert_double_eq_tol(tree_q_left(&tree, 8), 0.875, 1e-9);
    ck_assert(tree_q_left(&tree, 10) == 1);
    static const struct path_case cases[] = {
        {{.n_accepted = 2, .path = {0, 1}}, {2, 0, 0, 0}},
        {{.n_accepted = 4, .path = {4, 5, 6, 7}}, {0, 2, 0, 0}},
        {{.n_accepted = 3, .path = {0, 2, 3}}, {1, 1, 0, 0}},
        {{.n_accepted = 2, .path = {9, 10}}, {0, 2, 1, 0}},
        {{.n_accepted = 0}, {0, 2, 2, 0}},
    };
    check_paths(&tree, cases, sizeof cases / sizeof *cases);
}
END_TEST

/* A growth, siblings or a chain of which the draft leaves out some guesses need no more blocks than
 * the plan has. */
START_TEST(a_part_of_a_growth_needs_no_more_blocks)
{
    enum { BLOCK = 4 };
    struct guess_tree all, part;
    struct tree_layout most, layout;
    struct error err;
    grow_after(&all);
    part = all;
    guess_tree_sort(&part);
    CHECK_OK(tree_layout_init(&most, part.parents, part.n, &err));
    for (int n = 0; n <= grown.n + 1; n++) {
        struct growth some = grown;
        some.n = n <= grown.n ? n : 4;
        growth_plan(n <= grown.n ? 2 : 1, n_siblings, &some, &part); /* or the chain ends early */
        guess_tree_sort(&part);
        CHECK_OK(tree_layout_init(&layout, part.parents, part.n, &err));
        for (int first = 0; first < BLOCK; first++) {
            ck_assert_int_le(tree_layout_tails(&layout, first, BLOCK),
                             tree_layout_tails(&most, first, BLOCK));
        }
    }
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
    tcase_add_test(tcase, path_holds_the_accepted_guesses);
    tcase_add_test(tcase, a_branch_leaves_the_chain_where_they_differ);
    tcase_add_test(tcase, path_holds_the_accepted_guesses_of_a_branch);
    tcase_add_test(tcase, no_tree_needs_more_blocks_than_were_set_aside);
    tcase_add_test(tcase, grown_guesses_follow_their_sibling);
    tcase_add_test(tcase, a_part_of_a_growth_needs_no_more_blocks);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
