/* ctest: labels=quick libs=model timeout=60 */
/* The decisions of the host about a step on a device: the sizes it is padded to, where each input
 * lies, and what is written there. Needs no GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/backend/cuda/step_plan.h"
#include "tests/support/check_util.h"

enum { DIM = 48, HEAD = 32, HALF = HEAD / 2, ROWS_MAX = 700 };

static const struct attention_shape shape = {12, 3, HEAD, 64}; /* groups of 4 heads */
static float cosines[ROWS_MAX][HALF], sines[ROWS_MAX][HALF];
static int32_t tokens[ROWS_MAX], tables[3][64];
static int rows[ROWS_MAX];
static float table_rows[1000][DIM];
static struct weight table = {
    .dtype = DTYPE_F32, .n_rows = 1000, .n_cols = DIM, .data = (const uint8_t *)table_rows};

static struct backend_step step_of(const struct attention_lane *lanes, int n_lanes, int n_rows)
{
    const struct attention_lane *last = &lanes[n_lanes - 1];
    return (struct backend_step){.embedding = &table,
                                 .tokens = tokens,
                                 .n = last->first_row + last->n_rows,
                                 .lanes = lanes,
                                 .n_lanes = n_lanes,
                                 .shape = &shape,
                                 .n_ropes = 1,
                                 .cos = cosines[0],
                                 .sin = sines[0],
                                 .rows = rows,
                                 .n_rows = n_rows};
}

static void fill(void)
{
    for (int i = 0; i < 1000 * DIM; i++) {
        table_rows[i / DIM][i % DIM] = (float)i;
    }
    for (int i = 0; i < ROWS_MAX; i++) {
        tokens[i] = (7 * i + 3) % 1000;
        rows[i] = i;
        for (int j = 0; j < HALF; j++) {
            cosines[i][j] = (float)(i + j);
            sines[i][j] = (float)(i - j);
        }
    }
    for (int i = 0; i < 3; i++) {
        for (int b = 0; b < 64; b++) {
            tables[i][b] = 100 * i + 63 - b;
        }
    }
}

START_TEST(padded_sizes_grow_with_the_rows)
{
    int last = 0;
    for (int n = 1; n <= 8192; n++) {
        int padded = step_plan_pad(n);
        ck_assert_int_ge(padded, n);
        ck_assert_int_ge(padded, last); /* monotone: buffers for the largest hold all */
        ck_assert_int_eq(step_plan_pad(padded), padded);
        ck_assert_int_lt(padded, n + (n <= STEP_RECORDED_ROWS && n > 64 ? (n + 3) / 4 : 8));
        ck_assert(padded <= STEP_EXACT_ROWS || padded % 8 == 0);
        last = padded;
    }
    ck_assert_int_eq(step_plan_pad(0), 0);
    for (int n = 1; n <= 8; n++) {
        ck_assert_int_eq(step_plan_pad(n), n);
    }
}
END_TEST

/* All rows are wanted in most steps, and a launch over them must not differ from one over all rows.
 * Buffers for n wanted rows hold every padding of fewer. */
START_TEST(wanted_rows_have_few_paddings_and_room)
{
    for (int n_rows = 1; n_rows <= 1024; n_rows++) {
        int n_sizes = 0, last = -1, padded_rows = step_plan_pad(n_rows);
        for (int n = 0; n <= n_rows; n++) {
            int padded = step_plan_pad_wanted(n, padded_rows);
            ck_assert_int_ge(padded, n);
            ck_assert_int_ge(padded, last);
            ck_assert_int_le(padded, step_plan_wanted_capacity(n));
            n_sizes += padded != last;
            last = padded;
        }
        ck_assert_int_eq(last, padded_rows);
        if (n_rows <= STEP_RECORDED_ROWS) ck_assert_int_le(n_sizes, 10);
        for (int n = n_rows; n <= 1024; n += 13) { /* a row may be wanted twice */
            ck_assert_int_ge(step_plan_pad_wanted(n, padded_rows), n);
            ck_assert_int_le(step_plan_pad_wanted(n, padded_rows), step_plan_wanted_capacity(n));
        }
    }
    for (int n = 1; n <= 1024; n++) {
        ck_assert_int_ge(step_plan_wanted_capacity(n), step_plan_wanted_capacity(n - 1));
    }
}
END_TEST

