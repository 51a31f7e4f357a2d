/* Ranks on emulated GPUs that sum over NCCL's calls, as tests/support/fake_nccl.c has them, have
 * the bits of one rank. The fake moves memory at once and knows no streams, so work on streams is
 * done at once too and no step is recorded (CMakeLists.txt sets the environment). */
#define RIG_NCCL BINARY_DIR "/tests/fake_nccl.so"

#include "tests/support/forward_util.h"

#define TALES SOURCE_DIR "/deploy/models/tales/target"

/* The last one's prompt has sums of 3 ranks that are gathered piece by piece; OLMo's sums of
 * squares have two elements a row. */
static const struct {
    const char *model;
    int n_ranks;
} cases[] = {{TALES, 2},
             {TALES, 4},
             {SOURCE_DIR "/tests/golden/models/olmo2_norms", 2},
             {"synthetic:tiny-5,seed=7", 5},
             {"synthetic:tiny-6,seed=7", 3},
             {"synthetic:smollm2-135m,seed=7,layers=1,vocab=1000", 3}};

enum { N_TOKENS = 280, N_COMPARED = 3 };

static int32_t tokens[N_TOKENS], blocks[RIG_BLOCKS];

/* Logits of the last N_COMPARED positions: first a prompt, whose sums are large and therefore
 * swapped, then single rows, whose sums are small and therefore gathered. */
static float *last_logits(const char *model, int n_ranks, int *n_vocab)
{
    struct rig rig;
    rig_open(&rig, model, n_ranks, "auto", 1);
    size_t row = (size_t)rig.n_vocab;
    *n_vocab = rig.n_vocab;
    float *logits = calloc((size_t)N_TOKENS * row, sizeof *logits);
    float *last = calloc(N_COMPARED * row, sizeof *last);
    ck_assert(logits && last);
    for (int at = 0, n = N_TOKENS - N_COMPARED; at < N_TOKENS; at += n, n = 1) {
        const struct rig_lane lane = {tokens, at, n, blocks, at ? logits : NULL, NULL};
        rig_feed(&rig, &lane, 1);
    }
    memcpy(last, logits + (N_TOKENS - N_COMPARED) * row, N_COMPARED * row * sizeof *last);
    ck_assert(last[0] != last[1]);
    free(logits);
    rig_close(&rig);
    return last;
}

START_TEST(nccl_ranks_have_the_bits_of_one)
{
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = (37 * i + 11) % 100; /* the smallest vocabulary has 128 */
    }
    for (int i = 0; i < RIG_BLOCKS; i++) {
        blocks[i] = RIG_BLOCKS - 1 - i;
    }
    int n_vocab;
    float *one = last_logits(cases[_i].model, 1, &n_vocab);
    float *many = last_logits(cases[_i].model, cases[_i].n_ranks, &n_vocab);
    ck_assert_mem_eq(one, many, (size_t)(N_COMPARED * n_vocab) * sizeof *one);
    free(one);
    free(many);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("emulated_nccl");
    TCase *tc = tcase_create("ranks");
    tcase_set_timeout(tc, 280);
    tcase_add_loop_test(tc, nccl_ranks_have_the_bits_of_one, 0, sizeof cases / sizeof *cases);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
