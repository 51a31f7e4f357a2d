/* ctest: labels=quick,bits libs=model timeout=200 */
/* Features: the residual stream at a boundary is that of a model which ends there, and it has the
 * same bits for every number of ranks, chunk, tree, batch and wish. It runs on the device that
 * OUTRIDER_TEST_DEVICE names, too. */
#include <math.h>

#include "base/system/file.h"
#include "base/text/json.h"
#include "model/features.h"
#include "model/numerics/numerics.h"
#include "tests/support/tree_feed.h"

#define TINY "synthetic:tiny,seed=7,vocab=100,layers=4"

enum { WIDTH_MAX = 512, COLUMNS_MAX = FEATURE_BOUNDARIES_MAX + 1, N_FED = 40 };

/* [position][column][D] */
struct rows {
    size_t dim;
    int n_columns;
    uint16_t *data;
};

static struct rows new_rows(const struct rig *rig, const struct feature_wish *wish, int n)
{
    struct rows rows = {.dim = (size_t)checkpoint_config(rig->ck)->dim,
                        .n_columns = feature_wish_columns(wish)};
    rows.data = calloc((size_t)n * (size_t)rows.n_columns * rows.dim, sizeof *rows.data);
    ck_assert_ptr_nonnull(rows.data);
    ck_assert_uint_le(rows.dim, WIDTH_MAX);
    return rows;
}

static uint16_t *row_at(const struct rows *rows, int position, int column)
{
    size_t row = (size_t)position * (size_t)rows->n_columns + (size_t)column;
    return rows->data + row * rows->dim;
}

static void keep(struct rig *rig, const struct feature_wish *wish)
{
    struct error err;
    for (int r = 0; r < rig->n_ranks; r++) {
        CHECK_OK(model_keep_features(rig->models[r], wish, &err));
    }
}

/* Rows first .. of the last step are those of positions `to` and on; every rank has them. */
static void take(struct rig *rig, int first, int n, int to, const struct rows *out)
{
    for (int c = 0; c < out->n_columns; c++) {
        for (int r = 0; r < rig->n_ranks; r++) {
            const uint16_t *got = model_features(rig->models[r], c, first, n);
            ck_assert_ptr_nonnull(got);
            for (int i = 0; i < n; i++) {
                uint16_t *row = row_at(out, to + i, c);
                if (r == 0) memcpy(row, got + (size_t)i * out->dim, out->dim * sizeof *row);
                ck_assert_mem_eq(row, got + (size_t)i * out->dim, out->dim * sizeof *row);
            }
        }
    }
}

static void feed_chunks(struct rig *rig, const int32_t *text, int n, int chunk,
                        const int32_t *table, const struct rows *out)
{
    for (int first = 0; first < n; first += chunk) {
        int end = first + chunk < n ? first + chunk : n;
        feed_run(rig, text, first, end, table, NULL);
        take(rig, 0, end - first, first, out);
    }
}

static void expect_equal(const struct rows *a, int a_at, const struct rows *b, int b_at,
                         const char *what)
{
    for (int c = 0; c < a->n_columns; c++) {
        ck_assert_msg(memcmp(row_at(a, a_at, c), row_at(b, b_at, c), a->dim * sizeof *a->data) == 0,
                      "%s: position %d, column %d", what, a_at, c);
    }
}

static int n_layers(const struct rig *rig)
{
    return checkpoint_config(rig->ck)->n_layers;
}

/* Every boundary and the normed feature, as many as a wish may have. */
static struct feature_wish all_of(const struct rig *rig)
{
    struct feature_wish wish = {.normed = true};
    for (int b = 0; b <= n_layers(rig) && b < FEATURE_BOUNDARIES_MAX; b++) {
        wish.boundaries[wish.n++] = b;
    }
    return wish;
}

