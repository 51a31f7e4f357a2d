/* ctest: labels=quick libs=checkpoint timeout=60 */
/* Model folders: the shipped pair and the golden models open; one that is damaged or contradicts
 * itself is refused, and the error says why. Synthetic models have a test of their own. */
#include "model/checkpoint/checkpoint.h"

#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system/file.h"
#include "model/checkpoint/safetensors.h"
#include "model/numerics/numerics.h"
#include "tests/support/check_util.h"
#include "tests/support/write_file.h"

#define GOLDEN SOURCE_DIR "/tests/golden/models/"
#define TALES  SOURCE_DIR "/deploy/models/tales/"

static struct error err;
static char dir[64];

/* A scratch folder for each test. */
static void make_dir(void)
{
    snprintf(dir, sizeof dir, "/tmp/outrider-checkpoint-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void remove_dir(void)
{
    char path[512];
    struct dirent *entry;
    DIR *open = opendir(dir);
    while (open && (entry = readdir(open))) {
        snprintf(path, sizeof path, "%s/%.255s", dir, entry->d_name);
        if (entry->d_name[0] != '.') unlink(path);
    }
    if (open) closedir(open);
    rmdir(dir);
}

/* The golden model "llama_untied" taken apart, so that tests can put it together wrongly. */
static json_t *header;
static struct file_view original;
static const uint8_t *data;
static size_t data_len;

static void take_apart(void)
{
    struct file_view config;
    make_dir();
    CHECK_OK(file_map(&config, GOLDEN "llama_untied/config.json", &err));
    write_file(dir, "config.json", config.data, config.size_bytes, NULL, 0);
    file_unmap(&config);
    CHECK_OK(file_map(&original, GOLDEN "llama_untied/model.safetensors", &err));
    size_t len = original.data[0] | (size_t)original.data[1] << 8;
    header = json_loadb((const char *)original.data + 8, len, 0, NULL);
    ck_assert_ptr_nonnull(header);
    data = original.data + 8 + len;
    data_len = original.size_bytes - 8 - len;
}

static void clear_up(void)
{
    json_decref(header);
    file_unmap(&original);
    remove_dir();
}

static void store(const char *file, const json_t *table, const uint8_t *bytes, size_t len)
{
    char text[65536];
    size_t n = json_dumpb(table, text + 8, sizeof text - 8, JSON_COMPACT);
    ck_assert_uint_lt(n, sizeof text - 8);
    for (int i = 0; i < 8; i++) {
        text[i] = (char)(n >> (8 * i));
    }
    write_file(dir, file, text, n + 8, bytes, len);
}

static const char *in_dir(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int open_dir(void)
{
    struct checkpoint *ck = NULL;
    int rc = checkpoint_open(&ck, dir, &err);
    ck_assert((rc == 0) == (ck != NULL));
    checkpoint_close(ck);
    return rc;
}

START_TEST(shipped_models_open)
{
    struct checkpoint *ck;
    struct weight weight;
    uint16_t row[256];
    float same[256];
    CHECK_OK(checkpoint_open(&ck, TALES "target", &err));
    ck_assert_int_eq(checkpoint_config(ck)->n_layers, 6);
    ck_assert_int_eq(checkpoint_config(ck)->ends.n, 1);
    ck_assert_str_eq(checkpoint_name(ck), TALES "target");
    ck_assert(!checkpoint_is_synthetic(ck));
    CHECK_OK(checkpoint_find(ck, "model.embed_tokens.weight", 4096, 256, &weight, &err));
    weight_read_bf16(&weight, 77, 0, 256, row);
    weight_read_f32(&weight, 77, 0, 256, same);
    for (int i = 0; i < 256; i++) {
        uint16_t alone;
        weight_read_bf16(&weight, 77, i, 1, &alone);
        ck_assert_uint_eq(alone, row[i]);
        ck_assert(num_bf16_to_float(row[i]) == same[i]);
        ck_assert(fabs((double)same[i]) < 8);
    }
    CHECK_ERR(checkpoint_find(ck, "model.embed_tokens.weight", 4096, 128, &weight, &err),
              ERR_FORMAT, "has shape [4096, 256], the config asks for [4096, 128]");
    CHECK_ERR(checkpoint_find(ck, "lm_head.weight", 4096, 256, &weight, &err), ERR_FORMAT,
              "lacks the tensor lm_head.weight");
    checkpoint_close(ck);
    CHECK_OK(checkpoint_open(&ck, TALES "draft", &err));
    checkpoint_close(ck);
}
END_TEST

/* Fingerprints are compared between the ranks of a group and kept in the names of packed weights,
 * so they must not change with the code. */
static const struct {
    const char *model;
    uint64_t fingerprint;
} known[] = {
    {GOLDEN "llama_bias", 0x301d5024e237b226},
    {GOLDEN "llama_f16", 0x003154f29df9c9d5},
    {GOLDEN "llama_f32", 0x7c4f5f3ad2df74fc},
    {GOLDEN "llama_kv_one", 0x73c42ae6145b2bb8},
    {GOLDEN "llama_old", 0xe81a38c6ff21ce74},
    {GOLDEN "llama_rope_linear", 0x68bf2f88797b789d},
    {GOLDEN "llama_rope_llama3", 0x964aa0c9e51dfbaf},
    {GOLDEN "llama_rope_llama3_old", 0x12a832861aa575a3},
    {GOLDEN "llama_rope_yarn_factor", 0x77dab1c5cb4ceedc},
    {GOLDEN "llama_rope_yarn_mscale", 0x1a71e58128cdfe66},
    {GOLDEN "llama_sharded", 0xa113afd854107533},
    {GOLDEN "llama_tied", 0x637bc05c125e239e},
    {GOLDEN "llama_untied", 0x9ab01e81fad077d9},
    {GOLDEN "llama_wide_heads", 0x337d69dfc174f25d},
    {GOLDEN "mistral", 0x5acdf49c15fc18b7},
    {GOLDEN "mistral_window", 0x4a4d3715eefc1902},
    {GOLDEN "qwen2_bias", 0x061e264051b683c4},
    {GOLDEN "qwen2_rope_yarn", 0x78260fafe6e516cb},
    {GOLDEN "qwen3_norm", 0xb3ff603079bcd16e},
    {GOLDEN "qwen3_norm_bias", 0xdce0c805058663c7},
    {TALES "target", 0xdca3c60ba8c91134},
    {TALES "draft", 0xf9074bbc04984851},
    {"synthetic:tiny,seed=5", 0x26355403fb29f247},
    {"synthetic:tinyllama-1.1b,seed=5", 0xd9e940bd2405b510},
    {"synthetic:llama-2-7b,seed=5", 0x845cf0c8dc297bdb},
    {"synthetic:llama-3.2-1b,seed=5", 0x67677ecde23d63e4},
    {"synthetic:llama-3.2-3b,seed=5", 0xa5f254f3e4cd30b1},
    {"synthetic:llama-3.1-8b,seed=5", 0xed7b39cdb89343b4},
    {"synthetic:llama-3.1-70b,seed=5", 0xbdc9744f52779423},
    {"synthetic:mistral-7b,seed=5", 0xa97c434916b01a51},
    {"synthetic:qwen2.5-0.5b,seed=5", 0x6df979e9aef105e3},
    {"synthetic:qwen2.5-1.5b,seed=5", 0x2ab7e0ba7b435ccd},
    {"synthetic:qwen2.5-7b,seed=5", 0xe5fc47b4325f4940},
    {"synthetic:qwen3-0.6b,seed=5", 0x5f4f8bf21b2bf8bd},
    {"synthetic:qwen3-8b,seed=5", 0x95818ac4c041b5ed},
    {"synthetic:tiny,seed=3,layers=4,agree=0.6", 0xbc3fe88bf22524e9},
    {"synthetic:tiny,seed=3,layers=4,agree=0.6,draft=1", 0xb7cfbbca4eff080e},
};
enum { N_KNOWN = sizeof known / sizeof *known };

START_TEST(fingerprints_stay_as_they_were)
{
    for (size_t i = 0; i < N_KNOWN; i++) {
        struct checkpoint *ck;
        CHECK_OK(checkpoint_open(&ck, known[i].model, &err));
        ck_assert_msg(checkpoint_fingerprint(ck) == known[i].fingerprint,
                      "%s has the fingerprint 0x%016" PRIx64, known[i].model,
                      checkpoint_fingerprint(ck));
        checkpoint_close(ck);
    }
}
END_TEST

START_TEST(models_differ_in_their_fingerprints)
{
    for (size_t i = 0; i < N_KNOWN; i++) {
        for (size_t k = 0; k < i; k++) {
            ck_assert_uint_ne(known[i].fingerprint, known[k].fingerprint);
        }
    }
}
END_TEST

START_TEST(every_dtype_reads_as_the_same_numbers)
{
    static const uint16_t halves[] = {0x3c00, 0xc500, 0x0001, 0x7bff}; /* 1, -5, 2^-24, 65504 */
    static const float floats[] = {1.0f, -5.0f, 0x1p-24f, 65504.0f};
    struct weight half = {.dtype = DTYPE_F16, .n_rows = 2, .n_cols = 2};
    struct weight single = {.dtype = DTYPE_F32, .n_rows = 2, .n_cols = 2};
    float as_float[2][4];
    uint16_t as_bf16[2][4];
    uint8_t odd[17]; /* elements need not be aligned */
    memcpy(odd + 1, floats, sizeof floats);
    half.data = (const uint8_t *)halves;
    single.data = odd + 1;
    weight_read_f32(&half, 0, 0, 4, as_float[0]);
    weight_read_f32(&single, 0, 0, 4, as_float[1]);
    ck_assert_mem_eq(as_float[0], floats, sizeof floats);
    ck_assert_mem_eq(as_float[1], floats, sizeof floats);
    weight_read_bf16(&half, 0, 0, 4, as_bf16[0]);
    weight_read_bf16(&single, 0, 0, 4, as_bf16[1]);
    ck_assert_mem_eq(as_bf16[0], as_bf16[1], sizeof *as_bf16);
    ck_assert_uint_eq(as_bf16[0][1], 0xc0a0);
    ck_assert_uint_eq(as_bf16[0][3], 0x4780); /* 65504 rounds up to 65536 */
    weight_read_bf16(&half, 1, 1, 1, as_bf16[1]);
    ck_assert_uint_eq(as_bf16[1][0], 0x4780);
}
END_TEST

START_TEST(equal_tensors_in_other_files_have_the_same_fingerprint)
{
    struct checkpoint *ck;
    CHECK_OK(checkpoint_open(&ck, GOLDEN "llama_untied", &err));
    uint64_t wanted = checkpoint_fingerprint(ck);
    checkpoint_close(ck);
    /* Equal tensors, in one file and, by an index, in two. */
    store("part-1.safetensors", header, data, data_len);
    store("part-2.safetensors", header, data, data_len);
    json_t *map = json_object();
    for (void *at = json_object_iter(header); at; at = json_object_iter_next(header, at)) {
        const char *key = json_object_iter_key(at);
        bool is_norm = strstr(key, "norm") != NULL;
        if (key[0] == '_') continue;
        json_object_set_new(map, key,
                            json_string(is_norm ? "part-1.safetensors" : "part-2.safetensors"));
    }
    json_t *index = json_pack("{s:o}", "weight_map", map);
    char *text = json_dumps(index, 0);
    write_file(dir, "model.safetensors.index.json", text, strlen(text), NULL, 0);
    CHECK_OK(checkpoint_open(&ck, dir, &err));
    ck_assert_uint_eq(checkpoint_fingerprint(ck), wanted);
    checkpoint_close(ck);
    free(text);
    json_decref(index);
}
END_TEST

START_TEST(a_changed_weight_changes_the_fingerprint)
{
    struct checkpoint *ck;
    CHECK_OK(checkpoint_open(&ck, GOLDEN "llama_untied", &err));
    uint64_t before = checkpoint_fingerprint(ck);
    checkpoint_close(ck);
    uint8_t *copy = malloc(data_len);
    memcpy(copy, data, data_len);
    copy[data_len - 1] ^= 1;
    store("model.safetensors", header, copy, data_len);
    CHECK_OK(checkpoint_open(&ck, dir, &err));
    ck_assert_uint_ne(checkpoint_fingerprint(ck), before);
    checkpoint_close(ck);
    free(copy);
}
END_TEST

static void store_index(const char *tensor, const char *file)
{
    char text[256];
    snprintf(text, sizeof text, "{\"weight_map\":{\"%s\":\"%s\"}}", tensor, file);
    write_file(dir, "model.safetensors.index.json", text, strlen(text), NULL, 0);
}

START_TEST(wrong_indexes_are_refused)
{
    static const char *const ways_out[] = {"../x.safetensors", "/etc/passwd", "a/b", "..", "",
                                           ".hidden"};
    CHECK_ERR(open_dir(), ERR_NOT_FOUND, "has neither model.safetensors nor");
    for (size_t i = 0; i < sizeof ways_out / sizeof *ways_out; i++) {
        store_index("x", ways_out[i]);
        CHECK_ERR(open_dir(), ERR_FORMAT, "which is no plain name");
    }
    store_index("x", "gone.safetensors");
    CHECK_ERR(open_dir(), ERR_NOT_FOUND,
              "index.json names 1 file, of which 1 is not there: gone.safetensors");
    store("here.safetensors", header, data, data_len);
    static const char missing[] = "{\"weight_map\":{\"a\":\"z.safetensors\",\"b\":"
                                  "\"y.safetensors\",\"c\":\"z.safetensors\","
                                  "\"model.norm.weight\":\"here.safetensors\"}}";
    write_file(dir, "model.safetensors.index.json", missing, sizeof missing - 1, NULL, 0);
    CHECK_ERR(open_dir(), ERR_NOT_FOUND,
              "names 3 files, of which 2 are not there: y.safetensors and others");
    unlink(in_dir("here.safetensors"));
    store("part.safetensors", header, data, data_len);
    store_index("no.such.tensor", "part.safetensors");
    CHECK_ERR(open_dir(), ERR_FORMAT, "\"no.such.tensor\" is not in part.safetensors");
    store_index("model.norm.weight", "part.safetensors"); /* what the file has counts, too */
    CHECK_OK(open_dir());
    write_file(dir, "model.safetensors.index.json", "{\"weight_map\":[1]}", 18, NULL, 0);
    CHECK_ERR(open_dir(), ERR_FORMAT, "lacks the object \"weight_map\"");
    write_file(dir, "model.safetensors.index.json", "[]", 2, NULL, 0);
    CHECK_ERR(open_dir(), ERR_FORMAT, "weight_map");
    write_file(dir, "model.safetensors.index.json", "{\"weight_map\":{}}", 17, NULL, 0);
    CHECK_ERR(open_dir(), ERR_FORMAT, "or it is empty");
}
END_TEST

/* A file that was cut, or that is of another model, under the name of a shard. */
START_TEST(wrong_shards_are_named)
{
    store_index("model.norm.weight", "part.safetensors");
    write_file(dir, "part.safetensors", original.data, original.size_bytes - 1, NULL, 0);
    CHECK_ERR(open_dir(), ERR_FORMAT, "part.safetensors is cut short");
    write_file(dir, "part.safetensors", original.data, original.size_bytes, "x", 1);
    CHECK_ERR(open_dir(), ERR_FORMAT, "part.safetensors: ");
    write_file(dir, "part.safetensors", "", 0, NULL, 0);
    CHECK_ERR(open_dir(), ERR_FORMAT, "part.safetensors is no safetensors file: it has 0 bytes");
    struct file_view foreign;
    CHECK_OK(file_map(&foreign, TALES "draft/model.safetensors", &err));
    write_file(dir, "part.safetensors", foreign.data, foreign.size_bytes, NULL, 0);
    file_unmap(&foreign);
    CHECK_ERR(open_dir(), ERR_FORMAT, "of part.safetensors has shape");
    store_index("model.layers.77.mlp.up_proj.weight", "part.safetensors");
    CHECK_ERR(open_dir(), ERR_FORMAT, "is not in part.safetensors, which is cut short or of");
}
END_TEST

START_TEST(an_index_of_another_size_is_remarked)
{
    struct checkpoint *ck;
    char text[256];
    for (int off = 0; off < 2; off++) {
        snprintf(text, sizeof text,
                 "{\"metadata\":{\"total_size\":%zu},\"weight_map\":{\"model.norm.weight\":"
                 "\"part.safetensors\"}}",
                 data_len + (size_t)off);
        write_file(dir, "model.safetensors.index.json", text, strlen(text), NULL, 0);
        store("part.safetensors", header, data, data_len);
        CHECK_OK(checkpoint_open(&ck, dir, &err));
        const char *remark = checkpoint_remark(ck, CHECKPOINT_INDEX_SIZE);
        ck_assert((remark != NULL) == (off == 1));
        if (remark) ck_assert_ptr_nonnull(strstr(remark, "may be of different models"));
        checkpoint_close(ck);
    }
}
END_TEST

START_TEST(missing_and_misshapen_tensors_are_named)
{
    static const char name[] = "model.layers.2.mlp.up_proj.weight";
    json_t *entry = json_object_get(header, name);
    json_object_set_new(entry, "shape", json_pack("[i,i]", 64, 128));
    store("model.safetensors", header, data, data_len);
    CHECK_ERR(
        open_dir(), ERR_FORMAT,
        "up_proj.weight of model.safetensors has shape [64, 128], the config asks for [128, 64]");
    json_object_set_new(entry, "shape", json_pack("[i,i,i]", 1, 128, 64));
    store("model.safetensors", header, data, data_len);
    CHECK_ERR(open_dir(), ERR_FORMAT, "[1, 128, 64]");
    json_object_set_new(entry, "shape", json_pack("[i,i]", 128, 64));
    json_object_set_new(entry, "dtype", json_string("I16"));
    store("model.safetensors", header, data, data_len);
    CHECK_ERR(open_dir(), ERR_UNSUPPORTED, "up_proj.weight is of dtype I16");
    json_object_set_new(entry, "dtype", json_string("BF16"));
    json_object_set(header, "another.name", entry);
    json_object_del(header, name);
    store("model.safetensors", header, data, data_len);
    CHECK_ERR(open_dir(), ERR_FORMAT, "lacks the tensor model.layers.2.mlp.up_proj.weight");
}
END_TEST

/* Adds a tensor of n bytes at the end of the data and stores the model. */
static void store_with(const char *name, size_t n)
{
    uint8_t *longer = malloc(data_len + n + 1);
    memcpy(longer, data, data_len);
    memset(longer + data_len, 1, n);
    json_t *more = json_copy(header);
    json_object_set_new(more, name,
                        json_pack("{s:s,s:[I],s:[I,I]}", "dtype", "U8", "shape", (json_int_t)n,
                                  "data_offsets", (json_int_t)data_len,
                                  (json_int_t)(data_len + n)));
    store("model.safetensors", more, longer, data_len + n);
    json_decref(more);
    free(longer);
}

START_TEST(tensors_that_nobody_reads_are_refused)
{
    static const char *const refused[] = {
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.self_attn.q_proj.weight_scale",
        "model.layers.0.mlp.up_proj.weight_g_idx",
        "model.layers.0.mlp.up_proj.weight_zero_point",
        "model.layers.0.mlp.up_proj.lora_A.weight",
        "model.layers.9.input_layernorm.weight",
        "model.layers.0.mlp.up_proj.weight_shape",
        "model.layers.0.block_sparse_moe.gate.weight",
        "lm_head.bias",
        "score.weight",
        "x",
    };
    static const char *const harmless[] = {"model.layers.0.self_attn.rotary_emb.inv_freq",
                                           "model.rotary_emb.inv_freq",
                                           "model.layers.9.self_attn.rotary_emb.inv_freq"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        store_with(refused[i], 8);
        CHECK_ERR(open_dir(), ERR_UNSUPPORTED, refused[i]);
        store_with(refused[i], 0);
        CHECK_OK(open_dir());
    }
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
        store_with(harmless[i], 8);
        CHECK_OK(open_dir());
    }
}
END_TEST

START_TEST(files_beside_the_index_are_named)
{
    struct checkpoint *ck;
    store("model-00001-of-00002.safetensors", header, data, data_len);
    store_index("model.norm.weight", "model-00001-of-00002.safetensors");
    write_file(dir, "consolidated.safetensors", "x", 1, NULL, 0);
    CHECK_OK(checkpoint_open(&ck, dir, &err));
    ck_assert_ptr_null(checkpoint_remark(ck, CHECKPOINT_STRAY_FILES));
    checkpoint_close(ck);
    write_file(dir, "adapter_model.safetensors", "x", 1, NULL, 0);
    write_file(dir, "model-00003-of-00003.safetensors", "x", 1, NULL, 0);
    CHECK_OK(checkpoint_open(&ck, dir, &err));
    const char *remark = checkpoint_remark(ck, CHECKPOINT_STRAY_FILES);
    ck_assert_ptr_nonnull(remark);
    ck_assert_ptr_nonnull(strstr(remark, "2 files of weights that are not read: adapter_model"));
    checkpoint_close(ck);
    write_file(dir, "model-00002-of-00002.safetensors", "x", 1, NULL, 0);
    CHECK_ERR(open_dir(), ERR_FORMAT, "does not name the file model-00002-of-00002.safetensors");
}
END_TEST

START_TEST(files_that_contradict_each_other_are_refused)
{
    uint8_t *copy = malloc(data_len);
    memcpy(copy, data, data_len);
    copy[data_len - 1] ^= 1;
    store("a.safetensors", header, data, data_len);
    store("b.safetensors", header, copy, data_len);
    static const char index[] = "{\"weight_map\":{\"model.norm.weight\":\"a.safetensors\","
                                "\"lm_head.weight\":\"b.safetensors\"}}";
    write_file(dir, "model.safetensors.index.json", index, sizeof index - 1, NULL, 0);
    CHECK_ERR(open_dir(), ERR_FORMAT, "two of its files have different tensors");
    ck_assert(strstr(err.text, ": a.safetensors and b.safetensors") ||
              strstr(err.text, ": b.safetensors and a.safetensors"));
    free(copy);
}
END_TEST

static void set_config(const char *key, json_t *value)
{
    char path[512];
    snprintf(path, sizeof path, "%s/config.json", dir);
    json_t *config = json_load_file(path, 0, NULL);
    json_object_set_new(config, key, value);
    ck_assert_int_eq(json_dump_file(config, path, 0), 0);
    json_decref(config);
}

/* The bytes of a tensor in the file. */
static uint8_t *bytes_of(uint8_t *bytes, const char *name, size_t *len)
{
    const json_t *pair = json_object_get(json_object_get(header, name), "data_offsets");
    size_t begin = (size_t)json_integer_value(json_array_get(pair, 0));
    *len = (size_t)json_integer_value(json_array_get(pair, 1)) - begin;
    return bytes + begin;
}

START_TEST(layers_that_only_guess_are_not_missed)
{
    struct checkpoint *ck;
    char name[80];
    CHECK_OK(checkpoint_open(&ck, GOLDEN "llama_untied", &err));
    int n_layers = checkpoint_config(ck)->n_layers;
    checkpoint_close(ck);
    snprintf(name, sizeof name, "model.layers.%d.eh_proj.weight", n_layers);
    store_with(name, 8);
    CHECK_ERR(open_dir(), ERR_UNSUPPORTED, name);
    set_config("num_nextn_predict_layers", json_integer(1));
    CHECK_OK(open_dir());
    snprintf(name, sizeof name, "model.layers.%d.eh_proj.weight", n_layers + 1);
    store_with(name, 8);
    CHECK_ERR(open_dir(), ERR_UNSUPPORTED, name);
}
END_TEST

START_TEST(a_tied_model_with_a_head_of_its_own_uses_it)
{
    struct checkpoint *ck;
    size_t n_tied, n_untied, head_len, len;
    CHECK_OK(checkpoint_open(&ck, GOLDEN "llama_untied", &err));
    uint64_t untied = checkpoint_fingerprint(ck);
    checkpoint_tensors(ck, &n_untied);
    checkpoint_close(ck);
    set_config("tie_word_embeddings", json_true());
    store("model.safetensors", header, data, data_len);
    CHECK_OK(checkpoint_open(&ck, dir, &err));
    ck_assert(!checkpoint_config(ck)->tied_embeddings);
    ck_assert_uint_eq(checkpoint_fingerprint(ck), untied);
    ck_assert_ptr_nonnull(strstr(checkpoint_remark(ck, CHECKPOINT_OWN_HEAD), "lm_head.weight"));
    checkpoint_close(ck);
    char some[80];
    snprintf(some, sizeof some, "%s,layers=0", dir);
    CHECK_OK(checkpoint_open(&ck, some, &err));
    ck_assert(!checkpoint_config(ck)->tied_embeddings);
    checkpoint_close(ck);
    /* Equal to the embedding: it is tied. */
    uint8_t *copy = malloc(data_len);
    memcpy(copy, data, data_len);
    const uint8_t *embedding = bytes_of(copy, "model.embed_tokens.weight", &len);
    uint8_t *head = bytes_of(copy, "lm_head.weight", &head_len);
    ck_assert_uint_eq(len, head_len);
    memcpy(head, embedding, len);
    store("model.safetensors", header, copy, data_len);
    CHECK_OK(checkpoint_open(&ck, dir, &err));
    ck_assert(checkpoint_config(ck)->tied_embeddings);
    ck_assert_ptr_null(checkpoint_remark(ck, CHECKPOINT_OWN_HEAD));
    checkpoint_tensors(ck, &n_tied);
    ck_assert_uint_eq(n_tied, n_untied - 1);
    checkpoint_close(ck);
    free(copy);
}
END_TEST

START_TEST(damaged_files_are_refused)
{
    store("model.safetensors", header, data, data_len - 1);
    CHECK_ERR(open_dir(), ERR_FORMAT, "is cut short");
    store("model.safetensors", header, data, 0);
    CHECK_ERR(open_dir(), ERR_FORMAT, "is cut short");
    write_file(dir, "model.safetensors", original.data, 100, NULL, 0);
    CHECK_ERR(open_dir(), ERR_FORMAT, "is cut short: a header of");
    write_file(dir, "model.safetensors", "", 0, NULL, 0);
    CHECK_ERR(open_dir(), ERR_FORMAT, "it has 0 bytes");
    write_file(dir, "config.json", "{", 1, NULL, 0);
    CHECK_ERR(open_dir(), ERR_FORMAT, "config.json is not JSON");
}
END_TEST

START_TEST(folders_without_a_config_are_not_found)
{
    struct checkpoint *ck;
    CHECK_ERR(checkpoint_open(&ck, "/nowhere/at/all", &err), ERR_NOT_FOUND,
              "there is no folder /nowhere/at/all");
    CHECK_ERR(checkpoint_open(&ck, "acme/Tales-1B", &err), ERR_NOT_FOUND,
              "so get it first: hf download acme/Tales-1B");
    CHECK_ERR(checkpoint_open(&ck, SOURCE_DIR "/tests", &err), ERR_NOT_FOUND, "has no config.json");
    CHECK_ERR(checkpoint_open(&ck, GOLDEN "llama_untied/config.json", &err), ERR_FORMAT,
              "is a file, but no GGUF file; name such a file or the folder of a model");
    CHECK_ERR(checkpoint_open(&ck, "", &err), ERR_NOT_FOUND, "config.json");
    checkpoint_close(NULL);
}
END_TEST

START_TEST(a_gguf_file_of_a_folder_is_named)
{
    struct checkpoint *ck;
    char path[512];
    make_dir();
    write_file(dir, "x.gguf", "GGUF\3", 5, NULL, 0);
    snprintf(path, sizeof path, "has no config.json, but a GGUF file; name that file: %s/x.gguf",
             dir);
    CHECK_ERR(open_dir(), ERR_NOT_FOUND, path);
    snprintf(path, sizeof path, "%s/x.gguf", dir);
    CHECK_ERR(checkpoint_open(&ck, path, &err), ERR_FORMAT, "x.gguf is cut short");
    snprintf(path, sizeof path, "%s/y.gguf", dir);
    CHECK_ERR(checkpoint_open(&ck, path, &err), ERR_NOT_FOUND, "there is no file");
    remove_dir();
}
END_TEST

/* As huggingface_hub has it: DIR/refs/main names one of DIR/snapshots. */
START_TEST(the_top_folder_of_a_cached_model_is_its_snapshot)
{
    struct checkpoint *ck;
    char folder[128];
    make_dir();
    ck_assert_int_eq(mkdir(in_dir("models--a--b"), 0700), 0);
    ck_assert_int_eq(mkdir(in_dir("models--a--b/snapshots"), 0700), 0);
    ck_assert_int_eq(mkdir(in_dir("models--a--b/snapshots/0a1b"), 0700), 0);
    CHECK_ERR(checkpoint_open(&ck, in_dir("models--a--b/"), &err), ERR_NOT_FOUND,
              "models--a--b/snapshots/0a1b has no config.json: it was not fetched whole; `hf "
              "download a/b` fetches what is missing");
    CHECK_ERR(checkpoint_open(&ck, dir, &err), ERR_NOT_FOUND,
              "is a Hugging Face cache; name one of its models, such as a/b");
    ck_assert_int_eq(setenv("HF_HUB_CACHE", dir, 1), 0);
    CHECK_ERR(checkpoint_open(&ck, "a/c", &err), ERR_NOT_FOUND, "hf download a/c");
    ck_assert_int_eq(
        symlink(TALES "draft/config.json", in_dir("models--a--b/snapshots/0a1b/config.json")), 0);
    CHECK_ERR(checkpoint_open(&ck, "a/b", &err), ERR_NOT_FOUND,
              "has neither model.safetensors nor model.safetensors.index.json; `hf download a/b` "
              "fetches what is missing");
    ck_assert_int_eq(symlink(TALES "draft/model.safetensors",
                             in_dir("models--a--b/snapshots/0a1b/model.safetensors")),
                     0);
    CHECK_OK(checkpoint_open(&ck, "a/b,layers=0-0", &err));
    snprintf(folder, sizeof folder, "%s/models--a--b/snapshots/0a1b", dir);
    ck_assert_str_eq(checkpoint_name(ck), folder);
    checkpoint_close(ck);
    unlink(in_dir("models--a--b/snapshots/0a1b/config.json"));
    unlink(in_dir("models--a--b/snapshots/0a1b/model.safetensors"));
    rmdir(in_dir("models--a--b/snapshots/0a1b"));
    rmdir(in_dir("models--a--b/snapshots"));
    rmdir(in_dir("models--a--b"));
    remove_dir();
}
END_TEST

/* A header, the length of the data after it, and what is wrong with it. NULL: nothing. */
static const struct {
    const char *header;
    size_t n_data;
    const char *text;
} tables[] = {
    {"{}", 0, NULL},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}  ", 24, NULL},
    {"{\"a\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[0,2]}}", 2, NULL},
    {"{\"a\":{\"dtype\":\"F16\",\"shape\":[0,9],\"data_offsets\":[0,0]}}", 0, NULL},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[6],\"data_offsets\":[0,3]}}", 3, NULL},
    {"{\"a\":{\"dtype\":\"NEW\",\"shape\":[6],\"data_offsets\":[0,3]}}", 3, NULL},
    {" {}", 0, "not a JSON object"},
    {"[]", 0, "not a JSON object"},
    {"{\"a\":3}", 0, "tensor \"a\" is not an object"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no proper dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "no list of at most 8 dims"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1,
     "no list of at most 8 dims"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "dim 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, "dim 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "ends at byte 8 of 4"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "not its shape"},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "not its shape"},
    {"{\"a\":{\"dtype\":\"F64\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
     "not its shape"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 2,
     "2 bytes of data, but the tensors end at byte 1"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2, "with a gap after"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
     3, "overlapping"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
     2, "duplicate"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,99999999999999999999]}}", 1,
     "is not JSON"},
};

