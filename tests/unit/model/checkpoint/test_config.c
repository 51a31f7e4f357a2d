/* ctest: labels=quick libs=checkpoint timeout=60 */
/* config.json: what each key of each architecture means, and that whatever would change the result
 * is refused by its name. */
#include "model/checkpoint/config/config_parse.h"
#include "model/checkpoint/config/family.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "tests/support/check_util.h"

static struct error err;
static struct model_config cfg;

static const char llama[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"vocab_size\":1000,"
    "\"hidden_size\":128,\"intermediate_size\":256,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":8,\"num_key_value_heads\":4,\"max_position_embeddings\":2048,"
    "\"rms_norm_eps\":1e-05,\"hidden_act\":\"silu\"}";

static struct config_rest rest;

static int parse(const char *config, const char *generation)
{
    return config_parse(&cfg, config, strlen(config), generation,
                        generation ? strlen(generation) : 0, "test.json", &rest, &err);
}

/* The llama above as another architecture, with the members of `patch` on top; a patch of
 * {"key": "DELETE"} takes the key away. */
static int parse_as(const char *family, const char *patch)
{
    const struct model_family *row = family_of_type(family);
    json_t *root = json_loads(llama, 0, NULL), *over = json_loads(patch, 0, NULL);
    ck_assert_msg(root && over, "the test's own JSON: %s", patch);
    ck_assert_msg(row != NULL, "there is no family %s", family);
    json_object_set_new(root, "model_type", json_string(family));
    json_object_set_new(root, "architectures", json_pack("[s]", row->architecture));
    for (void *at = json_object_iter(over); at; at = json_object_iter_next(over, at)) {
        const char *key = json_object_iter_key(at), *text;
        text = json_string_value(json_object_iter_value(at));
        if (text && strcmp(text, "DELETE") == 0) {
            json_object_del(root, key);
        } else {
            json_object_set(root, key, json_object_iter_value(at));
        }
    }
    char *text = json_dumps(root, 0);
    int rc = parse(text, NULL);
    free(text);
    json_decref(root);
    json_decref(over);
    return rc;
}

START_TEST(llama_dimensions_are_read)
{
    CHECK_OK(parse(llama, NULL));
    ck_assert_str_eq(cfg.architecture, "LlamaForCausalLM");
    ck_assert_int_eq(cfg.n_layers, 2);
    ck_assert_int_eq(cfg.dim, 128);
    ck_assert_int_eq(cfg.n_heads, 8);
    ck_assert_int_eq(cfg.n_kv_heads, 4);
    ck_assert_int_eq(cfg.head_dim, 16);
    ck_assert_int_eq(cfg.ffn_dim, 256);
    ck_assert_int_eq(cfg.vocab_size, 1000);
    ck_assert_int_eq(cfg.max_positions, 2048);
    ck_assert(cfg.norm_eps == 1e-5f);
    ck_assert_int_eq(cfg.ropes[0].kind, ROPE_DEFAULT);
    ck_assert_double_eq(cfg.ropes[0].theta, 10000);
    ck_assert_double_eq(cfg.ropes[0].attention_factor, 1);
    ck_assert(!cfg.tied_embeddings && !cfg.qkv_bias && !cfg.o_bias && !cfg.mlp_bias);
    ck_assert(!cfg.qk_norm && config_layer(&cfg, 0)->window == 0);
    ck_assert_int_eq(cfg.bos_id, -1);
    ck_assert_int_eq(cfg.ends.n, 0);
}
END_TEST

START_TEST(missing_heads_take_the_default_of_the_class)
{
    CHECK_OK(parse_as("llama", "{\"num_key_value_heads\":\"DELETE\"}"));
    ck_assert_int_eq(cfg.n_kv_heads, 8);
    CHECK_OK(parse_as("llama", "{\"num_key_value_heads\":null}"));
    ck_assert_int_eq(cfg.n_kv_heads, 8);
    CHECK_OK(parse_as("mistral", "{\"num_key_value_heads\":\"DELETE\"}"));
    ck_assert_int_eq(cfg.n_kv_heads, 8);
    CHECK_ERR(parse_as("qwen2", "{\"num_key_value_heads\":\"DELETE\"}"), ERR_FORMAT, "= 32");
    CHECK_OK(parse_as("llama", "{\"head_dim\":64}"));
    ck_assert_int_eq(cfg.head_dim, 64);
    CHECK_OK(parse_as("qwen3", "{}"));
    ck_assert_int_eq(cfg.head_dim, 128);
    CHECK_OK(parse_as("qwen3", "{\"head_dim\":null}"));
    ck_assert_int_eq(cfg.head_dim, 16);
}
END_TEST

START_TEST(biases_belong_to_the_architecture)
{
    CHECK_OK(parse_as("llama", "{\"attention_bias\":true,\"mlp_bias\":true}"));
    ck_assert(cfg.qkv_bias && cfg.o_bias && cfg.mlp_bias && !cfg.qk_norm);
    CHECK_OK(parse_as("qwen2", "{}"));
    ck_assert(cfg.qkv_bias && !cfg.o_bias && !cfg.mlp_bias && !cfg.qk_norm);
    CHECK_OK(parse_as("qwen3", "{}"));
    ck_assert(!cfg.qkv_bias && !cfg.o_bias && cfg.qk_norm);
    CHECK_OK(parse_as("qwen3", "{\"attention_bias\":true}"));
    ck_assert(cfg.qkv_bias && cfg.o_bias && cfg.qk_norm);
    CHECK_ERR(parse_as("mistral", "{\"attention_bias\":true}"), ERR_UNSUPPORTED, "attention_bias");
    CHECK_ERR(parse_as("qwen3", "{\"mlp_bias\":true}"), ERR_UNSUPPORTED, "\"mlp_bias\" = true");
    CHECK_OK(parse_as("llama", "{\"tie_word_embeddings\":true}"));
    ck_assert(cfg.tied_embeddings);
}
END_TEST

/* The windows of the two layers, as a number: 512 and 0 are "512 0". */
static const char *windows(void)
{
    static char text[32];
    snprintf(text, sizeof text, "%d %d", config_layer(&cfg, 0)->window,
             config_layer(&cfg, 1)->window);
    return text;
}

START_TEST(mistral_has_a_window_in_all_layers)
{
    CHECK_OK(parse_as("mistral", "{\"sliding_window\":null}"));
    ck_assert_str_eq(windows(), "0 0");
    CHECK_OK(parse_as("mistral", "{\"sliding_window\":512}"));
    ck_assert_str_eq(windows(), "512 512");
    ck_assert_int_eq(cfg.max_positions, 2048);
    CHECK_OK(parse_as("mistral", "{}")); /* the class has 4096 */
    ck_assert_str_eq(windows(), "4096 4096");
    CHECK_OK(parse_as("mistral", "{\"sliding_window\":512,"
                                 "\"layer_types\":[\"sliding_attention\","
                                 "\"sliding_attention\"]}"));
    ck_assert_str_eq(windows(), "512 512");
    CHECK_ERR(parse_as("mistral", "{\"sliding_window\":512,"
                                  "\"layer_types\":[\"sliding_attention\",\"full_attention\"]}"),
              ERR_UNSUPPORTED, "\"full_attention\" for layer 1, but in a mistral model");
    CHECK_ERR(parse_as("mistral", "{\"sliding_window\":0}"), ERR_FORMAT, "sliding_window");
}
END_TEST

START_TEST(qwen_says_which_layers_have_a_window)
{
    CHECK_OK(parse_as("qwen2", "{\"sliding_window\":512,\"max_window_layers\":1}"));
    ck_assert_str_eq(windows(), "0 0");
    CHECK_OK(parse_as("qwen2", "{\"sliding_window\":512,\"use_sliding_window\":true,"
                               "\"max_window_layers\":1}"));
    ck_assert_str_eq(windows(), "0 512");
    CHECK_OK(parse_as("qwen2", "{\"sliding_window\":512,\"use_sliding_window\":true,"
                               "\"max_window_layers\":2}"));
    ck_assert_str_eq(windows(), "0 0");
    CHECK_OK(parse_as("qwen3", "{\"use_sliding_window\":true,\"max_window_layers\":0}"));
    ck_assert_str_eq(windows(), "4096 4096");
    CHECK_OK(parse_as("qwen3", "{\"sliding_window\":512,\"use_sliding_window\":true}"));
    ck_assert_str_eq(windows(), "0 0"); /* the class has windows from layer 28 on */
}
END_TEST

START_TEST(a_list_of_layer_types_alone_says_it)
{
    CHECK_OK(parse_as("qwen3", "{\"sliding_window\":512,\"use_sliding_window\":true,"
                               "\"layer_types\":[\"full_attention\",\"full_attention\"],"
                               "\"max_window_layers\":0}"));
    ck_assert_str_eq(windows(), "0 0");
    CHECK_OK(parse_as("qwen3", "{\"sliding_window\":512,\"use_sliding_window\":true,"
                               "\"layer_types\":[\"sliding_attention\",\"full_attention\"]}"));
    ck_assert_str_eq(windows(), "512 0");
    CHECK_ERR(parse_as("qwen3", "{\"sliding_window\":512,"
                                "\"layer_types\":[\"full_attention\",\"sliding_attention\"]}"),
              ERR_FORMAT,
              "for layer 1, but \"sliding_window\" is not set, or \"use_sliding_window");
    CHECK_ERR(parse_as("qwen3", "{\"layer_types\":[\"full_attention\",\"chunked_attention\"]}"),
              ERR_UNSUPPORTED, "\"chunked_attention\" for layer 1");
    CHECK_ERR(parse_as("qwen3", "{\"layer_types\":[\"full_attention\"]}"), ERR_FORMAT,
              "list of 2 names");
}
END_TEST

START_TEST(llama_has_no_window)
{
    CHECK_OK(parse_as("llama", "{\"sliding_window\":null}"));
    ck_assert_str_eq(windows(), "0 0");
    CHECK_OK(parse_as("llama", "{\"sliding_window\":2048}")); /* as far as positions go */
    ck_assert_str_eq(windows(), "0 0");
    CHECK_OK(parse_as("llama", "{\"sliding_window\":512,"
                               "\"layer_types\":[\"full_attention\",\"full_attention\"]}"));
    ck_assert_str_eq(windows(), "0 0");
    CHECK_ERR(parse_as("llama", "{\"sliding_window\":512}"), ERR_UNSUPPORTED,
              "\"sliding_window\" = 512 is not supported, because a llama model");
}
END_TEST

/* The layers of a part of the model keep what they had, and the table is the one that a model of
 * these layers alone would have. */
START_TEST(chosen_layers_keep_their_windows)
{
    const int last[] = {1};
    CHECK_OK(parse_as("qwen3", "{\"sliding_window\":512,\"use_sliding_window\":true,"
                               "\"layer_types\":[\"full_attention\",\"sliding_attention\"]}"));
    struct model_config part = cfg, more = cfg;
    config_choose_layers(&part, last, 1);
    ck_assert_int_eq(part.n_layers, 1);
    ck_assert_int_eq(config_layer(&part, 0)->window, 512);
    ck_assert_int_eq(part.layers.of[0], 0);
    ck_assert_int_eq(part.layers.kinds[1].window, 0);
    config_choose_layers(&more, NULL, 5);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(config_layer(&more, i)->window, i % 2 ? 512 : 0);
    }
}
END_TEST