/* All features of the first n tokens, fed at once on one rank. */
static struct rows all_features(const char *model, int n)
{
    struct rig rig;
    rig_open(&rig, model, 1, "auto", 1);
    make_inputs(rig.n_vocab);
    struct feature_wish wish = all_of(&rig);
    struct rows rows = new_rows(&rig, &wish, n);
    keep(&rig, &wish);
    feed_chunks(&rig, tokens, n, n, blocks[0], &rows);
    rig_close(&rig);
    return rows;
}

static double bf16_to(uint16_t x)
{
    return (double)num_bf16_to_float(x);
}

/* The logits of a model that ends at the boundary follow from the feature, and so does the normed
 * one; what is left is the rounding of the feature and of the norm to bf16. */
static void check_logits(struct rig *rig, const struct rows *rows, int column, const float *logits)
{
    struct error err;
    struct weight norm, head;
    const struct model_config *cfg = checkpoint_config(rig->ck);
    int dim = cfg->dim;
    float norm_w[WIDTH_MAX], head_w[WIDTH_MAX];
    const char *name = cfg->tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
    CHECK_OK(checkpoint_find(rig->ck, "model.norm.weight", 1, dim, &norm, &err));
    CHECK_OK(checkpoint_find(rig->ck, name, cfg->vocab_size, dim, &head, &err));
    weight_read_f32(&norm, 0, 0, dim, norm_w);
    for (int i = 0; i < N_FED; i += 7) {
        const uint16_t *row = row_at(rows, i, column);
        double squares = 0, worst = 0, largest = 0;
        for (int d = 0; d < dim; d++) {
            squares += bf16_to(row[d]) * bf16_to(row[d]);
        }
        double factor = 1 / sqrt(squares / dim + (double)cfg->norm_eps);
        for (int id = 0; id < rig->n_vocab; id++) {
            double sum = 0, want = (double)logits[(size_t)i * (size_t)rig->n_vocab + (size_t)id];
            weight_read_f32(&head, id, 0, dim, head_w);
            for (int d = 0; d < dim; d++) {
                sum += bf16_to(row[d]) * factor * (double)norm_w[d] * (double)head_w[d];
            }
            worst = fmax(worst, fabs(sum - want));
            largest = fmax(largest, fabs(want));
        }
        ck_assert_msg(worst < 0.01 * largest, "position %d, column %d: a logit is off by %g of %g",
                      i, column, worst, largest);
    }
}

/* A model of the first b layers has as its last boundary what the whole has as boundary b. */
static void check_cut(const char *model, const struct rows *whole, int boundary, bool has_logits)
{
    char name[200];
    struct rig rig;
    snprintf(name, sizeof name, "%s,layers=0-%d", model, boundary - 1);
    rig_open(&rig, name, 1, "auto", 1);
    ck_assert_int_eq(n_layers(&rig), boundary);
    const struct feature_wish wish = {.n = 1, .boundaries = {boundary}};
    struct rows rows = new_rows(&rig, &wish, N_FED);
    float *logits = new_logits(&rig, N_FED);
    keep(&rig, &wish);
    feed_run(&rig, tokens, 0, N_FED, blocks[1], logits);
    take(&rig, 0, N_FED, 0, &rows);
    for (int i = 0; i < N_FED; i++) {
        ck_assert_msg(memcmp(row_at(whole, i, boundary), row_at(&rows, i, 0),
                             rows.dim * sizeof *rows.data) == 0,
                      "%s: position %d", name, i);
    }
    if (has_logits) check_logits(&rig, &rows, 0, logits);
    rig_close(&rig);
    free(logits);
    free(rows.data);
}

static const char *const models[] = {TALES, GOLDEN "llama_kv_one", GOLDEN "gemma2_softcap",
                                     GOLDEN "olmo2_shared_heads", GOLDEN "granite_factors"};
enum { N_MODELS = sizeof models / sizeof *models, N_LLAMAS = 2 };

