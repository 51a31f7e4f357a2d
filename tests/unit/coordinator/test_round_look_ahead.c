/* ctest: labels=quick libs=coordinator timeout=60 */
/* Look-ahead tokens beside a lane's guesses: each guess keeps its place, its parent and its text in
 * the tree that is fed, whatever siblings there are, and the chains are after the guesses that they
 * are planned for, each with the same tokens. */
#include "coordinator/round/round.h"
#include "tests/support/check_util.h"

enum { FIRST_ID = 4096, BASE = 7 };

static uint32_t chance = 1;

static int dice(int n)
{
    chance = chance * 1664525u + 1013904223u;
    return (int)((chance >> 8) % (uint32_t)n);
}

/* A chain, siblings of some of its guesses, and guesses after these. */
static void make_draft(struct guess_tree *draft)
{
    int k = dice(6), n_beside = k > 0 ? dice(8) : 0;
    guess_tree_begin(draft, BASE);
    for (int i = 0; i < k; i++) {
        guess_tree_extend(draft, 0, 100 + i, NULL);
    }
    for (int i = 0; i < n_beside; i++) {
        int parent = dice(draft->n + 1) - 1;
        bool is_beside_chain = parent == -1 || draft->marks[parent] & GUESS_CHAIN;
        if (parent == guess_tree_last(draft)) continue;
        guess_tree_add(draft, parent, is_beside_chain ? GUESS_SIBLING : GUESS_GROWN, 200 + i, NULL);
    }
    guess_tree_sort(draft);
}

static void plan_places(struct lane_look_ahead *l, int k)
{
    *l = (struct lane_look_ahead){.length = 1 + dice(3), .n_top = 4};
    for (int place = 0; place <= k + 1; place++) { /* the last one has no guess */
        if (dice(3)) l->places[l->n++] = (uint8_t)place;
    }
}

static bool has_place(const struct lane_look_ahead *l, int place)
{
    for (int i = 0; i < l->n; i++) {
        if (l->places[i] == place) return true;
    }
    return false;
}

/* Each guess has the same tokens before it in both trees. */
static void check_guesses(const struct round_lane *lane)
{
    int32_t own[DRAFT_MAX], fed[DRAFT_MAX];
    for (int node = 0; node < lane->draft.n; node++) {
        int at = round_fed_node(lane, node);
        ck_assert(at >= node && at < lane->fed->n);
        ck_assert(!(lane->fed->marks[at] & GUESS_LOOK_AHEAD));
        int n = guess_tree_text(&lane->draft, node, own);
        ck_assert_int_eq(guess_tree_text(lane->fed, at, fed), n);
        ck_assert_mem_eq(own, fed, (size_t)n * sizeof *own);
    }
    ck_assert_int_eq(round_fed_node(lane, -1), -1);
}

/* Returns the look-ahead tokens after a node, which are the first ones in order. */
static int count_chain(const struct guess_tree *fed, int node)
{
    int n = 0, next = node;
    for (int c = guess_tree_child(fed, node); c >= 0; c = guess_tree_sibling(fed, c)) {
        if (fed->marks[c] & GUESS_LOOK_AHEAD) next = c;
    }
    while (next != node && next >= 0) {
        ck_assert_int_eq(fed->tokens[next], FIRST_ID + n++);
        ck_assert(fed->marks[next] == GUESS_LOOK_AHEAD);
        next = guess_tree_child(fed, next);
    }
    return n;
}

START_TEST(guesses_keep_their_places)
{
    static struct round_lane lane;
    static struct guess_tree fed;
    struct tree_layout layout;
    struct error err;
    int n_ahead = 0;
    for (int turn = 0; turn < 400; turn++) {
        struct lane_look_ahead *l = &lane.plan.look_ahead;
        make_draft(&lane.draft);
        plan_places(l, lane.draft.n_chain);
        fed = lane.draft;
        lane_look_ahead_add(l, FIRST_ID, &fed);
        guess_tree_sort(&fed);
        lane.fed = &fed;
        check_guesses(&lane);
        for (int place = 0; place <= lane.draft.n_chain; place++) {
            int node = place > 0 ? lane.draft.chain[place - 1] : -1;
            int n = count_chain(&fed, round_fed_node(&lane, node));
            ck_assert_int_eq(n, has_place(l, place) ? l->length : 0);
            n_ahead += n;
        }
        ck_assert_int_eq(guess_tree_count(&fed, GUESS_LOOK_AHEAD), fed.n - lane.draft.n);
        if (fed.n > 0) CHECK_OK(tree_layout_init(&layout, fed.parents, fed.n, &err));
    }
    ck_assert_int_gt(n_ahead, 400);
}
END_TEST

START_TEST(without_them_the_draft_is_fed)
{
    static struct round_lane lane;
    for (int turn = 0; turn < 20; turn++) {
        make_draft(&lane.draft);
        lane.fed = &lane.draft;
        check_guesses(&lane);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("round_look_ahead");
    TCase *tcase = tcase_create("round_look_ahead");
    tcase_add_test(tcase, guesses_keep_their_places);
    tcase_add_test(tcase, without_them_the_draft_is_fed);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
