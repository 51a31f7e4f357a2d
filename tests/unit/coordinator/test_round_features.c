/* ctest: labels=quick libs=coordinator timeout=60 */
/* Features in a round: which tokens of a step want them, and which rows a draft model and a request
 * for scores are given of what came. The draft model is one that only writes down what it sees. */
#include <limits.h>
#include <string.h>

#include "coordinator/round/round.h"
#include "tests/support/drafter_world.h"

enum { DIM = 16, ROWS_MAX = 40, N_LANES = 3, WIDTH = 24, PROJECTED = 8 };

static const struct feature_wish wish = {.n = 2, .boundaries = {2, 5}};
static const struct feature_wish projected = {
    .projection = {.key = {77, WIDTH}, .n = 2, .boundaries = {2, 5}}};

/* ---- the drafter ---- */

static struct {
    int n_calls, first, n, n_forgotten;
    uint16_t rows[ROWS_MAX * 2 * DIM];
    bool fails;
} seen;

static int observe(struct drafter *drafter, struct sequence *seq,
                   const struct draft_features *features, struct error *err)
{
    (void)seq;
    if (seen.fails) return error_set(err, ERR_EXHAUSTED, "there is no block");
    bool is_projected = drafter->features == &projected;
    ck_assert_int_eq(features->is_projected, is_projected);
    ck_assert_int_eq(features->n_columns, is_projected ? 1 : 2);
    ck_assert_int_eq(features->dim, is_projected ? WIDTH : DIM);
    ck_assert_int_le(features->n, ROWS_MAX);
    seen.n_calls++;
    seen.first = features->first;
    seen.n = features->n;
    memcpy(seen.rows, features->rows,
           (size_t)(features->n * features->n_columns * features->dim) * sizeof *seen.rows);
    return 0;
}

static void forget(struct drafter *drafter, int slot)
{
    (void)drafter, (void)slot;
    seen.n_forgotten++;
}

static const struct model_draft_ops ops = {.forget = forget, .extra = {.observe = observe}};
static const struct drafter_row row = {.name = "noter", .model = &ops};
static struct drafter noter = {.row = &row, .limit = INT_MAX, .features = &wish};

/* ---- a round of three lanes, of which the tests look at the second ---- */

static struct tokenizer *tok;
static struct sequence *seqs[N_LANES];
static struct drafters drafters = {.n_models = 1, .models = {&noter}};
static struct round_tools tools = {.drafters = &drafters};
static struct round r;
static struct lane_features came[N_LANES];
static uint16_t data[N_LANES][ROWS_MAX * (FEATURE_BOUNDARIES_MAX + 1) * DIM];

static void open_round(void)
{
    struct error err;
    const struct sequence_defaults defaults = {.n_draft = K,
                                               .strategy = STRATEGY_FIXED,
                                               .context_limit = CAPACITY,
                                               .vocab_size = 4096,
                                               .n_layers = 8,
                                               .has_draft = true};
    CHECK_OK(tokenizer_open(&tok, DRAFT, &err));
    CHECK_OK(arena_open(&r.arena, 1 << 20, &err));
    r.tools = &tools;
    r.n_lanes = N_LANES;
    for (int i = 0; i < N_LANES; i++) {
        enum job_kind kind = i == 2 ? JOB_SCORE : JOB_GENERATE;
        seqs[i] = first_sequence(new_job(kind, prompt, N_PROMPT), tok, &defaults);
        r.lanes[i] = (struct round_lane){.seq = seqs[i], .step_lane = i};
        r.lanes[i].plan.n_tokens = 1;
        r.step_lanes[i] = (struct step_lane){.n_tokens = 8};
    }
    memset(&seen, 0, sizeof seen);
}

static void close_round(void)
{
    for (int i = 0; i < N_LANES; i++) {
        sequence_close(seqs[i]);
    }
    tokenizer_close(tok);
    arena_close(&r.arena);
}

/* An element of the features: which boundary (-1: normed, PROJECTED: of the projection) of which of
 * the lane's tokens. */
static uint16_t element(int lane, int token, int boundary, int d)
{
    return (uint16_t)(lane * 4000 + token * 100 + (boundary + 1) * 10 + d % 10);
}

/* Everything comes that the step asks for. */
static void answer(void)
{
    const struct feature_wish *step = &r.query.features;
    for (int i = 0; i < N_LANES; i++) {
        uint16_t *out = data[i];
        for (int t = 0; t < r.step_lanes[i].n_features; t++) {
            for (int c = 0; c < feature_wish_columns(step); c++) {
                int boundary = c < step->n ? step->boundaries[c] : -1;
                for (int d = 0; d < DIM; d++) {
                    *out++ = element(i, r.step_lanes[i].feature_first + t, boundary, d);
                }
            }
            for (int d = 0; d < step->projection.key.width; d++) {
                *out++ = element(i, r.step_lanes[i].feature_first + t, PROJECTED, d);
            }
        }
        came[i] = (struct lane_features){(int)(out - data[i]), data[i]};
    }
    r.result = (struct target_result){.features = came, .feature_dim = DIM};
}

