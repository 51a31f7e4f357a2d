/* ctest: labels=quick libs=coordinator timeout=200 */
/* Guesses after siblings that follow q: there are as many for each place as planned, after those
 * guesses and as many each as EAGLE-2's values of the draft's own distributions say, which are made
 * here anew, path by path; and each guess is that of a draft with its path as text, with a coin of
 * its own. */
#include <stdio.h>

#include "tests/support/draft_growth.h"
#include "tests/support/draws.h"
#include "tests/support/guess_shapes.h"

enum { LISTS = 12, NAMES_MAX = GROWN_MAX + SIBLINGS_MAX };

/* 3, 6, 6 and 2 guesses, and one place deeper than the chain. */
static const struct growth plan = {.n = 13,
                                   .parents = {-1, -1, -2, -2, -4, 0, 1, 2, 3, 4, 5, 6, 9}};
static const uint8_t plan_siblings[DRAFT_MAX] = {2, 1, 1};

/* Reads the chances that the draft gives to the tokens after a path, also where q is reported as
 * one-hot. */
static void read_chances(struct bench *b, const int32_t *path, int n_path, struct draft_view *fresh)
{
    struct draft_cost cost;
    int32_t text[CAPACITY];
    const struct sequence *seq = b->seq;
    memcpy(text, seq->tokens, (size_t)seq->n_tokens * sizeof *text);
    memcpy(text + seq->n_tokens, path, (size_t)n_path * sizeof *text);
    struct sequence *other = place_text(b, 1, text, seq->n_tokens + n_path);
    follow(other, RULE_REJECTION, seq->sampling.temperature > 0 ? seq->sampling.temperature : 1);
    bool has_few = seq->sampling.temperature == 0 && !seq->edits; /* edits need more of a row */
    if (has_few) other->sampling.top_k = FOLLOW_BEST;
    if (seq->edits) edit_text(b, other);
    propose_many(b, other, 1, no_growth, NULL, &no_ends, fresh, &cost);
    take_away(b, other);
}

/* A guess that others may follow, or the chain's guess of the place. */
struct node {
    int name; /* as a growth calls it; GROWN_MAX: of the chain */
    double value;
    struct draft_view fresh;
    int n_wanted, n_children;
    double next; /* the value of the next guess after it; below 0: there is none */
};

static double constant_ratio_of(const struct sequence *seq)
{
    return tree_follow_constant_ratio(seq->rule);
}

/* The value of a path: of each of its guesses by its chance and its number among those of its
 * parent. */
static double value_of_path(struct bench *b, const int32_t *path, const int *ranks, int n)
{
    double value = 1, constant_ratio = constant_ratio_of(b->seq);
    for (int i = 0; i < n; i++) {
        struct draft_view fresh;
        read_chances(b, path, i, &fresh);
        double q = (double)sparse_prob(&fresh.q[0], path[i]);
        value *=
            ranks[i] == 0 ? constant_ratio + (1 - constant_ratio) * q : (1 - constant_ratio) * q;
    }
    return value;
}

/* The numbers of the guesses on the way to a parent. */
static int write_ranks(const struct draft_view *draft, int parent, int *ranks)
{
    if (parent >= 0) {
        int n = write_ranks(draft, draft->grown.parents[parent], ranks);
        ranks[n] = parent - growth_first(&draft->grown, parent);
        return n + 1;
    }
    int guess = growth_guess(parent);
    memset(ranks, 0, (size_t)guess * sizeof *ranks);
    ranks[guess] = 1 + growth_sibling(parent);
    return guess + 1;
}

static void add_node(struct bench *b, const struct draft_view *draft, int name, int place,
                     const struct end_ids *ends, struct node *nodes, int *n)
{
    int32_t path[DRAFT_MAX];
    int ranks[DRAFT_MAX] = {0}, n_path = place;
    if (name == GROWN_MAX) {
        memcpy(path, draft->tokens, (size_t)place * sizeof *path);
    } else {
        n_path = write_path(draft, name, path);
        write_ranks(draft, name, ranks);
        ck_assert_int_eq(n_path, place);
        if (end_ids_have(ends, path[place - 1])) return;
    }
    struct node *node = &nodes[(*n)++];
    *node = (struct node){.name = name, .value = value_of_path(b, path, ranks, n_path)};
    read_chances(b, path, n_path, &node->fresh);
}

