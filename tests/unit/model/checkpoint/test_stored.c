/* ctest: labels=quick libs=checkpoint timeout=60 */
/* Folders of quantized models: their elements are those that the formats define
 * (tests/oracle/stored_golden.py), and broken ones are refused with a sentence. */
#include "model/checkpoint/stored.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system/file.h"
#include "model/checkpoint/checkpoint.h"
#include "model/numerics/numerics.h"
#include "tests/support/check_util.h"

#define STORED SOURCE_DIR "/tests/golden/stored/"

static struct error err;
static char dir[64];

static const char *const names[] = {
    "awq",        "gptq",         "gptq_v2",     "gptq_8",     "packed_rows",  "packed_zeros",
    "packed_8",   "bytes",        "bytes_zeros", "fp8_blocks", "fp8_rows",     "fp8_tensor",
    "gptq_order", "packed_order", "fused_awq",   "fused_gptq", "fused_packed", "fused_fp8"};
enum { N_NAMES = sizeof names / sizeof *names };

static const struct tensor_spec *spec_of(const struct checkpoint *ck, const char *name)
{
    size_t n;
    const struct tensor_spec *specs = checkpoint_tensors(ck, &n);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(specs[i].name, name) == 0) return &specs[i];
    }
    ck_abort_msg("no tensor %s", name);
}

/* An element as bf16, as a single float, among others and, of integers, in its group. */
static void check_element(const struct weight *weight, int row, int col, float wanted)
{
    float got, among[40];
    uint16_t bf16;
    weight_read_f32(weight, row, col, 1, &got);
    ck_assert_msg(num_float_to_bits(got) == num_float_to_bits(wanted), "[%d][%d] is %a, not %a",
                  row, col, (double)got, (double)wanted);
    int first = col > 7 ? col - 7 : 0,
        n = weight->n_cols - first < 40 ? weight->n_cols - first : 40;
    weight_read_f32(weight, row, first, n, among);
    ck_assert_uint_eq(num_float_to_bits(among[col - first]), num_float_to_bits(wanted));
    weight_read_bf16(weight, row, col, 1, &bf16);
    ck_assert_uint_eq(bf16, num_float_to_bf16(wanted));
    if (weight->stored.kind == STORED_FP8) {
        uint8_t byte;
        stored_read_fp8(&weight->stored, row, col, 1, &byte);
        ck_assert_uint_eq(
            num_float_to_bits(num_fp8_to_float(byte) * stored_scale_of(&weight->stored, row, col)),
            num_float_to_bits(wanted));
        return;
    }
    if (weight->stored.order) return;
    struct weight_group group;
    float run[QUANT_GROUP];
    weight_read_group(weight, row, col / QUANT_GROUP, &group);
    group_read_f32(weight_form_of(weight), &group, run);
    ck_assert_uint_eq(num_float_to_bits(run[col % QUANT_GROUP]), num_float_to_bits(wanted));
}

START_TEST(elements_are_those_of_the_format)
{
    struct checkpoint *ck;
    char path[512];
    int n_checked = 0;
    snprintf(path, sizeof path, STORED "%s/elements.json", names[_i]);
    json_t *root = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(root);
    snprintf(path, sizeof path, STORED "%s", names[_i]);
    CHECK_OK(checkpoint_open(&ck, path, &err));
    ck_assert_int_eq(checkpoint_config(ck)->stored, WEIGHTS_BLOCKS);
    for (void *at = json_object_iter(root); at; at = json_object_iter_next(root, at)) {
        const struct tensor_spec *spec = spec_of(ck, json_object_iter_key(at));
        struct weight weight;
        size_t i;
        json_t *sample;
        CHECK_OK(checkpoint_find(ck, spec->name, spec->n_rows, spec->n_cols, &weight, &err));
        ck_assert_int_eq(weight.dtype, DTYPE_STORED);
        json_array_foreach(json_object_iter_value(at), i, sample)
        {
            float wanted = strtof(json_string_value(json_array_get(sample, 2)), NULL);
            check_element(&weight, (int)json_integer_value(json_array_get(sample, 0)),
                          (int)json_integer_value(json_array_get(sample, 1)), wanted);
            n_checked++;
        }
    }
    ck_assert_int_ge(n_checked, strncmp(names[_i], "fused_", 6) == 0 ? 72 : 100);
    checkpoint_close(ck);
    json_decref(root);
}
END_TEST