START_TEST(a_boundary_is_the_end_of_a_model_that_is_cut_there)
{
    struct rows whole = all_features(models[_i], N_FED);
    for (int b = 1; b < whole.n_columns - 1; b++) {
        check_cut(models[_i], &whole, b, _i < N_LLAMAS);
    }
    free(whole.data);
}
END_TEST

START_TEST(boundary_0_is_the_embedding_and_neighbours_differ)
{
    struct error err;
    struct rig rig;
    struct weight table;
    uint16_t row[WIDTH_MAX];
    struct rows whole = all_features(TALES, N_FED);
    rig_open(&rig, TALES, 1, "auto", 1);
    CHECK_OK(checkpoint_find(rig.ck, "model.embed_tokens.weight", rig.n_vocab, (int)whole.dim,
                             &table, &err));
    for (int i = 0; i < N_FED; i++) {
        weight_read_bf16(&table, tokens[i], 0, (int)whole.dim, row);
        ck_assert_mem_eq(row, row_at(&whole, i, 0), whole.dim * sizeof *row);
        for (int c = 1; c < whole.n_columns; c++) {
            ck_assert_mem_ne(row_at(&whole, i, c - 1), row_at(&whole, i, c),
                             whole.dim * sizeof *row);
        }
    }
    rig_close(&rig);
    free(whole.data);
}
END_TEST

/* The head's product with the normed feature is the row of logits. */
START_TEST(the_normed_feature_is_what_the_head_reads)
{
    struct error err;
    struct rig rig;
    struct weight head;
    const struct feature_wish wish = {.normed = true};
    float head_w[WIDTH_MAX];
    rig_open(&rig, models[0], 2, "auto", 1);
    make_inputs(rig.n_vocab);
    const struct model_config *cfg = checkpoint_config(rig.ck);
    const char *name = cfg->tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
    CHECK_OK(checkpoint_find(rig.ck, name, cfg->vocab_size, cfg->dim, &head, &err));
    struct rows rows = new_rows(&rig, &wish, N_FED);
    float *logits = new_logits(&rig, N_FED);
    keep(&rig, &wish);
    feed_run(&rig, tokens, 0, N_FED, blocks[0], logits);
    take(&rig, 0, N_FED, 0, &rows);
    for (int i = 0; i < N_FED; i += 5) {
        for (int id = 0; id < rig.n_vocab; id += 3) {
            double sum = 0, want = (double)logits[(size_t)i * (size_t)rig.n_vocab + (size_t)id];
            weight_read_f32(&head, id, 0, cfg->dim, head_w);
            for (int d = 0; d < cfg->dim; d++) {
                sum += bf16_to(row_at(&rows, i, 0)[d]) * (double)head_w[d];
            }
            ck_assert_double_lt(fabs(sum - want), 1e-3);
        }
    }
    rig_close(&rig);
    free(logits);
    free(rows.data);
}
END_TEST

static const char *const golden[] = {"llama_kv_one",     "qwen3_norm_bias",    "gemma2_softcap",
                                     "gemma3_two_ropes", "olmo2_shared_heads", "granite_factors",
                                     "phi3_partial"};
enum { N_GOLDEN = sizeof golden / sizeof *golden, N_GOLDEN_TOKENS = 16 };

static void read_prompt(const char *name, int32_t *ids)
{
    struct error err;
    char path[300], *text;
    size_t len;
    json_t *root;
    snprintf(path, sizeof path, GOLDEN "%s/prompt.json", name);
    CHECK_OK(file_read_text(&text, &len, path, 1 << 20, &err));
    CHECK_OK(json_parse_text(&root, text, len, path, &err));
    for (int i = 0; i < N_GOLDEN_TOKENS; i++) {
        ids[i] =
            (int32_t)json_integer_value(json_array_get(json_object_get(root, "prompt"), (size_t)i));
    }
    json_decref(root);
    free(text);
}

