/* The summary as a block of lines: a word, then the figures in aligned columns. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "client/figures/figures.h"

static void begin_line(FILE *out, const char *word)
{
    fprintf(out, "%-12s", word);
}

/* Prints a number, or - when it is not known. */
static void put(FILE *out, int decimals, double number)
{
    if (isfinite(number)) {
        fprintf(out, "%.*f", decimals, number);
    } else {
        fputc('-', out);
    }
}

/* Prints a word that the server sent, which may hold anything. */
static void put_word(const struct terminal *terminal, const char *word)
{
    terminal_quoted(terminal, word, strlen(word));
}

static void print_tokens(const struct terminal *to, const struct generate_summary *s)
{
    FILE *out = to->out;
    begin_line(out, "tokens");
    fprintf(out, "%d after a prompt of %d, ended by ", s->completion_tokens, s->prompt_tokens);
    if (strcmp(s->finish_reason, "stop") != 0) {
        put_word(to, s->finish_reason);
    } else if (s->stop_match[0]) {
        fputs("the stop string \"", out);
        put_word(to, s->stop_match);
        fputc('"', out);
    } else {
        fputs("the end of sequence", out);
    }
    fputc('\n', out);
}

static void print_rounds(FILE *out, const struct generate_summary *s, const struct figures *f)
{
    begin_line(out, "rounds");
    fprintf(out, "%" PRIu32 ", ", s->counters.rounds);
    put(out, 2, f->tokens_per_round);
    fputs(" tokens per round\n", out);
}

static void print_acceptance(const struct terminal *to, const struct generate_summary *s,
                             const struct figures *f)
{
    FILE *out = to->out;
    const struct generate_counters *c = &s->counters;
    if (c->drafted == 0) {
        begin_line(out, "drafts");
        fputs("none", out);
        if (s->speculation_off[0]) fputs(": ", out);
        put_word(to, s->speculation_off);
        fputc('\n', out);
        return;
    }
    begin_line(out, "alpha");
    put(out, 3, f->alpha);
    fprintf(out, " (%" PRIu32 " guesses stayed, %" PRIu32 " were rejected), draft efficiency ",
            c->accepted, c->rejections);
    put(out, 3, f->draft_efficiency);
    fprintf(out, " (%" PRIu32 " drafted, %" PRIu32 " of them found in texts)\n", c->drafted,
            c->found);
    if (c->staged > 0) {
        begin_line(out, "staged");
        fprintf(out, "%" PRIu32 " guesses without a pass of their own\n", c->staged);
    }
    if (c->siblings > 0) {
        begin_line(out, "siblings");
        fprintf(out, "%" PRIu32 " more guesses, %" PRIu32 " stayed\n", c->siblings,
                c->siblings_accepted);
    }
    begin_line(out, "by position");
    for (int i = 0; i < f->n_positions; i++) {
        if (i > 0) fputc(' ', out);
        put(out, 2, f->acceptance_at[i]);
    }
    fputc('\n', out);
}

static void print_speed(FILE *out, const struct generate_summary *s, const struct figures *f)
{
    begin_line(out, "speed");
    put(out, 1, f->decode_tokens_per_s);
    fputs(" tokens/s decoding, ", out);
    put(out, 1, f->total_tokens_per_s);
    fputs(" in total; first token after ", out);
    put(out, 1, f->first_token_ms);
    fprintf(out, " ms (%.1f of them queued)\n", (double)s->counters.queue_us / 1e3);
}

static void print_round_time(FILE *out, const struct figures *f)
{
    static const char *const names[N_PARTS] = {"draft", "wire", "verify", "collective", "accept"};
    if (!isfinite(f->round_us)) return;
    begin_line(out, "round");
    fprintf(out, "%.0f us mean: ", f->round_us);
    for (int i = 0; i < N_PARTS; i++) {
        fprintf(out, "%s%s %.0f (%.0f %%)", i ? ", " : "", names[i], f->part_us[i],
                isfinite(f->part_ratio[i]) ? 100 * f->part_ratio[i] : 0.0);
    }
    fputc('\n', out);
}