/* The drafter has seen tokens `of` of lane 1, from position `first` on. */
static void expect_seen(int first, const int *of, int n)
{
    ck_assert_int_eq(seen.n_calls, 1);
    ck_assert_int_eq(seen.first, first);
    ck_assert_int_eq(seen.n, n);
    for (int i = 0; i < n; i++) {
        for (int d = 0; d < DIM; d++) {
            ck_assert_uint_eq(seen.rows[(2 * i) * DIM + d], element(1, of[i], 2, d));
            ck_assert_uint_eq(seen.rows[(2 * i + 1) * DIM + d], element(1, of[i], 5, d));
        }
    }
    ck_assert(!seqs[1]->lost_draft[0]);
}

static const struct {
    const char *name;
    int n_fed, n_accepted, accepted[4]; /* nodes */
    int n, of[ROWS_MAX];
} cases[] = {
    {"a token without guesses", 1, 0, {0}, 1, {0}},
    {"a chain of which two guesses stay", 1, 2, {0, 1}, 3, {0, 1, 2}},
    {"a path of a tree", 1, 3, {0, 3, 5}, 4, {0, 1, 4, 6}},
    {"a path that begins with a sibling", 1, 2, {2, 4}, 3, {0, 3, 5}},
    {"the end of a prompt with guesses", 4, 1, {1}, 5, {0, 1, 2, 3, 5}},
};
enum { N_CASES = sizeof cases / sizeof *cases };

START_TEST(the_draft_sees_what_is_committed)
{
    struct round_lane *lane = &r.lanes[1];
    open_round();
    lane->plan.n_tokens = cases[_i].n_fed;
    lane->n_accepted = cases[_i].n_accepted;
    memcpy(lane->accepted, cases[_i].accepted, sizeof cases[_i].accepted);
    round_want_features(&r);
    ck_assert(feature_wish_equal(&r.query.features, &wish));
    ck_assert_int_eq(r.step_lanes[1].n_features, 8);
    answer();
    int first = N_PROMPT - cases[_i].n_fed;
    seqs[1]->n_target_kv = N_PROMPT + cases[_i].n_accepted;
    round_show_features(&r, lane, first);
    expect_seen(first, cases[_i].of, cases[_i].n);
    close_round();
}
END_TEST

/* The step has further columns, because a text is scored with other features beside it. */
START_TEST(each_reader_has_its_own_columns)
{
    static const int of[] = {0, 1, 2};
    struct round_lane *lane = &r.lanes[1], *scored = &r.lanes[2];
    struct score_features features;
    struct error err;
    open_round();
    seqs[2]->job->score.features =
        (struct feature_wish){.n = 2, .boundaries = {0, 5}, .normed = true};
    scored->plan.n_tokens = 8;
    scored->plan.first_scored = 3;
    scored->plan.n_scored = 5;
    seqs[2]->n_target_kv = 2;
    round_want_features(&r);
    const struct feature_wish both = {.n = 3, .boundaries = {0, 2, 5}, .normed = true};
    ck_assert(feature_wish_equal(&r.query.features, &both) && r.query.features.boundaries[1] == 2);
    ck_assert(r.step_lanes[2].feature_first == 3 && r.step_lanes[2].n_features == 5);
    answer();
    lane->n_accepted = 2;
    lane->accepted[0] = 0, lane->accepted[1] = 1;
    seqs[1]->n_target_kv = N_PROMPT + 2;
    round_show_features(&r, lane, N_PROMPT - 1);
    expect_seen(N_PROMPT - 1, of, 3);
    CHECK_OK(round_list_features(&r, scored, &features, &err));
    ck_assert(features.first == 5 && features.n == 5 && features.n_columns == 3);
    ck_assert_int_eq(features.dim, DIM);
    static const int columns[] = {0, 5, -1};
    for (int i = 0; i < 5 * 3 * DIM; i++) {
        int token = 3 + i / (3 * DIM), boundary = columns[i / DIM % 3];
        ck_assert_uint_eq(features.rows[i], element(2, token, boundary, i % DIM));
    }
    close_round();
}
END_TEST

