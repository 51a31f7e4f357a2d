/* ctest: labels=quick,threads libs=verifier timeout=120 */
/* Features that a worker has projected by the fc of its head: rank 0 sends them as one column of
 * the head's width, with the same bits for every number of ranks, in chunks, after a reused
 * beginning and in a tree, alone and after other columns; a wish for what its head does not do gets
 * a sentence, and rows are not concerned. */
#include "model/checkpoint/head.h"
#include "model/projection.h"
#include "tests/support/verifier_group.h"
#include "worker/step_features.h"

enum { N_TEXT = 40, DIM = 64, WIDTH = 64, IDS = 320 };

static struct checkpoint *head;
static int32_t text[N_TEXT];
static struct feature_wish wish; /* of the projection alone */

/* The key that rank 0 says in its description. */
static struct projection_key key_of_head(void)
{
    struct error err;
    struct checkpoint *ck;
    struct backend *be;
    struct projection projection;
    const struct backend_cpu_options cpu = {"auto", 1, WEIGHTS_BF16};
    CHECK_OK(checkpoint_open(&ck, group_model, &err));
    CHECK_OK(backend_cpu_open(&be, &cpu, &err));
    CHECK_OK(projection_open(&projection, head, ck, STEP_TOKENS, be, &err));
    const struct projection_key key = projection.key;
    projection_close(&projection, be);
    be->ops->close(be);
    checkpoint_close(ck);
    return key;
}

static void setup(void)
{
    struct error err;
    const char *name = SOURCE_DIR "/tests/golden/heads/eagle3_whole";
    group_model = SOURCE_DIR "/tests/golden/models/llama_untied";
    CHECK_OK(checkpoint_open_head(&head, name, NULL, &err));
    group_projection = head;
    wish = (struct feature_wish){
        .projection = {.key = key_of_head(), .n = 3, .boundaries = {0, 1, 3}}};
    ck_assert_int_eq(wish.projection.key.width, WIDTH);
    for (int i = 0; i < N_TEXT; i++) {
        text[i] = (37 * i + 11) % IDS;
    }
}

static void teardown(void)
{
    checkpoint_close(head);
}

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

static int run(struct group *group, const struct feature_wish *features,
               const struct step_lane *lanes, int n_lanes)
{
    static struct slice_row slices[STEP_ROWS * SLICES_MAX];
    char refusal[ERROR_TEXT_BYTES] = "";
    int refused_lane;
    struct step step = {.n_lanes = n_lanes, .lanes = lanes, .features = *features};
    int n_rows = group_step(group, &step, slices, refusal, &refused_lane);
    ck_assert_msg(n_rows >= 0, "%s", refusal);
    return n_rows;
}

/* Copies the projected column of lane number i of those with features, in whose rows it comes after
 * `columns` others. */
static void copy(const struct group *group, int i, int n, int columns, uint16_t (*out)[WIDTH])
{
    size_t row = (size_t)columns * DIM + WIDTH;
    ck_assert_msg(!group->feature_error, "%s", group->feature_error);
    ck_assert_int_lt(i, group->n_features);
    ck_assert_int_eq(group->features[i].n, n * (int)row);
    for (int r = 0; r < n; r++) {
        memcpy(out[r], group->features[i].data + (size_t)r * row + (size_t)columns * DIM,
               sizeof *out);
    }
}

static const int32_t table[] = {5, 3, 7}, other_table[] = {5, 3, 9}, third_table[] = {1, 2, 4};

/* The whole text at once on one rank. */
static void reference(uint16_t (*out)[WIDTH])
{
    struct group group;
    group_open(&group, 1);
    const struct step_lane lane = lane_of(0, 0, N_TEXT, table, 0, N_TEXT);
    run(&group, &wish, &lane, 1);
    copy(&group, 0, N_TEXT, 0, out);
    ck_assert_mem_ne(out[0], out[1], sizeof *out);
    group_close(&group);
}

static uint16_t want[N_TEXT][WIDTH], got[N_TEXT][WIDTH];

START_TEST(projected_rows_do_not_depend_on_ranks_chunks_and_reuse)
{
    struct group group;
    reference(want);
    group_open(&group, 1 << _i);
    for (int at = 0, n = 1 + _i; at < N_TEXT; at += n, n = 2 * n + 1) {
        if (n > N_TEXT - at) n = N_TEXT - at;
        const struct step_lane lane = lane_of(0, at, n, table, 0, n);
        run(&group, &wish, &lane, 1);
        copy(&group, 0, n, 0, got + at);
    }
    ck_assert_mem_eq(got, want, sizeof want);
    const struct step_lane lane = lane_of(1, 32, N_TEXT - 32, other_table, 2, N_TEXT - 34);
    run(&group, &wish, &lane, 1);
    copy(&group, 0, N_TEXT - 34, 0, got + 34);
    ck_assert_mem_eq(got, want, sizeof want);
    group_close(&group);
}
END_TEST

