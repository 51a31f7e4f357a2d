/* ctest: labels=quick libs=coordinator timeout=200 */
/* The drafter that is a head: whatever was accepted, in company, with guesses after siblings, and
 * where others have read the same beginning, each guess is the best of the row that the head
 * computes when it reads the whole text with the target's features, and then the guesses before
 * with its own outputs; or masks, where one pass makes all guesses; or from the last feature
 * alone. So it is where the workers have projected the features. */
#include "tests/support/head_draft_world.h"

static const struct {
    const char *folder, *target;
} heads[] = {{"heads/eagle3_flat", "models/llama_untied"},
             {"heads/eagle3_output", "models/llama_untied"},
             {"heads/eagle3_whole", "models/llama_untied"},
             {"heads/eagle3_single", "models/llama_untied"},
             {"heads/eagle1", "models/llama_untied"},
             {"heads/mimo", "heads/mimo"}, /* MTP layers are in their target's folder */
             {"heads/eagle3_parallel", "models/llama_untied"},
             {"place_heads/medusa", "models/llama_untied"},
             {"place_heads/medusa_shared", "models/llama_untied"},
             {"place_heads/blockwise", "models/llama_tied"}};
enum { N_HEADS = sizeof heads / sizeof *heads };

static void setup(int head)
{
    char folder[512], target[512];
    snprintf(folder, sizeof folder, "%s%s", GOLDEN, heads[head].folder);
    snprintf(target, sizeof target, "%s%s", GOLDEN, heads[head].target);
    open_world(folder, target, 2 * LANES * LENGTH);
}

/* ---- tests ---- */

START_TEST(guesses_are_those_of_a_text_read_at_once)
{
    setup(_i % N_HEADS);
    if (_i >= N_HEADS) give_projection();
    check_company();
    teardown();
}
END_TEST

START_TEST(guesses_after_siblings_read_the_outputs_of_their_paths)
{
    setup(_i % N_HEADS);
    if (_i >= N_HEADS) give_projection();
    check_growth();
    teardown();
}
END_TEST

/* KV that one text has serves another that begins alike, but not one whose first token differs,
 * although the head's rows have no place for that. */
START_TEST(equal_beginnings_are_read_once)
{
    enum { N = 40 };
    struct text texts[3];
    setup(0);
    for (int i = 0; i < 3; i++) {
        fill(&texts[i], 5);
        if (i == 2) texts[i].tokens[0]++;
        check_beginning(&texts[i], i, N, i == 1 ? 33 : 0);
    }
    for (int i = 0; i < 3; i++) {
        end(&texts[i]);
    }
    teardown();
}
END_TEST

/* Asks each group for what it has. */
START_TEST(groups_with_and_without_the_fc_take_turns)
{
    struct text text;
    struct guess_tree draft;
    setup(0);
    for (int turn = 0; turn < 4; turn++) {
        if (turn % 2 == 1) give_projection();
        if (turn == 2) take_projection();
        fill(&text, turn);
        begin(&text, 0, 23 + turn);
        show(&text, 7);
        propose_all(&text, 1, &draft, NULL);
        check_draft(&text, &draft);
        accept(&text, &draft, 2);
        show(&text, 7);
        end(&text);
        arena_reset(&w.arena);
    }
    teardown();
}
END_TEST

START_TEST(a_text_whose_features_have_not_come_has_no_guesses)
{
    struct text text;
    struct guess_tree draft;
    struct draft_cost cost;
    struct error err;
    setup(0);
    fill(&text, 1);
    begin(&text, 0, 20);
    guess_tree_begin(&draft, text.n);
    struct draft_lane lane = {
        .seq = text.seq, .k = GUESSES, .ends = &nothing_ends, .draft = &draft};
    drafter_propose(w.drafters.models[0], &lane, 1, &w.arena, &cost);
    ck_assert(lane.err.code == 0 && draft.n == 0 && cost.n_passes == 0);
    const struct draft_reading reading = {text.seq, 19, 0};
    CHECK_OK(drafter_read(w.drafters.models[0], &reading, 1, &err));
    ck_assert_int_eq(text.seq->n_draft_kv[0], 0);
    /* A gap is told. */
    const struct draft_features features = {.first = 3, .n = 2, .rows = features_of(&text, 3, 2)};
    CHECK_ERR(drafter_observe(w.drafters.models[0], text.seq, &features, &err), ERR_INTERNAL,
              "but not");
    show(&text, 4);
    CHECK_OK(drafter_read(w.drafters.models[0], &reading, 1, &err));
    ck_assert_int_eq(text.seq->n_draft_kv[0], 19);
    propose_all(&text, 1, &draft, NULL);
    check_draft(&text, &draft);
    end(&text);
    teardown();
}
END_TEST