/* Tiles of a lane's query vectors; a last wide tile has more than half of its vectors. */
static int tiles_of_lane(int n_vectors, bool may_be_wide)
{
    int n_wide = may_be_wide ? (n_vectors + STEP_WIDE_QUERIES / 2 - 1) / STEP_WIDE_QUERIES : 0;
    int rest = n_vectors - n_wide * STEP_WIDE_QUERIES;
    return n_wide + (rest > 0 ? (rest + STEP_TILE_QUERIES - 1) / STEP_TILE_QUERIES : 0);
}

/* Every tile has its slot, whatever the lanes; a prompt needs a quarter of them. */
START_TEST(large_steps_have_room_for_their_tiles)
{
    static const int lengths[] = {1, 2, 3, 4, 5, 9, 16, 130, 500, 520};
    static struct attention_lane lanes[ROWS_MAX];
    fill();
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (int n = 1; n * lengths[i] <= ROWS_MAX; n++) {
            for (int l = 0; l < n; l++) {
                lanes[l] = (struct attention_lane){l * lengths[i], lengths[i], 0, tables[0], NULL};
            }
            struct backend_step step = step_of(lanes, n, 1);
            struct step_plan plan;
            step_plan_init(&plan, &step);
            int n_tiles = n * tiles_of_lane(4 * lengths[i], plan.size.n_rows > STEP_SPLIT_ROWS);
            ck_assert_int_eq(plan.size.has_wide, plan.size.n_rows > STEP_SPLIT_ROWS &&
                                                     4 * lengths[i] > STEP_WIDE_QUERIES / 2);
            ck_assert_int_ge(plan.size.n_tiles, n_tiles);
            ck_assert_int_le(plan.size.n_tiles, plan.size.n_rows);
            if (plan.size.n_rows > STEP_RECORDED_ROWS) {
                ck_assert_int_eq(plan.size.n_tiles, n_tiles);
            } else if (n == 1 && lengths[i] % 16 == 0 && lengths[i] > STEP_SPLIT_ROWS) {
                ck_assert_int_eq(plan.size.n_tiles, plan.size.n_rows / 4);
            }
        }
    }
}
END_TEST

/* A step of a server: lanes that decode with guesses, then pieces of prompts that fill it up to
 * max_rows, each with its last row wanted. */
static struct backend_step served_step(struct attention_lane *lanes, int n_decoding, int n_guesses,
                                       int context, int n_prompts, int max_rows)
{
    int n = 0, n_lanes = 0, n_rows = 0;
    for (int i = 0; i < n_decoding && n + n_guesses < max_rows; i++, n_lanes++) {
        lanes[n_lanes] = (struct attention_lane){n, 1 + n_guesses, context, tables[0], NULL};
        n += 1 + n_guesses;
        n_rows += 1 + n_guesses;
    }
    for (int i = n_prompts; i > 0 && n + i <= max_rows; i--, n_lanes++) {
        int length = (max_rows - n) / i;
        lanes[n_lanes] = (struct attention_lane){n, length, 0, tables[0], NULL};
        n += length;
        n_rows++;
    }
    struct backend_step step = step_of(lanes, n_lanes, n_rows);
    step.n = n;
    return step;
}

/* Recordings are kept for 256 sizes. A server whose load changes in every way must not need more:
 * up to 256 lanes, 0 to 7 guesses each, prompts beside them, contexts of up to 32k positions. */
