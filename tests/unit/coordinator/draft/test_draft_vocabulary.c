/* ctest: labels=quick libs=coordinator timeout=60 */
/* The draft with a head over few tokens: which they are, what it guesses; and the counting of
 * served tokens that such a head is chosen from. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/file.h"
#include "coordinator/draft/drafters.h"
#include "coordinator/draft/options.h"
#include "coordinator/draft/vocabulary.h"
#include "coordinator/engine/served_tokens.h"
#include "coordinator/schedule/places.h"
#include "model/tokenizer/token_counts.h"
#include "tests/support/guess_tables.h"
#include "tests/support/sequence_world.h"

#define DRAFT SOURCE_DIR "/deploy/models/tales/draft"

static const struct end_ids no_ends;

enum { CAPACITY = 64, N_LISTED = 200, SUPPORT = 64, N_SEEDS = 50, PATH_BYTES = 128 };

static const int32_t prompt[] = {2174, 708, 262, 515, 434, 311, 262, 486, 391, 342, 729, 2240, 15};
enum { N_PROMPT = sizeof prompt / sizeof *prompt };

static struct tokenizer *tok;
static char folder[PATH_BYTES / 2], list[PATH_BYTES];

/* A list of every 20th token from 7 on: token i * 20 + 7 was seen 1000 - i times. */
static void setup(void)
{
    struct error err;
    struct token_counts counts;
    CHECK_OK(tokenizer_open(&tok, DRAFT, &err));
    snprintf(folder, sizeof folder, "/tmp/outrider-head-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(list, sizeof list, "%s/list", folder);
    CHECK_OK(token_counts_init(&counts, tok, &err));
    for (int i = 0; i < N_LISTED; i++) {
        counts.counts[i * 20 + 7] = (uint64_t)(1000 - i);
    }
    CHECK_OK(token_counts_write(&counts, list, &err));
    token_counts_free(&counts);
}

static void teardown(void)
{
    unlink(list);
    ck_assert_int_eq(rmdir(folder), 0);
    tokenizer_close(tok);
}

/* ---- the choice ---- */

static int choose(const char *tail, int32_t **ids, int *n, struct error *err)
{
    char option[PATH_BYTES + 16];
    const struct model_config config = {.ends = {2, {0, 27}}};
    snprintf(option, sizeof option, "%s%s", list, tail);
    return draft_vocabulary_choose(ids, n, option, tok, &config, 4096, err);
}

START_TEST(the_most_frequent_and_the_ends_are_chosen)
{
    struct error err;
    int32_t *ids;
    int n;
    CHECK_OK(choose("", &ids, &n, &err));
    ck_assert_int_eq(n, N_LISTED + 1); /* 27 is in the list */
    free(ids);
    CHECK_OK(choose(":3", &ids, &n, &err));
    static const int32_t three[] = {0, 7, 27, 47};
    ck_assert_int_eq(n, 4);
    ck_assert_mem_eq(ids, three, sizeof three);
    free(ids);
}
END_TEST

START_TEST(heads_that_cannot_be_are_refused)
{
    static const char words[] = "the text of a story";
    struct error err;
    int32_t *ids;
    int n;
    CHECK_ERR(choose(":201", &ids, &n, &err), ERR_ARGUMENT, "has 200: give at most these");
    CHECK_ERR(choose(":0", &ids, &n, &err), ERR_ARGUMENT, "--draft-vocab FILE:N");
    CHECK_ERR(choose(":99999999999", &ids, &n, &err), ERR_ARGUMENT, "--draft-vocab FILE:N");
    CHECK_ERR(choose(".not", &ids, &n, &err), ERR_NOT_FOUND, "cannot open");
    CHECK_ERR(draft_vocabulary_choose(&ids, &n, ":5", tok, &(struct model_config){0}, 4096, &err),
              ERR_ARGUMENT, "expected FILE or FILE:N");
    CHECK_OK(file_replace(list, words, sizeof words - 1, &err));
    CHECK_ERR(choose("", &ids, &n, &err), ERR_FORMAT, "no list of token counts");
    struct token_counts none;
    CHECK_OK(token_counts_init(&none, tok, &err));
    CHECK_OK(token_counts_write(&none, list, &err));
    token_counts_free(&none);
    CHECK_ERR(choose("", &ids, &n, &err), ERR_FORMAT, "has no token");
    struct tokenizer *other;
    CHECK_OK(tokenizer_open_bytes(&other, 4096, &err));
    CHECK_ERR(draft_vocabulary_choose(&ids, &n, list, other, &(struct model_config){0}, 4096, &err),
              ERR_ARGUMENT, "another tokenizer");
    tokenizer_close(other);
}
END_TEST

/* ---- the guesses ---- */

struct bench {
    struct drafter *drafter;
    struct block_pool target_pool;
    struct sequence *seq;
    struct arena arena;
};

static void open_bench(struct bench *b, const char *head, int support, enum accept_rule rule,
                       float temperature)
{
    struct error err;
    const struct drafter_options options = {
        .name = DRAFT,
        .backend = {.device = "cpu", .weights = "bf16", .kernels = "auto", .n_threads = 1},
        .n_sequences = 1,
        .support = support,
        .kv_tokens = CAPACITY,
        .vocabulary = head};
    const struct sequence_defaults defaults = {
        .n_draft = 1, .context_limit = CAPACITY, .vocab_size = 4096, .has_draft = true};
    CHECK_OK(drafter_open(&b->drafter, &options, tok, &err));
    CHECK_OK(block_pool_open(&b->target_pool, CAPACITY / 16, 16, &err));
    CHECK_OK(arena_open(&b->arena, 1 << 20, &err));
    b->seq = first_sequence(new_job(JOB_GENERATE, prompt, N_PROMPT), tok, &defaults);
    CHECK_OK(places_give(b->seq, 0, &b->target_pool,
                         &(struct drafters){.n_models = 1, .models = {b->drafter}}, &err));
    b->seq->rule = &accept_rules[rule];
    b->seq->sampling = (struct sampling_params){.temperature = temperature, .top_p = 1.0f};
}

static void close_bench(struct bench *b)
{
    places_withdraw(b->seq, &b->target_pool,
                    &(struct drafters){.n_models = 1, .models = {b->drafter}});
    sequence_close(b->seq);
    block_pool_close(&b->target_pool);
    drafter_close(b->drafter);
    arena_close(&b->arena);
}

static struct guess_tree propose(struct bench *b, uint64_t seed)
{
    struct guess_tree draft = {.base = b->seq->n_tokens};
    arena_reset(&b->arena);
    b->seq->n_draft_kv[0] = 0;
    b->seq->seed = seed;
    struct draft_lane lane = {
        .seq = b->seq, .k = 1, .ends = &no_ends, .draft = &draft, .siblings_max = 0};
    struct draft_cost cost;
    drafter_propose(b->drafter, &lane, 1, &b->arena, &cost);
    ck_assert_msg(lane.err.code == 0, "%s", lane.err.text);
    ck_assert_int_eq(draft.n_chain, 1);
    return draft;
}

static bool is_listed(int32_t id)
{
    return id == 0 || (id < 20 * N_LISTED && id % 20 == 7); /* 0 is the model's end */
}

/* q of the small head is q of the whole one, left with the listed tokens and renormalised. */
START_TEST(q_is_that_of_the_whole_head_within_the_list)
{
    struct bench part = {0}, whole = {0};
    open_bench(&part, list, CAPACITY * 64, RULE_REJECTION, 0.8f);
    open_bench(&whole, NULL, CAPACITY * 64, RULE_REJECTION, 0.8f);
    ck_assert_int_eq(part.drafter->n_choices, N_LISTED + 1);
    ck_assert_int_eq(whole.drafter->n_choices, 4096);
    struct guess_tree some = propose(&part, 1), all = propose(&whole, 1);
    double mass = 0;
    for (int i = 0; i < guess_q(&all, 0)->n; i++) {
        if (is_listed(guess_q(&all, 0)->ids[i])) mass += (double)guess_q(&all, 0)->p[i];
    }
    ck_assert_double_gt(mass, 0);
    ck_assert_int_gt(guess_q(&some, 0)->n, N_LISTED / 2);
    for (int i = 0; i < guess_q(&some, 0)->n; i++) {
        int32_t id = guess_q(&some, 0)->ids[i];
        double wanted = (double)sparse_prob(guess_q(&all, 0), id) / mass;
        ck_assert_msg(is_listed(id), "token %d", id);
        ck_assert_double_eq_tol((double)guess_q(&some, 0)->p[i], wanted, 1e-5);
    }
    close_bench(&part);
    close_bench(&whole);
}
END_TEST

/* The best listed token by the noisy score of the whole head's probabilities: their logarithms
 * differ from logits over temperature by the same number for all. */
START_TEST(coupled_picks_the_best_of_the_list_under_the_shared_noise)
{
    struct bench part = {0}, whole = {0};
    open_bench(&part, list, CAPACITY * 64, RULE_COUPLED, 1.0f);
    open_bench(&whole, NULL, CAPACITY * 64, RULE_REJECTION, 1.0f);
    const struct sparse_dist all = *propose(&whole, 1).q[0];
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        struct guess_tree draft = propose(&part, seed);
        int32_t best = -1;
        double best_score = -HUGE_VAL;
        for (int i = 0; i < all.n; i++) {
            if (!is_listed(all.ids[i])) continue;
            uint32_t noise = rng_coupled_bits(seed, N_PROMPT, (uint32_t)all.ids[i]);
            double score = row_noisy_score(logf(all.p[i]), 1.0f, noise);
            if (score > best_score) {
                best = all.ids[i];
                best_score = score;
            }
        }
        ck_assert_int_eq(guess_token(&draft, 0), best);
        ck_assert_int_eq(guess_q(&draft, 0)->n, 1);
    }
    close_bench(&part);
    close_bench(&whole);
}
END_TEST

