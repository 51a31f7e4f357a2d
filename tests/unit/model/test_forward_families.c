/* ctest: labels=quick,threads,bits libs=model timeout=300 */
/* One arithmetic in the families that have norms, rotations, scales and limits of their own: the
 * logits are bit-identical however tokens are cut into steps, on any number of ranks and threads,
 * with any variant of the kernels, beside other lanes and in trees. */
#include "tests/support/tree_feed.h"

static const char *const models[] = {
    GOLDEN "gemma2_softcap",     GOLDEN "gemma2_open",      GOLDEN "gemma3_two_ropes",
    GOLDEN "gemma3_seeing",      GOLDEN "phi3_partial",     GOLDEN "phi3_long_factors",
    GOLDEN "ministral_listed",   GOLDEN "ministral3_tuned", GOLDEN "olmo2_norms",
    GOLDEN "olmo2_shared_heads", GOLDEN "olmo3_yarn",       GOLDEN "granite_factors",
    GOLDEN "granite_bias",       GOLDEN "granite4_rope",    GOLDEN "granite4_nope",
    GOLDEN "smollm3_nope",       GOLDEN "smollm3_slides",
};
enum { N_FAMILY_MODELS = sizeof models / sizeof *models };

static bool is_on_device(void)
{
    return getenv("OUTRIDER_TEST_DEVICE") != NULL;
}

START_TEST(families_give_equal_bits_on_all_ranks_and_kernels)
{
    const char *model = models[_i];
    int n_slices = slices_of(model);
    float *want = reference(model, N_TOKENS);
    ck_assert_int_ge(n_slices, 2);
    for (int n_ranks = 1; n_ranks <= n_slices; n_ranks++) {
        if (n_slices % n_ranks) continue;
        check_way(model, want, N_TOKENS, (struct way){n_ranks, 1, 7 * n_ranks, "auto"});
    }
    for (int i = 0; kernels_name(i) && !is_on_device(); i++) {
        check_way(model, want, N_TOKENS,
                  (struct way){1 + i % 2, 1 + i % 3, 9 + 16 * i, kernels_name(i)});
    }
    check_way(model, want, N_TOKENS, (struct way){1, 2, 299, "auto"});
    if (!is_on_device()) check_way(model, want, N_TOKENS, (struct way){1, 1, 1, "auto"});
    free(want);
}
END_TEST

START_TEST(a_tree_equals_its_paths)
{
    static const int places[] = {5, 33, 63, 249, 256};
    struct rig rig;
    rig_open(&rig, models[_i], 1 + _i % 2, "auto", 1 + _i % 3);
    make_inputs(rig.n_vocab);
    for (int i = 0; i < (int)(sizeof places / sizeof *places); i++) {
        check_tree(&rig, (_i + i) % N_SHAPES, places[i], i % 2 ? 1 : 4, (_i + i) % 2);
    }
    rig_close(&rig);
}
END_TEST

/* Logits of integer weights go the same ways. */
START_TEST(integer_weights_give_equal_bits)
{
    const char *model = models[_i];
    if (is_on_device()) return;
    rig_weights = "int8";
    float *want = reference(model, N_TOKENS_SHORT);
    check_way(model, want, N_TOKENS_SHORT, (struct way){2, 1, 6, "auto"});
    check_way(model, want, N_TOKENS_SHORT, (struct way){1, 2, 1, "plain"});
    rig_weights = "bf16";
    free(want);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("forward_families");
    TCase *tcase = tcase_create("golden models");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, families_give_equal_bits_on_all_ranks_and_kernels, 0,
                        N_FAMILY_MODELS);
    tcase_add_loop_test(tcase, a_tree_equals_its_paths, 0, N_FAMILY_MODELS);
    tcase_add_loop_test(tcase, integer_weights_give_equal_bits, 0, N_FAMILY_MODELS);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
