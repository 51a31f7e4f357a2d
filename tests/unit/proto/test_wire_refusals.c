/* Values that the codecs refuse, each with the name of its field and the value. The encoders do not
 * check numbers, so they make the bad messages; where no encoder can, the bytes are given as
 * hex. */
/* ctest: labels=quick libs=proto timeout=60 */
#include <math.h>

#include "base/limits.h"
#include "proto/target_wire.h"
#include "tests/support/wire_samples.h"

enum { N_VOCAB = 4096, N_SLICES = 4, ARENA_BYTES = 4 << 20 };

static struct error err;
static struct arena arena;
static struct buffer buf;

static void setup(void)
{
    CHECK_OK(arena_open(&arena, ARENA_BYTES, &err));
}

static void teardown(void)
{
    arena_close(&arena);
    buffer_free(&buf);
}

/* One valid lane with two rows; each test spoils one thing. */
static struct step_row rows[2];
static struct step_lane lane;
static struct step step;
static int32_t tokens[3], ids[2], blocks[2];

static void step_reset(void)
{
    tokens[0] = tokens[1] = tokens[2] = 9;
    ids[0] = 1, ids[1] = 2;
    blocks[0] = 0, blocks[1] = 7;
    rows[0] = (struct step_row){.index = 1, .wish = {.n_best = 1}};
    rows[1] = (struct step_row){
        .index = 2,
        .wish = {
            .n_ids = 2, .ids = ids, .n_temperatures = 1, .temperatures = {1}, .outside = true}};
    lane = (struct step_lane){.n_tokens = 3,
                              .tokens = tokens,
                              .n_draft = 2,
                              .n_blocks = 2,
                              .blocks = blocks,
                              .n_rows = 2,
                              .rows = rows};
    step = (struct step){.id = 5, .n_lanes = 1, .lanes = &lane};
}

static void step_refused(const char *text)
{
    struct step got;
    CHECK_OK(step_encode(&buf, &step, &err));
    arena_reset(&arena);
    CHECK_ERR(step_decode(buf.data, buf.len, &arena, &got, &err), ERR_FORMAT, text);
    ck_assert_int_eq(got.n_lanes, 0);
    step_reset();
}

START_TEST(wishes_for_features_that_make_no_sense_are_refused)
{
    struct step_more more = {.n_rows = 1, .rows = rows};
    step_reset();
    step.features = (struct feature_wish){.n = 2, .boundaries = {3, 3}};
    step_refused("features: boundaries (ascending) is 3, must be 4 to 65535");
    step.features = (struct feature_wish){.n = 2, .boundaries = {0, 65536}};
    step_refused("boundaries (ascending) is 65536");
    lane.n_features = 1;
    step_refused("lane 0: n_features is 1, but the step names no boundary");
    step.features.normed = true;
    lane.feature_first = 3;
    step_refused("lane 0: feature_first is 3, must be 0 to 2");
    step.features.normed = true;
    lane.feature_first = 1, lane.n_features = 3;
    step_refused("lane 0: n_features is 3, must be 0 to 2");
    step.features.normed = true;
    step.n_lanes = 0, step.n_more = 1, step.more = &more;
    step_refused("features are wanted of more_rows, which have none");
    step.features.projection =
        (struct feature_projection){.key = {5, 64}, .n = 1, .boundaries = {2}};
    step.n_lanes = 0, step.n_more = 1, step.more = &more;
    step_refused("features are wanted of more_rows, which have none");
}
END_TEST

