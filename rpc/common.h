/* Functions of the gRPC C core that server and client share: opening the library, channel
 * arguments, statuses and messages. For files of rpc/ only. */
#pragma once

#include <grpc/grpc.h>
#include <grpc/support/time.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text/buffer.h"

/* The message of a failed status travels in the headers; a longer one is cut. */
enum { RPC_STATUS_TEXT_BYTES = 1024 };

/* Counted: every open has its close. The library's own log lines go to our log at level debug,
 * because what matters of them also comes back as a status, but for a server's handshakes
 * (rpc_tls_note). A program with this room begins with GRPC_POLL_STRATEGY=poll in its
 * environment, unless that is set. */
void rpc_library_open(void);
void rpc_library_close(void);

enum { RPC_ARGS_MAX = 16 };
/* Fills args with those of a channel. server_name: what its certificate must name in place of the
 * address; NULL = the address; kept as long as args are. notices_loss: as in rpc/peer_loss.h. */
grpc_channel_args rpc_channel_args(grpc_arg args[RPC_ARGS_MAX], const char *server_name,
                                   bool notices_loss);
/* Fills args with those of a server that takes messages of at most max_receive_bytes. */
grpc_channel_args rpc_server_args(grpc_arg args[RPC_ARGS_MAX], int max_receive_bytes,
                                  bool notices_loss);

/* ERR_ codes and gRPC statuses, both ways. ERR_NONE is OK. */
grpc_status_code rpc_status_of_error(int code);
int rpc_error_of_status(grpc_status_code status);

/* Times of clock_now_us; INT64_MAX means no deadline. */
gpr_timespec rpc_time_of_us(int64_t time_us);
int64_t rpc_us_of_time(gpr_timespec time);

/* A copy of the bytes; destroyed with grpc_byte_buffer_destroy. */
grpc_byte_buffer *rpc_message_create(const uint8_t *data, size_t len);
/* Replaces buf's content. Errors: ERR_NO_MEMORY, ERR_FORMAT cannot be read. */
int rpc_message_read(grpc_byte_buffer *message, struct buffer *buf, struct error *err);
/* Refuses a message that the peer would refuse. Errors: ERR_ARGUMENT. */
int rpc_message_check_len(size_t len, struct error *err);
