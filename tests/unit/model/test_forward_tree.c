/* ctest: labels=quick,bits,slow libs=model timeout=600 */
/* A tree of guesses in one step: every guess has the logits of its path fed as a chain, bit for
 * bit, and so has what follows when a path is accepted; lanes beside the tree keep theirs. Over
 * shapes, places in a block, ranks, threads, kernels and weights. */
#include "tests/support/tree_feed.h"

#define TINY "synthetic:tiny,seed=7,vocab=100"

START_TEST(a_tree_equals_its_paths_at_every_place_in_a_block)
{
    struct rig rig;
    rig_open(&rig, TINY, 1, "auto", 1);
    make_inputs(rig.n_vocab);
    for (int n_committed = 1; n_committed <= 2 * KV_BLOCK_TOKENS + 1; n_committed++) {
        check_tree(&rig, _i, n_committed, 1, n_committed % 2);
    }
    rig_close(&rig);
}
END_TEST

/* The step feeds committed tokens too: as many as a block has, or a whole prompt. */
START_TEST(a_tree_equals_its_paths_after_committed_tokens_of_the_step)
{
    static const int fed[] = {2, 5, 15, 16, 17, N_TOKENS};
    struct rig rig;
    rig_open(&rig, TINY, 1, "auto", 2);
    make_inputs(rig.n_vocab);
    for (int i = 0; i < (int)(sizeof fed / sizeof *fed); i++) {
        for (int n_committed = 14; n_committed < 34; n_committed += 3) {
            check_tree(&rig, _i, n_committed, fed[i], i % 2);
        }
    }
    rig_close(&rig);
}
END_TEST

/* Around position 256, where an attention partition ends. */
START_TEST(a_tree_equals_its_paths_across_partitions)
{
    static const int places[] = {241, 249, 255, 256, 258, 263};
    struct rig rig;
    rig_open(&rig, TINY, 1, "auto", 2);
    make_inputs(rig.n_vocab);
    for (int i = 0; i < (int)(sizeof places / sizeof *places); i++) {
        check_tree(&rig, _i, places[i], i % 2 ? 1 : 9, i % 2);
    }
    rig_close(&rig);
}
END_TEST

static const struct {
    const char *model, *weights;
    int n_ranks, n_threads;
} ways[] = {{TINY, "bf16", 2, 1},
            {TINY, "bf16", 1, 3},
            {TINY, "int8", 1, 2},
            {TINY, "int8", 2, 2},
            {TINY, "int4", 1, 1},
            {GOLDEN "llama_kv_one", "bf16", 1, 4},
            {GOLDEN "qwen3_norm_bias", "bf16", 1, 1},
            {GOLDEN "mistral_slides", "bf16", 1, 2}};
enum { N_WAYS = sizeof ways / sizeof *ways };

START_TEST(a_tree_equals_its_paths_on_all_ranks_kernels_and_weights)
{
    rig_weights = ways[_i].weights;
    for (int k = 0; kernels_name(k); k++) {
        struct error err;
        const struct kernels *kernels;
        struct rig rig;
        if (kernels_find(&kernels, kernels_name(k), &err)) continue;
        rig_open(&rig, ways[_i].model, ways[_i].n_ranks, kernels->name, ways[_i].n_threads);
        make_inputs(rig.n_vocab);
        for (int shape = k % 2; shape < N_SHAPES; shape += 2) {
            check_tree(&rig, shape, 13 + shape, 1 + shape % 3, shape % 4 < 2);
        }
        rig_close(&rig);
    }
}
END_TEST

/* Two trees and a chain in one step: the rows of each tree are those that it has in a step of its
 * own. The second tree's text lies in blocks[3], and its tails after those of the first. */
START_TEST(two_trees_in_one_step_leave_each_others_rows_alone)
{
    static struct planted p[2];
    struct rig rig;
    rig_open(&rig, TINY, 1 + _i % 2, "auto", 1 + _i % 3);
    make_inputs(rig.n_vocab);
    float *alone = new_logits(&rig, TREE_TEXT_MAX), *got[2];
    struct forward_tree trees[2];
    struct rig_lane lanes[3] = {[1] = {.tokens = other[2], .n = 9, .blocks = blocks[1]}};
    for (int i = 0, n_tails = 0; i < 2; i++) {
        plant(&p[i], &rig, (_i + 3 * i) % N_SHAPES, 14 + 5 * i + _i % 3);
        got[i] = new_logits(&rig, TREE_TEXT_MAX);
        trees[i] = (struct forward_tree){&p[i].shape, blocks[2] + n_tails};
        n_tails += tree_layout_tails(&p[i].shape, p[i].n_committed, KV_BLOCK_TOKENS);
        lanes[2 * i] = (struct rig_lane){.tokens = p[i].text,
                                         .first = p[i].n_committed - 1,
                                         .n = 1 + p[i].shape.n_nodes,
                                         .blocks = blocks[3 * i],
                                         .logits = got[i],
                                         .tree = &trees[i]};
        feed_run(&rig, p[i].text, 0, p[i].n_committed - 1, lanes[2 * i].blocks, alone);
    }
    rig_feed(&rig, lanes, 3);
    for (int i = 0; i < 2; i++) {
        struct rig_lane lane = lanes[2 * i];
        lane.logits = alone;
        rig_feed(&rig, &lane, 1);
        for (int row = lane.first; row < lane.first + lane.n; row++) {
            expect_row(&rig, alone, row, got[i], row, "a tree beside another one");
        }
        free(got[i]);
    }
    rig_close(&rig);
    free(alone);
}
END_TEST

/* Steps of one size three times, so that the last one is replayed from a recording where the device
 * records. The emulation is slow. */
START_TEST(a_tree_equals_its_paths_on_a_device)
{
    static const int places[] = {14, 13, 31};
    struct rig rig;
    rig_open(&rig, TINY, 1 + _i % 2, "auto", 1);
    make_inputs(rig.n_vocab);
    for (int i = 0; i < 3; i++) {
        check_tree(&rig, _i, places[i], 1 + _i % 3, i == 2);
    }
    if (_i % 3 == 2) check_tree(&rig, _i, 247 + _i, 1, false); /* across two partitions */
    rig_close(&rig);
}
END_TEST

int main(void)
{
    bool is_on_device = getenv("OUTRIDER_TEST_DEVICE") != NULL;
    Suite *suite = suite_create("forward_tree");
    TCase *tcase = tcase_create("trees");
    tcase_set_timeout(tcase, 120);
#ifdef __aarch64__
    /* Where it is emulated all of it would take many minutes. */
    tcase_add_loop_test(tcase, two_trees_in_one_step_leave_each_others_rows_alone, 2, 5);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
#endif
    tcase_add_loop_test(tcase, a_tree_equals_its_paths_on_a_device, 0, N_SHAPES);
    tcase_add_loop_test(tcase, two_trees_in_one_step_leave_each_others_rows_alone, 0, N_SHAPES);
    if (!is_on_device) {
        tcase_add_loop_test(tcase, a_tree_equals_its_paths_at_every_place_in_a_block, 0, N_SHAPES);
        tcase_add_loop_test(tcase, a_tree_equals_its_paths_after_committed_tokens_of_the_step, 0,
                            N_SHAPES);
        tcase_add_loop_test(tcase, a_tree_equals_its_paths_across_partitions, 0, N_SHAPES);
        tcase_add_loop_test(tcase, a_tree_equals_its_paths_on_all_ranks_kernels_and_weights, 0,
                            N_WAYS);
    }
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