static void print_wire(FILE *out, const struct generate_summary *s, const struct figures *f)
{
    const struct generate_counters *c = &s->counters;
    if (c->rows == 0) return;
    begin_line(out, "wire");
    put(out, 0, f->bytes_per_position);
    fprintf(out, " bytes per position, %" PRIu64 " positions, %" PRIu64 " asked for more\n",
            c->rows, c->more_rows);
}

static void print_rule(const struct terminal *to, const struct generate_summary *s)
{
    FILE *out = to->out;
    begin_line(out, "rule");
    put_word(to, s->rule);
    fprintf(out, ", seed %" PRIu64 ", arithmetic ", s->seed);
    put_word(to, s->arithmetic);
    fputs(", request ", out);
    put_word(to, s->request_id);
    fputc('\n', out);
}

static void print_strategy(const struct terminal *to, const struct generate_summary *s,
                           const struct figures *f)
{
    FILE *out = to->out;
    bool is_fixed = s->strategy == STRATEGY_FIXED || s->strategy == STRATEGY_DEFAULT;
    begin_line(out, "strategy");
    fputs(strategy_names[s->strategy], out);
    if (s->strategy == STRATEGY_THRESHOLD) fprintf(out, " %g", (double)s->threshold);
    fprintf(out, is_fixed ? ", K %d, mean K " : ", K up to %d, mean K ", s->n_draft);
    put(out, 2, f->mean_k);
    if (s->counters.drafted > 0 && s->speculation_off[0]) {
        fputs("; then none: ", out);
        put_word(to, s->speculation_off);
    }
    fputc('\n', out);
}

static void print_estimates(FILE *out, const struct estimates *e, const struct figures *f)
{
    if (e->n_rounds == 0) return;
    begin_line(out, "planner");
    fprintf(out, "guess %.0f us, step %.0f us and %.0f for each further row, rest %.0f us",
            (double)e->draft_us, (double)e->step_us, (double)e->row_us, (double)e->rtt_us);
    for (int i = 0; i < e->n_positions; i++) {
        fprintf(out, "%s%.2f", i ? " " : "; alpha ", (double)e->alpha_at[i]);
    }
    if (isfinite(f->predicted_ratio))
        fprintf(out, "; rounds predicted at %.2f of their time", f->predicted_ratio);
    fputc('\n', out);
}

static void print_prompt(FILE *out, const struct generate_summary *s, const struct figures *f)
{
    const struct generate_counters *c = &s->counters;
    begin_line(out, "prompt");
    fprintf(out, "%" PRIu32 " of its %d tokens reused by the target, %" PRIu32 " by the draft",
            c->target_reused, s->prompt_tokens, c->draft_reused);
    if (c->preemptions) fprintf(out, "; preempted %" PRIu32 " times", c->preemptions);
    fputc('\n', out);
    if (!isfinite(f->batch_size)) return;
    begin_line(out, "batch");
    put(out, 1, f->batch_size);
    fputs(" sequences and ", out);
    put(out, 1, f->rows_per_step);
    fputs(" rows in a step, itself included\n", out);
}

void figures_show(const struct terminal *to, const struct generate_summary *summary)
{
    const struct figures figures = figures_of(summary);
    FILE *out = to->out;
    print_tokens(to, summary);
    print_prompt(out, summary, &figures);
    print_rounds(out, summary, &figures);
    print_acceptance(to, summary, &figures);
    print_strategy(to, summary, &figures);
    print_speed(out, summary, &figures);
    print_round_time(out, &figures);
    print_wire(out, summary, &figures);
    print_estimates(out, &summary->estimates, &figures);
    print_rule(to, summary);
}

void figures_print(FILE *out, const struct generate_summary *summary)
{
    const struct terminal terminal = terminal_of(out);
    figures_show(&terminal, summary);
}
