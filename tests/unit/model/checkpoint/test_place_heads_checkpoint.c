/* ctest: labels=quick libs=checkpoint timeout=60 */
/* Folders of heads that guess several places from one feature: their tensors are counted, whatever
 * config.json announces, and what contradicts itself is refused with a sentence that says why. */
#include "model/checkpoint/head_readings.h"
#include "tests/support/head_folder.h"

#define MODELS SOURCE_DIR "/tests/golden/models/"

START_TEST(golden_heads_are_what_they_are)
{
    static const struct {
        const char *name, *format;
        int n, n_blocks, n_stored, hidden_dim, n_columns;
        bool has_logits;
        enum head_source logits_from;
    } wanted[] = {
        {"blockwise", "blockwise", 3, 0, 0, 160, 0, false, HEAD_LACKING},
        {"medusa", "Medusa", 4, 1, 1, 0, 320, true, HEAD_UNUSED},
        {"medusa_listed", "Medusa", 2, 2, 2, 0, 320, true, HEAD_UNUSED},
        {"medusa_repeated", "Medusa", 2, 3, 1, 0, 320, true, HEAD_UNUSED},
        {"medusa_shared", "Medusa", 3, 2, 1, 0, 0, false, HEAD_LACKING},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct checkpoint *ck;
        struct head_reading readings[HEAD_READINGS_MAX];
        char path[512];
        int n = 0;
        snprintf(path, sizeof path, PLACE_HEADS "%s", wanted[i].name);
        CHECK_OK(checkpoint_open_head(&ck, path, NULL, &err));
        const struct head_config *head = checkpoint_head(ck);
        ck_assert_str_eq(head_format_name(head), wanted[i].format);
        ck_assert_int_eq(head->places.n, wanted[i].n);
        ck_assert_int_eq(head->places.n_blocks, wanted[i].n_blocks);
        ck_assert_int_eq(head->places.n_stored_blocks, wanted[i].n_stored);
        ck_assert_int_eq(head->places.hidden_dim, wanted[i].hidden_dim);
        ck_assert_int_eq(head->n_columns, wanted[i].n_columns);
        ck_assert_int_eq(head->places.has_logits, wanted[i].has_logits);
        ck_assert_int_eq(head->logits_from, wanted[i].logits_from);
        ck_assert_int_eq(head->embedding_from, HEAD_UNUSED);
        ck_assert_int_eq(checkpoint_config(ck)->dim, 64);
        CHECK_OK(head_readings(head, 32, readings, &n, &err));
        ck_assert_int_eq(n, 2);
        ck_assert(readings[0].normed && !strcmp(readings[0].name, "normed"));
        ck_assert(readings[1].n == 1 && readings[1].boundaries[0] == 32);
        const char *remark = checkpoint_remark(ck, CHECKPOINT_PLACES);
        ck_assert_int_eq(remark != NULL, !strcmp(wanted[i].name, "medusa"));
        if (remark)
            ck_assert_ptr_nonnull(strstr(remark, "announces 2 heads, but the files have 4"));
        ck_assert(checkpoint_is_head_folder(path));
        checkpoint_close(ck);
        CHECK_ERR(checkpoint_open(&ck, path, &err), ERR_UNSUPPORTED, "is a head or another part");
    }
}
END_TEST

START_TEST(a_target_lends_its_lm_head_with_its_scale)
{
    struct checkpoint *target, *ck;
    CHECK_OK(checkpoint_open(&target, MODELS "llama_tied", &err));
    const struct head_options options = {.target = target};
    CHECK_OK(checkpoint_open_head(&ck, PLACE_HEADS "blockwise", &options, &err));
    const struct head_config *head = checkpoint_head(ck);
    ck_assert_int_eq(head->logits_from, HEAD_LENT);
    ck_assert_int_eq(head->n_columns, checkpoint_config(target)->vocab_size);
    ck_assert_int_eq(checkpoint_config(ck)->vocab_size, head->n_columns);
    ck_assert(checkpoint_config(ck)->logit_softcap == checkpoint_config(target)->logit_softcap);
    ck_assert_uint_ne(checkpoint_stamp(ck), 0);
    checkpoint_close(ck);
    checkpoint_close(target);
}
END_TEST

