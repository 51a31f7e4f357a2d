/* ctest: labels=quick libs=model,export timeout=120 */
/* Export: our own reader gets the same model from what is written (equal logits, equal configs),
 * and nothing is written where it must not be, nor does any part of it remain.
 * tests/cluster/test_export_client.py reads the files with other code. */
#include "base/system/file.h"
#include "model/checkpoint/config/config_fields.h"
#include "model/checkpoint/config/config_parse.h"
#include "model/checkpoint/safetensors.h"
#include "model/export/tensor_header.h"
#include "model/export/text.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/support/export_util.h"

static struct export_result export_to_work(const char *model, uint64_t shard_bytes)
{
    const struct export_options options = {.shard_bytes = shard_bytes};
    struct export_result result;
    remove_folder(work);
    CHECK_OK(model_export(model, work, &options, &result, &err));
    return result;
}

static void check_equal_logits(const char *model)
{
    size_t n = 0, n_again = 0;
    float *of_source = logits_of(model, 1, &n), *of_export = logits_of(work, 1, &n_again);
    ck_assert_uint_eq(n, n_again);
    ck_assert_mem_eq(of_source, of_export, n * sizeof *of_source);
    free(of_source);
    free(of_export);
}

static uint64_t fingerprint_of(const char *model)
{
    struct checkpoint *ck;
    CHECK_OK(checkpoint_open(&ck, model, &err));
    uint64_t fingerprint = checkpoint_fingerprint(ck);
    checkpoint_close(ck);
    return fingerprint;
}

START_TEST(a_bf16_folder_comes_out_as_it_is)
{
    static const char *const models[] = {TALES "target", TALES "draft", GOLDEN "/qwen3_norm_bias",
                                         GOLDEN "/llama_sharded"};
    for (int i = 0; i < 4; i++) {
        struct export_result result = export_to_work(models[i], 1 << 30);
        ck_assert_int_eq(result.n_shards, 1);
        ck_assert_uint_eq(fingerprint_of(models[i]), fingerprint_of(work));
        check_equal_logits(models[i]);
        ck_assert(result.has_tokenizer == (i < 2));
    }
}
END_TEST

/* Also what exports have none of: three dimensions, and names and metadata that need escapes. */
START_TEST(a_header_before_tensors_in_parts_is_read_back)
{
    static const struct tensor_header_entry entries[] = {
        {"z \"quoted\"", "BF16", 3, {3, 2, 5}, 60},
        {"a", "I32", 1, {3}, 12},
    };
    static const uint8_t data[72] = {1, 2, 3};
    char path[PATH_BYTES + 100];
    struct buffer header = {0};
    struct file_view view;
    struct safetensors table;
    json_t *metadata = json_pack("{ss}", "model", "a \"b\"\n");
    buffer_append(&header, "kept", 4, &err);
    CHECK_OK(tensor_header_write(&header, metadata, entries, 2, &err));
    ck_assert_mem_eq(header.data, "kept", 4);
    size_t len = header.len - 4;
    ck_assert_uint_eq(len % 8, 0);
    const struct file_part parts[] = {{header.data + 4, len}, {data, 60}, {data + 60, 12}};
    remove_folder(work);
    snprintf(path, sizeof path, "%s.safetensors", work);
    CHECK_OK(file_replace_parts(path, parts, 3, &err));
    CHECK_OK(file_map(&view, path, &err));
    ck_assert_uint_eq(view.size_bytes, len + sizeof data);
    ck_assert_mem_eq(view.data + len, data, sizeof data);
    CHECK_OK(safetensors_parse(&table, view.data, view.size_bytes, path, &err));
    ck_assert_uint_eq(table.n_entries, 2);
    const struct safetensors_entry *cube = safetensors_find(&table, "z \"quoted\"");
    ck_assert_ptr_nonnull(cube);
    ck_assert_int_eq(cube->n_dims, 3);
    ck_assert_uint_eq(cube->dims[2], 5);
    ck_assert_uint_eq(cube->begin, len);
    ck_assert_uint_eq(safetensors_find(&table, "a")->begin, len + 60);
    safetensors_free(&table);
    file_unmap(&view);
    unlink(path);
    buffer_free(&header);
    json_decref(metadata);
}
END_TEST

