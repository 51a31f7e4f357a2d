/* ctest: labels=quick,threads libs=verifier timeout=120 */
/* The features of a step's rows: rank 0 sends those that lanes want, with the same bits for every
 * number of ranks, in chunks, after a reused beginning and in a tree; a wish that makes no sense is
 * refused by lane, and rows are not concerned. */
#include "tests/support/verifier_group.h"
#include "worker/step_features.h"

enum { N_TEXT = 40, DIM_MAX = 512, COLUMNS = 4, GUESSES = 7 };

static const struct feature_wish wish = {.n = 3, .boundaries = {0, 2, 4}, .normed = true};
static int32_t text[N_TEXT];

static int dim_of(const struct group *group)
{
    return checkpoint_config(group->ck)->dim;
}

static void open_group(struct group *group, int n_ranks)
{
    group_open(group, n_ranks);
    ck_assert_int_ge(checkpoint_config(group->ck)->n_layers, 4);
    for (int i = 0; i < N_TEXT; i++) {
        text[i] = (37 * i + 11) % VOCAB;
    }
}

/* A lane of the text in the block table `blocks`, whose features from `first` on are wanted. */
static struct step_lane lane_of(int slot, int position, int n, const int32_t *blocks, int first,
                                int n_features)
{
    return (struct step_lane){.slot = slot,
                              .position = position,
                              .n_tokens = n,
                              .tokens = text + position,
                              .n_blocks = (position + n + 15) / 16,
                              .blocks = blocks,
                              .feature_first = first,
                              .n_features = n_features};
}

static void run(struct group *group, const struct feature_wish *features,
                const struct step_lane *lanes, int n_lanes)
{
    static struct slice_row slices[STEP_ROWS * SLICES_MAX];
    char refusal[ERROR_TEXT_BYTES] = "";
    int refused_lane;
    struct step step = {.n_lanes = n_lanes, .lanes = lanes, .features = *features};
    ck_assert_msg(group_step(group, &step, slices, refusal, &refused_lane) >= 0, "%s", refusal);
}

/* Copies what lane number i of those with features sent to rows `at` and on of out. */
static void copy(const struct group *group, int i, int n, int at, uint16_t *out)
{
    size_t row = (size_t)dim_of(group) * COLUMNS;
    ck_assert_int_lt(i, group->n_features);
    ck_assert_int_eq(group->features[i].n, n * (int)row);
    memcpy(out + (size_t)at * row, group->features[i].data, (size_t)n * row * sizeof *out);
}

static uint16_t *new_rows(const struct group *group)
{
    uint16_t *rows = calloc((size_t)N_TEXT * COLUMNS * (size_t)dim_of(group), sizeof *rows);
    ck_assert_ptr_nonnull(rows);
    return rows;
}

static void expect_rows(const struct group *group, const uint16_t *want, int want_at,
                        const uint16_t *got, int got_at, int n, const char *what)
{
    size_t row = (size_t)dim_of(group) * COLUMNS;
    for (int i = 0; i < n; i++) {
        ck_assert_msg(memcmp(want + (size_t)(want_at + i) * row, got + (size_t)(got_at + i) * row,
                             row * sizeof *got) == 0,
                      "%s: row %d", what, got_at + i);
    }
}

static const int32_t table[] = {5, 3, 7}, other_table[] = {5, 3, 9}, third_table[] = {1, 2, 4};

/* The whole text at once on one rank. */
static uint16_t *reference(void)
{
    struct group group;
    open_group(&group, 1);
    const struct step_lane lane = lane_of(0, 0, N_TEXT, table, 0, N_TEXT);
    uint16_t *rows = new_rows(&group);
    run(&group, &wish, &lane, 1);
    copy(&group, 0, N_TEXT, 0, rows);
    size_t width = (size_t)dim_of(&group);
    for (int c = 1; c < COLUMNS; c++) {
        ck_assert_mem_ne(rows, rows + (size_t)c * width, width * sizeof *rows);
    }
    group_close(&group);
    return rows;
}

/* In chunks, on several ranks, and then from another slot that reuses two blocks. */
START_TEST(features_do_not_depend_on_ranks_chunks_and_reuse)
{
    struct group group;
    uint16_t *want = reference();
    open_group(&group, 1 << _i);
    uint16_t *got = new_rows(&group), *reused = new_rows(&group);
    for (int at = 0, n = 1 + _i; at < N_TEXT; at += n, n = 2 * n + 1) {
        if (n > N_TEXT - at) n = N_TEXT - at;
        const struct step_lane lane = lane_of(0, at, n, table, 0, n);
        run(&group, &wish, &lane, 1);
        copy(&group, 0, n, at, got);
    }
    expect_rows(&group, want, 0, got, 0, N_TEXT, "in chunks");
    const struct step_lane lane = lane_of(1, 32, N_TEXT - 32, other_table, 2, N_TEXT - 34);
    run(&group, &wish, &lane, 1);
    copy(&group, 0, N_TEXT - 34, 34, reused);
    expect_rows(&group, want, 34, reused, 34, N_TEXT - 34, "after a reused beginning");
    group_close(&group);
    free(want);
    free(got);
    free(reused);
}
END_TEST

/* Three lanes, of which the one in the middle wants none. */
START_TEST(lanes_have_their_own_rows)
{
    struct group group;
    uint16_t *want = reference();
    open_group(&group, 2);
    uint16_t *got = new_rows(&group);
    const int32_t last_table[] = {10, 11, 12};
    const struct step_lane lanes[] = {lane_of(2, 0, 20, table, 19, 1),
                                      lane_of(0, 0, 5, third_table, 0, 0),
                                      lane_of(1, 0, 30, last_table, 3, 20)};
    run(&group, &wish, lanes, 3);
    ck_assert_int_eq(group.n_features, 2);
    copy(&group, 0, 1, 0, got);
    copy(&group, 1, 20, 3, got);
    expect_rows(&group, want, 19, got, 0, 1, "the first lane");
    expect_rows(&group, want, 3, got, 3, 20, "the third lane");
    const struct feature_wish nothing = {0};
    const struct step_lane plain = lane_of(3, 0, 5, third_table, 0, 0);
    run(&group, &nothing, &plain, 1);
    ck_assert_int_eq(group.n_features, 0);
    group_close(&group);
    free(want);
    free(got);
}
END_TEST

