/* Models of families with steps of their own on the emulated GPU: a position has the same bits
 * whether a text is fed at once on one rank, token by token, or in pieces on two ranks. */
#include <stdio.h>

#include "tests/support/forward_util.h"

#define MODELS SOURCE_DIR "/tests/golden/models/"

enum { N_TOKENS = 19 };

static const char *const models[] = {"gemma2_softcap", "gemma3_two_ropes",   "granite_factors",
                                     "olmo2_norms",    "olmo2_shared_heads", "olmo3_yarn",
                                     "phi3_partial",   "ministral3_tuned",   "smollm3_nope"};

static int32_t tokens[N_TOKENS], blocks[RIG_BLOCKS];

static float *logits_of(const char *name, int n_ranks, int chunk, size_t *bytes)
{
    char path[256];
    struct rig rig;
    snprintf(path, sizeof path, MODELS "%s", name);
    rig_open(&rig, path, n_ranks, "auto", 1);
    *bytes = (size_t)N_TOKENS * (size_t)rig.n_vocab * sizeof(float);
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = (37 * i + 11) % rig.n_vocab;
    }
    float *logits = calloc(1, *bytes);
    ck_assert_ptr_nonnull(logits);
    rig_logits(&rig, tokens, N_TOKENS, chunk, blocks, logits);
    rig_close(&rig);
    return logits;
}

START_TEST(chunks_and_ranks_give_equal_bits)
{
    size_t bytes;
    float *whole = logits_of(models[_i], 1, N_TOKENS, &bytes);
    float *single = logits_of(models[_i], 1, 1, &bytes);
    float *ranks = logits_of(models[_i], 2, 7, &bytes);
    ck_assert(whole[0] != whole[1]);
    ck_assert_msg(memcmp(whole, single, bytes) == 0, "%s, token by token", models[_i]);
    ck_assert_msg(memcmp(whole, ranks, bytes) == 0, "%s, on two ranks", models[_i]);
    free(whole), free(single), free(ranks);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("emulated_families");
    TCase *tc = tcase_create("families");
    tcase_set_timeout(tc, 280);
    for (int i = 0; i < RIG_BLOCKS; i++) {
        blocks[i] = RIG_BLOCKS - 1 - i;
    }
    tcase_add_loop_test(tc, chunks_and_ranks_give_equal_bits, 0, sizeof models / sizeof *models);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
