/* ctest: labels=quick,bits libs=model timeout=300 */
/* Models as GGUF files, which gguf-py has written (tests/oracle/gguf_golden.py), against the
 * folders that they were made from: the same config and, where the file holds the same values, the
 * same bits of every logit, on one rank and on two. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "model/checkpoint/config/config_fields.h"
#include "model/checkpoint/type_counts.h"
#include "model/numerics/block.h"
#include "tests/support/forward_util.h"
#include "tests/support/gguf_writer.h"

#define FILES   SOURCE_DIR "/tests/golden/gguf/"
#define FOLDERS SOURCE_DIR "/tests/golden/models/"

enum { N_TOKENS = 40, PATH_BYTES = 512 };

static struct error err;

/* Logits of a text of tokens that are spread over the vocabulary; the caller frees them. */
static float *logits_of(const char *model, int n_ranks, int *n_vocab)
{
    int32_t tokens[N_TOKENS], blocks[RIG_BLOCKS];
    struct rig rig;
    rig_weights = NULL; /* as the model is stored */
    rig_open(&rig, model, n_ranks, "auto", 2);
    *n_vocab = rig.n_vocab;
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = (7 + 61 * i) % rig.n_vocab;
    }
    for (int i = 0; i < RIG_BLOCKS; i++) {
        blocks[i] = i;
    }
    float *logits = calloc((size_t)N_TOKENS * (size_t)rig.n_vocab, sizeof *logits);
    ck_assert_ptr_nonnull(logits);
    rig_logits(&rig, tokens, N_TOKENS, 16, blocks, logits);
    rig_close(&rig);
    return logits;
}

static bool is_same(const float *a, const float *b, int n_vocab)
{
    return memcmp(a, b, (size_t)N_TOKENS * (size_t)n_vocab * sizeof *a) == 0;
}

/* Root mean square of the difference over that of b. */
static double distance(const float *a, const float *b, int n_vocab)
{
    double difference = 0, size = 0;
    for (int i = 0; i < N_TOKENS * n_vocab; i++) {
        double d = (double)a[i] - (double)b[i];
        difference += d * d;
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / size);
}

/* The config of a model, but for whether norms are stored less 1, which the two formats do
 * differently. */
static struct model_config config_of(const char *model)
{
    struct checkpoint *ck;
    CHECK_OK(checkpoint_open(&ck, model, &err));
    ck_assert_ptr_null(checkpoint_remark(ck, CHECKPOINT_UNKNOWN_KEYS));
    struct model_config cfg = *checkpoint_config(ck);
    checkpoint_close(ck);
    cfg.norm_offset = false;
    return cfg;
}

static void check_config(const char *file, const char *folder)
{
    const struct model_config of_file = config_of(file), of_folder = config_of(folder);
    const char *difference = config_difference(&of_file, &of_folder);
    ck_assert_msg(!difference, "%s: %s is another than the folder's", file, difference);
}

static bool has_blocks(const char *type)
{
    return strcmp(type, "f32") != 0 && strcmp(type, "f16") != 0 && strcmp(type, "bf16") != 0;
}

/* The folder that a file must be like: its own, or one with the same tensors and the config of
 * FOLDER.TYPE.json, which is made in `made`. */
