/* ctest: labels=quick,bits libs=model timeout=300 */
/* Heads against the code of their formats (tests/oracle/head_golden.py), and the one arithmetic of
 * a head: a row has the same bits in every chunk, beside other lanes, with any number of threads,
 * and after rows that were taken back. */
#include <dirent.h>
#include <math.h>

#include "model/backend/cpu/kernels/kernels.h"
#include "model/numerics/numerics.h"
#include "tests/support/head_rig.h"

enum { N_HEADS = 9, COLUMNS_MAX = 512, DIM_MAX = 128 };

static const int32_t blocks[HEAD_RIG_BLOCKS / 2] = {3, 9, 0, 12, 5, 1, 8, 2};
static const int32_t other_blocks[HEAD_RIG_BLOCKS / 2] = {4, 6, 7, 10, 11, 13, 14, 15};

static const char *const heads[N_HEADS] = {
    "eagle1",       "eagle3_flat",   "eagle3_layers", "eagle3_output", "eagle3_parallel",
    "eagle3_qwen3", "eagle3_single", "eagle3_whole",  "mimo",
};

static double square_error(const float *got, const float *want, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        sum += d * d;
    }
    return sum;
}

/* P-EAGLE: the further rows have the mask's token and features, all in one step. */
static void parallel_logits(struct head_rig *rig, int start, float *logits)
{
    struct error err;
    int n = rig->n_steps - 1;
    int32_t tokens[HEAD_ROWS_MAX];
    struct forward_row rows[HEAD_ROWS_MAX];
    uint16_t output[DIM_MAX], *features;
    size_t width = (size_t)rig->width;
    ck_assert_ptr_nonnull(checkpoint_head_mask(rig->ck));
    features = calloc((size_t)n * width, sizeof *features);
    for (int i = 0; i < n; i++) {
        tokens[i] = rig->head->mask_token_id;
        rows[i] = (struct forward_row){0, i};
        memcpy(features + (size_t)i * width, checkpoint_head_mask(rig->ck), width * 2);
    }
    head_rig_feed(rig, blocks, 0, start + 1, HEAD_ROWS_MAX, logits, output);
    const struct forward_lane lane = {
        .position = start + 1, .n_tokens = n, .tokens = tokens, .blocks = blocks};
    const struct forward_features given = {.target = features, .n_target = n};
    CHECK_OK(model_forward_head(rig->model, &lane, &given, 1, rows, n, &err));
    for (int i = 0; i < n; i++) {
        head_rig_take(rig, i, i, logits + (size_t)(i + 1) * (size_t)rig->n_columns, output);
    }
    free(features);
}

/* The logits of all steps of a start. */
static void chain_logits(struct head_rig *rig, int start, float *logits)
{
    uint16_t output[DIM_MAX];
    if (rig->is_parallel) {
        parallel_logits(rig, start, logits);
        return;
    }
    head_rig_feed(rig, blocks, 0, start + 1, HEAD_ROWS_MAX, logits, output);
    for (int step = 1; step < rig->n_steps; step++) {
        head_rig_step(rig, blocks, start + step, rig->tokens[start + step],
                      logits + (size_t)step * (size_t)rig->n_columns, output);
    }
}

START_TEST(logits_are_those_of_the_formats_own_code)
{
    struct head_rig rig;
    double sum = 0;
    head_rig_open(&rig, heads[_i], 1);
    size_t n = (size_t)rig.n_steps * (size_t)rig.n_columns;
    float *got = calloc(n, sizeof *got), *want = malloc(rig.logits.size_bytes);
    memcpy(want, rig.logits.data, rig.logits.size_bytes);
    for (int s = 0; s < rig.n_starts; s++) {
        chain_logits(&rig, rig.starts[s], got);
        sum += square_error(got, want + (size_t)s * n, (int)n);
    }
    double rms = sqrt(sum / ((double)rig.n_starts * (double)n));
    printf("%-16s rms error %.5f, its own code in bf16 %.5f\n", heads[_i], rms, rig.tolerance_rms);
    ck_assert_msg(rms <= rig.tolerance_rms, "%s: rms error %g exceeds %g", heads[_i], rms,
                  rig.tolerance_rms);
    free(got);
    free(want);
    head_rig_close(&rig);
}
END_TEST

