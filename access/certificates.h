/* The certificate files of a door, or of a client of one. They are read and checked at the start,
 * and again when one of them has changed, so that a renewed certificate needs no restart. What
 * speaks TLS takes the texts from here: rpc/ hands them to gRPC, and an HTTP door may hand the same
 * ones to another library. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* All of them are PEM; NULL = none. A certificate comes with its key. */
struct certificate_files {
    const char *certificate; /* our own one first, then those that lead to the CA */
    const char *key;         /* of our own one, without a password */
    const char *ca;          /* of those who may have signed the certificates of our peers */
};

/* Contents of the files that were read together. */
struct certificate_texts {
    char *certificate, *key, *ca;
};

struct certificates; /* locked inside */

/* Copies the paths. Errors: ERR_ARGUMENT a certificate without its key, the other way round,
 * or a file that may not be read; ERR_NOT_FOUND, ERR_IO, ERR_FORMAT a file cannot be read or is not
 * what it should be: the key belongs to another certificate, or the certificate has expired;
 * ERR_UNAVAILABLE it is not valid yet. */
int certificates_open(struct certificates **certificates, const struct certificate_files *files,
                      struct error *err);
/* Accepts NULL. */
void certificates_close(struct certificates *certificates);

/* The texts, if they are newer than *version (0: any are), which becomes theirs; the caller frees
 * them. Otherwise all of *texts is NULL. Looks at the files first: changed ones are read if they
 * are good, and if not, what was read before stays and one warning names the file. Any thread.
 * Errors: ERR_NO_MEMORY. */
int certificates_take(struct certificates *certificates, uint64_t *version,
                      struct certificate_texts *texts, struct error *err);
void certificate_texts_free(struct certificate_texts *texts);

/* True if there is a certificate of our own, which peers see. Accepts NULL: there is none. */
bool certificates_has_own(const struct certificates *certificates);
/* True if certificates of peers are verified. */
bool certificates_has_authorities(const struct certificates *certificates);

/* The version that certificates_take would give; looks at the files, too. */
uint64_t certificates_version(struct certificates *certificates);

/* Reads the files now, changed or not, and says in the log what came of it; for SIGHUP. Accepts
 * NULL. */
void certificates_reload(struct certificates *certificates);
