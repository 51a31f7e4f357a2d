/* ctest: labels=quick libs=replay timeout=60 */
/* Replays of recorded texts: what is read, and that the rounds add up to the texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/system/file.h"
#include "client/replay/run.h"
#include "client/replay/times.h"
#include "tests/support/check_util.h"

enum { N_TOKENS = 2000, N_VOCAB = 5000, PART = 50 };

static struct error err;
static const char *const path = BINARY_DIR "/test_replay.jsonl";

static uint32_t random_state = 1;
static int below(int n)
{
    random_state = random_state * 1664525 + 1013904223;
    return (int)(random_state >> 8) % n;
}

static void write_file(const char *text)
{
    CHECK_OK(file_replace(path, text, strlen(text), &err));
}

START_TEST(lines_are_read)
{
    struct recorded_texts texts = {0};
    struct tokenizer *tok;
    CHECK_OK(tokenizer_open_bytes(&tok, 256, &err));
    write_file("{\"prompt\": \"ab\", \"answer\": \"c\"}\n\n{\"answer_ids\": [7, 300]}\n");
    CHECK_OK(recorded_texts_read(&texts, tok, path, 0, &err));
    ck_assert_uint_eq(texts.n, 2);
    ck_assert_uint_eq(texts.data[0].prompt.n, 2);
    ck_assert_int_eq(texts.data[0].answer.data[0], 'c');
    ck_assert_uint_eq(texts.data[1].prompt.n, 0);
    ck_assert_int_eq(texts.data[1].answer.data[1], 300);
    recorded_texts_free(&texts);
    tokenizer_close(tok);
}
END_TEST

START_TEST(wrong_lines_are_refused)
{
    static const struct {
        const char *text, *part;
    } cases[] = {{"{\"answer_ids\": [1, -1]}\n", "line 1: item 1 of answer_ids"},
                 {"{\"answer_ids\": [1]}\n{\"prompt_ids\": 3}\n", "line 2: prompt_ids is no list"},
                 {"{\"prompt_ids\": [1]}\n", "neither"},
                 {"{\"answer\": \"a\"}\n", "--model"},
                 {"{\"answer\": 5}\n", "answer"},
                 {"[]\n", "neither"},
                 {"{\n", "line 1"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct recorded_texts texts = {0};
        write_file(cases[i].text);
        int rc = recorded_texts_read(&texts, NULL, path, 0, &err);
        ck_assert_int_lt(rc, 0);
        ck_assert_msg(strstr(err.text, cases[i].part), "%s", err.text);
        recorded_texts_free(&texts);
    }
}
END_TEST

/* N_TOKENS tokens of which each PART repeat, or none. */
static void make_texts(struct recorded_texts *texts, int n_vocab, int is_repeated)
{
    static struct recorded_text text;
    static int32_t tokens[N_TOKENS];
    text = (struct recorded_text){0};
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = is_repeated && i >= PART ? tokens[i - PART] : below(n_vocab);
    }
    CHECK_OK(token_ids_append(&text.prompt, tokens, PART, &err));
    CHECK_OK(token_ids_append(&text.answer, tokens + PART, N_TOKENS - PART, &err));
    *texts = (struct recorded_texts){.data = &text, .n = 1};
}

static struct replay_figures replay(const char *names, int n_vocab, int is_repeated)
{
    struct recorded_texts texts;
    struct replay_drafter drafters[N_REPLAY_FINDERS] = {0};
    struct replay_figures figures;
    struct replay_times times;
    int n;
    int64_t n_accepted = 0;
    make_texts(&texts, n_vocab, is_repeated);
    replay_times_line(&times, 10000, 100, 500);
    CHECK_OK(replay_drafters_open(drafters, &n, names, &err));
    for (int turn = 0; turn < 2; turn++) { /* the store knows the text in the second turn */
        CHECK_OK(replay_run(&texts, drafters, n, &times, &figures, &err));
    }
    for (int i = 0; i < N_REPLAY_FINDERS; i++) {
        for (int k = 0; k < DRAFT_MAX; k++) {
            n_accepted += figures.accepted[i][k];
        }
        replay_drafter_close(&drafters[i]);
    }
    ck_assert_int_eq(figures.n_tokens, N_TOKENS - PART);
    ck_assert_int_eq(figures.n_rounds + n_accepted, figures.n_tokens);
    token_ids_free(&texts.data->prompt);
    token_ids_free(&texts.data->answer);
    return figures;
}

/* Nearly every round commits 17 tokens and takes 12.1 ms; a plain one takes 10.5 ms. */
START_TEST(a_text_that_repeats_is_guessed)
{
    static const char *const names[] = {"session", "ngram", "store", "recycled",
                                        "session,ngram,store,recycled"};
    for (int i = 0; i < 5; i++) {
        struct replay_figures f = replay(names[i], N_VOCAB, 1);
        ck_assert_int_le(f.n_rounds, 2 * N_TOKENS / (DRAFT_MAX + 1));
        ck_assert_double_gt(f.plain_us / f.round_us, 7);
    }
}
END_TEST

