/* ctest: labels=quick,bits libs=model timeout=200 */
/* A target that applies the fc of a head to its features: what the head computes from the projected
 * rows has the bits of what it computes from the features themselves, for every number of ranks,
 * threads, kernels and chunks. It runs on the device that OUTRIDER_TEST_DEVICE names, too. */
#include "model/projection.h"

#include "model/checkpoint/head_readings.h"
#include "model/head_wish.h"
#include "tests/support/head_rig.h"

#include "tests/support/forward_ways.h"

enum { N_FED = 40, D = 64, FEATURES = 3, COLUMNS_MAX = 512 };

static const char target[] = GOLDEN "llama_untied"; /* 3 layers */

/* Features as they are, normed each by itself, and normed all together with a bias after fc. */
static const char *const heads[] = {"eagle3_flat", "eagle3_output", "eagle3_parallel",
                                    "eagle3_qwen3", "eagle3_whole"};
enum { N_HEADS = sizeof heads / sizeof *heads };

static struct checkpoint *head_ck;

/* A head without its target, as a worker has it. */
static void open_head(const char *name)
{
    struct error err;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", HEADS_FOLDER, name);
    CHECK_OK(checkpoint_open_head(&head_ck, path, NULL, &err));
    rig_projection = head_ck;
    make_inputs(300);
}

static void close_head(void)
{
    rig_projection = NULL;
    checkpoint_close(head_ck);
}

/* The features of each token of a text side by side, as a head reads them, and what fc makes of
 * them. */
struct rows {
    uint16_t features[N_FED][FEATURES * D], projected[N_FED][D];
};

/* The columns of the features in the wish's own order come first; `columns` says which are read. */
static void feed(struct rig *rig, const struct feature_wish *wish, const int *columns, int chunk,
                 struct rows *out)
{
    struct error err;
    memset(out, 0, sizeof *out);
    CHECK_OK(model_keep_features(rig->models[0], wish, &err));
    for (int first = 0; first < N_FED; first += chunk) {
        int n = first + chunk < N_FED ? chunk : N_FED - first;
        const struct rig_lane lane = {
            .tokens = tokens, .first = first, .n = n, .blocks = blocks[0]};
        rig_feed(rig, &lane, 1);
        const uint16_t *rows = model_projected(rig->models[0], 0, n);
        ck_assert_ptr_nonnull(rows);
        memcpy(out->projected[first], rows, (size_t)n * sizeof *out->projected);
        for (int c = 0; columns && c < FEATURES; c++) {
            rows = model_features(rig->models[0], columns[c], 0, n);
            ck_assert_ptr_nonnull(rows);
            for (int i = 0; i < n; i++) {
                memcpy(&out->features[first + i][c * D], rows + i * D, D * sizeof *rows);
            }
        }
    }
}

/* The last row's logits of a head that is fed rows, and its output. */
static void run_head(struct head_rig *rig, const uint16_t *rows, int n, bool is_recycled,
                     float *logits, uint16_t *output)
{
    struct error err;
    static const int32_t table[] = {3, 9, 0};
    const struct forward_lane lane = {.n_tokens = n, .tokens = tokens + 1, .blocks = table};
    const struct forward_features features = {rows, is_recycled ? 0 : n, rows};
    const struct forward_row row = {0, n - 1};
    CHECK_OK(model_forward_head(rig->model, &lane, &features, 1, &row, 1, &err));
    head_rig_take(rig, 0, n - 1, logits, output);
}

static void expect_equal_heads(struct head_rig *rig, const struct rows *rows)
{
    float want[COLUMNS_MAX], got[COLUMNS_MAX];
    uint16_t output[D], same[D];
    size_t bytes = (size_t)rig->n_columns * sizeof *want;
    for (int n = 1; n < N_FED; n += 6) {
        run_head(rig, rows->features[0], n, false, want, output);
        run_head(rig, rows->projected[0], n, true, got, same);
        ck_assert_msg(memcmp(got, want, bytes) == 0, "%d rows", n);
        ck_assert_mem_eq(same, output, sizeof same);
        run_head(rig, rows->projected[1], n, true, got, same);
        ck_assert_msg(memcmp(got, want, bytes) != 0, "%d rows of other tokens", n);
    }
}

static struct feature_projection projection_of(const struct rig *rig)
{
    const struct projection_key key = model_projection(rig->models[0]);
    ck_assert(key.digest != 0 && key.width == D);
    return (struct feature_projection){.key = key, .n = FEATURES, .boundaries = {0, 1, 3}};
}

