/* ctest: labels=quick libs=coordinator timeout=60 */
/* A sequence answers through struct reply_ops only; here the reply records what it is told. */
#include <stdlib.h>
#include <string.h>

#include "coordinator/draft/drafters.h"
#include "coordinator/schedule/places.h"
#include "tests/support/sequence_world.h"

#define TALES SOURCE_DIR "/deploy/models/tales/draft"

enum { CAPACITY = 64, VOCAB = 4096, TEXT_BYTES = 256 };

/* Calls that a reply has got. */
struct notes {
    struct reply base;
    char text[TEXT_BYTES];
    int n_messages, n_tokens, n_summaries, n_done, n_failed, n_closed, code;
    char finish_reason[16];
    bool refuses, is_gone;
};

static struct tokenizer *tok;
static struct drafters no_drafters;
static struct notes notes;

static int note_tokens(struct reply *reply, const struct generate_tokens *tokens, struct error *err)
{
    struct notes *n = (struct notes *)reply;
    if (n->refuses) return error_set(err, ERR_EXHAUSTED, "nobody reads");
    strncat(n->text, tokens->text, tokens->text_len);
    n->n_messages++;
    n->n_tokens += tokens->n;
    return 0;
}

static int note_summary(struct reply *reply, const struct generate_summary *summary,
                        struct error *err)
{
    struct notes *n = (struct notes *)reply;
    (void)err;
    ck_assert_int_eq(n->n_done, 0);
    n->n_summaries++;
    strcpy(n->finish_reason, summary->finish_reason);
    return 0;
}

static void note_done(struct reply *reply)
{
    ((struct notes *)reply)->n_done++;
}

static void note_fail(struct reply *reply, int code, const char *text)
{
    struct notes *n = (struct notes *)reply;
    n->n_failed++;
    n->code = code;
    ck_assert_int_gt((int)strlen(text), 0);
}

static bool is_gone(const struct reply *reply)
{
    return ((const struct notes *)reply)->is_gone;
}

static void note_close(struct reply *reply)
{
    ((struct notes *)reply)->n_closed++;
}

static const struct reply_ops ops = {
    .tokens = note_tokens,
    .summary = note_summary,
    .done = note_done,
    .fail = note_fail,
    .is_cancelled = is_gone,
    .close = note_close,
};

static const struct end_ids ends = {1, {0}};
static const struct sequence_defaults defaults = {.n_draft = -1,
                                                  .strategy = STRATEGY_FIXED,
                                                  .context_limit = CAPACITY,
                                                  .vocab_size = VOCAB,
                                                  .ends = &ends};

struct bench {
    struct sequence *seq;
    struct block_pool pool;
    struct planner planner;
};

/* The first of n sequences of one prompt token, each of which may get max_tokens. */
static void open_bench(struct bench *b, int max_tokens, int n)
{
    static const int32_t prompt[] = {2174};
    struct error err;
    notes = (struct notes){.base = {.ops = &ops}};
    CHECK_OK(tokenizer_open(&tok, TALES, &err));
    struct job *job = new_job(JOB_GENERATE, prompt, 1);
    job->reply = &notes.base;
    job->generate.max_tokens = max_tokens;
    job->generate.n = n;
    CHECK_OK(block_pool_open(&b->pool, 4, 16, &err));
    b->seq = first_sequence(job, tok, &defaults);
    CHECK_OK(places_give(b->seq, 0, &b->pool, &no_drafters, &err));
    sequence_admit(b->seq);
    ck_assert_str_eq(b->seq->rule->name, "greedy");
}

static int commit(struct sequence *seq, int32_t id, struct error *err)
{
    const enum token_origin origin = TOKEN_PLAIN;
    const struct commit one = {.ids = &id, .origins = &origin, .n = 1, .rejected = -1};
    return sequence_commit(seq, &one, tok, err);
}

static void close_bench(struct bench *b)
{
    places_withdraw(b->seq, &b->pool, &no_drafters);
    ck_assert_int_eq(block_pool_room(&b->pool), 4);
    sequence_close(b->seq);
    ck_assert_int_eq(notes.n_closed, 1);
    block_pool_close(&b->pool);
    tokenizer_close(tok);
}

