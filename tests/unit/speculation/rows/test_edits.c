/* ctest: labels=quick libs=speculation fail_alloc=yes timeout=60 */
/* Lists of edits against a slow count over the whole text, and what one edit does to a logit. */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "base/limits.h"
#include "base/rng.h"
#include "speculation/rows/edits.h"
#include "tests/support/check_util.h"
#include "tests/support/fail_alloc.h"

enum { VOCAB = 200, TEXT_MAX = 400, GUESSES_MAX = 6, TRIALS = 150 };

static struct error err;
static struct arena arena;

static void setup(void)
{
    CHECK_OK(arena_open(&arena, 1 << 20, &err));
}

static void teardown(void)
{
    arena_close(&arena);
}

/* 0 .. n - 1 by trial and index. */
static int pick(int trial, int index, int n)
{
    const struct rng_address at = {.seed = 77, .position = (uint32_t)trial};
    return (int)(rng_uniform(&at, RNG_WEIGHT, (uint32_t)index) * n);
}

START_TEST(one_edit_divides_subtracts_and_adds_in_this_order)
{
    const struct edit all = {.id = 3, .divisor = 1.5f, .minus = 0.75f, .bias = 0.5f};
    ck_assert(edit_apply(&all, 3) == 3 / 1.5f - 0.75f + 0.5f);
    ck_assert(edit_apply(&all, -3) == -3 * 1.5f - 0.75f + 0.5f);
    ck_assert(edit_apply(&all, 0) == -0.25f);
    ck_assert(edit_apply(&all, -INFINITY) == -INFINITY);
    /* each operation rounds to float: 16777216 + 1 is 16777216, and less 1 it is 16777215 */
    const struct edit rounded = {.divisor = 1, .minus = -1, .bias = -1};
    ck_assert(edit_apply(&rounded, 16777216) == 16777215);
    const struct edit third = {.divisor = 3, .minus = 0, .bias = 0};
    ck_assert(edit_apply(&third, 1) == 1 / 3.0f);
    const struct edit none = {.divisor = 1};
    for (int i = 0; i < 1000; i++) {
        float logit = (float)(pick(1, i, 2000000) - 1000000) / 7777;
        ck_assert(edit_apply(&none, logit) == logit);
    }
}
END_TEST

START_TEST(an_edited_logit_is_never_nan_nor_infinite_above)
{
    const float parts[] = {REPETITION_PENALTY_MIN, 1, REPETITION_PENALTY_MAX};
    const float sums[] = {-EDIT_BIAS_MAX, 0, EDIT_BIAS_MAX, -INFINITY};
    const float logits[] = {-INFINITY, -FLT_MAX, -1, -0.0f, 0, 1e-40f, 1, FLT_MAX};
    for (int i = 0; i < 3 * 3 * 4 * 8; i++) {
        const struct edit edit = {0, parts[i % 3], 1e6f * sums[i / 3 % 3], sums[i / 9 % 4]};
        float x = edit_apply(&edit, logits[i / 36]);
        ck_assert(x <= FLT_MAX);
        bool is_gone = edit.bias == -INFINITY || logits[i / 36] == -INFINITY;
        ck_assert(!is_gone || x == -INFINITY);
    }
}
END_TEST

START_TEST(an_edit_that_cannot_raise_a_logit_never_does)
{
    int n_raised = 0;
    for (int i = 0; i < 20000; i++) {
        const struct edit edit = {
            .divisor = pick(2, 5 * i, 3) ? 1 : 0.5f + (float)pick(2, 5 * i + 1, 100) / 100,
            .minus = (float)(pick(2, 5 * i + 2, 5) - 1),
            .bias = (float)(pick(2, 5 * i + 3, 5) - 3),
        };
        float logit = (float)pick(2, 5 * i + 4, 4000) / 100 - 20;
        bool is_raised = edit_apply(&edit, logit) > logit;
        ck_assert(!is_raised || edit_can_raise(&edit));
        n_raised += is_raised;
    }
    ck_assert_int_gt(n_raised, 1000);
}
END_TEST

