/* What server and client share of the gRPC C core: life of the library, channel arguments, statuses
 * and messages. Internal to proto/. */
#pragma once

#include <grpc/grpc.h>
#include <grpc/support/time.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

/* One text for a failed status travels in the headers; longer ones are cut. */
enum { RPC_STATUS_TEXT_BYTES = 1024 };

/* Counted: every open has its close. The library's own log lines go to ours, at debug: what matters
 * of them comes back as a status. */
void rpc_library_open(void);
void rpc_library_close(void);

/* Arguments of every server and every channel; static, never freed. */
const grpc_channel_args *rpc_server_args(void);
const grpc_channel_args *rpc_channel_args(void);

/* ERR_ codes and gRPC statuses, both ways. ERR_NONE is OK. */
grpc_status_code rpc_status_of_error(int code);
int rpc_error_of_status(grpc_status_code status);

/* clock_now_us times; INT64_MAX = for ever. */
gpr_timespec rpc_time_of_us(int64_t time_us);
int64_t rpc_us_of_time(gpr_timespec time);

/* A copy of the bytes; destroyed with grpc_byte_buffer_destroy. */
grpc_byte_buffer *rpc_message_create(const uint8_t *data, size_t len);
/* Replaces buf's content. Errors: ERR_NO_MEMORY, ERR_FORMAT cannot be read. */
int rpc_message_read(grpc_byte_buffer *message, struct buffer *buf, struct error *err);
/* Refuses what the peer would refuse. Errors: ERR_ARGUMENT. */
int rpc_message_check_len(size_t len, struct error *err);
