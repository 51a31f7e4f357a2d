/* The certificate of the server, and those of its clients, by GnuTLS, which libmicrohttpd uses.
 *
 * GnuTLS asks for the certificate in each handshake and is given nothing of ours with the question,
 * so what is served is one per process. All handshakes are on the network thread. A certificate
 * that was replaced stays until the server closes, because a handshake may still be using it. */
#include <gnutls/abstract.h>
#include <gnutls/x509.h>
#include <stdlib.h>
#include <string.h>

#include "access/certificates.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "http/internal.h"

enum { CHAIN_MAX = 16, WARNING_INTERVAL_MS = 60000 };

struct http_certificate {
    struct http_certificate *older;
    gnutls_pcert_st chain[CHAIN_MAX];
    unsigned n_chain;
    gnutls_privkey_t key;
};

static struct {
    struct certificates *certificates;
    uint64_t version;
    struct http_certificate *newest;      /* its list goes to older ones */
    gnutls_x509_trust_list_t authorities; /* of clients; NULL = they need no certificate */
} served;

/* ---- our own ---- */

static void certificate_free(struct http_certificate *c)
{
    if (!c) return;
    for (unsigned i = 0; i < c->n_chain; i++) {
        gnutls_pcert_deinit(&c->chain[i]);
    }
    if (c->key) gnutls_privkey_deinit(c->key);
    free(c);
}

static gnutls_datum_t datum_of(char *text)
{
    return (gnutls_datum_t){(unsigned char *)text, (unsigned)strlen(text)};
}

/* Accepts NULL. */
static void authorities_close(gnutls_x509_trust_list_t list)
{
    if (list) gnutls_x509_trust_list_deinit(list, 1);
}

/* The texts were checked when they were read; GnuTLS may still know less than OpenSSL. */
static int certificate_open(struct http_certificate **out, const struct certificate_texts *texts,
                            struct error *err)
{
    const gnutls_datum_t chain = datum_of(texts->certificate), key = datum_of(texts->key);
    struct http_certificate *made;
    *out = NULL;
    int rc = mem_array(&made, 1, sizeof *made, err);
    if (rc) return rc;
    unsigned n = CHAIN_MAX;
    int status = gnutls_pcert_list_import_x509_raw(made->chain, &n, &chain, GNUTLS_X509_FMT_PEM, 0);
    if (!status) made->n_chain = n;
    if (!status) status = gnutls_privkey_init(&made->key);
    if (!status) {
        status = gnutls_privkey_import_x509_raw(made->key, &key, GNUTLS_X509_FMT_PEM, NULL, 0);
    }
    if (status) {
        certificate_free(made);
        return error_set(err, ERR_FORMAT, "GnuTLS refuses the certificate or its key: %s",
                         gnutls_strerror(status));
    }
    *out = made;
    return 0;
}

/* Reads the authorities that may have signed the certificates of clients. text: PEM; NULL = nobody
 * is asked. */
static int authorities_open(gnutls_x509_trust_list_t *list, char *text, struct error *err)
{
    *list = NULL;
    if (!text) return 0;
    const gnutls_datum_t pem = datum_of(text);
    int n = gnutls_x509_trust_list_init(list, 0);
    if (!n) n = gnutls_x509_trust_list_add_trust_mem(*list, &pem, NULL, GNUTLS_X509_FMT_PEM, 0, 0);
    if (n > 0) return 0;
    authorities_close(*list);
    *list = NULL;
    return error_set(err, ERR_FORMAT, "GnuTLS refuses the authorities of clients: %s",
                     n ? gnutls_strerror(n) : "there is no certificate");
}

static int take_texts(const struct certificate_texts *texts, struct error *err)
{
    struct http_certificate *made = NULL;
    gnutls_x509_trust_list_t authorities;
    int rc = certificate_open(&made, texts, err);
    if (!rc) rc = authorities_open(&authorities, texts->ca, err);
    if (rc) {
        certificate_free(made);
        return rc;
    }
    made->older = served.newest;
    served.newest = made;
    authorities_close(served.authorities);
    served.authorities = authorities;
    return 0;
}

/* Takes the files' texts if they are newer than those that are served. */
static int refresh(struct error *err)
{
    struct certificate_texts texts;
    int rc = certificates_take(served.certificates, &served.version, &texts, err);
    if (rc || !texts.certificate) return rc;
    rc = take_texts(&texts, err);
    certificate_texts_free(&texts);
    return rc;
}

