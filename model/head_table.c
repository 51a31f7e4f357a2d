/* Counting and comparing the readings of a head. */
#include "model/head_table.h"

#include <math.h>
#include <stdio.h>

static int leading(uint8_t right)
{
    int n = 0;
    while (n < HEAD_TABLE_GUESSES && right >> n & 1) {
        n++;
    }
    return n;
}

/* P(X >= n_won) of n throws of a coin. */
static double tail(int n, int n_won)
{
    double sum = 0;
    if (n_won <= 0) return 1;
    for (int i = n_won; i <= n; i++) {
        sum += exp(lgamma(n + 1.0) - lgamma(i + 1.0) - lgamma(n - i + 1.0) - n * log(2.0));
    }
    return sum < 1 ? sum : 1;
}

void head_table_count(struct head_table *table, int trial, const uint8_t *right,
                      const float *scores, const float *first_scores)
{
    struct head_trial *t = &table->trials[trial];
    double sum = 0;
    int n_scored = 0;
    t->n_better = t->n_worse = 0;
    for (int s = 0; s < HEAD_TABLE_GUESSES; s++) {
        t->n_right[s] = t->n_kept[s] = 0;
    }
    for (int i = 0; i < table->n_starts; i++) {
        int n = leading(right[i]);
        for (int s = 0; s < HEAD_TABLE_GUESSES; s++) {
            t->n_right[s] += right[i] >> s & 1;
            t->n_kept[s] += s < n;
        }
        if (isfinite(scores[i])) {
            sum += (double)scores[i];
            n_scored++;
        }
        t->n_better += scores[i] > first_scores[i];
        t->n_worse += scores[i] < first_scores[i];
    }
    t->score = n_scored ? sum / n_scored : -HUGE_VAL;
}

/* Finds the best score among the readings whose first guesses are right as often as those of any
 * other, or nearly so. Some readings make a head surer of itself than others, so a score is no
 * reason to take one that guesses worse. */
static int find_best(const struct head_table *table)
{
    int n_most = 0, best = -1;
    for (int i = 0; i < table->n_trials; i++) {
        if (table->trials[i].n_right[0] > n_most) n_most = table->trials[i].n_right[0];
    }
    for (int i = 0; i < table->n_trials; i++) {
        const struct head_trial *t = &table->trials[i];
        if (t->n_right[0] < HEAD_TABLE_NEARLY * n_most) continue;
        if (best < 0 || t->score > table->trials[best].score) best = i;
    }
    return best;
}

void head_table_choose(struct head_table *table)
{
    for (int i = 0; i < table->n_trials; i++) {
        struct head_trial *t = &table->trials[i];
        t->chance = tail(t->n_better + t->n_worse, t->n_better);
    }
    int best = find_best(table);
    /* Whichever of several readings is best is compared, so each may be lucky. */
    double most = HEAD_TABLE_CHANCE / (table->n_trials > 1 ? table->n_trials - 1 : 1);
    bool is_sure = table->is_open || best == 0 || table->trials[best].chance <= most;
    table->chosen = is_sure ? best : 0;
    table->is_undecided = !is_sure && table->trials[best].chance <= HEAD_TABLE_DOUBT;
}

double head_trial_agreement(const struct head_table *table, int trial, int guess)
{
    if (table->n_starts == 0) return 0;
    return (double)table->trials[trial].n_right[guess] / table->n_starts;
}

double head_trial_alpha(const struct head_table *table, int trial, int guess)
{
    const int *kept = table->trials[trial].n_kept;
    int n_tested = guess ? kept[guess - 1] : table->n_starts;
    return n_tested ? (double)kept[guess] / n_tested : 0;
}

enum head_verdict head_table_verdict(const struct head_table *table)
{
    double share = head_trial_agreement(table, table->chosen, 0);
    return share < HEAD_TABLE_WRONG  ? HEAD_WRONG
           : share < HEAD_TABLE_WEAK ? HEAD_WEAK
                                     : HEAD_PROVEN;
}

const char *head_trial_show(const struct head_table *table, int trial, char text[HEAD_TRIAL_BYTES])
{
    const struct head_trial *t = &table->trials[trial];
    int len = snprintf(text, HEAD_TRIAL_BYTES, "%s", t->reading.name);
    for (int i = 0; i < t->reading.n; i++) {
        len +=
            snprintf(text + len, (size_t)(HEAD_TRIAL_BYTES - len), " %d", t->reading.boundaries[i]);
    }
    if (table->has_norm_choice) {
        len += snprintf(text + len, (size_t)(HEAD_TRIAL_BYTES - len), ", norm_before_residual=%s",
                        t->keeps_normed ? "true" : "false");
    }
    int n_shown = table->n_places ? least(table->n_places, HEAD_TABLE_GUESSES) : HEAD_TABLE_GUESSES;
    for (int s = 0; s < n_shown; s++) {
        len += snprintf(text + len, (size_t)(HEAD_TRIAL_BYTES - len), "%s%.3f", s ? " " : ": ",
                        head_trial_agreement(table, trial, s));
    }
    snprintf(text + len, (size_t)(HEAD_TRIAL_BYTES - len), " of %d", table->n_starts);
    return text;
}