START_TEST(wrong_values_in_a_config_are_refused)
{
    static const struct {
        const char *head, *key, *value;
        int code;
        const char *part;
    } cases[] = {
        {"blockwise", "block_size", "nothing", ERR_FORMAT, "lacks \"block_size\""},
        {"blockwise", "block_size", "3", ERR_FORMAT,
         "asks for 2 outputs of width 64, but output.weight has 192 rows"},
        {"blockwise", "block_size", "18", ERR_UNSUPPORTED, "so that it may be 17"},
        {"blockwise", "block_size", "1", ERR_FORMAT, "block_size"},
        {"blockwise", "block_size", "\"4\"", ERR_FORMAT, "block_size"},
        {"blockwise", "block_size", "4294967300", ERR_FORMAT, "block_size"},
        {"blockwise", "logit_scale", "-1", ERR_FORMAT, "logit_scale"},
        {"blockwise", "model_type", "\"blockwide\"", ERR_UNSUPPORTED, "blockwide"},
        {"medusa_repeated", "medusa_num_heads", "0", ERR_FORMAT, "medusa_num_heads"},
        {"medusa_repeated", "medusa_num_layers", "-1", ERR_FORMAT, "medusa_num_layers"},
        {"medusa_repeated", "medusa_num_layers", "[]", ERR_FORMAT, "medusa_num_layers"},
        {"medusa_shared", "medusa_num_layers", "9", ERR_UNSUPPORTED, "heads of 9 blocks"},
        {"medusa_listed", "num_heads", "1025", ERR_FORMAT, "num_heads"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_ERR(open_with_key(cases[i].head, cases[i].key, cases[i].value), cases[i].code,
                  cases[i].part);
    }
}
END_TEST

/* The numbers of a Medusa config are those of its training, which many files do not have. */
START_TEST(numbers_that_tensors_contradict_are_not_believed)
{
    CHECK_OK(open_with_key("medusa_repeated", "medusa_num_heads", "7"));
    CHECK_OK(open_with_key("medusa_repeated", "medusa_num_layers", "1"));
    CHECK_OK(open_with_key("medusa_repeated", "medusa_num_layers", "nothing"));
    CHECK_OK(open_with_key("medusa_listed", "num_hidden_layers", "1"));
}
END_TEST

START_TEST(missing_and_unknown_tensors_are_refused_by_their_names)
{
    static const struct {
        const char *head, *tensor, *other;
        int code;
        const char *part;
    } cases[] = {
        {"medusa_repeated", "0.0.linear.weight", "first", ERR_FORMAT, "so it has no Medusa heads"},
        {"medusa_repeated", "1.0.linear.weight", "surprise", ERR_UNSUPPORTED, "surprise"},
        {"medusa_repeated", "1.0.linear.bias", "surprise", ERR_FORMAT,
         "lacks the tensor 1.0.linear.bias"},
        {"medusa_repeated", "1.3.weight", "surprise", ERR_FORMAT, "lacks the tensor 1.3.weight"},
        {"medusa_repeated", "0.3.weight", "0.8.weight", ERR_FORMAT, "lacks the tensor 1.8.weight"},
        {"medusa_repeated", "0.3.weight", "0.9.weight", ERR_UNSUPPORTED, "0.9.weight"},
        {"medusa_listed", "lm_heads.1.weight", "surprise", ERR_FORMAT,
         "lacks the tensor lm_heads.1.weight"},
        {"medusa_listed", "blocks.1.layers.1.weight", "surprise", ERR_FORMAT,
         "lacks the tensor blocks.1.layers.1.weight"},
        {"blockwise", "hidden.weight", "surprise", ERR_FORMAT, "lacks the tensor hidden.weight"},
        {"blockwise", "output.weight", "surprise", ERR_FORMAT, "lacks the tensor output.weight"},
        {"blockwise", "output.bias", "surprise", ERR_FORMAT, "lacks the tensor output.bias"},
        {"blockwise", "output.bias", "lm_head.weight", ERR_FORMAT,
         "lm_head.weight must be a matrix"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_ERR(open_renamed(cases[i].head, cases[i].tensor, cases[i].other), cases[i].code,
                  cases[i].part);
    }
}
END_TEST

/* Bytes are as they were, and their shape is another. */
START_TEST(shapes_that_do_not_fit_are_refused)
{
    static const struct {
        const char *head, *tensor, *shape, *part;
    } cases[] = {
        {"medusa_repeated", "0.0.linear.weight", "[32, 128]", "0.0.linear.weight"},
        {"medusa_repeated", "0.0.linear.weight", "[4096]", "must be a matrix of at most"},
        {"medusa_repeated", "1.0.linear.weight", "[4, 16, 64]", "has shape [4, 16, 64]"},
        {"medusa_repeated", "0.3.weight", "[640, 32]", "0.3.weight"},
        {"medusa_repeated", "1.3.weight", "[640, 32]", "has shape [640, 32]"},
        {"medusa_repeated", "0.3.weight", "[1, 20480]", "0.3.weight"},
        {"blockwise", "hidden.weight", "[10240]", "must be a matrix of at most"},
        {"blockwise", "hidden.weight", "[64, 160]", "asks for 3 outputs of width 160"},
        {"blockwise", "output.weight", "[384, 80]", "output.weight has 384 rows"},
        {"blockwise", "output.bias", "[64, 3]", "has shape [64, 3]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        take_apart(cases[i].head);
        json_t *entry = json_object_get(header, cases[i].tensor);
        ck_assert_ptr_nonnull(entry);
        json_object_set_new(entry, "shape", json_loads(cases[i].shape, 0, NULL));
        CHECK_ERR(open_dir(), ERR_FORMAT, cases[i].part);
        clear_up();
    }
}
END_TEST

START_TEST(more_heads_than_a_round_has_places_are_refused)
{
    take_apart("medusa_repeated");
    for (int i = 2; i <= PLACES_MAX; i++) {
        char name[64];
        snprintf(name, sizeof name, "%d.0.linear.weight", i);
        json_object_set_new(header, name,
                            json_pack("{ss s[ii] s[II]}", "dtype", "F32", "shape", 0, 64,
                                      "data_offsets", (json_int_t)data_len, (json_int_t)data_len));
    }
    CHECK_ERR(open_dir(), ERR_UNSUPPORTED, "has more than 16 heads");
    clear_up();
}
END_TEST

START_TEST(a_head_of_another_target_is_refused)
{
    static const struct {
        const char *head, *target, *part;
    } cases[] = {{"medusa", "gemma2_open", "reads features of width 64, but"},
                 {"blockwise", "gemma2_open", "reads features of width 64, but"},
                 {"medusa", "phi3_partial", "is for a vocabulary of 320 ids, but that of"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct checkpoint *target;
        char path[512];
        snprintf(path, sizeof path, MODELS "%s", cases[i].target);
        CHECK_OK(checkpoint_open(&target, path, &err));
        const struct head_options options = {.target = target};
        snprintf(path, sizeof path, PLACE_HEADS "%s", cases[i].head);
        CHECK_ERR(open_head(path, &options), ERR_FORMAT, cases[i].part);
        checkpoint_close(target);
    }
}
END_TEST

START_TEST(tensors_of_pytorch_are_refused_with_the_way_out)
{
    char path[512];
    take_apart("medusa_repeated");
    put_together();
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    CHECK_ERR(open_head(dir, NULL), ERR_NOT_FOUND, "model.safetensors");
    write_file(dir, "medusa_lm_head.pt", "PK", 2, NULL, 0);
    CHECK_ERR(open_head(dir, NULL), ERR_UNSUPPORTED, "tools/convert_medusa.py");
    clear_up();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("place_heads_checkpoint");
    TCase *tests = tcase_create("folders of heads of places");
    tcase_add_test(tests, golden_heads_are_what_they_are);
    tcase_add_test(tests, a_target_lends_its_lm_head_with_its_scale);
    tcase_add_test(tests, wrong_values_in_a_config_are_refused);
    tcase_add_test(tests, numbers_that_tensors_contradict_are_not_believed);
    tcase_add_test(tests, missing_and_unknown_tensors_are_refused_by_their_names);
    tcase_add_test(tests, shapes_that_do_not_fit_are_refused);
    tcase_add_test(tests, more_heads_than_a_round_has_places_are_refused);
    tcase_add_test(tests, a_head_of_another_target_is_refused);
    tcase_add_test(tests, tensors_of_pytorch_are_refused_with_the_way_out);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
