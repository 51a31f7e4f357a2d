/* ctest: labels=quick libs=coordinator timeout=200 */
/* Parallel drafts: one pass makes all guesses, each from the row that the plain model has after the
 * text and the masks before its place, and what is fed as masks leaves no trace. */
#include <math.h>
#include <stdio.h>

#include "tests/support/draft_growth.h"
#include "tests/support/draws.h"
#include "tests/support/parallel_draft.h"

enum { MASK = 4001, TEXTS = 6, N_RULES = 4 /* of `ways`: those without edits */ };

/* Both siblings of the first guess go on, one of the second does, and there are places after the
 * chain's. */
static const struct growth plan = {.n = 9, .parents = {-1, -1, -2, 0, 0, 1, -4, 3, 7}};
/* As plan, for the draft to share the guesses of each place. */
static const struct growth wide = {.n = 9, .parents = {-1, -1, -2, -4, 0, 1, 2, 3, 6}};
static const uint8_t wide_siblings[DRAFT_MAX] = {2, 1, 1};

/* Guesses before, after and across the end of a block. */
static const int lengths[TEXTS] = {5, 9, 10, 11, 12, 13};

static int32_t draw(const struct sequence *seq, int place, int coin, const struct sparse_dist *q,
                    const int32_t *gone, int n_gone)
{
    const struct rng_address at = {seq->seed, (uint32_t)(seq->n_tokens + place),
                                   (uint32_t)seq->n_tokens};
    return multi_draft_draw(q, gone, n_gone, rng_uniform(&at, RNG_DRAFT, (uint32_t)coin));
}

enum { IDS = 4096, SUPPORT = 64 };

/* A row of the plain model and what a guess from it must be. */
struct plain_row {
    float logits[IDS], p[SUPPORT];
    int32_t ids[SUPPORT];
    struct sparse_dist q;
};

/* The row after the text and n masks, by a draft that makes each guess in a pass of its own,
 * without the mask. */
static void read_plain(struct bench *plain, const struct sequence *seq, int n_masks, int32_t mask,
                       struct plain_row *row)
{
    struct select_item items[SUPPORT];
    struct draft_view view;
    struct draft_cost cost;
    int32_t text[CAPACITY];
    memcpy(text, seq->tokens, (size_t)seq->n_tokens * sizeof *text);
    for (int i = 0; i < n_masks; i++) {
        text[seq->n_tokens + i] = mask;
    }
    struct sequence *other = place_text(plain, 1, text, seq->n_tokens + n_masks);
    follow(other, RULE_GREEDY, 0);
    propose_many(plain, other, 1, no_growth, NULL, &no_ends, &view, &cost);
    take_away(plain, other);
    const float *logits = model_logits(((struct model_draft *)plain->drafter)->model, 0);
    ck_assert_ptr_nonnull(logits);
    memcpy(row->logits, logits, sizeof row->logits);
    row->logits[mask] = -INFINITY;
    row->q = (struct sparse_dist){.ids = row->ids, .p = row->p};
    sampling_draft_dist(row->logits, IDS, &seq->sampling, SUPPORT, items, &row->q);
}

/* The guess for a place and its siblings, from its row. */
static void guess_plainly(const struct sequence *seq, int place, struct plain_row *row, int n,
                          int32_t *guesses)
{
    const struct rng_address at = {.seed = seq->seed,
                                   .position = (uint32_t)(seq->n_tokens + place)};
    struct sparse_dist *q = &row->q;
    float logits[SUPPORT];
    for (int i = 0; i < n && seq->rule->is_greedy; i++) {
        guesses[i] = 0;
        for (int32_t id = 1; id < IDS; id++) {
            if (row->logits[id] > row->logits[guesses[i]]) guesses[i] = id;
        }
        row->logits[guesses[i]] = -INFINITY;
    }
    for (int i = 0; i < n && !seq->rule->is_greedy && !seq->rule->is_coupled; i++) {
        guesses[i] = draw(seq, place, i, q, guesses, i);
    }
    if (!seq->rule->is_coupled) return;
    for (int i = 0; i < q->n; i++) {
        logits[i] = row->logits[q->ids[i]];
    }
    int n_made =
        multi_draft_coupled(q->ids, logits, q->n, seq->sampling.temperature, &at, n, guesses);
    ck_assert_int_eq(n_made, n);
    *q = (struct sparse_dist){.n = 1, .ids = q->ids, .p = q->p};
    q->ids[0] = guesses[0];
    q->p[0] = 1;
}

