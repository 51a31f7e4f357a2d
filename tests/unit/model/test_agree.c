/* ctest: labels=quick,slow libs=model timeout=120 */
/* Synthetic pairs of chosen agreement: they have the agreement that was asked for, the draft is bit
 * for bit the beginning of the target, and names that make no pair are refused. */
#include <math.h>
#include <stdio.h>

#include "bench/agree_measure.h"
#include "model/checkpoint/internal.h"
#include "tests/support/check_util.h"

enum { NAME_BYTES = 512, N_TOKENS = 56, N_SEEDS = 4 };

/* The mean over N_SEEDS models and their texts has a standard error of 0.01. The table is one curve
 * for all shapes, which differ from it by up to 0.025. */
static const double tolerance = 0.04;

static struct error err;

static struct agree_sums measure(const char *target, const char *draft, uint64_t seed)
{
    static struct agree_pair pair;
    struct agree_sums sums = {0};
    CHECK_OK(agree_open(&pair, target, draft, N_TOKENS, 1, &err));
    CHECK_OK(agree_measure(&pair, N_TOKENS, seed, &sums, &err));
    agree_close(&pair);
    ck_assert_int_eq(sums.n, AGREE_TEXTS * (N_TOKENS - AGREE_PROMPT));
    return sums;
}

/* The pair of shape (with its options), e.g. "tiny,layers=6", with a core of n layers. */
static struct agree_sums measure_wish(const char *shape, int core, double wished, int seed)
{
    char target[NAME_BYTES], draft[NAME_BYTES + 16];
    snprintf(target, sizeof target, "synthetic:%s,seed=%d,agree=%g%s", shape, seed, wished,
             core > 1 ? ",core=2" : "");
    snprintf(draft, sizeof draft, "%s,draft=%d", target, core);
    return measure(target, draft, (uint64_t)seed);
}

static void check_wishes(const char *shape, int core)
{
    static const double wishes[] = {0.95, 0.8, 0.6, 0.4, 0.2};
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
        double alpha = 0;
        for (int seed = 1; seed <= N_SEEDS; seed++) {
            struct agree_sums sums = measure_wish(shape, core, wishes[i], seed);
            alpha += sums.full / sums.n / N_SEEDS;
        }
        ck_assert_msg(fabs(alpha - wishes[i]) < tolerance, "%s: alpha %.3f for agree=%g", shape,
                      alpha, wishes[i]);
    }
}

START_TEST(a_wished_agreement_is_met)
{
    check_wishes("tiny", 1);
}
END_TEST

START_TEST(more_layers_a_longer_core_and_another_vocabulary_meet_it_too)
{
    check_wishes("tiny,layers=5", 2);
    check_wishes("tiny,layers=7", 1);
    check_wishes("tiny,vocab=4000", 1);
}
END_TEST

START_TEST(a_tied_head_meets_it_too)
{
    check_wishes(SOURCE_DIR "/tests/golden/models/llama_tied/config.json,vocab=2048,layers=4", 1);
}
END_TEST

START_TEST(full_agreement_is_equality)
{
    struct agree_sums sums = measure_wish("tiny", 1, 1, 3);
    ck_assert_double_eq_tol(sums.full / sums.n, 1, 1e-6);
    ck_assert_double_eq(sums.greedy, sums.n);
    ck_assert_double_lt(sums.cut / sums.n, 1); /* the tail past the best 64 is lost */
    ck_assert_double_gt(sums.cut / sums.n, 0.97);
}
END_TEST

START_TEST(a_measurement_repeats_itself)
{
    struct agree_sums one = measure_wish("tiny", 1, 0.7, 5), two = measure_wish("tiny", 1, 0.7, 5);
    struct agree_sums other = measure_wish("tiny", 1, 0.7, 6);
    ck_assert(one.full == two.full && one.cut == two.cut && one.greedy == two.greedy);
    ck_assert(one.full != other.full);
}
END_TEST

static void check_equal_tensor(const struct checkpoint *target, const struct checkpoint *draft,
                               const struct tensor_spec *spec)
{
    enum { MOST = 4096 };
    static uint16_t of_target[MOST], of_draft[MOST];
    struct weight a, b;
    CHECK_OK(checkpoint_find(target, spec->name, spec->n_rows, spec->n_cols, &a, &err));
    CHECK_OK(checkpoint_find(draft, spec->name, spec->n_rows, spec->n_cols, &b, &err));
    ck_assert_int_le(spec->n_cols, MOST);
    for (int row = 0; row < spec->n_rows; row++) {
        weight_read_bf16(&a, row, 0, spec->n_cols, of_target);
        weight_read_bf16(&b, row, 0, spec->n_cols, of_draft);
        ck_assert_mem_eq(of_target, of_draft, (size_t)spec->n_cols * sizeof *of_draft);
    }
}

