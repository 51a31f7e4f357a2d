/* ctest: labels=quick libs=coordinator timeout=60 */
/* What is found in finished texts and in a file: texts of other API keys are not seen unless that
 * is allowed, and a file for another tokenizer is refused. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "access/keys.h"
#include "coordinator/draft/drafters.h"
#include "lookup/datastore.h"
#include "tests/support/sequence_world.h"

#define DRAFT SOURCE_DIR "/deploy/models/tales/draft"

enum { CAPACITY = 1024, BLOCK = 16, SLOTS = 3, K = 8, VOCAB = 4096 };

static const struct end_ids no_ends;
static const int32_t text[] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19};
enum { N_TEXT = sizeof text / sizeof *text };

struct bench {
    struct tokenizer *tok;
    struct block_pool pool;
    struct drafters drafters;
    struct drafter *finder;
    struct arena arena;
};

static void setup(struct bench *b, const char *lookup, bool is_shared)
{
    struct error err;
    *b = (struct bench){0};
    CHECK_OK(tokenizer_open(&b->tok, DRAFT, &err));
    CHECK_OK(block_pool_open(&b->pool, SLOTS * CAPACITY / BLOCK, BLOCK, &err));
    const struct lookup_options options = {.lookup = lookup,
                                           .n_sequences = SLOTS,
                                           .store_tokens = 4096,
                                           .is_shared = is_shared,
                                           .tok = b->tok};
    CHECK_OK(drafters_open(&b->drafters, NULL, &options, &err));
    CHECK_OK(arena_open(&b->arena, 1 << 20, &err));
    drafters_set_vocabulary(&b->drafters, VOCAB);
    b->finder = b->drafters.finders[0]; /* NULL with "none" */
}

static void teardown(struct bench *b)
{
    arena_close(&b->arena);
    drafters_close(&b->drafters);
    block_pool_close(&b->pool);
    tokenizer_close(b->tok);
}

/* key: NULL = the request came without one. */
static struct sequence *place(struct bench *b, int slot, struct grant *key, const int32_t *tokens,
                              int n)
{
    struct error err;
    const struct sequence_defaults defaults = {.n_draft = K,
                                               .strategy = STRATEGY_PLANNED,
                                               .context_limit = CAPACITY,
                                               .vocab_size = VOCAB,
                                               .has_draft = true};
    struct sequence *seq = first_sequence(new_job(JOB_GENERATE, tokens, n), b->tok, &defaults);
    seq->job->grant = key;
    CHECK_OK(sequence_place(seq, slot, &b->pool, &b->drafters, &err));
    b->finder->ops->study(b->finder, seq, 1);
    return seq;
}

static void take_away(struct bench *b, struct sequence *seq)
{
    sequence_displace(seq, &b->pool, &b->drafters);
    seq->job->grant = NULL; /* it is this test's */
    sequence_close(seq);
}

static void finish(struct bench *b, struct grant *key)
{
    struct sequence *seq = place(b, 0, key, text, N_TEXT);
    drafters_finished(&b->drafters, seq);
    take_away(b, seq);
}

/* Guesses behind the first tokens of the text. */
static int count_guesses(struct bench *b, struct grant *key)
{
    struct planner_offer offer = {0};
    struct draft_cost cost;
    struct draft draft = {0};
    struct sequence *seq = place(b, 1, key, text, 4);
    bool is_there = b->finder->ops->look(b->finder, seq, &offer);
    draft.base = seq->n_tokens;
    struct draft_lane lane = {seq, 4, &no_ends, &draft, 0, {0}};
    arena_reset(&b->arena);
    drafter_propose(b->finder, &lane, 1, &b->arena, &cost);
    ck_assert(is_there == (draft.n > 0) && (!is_there || offer.k_max >= draft.n));
    for (int i = 0; i < draft.n; i++) {
        ck_assert_int_eq(draft.tokens[i], text[4 + i]);
        ck_assert(draft.q[i].n == 1 && draft.q[i].p[0] == 1);
    }
    take_away(b, seq);
    return draft.n;
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
    tcase_add_test(tcase, a_file_is_for_one_tokenizer);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
