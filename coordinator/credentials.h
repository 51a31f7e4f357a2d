/* Credentials: who may call the coordinator, and as whom it calls the workers. They are options of
 * the command line, and the files that they name, which are read once the command line is known to
 * be right. */
#pragma once

#include <stdbool.h>

#include "access/group_key.h"
#include "access/keys.h"
#include "access/options.h"

struct credentials {
    struct door_options door;
    const char *keys_path;
    struct keys *keys; /* NULL = everybody may call */
    struct certificate_files target_files;
    struct certificates *target_certificates; /* to the workers; NULL = plain */
    const char *target_name; /* that the workers' must have in place of their addresses' */
    const char *group_key_path;
    struct group_key group_key; /* shown to the workers */
};

/* For the parts of the coordinator's options, whose fields are a struct credentials. door_rows and
 * door_finish are for its door. Errors of finish: ERR_ARGUMENT options that do not fit together. */
extern const struct option_row credentials_rows[];
int credentials_finish(void *fields, struct error *err);

/* Opens what the options name, which exists as long as the program. Errors: those of
 * certificates_open, keys_open and group_key_open. */
int credentials_read(struct credentials *credentials, struct error *err);

/* Refuses a door that other machines can reach and nothing guards, such as "--listen",
 * "0.0.0.0:7070". Errors: ERR_ARGUMENT. */
int credentials_check(const struct credentials *credentials, const char *option,
                      const char *address, struct error *err);

/* True if there are files that SIGHUP reads again. */
bool credentials_has_files(const struct credentials *credentials);
void credentials_reload(struct credentials *credentials);
void credentials_close(struct credentials *credentials);
