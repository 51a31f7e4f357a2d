/* ctest: labels=quick,threads libs=base timeout=60 */
/* base/: errors with their texts, memory, files, the queue between threads, and addressed random
 * numbers. */
#include "base/error.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/system/file.h"
#include "base/system/file_guard.h"
#include "base/threads/queue.h"
#include "tests/support/check_util.h"

/* ---- error ---- */

static int fail_in_the_middle(int *n_reached, struct error *err)
{
    int rc = 0;
    TRY(0);
    (*n_reached)++;
    TRY(error_set(err, ERR_IO, "disk %d of %s", 3, "array"));
    (*n_reached)++;
out:
    return rc;
}

START_TEST(error_carries_code_and_words)
{
    struct error err;
    int n_reached = 0;
    CHECK_ERR(fail_in_the_middle(&n_reached, &err), ERR_IO, "disk 3 of array");
    ck_assert_int_eq(n_reached, 1);
    ck_assert_int_eq(err.code, ERR_IO);
    CHECK_ERR(error_wrap(&err, "shard %d", 7), ERR_IO, "shard 7: disk 3 of array");
    ck_assert_str_eq(error_name(ERR_IO), "io");
    ck_assert_str_eq(error_name(ERR_TIMEOUT), "timeout");
}
END_TEST

START_TEST(error_text_that_is_too_long_is_cut)
{
    struct error err;
    char words[3 * ERROR_TEXT_BYTES];
    memset(words, 'w', sizeof words - 1);
    words[sizeof words - 1] = '\0';
    error_set(&err, ERR_FORMAT, "%s", words);
    ck_assert_uint_eq(strlen(err.text), ERROR_TEXT_BYTES - 1);
    ck_assert_int_eq(error_wrap(&err, "%s", words), ERR_FORMAT);
    ck_assert_uint_eq(strlen(err.text), ERROR_TEXT_BYTES - 1);
    error_set(&err, ERR_FORMAT, "inner");
    error_wrap(&err, "%.500s", words);
    ck_assert_uint_eq(strlen(err.text), 500 + strlen(": inner"));
}
END_TEST

/* ---- clock ---- */

START_TEST(clock_units_agree_and_never_go_back)
{
    int64_t ns = clock_now_ns(), us = clock_now_us(), ms = clock_now_ms();
    ck_assert_int_le(ns / 1000, us);
    ck_assert_int_le(us / 1000, ms);
    ck_assert_int_lt(ms - ns / 1000000, 1000);
}
END_TEST

/* ---- memory ---- */

START_TEST(memory_array_is_zeroed_and_refuses_overflow)
{
    struct error err;
    int64_t *array = NULL, sum = 0;
    CHECK_OK(mem_array(&array, 1000, sizeof *array, &err));
    for (int i = 0; i < 1000; i++)
        sum |= array[i];
    ck_assert_int_eq(sum, 0);
    free(array);
    CHECK_OK(mem_array(&array, 0, sizeof *array, &err));
    ck_assert_ptr_nonnull(array);
    free(array);
    CHECK_ERR(mem_array(&array, SIZE_MAX / 2, sizeof *array, &err), ERR_NO_MEMORY, "no memory");
    ck_assert_ptr_null(array);
}
END_TEST

START_TEST(memory_pages_are_aligned_zeroed_and_refuse_overflow)
{
    static const size_t sizes[] = {0, 1, 4096, (2U << 20) - 1, 2U << 20, (2U << 20) + 1};
    struct error err;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint8_t *pages = NULL;
        CHECK_OK(mem_pages(&pages, sizes[i], &err));
        ck_assert_uint_eq((uintptr_t)pages % (2U << 20), 0);
        if (sizes[i]) ck_assert_uint_eq(pages[0] | pages[sizes[i] - 1], 0);
        if (sizes[i]) pages[sizes[i] - 1] = 1;
        mem_pages_free(pages, sizes[i]);
    }
    uint8_t *none = NULL;
    CHECK_ERR(mem_pages(&none, SIZE_MAX, &err), ERR_NO_MEMORY, "no memory");
    CHECK_ERR(mem_pages(&none, SIZE_MAX / 2, &err), ERR_NO_MEMORY, "no memory");
    ck_assert_ptr_null(none);
    mem_pages_free(NULL, 5);
}
END_TEST

