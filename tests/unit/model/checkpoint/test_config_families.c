/* ctest: labels=quick libs=checkpoint timeout=60 */
/* The families with properties of their own: config.json as models are published with it, what the
 * classes of transformers take for keys that are missing, and values that are refused by name. */
#include "model/checkpoint/config/config_parse.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "tests/support/check_util.h"

static struct error err;
static struct model_config cfg;
static struct config_rest rest;

static int parse_text(const char *text)
{
    return config_parse(&cfg, text, strlen(text), NULL, 0, "test.json", &rest, &err);
}

/* A small model of the type with the members of `patch` on top; "DELETE" takes a key away. */
static int parse_as(const char *type, const char *patch)
{
    json_t *root = json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i}", "model_type", type, "vocab_size",
                             1000, "hidden_size", 64, "intermediate_size", 128, "num_hidden_layers",
                             4, "num_attention_heads", 4, "max_position_embeddings", 2048);
    json_t *over = json_loads(patch, 0, NULL);
    const char *key;
    json_t *value;
    ck_assert_msg(root && over, "the test's own JSON: %s", patch);
    json_object_foreach(over, key, value)
    {
        const char *text = json_string_value(value);
        if (text && strcmp(text, "DELETE") == 0) {
            json_object_del(root, key);
        } else {
            json_object_set(root, key, value);
        }
    }
    char *text = json_dumps(root, 0);
    int rc = parse_text(text);
    free(text);
    json_decref(root);
    json_decref(over);
    return rc;
}

/* The windows and the rotations of the first four layers: "512/1 512/1 0/0 0/-1". */
static const char *layers(void)
{
    static char text[96];
    size_t len = 0;
    for (int i = 0; i < 4; i++) {
        const struct layer_kind *kind = config_layer(&cfg, i);
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%d/%d", i ? " " : "",
                                kind->window, kind->rope);
    }
    return text;
}

START_TEST(gemma_2_is_read_as_it_is_published)
{
    CHECK_OK(parse_text(
        "{\"architectures\":[\"Gemma2ForCausalLM\"],\"attention_bias\":false,"
        "\"attention_dropout\":0.0,\"attn_logit_softcapping\":50.0,\"bos_token_id\":2,"
        "\"cache_implementation\":\"hybrid\",\"eos_token_id\":1,\"final_logit_softcapping\":30.0,"
        "\"head_dim\":256,\"hidden_act\":\"gelu_pytorch_tanh\","
        "\"hidden_activation\":\"gelu_pytorch_tanh\",\"hidden_size\":3584,"
        "\"initializer_range\":0.02,\"intermediate_size\":14336,"
        "\"max_position_embeddings\":8192,\"model_type\":\"gemma2\",\"num_attention_heads\":16,"
        "\"num_hidden_layers\":42,\"num_key_value_heads\":8,\"pad_token_id\":0,"
        "\"query_pre_attn_scalar\":256,\"rms_norm_eps\":1e-06,\"rope_theta\":10000.0,"
        "\"sliding_window\":4096,\"sliding_window_size\":4096,\"torch_dtype\":\"float32\","
        "\"use_cache\":true,\"vocab_size\":256000}"));
    ck_assert_int_eq(rest.n_unknown, 0);
    ck_assert(cfg.norms == NORMS_AROUND && cfg.norm_offset && cfg.tied_embeddings);
    ck_assert(cfg.activation == ACTIVATION_GELU_TANH && !cfg.qk_norm && !cfg.qk_norm_whole);
    ck_assert(cfg.embedding_scale == sqrtf(3584));
    ck_assert(cfg.logit_softcap == 30 && cfg.logit_scale == 0);
    ck_assert(config_layer(&cfg, 0)->attention_softcap == 50);
    ck_assert(config_layer(&cfg, 0)->attention_scale == 1.0f / 16);
    ck_assert_str_eq(layers(), "4096/0 0/0 4096/0 0/0");
}
END_TEST