START_TEST(both_styles_of_rope_keys_mean_the_same)
{
    CHECK_OK(parse_as("llama", "{\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"llama3\","
                               "\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
                               "\"original_max_position_embeddings\":512}}"));
    struct rope_config old = cfg.ropes[0];
    ck_assert_int_eq(old.kind, ROPE_LLAMA3);
    ck_assert_double_eq(old.theta, 500000);
    ck_assert_double_eq(old.factor, 8);
    ck_assert_double_eq(old.low_freq_factor, 1);
    ck_assert_double_eq(old.high_freq_factor, 4);
    ck_assert_int_eq(old.original_max_positions, 512);
    CHECK_OK(parse_as("llama", "{\"rope_parameters\":{\"rope_theta\":500000,"
                               "\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
                               "\"high_freq_factor\":4,"
                               "\"original_max_position_embeddings\":512}}"));
    ck_assert_mem_eq(&old, &cfg.ropes[0], sizeof old);
    CHECK_OK(parse_as("llama", "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}}"));
    ck_assert_int_eq(cfg.ropes[0].kind, ROPE_LINEAR);
    ck_assert_double_eq(cfg.ropes[0].factor, 2.5);
    CHECK_OK(parse_as("llama", "{\"rope_scaling\":{}}"));
    ck_assert_int_eq(cfg.ropes[0].kind, ROPE_DEFAULT);
    CHECK_OK(parse_as("llama", "{\"rope_scaling\":null,\"rope_parameters\":{\"rope_theta\":7,"
                               "\"rope_type\":\"default\"}}"));
    ck_assert_double_eq(cfg.ropes[0].theta, 7);
}
END_TEST

