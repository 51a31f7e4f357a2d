/* Copies of messages: they say the same as the original when that is gone. */
/* ctest: labels=quick libs=coordinator timeout=60 */
#include "coordinator/job/answer_message.h"

#include <stdlib.h>

#include "tests/support/check_util.h"

enum { N_TOP = 3, N_IDS = 4, N_ELEMENTS = 24 };

static struct error err;
static struct buffer buf, again;

static void teardown(void)
{
    buffer_free(&buf);
    buffer_free(&again);
}

static void encode(struct buffer *out, const struct answer_message *message)
{
    if (message->scores)
        CHECK_OK(score_reply_encode(out, message->scores, &err));
    else if (message->description)
        CHECK_OK(service_description_encode(out, message->description, &err));
    else
        CHECK_OK(generate_reply_encode(out, message->reply, &err));
}

/* Everything that a message points to is in memory of its own here, which `forget` overwrites. */
static struct {
    char words[8][16], text[32];
    int32_t ids[N_IDS];
    enum token_origin origins[N_IDS];
    uint32_t ends[N_IDS];
    struct token_alternative top[N_TOP];
    struct token_logprob logprobs[N_IDS];
    struct generate_guess guesses[2];
    struct generate_round round;
    struct generate_tokens tokens;
    struct generate_summary summary;
    struct score_token scored[2];
    struct score_reply scores;
    uint16_t features[N_ELEMENTS];
    const char *addresses[2];
    struct service_group group;
    struct service_description description;
    struct generate_reply reply;
    struct answer_message message;
} m;

static const char *word(int i, const char *text)
{
    strcpy(m.words[i], text);
    return m.words[i];
}

static void forget(void)
{
    memset(&m, 0xA5, sizeof m);
}

static void fill_alternatives(void)
{
    for (int i = 0; i < N_TOP; i++) {
        m.top[i] = (struct token_alternative){i, word(i, i == 1 ? "" : "one"), -1.5f - (float)i};
    }
}

static void fill_tokens(void)
{
    fill_alternatives();
    strcpy(m.text, "a text of four");
    for (int i = 0; i < N_IDS; i++) {
        m.ids[i] = 100 + i;
        m.origins[i] = TOKEN_ACCEPTED;
        m.ends[i] = (uint32_t)i + 1;
        m.logprobs[i] = (struct token_logprob){-0.5f, i < N_TOP ? i : N_TOP, m.top};
    }
    m.guesses[0] = (struct generate_guess){.id = 7, .text = word(3, "guess"), .q = 0.5f, .p = -1};
    m.guesses[1] = (struct generate_guess){.id = 8, .text = word(4, "\xc3\xa9"), .place = 1};
    m.round = (struct generate_round){
        .n_guesses = 2, .guesses = m.guesses, .drafter = word(5, "model"), .n_rows = 9};
    m.tokens = (struct generate_tokens){.index = 2,
                                        .n = N_IDS,
                                        .ids = m.ids,
                                        .origins = m.origins,
                                        .text_ends = m.ends,
                                        .text = m.text,
                                        .text_len = strlen(m.text),
                                        .rejected_id = 12,
                                        .rejected_text = word(6, "rejected"),
                                        .logprobs = m.logprobs,
                                        .round = &m.round};
    m.reply = (struct generate_reply){.tokens = &m.tokens};
    m.message = (struct answer_message){.reply = &m.reply};
}

static void fill_summary(void)
{
    for (int i = 0; i < N_IDS; i++) {
        m.ids[i] = i;
    }
    m.summary = (struct generate_summary){.index = 1,
                                          .finish_reason = word(0, "stop"),
                                          .stop_match = word(1, "the end"),
                                          .rule = word(2, "coupled"),
                                          .speculation_off = word(3, "no draft"),
                                          .request_id = word(4, "mine"),
                                          .arithmetic = word(5, "cpu-bf16"),
                                          .prompt_tokens = N_IDS,
                                          .seed = UINT64_MAX,
                                          .prompt_ids = m.ids,
                                          .counters = {.rounds = 3, .tested_at = {5, 1}}};
    m.reply = (struct generate_reply){.summary = &m.summary};
    m.message = (struct answer_message){.reply = &m.reply};
}

