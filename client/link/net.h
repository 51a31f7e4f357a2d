/* TCP between two `outrider link` commands: addresses, connections, whole messages. A message is a
 * head of 8 bytes and a body; the server sends back either all of it or only its head. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { LINK_ECHO = 'e', LINK_SINK = 's' };
enum { LINK_HEAD_BYTES = 8, LINK_BODY_BYTES_MAX = 64 << 20, LINK_ADDRESS_BYTES = 128 };

/* Connects within the time; afterwards each read or write on *fd may take as long.
 * Errors: ERR_ARGUMENT the address has another form, ERR_UNAVAILABLE and ERR_TIMEOUT with why. */
int link_connect(int *fd, const char *address, int timeout_ms, struct error *err);

/* Listens; bound is the address with the true port. Errors: as link_connect, ERR_IO. */
int link_listen(int *fd, const char *address, char bound[LINK_ADDRESS_BYTES], struct error *err);

/* Before the first message: small ones leave at once, and a peer that is gone is noticed. */
void link_prepare(int fd, int timeout_ms);

void link_head_write(uint8_t head[LINK_HEAD_BYTES], int kind, uint32_t body_bytes);
/* Errors: ERR_FORMAT it is no head of ours, or the body is too long. */
int link_head_read(const uint8_t head[LINK_HEAD_BYTES], int *kind, uint32_t *body_bytes,
                   struct error *err);

/* Errors: ERR_CLOSED the peer has ended, ERR_TIMEOUT, ERR_UNAVAILABLE. */
int link_send(int fd, const void *data, size_t len, struct error *err);
int link_receive(int fd, void *data, size_t len, struct error *err);
