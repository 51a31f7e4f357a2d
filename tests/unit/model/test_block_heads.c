/* ctest: labels=quick,bits libs=model timeout=300 */
/* Block drafters against the code of their formats (tests/oracle/block_head_golden.py), and their
 * one arithmetic: a block has the same bits in every chunking of its context, beside other lanes,
 * with any number of threads, and after blocks that were written over. */
#include <dirent.h>
#include <math.h>

#include "model/backend/cpu/kernels/kernels.h"
#include "tests/support/block_head_rig.h"

enum { N_HEADS = 6, LOGITS_MAX = 8 * 320 };

static const int32_t blocks[BLOCK_RIG_BLOCKS / 2] = {3, 9, 0, 12, 5, 1, 8, 2};
static const int32_t other_blocks[BLOCK_RIG_BLOCKS / 2] = {4, 6, 7, 10, 11, 13, 14, 15};

static const char *const heads[N_HEADS] = {
    "dflash_band",   "dflash_flat", "dflash_speculators",
    "dflash_window", "dspark_flat", "dspark_speculators",
};

static size_t guess_bytes(const struct block_rig *rig)
{
    return (size_t)rig->n_rows * (size_t)rig->n_columns * sizeof(float);
}

START_TEST(logits_are_those_of_the_formats_own_code)
{
    struct block_rig rig;
    double sum = 0;
    float got[LOGITS_MAX], want[LOGITS_MAX];
    block_rig_open(&rig, heads[_i], 1);
    int n = rig.n_rows * rig.n_columns;
    for (int s = 0; s < rig.n_starts; s++) {
        memcpy(want, rig.logits.data + (size_t)s * guess_bytes(&rig), guess_bytes(&rig));
        block_rig_context(&rig, blocks, 0, rig.starts[s], BLOCK_ROWS_MAX);
        block_rig_guess(&rig, blocks, rig.starts[s], got);
        for (int i = 0; i < n; i++) {
            double d = (double)got[i] - (double)want[i];
            sum += d * d;
        }
    }
    double root = sqrt(sum / ((double)rig.n_starts * n));
    printf("%-20s rms error %.5f, its own code in bf16 %.5f\n", heads[_i], root, rig.tolerance_rms);
    ck_assert_msg(root <= rig.tolerance_rms, "%s: rms error %g exceeds %g", heads[_i], root,
                  rig.tolerance_rms);
    block_rig_close(&rig);
}
END_TEST

START_TEST(every_golden_drafter_is_in_the_list)
{
    struct dirent *entry;
    int n = 0;
    DIR *folder = opendir(BLOCK_HEADS_FOLDER);
    ck_assert_ptr_nonnull(folder);
    while ((entry = readdir(folder))) {
        n += entry->d_name[0] != '.';
    }
    closedir(folder);
    ck_assert_int_eq(n, N_HEADS);
}
END_TEST

START_TEST(bits_do_not_depend_on_chunks_threads_and_kernels)
{
    enum { START = 20 };
    static const int chunks[] = {1, 3, 7, 16};
    struct error err;
    struct block_rig rig;
    float want[LOGITS_MAX], got[LOGITS_MAX];
    block_rig_open(&rig, heads[_i], 1);
    block_rig_context(&rig, blocks, 0, START, BLOCK_ROWS_MAX);
    block_rig_guess(&rig, blocks, START, want);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        const int32_t *table = i % 2 ? blocks : other_blocks;
        block_rig_context(&rig, table, 0, START, chunks[i]);
        block_rig_guess(&rig, table, START, got);
        ck_assert_msg(!memcmp(got, want, guess_bytes(&rig)), "%s: chunks of %d", heads[_i],
                      chunks[i]);
    }
    for (int i = 0; kernels_name(i); i++) {
        const struct kernels *kernels;
        if (kernels_find(&kernels, kernels_name(i), &err)) continue;
        model_close(rig.model);
        rig.backend->ops->close(rig.backend);
        block_rig_open_model(&rig, kernels->name, i % 2 ? 1 : 3);
        block_rig_context(&rig, blocks, 0, START, 5);
        block_rig_guess(&rig, blocks, START, got);
        ck_assert_msg(!memcmp(got, want, guess_bytes(&rig)), "%s: kernels %s", heads[_i],
                      kernels->name);
    }
    block_rig_close(&rig);
}
END_TEST

