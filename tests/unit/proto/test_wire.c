/* The codecs of target.proto: every field arrives, a full arena is not reported as a bad message,
 * and no prefix of a message leads to a read outside of it. */
/* ctest: labels=quick libs=proto timeout=60 */
#include <math.h>

#include "base/tree_layout.h"
#include "proto/target_wire.h"
#include "tests/support/wire_samples.h"

enum { N_VOCAB = 4096, N_SLICES = 4, SLICE_COLS = 1024, ARENA_BYTES = 8 << 20 };

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

static int step_read(struct step *step)
{
    arena_reset(&read_back);
    return step_decode(buf.data, buf.len, &read_back, step, &err);
}

static int reply_read(struct step_reply *reply)
{
    arena_reset(&read_back);
    return step_reply_decode(buf.data, buf.len, N_VOCAB, N_SLICES, &read_back, reply, &err);
}

/* Samples */

static struct step_row *rows_sample(int n_rows, int n_tokens)
{
    struct step_row *rows = sample_take(&made, (size_t)n_rows, sizeof *rows);
    for (int i = 0; i < n_rows; i++) {
        struct row_wish wish = {.n_best = sample_int(0, 70),
                                .n_ids = sample_int(0, 80),
                                .n_temperatures = sample_int(0, ROW_TEMPERATURES_MAX),
                                .full = sample_int(0, 1)};
        wish.ids = sample_ids(&made, wish.n_ids, 0, INT32_MAX);
        for (int t = 0; t < wish.n_temperatures; t++) {
            wish.temperatures[t] = sample_float(0.01f, 3);
        }
        if (wish.n_temperatures) {
            wish.noisy_best = sample_int(0, 1);
            wish.buckets = (enum row_buckets)sample_int(0, ROW_BUCKETS_KINDS - 1);
            wish.entropy = sample_int(0, 1);
            wish.outside = sample_int(0, 1);
        }
        wish.has_least = sample_int(0, 1);
        wish.least = wish.has_least ? sample_float(-20, 20) : 0;
        wish.at = (struct rng_address){.seed = sample_bits(),
                                       .position = (uint32_t)sample_bits(),
                                       .round = (uint32_t)sample_bits()};
        rows[i] = (struct step_row){.index = sample_int(0, n_tokens - 1), .wish = wish};
    }
    return rows;
}

/* The last guesses of the lane become a tree: after each comes a child, or a sibling of one of its
 * ancestors. */
static void tree_sample(struct step_lane *lane)
{
    int32_t *parents = sample_take(&made, TREE_NODES_MAX, sizeof *parents);
    struct tree_layout tree;
    lane->n_draft = sample_int(1, TREE_NODES_MAX);
    lane->n_tokens = lane->n_draft + sample_int(1, 3);
    lane->tokens = sample_ids(&made, lane->n_tokens, 0, INT32_MAX);
    for (int i = 0; i < lane->n_draft; i++) {
        parents[i] = i - 1;
        while (parents[i] >= 0 && sample_int(0, 1)) {
            parents[i] = parents[parents[i]];
        }
        if (tree_layout_init(&tree, parents, i + 1, &err))
            lane->n_draft = i; /* as far as it fits */
    }
    CHECK_OK(tree_layout_init(&tree, parents, lane->n_draft, &err));
    lane->parents = parents;
    lane->n_tails = tree_layout_tails(&tree, lane->position, 16);
    lane->tails = sample_ids(&made, lane->n_tails, 0, INT32_MAX);
}

static struct feature_wish features_sample(void)
{
    struct feature_wish wish = {.normed = sample_int(0, 1)};
    for (int b = sample_int(0, 3); wish.n < sample_int(0, FEATURE_BOUNDARIES_MAX); wish.n++) {
        wish.boundaries[wish.n] = b;
        b += sample_int(1, 20);
    }
    if (sample_int(0, 1)) return wish;
    struct feature_projection *projection = &wish.projection;
    *projection = (struct feature_projection){
        .key = {sample_bits() | 1, sample_int(1, PROJECTION_WIDTH_MAX)}, .normed = true};
    int most = FEATURE_BOUNDARIES_MAX - wish.n;
    projection->n = sample_int(0, most < FEATURE_WISH_MAX ? most : FEATURE_WISH_MAX);
    for (int i = 0; i < projection->n; i++) {
        projection->boundaries[i] = 3 * i + sample_int(0, 2);
    }
    projection->normed = projection->n == 0 || sample_int(0, 1);
    return wish;
}