#define YARN "\"rope_type\":\"yarn\",\"factor\":4"

START_TEST(yarn_factors_are_those_of_transformers)
{
    CHECK_OK(parse_as("llama", "{\"rope_scaling\":{" YARN "}}"));
    ck_assert_int_eq(cfg.ropes[0].kind, ROPE_YARN);
    ck_assert_int_eq(cfg.ropes[0].original_max_positions, 2048);
    ck_assert_double_eq(cfg.ropes[0].beta_fast, 32);
    ck_assert_double_eq(cfg.ropes[0].beta_slow, 1);
    ck_assert(cfg.ropes[0].truncate);
    ck_assert_double_eq_tol(cfg.ropes[0].attention_factor, 0.1 * log(4) + 1, 1e-14);
    CHECK_OK(parse_as("llama", "{\"rope_scaling\":{" YARN ",\"mscale\":1.5,\"mscale_all_dim\":0.5,"
                               "\"beta_fast\":8,\"beta_slow\":2,\"truncate\":false}}"));
    ck_assert_double_eq_tol(cfg.ropes[0].attention_factor,
                            (0.15 * log(4) + 1) / (0.05 * log(4) + 1), 1e-14);
    ck_assert_double_eq(cfg.ropes[0].beta_fast, 8);
    ck_assert_double_eq(cfg.ropes[0].beta_slow, 2);
    ck_assert(!cfg.ropes[0].truncate);
    CHECK_OK(parse_as("llama", "{\"rope_scaling\":{" YARN ",\"mscale\":1.5}}")); /* needs both */
    ck_assert_double_eq_tol(cfg.ropes[0].attention_factor, 0.1 * log(4) + 1, 1e-14);
    CHECK_OK(parse_as("llama", "{\"rope_scaling\":{" YARN ",\"attention_factor\":1.25}}"));
    ck_assert_double_eq(cfg.ropes[0].attention_factor, 1.25);
    CHECK_OK(parse_as("llama", "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":null,"
                               "\"original_max_position_embeddings\":256}}"));
    ck_assert_double_eq(cfg.ropes[0].factor, 8);
    CHECK_OK(parse_as("llama", "{\"original_max_position_embeddings\":64,"
                               "\"rope_scaling\":{" YARN "}}"));
    ck_assert_int_eq(cfg.ropes[0].original_max_positions, 64);
}
END_TEST

struct refusal {
    const char *family, *patch;
    int code;
    const char *text;
};