START_TEST(a_head_goes_on_from_projected_rows_with_the_bits_of_its_own_fc)
{
    static const int columns[FEATURES] = {0, 1, 3}, normed_columns[FEATURES] = {0, 2, 4};
    struct rig rig;
    struct head_rig own;
    static struct rows rows;
    open_head(heads[_i]);
    rig_open(&rig, target, 2, "auto", 1);
    head_rig_open(&own, heads[_i], 1);
    struct feature_wish wish = {
        .n = 4, .boundaries = {0, 1, 2, 3}, .normed = true, .projection = projection_of(&rig)};
    feed(&rig, &wish, columns, 9, &rows);
    expect_equal_heads(&own, &rows);
    wish.projection = (struct feature_projection){
        .key = wish.projection.key, .n = 2, .boundaries = {0, 2}, .normed = true};
    feed(&rig, &wish, normed_columns, 9, &rows);
    expect_equal_heads(&own, &rows);
    head_rig_close(&own);
    rig_close(&rig);
    close_head();
}
END_TEST

static const struct way ways[] = {{1, 1, N_FED, "auto"}, {1, 3, 1, "auto"}, {2, 1, 7, "auto"},
                                  {4, 1, 16, "auto"},    {1, 2, 5, "avx2"}, {1, 1, 9, "plain"},
                                  {2, 1, 9, "avx512"},   {1, 2, 13, "neon"}};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* The wish has no other columns, so what fc reads is kept for it alone. */
START_TEST(projected_rows_do_not_depend_on_ranks_chunks_threads_and_kernels)
{
    struct error err;
    struct rig rig;
    static struct rows want, got;
    const struct kernels *kernels;
    open_head(heads[_i]);
    for (int w = 0; w < N_WAYS; w++) {
        if (strcmp(ways[w].kernels, "auto") && kernels_find(&kernels, ways[w].kernels, &err))
            continue;
        rig_open(&rig, target, ways[w].n_ranks, ways[w].kernels, ways[w].n_threads);
        const struct feature_wish wish = {.projection = projection_of(&rig)};
        feed(&rig, &wish, NULL, ways[w].chunk, &got);
        if (w == 0) want = got;
        ck_assert_msg(memcmp(&got, &want, sizeof got) == 0, "T=%d threads=%d chunk=%d",
                      ways[w].n_ranks, ways[w].n_threads, ways[w].chunk);
        rig_close(&rig);
    }
    close_head();
}
END_TEST

/* Wishes with and without a projection take turns in one model, and so do two readings. */
START_TEST(wishes_take_turns)
{
    struct error err;
    struct rig rig;
    static struct rows first, second, again;
    float *plain, *logits;
    open_head(heads[0]);
    rig_open(&rig, target, 1, "auto", 1);
    plain = new_logits(&rig, N_FED);
    logits = new_logits(&rig, N_FED);
    rig_logits(&rig, tokens, N_FED, 8, blocks[0], plain);
    const struct feature_wish wish = {.projection = projection_of(&rig)};
    struct feature_wish reading = wish;
    reading.projection.boundaries[1] = 2;
    for (int turn = 0; turn < 3; turn++) {
        feed(&rig, &wish, NULL, 8, turn ? &again : &first);
        if (turn) ck_assert_mem_eq(&again, &first, sizeof first);
        rig_logits(&rig, tokens, N_FED, 8, blocks[0], logits);
        check_equal(&rig, logits, plain, N_FED, "logits beside projected rows");
        CHECK_OK(model_keep_features(rig.models[0], NULL, &err));
        rig_logits(&rig, tokens, N_FED, 8, blocks[0], logits);
        check_equal(&rig, logits, plain, N_FED, "logits without a wish");
        feed(&rig, &reading, NULL, 8, &second);
        ck_assert_mem_ne(second.projected, first.projected, sizeof first.projected);
    }
    free(plain);
    free(logits);
    rig_close(&rig);
    close_head();
}
END_TEST

static void refused(struct rig *rig, const struct feature_wish *wish, const char *says)
{
    struct error err;
    CHECK_ERR(model_keep_features(rig->models[0], wish, &err), ERR_ARGUMENT, says);
}

START_TEST(projections_that_the_target_does_not_have_are_refused)
{
    struct error err;
    struct rig rig;
    char says[100];
    open_head(heads[0]);
    rig_open(&rig, target, 1, "auto", 1);
    struct feature_wish wish = {.projection = projection_of(&rig)};
    snprintf(says, sizeof says, "this worker's --head is %016llx of width 64",
             (unsigned long long)wish.projection.key.digest);
    wish.projection.key.digest++;
    refused(&rig, &wish, says);
    wish.projection.key.digest--, wish.projection.key.width++;
    refused(&rig, &wish, "to the width 65 are wanted");
    wish.projection.key.width--, wish.projection.normed = true;
    refused(&rig, &wish, "4 features are to be projected");
    wish.projection.normed = false;
    CHECK_OK(model_keep_features(rig.models[0], &wish, &err));
    rig_close(&rig);
    rig_projection = NULL;
    rig_open(&rig, target, 1, "auto", 1);
    ck_assert_uint_eq(model_projection(rig.models[0]).digest, 0);
    refused(&rig, &wish, "this worker has no head: start it with --head");
    rig_close(&rig);
    close_head();
}
END_TEST

