/* ctest: labels=quick libs=rpc timeout=60 */
/* TLS between server and client of rpc/: who is let in, who is not and what each is told, and
 * certificates that are renewed. */
#include "access/certificates.h"
#include "tests/support/certificate_maker.h"
#include "tests/support/rpc_fixture.h"

static const char localhost[] = "IP:127.0.0.1,DNS:localhost";

static struct made authority, stranger; /* a stranger's authority */
static struct certificates *client_certificates;

/* The files NAME.certificate and NAME.key, signed by an authority. */
static void make_pair(const char *name, const char *names, const struct made *by)
{
    char file[64];
    struct made made = make_certificate(names, by, -HOUR_S, HOUR_S);
    snprintf(file, sizeof file, "%s.certificate", name);
    made_write_certificate(&made, file);
    snprintf(file, sizeof file, "%s.key", name);
    made_write_key(&made, file, NULL);
    made_free(&made);
}

/* name NULL: authorities alone. */
static struct certificates *open_certificates(const char *name, const char *ca)
{
    char certificate[64], key[64];
    struct certificates *opened;
    snprintf(certificate, sizeof certificate, "%s.certificate", name ? name : "");
    snprintf(key, sizeof key, "%s.key", name ? name : "");
    const struct certificate_files files = {.certificate = name ? made_path(certificate) : NULL,
                                            .key = name ? made_path(key) : NULL,
                                            .ca = ca ? made_path(ca) : NULL};
    CHECK_OK(certificates_open(&opened, &files, &err));
    return opened;
}

static void setup(void)
{
    made_open_folder();
    authority = make_certificate(NULL, NULL, -HOUR_S, HOUR_S);
    stranger = make_certificate(NULL, NULL, -HOUR_S, HOUR_S);
    made_write_certificate(&authority, "ca");
    made_write_certificate(&stranger, "stranger");
    make_pair("server", localhost, &authority);
    make_pair("client", "DNS:client", &authority);
    make_pair("rogue", "DNS:client", &stranger);
}

static void teardown(void)
{
    char command[MADE_PATH_BYTES + 16];
    made_free(&authority);
    made_free(&stranger);
    snprintf(command, sizeof command, "rm -r %s", made_folder);
    ck_assert_int_eq(system(command), 0);
}

static void open_tls_client(struct certificates *certificates, const char *server_name)
{
    const struct rpc_client_options options = {.certificates = certificates,
                                               .server_name = server_name};
    rpc_client_close(client);
    certificates_close(client_certificates);
    client_certificates = certificates;
    CHECK_OK(rpc_client_open(&client, &options, &err));
}

static void open_tls_server(struct certificates *certificates)
{
    server_certificates = certificates;
    CHECK_OK(open_server("127.0.0.1:0"));
    address = rpc_server_address(server);
}

static void close_all(void)
{
    close_both();
    certificates_close(client_certificates);
    certificates_close(server_certificates);
}

static int call_echo(void)
{
    struct buffer reply = {0};
    int rc = call_method("/test.Test/Echo", "hello", 5, 5000, &reply);
    buffer_free(&reply);
    return rc;
}

START_TEST(client_that_trusts_the_authority_is_served)
{
    open_tls_server(open_certificates("server", NULL));
    open_tls_client(open_certificates(NULL, "ca"), NULL);
    check_echo();
    close_all();
}
END_TEST

START_TEST(server_of_another_authority_is_refused_by_the_client)
{
    open_tls_server(open_certificates("server", NULL));
    open_tls_client(open_certificates(NULL, "stranger"), NULL);
    CHECK_ERR(call_echo(), ERR_UNAUTHENTICATED, "is signed by none of our authorities");
    close_all();
}
END_TEST

START_TEST(server_of_another_name_is_refused_unless_that_is_given)
{
    make_pair("server", "DNS:worker-0", &authority);
    open_tls_server(open_certificates("server", NULL));
    open_tls_client(open_certificates(NULL, "ca"), NULL);
    CHECK_ERR(call_echo(), ERR_UNAUTHENTICATED, "is for another name");
    open_tls_client(open_certificates(NULL, "ca"), "worker-0");
    check_echo();
    open_tls_client(open_certificates(NULL, "ca"), "worker-1");
    CHECK_ERR(call_echo(), ERR_UNAUTHENTICATED, "is for another name");
    close_all();
}
END_TEST

START_TEST(server_with_authorities_serves_only_clients_that_they_signed)
{
    open_tls_server(open_certificates("server", "ca"));
    open_tls_client(open_certificates("client", "ca"), NULL);
    check_echo();
    open_tls_client(open_certificates(NULL, "ca"), NULL);
    CHECK_ERR(call_echo(), ERR_UNAVAILABLE, "it may want another certificate of ours");
    open_tls_client(open_certificates("rogue", "ca"), NULL);
    CHECK_ERR(call_echo(), ERR_UNAVAILABLE, "it may want another certificate of ours");
    close_all();
}
END_TEST

