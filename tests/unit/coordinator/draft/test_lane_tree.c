/* ctest: labels=quick libs=coordinator timeout=60 */
/* A draft with siblings, and guesses behind them, as a tree: each keeps its place and the q that it
 * was drawn from, and a row names what all q's behind it can give. Siblings that were found have
 * q's of their own. */
#include "base/end_ids.h"
#include "coordinator/draft/finder.h"
#include "coordinator/draft/lane_tree.h"
#include "coordinator/sequence/sequence.h"
#include "speculation/accept/multi_draft.h"
#include "speculation/accept/rules.h"
#include "tests/support/check_util.h"

enum { N_TOKENS = 2, END = 9 };

static struct arena arena;
static int32_t text[64];
static struct sequence seq;
static const struct end_ids no_ends;
static const struct growth no_growth;

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

static struct draft_lane new_lane(struct draft *draft, int siblings_max, const struct end_ids *ends)
{
    *draft = (struct draft){.base = N_TOKENS};
    return (struct draft_lane){
        .seq = &seq, .k = DRAFT_MAX, .ends = ends, .draft = draft, .siblings_max = siblings_max};
}

static bool is_one_hot(const struct sparse_dist *q, int32_t id)
{
    return q->n == 1 && q->ids[0] == id && q->p[0] == 1;
}

/* The ids that the row behind `node` names. */
static void check_ids(const struct lane_tree *tree, int node, const int32_t *ids, int n)
{
    int32_t named[64];
    struct sparse_dist q;
    struct target_want want = {0};
    multi_draft_want(&tree->guesses, node, named, &q, &want);
    ck_assert(want.q == (n > 0 ? &q : NULL) && !want.full_rows);
    ck_assert_int_eq(q.n, n);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(q.ids[i], ids[i]);
    }
}

static const struct finder_guess found[] = {
    {.n = 3, .tokens = {5, 7, 3}}, {.n = 1, .tokens = {6}}, {.n = 2, .tokens = {END, 4}}};

START_TEST(what_was_found_has_one_hot_qs)
{
    struct draft draft;
    struct lane_tree tree;
    struct error err;
    struct draft_lane lane = new_lane(&draft, SIBLINGS_MAX, &no_ends);
    finder_take(&lane, found, 3, &arena);
    ck_assert(lane.err.code == 0 && draft.n == 3 && lane_tree_siblings(&draft) == 3);
    ck_assert(text[N_TOKENS] == 5 && text[N_TOKENS + 1] == 6 && text[N_TOKENS + 2] == END);
    lane_tree_init(&tree, &draft);
    const int32_t tokens[] = {5, 6, END, 4, 7, 3}, parents[] = {-1, 0, 1, 1, -1, -1};
    ck_assert_int_eq(tree.guesses.n, 6);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(tree.guesses.tokens[i], tokens[i]);
        ck_assert_int_eq(tree.guesses.parents[i], parents[i]);
        ck_assert(is_one_hot(tree.guesses.q[i], tokens[i]));
    }
    CHECK_OK(tree_check(&tree.guesses, 10, &err));
    check_ids(&tree, -1, (const int32_t[]){3, 5, 7}, 3);
    check_ids(&tree, 0, (const int32_t[]){6}, 1);
    check_ids(&tree, 1, (const int32_t[]){4, END}, 2);
    check_ids(&tree, 2, NULL, 0);
    check_ids(&tree, 4, NULL, 0);
}
END_TEST

START_TEST(a_lane_has_no_more_siblings_than_it_may_and_none_behind_an_end)
{
    struct draft draft;
    static const struct end_ids ends = {.ids = {END}, .n = 1};
    const struct finder_guess guesses[] = {found[0], found[2], found[1]};
    struct draft_lane lane = new_lane(&draft, 1, &ends);
    finder_take(&lane, guesses, 3, &arena);
    ck_assert(draft.n == 2 && draft.is_over);
    ck_assert(draft.n_siblings[0] == 1 && draft.siblings[0][0] == 7 && draft.n_siblings[1] == 1);
    lane = new_lane(&draft, 0, &ends);
    finder_take(&lane, guesses, 3, &arena);
    ck_assert(draft.n == 2 && lane_tree_siblings(&draft) == 0);
}
END_TEST