/* The chain and its siblings are those of rows that the plain model has after masks. */
static void check_chain(struct bench *plain, const struct sequence *seq, int32_t mask,
                        const struct draft_view *draft)
{
    for (int i = 0; i < draft->n; i++) {
        static struct plain_row row;
        int32_t wanted[1 + SIBLINGS_MAX];
        ck_assert_int_eq(draft->n_siblings[i], SIBLINGS_MAX);
        read_plain(plain, seq, i, mask, &row);
        guess_plainly(seq, i, &row, 1 + SIBLINGS_MAX, wanted);
        check_equal_q(&draft->q[i], &row.q);
        ck_assert_int_eq(draft->tokens[i], wanted[0]);
        ck_assert_mem_eq(draft->siblings[i], wanted + 1, SIBLINGS_MAX * sizeof *wanted);
    }
}

/* Texts of several lengths, chains up to the longest, siblings; one pass for all. */
START_TEST(each_guess_is_that_of_the_plain_model_after_masks)
{
    struct bench b = {0}, plain = {0};
    setup_parallel(&b, "\"pard_token\": 4001", ways[_i].rule, ways[_i].temperature);
    setup(&plain, ways[_i].rule, ways[_i].temperature);
    for (int t = 0; t < TEXTS; t++) {
        struct draft_view draft;
        struct draft_cost cost;
        int k = t == 0 ? DRAFT_MAX : 1 + t;
        b.seq->seed = (uint64_t)(7 + t);
        b.seq->n_tokens = lengths[t];
        b.seq->n_draft_kv[0] = 0;
        arena_reset(&b.arena);
        arena_reset(&plain.arena);
        propose_many(&b, b.seq, k, no_growth, NULL, &no_ends, &draft, &cost);
        ck_assert_int_eq(draft.n, k);
        check_chain(&plain, b.seq, MASK, &draft);
        ck_assert(cost.n_passes == 1 && cost.pass_lanes[0] == 1 && !cost.pass_grows[0]);
        ck_assert_int_eq(cost.first_pass_tokens, lengths[t]);
        ck_assert_int_eq(cost.pass_expected[0], k - 1);
        ck_assert_int_eq(b.seq->n_draft_kv[0], lengths[t]); /* and no mask */
    }
    teardown(&b);
    teardown(&plain);
}
END_TEST

/* Round after round, with guesses that stay and others: the draft's KV is that of a draft which
 * reads the text for the first time. */
START_TEST(masks_leave_no_trace_in_the_next_round)
{
    static const int n_stay[] = {1, 0, K, 0, K, K, 2, 1, K, 0, 3};
    struct bench b = {0}, fresh = {0};
    setup_parallel(&b, "\"pard_token\": 4001", RULE_REJECTION, 1);
    setup_parallel(&fresh, "\"pard_token\": 4001", RULE_REJECTION, 1);
    b.seq->seed = fresh.seq->seed = 3;
    for (size_t i = 0; i < sizeof n_stay / sizeof *n_stay; i++) {
        struct draft_view one, two;
        struct draft_cost cost;
        int n = b.seq->n_tokens;
        arena_reset(&b.arena);
        arena_reset(&fresh.arena);
        propose(&b, b.seq, i % 2 ? &plan : no_growth, &no_ends, &one, &cost);
        ck_assert_int_eq(cost.first_pass_tokens, i == 0 ? N_PROMPT : n_stay[i - 1] + 1);
        memcpy(fresh.seq->tokens, b.seq->tokens, (size_t)n * sizeof(int32_t));
        fresh.seq->n_tokens = n;
        fresh.seq->n_draft_kv[0] = 0;
        propose(&fresh, fresh.seq, no_growth, &no_ends, &two, &cost);
        check_equal_chain(&two, &one);
        for (int g = 0; g < n_stay[i]; g++) {
            b.seq->tokens[n + g] = one.tokens[g];
        }
        b.seq->tokens[n + n_stay[i]] = 300 + (int)i;
        b.seq->n_tokens = n + n_stay[i] + 1;
        drafter_commit(b.drafter, b.seq);
    }
    teardown(&b);
    teardown(&fresh);
}
END_TEST

