/* ctest: labels=quick,memory libs=lookup timeout=60 */
/* A datastore finds what the store of finished texts finds in the same texts, and no file that lies
 * makes it fail. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/file.h"
#include "lookup/datastore.h"
#include "tests/support/check_util.h"

enum {
    N_ROUNDS = 100,
    TEXT_MOST = 90,
    N_TEXTS = 5,
    ROOM = N_TEXTS * (TEXT_MOST + 1),
    LONG = 100000,
    N_LIES = 400,
    HEADER_BYTES = 64
};

static struct error err;
static const char *const path = BINARY_DIR "/test_datastore.bin";
static const struct datastore_tokenizer tokenizer = {.fingerprint = 77, .n_vocab = LONG};
static int32_t tokens[LONG];

static uint32_t random_state = 1;
static int below(int n)
{
    random_state = random_state * 1664525 + 1013904223;
    return (int)(random_state >> 8) % n;
}

/* Makes texts with ends after them; the store gets the same. Returns the tokens. */
static int make_texts(struct store *store, int n_ids)
{
    int n = 0;
    for (int t = 0; t < N_TEXTS; t++) {
        int len = 1 + below(TEXT_MOST);
        for (int i = 0; i < len; i++) {
            tokens[n + i] = i > 6 && below(8) ? tokens[n + i - 7] : below(n_ids);
        }
        if (store) store_add(store, 0, tokens + n, len);
        n += len;
        tokens[n++] = DATASTORE_END;
    }
    return n;
}

/* Both have the most frequent tokens; which of equally frequent ones they take may differ, and then
 * the rest does. */
static void check_equal(const struct store_guesses *a, const struct store_guesses *b)
{
    ck_assert_int_eq(a->match, b->match);
    ck_assert_int_eq(a->n > 0, b->n > 0);
    for (int i = 0; i < a->n; i++) {
        ck_assert_int_lt(i, b->n);
        ck_assert_int_eq(a->guesses[i].total, b->guesses[i].total);
        ck_assert_int_eq(a->guesses[i].count, b->guesses[i].count);
        if (a->guesses[i].token != b->guesses[i].token) return;
    }
    ck_assert_int_eq(a->n, b->n);
}

/* Checks that every token that follows a sixteenth of the occurrences is listed. */
static void check_frequent(const struct store_next *all, const struct store_next *listed)
{
    for (int i = 0; i < all->n; i++) {
        int k = 0;
        while (k < listed->n && listed->tokens[k] != all->tokens[i]) {
            k++;
        }
        ck_assert(16 * all->counts[i] < all->total || k < listed->n);
        ck_assert(k == listed->n || listed->counts[k] == all->counts[i]);
    }
}

/* Walks the store and the datastore from the same place: both list the same tokens with the same
 * counts, where no more than are listed, in any order of equally frequent ones. Returns the number
 * of places with more than one token. */
static int check_walks(const struct store *s, const struct datastore *d, const int32_t *end, int n)
{
    struct store_walk a;
    struct datastore_walk b;
    struct store_next from, of;
    int n_branches = 0;
    bool is_there = store_walk_begin(s, 0, end, n, 1, &a);
    ck_assert(datastore_walk_begin(d, end, n, 1, &b) == is_there);
    for (int depth = a.match; is_there && depth <= STORE_DEPTH; depth++) {
        store_walk_next(&a, STORE_NEXT_MAX, &from);
        datastore_walk_next(&b, STORE_NEXT_MAX, &of);
        ck_assert(from.total == of.total || depth == STORE_DEPTH);
        if (of.n == STORE_NEXT_MAX) return n_branches;
        if (from.total > 16) return check_frequent(&from, &of), n_branches;
        ck_assert_int_eq(from.n, of.n);
        for (int i = 0; i < from.n; i++) {
            int k = 0;
            while (k < of.n && of.tokens[k] != from.tokens[i]) {
                k++;
            }
            ck_assert(k < of.n && of.counts[k] == from.counts[i]);
            ck_assert_int_eq(of.counts[i], from.counts[i]);
        }
        if (from.n == 0) return n_branches;
        n_branches += from.n > 1;
        int32_t token = from.tokens[below(from.n)];
        ck_assert(store_walk_step(&a, token) && datastore_walk_step(&b, token));
    }
    return n_branches;
}