static void fill_scores(void)
{
    fill_alternatives();
    m.scored[0] = (struct score_token){.id = 1, .text = word(4, "first")};
    m.scored[1] = (struct score_token){.id = 2,
                                       .text = word(5, "second"),
                                       .has_logprob = true,
                                       .logprob = -2,
                                       .n_top = N_TOP,
                                       .top = m.top};
    for (int i = 0; i < N_ELEMENTS; i++) {
        m.features[i] = (uint16_t)(7 * i + 1);
    }
    m.scores = (struct score_reply){
        .n = 2,
        .tokens = m.scored,
        .features = {
            .first = 9, .n = 2, .n_columns = 3, .dim = N_ELEMENTS / 6, .rows = m.features}};
}

static void fill_echo(void)
{
    fill_scores();
    m.reply = (struct generate_reply){.echo = &m.scores};
    m.message = (struct answer_message){.reply = &m.reply};
}

static void fill_scores_alone(void)
{
    fill_scores();
    m.message = (struct answer_message){.scores = &m.scores};
}

static void fill_description(void)
{
    m.addresses[0] = word(0, "10.0.0.1:5000");
    m.addresses[1] = word(1, "10.0.0.2:5000");
    m.group = (struct service_group){.state = word(2, "serving"),
                                     .kernels = word(3, "avx512"),
                                     .n_addresses = 2,
                                     .addresses = m.addresses};
    m.description = (struct service_description){.version = word(4, "0.1"),
                                                 .target_model = word(5, "tales"),
                                                 .arithmetic = word(6, "cpu-bf16"),
                                                 .state = word(7, "full"),
                                                 .n_addresses = 2,
                                                 .addresses = m.addresses,
                                                 .n_kernels = 1,
                                                 .kernels = m.addresses,
                                                 .n_groups = 1,
                                                 .groups = &m.group};
    m.message = (struct answer_message){.description = &m.description};
}

static void (*const fills[])(void) = {fill_tokens, fill_summary, fill_echo, fill_scores_alone,
                                      fill_description};

START_TEST(copy_keeps_its_values_when_the_original_is_gone)
{
    struct answer_message *copy;
    size_t n_bytes;
    fills[_i]();
    encode(&buf, &m.message);
    CHECK_OK(answer_message_copy(&copy, &n_bytes, &m.message, &err));
    forget();
    encode(&again, copy);
    ck_assert_uint_gt(n_bytes, buf.len);
    ck_assert_uint_eq(again.len, buf.len);
    ck_assert_mem_eq(again.data, buf.data, buf.len);
    free(copy);
}
END_TEST

/* Doors that do not encode are told the same as those that do. */
START_TEST(a_text_that_is_not_utf8_is_cleaned_in_the_copy)
{
    struct answer_message *copy;
    size_t n_bytes;
    fill_tokens();
    m.tokens.text = "a\xff\0\xc3\xa9";
    m.tokens.text_len = 5;
    CHECK_OK(answer_message_copy(&copy, &n_bytes, &m.message, &err));
    ck_assert_uint_eq(copy->reply->tokens->text_len, 5);
    ck_assert_str_eq(copy->reply->tokens->text, "a??\xc3\xa9");
    free(copy);
}
END_TEST

/* A reader of JSON or of strings needs no check for NULL. */
START_TEST(strings_that_are_missing_are_empty)
{
    static const struct generate_tokens nothing = {.rejected_id = -1};
    const struct answer_message message = {.reply = &(struct generate_reply){.tokens = &nothing}};
    struct answer_message *copy;
    size_t n_bytes;
    CHECK_OK(answer_message_copy(&copy, &n_bytes, &message, &err));
    ck_assert_str_eq(copy->reply->tokens->text, "");
    ck_assert_str_eq(copy->reply->tokens->rejected_text, "");
    ck_assert_ptr_null(copy->reply->tokens->logprobs);
    ck_assert_ptr_null(copy->reply->tokens->round);
    ck_assert_ptr_null(copy->reply->summary);
    free(copy);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("answer_message");
    TCase *tcase = tcase_create("answer_message");
    tcase_add_checked_fixture(tcase, NULL, teardown);
    tcase_add_loop_test(tcase, copy_keeps_its_values_when_the_original_is_gone, 0,
                        sizeof fills / sizeof *fills);
    tcase_add_test(tcase, a_text_that_is_not_utf8_is_cleaned_in_the_copy);
    tcase_add_test(tcase, strings_that_are_missing_are_empty);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
