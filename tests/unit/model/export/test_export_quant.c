/* ctest: labels=quick libs=model,export timeout=120 */
/* Folders stored in 8 and 4 bits: they compute the bits that quantizing the source at load gives,
 * and what does not fit is refused. tests/cluster/test_export_client.py reads the tensors with
 * other code. */
#include <jansson.h>

#include "model/checkpoint/config/config_parse.h"
#include "model/export/text.h"
#include "tests/support/export_util.h"

static const enum weight_form forms[] = {WEIGHTS_INT8, WEIGHTS_INT4};

static int export_as(const char *model, enum weight_form form, uint64_t shard_bytes)
{
    const struct export_options options = {.shard_bytes = shard_bytes, .form = form};
    struct export_result result;
    remove_folder(work);
    return model_export(model, work, &options, &result, &err);
}

START_TEST(a_stored_folder_computes_what_quantizing_at_load_computes)
{
    static const struct {
        const char *model;
        int n_ranks;
        uint64_t shard_bytes;
    } cases[] = {
        {TALES "target", 1, 1 << 30},
        {TALES "draft", 2, 100000},
        {"synthetic:qwen2.5-0.5b,seed=3,layers=1,vocab=300", 2, 1 << 30}, /* tied, biases */
        {GOLDEN "/qwen3_norm_bias", 1, 1 << 30},
        {GOLDEN "/llama_f32", 1, 1 << 30},
    };
    enum weight_form form = forms[_i];
    int n_stored = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = 0, n_again = 0;
        int rc = export_as(cases[i].model, form, cases[i].shard_bytes);
        if (rc == ERR_UNSUPPORTED && strstr(err.text, "slices of"))
            continue; /* narrow golden ones */
        CHECK_OK(rc);
        n_stored++;
        rig_weights = weight_form_name(form);
        float *of_source = logits_of(cases[i].model, cases[i].n_ranks, &n);
        rig_weights = NULL; /* as stored */
        float *of_export = logits_of(work, 1, &n_again);
        ck_assert_uint_eq(n, n_again);
        ck_assert_mem_eq(of_source, of_export, n * sizeof *of_source);
        free(of_source);
        free(of_export);
    }
    ck_assert_int_ge(n_stored, 3);
}
END_TEST

START_TEST(the_config_says_what_is_stored)
{
    struct model_config again;
    struct checkpoint *ck;
    char *text;
    size_t len;
    CHECK_OK(export_as(TALES "draft", forms[_i], 1 << 30));
    CHECK_OK(checkpoint_open(&ck, work, &err));
    const struct model_config *cfg = checkpoint_config(ck);
    ck_assert_int_eq((int)cfg->stored, (int)forms[_i]);
    ck_assert_int_eq(cfg->stored_group, 32);
    CHECK_OK(export_config_text(cfg, &text, &len, &err));
    CHECK_OK(config_parse(&again, text, len, NULL, 0, "the export", NULL, &err));
    ck_assert_int_eq((int)again.stored, (int)forms[_i]);
    free(text);
    checkpoint_close(ck);
}
END_TEST

/* One scale for 64 or more k, as other tools store it: the same numbers as the scale written
 * twice. */
