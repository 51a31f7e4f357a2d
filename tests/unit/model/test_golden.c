/* ctest: labels=quick,bits libs=model timeout=300 */
/* The forward pass against other code: logits that Hugging Face transformers computed in fp32
 * (tests/oracle/golden_models.py, and the tales pair's reference files).
 *
 * Our matmul inputs are bf16, so the logits differ by that rounding. Each golden model states how
 * far a bf16 run of transformers is from its fp32 run (root mean square), and ours must not be
 * farther. For the tales pair the largest error is stated here. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>

#include "base/system/file.h"
#include "base/text/json.h"
#include "tests/support/forward_util.h"

#define GOLDEN    SOURCE_DIR "/tests/golden/models"
#define TALES     SOURCE_DIR "/deploy/models/tales/"
#define REFERENCE SOURCE_DIR "/tests/golden/tales/"

/* Largest error of a logit of the tales pair; measured are 0.029 (target) and 0.022 (draft), and
 * logits span about 25. Greedy choices must agree wherever the reference's margin exceeds twice
 * this. */
static const double tales_error = 0.04;

static json_t *load_json(const char *path)
{
    struct error err;
    char *text;
    size_t len;
    json_t *root;
    CHECK_OK(file_read_text(&text, &len, path, 64 << 20, &err));
    CHECK_OK(json_parse_text(&root, text, len, path, &err));
    free(text);
    return root;
}

static int load_ids(const json_t *array, int32_t *ids)
{
    int n = (int)json_array_size(array);
    for (int i = 0; i < n; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(array, (size_t)i));
    }
    return n;
}

static void identity_blocks(int32_t *blocks)
{
    for (int i = 0; i < RIG_BLOCKS; i++) {
        blocks[i] = i;
    }
}

static double rms_error(const float *got, const float *want, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        sum += d * d;
    }
    return sqrt(sum / n);
}

static int argmax(const float *row, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++) {
        if (row[i] > row[best]) best = i;
    }
    return best;
}

/* The greedy text after the prompt: the same wherever the reference's choice is clear of what a
 * run in bf16 may change. */
static void check_greedy(struct rig *rig, const char *name, const json_t *root, int32_t *ids, int n,
                         double tolerance)
{
    int32_t blocks[RIG_BLOCKS];
    size_t v = (size_t)rig->n_vocab;
    const json_t *margins = json_object_get(root, "margins");
    int n_greedy = load_ids(json_object_get(root, "greedy"), ids + n), n_clear = 0;
    if (n_greedy == 0) return;
    float *got = calloc((size_t)(n + n_greedy) * v, sizeof *got);
    identity_blocks(blocks);
    rig_logits(rig, ids, n + n_greedy, n + n_greedy, blocks, got);
    for (int i = 0; i < n_greedy; i++) {
        double margin = json_number_value(json_array_get(margins, (size_t)i));
        int best = argmax(got + (size_t)(n - 1 + i) * v, rig->n_vocab);
        if (margin <= 6 * tolerance) continue;
        n_clear++;
        ck_assert_msg(best == ids[n + i], "%s, greedy step %d: token %d, reference %d, margin %g",
                      name, i, best, ids[n + i], margin);
    }
    ck_assert_int_ge(n_clear, n_greedy / 4);
    free(got);
}

static void check_golden(const char *name)
{
    struct error err;
    char path[512];
    int32_t ids[RIG_TOKENS_MAX], positions[RIG_TOKENS_MAX], blocks[RIG_BLOCKS];
    struct file_view file;
    struct rig rig;
    snprintf(path, sizeof path, "%s/%s/prompt.json", GOLDEN, name);
    json_t *root = load_json(path);
    int n = load_ids(json_object_get(root, "prompt"), ids);
    int n_pos = load_ids(json_object_get(root, "positions"), positions);
    double tolerance = json_number_value(json_object_get(root, "tolerance_rms"));
    snprintf(path, sizeof path, "%s/%s/logits.f32", GOLDEN, name);
    CHECK_OK(file_map(&file, path, &err));

    snprintf(path, sizeof path, "%s/%s", GOLDEN, name);
    rig_open(&rig, path, 1, "auto", 1);
    ck_assert_uint_eq(file.size_bytes, (size_t)n_pos * (size_t)rig.n_vocab * sizeof(float));
    float *got = calloc((size_t)n * (size_t)rig.n_vocab, sizeof *got);
    float *want = malloc(file.size_bytes);
    memcpy(want, file.data, file.size_bytes);
    identity_blocks(blocks);
    rig_logits(&rig, ids, n, n, blocks, got);
    double worst = 0;
    for (int i = 0; i < n_pos; i++) {
        double e = rms_error(got + (size_t)positions[i] * (size_t)rig.n_vocab,
                             want + (size_t)i * (size_t)rig.n_vocab, rig.n_vocab);
        worst = e > worst ? e : worst;
    }
    double all = 0;
    for (int i = 0; i < n_pos; i++) {
        double e = rms_error(got + (size_t)positions[i] * (size_t)rig.n_vocab,
                             want + (size_t)i * (size_t)rig.n_vocab, rig.n_vocab);
        all += e * e / n_pos;
    }
    printf("%-24s rms error %.5f (worst position %.5f), transformers in bf16 %.5f\n", name,
           sqrt(all), worst, tolerance);
    ck_assert_msg(sqrt(all) <= tolerance, "%s: rms error %g exceeds %g", name, sqrt(all),
                  tolerance);
    check_greedy(&rig, name, root, ids, n, tolerance);
    rig_close(&rig);
    file_unmap(&file);
    free(want);
    free(got);
    json_decref(root);
}

