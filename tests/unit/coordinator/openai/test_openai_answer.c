/* ctest: labels=quick libs=coordinator timeout=60 */
/* Whole answers, from messages of the engine to what a client reads from its socket. The server is
 * the real one; this thread is the engine. */
#include "coordinator/openai/answer.h"

#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/server.h"
#include "tests/support/openai_requests.h"
#include "tests/support/sleep_util.h"

enum { GRACE_MS = 5000, ANSWER_BYTES = 1 << 16, N_VOCAB = 300 };

static struct http_server *server;
static struct tokenizer *tok;
static struct http_exchange *asked; /* by the client */
static sem_t is_asked;
static struct openai_answer *answer;
static int client;
static char read_text[ANSWER_BYTES];
static json_t *event;

static void take(struct http_exchange *x, void *state)
{
    (void)state;
    http_exchange_ref(x);
    asked = x;
    sem_post(&is_asked);
}

static void open_world(void)
{
    const struct http_server_options options = {.address = "127.0.0.1:0",
                                                .handler = take,
                                                .max_body_bytes = 1 << 16,
                                                .max_connections = 4,
                                                .request_timeout_s = 10};
    setup();
    sem_init(&is_asked, 0, 0);
    CHECK_OK(tokenizer_open_bytes(&tok, N_VOCAB, &err));
    CHECK_OK(http_server_open(&server, &options, &err));
}

static void close_world(void)
{
    close(client);
    http_server_close(server, GRACE_MS);
    tokenizer_close(tok);
    json_decref(event);
    event = NULL;
    sem_destroy(&is_asked);
    teardown();
}

