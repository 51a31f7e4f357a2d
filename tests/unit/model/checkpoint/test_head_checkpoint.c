/* ctest: labels=quick libs=model timeout=60 */
/* Folders of heads: the golden ones open as what they are, their features may mean what the list of
 * readings says, and one that contradicts itself or its target, or is of another kind of drafter,
 * is refused with a sentence that says why. */
#include "model/checkpoint/head.h"

#include "model/checkpoint/head_readings.h"
#include "model/head_numbers.h"
#include "tests/support/head_folder.h"

#define MODELS SOURCE_DIR "/tests/golden/models/"

/* ---- heads that are right ---- */

START_TEST(golden_heads_are_what_they_are)
{
    static const struct {
        const char *name, *format;
        int n_layers, n_features, n_columns;
        bool reads_normed, has_fc, is_reduced, lacks_embedding, lacks_logits;
    } wanted[] = {
        {"eagle1", "EAGLE-1 or 2", 1, 1, 320, true, false, false, false, true},
        {"eagle3_flat", "EAGLE-3", 1, 3, 128, false, true, true, true, false},
        {"eagle3_layers", "EAGLE-3", 2, 3, 320, false, true, false, false, false},
        {"eagle3_output", "EAGLE-3", 1, 3, 200, false, true, true, true, true},
        {"eagle3_parallel", "EAGLE-3", 2, 3, 128, false, true, true, false, false},
        {"eagle3_qwen3", "EAGLE-3", 1, 3, 96, false, true, true, false, false},
        {"eagle3_single", "EAGLE-3", 1, 1, 320, true, false, false, true, true},
        {"eagle3_whole", "EAGLE-3", 1, 3, 320, false, true, false, true, true},
        {"mimo", "MTP", 1, 1, 320, true, false, false, false, false},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct checkpoint *ck;
        char path[512];
        snprintf(path, sizeof path, HEADS "%s", wanted[i].name);
        CHECK_OK(checkpoint_open_head(&ck, path, NULL, &err));
        const struct head_config *head = checkpoint_head(ck);
        ck_assert_str_eq(head_format_name(head), wanted[i].format);
        ck_assert_int_eq(checkpoint_config(ck)->n_layers, wanted[i].n_layers);
        ck_assert_int_eq(head->entry.n_features, wanted[i].n_features);
        ck_assert_int_eq(head->n_columns, wanted[i].n_columns);
        ck_assert_int_eq(head->reads_normed, wanted[i].reads_normed);
        ck_assert_int_eq(head->entry.has_fc, wanted[i].has_fc);
        ck_assert_int_eq(checkpoint_head_ids(ck) != NULL, wanted[i].is_reduced);
        ck_assert_int_eq(head->embedding_from == HEAD_LACKING, wanted[i].lacks_embedding);
        ck_assert_int_eq(head->logits_from == HEAD_LACKING, wanted[i].lacks_logits);
        ck_assert_int_eq(checkpoint_demand_target(ck, &err) != 0,
                         wanted[i].lacks_embedding || wanted[i].lacks_logits);
        ck_assert_ptr_null(checkpoint_remark(ck, CHECKPOINT_UNKNOWN_KEYS));
        checkpoint_close(ck);
    }
}
END_TEST

START_TEST(a_model_with_an_mtp_layer_opens_as_a_model_too)
{
    struct checkpoint *ck;
    CHECK_OK(checkpoint_open(&ck, HEADS "mimo", &err));
    ck_assert_str_eq(checkpoint_config(ck)->architecture, "MiMoForCausalLM");
    ck_assert(checkpoint_config(ck)->qkv_bias && !checkpoint_config(ck)->o_bias);
    ck_assert_ptr_null(checkpoint_head(ck));
    checkpoint_close(ck);
}
END_TEST

