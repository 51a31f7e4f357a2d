/* ctest: labels=full,bits libs=model,tokenizer timeout=300 */
/* The arithmetics cpu-int8 and cpu-int4 keep the promise of cpu-bf16 (test_forward.c): equal bits
 * however tokens are fed, on any number of ranks and threads, by any variant. They also stay close
 * to cpu-bf16 on text that the tales model knows; the limits are stated here. */
#include "tests/support/forward_ways.h"

#include <math.h>

#include "model/tokenizer/tokenizer.h"

enum { N_FORMS = 2, N_STORY_MAX = 400, N_SMALL = 8 /* of the other models */ };

static const char *const forms[N_FORMS] = {"int8", "int4"};
static float *tales[N_FORMS]; /* references, made once */

static void make_tales(void)
{
    for (int i = 0; i < N_FORMS; i++) {
        rig_weights = forms[i];
        tales[i] = reference(TALES, N_TOKENS);
    }
}

static void drop_tales(void)
{
    free(tales[0]);
    free(tales[1]);
}

static void check_tales(int form, struct way way)
{
    rig_weights = forms[form];
    check_way(TALES, tales[form], N_TOKENS, way);
}

START_TEST(chunks_give_equal_bits)
{
    const int chunks[] = {1, 2, 3, 5, 6, 8, 9, 17, 64, 130, 299};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        check_tales(_i, (struct way){1, 1, chunks[i], "auto"});
    }
}
END_TEST

START_TEST(ranks_give_equal_bits)
{
    check_tales(_i, (struct way){2, 1, 7, "auto"});
    check_tales(_i, (struct way){4, 1, 64, "auto"});
    check_tales(_i, (struct way){8, 1, 6, "auto"});
}
END_TEST

START_TEST(threads_give_equal_bits)
{
    check_tales(_i, (struct way){1, 2, 64, "auto"});
    check_tales(_i, (struct way){2, 2, 6, "auto"});
    check_tales(_i, (struct way){1, 3, 1, "auto"});
    check_tales(_i, (struct way){1, 4, 300, "auto"});
}
END_TEST

START_TEST(variants_give_equal_bits)
{
    for (int i = 0; kernels_name(i); i++) {
        check_tales(_i, (struct way){1, 1, 64, kernels_name(i)});
        check_tales(_i, (struct way){2, 1, 5, kernels_name(i)});
    }
}
END_TEST

/* The lane of interest goes in K + 1 rows at a time beside another of other lengths. */
START_TEST(a_lane_beside_another_gives_equal_bits)
{
    struct rig rig;
    rig_weights = forms[_i];
    rig_open(&rig, TALES, 2, "auto", 1);
    make_inputs(rig.n_vocab);
    float *got = new_logits(&rig, N_TOKENS);
    for (int fed = 0, beside = 0; fed < N_TOKENS; fed += 6) {
        int n = 1 + fed % 5, first = beside;
        beside += n;
        const struct rig_lane lanes[] = {
            {.tokens = other[1], .first = first, .n = n, .blocks = blocks[1]},
            {.tokens = tokens, .first = fed, .n = 6, .blocks = blocks[0], .logits = got}};
        rig_feed(&rig, lanes, 2);
    }
    check_equal(&rig, tales[_i], got, N_TOKENS, "a lane beside another");
    rig_close(&rig);
    free(got);
}
END_TEST

/* Slices whose last group is short (heads and ffn of the small golden models), biases and norms,
 * ranks that share a kv head, tied and cut vocabularies. */
START_TEST(other_shapes_give_equal_bits)
{
    static const char *const models[] = {
        GOLDEN "llama_bias",
        GOLDEN "qwen2_bias",
        GOLDEN "qwen3_norm",
        GOLDEN "llama_tied",
        GOLDEN "llama_kv_one",
        "synthetic:tiny,seed=7,vocab=100",
        "synthetic:tiny-3,seed=7",
        "synthetic:tiny-7,seed=7",
        "synthetic:qwen2.5-0.5b,seed=3,layers=1,vocab=1000",
    };
    struct error err;
    struct checkpoint *ck;
    const char *model = models[_i / N_FORMS];
    rig_weights = forms[_i % N_FORMS];
    CHECK_OK(checkpoint_open(&ck, model, &err));
    const struct model_config cfg = *checkpoint_config(ck);
    int n_slices = config_slices(&cfg);
    checkpoint_close(ck);
    float *want = reference(model, N_TOKENS_SHORT);
    for (int n_ranks = 2; n_ranks <= n_slices; n_ranks++) {
        if (!config_takes_ranks(&cfg, n_ranks)) continue;
        check_way(model, want, N_TOKENS_SHORT, (struct way){n_ranks, 1, 6, "auto"});
    }
    for (int i = 0; kernels_name(i); i++) {
        check_way(model, want, N_TOKENS_SHORT, (struct way){1, 1 + i % 2, 9, kernels_name(i)});
    }
    free(want);
}
END_TEST