static void refresh_or_warn(void)
{
    struct error err;
    if (refresh(&err)) {
        log_line(LOG_LEVEL_WARN, "certificates_refused", "text=\"%s; the earlier ones stay\"",
                 err.text);
    }
}

/* A client is asked for its certificate and not told whose are taken: GnuTLS would tell it what
 * libmicrohttpd was opened with. */
static int answer_handshake(gnutls_session_t session, const gnutls_datum_t *authorities,
                            int n_authorities, const gnutls_pk_algorithm_t *algorithms,
                            int n_algorithms, gnutls_pcert_st **chain, unsigned *n_chain,
                            gnutls_privkey_t *key)
{
    (void)authorities, (void)n_authorities, (void)algorithms, (void)n_algorithms;
    refresh_or_warn();
    if (served.authorities) gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUEST);
    *chain = served.newest->chain;
    *n_chain = served.newest->n_chain;
    *key = served.newest->key;
    return 0;
}

void *http_tls_callback(void)
{
    gnutls_certificate_retrieve_function2 *callback = answer_handshake;
    void *untyped;
    memcpy(&untyped, &callback, sizeof untyped); /* ISO C converts no function to an object */
    return untyped;
}

void http_tls_note(const char *line)
{
    /* When the next warning may be logged, and failures since the last one; both the network
     * thread's. */
    static int64_t next_ms;
    static int n_more;
    if (!strstr(line, "handshake")) return;
    int64_t now_ms = clock_now_ms();
    if (now_ms < next_ms) {
        n_more++;
        return;
    }
    log_line(
        LOG_LEVEL_WARN, "tls_handshake_failed",
        "text=\"an HTTP client has left, does not speak TLS, only before 1.2, or does not trust "
        "us\" not_shown=%d",
        n_more);
    next_ms = now_ms + WARNING_INTERVAL_MS;
    n_more = 0;
}

/* ---- of clients ---- */

/* Takes the chain's certificates out of the handshake's; the caller frees them. 0 = none. */
static unsigned read_chain(gnutls_session_t session, gnutls_x509_crt_t chain[CHAIN_MAX])
{
    unsigned n_shown = 0, n = 0;
    const gnutls_datum_t *shown = gnutls_certificate_get_peers(session, &n_shown);
    for (; shown && n < n_shown && n < CHAIN_MAX; n++) {
        if (gnutls_x509_crt_init(&chain[n])) break;
        if (gnutls_x509_crt_import(chain[n], &shown[n], GNUTLS_X509_FMT_DER) == 0) continue;
        gnutls_x509_crt_deinit(chain[n]);
        break;
    }
    return n;
}

/* The verification looks at the time and at what the certificate is for, too. */
static bool is_signed(gnutls_session_t session)
{
    char purpose[] = GNUTLS_KP_TLS_WWW_CLIENT;
    gnutls_typed_vdata_st wanted = {GNUTLS_DT_KEY_PURPOSE_OID, (unsigned char *)purpose, 0};
    gnutls_x509_crt_t chain[CHAIN_MAX];
    unsigned status = 1, n = read_chain(session, chain);
    int rc = n ? gnutls_x509_trust_list_verify_crt2(served.authorities, chain, n, &wanted, 1, 0,
                                                    &status, NULL)
               : -1;
    for (unsigned i = 0; i < n; i++) {
        gnutls_x509_crt_deinit(chain[i]);
    }
    return rc == 0 && status == 0;
}

bool http_tls_trusts(struct MHD_Connection *connection, struct http_trust *trust)
{
    refresh_or_warn();
    if (!served.authorities) return true;
    if (trust->version == served.version) return trust->is_given;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    *trust = (struct http_trust){.version = served.version,
                                 .is_given = info && is_signed(info->tls_session)};
    return trust->is_given;
}

/* ---- open and close ---- */

int http_tls_open(struct certificates *certificates, struct error *err)
{
    served.certificates = certificates;
    served.version = 0;
    return refresh(err);
}

void http_tls_close(void)
{
    struct http_certificate *next, *c = served.newest;
    served.newest = NULL;
    served.certificates = NULL;
    authorities_close(served.authorities);
    served.authorities = NULL;
    for (; c; c = next) {
        next = c->older;
        certificate_free(c);
    }
}