START_TEST(a_target_lends_what_a_head_lacks)
{
    struct checkpoint *target, *ck, *other;
    struct weight lent, own;
    uint16_t a[64], b[64];
    CHECK_OK(checkpoint_open(&target, MODELS "llama_untied", &err));
    const struct head_options options = {.target = target};
    CHECK_OK(checkpoint_open_head(&ck, HEADS "eagle3_whole", &options, &err));
    CHECK_OK(checkpoint_demand_target(ck, &err));
    const struct head_config *head = checkpoint_head(ck);
    CHECK_OK(checkpoint_find(ck, head->names[HEAD_LOGITS], 320, 64, &lent, &err));
    CHECK_OK(checkpoint_find(target, "lm_head.weight", 320, 64, &own, &err));
    weight_read_bf16(&lent, 300, 0, 64, a);
    weight_read_bf16(&own, 300, 0, 64, b);
    ck_assert_mem_eq(a, b, sizeof a);
    CHECK_OK(checkpoint_open_head(&other, HEADS "eagle3_whole", NULL, &err));
    ck_assert_uint_ne(checkpoint_fingerprint(ck), checkpoint_fingerprint(other));
    checkpoint_close(other);
    checkpoint_close(ck);
    checkpoint_close(target);
}
END_TEST

/* ---- readings ---- */

static void check_readings(const char *name, int n_layers, const char *wanted)
{
    struct checkpoint *ck;
    struct head_reading readings[HEAD_READINGS_MAX];
    char path[512], text[256] = "";
    int n = 0;
    snprintf(path, sizeof path, HEADS "%s", name);
    CHECK_OK(checkpoint_open_head(&ck, path, NULL, &err));
    CHECK_OK(head_readings(checkpoint_head(ck), n_layers, readings, &n, &err));
    for (int i = 0; i < n; i++) {
        size_t len = strlen(text);
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s", i ? "; " : "",
                                readings[i].name);
        for (int k = 0; k < readings[i].n; k++) {
            len +=
                (size_t)snprintf(text + len, sizeof text - len, " %d", readings[i].boundaries[k]);
        }
        ck_assert_int_eq(readings[i].normed, readings[i].n == 0);
    }
    ck_assert_str_eq(text, wanted);
    checkpoint_close(ck);
}

START_TEST(ids_are_read_as_their_place_in_the_file_means_them)
{
    check_readings("eagle3_flat", 30, "as written 1 2 3; one layer later 2 3 4; default 2 15 27");
    check_readings("eagle3_flat", 3, "as written 1 2 3");
    check_readings("eagle3_whole", 30, "one layer later 1 2 3; as written 0 1 2; default 2 15 27");
    check_readings("eagle3_output", 30, "as written 0 1 2; one layer later 1 2 3; default 2 15 27");
    check_readings("eagle3_layers", 32, "default 2 16 29");
    check_readings("eagle3_single", 32, "normed; last layer 32");
    check_readings("eagle1", 32, "normed; last layer 32");
    check_readings("mimo", 1, "normed; last layer 1");
}
END_TEST

START_TEST(ids_that_no_target_has_are_refused)
{
    struct checkpoint *ck;
    struct head_reading readings[HEAD_READINGS_MAX];
    int n;
    CHECK_OK(checkpoint_open_head(&ck, HEADS "eagle3_flat", NULL, &err));
    CHECK_ERR(head_readings(checkpoint_head(ck), 2, readings, &n, &err), ERR_UNSUPPORTED,
              "reads 3 features, and its ids name no such layers of a target of 2");
    checkpoint_close(ck);
}
END_TEST

/* ---- heads that are wrong ---- */

