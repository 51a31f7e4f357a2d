/* ctest: labels=quick libs=coordinator timeout=60 */
/* The planner's tables on disk: a start finds what an earlier one measured of the same pair, and
 * nothing else; a file that makes no sense is refused with a sentence and changes nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/system/file.h"
#include "coordinator/engine/times_file.h"
#include "tests/support/check_util.h"

enum { STEPS = 5 };

static char folder[] = "/tmp/outrider-times-XXXXXX";
static struct times_file file;
static struct error err;

static const struct target_description group = {.arithmetic = "cpu-bf16",
                                                .kernels = "avx2",
                                                .n_ranks = 2,
                                                .n_threads = 3,
                                                .model_fingerprint = 0x1234};

static void setup(void)
{
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    CHECK_OK(times_file_find(&file, folder, (const char *const[PLANNER_MODELS]){"some/draft"},
                             "avx2", &group, &err));
}

static void teardown(void)
{
    unlink(file.path);
    ck_assert_int_eq(rmdir(folder), 0);
}

static void measure(struct planner *planner)
{
    memset(planner, 0, sizeof *planner);
    for (int i = 0; i < STEPS; i++) {
        planner_calibrate_step(planner, 1 << i, 1000 + 100 * i);
        planner_calibrate_draft(planner, 0, 1 << i, 100 + 10 * i);
    }
}

START_TEST(the_next_start_finds_the_times)
{
    struct planner first, second = {0};
    struct planner_tables before, after;
    measure(&first);
    ck_assert_int_eq(times_file_read(&file, &second, &err), ERR_NOT_FOUND);
    CHECK_OK(times_file_write(&file, &first, &err));
    CHECK_OK(times_file_write(&file, &first, &err));
    CHECK_OK(times_file_read(&file, &second, &err));
    planner_tables_get(&first, &before);
    planner_tables_get(&second, &after);
    for (int i = 0; i < PLANNER_KNOTS; i++) {
        ck_assert_double_eq_tol(before.step[i].us, after.step[i].us, 1e-6);
        ck_assert_double_eq_tol(before.draft[0][i].us, after.draft[0][i].us, 1e-6);
    }
    struct estimates a = planner_estimates(&first, NULL), b = planner_estimates(&second, NULL);
    ck_assert(a.step_us > 0);
    ck_assert_double_eq_tol((double)a.step_us, (double)b.step_us, 1);
}
END_TEST

START_TEST(another_pair_has_another_file)
{
    struct times_file other;
    struct target_description changed = group;
    changed.n_threads = 4;
    CHECK_OK(times_file_find(&other, folder, (const char *const[PLANNER_MODELS]){"some/draft"},
                             "avx2", &changed, &err));
    ck_assert_str_ne(other.path, file.path);
    CHECK_OK(times_file_find(&other, folder, (const char *const[PLANNER_MODELS]){"other/draft"},
                             "avx2", &group, &err));
    ck_assert_str_ne(other.path, file.path);
    CHECK_OK(times_file_find(&other, folder, (const char *const[PLANNER_MODELS]){"some/draft"},
                             "avx2", &group, &err));
    ck_assert_str_eq(other.path, file.path);
}
END_TEST

static const struct {
    const char *text, *says; /* PAIR: the head of a file of this pair */
} bad_files[] = {
    {"{", "line 1"},
    {"{\"version\":2,\"pair\":\"x\"}", "holds version 2"},
    {"{\"version\":1,\"pair\":\"another\"}", "of 'another'"},
    {"PAIR\"step\":[],\"rest\":[]}", "draft is no list"},
    {"PAIR\"draft\":[[1,2]],\"step\":[],\"rest\":[]}", "point 0 of draft"},
    {"PAIR\"draft\":[[1,\"a\",3]],\"step\":[],\"rest\":[]}", "point 0 of draft"},
};

START_TEST(a_file_that_makes_no_sense_changes_nothing)
{
    struct planner planner, before;
    char text[1024];
    const char *bad = bad_files[_i].text;
    bool has_pair = strncmp(bad, "PAIR", 4) == 0;
    int len = has_pair ? snprintf(text, sizeof text, "{\"version\":1,\"pair\":\"%s\",%s", file.pair,
                                  bad + 4)
                       : snprintf(text, sizeof text, "%s", bad);
    CHECK_OK(file_replace(file.path, text, (size_t)len, &err));
    measure(&planner);
    before = planner;
    ck_assert_int_ne(times_file_read(&file, &planner, &err), 0);
    ck_assert_msg(strstr(err.text, bad_files[_i].says) != NULL, "%s", err.text);
    ck_assert(memcmp(&before, &planner, sizeof before) == 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("times_file");
    TCase *tests = tcase_create("files");
    suite_add_tcase(suite, tests);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, the_next_start_finds_the_times);
    tcase_add_test(tests, another_pair_has_another_file);
    tcase_add_loop_test(tests, a_file_that_makes_no_sense_changes_nothing, 0,
                        sizeof bad_files / sizeof *bad_files);
    return check_main(suite);
}