START_TEST(drawn_siblings_share_their_q)
{
    struct draft draft;
    struct lane_tree tree;
    int32_t ids[] = {3, 5, 8};
    float p[] = {0.25f, 0.5f, 0.25f};
    const struct finder_guess drawn = {.n = 2, .tokens = {5, 3}, .q = {3, ids, p}};
    struct draft_lane lane = new_lane(&draft, SIBLINGS_MAX, &no_ends);
    finder_begin(&lane);
    ck_assert(finder_add(&lane, &drawn, &arena) && finder_add(&lane, &found[2], &arena));
    lane_tree_init(&tree, &draft);
    ck_assert_int_eq(tree.guesses.n, 4); /* 5, END, then the sibling of END, then that of 5 */
    ck_assert(tree.guesses.q[3] == tree.guesses.q[0] && tree.guesses.q[2] != tree.guesses.q[1]);
    ck_assert(tree_q_left(&tree.guesses, 3) == 0.5 && tree_q_left(&tree.guesses, 2) == 1);
    check_ids(&tree, -1, ids, 3);
    check_ids(&tree, 0, (const int32_t[]){4, END}, 2);
}
END_TEST

struct path_case {
    struct tree_result result;
    struct lane_path path;
};

static void check_paths(const struct lane_tree *tree, const struct draft *draft,
                        const struct path_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct lane_path path = lane_tree_path(tree, draft, &cases[i].result);
        ck_assert_int_eq(path.n_chain, cases[i].path.n_chain);
        ck_assert_int_eq(path.n_tested, cases[i].path.n_tested);
        ck_assert_int_eq(path.kept, cases[i].path.kept);
        ck_assert_int_eq(path.n_branch, cases[i].path.n_branch);
    }
}

START_TEST(the_path_says_what_stays)
{
    struct draft draft;
    struct lane_tree tree;
    struct draft_lane lane = new_lane(&draft, SIBLINGS_MAX, &no_ends);
    finder_take(&lane, found, 3, &arena);
    lane_tree_init(&tree, &draft);
    static const struct path_case cases[] = {
        {{.n_accepted = 3, .path = {0, 1, 2}}, {3, 0, 0, 0}},
        {{.n_accepted = 3, .path = {0, 1, 3}}, {2, 1, 0, 0}},
        {{.n_accepted = 2, .path = {0, 1}}, {2, 1, 1, 0}},
        {{.n_accepted = 1, .path = {5}}, {0, 2, 1, 0}},
        {{.n_accepted = 0}, {0, 2, 2, 0}},
    };
    check_paths(&tree, &draft, cases, sizeof cases / sizeof *cases);
}
END_TEST

/* The chain of `found` with its siblings, and a branch. */
static void grow(struct draft *draft, struct lane_tree *tree, const int32_t *branch, int n)
{
    static float one = 1;
    struct draft_lane lane = new_lane(draft, SIBLINGS_MAX, &no_ends);
    finder_take(&lane, found, 3, &arena);
    draft->n_branch = n;
    for (int i = 0; i < n; i++) {
        draft->branch[i] = branch[i];
        draft->branch_q[i] = (struct sparse_dist){1, &draft->branch[i], &one};
    }
    lane_tree_init(tree, draft);
}

