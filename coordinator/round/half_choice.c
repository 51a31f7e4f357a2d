#include "coordinator/round/half_choice.h"

#include <string.h>

/* Counts of steps. */
enum {
    TRIALS = 32, /* of each kind before the two are compared */
    FIRST = 6,   /* after which a trial ends that goes badly */
    MEMORY = 64, /* over which means run */
    /* In PROBE_STEPS so many are of the kind that was measured to be slower. */
    BLOCK = 8,
    PROBE_STEPS = 4096
};

/* Ratio of the times of a token: halves must be this much better, because smaller differences are
 * mostly noise. */
static const double worth_ratio = 0.97;
/* Predictions know nothing of cores that draft and target share, so they must promise more. */
static const double promise_ratio = 0.95;
/* A trial in which tokens take so much longer is not worth its cost. */
static const double bad_ratio = 1.05;
/* Times the mean: a longer step counts as so long. */
static const double outlier_ratio = 2;

double half_choice_ratio(const struct half_choice_times *t)
{
    double half_us = t->half_step_us + t->half_rest_us;
    if (half_us < t->half_draft_us) half_us = t->half_draft_us;
    return 2 * half_us / (t->step_us + t->rest_us + t->draft_us);
}

void half_choice_forget(struct half_choice *h)
{
    memset(h->paces, 0, sizeof h->paces);
    h->last_us = 0;
}

static int size_of(int n_lanes)
{
    int size = 0;
    while (n_lanes > 1 && size < HALF_CHOICE_SIZES - 1) {
        n_lanes /= 2;
        size++;
    }
    return size;
}

static double token_us(const struct half_choice_pace *pace)
{
    return pace->us / pace->n_tokens;
}

static void add_step(struct half_choice_pace *pace, double us, int n_tokens)
{
    double most = outlier_ratio * pace->us;
    int n = pace->n < MEMORY ? ++pace->n : MEMORY;
    if (n > 1 && us > most) us = most;
    pace->us += (us - pace->us) / n;
    pace->n_tokens += (n_tokens - pace->n_tokens) / n;
}

bool half_choice_make(struct half_choice *h, int n_lanes, double predicted_ratio)
{
    const struct half_choice_pace *whole = &h->paces[size_of(n_lanes)][0], *halved = whole + 1;
    if (h->mode != HALF_BATCHES_AUTO) return h->mode == HALF_BATCHES_ON;
    h->n_rounds++;
    if (!(predicted_ratio > 0 && predicted_ratio < promise_ratio)) return false;
    if (whole->n < TRIALS) return false;
    if (halved->n < FIRST) return true;
    double ratio = token_us(halved) / token_us(whole);
    bool is_better = halved->n < TRIALS ? ratio < bad_ratio : ratio < worth_ratio;
    return h->n_rounds % PROBE_STEPS < BLOCK ? !is_better : is_better;
}

void half_choice_observe(struct half_choice *h, int n_lanes, bool is_halved, bool is_steady,
                         int n_tokens, int64_t now_us)
{
    int size = size_of(n_lanes);
    bool follows = is_steady && h->last_us > 0 && h->last_size == size &&
                   h->last_halved == is_halved && n_tokens > 0;
    if (follows) {
        add_step(&h->paces[size][is_halved], (double)(now_us - h->last_us), n_tokens);
    }
    h->last_us = now_us;
    h->last_size = size;
    h->last_halved = is_halved;
}
