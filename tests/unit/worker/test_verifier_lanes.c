/* ctest: labels=quick,threads libs=verifier timeout=120 */
/* Many lanes in a step: they may read what other slots have written, and one that makes no sense is
 * refused without a trace in the others' rows. */
#include "tests/support/verifier_group.h"

/* 20 tokens reach into a second block. */
enum { LONG = 20, SHORT = 7 };
static const int32_t story[LONG] = {2174, 708,  262, 515, 434, 311, 262, 486, 391, 342,
                                    729,  2240, 15,  273, 360, 342, 439, 262, 515, 434};
static const struct step_row whole_row = {.index = 0, .wish = {.full = true}};

/* A lane that feeds story[position .. end) and wants all logits of its last row. */
struct story_lane {
    struct step_row row;
    int32_t fed[LONG], blocks[2], ids[1];
    struct step_lane lane;
};

static void tell(struct story_lane *story_lane, int slot, int position, int end, int first_block,
                 int second_block)
{
    int n = end - position;
    *story_lane = (struct story_lane){.row = whole_row, .blocks = {first_block, second_block}};
    memcpy(story_lane->fed, story + position, (size_t)n * sizeof *story);
    story_lane->row.index = n - 1;
    story_lane->lane = (struct step_lane){.slot = slot,
                                          .position = position,
                                          .n_tokens = n,
                                          .tokens = story_lane->fed,
                                          .n_blocks = second_block < 0 ? 1 : 2,
                                          .blocks = story_lane->blocks,
                                          .n_rows = 1,
                                          .rows = &story_lane->row};
}

/* Runs a step of these lanes. Returns the number of rows; logits[n_rows][VOCAB]. */
static int run_lanes(struct group *group, struct story_lane *const *lanes, int n, float *logits)
{
    struct step_lane step_lanes[N_SLOTS];
    for (int i = 0; i < n; i++) {
        step_lanes[i] = lanes[i]->lane;
    }
    return group_logits(group, step_lanes, n, logits);
}

static void check_logits(const float *a, const float *b)
{
    ck_assert_int_eq(memcmp(a, b, VOCAB * sizeof *a), 0);
}

START_TEST(a_block_that_another_slot_has_filled_can_be_read)
{
    static float own[VOCAB], shared[VOCAB], grown[VOCAB], both[2 * VOCAB];
    struct group group;
    struct story_lane first, second, third;
    group_open(&group, _i);
    tell(&first, 0, 0, LONG, 5, 3);
    ck_assert_int_eq(run_lanes(&group, &(struct story_lane *){&first}, 1, own), 1);
    tell(&second, 1, 16, LONG, 5, 8);
    ck_assert_int_eq(run_lanes(&group, &(struct story_lane *){&second}, 1, shared), 1);
    ck_assert_int_eq(group.n_refused, 0);
    check_logits(own, shared);
    /* Two more that read it side by side. */
    tell(&second, 2, 16, LONG, 5, 9);
    tell(&third, 3, 16, LONG, 5, 10);
    ck_assert_int_eq(run_lanes(&group, (struct story_lane *[]){&second, &third}, 2, both), 2);
    check_logits(own, both);
    check_logits(own, both + VOCAB);
    /* The slot that shares goes on in its own block, without sending its table again. */
    tell(&first, 0, LONG - 1, LONG, 5, 3);
    first.lane.n_blocks = 0;
    ck_assert_int_eq(run_lanes(&group, &(struct story_lane *){&first}, 1, grown), 1);
    check_logits(own, grown);
    tell(&second, 1, LONG - 1, LONG, 5, 8);
    second.lane.n_blocks = 0;
    ck_assert_int_eq(run_lanes(&group, &(struct story_lane *){&second}, 1, grown), 1);
    check_logits(own, grown);
    group_close(&group);
}
END_TEST