/* Matrices that the tool has left out are as they are. */
START_TEST(plain_matrices_stay_plain)
{
    static const struct {
        const char *model, *matrix;
        int n_rows, n_cols;
    } cases[] = {{"awq", "self_attn.k_proj", 64, 128},
                 {"packed_zeros", "mlp.down_proj", 128, 256},
                 {"fp8_rows", "self_attn.q_proj", 128, 128}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct checkpoint *ck;
        struct weight weight;
        char path[512], name[128];
        snprintf(path, sizeof path, STORED "%s", cases[i].model);
        snprintf(name, sizeof name, "model.layers.0.%s.weight", cases[i].matrix);
        CHECK_OK(checkpoint_open(&ck, path, &err));
        CHECK_OK(checkpoint_find(ck, name, cases[i].n_rows, cases[i].n_cols, &weight, &err));
        ck_assert_int_eq(weight.dtype, DTYPE_BF16);
        CHECK_OK(checkpoint_find(ck, "lm_head.weight", 96, 128, &weight, &err));
        ck_assert_int_eq(weight.dtype, DTYPE_BF16);
        checkpoint_close(ck);
    }
}
END_TEST

START_TEST(activations_that_are_quantized_are_remarked)
{
    static const struct {
        const char *name;
        bool has_remark;
    } cases[] = {{"bytes", true}, {"fp8_blocks", true}, {"fp8_tensor", true}, {"awq", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct checkpoint *ck;
        char path[512];
        snprintf(path, sizeof path, STORED "%s", cases[i].name);
        CHECK_OK(checkpoint_open(&ck, path, &err));
        const char *remark = checkpoint_remark(ck, CHECKPOINT_ACTIVATIONS);
        ck_assert((remark != NULL) == cases[i].has_remark);
        checkpoint_close(ck);
    }
}
END_TEST

/* Groups that are no runs of columns are read by lists of columns. */
START_TEST(listed_columns_are_those_of_the_row)
{
    static const char *const models[] = {"gptq_order", "packed_order"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct checkpoint *ck;
        struct weight weight;
        struct weight_group group;
        char path[512];
        float one, run[QUANT_GROUP];
        int32_t list[QUANT_GROUP];
        snprintf(path, sizeof path, STORED "%s", models[i]);
        CHECK_OK(checkpoint_open(&ck, path, &err));
        CHECK_OK(
            checkpoint_find(ck, "model.layers.0.mlp.down_proj.weight", 128, 256, &weight, &err));
        ck_assert_ptr_nonnull(weight.stored.order);
        int n = 0, first = 64;
        memset(list, -1, sizeof list);
        for (int k = first; k < 256 && n < QUANT_GROUP - 3; k++) {
            if (stored_group_of(&weight.stored, k) == 2) list[n++] = k - first;
        }
        ck_assert_int_ge(n, 4);
        stored_read_listed(&weight.stored, 77, first, list, &group);
        group_read_f32(weight_form_of(&weight), &group, run);
        for (int k = 0; k < QUANT_GROUP; k++) {
            one = 0;
            if (list[k] >= 0) weight_read_f32(&weight, 77, first + list[k], 1, &one);
            ck_assert_uint_eq(num_float_to_bits(one), num_float_to_bits(run[k]));
        }
        checkpoint_close(ck);
    }
}
END_TEST

/* ---- broken folders ---- */

static json_t *header;
static struct file_view original;
static uint8_t *data;
static size_t data_len;

static void take_apart(const char *name)
{
    char path[512], text[512];
    struct file_view config;
    snprintf(dir, sizeof dir, "/tmp/outrider-stored-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, STORED "%s/config.json", name);
    CHECK_OK(file_map(&config, path, &err));
    snprintf(text, sizeof text, "%s/config.json", dir);
    CHECK_OK(file_replace(text, (const char *)config.data, config.size_bytes, &err));
    file_unmap(&config);
    snprintf(path, sizeof path, STORED "%s/model.safetensors", name);
    CHECK_OK(file_map(&original, path, &err));
    size_t len = original.data[0] | (size_t)original.data[1] << 8;
    header = json_loadb((const char *)original.data + 8, len, 0, NULL);
    ck_assert_ptr_nonnull(header);
    data_len = original.size_bytes - 8 - len;
    data = malloc(data_len);
    memcpy(data, original.data + 8 + len, data_len);
}

static void clear_up(void)
{
    char path[512];
    json_decref(header);
    free(data);
    file_unmap(&original);
    snprintf(path, sizeof path, "%s/config.json", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    rmdir(dir);
}

static int open_changed(void)
{
    static char text[1 << 17];
    char path[512];
    struct checkpoint *ck = NULL;
    size_t n = json_dumpb(header, text + 8, sizeof text - 8, JSON_COMPACT);
    ck_assert_uint_lt(n, sizeof text - 8);
    for (int i = 0; i < 8; i++) {
        text[i] = (char)(n >> (8 * i));
    }
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, n + 8, file), n + 8);
    ck_assert_uint_eq(fwrite(data, 1, data_len, file), data_len);
    ck_assert_int_eq(fclose(file), 0);
    int rc = checkpoint_open(&ck, dir, &err);
    checkpoint_close(ck);
    return rc;
}

static json_t *entry_of(const char *part)
{
    char name[160];
    snprintf(name, sizeof name, "model.layers.0.%s", part);
    json_t *entry = json_object_get(header, name);
    ck_assert_msg(entry != NULL, "no %s", name);
    return entry;
}

/* Where the part's bytes begin. */
static uint8_t *bytes_of(const char *part)
{
    return data +
           json_integer_value(json_array_get(json_object_get(entry_of(part), "data_offsets"), 0));
}

/* A part of one tensor, and the change. NULL rename: the type and the shape are set. */
static const struct {
    const char *model, *part, *rename, *dtype, *shape, *text;
} broken[] = {
    {"awq", "mlp.up_proj.qzeros", "other", NULL, NULL, "lacks the tensor model.layers.0.mlp.up_"},
    {"awq", "mlp.up_proj.scales", NULL, NULL, "[256,2]", "mlp.up_proj.scales of a matrix of [256,"},
    {"awq", "mlp.up_proj.scales", NULL, "I16", NULL, "of dtype I16, which is not supported for sc"},
    {"awq", "mlp.up_proj.qweight", NULL, NULL, "[32,128]", "not a row for each column"},
    {"awq", "mlp.up_proj.qweight", NULL, "F32", NULL, "of dtype F32, which is not supported (I32"},
    {"awq", "mlp.up_proj.qzeros", NULL, NULL, "[32,2]", "not zeros for each group"},
    {"gptq", "mlp.up_proj.qweight", NULL, NULL, "[4096]", "not words of 4 or 8 columns"},
    {"gptq", "mlp.up_proj.scales", NULL, NULL, "[256,4]", "which is no number of groups"},
    {"gptq", "mlp.up_proj.qzeros", NULL, NULL, "[128]", "not zeros for each group"},
    {"gptq", "mlp.up_proj.g_idx", NULL, NULL, "[64,2]", "not a group for each column"},
    {"gptq", "mlp.up_proj.g_idx", NULL, "F32", NULL, "of dtype F32"},
    {"packed_8", "mlp.up_proj.weight_packed", NULL, NULL, "[128,64]",
     "not words of 4 or 8 columns"},
    {"packed_8", "mlp.up_proj.weight_zero_point", NULL, NULL, "[2,64]",
     "not a zero for each scale"},
    {"packed_8", "mlp.up_proj.weight_zero_point", NULL, "F32", NULL, "not supported for zeros"},
    {"packed_8", "mlp.up_proj.weight_scale", NULL, NULL, "[2,256]", "which is no number of groups"},
    {"packed_8", "mlp.up_proj.weight_scale", NULL, NULL, "[128,4]", "not scales for each row"},
    {"packed_8", "mlp.up_proj.weight_scale", "other", NULL, NULL, "lacks the tensor"},
    {"bytes", "mlp.up_proj.weight", NULL, NULL, "[128,256]", "not that of the config"},
    {"bytes", "mlp.up_proj.weight_scale", NULL, NULL, "[1,256]", "which is no number of groups"},
    {"bytes", "mlp.up_proj.weight_scale", "other", NULL, NULL, "lacks the tensor"},
    {"fp8_blocks", "mlp.up_proj.weight_scale_inv", NULL, NULL, "[1,2]", "not a scale for each bl"},
    {"fp8_blocks", "mlp.up_proj.weight_scale_inv", "other", NULL, NULL, "lacks the tensor"},
    {"fp8_rows", "mlp.up_proj.weight_scale", NULL, NULL, "[16,16]", "not a scale for each block"},
    {"fused_awq", "self_attn.qkv_proj.qweight", NULL, NULL, "[256,16]",
     "self_attn.q_proj.qweight of a matrix of [128, 128] has shape [256, 8]"},
    {"fused_awq", "self_attn.qkv_proj.scales", NULL, NULL, "[256,2]",
     "where rows of two of them share scales or words"},
    {"fused_gptq", "mlp.gate_up_proj.g_idx", NULL, "F32", NULL, "of dtype F32"},
    {"fused_gptq", "self_attn.qkv_proj.qzeros", NULL, NULL, "[128]", "not zeros for each group"},
    {"fused_packed", "self_attn.qkv_proj.weight_zero_point", NULL, NULL, "[4,32]",
     "not a zero for each scale"},
    {"fused_fp8", "mlp.gate_up_proj.weight_scale_inv", NULL, NULL, "[1,4]",
     "share scales or words"},
};
enum { N_BROKEN = sizeof broken / sizeof *broken };

START_TEST(broken_parts_are_named)
{
    char name[160], other[200];
    take_apart(broken[_i].model);
    json_t *entry = json_incref(entry_of(broken[_i].part));
    if (broken[_i].dtype) json_object_set_new(entry, "dtype", json_string(broken[_i].dtype));
    if (broken[_i].shape)
        json_object_set_new(entry, "shape", json_loads(broken[_i].shape, 0, NULL));
    if (broken[_i].rename) {
        snprintf(name, sizeof name, "model.layers.0.%s", broken[_i].part);
        snprintf(other, sizeof other, "%s.%s", name, broken[_i].rename);
        json_object_set(header, other, entry);
        json_object_del(header, name);
    }
    json_decref(entry);
    int rc = open_changed();
    ck_assert_int_ne(rc, 0);
    ck_assert_msg(strstr(err.text, broken[_i].text) != NULL, "%s lacks %s", err.text,
                  broken[_i].text);
    clear_up();
}
END_TEST

/* A matrix that is there quantized and as numbers, whatever is read of the two. */
START_TEST(a_matrix_that_is_there_twice_is_refused)
{
    static const struct {
        const char *model, *part;
    } cases[] = {{"awq", "mlp.up_proj.qzeros"},
                 {"gptq", "mlp.up_proj.scales"},
                 {"packed_8", "mlp.up_proj.weight_scale"}};
    char name[160];
    take_apart(cases[_i].model);
    json_t *entry = json_incref(entry_of(cases[_i].part));
    snprintf(name, sizeof name, "model.layers.0.%s", cases[_i].part);
    json_object_del(header, name);
    json_object_set_new(header, "model.layers.0.mlp.up_proj.weight", entry);
    ck_assert_int_eq(open_changed(), ERR_FORMAT);
    ck_assert_msg(strstr(err.text, "has model.layers.0.mlp.up_proj.weight twice, quantized and as"),
                  "%s", err.text);
    clear_up();
}
END_TEST

START_TEST(groups_that_are_not_there_are_refused)
{
    static const int32_t bad[] = {-1, 4, 1 << 30, INT32_MIN};
    take_apart("gptq");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memcpy(bytes_of("mlp.up_proj.g_idx") + 5 * sizeof *bad, &bad[i], sizeof *bad);
        CHECK_ERR(open_changed(), ERR_FORMAT, "says that column 5 is of group");
    }
    clear_up();
}
END_TEST