START_TEST(wrong_tables_are_refused)
{
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        uint8_t file[512] = {0};
        struct safetensors table;
        size_t len = strlen(tables[i].header);
        file[0] = (uint8_t)len;
        ck_assert_uint_lt(len, 256);
        memcpy(file + 8, tables[i].header, len);
        int rc = safetensors_parse(&table, file, 8 + len + tables[i].n_data, "test", &err);
        const char *text = rc ? err.text : "success";
        ck_assert_msg((rc == 0) == (tables[i].text == NULL), "%s: %s", tables[i].header, text);
        if (rc) {
            ck_assert_int_eq(rc, ERR_FORMAT);
            ck_assert_msg(strstr(text, tables[i].text), "%s: %s", tables[i].header, text);
        }
        safetensors_free(&table);
    }
}
END_TEST

START_TEST(endless_headers_are_refused)
{
    uint8_t file[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, '{', '}'};
    struct safetensors table;
    CHECK_ERR(safetensors_parse(&table, file, sizeof file, "test", &err), ERR_FORMAT,
              "longer than the 100000000 allowed");
    memset(file, 0, 8);
    file[0] = 9;
    CHECK_ERR(safetensors_parse(&table, file, sizeof file, "test", &err), ERR_FORMAT,
              "a header of 9 bytes in a file of 16");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("checkpoint");
    TCase *plain = tcase_create("plain"), *scratch = tcase_create("scratch");
    tcase_add_test(plain, shipped_models_open);
    tcase_add_test(plain, fingerprints_stay_as_they_were);
    tcase_add_test(plain, models_differ_in_their_fingerprints);
    tcase_add_test(plain, every_dtype_reads_as_the_same_numbers);
    tcase_add_test(plain, folders_without_a_config_are_not_found);
    tcase_add_test(plain, a_gguf_file_of_a_folder_is_named);
    tcase_add_test(plain, the_top_folder_of_a_cached_model_is_its_snapshot);
    tcase_add_test(plain, wrong_tables_are_refused);
    tcase_add_test(plain, endless_headers_are_refused);
    tcase_add_checked_fixture(scratch, take_apart, clear_up);
    tcase_add_test(scratch, equal_tensors_in_other_files_have_the_same_fingerprint);
    tcase_add_test(scratch, a_changed_weight_changes_the_fingerprint);
    tcase_add_test(scratch, wrong_indexes_are_refused);
    tcase_add_test(scratch, wrong_shards_are_named);
    tcase_add_test(scratch, an_index_of_another_size_is_remarked);
    tcase_add_test(scratch, missing_and_misshapen_tensors_are_named);
    tcase_add_test(scratch, tensors_that_nobody_reads_are_refused);
    tcase_add_test(scratch, files_beside_the_index_are_named);
    tcase_add_test(scratch, files_that_contradict_each_other_are_refused);
    tcase_add_test(scratch, layers_that_only_guess_are_not_missed);
    tcase_add_test(scratch, a_tied_model_with_a_head_of_its_own_uses_it);
    tcase_add_test(scratch, damaged_files_are_refused);
    suite_add_tcase(suite, plain);
    suite_add_tcase(suite, scratch);
    return check_main(suite);
}