START_TEST(gemma_2_has_the_defaults_of_its_class)
{
    CHECK_OK(parse_as("gemma2", "{}"));
    ck_assert_int_eq(cfg.n_kv_heads, 4);
    ck_assert_int_eq(cfg.head_dim, 256);
    ck_assert(cfg.logit_softcap == 30 && config_layer(&cfg, 0)->attention_softcap == 50);
    CHECK_OK(parse_as("gemma2", "{\"final_logit_softcapping\":null,"
                                "\"attn_logit_softcapping\":null}"));
    ck_assert(cfg.logit_softcap == 0 && config_layer(&cfg, 0)->attention_softcap == 0);
    CHECK_ERR(parse_as("gemma2", "{\"hidden_activation\":\"gelu\"}"), ERR_UNSUPPORTED,
              "\"hidden_activation\" = \"gelu\" is not supported for a gemma2 model");
    CHECK_ERR(parse_as("gemma2", "{\"final_logit_softcapping\":-3}"), ERR_FORMAT,
              "\"final_logit_softcapping\" = -3 is outside");
    CHECK_ERR(parse_as("gemma2", "{\"sliding_window\":null}"), ERR_FORMAT,
              "\"sliding_window\" is null");
    CHECK_ERR(parse_as("gemma2", "{\"use_bidirectional_attention\":true}"), ERR_UNSUPPORTED,
              "use_bidirectional_attention");
}
END_TEST

START_TEST(gemma_3_has_a_rotation_for_each_kind_of_layer)
{
    CHECK_OK(parse_as("gemma3_text",
                      "{\"head_dim\":32,\"sliding_window\":512,\"sliding_window_pattern\":2,"
                      "\"rope_theta\":1000000,\"rope_local_base_freq\":10000,"
                      "\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"}}"));
    ck_assert_int_eq(rest.n_unknown, 0);
    ck_assert(cfg.qk_norm && cfg.norm_offset && cfg.logit_softcap == 0);
    ck_assert_str_eq(layers(), "512/1 0/0 512/1 0/0");
    ck_assert_int_eq(config_n_ropes(&cfg), 2);
    ck_assert(cfg.ropes[0].kind == ROPE_LINEAR && cfg.ropes[0].factor == 8);
    ck_assert(cfg.ropes[0].theta == 1e6 && cfg.ropes[1].theta == 1e4);
    ck_assert_int_eq(cfg.ropes[1].kind, ROPE_DEFAULT);
    struct rope_config old[2] = {cfg.ropes[0], cfg.ropes[1]};
    CHECK_OK(parse_as(
        "gemma3_text",
        "{\"head_dim\":32,\"sliding_window\":512,\"layer_types\":[\"sliding_attention\","
        "\"full_attention\",\"sliding_attention\",\"full_attention\"],\"rope_parameters\":"
        "{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8.0,\"rope_theta\":1000000.0},"
        "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":10000.0}}}"));
    ck_assert_str_eq(layers(), "512/1 0/0 512/1 0/0");
    ck_assert_mem_eq(old, cfg.ropes, sizeof old);
    CHECK_OK(parse_as("gemma3_text", "{}")); /* every sixth layer has no window */
    ck_assert_str_eq(layers(), "4096/1 4096/1 4096/1 4096/1");
    ck_assert(cfg.ropes[0].theta == 1e6 && cfg.ropes[1].theta == 1e4);
    CHECK_ERR(parse_as("gemma3_text", "{\"attn_logit_softcapping\":50}"), ERR_UNSUPPORTED,
              "attn_logit_softcapping");
    CHECK_ERR(parse_as("gemma3_text", "{\"rope_parameters\":{\"full_attention\":7}}"), ERR_FORMAT,
              "not an object");
}
END_TEST

/* The class's defaults hold for what the text part leaves out, and ids outside of it are read. */
START_TEST(the_text_part_of_a_seeing_gemma_3_is_read)
{
    CHECK_OK(parse_text(
        "{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"boi_token_index\":255999,"
        "\"eoi_token_index\":256000,\"eos_token_id\":[1,106],\"image_token_index\":262144,"
        "\"initializer_range\":0.02,\"mm_tokens_per_image\":256,\"model_type\":\"gemma3\","
        "\"text_config\":{\"hidden_size\":2560,\"intermediate_size\":10240,"
        "\"model_type\":\"gemma3_text\",\"num_hidden_layers\":34,\"rope_scaling\":"
        "{\"factor\":8.0,\"rope_type\":\"linear\"},\"sliding_window\":1024},"
        "\"torch_dtype\":\"bfloat16\",\"vision_config\":{\"hidden_size\":1152,"
        "\"num_hidden_layers\":27}}"));
    ck_assert(rest.is_text_part);
    ck_assert_str_eq(cfg.architecture, "Gemma3ForCausalLM");
    ck_assert_int_eq(cfg.n_heads, 8);
    ck_assert_int_eq(cfg.n_kv_heads, 4);
    ck_assert_int_eq(cfg.vocab_size, 262208);
    ck_assert_int_eq(cfg.max_positions, 131072);
    ck_assert_int_eq(cfg.ends.n, 2);
    ck_assert_str_eq(layers(), "1024/1 1024/1 1024/1 1024/1");
    ck_assert(cfg.ropes[0].kind == ROPE_LINEAR && cfg.ropes[0].theta == 1e6);
    CHECK_ERR(parse_text("{\"model_type\":\"gemma3\"}"), ERR_FORMAT, "text_config");
    CHECK_ERR(parse_as("gemma3_text", "{\"vocab_size\":\"DELETE\"}"), ERR_FORMAT, "vocab_size");
}
END_TEST