/* HTTP 1.0 has no chunks of its own: what is read is what was written. */
static void ask(void)
{
    static const char text[] = "POST / HTTP/1.0\r\nContent-Length: 0\r\n\r\n";
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    at.sin_port = htons((uint16_t)atoi(strrchr(http_server_address(server), ':') + 1));
    client = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(client, (const struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(write(client, text, strlen(text)), (ssize_t)strlen(text));
    sem_wait(&is_asked);
}

/* The answer to a request with this body, of n_jobs jobs. */
static void begin(enum openai_kind kind, const char *text, int n_jobs)
{
    const struct openai_names names = {.id = "id-1", .name = "id-1"};
    const struct served_model_info model = {.name = "target", .fingerprint = "f"};
    CHECK_OK(read_body(kind, text));
    ask();
    CHECK_OK(openai_answer_open(&answer, asked, &names, tok, &err));
    http_exchange_unref(asked);
    CHECK_OK(openai_answer_expect(answer, &request, n_jobs, &model, &budget, &err));
}

/* ---- what the engine says ---- */

static int send_reply(int job, const struct generate_reply *reply)
{
    struct response_stream *stream = openai_answer_stream(answer, job);
    return stream->ops->send(stream, &(struct answer_message){.reply = reply}, NULL, &err);
}

/* Tokens of bytes, which become complete as `text`. */
static int say(int job, int index, const char *bytes, const char *text)
{
    enum { MOST = 8 };
    int32_t ids[MOST];
    enum token_origin origins[MOST] = {TOKEN_PLAIN};
    uint32_t ends[MOST];
    struct token_logprob logprobs[MOST];
    int n = (int)strlen(bytes);
    for (int i = 0; i < n; i++) {
        ids[i] = (unsigned char)bytes[i];
        ends[i] = i + 1 == n ? (uint32_t)strlen(text) : 0;
        logprobs[i] = (struct token_logprob){.logprob = -1};
    }
    const struct generate_tokens tokens = {.index = index,
                                           .n = n,
                                           .ids = ids,
                                           .origins = origins,
                                           .text_ends = ends,
                                           .text = text,
                                           .text_len = strlen(text),
                                           .rejected_id = -1,
                                           .rejected_text = "",
                                           .logprobs =
                                               request.generate.logprobs >= 0 ? logprobs : NULL};
    return send_reply(job, &(struct generate_reply){.tokens = &tokens});
}

static void sum_up(int job, int index, const char *finish_reason)
{
    static const int32_t prompt_ids[] = {1, 2, 3};
    const struct generate_summary summary = {
        .index = index,
        .finish_reason = finish_reason,
        .stop_match = "",
        .rule = "greedy",
        .speculation_off = "",
        .request_id = "",
        .arithmetic = "",
        .prompt_tokens = 3,
        .completion_tokens = 2,
        .prompt_ids = prompt_ids,
        .counters = {.drafted = 5, .tested_at = {5}, .accepted = 4, .target_reused = 2}};
    CHECK_OK(send_reply(job, &(struct generate_reply){.summary = &summary}));
}

static void finish(int job, int code, const char *text)
{
    struct response_stream *stream = openai_answer_stream(answer, job);
    stream->ops->finish(stream, code, text, false);
}

/* ---- what the client reads ---- */

/* All of it; returns what follows the headers. */
static const char *read_answer(const char *status, const char *type)
{
    char want[64];
    size_t len = 0;
    ssize_t n;
    response_stream_unref(openai_answer_whole(answer));
    while ((n = read(client, read_text + len, sizeof read_text - 1 - len)) > 0) {
        len += (size_t)n;
    }
    read_text[len] = '\0';
    snprintf(want, sizeof want, "HTTP/1.1 %s", status);
    ck_assert_msg(strncmp(read_text, want, strlen(want)) == 0, "%s", read_text);
    snprintf(want, sizeof want, "Content-Type: %s", type);
    ck_assert_msg(strstr(read_text, want) != NULL, "%s", read_text);
    return strstr(read_text, "\r\n\r\n") + 4;
}

static json_t *parse_event(const char *text, size_t len)
{
    json_decref(event);
    event = json_loadb(text, len, 0, NULL);
    ck_assert_msg(event != NULL, "no JSON: %s", text);
    return event;
}

/* The next event of a stream. */
static json_t *next_event(const char **at)
{
    const char *begins = *at, *ends = strstr(begins, "\n\n");
    ck_assert_msg(strncmp(begins, "data: ", 6) == 0 && ends, "no event: %s", begins);
    *at = ends + 2;
    return parse_event(begins + 6, (size_t)(ends - begins - 6));
}

/* The events' only choice is this one: its text, or content, and how it ends. */
static void check_choice(const json_t *chunk, int index, const char *text, const char *reason)
{
    const json_t *choices = json_object_get(chunk, "choices");
    ck_assert_uint_eq(json_array_size(choices), 1);
    const json_t *choice = json_array_get(choices, 0), *said = json_object_get(choice, "text");
    if (!said) said = json_object_get(json_object_get(choice, "delta"), "content");
    ck_assert_int_eq(json_integer_value(json_object_get(choice, "index")), index);
    ck_assert_str_eq(said ? json_string_value(said) : "", text);
    const json_t *ends = json_object_get(choice, "finish_reason");
    if (reason)
        ck_assert_str_eq(json_string_value(ends), reason);
    else
        ck_assert(json_is_null(ends));
}

START_TEST(a_whole_completion)
{
    begin(OPENAI_COMPLETION, "{\"prompt\": \"x\", \"n\": 2, \"logprobs\": 0}", 1);
    CHECK_OK(say(0, 1, "b", "b"));
    CHECK_OK(say(0, 0, "a\xc3", "a"));
    CHECK_OK(say(0, 0, "\xa9", "\xc3\xa9"));
    sum_up(0, 1, "length");
    sum_up(0, 0, "stop");
    finish(0, 0, "");
    const char *body_text = read_answer("200", "application/json");
    const json_t *whole = parse_event(body_text, strlen(body_text));
    ck_assert_str_eq(json_string_value(json_object_get(whole, "object")), "text_completion");
    ck_assert_ptr_null(json_object_get(whole, "outrider"));
    const json_t *choices = json_object_get(whole, "choices");
    ck_assert_uint_eq(json_array_size(choices), 2);
    const json_t *first = json_array_get(choices, 0);
    ck_assert_str_eq(json_string_value(json_object_get(first, "text")), "a\xc3\xa9");
    ck_assert_str_eq(json_string_value(json_object_get(first, "finish_reason")), "stop");
    const json_t *lists = json_object_get(first, "logprobs");
    ck_assert_uint_eq(json_array_size(json_object_get(lists, "tokens")), 3);
    const json_t *usage = json_object_get(whole, "usage");
    ck_assert_int_eq(json_integer_value(json_object_get(usage, "prompt_tokens")), 3);
    ck_assert_int_eq(json_integer_value(json_object_get(usage, "completion_tokens")), 4);
    ck_assert_int_eq(json_integer_value(json_object_get(usage, "total_tokens")), 7);
}
END_TEST

START_TEST(a_streamed_chat)
{
    begin(OPENAI_CHAT,
          "{\"messages\": [{\"role\": \"user\"}], \"stream\": true, \"logprobs\": true,"
          " \"stream_options\": {\"include_usage\": true}}",
          1);
    CHECK_OK(say(0, 0, "a", "a"));
    CHECK_OK(say(0, 0, "\xc3", "")); /* nothing to show yet */
    CHECK_OK(say(0, 0, "\xa9", "\xc3\xa9"));
    sum_up(0, 0, "stop");
    finish(0, 0, "");
    const char *at = read_answer("200", "text/event-stream; charset=utf-8");
    const json_t *chunk = next_event(&at);
    check_choice(chunk, 0, "a", NULL);
    ck_assert(json_is_null(json_object_get(chunk, "usage")));
    chunk = next_event(&at);
    check_choice(chunk, 0, "\xc3\xa9", NULL);
    const json_t *choice = json_array_get(json_object_get(chunk, "choices"), 0);
    const json_t *logprobs = json_object_get(choice, "logprobs");
    ck_assert_uint_eq(json_array_size(json_object_get(logprobs, "content")), 2);
    check_choice(next_event(&at), 0, "", "stop");
    chunk = next_event(&at);
    ck_assert_uint_eq(json_array_size(json_object_get(chunk, "choices")), 0);
    const json_t *usage = json_object_get(chunk, "usage");
    ck_assert_int_eq(json_integer_value(json_object_get(usage, "total_tokens")), 5);
    const json_t *details = json_object_get(usage, "completion_tokens_details");
    ck_assert_int_eq(json_integer_value(json_object_get(details, "accepted_prediction_tokens")), 4);
    ck_assert_int_eq(json_integer_value(json_object_get(details, "rejected_prediction_tokens")), 1);
    details = json_object_get(usage, "prompt_tokens_details");
    ck_assert_int_eq(json_integer_value(json_object_get(details, "cached_tokens")), 2);
    ck_assert_str_eq(at, "data: [DONE]\n\n");
}
END_TEST

/* Texts of several jobs have indices of one list. */
START_TEST(streams_of_several_prompts)
{
    begin(OPENAI_COMPLETION, "{\"prompt\": [\"x\", \"y\"], \"n\": 2, \"stream\": true}", 2);
    CHECK_OK(say(1, 1, "d", "d"));
    CHECK_OK(say(0, 1, "b", "b"));
    for (int i = 0; i < 4; i++) {
        sum_up(i / 2, i % 2, "length");
    }
    finish(1, 0, "");
    finish(0, 0, "");
    const char *at = read_answer("200", "text/event-stream; charset=utf-8");
    check_choice(next_event(&at), 3, "d", NULL);
    check_choice(next_event(&at), 1, "b", NULL);
    for (int i = 0; i < 4; i++) {
        check_choice(next_event(&at), i, "", "length");
    }
    ck_assert_str_eq(at, "data: [DONE]\n\n");
}
END_TEST

/* The prompt's tokens come back with the text, and nothing is made. */
START_TEST(scores_alone)
{
    static const struct score_token tokens[] = {
        {.id = 'h', .text = "h"}, {.id = 'i', .text = "i", .has_logprob = true, .logprob = -2}};
    const struct score_reply scores = {.n = 2, .tokens = tokens};
    begin(OPENAI_COMPLETION,
          "{\"prompt\": \"hi\", \"max_tokens\": 0, \"echo\": true, \"logprobs\": 0}", 1);
    struct response_stream *stream = openai_answer_stream(answer, 0);
    const struct openai_echo echo = {.text = "hi", .len = 2, .special_end = 2};
    CHECK_OK(openai_answer_set_echo(answer, 0, &echo, &err));
    const struct answer_message message = {.scores = &scores};
    CHECK_OK(stream->ops->send(stream, &message, NULL, &err));
    finish(0, 0, "");
    const char *body_text = read_answer("200", "application/json");
    const json_t *whole = parse_event(body_text, strlen(body_text));
    check_choice(whole, 0, "hi", "length");
    const json_t *choice = json_array_get(json_object_get(whole, "choices"), 0);
    const json_t *logprobs = json_object_get(json_object_get(choice, "logprobs"), "token_logprobs");
    ck_assert(json_is_null(json_array_get(logprobs, 0)));
    ck_assert_double_eq(json_real_value(json_array_get(logprobs, 1)), -2);
    const json_t *usage = json_object_get(whole, "usage");
    ck_assert_int_eq(json_integer_value(json_object_get(usage, "completion_tokens")), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(usage, "prompt_tokens")), 2);
}
END_TEST

START_TEST(outrider_is_told_when_it_is_asked_for)
{
    begin(OPENAI_COMPLETION, "{\"prompt\": \"x\", \"stream\": true, \"outrider\": {}}", 1);
    CHECK_OK(say(0, 0, "\xc3", "")); /* a round without a text is told, too */
    sum_up(0, 0, "stop");
    finish(0, 0, "");
    const char *at = read_answer("200", "text/event-stream; charset=utf-8");
    const json_t *told = json_object_get(next_event(&at), "outrider");
    ck_assert_uint_eq(json_array_size(json_object_get(told, "tokens")), 1);
    told = json_object_get(next_event(&at), "outrider");
    ck_assert_str_eq(json_string_value(json_object_get(told, "rule")), "greedy");
    ck_assert_str_eq(at, "data: [DONE]\n\n");
}
END_TEST

START_TEST(a_whole_answer_tells_the_origin_of_each_token)
{
    begin(OPENAI_COMPLETION, "{\"prompt\": \"x\", \"n\": 2, \"outrider\": {}}", 1);
    CHECK_OK(say(0, 0, "ab", "ab"));
    CHECK_OK(say(0, 1, "z", "z"));
    CHECK_OK(say(0, 0, "\xc3", "")); /* without a text */
    sum_up(0, 0, "length");
    sum_up(0, 1, "length");
    finish(0, 0, "");
    const char *whole = read_answer("200", "application/json");
    const json_t *told = json_object_get(parse_event(whole, strlen(whole)), "outrider");
    const json_t *first = json_object_get(json_array_get(told, 0), "origins");
    const json_t *second = json_object_get(json_array_get(told, 1), "origins");
    ck_assert_uint_eq(json_array_size(first), 3);
    ck_assert_str_eq(json_string_value(json_array_get(first, 2)), "plain");
    ck_assert_uint_eq(json_array_size(second), 1);
}
END_TEST

/* ---- ends that are not good ---- */

static void check_error(const char *text, size_t len, const char *type, const char *words)
{
    const json_t *error = json_object_get(parse_event(text, len), "error");
    ck_assert_str_eq(json_string_value(json_object_get(error, "type")), type);
    ck_assert_str_eq(json_string_value(json_object_get(error, "message")), words);
}

/* Also of a stream, until its first chunk has left. */
START_TEST(a_refusal_has_a_status)
{
    begin(OPENAI_COMPLETION, "{\"prompt\": [\"x\", \"y\"], \"stream\": true}", 2);
    ck_assert(!openai_answer_stream(answer, 1)->ops->is_cancelled(openai_answer_stream(answer, 1)));
    finish(0, ERR_EXHAUSTED, "the queue is full");
    ck_assert(openai_answer_stream(answer, 1)->ops->is_cancelled(openai_answer_stream(answer, 1)));
    ck_assert_int_eq(say(1, 0, "a", "a"), ERR_CANCELLED);
    finish(1, 0, "");
    const char *text = read_answer("429", "application/json");
    ck_assert_ptr_nonnull(strstr(read_text, "Retry-After: 1"));
    check_error(text, strlen(text), "rate_limit_error", "the queue is full");
}
END_TEST

static const struct {
    int code;
    const char *status, *type;
} statuses[] = {{ERR_ARGUMENT, "400", "invalid_request_error"},
                {ERR_TOO_LONG, "400", "invalid_request_error"},
                {ERR_FORMAT, "400", "invalid_request_error"},
                {ERR_UNSUPPORTED, "400", "invalid_request_error"},
                {ERR_UNAUTHENTICATED, "401", "authentication_error"},
                {ERR_NOT_FOUND, "404", "not_found_error"},
                {ERR_EXHAUSTED, "429", "rate_limit_error"},
                {ERR_UNAVAILABLE, "503", "service_unavailable_error"},
                {ERR_CLOSED, "503", "service_unavailable_error"},
                {ERR_TIMEOUT, "504", "server_error"},
                {ERR_IO, "500", "server_error"},
                {ERR_NO_MEMORY, "500", "server_error"}};

START_TEST(each_code_has_a_status)
{
    begin(OPENAI_COMPLETION, "{\"prompt\": \"x\"}", 1);
    finish(0, statuses[_i].code, "why");
    const char *text = read_answer(statuses[_i].status, "application/json");
    check_error(text, strlen(text), statuses[_i].type, "why");
}
END_TEST

START_TEST(a_stream_that_fails_ends_with_the_error)
{
    begin(OPENAI_CHAT, "{\"messages\": [{\"role\": \"user\"}], \"stream\": true}", 1);
    CHECK_OK(say(0, 0, "a", "a"));
    finish(0, ERR_UNAVAILABLE, "the group is lost");
    finish(0, ERR_IO, "only the first end counts");
    const char *at = read_answer("200", "text/event-stream; charset=utf-8");
    check_choice(next_event(&at), 0, "a", NULL);
    ck_assert_mem_eq(at, "data: ", 6);
    check_error(at + 6, strlen(at + 6), "service_unavailable_error", "the group is lost");
    ck_assert_ptr_null(strstr(at, "[DONE]"));
}
END_TEST

START_TEST(a_client_that_leaves_cancels_its_jobs)
{
    begin(OPENAI_CHAT, "{\"messages\": [{\"role\": \"user\"}], \"stream\": true}", 1);
    struct response_stream *stream = openai_answer_stream(answer, 0);
    CHECK_OK(say(0, 0, "a", "a"));
    close(client);
    for (int i = 0; i < 500 && !stream->ops->is_cancelled(stream); i++) {
        sleep_ms(10);
    }
    ck_assert(stream->ops->is_cancelled(stream));
    finish(0, ERR_CANCELLED, "the client has left");
    response_stream_unref(openai_answer_whole(answer));
    client = -1;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openai answer");
    TCase *tcase = tcase_create("answer");
    tcase_add_checked_fixture(tcase, open_world, close_world);
    tcase_add_test(tcase, a_whole_completion);
    tcase_add_test(tcase, a_streamed_chat);
    tcase_add_test(tcase, streams_of_several_prompts);
    tcase_add_test(tcase, scores_alone);
    tcase_add_test(tcase, outrider_is_told_when_it_is_asked_for);
    tcase_add_test(tcase, a_whole_answer_tells_the_origin_of_each_token);
    tcase_add_test(tcase, a_refusal_has_a_status);
    tcase_add_loop_test(tcase, each_code_has_a_status, 0, COUNT(statuses));
    tcase_add_test(tcase, a_stream_that_fails_ends_with_the_error);
    tcase_add_test(tcase, a_client_that_leaves_cancels_its_jobs);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