/* Path 0 is guesses 0 1 2 3 4, path 1 is 0 1 5, path 2 is 6. */
START_TEST(each_node_of_a_tree_has_its_own_features)
{
    static const int32_t parents[GUESSES] = {-1, 0, 1, 2, 3, 1, -1};
    static const int32_t guesses[GUESSES] = {15, 273, 360, 342, 2240, 262, 515};
    static const int paths[3][6] = {{0, 1, 2, 3, 4, -1}, {0, 1, 5, -1}, {6, -1}};
    static const int32_t tails[] = {8, 9};
    enum { COMMITTED = 13 };
    struct group group;
    open_group(&group, 1 << _i);
    uint16_t *in_tree = new_rows(&group), *chain = new_rows(&group);
    memcpy(text + COMMITTED, guesses, sizeof guesses);
    struct step_lane lane = lane_of(0, 0, COMMITTED - 1, table, 0, 0);
    run(&group, &wish, &lane, 1);
    lane = lane_of(0, COMMITTED - 1, 1 + GUESSES, table, 0, 1 + GUESSES);
    lane.n_draft = GUESSES;
    lane.parents = parents;
    lane.n_tails = 2;
    lane.tails = tails;
    run(&group, &wish, &lane, 1);
    copy(&group, 0, 1 + GUESSES, 0, in_tree);
    for (int path = 0; path < 3; path++) {
        int n = 0;
        for (; paths[path][n] >= 0; n++) {
            text[COMMITTED + n] = guesses[paths[path][n]];
        }
        lane = lane_of(1, 0, COMMITTED + n, third_table, COMMITTED - 1, 1 + n);
        run(&group, &wish, &lane, 1);
        copy(&group, 0, 1 + n, 0, chain);
        expect_rows(&group, chain, 0, in_tree, 0, 1, "the last committed token");
        for (int i = 0; i < n; i++) {
            expect_rows(&group, chain, 1 + i, in_tree, 1 + paths[path][i], 1, "a guess");
        }
    }
    group_close(&group);
    free(in_tree);
    free(chain);
}
END_TEST

/* A lane that wants what there is not is left out, and the others are answered. */
START_TEST(wishes_that_make_no_sense_are_refused_by_lane)
{
    struct group group;
    open_group(&group, 1 << _i);
    int n_layers = checkpoint_config(group.ck)->n_layers;
    const struct feature_wish high = {.n = 1, .boundaries = {n_layers + 1}}, nothing = {0};
    struct step_lane lanes[] = {lane_of(0, 0, 5, table, 0, 0), lane_of(1, 0, 5, third_table, 2, 2)};
    char says[100];
    run(&group, &high, lanes, 2);
    snprintf(says, sizeof says, "features at boundary %d are wanted, but the model has %d layers",
             n_layers + 1, n_layers);
    expect_refused(&group, 1, says);
    ck_assert_int_eq(group.n_features, 0);
    run(&group, &nothing, lanes, 2);
    expect_refused(&group, 1, "features of no boundary are wanted");
    lanes[1].n_features = 4;
    run(&group, &wish, lanes, 2);
    expect_refused(&group, 1, "features of rows 2 to 5 are wanted of 5 tokens");
    lanes[0].n_features = 1;
    run(&group, &wish, lanes, 2);
    expect_refused(&group, 1, "features of rows 2 to 5");
    ck_assert_int_eq(group.n_features, 1); /* the other lane has its own */
    group_close(&group);
}
END_TEST

/* The most rows of a reply, whatever the model's step would take. */
START_TEST(features_longer_than_a_reply_are_refused)
{
    struct error err;
    struct step_features features;
    struct model_config cfg = {.n_layers = 80, .dim = 8192};
    char why[ERROR_TEXT_BYTES] = "";
    const struct feature_wish wide = {.n = 3, .boundaries = {2, 40, 77}, .normed = true};
    const int most = FEATURE_BYTES_MAX / (4 * 2 * 8192);
    struct step_lane lane = {.n_tokens = 1000, .n_features = most - 20};
    CHECK_OK(step_features_open(&features, 2, &err));
    step_features_begin(&features);
    ck_assert(step_features_check(&features, &wide, &lane, &cfg, why));
    step_features_take(&features, &lane, 0);
    lane.n_features = 21;
    ck_assert(!step_features_check(&features, &wide, &lane, &cfg, why));
    ck_assert_msg(strstr(why, "the features of 513 rows of 32768 numbers are longer than the "
                              "33554432 bytes that a reply holds: ask for those of at most 512"),
                  "%s", why);
    lane.n_features = 20;
    ck_assert(step_features_check(&features, &wide, &lane, &cfg, why));
    step_features_close(&features);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("verifier_features");
    TCase *tcase = tcase_create("features");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, features_do_not_depend_on_ranks_chunks_and_reuse, 0, 3);
    tcase_add_test(tcase, lanes_have_their_own_rows);
    tcase_add_loop_test(tcase, each_node_of_a_tree_has_its_own_features, 0, 3);
    tcase_add_loop_test(tcase, wishes_that_make_no_sense_are_refused_by_lane, 0, 3);
    tcase_add_test(tcase, features_longer_than_a_reply_are_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