START_TEST(options_out_of_range_are_refused_with_their_value)
{
    struct edit_rules rules;
    edit_rules_init(&rules);
    CHECK_OK(edit_rules_check(&rules, VOCAB, &err));
    rules.repetition_penalty = 0;
    CHECK_ERR(edit_rules_check(&rules, VOCAB, &err), ERR_ARGUMENT,
              "repetition_penalty 0 is not within 0.01 to 10");
    rules.repetition_penalty = 0.009f;
    CHECK_ERR(edit_rules_check(&rules, VOCAB, &err), ERR_ARGUMENT,
              "repetition_penalty 0.009 is not within");
    rules.repetition_penalty = REPETITION_PENALTY_MIN;
    CHECK_OK(edit_rules_check(&rules, VOCAB, &err));
    rules.repetition_penalty = NAN;
    CHECK_ERR(edit_rules_check(&rules, VOCAB, &err), ERR_ARGUMENT, "repetition_penalty nan");
    edit_rules_init(&rules);
    rules.presence_penalty = 2.5f;
    CHECK_ERR(edit_rules_check(&rules, VOCAB, &err), ERR_ARGUMENT, "presence_penalty 2.5 is not");
    edit_rules_init(&rules);
    rules.frequency_penalty = -INFINITY;
    CHECK_ERR(edit_rules_check(&rules, VOCAB, &err), ERR_ARGUMENT, "frequency_penalty -inf");
    edit_rules_init(&rules);
    rules.min_tokens = -1;
    CHECK_ERR(edit_rules_check(&rules, VOCAB, &err), ERR_ARGUMENT, "min_tokens -1 is negative");
}
END_TEST

START_TEST(biases_and_bans_that_make_no_sense_are_refused)
{
    struct edit_bias bias = {VOCAB, 1};
    struct edit_rules rules;
    edit_rules_init(&rules);
    rules.biases = &bias, rules.n_biases = 1;
    CHECK_ERR(edit_rules_check(&rules, VOCAB, &err), ERR_ARGUMENT,
              "biased id 200 is outside of the vocabulary of 200");
    bias = (struct edit_bias){3, 101};
    CHECK_ERR(edit_rules_check(&rules, VOCAB, &err), ERR_ARGUMENT, "bias 101 is not within -100");
    bias.bias = INFINITY;
    CHECK_ERR(edit_rules_check(&rules, VOCAB, &err), ERR_ARGUMENT, "bias inf is not within -100");
    bias.bias = -INFINITY;
    CHECK_OK(edit_rules_check(&rules, VOCAB, &err));
    int32_t ids[EDIT_BAN_TOKENS_MAX + 1] = {0};
    struct edit_ban ban = {0, ids};
    rules.bans = &ban, rules.n_bans = 1;
    CHECK_ERR(edit_rules_check(&rules, VOCAB, &err), ERR_ARGUMENT, "has 0 tokens, not 1 to 32");
    ban.n = EDIT_BAN_TOKENS_MAX + 1;
    CHECK_ERR(edit_rules_check(&rules, VOCAB, &err), ERR_ARGUMENT, "has 33 tokens");
    ban.n--;
    CHECK_OK(edit_rules_check(&rules, VOCAB, &err));
    ids[7] = -1;
    CHECK_ERR(edit_rules_check(&rules, VOCAB, &err), ERR_ARGUMENT, "banned id -1 is outside");
}
END_TEST

START_TEST(options_that_change_nothing_are_known_as_such)
{
    struct edit_bias bias = {1, 1};
    struct edit_ban ban = {1, &bias.id};
    struct edit_rules rules;
    edit_rules_init(&rules);
    rules.min_tokens = 5; /* no end that it could ban */
    ck_assert(!edit_rules_change(&rules));
    rules.n_end_ids = 1;
    ck_assert(edit_rules_change(&rules));
    rules.min_tokens = 0;
    ck_assert(!edit_rules_change(&rules));
    for (int i = 0; i < 5; i++) {
        edit_rules_init(&rules);
        if (i == 0) rules.repetition_penalty = 0.9f;
        if (i == 1) rules.presence_penalty = 1;
        if (i == 2) rules.frequency_penalty = -1;
        if (i == 3) rules.biases = &bias, rules.n_biases = 1;
        if (i == 4) rules.bans = &ban, rules.n_bans = 1;
        ck_assert(edit_rules_change(&rules));
    }
}
END_TEST

