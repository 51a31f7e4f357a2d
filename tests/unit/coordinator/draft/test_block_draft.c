/* ctest: labels=quick libs=coordinator timeout=200 */
/* The drafter that is a block drafter: whatever was accepted, in company, with guesses after
 * siblings, and where others have read the same beginning, each guess is the best of the row that
 * the head computes when it reads the whole text with the target's features, and then a block.
 * Chains of guesses are those of the places before. How many guesses are wanted changes none. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "coordinator/draft/trees_option.h"
#include "tests/support/head_draft_world.h"

/* Some read layers of a target that is deeper than those here, and one gets a layer with a window
 * beside one without: keys of config.json that differ. */
static const struct {
    const char *name, *target, *changes;
} heads[] = {
    {"dflash_band", "llama_tied", NULL},
    {"dflash_flat", "llama_untied", NULL},
    {"dflash_flat", "llama_untied",
     "{\"layer_types\": [\"sliding_attention\", \"full_attention\"], \"sliding_window\": 8, "
     "\"use_sliding_window\": true}"},
    {"dflash_speculators", "llama_untied", NULL},
    {"dspark_flat", "llama_untied", "{\"target_layer_ids\": [0, 1, 2]}"},
    {"dspark_speculators", "llama_tied", "{\"aux_hidden_state_layer_ids\": [0, 1, 2]}"},
};
enum { N_HEADS = sizeof heads / sizeof *heads, CHAINED = 4, KV_TOKENS = 2 * LANES * (LENGTH + 16) };

static char copy[64];