/* A draft whose head's fc the workers apply, alone and beside a text that is scored. */
START_TEST(a_projection_is_a_column_of_its_own_width)
{
    struct round_lane *lane = &r.lanes[1], *scored = &r.lanes[2];
    struct score_features features;
    struct error err;
    open_round();
    noter.features = &projected;
    if (_i) seqs[2]->job->score.features = (struct feature_wish){.n = 2, .boundaries = {0, 5}};
    scored->plan.n_tokens = scored->plan.n_scored = _i ? 4 : 0;
    round_want_features(&r);
    ck_assert(feature_wish_holds(&r.query.features, &projected));
    ck_assert_int_eq(feature_wish_columns(&r.query.features), _i ? 2 : 0);
    answer();
    lane->n_accepted = 2;
    lane->accepted[0] = 1, lane->accepted[1] = 3;
    seqs[1]->n_target_kv = N_PROMPT + 2;
    round_show_features(&r, lane, N_PROMPT - 1);
    static const int of[] = {0, 2, 4};
    ck_assert(seen.n_calls == 1 && seen.n == 3 && !seqs[1]->lost_draft[0]);
    for (int i = 0; i < 3 * WIDTH; i++) {
        ck_assert_uint_eq(seen.rows[i], element(1, of[i / WIDTH], PROJECTED, i % WIDTH));
    }
    if (_i) CHECK_OK(round_list_features(&r, scored, &features, &err));
    for (int i = 0; _i && i < 4 * 2 * DIM; i++) {
        int boundary = i / DIM % 2 ? 5 : 0;
        ck_assert_uint_eq(features.rows[i], element(2, i / (2 * DIM), boundary, i % DIM));
    }
    noter.features = &wish;
    close_round();
}
END_TEST

/* After an eviction a text reads tokens again whose scores and features have been sent. */
START_TEST(tokens_that_are_scored_already_want_nothing_again)
{
    struct round_lane *scored = &r.lanes[2];
    open_round();
    noter.features = NULL;
    seqs[2]->job->score.features = wish;
    scored->plan.n_tokens = 8;
    scored->plan.first_scored = 100; /* past this chunk */
    round_want_features(&r);
    ck_assert(r.step_lanes[2].feature_first == 0 && r.step_lanes[2].n_features == 0);
    ck_assert_int_eq(feature_wish_columns(&r.query.features), 0);
    noter.features = &wish;
    close_round();
}
END_TEST

/* Nobody asks for what nobody reads. */
START_TEST(lanes_without_a_draft_want_nothing)
{
    open_round();
    seqs[0]->n_draft = 0;
    seqs[1]->lost_draft[0] = true;
    round_want_features(&r);
    ck_assert_int_eq(feature_wish_columns(&r.query.features), 0);
    for (int i = 0; i < N_LANES; i++) {
        ck_assert_int_eq(r.step_lanes[i].n_features, 0);
    }
    seqs[1]->lost_draft[0] = false;
    r.lanes[1].step_lane = -1; /* its part of the step has failed */
    round_want_features(&r);
    ck_assert_int_eq(feature_wish_columns(&r.query.features), 0);
    r.lanes[1].step_lane = 1;
    noter.features = NULL;
    round_want_features(&r);
    ck_assert_int_eq(feature_wish_columns(&r.query.features), 0);
    noter.features = &wish;
    close_round();
}
END_TEST

/* A text goes on without its draft; a request that has asked for features fails. */
START_TEST(features_that_do_not_come_cost_the_draft_or_the_request)
{
    struct score_features features;
    struct error err;
    open_round();
    seqs[2]->job->score.features = wish;
    r.lanes[2].plan.n_scored = 1;
    round_want_features(&r);
    answer();
    seqs[1]->n_target_kv = N_PROMPT;
    if (_i == 0) {
        seen.fails = true;
    } else {
        came[1] = came[2] = (struct lane_features){0};
        r.result.feature_error = "they are not numbers";
        CHECK_ERR(round_list_features(&r, &r.lanes[2], &features, &err), ERR_INTERNAL,
                  "no features of this request's tokens: they are not numbers");
    }
    round_show_features(&r, &r.lanes[1], N_PROMPT - 1);
    ck_assert(seen.n_calls == 0 && seen.n_forgotten == 1 && seqs[1]->lost_draft[0]);
    ck_assert_str_eq(seqs[1]->speculation_off, "the draft could not read the target's features");
    ck_assert_ptr_null(drafters_features(&drafters, seqs[1]));
    close_round();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("round_features");
    TCase *tcase = tcase_create("features");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, the_draft_sees_what_is_committed, 0, N_CASES);
    tcase_add_test(tcase, each_reader_has_its_own_columns);
    tcase_add_loop_test(tcase, a_projection_is_a_column_of_its_own_width, 0, 2);
    tcase_add_test(tcase, tokens_that_are_scored_already_want_nothing_again);
    tcase_add_test(tcase, lanes_without_a_draft_want_nothing);
    tcase_add_loop_test(tcase, features_that_do_not_come_cost_the_draft_or_the_request, 0, 2);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