START_TEST(a_served_mix_of_steps_has_few_sizes)
{
    enum { STEPS = 20000, SIZES_MAX = 2000, RECORDINGS = 256 };
    static struct attention_lane lanes[ROWS_MAX];
    static struct step_size sizes[SIZES_MAX];
    int n_sizes = 0, n_padding = 0, n_rows = 0;
    uint32_t random = 1;
    for (int i = 0; i < STEPS; i++) {
        uint32_t draws[4];
        for (int d = 0; d < 4; d++) {
            random = random * 1664525 + 1013904223;
            draws[d] = random >> 16;
        }
        /* the load comes and goes; half of all steps have parts of prompts */
        int load = 1 + (int)(draws[0] % (1u << (1 + i * 16 / STEPS % 8)));
        int n_prompts = draws[1] % 2 ? 1 + (int)(draws[1] / 2 % 4) : 0;
        int context = 1 << (5 + draws[2] % 11);
        struct backend_step step =
            served_step(lanes, load, (int)(draws[3] % 8), context, n_prompts, STEP_RECORDED_ROWS);
        struct step_plan plan;
        int at = 0;
        step_plan_init(&plan, &step);
        while (at < n_sizes && memcmp(&sizes[at], &plan.size, sizeof plan.size) != 0) {
            at++;
        }
        ck_assert_int_lt(at, SIZES_MAX);
        if (at == n_sizes) sizes[n_sizes++] = plan.size;
        n_padding += plan.size.n_rows - step.n;
        n_rows += step.n;
    }
    printf("%d sizes of %d steps, %.1f %% padding\n", n_sizes, STEPS, 100.0 * n_padding / n_rows);
    ck_assert_int_le(n_sizes, RECORDINGS);
    ck_assert_int_gt(n_sizes, 27); /* a step for each padding of the rows */
}
END_TEST

/* The parts in order: none overlaps the next, each is aligned. */
START_TEST(inputs_do_not_overlap_and_are_aligned)
{
    const struct attention_lane lanes[] = {{0, 5, 300, tables[0], NULL},
                                           {5, 1, 0, tables[1], NULL}};
    struct backend_step step = step_of(lanes, 2, 6);
    struct step_plan plan;
    step_plan_init(&plan, &step);
    const size_t parts[][2] = {{plan.counts, 16},
                               {plan.lanes, 6 * sizeof(struct step_lane)},
                               {plan.row_lane, 24},
                               {plan.row_pos, 24},
                               {plan.row_end, 24},
                               {plan.tokens, 24},
                               {plan.wanted, 24},
                               {plan.tiles, 6 * sizeof(struct step_tile)},
                               {plan.cos, 6 * HALF * 4},
                               {plan.sin, 6 * HALF * 4},
                               {plan.embedding, 6 * DIM * 4},
                               {plan.blocks, (20 + 1) * 4}};
    size_t end = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        ck_assert_uint_eq(parts[i][0] % 16, 0);
        ck_assert_uint_ge(parts[i][0], end);
        end = parts[i][0] + parts[i][1];
    }
    ck_assert_uint_ge(plan.bytes, end);
    ck_assert_int_eq(plan.size.n_rows, 6);
    ck_assert_int_eq(plan.size.n_partitions, 2); /* 305 positions */
}
END_TEST

/* A recording made for one step must find every input of another step of the same size in the same
 * place; only the block tables may be longer or shorter. */
START_TEST(steps_of_one_size_have_their_inputs_in_the_same_places)
{
    const struct attention_lane a[] = {{0, 17, 600, tables[0], NULL}};
    const struct attention_lane b[] = {{0, 9, 513, tables[0], NULL}, {9, 9, 3, tables[1], NULL}};
    struct backend_step step_a = step_of(a, 1, 9), step_b = step_of(b, 2, 12);
    struct step_plan la, lb;
    step_plan_init(&la, &step_a);
    step_plan_init(&lb, &step_b);
    ck_assert_mem_eq(&la.size, &lb.size, sizeof la.size);
    ck_assert_uint_eq(la.lanes, lb.lanes);
    ck_assert_uint_eq(la.row_pos, lb.row_pos);
    ck_assert_uint_eq(la.tiles, lb.tiles);
    ck_assert_uint_eq(la.embedding, lb.embedding);
    ck_assert_uint_eq(la.blocks, lb.blocks);
    ck_assert_uint_ne(la.bytes, lb.bytes);
}
END_TEST

