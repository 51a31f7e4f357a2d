/* ctest: labels=quick libs=coordinator timeout=120 */
/* The draft for many sequences at once: whatever company a lane has, and however its text was read,
 * its guesses and their q are bit for bit those of the lane alone. */
#include <stdio.h>

#include "coordinator/draft/options.h"
#include "tests/support/drafter_world.h"
#include "tests/support/guess_tables.h"

enum { N_LANES = 5, N_CROWD = 70, N_SEEDS = 60, LONGEST = 230 };

/* A lane as a request would have made it. */
struct wanted {
    int n_tokens, k;
    enum accept_rule rule;
    float temperature, threshold;
};

/* Together they are longer than a step of the draft. */
static const struct wanted wanted_lanes[N_LANES] = {{13, 4, RULE_REJECTION, 1.0f, 0},
                                                    {LONGEST, 8, RULE_COUPLED, 1.0f, 0},
                                                    {100, 1, RULE_GREEDY, 0, 0},
                                                    {17, 8, RULE_REJECTION, 0.7f, 0.2f},
                                                    {200, 5, RULE_BLOCK, 1.2f, 0}};

/* Guesses of a lane, with copies of q. */
struct guesses {
    int n;
    int32_t tokens[DRAFT_MAX];
    int n_q[DRAFT_MAX];
    int32_t ids[DRAFT_MAX][64];
    float p[DRAFT_MAX][64];
};

/* A text that begins with the prompt and goes on with what a tales text may hold. */
static const int32_t *text(int variant)
{
    static int32_t tokens[LONGEST];
    memcpy(tokens, prompt, sizeof prompt);
    for (int i = N_PROMPT; i < LONGEST; i++) {
        tokens[i] = 250 + (i * 37 + variant * 101) % 3000;
    }
    return tokens;
}

static void open_draft(struct bench *b, int n_sequences, int n_blocks)
{
    const struct drafter_options options = {
        .name = DRAFT,
        .backend = {.device = "cpu", .weights = "bf16", .kernels = "auto", .n_threads = 2},
        .n_sequences = n_sequences,
        .support = 64,
        .kv_tokens = n_blocks * 16};
    *b = (struct bench){0};
    setup_draft(b, &options);
}

static struct sequence *place_wanted(struct bench *b, int slot, const struct wanted *wanted)
{
    struct sequence *seq = place_text(b, slot, text(slot), wanted->n_tokens);
    follow(seq, wanted->rule, wanted->temperature);
    seq->threshold = wanted->threshold;
    seq->seed = 40 + (uint64_t)slot;
    return seq;
}

static void keep(const struct guess_tree *draft, struct guesses *kept)
{
    memset(kept, 0, sizeof *kept);
    kept->n = draft->n_chain;
    chain_tokens(draft, kept->tokens);
    for (int i = 0; i < draft->n_chain; i++) {
        const struct sparse_dist *q = guess_q(draft, i);
        kept->n_q[i] = q->n;
        memcpy(kept->ids[i], q->ids, (size_t)q->n * sizeof *q->ids);
        memcpy(kept->p[i], q->p, (size_t)q->n * sizeof *q->p);
    }
}

static void check_same(const struct guesses *a, const struct guesses *b)
{
    ck_assert_int_eq(a->n, b->n);
    ck_assert_mem_eq(a, b, sizeof *a);
}

/* Guesses of n lanes in one call; the drafts' q's are copied. */
static void propose_all(struct bench *b, struct sequence *const *seqs, const int *ks, int n,
                        struct guesses *kept, struct draft_cost *cost)
{
    static struct guess_tree drafts[N_CROWD];
    static struct draft_lane lanes[N_CROWD];
    arena_reset(&b->arena);
    for (int i = 0; i < n; i++) {
        drafts[i] = (struct guess_tree){.base = seqs[i]->n_tokens};
        lanes[i] = (struct draft_lane){
            .seq = seqs[i], .k = ks[i], .ends = &no_ends, .draft = &drafts[i], .siblings_max = 0};
    }
    drafter_propose(b->drafter, lanes, n, &b->arena, cost);
    for (int i = 0; i < n; i++) {
        ck_assert_msg(lanes[i].err.code == 0, "lane %d: %s", i, lanes[i].err.text);
        keep(&drafts[i], &kept[i]);
    }
}

/* Each lane in a draft of its own. */
static void guess_alone(int lane, struct guesses *kept)
{
    struct bench b;
    struct draft_cost cost;
    open_draft(&b, N_LANES, 64);
    struct sequence *seq = place_wanted(&b, lane, &wanted_lanes[lane]);
    propose_all(&b, &seq, &wanted_lanes[lane].k, 1, kept, &cost);
    ck_assert_int_gt(kept->n, 0);
    take_away(&b, seq);
    teardown(&b);
}