static const struct refusal rope_refusals[] = {
    {"llama", "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":1e-300}}", ERR_FORMAT,
     "outside of [1e-6, 1e9]"},
    {"llama", "{\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}", ERR_UNSUPPORTED,
     "\"dynamic\" is not supported"},
    {"llama", "{\"rope_scaling\":{\"rope_type\":\"longrope\"}}", ERR_UNSUPPORTED, "\"longrope\""},
    {"llama", "{\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[1]}}", ERR_UNSUPPORTED,
     "\"mrope\""},
    {"llama", "{\"rope_scaling\":{\"type\":\"linear\",\"rope_type\":\"yarn\",\"factor\":2}}",
     ERR_UNSUPPORTED, "differ"},
    {"llama", "{\"rope_scaling\":{\"type\":\"linear\"}}", ERR_FORMAT, "lacks \"factor\""},
    {"llama", "{\"rope_scaling\":{\"rope_type\":\"yarn\"}}", ERR_FORMAT, "lacks \"factor\""},
    {"llama", "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}", ERR_FORMAT,
     "\"factor\" = 0"},
    {"llama", "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"2\"}}", ERR_FORMAT,
     "not a number"},
    {"llama", "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"beta_fast\":3}}",
     ERR_UNSUPPORTED, "unknown key \"beta_fast\" = 3 with rope type \"linear\""},
    {"llama", "{\"rope_scaling\":{\"rope_type\":\"default\",\"factor\":2}}", ERR_UNSUPPORTED,
     "unknown key \"factor\""},
    {"llama", "{\"rope_scaling\":[1]}", ERR_FORMAT, "not an object"},
    {"llama", "{\"rope_scaling\":{\"rope_type\":3}}", ERR_FORMAT, "not a string"},
    {"llama",
     "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
     "\"rope_parameters\":{\"rope_theta\":5}}",
     ERR_UNSUPPORTED, "differ"},
    {"llama", "{\"rope_theta\":10000,\"rope_parameters\":{\"rope_theta\":5}}", ERR_UNSUPPORTED,
     "\"rope_theta\" = 5"},
    {"llama", "{\"rope_theta\":0}", ERR_FORMAT, "rope_theta"},
    {"llama", "{\"rope_theta\":-1e4}", ERR_FORMAT, "rope_theta"},
    {"llama", "{\"rope_theta\":1}", ERR_FORMAT, "rope_theta"},
    {"llama", "{\"rope_parameters\":{\"rope_theta\":100,\"partial_rotary_factor\":0.5}}",
     ERR_UNSUPPORTED, "partial_rotary_factor"},
    {"llama", "{\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}}",
     ERR_UNSUPPORTED, "full_attention"},
    {"llama",
     "{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
     "\"high_freq_factor\":4}}",
     ERR_FORMAT, "high_freq_factor"},
    {"llama", "{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}", ERR_FORMAT,
     "lacks \"low_freq_factor\""},
    {"llama", "{\"rope_scaling\":{" YARN ",\"attention_factor\":0}}", ERR_FORMAT,
     "attention_factor"},
    {"llama", "{\"rope_scaling\":{" YARN ",\"beta_fast\":1,\"beta_slow\":2}}", ERR_FORMAT,
     "not in order"},
    {"llama", "{\"rope_scaling\":{" YARN ",\"original_max_position_embeddings\":0}}", ERR_FORMAT,
     "original_max_position_embeddings"},
};

static const struct refusal key_refusals[] = {
    {"llama", "{\"architectures\":[\"GemmaForCausalLM\"]}", ERR_UNSUPPORTED,
     "\"architectures\" = [\"GemmaForCausalLM\"] is not supported; these are: LlamaForCausalLM, "
     "Mistral"},
    {"llama", "{\"architectures\":[]}", ERR_UNSUPPORTED, "architectures"},
    {"llama", "{\"architectures\":\"DELETE\",\"model_type\":\"DELETE\"}", ERR_FORMAT,
     "lacks \"architectures\""},
    {"llama", "{\"model_type\":\"mistral\"}", ERR_UNSUPPORTED, "\"model_type\" = \"mistral\""},
    {"llama", "{\"hidden_act\":\"gelu\"}", ERR_UNSUPPORTED, "\"hidden_act\" = \"gelu\""},
    {"llama", "{\"quantization_config\":{\"bits\":4,\"quant_method\":\"hqq\"}}", ERR_UNSUPPORTED,
     "quantized by \"hqq\", which is not supported"},
    {"llama",
     "{\"quantization_config\":{\"bits\":4,\"quant_method\":\"awq\",\"version\":\"gemv\"}}",
     ERR_UNSUPPORTED, "\"version\" = \"gemv\""},
    {"llama", "{\"quantization_config\":{\"bits\":3,\"quant_method\":\"awq\"}}", ERR_UNSUPPORTED,
     "\"bits\" = 3"},
    {"llama", "{\"quantization_config\":{\"quant_method\":\"awq\"}}", ERR_UNSUPPORTED,
     "without \"bits\""},
    {"llama", "{\"quantization_config\":{\"bits\":2,\"quant_method\":\"gptq\"}}", ERR_UNSUPPORTED,
     "\"bits\" = 2"},
    {"llama", "{\"quantization_config\":{\"bits\":4,\"quant_method\":\"gptq\",\"group_size\":16}}",
     ERR_UNSUPPORTED, "\"group_size\" = 16, which is no multiple of 32"},
    {"llama", "{\"quantization_config\":{\"bits\":4,\"quant_method\":\"gptq\",\"group_size\":-2}}",
     ERR_FORMAT, "group_size"},
    {"llama",
     "{\"quantization_config\":{\"bits\":4,\"quant_method\":\"gptq\","
     "\"checkpoint_format\":\"marlin\"}}",
     ERR_UNSUPPORTED, "\"checkpoint_format\" = \"marlin\""},
    {"llama", "{\"quantization_config\":{\"load_in_8bit\":true,\"llm_int8_threshold\":6.0}}",
     ERR_UNSUPPORTED, "quantized by \"bitsandbytes\""},
    {"llama",
     "{\"quantization_config\":{\"load_in_8bit\":false,\"load_in_4bit\":true,"
     "\"bnb_4bit_quant_type\":\"nf4\"}}",
     ERR_UNSUPPORTED, "quantized by \"bitsandbytes\""},
    {"llama", "{\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128]}}",
     ERR_UNSUPPORTED, "\"weight_block_size\" is [128], not two sizes"},
    {"llama",
     "{\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,-128]}}",
     ERR_UNSUPPORTED, "\"weight_block_size\" is [128,-128]"},
    {"llama", "{\"quantization_config\":{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"}}",
     ERR_UNSUPPORTED, "\"quant_algo\" = \"NVFP4\""},
    {"llama", "{\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}}",
     ERR_UNSUPPORTED, "\"fmt\" = \"e5m2\""},
    {"llama", "{\"quantization_config\":{\"bits\":4}}", ERR_UNSUPPORTED, "{\"bits\":4}"},
    {"llama", "{\"pretraining_tp\":2}", ERR_UNSUPPORTED, "\"pretraining_tp\" = 2"},
    {"llama", "{\"partial_rotary_factor\":0.5}", ERR_UNSUPPORTED, "partial_rotary_factor"},
    {"llama", "{\"logit_scale\":0.0625}", ERR_UNSUPPORTED, "\"logit_scale\" = 0.0625"},
    {"llama", "{\"logits_scaling\":8}", ERR_UNSUPPORTED, "logits_scaling"},
    {"llama", "{\"attention_multiplier\":0.1}", ERR_UNSUPPORTED, "attention_multiplier"},
    {"llama", "{\"residual_multiplier\":0.22}", ERR_UNSUPPORTED, "residual_multiplier"},
    {"llama", "{\"embedding_multiplier\":12}", ERR_UNSUPPORTED, "embedding_multiplier"},
    {"llama", "{\"final_logit_softcapping\":30}", ERR_UNSUPPORTED, "final_logit_softcapping"},
    {"llama", "{\"attn_logit_softcapping\":50}", ERR_UNSUPPORTED, "attn_logit_softcapping"},
    {"llama", "{\"is_encoder_decoder\":true}", ERR_UNSUPPORTED, "is_encoder_decoder"},
    {"llama", "{\"pruned_heads\":{\"0\":[1]}}", ERR_UNSUPPORTED, "pruned_heads"},
    {"llama", "{\"per_layer_config\":{\"0\":{\"head_dim\":32}}}", ERR_UNSUPPORTED,
     "per_layer_config"},
    {"llama", "{\"num_experts\":8}", ERR_UNSUPPORTED, "num_experts"},
    {"llama", "{\"activation\":\"relu\"}", ERR_UNSUPPORTED, "\"activation\" = \"relu\""},
    {"llama", "{\"no_rope_layers\":[1,0]}", ERR_UNSUPPORTED, "no_rope_layers"},
    {"llama", "{\"dual_chunk_attention_config\":{\"chunk_size\":8}}", ERR_UNSUPPORTED,
     "dual_chunk_attention_config"},
    {"llama", "{\"mlp_only_layers\":[1]}", ERR_UNSUPPORTED, "mlp_only_layers"},
    {"llama", "{\"quantization\":{\"bits\":4,\"group_size\":64}}", ERR_UNSUPPORTED,
     "\"quantization\" = "},
    {"llama", "{\"position_embedding_type\":\"nope\"}", ERR_UNSUPPORTED, "position_embedding_type"},
    {"llama", "{\"logit_scale\":0}", ERR_UNSUPPORTED, "\"logit_scale\" = 0"},
    {"llama", "{\"final_logit_softcapping\":\"x\"}", ERR_UNSUPPORTED, "softcapping"},
};