/* Biases of zeros come with old files of GPTQ; others change the result. */
START_TEST(a_bias_that_is_not_announced_is_refused_unless_it_is_zero)
{
    take_apart("gptq");
    CHECK_OK(open_changed());
    bytes_of("mlp.up_proj.bias")[3] = 1;
    CHECK_ERR(open_changed(), ERR_UNSUPPORTED, "mlp.up_proj.bias");
    clear_up();
}
END_TEST

START_TEST(a_changed_scale_or_zero_changes_the_fingerprint)
{
    static const struct {
        const char *model, *part;
    } cases[] = {{"awq", "mlp.up_proj.qzeros"},
                 {"gptq", "mlp.up_proj.scales"},
                 {"packed_8", "mlp.up_proj.weight_zero_point"},
                 {"fp8_blocks", "mlp.up_proj.weight_scale_inv"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct checkpoint *ck;
        take_apart(cases[i].model);
        CHECK_OK(open_changed());
        CHECK_OK(checkpoint_open(&ck, dir, &err));
        uint64_t before = checkpoint_fingerprint(ck);
        checkpoint_close(ck);
        bytes_of(cases[i].part)[0] ^= 1;
        CHECK_OK(open_changed());
        CHECK_OK(checkpoint_open(&ck, dir, &err));
        ck_assert_uint_ne(checkpoint_fingerprint(ck), before);
        checkpoint_close(ck);
        clear_up();
    }
}
END_TEST

/* ---- fused tensors ---- */

enum { N_FUSED = 3, QKV_ROWS = 256 };
static const char *const fused_parts[N_FUSED] = {"qweight", "qzeros", "scales"};

/* Writes into the header that the part is three tensors in its bytes, no columns of qkv_proj. */
static void set_apart(const char *part)
{
    static const struct {
        const char *name;
        int rows;
    } matrices[] = {{"q", 128}, {"k", 64}, {"v", 64}};
    char fused[64], name[160];
    snprintf(fused, sizeof fused, "self_attn.qkv_proj.%s", part);
    json_t *entry = json_incref(entry_of(fused)), *shape = json_object_get(entry, "shape");
    json_int_t n_lines = json_integer_value(json_array_get(shape, 0)),
               n_columns = json_integer_value(json_array_get(shape, 1)),
               at = json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0)),
               end = json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 1)),
               column_bytes = (end - at) / n_columns;
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        json_int_t n = n_columns * matrices[i].rows / QKV_ROWS;
        json_t *own = json_pack("{s:O, s:[I,I], s:[I,I]}", "dtype", json_object_get(entry, "dtype"),
                                "shape", n_lines, n, "data_offsets", at, at + n * column_bytes);
        ck_assert_ptr_nonnull(own);
        snprintf(name, sizeof name, "model.layers.0.self_attn.%s_proj.%s", matrices[i].name, part);
        json_object_set_new(header, name, own);
        at += n * column_bytes;
    }
    ck_assert_int_eq(at, end);
    snprintf(name, sizeof name, "model.layers.0.%s", fused);
    json_object_del(header, name);
    json_decref(entry);
}