/* MiMo is a Qwen2 whose tensors have an MTP layer beside them. */
START_TEST(the_model_of_an_mtp_layer_has_the_logits_of_transformers)
{
    struct error err;
    struct checkpoint *ck;
    struct backend *backend;
    struct model *model;
    struct file_view file;
    struct head_rig rig;
    float want[COLUMNS_MAX];
    const char *device = getenv("OUTRIDER_TEST_DEVICE");
    const struct backend_options how = {
        .device = device ? device : "cpu", .weights = "bf16", .kernels = "auto", .n_threads = 1};
    const struct model_options options = {
        .n_kv_blocks = HEAD_RIG_BLOCKS, .max_tokens = HEAD_ROWS_MAX, .max_rows = 1, .max_lanes = 1};
    head_rig_open(&rig, "mimo", 1);
    CHECK_OK(file_map(&file, HEADS_FOLDER "/mimo/model_logits.f32", &err));
    ck_assert_uint_eq(file.size_bytes, (size_t)rig.n_columns * sizeof *want);
    memcpy(want, file.data, file.size_bytes);
    json_t *root = head_rig_json(HEADS_FOLDER "/mimo/golden.json");
    double most = json_number_value(json_object_get(root, "model_tolerance_rms"));
    json_decref(root);
    CHECK_OK(checkpoint_open(&ck, HEADS_FOLDER "/mimo", &err));
    CHECK_OK(backend_open(&backend, &how, &err));
    CHECK_OK(model_open(&model, ck, comm_single(), backend, &options, &err));
    const struct forward_lane lane = {
        .n_tokens = rig.n_tokens, .tokens = rig.tokens, .blocks = blocks};
    const struct forward_row row = {0, rig.n_tokens - 1};
    CHECK_OK(model_forward(model, &lane, 1, &row, 1, &err));
    double rms = sqrt(square_error(model_logits(model, 0), want, rig.n_columns) / rig.n_columns);
    ck_assert_msg(rms > 0 && rms <= most, "rms error %g exceeds %g", rms, most);
    model_close(model);
    backend->ops->close(backend);
    checkpoint_close(ck);
    file_unmap(&file);
    head_rig_close(&rig);
}
END_TEST

START_TEST(every_golden_head_is_in_the_list)
{
    struct dirent *entry;
    int n = 0;
    DIR *folder = opendir(HEADS_FOLDER);
    ck_assert_ptr_nonnull(folder);
    while ((entry = readdir(folder))) {
        n += entry->d_name[0] != '.';
    }
    closedir(folder);
    ck_assert_int_eq(n, N_HEADS);
}
END_TEST

START_TEST(bits_do_not_depend_on_chunks_threads_and_kernels)
{
    enum { END = 20 };
    struct error err;
    static const int chunks[] = {1, 3, 7, 16};
    struct head_rig rig;
    float want[COLUMNS_MAX], got[COLUMNS_MAX];
    uint16_t output[DIM_MAX], first[DIM_MAX];
    head_rig_open(&rig, heads[_i], 1);
    size_t bytes = (size_t)rig.n_columns * sizeof *want;
    head_rig_feed(&rig, blocks, 0, END, HEAD_ROWS_MAX, want, first);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        head_rig_feed(&rig, i % 2 ? blocks : other_blocks, 0, END, chunks[i], got, output);
        ck_assert_msg(!memcmp(got, want, bytes), "%s: chunks of %d", heads[_i], chunks[i]);
        ck_assert_mem_eq(output, first, (size_t)rig.dim * sizeof *first);
    }
    for (int i = 0; kernels_name(i); i++) {
        const struct kernels *kernels;
        if (kernels_find(&kernels, kernels_name(i), &err)) continue;
        model_close(rig.model);
        rig.backend->ops->close(rig.backend);
        head_rig_open_model(&rig, kernels->name, i % 2 ? 1 : 3);
        head_rig_feed(&rig, blocks, 0, END, 5, got, output);
        ck_assert_msg(!memcmp(got, want, bytes), "%s: kernels %s", heads[_i], kernels->name);
    }
    head_rig_close(&rig);
}
END_TEST