/* Rows so wide that a batch holds only 128 of them when they are quantized, and 32 of bf16. */
START_TEST(more_rows_than_a_batch_give_equal_bits)
{
    enum { WIDTH = 65536, ROWS = 150, OUT = 40, SLICES = 2 };
    static const char *const all_forms[] = {"bf16", "int8", "int4"};
    struct error err;
    struct backend *be;
    const struct backend_options options = {
        .device = "cpu", .weights = all_forms[_i], .kernels = "auto", .n_threads = 2};
    struct matrix slices[SLICES];
    uint16_t *in;
    float *together, *alone;
    CHECK_OK(backend_open(&be, &options, &err));
    CHECK_OK(mem_array(&in, (size_t)ROWS * WIDTH, sizeof *in, &err));
    CHECK_OK(mem_array(&together, (size_t)SLICES * ROWS * OUT, sizeof *together, &err));
    CHECK_OK(mem_array(&alone, (size_t)SLICES * OUT, sizeof *alone, &err));
    for (size_t i = 0; i < (size_t)ROWS * WIDTH; i++) {
        in[i] = (uint16_t)(0x3f00u | ((uint32_t)i * 2654435761u >> 16 & 0x80ffu));
    }
    for (int s = 0; s < SLICES; s++) {
        const struct matrix_source source = {
            .n_in = WIDTH / SLICES,
            .n_parts = 1,
            .parts = {{.weight = {.n_rows = OUT, .n_cols = WIDTH, .seed = 5, .scale = 0.1f},
                       .n_rows = OUT,
                       .first_col = s * WIDTH / SLICES}}};
        CHECK_OK(be->ops->matrix_open(be, &slices[s], &source, &err));
    }
    struct slice_sums sums = {.data = together};
    be->ops->matmul_slices(be, slices, SLICES, in, WIDTH, ROWS, &sums);
    for (int row = 0; row < ROWS; row++) {
        struct slice_sums single = {.data = alone};
        be->ops->matmul_slices(be, slices, SLICES, in + (size_t)row * WIDTH, WIDTH, 1, &single);
        for (int s = 0; s < SLICES; s++) {
            ck_assert(alone[s * OUT] != 0);
            ck_assert_mem_eq(alone + s * OUT, together + (size_t)(s * ROWS + row) * OUT,
                             OUT * sizeof *alone);
        }
    }
    for (int s = 0; s < SLICES; s++) {
        be->ops->matrix_close(be, &slices[s]);
    }
    be->ops->close(be);
    free(in);
    free(together);
    free(alone);
}
END_TEST

/* ---- how close it stays ---- */

/* From a tale of the brothers Grimm. */
static const char story[] =
    "In olden times when wishing still helped one, there lived a king whose daughters were all "
    "beautiful, but the youngest was so beautiful that the sun itself, which has seen so much, was "
    "astonished whenever it shone in her face. Close by the king's castle lay a great dark forest, "
    "and under an old lime-tree in the forest was a well, and when the day was very warm, the "
    "king's child went out into the forest and sat down by the side of the cool fountain, and when "
    "she was bored she took a golden ball, and threw it up on high and caught it, and this ball "
    "was her favorite plaything. Now it happened that on one occasion the princess's golden ball "
    "did not fall into the little hand which she was holding up for it, but on to the ground "
    "beyond, and rolled straight into the water.";

static double log_sum_exp(const float *logits, int n)
{
    double most = (double)logits[0], sum = 0;
    for (int i = 1; i < n; i++) {
        if ((double)logits[i] > most) most = (double)logits[i];
    }
    for (int i = 0; i < n; i++) {
        sum += exp((double)logits[i] - most);
    }
    return most + log(sum);
}

/* Mean surprise at the text in nats, and the mean divergence from the rows of `base`. */
struct closeness {
    double surprise, divergence;
    int n_best; /* rows whose best token is base's */
};

static struct closeness compare(const struct token_ids *ids, const float *base, const float *rows,
                                int v)
{
    struct closeness c = {0};
    int n = (int)ids->n - 1;
    for (int i = 0; i < n; i++) {
        const float *p = base + (size_t)i * (size_t)v, *q = rows + (size_t)i * (size_t)v;
        double p_all = log_sum_exp(p, v), q_all = log_sum_exp(q, v);
        int best_p = 0, best_q = 0;
        for (int id = 0; id < v; id++) {
            double log_p = (double)p[id] - p_all, log_q = (double)q[id] - q_all;
            c.divergence += exp(log_p) * (log_p - log_q) / n;
            if (p[id] > p[best_p]) best_p = id;
            if (q[id] > q[best_q]) best_q = id;
        }
        c.surprise += (q_all - (double)q[ids->data[i + 1]]) / n;
        c.n_best += best_p == best_q;
    }
    return c;
}

