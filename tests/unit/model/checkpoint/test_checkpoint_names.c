/* ctest: labels=quick libs=checkpoint timeout=60 */
/* Tensors that hold several matrices are several tensors once a folder is open, each with its own
 * rows, and the text part of a model that also sees has the names of a model of its own. A tensor
 * that has not the rows that config.json asks for is refused. */
#include "model/checkpoint/checkpoint.h"

#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "base/system/file.h"
#include "model/checkpoint/safetensors.h"
#include "tests/support/check_util.h"

#define GOLDEN SOURCE_DIR "/tests/golden/models/"

static struct error err;

/* The bytes of the file's tensor. */
static const uint8_t *stored(const struct file_view *view, const struct safetensors *table,
                             const char *name, size_t *len)
{
    const struct safetensors_entry *entry = safetensors_find(table, name);
    ck_assert_msg(entry != NULL, "the file lacks %s", name);
    *len = entry->end - entry->begin;
    return view->data + entry->begin;
}

/* The tensor `name` of the model, whose rows begin at row `first` of the file's `fused`. */
static void check_rows(const char *folder, const char *fused, const char *name, int first,
                       int n_rows, int n_cols)
{
    char path[300];
    struct file_view view;
    struct safetensors table;
    struct checkpoint *ck;
    struct weight weight;
    size_t len;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CHECK_OK(file_map(&view, path, &err));
    CHECK_OK(safetensors_parse(&table, view.data, view.size_bytes, path, &err));
    const uint8_t *bytes = stored(&view, &table, fused, &len);
    size_t row_bytes = (size_t)n_cols * 2;
    ck_assert_uint_le((size_t)(first + n_rows) * row_bytes, len);
    CHECK_OK(checkpoint_open(&ck, folder, &err));
    CHECK_OK(checkpoint_find(ck, name, n_rows, n_cols, &weight, &err));
    ck_assert_mem_eq(weight.data, bytes + (size_t)first * row_bytes, (size_t)n_rows * row_bytes);
    checkpoint_close(ck);
    safetensors_free(&table);
    file_unmap(&view);
}

START_TEST(fused_matrices_are_rows_of_one_tensor)
{
    const char *phi = GOLDEN "phi3_partial"; /* 4 heads on 2 of 16, width 64, ffn 32 */
    const char *qkv = "model.layers.1.self_attn.qkv_proj.weight";
    check_rows(phi, qkv, "model.layers.1.self_attn.q_proj.weight", 0, 64, 64);
    check_rows(phi, qkv, "model.layers.1.self_attn.k_proj.weight", 64, 32, 64);
    check_rows(phi, qkv, "model.layers.1.self_attn.v_proj.weight", 96, 32, 64);
    const char *gate_up = "model.layers.0.mlp.gate_up_proj.weight";
    check_rows(phi, gate_up, "model.layers.0.mlp.gate_proj.weight", 0, 32, 64);
    check_rows(phi, gate_up, "model.layers.0.mlp.up_proj.weight", 32, 32, 64);
    const char *granite = GOLDEN "granite4_rope"; /* width 32, ffn 48 */
    const char *input = "model.layers.2.shared_mlp.input_linear.weight";
    check_rows(granite, input, "model.layers.2.mlp.gate_proj.weight", 0, 48, 32);
    check_rows(granite, input, "model.layers.2.mlp.up_proj.weight", 48, 48, 32);
    check_rows(granite, "model.layers.2.shared_mlp.output_linear.weight",
               "model.layers.2.mlp.down_proj.weight", 0, 32, 48);
}
END_TEST

START_TEST(the_text_part_of_a_seeing_model_has_names_of_its_own)
{
    struct checkpoint *ck;
    check_rows(GOLDEN "gemma3_seeing", "language_model.model.embed_tokens.weight",
               "model.embed_tokens.weight", 0, 128, 32);
    CHECK_OK(checkpoint_open(&ck, GOLDEN "gemma3_seeing", &err));
    ck_assert_ptr_nonnull(strstr(checkpoint_remark(ck, CHECKPOINT_TEXT_PART), "takes images"));
    checkpoint_close(ck);
}
END_TEST

START_TEST(long_factors_are_told_where_they_hold)
{
    struct checkpoint *ck;
    CHECK_OK(checkpoint_open(&ck, GOLDEN "phi3_long_factors", &err));
    const char *remark = checkpoint_remark(ck, CHECKPOINT_LONG_ROPE);
    ck_assert_ptr_nonnull(remark);
    ck_assert_ptr_nonnull(strstr(remark, "the context of 512 is longer than the 64"));
    checkpoint_close(ck);
    CHECK_OK(checkpoint_open(&ck, GOLDEN "phi3_short_factors", &err));
    ck_assert_ptr_null(checkpoint_remark(ck, CHECKPOINT_LONG_ROPE));
    checkpoint_close(ck);
}
END_TEST

START_TEST(rows_that_the_config_does_not_ask_for_are_refused)
{
    char dir[64] = "/tmp/outrider-names-XXXXXX", path[128];
    struct checkpoint *ck;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    json_t *config = json_load_file(GOLDEN "phi3_partial/config.json", 0, NULL);
    ck_assert_ptr_nonnull(config);
    json_object_set_new(config, "num_key_value_heads", json_integer(4));
    snprintf(path, sizeof path, "%s/config.json", dir);
    ck_assert_int_eq(json_dump_file(config, path, 0), 0);
    json_decref(config);
    char link_path[128];
    snprintf(link_path, sizeof link_path, "%s/model.safetensors", dir);
    ck_assert_int_eq(symlink(GOLDEN "phi3_partial/model.safetensors", link_path), 0);
    CHECK_ERR(checkpoint_open(&ck, dir, &err), ERR_FORMAT,
              "self_attn.qkv_proj.weight has not the 192 rows that the config asks for");
    unlink(link_path);
    unlink(path);
    rmdir(dir);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("checkpoint_names");
    TCase *tcase = tcase_create("all");
    tcase_add_test(tcase, fused_matrices_are_rows_of_one_tensor);
    tcase_add_test(tcase, the_text_part_of_a_seeing_model_has_names_of_its_own);
    tcase_add_test(tcase, long_factors_are_told_where_they_hold);
    tcase_add_test(tcase, rows_that_the_config_does_not_ask_for_are_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