/* tests/oracle/features_golden.py. The embedding differs by its rounding to bf16 alone, the others
 * by that of every matmul's inputs before them. */
START_TEST(features_match_transformers)
{
    struct error err;
    struct rig rig;
    struct file_view file;
    char path[300];
    int32_t ids[N_GOLDEN_TOKENS];
    make_inputs(100);
    read_prompt(golden[_i], ids);
    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/features/%s.f32", golden[_i]);
    CHECK_OK(file_map(&file, path, &err));
    snprintf(path, sizeof path, GOLDEN "%s", golden[_i]);
    rig_open(&rig, path, 1, "auto", 1);
    const struct feature_wish wish = all_of(&rig);
    struct rows rows = new_rows(&rig, &wish, N_GOLDEN_TOKENS);
    size_t n = (size_t)N_GOLDEN_TOKENS * (size_t)rows.n_columns * rows.dim;
    ck_assert_uint_eq(file.size_bytes, n * sizeof(float));
    keep(&rig, &wish);
    feed_chunks(&rig, ids, N_GOLDEN_TOKENS, N_GOLDEN_TOKENS, blocks[0], &rows);
    for (int c = 0; c < rows.n_columns; c++) {
        double error = 0, all = 0;
        for (int i = 0; i < N_GOLDEN_TOKENS; i++) {
            float want[WIDTH_MAX];
            size_t at = ((size_t)i * (size_t)rows.n_columns + (size_t)c) * rows.dim;
            memcpy(want, file.data + at * sizeof *want, rows.dim * sizeof *want);
            for (size_t d = 0; d < rows.dim; d++) {
                double e = bf16_to(row_at(&rows, i, c)[d]) - (double)want[d];
                error += e * e;
                all += (double)want[d] * (double)want[d];
            }
        }
        double ratio = sqrt(error / all);
        printf("%-20s column %d: relative rms error %.5f\n", golden[_i], c, ratio);
        ck_assert_double_lt(ratio, c == 0 ? 0.003 : 0.02);
    }
    rig_close(&rig);
    file_unmap(&file);
    free(rows.data);
}
END_TEST

static const struct way ways[] = {{1, 2, 1, "auto"},     {2, 1, 16, "auto"}, {4, 1, 7, "auto"},
                                  {8, 1, N_FED, "auto"}, {2, 2, 5, "avx2"},  {1, 1, 9, "plain"},
                                  {1, 1, 9, "avx512"},   {1, 2, 13, "neon"}};
enum { N_WAYS = sizeof ways / sizeof *ways };

static void check_features(const char *model, const struct way *way, const struct rows *want)
{
    struct rig rig;
    char what[100];
    rig_open(&rig, model, way->n_ranks, way->kernels, way->n_threads);
    struct feature_wish wish = all_of(&rig);
    struct rows got = new_rows(&rig, &wish, N_FED);
    keep(&rig, &wish);
    feed_chunks(&rig, tokens, N_FED, way->chunk, blocks[1], &got);
    snprintf(what, sizeof what, "T=%d threads=%d chunk=%d", way->n_ranks, way->n_threads,
             way->chunk);
    for (int i = 0; i < N_FED; i++) {
        expect_equal(want, i, &got, i, what);
    }
    rig_close(&rig);
    free(got.data);
}

START_TEST(features_are_equal_for_all_ranks_chunks_threads_and_kernels)
{
    struct error err;
    const struct kernels *kernels;
    if (kernels_find(&kernels, ways[_i].kernels, &err)) return;
    struct rows tales = all_features(TALES, N_FED);
    check_features(TALES, &ways[_i], &tales);
    free(tales.data);
}
END_TEST

