/* ctest: labels=quick,bits libs=model timeout=300 */
/* The forward pass of folders whose matrices are stored quantized (tests/golden/stored): logits
 * against those that transformers computes in fp32 with the dequantized matrices, and the same bits
 * whatever the ranks, threads, kernels and chunks are. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/system/file.h"
#include "base/text/json.h"
#include "tests/support/forward_util.h"

#define STORED SOURCE_DIR "/tests/golden/stored/"

/* Each golden model states how far the logits move when transformers rounds the inputs of every
 * matrix as this arithmetic does. Here the KV cache and the weights of attention are bf16, too. */
static const double slack = 1.5;

static const char *const names[] = {
    "awq",        "gptq",         "gptq_v2",     "gptq_8",     "packed_rows",  "packed_zeros",
    "packed_8",   "bytes",        "bytes_zeros", "fp8_blocks", "fp8_rows",     "fp8_tensor",
    "gptq_order", "packed_order", "fused_awq",   "fused_gptq", "fused_packed", "fused_fp8"};
enum { N_NAMES = sizeof names / sizeof *names };

struct passage {
    int32_t ids[RIG_TOKENS_MAX], positions[RIG_TOKENS_MAX];
    int n, n_positions;
    double tolerance;
};

static int load_ids(const json_t *array, int32_t *ids)
{
    int n = (int)json_array_size(array);
    for (int i = 0; i < n; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(array, (size_t)i));
    }
    return n;
}

static void load_passage(const char *name, struct passage *p)
{
    char path[512];
    snprintf(path, sizeof path, STORED "%s/prompt.json", name);
    json_t *root = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(root);
    p->n = load_ids(json_object_get(root, "prompt"), p->ids);
    p->n_positions = load_ids(json_object_get(root, "positions"), p->positions);
    p->tolerance = json_number_value(json_object_get(root, "tolerance_rms"));
    json_decref(root);
}

/* Logits of all positions, fed in chunks. The caller frees them. */
static float *logits_of(const char *name, const struct passage *p, int n_ranks, const char *kernels,
                        int n_threads, int chunk)
{
    char path[512];
    struct rig rig;
    int32_t blocks[RIG_BLOCKS];
    for (int i = 0; i < RIG_BLOCKS; i++) {
        blocks[i] = i;
    }
    bool is_synthetic = strncmp(name, "synthetic:", 10) == 0;
    snprintf(path, sizeof path, "%s%s", is_synthetic ? "" : STORED, name);
    rig_open(&rig, path, n_ranks, kernels, n_threads);
    bool is_blocks = !is_synthetic || strstr(name, "blocks=");
    ck_assert(is_blocks == (strstr(rig.backends[0]->ops->arithmetic, "-blocks") != NULL));
    float *logits = calloc((size_t)p->n * (size_t)rig.n_vocab, sizeof *logits);
    rig_logits(&rig, p->ids, p->n, chunk, blocks, logits);
    rig_close(&rig);
    return logits;
}

START_TEST(logits_match_transformers)
{
    struct error err;
    struct passage p;
    struct file_view file;
    char path[512];
    load_passage(names[_i], &p);
    float *got = logits_of(names[_i], &p, 1, "auto", 1, p.n);
    snprintf(path, sizeof path, STORED "%s/logits.f32", names[_i]);
    CHECK_OK(file_map(&file, path, &err));
    size_t n_vocab = file.size_bytes / sizeof(float) / (size_t)p.n_positions;
    float *want = malloc(file.size_bytes);
    memcpy(want, file.data, file.size_bytes);
    double sum = 0;
    for (int i = 0; i < p.n_positions; i++) {
        for (size_t k = 0; k < n_vocab; k++) {
            double d = (double)got[(size_t)p.positions[i] * n_vocab + k] -
                       (double)want[(size_t)i * n_vocab + k];
            sum += d * d;
        }
    }
    double rms = sqrt(sum / ((double)p.n_positions * (double)n_vocab));
    printf("%-16s rms error %.5f, rounded inputs alone %.5f\n", names[_i], rms, p.tolerance);
    ck_assert_msg(rms <= slack * p.tolerance, "%s: rms error %g exceeds %g times %g", names[_i],
                  rms, slack, p.tolerance);
    free(want);
    free(got);
    file_unmap(&file);
}
END_TEST

START_TEST(bits_do_not_depend_on_the_way)
{
    static const struct {
        int n_ranks;
        const char *kernels;
        int n_threads, chunk;
    } ways[] = {{2, "auto", 1, 40}, {4, "auto", 1, 13}, {1, "auto", 3, 1}, {1, "plain", 1, 7}};
    struct passage p;
    load_passage(names[_i], &p);
    float *one = logits_of(names[_i], &p, 1, "auto", 1, p.n);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        float *other = logits_of(names[_i], &p, ways[i].n_ranks, ways[i].kernels, ways[i].n_threads,
                                 ways[i].chunk);
        ck_assert_msg(memcmp(one, other, sizeof *one * (size_t)p.n * 96) == 0,
                      "%s: %d ranks, %s kernels, %d threads, chunks of %d give other bits",
                      names[_i], ways[i].n_ranks, ways[i].kernels, ways[i].n_threads,
                      ways[i].chunk);
        free(other);
    }
    free(one);
}
END_TEST