START_TEST(guesses_in_company_are_those_of_the_lane_alone)
{
    static struct guesses alone, together[N_LANES];
    struct sequence *seqs[N_LANES];
    int ks[N_LANES], n_missed = 0;
    struct draft_cost cost;
    struct bench b;
    open_draft(&b, N_LANES, 64);
    for (int i = 0; i < N_LANES; i++) {
        seqs[i] = place_wanted(&b, i, &wanted_lanes[i]);
        ks[i] = wanted_lanes[i].k;
        n_missed += seqs[i]->n_tokens;
    }
    propose_all(&b, seqs, ks, N_LANES, together, &cost);
    for (int i = 0; i < N_LANES; i++) {
        guess_alone(i, &alone);
        check_same(&alone, &together[i]);
        ck_assert_int_eq(seqs[i]->n_draft_kv[0], seqs[i]->n_tokens + together[i].n - 1);
    }
    ck_assert_int_eq(cost.first_pass_tokens, n_missed);
    ck_assert_int_eq(cost.n_passes, 8);
    ck_assert_int_eq(cost.pass_lanes[0], N_LANES);
    ck_assert_int_eq(cost.pass_lanes[1], N_LANES - 1); /* one wanted a single guess */
    for (int i = 1; i < cost.n_passes; i++) {
        ck_assert_int_le(cost.pass_lanes[i], cost.pass_lanes[i - 1]);
    }
    for (int i = 0; i < N_LANES; i++) {
        take_away(&b, seqs[i]);
    }
    teardown(&b);
}
END_TEST

/* More lanes than a step of the draft has rows. */
START_TEST(a_crowd_of_lanes_is_served_in_several_steps)
{
    static struct guesses alone, together[N_CROWD];
    static const struct wanted one = {N_PROMPT, 2, RULE_REJECTION, 1.0f, 0};
    struct sequence *seqs[N_CROWD];
    int ks[N_CROWD];
    struct draft_cost cost;
    struct bench b;
    open_draft(&b, N_CROWD, 2 * N_CROWD);
    for (int i = 0; i < N_CROWD; i++) {
        seqs[i] = place_wanted(&b, i, &one);
        ks[i] = 2;
    }
    propose_all(&b, seqs, ks, N_CROWD, together, &cost);
    ck_assert_int_eq(cost.n_passes, 2);
    for (int i = 0; i < N_CROWD; i++) {
        take_away(&b, seqs[i]);
    }
    for (int i = 0; i < N_CROWD; i += 23) {
        struct sequence *seq = place_wanted(&b, i, &one);
        propose_all(&b, &seq, ks, 1, &alone, &cost);
        check_same(&alone, &together[i]);
        take_away(&b, seq);
    }
    teardown(&b);
}
END_TEST

START_TEST(a_text_that_was_read_in_chunks_is_guessed_alike)
{
    static struct guesses alone, chunked[2];
    static const int chunks[] = {1, 15, 64, 30, 89};
    struct sequence *seqs[2];
    struct draft_cost cost;
    struct error err;
    struct bench b;
    open_draft(&b, N_LANES, 64);
    seqs[0] = place_wanted(&b, 4, &wanted_lanes[4]);
    seqs[1] = place_wanted(&b, 1, &wanted_lanes[1]);
    for (int i = 0; i < 5; i++) { /* 199 of 200 tokens, and 229 of 230 */
        const struct draft_reading readings[] = {{seqs[0], chunks[i], 0},
                                                 {seqs[1], chunks[i] + (i == 3 ? 30 : 0), 0}};
        CHECK_OK(drafter_read(b.drafter, readings, 2, &err));
    }
    ck_assert(seqs[0]->n_draft_kv[0] == 199 && seqs[1]->n_draft_kv[0] == 229);
    propose_all(&b, seqs, (const int[]){5, 8}, 2, chunked, &cost);
    ck_assert_int_eq(cost.first_pass_tokens, 2);
    for (int i = 0; i < 2; i++) {
        guess_alone(i ? 1 : 4, &alone);
        check_same(&alone, &chunked[i]);
        take_away(&b, seqs[i]);
    }
    teardown(&b);
}
END_TEST

