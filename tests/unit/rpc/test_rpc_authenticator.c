/* ctest: labels=quick,threads libs=rpc timeout=60 */
/* A server that asks its authenticator about every call: what that sees, what a refusal looks like,
 * and how long a caller is held. */
#include "rpc/health_wire.h"
#include "tests/support/rpc_fixture.h"

static char seen[64]; /* the last authorization; "-" = there was none */
static atomic_int n_asked, n_released;

static int admit(void *state, const char *authorization, size_t len, void **caller,
                 struct error *why)
{
    (void)state;
    atomic_fetch_add(&n_asked, 1);
    snprintf(seen, sizeof seen, "%.*s", authorization ? (int)len : 1,
             authorization ? authorization : "-");
    if (strcmp(seen, "Bearer key") != 0) {
        return error_set(why, ERR_UNAUTHENTICATED, "who are you?");
    }
    *caller = seen;
    return 0;
}

static void release(void *caller)
{
    ck_assert_ptr_eq(caller, seen);
    atomic_fetch_add(&n_released, 1);
}

/* Answers only to a caller that the authenticator has named. */
static void open_guarded(void)
{
    server_authenticator = (struct rpc_authenticator){.admit = admit, .release = release};
    CHECK_OK(open_server("127.0.0.1:0"));
    address = rpc_server_address(server);
}

static void open_client(const char *key)
{
    const struct rpc_client_options options = {.api_key = key};
    rpc_client_close(client);
    CHECK_OK(rpc_client_open(&client, &options, &err));
}

START_TEST(key_of_a_client_comes_with_every_call)
{
    open_guarded();
    open_client("key");
    check_echo();
    ck_assert_str_eq(seen, "Bearer key");
    check_echo();
    ck_assert_int_eq(n_asked, 2);
    close_both();
    ck_assert_int_eq(n_released, 2);
}
END_TEST

START_TEST(refused_call_reaches_no_handler)
{
    struct buffer reply = {0};
    open_guarded();
    open_client("wrong");
    CHECK_ERR(call_method("/test.Test/Echo", "x", 1, 5000, &reply), ERR_UNAUTHENTICATED, "who are");
    CHECK_ERR(call_method("/test.Test/Flood", "x", 1, 5000, &reply), ERR_UNAUTHENTICATED, "who");
    ck_assert_str_eq(seen, "Bearer wrong");
    open_client(NULL);
    CHECK_ERR(call_method("/test.Test/Echo", "x", 1, 5000, &reply), ERR_UNAUTHENTICATED, "who are");
    ck_assert_str_eq(seen, "-");
    ck_assert_int_eq(service.n_done, 0);
    close_both();
    ck_assert_int_eq(n_released, 0);
}
END_TEST

START_TEST(method_that_is_not_there_is_denied_to_strangers_too)
{
    struct buffer reply = {0};
    open_guarded();
    open_client(NULL);
    CHECK_ERR(call_method("/no.Such/Method", "", 0, 5000, &reply), ERR_UNAUTHENTICATED, "who are");
    open_client("key");
    CHECK_ERR(call_method("/no.Such/Method", "", 0, 5000, &reply), ERR_UNSUPPORTED, "no method");
    close_both();
    ck_assert_int_eq(n_released, 1);
}
END_TEST

START_TEST(a_public_service_needs_no_key)
{
    struct buffer request = {0}, reply = {0};
    open_guarded();
    open_client(NULL);
    CHECK_OK(health_request_encode(&request, "", &err));
    CHECK_OK(call_method("/grpc.health.v1.Health/Check", request.data, request.len, 5000, &reply));
    ck_assert_int_eq(n_asked, 0);
    buffer_free(&request);
    buffer_free(&reply);
    close_both();
}
END_TEST

START_TEST(stream_holds_its_caller_until_it_is_over)
{
    const uint8_t *data;
    size_t len;
    open_guarded();
    open_client("key");
    struct rpc_stream *stream = open_stream("/test.Test/Ping", 0);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(rpc_stream_ask(stream, (const uint8_t *)"x", 1, in_ms(5000), &err));
        CHECK_OK(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err));
    }
    ck_assert_int_eq(n_asked, 1);
    ck_assert_int_eq(n_released, 0);
    rpc_stream_close(stream);
    wait_until(&n_released, 1);
    close_both();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_authenticator");
    TCase *calls = tcase_create("calls");
    tcase_add_test(calls, key_of_a_client_comes_with_every_call);
    tcase_add_test(calls, refused_call_reaches_no_handler);
    tcase_add_test(calls, method_that_is_not_there_is_denied_to_strangers_too);
    tcase_add_test(calls, a_public_service_needs_no_key);
    tcase_add_test(calls, stream_holds_its_caller_until_it_is_over);
    suite_add_tcase(suite, calls);
    return check_main(suite);
}