/* Synthetic models in blocks, without files: the same bits every way, and logits near those of the
 * model in bf16, whose deviation is about 3.3. */
START_TEST(synthetic_blocks_are_near_the_model_in_bf16)
{
    static const struct {
        const char *model;
        double rms;
    } models[] = {{"synthetic:tiny,seed=7,vocab=96,blocks=q8_0", 0.1},
                  {"synthetic:tiny,seed=7,vocab=96,blocks=q4_0", 0.8},
                  {"synthetic:tiny,seed=7,vocab=96,blocks=iq4_nl", 0.8}};
    struct passage p;
    load_passage("awq", &p);
    size_t n = (size_t)p.n * 96;
    float *plain = logits_of("synthetic:tiny,seed=7,vocab=96", &p, 1, "auto", 1, p.n);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        double sum = 0;
        float *one = logits_of(models[i].model, &p, 1, "auto", 1, p.n);
        float *other = logits_of(models[i].model, &p, 2, "plain", 2, 7);
        ck_assert_mem_eq(one, other, n * sizeof *one);
        for (size_t k = 0; k < n; k++) {
            sum += pow((double)one[k] - (double)plain[k], 2);
        }
        printf("%s rms distance %.3f\n", models[i].model, sqrt(sum / (double)n));
        ck_assert_double_le(sqrt(sum / (double)n), models[i].rms);
        ck_assert_double_ge(sqrt(sum / (double)n), 0.01);
        free(other);
        free(one);
    }
    free(plain);
}
END_TEST

/* Writes model.safetensors of gptq_order to path, with two columns of q in each other's groups. */
static void write_other_order(const char *path)
{
    struct error err;
    struct file_view file;
    CHECK_OK(file_map(&file, STORED "gptq_order/model.safetensors", &err));
    uint8_t *copy = malloc(file.size_bytes);
    memcpy(copy, file.data, file.size_bytes);
    size_t len = copy[0] | (size_t)copy[1] << 8;
    json_t *header = json_loadb((const char *)copy + 8, len, 0, NULL);
    json_t *entry = json_object_get(header, "model.layers.0.self_attn.q_proj.g_idx");
    uint8_t *order = copy + 8 + len +
                     json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0));
    int32_t first, other;
    memcpy(&first, order, sizeof first);
    for (size_t k = 1;; k++) {
        memcpy(&other, order + k * sizeof other, sizeof other);
        if (other == first) continue;
        memcpy(order, &other, sizeof other);
        memcpy(order + k * sizeof first, &first, sizeof first);
        break;
    }
    CHECK_OK(file_replace(path, (const char *)copy, file.size_bytes, &err));
    json_decref(header);
    free(copy);
    file_unmap(&file);
}

START_TEST(q_and_k_with_different_orders_are_refused)
{
    struct error err;
    char dir[] = "/tmp/outrider-order-XXXXXX", path[64];
    struct checkpoint *ck;
    struct backend *be;
    struct model *model = NULL;
    struct file_view config;
    const struct backend_options options = {
        .device = "cpu", .kernels = "auto", .n_threads = 1, .stored = WEIGHTS_BLOCKS};
    const struct model_options model_options = {
        .n_kv_blocks = 1, .max_tokens = 1, .max_rows = 1, .max_lanes = 1, .n_vocab = 96};
    ck_assert_ptr_nonnull(mkdtemp(dir));
    CHECK_OK(file_map(&config, STORED "gptq_order/config.json", &err));
    snprintf(path, sizeof path, "%s/config.json", dir);
    CHECK_OK(file_replace(path, (const char *)config.data, config.size_bytes, &err));
    file_unmap(&config);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    write_other_order(path);
    CHECK_OK(checkpoint_open(&ck, dir, &err));
    CHECK_OK(backend_open(&be, &options, &err));
    CHECK_ERR(model_open(&model, ck, comm_single(), be, &model_options, &err), ERR_UNSUPPORTED,
              "matrices that read the same rows have groups of different columns");
    be->ops->close(be);
    checkpoint_close(ck);
    unlink(path);
    snprintf(path, sizeof path, "%s/config.json", dir);
    unlink(path);
    rmdir(dir);
}
END_TEST

int main(void)
{
    rig_weights = NULL;
    Suite *suite = suite_create("forward_stored");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 280);
    tcase_add_loop_test(tcase, logits_match_transformers, 0, N_NAMES);
    tcase_add_loop_test(tcase, bits_do_not_depend_on_the_way, 0, N_NAMES);
    tcase_add_test(tcase, synthetic_blocks_are_near_the_model_in_bf16);
    tcase_add_test(tcase, q_and_k_with_different_orders_are_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