static struct step_lane lane_sample(const struct feature_wish *wish)
{
    struct step_lane lane = {.slot = sample_int(0, 300), .position = sample_int(0, 1 << 20)};
    lane.n_tokens = sample_int(1, 40);
    lane.tokens = sample_ids(&made, lane.n_tokens, 0, INT32_MAX);
    lane.n_draft = sample_int(0, lane.n_tokens <= 16 ? lane.n_tokens - 1 : 16);
    lane.first_block = sample_int(0, 1000);
    lane.n_blocks = sample_int(0, 5);
    lane.blocks = sample_ids(&made, lane.n_blocks, 0, INT32_MAX);
    if (sample_int(0, 2) == 0) tree_sample(&lane);
    lane.n_rows = sample_int(0, lane.n_tokens < 6 ? lane.n_tokens : 6);
    lane.rows = rows_sample(lane.n_rows, lane.n_tokens);
    if (!feature_wish_is_empty(wish)) {
        lane.feature_first = sample_int(0, lane.n_tokens - 1);
        lane.n_features = sample_int(0, lane.n_tokens - lane.feature_first);
    }
    return lane;
}

static struct step step_sample(bool is_more)
{
    struct step step = {.id = sample_bits()};
    int n = sample_int(1, 5);
    if (!is_more && sample_int(0, 1)) step.features = features_sample();
    struct step_lane *lanes = sample_take(&made, (size_t)n, sizeof *lanes);
    struct step_more *more = sample_take(&made, (size_t)n, sizeof *more);
    for (int i = 0; i < n; i++) {
        lanes[i] = lane_sample(&step.features);
        more[i] = (struct step_more){.lane = sample_int(0, WIRE_LANES_MAX - 1), .n_rows = 3};
        more[i].rows = rows_sample(more[i].n_rows, WIRE_LANE_TOKENS_MAX);
    }
    step.n_lanes = is_more ? 0 : n;
    step.lanes = lanes;
    step.n_more = is_more ? n : 0;
    step.more = more;
    return step;
}

static struct slice_row slice_sample(int slice)
{
    struct slice_row row = {.slice = slice, .first_id = slice * SLICE_COLS, .n_cols = SLICE_COLS};
    row.n_best = sample_int(0, 64);
    row.best_ids = sample_ids(&made, row.n_best, row.first_id, row.first_id + SLICE_COLS - 1);
    row.best_logits = sample_floats(&made, row.n_best);
    row.n_ids = sample_int(0, 64);
    row.id_logits = sample_floats(&made, row.n_ids);
    row.max = sample_float(-20, 20);
    row.sum_exp[0] = (double)sample_float(0, 1000);
    row.sum_exp[1] = (double)sample_float(0, 1000);
    row.sum_exp_log = (double)sample_float(-1000, 0);
    row.outside_sum = sample_int(0, 1) ? (double)sample_float(1, 1000) : 0;
    row.outside_id = row.outside_sum > 0 ? row.first_id + sample_int(0, SLICE_COLS - 1) : -1;
    row.outside_logit = row.outside_sum > 0 ? sample_float(-20, 20) : 0;
    row.noisy_id = sample_int(0, 1) ? row.first_id + sample_int(0, SLICE_COLS - 1) : -1;
    row.noisy_logit = row.noisy_id >= 0 ? sample_float(-20, 20) : 0;
    row.n_buckets = sample_int(0, ROW_BUCKETS);
    row.buckets = sample_floats(&made, row.n_buckets);
    row.full = sample_int(0, 1) ? sample_floats(&made, SLICE_COLS) : NULL;
    return row;
}

