/* ctest: labels=quick libs=coordinator timeout=60 */
/* Chunks, choices and errors as OpenAI's clients expect them, read back by another library. */
#include "coordinator/openai/shape.h"

#include "coordinator/openai/request/error.h"
#include "tests/support/check_util.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char head[] =
    "\"id\":\"id-1\",\"object\":\"%s\",\"created\":17,\"model\":\"a \\\"b\\\"\","
    "\"system_fingerprint\":\"f\"";

static struct error err;
static struct buffer out;
static struct openai_shape shape;
static json_t *read_back;

static void teardown(void)
{
    openai_shape_close(&shape);
    buffer_free(&out);
    json_decref(read_back);
    read_back = NULL;
}

static void open_shape(enum openai_kind kind, bool is_stream, bool includes_usage)
{
    const struct openai_request request = {
        .kind = kind, .is_stream = is_stream, .includes_usage = includes_usage};
    openai_shape_close(&shape);
    CHECK_OK(openai_shape_open(&shape, &request, "id-1", "a \"b\"", "f", 17, &err));
    out.len = 0;
}

static const char *written(void)
{
    CHECK_OK(buffer_append(&out, "", 1, &err));
    return (const char *)out.data;
}

static const json_t *parsed(const char *text)
{
    json_decref(read_back);
    read_back = json_loads(text, JSON_DECODE_ANY, NULL);
    ck_assert_msg(read_back != NULL, "no JSON: %s", text);
    return read_back;
}

/* Checks that the written text is this value, whatever the order and the blanks. */
static void check_json(const char *text, const char *want)
{
    json_t *other = json_loads(want, 0, NULL);
    ck_assert_msg(other != NULL, "no JSON: %s", want);
    ck_assert_msg(json_equal(parsed(text), other), "%s is not %s", text, want);
    json_decref(other);
}

/* The object of the one event that has been written. */
static const char *event(void)
{
    char *text = (char *)(uintptr_t)written();
    size_t len = strlen(text);
    ck_assert_mem_eq(text, "data: {", 7);
    ck_assert_str_eq(text + len - 3, "}\n\n");
    ck_assert_ptr_eq(strchr(text, '\n'), text + len - 2);
    return text + 6;
}

static struct openai_said said_of(const char *text, const char *finish_reason)
{
    return (struct openai_said){
        .index = 2, .text = text, .len = strlen(text), .finish_reason = finish_reason};
}

START_TEST(the_head_says_what_it_is)
{
    static const struct {
        enum openai_kind kind;
        bool is_stream;
        const char *object;
    } rows[] = {{OPENAI_COMPLETION, false, "text_completion"},
                {OPENAI_COMPLETION, true, "text_completion"},
                {OPENAI_CHAT, false, "chat.completion"},
                {OPENAI_CHAT, true, "chat.completion.chunk"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        char want[512];
        int len = snprintf(want, sizeof want, "{");
        len += snprintf(want + len, sizeof want - (size_t)len, head, rows[i].object);
        snprintf(want + len, sizeof want - (size_t)len, "}");
        open_shape(rows[i].kind, rows[i].is_stream, false);
        CHECK_OK(buffer_append(&out, shape.head.data, shape.head.len, &err));
        CHECK_OK(buffer_append(&out, "}", 1, &err));
        check_json(written(), want);
    }
}
END_TEST

/* ---- choices ---- */

static void check_choice(const struct openai_said *said, const char *want)
{
    out.len = 0;
    CHECK_OK(openai_shape_choice(&shape, &out, said, &err));
    check_json(written(), want);
}

START_TEST(choices_of_a_completion)
{
    static const char *const items[OPENAI_LOGPROB_LISTS] = {"\"a\",", "-0.5,", "{},", "3,"};
    struct openai_logprobs l = {0};
    for (int i = 0; i < OPENAI_LOGPROB_LISTS; i++) {
        CHECK_OK(buffer_append(&l.lists[i], items[i], strlen(items[i]), &err));
        l.ready[i] = l.lists[i].len;
    }
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        open_shape(OPENAI_COMPLETION, is_stream, false);
        struct openai_said said = said_of("a\n\xe2\x80\xa8", NULL);
        check_choice(&said, "{\"index\": 2, \"text\": \"a\\n\\u2028\", \"logprobs\": null,"
                            " \"finish_reason\": null}");
        said = said_of("", "length");
        said.logprobs = &l;
        check_choice(&said, "{\"index\": 2, \"text\": \"\", \"logprobs\": {\"tokens\": [\"a\"],"
                            " \"token_logprobs\": [-0.5], \"top_logprobs\": [{}],"
                            " \"text_offset\": [3]}, \"finish_reason\": \"length\"}");
    }
    openai_logprobs_free(&l);
}
END_TEST

