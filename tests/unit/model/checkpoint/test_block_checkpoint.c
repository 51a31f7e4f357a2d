/* ctest: labels=quick libs=checkpoint timeout=60 */
/* Folders of block drafters: the golden ones open as what they are, and one that contradicts itself
 * or asks for what is not computed is refused with a sentence that says why. */
#include "model/checkpoint/head_readings.h"
#include "tests/support/head_folder.h"

#define MODELS SOURCE_DIR "/tests/golden/models/"

static struct checkpoint *open_golden(const char *name)
{
    struct checkpoint *ck;
    char path[512];
    snprintf(path, sizeof path, BLOCK_HEADS "%s", name);
    CHECK_OK(checkpoint_open_head(&ck, path, NULL, &err));
    return ck;
}

START_TEST(golden_drafters_are_what_they_are)
{
    static const struct {
        const char *name, *format;
        int size, rank, confidence_width, n_columns;
        bool from_anchor, is_causal, window_is_causal, lacks_embedding, lacks_logits;
    } wanted[] = {
        {"dflash_band", "DFlash", 8, 0, 0, 320, false, false, false, true, true},
        {"dflash_flat", "DFlash", 8, 0, 0, 320, false, false, true, true, true},
        {"dflash_speculators", "DFlash", 6, 0, 0, 128, false, false, true, true, false},
        {"dflash_window", "DFlash", 6, 0, 0, 320, false, false, true, false, false},
        {"dspark_flat", "DSpark", 7, 32, 96, 320, true, false, true, false, false},
        {"dspark_speculators", "DSpark", 5, 16, 80, 96, true, false, true, true, false},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct checkpoint *ck = open_golden(wanted[i].name);
        const struct head_config *head = checkpoint_head(ck);
        ck_assert_str_eq(head_format_name(head), wanted[i].format);
        ck_assert_int_eq(head->block.size, wanted[i].size);
        ck_assert_int_eq(head->block.rank, wanted[i].rank);
        ck_assert_int_eq(head->block.confidence_width, wanted[i].confidence_width);
        ck_assert_int_eq(head->n_columns, wanted[i].n_columns);
        ck_assert_int_eq(head->block.from_anchor, wanted[i].from_anchor);
        int n_guesses = head_block_guesses(&head->block);
        ck_assert_int_eq(head_block_row(&head->block, n_guesses - 1), wanted[i].size - 1);
        ck_assert_int_eq(head_block_row(&head->block, 0), wanted[i].from_anchor ? 0 : 1);
        ck_assert_int_eq(head->block.is_causal, wanted[i].is_causal);
        ck_assert_int_eq(head->block.window_is_causal, wanted[i].window_is_causal);
        ck_assert_int_eq(head->embedding_from == HEAD_LACKING, wanted[i].lacks_embedding);
        ck_assert_int_eq(head->logits_from == HEAD_LACKING, wanted[i].lacks_logits);
        ck_assert_int_eq(head->mask_token_id, 11);
        ck_assert(!head->reads_normed && head->entry.has_fc);
        ck_assert_ptr_null(checkpoint_remark(ck, CHECKPOINT_UNKNOWN_KEYS));
        checkpoint_close(ck);
    }
}
END_TEST

static void check_readings(const char *name, const char *wanted)
{
    struct checkpoint *ck = open_golden(name);
    struct head_reading readings[HEAD_READINGS_MAX];
    char text[256] = "";
    int n = 0;
    CHECK_OK(head_readings(checkpoint_head(ck), 30, readings, &n, &err));
    for (int i = 0; i < n; i++) {
        size_t len = strlen(text);
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s", i ? "; " : "",
                                readings[i].name);
        for (int k = 0; k < readings[i].n; k++) {
            len +=
                (size_t)snprintf(text + len, sizeof text - len, " %d", readings[i].boundaries[k]);
        }
    }
    ck_assert_str_eq(text, wanted);
    checkpoint_close(ck);
}

START_TEST(ids_of_outputs_are_one_before_those_of_boundaries)
{
    check_readings("dflash_flat", "one layer later 1 2 3; as written 0 1 2; default 2 15 27");
    check_readings("dflash_window", "one layer later 2 4; as written 1 3");
    check_readings("dspark_flat", "one layer later 1 3 5; as written 0 2 4; default 2 15 27");
    check_readings("dspark_speculators",
                   "as written 1 2 4; one layer later 2 3 5; default 2 15 27");
}
END_TEST