/* The block begins before a partition of attention ends, and ends after it. */
START_TEST(a_long_context_has_the_same_bits_in_every_chunk)
{
    enum { START = ATTENTION_PARTITION - 4 };
    static const int chunks[] = {64, 7, 1};
    struct block_rig rig;
    struct error err;
    float want[LOGITS_MAX], got[LOGITS_MAX];
    int32_t table[BLOCK_RIG_BLOCKS];
    block_rig_open(&rig, heads[_i], 2);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        for (int k = 0; k < BLOCK_RIG_BLOCKS; k++) {
            table[k] = (k * 5 + (int)i) % BLOCK_RIG_BLOCKS;
        }
        for (int at = 0, n; at < START; at += n) {
            int row = at % rig.n_tokens;
            n = rig.n_tokens - row < chunks[i] ? rig.n_tokens - row : chunks[i];
            n = START - at < n ? START - at : n;
            const struct forward_lane lane = {.position = at, .blocks = table};
            const struct forward_features features = {.target = block_rig_features(&rig, row),
                                                      .n_target = n};
            CHECK_OK(model_forward_head(rig.model, &lane, &features, 1, NULL, 0, &err));
        }
        block_rig_run_at(&rig, table, START, rig.tokens[0]);
        for (int j = 0; j < rig.n_rows; j++) {
            const float *row = model_logits(rig.model, j);
            ck_assert_ptr_nonnull(row);
            memcpy(got + j * rig.n_columns, row, (size_t)rig.n_columns * sizeof *got);
        }
        if (i == 0) memcpy(want, got, guess_bytes(&rig));
        ck_assert_msg(!memcmp(got, want, guess_bytes(&rig)), "%s: chunks of %d", heads[_i],
                      chunks[i]);
    }
    block_rig_close(&rig);
}
END_TEST

/* One lane has a context and a block, one only a context and one only a block. */
START_TEST(lanes_share_a_step_with_the_bits_of_their_own)
{
    enum { FIRST = 9, START = 14, OTHER = 6, LANES = 3 };
    static const int32_t third[] = {16, 17};
    struct block_rig rig;
    struct error err;
    int32_t tokens[2][BLOCK_ROWS_MAX];
    struct forward_row rows[2 * BLOCK_ROWS_MAX];
    float alone[LOGITS_MAX], other[LOGITS_MAX], later[LOGITS_MAX], got[LOGITS_MAX];
    block_rig_open(&rig, heads[_i], 2);
    int n = rig.n_rows;
    block_rig_context(&rig, blocks, 0, START, BLOCK_ROWS_MAX);
    block_rig_guess(&rig, blocks, START, alone);
    block_rig_context(&rig, other_blocks, 0, OTHER, BLOCK_ROWS_MAX);
    block_rig_guess(&rig, other_blocks, OTHER, other);
    block_rig_context(&rig, third, 0, OTHER + 1, BLOCK_ROWS_MAX);
    block_rig_guess(&rig, third, OTHER + 1, later);

    block_rig_context(&rig, blocks, 0, FIRST, BLOCK_ROWS_MAX);
    block_rig_tokens(&rig, START, tokens[0]);
    block_rig_tokens(&rig, OTHER, tokens[1]);
    for (int j = 0; j < n; j++) {
        rows[j] = (struct forward_row){0, j};
        rows[n + j] = (struct forward_row){2, j};
    }
    const struct forward_lane lanes[LANES] = {
        {.position = FIRST, .n_tokens = n, .tokens = tokens[0], .blocks = blocks},
        {.position = OTHER, .blocks = third},
        {.position = OTHER, .n_tokens = n, .tokens = tokens[1], .blocks = other_blocks}};
    const struct forward_features features[LANES] = {
        {.target = block_rig_features(&rig, FIRST), .n_target = START - FIRST},
        {.target = block_rig_features(&rig, OTHER), .n_target = 1},
        {.n_target = 0}};
    CHECK_OK(model_forward_head(rig.model, lanes, features, LANES, rows, 2 * n, &err));
    block_rig_take(&rig, 0, START, got);
    ck_assert_msg(!memcmp(got, alone, guess_bytes(&rig)), "%s", heads[_i]);
    block_rig_take(&rig, n, OTHER, got);
    ck_assert_msg(!memcmp(got, other, guess_bytes(&rig)), "%s", heads[_i]);
    block_rig_guess(&rig, third, OTHER + 1, got);
    ck_assert_msg(!memcmp(got, later, guess_bytes(&rig)), "%s", heads[_i]);
    block_rig_close(&rig);
}
END_TEST

