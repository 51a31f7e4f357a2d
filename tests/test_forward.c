/* ctest: labels=quick,threads libs=model timeout=300 */
/* One arithmetic: the logits after a prefix are bit-identical whatever else is in the step, however the
 * tokens are cut into steps, on any number of ranks and threads, with any variant of the kernels. */
#include "tests/forward_util.h"

#include <stdio.h>

#define TALES  SOURCE_DIR "/deploy/models/tales/target"
#define DRAFT  SOURCE_DIR "/deploy/models/tales/draft"
#define GOLDEN SOURCE_DIR "/tests/golden/models/"

enum { N_TOKENS = 300 }; /* more than one attention partition of 256 */

static int32_t tokens[N_TOKENS], other[3][N_TOKENS];
static int32_t blocks[4][RIG_BLOCKS / 4];

/* Tokens from a fixed generator, and block tables that are anything but in order. */
static void make_inputs(int n_vocab)
{
    uint32_t state = 12345;
    for (int i = 0; i < N_TOKENS; i++) {
        int32_t *rows[4] = {tokens, other[0], other[1], other[2]};
        for (int r = 0; r < 4; r++) {
            state = state * 1664525u + 1013904223u;
            rows[r][i] = (int32_t)((state >> 8) % (uint32_t)n_vocab);
        }
    }
    for (int i = 0; i < RIG_BLOCKS; i++) {
        blocks[i % 4][i / 4] = (i * 37 + 11) % RIG_BLOCKS;
    }
}

static float *new_logits(const struct rig *rig)
{
    float *logits = calloc((size_t)N_TOKENS * (size_t)rig->n_vocab, sizeof *logits);
    ck_assert_ptr_nonnull(logits);
    return logits;
}

static void check_equal(const struct rig *rig, const float *a, const float *b, int first, int end,
                        const char *what)
{
    for (int pos = first; pos < end; pos++) {
        size_t at = (size_t)pos * (size_t)rig->n_vocab;
        for (int id = 0; id < rig->n_vocab; id++) {
            ck_assert_msg(memcmp(&a[at + (size_t)id], &b[at + (size_t)id], sizeof(float)) == 0,
                          "%s: position %d, token %d: %.9g and %.9g", what, pos, id,
                          (double)a[at + (size_t)id], (double)b[at + (size_t)id]);
        }
    }
}

/* The logits that everything else is compared with: T = 1, one thread, the whole prompt at once. */
static float *reference(const char *model)
{
    struct rig rig;
    rig_open(&rig, model, 1, "auto", 1);
    make_inputs(rig.n_vocab);
    float *logits = new_logits(&rig);
    rig_logits(&rig, tokens, N_TOKENS, N_TOKENS, blocks[0], logits);
    double spread = 0;
    for (int id = 0; id < rig.n_vocab; id++) {
        spread += (double)(logits[id] - logits[0]) * (double)(logits[id] - logits[0]);
    }
    ck_assert_msg(spread > 0, "all logits are equal: the test could not fail");
    rig_close(&rig);
    return logits;
}

static void check_model(const char *model, int n_ranks, const char *kernels, int n_threads,
                        int chunk)
{
    struct error err;
    const struct kernels *found;
    char what[200];
    if (kernels_find(&found, kernels, &err)) {
        printf("not run on this machine: %s\n", err.text);
        return;
    }
    snprintf(what, sizeof what, "%s T=%d kernels=%s threads=%d chunk=%d", strrchr(model, '/'),
             n_ranks, kernels, n_threads, chunk);
    float *want = reference(model);
    struct rig rig;
    rig_open(&rig, model, n_ranks, kernels, n_threads);
    float *got = new_logits(&rig);
    rig_logits(&rig, tokens, N_TOKENS, chunk, blocks[1], got);
    check_equal(&rig, want, got, 0, N_TOKENS, what);
    rig_close(&rig);
    free(got);
    free(want);
}

START_TEST(chunks_of_any_length_give_equal_bits)
{
    const int chunks[] = {1, 2, 5, 6, 7, 17, 64, 299};
    check_model(TALES, 1, "auto", 1, chunks[_i]);
}
END_TEST

START_TEST(ranks_give_equal_bits)
{
    const int ranks[] = {2, 4, 8};
    check_model(TALES, ranks[_i], "auto", 1, 7);
    check_model(DRAFT, ranks[_i] > 4 ? 4 : ranks[_i], "auto", 1, 64);
}
END_TEST

START_TEST(threads_give_equal_bits)
{
    check_model(TALES, 1, "auto", 2, 64);
    check_model(TALES, 2, "auto", 2, 6);
    check_model(TALES, 1, "auto", 3, 1);
}
END_TEST