START_TEST(the_tales_tokenizer_comes_along)
{
    struct tokenizer *source, *copy;
    export_to_work(TALES "target", 1 << 30);
    CHECK_OK(tokenizer_open(&source, TALES "target", &err));
    CHECK_OK(tokenizer_open(&copy, work, &err));
    ck_assert_uint_eq(tokenizer_fingerprint(source), tokenizer_fingerprint(copy));
    tokenizer_close(source);
    tokenizer_close(copy);
}
END_TEST

START_TEST(synthetic_models_compute_the_same_from_a_folder)
{
    static const char *const models[] = {
        "synthetic:tiny,seed=3",
        "synthetic:tiny,seed=3,layers=4,agree=0.6",
        "synthetic:tiny,seed=3,layers=4,agree=0.6,draft=1",
        "synthetic:" GOLDEN "/qwen2_bias/config.json,seed=3",
        "synthetic:" GOLDEN "/qwen3_norm/config.json,seed=3,vocab=300",
        "synthetic:" GOLDEN "/llama_bias/config.json,seed=3",
        "synthetic:" GOLDEN "/llama_rope_llama3/config.json,seed=3",
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        export_to_work(models[i], 1 << 30);
        check_equal_logits(models[i]);
    }
}
END_TEST

static bool exists(const char *name)
{
    char path[PATH_BYTES + 100];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", work, name);
    return stat(path, &st) == 0;
}

START_TEST(a_large_model_is_cut_into_shards)
{
    const char *model = "synthetic:tiny,seed=8";
    struct export_result whole = export_to_work(model, 1 << 30);
    struct export_result cut = export_to_work(model, 100000);
    ck_assert_uint_eq(whole.n_bytes, cut.n_bytes);
    ck_assert_int_gt(cut.n_shards, 4);
    ck_assert(!exists("model.safetensors"));
    ck_assert(exists("model.safetensors.index.json"));
    check_equal_logits(model);
    /* A tensor that is larger than a shard is alone in one. */
    struct export_result single = export_to_work(model, 1);
    ck_assert_int_eq(single.n_shards, 3 + 2 * 9);
    check_equal_logits(model);
}
END_TEST

START_TEST(fp32_is_rounded_to_bf16_once)
{
    struct checkpoint *source, *copy;
    struct weight a, b;
    uint16_t row_a[64], row_b[64];
    export_to_work(GOLDEN "/llama_f32", 1 << 30);
    CHECK_OK(checkpoint_open(&source, GOLDEN "/llama_f32", &err));
    CHECK_OK(checkpoint_open(&copy, work, &err));
    int d = checkpoint_config(source)->dim;
    ck_assert_int_le(d, 64);
    CHECK_OK(checkpoint_find(source, "model.norm.weight", 1, d, &a, &err));
    CHECK_OK(checkpoint_find(copy, "model.norm.weight", 1, d, &b, &err));
    ck_assert_int_eq((int)a.dtype, (int)DTYPE_F32);
    ck_assert_int_eq((int)b.dtype, (int)DTYPE_BF16);
    weight_read_bf16(&a, 0, 0, d, row_a);
    weight_read_bf16(&b, 0, 0, d, row_b);
    ck_assert_mem_eq(row_a, row_b, (size_t)d * sizeof *row_a);
    checkpoint_close(source);
    checkpoint_close(copy);
}
END_TEST

static void check_config_survives(const struct model_config *cfg)
{
    struct model_config again;
    char *text;
    size_t len;
    CHECK_OK(export_config_text(cfg, &text, &len, &err));
    CHECK_OK(config_parse(&again, text, len, NULL, 0, "the export", NULL, &err));
    if (cfg->ropes[0].kind != ROPE_LLAMA3 && cfg->ropes[0].kind != ROPE_YARN) {
        again.ropes[0].original_max_positions =
            cfg->ropes[0].original_max_positions; /* not used, not written */
    }
    const char *difference = config_difference(cfg, &again);
    ck_assert_msg(!difference, "%s is not read back as it was", difference ? difference : "");
    free(text);
}