static const struct refusal value_refusals[] = {
    {"llama", "{\"hidden_size\":\"DELETE\"}", ERR_FORMAT, "lacks \"hidden_size\""},
    {"llama", "{\"vocab_size\":null}", ERR_FORMAT, "lacks \"vocab_size\""},
    {"llama", "{\"num_hidden_layers\":0}", ERR_FORMAT, "num_hidden_layers"},
    {"llama", "{\"hidden_size\":-128}", ERR_FORMAT, "hidden_size"},
    {"llama", "{\"hidden_size\":1e300}", ERR_FORMAT, "not an integer"},
    {"llama", "{\"vocab_size\":9223372036854775807}", ERR_FORMAT, "vocab_size"},
    {"llama", "{\"intermediate_size\":4294967552}", ERR_FORMAT, "intermediate_size"},
    {"llama", "{\"intermediate_size\":255}", ERR_UNSUPPORTED, "\"intermediate_size\" = 255"},
    {"llama", "{\"hidden_size\":127,\"head_dim\":16}", ERR_UNSUPPORTED, "\"hidden_size\" = 127"},
    {"llama", "{\"hidden_size\":132}", ERR_FORMAT, "no multiple"},
    {"llama", "{\"head_dim\":17}", ERR_UNSUPPORTED, "\"head_dim\" = 17"},
    {"llama", "{\"head_dim\":24}", ERR_UNSUPPORTED, "\"head_dim\" = 24"},
    {"llama", "{\"head_dim\":512}", ERR_UNSUPPORTED, "multiples of 16 up to 256"},
    {"llama", "{\"head_dim\":0}", ERR_FORMAT, "head_dim"},
    {"llama", "{\"num_key_value_heads\":3}", ERR_FORMAT, "no multiple"},
    {"llama", "{\"num_key_value_heads\":16}", ERR_FORMAT, "no multiple"},
    {"llama", "{\"num_attention_heads\":1048576,\"head_dim\":256,\"num_key_value_heads\":1}",
     ERR_UNSUPPORTED, "wider than"},
    {"llama", "{\"max_position_embeddings\":0}", ERR_FORMAT, "max_position_embeddings"},
    {"llama", "{\"rms_norm_eps\":0}", ERR_FORMAT, "rms_norm_eps"},
    {"llama", "{\"rms_norm_eps\":-1}", ERR_FORMAT, "rms_norm_eps"},
    {"llama", "{\"tie_word_embeddings\":1}", ERR_FORMAT, "tie_word_embeddings"},
    {"llama", "{\"eos_token_id\":1000}", ERR_FORMAT, "1000, which is no token"},
    {"llama", "{\"eos_token_id\":[1,-1]}", ERR_FORMAT, "-1, which is no token"},
    {"llama", "{\"eos_token_id\":\"</s>\"}", ERR_FORMAT, "no token"},
    {"llama", "{\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}", ERR_UNSUPPORTED,
     "more than 16"},
    {"llama", "{\"bos_token_id\":1000}", ERR_FORMAT, "bos_token_id"},
};