static void refusals_sample(struct step_reply *reply)
{
    static const char *const texts[] = {"", "the lane has no tokens",
                                        "slot 2 occurs twice: \xc3\xa9"};
    struct lane_refusal *refused = sample_take(&made, 4, sizeof *refused);
    for (int lane = sample_int(0, 2); reply->n_refused < 4; lane += sample_int(1, 340)) {
        if (lane >= WIRE_LANES_MAX || sample_int(0, 3) == 0) break;
        refused[reply->n_refused++] = (struct lane_refusal){lane, texts[sample_int(0, 2)]};
    }
    reply->refused = refused;
}

static void features_of_lanes_sample(struct step_reply *reply)
{
    struct lane_features *lanes = sample_take(&made, 4, sizeof *lanes);
    reply->n_features = sample_int(0, 1) ? sample_int(1, 4) : 0;
    for (int i = 0; i < reply->n_features; i++) {
        int n = sample_int(1, 300);
        uint16_t *data = sample_take(&made, (size_t)n, sizeof *data);
        for (int e = 0; e < n; e++) {
            data[e] = (uint16_t)sample_bits();
        }
        lanes[i] = (struct lane_features){n, data};
    }
    reply->features = lanes;
}

static struct step_reply reply_sample(void)
{
    struct step_reply reply = {.id = sample_bits(), .n_rows = sample_int(0, 6)};
    struct row_reply *rows = sample_take(&made, (size_t)reply.n_rows, sizeof *rows);
    for (int i = 0; i < reply.n_rows; i++) {
        int first = sample_int(0, N_SLICES - 1);
        rows[i] = (struct row_reply){0};
        if (sample_int(0, 4) == 0) {
            rows[i].error_text = "3 of the logits from id 7 on are NaN";
            rows[i].no_room = sample_int(0, 1);
            continue;
        }
        rows[i].n_slices = sample_int(1, N_SLICES - first);
        struct slice_row *slices = sample_take(&made, (size_t)rows[i].n_slices, sizeof *slices);
        for (int s = 0; s < rows[i].n_slices; s++) {
            slices[s] = slice_sample(first + s);
        }
        rows[i].slices = slices;
    }
    reply.rows = rows;
    refusals_sample(&reply);
    features_of_lanes_sample(&reply);
    reply.queue_us = (uint32_t)sample_bits();
    reply.compute_us = (uint32_t)sample_bits();
    reply.collective_us = (uint32_t)sample_bits();
    reply.feature_us = (uint32_t)sample_bits();
    return reply;
}

/* Comparisons */

static void arrays_equal(const void *a, const void *b, int n, size_t size)
{
    if (n) ck_assert_mem_eq(a, b, (size_t)n * size);
}

static void rows_equal(const struct step_row *a, const struct step_row *b, int n)
{
    for (int i = 0; i < n; i++) {
        const struct row_wish *x = &a[i].wish, *y = &b[i].wish;
        ck_assert_int_eq(a[i].index, b[i].index);
        ck_assert_int_eq(x->n_best, y->n_best);
        ck_assert_int_eq(x->noisy_best, y->noisy_best);
        ck_assert_int_eq(x->has_least, y->has_least);
        ck_assert(x->least == y->least);
        ck_assert_int_eq((int)x->buckets, (int)y->buckets);
        ck_assert_int_eq(x->n_ids, y->n_ids);
        arrays_equal(x->ids, y->ids, x->n_ids, sizeof *x->ids);
        ck_assert_int_eq(x->n_temperatures, y->n_temperatures);
        arrays_equal(x->temperatures, y->temperatures, x->n_temperatures, sizeof(float));
        ck_assert_int_eq(x->entropy, y->entropy);
        ck_assert_int_eq(x->outside, y->outside);
        ck_assert_int_eq(x->full, y->full);
        ck_assert_uint_eq(x->at.seed, y->at.seed);
        ck_assert_uint_eq(x->at.position, y->at.position);
        ck_assert_uint_eq(x->at.round, y->at.round);
    }
}