START_TEST(greedy_guesses_the_best_of_the_list)
{
    struct bench part = {0}, whole = {0};
    open_bench(&part, list, SUPPORT, RULE_GREEDY, 0);
    open_bench(&whole, NULL, CAPACITY * 64, RULE_REJECTION, 1.0f);
    const struct sparse_dist all = *propose(&whole, 1).q[0];
    int best = -1;
    for (int i = 0; i < all.n; i++) {
        if (is_listed(all.ids[i]) && (best < 0 || all.p[i] > all.p[best])) best = i;
    }
    ck_assert_int_eq(propose(&part, 1).tokens[0], all.ids[best]);
    close_bench(&part);
    close_bench(&whole);
}
END_TEST

/* ---- served tokens ---- */

static uint64_t listed_count(int32_t id)
{
    struct token_counts counts;
    struct error err;
    CHECK_OK(token_counts_init(&counts, tok, &err));
    CHECK_OK(token_counts_read(&counts, list, &err));
    uint64_t count = counts.counts[id];
    token_counts_free(&counts);
    return count;
}

START_TEST(counting_goes_on_with_its_list)
{
    static const int64_t minute_us = 60000000;
    struct error err;
    struct served_tokens *served;
    CHECK_OK(served_tokens_open(&served, list, tok, &err));
    served_tokens_count(served, prompt, N_PROMPT); /* 262 twice */
    int64_t now_us = clock_now_us();
    served_tokens_tick(served, now_us, true);
    ck_assert_int_eq((int)listed_count(262), 0);
    served_tokens_tick(served, now_us + 6 * minute_us, false);
    ck_assert_int_eq((int)listed_count(262), 0);
    served_tokens_tick(served, now_us + 6 * minute_us, true);
    ck_assert_int_eq((int)listed_count(262), 2);
    served_tokens_count(served, prompt, 3);
    served_tokens_tick(served, now_us + 20 * minute_us, false);
    ck_assert_int_eq((int)listed_count(262), 2);
    served_tokens_tick(served, now_us + 22 * minute_us, false);
    ck_assert_int_eq((int)listed_count(262), 3);
    served_tokens_count(served, prompt, 3);
    served_tokens_close(served);
    ck_assert_int_eq((int)listed_count(262), 4);
    ck_assert_int_eq((int)listed_count(7), 1000);
}
END_TEST

