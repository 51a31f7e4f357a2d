/* ctest: labels=quick libs=coordinator */
/* When a client counts as slow, and for how long it has read nothing. */
#include "coordinator/job/backpressure.h"

#include "tests/support/check_util.h"

static struct backpressure client;

static void setup(void)
{
    client = (struct backpressure){0};
}

static int64_t look(size_t n_waiting, uint64_t n_read, int64_t now_us)
{
    return backpressure_look(&client, (struct backpressure_progress){n_waiting, n_read}, now_us);
}

START_TEST(a_client_that_keeps_up_is_never_idle)
{
    ck_assert_int_eq(look(0, 0, 1000), 0);
    ck_assert_int_eq(look(BACKPRESSURE_BYTES, 0, 9000000), 0);
    ck_assert_int_eq(client.slow_us, 0);
}
END_TEST

/* Whatever more is written for it meanwhile. */
START_TEST(a_client_that_reads_is_idle_only_since_then)
{
    size_t n_waiting = BACKPRESSURE_BYTES + 1;
    ck_assert_int_eq(look(n_waiting, 100, 1000), 0);
    ck_assert_int_eq(look(n_waiting, 100, 6000), 5000);
    ck_assert_int_eq(look(3 * n_waiting, 101, 7000), 0);
    ck_assert_int_eq(look(4 * n_waiting, 101, 9000), 2000);
    ck_assert_int_eq(client.slow_us, 1000);
}
END_TEST

START_TEST(slow_client_is_slow_until_little_waits)
{
    look(BACKPRESSURE_BYTES + 1, 0, 1000);
    ck_assert_int_eq(look(BACKPRESSURE_BYTES, 1, 2000), 0);
    ck_assert_int_eq(look(BACKPRESSURE_BYTES / 2, 1, 5000), 3000);
    ck_assert_int_eq(look(BACKPRESSURE_BYTES / 4, 2, 6000), 0);
    ck_assert_int_eq(client.slow_us, 0);
    ck_assert_int_eq(look(BACKPRESSURE_BYTES / 2, 2, 9000), 0);
    ck_assert_int_eq(client.slow_us, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backpressure");
    TCase *tcase = tcase_create("backpressure");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, a_client_that_keeps_up_is_never_idle);
    tcase_add_test(tcase, a_client_that_reads_is_idle_only_since_then);
    tcase_add_test(tcase, slow_client_is_slow_until_little_waits);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
