/* ctest: labels=quick,bits libs=model timeout=300 */
/* Models as GGUF files, which gguf-py has written (tests/oracle/gguf_golden.py), against the
 * folders that they were made from: the same config and, where the file holds the same values, the
 * same bits of every logit, on one rank and on two. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>

#include "model/checkpoint/config/config_fields.h"
#include "tests/support/forward_util.h"

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

static void check_config(const char *file, const char *folder)
{
    char of_file[CONFIG_HASHED_BYTES], of_folder[CONFIG_HASHED_BYTES];
    struct checkpoint *ck;
    CHECK_OK(checkpoint_open(&ck, file, &err));
    ck_assert_ptr_null(checkpoint_remark(ck, CHECKPOINT_UNKNOWN_KEYS));
    size_t n_file = config_hashed_bytes(checkpoint_config(ck), of_file);
    checkpoint_close(ck);
    CHECK_OK(checkpoint_open(&ck, folder, &err));
    size_t n_folder = config_hashed_bytes(checkpoint_config(ck), of_folder);
    checkpoint_close(ck);
    ck_assert_msg(n_file == n_folder && memcmp(of_file, of_folder, n_file) == 0,
                  "%s:\n%.*s\ninstead of\n%.*s", file, (int)n_file, of_file, (int)n_folder,
                  of_folder);
}

static bool has_blocks(const char *type)
{
    return strcmp(type, "f32") != 0 && strcmp(type, "f16") != 0 && strcmp(type, "bf16") != 0;
}

/* name: FOLDER.TYPE.gguf */
static void check_file(const char *name)
{
    char file[PATH_BYTES], folder[PATH_BYTES], type[16];
    int n_vocab, len = (int)strcspn(name, ".");
    snprintf(file, sizeof file, FILES "%s", name);
    snprintf(folder, sizeof folder, FOLDERS "%.*s", len, name);
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
        if (entry->d_name[0] == '.') continue;
        check_file(entry->d_name);
        n++;
    }
    closedir(dir);
    ck_assert_int_ge(n, 7);
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

int main(void)
{
    Suite *suite = suite_create("gguf_model");
    TCase *files = tcase_create("files");
    tcase_set_timeout(files, 300);
    tcase_add_test(files, files_compute_what_their_folders_do);
    tcase_add_test(files, layers_can_be_chosen);
    suite_add_tcase(suite, files);
    return check_main(suite);
}