START_TEST(projections_that_make_no_sense_are_refused)
{
    const struct feature_projection good = {.key = {5, 64}, .n = 2, .boundaries = {2, 4}};
    struct step got;
    struct feature_projection *projection = &step.features.projection;
    step_reset();
    *projection = good, projection->boundaries[1] = 2;
    step_refused("features: projection: boundaries (ascending) is 2, must be 3 to 65535");
    *projection = good, projection->key.width = 0;
    step_refused("projection: width is 0, must be 1 to 65536");
    *projection = good, projection->n = 0;
    step_refused("projection: it reads no feature");
    static const uint8_t no_digest[] = {0x12, 0x00, 0x22, 0x04, 0x1a, 0x02, 0x10, 0x01};
    CHECK_ERR(step_decode(no_digest, sizeof no_digest, &arena, &got, &err), ERR_FORMAT,
              "features: projection: digest is 0, which no fc has");
    *projection = good, step.features.n = FEATURE_BOUNDARIES_MAX - 1;
    for (int i = 0; i < step.features.n; i++) {
        step.features.boundaries[i] = i;
    }
    step_refused("projection: boundaries has 2 entries, at most 1 are taken");
    *projection = good, lane.n_features = 1;
    CHECK_OK(step_encode(&buf, &step, &err));
    arena_reset(&arena);
    CHECK_OK(step_decode(buf.data, buf.len, &arena, &got, &err));
    ck_assert(feature_projection_equal(&got.features.projection, &good));
    step_reset();
}
END_TEST

START_TEST(lane_refusals_name_the_field)
{
    struct step got;
    step_reset();
    CHECK_OK(step_encode(&buf, &step, &err));
    CHECK_OK(step_decode(buf.data, buf.len, &arena, &got, &err));
    step.n_lanes = 0;
    step_refused("0 lanes and 0 more_rows");
    struct step_more more = {.n_rows = 1, .rows = rows};
    step.n_more = 1, step.more = &more;
    step_refused("1 lanes and 1 more_rows");
    lane.slot = -1;
    step_refused("step 5: lane 0: slot is 4294967295");
    lane.position = INT32_MAX;
    step_refused("position is 2147483647, must be 0 to 2147483644");
    lane.n_tokens = 0;
    step_refused("tokens is empty");
    tokens[2] = -3;
    step_refused("tokens[2] is -3");
    lane.n_draft = 3;
    step_refused("n_draft is 3, must be 0 to 2");
    blocks[1] = -1;
    step_refused("blocks[1] is 4294967295");
    lane.first_block = INT32_MAX;
    step_refused("first_block is 2147483647");
    more.lane = WIRE_LANES_MAX;
    step.n_lanes = 0, step.n_more = 1, step.more = &more;
    step_refused("more_rows 0: lane is 1024");
}
END_TEST

/* A lane whose n guesses have these parents, and n_tails further blocks. */
static void tree_refused(const int32_t *parents, int n, int n_tails, const char *text)
{
    static const int32_t many[TREE_NODES_MAX + 2], tails[TREE_TAILS_MAX + 1];
    lane.n_draft = n;
    lane.n_tokens = n + 1;
    lane.tokens = many;
    lane.parents = parents;
    lane.n_tails = n_tails;
    lane.tails = tails;
    step_refused(text);
}

START_TEST(tree_refusals_name_the_value)
{
    static const int32_t late[] = {-1, 1}, low[] = {-1, -2}, early[] = {-1, 0, -1, 1},
                         fork[] = {-1, 0, 0}, rootless[] = {0};
    static const int32_t bad_tail[] = {-1};
    int32_t chain[DRAFT_MAX + 1], star[TREE_NODES_MAX + 1];
    for (int i = 0; i <= DRAFT_MAX; i++) {
        chain[i] = i - 1;
    }
    for (int i = 0; i <= TREE_NODES_MAX; i++) {
        star[i] = -1;
    }
    step_reset();
    tree_refused(rootless, 1, 0, "lane 0: parents[0] is 0, must be -1 to -1");
    tree_refused(late, 2, 0, "parents[1] is 1, must be -1 to 0");
    tree_refused(low, 2, 0, "parents[1] is -2, must be -1 to 0");
    tree_refused(early, 4, 2, "parents[3] is 1, which is no ancestor of guess 2");
    tree_refused(chain, DRAFT_MAX + 1, 0,
                 "guess 16 is number 17 of its path, at most 16 are taken");
    tree_refused(star, TREE_PATHS_MAX + 1, 32, "guess 32 begins path 33 of the tree, at most 32");
    tree_refused(star, TREE_NODES_MAX + 1, 63, "n_draft is 65, must be 0 to 64");
    tree_refused(fork, 3, 0, "tails has 0 entries, but the tree has 1 more paths");
    tree_refused(fork, 3, DRAFT_MAX + 1, "tails has 17 entries, at most 16");
    tree_refused(chain, 3, 1, "tails has 1 entries, at most 0");
    tree_refused(NULL, 3, 1, "tails without parents has 1 entries, at most 0");
    lane.n_draft = 1;
    lane.parents = fork;
    lane.n_tails = 1;
    lane.tails = bad_tail;
    lane.n_tokens = 2;
    struct step got;
    CHECK_OK(step_encode(&buf, &step, &err));
    CHECK_ERR(step_decode(buf.data, buf.len, &arena, &got, &err), ERR_FORMAT,
              "tails has 1 entries, at most 0");
    lane.n_draft = 3;
    lane.n_tokens = 4;
    lane.tokens = star;
    for (int i = 0; i < 4; i++) {
        star[i] = i;
    }
    step_refused("tails[0] is 4294967295, must be 0 to 2147483647");
}
END_TEST

