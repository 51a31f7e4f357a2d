/* A target group of one real rank in the same process: steps go through gRPC to a verifier with the
 * tales target, and a test may spoil its replies. Every test runs in a process of its own, so it is
 * a static variable. */
#pragma once

#include <stdio.h>

#include "base/clock.h"
#include "coordinator/target/target.h"
#include "model/backend/cpu/cpu.h"
#include "rpc/server.h"
#include "tests/support/check_util.h"
#include "worker/verifier.h"

#define LONE_TARGET SOURCE_DIR "/deploy/models/tales/target"

enum {
    LONE_SLOTS = 4,
    LONE_BLOCKS = 16,
    LONE_VOCAB = 4096,
    LONE_ARENA_BYTES = 64 << 20,
    LONE_CONNECT_US = 20000000
};

/* The model of the rank, and the head whose fc it applies; NULL: none. Set before it opens. */
static const char *lone_model = LONE_TARGET;
static const struct checkpoint *lone_projection;

static struct {
    struct checkpoint *ck;
    int n_vocab;
    struct backend *be;
    struct verifier *verifier;
    struct target_description description;
    struct arena arena;
    struct buffer out;
    struct rpc_server *server;
    struct found_group group;
    struct target *target;
    /* Changes a reply; lanes is room for its features. NULL: nothing is changed. */
    void (*spoil)(struct step_reply *reply, struct lane_features *lanes);
    int n_steps;
} lone;

static inline void lone_describe(struct rpc_call *call, void *state, const uint8_t *data,
                                 size_t len)
{
    struct error err;
    (void)state, (void)data, (void)len;
    ck_assert_int_eq(target_description_encode(&lone.out, &lone.description, &err), 0);
    ck_assert_int_eq(rpc_call_send(call, lone.out.data, lone.out.len, &err), 0);
    rpc_call_finish(call, ERR_NONE, "");
}

static inline void lone_begin(struct rpc_call *call, void *state)
{
    (void)call, (void)state;
    verifier_reset(lone.verifier);
}

static inline void lone_step(struct rpc_call *call, void *state, const uint8_t *data, size_t len)
{
    struct error err;
    struct step step;
    struct step_reply reply;
    struct lane_features lanes[LONE_SLOTS];
    (void)state;
    arena_reset(&lone.arena);
    ck_assert_int_eq(step_decode(data, len, &lone.arena, &step, &err), 0);
    ck_assert_int_eq(verifier_step(lone.verifier, &step, &reply, &err), 0);
    if (step.n_lanes && lone.spoil) lone.spoil(&reply, lanes);
    lone.n_steps++;
    ck_assert_int_eq(step_reply_encode(&lone.out, &reply, &err), 0);
    ck_assert_int_eq(rpc_call_send(call, lone.out.data, lone.out.len, &err), 0);
}

static inline void lone_connect(void)
{
    struct error err;
    CHECK_OK(target_connect(lone.target, &lone.group, clock_now_us() + LONE_CONNECT_US, &err));
}

static inline void lone_open_rank(int step_tokens)
{
    struct error err;
    const struct backend_cpu_options cpu = {"auto", 1, WEIGHTS_BF16};
    CHECK_OK(checkpoint_open(&lone.ck, lone_model, &err));
    const struct model_config *cfg = checkpoint_config(lone.ck);
    lone.n_vocab = cfg->vocab_size < LONE_VOCAB ? cfg->vocab_size : LONE_VOCAB;
    const struct verifier_options options = {.n_slots = LONE_SLOTS,
                                             .n_kv_blocks = LONE_BLOCKS,
                                             .max_step_tokens = step_tokens,
                                             .max_step_rows = step_tokens,
                                             .n_vocab = lone.n_vocab,
                                             .projection = lone_projection};
    CHECK_OK(backend_cpu_open(&lone.be, &cpu, &err));
    CHECK_OK(verifier_open(&lone.verifier, lone.ck, comm_single(), lone.be, &options, &err));
    CHECK_OK(arena_open(&lone.arena, LONE_ARENA_BYTES, &err));
    lone.description =
        (struct target_description){.model = "tales",
                                    .architecture = "llama",
                                    .arithmetic = "cpu-bf16",
                                    .kernels = "plain",
                                    .group = "lone",
                                    .n_layers = cfg->n_layers,
                                    .dim = cfg->dim,
                                    .n_heads = cfg->n_heads,
                                    .n_kv_heads = cfg->n_kv_heads,
                                    .head_dim = cfg->head_dim,
                                    .ffn_dim = cfg->ffn_dim,
                                    .vocab_size = lone.n_vocab,
                                    .n_ranks = 1,
                                    .n_slices = config_slices(cfg),
                                    .n_slots = LONE_SLOTS,
                                    .n_kv_blocks = LONE_BLOCKS,
                                    .block_tokens = KV_BLOCK_TOKENS,
                                    .context_limit = cfg->max_positions,
                                    .max_step_tokens = step_tokens,
                                    .max_step_rows = step_tokens,
                                    .n_threads = 1,
                                    .projection = model_projection(verifier_model(lone.verifier)),
                                    .tokenizer_fingerprint = 7};
}

/* step_tokens: the most of a step, and its most rows. */
static inline void lone_open(int step_tokens)
{
    static const struct rpc_method methods[] = {
        {.path = "/outrider.target.v1.Target/Describe", .on_message = lone_describe},
        {.path = "/outrider.target.v1.Target/Run",
         .is_stream_in = true,
         .is_exchange = true,
         .on_open = lone_begin,
         .on_message = lone_step},
    };
    struct error err;
    const struct rpc_service service = {.methods = methods, .n_methods = 2};
    const struct rpc_server_options options = {
        .address = "127.0.0.1:0", .services = &service, .n_services = 1};
    const struct target_options to_target = {.tokenizer_fingerprint = 7, .step_timeout_s = 60};
    lone_open_rank(step_tokens);
    CHECK_OK(rpc_server_open(&lone.server, &options, &err));
    CHECK_OK(target_open(&lone.target, &to_target, &err));
    lone.group.n_ranks = 1;
    snprintf(lone.group.addresses[0], sizeof lone.group.addresses[0], "%s",
             rpc_server_address(lone.server));
    lone_connect();
}

static inline void lone_close(void)
{
    target_close(lone.target);
    rpc_server_close(lone.server, 1000);
    verifier_close(lone.verifier);
    lone.be->ops->close(lone.be);
    checkpoint_close(lone.ck);
    arena_close(&lone.arena);
    buffer_free(&lone.out);
}