START_TEST(wrong_values_in_a_config_are_refused)
{
    static const struct {
        const char *head, *key, *value;
        int code;
        const char *part;
    } cases[] = {
        {"eagle3_flat", "num_hidden_layers", "2", ERR_FORMAT, "the one layer is called midlayer."},
        {"eagle3_layers", "num_hidden_layers", "3", ERR_FORMAT,
         "lacks the tensor layers.2.input_layernorm.weight"},
        {"eagle3_layers", "num_hidden_layers", "1", ERR_UNSUPPORTED, "layers.1."},
        {"eagle3_flat", "draft_vocab_size", "64", ERR_FORMAT, "d2t must be 64 integers"},
        {"eagle3_whole", "draft_vocab_size", "64", ERR_FORMAT, "the tensor d2t, which says"},
        {"eagle3_flat", "draft_vocab_size", "-1", ERR_FORMAT, "draft_vocab_size"},
        {"eagle3_flat", "vocab_size", "100", ERR_FORMAT, "d2t"},
        {"eagle3_flat", "target_hidden_size", "48", ERR_FORMAT,
         "announces 3 features, but fc.weight takes 4"},
        {"eagle3_flat", "target_hidden_size", "50", ERR_FORMAT, "are not 1 to 8 features of 50"},
        {"eagle3_flat", "num_aux_hidden_states", "2", ERR_FORMAT, "announces 2 features"},
        {"eagle3_flat", "hidden_size", "80", ERR_FORMAT, "80"},
        {"eagle3_flat", "eagle_aux_hidden_state_layer_ids", "[1, 2]", ERR_FORMAT,
         "announces 2 features"},
        {"eagle3_flat", "eagle_aux_hidden_state_layer_ids", "[]", ERR_FORMAT, "1 to 8 layers"},
        {"eagle3_flat", "eagle_aux_hidden_state_layer_ids", "7", ERR_FORMAT, "1 to 8 layers"},
        {"eagle3_flat", "eagle_aux_hidden_state_layer_ids", "[1, -2, 3]", ERR_FORMAT,
         "has -2, which is no layer"},
        {"eagle3_flat", "eagle_aux_hidden_state_layer_ids", "[1, 2, 2147483648]", ERR_FORMAT,
         "which is no layer"},
        {"eagle3_flat", "eagle_aux_hidden_state_layer_ids", "[3, 2, 3]", ERR_FORMAT, "has 3 twice"},
        {"eagle3_flat", "logit_scale", "-1", ERR_FORMAT, "logit_scale"},
        {"eagle3_flat", "norm_output", "1", ERR_FORMAT, "norm_output"},
        {"eagle3_flat", "norm_before_fc", "true", ERR_FORMAT, "lacks the tensor input_norm.weight"},
        {"eagle3_flat", "fc_norm", "true", ERR_FORMAT, "lacks the tensor fc_norm.0.weight"},
        {"eagle3_whole", "fc_norm", "true", ERR_UNSUPPORTED, "cannot both be true"},
        {"eagle3_whole", "norm_before_fc", "false", ERR_UNSUPPORTED, "input_norm.weight"},
        {"eagle3_qwen3", "norm_before_residual", "nothing", ERR_UNSUPPORTED,
         "lacks \"norm_before_residual\""},
        {"eagle3_parallel", "mask_token_id", "320", ERR_FORMAT, "outside of the vocabulary"},
        {"eagle3_flat", "model_type", "\"gemma2\"", ERR_UNSUPPORTED,
         "layers of \"model_type\" = \"gemma2\""},
        {"eagle3_single", "target_hidden_size", "32", ERR_FORMAT,
         "features of width 32 do not fit a head of width"},
        {"eagle3_single", "fc_norm", "true", ERR_UNSUPPORTED, "which is not there"},
        {"eagle3_single", "norm_before_fc", "true", ERR_UNSUPPORTED, "which is not there"},
        {"eagle3_flat", "hidden_act", "\"gelu\"", ERR_UNSUPPORTED, "hidden_act"},
        {"eagle3_flat", "transformer_layer_config", "{}", ERR_FORMAT, ""},
        {"eagle3_flat", "quantization_config",
         "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 32, \"sym\": true}",
         ERR_UNSUPPORTED, "stored quantized"},
        {"mimo", "num_nextn_predict_layers", "2", ERR_UNSUPPORTED, "2 MTP layers"},
        {"mimo", "num_nextn_predict_layers", "nothing", ERR_UNSUPPORTED, "0 MTP layers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_ERR(open_with_key(cases[i].head, cases[i].key, cases[i].value), cases[i].code,
                  cases[i].part);
    }
}
END_TEST