START_TEST(every_config_is_read_back_as_it_was)
{
    char path[PATH_BYTES];
    const struct dirent *entry;
    int n_configs = 0;
    DIR *dir = opendir(GOLDEN);
    ck_assert_ptr_nonnull(dir);
    while ((entry = readdir(dir))) {
        struct checkpoint *ck;
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", GOLDEN, entry->d_name);
        CHECK_OK(checkpoint_open(&ck, path, &err));
        if (export_config_check(checkpoint_config(ck), &err) == 0) {
            check_config_survives(checkpoint_config(ck));
            n_configs++;
        }
        checkpoint_close(ck);
    }
    closedir(dir);
    ck_assert_int_ge(n_configs, 20);
}
END_TEST

START_TEST(a_model_of_a_family_that_is_only_read_is_refused)
{
    struct export_result result;
    const struct export_options options = {.shard_bytes = 1 << 20};
    make_work();
    CHECK_ERR(model_export(GOLDEN "/gemma2_open", work, &options, &result, &err), ERR_UNSUPPORTED,
              "Gemma2ForCausalLM cannot be exported; those of Llama, Mistral and Qwen can. Other "
              "programs read the folder as it is, and --weights int8 or int4");
    ck_assert_int_ne(access(work, F_OK), 0);
}
END_TEST

/* A config of which every field has another value than a class would give it. */
static struct model_config odd_config(void)
{
    struct checkpoint *ck;
    CHECK_OK(checkpoint_open(&ck, "synthetic:qwen3-8b,seed=1", &err));
    struct model_config cfg = *checkpoint_config(ck);
    checkpoint_close(ck);
    cfg.norm_eps = 1.2345678e-5f;
    cfg.layers.kinds[0].window = 4096;
    cfg.o_bias = cfg.qkv_bias = true;
    cfg.bos_id = 7;
    cfg.ends.n = 3;
    cfg.ends.ids[0] = 1, cfg.ends.ids[1] = 5, cfg.ends.ids[2] = 151935;
    cfg.ropes[0] = (struct rope_config){.kind = ROPE_YARN,
                                        .theta = 1234567.8901234567,
                                        .factor = 1.0 / 3,
                                        .original_max_positions = 4096,
                                        .beta_fast = 31.5,
                                        .beta_slow = 1,
                                        .attention_factor = 0.1 * 1.2345 + 1,
                                        .truncate = false};
    return cfg;
}

START_TEST(odd_values_are_read_back_as_they_were)
{
    struct model_config cfg = odd_config();
    check_config_survives(&cfg);
}
END_TEST

/* From a layer on, in every other layer, and in none. */
START_TEST(windows_of_some_layers_are_read_back)
{
    const struct layer_kind full = {0}, narrow = {.window = 512};
    for (int way = 0; way < 3; way++) {
        struct model_config cfg = odd_config();
        memset(&cfg.layers, 0, sizeof cfg.layers);
        for (int i = 0; i < cfg.n_layers; i++) {
            bool slides = way == 0 ? i >= 5 : way == 1 && i % 2 == 0;
            layer_table_set(&cfg.layers, i, slides ? &narrow : &full);
        }
        check_config_survives(&cfg);
    }
}
END_TEST

static const char odd_text[] = "{\n"
                               "  \"architectures\": [\"Qwen3ForCausalLM\"],\n"
                               "  \"model_type\": \"qwen3\",\n"
                               "  \"hidden_act\": \"silu\",\n"
                               "  \"hidden_size\": 4096,\n"
                               "  \"intermediate_size\": 12288,\n"
                               "  \"num_hidden_layers\": 36,\n"
                               "  \"num_attention_heads\": 32,\n"
                               "  \"num_key_value_heads\": 8,\n"
                               "  \"head_dim\": 128,\n"
                               "  \"vocab_size\": 151936,\n"
                               "  \"max_position_embeddings\": 40960,\n"
                               "  \"rms_norm_eps\": 1.2345678e-05,\n"
                               "  \"tie_word_embeddings\": false,\n"
                               "  \"attention_dropout\": 0.0,\n"
                               "  \"initializer_range\": 0.02,\n"
                               "  \"attention_bias\": true,\n"
                               "  \"use_sliding_window\": true,\n"
                               "  \"max_window_layers\": 0,\n"
                               "  \"sliding_window\": 4096,\n"
                               "  \"rope_theta\": 1234567.8901234567,\n"
                               "  \"rope_scaling\": {\n"
                               "    \"rope_type\": \"yarn\",\n"
                               "    \"factor\": 0.3333333333333333,\n"
                               "    \"beta_fast\": 31.5,\n"
                               "    \"beta_slow\": 1.0,\n"
                               "    \"attention_factor\": 1.12345,\n"
                               "    \"truncate\": false,\n"
                               "    \"original_max_position_embeddings\": 4096\n"
                               "  },\n"
                               "  \"bos_token_id\": 7,\n"
                               "  \"eos_token_id\": [1, 5, 151935],\n"
                               "  \"torch_dtype\": \"bfloat16\",\n"
                               "  \"use_cache\": true\n"
                               "}\n";

