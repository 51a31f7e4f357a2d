/* ctest: labels=quick libs=checkpoint timeout=60 */
/* Synthetic models: the elements depend on (seed, name, place) and on nothing else, have the
 * promised mean and deviation, and the head gives about two nats. */
#include <math.h>
#include <stdio.h>

#include "model/checkpoint/checkpoint.h"
#include "model/numerics/numerics.h"
#include "tests/support/check_util.h"

static struct error err;

static struct checkpoint *open_model(const char *name)
{
    struct checkpoint *ck;
    CHECK_OK(checkpoint_open(&ck, name, &err));
    ck_assert(checkpoint_is_synthetic(ck));
    return ck;
}

static struct weight find(const struct checkpoint *ck, const char *name, int n_rows, int n_cols)
{
    struct weight weight = {0};
    CHECK_OK(checkpoint_find(ck, name, n_rows, n_cols, &weight, &err));
    return weight;
}

START_TEST(named_shapes_have_their_dimensions)
{
    struct checkpoint *ck = open_model("synthetic:qwen2.5-0.5b,seed=1");
    const struct model_config *cfg = checkpoint_config(ck);
    ck_assert_str_eq(cfg->architecture, "Qwen2ForCausalLM");
    ck_assert_int_eq(cfg->n_layers, 24);
    ck_assert(cfg->tied_embeddings && cfg->qkv_bias && !cfg->o_bias);
    ck_assert_int_eq(config_slices(cfg), 2);
    ck_assert_int_eq(cfg->ends.n, 0);
    find(ck, "model.layers.23.self_attn.k_proj.weight", 128, 896);
    find(ck, "model.layers.23.self_attn.k_proj.bias", 1, 128);
    struct weight weight;
    CHECK_ERR(
        checkpoint_find(ck, "model.layers.24.self_attn.k_proj.weight", 128, 896, &weight, &err),
        ERR_FORMAT, "lacks the tensor model.layers.24");
    CHECK_ERR(checkpoint_find(ck, "lm_head.weight", 151936, 896, &weight, &err), ERR_FORMAT,
              "lacks");
    CHECK_ERR(checkpoint_find(ck, "model.norm.weight", 1, 100, &weight, &err), ERR_FORMAT,
              "has shape [1, 896], not [1, 100]");
    checkpoint_close(ck);
    ck = open_model("synthetic:qwen3-8b,seed=1");
    find(ck, "model.layers.35.self_attn.q_norm.weight", 1, 128);
    find(ck, "lm_head.weight", 151936, 4096);
    checkpoint_close(ck);
    ck = open_model("synthetic:llama-3.1-70b,seed=1");
    ck_assert_int_eq(checkpoint_config(ck)->ropes[0].kind, ROPE_LLAMA3);
    checkpoint_close(ck);
}
END_TEST

START_TEST(options_override_the_shape)
{
    struct checkpoint *ck = open_model("synthetic:tiny,vocab=300,layers=5,seed=9");
    ck_assert_int_eq(checkpoint_config(ck)->n_layers, 5);
    ck_assert_int_eq(checkpoint_config(ck)->vocab_size, 300);
    find(ck, "model.layers.4.mlp.down_proj.weight", 128, 256);
    find(ck, "lm_head.weight", 300, 128);
    checkpoint_close(ck);
    ck = open_model("synthetic:" SOURCE_DIR
                    "/tests/golden/models/llama_bias/config.json,seed=3,vocab=2");
    ck_assert_str_eq(checkpoint_config(ck)->architecture, "LlamaForCausalLM");
    ck_assert_int_eq(checkpoint_config(ck)->ends.n, 0); /* id 2 is gone */
    ck_assert_int_eq(checkpoint_config(ck)->bos_id, 1);
    find(ck, "model.layers.1.self_attn.o_proj.bias", 1, 32);
    find(ck, "model.layers.1.mlp.down_proj.bias", 1, 32);
    checkpoint_close(ck);
}
END_TEST

/* Norms that are stored less 1 have elements around 0. */
START_TEST(configs_of_all_families_are_shapes)
{
    struct weight weight;
    struct checkpoint *ck =
        open_model("synthetic:" SOURCE_DIR "/tests/golden/models/gemma2_open/config.json,seed=3");
    CHECK_OK(checkpoint_find(ck, "model.layers.0.post_feedforward_layernorm.weight", 1, 32, &weight,
                             &err));
    ck_assert(weight.mean == 0);
    checkpoint_close(ck);
    ck = open_model("synthetic:" SOURCE_DIR "/tests/golden/models/olmo2_norms/config.json,seed=3");
    CHECK_OK(checkpoint_find(ck, "model.layers.0.self_attn.q_norm.weight", 1, 32, &weight, &err));
    ck_assert(weight.mean == 1);
    checkpoint_close(ck);
}
END_TEST