START_TEST(wrong_values_in_a_config_are_refused)
{
    static const struct {
        const char *head, *key, *value;
        int code;
        const char *part;
    } cases[] = {
        {"dspark_flat", "block_size", "1", ERR_FORMAT, "block_size"},
        {"dspark_flat", "block_size", "65", ERR_FORMAT, "block_size"},
        {"dspark_flat", "block_size", "nothing", ERR_FORMAT, "lacks \"block_size\""},
        {"dspark_flat", "target_layer_ids", "nothing", ERR_FORMAT, "lacks \"target_layer_ids\""},
        {"dspark_flat", "target_layer_ids", "[2, 0, 4]", ERR_FORMAT, "must ascend"},
        {"dspark_flat", "target_layer_ids", "[0, 2, 2]", ERR_FORMAT, "has 2 twice"},
        {"dspark_flat", "target_layer_ids", "[0, 2]", ERR_FORMAT, "announces 2 features"},
        {"dspark_flat", "target_layer_ids", "[-1, 2, 4]", ERR_FORMAT, "which is no layer"},
        {"dspark_flat", "mask_token_id", "nothing", ERR_FORMAT, "lacks \"mask_token_id\""},
        {"dspark_flat", "mask_token_id", "320", ERR_FORMAT, "outside of the vocabulary"},
        {"dspark_flat", "markov_rank", "nothing", ERR_FORMAT, "lacks \"markov_rank\""},
        {"dspark_flat", "markov_rank", "8", ERR_UNSUPPORTED, "no multiple of 16"},
        {"dspark_flat", "markov_rank", "16", ERR_FORMAT, "markov_head.markov_w1.weight"},
        {"dspark_flat", "markov_rank", "0", ERR_FORMAT, "confidence_head.proj.weight"},
        {"dspark_flat", "markov_head_type", "\"gated\"", ERR_UNSUPPORTED,
         "a chain that reads more than the guess before"},
        {"dspark_flat", "attention_mode", "\"mla\"", ERR_UNSUPPORTED, "another kind of attention"},
        {"dspark_flat", "is_neox_style", "false", ERR_UNSUPPORTED, "neighbouring elements"},
        {"dspark_flat", "output_multiplier", "0.5", ERR_UNSUPPORTED, "together with"},
        {"dspark_flat", "hidden_size", "80", ERR_FORMAT, "80"},
        {"dspark_flat", "model_type", "\"llama\"", ERR_UNSUPPORTED, "in block drafters (qwen3 is)"},
        {"dspark_flat", "num_hidden_layers", "3", ERR_FORMAT,
         "\"layer_types\" is not a list of 3 names"},
        {"dflash_flat", "dflash_config",
         "{\"mask_token_id\": 11, \"target_layer_ids\": [0, 1, 2], \"use_swa\": true}",
         ERR_UNSUPPORTED, "a window in every layer"},
        {"dflash_flat", "dflash_config",
         "{\"mask_token_id\": 11, \"target_layer_ids\": [0, 1, 2], \"attention_sink_bias\": true}",
         ERR_UNSUPPORTED, "sinks of attention"},
        {"dflash_flat", "dflash_config",
         "{\"mask_token_id\": 11, \"target_layer_ids\": [0, 1, 2], \"attention_value_scale\": 2}",
         ERR_UNSUPPORTED, "scaled values"},
        {"dflash_flat", "dflash_config",
         "{\"mask_token_id\": 11, \"target_layer_ids\": [0, 1, 2], \"output_multiplier\": -1}",
         ERR_FORMAT, "outside of 0..1e6"},
        {"dflash_flat", "dflash_config", "[]", ERR_FORMAT, "lacks \"target_layer_ids\""},
        {"dflash_flat", "target_hidden_size", "48", ERR_FORMAT,
         "announces 3 features, but fc.weight takes 4"},
        {"dflash_band", "sliding_window", "4", ERR_UNSUPPORTED,
         "through a window of 4 cannot be in a block of 8"},
        {"dflash_speculators", "aux_hidden_state_layer_ids", "nothing", ERR_FORMAT,
         "lacks \"aux_hidden_state_layer_ids\""},
        {"dflash_speculators", "draft_vocab_size", "64", ERR_FORMAT, "d2t must be 64 integers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_ERR(open_with_key(cases[i].head, cases[i].key, cases[i].value), cases[i].code,
                  cases[i].part);
    }
}
END_TEST

START_TEST(keys_that_nobody_knows_are_named)
{
    struct checkpoint *ck;
    take_apart("dflash_flat");
    json_object_set_new(json_object_get(config, "dflash_config"), "surprise", json_integer(3));
    put_together();
    CHECK_OK(checkpoint_open_head(&ck, dir, NULL, &err));
    const char *remark = checkpoint_remark(ck, CHECKPOINT_UNKNOWN_KEYS);
    ck_assert_ptr_nonnull(remark);
    ck_assert_ptr_nonnull(strstr(remark, "surprise"));
    checkpoint_close(ck);
    clear_up();
}
END_TEST