/* The draft's best guess is the mask: it is left out, and all others move up. */
START_TEST(mask_is_never_guessed)
{
    struct bench b = {0}, plain = {0};
    struct draft_view first, draft;
    struct draft_cost cost;
    char entries[64];
    float temperature = _i ? 1 : 0;
    enum accept_rule rule = _i ? RULE_REJECTION : RULE_GREEDY;
    setup(&plain, RULE_GREEDY, 0);
    propose_many(&plain, plain.seq, 1, no_growth, NULL, &no_ends, &first, &cost);
    snprintf(entries, sizeof entries, "\"mask_token_id\": %d", (int)first.tokens[0]);
    setup_parallel(&b, entries, rule, temperature);
    ck_assert(b.drafter->is_parallel);
    for (int seed = 0; seed < 50; seed++) {
        b.seq->seed = (uint64_t)seed;
        b.seq->n_draft_kv[0] = 0;
        arena_reset(&b.arena);
        propose(&b, b.seq, no_growth, &no_ends, &draft, &cost);
        for (int i = 0; i < draft.n; i++) {
            ck_assert_int_ne(draft.tokens[i], first.tokens[0]);
            ck_assert_int_eq(sparse_prob(&draft.q[i], first.tokens[0]) > 0, 0);
            ck_assert_int_eq(draft.q[i].n, _i ? 64 : 1);
        }
        if (!_i) ck_assert_int_eq(draft.tokens[0], first.siblings[0][0]);
    }
    teardown(&b);
    teardown(&plain);
}
END_TEST

/* Nothing is drawn from the rows after an end, or after a guess below the threshold. */
START_TEST(nothing_is_guessed_after_an_end_or_an_unlikely_guess)
{
    struct bench b = {0};
    struct draft_view all, some;
    struct draft_cost cost;
    setup_parallel(&b, "\"pard_token\": 4001", RULE_REJECTION, 1);
    propose(&b, b.seq, &plan, &no_ends, &all, &cost);
    const struct end_ids ends[] = {{1, {all.tokens[1]}}, {1, {all.siblings[0][0]}}};
    for (int e = 0; e < 2; e++) {
        b.seq->n_draft_kv[0] = 0;
        propose(&b, b.seq, &plan, &ends[e], &some, &cost);
        ck_assert_int_eq(some.n, e == 0 ? 2 : K);
        ck_assert_int_eq(memcmp(some.tokens, all.tokens, (size_t)some.n * sizeof(int32_t)), 0);
        ck_assert(some.grown.n > 0 && some.grown.n <= all.grown.n);
        for (int i = 0; i < some.grown.n; i++) {
            int32_t path[DRAFT_MAX];
            int n = write_path(&some, some.grown.parents[i], path);
            for (int t = 0; t < n; t++) {
                ck_assert_int_ne(path[t], ends[e].ids[0]);
            }
        }
        ck_assert_int_eq(cost.n_passes, 1);
    }
    int n_sure = 0;
    while (n_sure < K && sparse_prob(&all.q[n_sure], all.tokens[n_sure]) >= 0.2F) {
        n_sure++;
    }
    b.seq->threshold = 0.2F;
    b.seq->n_draft_kv[0] = 0;
    propose(&b, b.seq, no_growth, &no_ends, &some, &cost);
    ck_assert_int_eq(some.n, n_sure < K ? n_sure + 1 : K);
    teardown(&b);
}
END_TEST