static const char *const kinds[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0",   "Q2_K",
                                    "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"};
/* The largest distance from the elements in bf16, in their deviations: half a step of the widest
 * group, and for the kinds of few bits the rounding of its scale besides. */
static const double distances[] = {0.26, 0.13, 0.13, 0.07, 0.02, 0.6,
                                   0.4,  0.2,  0.11, 0.06, 0.28, 0.35};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* Matrices that are multiplied have the elements of the model in bf16, rounded to the kind; the
 * others are as they are. */
START_TEST(blocks_hold_the_elements_of_the_model_in_bf16)
{
    enum { ROWS = 2048, COLS = 2048, SOME = 700 };
    static float plain[SOME], blocks[SOME];
    char name[80];
    struct checkpoint *ck = open_model("synthetic:llama-3.2-1b,seed=5");
    snprintf(name, sizeof name, "synthetic:llama-3.2-1b,blocks=%s,seed=5", kinds[_i]);
    struct checkpoint *in_blocks = open_model(name);
    ck_assert_int_eq(checkpoint_config(in_blocks)->stored, WEIGHTS_BLOCKS);
    ck_assert(checkpoint_fingerprint(ck) != checkpoint_fingerprint(in_blocks));
    struct weight a = find(ck, "model.layers.3.self_attn.q_proj.weight", ROWS, COLS);
    struct weight b = find(in_blocks, "model.layers.3.self_attn.q_proj.weight", ROWS, COLS);
    ck_assert_int_eq(b.dtype, DTYPE_BLOCKS);
    ck_assert_str_eq(block_type_of(b.block)->name, kinds[_i]);
    double worst = 0;
    for (int row = 0; row < 40; row++) {
        weight_read_f32(&a, row, 11, SOME, plain);
        weight_read_f32(&b, row, 11, SOME, blocks);
        for (int i = 0; i < SOME; i++) {
            worst = fmax(worst, fabs((double)(plain[i] - blocks[i])) / (double)a.scale);
        }
    }
    printf("%-6s largest distance %.4f deviations\n", kinds[_i], worst);
    ck_assert_double_le(worst, distances[_i]);
    ck_assert_double_ge(worst, distances[_i] / 4);
    b = find(in_blocks, "model.layers.3.input_layernorm.weight", 1, COLS);
    ck_assert_int_eq(b.dtype, DTYPE_BF16);
    b = find(in_blocks, "model.embed_tokens.weight", 128256, COLS); /* also the head */
    ck_assert_int_eq(b.dtype, DTYPE_BLOCKS);
    checkpoint_close(ck);
    checkpoint_close(in_blocks);
}
END_TEST

/* One element, a part of a group and the group itself. */
START_TEST(elements_of_blocks_do_not_depend_on_how_they_are_read)
{
    char name[80];
    float all[256], one, group_values[QUANT_GROUP];
    uint16_t bf16;
    struct weight_group group;
    snprintf(name, sizeof name, "synthetic:llama-3.2-1b,blocks=%s,seed=5", kinds[_i]);
    struct checkpoint *ck = open_model(name);
    struct weight weight = find(ck, "model.layers.0.mlp.down_proj.weight", 2048, 8192);
    weight_read_f32(&weight, 7, 512, 256, all);
    for (int k = 0; k < 256; k++) {
        weight_read_f32(&weight, 7, 512 + k, 1, &one);
        weight_read_bf16(&weight, 7, 512 + k, 1, &bf16);
        weight_read_group(&weight, 7, (512 + k) / QUANT_GROUP, &group);
        group_read_f32(block_form(weight.block), &group, group_values);
        ck_assert(num_float_to_bits(one) == num_float_to_bits(all[k]));
        ck_assert(num_float_to_bits(group_values[k % QUANT_GROUP]) == num_float_to_bits(all[k]));
        ck_assert_uint_eq(bf16, num_float_to_bf16(all[k]));
    }
    checkpoint_close(ck);
}
END_TEST