/* The next value of a node: by the largest chance after it that has not been counted. */
static void set_next(const struct node *of, double constant_ratio, struct node *node)
{
    const struct sparse_dist *q = &of->fresh.q[0];
    float last = 2, best = 0;
    int n_before = node->n_wanted; /* those that are as large as the last one are equal in value */
    for (int i = 0; i <= n_before; i++) {
        int n_equal = 0;
        best = 0;
        for (int t = 0; t < q->n; t++) {
            if (q->p[t] < last && q->p[t] > best) best = q->p[t];
        }
        for (int t = 0; t < q->n; t++) {
            n_equal += q->p[t] == best;
        }
        last = best;
        i += n_equal - 1;
    }
    double own = (1 - constant_ratio) * (double)best;
    bool is_full = node->n_wanted >= 1 + SIBLINGS_MAX || best <= 0;
    node->next = is_full ? -1 : node->value * (node->n_wanted == 0 ? constant_ratio + own : own);
}

/* How many guesses of the draft each parent of the place has, against what their values say. */
static void check_place(struct bench *b, const struct draft_view *draft, int place, int budget,
                        int n_parents, const struct end_ids *ends)
{
    static struct node nodes[NAMES_MAX + 1];
    bool goes_on = place < draft->n;
    int n = 0, n_others = 0;
    double constant_ratio = constant_ratio_of(b->seq);
    if (goes_on) add_node(b, draft, GROWN_MAX, place, ends, nodes, &n);
    for (int s = 0; place <= draft->n && s < draft->n_siblings[place - 1]; s++) {
        add_node(b, draft, growth_after(place - 1, s), place, ends, nodes, &n);
    }
    for (int i = 0; i < draft->grown.n; i++) {
        if (growth_place(&draft->grown, i) == place - 1) {
            add_node(b, draft, i, place, ends, nodes, &n);
        }
    }
    /* As many others as the plan has parents, the best of them. */
    for (int i = n - 1; i >= goes_on; i--) {
        int n_better = 0;
        for (int j = goes_on; j < n; j++) {
            n_better +=
                nodes[j].value > nodes[i].value || (nodes[j].value == nodes[i].value && j < i);
        }
        nodes[i].next = n_better < n_parents ? 0 : -1;
    }
    for (int i = 0; i < n; i++) {
        if (goes_on && i == 0) nodes[i].n_wanted = 1;
        if (nodes[i].next >= 0) set_next(&nodes[i], constant_ratio, &nodes[i]);
    }
    for (int g = 0; g < budget; g++) {
        int best = -1;
        for (int i = 0; i < n; i++) {
            if (nodes[i].next > (best < 0 ? 0 : nodes[best].next)) best = i;
        }
        if (best < 0) break;
        nodes[best].n_wanted++;
        set_next(&nodes[best], constant_ratio, &nodes[best]);
    }
    for (int i = 0; i < draft->grown.n; i++) {
        for (int j = 0; j < n; j++) {
            bool is_own =
                growth_place(&draft->grown, i) == place && nodes[j].name == draft->grown.parents[i];
            nodes[j].n_children += is_own ? 1 : 0;
        }
        n_others += growth_place(&draft->grown, i) == place ? 1 : 0;
    }
    for (int j = 0; j < n; j++) {
        if (nodes[j].name == GROWN_MAX) nodes[j].n_children = 1 + draft->n_siblings[place];
        ck_assert_msg(nodes[j].n_children == nodes[j].n_wanted,
                      "place %d, parent %d: %d guesses, %d expected", place, nodes[j].name,
                      nodes[j].n_children, nodes[j].n_wanted);
        n_others -= nodes[j].name == GROWN_MAX ? 0 : nodes[j].n_children;
    }
    ck_assert_int_eq(n_others, 0);
}

/* The tokens: those of a draft with the path as text, by coins that no other guess for the place
 * has. */
static void check_tokens(struct bench *b, const struct draft_view *draft)
{
    for (int i = 0, first_at = 0; i < draft->grown.n; i++) {
        int place = growth_place(&draft->grown, i);
        if (i == 0 || growth_place(&draft->grown, i - 1) != place) first_at = i;
        if (growth_first(&draft->grown, i) != i) continue;
        check_group(b, draft, i, 1 + SIBLINGS_MAX + i - first_at);
    }
}

/* Guesses of the place before that have others after them in the plan. */
static int count_parents(int place)
{
    int n = 0;
    for (int i = 0; i < plan.n; i++) {
        n += growth_place(&plan, i) == place && growth_first(&plan, i) == i;
    }
    return n;
}

