/* ctest: labels=quick libs=coordinator,verifier timeout=120 */
/* Features on their way from a real rank through gRPC to the lanes of a step: they are there beside
 * the rows, also after a further question about these, and a reply whose features are not those
 * that were asked for loses the group. */
#include <stdio.h>

#include "base/clock.h"
#include "coordinator/target/target.h"
#include "model/backend/cpu/cpu.h"
#include "rpc/server.h"
#include "speculation/accept/rules.h"
#include "tests/support/check_util.h"
#include "worker/verifier.h"

#define TALES SOURCE_DIR "/deploy/models/tales/target"

enum {
    TOKENS = 9,
    CONNECT_US = 20000000,
    ARENA = 64 << 20,
    N_SLOTS = 4,
    N_BLOCKS = 16,
    VOCAB = 4096,
    STEP_TOKENS = 64,
    STEP_ROWS = 20
};

static const struct verifier_options verifier_options = {.n_slots = N_SLOTS,
                                                         .n_kv_blocks = N_BLOCKS,
                                                         .max_step_tokens = STEP_TOKENS,
                                                         .max_step_rows = STEP_ROWS,
                                                         .n_vocab = VOCAB};

static const struct feature_wish wish = {.n = 2, .boundaries = {1, 3}, .normed = true};
static int32_t tokens[TOKENS];
static const int32_t blocks[2][1] = {{5}, {3}};

/* ---- the rank, which spoils its replies as it is told ---- */

enum spoiled { AS_IT_IS, SHORTER, MISSING, EXTRA, NOT_NUMBERS, NO_MEMORY };

static struct {
    struct verifier *verifier;
    struct target_description description;
    struct arena arena;
    struct buffer out;
    enum spoiled spoiled;
    int n_steps;
} rank;

static void spoil(struct step_reply *reply, struct lane_features *lanes)
{
    static uint16_t nan[1 << 16];
    for (int i = 0; i < reply->n_features; i++) {
        lanes[i] = reply->features[i];
    }
    reply->features = lanes;
    switch (rank.spoiled) {
    case AS_IT_IS:
        break;
    case SHORTER:
        lanes[reply->n_features - 1].n--;
        break;
    case MISSING:
        reply->n_features--;
        break;
    case EXTRA:
        lanes[reply->n_features++] = lanes[0];
        break;
    case NOT_NUMBERS:
        memcpy(nan, lanes[0].data, (size_t)lanes[0].n * sizeof *nan);
        nan[lanes[0].n - 1] = 0xff81;
        lanes[0].data = nan;
        break;
    case NO_MEMORY:
        reply->n_features = 0;
        reply->feature_error = "there is no memory for the features";
        break;
    }
}

static void on_describe(struct rpc_call *call, void *state, const uint8_t *data, size_t len)
{
    struct error err;
    (void)state, (void)data, (void)len;
    ck_assert_int_eq(target_description_encode(&rank.out, &rank.description, &err), 0);
    ck_assert_int_eq(rpc_call_send(call, rank.out.data, rank.out.len, &err), 0);
    rpc_call_finish(call, ERR_NONE, "");
}

static void on_open(struct rpc_call *call, void *state)
{
    (void)call, (void)state;
    verifier_reset(rank.verifier);
}

static void on_step(struct rpc_call *call, void *state, const uint8_t *data, size_t len)
{
    struct error err;
    struct step step;
    struct step_reply reply;
    struct lane_features lanes[N_SLOTS];
    (void)state;
    arena_reset(&rank.arena);
    ck_assert_int_eq(step_decode(data, len, &rank.arena, &step, &err), 0);
    ck_assert_int_eq(verifier_step(rank.verifier, &step, &reply, &err), 0);
    if (step.n_lanes) spoil(&reply, lanes);
    rank.n_steps++;
    ck_assert_int_eq(step_reply_encode(&rank.out, &reply, &err), 0);
    ck_assert_int_eq(rpc_call_send(call, rank.out.data, rank.out.len, &err), 0);
}

static const struct rpc_method methods[] = {
    {.path = "/outrider.target.v1.Target/Describe", .on_message = on_describe},
    {.path = "/outrider.target.v1.Target/Run",
     .is_stream_in = true,
     .is_exchange = true,
     .on_open = on_open,
     .on_message = on_step},
};

/* ---- the group of it alone ---- */