START_TEST(missing_and_unknown_tensors_are_refused_by_their_names_in_the_file)
{
    CHECK_ERR(open_renamed("dflash_flat", "hidden_norm.weight", "t2d"), ERR_FORMAT,
              "lacks the tensor hidden_norm.weight");
    CHECK_ERR(open_renamed("dflash_flat", "fc.weight", "t2d"), ERR_FORMAT,
              "lacks the tensor fc.weight");
    CHECK_ERR(open_renamed("dflash_flat", "layers.0.self_attn.q_proj.weight", "t2d"), ERR_FORMAT,
              "is no head of DFlash");
    CHECK_ERR(open_renamed("dflash_flat", "layers.1.self_attn.k_norm.weight", "t2d"), ERR_FORMAT,
              "lacks the tensor layers.1.self_attn.k_norm.weight");
    CHECK_ERR(open_renamed("dspark_flat", "markov_head.markov_w2.weight", "t2d"), ERR_FORMAT,
              "lacks the tensor markov_head.markov_w2.weight");
    CHECK_ERR(open_renamed("dspark_flat", "norm.weight", "markov_head.gate_proj.weight"),
              ERR_FORMAT, "lacks the tensor norm.weight");
    CHECK_ERR(open_renamed("dspark_speculators", "t2d", "markov_head.gate_proj.weight"),
              ERR_UNSUPPORTED, "markov_head.gate_proj.weight");
}
END_TEST

START_TEST(a_confidence_of_another_shape_is_refused)
{
    take_apart("dspark_flat");
    json_t *shape =
        json_object_get(json_object_get(header, "confidence_head.proj.weight"), "shape");
    json_array_set_new(shape, 0, json_integer(2));
    json_array_set_new(shape, 1, json_integer(48));
    CHECK_ERR(open_dir(), ERR_FORMAT, "confidence_head.proj.weight");
    clear_up();
}
END_TEST

START_TEST(masks_in_a_file_of_pytorch_are_refused_with_the_way_out)
{
    char path[512];
    take_apart("dflash_flat");
    write_file(dir, "mask_embedding.pt", "PK", 2, NULL, 0);
    CHECK_ERR(open_dir(), ERR_UNSUPPORTED, "into row 11 of an embed_tokens.weight");
    snprintf(path, sizeof path, "%s/mask_embedding.pt", dir);
    unlink(path);
    clear_up();
}
END_TEST

START_TEST(a_drafter_of_another_target_is_refused)
{
    struct checkpoint *target;
    CHECK_OK(checkpoint_open(&target, MODELS "phi3_partial", &err));
    const struct head_options options = {.target = target};
    CHECK_ERR(open_head(BLOCK_HEADS "dflash_flat", &options), ERR_FORMAT,
              "is for a vocabulary of 320 ids, but that of");
    checkpoint_close(target);
}
END_TEST

/* Drafters whose files differ only in how rows see each other have fingerprints of their own. */
START_TEST(the_fingerprint_depends_on_what_a_block_sees)
{
    struct checkpoint *ck = open_golden("dflash_flat"), *other;
    take_apart("dflash_flat");
    json_object_set_new(config, "is_causal", json_true());
    put_together();
    CHECK_OK(checkpoint_open_head(&other, dir, NULL, &err));
    ck_assert(checkpoint_head(other)->block.is_causal);
    ck_assert_uint_ne(checkpoint_fingerprint(ck), checkpoint_fingerprint(other));
    checkpoint_close(other);
    checkpoint_close(ck);
    clear_up();
}
END_TEST

START_TEST(folders_of_block_drafters_are_told_from_models)
{
    struct checkpoint *ck;
    ck_assert(checkpoint_is_head_folder(BLOCK_HEADS "dflash_flat"));
    ck_assert(checkpoint_is_head_folder(BLOCK_HEADS "dspark_flat"));
    ck_assert(checkpoint_is_head_folder(BLOCK_HEADS "dspark_speculators"));
    CHECK_ERR(checkpoint_open(&ck, BLOCK_HEADS "dflash_flat", &err), ERR_UNSUPPORTED,
              "is a head or another part of a drafter");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("block_checkpoint");
    TCase *tests = tcase_create("folders of block drafters");
    tcase_add_test(tests, golden_drafters_are_what_they_are);
    tcase_add_test(tests, ids_of_outputs_are_one_before_those_of_boundaries);
    tcase_add_test(tests, wrong_values_in_a_config_are_refused);
    tcase_add_test(tests, keys_that_nobody_knows_are_named);
    tcase_add_test(tests, missing_and_unknown_tensors_are_refused_by_their_names_in_the_file);
    tcase_add_test(tests, a_confidence_of_another_shape_is_refused);
    tcase_add_test(tests, masks_in_a_file_of_pytorch_are_refused_with_the_way_out);
    tcase_add_test(tests, a_drafter_of_another_target_is_refused);
    tcase_add_test(tests, the_fingerprint_depends_on_what_a_block_sees);
    tcase_add_test(tests, folders_of_block_drafters_are_told_from_models);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