/* A random request and text; few different tokens, so that banned sequences happen. */
struct sample {
    struct edit_rules rules;
    struct edit_bias biases[20];
    struct edit_ban bans[20];
    int32_t ban_ids[20][EDIT_BAN_TOKENS_MAX], end_ids[4];
    int32_t text[TEXT_MAX];
    int n_text, n_prompt, n_kinds;
};

static int32_t kind_of(const struct sample *sample, int trial, int index)
{
    return (int32_t)(pick(trial, index, sample->n_kinds) * 7 % VOCAB);
}

static void fill_rules(struct sample *s, int trial)
{
    edit_rules_init(&s->rules);
    if (pick(trial, 0, 2)) s->rules.repetition_penalty = 0.5f + (float)pick(trial, 1, 10) / 7;
    if (pick(trial, 2, 2)) s->rules.presence_penalty = (float)pick(trial, 3, 20) / 9 - 1;
    if (pick(trial, 4, 2)) s->rules.frequency_penalty = (float)pick(trial, 5, 20) / 11 - 1;
    s->rules.biases = s->biases, s->rules.n_biases = pick(trial, 6, 20);
    s->rules.bans = s->bans, s->rules.n_bans = pick(trial, 7, 20);
    s->rules.end_ids = s->end_ids, s->rules.n_end_ids = pick(trial, 8, 5);
    s->rules.min_tokens = pick(trial, 9, 2) * pick(trial, 10, 60);
    for (int i = 0; i < 20; i++) {
        bool is_ban = pick(trial, 100 + i, 8) == 0;
        s->biases[i] = (struct edit_bias){kind_of(s, trial, 200 + i),
                                          is_ban ? -INFINITY : (float)pick(trial, 300 + i, 9) - 4};
        s->bans[i] = (struct edit_ban){1 + pick(trial, 400 + i, 3), s->ban_ids[i]};
        if (i == 19) s->bans[i].n = 1 + pick(trial, 430, EDIT_BAN_TOKENS_MAX);
        for (int k = 0; k < s->bans[i].n; k++) {
            s->ban_ids[i][k] = kind_of(s, trial, 1000 + 40 * i + k);
        }
    }
    for (int i = 0; i < 4; i++) {
        s->end_ids[i] = pick(trial, 500 + i, VOCAB + 20); /* some are past the vocabulary */
    }
}

static void sample_fill(struct sample *s, int trial)
{
    *s = (struct sample){.n_kinds = 2 + pick(trial, 11, trial % 2 ? 5 : 190)};
    fill_rules(s, trial);
    s->n_text = 1 + pick(trial, 12, TEXT_MAX);
    s->n_prompt = pick(trial, 13, s->n_text);
    for (int i = 0; i < s->n_text; i++) {
        s->text[i] = kind_of(s, trial, 3000 + i);
    }
}

/* Computes the edit of one token after n tokens from the options, without any state. */
static struct edit slow_edit(const struct sample *s, int n, int32_t id)
{
    const struct edit_rules *rules = &s->rules;
    struct edit edit = {.id = id, .divisor = 1};
    int n_seen = 0, n_answered = 0;
    for (int i = 0; i < n; i++) {
        n_seen += s->text[i] == id;
        n_answered += s->text[i] == id && i >= s->n_prompt;
    }
    if (n_seen > 0) edit.divisor = rules->repetition_penalty;
    if (n_answered > 0) {
        float frequency = rules->frequency_penalty * (float)n_answered;
        edit.minus = frequency + rules->presence_penalty;
    }
    for (int i = 0; i < rules->n_biases; i++) {
        if (s->biases[i].id == id) edit.bias += s->biases[i].bias;
    }
    for (int i = 0; i < rules->n_bans; i++) {
        int n_before = s->bans[i].n - 1;
        size_t size = (size_t)n_before * sizeof(int32_t);
        if (s->ban_ids[i][n_before] != id || n_before > n) continue;
        if (memcmp(s->ban_ids[i], s->text + n - n_before, size) == 0) edit.bias = -INFINITY;
    }
    for (int i = 0; i < rules->n_end_ids; i++) {
        bool is_early = n - s->n_prompt < rules->min_tokens;
        if (is_early && s->end_ids[i] == id) edit.bias = -INFINITY;
    }
    return edit;
}