START_TEST(configs_are_written_as_they_always_were)
{
    struct model_config cfg = odd_config();
    char *text;
    size_t len;
    CHECK_OK(export_config_text(&cfg, &text, &len, &err));
    ck_assert_str_eq(text, odd_text);
    ck_assert_uint_eq(len, sizeof odd_text - 1);
    free(text);
}
END_TEST

/* Fields that follow from the family or that model/export/config.c writes by code of its own. */
static const char *const by_hand[] = {
    "architecture",
    "qkv_bias",
    "qk_norm",
    "layers",
    "ropes[0].kind",
    "bos_id",
    "ends",
    "stored",
    "stored_group",
    "qk_norm_whole",
    "norm_offset",
    "norms",
    "activation",
    "embedding_scale",
    "logit_scale",
    "logit_softcap",
    "query_beta",
    "query_period",
    "ropes[0].rotary_dim",
    "ropes[0].divisors",
    "ropes[1]",
};

static bool is_by_hand(const char *name)
{
    for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++) {
        if (strcmp(by_hand[i], name) == 0) return true;
    }
    return false;
}

/* A config of a family and a rope kind that have the field. */
static struct model_config config_with(const struct config_field *field)
{
    struct model_config cfg = odd_config();
    cfg.layers.kinds[0].window = 0;
    if (field->place == CONFIG_IN_FAMILY) strcpy(cfg.architecture, "LlamaForCausalLM");
    if (field->place == CONFIG_IN_ROPE && field->kinds == 1u << ROPE_LLAMA3) {
        cfg.ropes[0].kind = ROPE_LLAMA3;
    }
    return cfg;
}

START_TEST(every_field_is_written)
{
    int n;
    const struct config_field *field = config_fields(&n);
    for (; n > 0; n--, field++) {
        char *before, *after;
        size_t len;
        ck_assert_msg(is_by_hand(field->name) == (field->place == CONFIG_BY_HAND), "%s",
                      field->name);
        if (field->place == CONFIG_BY_HAND) continue;
        struct model_config cfg = config_with(field), other = cfg;
        char *value = (char *)&other + field->offset;
        /* Changes any number, and an int, which may count layers, only by one. */
        value[field->type == CONFIG_INT ? 0 : field->size - 1] ^= 1;
        CHECK_OK(export_config_text(&cfg, &before, &len, &err));
        CHECK_OK(export_config_text(&other, &after, &len, &err));
        ck_assert_msg(strcmp(before, after) != 0, "%s is not written", field->name);
        free(before);
        free(after);
    }
}
END_TEST

START_TEST(the_tokenizer_of_bytes_encodes_bytes)
{
    static const char text[] = "A \"tale\" \\ \xc3\xa9\n\t\x01 <300>";
    struct tokenizer *bytes, *copy;
    struct token_ids wanted = {0}, got = {0};
    export_to_work("synthetic:tiny,seed=1", 1 << 30);
    CHECK_OK(tokenizer_open(&copy, work, &err));
    CHECK_OK(tokenizer_open_bytes(&bytes, 512, &err));
    ck_assert_int_eq(tokenizer_vocab_size(copy), 512);
    CHECK_OK(tokenizer_encode(bytes, text, sizeof text - 1, 0, &wanted, &err));
    CHECK_OK(tokenizer_encode(copy, text, sizeof text - 1, 0, &got, &err));
    ck_assert_uint_eq(wanted.n, sizeof text - 1);
    ck_assert_uint_eq(got.n, wanted.n);
    ck_assert_mem_eq(got.data, wanted.data, wanted.n * sizeof *wanted.data);
    for (int id = 0; id < 256; id++) {
        size_t len;
        const char *piece = tokenizer_piece(copy, id, &len);
        ck_assert(len == 1 && (unsigned char)*piece == id);
    }
    token_ids_free(&wanted);
    token_ids_free(&got);
    tokenizer_close(bytes);
    tokenizer_close(copy);
    ck_assert(!export_to_work("synthetic:tiny,seed=1,vocab=255", 1 << 30).has_tokenizer);
}
END_TEST