/* A line of the one kind is longer than one of the other, so that columns of both kinds would be
 * read from wrong places, past the end of the file at last. */
START_TEST(a_matrix_that_is_fused_in_part_is_refused)
{
    static const char *const models[] = {"fused_awq", "fused_gptq"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        take_apart(models[m]);
        for (int i = 0; i < N_FUSED; i++) {
            if (_i >> i & 1) set_apart(fused_parts[i]);
        }
        if (_i == 0 || _i == (1 << N_FUSED) - 1) {
            CHECK_OK(open_changed());
        } else {
            CHECK_ERR(open_changed(), ERR_FORMAT,
                      "q_proj.qweight, qzeros and scales some are fused");
        }
        clear_up();
    }
}
END_TEST

START_TEST(a_matrix_that_is_there_fused_and_by_itself_is_refused)
{
    take_apart("fused_awq");
    json_t *entry = json_incref(entry_of("mlp.down_proj.qweight"));
    json_object_del(header, "model.layers.0.mlp.down_proj.qweight");
    json_object_set_new(header, "model.layers.0.mlp.up_proj.qweight", entry);
    CHECK_ERR(open_changed(), ERR_FORMAT, "the tensor model.layers.0.mlp.up_proj.qweight twice");
    clear_up();
}
END_TEST

