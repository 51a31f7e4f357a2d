/* ctest: labels=quick,threads libs=verifier timeout=120 */
/* A lane whose guesses are a tree: every row is the one of the path as a chain, an accepted path's
 * blocks become the slot's, and a tree that makes no sense is refused by itself. */
#include "tests/support/verifier_group.h"

enum { COMMITTED = 13, GUESSES = 7, ROWS = GUESSES + 1 };

/* Path 0 is guesses 0 1 2 3 4 and reaches position 17, path 1 is 0 1 5, path 2 is 6. */
static const int32_t parents[GUESSES] = {-1, 0, 1, 2, 3, 1, -1};
static const int32_t text[COMMITTED + GUESSES] = {2174, 708,  262, 515, 434, 311, 262,
                                                  486,  391,  342, 729, 15,  273, 360,
                                                  342,  2240, 262, 515, 434, 311};
static const int32_t table[] = {5, 3}, tails[] = {8, 9};

static struct step_row rows[ROWS];
static struct step_lane lane;

static void ask(int index, int n)
{
    for (int i = 0; i < n; i++) {
        rows[i] = (struct step_row){.index = index + i, .wish = {.full = true}};
    }
    lane.n_rows = n;
    lane.rows = rows;
}

/* The step that feeds the last committed token with the tree after it. */
static void ask_tree(void)
{
    lane = (struct step_lane){.slot = 1,
                              .position = COMMITTED - 1,
                              .n_tokens = ROWS,
                              .tokens = text + COMMITTED - 1,
                              .n_draft = GUESSES,
                              .first_block = 1,
                              .n_blocks = 1,
                              .blocks = table + 1,
                              .parents = parents,
                              .n_tails = 2,
                              .tails = tails};
    ask(0, ROWS);
}

/* Runs a step with the lane alone; logits[n_rows][VOCAB]. Returns the number of rows. */
static int run(struct group *group, float *logits)
{
    return group_logits(group, &lane, 1, logits);
}

static void feed(struct group *group, int slot, const int32_t *tokens, int n, const int32_t *blocks,
                 int n_wanted, float *logits)
{
    lane = (struct step_lane){
        .slot = slot, .n_tokens = n, .tokens = tokens, .n_blocks = (n + 15) / 16, .blocks = blocks};
    ask(n - n_wanted, n_wanted);
    ck_assert_int_eq(run(group, logits), n_wanted);
}

static void open_with_text(struct group *group, int n_ranks)
{
    static float ignored[VOCAB];
    group_open(group, n_ranks);
    feed(group, 1, text, COMMITTED - 1, table, 1, ignored);
    ask_tree();
}

static void check_row(const float *want, const float *got, int i)
{
    ck_assert_msg(memcmp(want, got, VOCAB * sizeof *want) == 0, "row %d", i);
}

START_TEST(rows_are_those_of_the_paths_as_chains)
{
    static const int path_nodes[3][5] = {{0, 1, 2, 3, 4}, {0, 1, 5}, {6}}, lengths[3] = {5, 3, 1};
    static const int32_t spare[] = {1, 2};
    static float in_tree[ROWS * VOCAB], chain[ROWS * VOCAB];
    struct group group;
    open_with_text(&group, _i);
    ck_assert_int_eq(run(&group, in_tree), ROWS);
    ck_assert_int_eq(group.n_refused, 0);
    for (int path = 0; path < 3; path++) {
        int32_t tokens[COMMITTED + 5];
        memcpy(tokens, text, COMMITTED * sizeof *text);
        for (int i = 0; i < lengths[path]; i++) {
            tokens[COMMITTED + i] = text[COMMITTED + path_nodes[path][i]];
        }
        feed(&group, 2, tokens, COMMITTED + lengths[path], spare, lengths[path] + 1, chain);
        check_row(chain, in_tree, 0);
        for (int i = 0; i < lengths[path]; i++) {
            int row = 1 + path_nodes[path][i];
            check_row(chain + (1 + i) * VOCAB, in_tree + row * VOCAB, row);
        }
    }
    group_close(&group);
}
END_TEST

/* Path 1 is accepted: its tail takes the place of block 0 of the table, and the next lane begins
 * after it. Its block holds no more than the path has written. */
START_TEST(an_accepted_path_can_be_continued)
{
    static const int32_t spare[] = {1, 2};
    static float ignored[ROWS * VOCAB], want[VOCAB], got[VOCAB];
    int32_t tokens[COMMITTED + 4];
    struct group group;
    memcpy(tokens, text, COMMITTED * sizeof *text);
    tokens[COMMITTED] = text[COMMITTED];
    tokens[COMMITTED + 1] = text[COMMITTED + 1];
    tokens[COMMITTED + 2] = text[COMMITTED + 5];
    tokens[COMMITTED + 3] = 77;
    open_with_text(&group, _i);
    ck_assert_int_eq(run(&group, ignored), ROWS);
    ck_assert_int_eq(group.n_refused, 0);
    const int32_t accepted[] = {tails[0], table[1]};
    lane = (struct step_lane){.slot = 1,
                              .position = COMMITTED + 3,
                              .n_tokens = 1,
                              .tokens = tokens + COMMITTED + 3,
                              .n_blocks = 2,
                              .blocks = accepted};
    ask(0, 1);
    ck_assert_int_eq(run(&group, got), 1);
    ck_assert_int_eq(group.n_refused, 0);
    feed(&group, 2, tokens, COMMITTED + 4, spare, 1, want);
    check_row(want, got, 0);
    group_close(&group);
    /* Path 2 has only one guess, so two positions after it nobody has written what is read. */
    open_with_text(&group, _i);
    ck_assert_int_eq(run(&group, ignored), ROWS);
    const int32_t shorter[] = {tails[1], table[1]};
    lane = (struct step_lane){.slot = 1,
                              .position = COMMITTED + 2,
                              .n_tokens = 1,
                              .tokens = tokens,
                              .n_blocks = 2,
                              .blocks = shorter};
    ask(0, 1);
    ck_assert_int_eq(run(&group, got), 0);
    expect_refused(&group, 0, "position 15 leaves a gap after the 14 known positions of slot 1");
    group_close(&group);
}
END_TEST