START_TEST(inputs_hold_the_rows_tiles_and_blocks_of_the_lanes)
{
    const struct attention_lane lanes[] = {
        {0, 9, 100, tables[0], NULL}, {9, 1, 31, tables[1], NULL}, {10, 3, 16, tables[2], NULL}};
    struct backend_step step = step_of(lanes, 3, 2);
    struct step_plan plan;
    fill();
    rows[0] = 12;
    rows[1] = 8;
    step_plan_init(&plan, &step);
    ck_assert_int_eq(plan.size.n_rows, 16);
    uint8_t *inputs = malloc(plan.bytes);
    memset(inputs, 0xa5, plan.bytes);
    step_plan_write(&plan, &step, inputs);
    const int32_t *counts = (void *)(inputs + plan.counts),
                  *row_lane = (void *)(inputs + plan.row_lane);
    const int32_t *row_pos = (void *)(inputs + plan.row_pos),
                  *wanted = (void *)(inputs + plan.wanted);
    const int32_t *blocks = (void *)(inputs + plan.blocks);
    const struct step_lane *out = (void *)(inputs + plan.lanes);
    const struct step_tile *tiles = (void *)(inputs + plan.tiles);
    const float *embedding = (void *)(inputs + plan.embedding), *sin = (void *)(inputs + plan.sin);
    const int32_t want_counts[] = {13, 2, 3, 5, 0}; /* tiles of 36 vectors, 4, 12 */
    ck_assert_mem_eq(counts, want_counts, sizeof want_counts);
    ck_assert_int_eq(tiles[2].lane, 0);
    ck_assert_int_eq(tiles[2].first, 32);
    ck_assert_int_eq(tiles[3].lane, 1);
    ck_assert_int_eq(tiles[4].first, 0);
    ck_assert_int_eq(out[1].first_block, 7); /* 109 positions */
    ck_assert_int_eq(blocks[6], tables[0][6]);
    ck_assert_int_eq(blocks[7], tables[1][0]);
    ck_assert_int_eq(blocks[9], tables[2][0]);
    ck_assert_int_eq(row_lane[8], 0);
    ck_assert_int_eq(row_lane[12], 2);
    ck_assert_int_eq(row_pos[12], 18);
    ck_assert_int_eq(row_lane[13], -1);
    ck_assert_int_eq(row_lane[15], -1);
    const int32_t *fed = (void *)(inputs + plan.tokens);
    ck_assert_mem_eq(fed, tokens, 13 * sizeof *fed);
    ck_assert_int_eq(fed[13], 0);
    ck_assert_int_eq(wanted[0], 12);
    ck_assert_int_eq(wanted[1], 8);
    ck_assert(sin[12 * HALF + 3] == sines[12][3] && sin[13 * HALF] == 0);
    for (int row = 0; row < 16; row++) {
        float want[DIM] = {0};
        if (row < 13) weight_read_f32(&table, tokens[row], 0, DIM, want);
        ck_assert_mem_eq(embedding + (size_t)row * DIM, want, sizeof want);
    }
    free(inputs);
}
END_TEST

/* In a large step lanes get wide tiles, which come first, and narrow ones for the rest that would
 * fill no more than half of one. */
START_TEST(large_steps_have_wide_tiles)
{
    const struct attention_lane lanes[] = {
        {0, 40, 100, tables[0], NULL}, {40, 1, 31, tables[1], NULL}, {41, 41, 16, tables[2], NULL}};
    static const struct step_tile want[] = {{0, 0},   {0, 64},  {2, 0},   {2, 64},
                                            {2, 128}, {0, 128}, {0, 144}, {1, 0}};
    struct backend_step step = step_of(lanes, 3, 2);
    struct step_plan plan;
    fill();
    step_plan_init(&plan, &step);
    ck_assert_int_gt(plan.size.n_rows, STEP_SPLIT_ROWS);
    uint8_t *inputs = malloc(plan.bytes);
    step_plan_write(&plan, &step, inputs);
    const int32_t *counts = (void *)(inputs + plan.counts);
    ck_assert_int_eq(counts[STEP_COUNT_TILES], 8); /* 160 vectors, 4, 164 */
    ck_assert_int_eq(counts[STEP_COUNT_WIDE], 5);
    ck_assert_mem_eq(inputs + plan.tiles, want, sizeof want);
    free(inputs);
}
END_TEST

/* A tree's paths become lanes one after the other, and its guesses are stored in all lanes from
 * their own to the end of their subtree. */
