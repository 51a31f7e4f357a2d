/* ctest: labels=quick libs=coordinator timeout=60 */
/* Steps whose rows name so many ids that the message would be too long for the link, or for the
 * memory that a rank decodes it into. */
#include <string.h>

#include "coordinator/target/step_fit.h"
#include "tests/support/check_util.h"

enum {
    LANE_ROWS = 16,
    LANES_MOST = 256,
    DECODED_BYTES = 64 << 20, /* of a worker */
    LONG_ID = INT32_MAX,      /* 5 bytes on the wire */
    SHORT_ID = 1              /* 1 byte there and 4 when decoded */
};

static struct step step;
static struct step_row rows[LANES_MOST * LANE_ROWS];
static struct step_lane lanes[LANES_MOST];
static int32_t ids[ROW_IDS_MAX];
static int n_rows;

/* Lanes of LANE_ROWS rows, each of which names n_ids ids and asks for more than these. */
static void make_step(int n_lanes, int n_ids, int32_t id)
{
    static int32_t tokens[LANE_ROWS];
    for (int i = 0; i < ROW_IDS_MAX; i++) {
        ids[i] = id;
    }
    n_rows = n_lanes * LANE_ROWS;
    step = (struct step){.id = 1, .n_lanes = n_lanes, .lanes = lanes};
    for (int i = 0; i < n_lanes; i++) {
        lanes[i] = (struct step_lane){.slot = i,
                                      .n_tokens = LANE_ROWS,
                                      .tokens = tokens,
                                      .n_rows = LANE_ROWS,
                                      .rows = &rows[i * LANE_ROWS]};
    }
    for (int i = 0; i < n_rows; i++) {
        rows[i] = (struct step_row){
            .index = i % LANE_ROWS,
            .wish = {.n_ids = n_ids, .ids = ids, .n_best = 1, .at = {7, (uint32_t)i, (uint32_t)i}}};
    }
}

static int count_full(void)
{
    int n = 0;
    for (int i = 0; i < n_rows; i++) {
        n += rows[i].wish.full;
    }
    return n;
}

/* Rows arrive as they were sent. */
static void expect_same(const struct step_row *got, const struct step_row *sent, int n)
{
    for (int i = 0; i < n; i++) {
        const struct row_wish *a = &got[i].wish, *b = &sent[i].wish;
        ck_assert_int_eq(got[i].index, sent[i].index);
        ck_assert_int_eq(a->n_ids, b->n_ids);
        if (b->n_ids) ck_assert_mem_eq(a->ids, b->ids, (size_t)b->n_ids * sizeof *b->ids);
        ck_assert(a->full == b->full && a->n_best == b->n_best);
        ck_assert_mem_eq(&a->at, &b->at, sizeof b->at);
    }
}

/* The step arrives whole. */
static void expect_fits(void)
{
    struct error err;
    struct buffer buf = {0};
    struct arena arena;
    struct step got;
    step_fit(&step, rows, n_rows);
    CHECK_OK(arena_open(&arena, DECODED_BYTES, &err));
    CHECK_OK(step_encode(&buf, &step, &err));
    CHECK_OK(step_decode(buf.data, buf.len, &arena, &got, &err));
    ck_assert_int_eq(got.n_lanes, step.n_lanes);
    for (int i = 0; i < step.n_lanes; i++) {
        ck_assert_int_eq(got.lanes[i].n_rows, step.lanes[i].n_rows);
        expect_same(got.lanes[i].rows, step.lanes[i].rows, step.lanes[i].n_rows);
    }
    ck_assert_int_eq(got.n_more, step.n_more);
    for (int i = 0; i < step.n_more; i++) {
        ck_assert_int_eq(got.more[i].lane, step.more[i].lane);
        ck_assert_int_eq(got.more[i].n_rows, step.more[i].n_rows);
        expect_same(got.more[i].rows, step.more[i].rows, step.more[i].n_rows);
    }
    arena_close(&arena);
    buffer_free(&buf);
}

START_TEST(the_widest_rows_of_the_default_number_stay_as_they_are)
{
    make_step(16, ROW_IDS_MAX, LONG_ID);
    expect_fits();
    ck_assert_int_eq(count_full(), 0);
}
END_TEST

START_TEST(rows_at_the_end_are_asked_for_as_a_whole_where_the_message_is_full)
{
    static const int32_t some[] = {LONG_ID, SHORT_ID};
    for (int i = 0; i < 2; i++) {
        struct error err;
        struct buffer buf = {0};
        make_step(LANES_MOST, 8192, some[i]);
        if (some[i] == LONG_ID) {
            CHECK_ERR(step_encode(&buf, &step, &err), ERR_ARGUMENT, "can be sent");
        }
        buffer_free(&buf);
        expect_fits();
        int n_full = count_full();
        ck_assert(n_full > 0 && n_full < n_rows * 3 / 4);
        for (int r = 0; r < n_rows; r++) {
            ck_assert(rows[r].wish.full == (r >= n_rows - n_full));
            ck_assert_int_eq(rows[r].wish.n_ids, rows[r].wish.full ? 0 : 8192);
        }
    }
}
END_TEST

/* A scored token's own wish is not merged as a row, so it must not change. */
START_TEST(rows_with_few_ids_stay_between_wide_ones)
{
    make_step(LANES_MOST, ROW_IDS_MAX, LONG_ID);
    for (int i = 0; i < n_rows; i += 2) {
        rows[i].wish.n_ids = 1;
    }
    expect_fits();
    for (int i = 0; i < n_rows; i += 2) {
        ck_assert(rows[i].wish.n_ids == 1 && !rows[i].wish.full);
    }
    ck_assert_int_gt(count_full(), 0);
}
END_TEST

/* Further questions of the step before. */
START_TEST(further_questions_fit_as_well)
{
    static struct step_more more[LANES_MOST];
    make_step(LANES_MOST, 8192, LONG_ID);
    for (int i = 0; i < LANES_MOST; i++) {
        more[i] = (struct step_more){i, LANE_ROWS, &rows[i * LANE_ROWS]};
    }
    step = (struct step){.id = 2, .n_more = LANES_MOST, .more = more};
    expect_fits();
    int n_full = count_full();
    ck_assert(n_full > 0 && n_full < n_rows * 3 / 4);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("step_fit");
    TCase *tcase = tcase_create("wide rows");
    tcase_add_test(tcase, the_widest_rows_of_the_default_number_stay_as_they_are);
    tcase_add_test(tcase, rows_at_the_end_are_asked_for_as_a_whole_where_the_message_is_full);
    tcase_add_test(tcase, rows_with_few_ids_stay_between_wide_ones);
    tcase_add_test(tcase, further_questions_fit_as_well);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
