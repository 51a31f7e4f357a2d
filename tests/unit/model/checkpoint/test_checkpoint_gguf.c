/* ctest: labels=quick libs=checkpoint timeout=60 */
/* GGUF files as checkpoints: what the metadata say about the config, and the sentence that metadata
 * and tensors which make no model, or one that is not understood, are refused with. */
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/type_counts.h"

#include <math.h>
#include <unistd.h>

#include "tests/support/gguf_writer.h"

enum { DIM = 32, FFN = 64, VOCAB = 48, HEADS = 2, EDITS_MAX = 8, PATH_BYTES = 64 };

static struct error err;
static char path[PATH_BYTES];

/* Writes a key of its own, or in place of the one that a model has otherwise. */
struct edit {
    const char *key;
    void (*put)(struct gguf_writer *w, const char *key); /* NULL: the key is left out */
};

static struct edit edits[EDITS_MAX];
static int n_edits, n_written;
static const char *arch = "llama", *left_out, *added;
static float fill; /* of all tensors; 0: elements of both signs */

static void edit(const char *key, void (*put)(struct gguf_writer *w, const char *key))
{
    edits[n_edits++] = (struct edit){key, put};
}

static const struct edit *find_edit(const char *key)
{
    for (int i = 0; i < n_edits; i++) {
        if (strcmp(edits[i].key, key) == 0) return &edits[i];
    }
    return NULL;
}

static void put_int(struct gguf_writer *w, const char *tail, uint32_t value)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", arch, tail);
    if (find_edit(key)) return;
    gguf_put_int_key(w, key, value);
    n_written++;
}

static void put_float(struct gguf_writer *w, const char *tail, float value)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", arch, tail);
    if (find_edit(key)) return;
    gguf_put_float_key(w, key, value);
    n_written++;
}

static void put_keys(struct gguf_writer *w)
{
    n_written = 0;
    if (!find_edit("general.architecture")) {
        gguf_put_text_key(w, "general.architecture", arch);
        n_written++;
    }
    put_int(w, "block_count", 1);
    put_int(w, "context_length", 256);
    put_int(w, "embedding_length", DIM);
    put_int(w, "feed_forward_length", FFN);
    put_int(w, "attention.head_count", HEADS);
    put_float(w, "attention.layer_norm_rms_epsilon", 1e-5f);
    for (int i = 0; i < n_edits; i++) {
        if (!edits[i].put) continue;
        edits[i].put(w, edits[i].key);
        n_written++;
    }
}

static const struct {
    const char *name;
    uint64_t dims[2];
} tensors[] = {
    {"token_embd.weight", {DIM, VOCAB}}, {"output_norm.weight", {DIM, 0}},
    {"output.weight", {DIM, VOCAB}},     {"blk.0.attn_norm.weight", {DIM, 0}},
    {"blk.0.attn_q.weight", {DIM, DIM}}, {"blk.0.attn_k.weight", {DIM, DIM}},
    {"blk.0.attn_v.weight", {DIM, DIM}}, {"blk.0.attn_output.weight", {DIM, DIM}},
    {"blk.0.ffn_norm.weight", {DIM, 0}}, {"blk.0.ffn_gate.weight", {DIM, FFN}},
    {"blk.0.ffn_up.weight", {DIM, FFN}}, {"blk.0.ffn_down.weight", {FFN, DIM}},
};
enum { N_TENSORS = sizeof tensors / sizeof *tensors };

static size_t put_table(struct gguf_writer *w, size_t *n)
{
    size_t at = 0;
    *n = 0;
    for (int i = 0; i < N_TENSORS; i++) {
        if (left_out && strcmp(left_out, tensors[i].name) == 0) continue;
        uint64_t n_rows = tensors[i].dims[1] ? tensors[i].dims[1] : 1;
        gguf_put_tensor(w, tensors[i].name, tensors[i].dims[1] ? 2 : 1, tensors[i].dims, 0, at);
        at += (size_t)(tensors[i].dims[0] * n_rows) * sizeof(float);
        (*n)++;
    }
    if (added) {
        gguf_put_tensor(w, added, 1, (const uint64_t[]){8}, 0, at);
        at += 8 * sizeof(float);
        (*n)++;
    }
    return at;
}