START_TEST(senseless_names_are_refused)
{
    static const char *const names[][2] = {
        {"synthetic:", "no shape"},
        {"synthetic:gpt-5,seed=1", "no shape \"gpt-5\"; there are tiny, "},
        {"synthetic:tiny", "seed= is missing"},
        {"synthetic:tiny,seed=", "\"seed=\" is not a number"},
        {"synthetic:tiny,seed=-1", "\"seed=-1\" is not a number"},
        {"synthetic:tiny,seed=1x", "\"seed=1x\" is not a number"},
        {"synthetic:tiny,seed=99999999999999999999", "is not a number"},
        {"synthetic:tiny,seed=1,layers=0,vocab=300", "\"layers=0\" is not a number in 1..4096"},
        {"synthetic:tiny,seed=1,layers=5000", "layers=5000"},
        {"synthetic:tiny,seed=1,vocab=1", "vocab=1"},
        {"synthetic:tiny,seed=1,seed=2", "\"seed=2\" is not wanted twice"},
        {"synthetic:tiny,seed=1,heads=3", "\"heads=3\" is not one of"},
        {"synthetic:tiny,seed=1,", "\"\" is not one of"},
        {"synthetic:tiny,seed=1,blocks=bf16", "\"blocks=bf16\" is none of Q4_0, Q4_1, Q5_0"},
        {"synthetic:tiny,seed=1,blocks=q4_k", "of 128, which are no whole blocks of 256 of Q4_K"},
        {"synthetic:tiny,seed=1,core=1", "belong together"},
        {"synthetic:tiny,seed=1,core=1,tail=2", "\"tail=2\" is not a number in 0..1"},
        {"synthetic:tiny,seed=1,core=1,tail=nan", "tail=nan"},
        {"synthetic:" SOURCE_DIR
         "/tests/golden/models/granite_factors/config.json,seed=1,agree=0.8",
         "are not for models of the class GraniteForCausalLM"},
    };
    struct checkpoint *ck;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK_ERR(checkpoint_open(&ck, names[i][0], &err), ERR_ARGUMENT, names[i][1]);
        ck_assert_ptr_null(ck);
    }
    CHECK_ERR(checkpoint_open(&ck, "synthetic:/nowhere.json,seed=1", &err), ERR_NOT_FOUND,
              "/nowhere.json");
}
END_TEST

START_TEST(elements_do_not_depend_on_the_way_of_reading)
{
    enum { ROWS = 96, COLS = 129 }; /* not a multiple of the generator's blocks */
    struct weight weight = {.n_rows = ROWS, .n_cols = COLS, .seed = 5, .scale = 0.3f};
    static uint16_t whole[ROWS * COLS];
    weight_read_bf16(&weight, 0, 0, ROWS * COLS, whole);
    for (int row = 0; row < ROWS; row += 7) {
        for (int col = 0; col < COLS; col += 5) {
            uint16_t part[40];
            float as_float[40];
            int n = (row * 3 + col) % 40 + 1;
            if (n > COLS - col) n = COLS - col;
            weight_read_bf16(&weight, row, col, n, part);
            weight_read_f32(&weight, row, col, n, as_float);
            ck_assert_mem_eq(part, whole + row * COLS + col, (size_t)n * sizeof *part);
            for (int i = 0; i < n; i++) {
                ck_assert(as_float[i] == num_bf16_to_float(part[i]));
            }
        }
    }
}
END_TEST

/* The elements must never change, because published numbers depend on them. These were computed in
 * Python from the definition in model/numerics/synthetic_elements.h and synthetic.c. */
START_TEST(elements_are_those_that_were_recorded)
{
    static const uint16_t wanted[8] = {0xbc88, 0x3def, 0x3dcb, 0x3de9,
                                       0x3d9f, 0xbe0f, 0x3a42, 0x3dd3};
    struct checkpoint *ck = open_model("synthetic:tiny,seed=42");
    struct weight weight = find(ck, "model.layers.1.mlp.up_proj.weight", 256, 128);
    uint16_t row[8];
    weight_read_bf16(&weight, 200, 3, 8, row);
    for (int i = 0; i < 8; i++) {
        ck_assert_msg(row[i] == wanted[i], "element %d is 0x%04x", i, row[i]);
    }
    checkpoint_close(ck);
}
END_TEST

START_TEST(places_past_four_billion_elements_differ)
{
    enum { COLS = 1 << 16 };
    struct weight weight = {.n_rows = 1 << 24, .n_cols = COLS, .seed = 5, .scale = 1};
    uint16_t low[64], high[64];
    weight_read_bf16(&weight, 3, 0, 64, low);
    weight_read_bf16(&weight, 3 + (1 << 19), 0, 64, high); /* 2^35 elements on: 2^32 blocks */
    ck_assert_mem_ne(low, high, sizeof low);
}
END_TEST