START_TEST(positions_that_nobody_has_written_cannot_be_read)
{
    static float alone[VOCAB], row[VOCAB];
    struct group group;
    struct story_lane lane;
    group_open(&group, 1);
    tell(&lane, 3, 0, LONG, 11, 12);
    ck_assert_int_eq(run_lanes(&group, &(struct story_lane *){&lane}, 1, alone), 1);
    tell(&lane, 0, 0, 5, 5, -1);
    ck_assert_int_eq(run_lanes(&group, &(struct story_lane *){&lane}, 1, row), 1);
    tell(&lane, 1, 16, LONG, 5, 8);
    ck_assert_int_eq(run_lanes(&group, &(struct story_lane *){&lane}, 1, row), 0);
    expect_refused(&group, 0, "position 16 leaves a gap after the 5 known positions of slot 1");
    tell(&lane, 1, 6, LONG, 5, 8);
    ck_assert_int_eq(run_lanes(&group, &(struct story_lane *){&lane}, 1, row), 0);
    expect_refused(&group, 0, "position 6 leaves a gap after the 5 known positions");
    /* A block that was never used, after one that is full. */
    tell(&lane, 1, 17, LONG, 11, 8);
    ck_assert_int_eq(run_lanes(&group, &(struct story_lane *){&lane}, 1, row), 0);
    expect_refused(&group, 0, "position 17 leaves a gap after the 16 known positions");
    /* Once the other slot has filled the block, it can. */
    tell(&lane, 0, 5, 16, 5, -1);
    lane.lane.n_blocks = 0;
    ck_assert_int_eq(run_lanes(&group, &(struct story_lane *){&lane}, 1, row), 1);
    tell(&lane, 1, 16, LONG, 5, 8);
    ck_assert_int_eq(run_lanes(&group, &(struct story_lane *){&lane}, 1, row), 1);
    check_logits(alone, row);
    group_close(&group);
}
END_TEST

/* A slot that begins another text in other blocks knows nothing of its old ones. */
START_TEST(a_slot_with_a_new_table_forgets_its_old_positions)
{
    static float row[VOCAB];
    struct group group;
    struct story_lane lane;
    group_open(&group, 1);
    tell(&lane, 0, 0, LONG, 5, 3);
    ck_assert_int_eq(run_lanes(&group, &(struct story_lane *){&lane}, 1, row), 1);
    tell(&lane, 0, LONG - 1, LONG, 6, 7);
    ck_assert_int_eq(run_lanes(&group, &(struct story_lane *){&lane}, 1, row), 0);
    expect_refused(&group, 0, "leaves a gap after the 0 known positions");
    group_close(&group);
}
END_TEST

START_TEST(of_two_lanes_that_write_to_one_block_the_second_is_refused)
{
    static float alone[VOCAB], rows[2 * VOCAB];
    struct group group;
    struct story_lane first, second;
    group_open(&group, _i);
    tell(&first, 0, 0, LONG, 5, 3);
    ck_assert_int_eq(run_lanes(&group, &(struct story_lane *){&first}, 1, alone), 1);
    tell(&first, 1, 0, LONG, 7, 8);
    tell(&second, 2, 0, SHORT, 8, -1);
    ck_assert_int_eq(run_lanes(&group, (struct story_lane *[]){&first, &second}, 2, rows), 1);
    expect_refused(&group, 1, "KV block 8 is written by two lanes of the step");
    check_logits(alone, rows);
    /* In the next step the block is the second one's to write. */
    ck_assert_int_eq(run_lanes(&group, &(struct story_lane *){&second}, 1, rows), 1);
    ck_assert_int_eq(group.n_refused, 0);
    group_close(&group);
}
END_TEST

START_TEST(a_slot_that_occurs_twice_and_a_step_that_is_full_refuse_the_later_lane)
{
    static float rows[N_SLOTS * VOCAB];
    static const int32_t many[STEP_TOKENS] = {0};
    static const int32_t many_blocks[4] = {12, 13, 14, 15};
    struct group group;
    struct story_lane first, second, third;
    group_open(&group, 2);
    tell(&first, 0, 0, LONG, 5, 3);
    tell(&second, 0, 0, LONG, 7, 8);
    ck_assert_int_eq(run_lanes(&group, (struct story_lane *[]){&first, &second}, 2, rows), 1);
    expect_refused(&group, 1, "slot 0 occurs twice in the step");
    tell(&second, 1, 0, LONG, 7, 8);
    tell(&third, 2, 0, SHORT, 9, -1);
    second.lane.tokens = many;
    second.lane.n_tokens = STEP_TOKENS - 1;
    second.lane.n_blocks = 4;
    second.lane.blocks = many_blocks;
    struct story_lane *const lanes[] = {&first, &second, &third};
    ck_assert_int_eq(run_lanes(&group, lanes, 3, rows), 2);
    expect_refused(&group, 1, "more than 64 tokens or 20 rows in one step");
    group_close(&group);
}
END_TEST

static void spoil_token(struct story_lane *lane)
{
    lane->fed[3] = VOCAB;
}
static void spoil_wish(struct story_lane *lane)
{
    lane->ids[0] = -1;
    lane->row.wish.n_ids = 1;
    lane->row.wish.ids = lane->ids;
}
static void spoil_gap(struct story_lane *lane)
{
    lane->lane.position = 1;
}