START_TEST(choices_of_a_chat)
{
    open_shape(OPENAI_CHAT, false, false);
    struct openai_said said = said_of("hello", "stop");
    check_choice(&said, "{\"index\": 2, \"message\": {\"role\": \"assistant\", \"content\":"
                        " \"hello\", \"refusal\": null}, \"logprobs\": null,"
                        " \"finish_reason\": \"stop\"}");
}
END_TEST

/* The role comes first and once; the end says nothing. */
START_TEST(deltas_of_a_chat)
{
    open_shape(OPENAI_CHAT, true, false);
    struct openai_said said = said_of("he", NULL);
    said.is_first = true;
    check_choice(&said, "{\"index\": 2, \"delta\": {\"role\": \"assistant\", \"content\": \"he\"},"
                        " \"logprobs\": null, \"finish_reason\": null}");
    said = said_of("llo", NULL);
    check_choice(&said, "{\"index\": 2, \"delta\": {\"content\": \"llo\"}, \"logprobs\": null,"
                        " \"finish_reason\": null}");
    said = said_of("", NULL);
    check_choice(&said, "{\"index\": 2, \"delta\": {\"content\": \"\"}, \"logprobs\": null,"
                        " \"finish_reason\": null}");
    said = said_of("", "stop");
    check_choice(&said, "{\"index\": 2, \"delta\": {}, \"logprobs\": null,"
                        " \"finish_reason\": \"stop\"}");
    said.is_first = true; /* a text of no tokens */
    check_choice(&said, "{\"index\": 2, \"delta\": {\"role\": \"assistant\", \"content\": \"\"},"
                        " \"logprobs\": null, \"finish_reason\": \"stop\"}");
}
END_TEST

/* ---- chunks ---- */

START_TEST(a_chunk_is_one_event)
{
    char want[512];
    const struct openai_said said = said_of("x", NULL);
    open_shape(OPENAI_COMPLETION, true, false);
    CHECK_OK(openai_shape_chunk(&shape, &out, &said, NULL, &err));
    int len = snprintf(want, sizeof want, "{");
    len += snprintf(want + len, sizeof want - (size_t)len, head, "text_completion");
    snprintf(want + len, sizeof want - (size_t)len,
             ", \"choices\": [{\"index\": 2, \"text\": \"x\", \"logprobs\": null,"
             " \"finish_reason\": null}]}");
    check_json(event(), want);
}
END_TEST

START_TEST(usage_is_null_until_the_end)
{
    const struct openai_said said = said_of("x", NULL);
    json_t *outrider = json_pack("{s:i}", "index", 2);
    open_shape(OPENAI_CHAT, true, true);
    CHECK_OK(openai_shape_chunk(&shape, &out, &said, outrider, &err));
    json_decref(outrider);
    const json_t *chunk = parsed(event());
    ck_assert(json_is_null(json_object_get(chunk, "usage")));
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_object_get(chunk, "outrider"), "index")), 2);
    ck_assert_uint_eq(json_array_size(json_object_get(chunk, "choices")), 1);
}
END_TEST

START_TEST(a_stream_ends_with_done)
{
    open_shape(OPENAI_CHAT, true, false);
    CHECK_OK(openai_shape_end(&shape, &out, &(struct openai_usage){0}, &err));
    ck_assert_str_eq(written(), "data: [DONE]\n\n");
}
END_TEST

START_TEST(the_chunk_of_the_usage_has_no_choices)
{
    static const char done[] = "data: [DONE]\n\n";
    const struct openai_usage usage = {.prompt_tokens = 3,
                                       .completion_tokens = 4,
                                       .cached_tokens = 2,
                                       .accepted = 5,
                                       .rejected = 6};
    open_shape(OPENAI_COMPLETION, true, true);
    CHECK_OK(openai_shape_end(&shape, &out, &usage, &err));
    ck_assert_mem_eq(out.data + out.len - strlen(done), done, strlen(done));
    out.len -= strlen(done);
    const json_t *chunk = parsed(event());
    ck_assert(json_is_array(json_object_get(chunk, "choices")));
    ck_assert_uint_eq(json_array_size(json_object_get(chunk, "choices")), 0);
    char *text = json_dumps(json_object_get(chunk, "usage"), 0);
    check_json(text, "{\"prompt_tokens\": 3, \"completion_tokens\": 4, \"total_tokens\": 7,"
                     " \"prompt_tokens_details\": {\"cached_tokens\": 2},"
                     " \"completion_tokens_details\": {\"accepted_prediction_tokens\": 5,"
                     " \"rejected_prediction_tokens\": 6}}");
    free(text);
}
END_TEST

