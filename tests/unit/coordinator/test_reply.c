/* ctest: labels=quick libs=coordinator timeout=60 */
/* A sequence answers through struct reply_ops only; here the reply records what it is told. */
#include <stdlib.h>
#include <string.h>

#include "coordinator/sequence.h"
#include "tests/support/check_util.h"

#define TALES SOURCE_DIR "/deploy/models/tales/draft"

enum { CAPACITY = 64, VOCAB = 4096, TEXT_BYTES = 256 };

/* What a reply was told. */
struct notes {
    struct reply base;
    char text[TEXT_BYTES];
    int n_messages, n_tokens, n_summaries, n_done, n_failed, n_closed, code;
    char finish_reason[16];
    bool refuses, is_gone;
};

static struct tokenizer *tok;
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

struct bench {
    struct sequence seq;
    struct block_pool pool;
    struct planner planner;
};

/* A sequence of one prompt token that may get n tokens. */
static void open_bench(struct bench *b, int n)
{
    static const int32_t prompt[] = {2174};
    struct error err;
    struct job *job;
    const struct sequence_defaults defaults = {
        .n_draft = -1, .strategy = STRATEGY_FIXED, .context_limit = CAPACITY, .vocab_size = VOCAB};
    notes = (struct notes){.base = {&ops}};
    CHECK_OK(tokenizer_open(&tok, TALES, &err));
    CHECK_OK(mem_array(&job, 1, sizeof *job, &err));
    job->reply = &notes.base;
    job->generate = (struct generate_request){.sampling = {.temperature = 0, .top_p = 1},
                                              .max_tokens = n,
                                              .n_draft = -1,
                                              .rule = "",
                                              .request_id = "noted",
                                              .n = 1,
                                              .logprobs = -1,
                                              .repetition_penalty = 1,
                                              .client = ""};
    CHECK_OK(token_ids_append(&job->prompt, prompt, 1, &err));
    CHECK_OK(block_pool_open(&b->pool, 4, 16, &err));
    CHECK_OK(sequence_open(&b->seq, 0, CAPACITY, 4, &err));
    CHECK_OK(sequence_begin(&b->seq, job, tok, &defaults, &err));
    ck_assert_str_eq(b->seq.rule->name, "greedy");
}

static int commit(struct bench *b, int32_t id, struct error *err)
{
    static const struct end_ids ends = {1, {0}};
    const enum token_origin origin = TOKEN_PLAIN;
    const struct commit one = {&id, &origin, 1, -1};
    return sequence_commit(&b->seq, &one, tok, &ends, err);
}

static void close_bench(struct bench *b)
{
    sequence_end(&b->seq, &b->pool, NULL);
    ck_assert_int_eq(notes.n_closed, 1);
    ck_assert(!b->seq.is_active);
    sequence_close(&b->seq);
    block_pool_close(&b->pool);
    tokenizer_close(tok);
}

START_TEST(tokens_come_first_then_the_summary_then_the_end)
{
    struct error err;
    struct bench b = {0};
    open_bench(&b, 2);
    CHECK_OK(commit(&b, 708, &err));
    ck_assert_ptr_null(b.seq.finish_reason);
    CHECK_OK(commit(&b, 262, &err));
    ck_assert_str_eq(b.seq.finish_reason, "length");
    ck_assert_int_eq(notes.n_messages, 2);
    ck_assert_int_eq(notes.n_tokens, 2);
    ck_assert_int_gt((int)strlen(notes.text), 0);
    sequence_finish(&b.seq, "none", &b.planner);
    ck_assert(notes.n_summaries == 1 && notes.n_done == 1 && notes.n_failed == 0);
    ck_assert_str_eq(notes.finish_reason, "length");
    close_bench(&b);
}
END_TEST

START_TEST(an_error_of_the_reply_reaches_the_round_and_ends_the_answer)
{
    struct error err;
    struct bench b = {0};
    open_bench(&b, 8);
    notes.refuses = true;
    CHECK_ERR(commit(&b, 708, &err), ERR_EXHAUSTED, "nobody reads");
    sequence_fail(&b.seq, &err);
    ck_assert(notes.n_failed == 1 && notes.code == ERR_EXHAUSTED && notes.n_done == 0);
    close_bench(&b);
}
END_TEST

START_TEST(a_job_is_cancelled_when_its_reply_says_so)
{
    struct bench b = {0};
    open_bench(&b, 8);
    ck_assert(!job_is_cancelled(b.seq.job));
    notes.is_gone = true;
    ck_assert(job_is_cancelled(b.seq.job));
    close_bench(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reply");
    TCase *tcase = tcase_create("notes");
    tcase_add_test(tcase, tokens_come_first_then_the_summary_then_the_end);
    tcase_add_test(tcase, an_error_of_the_reply_reaches_the_round_and_ends_the_answer);
    tcase_add_test(tcase, a_job_is_cancelled_when_its_reply_says_so);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
