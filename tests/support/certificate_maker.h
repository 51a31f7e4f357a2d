/* Certificates for tests, made with OpenSSL: authorities, and certificates that they sign, with any
 * dates and names. Files are in a folder of the process, which the caller removes. */
#pragma once

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/check_util.h"

enum { MADE_PATH_BYTES = 96, HOUR_S = 3600 };

struct made {
    X509 *certificate;
    EVP_PKEY *key;
};

static char made_folder[MADE_PATH_BYTES - 32];

static inline void made_open_folder(void)
{
    snprintf(made_folder, sizeof made_folder, "/tmp/test_certificates_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(made_folder));
}

static inline const char *made_path(const char *name)
{
    static char paths[8][MADE_PATH_BYTES];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, MADE_PATH_BYTES, "%s/%.24s", made_folder, name);
    return path;
}

static inline void made_add_extension(X509 *certificate, int nid, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    ck_assert_ptr_nonnull(extension);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
}

/* names: as "IP:127.0.0.1,DNS:localhost"; NULL makes an authority. by NULL: signed by itself. Valid
 * from begin_s to end_s from now. */
static inline struct made make_certificate(const char *names, const struct made *by, long begin_s,
                                           long end_s)
{
    static long serial = 1;
    struct made made = {X509_new(), EVP_EC_gen("P-256")};
    X509 *c = made.certificate;
    const struct made *issuer = by ? by : &made;
    char common[32];
    snprintf(common, sizeof common, "%s %ld", names ? "peer" : "authority", serial);
    X509_set_version(c, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(c), serial++);
    X509_gmtime_adj(X509_getm_notBefore(c), begin_s);
    X509_gmtime_adj(X509_getm_notAfter(c), end_s);
    X509_set_pubkey(c, made.key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(c), "CN", MBSTRING_ASC,
                               (const unsigned char *)common, -1, -1, 0);
    X509_set_issuer_name(c, X509_get_subject_name(issuer->certificate));
    if (!names) made_add_extension(c, NID_basic_constraints, "critical,CA:TRUE");
    if (names) made_add_extension(c, NID_subject_alt_name, names);
    ck_assert_int_gt(X509_sign(c, issuer->key, EVP_sha256()), 0);
    return made;
}

static inline void made_free(struct made *made)
{
    X509_free(made->certificate);
    EVP_PKEY_free(made->key);
}

static inline FILE *made_create(const char *name)
{
    char path[MADE_PATH_BYTES + 16];
    snprintf(path, sizeof path, "%s.new", made_path(name));
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fchmod(fileno(file), 0600), 0);
    return file;
}

/* Under its name as a whole, so that each writing is another file. */
static inline void made_finish(FILE *file, const char *name)
{
    char path[MADE_PATH_BYTES + 16];
    snprintf(path, sizeof path, "%s.new", made_path(name));
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(rename(path, made_path(name)), 0);
}

static inline void made_write_certificate(const struct made *made, const char *name)
{
    FILE *file = made_create(name);
    PEM_write_X509(file, made->certificate);
    made_finish(file, name);
}

/* password NULL: as it is. */
static inline void made_write_key(const struct made *made, const char *name, const char *password)
{
    FILE *file = made_create(name);
    PEM_write_PKCS8PrivateKey(file, made->key, password ? EVP_aes_256_cbc() : NULL, password,
                              password ? (int)strlen(password) : 0, NULL, NULL);
    made_finish(file, name);
}

static inline void made_write_text(const char *text, const char *name)
{
    FILE *file = made_create(name);
    fputs(text, file);
    made_finish(file, name);
}