START_TEST(every_property_matches_transformers)
{
    struct dirent *entry;
    int n = 0;
    DIR *dir = opendir(GOLDEN);
    ck_assert_ptr_nonnull(dir);
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.') continue;
        check_golden(entry->d_name);
        n++;
    }
    closedir(dir);
    ck_assert_int_ge(n, 40);
}
END_TEST

/* Checks the 8 best logits of every prompt position, then the greedy continuation step by step:
 * wherever the reference's margin is clear, ours must choose the same token. Counts those steps in
 * *n_clear. */
static void check_prompt(struct rig *rig, const json_t *prompt, double *worst, int *n_clear)
{
    int32_t ids[RIG_TOKENS_MAX], greedy[RIG_TOKENS_MAX], blocks[RIG_BLOCKS];
    int n = load_ids(json_object_get(prompt, "ids"), ids);
    int n_greedy = load_ids(json_object_get(prompt, "greedy_ids"), greedy);
    const json_t *top_ids = json_object_get(prompt, "top8_ids_per_position");
    const json_t *top_logits = json_object_get(prompt, "top8_logits_per_position");
    const json_t *margins = json_object_get(prompt, "greedy_margins");
    size_t v = (size_t)rig->n_vocab;
    memcpy(ids + n, greedy, (size_t)n_greedy * sizeof *ids);
    float *logits = calloc((size_t)(n + n_greedy) * v, sizeof *logits);
    identity_blocks(blocks);
    rig_logits(rig, ids, n + n_greedy, n + n_greedy, blocks, logits);
    for (int pos = 0; pos < n; pos++) {
        int32_t top[8];
        load_ids(json_array_get(top_ids, (size_t)pos), top);
        for (int i = 0; i < 8; i++) {
            double want = json_number_value(
                json_array_get(json_array_get(top_logits, (size_t)pos), (size_t)i));
            double e = fabs((double)logits[(size_t)pos * v + (size_t)top[i]] - want);
            *worst = e > *worst ? e : *worst;
        }
    }
    for (int i = 0; i < n_greedy; i++) {
        double margin = json_number_value(json_array_get(margins, (size_t)i));
        int got = argmax(logits + (size_t)(n - 1 + i) * v, rig->n_vocab);
        if (margin > 2 * tales_error) {
            (*n_clear)++;
            ck_assert_msg(got == greedy[i], "greedy step %d: token %d, reference %d, margin %g", i,
                          got, greedy[i], margin);
        }
    }
    free(logits);
}

START_TEST(tales_match_the_reference)
{
    const char *name = _i == 0 ? "target" : "draft";
    char path[512];
    struct rig rig;
    double worst = 0;
    int n_clear = 0;
    snprintf(path, sizeof path, REFERENCE "reference_%s.json", name);
    json_t *root = load_json(path);
    snprintf(path, sizeof path, TALES "%s", name);
    rig_open(&rig, path, 1, "auto", 1);
    const json_t *prompts = json_object_get(root, "prompts");
    ck_assert_uint_ge(json_array_size(prompts), 5);
    for (size_t i = 0; i < json_array_size(prompts); i++) {
        check_prompt(&rig, json_array_get(prompts, i), &worst, &n_clear);
    }
    printf(
        "tales %s: largest error of the 8 best logits %.4f, allowed %.4f; %d clear greedy steps\n",
        name, worst, tales_error, n_clear);
    ck_assert_int_ge(n_clear, 100);
    ck_assert_double_le(worst, tales_error);
    rig_close(&rig);
    json_decref(root);
}
END_TEST

START_TEST(every_logit_of_the_first_prompt_matches)
{
    struct error err;
    struct file_view file;
    struct rig rig;
    int32_t ids[RIG_TOKENS_MAX], blocks[RIG_BLOCKS];
    json_t *root = load_json(REFERENCE "reference_target.json");
    const json_t *prompt = json_array_get(json_object_get(root, "prompts"), 0);
    int n = load_ids(json_object_get(prompt, "ids"), ids);
    CHECK_OK(file_map(&file, REFERENCE "reference_logits_prompt0.f32", &err));
    rig_open(&rig, TALES "target", 1, "auto", 1);
    size_t count = (size_t)n * (size_t)rig.n_vocab;
    ck_assert_uint_eq(file.size_bytes, count * sizeof(float));
    float *got = calloc(count, sizeof *got), *want = malloc(file.size_bytes);
    memcpy(want, file.data, file.size_bytes);
    identity_blocks(blocks);
    rig_logits(&rig, ids, n, n, blocks, got);
    double worst = 0;
    for (size_t i = 0; i < count; i++) {
        double e = fabs((double)got[i] - (double)want[i]);
        worst = e > worst ? e : worst;
    }
    printf("tales target, all logits of prompt 0: largest error %.4f, rms %.5f\n", worst,
           rms_error(got, want, (int)count));
    ck_assert_double_le(worst, tales_error);
    rig_close(&rig);
    file_unmap(&file);
    free(want);
    free(got);
    json_decref(root);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("golden");
    TCase *tcase = tcase_create("transformers");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, every_property_matches_transformers);
    suite_add_tcase(suite, tcase);
    TCase *tales = tcase_create("the tales pair");
    tcase_set_timeout(tales, 300);
    tcase_set_tags(tales, "long"); /* tests/run leaves it out where the CPU is emulated */
    tcase_add_loop_test(tales, tales_match_the_reference, 0, 2);
    tcase_add_test(tales, every_logit_of_the_first_prompt_matches);
    suite_add_tcase(suite, tales);
    return check_main(suite);
}
