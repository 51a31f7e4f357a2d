/* Adds up the results of requests. */
#include "client/bench/tally.h"

#include <string.h>

void tally_begin(struct tally *tally)
{
    memset(tally, 0, sizeof *tally);
    tally->n_draft = -1;
}

void tally_add_summary(struct tally *tally, const struct generate_summary *summary)
{
    const struct generate_counters *c = &summary->counters;
    figures_add(&tally->sum, summary);
    tally->n_summaries++;
    tally->n_draft = summary->n_draft;
    tally->strategy = summary->strategy;
    histogram_add(&tally->queue, c->queue_us);
    if (c->rounds > 1) { /* overhead is measured in rounds after the first */
        histogram_add(&tally->overhead_p50, c->overhead_p50_us);
        histogram_add(&tally->overhead_p99, c->overhead_p99_us);
    }
}

void tally_add_done(struct tally *tally, int64_t request_us)
{
    tally->n_done++;
    histogram_add(&tally->request, (uint64_t)request_us);
}

void tally_add_gap(struct tally *tally, int64_t gap_us, int n_tokens)
{
    histogram_add(&tally->message_gap, (uint64_t)gap_us);
    for (int i = 0; i < n_tokens; i++)
        histogram_add(&tally->token_gap, (uint64_t)gap_us / (uint64_t)n_tokens);
}

static void add_error(struct tally *tally, const char *text, int n)
{
    int i = 0;
    while (i < tally->n_errors && strcmp(tally->errors[i].text, text) != 0) {
        i++;
    }
    if (i == TALLY_ERRORS_MAX) i--;
    if (i == tally->n_errors) {
        memcpy(tally->errors[i].text, text, strlen(text) + 1);
        tally->n_errors++;
    }
    tally->errors[i].n += n;
}

void tally_add_failure(struct tally *tally, const struct error *err)
{
    tally->n_failed++;
    add_error(tally, err->text, 1);
}

void tally_merge_errors(struct tally *into, const struct tally *from)
{
    into->n_done += from->n_done;
    into->n_failed += from->n_failed;
    for (int i = 0; i < from->n_errors; i++)
        add_error(into, from->errors[i].text, from->errors[i].n);
}