static const struct {
    const char *head, *target;
    enum error_code code;
    const char *says;
} misfits[] = {
    {"eagle1", target, ERR_UNSUPPORTED, "has no matrix that features alone go through (fc)"},
    {"eagle3_single", target, ERR_UNSUPPORTED, "leave --head out here"},
    {"mimo", target, ERR_UNSUPPORTED, "has no matrix"},
    {"eagle3_layers", target, ERR_FORMAT, "reads features of width 96, but"},
    {"eagle3_flat", TALES, ERR_FORMAT, "it is a head of another model"},
};

START_TEST(heads_that_leave_a_target_nothing_to_do_are_refused)
{
    struct error err;
    struct checkpoint *ck;
    open_head(misfits[_i].head);
    CHECK_OK(checkpoint_open(&ck, misfits[_i].target, &err));
    CHECK_ERR(projection_check(head_ck, ck, &err), misfits[_i].code, misfits[_i].says);
    checkpoint_close(ck);
    close_head();
}
END_TEST

/* The head with its target has the key of what a worker has read of it alone, and another head has
 * another one, so a wish is for projected rows exactly where these are the head's own. */
START_TEST(a_head_wishes_for_projected_rows_of_its_own_fc_alone)
{
    struct rig rig;
    struct head_rig own, stranger;
    struct feature_wish wish;
    const struct head_reading reading = {.n = FEATURES, .boundaries = {1, 2, 3}};
    open_head(heads[_i]);
    rig_open(&rig, target, 1, "auto", 1);
    head_rig_open(&own, heads[_i], 1);
    head_rig_open(&stranger, heads[(_i + 1) % N_HEADS], 1);
    struct projection_key held = model_projection(rig.models[0]);
    ck_assert(head_wish(&wish, own.model, &reading, &held));
    ck_assert(feature_wish_columns(&wish) == 0 && wish.projection.n == FEATURES);
    ck_assert_int_eq(wish.projection.boundaries[2], 3);
    ck_assert_uint_eq(wish.projection.key.digest, held.digest);
    ck_assert_uint_eq(feature_wish_width(&wish, D), D);
    ck_assert(!head_wish(&wish, stranger.model, &reading, &held));
    ck_assert(feature_wish_columns(&wish) == FEATURES && wish.projection.key.digest == 0);
    ck_assert_uint_eq(feature_wish_width(&wish, D), FEATURES * D);
    held = (struct projection_key){0};
    ck_assert(!head_wish(&wish, own.model, &reading, &held));
    head_rig_close(&own);
    head_rig_close(&stranger);
    rig_close(&rig);
    close_head();
}
END_TEST

START_TEST(a_head_without_fc_wishes_for_features)
{
    struct head_rig own;
    struct feature_wish wish;
    const struct head_reading reading = {.normed = true};
    const struct projection_key held = {0};
    head_rig_open(&own, "eagle1", 1);
    ck_assert_uint_eq(model_projection(own.model).digest, 0);
    ck_assert(!head_wish(&wish, own.model, &reading, &held));
    ck_assert(wish.n == 0 && wish.normed && wish.projection.key.digest == 0);
    head_rig_close(&own);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("projection");
    TCase *tcase = tcase_create("projected features");
    tcase_set_timeout(tcase, 200);
    tcase_add_loop_test(tcase, a_head_goes_on_from_projected_rows_with_the_bits_of_its_own_fc, 0,
                        N_HEADS);
    tcase_add_loop_test(tcase, projected_rows_do_not_depend_on_ranks_chunks_threads_and_kernels, 0,
                        N_HEADS);
    tcase_add_test(tcase, wishes_take_turns);
    tcase_add_test(tcase, projections_that_the_target_does_not_have_are_refused);
    tcase_add_loop_test(tcase, heads_that_leave_a_target_nothing_to_do_are_refused, 0,
                        sizeof misfits / sizeof *misfits);
    tcase_add_loop_test(tcase, a_head_wishes_for_projected_rows_of_its_own_fc_alone, 0, N_HEADS);
    tcase_add_test(tcase, a_head_without_fc_wishes_for_features);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