/* After three columns, of which the projection reads one, too; a lane beside them wants nothing. */
START_TEST(projected_rows_come_after_other_columns)
{
    struct group group;
    reference(want);
    group_open(&group, 2);
    const int32_t last_table[] = {10, 11, 12};
    struct feature_wish both = wish;
    both.n = 2, both.boundaries[0] = 1, both.boundaries[1] = 2, both.normed = true;
    const struct step_lane lanes[] = {lane_of(2, 0, 20, table, 19, 1),
                                      lane_of(0, 0, 5, third_table, 0, 0),
                                      lane_of(1, 0, 30, last_table, 3, 20)};
    run(&group, &both, lanes, 3);
    ck_assert_int_eq(group.n_features, 2);
    copy(&group, 0, 1, 3, got);
    ck_assert_mem_eq(got[0], want[19], sizeof *got);
    copy(&group, 1, 20, 3, got);
    ck_assert_mem_eq(got, want + 3, 20 * sizeof *got);
    group_close(&group);
}
END_TEST

/* Path 0 is guesses 0 1 2, path 1 is 0 3. */
START_TEST(each_node_of_a_tree_has_its_own_projected_row)
{
    static const int32_t parents[] = {-1, 0, 1, 0}, guesses[] = {15, 273, 300, 42}, tails[] = {8};
    enum { COMMITTED = 13, GUESSES = 4 };
    struct group group;
    uint16_t chain[2][WIDTH];
    group_open(&group, 1 << _i);
    memcpy(text + COMMITTED, guesses, sizeof guesses);
    struct step_lane lane = lane_of(0, 0, COMMITTED - 1, table, 0, 0);
    run(&group, &wish, &lane, 1);
    lane = lane_of(0, COMMITTED - 1, 1 + GUESSES, table, 0, 1 + GUESSES);
    lane.n_draft = GUESSES;
    lane.parents = parents;
    lane.n_tails = 1;
    lane.tails = tails;
    run(&group, &wish, &lane, 1);
    copy(&group, 0, 1 + GUESSES, 0, got);
    text[COMMITTED + 1] = guesses[3];
    lane = lane_of(1, 0, COMMITTED + 2, third_table, COMMITTED, 2);
    run(&group, &wish, &lane, 1);
    copy(&group, 0, 2, 0, chain);
    ck_assert_mem_eq(got[1], chain[0], sizeof *chain);
    ck_assert_mem_eq(got[4], chain[1], sizeof *chain);
    ck_assert_mem_ne(got[2], chain[1], sizeof *chain);
    group_close(&group);
}
END_TEST

/* Rank 0 alone knows the head, so the lane is not refused, and its rows come. */
START_TEST(projections_that_rank_0_does_not_have_are_answered_with_a_sentence)
{
    struct group group;
    struct step_row row = {.index = 4, .wish = {.n_best = 1}};
    struct step_lane lane = lane_of(0, 0, 5, table, 0, 5);
    struct feature_wish strange = wish;
    if (_i == 1) group_projection = NULL;
    strange.projection.key.digest ^= _i == 0 ? 1 : 0;
    if (_i == 2) strange.projection.normed = true;
    group_open(&group, 2);
    lane.n_rows = 1;
    lane.rows = &row;
    static const char *const says[] = {"but this worker's --head is", "this worker has no head",
                                       "4 features are to be projected"};
    ck_assert_int_eq(run(&group, &strange, &lane, 1), 1);
    ck_assert(group.n_refused == 0 && group.n_features == 0);
    ck_assert_msg(group.feature_error && strstr(group.feature_error, says[_i]), "%s",
                  group.feature_error);
    const struct feature_wish plain = {.n = 1, .boundaries = {1}};
    run(&group, &plain, &lane, 1);
    ck_assert(group.n_features == 1 && !group.feature_error);
    strange.projection = wish.projection;
    strange.projection.boundaries[2] = 4;
    run(&group, &strange, &lane, 1);
    expect_refused(&group, 0, "features at boundary 4 are wanted, but the model has 3 layers");
    group_close(&group);
}
END_TEST

START_TEST(a_reply_has_room_for_more_rows_of_one_width)
{
    struct error err;
    struct step_features features;
    struct model_config cfg = {.n_layers = 80, .dim = 8192};
    char why[ERROR_TEXT_BYTES] = "";
    const struct feature_wish wide = {
        .projection = {.key = {7, 8192}, .n = 3, .boundaries = {2, 40, 77}}};
    struct step_lane lane = {.n_tokens = 3000, .n_features = 2048};
    CHECK_OK(step_features_open(&features, 2, &err));
    step_features_begin(&features);
    ck_assert(step_features_check(&features, &wide, &lane, &cfg, why));
    lane.n_features = 2049;
    ck_assert(!step_features_check(&features, &wide, &lane, &cfg, why));
    ck_assert_msg(strstr(why, "2049 rows of 8192 numbers are longer than the 33554432 bytes"), "%s",
                  why);
    step_features_close(&features);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("verifier_projection");
    TCase *tcase = tcase_create("projected features");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, projected_rows_do_not_depend_on_ranks_chunks_and_reuse, 0, 3);
    tcase_add_test(tcase, projected_rows_come_after_other_columns);
    tcase_add_loop_test(tcase, each_node_of_a_tree_has_its_own_projected_row, 0, 3);
    tcase_add_loop_test(tcase, projections_that_rank_0_does_not_have_are_answered_with_a_sentence,
                        0, 3);
    tcase_add_test(tcase, a_reply_has_room_for_more_rows_of_one_width);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
