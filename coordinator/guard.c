/* Options first, then the files that they name. */
#include "coordinator/guard.h"

#include "access/reach.h"

#define FIELD(member) OPTION_FIELD(struct guard, member)

const struct option_row guard_rows[] = {
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

int guard_finish(void *fields, struct error *err)
{
    const struct guard *guard = fields;
    int rc = access_check_client(&guard->target_files, "--target", err);
    if (rc || !guard->target_name || guard->target_files.ca) return rc;
    return error_set(err, ERR_ARGUMENT,
                     "--target-name %s: certificates have names, and there are none without "
                     "--target-ca",
                     guard->target_name);
}

int guard_read(struct guard *guard, struct error *err)
{
    int rc = 0;
    TRY(door_read(&guard->door, err));
    if (guard->keys_path) TRY(keys_open(&guard->keys, guard->keys_path, err));
    TRY(group_key_open(&guard->group_key, guard->group_key_path, err));
    TRY(access_open_client(&guard->target_certificates, &guard->target_files, "--target", err));
out:
    return rc;
}

int guard_check(const struct guard *guard, const char *option, const char *address,
                struct error *err)
{
    const struct reach_door door = {
        .option = option,
        .address = address,
        .is_guarded = guard->door.is_insecure || guard->door.files.certificate || guard->keys_path,
        .ways = "give --keys, or --tls-certificate and --tls-key, listen on loopback or a unix "
                "socket, or say --insecure"};
    return reach_check(&door, err);
}

bool guard_has_files(const struct guard *guard)
{
    return guard->keys_path || guard->door.files.certificate || guard->target_files.ca;
}

void guard_reload(struct guard *guard)
{
    keys_reload(guard->keys);
    certificates_reload(guard->door.certificates);
    certificates_reload(guard->target_certificates);
}

void guard_close(struct guard *guard)
{
    keys_close(guard->keys);
    certificates_close(guard->door.certificates);
    certificates_close(guard->target_certificates);
    *guard = (struct guard){0};
}