/* Fewer parents than guesses, which the encoder never sends. */
START_TEST(parents_are_as_many_as_guesses)
{
    uint8_t bytes[64];
    struct step got;
    size_t len = bytes_from_hex("090500000000000000"
                                "120a1a030102032002420101",
                                bytes);
    arena_reset(&arena);
    CHECK_ERR(step_decode(bytes, len, &arena, &got, &err), ERR_FORMAT,
              "parents has 1 entries, but n_draft is 2");
}
END_TEST

START_TEST(wish_refusals_name_the_field)
{
    step_reset();
    rows[1].index = 3;
    step_refused("row 1: index is 3, must be 0 to 2");
    rows[0].index = -1;
    step_refused("row 0: index is 4294967295");
    rows[0].wish.n_best = WIRE_ROW_BEST_MAX + 1;
    step_refused("n_best is 1048577");
    ids[1] = -1;
    step_refused("ids[1] is -1");
    rows[1].wish.temperatures[0] = 0;
    step_refused("temperatures[0] is 0");
    rows[1].wish.temperatures[0] = NAN;
    step_refused("temperatures[0] is nan");
    rows[1].wish.temperatures[0] = INFINITY;
    step_refused("temperatures[0] is inf");
    rows[1].wish.n_temperatures = 0;
    step_refused("outside is wished, but temperatures is empty");
    rows[0].wish.entropy = true;
    step_refused("entropy is wished");
    rows[0].wish.noisy_best = true;
    step_refused("noisy_best is wished");
}
END_TEST

START_TEST(too_many_are_refused_with_their_count)
{
    step_reset();
    int32_t *many = sample_take(&arena, WIRE_LANE_TOKENS_MAX + 1, sizeof *many);
    memset(many, 0, (WIRE_LANE_TOKENS_MAX + 1) * sizeof *many);
    struct arena rest = arena;
    rest.base += arena.used_bytes, rest.size_bytes -= arena.used_bytes, rest.used_bytes = 0;
    struct arena whole = arena;
    arena = rest;
    lane.tokens = many, lane.n_tokens = WIRE_LANE_TOKENS_MAX + 1;
    step_refused("tokens has 65537 entries, at most 65536");
    lane.blocks = many, lane.n_blocks = WIRE_LANE_TOKENS_MAX + 1;
    step_refused("blocks has 65537 entries");
    lane.tokens = many, lane.n_tokens = 100, lane.n_draft = DRAFT_MAX + 1;
    step_refused("n_draft is 17, must be 0 to 16");
    rows[1].wish.ids = many, rows[1].wish.n_ids = WIRE_ROW_IDS_MAX + 1;
    step_refused("ids has 32769 entries, at most 32768");
    const struct step_row three[3] = {{.index = 0}};
    lane.rows = three, lane.n_rows = 3, lane.n_tokens = 2, lane.n_draft = 0;
    step_refused("rows has 3 entries, at most 2");
    static struct step_lane lanes[WIRE_LANES_MAX + 1];
    for (int i = 0; i <= WIRE_LANES_MAX; i++) {
        lanes[i] = (struct step_lane){.n_tokens = 1, .tokens = tokens};
    }
    step.lanes = lanes, step.n_lanes = WIRE_LANES_MAX + 1;
    step_refused("lanes has 1025 entries, at most 1024");
    arena = whole;
}
END_TEST

