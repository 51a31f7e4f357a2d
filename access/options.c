/* Options of doors and clients. */
#include "access/options.h"

enum { USAGE_STATUS = 2, OPT_CERTIFICATE = 3072, OPT_KEY, OPT_CLIENT_CA, OPT_INSECURE };

static const struct argp_option entries[] = {
    {"tls-certificate", OPT_CERTIFICATE, "FILE", 0,
     "speak TLS, with this certificate and those that lead to its CA (PEM); unix sockets stay "
     "plain",
     0},
    {"tls-key", OPT_KEY, "FILE", 0, "the certificate's private key (PEM, without a password)", 0},
    {"tls-client-ca", OPT_CLIENT_CA, "FILE", 0,
     "serve only clients with a certificate that one of these authorities has signed (PEM)", 0},
    {"insecure", OPT_INSECURE, NULL, 0,
     "listen where other machines can connect although nothing keeps strangers out", 0},
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

static int check_door(const struct door_options *door, struct error *err)
{
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

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct door_options *door = state->input;
    struct error err;
    switch (key) {
    case OPT_CERTIFICATE:
        door->files.certificate = arg;
        return 0;
    case OPT_KEY:
        door->files.key = arg;
        return 0;
    case OPT_CLIENT_CA:
        door->files.ca = arg;
        return 0;
    case OPT_INSECURE:
        door->is_insecure = true;
        return 0;
    case ARGP_KEY_END:
        if (check_door(door, &err)) argp_failure(state, USAGE_STATUS, 0, "%s", err.text);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp door_argp = {.options = entries, .parser = parse_option};
