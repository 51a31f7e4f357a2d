/* ctest: labels=quick,threads,bits,slow libs=model timeout=600 */
/* One arithmetic: the logits after a prefix are bit-identical whatever else is in the step, however
 * the tokens are cut into steps, on any number of ranks and threads, and with any variant of the
 * kernels. */
#include "tests/support/forward_ways.h"

enum { SYNTHETIC_CUT = 100 }; /* ids in a cut vocabulary: slices of 64, 36 and none */

static float *tales; /* the reference of most tests, made once: see make_tales */

/* Runs once, before the tests fork. */
static void make_tales(void)
{
    tales = reference(TALES, N_TOKENS);
}

static void drop_tales(void)
{
    free(tales);
}

static void check_tales(struct way way)
{
    check_way(TALES, tales, N_TOKENS, way);
}

/* Threads and variants of kernels are the CPU's. */
static bool is_on_cpu(void)
{
    return getenv("OUTRIDER_TEST_DEVICE") == NULL;
}

/* An emulated device is slow, so it has some of the cases. */
static bool is_emulated(void)
{
    return getenv("OUTRIDER_TEST_EMULATED") != NULL;
}

START_TEST(chunks_of_any_length_give_equal_bits)
{
    const int chunks[] = {1, 2, 5, 6, 7, 17, 64, 299};
    if (is_emulated() && _i % 2) return;
    int n = is_emulated() && chunks[_i] == 1 ? 100 : N_TOKENS;
    check_way(TALES, tales, n, (struct way){1, 1, chunks[_i], "auto"});
}
END_TEST

START_TEST(ranks_give_equal_bits)
{
    const int ranks[] = {2, 4, 8};
    if (is_emulated() && ranks[_i] > 2) return; /* other shapes go up to 8, at 40 tokens */
    check_tales((struct way){ranks[_i], 1, 7, "auto"});
}
END_TEST

START_TEST(ranks_of_the_draft_give_equal_bits)
{
    float *want = reference(DRAFT, N_TOKENS);
    check_way(DRAFT, want, N_TOKENS, (struct way){2, 1, 64, "auto"});
    check_way(DRAFT, want, N_TOKENS, (struct way){4, 1, 64, "auto"});
    free(want);
}
END_TEST

START_TEST(threads_give_equal_bits)
{
    if (!is_on_cpu()) return;
    check_tales((struct way){1, 2, 64, "auto"});
    check_tales((struct way){2, 2, 6, "auto"});
    check_tales((struct way){1, 3, 1, "auto"});
}
END_TEST

START_TEST(kernel_variants_give_equal_bits)
{
    if (!kernels_name(_i) || !is_on_cpu()) return;
    check_tales((struct way){1, 1, 64, kernels_name(_i)});
}
END_TEST

START_TEST(kernel_variants_give_equal_bits_on_two_ranks)
{
    if (!kernels_name(_i) || !is_on_cpu()) return;
    check_tales((struct way){2, 1, 5, kernels_name(_i)});
}
END_TEST

START_TEST(kernel_variants_give_equal_bits_with_norms_and_biases)
{
    const char *model = GOLDEN "qwen3_norm_bias";
    float *want = reference(model, N_TOKENS);
    for (int i = 0; kernels_name(i) && (i == 0 || is_on_cpu()); i++) {
        check_way(model, want, N_TOKENS, (struct way){1, 1, 9, kernels_name(i)});
    }
    free(want);
}
END_TEST

static bool takes_ranks(const char *model, int n_ranks)
{
    struct error err;
    struct checkpoint *ck;
    CHECK_OK(checkpoint_open(&ck, model, &err));
    bool takes = config_takes_ranks(checkpoint_config(ck), n_ranks);
    checkpoint_close(ck);
    return takes;
}

/* Every number of ranks that a model divides into, among them more ranks than kv heads (kv_one,
 * tiny), a vocabulary whose last slice is short (the qwen shape) and one with empty slices. */
