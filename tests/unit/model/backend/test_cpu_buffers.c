/* ctest: labels=quick libs=model timeout=120 */
/* Buffers of the CPU backend: how much memory they take, and that they are zero, apart and given
 * back. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "model/backend/backend.h"
#include "model/backend/cpu/cpu.h"
#include "tests/support/check_util.h"

enum {
    N_BUFFERS = 80,
    BYTES = (1 << 20) + (160 << 10), /* of a slice of a model in 4 bits: not a whole huge page */
    SLACK_BYTES = 8 << 20
};

static struct backend *be;
static struct error err;

static void setup(void)
{
    const struct backend_cpu_options options = {
        .kernels = "plain", .n_threads = 1, .form = WEIGHTS_BF16};
    CHECK_OK(backend_cpu_open(&be, &options, &err));
}

static void teardown(void)
{
    be->ops->close(be);
}

static size_t resident(void)
{
    unsigned long n_all, n_resident;
    FILE *file = fopen("/proc/self/statm", "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%lu %lu", &n_all, &n_resident), 2);
    fclose(file);
    return n_resident * (size_t)sysconf(_SC_PAGESIZE);
}

static uint8_t *open_filled(size_t bytes, int value)
{
    uint8_t *data;
    CHECK_OK(backend_buffer(be, &data, bytes, &err));
    ck_assert_uint_eq((uintptr_t)data % 64, 0);
    for (size_t i = 0; i < bytes; i++) {
        ck_assert_msg(data[i] == 0, "byte %zu of %zu", i, bytes);
    }
    memset(data, value, bytes);
    return data;
}

static void check_filled(const uint8_t *data, size_t bytes, int value)
{
    for (size_t i = 0; i < bytes; i++) {
        ck_assert_msg(data[i] == value, "byte %zu of %zu", i, bytes);
    }
}

/* Sanitizers take memory for each byte that is touched. */
static bool counts_memory(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return false;
#else
    return true;
#endif
#else
    return true;
#endif
}

START_TEST(many_buffers_take_little_more_memory_than_their_bytes)
{
    uint8_t *buffers[N_BUFFERS];
    const size_t wanted = (size_t)N_BUFFERS * BYTES;
    size_t before = resident();
    for (int i = 0; i < N_BUFFERS; i++) {
        buffers[i] = open_filled(BYTES, 1 + i);
    }
    size_t taken = resident() - before;
    for (int i = 0; i < N_BUFFERS; i++) {
        check_filled(buffers[i], BYTES, 1 + i);
        be->ops->buffer_close(be, buffers[i], BYTES);
    }
    size_t after = resident();
    if (!counts_memory()) return;
    ck_assert_msg(taken <= wanted + wanted / 10 + SLACK_BYTES, "%zu bytes for %zu", taken, wanted);
    ck_assert_msg(after <= before + SLACK_BYTES, "%zu of %zu bytes are left", after - before,
                  wanted);
}
END_TEST

START_TEST(buffers_of_all_sizes_are_zero_and_apart)
{
    static const size_t sizes[] = {1,       64,       100,      65535,    65536,    65537,
                                   1 << 20, 31 << 20, 33554431, 32 << 20, 40 << 20, 70000};
    enum { N = sizeof sizes / sizeof *sizes };
    uint8_t *buffers[N];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) {
            buffers[i] = open_filled(sizes[i], 1 + i);
        }
        for (int i = 0; i < N; i++) {
            int at = (5 * i + round) % N; /* in another order than they were opened in */
            check_filled(buffers[at], sizes[at], 1 + at);
            be->ops->buffer_close(be, buffers[at], sizes[at]);
        }
    }
    be->ops->buffer_close(be, NULL, sizes[7]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_buffers");
    TCase *tests = tcase_create("cpu_buffers");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, many_buffers_take_little_more_memory_than_their_bytes);
    tcase_add_test(tests, buffers_of_all_sizes_are_zero_and_apart);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