START_TEST(a_datastore_finds_the_same_as_a_store)
{
    int n_branches = 0;
    for (int round = 0; round < N_ROUNDS; round++) {
        struct datastore *d;
        struct store *s;
        struct store_guesses a, b;
        int n_ids = 1 + below(12);
        CHECK_OK(store_open(&s, 2 * ROOM, &err));
        int n = make_texts(s, n_ids);
        CHECK_OK(datastore_write(path, tokens, (size_t)n, &tokenizer, &err));
        CHECK_OK(datastore_open(&d, path, &err));
        CHECK_OK(datastore_check(d, &err));
        ck_assert_uint_eq(datastore_length(d), (size_t)n);
        ck_assert_uint_eq(datastore_tokenizer(d).fingerprint, 77);
        for (int i = 0; i < 20; i++) {
            int32_t end[TEXT_MOST];
            int begin = below(n), len = 1 + below(TEXT_MOST);
            for (int at = 0; at < len; at++) {
                end[at] = begin + at < n ? tokens[begin + at] : below(n_ids);
                if (end[at] < 0) end[at] = LONG; /* in no text */
            }
            store_find(s, 0, end, len, 1, DRAFT_MAX, &a);
            datastore_find(d, end, len, 1, DRAFT_MAX, &b);
            check_equal(&a, &b);
            n_branches += check_walks(s, d, end, len);
        }
        datastore_close(d);
        store_close(s);
    }
    ck_assert_int_gt(n_branches, N_ROUNDS);
}
END_TEST

static void overwrite(size_t at, const void *data, size_t n)
{
    int file = open(path, O_WRONLY);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(pwrite(file, data, n, (off_t)at), (ssize_t)n);
    close(file);
}

/* No token comes twice, so that counts make a distribution whatever the file says. */
static void check_listed(const struct datastore *d, int n)
{
    struct datastore_walk walk;
    struct store_next next;
    if (!datastore_walk_begin(d, tokens, n, 1, &walk)) return;
    do {
        datastore_walk_next(&walk, STORE_NEXT_MAX, &next);
        for (int i = 0; i < next.n; i++) {
            ck_assert(next.counts[i] > 0 && (i == 0 || next.counts[i] <= next.counts[i - 1]));
            for (int k = 0; k < i; k++) {
                ck_assert_int_ne(next.tokens[k], next.tokens[i]);
            }
        }
    } while (next.n > 0 && datastore_walk_step(&walk, next.tokens[below(next.n)]));
}

START_TEST(damaged_files_give_only_tokens_of_the_vocabulary)
{
    int n = make_texts(NULL, 3);
    int n_refused = 0;
    for (int lie = 0; lie < N_LIES; lie++) {
        struct datastore *d;
        struct store_guesses found;
        CHECK_OK(datastore_write(path, tokens, (size_t)n, &tokenizer, &err));
        for (int i = 0; i < 20; i++) {
            int32_t value = below(2) ? below(1 << 24) * 128 : -below(1 << 24) * 100;
            overwrite((size_t)(HEADER_BYTES / 4 + below(2 * n)) * 4, &value, sizeof value);
        }
        CHECK_OK(datastore_open(&d, path, &err));
        if (datastore_check(d, &err)) n_refused++;
        for (int at = 1; at < n; at++) {
            datastore_find(d, tokens, at, 1, DRAFT_MAX, &found);
            for (int i = 0; i < found.n; i++) {
                ck_assert_int_ge(found.guesses[i].token, 0);
                ck_assert_int_lt(found.guesses[i].token, tokenizer.n_vocab);
                ck_assert_int_ge(found.guesses[i].count, 1);
                ck_assert_int_le(found.guesses[i].count, found.guesses[i].total);
            }
            check_listed(d, at);
        }
        datastore_close(d);
    }
    ck_assert_int_eq(n_refused, N_LIES);
}
END_TEST

START_TEST(wrong_files_are_refused)
{
    static const uint64_t many = (uint64_t)1 << 62;
    struct datastore *d;
    CHECK_ERR(datastore_open(&d, BINARY_DIR "/no_such_file", &err), ERR_NOT_FOUND, "no_such");
    CHECK_OK(file_replace(path, "outr", 4, &err));
    CHECK_ERR(datastore_open(&d, path, &err), ERR_FORMAT, "is no datastore");
    CHECK_OK(datastore_write(path, tokens, 100, &tokenizer, &err));
    ck_assert_int_eq(truncate(path, HEADER_BYTES + 100), 0);
    CHECK_ERR(datastore_open(&d, path, &err), ERR_FORMAT, "do not fit");
    CHECK_OK(datastore_write(path, tokens, 100, &tokenizer, &err));
    overwrite(24, &many, sizeof many);
    CHECK_ERR(datastore_open(&d, path, &err), ERR_FORMAT, "do not fit");
    overwrite(8, &many, sizeof many);
    CHECK_ERR(datastore_open(&d, path, &err), ERR_FORMAT, "version");
    tokens[0] = LONG;
    CHECK_ERR(datastore_write(path, tokens, 1, &tokenizer, &err), ERR_ARGUMENT, "vocabulary");
    CHECK_ERR(datastore_write(path, tokens, 0, &tokenizer, &err), ERR_ARGUMENT, "0 tokens");
}
END_TEST

