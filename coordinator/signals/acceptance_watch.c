/* The usual acceptance against that of now. */
#include "coordinator/signals/acceptance_watch.h"

#include <math.h>
#include <stdio.h>

#include "base/least.h"
#include "base/log.h"

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static double share(const struct acceptance_sums *sums, int position)
{
    return ratio(sums->accepted[position], sums->tested[position]);
}

/* *sums becomes keep times what it was, and `more`. */
static void merge(struct acceptance_sums *sums, const struct acceptance_sums *more, double keep)
{
    for (int i = 0; i < DRAFT_MAX; i++) {
        sums->tested[i] = keep * sums->tested[i] + more->tested[i];
        sums->accepted[i] = keep * sums->accepted[i] + more->accepted[i];
    }
    sums->n_lanes = keep * sums->n_lanes + more->n_lanes;
    sums->n_greedy = keep * sums->n_greedy + more->n_greedy;
    sums->temperature = keep * sums->temperature + more->temperature;
    sums->n_prompt = keep * sums->n_prompt + more->n_prompt;
    sums->n_texts = keep * sums->n_texts + more->n_texts;
}

/* Standard errors by which fewer first guesses have stayed. */
static double errors_below(const struct acceptance_sums *usual, const struct acceptance_sums *now)
{
    double all = ratio(usual->accepted[0] + now->accepted[0], usual->tested[0] + now->tested[0]);
    double error = sqrt(all * (1 - all) * (1 / usual->tested[0] + 1 / now->tested[0]));
    return error > 0 ? (share(usual, 0) - share(now, 0)) / error : 0;
}

/* The window has ended. */
static enum acceptance_news judge(struct acceptance_watch *w)
{
    double usual = share(&w->usual, 0), now = share(&w->window, 0);
    bool is_low = w->usual.tested[0] >= ACCEPTANCE_USUAL && now < ACCEPTANCE_LOW * usual &&
                  errors_below(&w->usual, &w->window) > ACCEPTANCE_ERRORS;
    if (w->n_low == 0 && !is_low) {
        merge(&w->usual, &w->window, ACCEPTANCE_KEEP);
        return ACCEPTANCE_AS_BEFORE;
    }
    w->low = w->window;
    if (w->n_low > 0 && now > ACCEPTANCE_BACK * usual) {
        w->n_low = 0;
        return ACCEPTANCE_RECOVERED;
    }
    if (++w->n_low == 1) return ACCEPTANCE_COLLAPSED;
    if (w->n_low > ACCEPTANCE_PATIENCE) {
        w->usual = (struct acceptance_sums){0};
        w->n_low = 0;
    }
    return ACCEPTANCE_AS_BEFORE;
}

enum acceptance_news acceptance_watch_add(struct acceptance_watch *w,
                                          const struct acceptance_lane *lane)
{
    struct acceptance_sums *now = &w->window;
    if (lane->k == 0) return ACCEPTANCE_AS_BEFORE;
    now->n_texts += lane->is_first;
    now->n_lanes++;
    now->n_greedy += !(lane->temperature > 0);
    now->temperature += (double)lane->temperature;
    now->n_prompt += lane->n_prompt;
    for (int i = 0; i < least(lane->k, DRAFT_MAX) && i <= lane->n_accepted; i++) {
        now->tested[i]++;
        now->accepted[i] += i < lane->n_accepted;
    }
    if (now->tested[0] < ACCEPTANCE_WINDOW || now->n_texts < ACCEPTANCE_TEXTS) {
        return ACCEPTANCE_AS_BEFORE;
    }
    enum acceptance_news news = judge(w);
    w->window = (struct acceptance_sums){0};
    return news;
}

/* "0.62 0.55 0.51" of the first positions that were tested. */
static void show_shares(const struct acceptance_sums *sums, char text[8 * ACCEPTANCE_SHOWN])
{
    int len = 0;
    text[0] = '\0';
    for (int i = 0; i < ACCEPTANCE_SHOWN && sums->tested[i] >= 1; i++) {
        len += snprintf(text + len, (size_t)(8 * ACCEPTANCE_SHOWN - len), "%s%.2f", i ? " " : "",
                        share(sums, i));
    }
}

const char *acceptance_watch_show(const struct acceptance_watch *w, enum acceptance_news news,
                                  char text[ACCEPTANCE_BYTES])
{
    const struct acceptance_sums *usual = &w->usual, *now = &w->low;
    char before[8 * ACCEPTANCE_SHOWN], after[8 * ACCEPTANCE_SHOWN];
    show_shares(usual, before);
    show_shares(now, after);
    snprintf(text, ACCEPTANCE_BYTES,
             "%s: by position %s of the guesses stay, before %s; over %.0f tests and %.0f texts; "
             "greedy %.0f %% of rounds, before %.0f %%; mean temperature %.2f, before %.2f; mean "
             "prompt of %.0f tokens, before %.0f",
             news == ACCEPTANCE_COLLAPSED ? "far fewer guesses stay than before"
                                          : "as many guesses stay as before",
             after, before, now->tested[0], now->n_texts, 100 * ratio(now->n_greedy, now->n_lanes),
             100 * ratio(usual->n_greedy, usual->n_lanes), ratio(now->temperature, now->n_lanes),
             ratio(usual->temperature, usual->n_lanes), ratio(now->n_prompt, now->n_lanes),
             ratio(usual->n_prompt, usual->n_lanes));
    return text;
}

void acceptance_watch_note(struct acceptance_watch *w, const char *drafter,
                           const struct acceptance_lane *lane)
{
    char text[ACCEPTANCE_BYTES];
    enum acceptance_news news = acceptance_watch_add(w, lane);
    if (news == ACCEPTANCE_AS_BEFORE) return;
    bool is_bad = news == ACCEPTANCE_COLLAPSED;
    log_line(is_bad ? LOG_LEVEL_WARN : LOG_LEVEL_INFO,
             is_bad ? "acceptance_collapsed" : "acceptance_recovered", "drafter=%s text=\"%s\"",
             drafter, acceptance_watch_show(w, news, text));
}
