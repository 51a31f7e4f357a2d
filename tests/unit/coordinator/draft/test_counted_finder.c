/* ctest: labels=quick libs=coordinator timeout=60 */
/* Tests lookups in finished texts and in a file: texts of other API keys are not seen unless that
 * is allowed, and a file for another tokenizer is refused. Guesses are made of the counts as each
 * rule wants it. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "access/keys.h"
#include "lookup/datastore.h"
#include "speculation/accept/multi_draft.h"
#include "tests/support/finder_bench.h"
#include "tests/support/guess_tables.h"

static const int32_t text[] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19};
enum { N_TEXT = sizeof text / sizeof *text };

static void finish(struct bench *b, struct grant *key)
{
    struct sequence *seq = place_studied(b, 0, key, text, N_TEXT);
    drafters_observe_text(&b->drafters, seq);
    take_away(b, seq);
}

/* After token 1, token 2 has come five times, 3 three times and 4 once, each with another token
 * after it. */
static void finish_branches(struct bench *b)
{
    static const int32_t texts[][3] = {{1, 2, 12}, {1, 3, 13}, {1, 4, 14}};
    static const int counts[] = {5, 3, 1};
    for (int i = 0; i < 3; i++) {
        for (int turn = 0; turn < counts[i]; turn++) {
            struct sequence *seq = place_studied(b, 0, NULL, texts[i], 3);
            drafters_observe_text(&b->drafters, seq);
            take_away(b, seq);
        }
    }
}

static void propose(struct bench *b, struct sequence *seq, int siblings_max,
                    struct guess_tree *draft)
{
    struct draft_cost cost;
    *draft = (struct guess_tree){.base = seq->n_tokens};
    struct draft_lane lane = {
        .seq = seq, .k = 4, .ends = &no_ends, .draft = draft, .siblings_max = siblings_max};
    arena_reset(&b->arena);
    drafter_propose(b->finder, &lane, 1, &b->arena, &cost);
    ck_assert_int_eq(lane.err.code, 0);
    ck_assert_int_eq(draft->n_chain, 2);
    ck_assert_int_eq(guess_token(draft, 1),
                     10 + guess_token(draft, 0)); /* it follows the one that is sent */
    ck_assert_int_eq(guess_tree_siblings(draft, 1), 0);
    ck_assert_int_le(guess_tree_siblings(draft, 0), siblings_max);
    bool is_drawn = seq->rule->judges_q && seq->sampling.temperature > 0;
    int32_t foreseen[2];
    ck_assert_int_eq(lookup_preview(b->finder, seq, foreseen, 2), is_drawn ? 0 : 2);
    for (int i = 0; i < 2 && !is_drawn; i++) {
        ck_assert_int_eq(foreseen[i], guess_token(draft, i));
    }
}

static struct sequence *place_after_branches(struct bench *b, enum accept_rule rule)
{
    static const int32_t here = 1;
    struct sequence *seq = place_studied(b, 1, NULL, &here, 1);
    seq->rule = &accept_rules[rule];
    seq->sampling.temperature = rule == RULE_GREEDY ? 0 : 0.5f;
    return seq;
}