/* Chain 5 6 END, siblings 7 and 3 of 5 and 4 of END. */
START_TEST(a_branch_leaves_the_chain_where_they_differ)
{
    const struct {
        int32_t branch[5];
        int n, n_shared, n_nodes;
        int32_t tokens[10], parents[10];
    } cases[] = {
        /* from the root, behind all siblings */
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
        struct draft draft;
        struct lane_tree tree;
        struct error err;
        grow(&draft, &tree, cases[c].branch, cases[c].n);
        ck_assert_int_eq(lane_tree_shared(&draft), cases[c].n_shared);
        ck_assert_int_eq(tree.guesses.n, cases[c].n_nodes);
        for (int i = 0; i < cases[c].n_nodes; i++) {
            ck_assert_int_eq(tree.guesses.tokens[i], cases[c].tokens[i]);
            ck_assert_int_eq(tree.guesses.parents[i], cases[c].parents[i]);
            ck_assert(is_one_hot(tree.guesses.q[i], cases[c].tokens[i]));
        }
        CHECK_OK(tree_check(&tree.guesses, 10, &err));
    }
}
END_TEST

START_TEST(the_path_says_what_stays_of_a_branch)
{
    struct draft draft;
    struct lane_tree tree;
    grow(&draft, &tree, (const int32_t[]){5, 8, 2}, 3);
    static const struct path_case leaving[] = {
        {{.n_accepted = 3, .path = {0, 4, 5}}, {1, 0, 0, 2}},
        {{.n_accepted = 2, .path = {0, 4}}, {1, 0, 0, 1}},
        {{.n_accepted = 3, .path = {0, 1, 3}}, {2, 1, 0, 0}},
        {{.n_accepted = 1, .path = {6}}, {0, 2, 0, 0}},
    };
    check_paths(&tree, &draft, leaving, sizeof leaving / sizeof *leaving);
    grow(&draft, &tree, (const int32_t[]){3, 8, 2}, 3);
    static const struct path_case behind_sibling[] = {
        {{.n_accepted = 3, .path = {5, 6, 7}}, {0, 2, 1, 2}},
        {{.n_accepted = 1, .path = {4}}, {0, 2, 0, 0}},
    };
    check_paths(&tree, &draft, behind_sibling, 2);
    grow(&draft, &tree, (const int32_t[]){5, 6, END, 2, 1}, 5);
    static const struct path_case behind_chain[] = {
        {{.n_accepted = 5, .path = {0, 1, 2, 3, 4}}, {3, 0, 0, 2}},
        {{.n_accepted = 3, .path = {0, 1, 2}}, {3, 0, 0, 0}},
    };
    check_paths(&tree, &draft, behind_chain, 2);
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
            struct draft draft;
            struct lane_tree tree;
            struct guess_tree most;
            struct error err;
            int32_t parents[TREE_NODES_MAX];
            int n_most = lane_tree_parents(3, siblings, &no_growth, n, parents);
            CHECK_OK(guess_tree_init(&most, parents, n_most, &err));
            grow(&draft, &tree, branches[c], n);
            ck_assert_int_le(tree.shape.leaf_depth[0], n > 3 ? n - 1 : 2);
            for (int first = 0; first < BLOCK; first++) {
                ck_assert_int_le(guess_tree_tails(&tree.shape, first, BLOCK),
                                 guess_tree_tails(&most, first, BLOCK));
            }
        }
    }
}
END_TEST

/* Behind siblings of a chain of drawn guesses, as in base/growth.h. */
static void grow_behind(struct draft *draft, struct lane_tree *tree)
{
    static int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8};
    static float p[] = {0.125f, 0.125f, 0.125f, 0.125f, 0.125f, 0.125f, 0.125f, 0.125f};
    const struct sparse_dist even = {8, ids, p};
    *draft = (struct draft){.base = N_TOKENS,
                            .n = 2,
                            .tokens = {5, 6},
                            .q = {even, even},
                            .n_siblings = {2, 1},
                            .siblings = {{7, 3}, {4}},
                            .grown = {6,
                                      {growth_behind(0, 0), growth_behind(0, 0),
                                       growth_behind(0, 1), 0, growth_behind(1, 0), 3}},
                            .grown_tokens = {1, 2, 8, 4, 1, 2}};
    for (int i = 0; i < draft->grown.n; i++) {
        draft->grown_q[i] = even;
    }
    lane_tree_init(tree, draft);
}

