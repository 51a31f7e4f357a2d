/* ctest: labels=quick,bits libs=model timeout=60 */
/* The check that a variant's dot step passes before it is used: it accepts every variant of this
 * build, notices plausible mistakes, and then the next variant is taken. */
#include <math.h>
#include <stdio.h>

#include "model/backend/cpu/kernels/kernels.h"
#include "model/backend/cpu/kernels/step_check.h"
#include "model/backend/cpu/kernels/step_exact.h"
#include "tests/support/kernels_util.h"

/* Steps that a CPU or a compiler could have made instead: the even k first, both products added
 * before the sum, denormals kept, products rounded to bf16, and those denormals kept that come
 * out. */
enum wrong_way { RIGHT, SWAPPED, PAIR_FIRST, UNFLUSHED, ROUNDED, UNFLUSHED_OUT, WAYS };
static enum wrong_way way;

static float lane_step(float acc, float w1, float x1, float w0, float x0)
{
    switch (way) {
    case SWAPPED:
        return step_exact(step_exact(acc, w0, x0), w1, x1);
    case PAIR_FIRST:
        return flush(flush(acc) + (flush(w1) * flush(x1) + flush(w0) * flush(x0)));
    case UNFLUSHED:
        return fmaf(w0, x0, fmaf(w1, x1, acc));
    case ROUNDED:
        return flush(acc) + num_bf16_to_float(num_float_to_bf16(w1 * x1)) +
               num_bf16_to_float(num_float_to_bf16(w0 * x0));
    case UNFLUSHED_OUT:
        return fmaf(flush(w0), flush(x0), fmaf(flush(w1), flush(x1), flush(acc)));
    default:
        return step_exact(step_exact(acc, w1, x1), w0, x0);
    }
}

static void any_step(float acc[16], const uint16_t w[32], uint32_t x_pair)
{
    float x0 = num_bits_to_float(x_pair << 16), x1 = num_bits_to_float(x_pair & 0xffff0000u);
    for (int lane = 0; lane < 16; lane++) {
        acc[lane] = lane_step(acc[lane], num_bf16_to_float(w[2 * lane + 1]), x1,
                              num_bf16_to_float(w[2 * lane]), x0);
    }
}

/* Right in all lanes but one, and there in nearly all steps. */
static void nearly_right_step(float acc[16], const uint16_t w[32], uint32_t x_pair)
{
    way = RIGHT;
    any_step(acc, w, x_pair);
    uint32_t bits = num_float_to_bits(acc[11]);
    if (bits % 64 == 5) acc[11] = num_bits_to_float(bits ^ 1);
}

START_TEST(check_accepts_every_variant)
{
    for (int v = 0; v < n_variants; v++) {
        ck_assert_msg(step_check_passes(variants[v]->dot_step), "%s", variants[v]->name);
    }
    way = RIGHT;
    ck_assert(step_check_passes(any_step));
}
END_TEST

START_TEST(check_refuses_a_wrong_step)
{
    for (int wrong = RIGHT + 1; wrong < WAYS; wrong++) {
        way = (enum wrong_way)wrong;
        ck_assert_msg(!step_check_passes(any_step), "wrong way %d passes", wrong);
    }
    ck_assert(!step_check_passes(nearly_right_step));
}
END_TEST

START_TEST(variant_that_does_not_pass_is_not_used)
{
    struct error err;
    const struct kernels *kernels;
    char text[KERNELS_TEXT_BYTES], words[100];
    CHECK_OK(kernels_find(&kernels, "auto", &err));
    const char *best = kernels->name;
    bool is_last = strcmp(best, "plain") == 0;
    kernels_force_wrong(best);
    snprintf(words, sizeof words, "kernels '%s' compute wrong bits on this CPU", best);
    if (is_last) {
        CHECK_ERR(kernels_find(&kernels, "auto", &err), ERR_UNSUPPORTED, "no others are left");
    } else {
        CHECK_OK(kernels_find(&kernels, "auto", &err));
        ck_assert_str_ne(kernels->name, best);
        snprintf(text, sizeof text, "auto takes %s", kernels->name);
        CHECK_ERR(kernels_find(&kernels, best, &err), ERR_UNSUPPORTED, text);
        kernels_reason(text, sizeof text, "auto");
        ck_assert_ptr_nonnull(strstr(text, best));
        ck_assert_ptr_nonnull(strstr(text, " computes wrong bits here"));
    }
    CHECK_ERR(kernels_find(&kernels, best, &err), ERR_UNSUPPORTED, words);
    ck_assert_ptr_null(kernels);
    kernels_force_wrong(NULL);
    CHECK_OK(kernels_find(&kernels, best, &err));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("step_check");
    TCase *cases = tcase_create("step_check");
    tcase_add_checked_fixture(cases, setup, NULL);
    tcase_add_test(cases, check_accepts_every_variant);
    tcase_add_test(cases, check_refuses_a_wrong_step);
    tcase_add_test(cases, variant_that_does_not_pass_is_not_used);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
