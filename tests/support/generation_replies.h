/* Replies of a made-up Generation service, for tests of the client against servers that misbehave.
 */
#pragma once

#include "proto/generation_wire.h"
#include "rpc/server.h"
#include "tests/support/check_util.h"

static inline void send_reply(struct rpc_call *call, const struct generate_reply *reply)
{
    struct buffer buf = {0};
    struct error failure;
    ck_assert_int_eq(generate_reply_encode(&buf, reply, &failure), 0);
    rpc_call_send(call, buf.data, buf.len, &failure);
    buffer_free(&buf);
}

/* Two tokens, one accepted and one bonus token, with the text "two words". */
static inline void send_tokens(struct rpc_call *call)
{
    static const int32_t ids[] = {7, 8};
    static const enum token_origin origins[] = {TOKEN_ACCEPTED, TOKEN_BONUS};
    static const uint32_t ends[] = {4, 9};
    static const struct generate_tokens tokens = {.n = 2,
                                                  .ids = ids,
                                                  .origins = origins,
                                                  .text_ends = ends,
                                                  .text = "two words",
                                                  .text_len = 9,
                                                  .rejected_id = -1,
                                                  .rejected_text = ""};
    send_reply(call, &(struct generate_reply){.tokens = &tokens});
}
