/* Certificates to gRPC, and what it says of them. */
#include "rpc/tls.h"

#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

enum { WARNING_INTERVAL_MS = 60000 };

static atomic_bool is_server; /* this process has a server with certificates */

/* The first part that is found counts. */
static const struct {
    const char *part, *meaning;
} failures[] = {
    {"peer did not return a certificate", "the other side shows no certificate"},
    {"certificate verify failed",
     "the certificate of the other side is signed by none of our authorities, or out of date"},
    {"is not in peer certificate", "the certificate of the other side is for another name"},
    {"wrong version number", "the other side does not speak TLS"},
    {"http request", "the other side does not speak TLS"},
    {"andshake failed", "the handshake failed"},
};
enum { N_FAILURES = sizeof failures / sizeof *failures };

/* N_FAILURES: the text tells of none. */
static int find_failure(const char *text)
{
    int i = 0;
    while (i < N_FAILURES && !strstr(text, failures[i].part))
        i++;
    return i;
}

const char *rpc_tls_explain(const char *text)
{
    int i = find_failure(text);
    return i < N_FAILURES ? failures[i].meaning : NULL;
}

void rpc_tls_note(const char *line)
{
    static struct {
        atomic_llong next_ms; /* when the next warning may be logged */
        atomic_int n_more;    /* failures since the last one */
    } notes[N_FAILURES];
    int i = find_failure(line);
    if (i == N_FAILURES || !atomic_load(&is_server)) return;
    long long now_ms = clock_now_ms(), due_ms = atomic_load(&notes[i].next_ms);
    if (now_ms < due_ms ||
        !atomic_compare_exchange_strong(&notes[i].next_ms, &due_ms, now_ms + WARNING_INTERVAL_MS)) {
        atomic_fetch_add(&notes[i].n_more, 1);
        return;
    }
    log_line(LOG_LEVEL_WARN, "tls_handshake_failed", "text=\"%s\" not_shown=%d",
             failures[i].meaning, atomic_exchange(&notes[i].n_more, 0));
}

/* gRPC calls this for each connection, one call at a time. */
static grpc_ssl_certificate_config_reload_status fetch(void *state,
                                                       grpc_ssl_server_certificate_config **config)
{
    struct rpc_tls *tls = state;
    struct certificate_texts texts;
    struct error err;
    if (certificates_take(tls->certificates, &tls->version, &texts, &err)) {
        return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
    }
    if (!texts.certificate) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair = {texts.key, texts.certificate};
    /* Without a text here gRPC 1.51 aborts, even where clients are not asked for a certificate. */
    const char *authorities = texts.ca ? texts.ca : texts.certificate;
    *config = grpc_ssl_server_certificate_config_create(authorities, &pair, 1);
    certificate_texts_free(&texts);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

int rpc_tls_open_server(struct rpc_tls *tls, grpc_server_credentials **credentials,
                        struct error *err)
{
    if (!tls->certificates) {
        *credentials = grpc_insecure_server_credentials_create();
    } else {
        bool has_ca = certificates_has_authorities(tls->certificates);
        atomic_store(&is_server, true);
        *credentials = grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                has_ca ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                       : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
                fetch, tls));
    }
    return *credentials ? 0 : error_set(err, ERR_NO_MEMORY, "no memory for TLS");
}

int rpc_tls_open_channel(struct rpc_tls *tls, grpc_channel_credentials **credentials,
                         struct error *err)
{
    struct certificate_texts texts;
    *credentials = NULL;
    if (!tls->certificates) {
        *credentials = grpc_insecure_credentials_create();
        return 0;
    }
    int rc = certificates_take(tls->certificates, &tls->version, &texts, err);
    if (rc) return rc;
    grpc_ssl_pem_key_cert_pair pair = {texts.key, texts.certificate};
    *credentials =
        grpc_ssl_credentials_create_ex(texts.ca, texts.certificate ? &pair : NULL, NULL, NULL);
    certificate_texts_free(&texts);
    return *credentials ? 0 : error_set(err, ERR_NO_MEMORY, "no memory for TLS");
}

/* ---- the peer's names ---- */

static bool has_word(const char *words, const char *word, size_t len)
{
    for (const char *at = words; *at;) {
        size_t n = strcspn(at, ",");
        if ((n == len && memcmp(at, word, len) == 0) || (n == 1 && *at == '*')) return true;
        at += n + (at[n] == ',');
    }
    return false;
}

static bool has_property(grpc_auth_context *context, const char *property, const char *names)
{
    grpc_auth_property_iterator all = grpc_auth_context_find_properties_by_name(context, property);
    bool is_named = false;
    for (const grpc_auth_property *one; (one = grpc_auth_property_iterator_next(&all)) != NULL;) {
        is_named |= has_word(names, one->value, one->value_length);
    }
    return is_named;
}

bool rpc_tls_peer_is(grpc_call *call, const char *names)
{
    grpc_auth_context *context = grpc_call_auth_context(call);
    bool is_named = context && (has_property(context, GRPC_X509_CN_PROPERTY_NAME, names) ||
                                has_property(context, GRPC_X509_SAN_PROPERTY_NAME, names));
    grpc_auth_context_release(context);
    return is_named;
}