static float *story_logits(const char *weights, struct token_ids *ids, int *n_vocab)
{
    struct error err;
    struct rig rig;
    struct tokenizer *tok;
    rig_weights = weights;
    rig_open(&rig, TALES, 1, "auto", 1);
    make_inputs(rig.n_vocab);
    CHECK_OK(tokenizer_open(&tok, TALES, &err));
    token_ids_free(ids);
    CHECK_OK(tokenizer_encode(tok, story, strlen(story), 0, ids, &err));
    ck_assert_uint_le(ids->n, N_STORY_MAX);
    float *logits = new_logits(&rig, (int)ids->n);
    rig_logits(&rig, ids->data, (int)ids->n, 64, blocks[0], logits);
    *n_vocab = rig.n_vocab;
    tokenizer_close(tok);
    rig_close(&rig);
    return logits;
}

START_TEST(the_distribution_stays_near_that_of_bf16)
{
    const double most_surprise[] = {0.01, 0.10}, most_divergence[] = {0.001, 0.05};
    struct token_ids ids = {0};
    int v = 0;
    float *base = story_logits("bf16", &ids, &v);
    struct closeness exact = compare(&ids, base, base, v);
    for (int i = 0; i < N_FORMS; i++) {
        float *rows = story_logits(forms[i], &ids, &v);
        struct closeness c = compare(&ids, base, rows, v);
        printf("tales %s: perplexity %.3f, with bf16 %.3f; mean divergence %.6f nats; best token "
               "equal in %d of %zu rows\n",
               forms[i], exp(c.surprise), exp(exact.surprise), c.divergence, c.n_best, ids.n - 1);
        ck_assert_double_le(fabs(c.surprise - exact.surprise), most_surprise[i]);
        ck_assert_double_le(c.divergence, most_divergence[i]);
        ck_assert_double_gt(c.divergence, 0); /* otherwise nothing was quantized */
        free(rows);
    }
    free(base);
    token_ids_free(&ids);
}
END_TEST

START_TEST(a_form_that_the_cpu_has_not_is_refused)
{
    struct error err;
    struct backend *be;
    struct backend_options options = {
        .device = "cpu", .weights = "fp8", .kernels = "auto", .n_threads = 1};
    CHECK_ERR(backend_open(&be, &options, &err), ERR_UNSUPPORTED,
              "the CPU has bf16, int8 and int4");
    options.weights = "int5";
    CHECK_ERR(backend_open(&be, &options, &err), ERR_ARGUMENT, "expected bf16, int8 or int4");
    options.weights = "int4";
    CHECK_OK(backend_open(&be, &options, &err));
    ck_assert_str_eq(be->ops->arithmetic, "cpu-int4");
    be->ops->close(be);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("forward_quant");
    TCase *pair = tcase_create("the tales target");
    tcase_set_timeout(pair, 300);
    tcase_set_tags(pair, "long"); /* tests/run leaves it out where the CPU is emulated */
    tcase_add_unchecked_fixture(pair, make_tales, drop_tales);
    tcase_add_loop_test(pair, chunks_give_equal_bits, 0, N_FORMS);
    tcase_add_loop_test(pair, ranks_give_equal_bits, 0, N_FORMS);
    tcase_add_loop_test(pair, threads_give_equal_bits, 0, N_FORMS);
    tcase_add_loop_test(pair, variants_give_equal_bits, 0, N_FORMS);
    tcase_add_loop_test(pair, a_lane_beside_another_gives_equal_bits, 0, N_FORMS);
    suite_add_tcase(suite, pair);
    TCase *rest = tcase_create("other models");
    tcase_set_timeout(rest, 300);
    tcase_add_loop_test(rest, other_shapes_give_equal_bits, 0, N_SMALL * N_FORMS);
    tcase_add_test(rest, a_form_that_the_cpu_has_not_is_refused);
    suite_add_tcase(suite, rest);
    TCase *large = tcase_create("large matrices");
    tcase_set_timeout(large, 300);
    tcase_set_tags(large, "long");
    tcase_add_loop_test(large, other_shapes_give_equal_bits, N_SMALL * N_FORMS, 9 * N_FORMS);
    tcase_add_loop_test(large, more_rows_than_a_batch_give_equal_bits, 0, 3);
    suite_add_tcase(suite, large);
    TCase *text = tcase_create("a text");
    tcase_set_timeout(text, 300);
    tcase_set_tags(text, "long");
    tcase_add_test(text, the_distribution_stays_near_that_of_bf16);
    suite_add_tcase(suite, text);
    return check_main(suite);
}