static struct checkpoint *ck;
static struct backend *be;
static struct rpc_server *server;
static struct target *target;
static struct found_group group = {.n_ranks = 1};
static struct arena arena;

static void setup(void)
{
    struct error err;
    const struct backend_cpu_options cpu = {"auto", 1, WEIGHTS_BF16};
    const struct rpc_service service = {.methods = methods, .n_methods = 2};
    const struct rpc_server_options options = {
        .address = "127.0.0.1:0", .services = &service, .n_services = 1};
    const struct target_options to_target = {.tokenizer_fingerprint = 7, .step_timeout_s = 60};
    CHECK_OK(checkpoint_open(&ck, TALES, &err));
    CHECK_OK(backend_cpu_open(&be, &cpu, &err));
    CHECK_OK(verifier_open(&rank.verifier, ck, comm_single(), be, &verifier_options, &err));
    CHECK_OK(arena_open(&rank.arena, ARENA, &err));
    CHECK_OK(arena_open(&arena, ARENA, &err));
    const struct model_config *cfg = checkpoint_config(ck);
    rank.description = (struct target_description){.model = "tales",
                                                   .architecture = "llama",
                                                   .arithmetic = "cpu-bf16",
                                                   .kernels = "plain",
                                                   .group = "g",
                                                   .n_layers = cfg->n_layers,
                                                   .dim = cfg->dim,
                                                   .n_heads = cfg->n_heads,
                                                   .n_kv_heads = cfg->n_kv_heads,
                                                   .head_dim = cfg->head_dim,
                                                   .ffn_dim = cfg->ffn_dim,
                                                   .vocab_size = VOCAB,
                                                   .n_ranks = 1,
                                                   .n_slices = config_slices(cfg),
                                                   .n_slots = N_SLOTS,
                                                   .n_kv_blocks = N_BLOCKS,
                                                   .block_tokens = KV_BLOCK_TOKENS,
                                                   .context_limit = cfg->max_positions,
                                                   .max_step_tokens = STEP_TOKENS,
                                                   .max_step_rows = STEP_ROWS,
                                                   .n_threads = 1,
                                                   .tokenizer_fingerprint = 7};
    CHECK_OK(rpc_server_open(&server, &options, &err));
    CHECK_OK(target_open(&target, &to_target, &err));
    snprintf(group.addresses[0], sizeof group.addresses[0], "%s", rpc_server_address(server));
    CHECK_OK(target_connect(target, &group, clock_now_us() + CONNECT_US, &err));
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (37 * i + 11) % VOCAB;
    }
}

static void teardown(void)
{
    target_close(target);
    rpc_server_close(server, 1000);
    verifier_close(rank.verifier);
    be->ops->close(be);
    checkpoint_close(ck);
    arena_close(&rank.arena);
    arena_close(&arena);
    buffer_free(&rank.out);
}

/* A step of two lanes, which feed the same text into two slots; the first wants the features of its
 * last `n`, the second of all of its tokens. A row of the first is asked for with top-p where
 * `with_row`. */
struct asked {
    struct step_lane lanes[2];
    struct lane_want want;
    struct target_query query;
    struct target_question question;
    struct target_result result;
    struct target_cost cost;
};

static int ask(struct asked *a, int n, bool with_row, struct error *err)
{
    static const struct sampling_params flat = {.temperature = 4.0f, .top_p = 0.9f};
    *a = (struct asked){0};
    for (int i = 0; i < 2; i++) {
        a->lanes[i] = (struct step_lane){
            .slot = i, .n_tokens = TOKENS, .tokens = tokens, .n_blocks = 1, .blocks = blocks[i]};
    }
    if (n > 0) a->lanes[0].feature_first = TOKENS - n;
    a->lanes[0].n_features = n;
    a->lanes[1].n_features = TOKENS;
    a->want = (struct lane_want){.lane = 0,
                                 .index = TOKENS - 1,
                                 .want = {.rule = &accept_rules[RULE_REJECTION],
                                          .params = &flat,
                                          .at = {77, TOKENS, TOKENS}}};
    a->query = (struct target_query){.lanes = a->lanes,
                                     .n_lanes = 2,
                                     .wants = &a->want,
                                     .n_wants = with_row ? 1 : 0,
                                     .features = wish};
    arena_reset(&arena);
    int rc = target_verify_send(target, &a->query, &arena, &a->question, &a->result, &a->cost, err);
    if (rc) return rc;
    return target_verify_merge(target, &a->query, &arena, &a->question, &a->result, &a->cost, err);
}