/* One lane reads the target's features and the other one its own output, in one step. */
START_TEST(lanes_of_both_kinds_share_a_step_with_the_bits_of_their_own)
{
    enum { START = 9, FED = 6 };
    struct head_rig rig;
    struct error err;
    float alone[COLUMNS_MAX], recycled[COLUMNS_MAX];
    uint16_t output[DIM_MAX], before[DIM_MAX], own[DIM_MAX], ignored[DIM_MAX];
    head_rig_open(&rig, heads[_i], 2);
    size_t bytes = (size_t)rig.n_columns * sizeof *alone;
    head_rig_feed(&rig, other_blocks, 0, FED, HEAD_ROWS_MAX, alone, ignored);
    head_rig_feed(&rig, blocks, 0, START, HEAD_ROWS_MAX, NULL, output);
    memcpy(before, output, sizeof before);
    head_rig_step(&rig, blocks, START, rig.tokens[START], recycled, output);
    memcpy(own, output, sizeof own);

    const struct forward_lane lanes[] = {
        {.position = START, .n_tokens = 1, .tokens = rig.tokens + START, .blocks = blocks},
        {.position = 0, .n_tokens = FED, .tokens = rig.tokens, .blocks = other_blocks}};
    const struct forward_features features[] = {{.recycled = before},
                                                {head_rig_features(&rig, 0), FED, NULL}};
    const struct forward_row rows[] = {{0, 0}, {1, FED - 1}};
    CHECK_OK(model_forward_head(rig.model, lanes, features, 2, rows, 2, &err));
    ck_assert_mem_eq(model_logits(rig.model, 0), recycled, bytes);
    ck_assert_mem_eq(model_logits(rig.model, 1), alone, bytes);
    ck_assert_mem_eq(model_features(rig.model, 0, 0, 1), own, (size_t)rig.dim * sizeof *own);
    head_rig_close(&rig);
}
END_TEST

/* A round feeds the committed rows with the target's features over those that the guesses wrote
 * with outputs of the head. Whatever number of guesses was accepted before, the bits are those of a
 * text that was read in one go. */
START_TEST(rows_that_are_taken_back_leave_no_trace)
{
    static const int accepted[] = {0, 3, 1, 0, 2, 3, 0, 1};
    enum { GUESSES = 3, N_ROUNDS = sizeof accepted / sizeof *accepted };
    struct head_rig rig;
    float got[COLUMNS_MAX], want[COLUMNS_MAX];
    uint16_t output[DIM_MAX], fresh[DIM_MAX];
    int fed = 0;
    head_rig_open(&rig, heads[_i], 1);
    size_t bytes = (size_t)rig.n_columns * sizeof *got;
    for (int round = 0; round < N_ROUNDS && fed + GUESSES + 1 < rig.n_tokens; round++) {
        int end = fed + 1 + accepted[round];
        head_rig_feed(&rig, blocks, fed, end, HEAD_ROWS_MAX, got, output);
        head_rig_feed(&rig, other_blocks, 0, end, 4, want, fresh);
        ck_assert_msg(!memcmp(got, want, bytes), "%s, round %d", heads[_i], round);
        ck_assert_mem_eq(output, fresh, (size_t)rig.dim * sizeof *fresh);
        for (int guess = 0; guess < GUESSES; guess++) {
            int32_t token = (int32_t)(11 * round + 31 * guess) % 300;
            head_rig_step(&rig, blocks, end + guess, token, got, output);
        }
        fed = end;
    }
    ck_assert_int_ge(fed, 16);
    head_rig_close(&rig);
}
END_TEST

