/* Options of doors and clients. */
#include "access/options.h"

#define FIELD(member) OPTION_FIELD(struct door_options, member)

const struct option_row door_rows[] = {
    OPTION_GROUP("Security", "--tls-certificate=server.pem --tls-key=server.key"),
    {"tls-certificate", 0, "FILE", FIELD(files.certificate),
     .help = "speak TLS, with this certificate and those that lead to its CA (PEM); unix sockets "
             "stay plain"},
    {"tls-key", 0, "FILE", FIELD(files.key),
     .help = "the certificate's private key (PEM, without a password)"},
    {"tls-client-ca", 0, "FILE", FIELD(files.ca),
     .help = "serve only clients with a certificate that one of these authorities has signed "
             "(PEM)"},
    {"insecure", 0, NULL, FIELD(is_insecure),
     .help = "listen where other machines can connect although nothing keeps strangers out"},
    {0},
};

/* A certificate and its key. */
static int check_pair(const struct certificate_files *files, const char *prefix, struct error *err)
{
    if (files->certificate && !files->key) {
        return error_set(err, ERR_ARGUMENT,
                         "%s-key is missing: the private key of %s-certificate %s", prefix, prefix,
                         files->certificate);
    }
    if (files->key && !files->certificate) {
        return error_set(err, ERR_ARGUMENT,
                         "%s-certificate is missing: the certificate of %s-key %s", prefix, prefix,
                         files->key);
    }
    return 0;
}

int door_finish(void *fields, struct error *err)
{
    const struct door_options *door = fields;
    const struct certificate_files *files = &door->files;
    int rc = check_pair(files, "--tls", err);
    if (rc) return rc;
    if (!files->certificate && files->ca) {
        return error_set(err, ERR_ARGUMENT,
                         "--tls-client-ca %s: clients show certificates in TLS only, so give "
                         "--tls-certificate and --tls-key",
                         files->ca);
    }
    return 0;
}

int door_read(struct door_options *door, struct error *err)
{
    const struct certificate_files *files = &door->files;
    return files->certificate ? certificates_open(&door->certificates, files, err) : 0;
}

int access_check_client(const struct certificate_files *files, const char *prefix,
                        struct error *err)
{
    int rc = check_pair(files, prefix, err);
    if (rc) return rc;
    if (files->certificate && !files->ca) {
        return error_set(err, ERR_ARGUMENT,
                         "%s-ca is missing: the authority that has signed the certificate of the "
                         "server that %s-certificate %s is shown to",
                         prefix, prefix, files->certificate);
    }
    return 0;
}

int access_open_client(struct certificates **certificates, const struct certificate_files *files,
                       const char *prefix, struct error *err)
{
    *certificates = NULL;
    int rc = access_check_client(files, prefix, err);
    if (rc) return rc;
    return files->ca ? certificates_open(certificates, files, err) : 0;
}