START_TEST(features_come_beside_rows_and_outlive_further_questions)
{
    struct error err;
    struct asked a;
    size_t row = 3 * (size_t)checkpoint_config(ck)->dim;
    CHECK_OK(ask(&a, 4, true, &err));
    ck_assert_uint_gt(a.cost.more_rows, 0); /* the cut of top-p took a second question */
    ck_assert_int_eq(rank.n_steps, 2);
    ck_assert(a.result.rows[0].n > 0 && !a.result.lane_errors[0] && !a.result.feature_error);
    ck_assert_int_eq(a.result.feature_dim, checkpoint_config(ck)->dim);
    const struct lane_features *last = &a.result.features[0], *all = &a.result.features[1];
    ck_assert_int_eq(last->n, 4 * (int)row);
    ck_assert_int_eq(all->n, TOKENS * (int)row);
    ck_assert_mem_eq(last->data, all->data + (TOKENS - 4) * row, 4 * row * sizeof *last->data);
    ck_assert_mem_ne(all->data, all->data + row, row * sizeof *all->data);
    ck_assert_uint_eq(a.cost.feature_bytes, (TOKENS + 4) * row * sizeof *all->data);
    ck_assert_uint_gt(a.cost.bytes_received, a.cost.feature_bytes);
}
END_TEST

START_TEST(a_step_without_a_wish_has_no_features)
{
    struct error err;
    struct asked a;
    a.query = (struct target_query){0};
    CHECK_OK(ask(&a, 0, false, &err));
    ck_assert(a.result.features[0].n == 0 && a.result.features[1].n > 0);
    a.lanes[1].n_features = 0;
    a.query.features = (struct feature_wish){0};
    CHECK_OK(target_verify_send(target, &a.query, &arena, &a.question, &a.result, &a.cost, &err));
    CHECK_OK(target_verify_merge(target, &a.query, &arena, &a.question, &a.result, &a.cost, &err));
    ck_assert(a.result.features[0].n == 0 && a.result.features[1].n == 0);
}
END_TEST

static const struct {
    enum spoiled spoiled;
    const char *says;
} losses[] = {{SHORTER, "the features of lane 1 are not"},
              {MISSING, "the features of lane 1 are not"},
              {EXTRA, "features of 1 lanes came, which nobody wants"}};

START_TEST(features_that_were_not_asked_for_lose_the_group)
{
    struct error err;
    struct asked a;
    rank.spoiled = losses[_i].spoiled;
    CHECK_ERR(ask(&a, 2, false, &err), ERR_UNAVAILABLE, losses[_i].says);
    ck_assert(!target_is_connected(target));
    rank.spoiled = AS_IT_IS;
    CHECK_OK(target_connect(target, &group, clock_now_us() + CONNECT_US, &err));
    CHECK_OK(ask(&a, 2, false, &err));
    ck_assert_int_gt(a.result.features[1].n, 0);
}
END_TEST

START_TEST(rows_are_not_concerned_where_there_are_no_features)
{
    struct error err;
    struct asked a;
    rank.spoiled = NOT_NUMBERS;
    CHECK_OK(ask(&a, 2, true, &err));
    ck_assert_str_eq(a.result.feature_error, "they are not numbers");
    ck_assert(a.result.features[0].n == 0 && a.result.features[1].n > 0);
    ck_assert(a.result.rows[0].n > 0 && !a.result.lane_errors[0]);
    rank.spoiled = NO_MEMORY;
    CHECK_OK(ask(&a, 2, true, &err));
    ck_assert_str_eq(a.result.feature_error, "there is no memory for the features");
    ck_assert(a.result.features[0].n == 0 && a.result.features[1].n == 0);
    ck_assert(a.result.rows[0].n > 0 && target_is_connected(target));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("target_features");
    TCase *tcase = tcase_create("features");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, features_come_beside_rows_and_outlive_further_questions);
    tcase_add_test(tcase, a_step_without_a_wish_has_no_features);
    tcase_add_loop_test(tcase, features_that_were_not_asked_for_lose_the_group, 0, 3);
    tcase_add_test(tcase, rows_are_not_concerned_where_there_are_no_features);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