static void steps_equal(const struct step *a, const struct step *b)
{
    ck_assert_uint_eq(a->id, b->id);
    ck_assert_int_eq(a->n_lanes, b->n_lanes);
    for (int i = 0; i < a->n_lanes; i++) {
        const struct step_lane *x = &a->lanes[i], *y = &b->lanes[i];
        ck_assert_int_eq(x->slot, y->slot);
        ck_assert_int_eq(x->position, y->position);
        ck_assert_int_eq(x->n_tokens, y->n_tokens);
        arrays_equal(x->tokens, y->tokens, x->n_tokens, sizeof *x->tokens);
        ck_assert_int_eq(x->n_draft, y->n_draft);
        ck_assert_int_eq(x->first_block, y->first_block);
        ck_assert_int_eq(x->n_blocks, y->n_blocks);
        arrays_equal(x->blocks, y->blocks, x->n_blocks, sizeof *x->blocks);
        ck_assert_int_eq(x->parents != NULL, y->parents != NULL);
        arrays_equal(x->parents, y->parents, x->parents ? x->n_draft : 0, sizeof *x->parents);
        ck_assert_int_eq(x->n_tails, y->n_tails);
        arrays_equal(x->tails, y->tails, x->n_tails, sizeof *x->tails);
        ck_assert_int_eq(x->n_rows, y->n_rows);
        rows_equal(x->rows, y->rows, x->n_rows);
        ck_assert_int_eq(x->feature_first, y->feature_first);
        ck_assert_int_eq(x->n_features, y->n_features);
    }
    ck_assert_int_eq(a->features.n, b->features.n);
    arrays_equal(a->features.boundaries, b->features.boundaries, a->features.n, sizeof(int));
    ck_assert_int_eq(a->features.normed, b->features.normed);
    ck_assert(feature_projection_equal(&a->features.projection, &b->features.projection));
    ck_assert_int_eq(a->n_more, b->n_more);
    for (int i = 0; i < a->n_more; i++) {
        ck_assert_int_eq(a->more[i].lane, b->more[i].lane);
        ck_assert_int_eq(a->more[i].n_rows, b->more[i].n_rows);
        rows_equal(a->more[i].rows, b->more[i].rows, a->more[i].n_rows);
    }
}

static void slices_equal(const struct slice_row *x, const struct slice_row *y)
{
    ck_assert_int_eq(x->slice, y->slice);
    ck_assert_int_eq(x->first_id, y->first_id);
    ck_assert_int_eq(x->n_cols, y->n_cols);
    ck_assert_int_eq(x->n_best, y->n_best);
    arrays_equal(x->best_ids, y->best_ids, x->n_best, sizeof *x->best_ids);
    arrays_equal(x->best_logits, y->best_logits, x->n_best, sizeof *x->best_logits);
    ck_assert_int_eq(x->n_ids, y->n_ids);
    arrays_equal(x->id_logits, y->id_logits, x->n_ids, sizeof *x->id_logits);
    ck_assert_double_eq((double)x->max, (double)y->max);
    ck_assert_double_eq(x->sum_exp[0], y->sum_exp[0]);
    ck_assert_double_eq(x->sum_exp[1], y->sum_exp[1]);
    ck_assert_double_eq(x->sum_exp_log, y->sum_exp_log);
    ck_assert_double_eq(x->outside_sum, y->outside_sum);
    ck_assert_int_eq(x->outside_id, y->outside_id);
    ck_assert(x->outside_logit == y->outside_logit);
    ck_assert_int_eq(x->noisy_id, y->noisy_id);
    ck_assert(x->noisy_logit == y->noisy_logit);
    ck_assert_int_eq(x->n_buckets, y->n_buckets);
    arrays_equal(x->buckets, y->buckets, x->n_buckets, sizeof *x->buckets);
    ck_assert_int_eq(x->full != NULL, y->full != NULL);
    arrays_equal(x->full, y->full, x->full ? x->n_cols : 0, sizeof *x->full);
}