START_TEST(offer_counts_siblings_by_their_occurrences)
{
    struct bench b;
    struct planner_offer offer = {.finder = 3}, before = {0};
    setup(&b, "store", false);
    struct sequence *seq = place_after_branches(&b, RULE_GREEDY);
    ck_assert(!lookup_offer(b.finder, seq, &before));
    finish_branches(&b);
    ck_assert(lookup_offer(b.finder, seq, &offer)); /* though it has been asked before */
    ck_assert(offer.finder == 3 && offer.k_max == 2);
    ck_assert_int_eq(offer.evidence, planner_evidence_of_counts(1, 5, 9));
    ck_assert(offer.siblings[0] == 2 && offer.siblings[1] == 0);
    drafters_set_vocabulary(&b.drafters, 12); /* without 12 itself */
    ck_assert(lookup_offer(b.finder, seq, &offer) && offer.k_max == 1);
    ck_assert_int_eq(offer.siblings[0], 2);
    drafters_set_vocabulary(&b.drafters, VOCAB);
    ck_assert(lookup_offer(b.finder, seq, &offer) && offer.k_max == 2);
    seq->tokens[seq->n_tokens++] = 2;
    ck_assert(lookup_offer(b.finder, seq, &offer) && offer.k_max == 1);
    ck_assert_int_eq(offer.siblings[0], 0);
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

/* Rules that look at q no more than greedy does, and any rule at temperature 0: the most frequent
 * tokens, each with its own q. */
START_TEST(the_most_frequent_tokens_are_guessed)
{
    static const enum accept_rule rules[] = {RULE_GREEDY, RULE_NAIVE, RULE_TYPICAL, RULE_REJECTION,
                                             RULE_COUPLED};
    struct bench b;
    struct guess_tree draft;
    setup(&b, "store", false);
    finish_branches(&b);
    for (int i = 0; i < 5; i++) {
        struct sequence *seq = place_after_branches(&b, rules[i]);
        if (i >= 3) seq->sampling.temperature = 0;
        propose(&b, seq, SIBLINGS_MAX, &draft);
        ck_assert(guess_token(&draft, 0) == 2 && guess_tree_siblings(&draft, 0) == 2);
        ck_assert(sibling_token(&draft, 0, 0) == 3 && sibling_token(&draft, 0, 1) == 4);
        ck_assert(guess_q(&draft, 0)->n == 1 && sibling_q(&draft, 0, 1)->n == 1);
        ck_assert(sibling_q(&draft, 0, 1)->ids[0] == 4);
        propose(&b, seq, 1, &draft);
        ck_assert(guess_tree_siblings(&draft, 0) == 1 && sibling_token(&draft, 0, 0) == 3);
        take_away(&b, seq);
    }
    teardown(&b);
}
END_TEST

/* As the draft model does it: with the same coins, and without replacement. */
START_TEST(guesses_are_drawn_from_the_counts)
{
    static const enum accept_rule rules[] = {RULE_REJECTION, RULE_BLOCK};
    struct bench b;
    struct guess_tree draft;
    setup(&b, "store", false);
    finish_branches(&b);
    struct sequence *ended = place_studied(&b, 0, NULL, (const int32_t[]){1}, 1);
    drafters_observe_text(&b.drafters, ended); /* nothing came after this one */
    take_away(&b, ended);
    struct sequence *seq = place_after_branches(&b, rules[_i]);
    for (int most = 0; most < 2; most++) {
        propose(&b, seq, most, &draft);
        ck_assert_int_eq(guess_tree_siblings(&draft, 0), most);
    }
    for (seq->seed = 0; seq->seed < 200; seq->seed++) {
        const struct rng_address at = {seq->seed, 1, 1};
        propose(&b, seq, SIBLINGS_MAX, &draft);
        const struct sparse_dist *q = guess_q(&draft, 0);
        ck_assert(q->n == 3 && q->ids[0] == 2 && q->ids[1] == 3 && q->ids[2] == 4);
        ck_assert(q->p[0] == 5 / 9.0f && q->p[1] == 3 / 9.0f && q->p[2] == 1 / 9.0f);
        ck_assert_int_eq(guess_token(&draft, 0), sparse_draw(q, rng_uniform(&at, RNG_DRAFT, 0)));
        int32_t gone[3] = {guess_token(&draft, 0)};
        ck_assert_int_eq(guess_tree_siblings(&draft, 0), 2);
        for (int s = 0; s < 2; s++) {
            gone[s + 1] = sibling_token(&draft, 0, s);
            double u = rng_uniform(&at, RNG_DRAFT, (uint32_t)s + 1);
            ck_assert_int_eq(gone[s + 1], multi_draft_draw(q, gone, s + 1, u));
            ck_assert(sibling_q(&draft, 0, s) == q);
        }
        ck_assert(guess_q(&draft, 1)->n == 1 && guess_q(&draft, 1)->p[0] == 1);
    }
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

START_TEST(coupled_guesses_are_picked_by_the_shared_noise)
{
    struct bench b;
    struct guess_tree draft;
    int n_picked[5] = {0};
    const int32_t ids[] = {2, 3, 4};
    const float logits[] = {logf(5), logf(3), logf(1)};
    setup(&b, "store", false);
    finish_branches(&b);
    struct sequence *seq = place_after_branches(&b, RULE_COUPLED);
    for (seq->seed = 0; seq->seed < 200; seq->seed++) {
        const struct rng_address at = {.seed = seq->seed, .position = 1};
        int32_t best[3];
        propose(&b, seq, SIBLINGS_MAX, &draft);
        ck_assert_int_eq(multi_draft_coupled(ids, logits, 3, 1, &at, 3, best), 3);
        ck_assert(guess_token(&draft, 0) == best[0] && sibling_token(&draft, 0, 0) == best[1]);
        ck_assert(sibling_token(&draft, 0, 1) == best[2] && guess_q(&draft, 0)->n == 1);
        n_picked[best[0]]++;
    }
    ck_assert(n_picked[2] > n_picked[3] && n_picked[3] > n_picked[4] && n_picked[4] > 0);
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

/* The noise is that of the place: after 1 2 came 12 and 13, once each. */
START_TEST(coupled_guesses_have_the_noise_of_their_place)
{
    static const int32_t texts[][3] = {{1, 2, 12}, {1, 2, 13}}, ids[] = {12, 13};
    static const float logits[] = {0, 0};
    struct bench b;
    struct guess_tree draft;
    int n_first = 0;
    setup(&b, "store", false);
    for (int i = 0; i < 2; i++) {
        struct sequence *seq = place_studied(&b, 0, NULL, texts[i], 3);
        drafters_observe_text(&b.drafters, seq);
        take_away(&b, seq);
    }
    struct sequence *seq = place_after_branches(&b, RULE_COUPLED);
    for (seq->seed = 0; seq->seed < 200; seq->seed++) {
        const struct rng_address at = {.seed = seq->seed, .position = 2};
        int32_t best, foreseen[2];
        ck_assert_int_eq(propose_chain(&b, seq, 4, &no_ends, &draft), 2);
        ck_assert_int_eq(multi_draft_coupled(ids, logits, 2, 1, &at, 1, &best), 1);
        ck_assert(guess_token(&draft, 0) == 2 && guess_token(&draft, 1) == best);
        ck_assert_int_eq(lookup_preview(b.finder, seq, foreseen, 2), 2);
        ck_assert_int_eq(foreseen[1], best);
        n_first += best == 12;
    }
    ck_assert(n_first > 50 && n_first < 150);
    take_away(&b, seq);
    teardown(&b);
}
END_TEST

/* Guesses after the first tokens of the text. */
static int count_guesses(struct bench *b, struct grant *key)
{
    struct planner_offer offer = {0};
    struct draft_cost cost;
    struct guess_tree draft = {0};
    struct sequence *seq = place_studied(b, 1, key, text, 4);
    bool is_there = lookup_offer(b->finder, seq, &offer);
    draft.base = seq->n_tokens;
    struct draft_lane lane = {.seq = seq, .k = 4, .ends = &no_ends, .draft = &draft};
    arena_reset(&b->arena);
    drafter_propose(b->finder, &lane, 1, &b->arena, &cost);
    ck_assert(is_there == (draft.n_chain > 0) && (!is_there || offer.k_max >= draft.n_chain));
    for (int i = 0; i < draft.n_chain; i++) {
        ck_assert_int_eq(guess_token(&draft, i), text[4 + i]);
        ck_assert(guess_q(&draft, i)->n == 1 && guess_q(&draft, i)->p[0] == 1);
    }
    take_away(b, seq);
    return draft.n_chain;
}

START_TEST(finished_texts_are_found)
{
    struct bench b;
    setup(&b, "store", false);
    ck_assert_int_eq(count_guesses(&b, NULL), 0);
    finish(&b, NULL);
    ck_assert_int_eq(count_guesses(&b, NULL), 4);
    ck_assert(!drafters_first(&b.drafters)); /* a K of its own may not depend on other texts */
    teardown(&b);
}
END_TEST

START_TEST(keys_do_not_see_each_other)
{
    static struct grant alice = {.name = "alice", .n_refs = 1}, bob = {.name = "bob", .n_refs = 1};
    struct bench b;
    setup(&b, "store", false);
    finish(&b, &alice);
    ck_assert_int_eq(count_guesses(&b, &bob), 0);
    ck_assert_int_eq(count_guesses(&b, NULL), 0);
    ck_assert_int_eq(count_guesses(&b, &alice), 4);
    finish(&b, NULL);
    ck_assert_int_eq(count_guesses(&b, &bob), 0);
    ck_assert_int_eq(count_guesses(&b, NULL), 4);
    teardown(&b);
    setup(&b, "store", true);
    finish(&b, &alice);
    ck_assert_int_eq(count_guesses(&b, &bob), 4);
    teardown(&b);
}
END_TEST

START_TEST(a_file_is_for_one_tokenizer)
{
    char path[] = "/tmp/outrider-datastore-XXXXXX", lookup[64];
    int32_t tokens[N_TEXT + 1];
    struct drafters drafters;
    struct bench b;
    struct error err;
    close(mkstemp(path));
    snprintf(lookup, sizeof lookup, "datastore=%s", path);
    memcpy(tokens, text, sizeof text);
    tokens[N_TEXT] = DATASTORE_END;
    setup(&b, "none", false);
    struct datastore_tokenizer made_for = {tokenizer_fingerprint(b.tok), VOCAB};
    const struct lookup_options options = {
        .lookup = lookup, .n_sequences = SLOTS, .store_tokens = 4096, .tok = b.tok};
    CHECK_OK(datastore_write(path, tokens, N_TEXT + 1, &made_for, &err));
    teardown(&b);
    setup(&b, lookup, false);
    ck_assert_int_eq(count_guesses(&b, NULL), 4);
    made_for.fingerprint++;
    CHECK_OK(datastore_write(path, tokens, N_TEXT + 1, &made_for, &err));
    struct lookup_options again = options;
    again.tok = b.tok;
    CHECK_ERR(drafters_open(&drafters, NULL, &again, &err), ERR_ARGUMENT, "another tokenizer");
    unlink(path);
    CHECK_ERR(drafters_open(&drafters, NULL, &again, &err), ERR_NOT_FOUND, path);
    teardown(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("counted_finder");
    TCase *tcase = tcase_create("tales");
    tcase_add_test(tcase, finished_texts_are_found);
    tcase_add_test(tcase, keys_do_not_see_each_other);
    tcase_add_test(tcase, offer_counts_siblings_by_their_occurrences);
    tcase_add_test(tcase, the_most_frequent_tokens_are_guessed);
    tcase_add_loop_test(tcase, guesses_are_drawn_from_the_counts, 0, 2);
    tcase_add_test(tcase, coupled_guesses_are_picked_by_the_shared_noise);
    tcase_add_test(tcase, coupled_guesses_have_the_noise_of_their_place);
    tcase_add_test(tcase, a_file_is_for_one_tokenizer);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