START_TEST(memory_arena_gives_aligned_blocks_until_it_is_full)
{
    struct error err;
    struct arena arena;
    CHECK_OK(arena_open(&arena, 256, &err));
    uint8_t *a = arena_take(&arena, 3, 1), *b = arena_take(&arena, 16, 4);
    ck_assert_ptr_nonnull(a);
    ck_assert_uint_eq((uintptr_t)a % 64, 0);
    ck_assert_ptr_eq(b, a + 64);
    ck_assert_ptr_null(arena_take(&arena, 129, 1));
    ck_assert_ptr_nonnull(arena_take(&arena, 128, 1));
    ck_assert_ptr_null(arena_take(&arena, 1, 1));
    ck_assert_ptr_null(arena_take(&arena, SIZE_MAX, 8));
    ck_assert_ptr_null(arena_take(&arena, SIZE_MAX, 1));
    arena_reset(&arena);
    ck_assert_ptr_eq(arena_take(&arena, 256, 1), a);
    arena_close(&arena);
    arena_close(&arena);
    ck_assert_ptr_null(arena_take(&arena, 1, 1));
}
END_TEST

/* ---- file ---- */

static void write_file(char *path, const char *text, size_t len)
{
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, len), (ssize_t)len);
    close(fd);
}

START_TEST(file_views_and_texts_hold_the_bytes)
{
    struct error err;
    struct file_view view;
    char path[] = "/tmp/outrider_base_XXXXXX", *text = NULL;
    size_t len = 0;
    write_file(path, "ab\0cd", 5);
    CHECK_OK(file_map(&view, path, &err));
    ck_assert_uint_eq(view.size_bytes, 5);
    ck_assert_int_eq(memcmp(view.data, "ab\0cd", 5), 0);
    file_unmap(&view);
    file_unmap(&view);
    CHECK_OK(file_read_text(&text, &len, path, 5, &err));
    ck_assert_uint_eq(len, 5);
    ck_assert_int_eq(memcmp(text, "ab\0cd\0", 6), 0);
    free(text);
    CHECK_ERR(file_read_text(&text, &len, path, 4, &err), ERR_FORMAT, "more than the 4 allowed");
    ck_assert_ptr_null(text);
    unlink(path);
}
END_TEST