/* 1 was followed by 2, then again, and then by 3. */
START_TEST(recycled_guesses_have_the_evidence_of_their_list)
{
    static int32_t tokens[] = {1, 2, 1, 2, 1, 3, 1};
    struct token_ids text = {.data = tokens, .n = 1};
    struct replay_drafter drafters[N_REPLAY_FINDERS] = {0};
    struct replay_found found = {0};
    int n;
    CHECK_OK(replay_drafters_open(drafters, &n, "recycled", &err));
    CHECK_OK(replay_drafter_begin(&drafters[0], &text, &err));
    replay_drafter_find(&drafters[0], &text, 0, &found);
    ck_assert_int_eq(found.offer.k_max, 0);
    CHECK_OK(replay_drafter_add(&drafters[0], tokens + 1, 6, &err));
    text.n = 7;
    replay_drafter_find(&drafters[0], &text, 0, &found);
    ck_assert(found.offer.k_max == DRAFT_MAX && found.tokens[0] == 3 && found.tokens[1] == 1);
    ck_assert_int_eq(found.offer.evidence, planner_evidence_of_share(1, 2));
    replay_drafter_end(&drafters[0], &text);
    replay_drafter_close(&drafters[0]);
}
END_TEST

/* Only the store has seen such a text, in the turn before. */
START_TEST(a_text_that_does_not_repeat_costs_nothing)
{
    struct replay_figures f = replay("session,ngram", 1 << 30, 0);
    ck_assert_int_eq(f.n_rounds, f.n_tokens);
    f = replay("session", N_VOCAB, 0);
    ck_assert_double_gt(f.plain_us / f.round_us, 0.99);
    f = replay("store", N_VOCAB, 0);
    ck_assert_double_gt(f.plain_us / f.round_us, 7);
}
END_TEST

/* A search of the whole text in each round would take minutes. */
START_TEST(a_long_text_is_replayed_in_seconds)
{
    enum { LONG = 300000, STEP = 3 };
    struct replay_drafter drafters[N_REPLAY_FINDERS] = {0};
    struct token_ids text = {0};
    struct replay_found found;
    int n, n_found = 0;
    CHECK_OK(replay_drafters_open(drafters, &n, "ngram", &err));
    CHECK_OK(replay_drafter_begin(&drafters[0], &text, &err));
    for (int i = 0; i < LONG; i += STEP) {
        int32_t tokens[STEP] = {below(1 << 30), i % 700, below(1 << 30)};
        CHECK_OK(token_ids_append(&text, tokens, STEP, &err));
        CHECK_OK(replay_drafter_add(&drafters[0], tokens, STEP, &err));
        replay_drafter_find(&drafters[0], &text, 0, &found);
        n_found += found.offer.k_max > 0;
    }
    ck_assert_int_lt(n_found, 10);
    replay_drafter_end(&drafters[0], &text);
    ck_assert_uint_eq(drafters[0].n_tokens, LONG);
    ck_assert_uint_gt(drafters[0].bytes, LONG * sizeof *text.data);
    replay_drafter_close(&drafters[0]);
    token_ids_free(&text);
}
END_TEST

START_TEST(drafters_are_named)
{
    static const struct {
        const char *names, *part;
    } cases[] = {{"session,", "''"},
                 {"store,store", "--drafter store,store: store is named twice"},
                 {"sessions", "'sessions' is not known"},
                 {"datastore", "the name of the file after datastore= is missing"},
                 {"session,lookahead", "lookahead cannot be replayed"},
                 {"recycled=4", "names from: session, ngram, store, datastore=FILE, recycled"},
                 {"datastore=", "is missing"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct replay_drafter drafters[N_REPLAY_FINDERS] = {0};
        int n;
        CHECK_ERR(replay_drafters_open(drafters, &n, cases[i].names, &err), ERR_ARGUMENT,
                  cases[i].part);
        for (int d = 0; d < N_REPLAY_FINDERS; d++) {
            replay_drafter_close(&drafters[d]);
        }
    }
}
END_TEST

/* The format of coordinator/engine/times_file.c; the planner fits curves, so numbers are about
 * those. */
START_TEST(times_are_read)
{
    struct replay_times times;
    write_file("{\"version\": 1, \"pair\": \"p\", \"read_us\": 0, \"draft\": [], "
               "\"step\": [[1, 1000, 9], [16, 2000, 9]], \"rest\": [[1, 100, 9]]}");
    CHECK_OK(replay_times_read(&times, path, &err));
    ck_assert_double_eq_tol(times.step_us[1], 1000, 10);
    ck_assert_double_eq_tol(times.step_us[16], 2000, 20);
    ck_assert_double_eq_tol(times.rest_us[1], 100, 1);
    write_file("{\"step\": [[1, 1000]], \"rest\": []}");
    CHECK_ERR(replay_times_read(&times, path, &err), ERR_FORMAT, "point 0 of step");
    write_file("{\"step\": [], \"rest\": []}");
    CHECK_ERR(replay_times_read(&times, path, &err), ERR_FORMAT, "--step-us");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replay");
    TCase *tests = tcase_create("replay");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, lines_are_read);
    tcase_add_test(tests, wrong_lines_are_refused);
    tcase_add_test(tests, a_text_that_repeats_is_guessed);
    tcase_add_test(tests, a_text_that_does_not_repeat_costs_nothing);
    tcase_add_test(tests, a_long_text_is_replayed_in_seconds);
    tcase_add_test(tests, recycled_guesses_have_the_evidence_of_their_list);
    tcase_add_test(tests, drafters_are_named);
    tcase_add_test(tests, times_are_read);
    suite_add_tcase(suite, tests);
    int status = check_main(suite);
    remove(path);
    return status;
}
