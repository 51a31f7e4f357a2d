/* ctest: labels=quick libs=client timeout=60 */
/* `outrider generate` against servers that do what no coordinator should: a second summary, no end,
 * garbage, a failure in the middle of the text; and where its output goes. */
#include <stdio.h>
#include <unistd.h>

#include "client/client.h"
#include "proto/generation_wire.h"
#include "rpc/health.h"
#include "rpc/server.h"
#include "tests/support/check_util.h"
#include "tests/support/generation_replies.h"

enum scenario {
    GOOD,
    TWO_SUMMARIES,
    NO_SUMMARY,
    GARBAGE,
    FAILS_LATE,
    NOT_SERVING,
    CHOICES,       /* two texts that grow in turn; the second one ends first */
    HALF_CHOICES,  /* the second text alone ends, then the answer does */
    THIRD_CHOICE,  /* of a request for two */
    SECOND_ENDING, /* of one of two texts */
    SCORED         /* the prompt's tokens and those of the text, with log-probabilities */
};

static struct error err;
static struct rpc_server *server;
static FILE *out, *errors;
static char out_path[64], error_path[64];
static char out_text[4096], error_text[4096];

static void send_summary_of(struct rpc_call *call, int index)
{
    const struct generate_summary summary = {.index = index,
                                             .finish_reason = "length",
                                             .stop_match = "",
                                             .rule = "rejection",
                                             .speculation_off = "",
                                             .request_id = "r",
                                             .arithmetic = "a",
                                             .completion_tokens = 2,
                                             .seed = (uint64_t)index};
    send_reply(call, &(struct generate_reply){.summary = &summary});
}

static void send_summary(struct rpc_call *call)
{
    send_summary_of(call, 0);
}

static void send_word(struct rpc_call *call, int index, const char *word)
{
    const int32_t id = 7 + index;
    const enum token_origin origin = TOKEN_PLAIN;
    const uint32_t end = (uint32_t)strlen(word);
    const struct token_alternative top[] = {{id, word, -0.25f}, {9, "other", -1.5f}};
    const struct token_logprob logprob = {-0.25f, 2, top};
    const struct generate_tokens tokens = {.index = index,
                                           .n = 1,
                                           .ids = &id,
                                           .origins = &origin,
                                           .text_ends = &end,
                                           .text = word,
                                           .text_len = strlen(word),
                                           .rejected_id = -1,
                                           .rejected_text = "",
                                           .logprobs = &logprob};
    send_reply(call, &(struct generate_reply){.tokens = &tokens});
}

static void send_echo(struct rpc_call *call)
{
    const struct token_alternative top[] = {{4, "y", -0.5f}};
    const struct score_token tokens[] = {
        {.id = 3, .text = "x"},
        {.id = 4, .text = "y", .has_logprob = true, .logprob = -0.5f, .n_top = 1, .top = top}};
    const struct score_reply echo = {.n = 2, .tokens = tokens};
    send_reply(call, &(struct generate_reply){.echo = &echo});
}

static void send_choices(struct rpc_call *call, enum scenario scenario)
{
    if (scenario == SCORED) send_echo(call);
    send_word(call, 1, "one");
    send_word(call, 0, "zero");
    send_word(call, 1, " more\n");
    if (scenario == THIRD_CHOICE) send_word(call, 2, "two");
    send_summary_of(call, 1);
    if (scenario == SECOND_ENDING) send_summary_of(call, 1);
    send_word(call, 0, " less");
    if (scenario != HALF_CHOICES) send_summary_of(call, 0);
}

static void on_generate(struct rpc_call *call, void *service, const uint8_t *data, size_t len)
{
    enum scenario scenario = *(const enum scenario *)service;
    struct error failure;
    (void)data;
    (void)len;
    if (scenario == NOT_SERVING) {
        rpc_call_finish(call, ERR_UNAVAILABLE, "rank 1 is gone");
        return;
    }
    if (scenario >= CHOICES) {
        send_choices(call, scenario);
        rpc_call_finish(call, 0, "");
        return;
    }
    send_tokens(call);
    if (scenario == GARBAGE) rpc_call_send(call, (const uint8_t *)"\xff\xff", 2, &failure);
    if (scenario == GOOD || scenario == TWO_SUMMARIES) send_summary(call);
    if (scenario == TWO_SUMMARIES) send_summary(call);
    rpc_call_finish(call, scenario == FAILS_LATE ? ERR_INTERNAL : 0,
                    scenario == FAILS_LATE ? "the group broke: rank 1 died" : "");
}