static const struct {
    void (*apply)(struct story_lane *);
    const char *says;
} spoils[] = {{spoil_token, "token 4096 is outside of the vocabulary"},
              {spoil_wish, "wished id -1 is outside of the vocabulary"},
              {spoil_gap, "leaves a gap"}};
enum { N_SPOILS = sizeof spoils / sizeof *spoils };

/* The rows of two good lanes, with a bad one at `place` among them: bit for bit those of the two
 * alone, and in the next step the bad one, mended, is served. */
static void run_beside_bad(int n_ranks, int spoil, int place, float *logits)
{
    static float ignored[3 * VOCAB];
    struct group group;
    struct story_lane good[2], bad;
    struct story_lane *lanes[3];
    tell(&good[0], 0, 0, LONG, 5, 3);
    tell(&good[1], 1, 0, 13, 7, -1);
    tell(&bad, 2, 0, LONG, 9, 10);
    if (spoil >= 0) spoils[spoil].apply(&bad);
    for (int i = 0, g = 0; i < 3; i++) {
        lanes[i] = i == place ? &bad : &good[g++];
    }
    if (spoil < 0) lanes[0] = &good[0], lanes[1] = &good[1];
    group_open(&group, n_ranks);
    ck_assert_int_eq(run_lanes(&group, lanes, spoil < 0 ? 2 : 3, logits), 2);
    if (spoil >= 0) expect_refused(&group, place, spoils[spoil].says);
    tell(&bad, 2, 0, LONG, 9, 10);
    ck_assert_int_eq(run_lanes(&group, &(struct story_lane *){&bad}, 1, ignored), 1);
    check_logits(logits, ignored); /* the same text as the first lane's */
    group_close(&group);
}

START_TEST(a_bad_lane_of_three_leaves_the_others_rows_alone)
{
    static float without[2 * VOCAB], with[2 * VOCAB];
    int n_ranks = _i / N_SPOILS + 1, spoil = _i % N_SPOILS;
    run_beside_bad(1, -1, 2, without);
    for (int place = 0; place < 3; place++) {
        run_beside_bad(n_ranks, spoil, place, with);
        ck_assert_int_eq(memcmp(without, with, sizeof with), 0);
    }
}
END_TEST

/* Further values of a step in which a lane was refused are found by the step's own lane numbers. */
START_TEST(more_of_a_row_after_a_refused_lane_is_the_right_row)
{
    static float rows[2 * VOCAB];
    struct group group;
    struct story_lane good, bad;
    struct slice_row more[SLICES_MAX];
    char refusal[ERROR_TEXT_BYTES] = "";
    int lane;
    tell(&bad, 0, 0, LONG, 5, 3);
    tell(&good, 1, 0, 13, 7, -1);
    spoil_token(&bad);
    group_open(&group, 2);
    ck_assert_int_eq(run_lanes(&group, (struct story_lane *[]){&bad, &good}, 2, rows), 1);
    const struct step_row row = {.index = 12, .wish = {.n_best = 1}};
    struct step_more wanted = {.lane = 1, .n_rows = 1, .rows = &row};
    struct step step = {.n_more = 1, .more = &wanted};
    ck_assert_int_eq(group_step(&group, &step, more, refusal, &lane), 1);
    ck_assert(memcmp(&more[2].best_logits[0], &rows[more[2].best_ids[0]], sizeof(float)) == 0);
    wanted.lane = 0;
    step = (struct step){.n_more = 1, .more = &wanted};
    ck_assert_int_eq(group_step(&group, &step, more, refusal, &lane), -1);
    ck_assert_ptr_nonnull(strstr(refusal, "row 12 was not in the last step"));
    group_close(&group);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("verifier_lanes");
    TCase *tcase = tcase_create("ranks as threads");
    tcase_set_timeout(tcase, 280);
    tcase_add_loop_test(tcase, a_block_that_another_slot_has_filled_can_be_read, 1, 3);
    tcase_add_test(tcase, positions_that_nobody_has_written_cannot_be_read);
    tcase_add_test(tcase, a_slot_with_a_new_table_forgets_its_old_positions);
    tcase_add_loop_test(tcase, of_two_lanes_that_write_to_one_block_the_second_is_refused, 1, 3);
    tcase_add_test(tcase, a_slot_that_occurs_twice_and_a_step_that_is_full_refuse_the_later_lane);
    tcase_add_loop_test(tcase, a_bad_lane_of_three_leaves_the_others_rows_alone, 0, 2 * N_SPOILS);
    tcase_add_test(tcase, more_of_a_row_after_a_refused_lane_is_the_right_row);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