static void replies_equal(const struct step_reply *a, const struct step_reply *b)
{
    ck_assert_uint_eq(a->id, b->id);
    ck_assert_uint_eq(a->queue_us, b->queue_us);
    ck_assert_uint_eq(a->compute_us, b->compute_us);
    ck_assert_uint_eq(a->collective_us, b->collective_us);
    ck_assert_uint_eq(a->feature_us, b->feature_us);
    ck_assert_int_eq(a->n_features, b->n_features);
    for (int i = 0; i < a->n_features; i++) {
        ck_assert_int_eq(a->features[i].n, b->features[i].n);
        arrays_equal(a->features[i].data, b->features[i].data, a->features[i].n, sizeof(uint16_t));
    }
    ck_assert_ptr_null(b->error_text);
    ck_assert_int_eq(a->n_refused, b->n_refused);
    for (int i = 0; i < a->n_refused; i++) {
        ck_assert_int_eq(a->refused[i].lane, b->refused[i].lane);
        ck_assert_str_eq(a->refused[i].text, b->refused[i].text);
    }
    ck_assert_int_eq(a->n_rows, b->n_rows);
    for (int i = 0; i < a->n_rows; i++) {
        ck_assert_int_eq(a->rows[i].n_slices, b->rows[i].n_slices);
        ck_assert_int_eq(a->rows[i].no_room, b->rows[i].no_room);
        ck_assert_int_eq(a->rows[i].error_text != NULL, b->rows[i].error_text != NULL);
        if (a->rows[i].error_text) ck_assert_str_eq(a->rows[i].error_text, b->rows[i].error_text);
        for (int s = 0; s < a->rows[i].n_slices; s++) {
            slices_equal(&a->rows[i].slices[s], &b->rows[i].slices[s]);
        }
    }
}

START_TEST(step_round_trip_keeps_every_field)
{
    sample_start("step_round_trip");
    for (int i = 0; i < 300; i++) {
        arena_reset(&made);
        struct step sent = step_sample(i % 3 == 2), got;
        CHECK_OK(step_encode(&buf, &sent, &err));
        CHECK_OK(step_read(&got));
        steps_equal(&sent, &got);
        if (i < 6) seed_write("target_wire", 0, "step", i, buf.data, buf.len);
    }
}
END_TEST

START_TEST(reply_round_trip_keeps_every_field)
{
    sample_start("reply_round_trip");
    for (int i = 0; i < 300; i++) {
        arena_reset(&made);
        struct step_reply sent = reply_sample(), got;
        CHECK_OK(step_reply_encode(&buf, &sent, &err));
        CHECK_OK(reply_read(&got));
        replies_equal(&sent, &got);
        size_t bound = WIRE_REPLY_BYTES;
        for (int r = 0; r < sent.n_rows; r++) {
            bound += row_reply_bytes(&sent.rows[r]);
        }
        for (int r = 0; r < sent.n_refused; r++) {
            bound += lane_refusal_bytes(&sent.refused[r]);
        }
        for (int r = 0; r < sent.n_features; r++) {
            bound += lane_features_bytes(&sent.features[r]);
        }
        ck_assert_uint_le(buf.len, bound);
        if (i < 6) seed_write("target_wire", 1, "reply", i, buf.data, buf.len);
    }
}
END_TEST

START_TEST(error_reply_carries_lane_and_text)
{
    struct step_reply sent = {
        .id = 7, .error_lane = -1, .error_text = "block 5 of slot 2 is not mine: \xc3\xa9"};
    struct step_reply got;
    CHECK_OK(step_reply_encode(&buf, &sent, &err));
    CHECK_OK(reply_read(&got));
    ck_assert_uint_eq(got.id, 7);
    ck_assert_int_eq(got.error_lane, -1);
    ck_assert_str_eq(got.error_text, sent.error_text);
    seed_write("target_wire", 1, "reply_error", 0, buf.data, buf.len);

    sent.error_text = "cut in mid-character \xc3";
    CHECK_OK(step_reply_encode(&buf, &sent, &err));
    CHECK_OK(reply_read(&got));
    ck_assert_str_eq(got.error_text, "cut in mid-character ?");
}
END_TEST