START_TEST(what_grows_follows_its_sibling)
{
    struct draft draft;
    struct lane_tree tree;
    struct error err;
    grow_behind(&draft, &tree);
    const int32_t tokens[] = {5, 6, 4, 1, 7, 1, 4, 2, 2, 3, 8};
    const int32_t parents[] = {-1, 0, 0, 2, -1, 4, 5, 6, 4, -1, 9};
    const int kinds[] = {0, 0, 1, 4, 1, 4, 4, 4, 5, 2, 4};
    ck_assert_int_eq(tree.guesses.n, 11);
    for (int i = 0; i < 11; i++) {
        ck_assert_int_eq(tree.guesses.tokens[i], tokens[i]);
        ck_assert_int_eq(tree.guesses.parents[i], parents[i]);
        ck_assert_int_eq(tree.kinds[i], kinds[i]);
    }
    CHECK_OK(tree_check(&tree.guesses, 10, &err));
    /* Siblings share a q, also behind siblings, and others do not. */
    ck_assert(tree.guesses.q[8] == tree.guesses.q[5] && tree.guesses.q[5] != tree.guesses.q[1]);
    ck_assert_double_eq_tol(tree_q_left(&tree.guesses, 8), 0.875, 1e-9);
    ck_assert(tree_q_left(&tree.guesses, 10) == 1);
    static const struct path_case cases[] = {
        {{.n_accepted = 2, .path = {0, 1}}, {2, 0, 0, 0}},
        {{.n_accepted = 4, .path = {4, 5, 6, 7}}, {0, 2, 0, 0}},
        {{.n_accepted = 3, .path = {0, 2, 3}}, {1, 1, 0, 0}},
        {{.n_accepted = 2, .path = {9, 10}}, {0, 2, 1, 0}},
        {{.n_accepted = 0}, {0, 2, 2, 0}},
    };
    check_paths(&tree, &draft, cases, sizeof cases / sizeof *cases);
}
END_TEST

/* What a draft leaves out of its growth, of its siblings or of its chain needs no more blocks than
 * the plan has. */
START_TEST(a_part_of_a_growth_needs_no_more_blocks)
{
    enum { BLOCK = 4 };
    struct draft draft, all;
    struct lane_tree tree;
    struct guess_tree most;
    struct error err;
    int32_t parents[TREE_NODES_MAX];
    grow_behind(&all, &tree);
    int n = lane_tree_parents(all.n, all.n_siblings, &all.grown, 0, parents);
    ck_assert_int_eq(n, tree.guesses.n);
    ck_assert_int_eq(memcmp(parents, tree.guesses.parents, (size_t)n * sizeof *parents), 0);
    CHECK_OK(guess_tree_init(&most, parents, n, &err));
    for (int part = 0; part <= all.grown.n + 1; part++) {
        draft = all;
        if (part <= all.grown.n) draft.grown.n = part;
        if (part > all.grown.n) { /* the chain ends early */
            draft.n = 1;
            draft.grown.n = 4;
        }
        lane_tree_init(&tree, &draft);
        for (int first = 0; first < BLOCK; first++) {
            ck_assert_int_le(guess_tree_tails(&tree.shape, first, BLOCK),
                             guess_tree_tails(&most, first, BLOCK));
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lane_tree");
    TCase *tcase = tcase_create("lane_tree");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, what_was_found_has_one_hot_qs);
    tcase_add_test(tcase, a_lane_has_no_more_siblings_than_it_may_and_none_behind_an_end);
    tcase_add_test(tcase, drawn_siblings_share_their_q);
    tcase_add_test(tcase, the_path_says_what_stays);
    tcase_add_test(tcase, a_branch_leaves_the_chain_where_they_differ);
    tcase_add_test(tcase, the_path_says_what_stays_of_a_branch);
    tcase_add_test(tcase, no_tree_needs_more_blocks_than_were_set_aside);
    tcase_add_test(tcase, what_grows_follows_its_sibling);
    tcase_add_test(tcase, a_part_of_a_growth_needs_no_more_blocks);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