static int check_draft(struct bench *b, const struct draft_view *draft, const int *counts, int k,
                       const uint8_t *siblings, const struct end_ids *ends)
{
    int n = 0;
    check_tokens(b, draft);
    ck_assert_int_eq(draft->n_siblings[0], siblings[0]);
    for (int place = 1; place < DRAFT_MAX; place++) {
        bool is_over = place < k && place >= draft->n; /* then its siblings are not made either */
        int budget = counts[place] - (is_over ? siblings[place] : 0);
        check_place(b, draft, place, budget, count_parents(place), ends);
        n += budget;
    }
    return n;
}

START_TEST(guesses_follow_the_parents_that_q_prefers)
{
    struct bench b = {0};
    int counts[DRAFT_MAX], n_other = 0;
    setup_way(&b, _i);
    growth_shape_count(K - 1, plan_siblings, &plan, counts);
    for (int t = 0; t < LISTS; t++) {
        struct draft_view draft, planned;
        struct draft_cost cost;
        b.seq->seed = (uint64_t)(7 + t);
        b.seq->n_tokens = 2 + t % (N_PROMPT - 1);
        b.seq->n_draft_kv[0] = 0;
        arena_reset(&b.arena);
        int n_blocks = count_blocks(&b);
        propose_many(&b, b.seq, K - 1, &plan, plan_siblings, &no_ends, &draft, &cost);
        ck_assert_int_eq(count_blocks(&b), n_blocks);
        ck_assert(draft.n == K - 1 && cost.n_passes == K + 1); /* it is deeper than the chain */
        check_draft(&b, &draft, counts, K - 1, plan_siblings, &no_ends);
        int n = draft.grown.n + draft.n_siblings[1] + draft.n_siblings[2];
        ck_assert_int_eq(n, plan.n + 2);
        b.seq->n_draft_kv[0] = 0;
        propose_many(&b, b.seq, K - 1, &plan, NULL, &no_ends, &planned, &cost);
        n_other += draft.grown.n != planned.grown.n ||
                   memcmp(draft.grown.parents, planned.grown.parents, (size_t)draft.grown.n) != 0;
        ck_assert_int_eq(draft.tokens[K - 2], planned.tokens[K - 2]);
    }
    printf("%d of %d trees have another shape than planned\n", n_other, LISTS);
    ck_assert_int_gt(n_other, LISTS / 2);
    teardown(&b);
}
END_TEST

/* Budgets as large and as deep as can be, after chains of 1 to DRAFT_MAX guesses: none is left,
 * unless the place before has too few guesses. */
START_TEST(any_budget_is_given_out)
{
    enum { GROWTHS = DRAWS_ARE_FEW ? 20 : 40 };
    struct bench b = {0};
    int largest = 0;
    setup_way(&b, _i);
    for (int i = 0; i < GROWTHS; i++) {
        struct draft_view draft;
        struct draft_cost cost;
        uint8_t siblings[DRAFT_MAX] = {0};
        int k = i % DRAFT_MAX + 1, counts[DRAFT_MAX], made[DRAFT_MAX];
        const struct growth growth = any_growth(k);
        for (int g = 0; g < growth.n; g++) {
            int parent = growth.parents[g], sibling = parent < 0 ? growth_sibling(parent) + 1 : 0;
            if (sibling > siblings[parent < 0 ? growth_guess(parent) : 0]) {
                siblings[growth_guess(parent)] = (uint8_t)sibling;
            }
        }
        b.seq->seed = (uint64_t)i;
        b.seq->n_tokens = 2 + dice(N_PROMPT - 2);
        b.seq->n_draft_kv[0] = 0;
        arena_reset(&b.arena);
        int n_blocks = count_blocks(&b);
        propose_many(&b, b.seq, k, &growth, siblings, &no_ends, &draft, &cost);
        ck_assert_int_eq(count_blocks(&b), n_blocks);
        ck_assert_int_eq(draft.n, k);
        growth_shape_count(k, siblings, &growth, counts);
        growth_shape_count(k, draft.n_siblings, &draft.grown, made);
        for (int place = 0; place < DRAFT_MAX; place++) {
            int room = (place < k ? SIBLINGS_MAX : 0) +
                       (place > 0 ? made[place - 1] * (1 + SIBLINGS_MAX) : 0);
            if (growth.n > 0)
                ck_assert_int_eq(made[place], counts[place] < room ? counts[place] : room);
        }
        check_tokens(&b, &draft);
        largest = draft.grown.n > largest ? draft.grown.n : largest;
    }
    printf("up to %d guesses after siblings\n", largest);
    ck_assert_int_ge(largest, 20);
    teardown(&b);
}
END_TEST