/* Every node of a tree has the features of its path fed as a chain. */
static void check_tree_features(int n_ranks, int shape, int n_committed)
{
    static struct planted p;
    struct rig rig;
    char what[100];
    int nodes[TREE_NODES_MAX];
    int32_t text[TREE_TEXT_MAX];
    rig_open(&rig, TINY, n_ranks, "auto", 1);
    make_inputs(rig.n_vocab);
    plant(&p, &rig, shape, n_committed);
    struct feature_wish wish = all_of(&rig);
    struct rows in_tree = new_rows(&rig, &wish, TREE_TEXT_MAX);
    struct rows chain = new_rows(&rig, &wish, TREE_TEXT_MAX);
    const struct forward_tree tree = {&p.shape, blocks[2]};
    const struct rig_lane lanes[] = {{.tokens = other[2], .n = 9, .blocks = blocks[3]},
                                     {.tokens = p.text,
                                      .first = n_committed - 1,
                                      .n = 1 + p.shape.n_nodes,
                                      .blocks = blocks[0],
                                      .tree = &tree}};
    feed_run(&rig, p.text, 0, n_committed - 1, blocks[0], NULL);
    keep(&rig, &wish);
    rig_feed(&rig, lanes, 2);
    take(&rig, 9, 1 + p.shape.n_nodes, n_committed - 1, &in_tree);
    for (int path = 0; path < p.shape.n_paths; path++) {
        int n = path_nodes(&p, path, nodes);
        write_chain(&p, path, n, text);
        feed_chunks(&rig, text, n_committed + n, N_TOKENS, blocks[1], &chain);
        snprintf(what, sizeof what, "shape %d, path %d", shape, path);
        expect_equal(&chain, n_committed - 1, &in_tree, n_committed - 1, what);
        for (int i = 0; i < n; i++) {
            expect_equal(&chain, n_committed + i, &in_tree, n_committed + nodes[i], what);
        }
    }
    rig_close(&rig);
    free(in_tree.data);
    free(chain.data);
}

START_TEST(a_node_of_a_tree_has_the_features_of_its_path)
{
    check_tree_features(1 + _i % 2, _i, 13 + _i);
}
END_TEST

/* Step `position` with this wish gives these columns of `want`, which has all of them. */
static void check_step(struct rig *rig, const struct feature_wish *wish, int position,
                       const struct rows *want, float *logits)
{
    const struct feature_wish all = all_of(rig);
    struct rows got = new_rows(rig, wish, 1);
    keep(rig, position % 2 || wish->n || wish->normed ? wish : NULL);
    feed_run(rig, tokens, position, position + 1, blocks[2], logits);
    take(rig, 0, 1, 0, &got);
    for (int c = 0; c < got.n_columns; c++) {
        int column = c < wish->n ? feature_wish_column(&all, wish->boundaries[c]) : all.n;
        ck_assert_msg(memcmp(row_at(want, position, column), row_at(&got, 0, c),
                             got.dim * sizeof *got.data) == 0,
                      "position %d, column %d", position, c);
    }
    free(got.data);
}

/* Steps of one size, so that a device launches the first one of a wish, records the second and
 * replays the third. The first wish comes again after its buffer has become larger, and there are
 * more wishes than a model knows at once. */