START_TEST(empty_slice_has_no_columns)
{
    /* 65 columns in 4 slices of 64: the second has one, the last two have none. */
    struct slice_row slices[4];
    for (int s = 0; s < 4; s++) {
        slices[s] = (struct slice_row){.slice = s, .noisy_id = -1, .max = s > 1 ? -INFINITY : 1};
    }
    struct row_reply row = {.n_slices = 4, .slices = slices};
    struct step_reply sent = {.id = 1, .n_rows = 1, .rows = &row}, got;
    CHECK_OK(step_reply_encode(&buf, &sent, &err));
    arena_reset(&read_back);
    CHECK_OK(step_reply_decode(buf.data, buf.len, 65, 4, &read_back, &got, &err));
    const int first[] = {0, 64, 65, 65}, columns[] = {64, 1, 0, 0};
    for (int s = 0; s < 4; s++) {
        ck_assert_int_eq(got.rows[0].slices[s].first_id, first[s]);
        ck_assert_int_eq(got.rows[0].slices[s].n_cols, columns[s]);
        ck_assert_int_eq(got.rows[0].slices[s].outside_id, -1);
    }
    ck_assert(isinf(got.rows[0].slices[3].max));
}
END_TEST

START_TEST(description_round_trip_keeps_every_field)
{
    struct target_description sent = {.model = "tales/\xc3\xa4",
                                      .architecture = "LlamaForCausalLM",
                                      .arithmetic = "cpu-bf16",
                                      .kernels = "avx512",
                                      .group = "g-17",
                                      .n_layers = 1,
                                      .dim = 2,
                                      .n_heads = 3,
                                      .n_kv_heads = 4,
                                      .head_dim = 5,
                                      .ffn_dim = 6,
                                      .vocab_size = 128256,
                                      .rank = 1,
                                      .n_ranks = 2,
                                      .n_slices = 8,
                                      .n_slots = 10,
                                      .n_kv_blocks = 11,
                                      .block_tokens = 12,
                                      .context_limit = 13,
                                      .max_step_tokens = 14,
                                      .max_step_rows = 15,
                                      .n_threads = 16,
                                      .window = 17,
                                      .model_fingerprint = UINT64_MAX,
                                      .tokenizer_fingerprint = 1,
                                      .ends = {2, {2, 128255}},
                                      .is_busy = true};
    struct target_description got;
    CHECK_OK(target_description_encode(&buf, &sent, &err));
    CHECK_OK(target_description_decode(buf.data, buf.len, &got, &err));
    ck_assert_mem_eq(&sent, &got, sizeof got);
    seed_write("target_wire", 2, "description", 0, buf.data, buf.len);
    sent.rank = 0;
    sent.has_nccl_id = true;
    for (int i = 0; i < WIRE_NCCL_ID_BYTES; i++)
        sent.nccl_id[i] = (uint8_t)(2 * i); /* zeros among them */
    sent.member_pass[3] = 0xaa;
    sent.projection = (struct projection_key){UINT64_MAX - 1, 4096};
    sent.look_ahead = (struct look_ahead_key){UINT64_MAX - 2, DRAFT_MAX};
    CHECK_OK(target_description_encode(&buf, &sent, &err));
    CHECK_OK(target_description_decode(buf.data, buf.len, &got, &err));
    ck_assert_mem_eq(&sent, &got, sizeof got);
    seed_write("target_wire", 2, "description", 1, buf.data, buf.len);
}
END_TEST

