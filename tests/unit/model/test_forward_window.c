/* ctest: labels=quick,threads,bits libs=model timeout=600 */
/* One arithmetic in models whose layers, all or some, have sliding windows: the logits are
 * bit-identical however tokens are cut into steps, on any number of ranks and threads, with any
 * variant of the kernels, beside other lanes and in trees, before the window's edge, across it and
 * far after it. Blocks that no row sees any more are not read. */
#include "tests/support/tree_feed.h"

static const struct {
    const char *model;
    int window; /* that all layers have; 0: not all have one */
} models[] = {{GOLDEN "mistral_slides", 8},
              {GOLDEN "qwen2_slides_from", 0},
              {GOLDEN "qwen3_slides_listed", 0},
              {GOLDEN "mistral_window", 100}};
enum { N_WINDOWED = sizeof models / sizeof *models };

/* Ways beside the reference, which is one step for all tokens. */
static const struct way ways[] = {{1, 1, 1, "auto"},  {1, 2, 5, "auto"},   {1, 3, 16, "auto"},
                                  {1, 1, 17, "auto"}, {1, 2, 64, "auto"},  {1, 1, 299, "auto"},
                                  {2, 1, 7, "auto"},  {2, 2, 100, "auto"}, {4, 1, 33, "auto"}};
enum { N_WAYS = sizeof ways / sizeof *ways };

static bool is_on_device(void)
{
    return getenv("OUTRIDER_TEST_DEVICE") != NULL;
}

START_TEST(windows_give_equal_bits_on_all_ranks_and_kernels)
{
    const char *model = models[_i].model;
    float *want = reference(model, N_TOKENS);
    for (int i = 0; i < N_WAYS; i++) {
        if (is_on_device() && i % 3) continue; /* the emulation is slow */
        check_way(model, want, N_TOKENS, ways[i]);
    }
    for (int i = 0; kernels_name(i) && !is_on_device(); i++) {
        check_way(model, want, N_TOKENS, (struct way){1, 1, 9 + 16 * i, kernels_name(i)});
    }
    free(want);
}
END_TEST

/* The other lanes are at other places of their windows. */
START_TEST(a_lane_among_others_gives_equal_bits)
{
    static const int step[4] = {5, 1, 16, 3};
    const char *model = models[_i].model;
    float *want = reference(model, N_TOKENS);
    struct rig rig;
    rig_open(&rig, model, 1, "auto", 2);
    float *got = new_logits(&rig, N_TOKENS);
    for (int fed[4] = {0}; fed[0] < N_TOKENS;) {
        struct rig_lane lanes[4];
        int n = 0;
        for (int i = 0; i < 4; i++) {
            int place = (_i + i) % 4, left = N_TOKENS - fed[place];
            if (left == 0) continue;
            lanes[n++] = (struct rig_lane){.tokens = place == 0 ? tokens : other[place - 1],
                                           .first = fed[place],
                                           .n = left < step[place] ? left : step[place],
                                           .blocks = blocks[place],
                                           .logits = place == 0 ? got : NULL};
            fed[place] += lanes[n - 1].n;
        }
        rig_feed(&rig, lanes, n);
    }
    check_equal(&rig, want, got, N_TOKENS, "a lane among three others");
    rig_close(&rig);
    free(want);
    free(got);
}
END_TEST

/* Where every layer has a window, the entries of blocks before it name blocks that do not exist:
 * reading one would end the test. */
START_TEST(blocks_before_the_window_are_not_read)
{
    static const int chunks[] = {1, 6, 16, 40};
    const char *model = models[_i].model;
    if (models[_i].window == 0) return;
    float *want = reference(model, N_TOKENS);
    for (int c = 0; c < 4; c++) {
        struct rig rig;
        int32_t table[RIG_BLOCKS / 4];
        rig_open(&rig, model, 1 + c % 2, "auto", 1 + c / 2);
        float *got = new_logits(&rig, N_TOKENS);
        memcpy(table, blocks[1], sizeof table);
        for (int first = 0; first < N_TOKENS; first += chunks[c]) {
            int n = N_TOKENS - first < chunks[c] ? N_TOKENS - first : chunks[c];
            const struct rig_lane lane = {tokens, first, n, table, got, NULL};
            int n_out = attention_first(first, models[_i].window) / KV_BLOCK_TOKENS;
            for (int i = 0; i < n_out; i++) {
                table[i] = 1 << 26;
            }
            rig_feed(&rig, &lane, 1);
        }
        check_equal(&rig, want, got, N_TOKENS, "with blocks given up");
        rig_close(&rig);
        free(got);
    }
    free(want);
}
END_TEST

/* Trees whose paths begin before the window's edge, at it and after it, and around position 256,
 * where an attention partition ends. */
START_TEST(a_tree_equals_its_paths_at_the_windows_edge)
{
    static const int places[] = {3, 7, 8, 9, 16, 17, 31, 33, 40, 100, 101, 249, 256, 263};
    int n_places = (int)(sizeof places / sizeof *places);
    struct rig rig;
    rig_open(&rig, models[_i].model, 1 + _i % 2, "auto", 1 + _i % 3);
    make_inputs(rig.n_vocab);
    for (int i = 0; i < n_places; i += is_on_device() ? 4 : 1) {
        check_tree(&rig, (i + 3 * _i) % N_SHAPES, places[i], i % 3 == 2 ? 9 : 1, i % 2);
    }
    rig_close(&rig);
}
END_TEST

/* Guesses that were fed and rejected have no effect. */
START_TEST(rejected_guesses_leave_no_trace)
{
    float *want = reference(models[_i].model, N_TOKENS);
    struct rig rig;
    rig_open(&rig, models[_i].model, 1, "auto", 1);
    float *got = new_logits(&rig, N_TOKENS);
    int32_t mixed[N_TOKENS];
    for (int pos = 0; pos < N_TOKENS; pos++) {
        int n_wrong = (pos + _i) % 4 * 3;
        if (pos + 1 + n_wrong > N_TOKENS) n_wrong = 0;
        memcpy(mixed, tokens, sizeof mixed);
        for (int i = 1; i <= n_wrong; i++) {
            mixed[pos + i] = other[0][pos + i];
        }
        const struct rig_lane lane = {mixed, pos, 1 + n_wrong, blocks[2], got, NULL};
        rig_feed(&rig, &lane, 1);
        expect_row(&rig, want, pos, got, pos, "behind rejected guesses");
    }
    rig_close(&rig);
    free(want);
    free(got);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("forward_window");
    TCase *tcase = tcase_create("windows");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, windows_give_equal_bits_on_all_ranks_and_kernels, 0, N_WINDOWED);
    tcase_add_loop_test(tcase, a_lane_among_others_gives_equal_bits, 0, N_WINDOWED);
    tcase_add_loop_test(tcase, blocks_before_the_window_are_not_read, 0, N_WINDOWED);
    tcase_add_loop_test(tcase, a_tree_equals_its_paths_at_the_windows_edge, 0, N_WINDOWED);
    if (!is_on_device()) {
        tcase_add_loop_test(tcase, rejected_guesses_leave_no_trace, 0, N_WINDOWED);
    }
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