/* Makes `folder` a copy of it in which keys have other values. */
static void change(char folder[512], const char *changes)
{
    char path[600], weights[600];
    snprintf(path, sizeof path, "%s/config.json", folder);
    snprintf(weights, sizeof weights, "%s/model.safetensors", folder);
    json_t *config = json_load_file(path, 0, NULL), *others = json_loads(changes, 0, NULL);
    ck_assert_int_eq(json_object_update_existing(config, others), 0);
    json_decref(others);
    snprintf(copy, sizeof copy, "/tmp/outrider-block-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(copy));
    snprintf(path, sizeof path, "%s/config.json", copy);
    ck_assert_int_eq(json_dump_file(config, path, 0), 0);
    json_decref(config);
    snprintf(path, sizeof path, "%s/model.safetensors", copy);
    ck_assert_int_eq(symlink(weights, path), 0);
    snprintf(folder, 512, "%s", copy);
}

static void setup_with(int head, int kv_tokens)
{
    char folder[512], target[512];
    snprintf(target, sizeof target, "%smodels/%s", GOLDEN, heads[head].target);
    snprintf(folder, sizeof folder, "%sblock_heads/%s", GOLDEN, heads[head].name);
    if (heads[head].changes) change(folder, heads[head].changes);
    open_world(folder, target, kv_tokens);
    ck_assert_int_gt(w.head->block.size, 0);
    ck_assert_int_eq(w.head->block.rank > 0, head >= CHAINED);
    ck_assert(w.drafters.models[0]->is_parallel);
    ck_assert_int_eq(w.drafters.models[0]->k_max, head_block_guesses(&w.head->block));
    ck_assert_int_eq(w.drafters.models[0]->lane_rows, w.head->block.size);
}

static void setup(int head)
{
    setup_with(head, KV_TOKENS);
}

static void clear_up(void)
{
    char path[600];
    teardown();
    if (!copy[0]) return;
    snprintf(path, sizeof path, "%s/config.json", copy);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", copy);
    unlink(path);
    rmdir(copy);
}

/* ---- tests ---- */

START_TEST(guesses_are_those_of_a_text_read_at_once)
{
    setup(_i % N_HEADS);
    if (_i >= N_HEADS) give_projection(); /* which it does not ask for */
    check_company();
    clear_up();
}
END_TEST

/* A whole block has guesses, of which the first ones are those of every smaller K. */
START_TEST(how_many_are_wanted_changes_no_guess)
{
    struct text text;
    struct guess_tree whole, draft;
    setup(_i);
    int k_max = w.drafters.models[0]->k_max;
    ck_assert_int_gt(k_max, GUESSES);
    w.k = k_max;
    fill(&text, 2);
    begin(&text, 0, 21);
    show(&text, LENGTH);
    propose_all(&text, 1, &whole, NULL);
    check_draft(&text, &whole);
    for (w.k = 1; w.k < k_max; w.k++) {
        propose_all(&text, 1, &draft, NULL); /* the context has been read */
        ck_assert_mem_eq(draft.tokens, whole.tokens, (size_t)w.k * sizeof *draft.tokens);
        arena_reset(&w.arena);
    }
    end(&text);
    clear_up();
}
END_TEST

START_TEST(guesses_after_siblings_are_those_of_their_places)
{
    setup(_i);
    check_growth();
    clear_up();
}
END_TEST

/* KV that one text has serves another that begins alike, even where all of the other's context is
 * there; a window's blocks are given up. */
START_TEST(equal_beginnings_are_read_once)
{
    enum { N = 33, N_TEXTS = 4 };
    static const int n_known[N_TEXTS] = {0, 33, 0, 17};
    struct text texts[N_TEXTS];
    setup(_i);
    for (int i = 0; i < N_TEXTS; i++) {
        fill(&texts[i], 5);
        if (i == 2) texts[i].tokens[0]++;
        if (i == 3) texts[i].tokens[20]++; /* in the second KV block */
        check_beginning(&texts[i], i, N, n_known[i]);
    }
    for (int i = 0; i < N_TEXTS; i++) {
        end(&texts[i]);
    }
    clear_up();
}
END_TEST

/* Guesses are written over before their KV could be published: those that stayed have features by
 * then, and another text that goes on otherwise finds nothing wrong. */
START_TEST(no_block_is_published)
{
    enum { N = 30 };
    struct text texts[2];
    struct guess_tree draft;
    setup(_i);
    for (int i = 0; i < 2; i++) {
        fill(&texts[i], 6);
        begin(&texts[i], i, N);
        show(&texts[i], 5);
        propose_all(&texts[i], 1, &draft, NULL);
        accept(&texts[i], &draft, GUESSES);
        ck_assert_int_gt(texts[i].n, 2 * KV_BLOCK_TOKENS);
        drafter_commit(w.drafters.models[0], texts[i].seq); /* with rows of the block after 30 */
        ck_assert_int_eq(model_draft(w.drafters.models[0])->tables[i].n_known, 1);
        show(&texts[i], 5);
        propose_all(&texts[i], 1, &draft, NULL);
        check_draft(&texts[i], &draft);
        drafter_commit(w.drafters.models[0], texts[i].seq);
        ck_assert_int_eq(model_draft(w.drafters.models[0])->tables[i].n_known, 2);
        arena_reset(&w.arena);
    }
    end(&texts[0]);
    end(&texts[1]);
    clear_up();
}
END_TEST

/* Reads in parts, as prompts are, and a longer context than a step takes. */
START_TEST(contexts_are_read_in_parts)
{
    struct text text;
    struct guess_tree draft;
    struct error err;
    setup(_i);
    fill(&text, 1);
    begin(&text, 0, 40);
    show(&text, 40);
    for (int n = 2; text.seq->n_draft_kv[0] < 40; n += 3) {
        int before = text.seq->n_draft_kv[0];
        const struct draft_reading reading = {text.seq, n, 0};
        CHECK_OK(drafter_read(w.drafters.models[0], &reading, 1, &err));
        int wanted = before + n < 40 ? before + n : 40;
        ck_assert_int_eq(text.seq->n_draft_kv[0], wanted);
    }
    propose_all(&text, 1, &draft, NULL);
    check_draft(&text, &draft);
    end(&text);
    clear_up();
}
END_TEST

/* Parts of prompts end where a block does, so that others find it. */
START_TEST(kv_shift_says_where_blocks_end)
{
    struct text text;
    struct error err;
    setup(_i);
    struct drafter *drafter = w.drafters.models[0];
    const struct block_table *table = &model_draft(drafter)->tables[0];
    fill(&text, 1);
    begin(&text, 0, 40);
    show(&text, 40);
    const struct draft_reading most = {text.seq, drafter->kv_shift + KV_BLOCK_TOKENS - 1, 0};
    const struct draft_reading last = {text.seq, 1, 0};
    CHECK_OK(drafter_read(drafter, &most, 1, &err));
    drafter_commit(drafter, text.seq);
    ck_assert_int_eq(table->n_known, 0);
    CHECK_OK(drafter_read(drafter, &last, 1, &err));
    drafter_commit(drafter, text.seq);
    ck_assert_int_eq(table->n_known, 1);
    end(&text);
    clear_up();
}
END_TEST

START_TEST(a_text_whose_features_have_not_come_has_no_guesses)
{
    struct text text;
    struct guess_tree draft;
    struct draft_cost cost;
    setup(_i);
    fill(&text, 1);
    begin(&text, 0, 20);
    guess_tree_begin(&draft, text.n);
    struct draft_lane lane = {
        .seq = text.seq, .k = GUESSES, .ends = &nothing_ends, .draft = &draft};
    drafter_propose(w.drafters.models[0], &lane, 1, &w.arena, &cost);
    ck_assert(lane.err.code == 0 && draft.n == 0 && cost.n_passes == 0);
    show(&text, 4);
    drafter_propose(w.drafters.models[0], &lane, 1, &w.arena, &cost);
    ck_assert_int_eq(draft.n_chain, GUESSES);
    /* The rows of the pass: 19 of the context, the block, and two more guesses. */
    ck_assert(cost.n_passes == 1 && cost.pass_lanes[0] == 1);
    ck_assert_int_eq(cost.first_pass_tokens + cost.pass_expected[0],
                     20 + w.head->block.size + GUESSES - 1);
    check_draft(&text, &draft);
    end(&text);
    clear_up();
}
END_TEST

/* The last text that a cache takes has its guesses; with one token more there is no room. */
START_TEST(a_block_always_has_kv)
{
    enum { N_KV = 48 };
    struct text text;
    struct guess_tree draft;
    struct error err;
    setup_with(_i, N_KV);
    struct drafter *drafter = w.drafters.models[0];
    int most = drafter->limit - 1;
    ck_assert_int_eq(most, N_KV + 1 - w.head->block.size);
    w.k = 1;
    fill(&text, 4);
    begin(&text, 0, most);
    show(&text, LENGTH);
    CHECK_OK(drafter_reserve(drafter, text.seq, most + 1, &err));
    propose_all(&text, 1, &draft, NULL);
    check_draft(&text, &draft);
    text.seq->n_tokens++;
    CHECK_ERR(drafter_reserve(drafter, text.seq, most + 2, &err), ERR_EXHAUSTED, "");
    end(&text);
    clear_up();
}
END_TEST

/* Every guess is one of its q, which is the softmax of its row over the best tokens. Returns how
 * many guesses are not the best of their row. */
static int check_drawn(const struct text *text, const struct guess_tree *draft)
{
    const int32_t *ids = checkpoint_head_ids(w.ck);
    int n_others = 0;
    for (int node = 0; node < draft->n; node++) {
        const struct sparse_dist *q = draft->q[node];
        double exps[VOCAB], sum = 0;
        int32_t best;
        read_after(text, draft, draft->parents[node]);
        best_by_hand(&best, 1);
        n_others += draft->tokens[node] != best;
        for (int i = 0; i < q->n; i++) {
            int column = ids ? 0 : q->ids[i];
            while (ids && ids[column] != q->ids[i]) {
                column++;
            }
            sum += exps[i] = exp((double)w.logits[column]);
        }
        for (int i = 0; i < q->n; i++) {
            ck_assert_double_lt(fabs((double)q->p[i] - exps[i] / sum), 1e-5);
        }
        ck_assert(sparse_prob(q, draft->tokens[node]) > 0);
    }
    return n_others;
}

/* A chain follows the guesses that were drawn. Chains that are drawn independently follow none of
 * theirs, so that all of them are drawn alike. */
START_TEST(guesses_are_drawn_from_the_q_that_is_reported)
{
    enum { SEEDS = 8 };
    static const struct tree_widths widths = {
        .n = GUESSES, .widths = {3, 1, 1}, .is_independent = true};
    struct text text;
    struct guess_tree draft, chains;
    int n_others = 0;
    setup(_i);
    tree_widths_plan(&widths, GUESSES, &chains);
    fill(&text, 2);
    begin(&text, 0, 25);
    text.seq->rule = &accept_rules[RULE_REJECTION];
    text.seq->sampling.temperature = 1;
    show(&text, LENGTH);
    for (int seed = 0; seed < SEEDS; seed++) {
        text.seq->seed = (uint64_t)seed;
        w.k = w.drafters.models[0]->k_max;
        propose_all(&text, 1, &draft, NULL);
        n_others += check_drawn(&text, &draft);
        arena_reset(&w.arena);
        w.k = GUESSES;
        propose_all(&text, 1, &draft, &chains);
        ck_assert(draft.is_independent && draft.n == 3 * GUESSES);
        n_others += check_drawn(&text, &draft);
        arena_reset(&w.arena);
    }
    ck_assert_int_gt(n_others, SEEDS);
    end(&text);
    clear_up();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("block_draft");
    TCase *tcase = tcase_create("block_draft");
    tcase_set_timeout(tcase, 100);
    tcase_add_loop_test(tcase, guesses_are_those_of_a_text_read_at_once, 0, 2 * N_HEADS);
    tcase_add_loop_test(tcase, how_many_are_wanted_changes_no_guess, 0, N_HEADS);
    tcase_add_loop_test(tcase, guesses_after_siblings_are_those_of_their_places, 0, N_HEADS);
    tcase_add_loop_test(tcase, equal_beginnings_are_read_once, 0, N_HEADS);
    tcase_add_loop_test(tcase, no_block_is_published, 0, N_HEADS);
    tcase_add_loop_test(tcase, contexts_are_read_in_parts, 0, N_HEADS);
    tcase_add_loop_test(tcase, kv_shift_says_where_blocks_end, 0, N_HEADS);
    tcase_add_loop_test(tcase, a_text_whose_features_have_not_come_has_no_guesses, 0, N_HEADS);
    tcase_add_loop_test(tcase, a_block_always_has_kv, 0, N_HEADS);
    tcase_add_loop_test(tcase, guesses_are_drawn_from_the_q_that_is_reported, 0, N_HEADS);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