START_TEST(a_seeing_mistral_has_a_text_part_of_either_class)
{
    static const char *const texts[] = {"mistral", "ministral3"};
    static const char *const wanted[] = {"MistralForCausalLM", "Ministral3ForCausalLM"};
    for (int i = 0; i < 2; i++) {
        char text[1200];
        snprintf(text, sizeof text,
                 "{\"architectures\":[\"Mistral3ForConditionalGeneration\"],"
                 "\"image_token_index\":10,\"model_type\":\"mistral3\",\"text_config\":{"
                 "\"head_dim\":128,\"hidden_act\":\"silu\",\"hidden_size\":4096,"
                 "\"intermediate_size\":14336,\"max_position_embeddings\":262144,"
                 "\"model_type\":\"%s\",\"num_attention_heads\":32,\"num_hidden_layers\":34,"
                 "\"num_key_value_heads\":8,\"rms_norm_eps\":1e-05,%s\"sliding_window\":null,"
                 "\"vocab_size\":131072},\"vision_config\":{}}",
                 texts[i],
                 i ? "\"rope_parameters\":{\"beta_fast\":32.0,\"beta_slow\":1.0,\"factor\":16.0,"
                     "\"llama_4_scaling_beta\":0.1,\"mscale\":1.0,\"mscale_all_dim\":1.0,"
                     "\"original_max_position_embeddings\":16384,\"rope_theta\":1000000.0,"
                     "\"rope_type\":\"yarn\",\"type\":\"yarn\"},"
                   : "\"rope_theta\":1000000000.0,");
        CHECK_OK(parse_text(text));
        ck_assert_str_eq(cfg.architecture, wanted[i]);
        ck_assert_int_eq(rest.n_unknown, 0);
        ck_assert(!cfg.tied_embeddings);
        ck_assert_int_eq(cfg.query_period, i ? 16384 : 0);
        ck_assert(cfg.query_beta == (i ? 0.1f : 0.0f));
    }
    ck_assert(cfg.ropes[0].kind == ROPE_YARN && cfg.ropes[0].attention_factor == 1);
    CHECK_ERR(parse_as("ministral3", "{\"num_key_value_heads\":4}"), ERR_FORMAT,
              "lacks \"rope_parameters\"");
    CHECK_ERR(parse_as("llama", "{\"rope_parameters\":{\"rope_type\":\"default\","
                                "\"llama_4_scaling_beta\":0.1}}"),
              ERR_UNSUPPORTED, "llama_4_scaling_beta");
}
END_TEST

/* 8 heads' pairs are 16 / 2 numbers; with half of a head 4. */
START_TEST(phi_has_factors_by_its_context)
{
    char text[700];
    const char *const form =
        "{\"original_max_position_embeddings\":%d,\"partial_rotary_factor\":0.5,"
        "\"rope_scaling\":{\"type\":\"%s\",\"long_factor\":[1,2,3,%s],"
        "\"short_factor\":[1,1,1,1.5]},\"sliding_window\":262144,\"full_attn_mod\":1,"
        "\"interpolate_factor\":1,\"lm_head_bias\":false,\"embd_pdrop\":0.0}";
    snprintf(text, sizeof text, form, 512, "longrope", "4");
    CHECK_OK(parse_as("phi3", text));
    ck_assert_int_eq(rest.n_unknown, 0);
    ck_assert_int_eq(cfg.ropes[0].kind, ROPE_LONG);
    ck_assert_int_eq(cfg.ropes[0].rotary_dim, 8);
    ck_assert(cfg.ropes[0].divisors[3] == 4 && cfg.ropes[0].divisors[4] == 0);
    ck_assert_double_eq_tol(cfg.ropes[0].attention_factor, sqrt(1 + log(4) / log(512)), 1e-12);
    snprintf(text, sizeof text, form, 2048, "su", "4");
    CHECK_OK(parse_as("phi3", text));
    ck_assert(cfg.ropes[0].divisors[3] == 1.5f && cfg.ropes[0].attention_factor == 1);
    snprintf(text, sizeof text, form, 512, "longrope", "4,5");
    CHECK_ERR(parse_as("phi3", text), ERR_FORMAT, "\"long_factor\" is not a list of 4 numbers");
    snprintf(text, sizeof text, form, 512, "longrope", "-4");
    CHECK_ERR(parse_as("phi3", text), ERR_FORMAT, "number 3 of \"long_factor\"");
    CHECK_ERR(parse_as("phi3", "{\"partial_rotary_factor\":0.07}"), ERR_FORMAT,
              "\"partial_rotary_factor\" = 0.07");
    CHECK_ERR(parse_as("llama", "{\"rope_scaling\":{\"type\":\"longrope\"}}"), ERR_UNSUPPORTED,
              "\"longrope\" is not supported");
    CHECK_OK(parse_as("phi3", "{}"));
    ck_assert_int_eq(cfg.ropes[0].kind, ROPE_DEFAULT);
    ck_assert(cfg.norm_eps == 1e-5f && cfg.n_kv_heads == 4 && !cfg.tied_embeddings);
}
END_TEST