START_TEST(what_does_not_fit_is_refused)
{
    struct error err;
    struct drafter *drafter = NULL;
    struct drafter_options options = {
        .name = "head:" GOLDEN "heads/eagle3_flat",
        .backend = {.device = "cpu", .weights = "bf16", .kernels = "auto", .n_threads = 1},
        .n_sequences = 1,
        .support = 64,
        .kv_tokens = LENGTH};
    setup(0);
    CHECK_ERR(drafter_open(&drafter, &options, w.tok, &err), ERR_ARGUMENT, "--tokenizer");
    options.target = checkpoint_name(w.target);
    options.vocabulary = "counts.txt";
    CHECK_ERR(drafter_open(&drafter, &options, w.tok, &err), ERR_ARGUMENT, "--draft-vocab");
    int dim = w.drafters.models[0]->feature_dim;
    CHECK_OK(drafters_check_target(&w.drafters, 4, dim, &err));
    CHECK_ERR(drafters_check_target(&w.drafters, 2, dim, &err), ERR_UNSUPPORTED, "another target");
    give_projection(); /* which asks for the same boundaries */
    CHECK_OK(drafters_check_target(&w.drafters, 4, dim, &err));
    CHECK_ERR(drafters_check_target(&w.drafters, 2, dim, &err), ERR_UNSUPPORTED, "another target");
    CHECK_ERR(drafters_check_target(&w.drafters, 4, dim + 64, &err), ERR_UNSUPPORTED,
              "another target");
    teardown();
}
END_TEST

START_TEST(places_see_the_last_feature_of_a_text_that_is_replayed)
{
    struct text text;
    struct error err;
    setup(7);
    fill(&text, 3);
    begin(&text, 0, 20);
    text.n = 33;
    struct sequence *seq = text.seq;
    show(&text, LENGTH);
    CHECK_OK(block_table_reach(&seq->target_blocks, &w.target_pool, 33, &err));
    seq->n_target_kv = 32;
    prefix_cache_publish(&seq->target_blocks, &w.target_pool, seq->tokens, 32);
    places_evict(seq, &w.target_pool, &w.drafters);
    CHECK_OK(places_give(seq, 0, &w.target_pool, &w.drafters, &err));
    ck_assert_int_lt(seq->n_target_kv, 32); /* the feature of 31 has to come */
    end(&text);
    teardown();
}
END_TEST

START_TEST(further_engines_share_the_weights)
{
    struct error err;
    struct drafter *other = NULL;
    setup(_i);
    struct drafter_options options = model_draft(w.drafters.models[0])->options;
    char name[256];
    snprintf(name, sizeof name, "head:" GOLDEN "%s", heads[_i].folder);
    options.name = name;
    options.target = checkpoint_name(w.target);
    options.like = w.drafters.models[0];
    CHECK_OK(drafter_open(&other, &options, w.tok, &err));
    struct drafter *first = w.drafters.models[0];
    struct text text;
    struct guess_tree draft;
    w.drafters.models[0] = other;
    fill(&text, 1);
    begin(&text, 0, 20);
    show(&text, 4);
    propose_all(&text, 1, &draft, NULL);
    check_draft(&text, &draft);
    end(&text);
    drafter_close(other);
    w.drafters.models[0] = first;
    teardown();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("head_draft");
    TCase *tcase = tcase_create("head_draft");
    tcase_set_timeout(tcase, 100);
    tcase_add_loop_test(tcase, guesses_are_those_of_a_text_read_at_once, 0, 2 * N_HEADS);
    tcase_add_loop_test(tcase, guesses_after_siblings_read_the_outputs_of_their_paths, 0,
                        2 * N_HEADS);
    tcase_add_test(tcase, equal_beginnings_are_read_once);
    tcase_add_test(tcase, groups_with_and_without_the_fc_take_turns);
    tcase_add_test(tcase, a_text_whose_features_have_not_come_has_no_guesses);
    tcase_add_test(tcase, places_see_the_last_feature_of_a_text_that_is_replayed);
    tcase_add_loop_test(tcase, further_engines_share_the_weights, 0, N_HEADS);
    tcase_add_test(tcase, what_does_not_fit_is_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