START_TEST(missing_and_unknown_tensors_are_refused_by_their_names_in_the_file)
{
    CHECK_ERR(open_renamed("eagle3_flat", "midlayer.mlp.up_proj.weight", "t2d_"), ERR_FORMAT,
              "lacks the tensor midlayer.mlp.up_proj.weight");
    CHECK_ERR(open_renamed("eagle3_flat", "t2d", "surprise.weight"), ERR_UNSUPPORTED,
              "surprise.weight");
    CHECK_ERR(open_renamed("eagle3_flat", "fc.weight", "t2d_"), ERR_FORMAT,
              "lacks the tensor fc.weight");
    CHECK_ERR(open_renamed("eagle3_flat", "midlayer.self_attn.q_proj.weight", "t2d_"), ERR_FORMAT,
              "is no head of EAGLE");
    CHECK_ERR(open_renamed("eagle1", "fc.weight", "t2d_"), ERR_UNSUPPORTED,
              "so it is a model and no head");
    CHECK_ERR(open_renamed("mimo", "model.mtp_layers.0.input_proj.weight", "t2d_"), ERR_FORMAT,
              "lacks the tensor model.mtp_layers.0.input_proj.weight");
    CHECK_ERR(open_head(MODELS "llama_untied", NULL), ERR_UNSUPPORTED, "is a model and no head");
}
END_TEST

/* Two files, both with all of the head. */
START_TEST(a_tensor_in_two_files_is_refused)
{
    char from[512], to[512], text[32768];
    const char *name;
    json_t *entry, *map = json_object(), *index = json_pack("{so}", "weight_map", map);
    take_apart("eagle3_flat");
    put_together();
    snprintf(from, sizeof from, "%s/model.safetensors", dir);
    snprintf(to, sizeof to, "%s/a.safetensors", dir);
    ck_assert_int_eq(rename(from, to), 0);
    json_object_foreach(header, name, entry)
    {
        bool is_tensor = strcmp(name, "__metadata__") != 0;
        if (is_tensor) json_object_set_new(map, name, json_string("a.safetensors"));
    }
    size_t n = json_dumpb(index, text, sizeof text, 0);
    write_file(dir, "model.safetensors.index.json", text, n, NULL, 0);
    CHECK_OK(open_head(dir, NULL));
    snprintf(from, sizeof from, "%s/b.safetensors", dir);
    ck_assert_int_eq(link(to, from), 0);
    json_object_set_new(map, "norm.weight", json_string("b.safetensors"));
    n = json_dumpb(index, text, sizeof text, 0);
    write_file(dir, "model.safetensors.index.json", text, n, NULL, 0);
    CHECK_ERR(open_head(dir, NULL), ERR_FORMAT, "twice, in two files");
    json_decref(index);
    clear_up();
}
END_TEST

START_TEST(ids_of_a_reduced_vocabulary_ascend_within_the_whole_one)
{
    static const int64_t wrong[] = {-1, 1000, INT64_MIN, INT64_MAX, 320 - 5};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        take_apart("eagle3_flat");
        memcpy(bytes_of("d2t") + 5 * sizeof(int64_t), &wrong[i], sizeof wrong[i]);
        CHECK_ERR(open_dir(), ERR_FORMAT, "d2t[5]");
        clear_up();
    }
    take_apart("eagle3_flat");
    int64_t before;
    memcpy(&before, bytes_of("d2t") + 8 * sizeof before, sizeof before);
    before--; /* id 9 is then that of 8 */
    memcpy(bytes_of("d2t") + 9 * sizeof before, &before, sizeof before);
    CHECK_ERR(open_dir(), ERR_FORMAT, "must ascend");
    clear_up();
}
END_TEST

START_TEST(a_mask_that_is_no_number_is_refused)
{
    take_apart("eagle3_parallel");
    bytes_of("mask_hidden")[6] = 0xc0;
    bytes_of("mask_hidden")[7] = 0x7f;
    CHECK_ERR(open_dir(), ERR_FORMAT, "mask_hidden has an element that is no number");
    clear_up();
}
END_TEST

