/* Options first, then the files that they name. */
#include "coordinator/guard.h"

#include "access/reach.h"

enum {
    USAGE_STATUS = 2,
    OPT_KEYS = 4096,
    OPT_TARGET_CA,
    OPT_TARGET_CERTIFICATE,
    OPT_TARGET_KEY,
    OPT_TARGET_NAME,
    OPT_GROUP_KEY
};

static const struct argp_option options[] = {
    {"keys", OPT_KEYS, "FILE", 0,
     "serve only callers with an API key that FILE lists, made by 'outrider key add'; read again "
     "at SIGHUP; default: everybody may call",
     0},
    {"target-ca", OPT_TARGET_CA, "FILE", 0,
     "speak TLS with the workers; one of these authorities has signed their certificates (PEM)", 0},
    {"target-certificate", OPT_TARGET_CERTIFICATE, "FILE", 0,
     "certificate to show to the workers, and those that lead to its CA (PEM)", 0},
    {"target-key", OPT_TARGET_KEY, "FILE", 0,
     "private key of --target-certificate (PEM, without a password)", 0},
    {"target-name", OPT_TARGET_NAME, "NAME", 0,
     "the name in the workers' certificates where it is not that of their addresses", 0},
    {"group-key", OPT_GROUP_KEY, "FILE", 0,
     "the workers' --group-key, which is shown to them; default OUTRIDER_GROUP_KEY", 0},
    {0},
};

static int check_options(const struct guard *guard, struct error *err)
{
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

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct guard *guard = state->input;
    struct error err;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &guard->door;
        return 0;
    case OPT_KEYS:
        guard->keys_path = arg;
        return 0;
    case OPT_TARGET_CA:
        guard->target_files.ca = arg;
        return 0;
    case OPT_TARGET_CERTIFICATE:
        guard->target_files.certificate = arg;
        return 0;
    case OPT_TARGET_KEY:
        guard->target_files.key = arg;
        return 0;
    case OPT_TARGET_NAME:
        guard->target_name = arg;
        return 0;
    case OPT_GROUP_KEY:
        guard->group_key_path = arg;
        return 0;
    case ARGP_KEY_END:
        if (check_options(guard, &err)) argp_failure(state, USAGE_STATUS, 0, "%s", err.text);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&door_argp, 0, NULL, 0}, {0}};
const struct argp guard_argp = {.options = options, .parser = parse_option, .children = children};

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