START_TEST(plain_client_of_a_tls_server_is_told_so)
{
    open_tls_server(open_certificates("server", NULL));
    CHECK_OK(rpc_client_open(&client, NULL, &err));
    CHECK_ERR(call_echo(), ERR_UNAVAILABLE, "it may want TLS");
    close_all();
}
END_TEST

START_TEST(tls_client_of_a_plain_server_is_told_so)
{
    open_tls_server(NULL);
    open_tls_client(open_certificates(NULL, "ca"), NULL);
    CHECK_ERR(call_echo(), ERR_UNAUTHENTICATED, "does not speak TLS");
    close_all();
}
END_TEST

START_TEST(unix_socket_is_plain_whatever_certificates_there_are)
{
    snprintf(unix_address, sizeof unix_address, "unix:%.40s/socket", made_folder);
    server_certificates = open_certificates("server", "ca");
    CHECK_OK(open_server(unix_address));
    address = rpc_server_address(server);
    CHECK_OK(rpc_client_open(&client, NULL, &err));
    check_echo();
    open_tls_client(open_certificates(NULL, "stranger"), NULL);
    check_echo();
    close_all();
}
END_TEST

static void ping(struct rpc_stream *stream)
{
    const uint8_t *data;
    size_t len;
    CHECK_OK(rpc_stream_ask(stream, (const uint8_t *)"x", 1, in_ms(5000), &err));
    CHECK_OK(rpc_stream_receive(stream, &data, &len, in_ms(5000), &err));
}

/* New connections see the new certificate, and the stream that there was goes on. */
START_TEST(renewed_server_certificate_serves_new_connections_and_keeps_old_ones)
{
    struct rpc_client *old;
    open_tls_server(open_certificates("server", NULL));
    open_tls_client(open_certificates(NULL, "ca"), NULL);
    struct rpc_stream *stream = open_stream("/test.Test/Ping", 0);
    ping(stream);
    make_pair("server", localhost, &stranger);
    old = client;
    struct certificates *old_certificates = client_certificates;
    client = NULL, client_certificates = NULL;
    open_tls_client(open_certificates(NULL, "ca"), NULL);
    CHECK_ERR(call_echo(), ERR_UNAUTHENTICATED, "none of our authorities");
    open_tls_client(open_certificates(NULL, "stranger"), NULL);
    check_echo();
    ping(stream);
    rpc_stream_close(stream);
    rpc_client_close(old);
    certificates_close(old_certificates);
    close_all();
}
END_TEST

/* A key that does not fit is not used, and nobody is turned away because of it. */
START_TEST(bad_renewal_leaves_the_server_as_it_was)
{
    open_tls_server(open_certificates("server", NULL));
    made_write_text("nonsense", "server.key");
    for (int i = 0; i < 3; i++) {
        open_tls_client(open_certificates(NULL, "ca"), NULL);
        check_echo();
    }
    close_all();
}
END_TEST

/* The one client object is kept: its next connection has the new certificate. */
START_TEST(renewed_client_certificate_is_used_when_it_connects_again)
{
    open_tls_server(open_certificates("server", "ca"));
    open_tls_client(open_certificates("rogue", "ca"), NULL);
    CHECK_ERR(call_echo(), ERR_UNAVAILABLE, "another certificate");
    make_pair("rogue", "DNS:client", &authority);
    check_echo();
    close_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_tls");
    TCase *tls = tcase_create("tls");
    tcase_add_checked_fixture(tls, setup, teardown);
    tcase_add_test(tls, client_that_trusts_the_authority_is_served);
    tcase_add_test(tls, server_of_another_authority_is_refused_by_the_client);
    tcase_add_test(tls, server_of_another_name_is_refused_unless_that_is_given);
    tcase_add_test(tls, server_with_authorities_serves_only_clients_that_they_signed);
    tcase_add_test(tls, plain_client_of_a_tls_server_is_told_so);
    tcase_add_test(tls, tls_client_of_a_plain_server_is_told_so);
    tcase_add_test(tls, unix_socket_is_plain_whatever_certificates_there_are);
    tcase_add_test(tls, renewed_server_certificate_serves_new_connections_and_keeps_old_ones);
    tcase_add_test(tls, bad_renewal_leaves_the_server_as_it_was);
    tcase_add_test(tls, renewed_client_certificate_is_used_when_it_connects_again);
    suite_add_tcase(suite, tls);
    return check_main(suite);
}