START_TEST(the_largest_usage_is_whole)
{
    const int64_t most = INT64_MAX / 2;
    const struct openai_usage usage = {most, most, most, most, most};
    CHECK_OK(openai_shape_usage(&out, &usage, &err));
    const json_t *read = parsed(written());
    ck_assert_int_eq(json_integer_value(json_object_get(read, "total_tokens")), 2 * most);
    const json_t *details = json_object_get(read, "completion_tokens_details");
    ck_assert_int_eq(json_integer_value(json_object_get(details, "rejected_prediction_tokens")),
                     most);
}
END_TEST

/* ---- "outrider" ---- */

START_TEST(a_round_tells_origins_and_guesses)
{
    static const int32_t ids[] = {5, 6};
    static const enum token_origin origins[] = {TOKEN_ACCEPTED, TOKEN_REPLACEMENT};
    static const uint32_t ends[] = {1, 3};
    static const struct generate_guess guesses[] = {{5, "a", 0.5f, 0.25f, 0, 0, false},
                                                    {7, "c", 1, -1, 1, 0, true},
                                                    {8, "d", 0, 0.5f, 1, 2, false}};
    static const struct generate_round round = {.n_guesses = 3,
                                                .guesses = guesses,
                                                .n_kept = 1,
                                                .drafter = "model",
                                                .next_p = 0.75f,
                                                .draft_us = 1,
                                                .verify_us = 2,
                                                .collective_us = 3,
                                                .wire_us = 4,
                                                .total_us = 9,
                                                .n_lanes = 2,
                                                .n_rows = 6};
    struct generate_tokens tokens = {.index = 1,
                                     .n = 2,
                                     .ids = ids,
                                     .origins = origins,
                                     .text_ends = ends,
                                     .rejected_id = 7,
                                     .rejected_text = "c",
                                     .round = &round};
    json_t *told = openai_shape_round(&tokens);
    char *text = json_dumps(told, 0);
    check_json(text,
               "{\"index\": 1, \"tokens\": [{\"id\": 5, \"origin\": \"accepted\", \"text_end\": 1,"
               " \"p\": 0.25}, {\"id\": 6, \"origin\": \"replacement\", \"text_end\": 3,"
               " \"p\": 0.75}], \"round\": {\"drafter\": \"model\", \"guesses\": [{\"place\": 0, "
               "\"sibling\": 0, \"id\": 5, \"text\": \"a\", \"q\": 0.5, \"p\": 0.25},"
               " {\"place\": 1, \"sibling\": 0, \"id\": 7, \"text\": \"c\", \"q\": 1.0,"
               " \"untried\": true},"
               " {\"place\": 1, \"sibling\": 2, \"id\": 8, \"text\": \"d\", \"q\": 0.0,"
               " \"p\": 0.5}], \"kept\": 1,"
               " \"time_us\": {\"draft\": 1, \"verify\": 2, \"collective\": 3, \"wire\": 4,"
               " \"total\": 9}, \"lanes\": 2, \"rows\": 6}, \"rejected\": {\"id\": 7, \"text\":"
               " \"c\"}}");
    free(text);
    json_decref(told);

    tokens.round = NULL;
    tokens.rejected_id = -1;
    told = openai_shape_round(&tokens);
    text = json_dumps(told, 0);
    check_json(text, "{\"index\": 1, \"tokens\": [{\"id\": 5, \"origin\": \"accepted\","
                     " \"text_end\": 1}, {\"id\": 6, \"origin\": \"replacement\","
                     " \"text_end\": 3}]}");
    free(text);
    json_decref(told);
}
END_TEST