/* The last element of each tensor in turn; models share an MTP layer's embedding and lm_head. */
static void check_damaged_tensors(const char *name, int n_shared)
{
    const char *tensor;
    json_t *entry;
    int n_found = 0, n_unread = 0;
    take_apart(name);
    put_together();
    json_object_foreach(header, tensor, entry)
    {
        const char *dtype = json_string_value(json_object_get(entry, "dtype"));
        struct checkpoint *ck;
        if (!dtype || !strchr(dtype, 'F')) continue;      /* F16, BF16 or F32 */
        if (strcmp(tensor, "mask_hidden") == 0) continue; /* refused when the folder is opened */
        const json_t *offsets = json_object_get(entry, "data_offsets");
        uint8_t *end = data + json_integer_value(json_array_get(offsets, 1));
        const uint8_t before[2] = {end[-2], end[-1]};
        end[-2] = n_found % 2 ? 0x80 : 0x81; /* an infinity, or a NaN */
        end[-1] = 0xff;
        put_together();
        CHECK_OK(checkpoint_open_head(&ck, dir, NULL, &err));
        int rc = head_numbers_check(ck, &err);
        if (rc) {
            ck_assert_int_eq(rc, ERR_FORMAT);
            ck_assert_ptr_nonnull(strstr(err.text, tensor));
            ck_assert_ptr_nonnull(strstr(err.text, "has an element that is no number"));
        }
        n_found += rc != 0;
        n_unread += rc == 0;
        checkpoint_close(ck);
        memcpy(end - 2, before, sizeof before);
    }
    ck_assert_int_eq(n_unread, n_shared);
    ck_assert_int_gt(n_found, 5);
    clear_up();
}

START_TEST(an_element_that_is_no_number_is_found_in_every_tensor)
{
    check_damaged_tensors("eagle3_flat", 0);
    check_damaged_tensors("eagle3_parallel", 0);
    check_damaged_tensors("eagle1", 0);
    check_damaged_tensors("eagle3_qwen3", 0); /* norms of single features, and of heads */
    check_damaged_tensors("dspark_flat", 0);
    check_damaged_tensors("dspark_speculators", 0); /* without an embedding, but with a chain */
    check_damaged_tensors("medusa_listed", 0);
}
END_TEST

START_TEST(what_a_model_shares_with_its_mtp_layer_is_not_read_again)
{
    struct checkpoint *ck;
    CHECK_OK(checkpoint_open_head(&ck, HEADS "mimo", NULL, &err));
    CHECK_OK(head_numbers_check(ck, &err));
    checkpoint_close(ck);
    take_apart("mimo");
    bytes_of("model.embed_tokens.weight")[1] = 0xff;
    bytes_of("model.embed_tokens.weight")[0] = 0x81;
    put_together();
    CHECK_OK(checkpoint_open_head(&ck, dir, NULL, &err));
    CHECK_OK(head_numbers_check(ck, &err));
    checkpoint_close(ck);
    bytes_of("model.mtp_layers.0.input_proj.weight")[1] = 0xff;
    bytes_of("model.mtp_layers.0.input_proj.weight")[0] = 0x81;
    put_together();
    CHECK_OK(checkpoint_open_head(&ck, dir, NULL, &err));
    CHECK_ERR(head_numbers_check(ck, &err), ERR_FORMAT, "model.mtp_layers.0.input_proj.weight");
    checkpoint_close(ck);
    clear_up();
}
END_TEST

