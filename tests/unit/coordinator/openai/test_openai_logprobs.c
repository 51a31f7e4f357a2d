/* ctest: labels=quick libs=coordinator timeout=60 */
/* Log-probabilities in the two shapes, of a tokenizer whose tokens are bytes, so that a character
 * is torn where it has several. */
#include "coordinator/openai/logprobs.h"

#include <math.h>

#include "tests/support/check_util.h"

enum { N_VOCAB = 300 };

static struct error err;
static struct tokenizer *tok;
static struct openai_logprobs l;

static void setup(void)
{
    CHECK_OK(tokenizer_open_bytes(&tok, N_VOCAB, &err));
    l = (struct openai_logprobs){0};
}

static void teardown(void)
{
    openai_logprobs_free(&l);
    tokenizer_close(tok);
}

/* The tokens of "a\xc3\xa9": 'a', half of a character, and the half that completes it. */
static const int32_t ids[] = {'a', 0xc3, 0xa9};
static const enum token_origin origins[3];
static const uint32_t ends[] = {1, 1, 3};
static const struct token_alternative top_a[] = {{'a', "a", -0.5f}, {'b', "b", -1.5f}};
static const struct token_alternative top_half[] = {{'b', "b", -0.25f}, {0xc2, "?", -INFINITY}};
static const struct token_logprob logprobs[] = {{-0.5f, 2, top_a}, {-2, 2, top_half}, {0, 0, NULL}};

static struct generate_tokens tokens_of(int first, int n, const char *text)
{
    static uint32_t own_ends[3];
    for (int i = 0; i < n; i++) {
        own_ends[i] = ends[first + i] - (first ? ends[first - 1] : 0);
    }
    return (struct generate_tokens){.n = n,
                                    .ids = ids + first,
                                    .origins = origins,
                                    .text_ends = own_ends,
                                    .text = text,
                                    .text_len = strlen(text),
                                    .rejected_id = -1,
                                    .logprobs = logprobs + first};
}

/* Returns the log-probabilities of a chunk after all of the text has left; NULL = none. */
static json_t *take(enum openai_kind kind)
{
    struct buffer text = {0};
    openai_logprobs_release(&l, UINT64_MAX);
    if (!openai_logprobs_are_ready(&l)) return NULL;
    CHECK_OK(openai_logprobs_put(&text, kind, NULL, &l, &err));
    openai_logprobs_drop(&l);
    json_t *made = json_loadb((const char *)text.data, text.len, 0, NULL);
    ck_assert_msg(made != NULL, "no JSON: %.*s", (int)text.len, (const char *)text.data);
    buffer_free(&text);
    return made;
}

/* Checks the log-probabilities of a chunk; want NULL: there are none. */
static void check_taken(enum openai_kind kind, const char *want)
{
    json_t *made = take(kind);
    json_t *other = want ? json_loads(want, 0, NULL) : NULL;
    char *text = made ? json_dumps(made, 0) : NULL;
    ck_assert_msg(!want || other != NULL, "no JSON: %s", want);
    ck_assert_msg(want ? json_equal(made, other) : made == NULL, "%s is not %s", text,
                  want ? want : "nothing");
    free(text);
    json_decref(made);
    json_decref(other);
}

START_TEST(a_completion_has_lists)
{
    struct generate_tokens tokens = tokens_of(0, 3, "a\xc3\xa9");
    CHECK_OK(openai_logprobs_add(&l, OPENAI_COMPLETION, tok, &tokens, &err));
    check_taken(OPENAI_COMPLETION,
                "{\"tokens\": [\"a\", \"bytes:\\\\xc3\", \"bytes:\\\\xa9\"],"
                " \"token_logprobs\": [-0.5, -2.0, 0.0],"
                " \"top_logprobs\": [{\"a\": -0.5, \"b\": -1.5},"
                " {\"b\": -0.25, \"bytes:\\\\xc2\": -9999.0, \"bytes:\\\\xc3\": -2.0},"
                " {\"bytes:\\\\xa9\": 0.0}],"
                " \"text_offset\": [0, 1, 1]}");
}
END_TEST

START_TEST(a_chat_has_entries_with_bytes)
{
    struct generate_tokens tokens = tokens_of(0, 2, "a");
    CHECK_OK(openai_logprobs_add(&l, OPENAI_CHAT, tok, &tokens, &err));
    check_taken(OPENAI_CHAT,
                "{\"refusal\": null, \"content\": ["
                "{\"token\": \"a\", \"logprob\": -0.5, \"bytes\": [97], \"top_logprobs\": ["
                "{\"token\": \"a\", \"logprob\": -0.5, \"bytes\": [97]},"
                "{\"token\": \"b\", \"logprob\": -1.5, \"bytes\": [98]}]},"
                "{\"token\": \"bytes:\\\\xc3\", \"logprob\": -2.0, \"bytes\": [195],"
                " \"top_logprobs\": ["
                "{\"token\": \"b\", \"logprob\": -0.25, \"bytes\": [98]},"
                "{\"token\": \"bytes:\\\\xc2\", \"logprob\": -9999.0, \"bytes\": [194]}]}]}");
}
END_TEST