static void check_refusals(const struct refusal *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int rc = parse_as(list[i].family, list[i].patch);
        ck_assert_msg(rc == list[i].code, "%s: rc %d, wanted %d (%s)", list[i].patch, rc,
                      list[i].code, rc ? err.text : "success");
        ck_assert_msg(strstr(err.text, list[i].text) != NULL, "%s: '%s' lacks '%s'", list[i].patch,
                      err.text, list[i].text);
        ck_assert_msg(strstr(err.text, "test.json") != NULL, "'%s' lacks the file", err.text);
        ck_assert_int_eq(cfg.n_layers, 0); /* zeroed on failure */
    }
}

START_TEST(keys_that_nobody_knows_are_listed)
{
    static const struct {
        const char *members, *listed;
        int n;
    } cases[] = {
        {"", "", 0},
        {"\"clever_trick\":0.5", "\"clever_trick\"", 1},
        {"\"a\":false,\"b\":0,\"c\":0.0,\"d\":\"\",\"e\":{},\"f\":[],\"g\":null", "", 0},
        {"\"is_llama_config\":true,\"transformers.js_config\":{\"x\":1},\"pad_token\":\"</s>\"", "",
         0},
        {"\"activation\":\"swiglu\",\"neftune_noise_alpha\":5.0,\"use_reentrant\":true", "", 0},
        {"\"attn_temperature_tuning\":false,\"rope_interleaved\":false,\"num_experts\":[]", "", 0},
        {"\"one\":Infinity,\"two\":[-Infinity,NaN]", "\"one\", \"two\"", 2},
        {"\"k1\":1,\"k2\":1,\"k3\":1,\"k4\":1,\"k5\":1,\"k6\":1,\"k7\":1", " and 2 more", 7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        snprintf(text, sizeof text, "%.*s%s%s}", (int)sizeof llama - 2, llama,
                 *cases[i].members ? "," : "", cases[i].members);
        CHECK_OK(parse(text, NULL));
        ck_assert_int_eq(rest.n_unknown, cases[i].n);
        ck_assert_msg(strstr(rest.unknown, cases[i].listed) != NULL, "%s", rest.unknown);
        ck_assert_int_eq(*rest.unknown == '\0', cases[i].n == 0);
    }
}
END_TEST

/* A key that only parallel drafts have counts before one that others may have too. */
START_TEST(mask_token_is_read_by_all_its_names)
{
    static const struct {
        const char *members, *key;
        int id;
    } cases[] = {
        {"\"pard_token\":7,\"spd_type\":\"pard\"", "pard_token", 7},
        {"\"ptd_token_id\":0", "ptd_token_id", 0},
        {"\"mask_token_id\":2147483647", "mask_token_id", INT32_MAX},
        {"\"mask_token_id\":5,\"pard_token\":6", "pard_token", 6},
        {"\"mask_token_id\":5,\"pard_token\":-1", NULL, 0},
        {"\"mask_token_id\":[5]", NULL, 0},
        {"\"pard_token\":null,\"ptd_token_id\":null,\"mask_token_id\":3", "mask_token_id", 3},
    };
    char text[1024];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "%.*s,%s}", (int)sizeof llama - 2, llama, cases[i].members);
        CHECK_OK(parse(text, NULL));
        ck_assert_int_eq(rest.n_unknown, 0);
        ck_assert_int_eq(rest.mask.key == NULL, cases[i].key == NULL);
        if (!cases[i].key) continue;
        ck_assert_str_eq(rest.mask.key, cases[i].key);
        ck_assert_int_eq(rest.mask.id, cases[i].id);
    }
    snprintf(text, sizeof text, "%.*s,\"pard_token\":7.5}", (int)sizeof llama - 2, llama);
    CHECK_ERR(parse(text, NULL), ERR_FORMAT, "pard_token");
}
END_TEST

/* A value of `text` in a line of its own after the dimensions. */
static int parse_ending(const char *ending)
{
    char text[1024];
    snprintf(text, sizeof text, "%.*s,\n%s", (int)sizeof llama - 2, llama, ending);
    return parse(text, NULL);
}

START_TEST(endless_numbers_are_read_as_python_reads_them)
{
    CHECK_OK(parse_ending("\"time_step_limit\":[0.0, Infinity], \"n\":NaN,\"m\" : -Infinity}"));
    CHECK_OK(parse_ending("\"a \\\" b\":\": Infinity\"}"));
    CHECK_ERR(parse_ending("\"rope_theta\":Infinity}"), ERR_FORMAT, "rope_theta");
    CHECK_ERR(parse_ending("\"rms_norm_eps\":NaN}"), ERR_FORMAT, "rms_norm_eps");
    CHECK_ERR(parse_ending("\"logit_scale\":-Infinity}"), ERR_UNSUPPORTED, "\"-Infinity\"");
    CHECK_ERR(parse_ending("\"n\":NaN, ?}"), ERR_FORMAT, "line 2, column 10");
    CHECK_ERR(parse_ending("\"n\":NaNs}"), ERR_FORMAT, "line 2");
    CHECK_ERR(parse_ending("\"n\":nan}"), ERR_FORMAT, "line 2");
    CHECK_ERR(parse_ending("\"n\":+Infinity}"), ERR_FORMAT, "line 2");
    CHECK_ERR(parse_ending("NaN:1}"), ERR_FORMAT, "line 2");
    CHECK_OK(parse(llama, "{\"eos_token_id\":1,\"length_penalty\":Infinity}"));
    CHECK_ERR(parse(llama, "{\"temperature\":Infinity}"), ERR_FORMAT, "temperature");
}
END_TEST

START_TEST(orders_of_quantizing_that_leave_no_trace_are_read)
{
    static const char *const orders[] = {"\"weight\"", "\"static\"", "null", "false"};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        char patch[640];
        snprintf(patch, sizeof patch,
                 "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\","
                 "\"format\":\"pack-quantized\",\"config_groups\":{\"group_0\":{"
                 "\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":4,\"type\":\"int\","
                 "\"symmetric\":true,\"strategy\":\"group\",\"group_size\":128,"
                 "\"actorder\":%s}}}}}",
                 orders[i]);
        CHECK_OK(parse_as("llama", patch));
        ck_assert_int_eq(cfg.stored, WEIGHTS_INT4);
    }
}
END_TEST