START_TEST(wishes_change_from_step_to_step)
{
    enum { LAST = 4, N_WISHES = 12, SAME = 3, LENGTH = 5 * SAME + N_WISHES * (SAME + 1) };
    static const struct feature_wish wishes[N_WISHES] = {
        {.n = 1, .boundaries = {1}},
        {.n = 2, .boundaries = {0, LAST}},
        {.n = 5, .boundaries = {0, 1, 2, 3, LAST}, .normed = true},
        {.n = 0},
        {.normed = true},
        {.n = 1, .boundaries = {2}},
        {.n = 1, .boundaries = {3}},
        {.n = 2, .boundaries = {1, 2}},
        {.n = 3, .boundaries = {0, 1, 2}},
        {.n = 1, .boundaries = {1}, .normed = true},
        {.n = 1, .boundaries = {LAST}},
        {.n = 1, .boundaries = {0}}};
    static const int first_wishes[] = {0, 1, 0, 2, 0};
    struct rig rig;
    struct rows want = all_features(TINY, LENGTH);
    rig_open(&rig, TINY, 1, "auto", 1);
    ck_assert_int_eq(n_layers(&rig), LAST);
    ck_assert_int_gt(N_WISHES - 1, FEATURE_VARIANTS);
    float *logits = new_logits(&rig, LENGTH), *plain = new_logits(&rig, LENGTH);
    rig_logits(&rig, tokens, LENGTH, 1, blocks[0], plain);
    int at = 0;
    for (int i = 0; i < 5 * SAME; i++) {
        check_step(&rig, &wishes[first_wishes[i / SAME]], at++, &want, logits);
    }
    for (int i = 0; i < N_WISHES * SAME; i++) {
        check_step(&rig, &wishes[i / SAME], at++, &want, logits);
    }
    for (int i = 0; i < N_WISHES; i++) {
        check_step(&rig, &wishes[i], at++, &want, logits);
    }
    ck_assert_int_eq(at, LENGTH);
    check_equal(&rig, plain, logits, LENGTH, "logits of steps whose features are kept");
    rig_close(&rig);
    free(want.data);
    free(logits);
    free(plain);
}
END_TEST

static void *no_buffer(struct backend *be, size_t bytes, struct error *err)
{
    (void)be;
    error_set(err, ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
    return NULL;
}

START_TEST(a_wish_without_memory_leaves_the_buffer_of_the_one_before)
{
    enum { LENGTH = 6 };
    static const struct feature_wish narrow = {.n = 1, .boundaries = {1}};
    struct error err;
    struct rig rig;
    struct rows want = all_features(TINY, LENGTH);
    rig_open(&rig, TINY, 1, "auto", 1);
    const struct feature_wish all = all_of(&rig);
    float *logits = new_logits(&rig, LENGTH);
    const struct backend_ops *ops = rig.backends[0]->ops;
    struct backend_ops short_of_memory = *ops;
    short_of_memory.buffer_open = no_buffer;
    for (int i = 0; i < LENGTH; i++) {
        if (i == LENGTH / 2) {
            rig.backends[0]->ops = &short_of_memory;
            CHECK_ERR(model_keep_features(rig.models[0], &all, &err), ERR_NO_MEMORY, "no memory");
        }
        check_step(&rig, &narrow, i, &want, logits);
    }
    rig.backends[0]->ops = ops;
    check_step(&rig, &all, LENGTH - 1, &want, logits);
    rig_close(&rig);
    free(want.data);
    free(logits);
}
END_TEST

int main(void)
{
    bool is_on_device = getenv("OUTRIDER_TEST_DEVICE") != NULL;
    Suite *suite = suite_create("features");
    TCase *tcase = tcase_create("features");
    tcase_set_timeout(tcase, 200);
    tcase_add_test(tcase, wishes_change_from_step_to_step);
    tcase_add_test(tcase, a_wish_without_memory_leaves_the_buffer_of_the_one_before);
    tcase_add_loop_test(tcase, a_node_of_a_tree_has_the_features_of_its_path, 0,
                        is_on_device ? 5 : N_SHAPES);
    tcase_add_loop_test(tcase, a_boundary_is_the_end_of_a_model_that_is_cut_there,
                        is_on_device ? 1 : 0, is_on_device ? 3 : N_MODELS);
    tcase_add_loop_test(tcase, features_match_transformers, 0, is_on_device ? 3 : N_GOLDEN);
    if (!is_on_device) {
        tcase_add_test(tcase, boundary_0_is_the_embedding_and_neighbours_differ);
        tcase_add_test(tcase, the_normed_feature_is_what_the_head_reads);
        tcase_add_loop_test(tcase, features_are_equal_for_all_ranks_chunks_threads_and_kernels, 0,
                            N_WAYS);
    }
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
