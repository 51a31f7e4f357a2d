/* ctest: labels=quick libs=coordinator timeout=120 */
/* The planner over simulated texts of known acceptance and cost, with noise and hiccups in what it is
 * shown. Its speed is held against that of the best fixed K and of plain decoding on the same texts; all
 * are counted with the true times, so that a hiccup harms only who is fooled by it. Seeds are fixed: a run
 * repeats itself. */
#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "coordinator/planner.h"
#include "tests/check_util.h"

enum { N_TEXTS = 100, N_PROMPT = 100, STEP_US = 20000 };

/* A pair of models on a machine; times over that of a plain step. */
struct world {
    const char *name;
    double alpha[2]; /* of the first half of a text and of the second */
    double fade;     /* each position stays so much more seldom than the one before */
    double c, row, rtt, read;
    int free_rows; /* beyond these each row costs `row` */
    int k_max, n_tokens;
    double noise, hiccups; /* spread of a time; chance that it is 20 times as long */
};

static const struct world worlds[] = {
    {"alpha 0.8, cheap draft", {0.8, 0.8}, 1, 0.03, 0.01, 0.02, 0.002, 6, 16, 400, 0.05, 0.01},
    {"alpha 0.8", {0.8, 0.8}, 1, 0.1, 0.02, 0.02, 0.005, 6, 16, 400, 0.05, 0.01},
    {"alpha 0.9", {0.9, 0.9}, 1, 0.1, 0.02, 0.02, 0.005, 6, 16, 400, 0.05, 0.01},
    {"alpha 0.6", {0.6, 0.6}, 1, 0.1, 0.02, 0.02, 0.005, 6, 16, 400, 0.05, 0.01},
    {"alpha 0.3", {0.3, 0.3}, 1, 0.1, 0.02, 0.02, 0.005, 6, 16, 400, 0.05, 0.01},
    {"alpha 0.6, dear draft", {0.6, 0.6}, 1, 0.4, 0.02, 0.02, 0.02, 6, 16, 400, 0.05, 0.01},
    {"alpha 0.95, rows cost", {0.95, 0.95}, 1, 0.05, 0.1, 0.05, 0.005, 1, 16, 400, 0.1, 0.02},
    {"long way", {0.7, 0.7}, 1, 0.1, 0.02, 2, 0.005, 6, 16, 400, 0.1, 0.02},
    {"a step of rows", {0.85, 0.85}, 1, 0.05, 0.3, 0.02, 0.005, 8, 16, 400, 0.05, 0.01},
    {"K is 1 at most", {0.8, 0.8}, 1, 0.1, 0.02, 0.02, 0.005, 6, 1, 400, 0.05, 0.01},
    {"fades with position", {0.9, 0.9}, 0.8, 0.1, 0.02, 0.02, 0.005, 6, 16, 400, 0.05, 0.01},
    {"turns hard", {0.9, 0.05}, 1, 0.15, 0.02, 0.02, 0.005, 6, 16, 800, 0.05, 0.01},
    {"turns easy", {0.05, 0.9}, 1, 0.15, 0.02, 0.02, 0.005, 6, 16, 800, 0.05, 0.01},
    {"alpha 0", {0, 0}, 1, 0.1, 0.02, 0.02, 0.005, 6, 16, 400, 0.05, 0.01},
    {"alpha 0, cheap draft", {0, 0}, 1, 0.02, 0.01, 0.02, 0.001, 6, 16, 400, 0.05, 0.01},
    {"alpha 0, dear draft", {0, 0}, 1, 0.5, 0.05, 0.02, 0.05, 1, 16, 400, 0.1, 0.02},
    {"alpha 0.05", {0.05, 0.05}, 1, 0.1, 0.02, 0.02, 0.005, 6, 16, 400, 0.05, 0.01},
    {"alpha as c", {0.2, 0.2}, 1, 0.2, 0.02, 0.02, 0.005, 6, 16, 400, 0.05, 0.01},
};
enum { N_WORLDS = sizeof worlds / sizeof *worlds };

static uint64_t n_coins;

static double coin(void)
{
    const struct rng_address at = {2026, (uint32_t)(n_coins >> 32), (uint32_t)n_coins};
    n_coins++;
    return rng_uniform(&at, RNG_ACCEPT, 0);
}

/* A sum of coins is normal enough; hiccups come on top. */
static int64_t measured_us(const struct world *w, double true_us)
{
    double z = -6;
    for (int i = 0; i < 12; i++) {
        z += coin();
    }
    double us = true_us * fmax(1 + w->noise * z, 0.2);
    return (int64_t)(coin() < w->hiccups ? 20 * us : us);
}