static void check_statistics(const struct weight *weight, double mean, double deviation)
{
    double sum = 0, squares = 0;
    static float row[65536];
    double n = (double)weight->n_rows * weight->n_cols;
    for (int i = 0; i < weight->n_rows; i++) {
        weight_read_f32(weight, i, 0, weight->n_cols, row);
        for (int k = 0; k < weight->n_cols; k++) {
            sum += (double)row[k];
            squares += (double)row[k] * (double)row[k];
        }
    }
    double found_mean = sum / n, found = sqrt(squares / n - found_mean * found_mean);
    ck_assert_double_eq_tol(found_mean, mean, 5 * deviation / sqrt(n));
    ck_assert_double_eq_tol(found / deviation, 1, 3 / sqrt(n) + 0.002);
}

START_TEST(mean_and_deviation_are_as_documented)
{
    struct checkpoint *ck = open_model("synthetic:tiny,seed=1");
    struct weight q = find(ck, "model.layers.0.self_attn.q_proj.weight", 128, 128);
    struct weight embedding = find(ck, "model.embed_tokens.weight", 512, 128);
    struct weight head = find(ck, "lm_head.weight", 512, 128);
    struct weight down = find(ck, "model.layers.1.mlp.down_proj.weight", 128, 256);
    struct weight o = find(ck, "model.layers.1.self_attn.o_proj.weight", 128, 128);
    check_statistics(&q, 0, 1 / sqrt(128));
    check_statistics(&embedding, 0, 1);
    check_statistics(&head, 0, (1.2 + 0.465 * log(512)) / sqrt(128));
    check_statistics(&down, 0, 2 / (sqrt(2 * 2) * 0.6 * sqrt(256)));
    check_statistics(&o, 0, 2 / (sqrt(2 * 2) * sqrt(128)));
    checkpoint_close(ck);
    ck = open_model("synthetic:llama-3.1-8b,seed=1");
    struct weight norm = find(ck, "model.layers.0.input_layernorm.weight", 1, 4096);
    check_statistics(&norm, 1, 0.1);
    checkpoint_close(ck);
}
END_TEST

START_TEST(elements_depend_on_seed_and_name_and_not_on_the_number_of_layers)
{
    static const char name[] = "model.layers.1.self_attn.q_proj.weight";
    struct checkpoint *one = open_model("synthetic:tiny,seed=1");
    struct checkpoint *two = open_model("synthetic:tiny,seed=2");
    struct checkpoint *deep = open_model("synthetic:tiny,seed=1,layers=7");
    uint16_t of_one[64], of_two[64], of_deep[64], of_k[64];
    struct weight weight = find(one, name, 128, 128);
    weight_read_bf16(&weight, 0, 0, 64, of_one);
    weight = find(two, name, 128, 128);
    weight_read_bf16(&weight, 0, 0, 64, of_two);
    weight = find(deep, name, 128, 128);
    weight_read_bf16(&weight, 0, 0, 64, of_deep);
    weight = find(one, "model.layers.0.self_attn.q_proj.weight", 128, 128);
    weight_read_bf16(&weight, 0, 0, 64, of_k);
    ck_assert_mem_ne(of_one, of_two, sizeof of_one);
    ck_assert_mem_ne(of_one, of_k, sizeof of_one);
    ck_assert_mem_eq(of_one, of_deep, sizeof of_one);
    struct weight down = find(one, "model.layers.1.mlp.down_proj.weight", 128, 256);
    struct weight deep_down = find(deep, "model.layers.1.mlp.down_proj.weight", 128, 256);
    ck_assert(down.scale == deep_down.scale);
    ck_assert_uint_ne(checkpoint_fingerprint(one), checkpoint_fingerprint(two));
    ck_assert_uint_ne(checkpoint_fingerprint(one), checkpoint_fingerprint(deep));
    checkpoint_close(one);
    one = open_model("synthetic:tiny,layers=2,seed=1,vocab=512");
    weight = find(one, name, 128, 128);
    weight_read_bf16(&weight, 0, 0, 64, of_two);
    ck_assert_mem_eq(of_one, of_two, sizeof of_one);
    checkpoint_close(one);
    checkpoint_close(two);
    checkpoint_close(deep);
}
END_TEST