/* Each chunk has what has come since the one before; offsets go on, in characters. */
START_TEST(chunks_go_on_where_the_last_ended)
{
    struct generate_tokens tokens = tokens_of(0, 2, "a");
    CHECK_OK(openai_logprobs_add(&l, OPENAI_COMPLETION, tok, &tokens, &err));
    json_decref(take(OPENAI_COMPLETION));
    check_taken(OPENAI_COMPLETION, NULL);
    tokens = tokens_of(2, 1, "\xc3\xa9");
    CHECK_OK(openai_logprobs_add(&l, OPENAI_COMPLETION, tok, &tokens, &err));
    tokens = tokens_of(0, 1, "a");
    CHECK_OK(openai_logprobs_add(&l, OPENAI_COMPLETION, tok, &tokens, &err));
    check_taken(OPENAI_COMPLETION, "{\"tokens\": [\"bytes:\\\\xa9\", \"a\"],"
                                   " \"token_logprobs\": [0.0, -0.5],"
                                   " \"top_logprobs\": [{\"bytes:\\\\xa9\": 0.0},"
                                   " {\"a\": -0.5, \"b\": -1.5}], \"text_offset\": [1, 2]}");
}
END_TEST

START_TEST(tokens_without_logprobs_add_nothing)
{
    struct generate_tokens tokens = tokens_of(0, 3, "a\xc3\xa9");
    tokens.logprobs = NULL;
    CHECK_OK(openai_logprobs_add(&l, OPENAI_CHAT, tok, &tokens, &err));
    check_taken(OPENAI_CHAT, NULL);
}
END_TEST

/* The first token of a prompt has none, and the answer's offsets begin after the prompt. */
START_TEST(scores_of_a_prompt_come_first)
{
    static const struct score_token scored[] = {
        {.id = 0xc3, .text = "?"},
        {.id = 0xa9, .text = "?", .has_logprob = true, .logprob = -1},
        {.id = 'b', .text = "b", .has_logprob = true, .logprob = -3, .n_top = 2, .top = top_a}};
    const struct score_reply scores = {.n = 3, .tokens = scored};
    CHECK_OK(openai_logprobs_add_scores(&l, OPENAI_COMPLETION, tok, &scores, &err));
    struct generate_tokens tokens = tokens_of(0, 1, "a");
    CHECK_OK(openai_logprobs_add(&l, OPENAI_COMPLETION, tok, &tokens, &err));
    check_taken(OPENAI_COMPLETION,
                "{\"tokens\": [\"bytes:\\\\xc3\", \"bytes:\\\\xa9\", \"b\", \"a\"],"
                " \"token_logprobs\": [null, -1.0, -3.0, -0.5],"
                " \"top_logprobs\": [null, {\"bytes:\\\\xa9\": -1.0}, {\"a\": -0.5, \"b\": -1.5},"
                " {\"a\": -0.5, \"b\": -1.5}],"
                " \"text_offset\": [0, 1, 1, 2]}");
}
END_TEST

/* A filler decodes to nothing, and NUL cannot be shown as it is. */
START_TEST(tokens_that_cannot_be_shown)
{
    static const int32_t odd[] = {299, 0};
    static const uint32_t odd_ends[] = {0, 1};
    static const struct token_logprob none[2];
    const struct generate_tokens tokens = {.n = 2,
                                           .ids = odd,
                                           .origins = origins,
                                           .text_ends = odd_ends,
                                           .text = "?",
                                           .text_len = 1,
                                           .logprobs = none};
    CHECK_OK(openai_logprobs_add(&l, OPENAI_CHAT, tok, &tokens, &err));
    check_taken(OPENAI_CHAT, "{\"refusal\": null, \"content\": ["
                             "{\"token\": \"\", \"logprob\": 0.0, \"bytes\": [],"
                             " \"top_logprobs\": []},"
                             "{\"token\": \"bytes:\\\\x00\", \"logprob\": 0.0, \"bytes\": [0],"
                             " \"top_logprobs\": []}]}");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openai logprobs");
    TCase *tcase = tcase_create("logprobs");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_completion_has_lists);
    tcase_add_test(tcase, a_chat_has_entries_with_bytes);
    tcase_add_test(tcase, chunks_go_on_where_the_last_ended);
    tcase_add_test(tcase, tokens_without_logprobs_add_nothing);
    tcase_add_test(tcase, scores_of_a_prompt_come_first);
    tcase_add_test(tcase, tokens_that_cannot_be_shown);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