/* Each guess after a sibling has the q of the chain's place and a coin of its own. */
static void check_grown(const struct sequence *seq, const struct growth *wanted, bool follows,
                        const struct draft_view *draft)
{
    bool is_drawn = !seq->rule->is_greedy && !seq->rule->is_coupled;
    int n_at[DRAFT_MAX] = {0};
    int n = draft->grown.n, n_wanted = wanted->n;
    for (int i = 1; follows && i < draft->n; i++) { /* which may be after any guess */
        n += draft->n_siblings[i];
        n_wanted += wide_siblings[i];
    }
    ck_assert_int_eq(n, n_wanted);
    for (int i = 0; i < draft->grown.n; i++) {
        int32_t gone[1 + SIBLINGS_MAX];
        int place = growth_place(&draft->grown, i), first = growth_first(&draft->grown, i);
        const struct sparse_dist *q = &draft->grown_q[i];
        int coin = 1 + SIBLINGS_MAX + n_at[place]++;
        ck_assert(follows || draft->grown.parents[i] == wanted->parents[i]);
        if (place < draft->n && !seq->edits) check_equal_q(q, &draft->q[place]);
        memcpy(gone, draft->grown_tokens + first, (size_t)(i - first) * sizeof *gone);
        int32_t drawn = is_drawn ? draw(seq, place, coin, q, gone, i - first) : -1;
        if (is_drawn) ck_assert_int_eq(draft->grown_tokens[i], drawn);
        if (is_drawn || place >= draft->n || seq->edits) continue;
        int32_t same = i == first ? draft->tokens[place] : draft->siblings[place][i - first - 1];
        if (i == first || i - first <= draft->n_siblings[place]) {
            ck_assert_int_eq(draft->grown_tokens[i], same);
        }
    }
}

/* As planned, and following q; no pass and no token more, but for places after the chain's. */
START_TEST(guesses_after_siblings_come_from_the_row_of_their_place)
{
    struct bench b = {0};
    bool follows = _i >= N_WAYS;
    int way = _i % N_WAYS;
    setup_parallel(&b, "\"pard_token\": 4001", ways[way].rule, ways[way].temperature);
    if (ways[way].is_edited) edit_text(&b, b.seq);
    for (int t = 0; t < TEXTS; t++) {
        struct draft_view without, with;
        struct draft_cost cost;
        const struct growth *growth = follows ? &wide : &plan;
        int k = t % 2 ? K : 3; /* the growth is deeper than the shorter chain */
        b.seq->seed = (uint64_t)(7 + t);
        b.seq->n_tokens = lengths[t];
        b.seq->n_draft_kv[0] = 0;
        arena_reset(&b.arena);
        int n_blocks = count_blocks(&b);
        propose_many(&b, b.seq, k, growth, follows ? wide_siblings : NULL, &no_ends, &with, &cost);
        check_grown(b.seq, growth, follows, &with);
        int deepest = growth_place(&with.grown, with.grown.n - 1);
        int planned = growth_place(growth, growth->n - 1);
        ck_assert_int_eq(cost.n_passes, 1);
        ck_assert_int_eq(cost.pass_expected[0], (planned >= k ? planned + 1 : k) - 1);
        ck_assert(deepest > 1 && deepest <= planned);
        ck_assert_int_eq(count_blocks(&b), n_blocks);
        ck_assert_int_eq(b.seq->n_draft_kv[0], lengths[t]);
        if (follows) continue;
        b.seq->n_draft_kv[0] = 0;
        propose_many(&b, b.seq, k, no_growth, NULL, &no_ends, &without, &cost);
        check_equal_chain(&without, &with);
    }
    teardown(&b);
}
END_TEST

START_TEST(other_lanes_change_no_guess)
{
    static const struct growth *const growths[N_LANES] = {&plan, NULL, &wide};
    static const uint8_t *const planned[N_LANES] = {NULL, NULL, wide_siblings};
    struct bench b = {0};
    struct draft_view alone[N_LANES];
    int n_read[N_LANES];
    setup_parallel(&b, "\"pard_token\": 4001", RULE_REJECTION, 1);
    check_company(&b, growths, planned, alone, n_read);
    for (int i = 0; i < N_LANES; i++) {
        ck_assert_int_eq(n_read[i], 0);
    }
    teardown(&b);
}
END_TEST