START_TEST(a_summary_tells_what_speculation_gained)
{
    struct generate_summary summary = {.index = 1,
                                       .finish_reason = "stop",
                                       .rule = "greedy",
                                       .speculation_off = "",
                                       .arithmetic = "cpu-bf16",
                                       .strategy = STRATEGY_FIXED,
                                       .seed = 9,
                                       .counters = {.rounds = 4,
                                                    .drafted = 8,
                                                    .accepted = 3,
                                                    .rejections = 1,
                                                    .tested_at = {3, 1},
                                                    .accepted_at = {3, 0}}};
    json_t *told = openai_shape_summary(&summary);
    ck_assert_str_eq(json_string_value(json_object_get(told, "strategy")), "fixed");
    ck_assert_double_eq(json_real_value(json_object_get(told, "alpha")), 0.75);
    ck_assert_double_eq(json_real_value(json_object_get(told, "mean_n_draft")), 2);
    ck_assert_uint_eq(json_array_size(json_object_get(told, "tested_per_position")), 2);
    ck_assert_uint_eq(json_array_size(json_object_get(told, "accepted_per_position")), 1);
    json_decref(told);

    summary.counters = (struct generate_counters){0};
    told = openai_shape_summary(&summary);
    ck_assert_double_eq(json_real_value(json_object_get(told, "alpha")), 0);
    ck_assert_double_eq(json_real_value(json_object_get(told, "mean_n_draft")), 0);
    json_decref(told);
}
END_TEST

START_TEST(origins_are_words)
{
    static const uint8_t list[] = {TOKEN_BONUS, TOKEN_ACCEPTED, TOKEN_ACCEPTED, TOKEN_REPLACEMENT,
                                   TOKEN_PLAIN};
    json_t *made = openai_shape_origins(list, sizeof list);
    char *dumped = json_dumps(made, 0);
    check_json(dumped, "[\"bonus\", \"accepted\", \"accepted\", \"replacement\", \"plain\"]");
    free(dumped);
    json_decref(made);
    made = openai_shape_origins(NULL, 0);
    ck_assert_uint_eq(json_array_size(made), 0);
    json_decref(made);
}
END_TEST

/* ---- errors ---- */

static void check_error(int code, const char *text, const struct openai_error *more,
                        const char *want)
{
    json_t *made = openai_error_body(code, text, more);
    ck_assert_ptr_nonnull(made);
    char *dumped = json_dumps(made, 0);
    check_json(dumped, want);
    free(dumped);
    json_decref(made);
}

START_TEST(errors_say_field_and_code)
{
    const struct openai_error more = {.param = "n", .code = "c"};
    check_error(ERR_ARGUMENT, "n is 0", &more,
                "{\"error\": {\"message\": \"n is 0\", \"type\": \"invalid_request_error\","
                " \"param\": \"n\", \"code\": \"c\"}}");
    check_error(ERR_IO, "", NULL,
                "{\"error\": {\"message\": \"\", \"type\": \"server_error\", \"param\": null,"
                " \"code\": null}}");
}
END_TEST

/* The message is one of a long key of logit_bias, say. */
START_TEST(a_message_may_be_cut_within_a_character)
{
    check_error(ERR_ARGUMENT, "the key \"a\xc3\"", NULL,
                "{\"error\": {\"message\": \"the key \\\"a?\\\"\", \"type\":"
                " \"invalid_request_error\", \"param\": null, \"code\": null}}");
}
END_TEST

/* Clients shorten a conversation when they see this code. */
START_TEST(a_text_that_is_too_long_has_a_code)
{
    check_error(ERR_TOO_LONG, "long", NULL,
                "{\"error\": {\"message\": \"long\", \"type\": \"invalid_request_error\","
                " \"param\": null, \"code\": \"context_length_exceeded\"}}");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openai shape");
    TCase *tcase = tcase_create("shape");
    tcase_add_checked_fixture(tcase, NULL, teardown);
    tcase_add_test(tcase, the_head_says_what_it_is);
    tcase_add_test(tcase, choices_of_a_completion);
    tcase_add_test(tcase, choices_of_a_chat);
    tcase_add_test(tcase, deltas_of_a_chat);
    tcase_add_test(tcase, a_chunk_is_one_event);
    tcase_add_test(tcase, usage_is_null_until_the_end);
    tcase_add_test(tcase, a_stream_ends_with_done);
    tcase_add_test(tcase, the_chunk_of_the_usage_has_no_choices);
    tcase_add_test(tcase, the_largest_usage_is_whole);
    tcase_add_test(tcase, a_round_tells_origins_and_guesses);
    tcase_add_test(tcase, a_summary_tells_what_speculation_gained);
    tcase_add_test(tcase, origins_are_words);
    tcase_add_test(tcase, errors_say_field_and_code);
    tcase_add_test(tcase, a_message_may_be_cut_within_a_character);
    tcase_add_test(tcase, a_text_that_is_too_long_has_a_code);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