/* Writes the model with the edits that were asked for, which are forgotten, and opens it. */
static int open_model(struct checkpoint **ck)
{
    struct gguf_writer keys = {0}, table = {0}, w = {0};
    size_t n;
    put_keys(&keys);
    size_t data_bytes = put_table(&table, &n);
    gguf_put_header(&w, 3, n, (uint64_t)n_written);
    gguf_put(&w, keys.data, keys.len);
    gguf_put(&w, table.data, table.len);
    gguf_put_padding(&w, 32);
    for (size_t i = 0; i < data_bytes / sizeof(float); i++) {
        gguf_put_f32(&w, fill != 0 ? fill : (float)(i % 7) - 3);
    }
    snprintf(path, sizeof path, "/tmp/test_checkpoint_gguf.%d.gguf", (int)getpid());
    gguf_write_file(&w, path);
    gguf_writer_free(&keys);
    gguf_writer_free(&table);
    gguf_writer_free(&w);
    int rc = checkpoint_open(ck, path, &err);
    unlink(path);
    n_edits = 0;
    left_out = added = NULL;
    fill = 0;
    return rc;
}

static void refuse(int code, const char *part)
{
    struct checkpoint *ck;
    CHECK_ERR(open_model(&ck), code, part);
    ck_assert_ptr_null(ck);
}

/* ---- values ---- */

#define PUT_INT(name, value)                                 \
    static void name(struct gguf_writer *w, const char *key) \
    {                                                        \
        gguf_put_int_key(w, key, (uint32_t)(value));         \
    }
#define PUT_TEXT(name, value)                                \
    static void name(struct gguf_writer *w, const char *key) \
    {                                                        \
        gguf_put_text_key(w, key, value);                    \
    }
#define PUT_FLOAT(name, value)                               \
    static void name(struct gguf_writer *w, const char *key) \
    {                                                        \
        gguf_put_float_key(w, key, value);                   \
    }

PUT_INT(zero, 0)
PUT_INT(one, 1)
PUT_INT(three, 3)
PUT_INT(eight, 8)
PUT_INT(sixteen, 16)
PUT_INT(huge, 4000000000)
PUT_FLOAT(half, 0.5f)
PUT_FLOAT(four, 4)
PUT_FLOAT(negative, -1)
PUT_FLOAT(one_and_a_half, 1.5f)
PUT_TEXT(linear, "linear")
PUT_TEXT(mamba, "mamba")
PUT_TEXT(yarn, "yarn")
PUT_TEXT(spiral, "spiral")
PUT_TEXT(word, "many")

static void no(struct gguf_writer *w, const char *key)
{
    gguf_put_bool_key(w, key, 0);
}

static void none(struct gguf_writer *w, const char *key)
{
    gguf_put_array(w, key, GGUF_UINT32, 0);
}

static void two_one(struct gguf_writer *w, const char *key)
{
    gguf_put_array(w, key, GGUF_UINT32, 2);
    gguf_put_u32(w, 2);
    gguf_put_u32(w, 1);
}

static void two_two(struct gguf_writer *w, const char *key)
{
    gguf_put_array(w, key, GGUF_UINT64, 2);
    gguf_put_u64(w, 2);
    gguf_put_u64(w, 2);
}

START_TEST(metadata_become_the_config)
{
    struct checkpoint *ck;
    char types[TYPE_COUNTS_BYTES], rounded[TYPE_COUNTS_BYTES];
    edit("llama.attention.head_count_kv", two_two);
    edit("llama.rope.scaling.type", yarn);
    edit("llama.rope.scaling.factor", four);
    edit("llama.rope.scaling.original_context_length", sixteen);
    edit("tokenizer.ggml.eos_token_id", three);
    edit("tokenizer.ggml.bos_token_id", one);
    edit("general.sampling.temp", half);
    edit("general.sampling.top_k", eight);
    CHECK_OK(open_model(&ck));
    const struct model_config *cfg = checkpoint_config(ck);
    ck_assert_str_eq(cfg->architecture, "LlamaForCausalLM");
    ck_assert(cfg->n_layers == 1 && cfg->dim == DIM && cfg->ffn_dim == FFN);
    ck_assert(cfg->n_heads == HEADS && cfg->n_kv_heads == 2 && cfg->head_dim == DIM / HEADS);
    ck_assert(cfg->vocab_size == VOCAB && cfg->max_positions == 256);
    ck_assert(cfg->norm_eps == 1e-5f && !cfg->tied_embeddings);
    ck_assert(cfg->ropes[0].kind == ROPE_YARN && cfg->ropes[0].factor == 4);
    ck_assert_int_eq(cfg->ropes[0].original_max_positions, 16);
    ck_assert(cfg->bos_id == 1 && cfg->ends.n == 1 && cfg->ends.ids[0] == 3);
    ck_assert(cfg->sampling.temperature == 0.5f && cfg->sampling.top_k == 8);
    ck_assert_ptr_null(checkpoint_remark(ck, CHECKPOINT_UNKNOWN_KEYS));
    checkpoint_show_types(ck, types, rounded);
    ck_assert_str_eq(types, "F32:12");
    ck_assert_str_eq(rounded, "F32:8");
    checkpoint_close(ck);
}
END_TEST