/* Rows of more lanes than a step has room for: they are read in several steps. */
START_TEST(many_long_chains_are_what_each_is_alone)
{
    struct bench b = {0};
    struct draft_view alone[SLOTS];
    struct guess_tree together[SLOTS];
    struct draft_lane lanes[SLOTS];
    struct sequence *seqs[SLOTS];
    struct draft_cost cost;
    setup_parallel(&b, "\"pard_token\": 4001", RULE_REJECTION, 1);
    for (int i = 1; i < SLOTS; i++) {
        seqs[i] = place_text(&b, i, prompt, N_PROMPT - i);
        follow(seqs[i], RULE_REJECTION, 1);
        seqs[i]->seed = (uint64_t)i;
        propose_many(&b, seqs[i], DRAFT_MAX, NULL, NULL, &no_ends, &alone[i], &cost);
        seqs[i]->n_draft_kv[0] = 0;
        guess_tree_begin(&together[i], seqs[i]->n_tokens);
        lanes[i] = (struct draft_lane){.seq = seqs[i],
                                       .k = DRAFT_MAX,
                                       .ends = &no_ends,
                                       .draft = &together[i],
                                       .siblings_max = SIBLINGS_MAX};
    }
    drafter_propose(b.drafter, lanes + 1, SLOTS - 1, &b.arena, &cost);
    ck_assert(cost.n_passes == 1 && cost.pass_expected[0] == (SLOTS - 1) * (DRAFT_MAX - 1));
    for (int i = 1; i < SLOTS; i++) {
        const struct draft_view view = view_draft(&together[i]);
        ck_assert_int_eq(lanes[i].err.code, 0);
        check_equal_chain(&alone[i], &view);
        take_away(&b, seqs[i]);
    }
    teardown(&b);
}
END_TEST

/* Without blocks for places after the chain's, what would be guessed there is left out. */
START_TEST(without_blocks_there_are_no_places_after_the_chain)
{
    struct bench b = {0};
    struct draft_view without, with;
    struct draft_cost cost;
    setup_parallel(&b, "\"pard_token\": 4001", RULE_REJECTION, 1);
    propose_many(&b, b.seq, 3, no_growth, NULL, &no_ends, &without, &cost);
    b.seq->n_tokens = 14; /* the chain's masks end with the block, and the growth's do not */
    b.seq->n_draft_kv[0] = 0;
    propose_many(&b, b.seq, 3, no_growth, NULL, &no_ends, &without, &cost);
    struct taken_blocks taken;
    take_all_blocks(&b, &taken);
    b.seq->n_draft_kv[0] = 0;
    propose_many(&b, b.seq, 3, &plan, NULL, &no_ends, &with, &cost);
    check_equal_chain(&without, &with);
    ck_assert(with.grown.n > 0 && with.grown.n < plan.n && cost.n_passes == 1);
    ck_assert_int_eq(growth_place(&with.grown, with.grown.n - 1), 2);
    give_back_blocks(&b, &taken);
    teardown(&b);
}
END_TEST

/* The mask may be in the padded rows of the embedding, which no tokenizer knows; and where q has a
 * reduced vocabulary it is not in that. */
START_TEST(mask_may_be_beyond_the_tokenizer)
{
    struct error err;
    struct bench b = {0};
    struct guess_tree draft = {.base = 3};
    struct parallel_draft made = make_parallel_draft(DRAFT, "\"ptd_token_id\": 299");
    char name[128];
    snprintf(name, sizeof name, "synthetic:%s,seed=3,vocab=300", made.config);
    const struct drafter_options options = {
        .name = name,
        .backend = {.device = "cpu", .weights = "bf16", .kernels = "auto", .n_threads = 1},
        .n_sequences = SLOTS,
        .support = 300,
        .kv_tokens = SLOTS * CAPACITY};
    const int32_t text[] = {1, 2, 3};
    CHECK_OK(tokenizer_open_bytes(&b.tok, 256, &err));
    CHECK_OK(drafter_open(&b.drafter, &options, b.tok, &err));
    remove_parallel_draft(&made);
    b.drafters = (struct drafters){.n_models = 1, .models = {b.drafter}};
    CHECK_OK(block_pool_open(&b.target_pool, SLOTS * CAPACITY / 16, 16, &err));
    CHECK_OK(arena_open(&b.arena, 4 << 20, &err));
    b.seq = place_text(&b, 0, text, 3);
    follow(b.seq, RULE_REJECTION, 1);
    propose_k(&b, K, &no_ends, &draft);
    ck_assert(b.drafter->is_parallel && draft.n_chain == K);
    for (int i = 0; i < K; i++) {
        ck_assert_int_eq(guess_q(&draft, i)->n, 256);
    }
    ck_assert_int_ne(memcmp(guess_q(&draft, 1)->p, guess_q(&draft, 2)->p, 256 * sizeof(float)), 0);
    teardown(&b);
}
END_TEST

