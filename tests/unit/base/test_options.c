/* ctest: labels=quick libs=base timeout=30 */
/* Option values: which ones are accepted, and one clear sentence for those that are not. */
#include "base/text/options.h"

#include <limits.h>
#include <stdint.h>

#include "tests/support/check_util.h"

START_TEST(options_int_takes_whole_decimal_numbers_in_range)
{
    struct error err;
    int value = 0;
    CHECK_OK(options_int(&value, "--k", "0", 0, 16, &err));
    ck_assert_int_eq(value, 0);
    CHECK_OK(options_int(&value, "--k", "-7", -7, 16, &err));
    ck_assert_int_eq(value, -7);
    CHECK_OK(options_int(&value, "--k", "-2147483648", INT32_MIN, INT32_MAX, &err));
    ck_assert_int_eq(value, INT32_MIN);
    CHECK_OK(options_int(&value, "--k", "2147483647", INT32_MIN, INT32_MAX, &err));
    ck_assert_int_eq(value, INT32_MAX);
}
END_TEST

START_TEST(options_int_refuses_the_rest_in_one_sentence)
{
    static const char *const bad[] = {"",    " 3",  "3 ",  "+3",         "3k",
                                      "--3", "-",   "0x3", "3.0",        "17",
                                      "-1",  "1e1", "\n",  "2147483648", "99999999999999999999999"};
    struct error err;
    int value = 5;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_ERR(options_int(&value, "--k", bad[i], 0, 16, &err), ERR_ARGUMENT,
                  "is not a whole number from 0 to 16");
    }
    ck_assert_int_eq(value, 5);
    CHECK_ERR(options_int(&value, "--k", "x", 0, 16, &err), ERR_ARGUMENT, "--k: 'x'");
    CHECK_ERR(options_int(&value, "--k", "-2147483649", INT32_MIN, 0, &err), ERR_ARGUMENT, "--k");
}
END_TEST

START_TEST(options_u64_takes_all_64_bits)
{
    struct error err;
    uint64_t value = 0;
    CHECK_OK(options_u64(&value, "--seed", "18446744073709551615", &err));
    ck_assert(value == UINT64_MAX);
    CHECK_ERR(options_u64(&value, "--seed", "18446744073709551616", &err), ERR_ARGUMENT, "--seed");
    CHECK_ERR(options_u64(&value, "--seed", "-1", &err), ERR_ARGUMENT, "'-1'");
    CHECK_ERR(options_u64(&value, "--seed", "", &err), ERR_ARGUMENT, "whole number");
}
END_TEST

START_TEST(options_float_takes_finite_decimals_in_range)
{
    static const char *const bad[] = {"",   "nan", "inf",   "0x1p3", " 1",  "1 ",
                                      "+1", "1,5", "1e99",  "2.1",   "-.1", "-",
                                      ".",  "1e",  "1.2.3", "--1",   "e5"};
    struct error err;
    float value = 0;
    CHECK_OK(options_float(&value, "--temperature", "0.75", 0, 2, &err));
    ck_assert(value == 0.75F);
    CHECK_OK(options_float(&value, "--temperature", "5e-1", 0, 2, &err));
    ck_assert(value == 0.5F);
    CHECK_OK(options_float(&value, "--penalty", "-.5", -2, 2, &err));
    ck_assert(value == -0.5F);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_ERR(options_float(&value, "--temperature", bad[i], 0, 2, &err), ERR_ARGUMENT,
                  "is not a number from 0 to 2");
    }
    ck_assert(value == -0.5F);
}
END_TEST

START_TEST(options_word_finds_the_index_or_lists_all)
{
    static const char *const words[] = {"rejection", "greedy", "block"};
    struct error err;
    int index = -1;
    CHECK_OK(options_word(&index, "--rule", "block", words, 3, &err));
    ck_assert_int_eq(index, 2);
    CHECK_ERR(options_word(&index, "--rule", "bloc", words, 3, &err), ERR_ARGUMENT,
              "--rule: 'bloc' is not one of rejection, greedy or block");
    CHECK_ERR(options_word(&index, "--rule", "", words, 1, &err), ERR_ARGUMENT, "one of rejection");
}
END_TEST

START_TEST(options_word_survives_lists_and_values_of_any_length)
{
    char word[400];
    const char *words[] = {word, word, word};
    struct error err;
    int index = 0;
    memset(word, 'a', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    CHECK_ERR(options_word(&index, "--rule", "b", words, 3, &err), ERR_ARGUMENT, "not one of aaa");
    CHECK_ERR(options_int(&index, "--k", word, 0, 9, &err), ERR_ARGUMENT, "from 0 to 9");
}
END_TEST

START_TEST(options_int_list_takes_commas_and_counts)
{
    static const char *const bad[] = {
        "", ",", "1,", ",1", "1,,2", "1 ,2", "1,9", "1;2", "1,00000000000000000002"};
    struct error err;
    const struct options_range allowed = {0, 8};
    int32_t list[3] = {0};
    int n = 0;
    CHECK_OK(options_int_list(list, &n, 3, "--cores", "0,5,3", allowed, &err));
    ck_assert_int_eq(n, 3);
    ck_assert(list[0] == 0 && list[1] == 5 && list[2] == 3);
    CHECK_OK(options_int_list(list, &n, 3, "--cores", "8", allowed, &err));
    ck_assert_int_eq(n, 1);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_ERR(options_int_list(list, &n, 3, "--cores", bad[i], allowed, &err), ERR_ARGUMENT,
                  "is not a list of whole numbers from 0 to 8");
        ck_assert_int_eq(n, 0);
    }
    CHECK_ERR(options_int_list(list, &n, 3, "--cores", "1,2,3,4", allowed, &err), ERR_ARGUMENT,
              "more than 3 numbers");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("options");
    TCase *cases = tcase_create("options");
    tcase_add_test(cases, options_int_takes_whole_decimal_numbers_in_range);
    tcase_add_test(cases, options_int_refuses_the_rest_in_one_sentence);
    tcase_add_test(cases, options_u64_takes_all_64_bits);
    tcase_add_test(cases, options_float_takes_finite_decimals_in_range);
    tcase_add_test(cases, options_word_finds_the_index_or_lists_all);
    tcase_add_test(cases, options_word_survives_lists_and_values_of_any_length);
    tcase_add_test(cases, options_int_list_takes_commas_and_counts);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