/* Sets the shape of a tensor of one byte an element and drops its last bytes. */
static void cut_rows(const char *part, int rows, int cols)
{
    json_t *offsets = json_object_get(entry_of(part), "data_offsets"), *entry;
    json_int_t end = json_integer_value(json_array_get(offsets, 1)), n_less;
    const char *name;
    n_less = end - json_integer_value(json_array_get(offsets, 0)) - rows * cols;
    ck_assert_int_ge(n_less, 0);
    json_object_set_new(entry_of(part), "shape", json_pack("[i,i]", rows, cols));
    memmove(data + end - n_less, data + end, data_len - (size_t)end);
    data_len -= (size_t)n_less;
    json_object_foreach(header, name, entry)
    {
        json_t *own = json_object_get(entry, "data_offsets");
        for (size_t i = 0; own && i < 2; i++) {
            json_int_t at = json_integer_value(json_array_get(own, i));
            if (at >= end) json_array_set_new(own, i, json_integer(at - n_less));
        }
    }
}

/* Matrices of 224 rows in blocks of 128: the fused one has 448 rows and four lines of scales, of
 * which the second one is for rows of both matrices. */
START_TEST(matrices_that_share_a_block_of_scales_are_refused)
{
    enum { WIDTH = 128, FFN = 224 };
    char path[512];
    take_apart("fused_fp8");
    CHECK_OK(open_changed());
    snprintf(path, sizeof path, "%s/config.json", dir);
    json_t *config = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(config);
    json_object_set_new(config, "intermediate_size", json_integer(FFN));
    ck_assert_int_eq(json_dump_file(config, path, 0), 0);
    json_decref(config);
    cut_rows("mlp.gate_up_proj.weight", 2 * FFN, WIDTH);
    cut_rows("mlp.down_proj.weight", WIDTH, FFN);
    CHECK_ERR(open_changed(), ERR_UNSUPPORTED, "where rows of two of them share scales or words");
    clear_up();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stored");
    TCase *tcase = tcase_create("elements");
    tcase_add_loop_test(tcase, elements_are_those_of_the_format, 0, N_NAMES);
    tcase_add_test(tcase, plain_matrices_stay_plain);
    tcase_add_test(tcase, activations_that_are_quantized_are_remarked);
    tcase_add_test(tcase, listed_columns_are_those_of_the_row);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("broken");
    tcase_add_loop_test(tcase, broken_parts_are_named, 0, N_BROKEN);
    tcase_add_loop_test(tcase, a_matrix_that_is_there_twice_is_refused, 0, 3);
    tcase_add_loop_test(tcase, a_matrix_that_is_fused_in_part_is_refused, 0, 1 << N_FUSED);
    tcase_add_test(tcase, a_matrix_that_is_there_fused_and_by_itself_is_refused);
    tcase_add_test(tcase, matrices_that_share_a_block_of_scales_are_refused);
    tcase_add_test(tcase, groups_that_are_not_there_are_refused);
    tcase_add_test(tcase, a_bias_that_is_not_announced_is_refused_unless_it_is_zero);
    tcase_add_test(tcase, a_changed_scale_or_zero_changes_the_fingerprint);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
