/* The bytes of target.proto: another implementation of protobuf makes the same bytes, and a typical
 * step is as small as docs/design.md, section 5, says. Prints bytes and times. */
/* ctest: labels=quick libs=proto timeout=60 */
#include "base/clock.h"
#include "proto/target_wire.h"
#include "tests/support/wire_samples.h"

enum { ARENA_BYTES = 1 << 20 };

static struct error err;
static struct arena made, read_back; /* what is sent, what is received */
static struct buffer buf;

static void setup(void)
{
    CHECK_OK(arena_open(&made, ARENA_BYTES, &err));
    CHECK_OK(arena_open(&read_back, ARENA_BYTES, &err));
}

static void teardown(void)
{
    arena_close(&made);
    arena_close(&read_back);
    buffer_free(&buf);
}

/* Serialized by Python's protobuf 7.36.2 (grpcio-tools 1.85.1) from proto/target.proto. */
static const char golden_step[] =
    "098877665544332211125d080310d2091a0705f0a204ffe9072002284d320309ac023a19100118012a040000"
    "403f491032547698badcfe50d30958b0093a290802220604d00fa08d062a080000403f0000803f3001380140"
    "0149010000000000000050d50958b009";
static const char golden_reply[] =
    "090900000000000000124a0a4808011208460000007f0000001a080000c03f000000c022040000803e2d0000"
    "c03f32100000000000000c40000000000000104039000000000000e0bf4100000000000002404882011a0708"
    "0110c801181e";

static void expect_bytes(const char *hex)
{
    uint8_t bytes[256];
    ck_assert_uint_eq(buf.len, bytes_from_hex(hex, bytes));
    ck_assert_mem_eq(buf.data, bytes, buf.len);
}

START_TEST(step_bytes_equal_those_of_another_protobuf)
{
    const int32_t tokens[] = {5, 70000, 128255}, blocks[] = {9, 300}, ids[] = {4, 2000, 100000};
    const struct step_row rows[] = {{.index = 0,
                                     .wish = {.n_best = 1,
                                              .noisy_best = true,
                                              .n_temperatures = 1,
                                              .temperatures = {0.75f},
                                              .at = {0xfedcba9876543210, 1235, 1200}}},
                                    {.index = 2,
                                     .wish = {.n_ids = 3,
                                              .ids = ids,
                                              .n_temperatures = 2,
                                              .temperatures = {0.75f, 1},
                                              .entropy = true,
                                              .outside = true,
                                              .full = true,
                                              .at = {1, 1237, 1200}}}};
    const struct step_lane lane = {.slot = 3,
                                   .position = 1234,
                                   .n_tokens = 3,
                                   .tokens = tokens,
                                   .n_draft = 2,
                                   .first_block = 77,
                                   .n_blocks = 2,
                                   .blocks = blocks,
                                   .n_rows = 2,
                                   .rows = rows};
    const struct step sent = {.id = 0x1122334455667788, .n_lanes = 1, .lanes = &lane};
    struct step got;
    CHECK_OK(step_encode(&buf, &sent, &err));
    expect_bytes(golden_step);
    CHECK_OK(step_decode(buf.data, buf.len, &read_back, &got, &err));
    CHECK_OK(step_encode(&buf, &got, &err));
    expect_bytes(golden_step);
}
END_TEST

/* A lane with a tree has two more fields, whose bytes follow from protobuf's rules: zigzag integers
 * of field 8, integers of field 9, both packed. */
START_TEST(a_tree_adds_parents_and_tails)
{
    static const int32_t tokens[] = {1, 2, 3, 4}, parents[] = {-1, 0, -1}, tails[] = {5, 300};
    struct step_lane lane = {.slot = 3, .n_tokens = 4, .tokens = tokens, .n_draft = 3};
    const struct step sent = {.id = 1, .n_lanes = 1, .lanes = &lane};
    CHECK_OK(step_encode(&buf, &sent, &err));
    expect_bytes("090100000000000000"
                 "120a08031a04010203042003");
    lane.parents = parents;
    lane.n_tails = 2;
    lane.tails = tails;
    CHECK_OK(step_encode(&buf, &sent, &err));
    expect_bytes("090100000000000000"
                 "121408031a04010203042003"
                 "42030100014a0305ac02");
    seed_write("target_wire", 0, "step_tree", 0, buf.data, buf.len);
}
END_TEST

START_TEST(reply_bytes_equal_those_of_another_protobuf)
{
    const int32_t best_ids[] = {70, 127};
    const float best_logits[] = {1.5f, -2}, id_logits[] = {0.25f};
    const struct slice_row slice = {.slice = 1,
                                    .first_id = 64,
                                    .n_cols = 64,
                                    .n_best = 2,
                                    .best_ids = best_ids,
                                    .best_logits = best_logits,
                                    .n_ids = 1,
                                    .id_logits = id_logits,
                                    .noisy_id = -1,
                                    .max = 1.5f,
                                    .sum_exp = {3.5, 4},
                                    .sum_exp_log = -0.5,
                                    .outside_sum = 2.25,
                                    .outside_id = 65};
    const struct row_reply row = {.n_slices = 1, .slices = &slice};
    const struct step_reply sent = {
        .id = 9, .n_rows = 1, .rows = &row, .queue_us = 1, .compute_us = 200, .collective_us = 30};
    struct step_reply got;
    CHECK_OK(step_reply_encode(&buf, &sent, &err));
    expect_bytes(golden_reply);
    CHECK_OK(step_reply_decode(buf.data, buf.len, 128, 2, &read_back, &got, &err));
    CHECK_OK(step_reply_encode(&buf, &got, &err));
    expect_bytes(golden_reply);
}
END_TEST