/* As `cp new.ds used.ds` does. Then nothing is found, whatever the file holds afterwards. */
START_TEST(a_file_that_is_cut_while_it_is_in_use_is_lost)
{
    static const off_t left[] = {0, HEADER_BYTES + 8 * LONG - 5000};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        struct datastore *d;
        struct datastore_walk walk;
        struct store_guesses found;
        for (int t = 0; t < LONG; t++) {
            tokens[t] = t % 1000;
        }
        CHECK_OK(datastore_write(path, tokens, LONG, &tokenizer, &err));
        CHECK_OK(datastore_open(&d, path, &err));
        datastore_find(d, tokens, 1000, 1, DRAFT_MAX, &found);
        ck_assert_int_eq(found.n, DRAFT_MAX);
        ck_assert(datastore_walk_begin(d, tokens, 1000, 1, &walk));
        ck_assert_int_eq(truncate(path, left[i]), 0);
        CHECK_ERR(datastore_check(d, &err), ERR_IO, "became shorter while it was read");
        ck_assert(datastore_is_lost(d));
        ck_assert_str_eq(datastore_path(d), path);
        for (int t = 0; t < DRAFT_MAX; t++) { /* one that was under way ends soon, somehow */
            struct store_next next;
            datastore_walk_next(&walk, STORE_NEXT_MAX, &next);
            datastore_walk_step(&walk, next.n ? next.tokens[0] : 0);
        }
        datastore_find(d, tokens, 1000, 1, DRAFT_MAX, &found);
        ck_assert_int_eq(found.n, 0);
        ck_assert(!datastore_walk_begin(d, tokens, 1000, 1, &walk));
        CHECK_OK(datastore_write(path, tokens, LONG, &tokenizer, &err));
        datastore_find(d, tokens, 1000, 1, DRAFT_MAX, &found);
        ck_assert_int_eq(found.n, 0);
        datastore_close(d);
        CHECK_OK(datastore_open(&d, path, &err));
        datastore_find(d, tokens, 1000, 1, DRAFT_MAX, &found);
        ck_assert_int_eq(found.n, DRAFT_MAX);
        datastore_close(d);
    }
}
END_TEST

START_TEST(of_equally_frequent_tokens_the_lowest_is_first)
{
    static const int32_t text[] = {1, 5, 1, 3, 1, 4, DATASTORE_END};
    struct datastore *d;
    struct datastore_walk walk;
    struct store_next next;
    CHECK_OK(datastore_write(path, text, 7, &tokenizer, &err));
    CHECK_OK(datastore_open(&d, path, &err));
    ck_assert(datastore_walk_begin(d, text, 1, 1, &walk));
    datastore_walk_next(&walk, STORE_NEXT_MAX, &next);
    ck_assert(next.n == 3 && next.tokens[0] == 3 && next.tokens[1] == 4 && next.tokens[2] == 5);
    datastore_walk_next(&walk, 2, &next);
    ck_assert(next.n == 2 && next.tokens[0] == 3 && next.tokens[1] == 4);
    datastore_close(d);
}
END_TEST

/* One token again and again takes about as long as other texts: seconds would be n * n steps. */
START_TEST(a_text_of_one_token_is_sorted)
{
    struct datastore *d;
    struct store_guesses found;
    memset(tokens, 0, sizeof tokens);
    int64_t start = clock_now_us();
    CHECK_OK(datastore_write(path, tokens, LONG, &tokenizer, &err));
    ck_assert_int_le(clock_now_us() - start, 5000000);
    CHECK_OK(datastore_open(&d, path, &err));
    datastore_find(d, tokens, LONG, 1, DRAFT_MAX, &found);
    ck_assert_int_eq(found.match, STORE_MATCH_MAX);
    ck_assert_int_eq(found.n, DRAFT_MAX);
    ck_assert_int_eq(found.guesses[0].total, LONG - STORE_MATCH_MAX + 1);
    ck_assert_int_eq(found.guesses[0].count, LONG - STORE_MATCH_MAX);
    datastore_close(d);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("datastore");
    TCase *tests = tcase_create("datastore");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_datastore_finds_the_same_as_a_store);
    tcase_add_test(tests, of_equally_frequent_tokens_the_lowest_is_first);
    tcase_add_test(tests, wrong_files_are_refused);
    tcase_add_test(tests, a_file_that_is_cut_while_it_is_in_use_is_lost);
    tcase_add_test(tests, damaged_files_give_only_tokens_of_the_vocabulary);
    tcase_add_test(tests, a_text_of_one_token_is_sorted);
    suite_add_tcase(suite, tests);
    int status = check_main(suite);
    remove(path);
    return status;
}