START_TEST(olmo_norms_what_layers_add)
{
    CHECK_OK(parse_as("olmo2", "{\"rope_theta\":500000,\"attention_bias\":false}"));
    ck_assert(cfg.norms == NORMS_AFTER && cfg.qk_norm_whole && !cfg.qk_norm);
    ck_assert_str_eq(layers(), "0/0 0/0 0/0 0/0");
    CHECK_ERR(parse_as("olmo2", "{\"attention_bias\":true}"), ERR_UNSUPPORTED, "attention_bias");
    CHECK_OK(parse_as("olmo3", "{\"sliding_window\":1024}"));
    ck_assert_str_eq(layers(), "1024/0 1024/0 1024/0 0/0"); /* one rotation is enough */
    ck_assert_int_eq(config_n_ropes(&cfg), 1);
    ck_assert(cfg.ropes[0].theta == 5e5);
    CHECK_OK(parse_as("olmo3", "{\"sliding_window\":1024,\"rope_theta\":500000,\"rope_scaling\":"
                               "{\"attention_factor\":1.2,\"beta_fast\":32,\"beta_slow\":1,"
                               "\"factor\":8.0,\"original_max_position_embeddings\":512,"
                               "\"rope_type\":\"yarn\"}}"));
    ck_assert_str_eq(layers(), "1024/1 1024/1 1024/1 0/0");
    ck_assert(cfg.ropes[0].kind == ROPE_YARN && cfg.ropes[1].kind == ROPE_DEFAULT);
    ck_assert(cfg.ropes[1].theta == 5e5);
}
END_TEST

START_TEST(granite_multiplies)
{
    CHECK_OK(parse_as("granite", "{\"attention_multiplier\":0.0078125,\"mlp_bias\":true,"
                                 "\"embedding_multiplier\":12.0,\"logits_scaling\":16.0,"
                                 "\"residual_multiplier\":0.22}"));
    ck_assert(cfg.embedding_scale == 12 && cfg.logit_scale == 1.0f / 16 && cfg.mlp_bias);
    ck_assert(config_layer(&cfg, 1)->residual_scale == 0.22f);
    ck_assert(config_attention_scale(&cfg, config_layer(&cfg, 1)) == 0.0078125f);
    CHECK_OK(parse_as("granite", "{}"));
    ck_assert(config_attention_scale(&cfg, config_layer(&cfg, 0)) == 1);
    ck_assert(cfg.embedding_scale == 0 && cfg.logit_scale == 0);
    ck_assert(config_layer(&cfg, 0)->residual_scale == 0);
    CHECK_ERR(parse_as("granite", "{\"logits_scaling\":0}"), ERR_FORMAT, "\"logits_scaling\" = 0");
}
END_TEST

static const char dense_granite[] =
    "\"num_local_experts\":0,\"num_experts_per_tok\":0,\"shared_intermediate_size\":256,"
    "\"mamba_n_heads\":64,\"mamba_d_head\":64,\"init_method\":\"mup\","
    "\"normalization_function\":\"rmsnorm\",\"attention_multiplier\":0.0625";