/* A typical verification: one lane, five guesses, 64 ids per row, two slices from this rank. */
static void typical_make(struct step *step, struct step_reply *reply)
{
    enum { N_ROWS = 6, N_IDS = 64, VOCAB = 128256 };
    struct step_row *rows = sample_take(&made, N_ROWS, sizeof *rows);
    struct row_reply *replies = sample_take(&made, N_ROWS, sizeof *replies);
    for (int i = 0; i < N_ROWS; i++) {
        rows[i].index = i;
        rows[i].wish = (struct row_wish){.n_ids = N_IDS,
                                         .ids = sample_ids(&made, N_IDS, 0, VOCAB - 1),
                                         .n_temperatures = 1,
                                         .temperatures = {0.8f},
                                         .outside = true,
                                         .at = {sample_bits(), 1000, 990}};
        struct slice_row *slices = sample_take(&made, 2, sizeof *slices);
        for (int s = 0; s < 2; s++) {
            slices[s] = (struct slice_row){.slice = s,
                                           .n_ids = N_IDS / 2,
                                           .id_logits = sample_floats(&made, N_IDS / 2),
                                           .noisy_id = -1,
                                           .max = 3.25f,
                                           .sum_exp = {12.5},
                                           .outside_sum = 1.25,
                                           .outside_id = s * 64192 + 7};
        }
        replies[i] = (struct row_reply){.n_slices = 2, .slices = slices};
    }
    struct step_lane *lane = sample_take(&made, 1, sizeof *lane);
    *lane = (struct step_lane){.slot = 3,
                               .position = 1000,
                               .n_tokens = N_ROWS,
                               .tokens = sample_ids(&made, N_ROWS, 0, VOCAB - 1),
                               .n_draft = 5,
                               .n_rows = N_ROWS,
                               .rows = rows};
    *step = (struct step){.id = 77, .n_lanes = 1, .lanes = lane};
    *reply = (struct step_reply){.id = 77,
                                 .n_rows = N_ROWS,
                                 .rows = replies,
                                 .queue_us = 5,
                                 .compute_us = 9000,
                                 .collective_us = 100};
}

/* The four codec calls of a round, on the messages that the test has made. */
static struct step step, step_got;
static struct step_reply reply, reply_got;
static struct buffer step_bytes, reply_bytes;

static void call_step_encode(void)
{
    CHECK_OK(step_encode(&step_bytes, &step, &err));
}

static void call_step_decode(void)
{
    arena_reset(&read_back);
    CHECK_OK(step_decode(step_bytes.data, step_bytes.len, &read_back, &step_got, &err));
}

static void call_reply_encode(void)
{
    CHECK_OK(step_reply_encode(&reply_bytes, &reply, &err));
}

static void call_reply_decode(void)
{
    arena_reset(&read_back);
    CHECK_OK(step_reply_decode(reply_bytes.data, reply_bytes.len, 128256, 2, &read_back, &reply_got,
                               &err));
}

/* The best of many short batches, because other processes use the machine too. */
static void time_print(const char *name, void (*call)(void))
{
    enum { BATCHES = 50, CALLS = 40 };
    int64_t best = INT64_MAX;
    for (int b = 0; b < BATCHES; b++) {
        int64_t start = clock_now_ns();
        for (int i = 0; i < CALLS; i++) {
            call();
        }
        int64_t took = clock_now_ns() - start;
        if (took < best) best = took;
    }
    printf("%s: %.2f us\n", name, (double)best / 1000.0 / CALLS);
}

START_TEST(typical_step_is_small)
{
    sample_start("typical_step");
    typical_make(&step, &reply);
    time_print("step_encode", call_step_encode);
    time_print("step_decode", call_step_decode);
    size_t step_arena = read_back.used_bytes;
    time_print("step_reply_encode", call_reply_encode);
    time_print("step_reply_decode", call_reply_decode);
    size_t per_position = (step_bytes.len + reply_bytes.len) / 6;
    printf("step %zu bytes (arena %zu), reply %zu bytes (arena %zu): %zu bytes per position\n",
           step_bytes.len, step_arena, reply_bytes.len, read_back.used_bytes, per_position);
    ck_assert_uint_lt(per_position, 650);
    buffer_free(&step_bytes);
    buffer_free(&reply_bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wire_bytes");
    TCase *tcase = tcase_create("wire_bytes");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, step_bytes_equal_those_of_another_protobuf);
    tcase_add_test(tcase, a_tree_adds_parents_and_tails);
    tcase_add_test(tcase, reply_bytes_equal_those_of_another_protobuf);
    tcase_add_test(tcase, typical_step_is_small);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