/* One call of read may be longer than a step. */
START_TEST(long_texts_are_read_in_one_call)
{
    static struct guesses alone, guessed[3];
    static const struct wanted whole = {LONGEST, 8, RULE_COUPLED, 1.0f, 0};
    struct sequence *seqs[3];
    struct draft_reading readings[3];
    struct draft_cost cost;
    struct error err;
    struct bench b;
    open_draft(&b, N_LANES, 64);
    for (int i = 0; i < 3; i++) {
        seqs[i] = place_wanted(&b, i, &whole);
        readings[i] = (struct draft_reading){seqs[i], LONGEST - 1, 0};
    }
    CHECK_OK(drafter_read(b.drafter, readings, 3, &err));
    propose_all(&b, seqs, (const int[]){8, 8, 8}, 3, guessed, &cost);
    guess_alone(1, &alone);
    check_same(&alone, &guessed[1]);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(seqs[i]->n_draft_kv[0], LONGEST + 7);
        take_away(&b, seqs[i]);
    }
    teardown(&b);
}
END_TEST

/* ---- the target's vocabulary ---- */

static void check_vocabulary(struct bench *b, struct sequence *seq, int n_vocab, int least_q)
{
    struct guess_tree draft = {.base = seq->n_tokens};
    struct draft_lane lane = {
        .seq = seq, .k = K, .ends = &no_ends, .draft = &draft, .siblings_max = 0};
    struct draft_cost cost;
    arena_reset(&b->arena);
    seq->n_draft_kv[0] = 0;
    drafter_propose(b->drafter, &lane, 1, &b->arena, &cost);
    ck_assert_msg(lane.err.code == 0, "%s", lane.err.text);
    ck_assert_int_le(draft.n_chain, K);
    for (int i = 0; i < draft.n_chain; i++) {
        double sum = 0;
        ck_assert(guess_token(&draft, i) >= 0 && guess_token(&draft, i) < n_vocab);
        ck_assert_int_ge(guess_q(&draft, i)->n, least_q);
        for (int j = 0; j < guess_q(&draft, i)->n; j++) {
            ck_assert_int_lt(guess_q(&draft, i)->ids[j], n_vocab);
            sum += (double)guess_q(&draft, i)->p[j];
        }
        ck_assert_double_eq_tol(sum, 1.0, 1e-5);
        ck_assert(sparse_prob(guess_q(&draft, i), guess_token(&draft, i)) > 0);
    }
}

START_TEST(nothing_is_guessed_that_the_target_does_not_have)
{
    static const enum accept_rule rules[] = {RULE_REJECTION, RULE_COUPLED, RULE_GREEDY};
    static const int vocabularies[] = {4096, 2000, 300, 40, 1};
    struct bench b;
    setup(&b, rules[_i], _i == 2 ? 0 : 1.5f);
    for (int v = 0; v < 5; v++) {
        drafter_set_vocabulary(b.drafter, vocabularies[v]);
        for (int seed = 0; seed < N_SEEDS; seed++) {
            b.seq->seed = (uint64_t)seed;
            check_vocabulary(&b, b.seq, vocabularies[v], 1);
        }
    }
    teardown(&b);
}
END_TEST

/* ---- KV ---- */

START_TEST(a_text_with_a_known_beginning_is_guessed_alike)
{
    static struct guesses alone, first, second;
    static const struct wanted whole = {200, 5, RULE_REJECTION, 1.0f, 0};
    struct draft_cost cost;
    struct bench b;
    struct sequence *seqs[2];
    open_draft(&b, N_LANES, 64);
    seqs[0] = place_wanted(&b, 0, &whole);
    propose_all(&b, &seqs[0], &whole.k, 1, &first, &cost);
    seqs[0]->n_draft_kv[0] = seqs[0]->n_tokens; /* no guess stayed */
    drafter_commit(b.drafter, seqs[0]);
    const struct draft_kv before = drafter_kv(b.drafter);
    if (_i == 1) take_away(&b, seqs[0]); /* its blocks are kept */
    seqs[1] = place_text(&b, 1, text(0), whole.n_tokens);
    follow(seqs[1], whole.rule, whole.temperature);
    seqs[1]->seed = 40;
    ck_assert_int_eq(seqs[1]->n_draft_kv[0], 192);
    propose_all(&b, &seqs[1], &whole.k, 1, &second, &cost);
    ck_assert_int_eq(cost.first_pass_tokens, 8);
    check_same(&first, &second);
    const struct draft_kv after = drafter_kv(b.drafter);
    if (_i == 0) ck_assert_int_eq(before.n_free - after.n_free, 1); /* the last block is its own */
    take_away(&b, seqs[1]);
    /* Another text that begins alike shares as much as is equal. */
    int32_t other[200];
    memcpy(other, text(0), sizeof other);
    other[100] = 7;
    seqs[1] = place_text(&b, 2, other, 200);
    follow(seqs[1], whole.rule, whole.temperature);
    ck_assert_int_eq(seqs[1]->n_draft_kv[0], 96);
    propose_all(&b, &seqs[1], &whole.k, 1, &second, &cost);
    struct bench fresh;
    open_draft(&fresh, N_LANES, 64);
    struct sequence *seq = place_text(&fresh, 0, other, 200);
    follow(seq, whole.rule, whole.temperature);
    seq->seed = seqs[1]->seed;
    propose_all(&fresh, &seq, &whole.k, 1, &alone, &cost);
    check_same(&alone, &second);
    take_away(&fresh, seq);
    teardown(&fresh);
    take_away(&b, seqs[1]);
    if (_i == 0) take_away(&b, seqs[0]);
    teardown(&b);
}
END_TEST