START_TEST(a_tail_scales_only_what_its_layers_add)
{
    struct checkpoint *plain = open_model("synthetic:tiny,seed=1,layers=3");
    struct checkpoint *tail = open_model("synthetic:tiny,seed=1,layers=3,core=1,tail=0.25");
    static const char *const names[] = {"model.layers.0.self_attn.o_proj.weight",
                                        "model.layers.1.self_attn.o_proj.weight",
                                        "model.layers.1.self_attn.q_proj.weight"};
    static const float ratios[] = {1, 0.25f, 1};
    for (int i = 0; i < 3; i++) {
        struct weight a = find(plain, names[i], 128, 128), b = find(tail, names[i], 128, 128);
        ck_assert(b.scale == a.scale * ratios[i]);
        ck_assert_uint_eq(a.seed, b.seed);
    }
    ck_assert_uint_ne(checkpoint_fingerprint(plain), checkpoint_fingerprint(tail));
    checkpoint_close(plain);
    checkpoint_close(tail);
}
END_TEST

/* logits = W (g * x / |x|) for a residual stream x that is half this token's embedding. */
static void head_logits(const struct checkpoint *ck, int token, float *logits)
{
    const struct model_config *cfg = checkpoint_config(ck);
    const char *head = cfg->tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
    int v = cfg->vocab_size, d = cfg->dim;
    struct weight rows = find(ck, head, v, d), norm = find(ck, "model.norm.weight", 1, d);
    struct weight embedding = find(ck, "model.embed_tokens.weight", v, d);
    struct weight noise = {.seed = (uint64_t)token, .n_cols = d, .scale = embedding.scale};
    static float x[4096], other[4096], gain[4096], row[4096];
    float squares = 0;
    weight_read_f32(&embedding, token, 0, d, x);
    weight_read_f32(&noise, 0, 0, d, other);
    weight_read_f32(&norm, 0, 0, d, gain);
    for (int i = 0; i < d; i++) {
        x[i] += other[i];
        squares += x[i] * x[i];
    }
    for (int j = 0; j < v; j++) {
        weight_read_f32(&rows, j, 0, d, row);
        logits[j] = 0;
        for (int i = 0; i < d; i++) {
            logits[j] += row[i] * gain[i] * x[i] / sqrtf(squares / (float)d);
        }
    }
}

static double entropy(const float *logits, int n, int token, double *p_token)
{
    double sum = 0, weighted = 0, most = -1e30;
    for (int j = 0; j < n; j++) {
        if ((double)logits[j] > most) most = (double)logits[j];
    }
    for (int j = 0; j < n; j++) {
        double e = exp((double)logits[j] - most);
        sum += e;
        weighted += e * ((double)logits[j] - most);
    }
    *p_token = exp((double)logits[token] - most) / sum;
    return log(sum) - weighted / sum;
}

static void check_entropy(const char *name)
{
    enum { CONTEXTS = 40, MOST_VOCAB = 2048 };
    struct checkpoint *ck = open_model(name);
    int n = checkpoint_config(ck)->vocab_size;
    double total = 0, own = 0;
    float logits[MOST_VOCAB];
    for (int i = 0; i < CONTEXTS; i++) {
        double p;
        head_logits(ck, i, logits);
        total += entropy(logits, n, i, &p);
        own += p;
    }
    ck_assert_double_eq_tol(total / CONTEXTS, 2, 0.5);
    ck_assert_double_le(own / CONTEXTS, 0.1); /* no model repeats its last token for ever */
    checkpoint_close(ck);
}

START_TEST(the_head_gives_about_two_nats)
{
    check_entropy("synthetic:tiny,seed=1");
    check_entropy("synthetic:tiny,seed=2,vocab=2048");
    check_entropy("synthetic:qwen2.5-0.5b,seed=1,vocab=1024"); /* tied */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("checkpoint_synthetic");
    TCase *tcase = tcase_create("synthetic");
    tcase_add_test(tcase, named_shapes_have_their_dimensions);
    tcase_add_test(tcase, options_override_the_shape);
    tcase_add_test(tcase, configs_of_all_families_are_shapes);
    tcase_add_test(tcase, senseless_names_are_refused);
    tcase_add_loop_test(tcase, blocks_hold_the_elements_of_the_model_in_bf16, 0, N_KINDS);
    tcase_add_loop_test(tcase, elements_of_blocks_do_not_depend_on_how_they_are_read, 0, N_KINDS);
    tcase_add_test(tcase, elements_do_not_depend_on_the_way_of_reading);
    tcase_add_test(tcase, elements_are_those_that_were_recorded);
    tcase_add_test(tcase, places_past_four_billion_elements_differ);
    tcase_add_test(tcase, mean_and_deviation_are_as_documented);
    tcase_add_test(tcase, elements_depend_on_seed_and_name_and_not_on_the_number_of_layers);
    tcase_add_test(tcase, a_tail_scales_only_what_its_layers_add);
    tcase_add_test(tcase, the_head_gives_about_two_nats);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