START_TEST(a_head_of_another_target_is_refused)
{
    static const struct {
        const char *target, *part;
    } cases[] = {{"gemma2_open", "reads features of width 64, but"},
                 {"phi3_partial", "is for a vocabulary of 320 ids, but that of"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct checkpoint *target;
        char path[512];
        snprintf(path, sizeof path, MODELS "%s", cases[i].target);
        CHECK_OK(checkpoint_open(&target, path, &err));
        const struct head_options options = {.target = target};
        CHECK_ERR(open_head(HEADS "eagle3_flat", &options), ERR_FORMAT, cases[i].part);
        checkpoint_close(target);
    }
}
END_TEST

START_TEST(a_caller_decides_what_a_file_does_not_say)
{
    struct checkpoint *ck;
    const struct head_options options = {.norm_before_residual = HEAD_YES};
    take_apart("eagle3_qwen3");
    json_object_del(config, "norm_before_residual");
    put_together();
    CHECK_OK(checkpoint_open_head(&ck, dir, &options, &err));
    ck_assert(checkpoint_head(ck)->entry.keeps_normed);
    checkpoint_close(ck);
    clear_up();
}
END_TEST

START_TEST(tensors_of_pytorch_are_refused_with_the_way_out)
{
    char path[512];
    take_apart("eagle3_flat");
    put_together();
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    write_file(dir, "pytorch_model.bin", "PK", 2, NULL, 0);
    CHECK_ERR(open_head(dir, NULL), ERR_UNSUPPORTED, "safetensors.torch.save_file");
    clear_up();
}
END_TEST

START_TEST(other_drafters_are_refused_by_name)
{
    static const struct {
        const char *config, *name;
    } cases[] = {
        {"{\"hydra_num_heads\": 4, \"hydra_head_arch\": \"mlp\"}", "Hydra"},
        {"{\"model_type\": \"recurrent_drafting_drafter\"}", "ReDrafter"},
        {"{\"architectures\": [\"ReDrafterForCausalLM\"]}", "ReDrafter"},
        {"{\"architectures\": [\"DFlash2DraftModel\"], \"dflash_config\": {}}",
         "DFlash2 drafter, with convolutions"},
        {"{\"dflash_config\": {\"conv_kernel_size\": 2}}", "DFlash2"},
        {"{\"dflash_config\": {\"selector_rank\": 256}}", "DFlash2"},
        {"{\"architectures\": [\"DominoDraftModel\"]}", "Domino drafter, with a GRU"},
        {"{\"dflash_config\": {\"projector_type\": \"domino\"}}", "Domino"},
        {"{\"speculators_model_type\": \"xpress\"}", "XPress drafter, with passes that refine"},
        {"{\"architectures\": [\"DFlashLiLiCorrModel\"]}", "LiLiCorr drafter, with a learned"},
        {"{\"architectures\": [\"DFlashLinearDraftModel\"]}", "linear DFlash"},
        {"{\"model_type\": \"mlp_speculator\"}", "MLP speculator"},
        {"{\"model_type\": \"gemma4_assistant\"}", "Gemma 4"},
        {"{\"speculators_model_type\": \"mtp\"}", "eagle3, peagle, dflash and dspark are"},
    };
    struct head_config head;
    struct head_claims claims;
    struct model_config cfg;
    struct config_rest rest;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_ERR(head_config_parse(&head, &claims, &cfg, &rest, cases[i].config,
                                    strlen(cases[i].config), "config.json", &err),
                  ERR_UNSUPPORTED, cases[i].name);
    }
}
END_TEST

/* In one sentence that names the family, however the folder tells it. */
START_TEST(mtp_layers_of_families_that_are_not_read_yet_are_refused_by_name)
{
    static const struct {
        const char *type, *name;
    } families[] = {
        {"deepseek_v3", "DeepSeek-V3"},  {"deepseek_v32", "DeepSeek-V3.2"},
        {"kimi_k2", "Kimi-K2"},          {"kimi_k25", "Kimi-K2.5"},
        {"glm4_moe", "GLM-4.5"},         {"glm4_moe_lite", "GLM-4.7"},
        {"glm4v_moe", "GLM-4.5V"},       {"glm_moe_dsa", "GLM-5"},
        {"qwen3_next", "Qwen3-Next"},    {"qwen3_5", "Qwen3.5"},
        {"qwen3_5_text", "Qwen3.5"},     {"qwen3_5_moe", "Qwen3.5"},
        {"qwen3_5_moe_text", "Qwen3.5"}, {"mimo_v2_flash", "MiMo-V2"},
        {"ernie4_5_moe", "ERNIE 4.5"},   {"longcat_flash", "LongCat"},
    };
    static const struct {
        const char *before, *after;
    } forms[] = {
        {"{\"model_type\": \"", "\", \"num_nextn_predict_layers\": 1}"},
        {"{\"architectures\": [\"XForCausalLMNextN\"], \"model_type\": \"", "\"}"},
        {"{\"model_type\": \"x\", \"text_config\": {\"model_type\": \"", "\"}}"},
    };
    char text[256], sentence[256];
    snprintf(dir, sizeof dir, "/tmp/outrider-heads-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        for (size_t form = 0; form < sizeof forms / sizeof *forms; form++) {
            int len = snprintf(text, sizeof text, "%s%s%s", forms[form].before, families[i].type,
                               forms[form].after);
            write_file(dir, "config.json", text, (size_t)len, NULL, 0);
            snprintf(sentence, sizeof sentence, "%s/config.json: the MTP layers of %s", dir,
                     families[i].name);
            CHECK_ERR(open_head(dir, NULL), ERR_UNSUPPORTED, sentence);
            ck_assert_ptr_nonnull(strstr(err.text, families[i].type));
            ck_assert_ptr_null(strchr(err.text, '\n'));
        }
    }
    snprintf(text, sizeof text, "%s/config.json", dir);
    unlink(text);
    rmdir(dir);
}
END_TEST