START_TEST(reservation_takes_all_blocks_or_none)
{
    struct bench b;
    struct error err;
    static struct guesses guessed;
    static const struct wanted brief = {60, 5, RULE_GREEDY, 0, 0};
    struct draft_cost cost;
    open_draft(&b, N_LANES, 8);
    ck_assert_int_eq(drafter_limit(b.drafter), 128);
    struct sequence *first = place_wanted(&b, 0, &brief), *second = place_wanted(&b, 1, &brief);
    CHECK_OK(drafter_reserve(b.drafter, first, 65, &err));
    ck_assert_int_eq(drafter_kv(b.drafter).n_free, 3);
    CHECK_ERR(drafter_reserve(b.drafter, second, 65, &err), ERR_EXHAUSTED, "KV blocks are wanted");
    ck_assert_int_eq(drafter_kv(b.drafter).n_free, 3);
    propose_all(&b, &first, &brief.k, 1, &guessed, &cost);
    ck_assert_int_eq(drafter_kv(b.drafter).n_free, 3);
    drafter_forget(b.drafter, first->slot);
    CHECK_OK(drafter_reserve(b.drafter, second, 65, &err));
    take_away(&b, first);
    take_away(&b, second);
    ck_assert_int_eq(drafter_kv(b.drafter).n_free, 8);
    teardown(&b);
}
END_TEST

/* A lane for which there is no block fails alone. */
START_TEST(a_lane_without_a_block_harms_no_other)
{
    static struct guesses alone, kept;
    struct guess_tree drafts[3];
    struct draft_lane lanes[3];
    struct draft_cost cost;
    struct bench b;
    struct sequence *seqs[3];
    static const int which[] = {0, 4, 3}; /* 13, 200 and 17 tokens; there are 6 blocks */
    open_draft(&b, N_LANES, 6);
    for (int i = 0; i < 3; i++) {
        const struct wanted *wanted = &wanted_lanes[which[i]];
        seqs[i] = place_wanted(&b, which[i], wanted);
        drafts[i] = (struct guess_tree){.base = seqs[i]->n_tokens};
        lanes[i] = (struct draft_lane){.seq = seqs[i],
                                       .k = wanted->k,
                                       .ends = &no_ends,
                                       .draft = &drafts[i],
                                       .siblings_max = 0};
    }
    drafter_propose(b.drafter, lanes, 3, &b.arena, &cost);
    ck_assert_int_eq(lanes[1].err.code, ERR_EXHAUSTED);
    ck_assert_int_eq(drafts[1].n_chain, 0);
    for (int i = 0; i < 3; i += 2) {
        ck_assert_int_eq(lanes[i].err.code, 0);
        keep(&drafts[i], &kept);
        guess_alone(which[i], &alone);
        check_same(&alone, &kept);
    }
    for (int i = 0; i < 3; i++) {
        take_away(&b, seqs[i]);
    }
    teardown(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("drafter_lanes");
    TCase *tcase = tcase_create("tales");
    tcase_set_timeout(tcase, 280);
    tcase_add_test(tcase, guesses_in_company_are_those_of_the_lane_alone);
    tcase_add_test(tcase, a_crowd_of_lanes_is_served_in_several_steps);
    tcase_add_test(tcase, a_text_that_was_read_in_chunks_is_guessed_alike);
    tcase_add_test(tcase, long_texts_are_read_in_one_call);
    tcase_add_loop_test(tcase, nothing_is_guessed_that_the_target_does_not_have, 0, 3);
    tcase_add_loop_test(tcase, a_text_with_a_known_beginning_is_guessed_alike, 0, 2);
    tcase_add_test(tcase, reservation_takes_all_blocks_or_none);
    tcase_add_test(tcase, a_lane_without_a_block_harms_no_other);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