/* In a child: maps the file, cuts it and reads its end. What it writes to its log is in `said`. */
static int read_cut_file(const char *path, size_t size, char *said, size_t said_bytes)
{
    int pipes[2], status = 0;
    ck_assert_int_eq(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        struct error err;
        struct file_view view;
        dup2(pipes[1], STDERR_FILENO);
        if (file_map(&view, path, &err) || truncate(path, 10)) _exit(1);
        volatile uint8_t last = view.data[size - 1];
        _exit(last ? 2 : 3);
    }
    close(pipes[1]);
    ssize_t len = read(pipes[0], said, said_bytes - 1);
    said[len > 0 ? len : 0] = '\0';
    close(pipes[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

START_TEST(file_that_is_cut_while_it_is_mapped_ends_the_process_with_a_sentence)
{
    static char text[20000], said[4096];
    char path[] = "/tmp/outrider_base_XXXXXX";
    memset(text, 'x', sizeof text);
    write_file(path, text, sizeof text);
    ck_assert_int_eq(read_cut_file(path, sizeof text, said, sizeof said), FILE_GUARD_EXIT);
    ck_assert_msg(strstr(said, path) && strstr(said, "became shorter while it was in use"), "%s",
                  said);
    unlink(path);
}
END_TEST

START_TEST(file_that_can_be_done_without_becomes_zeros)
{
    static char text[20000];
    struct error err;
    struct file_view view;
    atomic_bool is_lost = false;
    char path[] = "/tmp/outrider_base_XXXXXX";
    memset(text, 'x', sizeof text);
    write_file(path, text, sizeof text);
    CHECK_OK(file_map(&view, path, &err));
    ck_assert(file_guard_set_flag(view.data, &is_lost));
    ck_assert(!file_guard_set_flag(view.data + 1, &is_lost));
    ck_assert_int_eq(truncate(path, 10), 0);
    const volatile uint8_t *data = view.data; /* it changes */
    ck_assert(data[0] == 'x' && !is_lost);
    ck_assert(data[sizeof text - 1] == 0 && is_lost);
    ck_assert(data[0] == 0);
    const uint8_t *unmapped = view.data;
    file_unmap(&view);
    ck_assert(!file_guard_set_flag(unmapped, &is_lost));
    unlink(path);
}
END_TEST

START_TEST(file_empty_missing_and_strange_are_told_apart)
{
    struct error err;
    struct file_view view;
    char path[] = "/tmp/outrider_base_XXXXXX", *text = NULL;
    size_t len = 1;
    write_file(path, "", 0);
    CHECK_OK(file_map(&view, path, &err));
    ck_assert_ptr_null(view.data);
    file_unmap(&view);
    CHECK_OK(file_read_text(&text, &len, path, 0, &err));
    ck_assert_str_eq(text, "");
    free(text);
    unlink(path);
    CHECK_ERR(file_map(&view, path, &err), ERR_NOT_FOUND, path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    CHECK_ERR(file_map(&view, path, &err), ERR_FORMAT, "not a regular file");
    unlink(path);
    CHECK_ERR(file_map(&view, "/tmp", &err), ERR_FORMAT, "not a regular file");
    CHECK_ERR(file_read_text(&text, &len, "/tmp", 10, &err), ERR_FORMAT, "not a regular file");
}
END_TEST

/* ---- queue ---- */

START_TEST(queue_full_push_reports_exhausted_and_order_is_kept)
{
    struct error err;
    struct queue *queue;
    int items[3] = {0};
    void *item = NULL;
    CHECK_OK(queue_open(&queue, 2, &err));
    for (int round = 0; round < 5; round++) {
        CHECK_OK(queue_push(queue, &items[0], &err));
        CHECK_OK(queue_push(queue, &items[1], &err));
        CHECK_ERR(queue_push(queue, &items[2], &err), ERR_EXHAUSTED, "full with 2");
        ck_assert_int_eq(queue_length(queue), 2);
        CHECK_OK(queue_pop(queue, &item, 0, &err));
        ck_assert_ptr_eq(item, &items[0]);
        CHECK_OK(queue_pop(queue, &item, INT64_MAX, &err));
        ck_assert_ptr_eq(item, &items[1]);
    }
    queue_close(queue);
    queue_close(NULL);
}
END_TEST

START_TEST(queue_take_keeps_the_order_of_the_others)
{
    struct error err;
    struct queue *queue;
    void *item;
    int items[2];
    CHECK_OK(queue_open(&queue, 3, &err));
    for (int i = 0; i < 3; i++) { /* from each place of the ring */
        ck_assert(!queue_push(queue, &items[0], &err) && !queue_push(queue, &items[1], &err));
        ck_assert(!queue_peek(queue, 2) && !queue_take(queue, 2));
        ck_assert_ptr_eq(queue_peek(queue, 0), queue_take(queue, 0));
        ck_assert(queue_pop(queue, &item, 0, &err) == 0 && item == &items[1]);
    }
    queue_close(queue);
}
END_TEST

START_TEST(queue_pop_ends_at_its_deadline)
{
    struct error err;
    struct queue *queue;
    void *item = &err;
    CHECK_OK(queue_open(&queue, 1, &err));
    CHECK_ERR(queue_pop(queue, &item, 0, &err), ERR_TIMEOUT, "deadline");
    ck_assert_ptr_null(item);
    int64_t start_us = clock_now_us();
    CHECK_ERR(queue_pop(queue, &item, start_us + 20000, &err), ERR_TIMEOUT, "deadline");
    ck_assert_int_ge(clock_now_us() - start_us, 20000);
    queue_close(queue);
}
END_TEST

START_TEST(queue_shut_gives_what_is_left_and_then_says_closed)
{
    struct error err;
    struct queue *queue;
    int first = 0;
    void *item = NULL;
    CHECK_OK(queue_open(&queue, 2, &err));
    CHECK_OK(queue_push(queue, &first, &err));
    queue_shut(queue);
    CHECK_ERR(queue_push(queue, &first, &err), ERR_CLOSED, "shut");
    CHECK_OK(queue_pop(queue, &item, INT64_MAX, &err));
    ck_assert_ptr_eq(item, &first);
    CHECK_ERR(queue_pop(queue, &item, INT64_MAX, &err), ERR_CLOSED, "shut");
    queue_close(queue);
}
END_TEST

enum { N_PUSHERS = 3, N_PUSHED = 500 };

static void *push_numbers(void *arg)
{
    static int numbers[N_PUSHED];
    struct error err;
    for (int i = 0; i < N_PUSHED; i++) {
        while (queue_push(arg, &numbers[i], &err))
            sched_yield();
    }
    return NULL;
}

static void *pop_all(void *arg)
{
    struct error err;
    void *item = NULL;
    intptr_t n = 0;
    while (queue_pop(arg, &item, INT64_MAX, &err) == 0)
        n++;
    return (void *)n;
}

START_TEST(queue_loses_nothing_between_threads)
{
    struct error err;
    struct queue *queue;
    pthread_t pushers[N_PUSHERS], popper;
    void *n_popped = NULL;
    CHECK_OK(queue_open(&queue, 4, &err));
    pthread_create(&popper, NULL, pop_all, queue);
    for (int i = 0; i < N_PUSHERS; i++)
        pthread_create(&pushers[i], NULL, push_numbers, queue);
    for (int i = 0; i < N_PUSHERS; i++)
        pthread_join(pushers[i], NULL);
    queue_shut(queue);
    pthread_join(popper, &n_popped);
    ck_assert_int_eq((intptr_t)n_popped, N_PUSHERS * N_PUSHED);
    queue_close(queue);
}
END_TEST

/* ---- rng ---- */

/* File kat_vectors of the Random123 distribution, "philox4x32 10": counter, key, result. */
START_TEST(philox_gives_the_known_answers_of_random123)
{
    static const uint32_t known[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
         0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        philox4x32(known[i], known[i] + 4, out);
        for (int w = 0; w < 4; w++)
            ck_assert_uint_eq(out[w], known[i][6 + w]);
    }
}
END_TEST

START_TEST(rng_every_part_of_the_address_changes_the_coin)
{
    struct rng_address at = {.seed = 9, .position = 4, .round = 2};
    struct rng_address other_seed = at, other_high_seed = at, other_position = at, other_round = at;
    other_seed.seed = 10;
    other_high_seed.seed = 9 + ((uint64_t)1 << 32);
    other_position.position = 5;
    other_round.round = 3;
    double coin = rng_uniform(&at, RNG_ACCEPT, 0);
    ck_assert(coin == rng_uniform(&at, RNG_ACCEPT, 0));
    ck_assert(coin != rng_uniform(&at, RNG_ACCEPT, 1));
    ck_assert(coin != rng_uniform(&at, RNG_DRAFT, 0));
    ck_assert(coin != rng_uniform(&other_seed, RNG_ACCEPT, 0));
    ck_assert(coin != rng_uniform(&other_high_seed, RNG_ACCEPT, 0));
    ck_assert(coin != rng_uniform(&other_position, RNG_ACCEPT, 0));
    ck_assert(coin != rng_uniform(&other_round, RNG_ACCEPT, 0));
}
END_TEST

START_TEST(rng_uniform_is_uniform)
{
    enum { N = 100000, CELLS = 50 };
    int cells[CELLS] = {0};
    for (uint32_t i = 0; i < N; i++) {
        struct rng_address at = {.seed = 77, .position = i, .round = i / 3};
        double coin = rng_uniform(&at, RNG_ACCEPT, 0);
        if (coin < 0 || coin >= 1) ck_abort_msg("coin %f", coin);
        cells[(int)(coin * CELLS)]++;
    }
    double chi2 = 0, wanted = (double)N / CELLS;
    for (int i = 0; i < CELLS; i++)
        chi2 += (cells[i] - wanted) * (cells[i] - wanted) / wanted;
    ck_assert_msg(chi2 < 100, "chi2 %f with 49 degrees of freedom", chi2); /* p = 2e-5 */
}
END_TEST

START_TEST(rng_coupled_bits_agree_one_by_one_and_in_fours)
{
    for (uint32_t token = 0; token < 64; token++) {
        uint32_t four[4];
        rng_coupled_four(123456789012345ULL, 17, token / 4, four);
        ck_assert_uint_eq(rng_coupled_bits(123456789012345ULL, 17, token), four[token % 4]);
    }
}
END_TEST

static void add_lowest(Suite *suite)
{
    TCase *cases = tcase_create("error log clock memory file");
    tcase_add_test(cases, error_carries_code_and_words);
    tcase_add_test(cases, error_text_that_is_too_long_is_cut);
    tcase_add_test(cases, clock_units_agree_and_never_go_back);
    tcase_add_test(cases, memory_array_is_zeroed_and_refuses_overflow);
    tcase_add_test(cases, memory_pages_are_aligned_zeroed_and_refuse_overflow);
    tcase_add_test(cases, memory_arena_gives_aligned_blocks_until_it_is_full);
    tcase_add_test(cases, file_views_and_texts_hold_the_bytes);
    tcase_add_test(cases, file_empty_missing_and_strange_are_told_apart);
    tcase_add_test(cases, file_that_is_cut_while_it_is_mapped_ends_the_process_with_a_sentence);
    tcase_add_test(cases, file_that_can_be_done_without_becomes_zeros);
    suite_add_tcase(suite, cases);
}

static void add_queue_and_rng(Suite *suite)
{
    TCase *cases = tcase_create("queue rng");
    tcase_add_test(cases, queue_full_push_reports_exhausted_and_order_is_kept);
    tcase_add_test(cases, queue_take_keeps_the_order_of_the_others);
    tcase_add_test(cases, queue_pop_ends_at_its_deadline);
    tcase_add_test(cases, queue_shut_gives_what_is_left_and_then_says_closed);
    tcase_add_test(cases, queue_loses_nothing_between_threads);
    tcase_add_test(cases, philox_gives_the_known_answers_of_random123);
    tcase_add_test(cases, rng_every_part_of_the_address_changes_the_coin);
    tcase_add_test(cases, rng_uniform_is_uniform);
    tcase_add_test(cases, rng_coupled_bits_agree_one_by_one_and_in_fours);
    suite_add_tcase(suite, cases);
}

int main(void)
{
    Suite *suite = suite_create("base");
    add_lowest(suite);
    add_queue_and_rng(suite);
    return check_main(suite);
}
