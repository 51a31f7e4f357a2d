/* PEM through OpenSSL's libcrypto. OpenSSL keeps its errors in a queue of the thread, where the TLS
 * of the same thread would find them later; so each check empties it. */
#include "access/pem.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

enum { DATE_BYTES = 64 };

static BIO *open_text(const char *text)
{
    return BIO_new_mem_buf(text, (int)strlen(text));
}

/* The next certificate; NULL: there is none, or it cannot be read. */
static X509 *read_certificate(BIO *bio)
{
    return bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
}

/* After the last certificate: whether that was the end, and not a damaged one. */
static bool is_at_end(void)
{
    unsigned long code = ERR_peek_last_error();
    return ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE;
}

/* All certificates of the text; the first one is given to the caller if first is not NULL. */
static int read_chain(const char *path, const char *text, X509 **first, struct error *err)
{
    int n = 0, rc = 0;
    BIO *bio = open_text(text);
    for (X509 *certificate; (certificate = read_certificate(bio)); n++) {
        if (n == 0 && first) {
            *first = certificate;
        } else {
            X509_free(certificate);
        }
    }
    if (n == 0) {
        rc = error_set(err, ERR_FORMAT, "%s holds no certificate in PEM form", path);
    } else if (!is_at_end()) {
        rc = error_set(err, ERR_FORMAT, "certificate %d of %s is damaged", n + 1, path);
    }
    BIO_free(bio);
    return rc;
}

/* Called for the password of an encrypted key: there is none. */
static int no_password(char *buf, int size, int is_writing, void *was_asked)
{
    (void)buf, (void)size, (void)is_writing;
    *(bool *)was_asked = true;
    return -1;
}

static int read_key(const char *path, const char *text, EVP_PKEY **key, struct error *err)
{
    bool is_encrypted = false;
    BIO *bio = open_text(text);
    *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_password, &is_encrypted) : NULL;
    BIO_free(bio);
    if (*key) return 0;
    if (is_encrypted) {
        return error_set(err, ERR_FORMAT,
                         "the private key %s is encrypted; give one without a password", path);
    }
    return error_set(err, ERR_FORMAT, "%s holds no private key in PEM form", path);
}

static const char *show_date(const ASN1_TIME *time, char date[DATE_BYTES])
{
    struct tm parts;
    bool is_shown = ASN1_TIME_to_tm(time, &parts) == 1 &&
                    strftime(date, DATE_BYTES, "%Y-%m-%d %H:%M:%S UTC", &parts) > 0;
    return is_shown ? date : "an unknown time";
}

static int check_dates(const char *path, const X509 *certificate, struct error *err)
{
    char date[DATE_BYTES];
    const ASN1_TIME *begin = X509_get0_notBefore(certificate);
    const ASN1_TIME *end = X509_get0_notAfter(certificate);
    if (X509_cmp_current_time(end) < 0) {
        return error_set(err, ERR_FORMAT, "the certificate %s has expired on %s", path,
                         show_date(end, date));
    }
    if (X509_cmp_current_time(begin) > 0) {
        return error_set(err, ERR_UNAVAILABLE, "the certificate %s is not valid before %s", path,
                         show_date(begin, date));
    }
    return 0;
}

int pem_check_pair(const char *certificate_path, const char *certificate, const char *key_path,
                   const char *key, struct error *err)
{
    int rc = 0;
    X509 *first = NULL;
    EVP_PKEY *private = NULL;
    TRY(read_chain(certificate_path, certificate, &first, err));
    TRY(read_key(key_path, key, &private, err));
    if (X509_check_private_key(first, private) != 1) {
        rc = error_set(err, ERR_FORMAT, "the private key %s does not belong to the certificate %s",
                       key_path, certificate_path);
        goto out;
    }
    TRY(check_dates(certificate_path, first, err));
out:
    X509_free(first);
    EVP_PKEY_free(private);
    ERR_clear_error();
    return rc;
}

int pem_check_authorities(const char *path, const char *text, struct error *err)
{
    int rc = read_chain(path, text, NULL, err);
    ERR_clear_error();
    return rc;
}