START_TEST(wider_groups_are_read)
{
    static const uint8_t data[128] = {[0] = 0x1f, [127] = 0x80};
    static const uint8_t stored_scales[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const struct weight narrow = {.dtype = DTYPE_INT4,
                                  .n_rows = 2,
                                  .n_cols = 128,
                                  .data = data,
                                  .scales = stored_scales,
                                  .group = 64};
    int8_t q[96];
    uint16_t scales[3];
    weight_read_groups(&narrow, WEIGHTS_INT4, 1, 32, 96, q, scales);
    ck_assert_uint_eq(scales[0], 0x0605);
    ck_assert_uint_eq(scales[1], 0x0807);
    ck_assert_uint_eq(scales[2], 0x0807);
    ck_assert_int_eq(q[94], -8);
    ck_assert_int_eq(q[95], 0);
    weight_read_groups(&narrow, WEIGHTS_INT4, 0, 0, 32, q, scales);
    ck_assert_uint_eq(scales[0], 0x0201);
    ck_assert_int_eq(q[0], 7); /* the lowest k in the lowest bits */
    ck_assert_int_eq(q[1], -7);
}
END_TEST

START_TEST(weights_that_do_not_fit_the_options_are_refused)
{
    struct backend *be;
    struct checkpoint *ck;
    struct model *model;
    const struct backend_options options = {.device = "cpu",
                                            .weights = "bf16",
                                            .kernels = "auto",
                                            .n_threads = 1,
                                            .stored = WEIGHTS_INT8};
    const struct backend_options unaware = {
        .device = "cpu", .weights = "int4", .kernels = "auto", .n_threads = 1};
    const struct model_options mo = {
        .n_kv_blocks = 1, .max_tokens = 1, .max_rows = 1, .max_lanes = 1};
    CHECK_ERR(backend_open(&be, &options, &err), ERR_ARGUMENT,
              "--weights bf16: the model is stored in int8");
    CHECK_ERR(export_as("synthetic:tiny,seed=1", WEIGHTS_INT8, 1 << 30), ERR_UNSUPPORTED,
              "o_proj.weight is computed in slices of 16");
    ck_assert_int_ne(access(work, F_OK), 0);
    CHECK_OK(export_as(TALES "draft", WEIGHTS_INT8, 1 << 30));
    CHECK_OK(backend_open(&be, &unaware, &err));
    CHECK_OK(checkpoint_open(&ck, work, &err));
    CHECK_ERR(model_open(&model, ck, comm_single(), be, &mo, &err), ERR_UNSUPPORTED,
              "is stored in int8, which --device cpu does not compute in cpu-int4");
    checkpoint_close(ck);
    be->ops->close(be);
    const struct export_options again = {.shard_bytes = 1 << 30};
    struct export_result result;
    CHECK_ERR(model_export(work, "/tmp/outrider-none", &again, &result, &err), ERR_UNSUPPORTED,
              "is stored in int8; export the model that it was made from");
}
END_TEST

/* config.json of the stored draft with the object at `path` changed. */
static void check_changed(const char *object, const char *patch, const char *text)
{
    char path[PATH_BYTES + 20];
    struct model_config cfg;
    snprintf(path, sizeof path, "%s/config.json", work);
    json_t *root = json_load_file(path, 0, NULL), *change = json_loads(patch, 0, NULL);
    ck_assert_ptr_nonnull(root);
    ck_assert_ptr_nonnull(change);
    json_t *at = json_object_get(root, "quantization_config");
    json_t *group = json_object_get(json_object_get(at, "config_groups"), "group_0");
    if (strcmp(object, "group") == 0) at = group;
    if (strcmp(object, "weights") == 0) at = json_object_get(group, "weights");
    ck_assert_int_eq(json_object_update(at, change), 0);
    char *changed = json_dumps(root, 0);
    CHECK_ERR(config_parse(&cfg, changed, strlen(changed), NULL, 0, "test.json", NULL, &err),
              ERR_UNSUPPORTED, text);
    free(changed);
    json_decref(root);
    json_decref(change);
}

START_TEST(other_quantizations_are_refused_by_name)
{
    CHECK_OK(export_as(TALES "draft", WEIGHTS_INT4, 1 << 30));
    check_changed("top", "{\"quant_method\":\"bitsandbytes\"}", "quantized by \"bitsandbytes\"");
    check_changed("top", "{\"quant_method\":null}", "without \"quant_method\"");
    check_changed("top", "{\"format\":\"marlin-24\"}", "\"format\" = \"marlin-24\"");
    check_changed("top", "{\"format\":\"dense\"}", "\"format\" = \"dense\"");
    check_changed("top", "{\"sparsity_config\":{\"format\":\"sparse-24\"}}", "\"sparsity_config\"");
    check_changed("top", "{\"transform_config\":{\"a\":1}}", "\"transform_config\"");
    check_changed("top", "{\"clever\":1}", "\"clever\" = 1");
    check_changed("top", "{\"config_groups\":{}}", "has no config_groups");
    check_changed("weights", "{\"num_bits\":3}", "\"num_bits\" = 3");
    check_changed("weights", "{\"strategy\":\"tensor_group\"}", "\"strategy\" = \"tensor_group\"");
    check_changed("weights", "{\"group_size\":16}", "\"group_size\" = 16");
    check_changed("weights", "{\"type\":\"float\"}", "floats of 4 bits");
    check_changed("weights", "{\"dynamic\":true}", "\"dynamic\" = true");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("export_quant");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 280);
    tcase_add_checked_fixture(tcase, make_work, remove_work);
    tcase_add_loop_test(tcase, a_stored_folder_computes_what_quantizing_at_load_computes, 0, 2);
    tcase_add_loop_test(tcase, the_config_says_what_is_stored, 0, 2);
    tcase_add_test(tcase, wider_groups_are_read);
    tcase_add_test(tcase, weights_that_do_not_fit_the_options_are_refused);
    tcase_add_test(tcase, other_quantizations_are_refused_by_name);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
