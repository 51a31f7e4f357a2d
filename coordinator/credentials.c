/* Options first, then the files that they name. */
#include "coordinator/credentials.h"

#include "access/reach.h"

#define FIELD(member) OPTION_FIELD(struct credentials, member)

const struct option_row credentials_rows[] = {
    OPTION_GROUP("Security", "--keys=FILE --tls-certificate=FILE --tls-key=FILE"),
    {"keys", 0, "FILE", FIELD(keys_path),
     .help = "serve only callers with an API key that FILE lists, made by 'outrider key add'; "
             "read again at SIGHUP; default: everybody may call"},
    {"target-ca", 0, "FILE", FIELD(target_files.ca),
     .help = "speak TLS with the workers; one of these authorities has signed their certificates "
             "(PEM)"},
    {"target-certificate", 0, "FILE", FIELD(target_files.certificate),
     .help = "certificate to show to the workers, and those that lead to its CA (PEM)"},
    {"target-key", 0, "FILE", FIELD(target_files.key),
     .help = "private key of --target-certificate (PEM, without a password)"},
    {"target-name", 0, "NAME", FIELD(target_name),
     .help = "the name in the workers' certificates where it is not that of their addresses"},
    {"group-key", 0, "FILE", FIELD(group_key_path),
     .help = "the workers' --group-key, which is shown to them; default OUTRIDER_GROUP_KEY"},
    {0},
};

int credentials_finish(void *fields, struct error *err)
{
    const struct credentials *credentials = fields;
    int rc = access_check_client(&credentials->target_files, "--target", err);
    if (rc || !credentials->target_name || credentials->target_files.ca) return rc;
    return error_set(err, ERR_ARGUMENT,
                     "--target-name %s: certificates have names, and there are none without "
                     "--target-ca",
                     credentials->target_name);
}

int credentials_read(struct credentials *credentials, struct error *err)
{
    int rc = 0;
    TRY(door_read(&credentials->door, err));
    if (credentials->keys_path) TRY(keys_open(&credentials->keys, credentials->keys_path, err));
    TRY(group_key_open(&credentials->group_key, credentials->group_key_path, err));
    TRY(access_open_client(&credentials->target_certificates, &credentials->target_files,
                           "--target", err));
out:
    return rc;
}

int credentials_check(const struct credentials *credentials, const char *option,
                      const char *address, struct error *err)
{
    const struct reach_door door = {
        .option = option,
        .address = address,
        .is_guarded = credentials->door.is_insecure || credentials->door.files.certificate ||
                      credentials->keys_path,
        .ways = "give --keys, or --tls-certificate and --tls-key, listen on loopback or a unix "
                "socket, or say --insecure"};
    return reach_check(&door, err);
}

bool credentials_has_files(const struct credentials *credentials)
{
    return credentials->keys_path || credentials->door.files.certificate ||
           credentials->target_files.ca;
}

void credentials_reload(struct credentials *credentials)
{
    keys_reload(credentials->keys);
    certificates_reload(credentials->door.certificates);
    certificates_reload(credentials->target_certificates);
}

void credentials_close(struct credentials *credentials)
{
    keys_close(credentials->keys);
    certificates_close(credentials->door.certificates);
    certificates_close(credentials->target_certificates);
    *credentials = (struct credentials){0};
}