static int n_edits_seen, n_bans_seen;

/* ck_assert writes to a file whenever it passes: here only a difference speaks. */
static void expect_list(const struct sample *s, int n, const struct edit_list *list)
{
    int n_listed = 0;
    for (int32_t id = 0; id < VOCAB; id++) {
        const struct edit wanted = slow_edit(s, n, id);
        const struct edit *got = edit_find(list, id);
        const struct edit same = got ? *got : (struct edit){id, 1, 0, 0};
        if (same.id != id || same.divisor != wanted.divisor || same.minus != wanted.minus ||
            same.bias != wanted.bias) {
            ck_abort_msg("id %d behind %d tokens: %g %g %g, wanted %g %g %g", (int)id, n,
                         (double)same.divisor, (double)same.minus, (double)same.bias,
                         (double)wanted.divisor, (double)wanted.minus, (double)wanted.bias);
        }
        if (got) n_listed++;
        n_bans_seen += same.bias == -INFINITY;
    }
    ck_assert_int_eq(n_listed, list->n); /* so all ids are in the vocabulary, and distinct */
    n_edits_seen += n_listed;
}

/* Texts grow by rounds: some guesses, of which some stay, and each position's list is asked for. */
START_TEST(lists_equal_a_count_over_the_whole_text)
{
    for (int trial = 0; trial < TRIALS; trial++) {
        struct sample s;
        struct edits *edits;
        sample_fill(&s, trial);
        CHECK_OK(edit_rules_check(&s.rules, VOCAB, &err));
        CHECK_OK(
            edits_open(&edits, &s.rules, VOCAB, s.text, s.n_prompt, s.n_text - s.n_prompt, &err));
        for (int n = s.n_prompt, turn = 0; n < s.n_text; turn++) {
            int n_guesses = pick(trial, 5000 + turn, GUESSES_MAX + 1);
            n_guesses = n_guesses < s.n_text - n ? n_guesses : s.n_text - n;
            for (int i = 0; i <= n_guesses; i++) {
                const struct edit_list *list;
                CHECK_OK(edits_at(edits, s.text + n, i, &arena, &list, &err));
                expect_list(&s, n + i, list);
            }
            int n_kept = pick(trial, 6000 + turn, n_guesses + 1);
            n_kept = n_kept ? n_kept : 1;
            edits_commit(edits, s.text + n, n_kept);
            n += n_kept;
            arena_reset(&arena);
        }
        edits_close(edits);
    }
    ck_assert_int_gt(n_edits_seen, 50000);
    ck_assert_int_gt(n_bans_seen, 5000);
}
END_TEST

START_TEST(guesses_past_the_vocabulary_are_left_out)
{
    struct edit_rules rules;
    struct edits *edits;
    const struct edit_list *list;
    const int32_t prompt[] = {5, 2, 5}, guesses[] = {VOCAB, 7};
    edit_rules_init(&rules);
    rules.repetition_penalty = 1.1f;
    CHECK_OK(edits_open(&edits, &rules, VOCAB, prompt, 3, 10, &err));
    CHECK_OK(edits_at(edits, guesses, 2, &arena, &list, &err));
    ck_assert_int_eq(list->n, 3);
    ck_assert(list->edits[0].id == 2 && list->edits[1].id == 5 && list->edits[2].id == 7);
    edits_close(edits);
}
END_TEST

START_TEST(a_full_arena_is_an_error)
{
    struct edit_rules rules;
    struct edits *edits;
    struct arena small;
    const struct edit_list *list;
    const int32_t prompt[] = {5, 2, 5};
    edit_rules_init(&rules);
    rules.repetition_penalty = 1.1f;
    CHECK_OK(edits_open(&edits, &rules, VOCAB, prompt, 3, 10, &err));
    for (size_t size = 0; size <= 64; size += 64) {
        CHECK_OK(arena_open(&small, size, &err));
        CHECK_ERR(edits_at(edits, prompt, 1, &small, &list, &err), ERR_NO_MEMORY, "of 3 tokens");
        arena_close(&small);
    }
    edits_close(edits);
    edits_close(NULL);
}
END_TEST