/* What a text took, in true times. */
struct tally {
    double us;
    double n_tokens, n_rounds, n_guesses;
};

static int accepted(const struct world *w, double progress, int k)
{
    double alpha = w->alpha[progress >= 0.5];
    int n = 0;
    while (n < k && coin() < alpha) {
        n++;
        alpha *= w->fade;
    }
    return n;
}

static double step_us(const struct world *w, int rows)
{
    return STEP_US * (1 + w->row * (rows > w->free_rows ? rows - w->free_rows : 0));
}

/* One text; the planner sees noisy times. p NULL: K is k_fixed. */
static void run_text(const struct world *w, struct planner *p, int k_fixed, struct tally *tally)
{
    struct planner_sequence seq = {.strategy = STRATEGY_PLANNED};
    int n_tokens = N_PROMPT, end = N_PROMPT + w->n_tokens, n_draft_kv = 0;
    while (n_tokens < end) {
        int room = end - n_tokens - 1, missed = n_tokens - n_draft_kv;
        const struct planner_ask ask = {w->k_max < room ? w->k_max : room, missed, end - n_tokens};
        int k = p ? planner_choose(p, &seq, &ask) : k_fixed < room ? k_fixed : room;
        int n = accepted(w, (double)(n_tokens - N_PROMPT) / w->n_tokens, k);
        double draft = k ? k * w->c + (missed > 2 ? (missed - 2) * w->read : 0) : 0;
        double step = step_us(w, k + 1), rest = STEP_US * w->rtt;
        struct planner_round round = {.k = k,
                                      .n_accepted = n,
                                      .n_missed = missed,
                                      .is_timed = n_tokens > N_PROMPT,
                                      .draft_us = measured_us(w, STEP_US * draft),
                                      .step_us = measured_us(w, step)};
        round.round_us = round.draft_us + round.step_us + measured_us(w, rest);
        if (p) planner_observe(p, &seq, &round);
        if (k) n_draft_kv = n < k ? n_tokens + n : n_tokens + k - 1;
        n_tokens += n + 1;
        tally->us += STEP_US * draft + step + rest;
        tally->n_rounds++;
        tally->n_guesses += k;
    }
    tally->n_tokens += w->n_tokens;
}

static double speed(const struct tally *tally)
{
    return tally->n_tokens / tally->us;
}

static double fixed_speed(const struct world *w, int k)
{
    struct tally tally = {0};
    for (int i = 0; i < N_TEXTS; i++) {
        run_text(w, NULL, k, &tally);
    }
    return speed(&tally);
}

static double best_fixed_speed(const struct world *w, int *best)
{
    double most = 0;
    for (int k = 0; k <= w->k_max; k++) {
        double now = fixed_speed(w, k);
        if (now > most) {
            most = now;
            *best = k;
        }
    }
    return most;
}

START_TEST(planned_is_nearly_the_best_fixed_k_and_never_slower_than_plain)
{
    const struct world *w = &worlds[_i];
    struct planner planner = {0};
    struct tally first = {0}, later = {0}, fresh = {0};
    int best = 0;
    double most = best_fixed_speed(w, &best), plain = fixed_speed(w, 0);
    run_text(w, &planner, 0, &first);
    for (int i = 0; i < N_TEXTS; i++) {
        struct planner unknowing = {0};
        run_text(w, &planner, 0, &later);
        run_text(w, &unknowing, 0, &fresh);
    }
    double of_best = speed(&later) / most, of_plain = speed(&later) / plain,
           fresh_of_plain = speed(&fresh) / plain;
    printf(
        "%-24s best fixed K %2d is %.2f of plain; planned %.3f of the best (mean K %.2f), %.3f of "
        "plain; new coordinator %.3f of the best, %.3f of plain\n",
        w->name, best, most / plain, of_best, later.n_guesses / later.n_rounds, of_plain,
        speed(&fresh) / most, fresh_of_plain);
    fflush(stdout);
    ck_assert_msg(of_best >= 0.97, "%s: %.3f of the best fixed K", w->name, of_best);
    ck_assert_msg(of_plain >= 0.98, "%s: %.3f of plain", w->name, of_plain);
    ck_assert_msg(fresh_of_plain >= 0.98, "%s: %.3f of plain, new", w->name, fresh_of_plain);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("planner");
    TCase *tcase = tcase_create("simulated");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, planned_is_nearly_the_best_fixed_k_and_never_slower_than_plain, 0,
                        N_WORLDS);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