START_TEST(kernel_variants_give_equal_bits)
{
    const char *const names[] = {"avx512", "avx2", "plain"};
    check_model(TALES, 1, names[_i], 1, 64);
    check_model(TALES, 2, names[_i], 1, 5);
    check_model(GOLDEN "qwen3_norm_bias", 1, names[_i], 1, 9);
}
END_TEST

START_TEST(other_architectures_give_equal_bits_on_two_ranks)
{
    const char *const models[] = {
        GOLDEN "llama_bias", GOLDEN "qwen2_bias",
        GOLDEN "qwen3_norm", GOLDEN "llama_rope_yarn_factor",
        GOLDEN "llama_tied", "synthetic:tiny,seed=7",
    };
    check_model(models[_i], 2, "auto", 1, 6);
}
END_TEST

/* The lane of interest goes in K + 1 rows at a time among three others of other lengths. */
START_TEST(a_lane_among_others_gives_equal_bits)
{
    float *want = reference(TALES);
    struct rig rig;
    rig_open(&rig, TALES, _i ? 2 : 1, "auto", 1);
    float *got = new_logits(&rig);
    float *rest = new_logits(&rig);
    int fed[4] = {0};
    const int step[4] = {5, 1, 16, 3};
    while (fed[0] < N_TOKENS) {
        struct rig_lane lanes[4];
        int n = 0;
        for (int i = 0; i < 4; i++) {
            const int32_t *row = i == 0 ? tokens : other[i - 1];
            int left = N_TOKENS - fed[i];
            if (left == 0) continue;
            lanes[n++] = (struct rig_lane){.tokens = row,
                                           .first = fed[i],
                                           .n = left < step[i] ? left : step[i],
                                           .blocks = blocks[i],
                                           .logits = i == 0   ? got
                                                     : i == 2 ? rest
                                                              : NULL};
            fed[i] += lanes[n - 1].n;
        }
        /* The others may stand before or behind the lane. */
        if (n == 4 && fed[0] % 2) {
            struct rig_lane first = lanes[0];
            lanes[0] = lanes[3];
            lanes[3] = first;
        }
        rig_feed(&rig, lanes, n);
    }
    check_equal(&rig, want, got, 0, N_TOKENS, "a lane among three others");
    rig_close(&rig);
    free(rest);
    free(got);
    free(want);
}
END_TEST

/* Guesses that were fed and rejected leave no trace. */
START_TEST(rejected_guesses_leave_no_trace)
{
    float *want = reference(TALES);
    struct rig rig;
    rig_open(&rig, TALES, 1, "auto", 1);
    float *got = new_logits(&rig);
    int32_t mixed[N_TOKENS];
    for (int pos = 0; pos < N_TOKENS; pos++) {
        int n_wrong = pos % 4;
        if (pos + 1 + n_wrong > N_TOKENS) n_wrong = 0;
        memcpy(mixed, tokens, sizeof mixed);
        for (int i = 1; i <= n_wrong; i++) {
            mixed[pos + i] = other[0][pos + i];
        }
        const struct rig_lane lane = {mixed, pos, 1 + n_wrong, blocks[2], got};
        rig_feed(&rig, &lane, 1);
        size_t at = (size_t)pos * (size_t)rig.n_vocab;
        ck_assert_msg(memcmp(got + at, want + at, (size_t)rig.n_vocab * sizeof *got) == 0,
                      "position %d differs", pos);
    }
    rig_close(&rig);
    free(got);
    free(want);
}
END_TEST

START_TEST(ranks_that_do_not_divide_are_refused)
{
    struct error err;
    struct shard shard;
    struct checkpoint *ck;
    CHECK_OK(checkpoint_open(&ck, TALES, &err));
    const struct model_config *cfg = checkpoint_config(ck);
    CHECK_ERR(shard_init(&shard, cfg, cfg->vocab_size, 0, 3, &err), ERR_ARGUMENT,
              "T must be one of 1, 2, 4, 8");
    checkpoint_close(ck);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("forward");
    TCase *tcase = tcase_create("one arithmetic");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, chunks_of_any_length_give_equal_bits, 0, 8);
    tcase_add_loop_test(tcase, ranks_give_equal_bits, 0, 3);
    tcase_add_test(tcase, threads_give_equal_bits);
    tcase_add_loop_test(tcase, kernel_variants_give_equal_bits, 0, 3);
    tcase_add_loop_test(tcase, other_architectures_give_equal_bits_on_two_ranks, 0, 6);
    tcase_add_loop_test(tcase, a_lane_among_others_gives_equal_bits, 0, 2);
    tcase_add_test(tcase, rejected_guesses_leave_no_trace);
    tcase_add_test(tcase, ranks_that_do_not_divide_are_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