START_TEST(lists_that_cannot_be_continued_are_refused)
{
    struct error err;
    struct served_tokens *served;
    struct tokenizer *other;
    CHECK_OK(tokenizer_open_bytes(&other, 4096, &err));
    CHECK_ERR(served_tokens_open(&served, list, other, &err), ERR_ARGUMENT, "another tokenizer");
    CHECK_ERR(served_tokens_open(&served, "/nowhere/at/all", other, &err), ERR_IO,
              "--count-tokens");
    ck_assert_ptr_null(served);
    tokenizer_close(other);
    ck_assert_int_eq((int)listed_count(7), 1000); /* still there */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("draft_vocabulary");
    TCase *tcase = tcase_create("tales");
    tcase_set_timeout(tcase, 280);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, the_most_frequent_and_the_ends_are_chosen);
    tcase_add_test(tcase, heads_that_cannot_be_are_refused);
    tcase_add_test(tcase, q_is_that_of_the_whole_head_within_the_list);
    tcase_add_test(tcase, coupled_picks_the_best_of_the_list_under_the_shared_noise);
    tcase_add_test(tcase, greedy_guesses_the_best_of_the_list);
    tcase_add_test(tcase, counting_goes_on_with_its_list);
    tcase_add_test(tcase, lists_that_cannot_be_continued_are_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