static bool stop_at_half(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    int *n_partial = arg;
    *n_partial += exists("model.safetensors.partial") && !exists("model.safetensors");
    return done_bytes < total_bytes / 2;
}

START_TEST(a_broken_export_leaves_nothing)
{
    int n_partial = 0;
    const struct export_options options = {1 << 30, stop_at_half, &n_partial, WEIGHTS_BF16};
    struct export_result result;
    remove_folder(work);
    CHECK_ERR(model_export("synthetic:tiny,seed=1", work, &options, &result, &err), ERR_CANCELLED,
              "interrupted");
    ck_assert_int_gt(n_partial, 0);
    ck_assert_int_ne(access(work, F_OK), 0);
    ck_assert_int_eq(mkdir(work, 0777), 0); /* a folder that was there stays, and stays empty */
    CHECK_ERR(model_export("synthetic:tiny,seed=1", work, &options, &result, &err), ERR_CANCELLED,
              "interrupted");
    ck_assert_int_eq(rmdir(work), 0);
}
END_TEST

START_TEST(models_that_cannot_be_written_are_refused)
{
    const struct export_options options = {.shard_bytes = 1 << 30};
    struct export_result result;
    const char *model = "synthetic:tiny,seed=1";
    remove_folder(work);
    CHECK_ERR(
        model_export("synthetic:llama-3.1-70b,seed=1,layers=4096", work, &options, &result, &err),
        ERR_IO, "the export needs 7013.7 GB, but the disk of");
    ck_assert_int_ne(access(work, F_OK), 0);
    CHECK_ERR(model_export(model, "/dev/null/x", &options, &result, &err), ERR_IO,
              "cannot make the folder /dev/null/x: Not a directory");
    CHECK_ERR(model_export(model, "/dev/null", &options, &result, &err), ERR_IO,
              "cannot open /dev/null: Not a directory");
    CHECK_ERR(model_export("/nowhere", work, &options, &result, &err), ERR_NOT_FOUND, "/nowhere");
    export_to_work(model, 1 << 30);
    uint64_t before = fingerprint_of(work);
    CHECK_ERR(model_export("synthetic:tiny,seed=2", work, &options, &result, &err), ERR_ARGUMENT,
              "is not empty");
    CHECK_ERR(model_export(work, work, &options, &result, &err), ERR_ARGUMENT, "is not empty");
    ck_assert_uint_eq(fingerprint_of(work), before);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("export");
    TCase *tcase = tcase_create("export");
    tcase_add_checked_fixture(tcase, make_work, remove_work);
    tcase_add_test(tcase, a_bf16_folder_comes_out_as_it_is);
    tcase_add_test(tcase, a_header_before_tensors_in_parts_is_read_back);
    tcase_add_test(tcase, the_tales_tokenizer_comes_along);
    tcase_add_test(tcase, synthetic_models_compute_the_same_from_a_folder);
    tcase_add_test(tcase, a_large_model_is_cut_into_shards);
    tcase_add_test(tcase, fp32_is_rounded_to_bf16_once);
    tcase_add_test(tcase, every_config_is_read_back_as_it_was);
    tcase_add_test(tcase, a_model_of_a_family_that_is_only_read_is_refused);
    tcase_add_test(tcase, odd_values_are_read_back_as_they_were);
    tcase_add_test(tcase, windows_of_some_layers_are_read_back);
    tcase_add_test(tcase, configs_are_written_as_they_always_were);
    tcase_add_test(tcase, every_field_is_written);
    tcase_add_test(tcase, the_tokenizer_of_bytes_encodes_bytes);
    tcase_add_test(tcase, a_broken_export_leaves_nothing);
    tcase_add_test(tcase, models_that_cannot_be_written_are_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