static void check_refused(const char *entries, const char *part)
{
    struct error err;
    struct tokenizer *tok;
    struct drafter *drafter;
    struct parallel_draft made = make_parallel_draft(DRAFT, entries);
    const struct drafter_options options = {
        .name = made.folder,
        .backend = {.device = "cpu", .weights = "bf16", .kernels = "auto", .n_threads = 1},
        .n_sequences = 1,
        .support = 64,
        .kv_tokens = CAPACITY};
    CHECK_OK(tokenizer_open(&tok, DRAFT, &err));
    CHECK_ERR(drafter_open(&drafter, &options, tok, &err), ERR_FORMAT, part);
    ck_assert_ptr_null(drafter);
    tokenizer_close(tok);
    remove_parallel_draft(&made);
}

START_TEST(masks_that_cannot_be_one_are_refused)
{
    check_refused("\"pard_token\": 4096",
                  "\"pard_token\" = 4096, which is no token of a model with 4096");
    check_refused("\"mask_token_id\": 2000000000", "\"mask_token_id\" = 2000000000");
    check_refused("\"pard_token\": 0", "\"pard_token\" = 0, which ends texts");
    check_refused("\"pard_token\": \"<mask>\"", "pard_token");
    check_refused("\"ptd_token_id\": -2", "ptd_token_id");
}
END_TEST

/* -1 is of a model that was trained by the same program without masks. */
START_TEST(keys_that_mean_no_mask_leave_an_ordinary_draft)
{
    static const char *const entries[] = {"\"pard_token\": -1", "\"mask_token_id\": null",
                                          "\"mask_token_id\": \"<mask>\"", "\"pard_token\": null"};
    struct bench b = {0};
    struct guess_tree draft = {.base = N_PROMPT};
    setup_parallel(&b, entries[_i], RULE_GREEDY, 0);
    propose_k(&b, K, &no_ends, &draft);
    ck_assert(!b.drafter->is_parallel && b.seq->n_draft_kv[0] == N_PROMPT + K - 1);
    teardown(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("draft_parallel");
    TCase *tcase = tcase_create("tales");
    tcase_set_timeout(tcase, 180);
    tcase_add_loop_test(tcase, each_guess_is_that_of_the_plain_model_after_masks, 0, N_RULES);
    tcase_add_test(tcase, masks_leave_no_trace_in_the_next_round);
    tcase_add_loop_test(tcase, mask_is_never_guessed, 0, 2);
    tcase_add_test(tcase, nothing_is_guessed_after_an_end_or_an_unlikely_guess);
    tcase_add_loop_test(tcase, guesses_after_siblings_come_from_the_row_of_their_place, 0,
                        2 * N_WAYS);
    tcase_add_test(tcase, other_lanes_change_no_guess);
    tcase_add_test(tcase, many_long_chains_are_what_each_is_alone);
    tcase_add_test(tcase, without_blocks_there_are_no_places_after_the_chain);
    tcase_add_test(tcase, mask_may_be_beyond_the_tokenizer);
    tcase_add_test(tcase, masks_that_cannot_be_one_are_refused);
    tcase_add_loop_test(tcase, keys_that_mean_no_mask_leave_an_ordinary_draft, 0, 4);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