START_TEST(granite_4_is_read_where_all_layers_are_attention)
{
    char text[700];
    const char *const form = "{%s,\"position_embedding_type\":%s,\"layer_types\":"
                             "[\"attention\",\"attention\",\"full_attention\",\"%s\"]}";
    snprintf(text, sizeof text, form, dense_granite, "\"rope\"", "attention");
    CHECK_OK(parse_as("granitemoehybrid", text));
    ck_assert_int_eq(rest.n_unknown, 0);
    ck_assert_int_eq(cfg.ffn_dim, 256);
    ck_assert_str_eq(layers(), "0/0 0/0 0/0 0/0");
    snprintf(text, sizeof text, form, dense_granite, "\"nope\"", "attention");
    CHECK_OK(parse_as("granitemoehybrid", text));
    ck_assert_str_eq(layers(), "0/-1 0/-1 0/-1 0/-1");
    snprintf(text, sizeof text, form, dense_granite, "\"rope\"", "mamba");
    CHECK_ERR(
        parse_as("granitemoehybrid", text), ERR_UNSUPPORTED,
        "has \"mamba\" for layer 3, but of a granitemoehybrid model only layers of attention");
    CHECK_ERR(parse_as("granitemoehybrid", "{\"shared_intermediate_size\":64}"), ERR_UNSUPPORTED,
              "\"num_local_experts\" = nothing");
    CHECK_ERR(parse_as("granitemoehybrid", "{\"shared_intermediate_size\":64,"
                                           "\"num_local_experts\":8}"),
              ERR_UNSUPPORTED, "\"num_local_experts\" = 8");
    CHECK_ERR(parse_as("granitemoehybrid", "{\"shared_intermediate_size\":64,"
                                           "\"num_local_experts\":0}"),
              ERR_FORMAT, "layer_types");
}
END_TEST

START_TEST(smollm3_leaves_layers_without_rotation)
{
    CHECK_OK(parse_as("smollm3", "{\"max_window_layers\":28,\"no_rope_layer_interval\":4,"
                                 "\"no_rope_layers\":[1,1,1,0],\"pretraining_tp\":2,"
                                 "\"use_sliding_window\":false,\"sliding_window\":null}"));
    ck_assert_int_eq(rest.n_unknown, 0);
    ck_assert_str_eq(layers(), "0/0 0/0 0/0 0/-1");
    ck_assert(cfg.ropes[0].theta == 2e6 && cfg.tied_embeddings && cfg.n_kv_heads == 4);
    CHECK_OK(parse_as("smollm3", "{\"no_rope_layer_interval\":2}"));
    ck_assert_str_eq(layers(), "0/0 0/-1 0/0 0/-1");
    CHECK_OK(parse_as("smollm3", "{\"no_rope_layers\":[0,1,1,0],\"use_sliding_window\":true,"
                                 "\"sliding_window\":64}"));
    ck_assert_str_eq(layers(), "64/-1 0/0 0/0 64/-1");
    CHECK_ERR(parse_as("smollm3", "{\"no_rope_layers\":[1,1,1]}"), ERR_FORMAT,
              "\"no_rope_layers\" has no 0 or 1 for layer 3");
    CHECK_ERR(parse_as("smollm3", "{\"no_rope_layers\":[1,1,2,1]}"), ERR_FORMAT, "for layer 2");
    CHECK_ERR(parse_as("llama", "{\"no_rope_layers\":[1,0,1,1]}"), ERR_UNSUPPORTED,
              "no_rope_layers");
}
END_TEST

START_TEST(ministral_lists_its_windows)
{
    CHECK_OK(parse_as(
        "ministral",
        "{\"num_key_value_heads\":4,\"sliding_window\":32,\"layer_types\":[\"full_attention\","
        "\"sliding_attention\",\"sliding_attention\","
        "\"full_attention\"]}"));
    ck_assert_str_eq(layers(), "0/0 32/0 32/0 0/0");
    CHECK_ERR(parse_as("ministral", "{\"num_key_value_heads\":4,\"layer_types\":[]}"), ERR_FORMAT,
              "not a list of 4 names");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config_families");
    TCase *tcase = tcase_create("all");
    tcase_add_test(tcase, gemma_2_is_read_as_it_is_published);
    tcase_add_test(tcase, gemma_2_has_the_defaults_of_its_class);
    tcase_add_test(tcase, gemma_3_has_a_rotation_for_each_kind_of_layer);
    tcase_add_test(tcase, the_text_part_of_a_seeing_gemma_3_is_read);
    tcase_add_test(tcase, a_seeing_mistral_has_a_text_part_of_either_class);
    tcase_add_test(tcase, phi_has_factors_by_its_context);
    tcase_add_test(tcase, olmo_norms_what_layers_add);
    tcase_add_test(tcase, granite_multiplies);
    tcase_add_test(tcase, granite_4_is_read_where_all_layers_are_attention);
    tcase_add_test(tcase, smollm3_leaves_layers_without_rotation);
    tcase_add_test(tcase, ministral_lists_its_windows);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