static int open_and_close(void *arg, struct error *error)
{
    struct edit_rules rules;
    struct edits *edits;
    const int32_t prompt[] = {5, 2, 5};
    (void)arg;
    edit_rules_init(&rules);
    rules.presence_penalty = 1;
    int rc = edits_open(&edits, &rules, VOCAB, prompt, 3, 10, error);
    if (!rc) edits_commit(edits, prompt, 3);
    edits_close(edits);
    return rc;
}

START_TEST(opening_without_memory_leaks_nothing)
{
    fail_alloc_each("edits_open", open_and_close, NULL, FAIL_OURS, 1);
}
END_TEST

static bool is_better(const struct select_item *a, const struct select_item *b)
{
    return a->score > b->score || (a->score == b->score && a->id < b->id);
}

/* The candidates as a plain insertion sort leaves them. */
static int slow_items(const struct edit_list *list, struct select_item *items, int n)
{
    int n_left = 0;
    for (int i = 0; i < n; i++) {
        struct select_item item = items[i];
        for (int k = 0; k < list->n; k++) {
            if (list->edits[k].id == item.id) {
                item.score = (double)edit_apply(&list->edits[k], (float)item.score);
            }
        }
        if (item.score == -HUGE_VAL) continue;
        int at = n_left++;
        for (; at > 0 && is_better(&item, &items[at - 1]); at--) {
            items[at] = items[at - 1];
        }
        items[at] = item;
    }
    return n_left;
}

START_TEST(edited_candidates_are_sorted_again)
{
    static struct select_item items[VOCAB], wanted[VOCAB];
    static struct edit edits[VOCAB];
    for (int trial = 0; trial < 400; trial++) {
        int n = pick(trial, 0, VOCAB), n_edits = pick(trial, 1, 2) * pick(trial, 2, VOCAB);
        struct edit_list list = {.edits = edits};
        for (int32_t id = 0; id < VOCAB && list.n < n_edits; id++) {
            if (pick(trial, 1000 + id, 3)) continue;
            float bias = (float)pick(trial, 2000 + id, 12) - 8;
            edits[list.n++] = (struct edit){id, 1.25f, 0, bias > -6 ? bias : -INFINITY};
        }
        for (int i = 0; i < n; i++) { /* few different scores, so there are ties */
            items[i] = (struct select_item){(n - i) / 8 / 2.0, (i * 37 + trial) % VOCAB};
        }
        slow_items(&(struct edit_list){0}, items, n); /* best first */
        memcpy(wanted, items, sizeof items);
        int n_wanted = slow_items(&list, wanted, n);
        ck_assert_int_eq(edits_apply_items(&list, items, n), n_wanted);
        for (int i = 0; i < n_wanted; i++) {
            ck_assert(items[i].id == wanted[i].id && items[i].score == wanted[i].score);
        }
    }
    ck_assert_int_eq(edits_apply_items(NULL, items, 5), 5);
    ck_assert_int_eq(edits_apply_items(&(struct edit_list){0}, items, 0), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("edits");
    TCase *tcase = tcase_create("edits");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 50);
    tcase_add_test(tcase, one_edit_divides_subtracts_and_adds_in_this_order);
    tcase_add_test(tcase, an_edited_logit_is_never_nan_nor_infinite_above);
    tcase_add_test(tcase, an_edit_that_cannot_raise_a_logit_never_does);
    tcase_add_test(tcase, options_out_of_range_are_refused_with_their_value);
    tcase_add_test(tcase, biases_and_bans_that_make_no_sense_are_refused);
    tcase_add_test(tcase, options_that_change_nothing_are_known_as_such);
    tcase_add_test(tcase, lists_equal_a_count_over_the_whole_text);
    tcase_add_test(tcase, guesses_past_the_vocabulary_are_left_out);
    tcase_add_test(tcase, a_full_arena_is_an_error);
    tcase_add_test(tcase, opening_without_memory_leaks_nothing);
    tcase_add_test(tcase, edited_candidates_are_sorted_again);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