static void find_folder(const char *name, char folder[PATH_BYTES], char made[PATH_BYTES])
{
    char config[PATH_BYTES], weights[2 * PATH_BYTES], link_at[2 * PATH_BYTES];
    int len = (int)strcspn(name, ".");
    snprintf(folder, PATH_BYTES, FOLDERS "%.*s", len, name);
    snprintf(config, sizeof config, FILES "%.*s.json", (int)(strlen(name) - strlen(".gguf")), name);
    made[0] = '\0';
    if (access(config, R_OK)) return;
    snprintf(made, PATH_BYTES, "/tmp/test_gguf_model.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(made));
    snprintf(weights, sizeof weights, "%s/model.safetensors", folder);
    snprintf(link_at, sizeof link_at, "%s/model.safetensors", made);
    ck_assert_int_eq(symlink(weights, link_at), 0);
    snprintf(link_at, sizeof link_at, "%s/config.json", made);
    ck_assert_int_eq(symlink(config, link_at), 0);
    snprintf(folder, PATH_BYTES, "%s", made);
}

static void remove_made(const char *made)
{
    char path[2 * PATH_BYTES];
    if (!made[0]) return;
    snprintf(path, sizeof path, "%s/model.safetensors", made);
    unlink(path);
    snprintf(path, sizeof path, "%s/config.json", made);
    unlink(path);
    rmdir(made);
}

/* name: FOLDER.TYPE.gguf */
static void check_file(const char *name)
{
    char file[PATH_BYTES], folder[PATH_BYTES], made[PATH_BYTES], type[16];
    int n_vocab, len = (int)strcspn(name, ".");
    snprintf(file, sizeof file, FILES "%s", name);
    find_folder(name, folder, made);
    snprintf(type, sizeof type, "%.*s", (int)strcspn(name + len + 1, "."), name + len + 1);
    float *want = logits_of(folder, 1, &n_vocab);
    float *one = logits_of(file, 1, &n_vocab);
    float *two = logits_of(file, 2, &n_vocab);
    ck_assert_msg(is_same(one, two, n_vocab), "%s: two ranks differ from one", name);
    if (has_blocks(type)) {
        double d = distance(one, want, n_vocab);
        printf("%-24s differs from the folder by %.4f of its logits\n", name, d);
        ck_assert_msg(d > 0 && d < (strcmp(type, "q8_0") == 0 ? 0.03 : 0.4), "%s: %g", name, d);
    } else {
        check_config(file, folder);
        ck_assert_msg(is_same(one, want, n_vocab), "%s differs from its folder by %g", name,
                      distance(one, want, n_vocab));
    }
    remove_made(made);
    free(want);
    free(one);
    free(two);
}

START_TEST(files_compute_what_their_folders_do)
{
    struct dirent *entry;
    int n = 0;
    DIR *dir = opendir(FILES);
    ck_assert_ptr_nonnull(dir);
    while ((entry = readdir(dir))) {
        const char *ending = strrchr(entry->d_name, '.');
        if (entry->d_name[0] == '.' || strcmp(ending, ".gguf") != 0) continue;
        printf("%s\n", entry->d_name);
        check_file(entry->d_name);
        n++;
    }
    closedir(dir);
    ck_assert_int_ge(n, 20);
}
END_TEST

START_TEST(layers_can_be_chosen)
{
    int n_vocab;
    float *want = logits_of(FOLDERS "llama_f32,layers=1-1", 1, &n_vocab);
    float *got = logits_of(FILES "llama_f32.f32.gguf,layers=1-1", 1, &n_vocab);
    ck_assert(is_same(got, want, n_vocab));
    free(want);
    free(got);
}
END_TEST

/* ---- a mixture of blocks ---- */

enum { DIM = 256, FFN = 768, VOCAB = 64 };

static const struct {
    const char *name;
    enum block_kind kind;
    uint32_t type; /* of the file */
    int n_cols, n_rows;
    int halves[2]; /* where a block has its scales; -1: there is no second one */
} mixture[] = {
    {"token_embd.weight", BLOCK_Q6_K, 14, DIM, VOCAB, {208, -1}},
    {"blk.0.attn_q.weight", BLOCK_Q4_K, 12, DIM, DIM, {0, 2}},
    {"blk.0.attn_k.weight", BLOCK_Q5_K, 13, DIM, DIM, {0, 2}},
    {"blk.0.attn_v.weight", BLOCK_Q6_K, 14, DIM, DIM, {208, -1}},
    {"blk.0.attn_output.weight", BLOCK_Q3_K, 11, DIM, DIM, {108, -1}},
    {"blk.0.ffn_gate.weight", BLOCK_Q2_K, 10, DIM, FFN, {80, 82}},
    {"blk.0.ffn_up.weight", BLOCK_IQ4_XS, 23, DIM, FFN, {0, -1}},
    {"blk.0.ffn_down.weight", BLOCK_Q6_K, 14, FFN, DIM, {208, -1}},
};
enum { N_MIXTURE = sizeof mixture / sizeof *mixture };

static void put_vector_of_ones(struct gguf_writer *w)
{
    for (int i = 0; i < DIM; i++) {
        gguf_put_f32(w, 1);
    }
}

/* Random integers, with small scales. */
static void put_blocks(struct gguf_writer *w, int i, uint64_t *state)
{
    size_t bytes = block_bytes(mixture[i].kind, (size_t)mixture[i].n_cols);
    size_t block = (size_t)block_type_of(mixture[i].kind)->n_bytes;
    for (size_t at = 0; at < bytes * (size_t)mixture[i].n_rows; at++) {
        int in_block = (int)(at % block);
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        uint8_t byte = (uint8_t)(*state >> 56);
        for (int k = 0; k < 2; k++) {
            if (mixture[i].halves[k] < 0) continue;
            if (in_block == mixture[i].halves[k] + 1) byte = 0x0c; /* about 2e-4 */
        }
        gguf_put(w, &byte, 1);
    }
}

static void write_mixture(const char *path)
{
    static const char *const norms[] = {"output_norm.weight", "blk.0.attn_norm.weight",
                                        "blk.0.ffn_norm.weight"};
    static const uint64_t dims[] = {DIM};
    struct gguf_writer w = {0};
    uint64_t at = 0, state = 1;
    gguf_put_header(&w, 3, N_MIXTURE + 3, 7);
    gguf_put_text_key(&w, "general.architecture", "llama");
    gguf_put_int_key(&w, "llama.block_count", 1);
    gguf_put_int_key(&w, "llama.context_length", 256);
    gguf_put_int_key(&w, "llama.embedding_length", DIM);
    gguf_put_int_key(&w, "llama.feed_forward_length", FFN);
    gguf_put_int_key(&w, "llama.attention.head_count", 2);
    gguf_put_float_key(&w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    for (int i = 0; i < 3; i++, at += DIM * sizeof(float)) {
        gguf_put_tensor(&w, norms[i], 1, dims, 0, at);
    }
    for (int i = 0; i < N_MIXTURE; i++) {
        const uint64_t both[] = {(uint64_t)mixture[i].n_cols, (uint64_t)mixture[i].n_rows};
        gguf_put_tensor(&w, mixture[i].name, 2, both, mixture[i].type, at);
        at += block_bytes(mixture[i].kind, (size_t)(both[0] * both[1]));
    }
    gguf_put_padding(&w, 32);
    for (int i = 0; i < 3; i++) {
        put_vector_of_ones(&w);
    }
    for (int i = 0; i < N_MIXTURE; i++) {
        put_blocks(&w, i, &state);
    }
    gguf_write_file(&w, path);
    gguf_writer_free(&w);
}

/* A slice of the MLP is one super-block and a half. */
START_TEST(a_mixture_of_blocks_computes_the_same_on_two_ranks)
{
    char folder[] = "/tmp/test_gguf_model.XXXXXX", path[PATH_BYTES];
    int n_vocab, n_types = 0;
    struct type_count types[TYPE_COUNTS_MAX];
    struct checkpoint *ck;
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/mixture.gguf", folder);
    write_mixture(path);
    CHECK_OK(checkpoint_open(&ck, path, &err));
    ck_assert_int_eq(config_slices(checkpoint_config(ck)), 2);
    n_types = checkpoint_count_types(ck, types);
    ck_assert_int_eq(n_types, 7);
    ck_assert_str_eq(types[0].name, "Q6_K");
    ck_assert_int_eq(types[0].n_tensors, 3);
    checkpoint_close(ck);
    float *one = logits_of(path, 1, &n_vocab), *two = logits_of(path, 2, &n_vocab);
    ck_assert(is_same(one, two, n_vocab));
    ck_assert(isfinite(one[0]) && one[0] != one[1]);
    unlink(path);
    rmdir(folder);
    free(one);
    free(two);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf_model");
    TCase *files = tcase_create("files");
    tcase_set_timeout(files, 300);
    tcase_add_test(files, files_compute_what_their_folders_do);
    tcase_add_test(files, layers_can_be_chosen);
    tcase_add_test(files, a_mixture_of_blocks_computes_the_same_on_two_ranks);
    suite_add_tcase(suite, files);
    return check_main(suite);
}