/* A part of rows that lie apart is normed as rows of their own are. */
START_TEST(a_norm_of_a_part_of_the_columns_has_the_bits_of_one_of_all)
{
    enum { ROWS = 3, APART = 32, DIM_MOST = 8640 };
    static const int dims[] = {16, 576, 2064, DIM_MOST};
    struct error err;
    struct backend *be;
    float *x, *alone, *weight;
    uint16_t *h, *h_alone;
    const char *device = getenv("OUTRIDER_TEST_DEVICE");
    const struct backend_options how = {
        .device = device ? device : "cpu", .weights = "bf16", .kernels = "auto", .n_threads = 2};
    size_t dim = (size_t)dims[_i], stride = dim + APART, n = ROWS * stride;
    float *host = calloc(n, sizeof *host), *rows = calloc(ROWS * dim, sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        host[i] = (float)((int)(i * 2654435761u >> 8 & 0xffff) - 0x8000) / 3000.0f;
    }
    for (size_t row = 0; row < ROWS; row++) {
        memcpy(rows + row * dim, host + row * stride, dim * sizeof *rows);
    }
    CHECK_OK(backend_open(&be, &how, &err));
    size_t capacity = (size_t)be->ops->capacity(be, ROWS);
    size_t bytes = capacity * stride * sizeof *x, alone_bytes = capacity * dim * sizeof *x;
    CHECK_OK(backend_buffer(be, &x, bytes, &err));
    CHECK_OK(backend_buffer(be, &h, bytes, &err));
    CHECK_OK(backend_buffer(be, &alone, alone_bytes, &err));
    CHECK_OK(backend_buffer(be, &h_alone, alone_bytes, &err));
    CHECK_OK(backend_buffer(be, &weight, dim * sizeof *weight, &err));
    be->ops->upload(be, x, host, n * sizeof *x);
    be->ops->upload(be, alone, rows, ROWS * dim * sizeof *x);
    be->ops->upload(be, weight, host + 7, dim * sizeof *weight);
    const struct norm_part part = {.x = x,
                                   .x_stride = stride,
                                   .weight = weight,
                                   .eps = 1e-5f,
                                   .n = ROWS,
                                   .dim = (int)dim,
                                   .h = h,
                                   .h_stride = stride,
                                   .keeps = true};
    be->ops->norm_part(be, &part);
    be->ops->rmsnorm(be, alone, weight, 1e-5f, ROWS, (int)dim, h_alone);
    for (size_t row = 0; row < ROWS; row++) {
        const void *at = h + row * stride, *at_alone = h_alone + row * dim;
        memcpy(rows, be->ops->read(be, at, dim / 2), dim * sizeof *h);
        ck_assert_mem_eq(be->ops->read(be, at_alone, dim / 2), rows, dim * sizeof *h);
        const uint16_t *bits = (const void *)rows;
        const float *kept = be->ops->read(be, x + row * stride, stride);
        for (size_t i = 0; i < dim; i++) {
            ck_assert(kept[i] == num_bf16_to_float(bits[i]));
        }
        ck_assert_mem_eq(kept + dim, host + row * stride + dim, APART * sizeof *kept);
    }
    be->ops->buffer_close(be, x, bytes);
    be->ops->buffer_close(be, h, bytes);
    be->ops->buffer_close(be, alone, alone_bytes);
    be->ops->buffer_close(be, h_alone, alone_bytes);
    be->ops->buffer_close(be, weight, dim * sizeof *weight);
    be->ops->close(be);
    free(host);
    free(rows);
}
END_TEST

/* The ids of the best columns are the target's. */
START_TEST(best_ids_are_those_of_the_reduced_vocabulary)
{
    enum { BEST = 5, ARENA_BYTES = 1 << 16 };
    struct head_rig rig;
    struct error err;
    struct arena arena;
    struct select_item items[BEST];
    float logits[COLUMNS_MAX];
    uint16_t output[DIM_MAX];
    int n = 0;
    head_rig_open(&rig, heads[_i], 1);
    CHECK_OK(arena_open(&arena, ARENA_BYTES, &err));
    head_rig_feed(&rig, blocks, 0, 8, HEAD_ROWS_MAX, logits, output);
    CHECK_OK(model_best(rig.model, 0, BEST, &arena, items, &n, &err));
    ck_assert_int_eq(n, BEST);
    int best = 0;
    for (int i = 1; i < rig.n_columns; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    const int32_t *ids = checkpoint_head_ids(rig.ck);
    ck_assert_int_eq(items[0].id, ids ? ids[best] : best);
    arena_close(&arena);
    head_rig_close(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("heads");
    TCase *tcase = tcase_create("golden heads");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, logits_are_those_of_the_formats_own_code, 0, N_HEADS);
    tcase_add_test(tcase, the_model_of_an_mtp_layer_has_the_logits_of_transformers);
    tcase_add_test(tcase, every_golden_head_is_in_the_list);
    tcase_add_loop_test(tcase, bits_do_not_depend_on_chunks_threads_and_kernels, 0, N_HEADS);
    tcase_add_loop_test(tcase, lanes_of_both_kinds_share_a_step_with_the_bits_of_their_own, 0,
                        N_HEADS);
    tcase_add_loop_test(tcase, rows_that_are_taken_back_leave_no_trace, 0, N_HEADS);
    tcase_add_loop_test(tcase, a_norm_of_a_part_of_the_columns_has_the_bits_of_one_of_all, 0, 4);
    tcase_add_loop_test(tcase, best_ids_are_those_of_the_reduced_vocabulary, 0, N_HEADS);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
