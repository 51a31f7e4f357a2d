/* ctest: labels=quick libs=coordinator,verifier timeout=120 */
/* Features on their way from a real rank through gRPC to the lanes of a step: they are there beside
 * the rows, also after a further question about these, and a reply whose features are not those
 * that were asked for loses the group. */
#include "speculation/accept/rules.h"
#include "tests/support/lone_rank.h"

enum { TOKENS = 9, STEP_TOKENS = 64, ARENA = 64 << 20 };

static const struct feature_wish wish = {.n = 2, .boundaries = {1, 3}, .normed = true};
static int32_t tokens[TOKENS];
static const int32_t blocks[2][1] = {{5}, {3}};
static struct arena arena;

static enum spoiled { SHORTER, MISSING, EXTRA, NOT_NUMBERS, NO_MEMORY } spoiled;

static void spoil(struct step_reply *reply, struct lane_features *lanes)
{
    static uint16_t nan[1 << 16];
    for (int i = 0; i < reply->n_features; i++) {
        lanes[i] = reply->features[i];
    }
    reply->features = lanes;
    switch (spoiled) {
    case SHORTER:
        lanes[reply->n_features - 1].n--;
        break;
    case MISSING:
        reply->n_features--;
        break;
    case EXTRA:
        lanes[reply->n_features++] = lanes[0];
        break;
    case NOT_NUMBERS:
        memcpy(nan, lanes[0].data, (size_t)lanes[0].n * sizeof *nan);
        nan[lanes[0].n - 1] = 0xff81;
        lanes[0].data = nan;
        break;
    case NO_MEMORY:
        reply->n_features = 0;
        reply->feature_error = "there is no memory for the features";
        break;
    }
}

static void setup(void)
{
    struct error err;
    lone_open(STEP_TOKENS);
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

/* A step of two lanes, which feed the same text into two slots; the first wants the features of its
 * last `n`, the second of all of its tokens. A row of the first is asked for with top-p where
 * `with_row`. */
struct asked {
    struct step_lane lanes[2];
    struct lane_want want;
    struct target_query query;
    struct target_question question;
    struct target_result result;
    struct target_cost cost;
};

static int ask(struct asked *a, int n, bool with_row, struct error *err)
{
    static const struct sampling_params flat = {.temperature = 4.0f, .top_p = 0.9f};
    *a = (struct asked){0};
    for (int i = 0; i < 2; i++) {
        a->lanes[i] = (struct step_lane){
            .slot = i, .n_tokens = TOKENS, .tokens = tokens, .n_blocks = 1, .blocks = blocks[i]};
    }
    if (n > 0) a->lanes[0].feature_first = TOKENS - n;
    a->lanes[0].n_features = n;
    a->lanes[1].n_features = TOKENS;
    a->want = (struct lane_want){.lane = 0,
                                 .index = TOKENS - 1,
                                 .want = {.rule = &accept_rules[RULE_REJECTION],
                                          .params = &flat,
                                          .at = {77, TOKENS, TOKENS}}};
    a->query = (struct target_query){.lanes = a->lanes,
                                     .n_lanes = 2,
                                     .wants = &a->want,
                                     .n_wants = with_row ? 1 : 0,
                                     .features = wish};
    arena_reset(&arena);
    int rc =
        target_verify_send(lone.target, &a->query, &arena, &a->question, &a->result, &a->cost, err);
    if (rc) return rc;
    return target_verify_merge(lone.target, &a->query, &arena, &a->question, &a->result, &a->cost,
                               err);
}

START_TEST(features_come_beside_rows_and_outlive_further_questions)
{
    struct error err;
    struct asked a;
    size_t row = 3 * (size_t)checkpoint_config(lone.ck)->dim;
    CHECK_OK(ask(&a, 4, true, &err));
    ck_assert_uint_gt(a.cost.more_rows, 0); /* the cut of top-p took a second question */
    ck_assert_int_eq(lone.n_steps, 2);
    ck_assert(a.result.rows[0].n > 0 && !a.result.lane_errors[0] && !a.result.feature_error);
    ck_assert_int_eq(a.result.feature_dim, checkpoint_config(lone.ck)->dim);
    const struct lane_features *last = &a.result.features[0], *all = &a.result.features[1];
    ck_assert_int_eq(last->n, 4 * (int)row);
    ck_assert_int_eq(all->n, TOKENS * (int)row);
    ck_assert_mem_eq(last->data, all->data + (TOKENS - 4) * row, 4 * row * sizeof *last->data);
    ck_assert_mem_ne(all->data, all->data + row, row * sizeof *all->data);
    ck_assert_uint_eq(a.cost.feature_bytes, (TOKENS + 4) * row * sizeof *all->data);
    ck_assert_uint_gt(a.cost.bytes_received, a.cost.feature_bytes);
}
END_TEST

START_TEST(a_step_without_a_wish_has_no_features)
{
    struct error err;
    struct asked a;
    a.query = (struct target_query){0};
    CHECK_OK(ask(&a, 0, false, &err));
    ck_assert(a.result.features[0].n == 0 && a.result.features[1].n > 0);
    a.lanes[1].n_features = 0;
    a.query.features = (struct feature_wish){0};
    CHECK_OK(
        target_verify_send(lone.target, &a.query, &arena, &a.question, &a.result, &a.cost, &err));
    CHECK_OK(
        target_verify_merge(lone.target, &a.query, &arena, &a.question, &a.result, &a.cost, &err));
    ck_assert(a.result.features[0].n == 0 && a.result.features[1].n == 0);
}
END_TEST

static const struct {
    enum spoiled spoiled;
    const char *says;
} losses[] = {{SHORTER, "the features of lane 1 are not"},
              {MISSING, "the features of lane 1 are not"},
              {EXTRA, "features of 1 lanes came, which nobody wants"}};

START_TEST(features_that_were_not_asked_for_lose_the_group)
{
    struct error err;
    struct asked a;
    spoiled = losses[_i].spoiled;
    lone.spoil = spoil;
    CHECK_ERR(ask(&a, 2, false, &err), ERR_UNAVAILABLE, losses[_i].says);
    ck_assert(!target_is_connected(lone.target));
    lone.spoil = NULL;
    lone_connect();
    CHECK_OK(ask(&a, 2, false, &err));
    ck_assert_int_gt(a.result.features[1].n, 0);
}
END_TEST

START_TEST(rows_are_not_concerned_where_there_are_no_features)
{
    struct error err;
    struct asked a;
    spoiled = NOT_NUMBERS;
    lone.spoil = spoil;
    CHECK_OK(ask(&a, 2, true, &err));
    ck_assert_str_eq(a.result.feature_error, "they are not numbers");
    ck_assert(a.result.features[0].n == 0 && a.result.features[1].n > 0);
    ck_assert(a.result.rows[0].n > 0 && !a.result.lane_errors[0]);
    spoiled = NO_MEMORY;
    CHECK_OK(ask(&a, 2, true, &err));
    ck_assert_str_eq(a.result.feature_error, "there is no memory for the features");
    ck_assert(a.result.features[0].n == 0 && a.result.features[1].n == 0);
    ck_assert(a.result.rows[0].n > 0 && target_is_connected(lone.target));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("target_features");
    TCase *tcase = tcase_create("features");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, features_come_beside_rows_and_outlive_further_questions);
    tcase_add_test(tcase, a_step_without_a_wish_has_no_features);
    tcase_add_loop_test(tcase, features_that_were_not_asked_for_lose_the_group, 0, 3);
    tcase_add_test(tcase, rows_are_not_concerned_where_there_are_no_features);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