/* The tensors say more; here only what the config decides. */
START_TEST(stored_formats_are_understood)
{
    static const struct {
        const char *config;
        enum quant_method method;
    } cases[] = {
        {"{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128,\"version\":\"GEMM\","
         "\"zero_point\":true,\"modules_to_not_convert\":null,\"do_fuse\":false}",
         QUANT_AWQ},
        {"{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1,\"desc_act\":false,"
         "\"sym\":true,\"meta\":{\"quantizer\":[\"x\"]},\"pack_dtype\":\"int32\"}",
         QUANT_GPTQ},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,"
         "\"checkpoint_format\":\"gptq_v2\"}",
         QUANT_GPTQ_V2},
        {"{\"quant_method\":\"fp8\",\"activation_scheme\":\"dynamic\",\"fmt\":\"e4m3\","
         "\"weight_block_size\":[128,128]}",
         QUANT_COMPRESSED},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"mixed-precision\","
         "\"config_groups\":{\"a\":{\"targets\":[\"re:.*up\"],\"weights\":{\"num_bits\":4,"
         "\"type\":\"int\"}},\"b\":{\"weights\":{\"num_bits\":8,\"type\":\"float\","
         "\"strategy\":\"channel\"}}}}",
         QUANT_COMPRESSED},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\",\"kv_cache_quant_algo\":\"FP8\"}",
         QUANT_COMPRESSED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct quant_scheme scheme;
        struct model_config own = {0};
        json_t *root = json_pack("{s:o}", i % 2 ? "quantization_config" : "compression_config",
                                 json_loads(cases[i].config, 0, NULL));
        CHECK_OK(config_quant_read(&own, &scheme, root, "test.json", &err));
        ck_assert_int_eq(own.stored, WEIGHTS_BLOCKS);
        ck_assert_int_eq(scheme.method, cases[i].method);
        json_decref(root);
    }
}
END_TEST

START_TEST(ropes_out_of_reach_are_refused)
{
    check_refusals(rope_refusals, sizeof rope_refusals / sizeof *rope_refusals);
}
END_TEST

START_TEST(keys_that_change_the_result_are_refused)
{
    check_refusals(key_refusals, sizeof key_refusals / sizeof *key_refusals);
}
END_TEST

START_TEST(senseless_values_are_refused)
{
    check_refusals(value_refusals, sizeof value_refusals / sizeof *value_refusals);
}
END_TEST

START_TEST(neutral_values_and_harmless_keys_pass)
{
    CHECK_OK(parse_as("llama", "{\"pretraining_tp\":1,\"partial_rotary_factor\":1.0,"
                               "\"logits_scaling\":1,\"quantization_config\":null,"
                               "\"hidden_act\":\"swish\",\"pruned_heads\":{},"
                               "\"is_encoder_decoder\":false,\"num_experts\":0,"
                               "\"some_new_thing\":null,\"torch_dtype\":\"bfloat16\","
                               "\"dtype\":\"float16\",\"transformers_version\":\"5.0.0\","
                               "\"use_cache\":true,\"initializer_range\":0.02,\"top_k\":50,"
                               "\"pad_token_id\":-1,\"_name_or_path\":\"x\"}"));
    CHECK_OK(parse_as("llama", "{\"architectures\":null}"));
    ck_assert_str_eq(cfg.architecture, "LlamaForCausalLM");
    CHECK_OK(parse_as("llama", "{\"model_type\":\"DELETE\",\"rms_norm_eps\":\"DELETE\"}"));
    ck_assert(cfg.norm_eps == 1e-6f);
}
END_TEST

START_TEST(eos_is_the_union_of_both_files)
{
    char with_eos[sizeof llama + 64];
    snprintf(with_eos, sizeof with_eos, "%.*s,\"eos_token_id\":7,\"bos_token_id\":1}",
             (int)sizeof llama - 2, llama);
    CHECK_OK(parse(with_eos, NULL));
    ck_assert_int_eq(cfg.ends.n, 1);
    ck_assert_int_eq(cfg.bos_id, 1);
    CHECK_OK(parse(with_eos, "{\"eos_token_id\":[9,7,3],\"temperature\":0.6}"));
    ck_assert_int_eq(cfg.ends.n, 3);
    ck_assert_int_eq(cfg.ends.ids[0], 3);
    ck_assert_int_eq(cfg.ends.ids[1], 7);
    ck_assert_int_eq(cfg.ends.ids[2], 9);
    CHECK_OK(parse(with_eos, "{\"eos_token_id\":null}"));
    ck_assert_int_eq(cfg.ends.n, 1);
    CHECK_ERR(parse(with_eos, "{\"eos_token_id\":5000}"), ERR_FORMAT, "generation_config.json");
    CHECK_ERR(parse(with_eos, "[]"), ERR_FORMAT, "generation_config.json is not an object");
    CHECK_ERR(parse(with_eos, "{"), ERR_FORMAT, "is not JSON");
}
END_TEST