START_TEST(other_shapes_give_equal_bits_on_all_their_ranks)
{
    const struct {
        const char *model;
        int n_slices;
    } shapes[] = {
        {GOLDEN "llama_bias", 4},
        {GOLDEN "qwen2_bias", 8},
        {GOLDEN "qwen3_norm", 4},
        {GOLDEN "llama_rope_yarn_factor", 2},
        {GOLDEN "llama_tied", 4},
        {GOLDEN "llama_kv_one", 8},
        {"synthetic:tiny,seed=7", 8},
        {"synthetic:tiny,seed=7,vocab=100", 8},
        {"synthetic:qwen2.5-0.5b,seed=3,layers=1,vocab=1000", 2},
        {"synthetic:tiny-3,seed=7", 3},
        {"synthetic:tiny-5,seed=7", 5},
        {"synthetic:tiny-6,seed=7", 6},
        {"synthetic:tiny-7,seed=7,vocab=100", 7},
        {"synthetic:smollm2-135m,seed=7,layers=1,vocab=1000", 3},
    };
    const char *model = shapes[_i].model;
    ck_assert_int_eq(slices_of(model), shapes[_i].n_slices);
    float *want = reference(model, N_TOKENS_SHORT);
    for (int n_ranks = 2; n_ranks <= shapes[_i].n_slices; n_ranks++) {
        if (!takes_ranks(model, n_ranks)) continue;
        check_way(model, want, N_TOKENS_SHORT, (struct way){n_ranks, 1, 6, "auto"});
    }
    free(want);
}
END_TEST

/* Ids past the tokenizer's are masked, and the slices are cut for the ids that are left. The logits
 * of these do not change. */
START_TEST(a_cut_vocabulary_keeps_the_bits)
{
    const char *model = "synthetic:tiny,seed=7";
    float *whole = reference(model, N_TOKENS_SHORT);
    make_inputs(SYNTHETIC_CUT);
    struct rig all, cut;
    rig_open(&all, model, 1, "auto", 1);
    rig_logits(&all, tokens, N_TOKENS_SHORT, N_TOKENS_SHORT, blocks[0], whole);
    rig_open_cut(&cut, model, 4, "auto", 1, SYNTHETIC_CUT);
    float *got = new_logits(&cut, N_TOKENS_SHORT);
    rig_logits(&cut, tokens, N_TOKENS_SHORT, 6, blocks[1], got);
    for (int pos = 0; pos < N_TOKENS_SHORT; pos++) {
        ck_assert_mem_eq(got + pos * cut.n_vocab, whole + pos * all.n_vocab,
                         SYNTHETIC_CUT * sizeof *got);
    }
    rig_close(&all);
    rig_close(&cut);
    free(whole);
    free(got);
}
END_TEST

/* The lane of interest goes in K + 1 rows at a time among three others of other lengths. */
START_TEST(a_lane_among_others_gives_equal_bits)
{
    const int n_ranks = _i + 1;
    if (is_emulated() && n_ranks == 2) return; /* steps with sums on the host are not recorded */
    struct rig rig;
    rig_open(&rig, TALES, n_ranks, "auto", 1);
    float *got = new_logits(&rig, N_TOKENS);
    float *rest = new_logits(&rig, N_TOKENS);
    int fed[4] = {0};
    const int step[4] = {5, 1, 16, 3};
    while (fed[0] < N_TOKENS) {
        struct rig_lane lanes[4];
        int n = 0;
        for (int i = 0; i < 4; i++) {
            const int32_t *row = i == 0 ? tokens : other[i - 1];
            int left = N_TOKENS - fed[i];
            if (left == 0) continue;
            lanes[n++] = (struct rig_lane){.tokens = row,
                                           .first = fed[i],
                                           .n = left < step[i] ? left : step[i],
                                           .blocks = blocks[i],
                                           .logits = i == 0   ? got
                                                     : i == 2 ? rest
                                                              : NULL};
            fed[i] += lanes[n - 1].n;
        }
        /* The other lanes may come before or after the lane. */
        if (n == 4 && fed[0] % 2) {
            struct rig_lane first = lanes[0];
            lanes[0] = lanes[3];
            lanes[3] = first;
        }
        rig_feed(&rig, lanes, n);
    }
    check_equal(&rig, tales, got, N_TOKENS, "a lane among three others");
    rig_close(&rig);
    free(rest);
    free(got);
}
END_TEST

