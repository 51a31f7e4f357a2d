/* ctest: labels=quick libs=coordinator,verifier timeout=120 */
/* Rows that decide nothing, as those of look-ahead tokens: where a rank has no answer for one, its
 * lane goes on with the others; a row that decides fails its lane. */
#include "speculation/accept/rules.h"
#include "tests/support/lone_rank.h"

enum { TOKENS = 9, STEP_TOKENS = 64, ARENA = 64 << 20, WANTS = 3 };

static int32_t tokens[TOKENS];
static const int32_t blocks[1] = {5};
static struct arena arena;
static int lost; /* the row that has no answer; -1: none */

static void spoil(struct step_reply *reply, struct lane_features *lanes)
{
    static struct row_reply rows[WANTS];
    (void)lanes;
    ck_assert_int_eq(reply->n_rows, WANTS);
    memcpy(rows, reply->rows, sizeof rows);
    reply->rows = rows;
    if (lost >= 0) rows[lost] = (struct row_reply){.error_text = "its logits are not numbers"};
}

static void setup(void)
{
    struct error err;
    lone_open(STEP_TOKENS);
    lone.spoil = spoil;
    CHECK_OK(arena_open(&arena, ARENA, &err));
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (37 * i + 11) % LONE_VOCAB;
    }
}

static void teardown(void)
{
    lone_close();
    arena_close(&arena);
}

/* Asks for the last rows, of which the first decides, and checks what comes with row `_i - 1` lost;
 * 0: none is. */
START_TEST(a_lane_goes_on_without_rows_that_decide_nothing)
{
    static const struct sampling_params greedy = {.top_p = 1};
    struct error err;
    struct lane_want wants[WANTS];
    struct target_question question;
    struct target_result result;
    struct target_cost cost = {0};
    struct step_lane lane = {.n_tokens = TOKENS, .tokens = tokens, .n_blocks = 1, .blocks = blocks};
    lost = _i - 1;
    for (int i = 0; i < WANTS; i++) {
        wants[i] = (struct lane_want){.index = TOKENS - WANTS + i,
                                      .want = {.rule = &accept_rules[RULE_GREEDY],
                                               .params = &greedy,
                                               .wants_logprobs = i > 0,
                                               .n_top = 4 * (i > 0)},
                                      .decides_nothing = i > 0};
    }
    const struct target_query query = {
        .lanes = &lane, .n_lanes = 1, .wants = wants, .n_wants = WANTS};
    CHECK_OK(target_verify_send(lone.target, &query, &arena, &question, &result, &cost, &err));
    CHECK_OK(target_verify_merge(lone.target, &query, &arena, &question, &result, &cost, &err));
    ck_assert((result.lane_errors[0] != NULL) == (lost == 0));
    for (int i = 0; i < WANTS; i++) {
        ck_assert((result.rows[i].failure != NULL) == (i == lost));
        if (i != lost) ck_assert_int_eq(result.rows[i].n_top, 4 * (i > 0));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("target_spare_rows");
    TCase *tcase = tcase_create("target_spare_rows");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_lane_goes_on_without_rows_that_decide_nothing, 0, 1 + WANTS);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