static FILE *capture(FILE *stream, char *path, size_t size)
{
    snprintf(path, size, "/tmp/outrider-client-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    FILE *captured = freopen(path, "w+", stream);
    ck_assert_ptr_nonnull(captured);
    return captured;
}

static void read_back(FILE *stream, const char *path, char *text, size_t size)
{
    fflush(stream);
    rewind(stream);
    text[fread(text, 1, size - 1, stream)] = '\0';
    unlink(path);
}

/* Both streams into one file, as `outrider generate ... >FILE 2>&1` does it. */
static FILE *capture_both(void)
{
    FILE *captured = capture(stdout, out_path, sizeof out_path);
    ck_assert_int_ge(dup2(fileno(stdout), fileno(stderr)), 0);
    return captured;
}

/* Runs `outrider generate x FLAGS` against a server of the scenario; returns the exit status. With
 * in_one_file both streams are in out_text, otherwise error_text has the second. */
static int generate_into(enum scenario scenario, const char *flags, bool in_one_file)
{
    static const struct rpc_method methods[] = {
        {.path = "/outrider.generation.v1.Generation/Generate", .on_message = on_generate}};
    struct rpc_health *health;
    CHECK_OK(rpc_health_open(&health, &err));
    const struct rpc_service services[] = {{.methods = methods, .n_methods = 1, .state = &scenario},
                                           rpc_health_service(health)};
    const struct rpc_server_options options = {
        .address = "127.0.0.1:0", .services = services, .n_services = 2};
    char address[96], words[64], name[] = "outrider generate", prompt[] = "x";
    CHECK_OK(rpc_server_open(&server, &options, &err));
    if (scenario != NOT_SERVING) rpc_health_set(health, "", true);
    snprintf(address, sizeof address, "--address=%s", rpc_server_address(server));
    snprintf(words, sizeof words, "%s", flags);
    char *argv[8] = {name, prompt, address};
    int argc = 3;
    for (char *word = strtok(words, " "); word && argc < 7; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }
    errors = capture(stderr, error_path, sizeof error_path);
    out = in_one_file ? capture_both() : capture(stdout, out_path, sizeof out_path);
    int status = generate_main(argc, argv);
    fflush(errors); /* a stream that was opened again has a buffer, unlike the standard error */
    read_back(out, out_path, out_text, sizeof out_text);
    read_back(errors, error_path, error_text, sizeof error_text);
    rpc_server_close(server, 100);
    rpc_health_close(health);
    return status;
}

static int generate(enum scenario scenario, const char *flags)
{
    return generate_into(scenario, flags, false);
}

START_TEST(generate_good_stream_succeeds)
{
    ck_assert_int_eq(generate(GOOD, "--quiet"), CLIENT_OK);
    ck_assert_str_eq(out_text, "two words");
    ck_assert_str_eq(error_text, "");
}
END_TEST

START_TEST(generate_summary_begins_a_line_where_both_streams_are_one_file)
{
    ck_assert_int_eq(generate_into(GOOD, "--no-echo --stats", true), CLIENT_OK);
    ck_assert_int_eq(strncmp(out_text, "two words\ntokens  ", 18), 0);
    ck_assert_int_eq(generate_into(GOOD, "--show-drafts --stats", true), CLIENT_OK);
    ck_assert_int_eq(strncmp(out_text, "[two ]<words>\ntokens  ", 22), 0);
    ck_assert_int_eq(generate_into(FAILS_LATE, "--quiet", true), CLIENT_FAILED);
    ck_assert_str_eq(out_text, "two words\noutrider: the group broke: rank 1 died\n");
    ck_assert_int_eq(generate_into(GOOD, "--quiet", true), CLIENT_OK);
    ck_assert_str_eq(out_text, "two words"); /* nothing follows */
    ck_assert_int_eq(generate(GOOD, "--no-echo --stats"), CLIENT_OK);
    ck_assert_str_eq(out_text, "two words");
    ck_assert_int_eq(strncmp(error_text, "tokens  ", 8), 0);
}
END_TEST

START_TEST(generate_json_is_one_object)
{
    ck_assert_int_eq(generate(GOOD, "--json"), CLIENT_OK);
    json_t *object = json_loads(out_text, 0, NULL);
    ck_assert_str_eq(json_string_value(json_object_get(object, "text")), "two words");
    ck_assert_int_eq((int)json_array_size(json_object_get(object, "token_ids")), 2);
    ck_assert(json_is_null(json_object_get(object, "alpha")));
    json_decref(object);
}
END_TEST

START_TEST(generate_second_summary_fails_after_one_object)
{
    ck_assert_int_eq(generate(TWO_SUMMARIES, "--json"), CLIENT_FAILED);
    json_t *object = json_loads(out_text, 0, NULL);
    ck_assert_ptr_nonnull(object);
    json_decref(object);
    ck_assert_ptr_nonnull(strstr(error_text, "goes on after the summary"));
}
END_TEST

START_TEST(generate_without_summary_fails_and_keeps_the_text)
{
    ck_assert_int_eq(generate(NO_SUMMARY, "--quiet"), CLIENT_FAILED);
    ck_assert_str_eq(out_text, "two words");
    ck_assert_ptr_nonnull(strstr(error_text, "without a summary"));
}
END_TEST

START_TEST(generate_garbage_names_the_server)
{
    ck_assert_int_eq(generate(GARBAGE, "--quiet"), CLIENT_FAILED);
    ck_assert_ptr_nonnull(strstr(error_text, "does not understand"));
}
END_TEST

START_TEST(generate_late_failure_says_the_servers_words)
{
    ck_assert_int_eq(generate(FAILS_LATE, "--quiet"), CLIENT_FAILED);
    ck_assert_str_eq(out_text, "two words");
    ck_assert_str_eq(error_text, "outrider: the group broke: rank 1 died\n");
}
END_TEST

START_TEST(generate_failure_prints_no_json)
{
    ck_assert_int_eq(generate(FAILS_LATE, "--json"), CLIENT_FAILED);
    ck_assert_str_eq(out_text, "");
}
END_TEST

START_TEST(generate_on_a_server_that_does_not_serve_says_so)
{
    ck_assert_int_eq(generate(NOT_SERVING, "--quiet"), CLIENT_FAILED);
    ck_assert_ptr_nonnull(strstr(error_text, "not serving now"));
    ck_assert_ptr_nonnull(strstr(error_text, "rank 1 is gone"));
}
END_TEST

START_TEST(generate_shows_texts_one_after_the_other)
{
    static const char wanted[] = "--- choice 0 ---\nzero less\n--- choice 1 ---\none more\n";
    ck_assert_int_eq(generate(CHOICES, "--choices=2 --quiet"), CLIENT_OK);
    ck_assert_str_eq(out_text, wanted);
    ck_assert_int_eq(generate(CHOICES, "--choices=2 --stats"), CLIENT_OK);
    ck_assert_str_eq(out_text, wanted);
    const char *first = strstr(error_text, "choice 0\ntokens  ");
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_nonnull(strstr(first, "seed 0"));
    ck_assert_ptr_nonnull(strstr(first, "choice 1\ntokens  "));
}
END_TEST

START_TEST(generate_that_ends_early_shows_all_texts_that_have_begun)
{
    ck_assert_int_eq(generate(HALF_CHOICES, "--choices=2 --quiet"), CLIENT_FAILED);
    ck_assert_str_eq(out_text, "--- choice 0 ---\nzero less\n--- choice 1 ---\none more\n");
    ck_assert_ptr_nonnull(strstr(error_text, "without a summary"));
}
END_TEST

START_TEST(generate_refuses_texts_that_it_did_not_ask_for)
{
    ck_assert_int_eq(generate(THIRD_CHOICE, "--choices=2 --json"), CLIENT_FAILED);
    ck_assert_ptr_nonnull(strstr(error_text, "text 2 of a request for 2"));
    ck_assert_int_eq(generate(CHOICES, "--quiet"), CLIENT_FAILED);
    ck_assert_ptr_nonnull(strstr(error_text, "text 1 of a request for 1"));
    ck_assert_int_eq(generate(SECOND_ENDING, "--choices=2 --json"), CLIENT_FAILED);
    ck_assert_ptr_nonnull(strstr(error_text, "goes on after the summary"));
    ck_assert_str_eq(out_text, "");
}
END_TEST

START_TEST(generate_json_lists_the_choices)
{
    ck_assert_int_eq(generate(SCORED, "--choices=2 --json --logprobs=2 --with-prompt"), CLIENT_OK);
    json_t *object = json_loads(out_text, 0, NULL);
    json_t *choices = json_object_get(object, "choices");
    ck_assert_int_eq((int)json_array_size(choices), 2);
    json_t *choice = json_array_get(choices, 1);
    ck_assert_int_eq((int)json_integer_value(json_object_get(choice, "index")), 1);
    ck_assert_str_eq(json_string_value(json_object_get(choice, "text")), "one more\n");
    ck_assert_str_eq(json_string_value(json_object_get(choice, "seed")), "1");
    json_t *logprobs = json_object_get(choice, "logprobs");
    ck_assert_int_eq((int)json_array_size(logprobs), 2);
    json_t *token = json_array_get(logprobs, 1);
    ck_assert_str_eq(json_string_value(json_object_get(token, "text")), " more\n");
    ck_assert(json_real_value(json_object_get(token, "logprob")) == -0.25);
    ck_assert_int_eq((int)json_array_size(json_object_get(token, "top")), 2);
    json_t *prompt = json_object_get(object, "prompt");
    ck_assert_int_eq((int)json_array_size(prompt), 2);
    ck_assert(json_is_null(json_object_get(json_array_get(prompt, 0), "logprob")));
    json_decref(object);
}
END_TEST

START_TEST(generate_logprobs_are_a_table)
{
    ck_assert_int_eq(generate(SCORED, "--choices=2 --quiet --logprobs=2 --with-prompt"), CLIENT_OK);
    ck_assert_ptr_nonnull(strstr(out_text, "      1       4  \"y\""));
    ck_assert_ptr_nonnull(strstr(out_text, "--- choice 1 ---\n"));
    ck_assert_ptr_nonnull(strstr(out_text, "      3       8  \" more\\n\""));
    ck_assert_ptr_nonnull(strstr(out_text, "  -0.2500  \" more\\n\" -0.2500  \"other\" -1.5000\n"));
    ck_assert_ptr_null(strstr(out_text, "zero less"));
}
END_TEST

START_TEST(generate_with_prompt_begins_with_it)
{
    ck_assert_int_eq(generate(GOOD, "--quiet --with-prompt"), CLIENT_OK);
    ck_assert_str_eq(out_text, "xtwo words");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_server");
    TCase *tests = tcase_create("generate");
    tcase_add_test(tests, generate_good_stream_succeeds);
    tcase_add_test(tests, generate_summary_begins_a_line_where_both_streams_are_one_file);
    tcase_add_test(tests, generate_json_is_one_object);
    tcase_add_test(tests, generate_second_summary_fails_after_one_object);
    tcase_add_test(tests, generate_without_summary_fails_and_keeps_the_text);
    tcase_add_test(tests, generate_garbage_names_the_server);
    tcase_add_test(tests, generate_late_failure_says_the_servers_words);
    tcase_add_test(tests, generate_failure_prints_no_json);
    tcase_add_test(tests, generate_on_a_server_that_does_not_serve_says_so);
    tcase_add_test(tests, generate_shows_texts_one_after_the_other);
    tcase_add_test(tests, generate_that_ends_early_shows_all_texts_that_have_begun);
    tcase_add_test(tests, generate_refuses_texts_that_it_did_not_ask_for);
    tcase_add_test(tests, generate_json_lists_the_choices);
    tcase_add_test(tests, generate_logprobs_are_a_table);
    tcase_add_test(tests, generate_with_prompt_begins_with_it);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
