/* ctest: labels=quick libs=coordinator timeout=200 */
/* The coins of guesses after siblings, by how often two guesses for one place are equal. */
#include <math.h>
#include <stdio.h>

#include "tests/support/draft_growth.h"

/* After both siblings of the first guess, and after one of these. */
static const struct growth plan = {.n = 4, .parents = {-1, -1, -2, 0}};

/* Two guesses for one place: of the growth, or the chain's, which is named OF_CHAIN. */
enum { OF_CHAIN = -1 };

static const struct {
    const char *name;
    int one, other;
} twos[] = {{"the chain and after sibling 0", 0, OF_CHAIN},
            {"the chain and after sibling 1", 2, OF_CHAIN},
            {"after siblings 0 and 1", 0, 2},
            {"the chain and deeper", 3, OF_CHAIN}};
enum { N_TWOS = sizeof twos / sizeof *twos };

static const struct sparse_dist *q_of(const struct draft_view *draft, int guess, int place)
{
    return guess == OF_CHAIN ? &draft->q[place] : &draft->grown_q[guess];
}

/* The chance that tokens of both are equal where their coins are independent. */
static double equal_chance(const struct sparse_dist *one, const struct sparse_dist *other)
{
    double chance = 0;
    for (int i = 0; i < one->n; i++) {
        chance += (double)one->p[i] * (double)sparse_prob(other, one->ids[i]);
    }
    return chance;
}

/* As equal_chance, where they have one coin: of the interval in which it draws an id for one of
 * them, the part in which it does so for the other. Ids ascend in both. */
static double same_coin_chance(const struct sparse_dist *one, const struct sparse_dist *other)
{
    double chance = 0, begin = 0, other_begin = 0;
    for (int i = 0, j = 0; i < one->n && j < other->n;) {
        bool is_first = one->ids[i] <= other->ids[j], is_second = other->ids[j] <= one->ids[i];
        double end = begin + (double)one->p[i], other_end = other_begin + (double)other->p[j];
        if (is_first && is_second) {
            chance += fmax(fmin(end, other_end) - fmax(begin, other_begin), 0);
        }
        if (is_first) begin = end, i++;
        if (is_second) other_begin = other_end, j++;
    }
    return chance;
}

/* Over many seeds two guesses for one place are equal as often as if they had nothing to do with
 * each other: no coin of a guess after a sibling is that of the chain or of another one. */
START_TEST(each_guess_has_a_coin_of_its_own)
{
    enum { SEEDS = 4000 };
    struct bench b = {0};
    int n_equal[N_TWOS] = {0};
    double expected[N_TWOS] = {0}, same_coin[N_TWOS] = {0};
    setup(&b, RULE_REJECTION, 1);
    for (int seed = 0; seed < SEEDS; seed++) {
        struct draft_view draft;
        struct draft_cost cost;
        b.seq->seed = (uint64_t)seed;
        b.seq->n_draft_kv[0] = N_PROMPT - 1;
        arena_reset(&b.arena);
        propose(&b, b.seq, &plan, &no_ends, &draft, &cost);
        ck_assert_int_eq(draft.grown.n, plan.n);
        for (int i = 0; i < N_TWOS; i++) {
            int place = growth_place(&plan, twos[i].one);
            int32_t other =
                twos[i].other == OF_CHAIN ? draft.tokens[place] : draft.grown_tokens[twos[i].other];
            n_equal[i] += draft.grown_tokens[twos[i].one] == other ? 1 : 0;
            const struct sparse_dist *q = q_of(&draft, twos[i].one, place),
                                     *other_q = q_of(&draft, twos[i].other, place);
            expected[i] += equal_chance(q, other_q);
            same_coin[i] += same_coin_chance(q, other_q);
        }
    }
    for (int i = 0; i < N_TWOS; i++) {
        double bound = 4 * (1 + sqrt(expected[i]));
        printf("%-32s equal %3d times of %d, %.1f by chance, %.1f with one coin\n", twos[i].name,
               n_equal[i], SEEDS, expected[i], same_coin[i]);
        ck_assert_double_le(fabs(n_equal[i] - expected[i]), bound);
        ck_assert_double_gt(same_coin[i] - expected[i], 2 * bound);
    }
    teardown(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("draft_coins");
    TCase *tcase = tcase_create("tales");
    tcase_set_timeout(tcase, 180);
    tcase_add_test(tcase, each_guess_has_a_coin_of_its_own);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