START_TEST(the_paths_of_a_tree_are_lanes)
{
    static const int32_t parents[] = {-1, 0, 0, 2, -1}, tails[] = {70, 71, 72};
    static const int32_t want_lane[] = {0, 1, 1, 1, 1, 2, 2, 3},
                         want_pos[] = {40, 13, 14, 15, 16, 16, 17, 15},
                         want_end[] = {1, 4, 4, 3, 2, 3, 3, 4};
    struct tree_layout shape_of_tree;
    struct attention_tree tree;
    struct error err;
    CHECK_OK(tree_layout_init(&shape_of_tree, parents, 5, &err));
    attention_tree_place(&tree, &shape_of_tree, tables[1], tails, 13, 2);
    const struct attention_lane lanes[] = {{0, 1, 40, tables[0], NULL},
                                           {1, 7, 13, tables[1], &tree}};
    struct backend_step step = step_of(lanes, 2, 1);
    struct step_plan plan;
    fill();
    step_plan_init(&plan, &step);
    ck_assert_int_eq(plan.size.n_rows, 8);
    ck_assert_int_eq(plan.size.n_copies, 8);
    uint8_t *inputs = malloc(plan.bytes);
    step_plan_write(&plan, &step, inputs);
    const int32_t *counts = (void *)(inputs + plan.counts),
                  *blocks = (void *)(inputs + plan.blocks);
    ck_assert_int_eq(counts[STEP_COUNT_TILES], 4);
    const struct step_lane *out = (void *)(inputs + plan.lanes);
    const struct step_copy *copies = (void *)(inputs + plan.copies);
    ck_assert_int_eq(counts[STEP_COUNT_LANES], 4);
    ck_assert_mem_eq(inputs + plan.row_lane, want_lane, 8 * sizeof *want_lane);
    ck_assert_mem_eq(inputs + plan.row_pos, want_pos, 8 * sizeof *want_pos);
    ck_assert_mem_eq(inputs + plan.row_end, want_end, 8 * sizeof *want_end);
    ck_assert_int_eq(out[2].first_row, 5);
    ck_assert_int_eq(out[2].n_rows, 2);
    ck_assert_int_eq(out[2].position, 16);
    /* Path 1 reaches position 17 and has two blocks, path 2 has one. */
    const int32_t want_blocks[] = {63, 62, 61, 163, 162, 70, 71, 72};
    ck_assert_mem_eq(blocks, want_blocks, sizeof want_blocks);
    ck_assert_int_eq(out[2].first_block, 5);
    ck_assert_int_eq(out[3].first_block, 7);
    const struct step_copy want_copies[] = {{163, 70, 13}, {163, 72, 13}, {0, 0, 0}};
    ck_assert_mem_eq(copies, want_copies, sizeof want_copies);
    free(inputs);
}
END_TEST

START_TEST(synthetic_and_copied_tables_are_left_to_the_device)
{
    const struct attention_lane lanes[] = {{0, 6, 0, tables[0], NULL}};
    const struct weight synthetic = {.dtype = DTYPE_BF16, .n_rows = 1000, .n_cols = DIM, .seed = 7};
    struct backend_step step = step_of(lanes, 1, 1);
    struct step_plan file, made;
    step_plan_init(&file, &step);
    step.embedding = &synthetic;
    step_plan_init(&made, &step);
    ck_assert_uint_eq(file.bytes - made.bytes, 6 * DIM * sizeof(float));
    step.embedding = &table;
    step.embedding_copy = table_rows; /* as a device's */
    struct step_plan copied;
    step_plan_init(&copied, &step);
    ck_assert_uint_eq(copied.bytes, made.bytes);
    uint8_t *inputs = malloc(made.bytes);
    step_plan_write(&made, &step, inputs);
    const int32_t *counts = (void *)(inputs + made.counts);
    ck_assert_int_eq(counts[STEP_COUNT_TILES], 2);
    ck_assert_mem_eq(inputs + made.tokens, tokens, 6 * sizeof *tokens);
    free(inputs);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda_step_plan");
    TCase *tc = tcase_create("plan");
    tcase_add_test(tc, padded_sizes_grow_with_the_rows);
    tcase_add_test(tc, wanted_rows_have_few_paddings_and_room);
    tcase_add_test(tc, large_steps_have_room_for_their_tiles);
    tcase_add_test(tc, a_served_mix_of_steps_has_few_sizes);
    tcase_add_test(tc, inputs_do_not_overlap_and_are_aligned);
    tcase_add_test(tc, steps_of_one_size_have_their_inputs_in_the_same_places);
    tcase_add_test(tc, inputs_hold_the_rows_tiles_and_blocks_of_the_lanes);
    tcase_add_test(tc, large_steps_have_wide_tiles);
    tcase_add_test(tc, the_paths_of_a_tree_are_lanes);
    tcase_add_test(tc, synthetic_and_copied_tables_are_left_to_the_device);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