/* A round's context is written over the block of the round before, of which some guesses stayed. */
START_TEST(blocks_that_are_written_over_leave_no_trace)
{
    static const int accepted[] = {0, 3, 1, 0, 2, 4, 0, 1};
    enum { N_ROUNDS = sizeof accepted / sizeof *accepted };
    struct block_rig rig;
    float got[LOGITS_MAX], want[LOGITS_MAX];
    int start = 1;
    block_rig_open(&rig, heads[_i], 1);
    block_rig_context(&rig, blocks, 0, start, BLOCK_ROWS_MAX);
    for (int round = 0; round < N_ROUNDS; round++) {
        int end = start + 1 + accepted[round];
        ck_assert_int_le(end + rig.n_rows, rig.n_tokens);
        block_rig_guess(&rig, blocks, start, got);
        block_rig_context(&rig, other_blocks, 0, start, 4);
        block_rig_guess(&rig, other_blocks, start, want);
        ck_assert_msg(!memcmp(got, want, guess_bytes(&rig)), "%s, round %d", heads[_i], round);
        block_rig_context(&rig, blocks, start, end, BLOCK_ROWS_MAX);
        start = end;
    }
    ck_assert_int_ge(start, 16);
    block_rig_close(&rig);
}
END_TEST

/* Greedy guesses of two lanes, place after place, are those of each lane alone. */
START_TEST(chains_of_several_lanes_are_those_of_each_alone)
{
    enum { LANES = 2, ARENA_BYTES = 1 << 16 };
    static const int starts[LANES] = {12, 5};
    const int32_t *const tables[LANES] = {blocks, other_blocks};
    struct block_rig rig;
    struct error err;
    struct arena arena;
    int32_t tokens[LANES][BLOCK_ROWS_MAX], alone[LANES][BLOCK_ROWS_MAX];
    struct forward_row rows[LANES * BLOCK_ROWS_MAX];
    struct forward_lane lanes[LANES] = {{0}};
    struct forward_features features[LANES] = {{0}};
    block_rig_open(&rig, heads[_i], 2);
    int n = rig.n_rows;
    CHECK_OK(arena_open(&arena, ARENA_BYTES, &err));
    for (int lane = 0; lane < LANES; lane++) {
        block_rig_context(&rig, tables[lane], 0, starts[lane], BLOCK_ROWS_MAX);
        block_rig_tokens(&rig, starts[lane], tokens[lane]);
        block_rig_run(&rig, tables[lane], starts[lane]);
        block_rig_chain(&rig, &arena, 0, 1, &rig.tokens[starts[lane]], alone[lane]);
        lanes[lane] = (struct forward_lane){.position = starts[lane],
                                            .n_tokens = n,
                                            .tokens = tokens[lane],
                                            .blocks = tables[lane]};
        for (int j = 0; j < n; j++) {
            rows[lane * n + j] = (struct forward_row){lane, j};
        }
    }
    CHECK_OK(model_forward_head(rig.model, lanes, features, LANES, rows, LANES * n, &err));
    int32_t got[LANES * BLOCK_ROWS_MAX];
    const int32_t last[LANES] = {rig.tokens[starts[0]], rig.tokens[starts[1]]};
    block_rig_chain(&rig, &arena, 0, LANES, last, got);
    for (int lane = 0; lane < LANES; lane++) {
        ck_assert_mem_eq(got + lane * n, alone[lane], (size_t)n * sizeof *got);
    }
    arena_close(&arena);
    block_rig_close(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("block_heads");
    TCase *tcase = tcase_create("golden block drafters");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, logits_are_those_of_the_formats_own_code, 0, N_HEADS);
    tcase_add_test(tcase, every_golden_drafter_is_in_the_list);
    tcase_add_loop_test(tcase, bits_do_not_depend_on_chunks_threads_and_kernels, 0, N_HEADS);
    tcase_add_loop_test(tcase, a_long_context_has_the_same_bits_in_every_chunk, 0, N_HEADS);
    tcase_add_loop_test(tcase, lanes_share_a_step_with_the_bits_of_their_own, 0, N_HEADS);
    tcase_add_loop_test(tcase, blocks_that_are_written_over_leave_no_trace, 0, N_HEADS);
    tcase_add_loop_test(tcase, chains_of_several_lanes_are_those_of_each_alone, 4, N_HEADS);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