/* llama.cpp's default where a file has a factor. */
START_TEST(a_factor_without_a_type_scales_positions)
{
    struct checkpoint *ck;
    edit("llama.rope.scaling.factor", four);
    CHECK_OK(open_model(&ck));
    const struct rope_config *rope = &checkpoint_config(ck)->ropes[0];
    ck_assert(rope->kind == ROPE_LINEAR && rope->factor == 4);
    checkpoint_close(ck);
}
END_TEST

/* cos and sin of YaRN are those of its scale, or of the file's own factor, times this. */
START_TEST(an_attention_factor_multiplies_that_of_yarn)
{
    const double own = 0.1 * log(4) + 1, own_half = own / (0.5 * 0.1 * log(4) + 1);
    const struct {
        void (*factor)(struct gguf_writer *w, const char *key),
            (*yarn_factor)(struct gguf_writer *w, const char *key),
            (*log_multiplier)(struct gguf_writer *w, const char *key);
        double wanted;
    } cases[] = {{NULL, NULL, NULL, own},
                 {half, NULL, NULL, own / 2},
                 {half, four, NULL, 2},
                 {NULL, NULL, half, own_half},
                 {half, NULL, half, own_half / 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct checkpoint *ck;
        edit("llama.rope.scaling.type", yarn);
        edit("llama.rope.scaling.factor", four);
        edit("llama.rope.scaling.attn_factor", cases[i].factor);
        edit("llama.rope.scaling.yarn_attn_factor", cases[i].yarn_factor);
        edit("llama.rope.scaling.yarn_log_multiplier", cases[i].log_multiplier);
        CHECK_OK(open_model(&ck));
        double factor = checkpoint_config(ck)->ropes[0].attention_factor;
        ck_assert_msg(fabs(factor - cases[i].wanted) < 1e-6, "case %zu: %g", i, factor);
        checkpoint_close(ck);
    }
}
END_TEST

START_TEST(an_attention_factor_of_a_scaling_that_has_none_is_refused)
{
    static const char part[] = "\"llama.rope.scaling.attn_factor\" = 1.5 is not supported without "
                               "the scaling yarn or, in phi3, longrope (1 is)";
    struct checkpoint *ck;
    edit("llama.rope.scaling.attn_factor", one_and_a_half);
    refuse(ERR_UNSUPPORTED, part);
    edit("llama.rope.scaling.attn_factor", one_and_a_half);
    edit("llama.rope.scaling.type", linear);
    edit("llama.rope.scaling.factor", four);
    refuse(ERR_UNSUPPORTED, part);
    edit("llama.rope.scaling.attn_factor", negative);
    refuse(ERR_FORMAT, "\"llama.rope.scaling.attn_factor\" = -1 is outside of (0, 1e6]");
    edit("llama.rope.scaling.attn_factor", one);
    CHECK_OK(open_model(&ck));
    checkpoint_close(ck);
}
END_TEST

START_TEST(a_model_without_a_head_is_tied_to_its_embedding)
{
    struct checkpoint *ck;
    left_out = "output.weight";
    CHECK_OK(open_model(&ck));
    ck_assert(checkpoint_config(ck)->tied_embeddings);
    checkpoint_close(ck);
}
END_TEST

START_TEST(a_window_makes_a_llama_file_a_mistral)
{
    struct checkpoint *ck;
    edit("llama.attention.sliding_window", sixteen);
    CHECK_OK(open_model(&ck));
    ck_assert_str_eq(checkpoint_config(ck)->architecture, "MistralForCausalLM");
    ck_assert_int_eq(config_window(checkpoint_config(ck)), 16);
    checkpoint_close(ck);
}
END_TEST

START_TEST(divisors_of_frequencies_that_are_no_known_scaling_are_used_as_they_are)
{
    struct checkpoint *ck;
    added = "rope_freqs.weight";
    fill = 2;
    CHECK_OK(open_model(&ck));
    const struct rope_config *rope = &checkpoint_config(ck)->ropes[0];
    ck_assert(rope->kind == ROPE_LONG && rope->divisors[0] == 2 && rope->divisors[7] == 2);
    ck_assert(rope->attention_factor == 1);
    ck_assert_ptr_null(checkpoint_remark(ck, CHECKPOINT_LONG_ROPE));
    checkpoint_close(ck);
    added = "rope_freqs.weight";
    edit("llama.rope.scaling.type", yarn);
    edit("llama.rope.scaling.factor", four);
    fill = 2;
    refuse(ERR_UNSUPPORTED,
           "rope_freqs.weight beside a \"llama.rope.scaling.type\" is not supported");
}
END_TEST

/* Rows i and i + E / 2 of each head are rows 2i and 2i + 1 of the file, and only of q and k. */
START_TEST(rows_of_q_and_k_get_their_order_back)
{
    struct checkpoint *ck;
    struct weight q, v;
    float row[DIM];
    int e = DIM / HEADS;
    CHECK_OK(open_model(&ck));
    CHECK_OK(checkpoint_find(ck, "model.layers.0.self_attn.q_proj.weight", DIM, DIM, &q, &err));
    CHECK_OK(checkpoint_find(ck, "model.layers.0.self_attn.v_proj.weight", DIM, DIM, &v, &err));
    for (int i = 0; i < DIM; i++) {
        int in_head = i % e, stored = i - in_head + 2 * (in_head % (e / 2)) + in_head / (e / 2);
        weight_read_f32(&q, i, 0, DIM, row);
        ck_assert_mem_eq(row, q.data + (size_t)stored * sizeof row, sizeof row);
        weight_read_f32(&v, i, 0, DIM, row);
        ck_assert_mem_eq(row, v.data + (size_t)i * sizeof row, sizeof row);
    }
    checkpoint_close(ck);
}
END_TEST

START_TEST(keys_that_nobody_knows_are_named)
{
    struct checkpoint *ck;
    edit("llama.attention.magic", one);
    edit("general.unknown", one);
    CHECK_OK(open_model(&ck));
    const char *remark = checkpoint_remark(ck, CHECKPOINT_UNKNOWN_KEYS);
    ck_assert_ptr_nonnull(remark);
    ck_assert_msg(strstr(remark, "the metadata has keys that are not known here: "
                                 "\"llama.attention.magic\""),
                  "%s", remark);
    CHECK_ERR(checkpoint_demand_known_keys(ck, &err), ERR_UNSUPPORTED, "llama.attention.magic");
    checkpoint_close(ck);
}
END_TEST

START_TEST(architectures_that_are_not_read_are_refused_by_name)
{
    edit("general.architecture", NULL);
    refuse(ERR_FORMAT, "lacks \"general.architecture\", so it is not a model");
    edit("general.architecture", mamba);
    refuse(ERR_UNSUPPORTED,
           "\"general.architecture\" = \"mamba\" is not supported; these are: llama, mistral, "
           "mistral3, qwen2, qwen3, gemma2, gemma3, phi3, olmo2, granite, smollm3");
    edit("general.architecture", one);
    refuse(ERR_FORMAT, "\"general.architecture\" is 1, must be a text");
}
END_TEST

START_TEST(metadata_that_make_no_sense_are_refused_by_key)
{
    edit("llama.block_count", NULL);
    refuse(ERR_FORMAT, "lacks \"llama.block_count\"");
    edit("llama.block_count", word);
    refuse(ERR_FORMAT, "\"llama.block_count\" is the text \"many\", must be an integer");
    edit("llama.block_count", zero);
    refuse(ERR_FORMAT, "\"llama.block_count\" is 0");
    edit("llama.embedding_length", huge);
    refuse(ERR_FORMAT, "\"llama.embedding_length\" is 4000000000");
    edit("llama.attention.head_count_kv", two_one);
    refuse(ERR_UNSUPPORTED, "is 2 for layer 0 and 1 for layer 1; models whose layers differ in it");
    edit("llama.attention.head_count", none);
    refuse(ERR_FORMAT, "\"llama.attention.head_count\" is an empty array");
    edit("llama.attention.value_length", eight);
    refuse(ERR_UNSUPPORTED,
           "\"llama.attention.value_length\" = 8 is not supported with keys of 16");
    edit("llama.expert_count", eight);
    refuse(ERR_UNSUPPORTED, "\"llama.expert_count\" = 8 is not supported: models with experts");
    edit("llama.attention.causal", no);
    refuse(ERR_UNSUPPORTED, "\"llama.attention.causal\" = false is not supported");
    edit("llama.rope.dimension_count", eight);
    refuse(ERR_UNSUPPORTED, "\"llama.rope.dimension_count\" = 8 is not supported with heads of 16");
    edit("llama.rope.scaling.type", spiral);
    refuse(ERR_UNSUPPORTED, "\"llama.rope.scaling.type\" = \"spiral\" is not supported");
    edit("llama.rope.scaling.type", yarn);
    edit("llama.rope.scaling.yarn_ext_factor", half);
    refuse(ERR_UNSUPPORTED, "\"llama.rope.scaling.yarn_ext_factor\" = 0.5 is not supported");
    edit("tokenizer.ggml.eos_token_id", huge);
    refuse(ERR_FORMAT, "\"tokenizer.ggml.eos_token_id\" is 4000000000");
    edit("llama.attention.layer_norm_rms_epsilon", word);
    refuse(ERR_FORMAT, "must be a number");
}
END_TEST

START_TEST(tensors_that_are_missing_or_too_many_are_refused_by_their_own_names)
{
    left_out = "blk.0.ffn_up.weight";
    refuse(ERR_FORMAT, "lacks the tensor blk.0.ffn_up.weight");
    left_out = "token_embd.weight";
    refuse(ERR_FORMAT, "lacks the tensor token_embd.weight");
    added = "blk.0.attn_sinks.weight";
    refuse(ERR_UNSUPPORTED, "there are tensors that the metadata does not announce, and without "
                            "them the result might be another: blk.0.attn_sinks.weight");
    added = "model.norm.weight";
    refuse(ERR_UNSUPPORTED, "might be another: model.norm.weight");
    added = "blk.1.attn_norm.weight";
    refuse(ERR_UNSUPPORTED, "might be another: blk.1.attn_norm.weight");
    added = "rope_freqs.weight";
    refuse(ERR_FORMAT, "of the tensor rope_freqs.weight is 0, which is no divisor of a frequency");
    edit("llama.feed_forward_length", sixteen);
    refuse(ERR_FORMAT,
           "tensor blk.0.ffn_gate.weight has shape [64, 32], the config asks for [16, 32]");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("checkpoint_gguf");
    TCase *models = tcase_create("models");
    tcase_add_test(models, metadata_become_the_config);
    tcase_add_test(models, a_factor_without_a_type_scales_positions);
    tcase_add_test(models, an_attention_factor_multiplies_that_of_yarn);
    tcase_add_test(models, an_attention_factor_of_a_scaling_that_has_none_is_refused);
    tcase_add_test(models, a_model_without_a_head_is_tied_to_its_embedding);
    tcase_add_test(models, a_window_makes_a_llama_file_a_mistral);
    tcase_add_test(models, divisors_of_frequencies_that_are_no_known_scaling_are_used_as_they_are);
    tcase_add_test(models, rows_of_q_and_k_get_their_order_back);
    tcase_add_test(models, keys_that_nobody_knows_are_named);
    tcase_add_test(models, architectures_that_are_not_read_are_refused_by_name);
    tcase_add_test(models, metadata_that_make_no_sense_are_refused_by_key);
    tcase_add_test(models, tensors_that_are_missing_or_too_many_are_refused_by_their_own_names);
    suite_add_tcase(suite, models);
    return check_main(suite);
}