START_TEST(generation_config_says_how_to_sample)
{
    char with_eos[sizeof llama + 64];
    snprintf(with_eos, sizeof with_eos, "%.*s,\"eos_token_id\":7}", (int)sizeof llama - 2, llama);
    CHECK_OK(parse(with_eos, "{\"temperature\": 0.6, \"top_k\": -1, \"top_p\": 0.95,"
                             " \"repetition_penalty\": 1.05, \"do_sample\": true}"));
    ck_assert(cfg.sampling.temperature == 0.6f && cfg.sampling.top_p == 0.95f);
    ck_assert(cfg.sampling.top_k == 0 && cfg.sampling.min_p == CONFIG_OPEN);
    ck_assert(cfg.sampling.repetition_penalty == 1.05f);
    CHECK_OK(parse(with_eos, "{\"temperature\": null}"));
    ck_assert(cfg.sampling.temperature == CONFIG_OPEN && cfg.sampling.top_k == CONFIG_OPEN);
    CHECK_OK(parse(with_eos, NULL));
    ck_assert(cfg.sampling.temperature == CONFIG_OPEN);
    CHECK_ERR(parse(with_eos, "{\"top_p\": 1.5}"), ERR_FORMAT, "\"top_p\" is 1.5, must be");
    CHECK_ERR(parse(with_eos, "{\"temperature\": -1}"), ERR_FORMAT, "\"temperature\" is -1");
    CHECK_ERR(parse(with_eos, "{\"repetition_penalty\": 0.009}"), ERR_FORMAT,
              "\"repetition_penalty\" is 0.009, must be 0.01 to 10");
    CHECK_OK(parse(with_eos, "{\"repetition_penalty\": 0.01}"));
}
END_TEST

START_TEST(files_that_are_no_json_are_refused)
{
    CHECK_ERR(parse("", NULL), ERR_FORMAT, "is not JSON");
    CHECK_ERR(parse("{\"a\":1,\"a\":2}", NULL), ERR_FORMAT, "duplicate");
    CHECK_ERR(parse("[1]", NULL), ERR_FORMAT, "not an object");
    CHECK_ERR(parse("{\"model_type\":3}", NULL), ERR_FORMAT, "not a string");
}
END_TEST

static int slices(int n_heads, int n_kv_heads, int ffn_dim)
{
    struct model_config shape = {.n_heads = n_heads, .n_kv_heads = n_kv_heads, .ffn_dim = ffn_dim};
    return config_slices(&shape);
}

START_TEST(slices_of_blocks_are_whole_groups)
{
    struct model_config shape = {.n_heads = 16,
                                 .n_kv_heads = 16,
                                 .head_dim = 128,
                                 .ffn_dim = 5504,
                                 .stored = WEIGHTS_BLOCKS};
    ck_assert_int_eq(config_slices(&shape), 4); /* 5504 / 8 is 21.5 groups */
    shape.stored = WEIGHTS_BF16;
    ck_assert_int_eq(config_slices(&shape), 8);
    shape.stored = WEIGHTS_BLOCKS;
    shape.ffn_dim = 5632;
    ck_assert_int_eq(config_slices(&shape), 8);
    shape.head_dim = 16;
    ck_assert_int_eq(config_slices(&shape), 8);
    shape.head_dim = 8;
    ck_assert_int_eq(config_slices(&shape), 4);
}
END_TEST

START_TEST(slices_follow_the_rule_of_the_design)
{
    ck_assert_int_eq(slices(32, 8, 14336), 8);
    ck_assert_int_eq(slices(64, 8, 28672), 8);
    ck_assert_int_eq(slices(14, 2, 4864), 2); /* Qwen2.5-0.5B */
    ck_assert_int_eq(slices(12, 2, 8960), 4);
    ck_assert_int_eq(slices(28, 4, 18944), 4);
    ck_assert_int_eq(slices(8, 1, 256), 8);
    ck_assert_int_eq(slices(24, 6, 1024), 2); /* 6 % 8 and 6 % 4 are in the way */
    ck_assert_int_eq(slices(8, 8, 12), 2);    /* half of the FFN is 6 */
    ck_assert_int_eq(slices(3, 1, 1024), 1);  /* 1024 is no multiple of 3 */
    ck_assert_int_eq(slices(9, 3, 1536), 3);  /* SmolLM2-135M */
    ck_assert_int_eq(slices(15, 5, 2560), 5);
    ck_assert_int_eq(slices(11, 11, 1536), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config");
    TCase *tcase = tcase_create("config");
    tcase_add_test(tcase, llama_dimensions_are_read);
    tcase_add_test(tcase, missing_heads_take_the_default_of_the_class);
    tcase_add_test(tcase, biases_belong_to_the_architecture);
    tcase_add_test(tcase, mistral_has_a_window_in_all_layers);
    tcase_add_test(tcase, qwen_says_which_layers_have_a_window);
    tcase_add_test(tcase, a_list_of_layer_types_alone_says_it);
    tcase_add_test(tcase, llama_has_no_window);
    tcase_add_test(tcase, chosen_layers_keep_their_windows);
    tcase_add_test(tcase, both_styles_of_rope_keys_mean_the_same);
    tcase_add_test(tcase, yarn_factors_are_those_of_transformers);
    tcase_add_test(tcase, keys_that_nobody_knows_are_listed);
    tcase_add_test(tcase, mask_token_is_read_by_all_its_names);
    tcase_add_test(tcase, endless_numbers_are_read_as_python_reads_them);
    tcase_add_test(tcase, orders_of_quantizing_that_leave_no_trace_are_read);
    tcase_add_test(tcase, stored_formats_are_understood);
    tcase_add_test(tcase, ropes_out_of_reach_are_refused);
    tcase_add_test(tcase, keys_that_change_the_result_are_refused);
    tcase_add_test(tcase, senseless_values_are_refused);
    tcase_add_test(tcase, neutral_values_and_harmless_keys_pass);
    tcase_add_test(tcase, eos_is_the_union_of_both_files);
    tcase_add_test(tcase, generation_config_says_how_to_sample);
    tcase_add_test(tcase, files_that_are_no_json_are_refused);
    tcase_add_test(tcase, slices_follow_the_rule_of_the_design);
    tcase_add_test(tcase, slices_of_blocks_are_whole_groups);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
