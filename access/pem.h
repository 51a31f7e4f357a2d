/* Checks that PEM files hold what they are needed for, by the library that gRPC speaks TLS with, so
 * that a bad file is refused with a sentence instead of a connection. For access/ alone. */
#pragma once

#include "base/error.h"

/* Checks a certificate, those that follow it, and the private key of the first one. The paths are
 * for messages. Errors: ERR_FORMAT one of the texts is not PEM of that kind, the key is encrypted
 * or belongs to another certificate, or the certificate is not valid now. */
int pem_check_pair(const char *certificate_path, const char *certificate, const char *key_path,
                   const char *key, struct error *err);

/* Certificates of authorities, at least one. Errors: ERR_FORMAT. */
int pem_check_authorities(const char *path, const char *text, struct error *err);