static void spoil_shape(void)
{
    static const int32_t bad[GUESSES] = {-1, 0, 1, 2, 3, 1, 4};
    lane.parents = bad;
}
static void spoil_tail_count(void)
{
    lane.n_tails = 1;
}
static void spoil_tail_range(void)
{
    static const int32_t bad[] = {8, N_BLOCKS};
    lane.tails = bad;
}
static void spoil_tail_twice(void)
{
    static const int32_t bad[] = {8, 8};
    lane.tails = bad;
}
static void spoil_tail_of_table(void)
{
    static const int32_t bad[] = {8, 5};
    lane.tails = bad;
}
static void spoil_tail_of_new_block(void)
{
    static const int32_t bad[] = {3, 8};
    lane.tails = bad;
}
static void spoil_table_length(void)
{
    lane.n_blocks = 0;
}
static void spoil_chain(void)
{
    lane.parents = NULL;
}
static void spoil_committed(void)
{
    lane.n_tokens = GUESSES;
    lane.n_rows = 0;
}

static const struct {
    void (*apply)(void);
    const char *says;
} spoils[] = {
    {spoil_shape, "parents[6] is 4, which is no ancestor of guess 5"},
    {spoil_tail_count, "tails has 1 blocks, but the 3 paths of the tree at position 13 need 2"},
    {spoil_tail_range, "KV block 16 does not exist; there are 16"},
    {spoil_tail_twice, "KV block 8 is in two tails of the lane's tree"},
    {spoil_tail_of_table, "KV block 5 is in a tail of the lane's tree and in its table"},
    {spoil_tail_of_new_block, "KV block 3 is in a tail of the lane's tree and in its table"},
    {spoil_table_length, "positions up to 18 need more than the 1 blocks given"},
    {spoil_chain, "tails has 2 blocks, but the guesses are a chain"},
    {spoil_committed, "7 of 7 tokens are guesses, so no committed one is before them"},
};
enum { N_SPOILS = sizeof spoils / sizeof *spoils };

START_TEST(a_bad_tree_is_refused_and_changes_nothing)
{
    static float want[ROWS * VOCAB], got[ROWS * VOCAB];
    struct group group;
    open_with_text(&group, 1);
    spoils[_i].apply();
    ck_assert_int_eq(run(&group, got), 0);
    expect_refused(&group, 0, spoils[_i].says);
    ask_tree();
    ck_assert_int_eq(run(&group, got), ROWS);
    ck_assert_int_eq(group.n_refused, 0);
    group_close(&group);
    open_with_text(&group, 2);
    ck_assert_int_eq(run(&group, want), ROWS);
    ck_assert_mem_eq(want, got, sizeof want);
    group_close(&group);
}
END_TEST

START_TEST(two_lanes_may_not_write_to_one_tail)
{
    static const int32_t others[] = {9};
    static struct slice_row slices[2 * ROWS * SLICES_MAX];
    char refusal[ERROR_TEXT_BYTES] = "";
    int refused_lane;
    struct group group;
    open_with_text(&group, 2);
    const struct step_lane second = {
        .slot = 2, .n_tokens = 3, .tokens = text, .n_blocks = 1, .blocks = others};
    struct step_lane lanes[2] = {lane, second};
    struct step step = {.n_lanes = 2, .lanes = lanes};
    ck_assert_int_eq(group_step(&group, &step, slices, refusal, &refused_lane), ROWS);
    expect_refused(&group, 1, "KV block 9 is written by two lanes of the step");
    lanes[0] = second;
    lanes[1] = lane;
    step = (struct step){.n_lanes = 2, .lanes = lanes};
    ck_assert_int_eq(group_step(&group, &step, slices, refusal, &refused_lane), 0);
    expect_refused(&group, 1, "KV block 9 is written by two lanes of the step");
    group_close(&group);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("verifier_trees");
    TCase *tcase = tcase_create("ranks as threads");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, rows_are_those_of_the_paths_as_chains, 1, 3);
    tcase_add_loop_test(tcase, an_accepted_path_can_be_continued, 1, 3);
    tcase_add_loop_test(tcase, a_bad_tree_is_refused_and_changes_nothing, 0, N_SPOILS);
    tcase_add_test(tcase, two_lanes_may_not_write_to_one_tail);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