static struct slice_row slices[2];
static struct row_reply row;
static struct step_reply reply;
static int32_t best_ids[2];
static float best_logits[2], id_logits[2], full[1024];

static void reply_reset(void)
{
    best_ids[0] = 1024, best_ids[1] = 2047;
    best_logits[0] = id_logits[0] = 2, best_logits[1] = id_logits[1] = -INFINITY;
    slices[0] = (struct slice_row){.slice = 1,
                                   .n_cols = 1024,
                                   .n_best = 2,
                                   .best_ids = best_ids,
                                   .best_logits = best_logits,
                                   .n_ids = 2,
                                   .id_logits = id_logits,
                                   .max = 2,
                                   .sum_exp = {1, 2},
                                   .outside_sum = 1,
                                   .outside_id = 1500};
    slices[1] = (struct slice_row){.slice = 3, .max = -INFINITY};
    row = (struct row_reply){.n_slices = 2, .slices = slices};
    reply = (struct step_reply){.id = 6, .n_rows = 1, .rows = &row};
}

static void reply_refused(const char *text)
{
    struct step_reply got;
    CHECK_OK(step_reply_encode(&buf, &reply, &err));
    arena_reset(&arena);
    CHECK_ERR(step_reply_decode(buf.data, buf.len, N_VOCAB, N_SLICES, &arena, &got, &err),
              ERR_FORMAT, text);
    ck_assert_int_eq(got.n_rows, 0);
    reply_reset();
}

START_TEST(slice_refusals_name_the_field)
{
    struct step_reply got;
    reply_reset();
    CHECK_OK(step_reply_encode(&buf, &reply, &err));
    CHECK_OK(step_reply_decode(buf.data, buf.len, N_VOCAB, N_SLICES, &arena, &got, &err));
    slices[1].slice = 1;
    reply_refused("reply to step 6: row 0: slice entry 1: slice is 1, must be 2 to 3");
    slices[1].slice = 4;
    reply_refused("slice is 4");
    best_ids[0] = 1023;
    reply_refused("best_ids[0] is 1023, outside of columns 1024 to 2047");
    best_ids[1] = 2048;
    reply_refused("best_ids[1] is 2048");
    best_logits[1] = NAN;
    reply_refused("best_logits[1] is nan");
    id_logits[0] = NAN;
    reply_refused("id_logits[0] is nan");
    id_logits[1] = INFINITY;
    reply_refused("id_logits[1] is inf");
    slices[0].max = NAN;
    reply_refused("max is nan");
    slices[0].sum_exp[0] = -1;
    reply_refused("sum_exp[0] is -1");
    slices[0].sum_exp[1] = (double)INFINITY;
    reply_refused("sum_exp[1] is inf");
    slices[0].sum_exp_log = (double)NAN;
    reply_refused("sum_exp_log is nan");
    slices[0].outside_sum = (double)NAN;
    reply_refused("outside_sum is nan");
    slices[0].outside_sum = -0.5;
    reply_refused("outside_sum is -0.5");
    slices[0].outside_id = 2048;
    reply_refused("outside_id is 2048");
    slices[0].outside_id = -1;
    reply_refused("outside_id is -1");
    slices[0].outside_logit = NAN;
    reply_refused("outside_logit is nan");
    slices[0].noisy_id = 1024;
    reply_refused("noisy_column is 1025, must be 0 to 1024");
    slices[0].noisy_logit = NAN;
    reply_refused("noisy_logit is nan");
    slices[0].buckets = full, slices[0].n_buckets = ROW_BUCKETS + 1;
    reply_refused("buckets has 129 entries, at most 128 are taken");
    slices[0].full = full, slices[0].n_cols = 1023;
    reply_refused("full has 1023 entries, the slice has 1024 columns");
    full[77] = NAN, slices[0].full = full;
    reply_refused("full[77] is nan");
    full[77] = 0;
}
END_TEST