START_TEST(description_differs_names_the_field)
{
    static const char *const names[] = {"model",
                                        "tokenizer",
                                        "vocabulary size",
                                        "arithmetic",
                                        "number of slices",
                                        "--slots",
                                        "--kv-tokens",
                                        "--max-step-tokens",
                                        "--max-step-rows",
                                        "look-ahead embeddings in --head"};
    const struct target_description one = {.arithmetic = "cpu-bf16"};
    struct target_description own = one; /* what may differ between ranks */
    snprintf(own.group, sizeof own.group, "g-17");
    snprintf(own.kernels, sizeof own.kernels, "avx2");
    own.rank = own.n_threads = own.is_busy = own.has_nccl_id = 1;
    own.projection = (struct projection_key){1, 2};
    ck_assert_ptr_null(target_description_differs(&one, &own));
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        struct target_description other = one;
        other.model_fingerprint += i == 0;
        other.tokenizer_fingerprint += i == 1;
        other.vocab_size += i == 2;
        if (i == 3) snprintf(other.arithmetic, sizeof other.arithmetic, "cpu-int8");
        other.n_slices += i == 4;
        other.n_slots += i == 5;
        other.n_kv_blocks += i == 6;
        other.max_step_tokens += i == 7;
        other.max_step_rows += i == 8;
        other.look_ahead.digest += i == 9;
        ck_assert_str_eq(target_description_differs(&one, &other), names[i]);
        ck_assert_str_eq(target_description_differs(&other, &one), names[i]);
    }
}
END_TEST

/* Every prefix is refused or read as a shorter message; the sanitizer checks that nothing beyond it
 * is read. */
static void prefixes_are_safe(int kind)
{
    for (size_t len = 0; len <= buf.len; len++) {
        uint8_t *cut = exact_copy(buf.data, len);
        struct step step;
        struct step_reply reply;
        arena_reset(&read_back);
        int rc = kind == 0
                     ? step_decode(cut, len, &read_back, &step, &err)
                     : step_reply_decode(cut, len, N_VOCAB, N_SLICES, &read_back, &reply, &err);
        ck_assert(rc == 0 || rc == ERR_FORMAT);
        ck_assert(len < buf.len || rc == 0);
        free(cut);
    }
}

START_TEST(every_prefix_is_safe)
{
    sample_start("every_prefix");
    for (int i = 0; i < 4; i++) {
        arena_reset(&made);
        struct step step = step_sample(i % 2);
        CHECK_OK(step_encode(&buf, &step, &err));
        prefixes_are_safe(0);
        struct slice_row slice = slice_sample(1);
        slice.full = NULL;
        struct row_reply row = {.n_slices = 1, .slices = &slice};
        const struct lane_refusal refused[] = {{1, "slot 9 does not exist"}, {4, "no tokens"}};
        struct step_reply reply = {
            .id = 3, .n_rows = 1, .rows = &row, .n_refused = 2, .refused = refused};
        CHECK_OK(step_reply_encode(&buf, &reply, &err));
        prefixes_are_safe(1);
    }
}
END_TEST

START_TEST(full_arena_is_not_a_format_error)
{
    sample_start("full_arena");
    struct step step = step_sample(false), got;
    CHECK_OK(step_encode(&buf, &step, &err));
    int n_full = 0;
    for (size_t size = 0; size <= 64 << 10; size += 64) {
        struct arena small;
        CHECK_OK(arena_open(&small, size, &err));
        int rc = step_decode(buf.data, buf.len, &small, &got, &err);
        if (rc) CHECK_ERR(rc, ERR_NO_MEMORY, "arena full");
        n_full += rc != 0;
        arena_close(&small);
    }
    ck_assert_int_gt(n_full, 10);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wire");
    TCase *tcase = tcase_create("wire");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, step_round_trip_keeps_every_field);
    tcase_add_test(tcase, reply_round_trip_keeps_every_field);
    tcase_add_test(tcase, error_reply_carries_lane_and_text);
    tcase_add_test(tcase, empty_slice_has_no_columns);
    tcase_add_test(tcase, description_round_trip_keeps_every_field);
    tcase_add_test(tcase, description_differs_names_the_field);
    tcase_add_test(tcase, every_prefix_is_safe);
    tcase_add_test(tcase, full_arena_is_not_a_format_error);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