/* Returns the number of tensors of the draft. */
static size_t check_beginning(const char *target_name, const char *draft_name, int n_layers)
{
    struct checkpoint *target, *draft;
    CHECK_OK(checkpoint_open(&target, target_name, &err));
    CHECK_OK(checkpoint_open(&draft, draft_name, &err));
    ck_assert_int_eq(checkpoint_config(draft)->n_layers, n_layers);
    ck_assert_int_gt(checkpoint_config(target)->n_layers, n_layers);
    for (size_t i = 0; i < draft->n_layout; i++) {
        check_equal_tensor(target, draft, &draft->layout[i]);
    }
    size_t n = draft->n_layout;
    checkpoint_close(target);
    checkpoint_close(draft);
    return n;
}

START_TEST(a_draft_is_the_beginning_of_its_target_bit_for_bit)
{
    ck_assert_uint_eq(check_beginning("synthetic:tiny,seed=4,agree=0.5",
                                      "synthetic:tiny,seed=4,agree=0.5,draft=1", 1),
                      3 + 9);
    ck_assert_uint_eq(check_beginning("synthetic:tiny,layers=6,seed=4,agree=0.5,core=3",
                                      "synthetic:tiny,layers=6,seed=4,agree=0.5,core=3,draft=3", 3),
                      3 + 3 * 9);
    check_beginning("synthetic:tiny,seed=4,core=1,tail=0.3",
                    "synthetic:tiny,draft=1,seed=4,core=1,tail=0.3", 1);
}
END_TEST

START_TEST(names_that_make_no_pair_are_refused)
{
    static const char *const names[][2] = {
        {"synthetic:tiny,seed=1,agree=1.5", "\"agree=1.5\" is not a number in 0..1"},
        {"synthetic:tiny,seed=1,agree=", "\"agree=\" is not a number"},
        {"synthetic:tiny,seed=1,agree=0.5,agree=0.5", "wanted twice"},
        {"synthetic:tiny,seed=1,agree=0.5,core=1,tail=0.1", "exclude each other"},
        {"synthetic:tiny,seed=1,agree=0.5,core=0", "\"core=0\" is not at least 1"},
        {"synthetic:tiny,seed=1,agree=0.5,core=2", "needs layers after the core"},
        {"synthetic:tiny,seed=1,agree=0.5,layers=1", "needs layers after the core"},
        {"synthetic:tiny,seed=1,agree=0.001", "agree=0.001 cannot be had"},
        {"synthetic:tiny,seed=1,agree=0.5,draft=2",
         "\"draft=2\" is not the target's core of 1 layer: write draft=1, or core=2"},
        {"synthetic:tiny,seed=1,layers=5,agree=0.5,core=3,draft=1",
         "core of 3 layers: write draft=3, or core=1 in both names"},
        {"synthetic:tiny,seed=1,agree=0.5,draft=0", "\"draft=0\" is not a number in 1..4096"},
        {"synthetic:tiny,seed=1,draft=1", "draft= needs agree=A, or core=N and tail=R"},
        {"synthetic:tiny,seed=1,core=4,tail=0.5,draft=4", "more than the target's 2 layers"},
    };
    struct checkpoint *ck;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK_ERR(checkpoint_open(&ck, names[i][0], &err), ERR_ARGUMENT, names[i][1]);
        ck_assert_ptr_null(ck);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("agree");
    TCase *tcase = tcase_create("pairs");
    tcase_add_test(tcase, a_wished_agreement_is_met);
    tcase_add_test(tcase, more_layers_a_longer_core_and_another_vocabulary_meet_it_too);
    tcase_add_test(tcase, a_tied_head_meets_it_too);
    tcase_add_test(tcase, full_agreement_is_equality);
    tcase_add_test(tcase, a_measurement_repeats_itself);
    tcase_add_test(tcase, a_draft_is_the_beginning_of_its_target_bit_for_bit);
    tcase_add_test(tcase, names_that_make_no_pair_are_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