START_TEST(refused_lanes_ascend_and_exist)
{
    struct lane_refusal refused[2] = {{0, "no tokens"}, {WIRE_LANES_MAX - 1, "no tokens"}};
    struct step_reply got;
    reply_reset();
    reply.n_refused = 2, reply.refused = refused;
    CHECK_OK(step_reply_encode(&buf, &reply, &err));
    CHECK_OK(step_reply_decode(buf.data, buf.len, N_VOCAB, N_SLICES, &arena, &got, &err));
    ck_assert(got.n_refused == 2 && got.refused[1].lane == WIRE_LANES_MAX - 1);
    refused[1].lane = 0;
    reply_refused("reply to step 6: error.lane is 0, must be 1 to 1023");
    refused[0].lane = 5, refused[1].lane = 4;
    reply.n_refused = 2, reply.refused = refused;
    reply_refused("error.lane is 4, must be 6 to 1023");
    refused[0].lane = -1;
    reply.n_refused = 1, reply.refused = refused;
    reply_refused("error.lane is -1, must be 0 to 1023");
    refused[0].lane = WIRE_LANES_MAX;
    reply.n_refused = 1, reply.refused = refused;
    reply_refused("error.lane is 1024, must be 0 to 1023");
    static struct lane_refusal many[WIRE_LANES_MAX + 1];
    for (int i = 0; i <= WIRE_LANES_MAX; i++) {
        many[i] = (struct lane_refusal){i, ""};
    }
    reply.n_refused = WIRE_LANES_MAX + 1, reply.refused = many;
    reply_refused("refused has 1025 entries, at most 1024");
}
END_TEST

static void reply_hex_refused(const char *hex, const char *text)
{
    uint8_t bytes[64];
    struct step_reply got;
    size_t len = bytes_from_hex(hex, bytes);
    arena_reset(&arena);
    CHECK_ERR(step_reply_decode(bytes, len, N_VOCAB, N_SLICES, &arena, &got, &err), ERR_FORMAT,
              text);
}

START_TEST(malformed_replies_are_refused)
{
    reply_hex_refused("12070a052203000000", "id_logits has 3 bytes, not a multiple of 4");
    reply_hex_refused("12140a12120800000000000000001a04000000000000", "are not a StepReply");
    reply_hex_refused("12120a10120800000000000000001a0400000000",
                      "best_ids has 8 bytes, best_logits 4");
    reply_hex_refused("1200220408011200", "an error and 1 rows");
    reply_hex_refused("12050a00120178", "an error and 1 slices");
    reply_hex_refused("12021801", "no_room is set, but error is empty");
    reply_hex_refused("2200"
                      "2a020801",
                      "an error and 0 rows, 1 refused lanes and 0 lanes' features");
    reply_hex_refused("2200"
                      "32020000",
                      "an error and 0 rows, 0 refused lanes and 1 lanes' features");
    reply_hex_refused("3200", "features 0 has 0 bytes");
    reply_hex_refused("32020000"
                      "3203000000",
                      "features 1 has 3 bytes, must be of 2 bytes each");
    reply_hex_refused("2a051203"
                      "61ff62",
                      "error.text is not UTF-8 text at byte 1 (0xff)");
    reply_hex_refused("2a0608ffffffff07", "error.lane is 2147483647");
    reply_hex_refused("2202087fff", "are not a StepReply");
    reply_hex_refused("2203088008", "error.lane is 1024");
    reply_hex_refused("2205120361ff62", "error.text is not UTF-8 text at byte 1 (0xff)");
    reply_hex_refused("22051203610062", "error.text is not UTF-8 text at byte 1 (0x00)");
    reply_hex_refused("07", "1 bytes are not a StepReply");
    struct step got;
    CHECK_ERR(step_decode(buf.data, (size_t)MESSAGE_BYTES_MAX + 1, &arena, &got, &err), ERR_FORMAT,
              "a StepRequest of 67108865 bytes, at most 67108864 are taken");
}
END_TEST