/* transformers leaves out of a config what its class has as default. */
START_TEST(layers_of_speculators_have_the_defaults_of_their_class)
{
    static const char text[] =
        "{\"speculators_model_type\": \"eagle3\", \"norm_before_residual\": true, "
        "\"draft_vocab_size\": 32000, \"transformer_layer_config\": {\"model_type\": \"llama\", "
        "\"num_hidden_layers\": 1, \"num_key_value_heads\": 8, \"vocab_size\": 128256, "
        "\"intermediate_size\": 14336, \"rms_norm_eps\": 1e-05}}";
    struct head_config head;
    struct head_claims claims;
    struct model_config cfg;
    struct config_rest rest;
    CHECK_OK(head_config_parse(&head, &claims, &cfg, &rest, text, strlen(text), "x", &err));
    ck_assert_int_eq(cfg.dim, 4096);
    ck_assert_int_eq(cfg.n_heads, 32);
    ck_assert_int_eq(cfg.head_dim, 128);
    ck_assert(cfg.ropes[0].theta > 9999 && cfg.ropes[0].theta < 10001);
    ck_assert_int_eq(claims.n_columns, 32000);
    ck_assert_int_eq(claims.norm_before_residual, HEAD_YES);
}
END_TEST

START_TEST(folders_of_heads_are_told_from_models)
{
    ck_assert(checkpoint_is_head_folder(HEADS "eagle3_flat"));
    ck_assert(checkpoint_is_head_folder(HEADS "eagle3_qwen3"));
    ck_assert(!checkpoint_is_head_folder(HEADS "mimo"));
    ck_assert(!checkpoint_is_head_folder(MODELS "llama_untied"));
    ck_assert(!checkpoint_is_head_folder("/nowhere"));
    struct checkpoint *ck;
    CHECK_ERR(checkpoint_open(&ck, HEADS "eagle3_flat", &err), ERR_UNSUPPORTED,
              "eagle3_flat is a head or another part of a drafter");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("head_checkpoint");
    TCase *tests = tcase_create("folders of heads");
    tcase_add_test(tests, golden_heads_are_what_they_are);
    tcase_add_test(tests, a_model_with_an_mtp_layer_opens_as_a_model_too);
    tcase_add_test(tests, a_target_lends_what_a_head_lacks);
    tcase_add_test(tests, ids_are_read_as_their_place_in_the_file_means_them);
    tcase_add_test(tests, ids_that_no_target_has_are_refused);
    tcase_add_test(tests, wrong_values_in_a_config_are_refused);
    tcase_add_test(tests, missing_and_unknown_tensors_are_refused_by_their_names_in_the_file);
    tcase_add_test(tests, a_tensor_in_two_files_is_refused);
    tcase_add_test(tests, ids_of_a_reduced_vocabulary_ascend_within_the_whole_one);
    tcase_add_test(tests, a_mask_that_is_no_number_is_refused);
    tcase_add_test(tests, an_element_that_is_no_number_is_found_in_every_tensor);
    tcase_add_test(tests, what_a_model_shares_with_its_mtp_layer_is_not_read_again);
    tcase_add_test(tests, a_head_of_another_target_is_refused);
    tcase_add_test(tests, a_caller_decides_what_a_file_does_not_say);
    tcase_add_test(tests, tensors_of_pytorch_are_refused_with_the_way_out);
    tcase_add_test(tests, other_drafters_are_refused_by_name);
    tcase_add_test(tests, mtp_layers_of_families_that_are_not_read_yet_are_refused_by_name);
    tcase_add_test(tests, layers_of_speculators_have_the_defaults_of_their_class);
    tcase_add_test(tests, folders_of_heads_are_told_from_models);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