/* Guesses that were fed and rejected have no effect. */
START_TEST(rejected_guesses_leave_no_trace)
{
    struct rig rig;
    rig_open(&rig, TALES, 1, "auto", 1);
    float *got = new_logits(&rig, N_TOKENS);
    int32_t mixed[N_TOKENS];
    int first = is_emulated() ? N_TOKENS - 80 : 1; /* before the end of the first partition */
    rig_logits(&rig, tokens, first, first, blocks[2], got);
    for (int pos = first; pos < N_TOKENS; pos++) {
        int n_wrong = pos % 4;
        if (pos + 1 + n_wrong > N_TOKENS) n_wrong = 0;
        memcpy(mixed, tokens, sizeof mixed);
        for (int i = 1; i <= n_wrong; i++) {
            mixed[pos + i] = other[0][pos + i];
        }
        const struct rig_lane lane = {mixed, pos, 1 + n_wrong, blocks[2], got, NULL};
        rig_feed(&rig, &lane, 1);
        size_t at = (size_t)pos * (size_t)rig.n_vocab;
        ck_assert_msg(memcmp(got + at, tales + at, (size_t)rig.n_vocab * sizeof *got) == 0,
                      "position %d differs", pos);
    }
    rig_close(&rig);
    free(got);
}
END_TEST

START_TEST(ranks_that_do_not_divide_are_refused)
{
    struct error err;
    struct shard shard;
    struct checkpoint *ck;
    CHECK_OK(checkpoint_open(&ck, TALES, &err));
    const struct model_config *cfg = checkpoint_config(ck);
    CHECK_ERR(shard_init(&shard, cfg, cfg->vocab_size, 0, 3, &err), ERR_ARGUMENT,
              "T must be one of 1, 2, 4, 8");
    checkpoint_close(ck);
}
END_TEST

static TCase *add_case(Suite *suite, const char *name)
{
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, 300);
    suite_add_tcase(suite, tcase);
    return tcase;
}

int main(void)
{
    Suite *suite = suite_create("forward");
    TCase *pair = add_case(suite, "the tales target");
    tcase_set_tags(pair, "long"); /* tests/run leaves it out where the CPU is emulated */
    tcase_add_unchecked_fixture(pair, make_tales, drop_tales);
    tcase_add_loop_test(pair, ranks_give_equal_bits, 0, 3);
    tcase_add_test(pair, threads_give_equal_bits);
    tcase_add_loop_test(pair, a_lane_among_others_gives_equal_bits, 0, 2);
    TCase *alone = add_case(suite, "the tales target on one thread");
    tcase_set_tags(alone, "long alone"); /* and this one under ThreadSanitizer */
    tcase_add_unchecked_fixture(alone, make_tales, drop_tales);
    tcase_add_loop_test(alone, chunks_of_any_length_give_equal_bits, 0, 8);
    tcase_add_loop_test(alone, kernel_variants_give_equal_bits, 0, KERNELS_MAX);
    tcase_add_test(alone, rejected_guesses_leave_no_trace);
    TCase *variants = add_case(suite, "the tales target on two ranks"); /* whose threads share */
    tcase_set_tags(variants, "long alone"); /* the same things under every variant */
    tcase_add_unchecked_fixture(variants, make_tales, drop_tales);
    tcase_add_loop_test(variants, kernel_variants_give_equal_bits_on_two_ranks, 0, KERNELS_MAX);
    TCase *rest = add_case(suite, "other models");
    tcase_add_test(rest, ranks_of_the_draft_give_equal_bits);
    tcase_add_test(rest, kernel_variants_give_equal_bits_with_norms_and_biases);
    tcase_add_loop_test(rest, other_shapes_give_equal_bits_on_all_their_ranks, 0, 14);
    tcase_add_test(rest, a_cut_vocabulary_keeps_the_bits);
    tcase_add_test(rest, ranks_that_do_not_divide_are_refused);
    return check_main(suite);
}
