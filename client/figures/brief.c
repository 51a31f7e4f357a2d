/* The summary in three sentences: what was generated, what guesses saved, and what to try next. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "client/figures/figures.h"

static void print_text(FILE *out, const struct generate_summary *s, const struct figures *f)
{
    fprintf(out, "%d tokens after a prompt of %d", s->completion_tokens, s->prompt_tokens);
    if (isfinite(f->total_tokens_per_s)) fprintf(out, ", %.1f a second", f->total_tokens_per_s);
    fprintf(out, ", the first after %.0f ms.\n", f->first_token_ms);
}

/* Without guesses each token takes a round of its own. */
static void print_saved(const struct terminal *to, const struct generate_summary *s,
                        const struct figures *f)
{
    const struct generate_counters *c = &s->counters;
    int64_t saved = (int64_t)s->completion_tokens - c->rounds;
    if (c->drafted == 0) {
        fprintf(to->out, "No guesses were made");
        if (s->speculation_off[0]) fputs(": ", to->out);
        terminal_quoted(to, s->speculation_off, strlen(s->speculation_off));
        fprintf(to->out, "; the target took %" PRIu32 " rounds.\n", c->rounds);
        return;
    }
    fprintf(to->out,
            "Guesses saved %" PRId64 " of %d rounds of the target: %" PRIu32 " of %" PRIu32
            " guesses stayed, %.1f tokens a round.\n",
            saved > 0 ? saved : 0, s->completion_tokens, c->accepted + c->siblings_accepted,
            c->drafted + c->siblings, f->tokens_per_round);
}

/* Names commands that write a text with and without guesses. A text of rule rejection or block is
 * another one for each K. */
static void print_equal(FILE *out, const struct generate_summary *s)
{
    if (strcmp(s->rule, "greedy") == 0) {
        fputs("-K 0 writes the same text without them, ", out);
    } else if (strcmp(s->rule, "coupled") == 0) {
        fprintf(out, "--seed %" PRIu64 " -K 0 writes the same text without them, ", s->seed);
    } else {
        fprintf(out, "--rule coupled --seed %" PRIu64 " writes one text with and without them, ",
                s->seed);
    }
}

static void print_next(FILE *out, const struct generate_summary *s)
{
    bool had_guesses = s->counters.drafted > 0;
    fputs("To see more: ", out);
    if (had_guesses) fputs("--show-drafts marks the guesses, ", out);
    if (had_guesses) print_equal(out, s);
    fputs("--stats has all figures.\n", out);
}

void figures_show_brief(const struct terminal *to, const struct generate_summary *summary)
{
    const struct figures figures = figures_of(summary);
    print_text(to->out, summary, &figures);
    print_saved(to, summary, &figures);
    print_next(to->out, summary);
}