/* A reply has room for features of this many bytes, over all lanes. */
START_TEST(features_past_the_room_of_a_reply_are_refused)
{
    enum { HALF = FEATURE_BYTES_MAX / 2 / (int)sizeof(uint16_t) };
    struct arena large;
    struct step_reply got;
    uint16_t *data = calloc(HALF + 1, sizeof *data);
    struct lane_features lanes[2] = {{HALF, data}, {HALF, data}};
    CHECK_OK(arena_open(&large, FEATURE_BYTES_MAX + (1 << 20), &err));
    reply_reset();
    reply.n_features = 2, reply.features = lanes;
    CHECK_OK(step_reply_encode(&buf, &reply, &err));
    CHECK_OK(step_reply_decode(buf.data, buf.len, N_VOCAB, N_SLICES, &large, &got, &err));
    ck_assert_int_eq(got.features[1].n, HALF);
    lanes[1].n++;
    CHECK_OK(step_reply_encode(&buf, &reply, &err));
    arena_reset(&large);
    CHECK_ERR(step_reply_decode(buf.data, buf.len, N_VOCAB, N_SLICES, &large, &got, &err),
              ERR_FORMAT, "features 1 has 16777218 bytes, must be of 2 bytes each and 33554432");
    arena_close(&large);
    free(data);
}
END_TEST

static const struct target_description good_description = {.n_layers = 1,
                                                           .dim = 2,
                                                           .n_heads = 3,
                                                           .n_kv_heads = 4,
                                                           .head_dim = 5,
                                                           .ffn_dim = 6,
                                                           .vocab_size = 7,
                                                           .rank = 1,
                                                           .n_ranks = 2,
                                                           .n_slices = 4,
                                                           .n_slots = 10,
                                                           .n_kv_blocks = 11,
                                                           .block_tokens = 12,
                                                           .context_limit = 13,
                                                           .max_step_tokens = 14,
                                                           .max_step_rows = 15,
                                                           .n_threads = 16,
                                                           .ends = {.n = 1}};

START_TEST(description_refusals_name_the_field)
{
    static const struct {
        size_t offset;
        int value;
        const char *text;
    } cases[] = {
        {offsetof(struct target_description, vocab_size), 0, "vocab_size is 0"},
        {offsetof(struct target_description, dim), -1, "dim is 4294967295"},
        {offsetof(struct target_description, context_limit), INT32_MAX,
         "context_limit is 2147483647"},
        {offsetof(struct target_description, n_kv_blocks), 1 << 25, "n_kv_blocks is 33554432"},
        {offsetof(struct target_description, rank), 2, "rank is 2, must be 0 to 1"},
        {offsetof(struct target_description, n_slices), 9, "n_slices is 9"},
        {offsetof(struct target_description, n_slices), 3, "n_slices is 3, not a multiple"},
        {offsetof(struct target_description, n_ranks), 5, "n_ranks is 5"},
        {offsetof(struct target_description, projection.width), 64,
         "projection_width is 64 without a projection_digest"},
        {offsetof(struct target_description, projection.digest), 1,
         "projection_digest comes from rank 1, only rank 0 has one"},
        {offsetof(struct target_description, look_ahead.n), 4,
         "n_look_ahead is 4 without a look_ahead_digest"},
        {offsetof(struct target_description, look_ahead.digest), 1,
         "n_look_ahead is 0, must be 1 to 16"},
        {offsetof(struct target_description, ends.ids), 7, "eos_ids[0] is 7"}};
    struct target_description refused;
    uint8_t unknown[4097]; /* as many unknown fields as fit: refused, but not for lack of memory */
    memset(unknown, 0xf8, sizeof unknown);
    for (size_t i = 0; i + 2 < sizeof unknown; i += 3) {
        unknown[i + 1] = 0x01, unknown[i + 2] = 0;
    }
    CHECK_ERR(target_description_decode(unknown, 4095, &refused, &err), ERR_FORMAT,
              "n_layers is 0");
    CHECK_ERR(target_description_decode(unknown, 4097, &refused, &err), ERR_FORMAT,
              "a Description of 4097 bytes, at most 4096 are taken");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct target_description bad = good_description, got;
        memcpy((char *)&bad + cases[i].offset, &cases[i].value, sizeof(int));
        CHECK_OK(target_description_encode(&buf, &bad, &err));
        CHECK_ERR(target_description_decode(buf.data, buf.len, &got, &err), ERR_FORMAT,
                  cases[i].text);
    }
}
END_TEST