START_TEST(tokens_come_first_then_the_summary_then_the_end)
{
    struct error err;
    struct bench b = {0};
    open_bench(&b, 2, 1);
    CHECK_OK(commit(b.seq, 708, &err));
    ck_assert_ptr_null(b.seq->finish_reason);
    CHECK_OK(commit(b.seq, 262, &err));
    ck_assert_str_eq(b.seq->finish_reason, "length");
    ck_assert_int_eq(notes.n_messages, 2);
    ck_assert_int_eq(notes.n_tokens, 2);
    ck_assert_int_gt((int)strlen(notes.text), 0);
    sequence_finish(b.seq, "none", &b.planner);
    ck_assert(notes.n_summaries == 1 && notes.n_done == 1 && notes.n_failed == 0);
    ck_assert_str_eq(notes.finish_reason, "length");
    ck_assert(b.seq->is_over && notes.base.end == JOB_END_LENGTH);
    close_bench(&b);
}
END_TEST

/* The n sequences of a job have seeds and summaries of their own, and the answer ends with the
 * last of them. */
START_TEST(an_answer_of_several_texts_ends_with_the_last)
{
    enum { N = 3 };
    struct error err;
    struct bench b = {0};
    struct sequence *others[N];
    open_bench(&b, 1, N);
    others[0] = b.seq;
    for (int i = 1; i < N; i++) {
        CHECK_OK(sequence_open(&others[i], b.seq->job, i, tok, &defaults, &err));
        ck_assert(others[i]->id > others[i - 1]->id && others[i]->seed != others[i - 1]->seed);
        CHECK_OK(places_give(others[i], i, &b.pool, &no_drafters, &err));
        sequence_admit(others[i]);
    }
    for (int i = N - 1; i >= 0; i--) {
        ck_assert_int_eq(notes.n_done, 0);
        CHECK_OK(commit(others[i], 708, &err));
        sequence_finish(others[i], "none", &b.planner);
        ck_assert_int_eq(notes.n_summaries, N - i);
        if (i == 0) break;
        places_withdraw(others[i], &b.pool, &no_drafters);
        sequence_close(others[i]);
        ck_assert_int_eq(notes.n_closed, 0);
    }
    ck_assert(notes.n_done == 1 && notes.n_failed == 0 && notes.base.end == JOB_END_LENGTH);
    close_bench(&b);
}
END_TEST

START_TEST(the_failure_of_one_text_ends_the_whole_answer_once)
{
    struct error err;
    struct bench b = {0};
    struct sequence *other;
    open_bench(&b, 1, 2);
    CHECK_OK(sequence_open(&other, b.seq->job, 1, tok, &defaults, &err));
    error_set(&err, ERR_INTERNAL, "a row was not numbers");
    sequence_fail(other, JOB_END_FAILED, &err);
    sequence_fail(b.seq, JOB_END_UNAVAILABLE, &err);
    ck_assert(notes.n_failed == 1 && notes.n_done == 0 && notes.base.end == JOB_END_FAILED);
    sequence_close(other);
    close_bench(&b);
}
END_TEST

/* Without a seed in the request one is drawn, and the job keeps it. */
START_TEST(the_first_sequence_has_the_seed_of_the_request)
{
    struct bench b = {0};
    open_bench(&b, 1, 1);
    ck_assert(b.seq->job->has_seed && b.seq->seed == b.seq->job->seed);
    close_bench(&b);
}
END_TEST

START_TEST(an_error_of_the_reply_reaches_the_round_and_ends_the_answer)
{
    struct error err;
    struct bench b = {0};
    open_bench(&b, 8, 1);
    notes.refuses = true;
    CHECK_ERR(commit(b.seq, 708, &err), ERR_EXHAUSTED, "nobody reads");
    sequence_fail(b.seq, JOB_END_SLOW_READER, &err);
    ck_assert(notes.n_failed == 1 && notes.code == ERR_EXHAUSTED && notes.n_done == 0);
    ck_assert(b.seq->is_over && notes.base.end == JOB_END_SLOW_READER);
    close_bench(&b);
}
END_TEST

START_TEST(a_job_is_cancelled_when_its_reply_says_so)
{
    struct bench b = {0};
    open_bench(&b, 8, 1);
    ck_assert(!job_is_cancelled(b.seq->job));
    notes.is_gone = true;
    ck_assert(job_is_cancelled(b.seq->job));
    close_bench(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reply");
    TCase *tcase = tcase_create("notes");
    tcase_add_test(tcase, tokens_come_first_then_the_summary_then_the_end);
    tcase_add_test(tcase, an_answer_of_several_texts_ends_with_the_last);
    tcase_add_test(tcase, the_failure_of_one_text_ends_the_whole_answer_once);
    tcase_add_test(tcase, the_first_sequence_has_the_seed_of_the_request);
    tcase_add_test(tcase, an_error_of_the_reply_reaches_the_round_and_ends_the_answer);
    tcase_add_test(tcase, a_job_is_cancelled_when_its_reply_says_so);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