/* After an end of the text nothing is guessed, whether it is a sibling, a guess after one or of the
 * chain; the others share what there is. */
START_TEST(nothing_is_guessed_after_an_end)
{
    struct bench b = {0};
    struct draft_view all, some;
    struct draft_cost cost;
    int counts[DRAFT_MAX];
    setup_way(&b, _i);
    b.seq->seed = 5;
    growth_shape_count(K - 1, plan_siblings, &plan, counts);
    propose_many(&b, b.seq, K - 1, &plan, plan_siblings, &no_ends, &all, &cost);
    const int32_t ids[] = {all.siblings[0][0], all.grown_tokens[0], all.tokens[0], all.tokens[1]};
    for (int e = 0; e < 4; e++) {
        const struct end_ids ends = {1, {ids[e]}};
        b.seq->n_draft_kv[0] = 0;
        propose_many(&b, b.seq, K - 1, &plan, plan_siblings, &ends, &some, &cost);
        ck_assert(some.grown.n > 0 && (e < 2 || some.n == e - 1));
        check_draft(&b, &some, counts, K - 1, plan_siblings, &ends);
    }
    teardown(&b);
}
END_TEST

/* With a small support there are fewer children than there could be, and none is planned that q
 * cannot give. */
START_TEST(guesses_that_q_cannot_give_are_not_planned)
{
    struct bench b = {0};
    struct draft_view draft;
    struct draft_cost cost;
    setup_support(&b, RULE_REJECTION, 1, 2);
    propose_many(&b, b.seq, K - 1, &plan, plan_siblings, &no_ends, &draft, &cost);
    ck_assert(draft.n_siblings[0] == 1 && draft.grown.n > 0);
    for (int i = 0; i < draft.grown.n; i++) {
        ck_assert_int_le(i - growth_first(&draft.grown, i), 1);
    }
    check_tokens(&b, &draft);
    teardown(&b);
}
END_TEST

/* Without blocks for the paths the chain and its planned siblings are made, and nothing after
 * these. */
START_TEST(without_blocks_there_is_no_growth)
{
    struct bench b = {0};
    struct draft_view draft;
    struct draft_cost cost;
    setup(&b, RULE_REJECTION, 1);
    propose_many(&b, b.seq, K - 1, &plan, plan_siblings, &no_ends, &draft, &cost);
    struct taken_blocks taken;
    take_all_blocks(&b, &taken);
    b.seq->n_draft_kv[0] = 0;
    propose_many(&b, b.seq, K - 1, &plan, plan_siblings, &no_ends, &draft, &cost);
    ck_assert(draft.n == K - 1 && draft.grown.n == 0 && cost.n_passes == K - 1);
    for (int i = 0; i < K - 1; i++) {
        ck_assert_int_eq(draft.n_siblings[i], plan_siblings[i]);
    }
    give_back_blocks(&b, &taken);
    teardown(&b);
}
END_TEST

/* One of the lanes has the planned tree. What the draft has read afterwards is deeper than the
 * chain. */
START_TEST(other_lanes_change_no_guess)
{
    static const struct growth *const growths[N_LANES] = {&plan, &plan, &plan};
    static const uint8_t *const siblings[N_LANES] = {plan_siblings, NULL, plan_siblings};
    struct bench b = {0};
    struct draft_view alone[N_LANES];
    int n_read[N_LANES];
    setup(&b, RULE_REJECTION, 1);
    check_company(&b, growths, siblings, alone, n_read);
    for (int i = 0; i < N_LANES; i++) {
        ck_assert_int_eq(n_read[i], K);
        ck_assert_int_gt(alone[i].grown.n, 0);
    }
    teardown(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("draft_follow");
    TCase *tcase = tcase_create("tales");
    tcase_set_timeout(tcase, 180);
    tcase_add_loop_test(tcase, guesses_follow_the_parents_that_q_prefers, 0, N_WAYS);
    tcase_add_loop_test(tcase, any_budget_is_given_out, 0, N_WAYS);
    tcase_add_loop_test(tcase, nothing_is_guessed_after_an_end, 0, N_WAYS);
    tcase_add_test(tcase, guesses_that_q_cannot_give_are_not_planned);
    tcase_add_test(tcase, without_blocks_there_is_no_growth);
    tcase_add_test(tcase, other_lanes_change_no_guess);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