/* The description in buf with n more bytes, an nccl_id of len. */
static int decode_with_id(uint8_t len, size_t n)
{
    struct target_description got;
    size_t before = buf.len;
    CHECK_OK(buffer_reserve(&buf, before + 3 + n, &err));
    memset(buf.data + before, 0x5a, 3 + n);
    buf.data[before] = (27 << 3 & 0x7f) | 0x80 | 2; /* field 27, bytes */
    buf.data[before + 1] = 27 << 3 >> 7;
    buf.data[before + 2] = len;
    int rc = target_description_decode(buf.data, before + 3 + n, &got, &err);
    ck_assert(rc || got.nccl_id[len ? len - 1 : 0] == (len ? 0x5a : 0));
    return rc;
}

START_TEST(nccl_id_of_another_size_or_rank_is_refused)
{
    struct target_description desc = good_description, got;
    desc.rank = 0;
    CHECK_OK(target_description_encode(&buf, &desc, &err));
    CHECK_ERR(decode_with_id(1, 1), ERR_FORMAT, "nccl_id has 1 bytes, must have 128 or none");
    CHECK_ERR(decode_with_id(127, 127), ERR_FORMAT, "nccl_id has 127 bytes");
    CHECK_OK(decode_with_id(0, 0));
    CHECK_ERR(decode_with_id(9, 8), ERR_FORMAT, "Description");
    desc.has_nccl_id = true;
    CHECK_OK(target_description_encode(&buf, &desc, &err));
    CHECK_OK(target_description_decode(buf.data, buf.len, &got, &err));
    ck_assert(got.has_nccl_id);
    const size_t pass_len = 3 + WIRE_MEMBER_PASS_BYTES; /* the last field */
    CHECK_ERR(target_description_decode(buf.data, buf.len - pass_len, &got, &err), ERR_FORMAT,
              "member_pass has 0 bytes, must have 16 where there is an nccl_id");
    buf.data[buf.len - WIRE_MEMBER_PASS_BYTES - 1]--;
    CHECK_ERR(target_description_decode(buf.data, buf.len - 1, &got, &err), ERR_FORMAT,
              "member_pass has 15 bytes");
    desc.rank = 1;
    CHECK_OK(target_description_encode(&buf, &desc, &err));
    CHECK_ERR(target_description_decode(buf.data, buf.len, &got, &err), ERR_FORMAT,
              "nccl_id comes from rank 1, only rank 0 has one");
    ck_assert(!got.has_nccl_id);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wire_refusals");
    TCase *tcase = tcase_create("wire_refusals");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, lane_refusals_name_the_field);
    tcase_add_test(tcase, tree_refusals_name_the_value);
    tcase_add_test(tcase, parents_are_as_many_as_guesses);
    tcase_add_test(tcase, wish_refusals_name_the_field);
    tcase_add_test(tcase, too_many_are_refused_with_their_count);
    tcase_add_test(tcase, slice_refusals_name_the_field);
    tcase_add_test(tcase, refused_lanes_ascend_and_exist);
    tcase_add_test(tcase, malformed_replies_are_refused);
    tcase_add_test(tcase, wishes_for_features_that_make_no_sense_are_refused);
    tcase_add_test(tcase, projections_that_make_no_sense_are_refused);
    tcase_add_test(tcase, features_past_the_room_of_a_reply_are_refused);
    tcase_add_test(tcase, description_refusals_name_the_field);
    tcase_add_test(tcase, nccl_id_of_another_size_or_rank_is_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
