/* Measures the cost of answering a row: rows of logits of a large vocabulary in 8 slices, asked as
 * each rule asks, by one thread and by a team, as a worker does it after a step, then merged as the
 * coordinator does it.
 *
 *   bench_rows [--vocab N,N,...] [--rows N] [--threads N] [--pairs N]
 *
 * For every vocabulary and question it prints microseconds per row on one thread and on the team,
 * and the ratio of both rates. `flat` rows spread their mass over tens of thousands of tokens,
 * `peaked` ones have one token with most of it. Then the cut of top-p 0.95 in a flat row: asked in
 * two questions by buckets (speculation/rows/cut.h), and, for comparison, by best(64), (256),
 * (1024) and so on until the cut is certain, with the bytes that both answer. Ratios are medians of
 * pairs of slices of time with quartiles (bench_util.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/memory.h"
#include "bench/bench_util.h"
#include "bench/options.h"
#include "model/logits/answer.h"
#include "proto/target_wire.h"
#include "speculation/accept/rules.h"
#include "speculation/rows/check.h"

enum {
    SLICES = 8,
    VOCABS_MAX = 8,
    ROWS_MAX = 64,
    VOCAB_MAX = 1 << 20,
    SUPPORT = 64,
    SLICE_US = 60000,
    SPIN_US = 1000,
    MORE_FACTOR = 4,
    ARENA_BYTES = 1 << 30
};

static int32_t vocabs[VOCABS_MAX] = {32000, 128256};
static int n_vocabs = 2, n_rows = 4, n_threads = 2, n_pairs = 20;

static struct arena arena, merge_arena;
static float *flat, *peaked; /* one row each */
static int32_t support[SUPPORT];
static float support_q[SUPPORT];
static const struct sparse_dist q = {SUPPORT, support, support_q};
static const struct sampling_params plain = {.temperature = 1, .top_p = 1};
static const struct sampling_params nucleus = {.temperature = 1, .top_p = 0.95f};
static const struct sampling_params top_50 = {.temperature = 1, .top_p = 1, .top_k = 50};

static void give_up(const struct error *err)
{
    fprintf(stderr, "bench_rows: %s\n", err->text);
    exit(EXIT_FAILURE);
}

/* One question about every row, by a team or, without one, by the caller alone. */
struct question {
    const char *name;
    const float *logits;
    int n_vocab;
    struct target_want want;
    struct team *team;
    bool by_best; /* of a cut: asks for more of the best instead of by buckets */
    size_t bytes; /* of a row's answers so far */
};

static int place_items(const struct question *question, const struct row_wish *wish,
                       struct answer_item *items)
{
    int n = 0;
    for (int r = 0; r < n_rows; r++) {
        for (int s = 0; s < SLICES; s++) {
            struct answer_item *item = &items[n++];
            *item = (struct answer_item){.slice = s, .wish = wish};
            row_slice_range(question->n_vocab, SLICES, s, &item->first_id, &item->n_cols);
            item->logits = question->logits + item->first_id;
        }
    }
    return n;
}

static void ask(struct question *question, const struct row_wish *wish, struct slice_row *slices)
{
    struct answer_item items[ROWS_MAX * SLICES];
    int n = place_items(question, wish, items);
    answer_items(question->team, items, n, &arena, slices);
    const struct row_reply row = {.n_slices = SLICES, .slices = slices};
    question->bytes += row_reply_bytes(&row);
    struct error err;
    if (slices[0].code && row_slice_failure(&slices[0], wish, &err)) give_up(&err);
}

/* An arm: the first question alone. */
static double run_first(void *arg)
{
    struct question *question = arg;
    struct slice_row slices[ROWS_MAX * SLICES];
    struct row_wish wish;
    arena_reset(&arena);
    target_row_wish(&question->want, &wish);
    ask(question, &wish, slices);
    return n_rows;
}

/* Merges every row. True: the cut is not certain, and *wish is the next question. */
static bool merge_rows(const struct question *question, struct slice_row *slices,
                       const struct row_wish *asked, struct row_wish *wish)
{
    bool more = false;
    for (int r = 0; r < n_rows; r++) {
        const struct target_slices all = {slices + r * SLICES, SLICES, question->n_vocab};
        struct target_row row;
        struct error err;
        *wish = *asked;
        if (target_row_merge(&all, &question->want, wish, &merge_arena, &row, &more, &err)) {
            give_up(&err);
        }
    }
    return more;
}

/* An arm: questions until the cut is certain, and the merged rows. */
static double run_cut(void *arg)
{
    struct question *question = arg;
    struct slice_row slices[ROWS_MAX * SLICES], before[ROWS_MAX * SLICES];
    struct row_wish wish, next;
    bool more = false;
    question->bytes = 0;
    arena_reset(&arena);
    target_row_wish(&question->want, &wish);
    if (question->by_best) wish.buckets = ROW_BUCKETS_OFF;
    for (;; wish = next, memcpy(before, slices, sizeof before)) {
        arena_reset(&merge_arena);
        ask(question, &wish, slices);
        for (int r = 0; more && !question->by_best && r < n_rows; r++) {
            struct error err;
            if (target_row_carry(before + r * SLICES, slices + r * SLICES, SLICES, &err)) {
                give_up(&err);
            }
        }
        more = merge_rows(question, slices, &wish, &next);
        if (!more) return n_rows;
        if (!question->by_best) continue;
        next = wish;
        next.n_best *= MORE_FACTOR;
    }
}

static void show(const char *name, const char *arms, const struct bench_pairs *pairs)
{
    printf("  %-26s %9.1f us %9.1f us   %s %.2f (%.2f to %.2f)\n", name, 1e6 / pairs->a.median,
           1e6 / pairs->b.median, arms, pairs->ratio.median, pairs->ratio.low, pairs->ratio.high);
}

static void compare_threads(struct question question, struct team *team, timed_arm_fn *run)
{
    struct question alone = question;
    question.team = team;
    const struct timed_arm many = {run, &question}, one = {run, &alone};
    const struct bench_pairs pairs = bench_compare(&one, &many, n_pairs, SLICE_US);
    show(question.name, "one over team", &pairs);
}

static void compare_cuts(struct question question, struct team *team)
{
    question.team = team;
    struct question old = question;
    old.by_best = true;
    const struct timed_arm by_buckets = {run_cut, &question}, by_best = {run_cut, &old};
    const struct bench_pairs pairs = bench_compare(&by_buckets, &by_best, n_pairs, SLICE_US);
    show(question.name, "buckets over best", &pairs);
    printf("  %-26s %9zu B  %9zu B\n", "", question.bytes, old.bytes);
}

/* Noise of standard deviation 1.5 or 2.5; in a peaked row one token has most of the mass. */
static void fill(int n_vocab)
{
    for (int i = 0; i < n_vocab; i++) {
        double sum = 0;
        for (uint32_t k = 0; k < 12; k++) {
            sum += rng_uniform(&(struct rng_address){.seed = 5, .position = k}, RNG_WEIGHT,
                               (uint32_t)i);
        }
        flat[i] = (float)(1.5 * (sum - 6));
        peaked[i] = (float)(2.5 * (sum - 6));
    }
    peaked[n_vocab / 3] = 22;
    for (int i = 0; i < SUPPORT; i++) {
        support[i] = i * (n_vocab / SUPPORT);
        support_q[i] = 1.0f / SUPPORT;
    }
}

static struct question question_of(const char *name, enum accept_rule rule, const float *logits,
                                   int n_vocab, const struct sampling_params *params)
{
    return (struct question){.name = name,
                             .logits = logits,
                             .n_vocab = n_vocab,
                             .want = {.rule = &accept_rules[rule],
                                      .params = params,
                                      .q = &q,
                                      .at = {.seed = 3, .position = 100, .round = 90}}};
}

static void measure(int n_vocab, struct team *team)
{
    fill(n_vocab);
    printf("V = %d, %d rows; us per row: 1 thread, %d threads\n", n_vocab, n_rows, n_threads);
    const struct question first[] = {
        question_of("greedy", RULE_GREEDY, flat, n_vocab, &plain),
        question_of("rejection", RULE_REJECTION, flat, n_vocab, &plain),
        question_of("typical", RULE_TYPICAL, flat, n_vocab, &plain),
        question_of("coupled, flat", RULE_COUPLED, flat, n_vocab, &plain),
        question_of("coupled, peaked", RULE_COUPLED, peaked, n_vocab, &plain),
        question_of("top-k 50", RULE_REJECTION, flat, n_vocab, &top_50),
        question_of("top-p 0.95, first question", RULE_REJECTION, flat, n_vocab, &nucleus),
    };
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        compare_threads(first[i], team, run_first);
    }
    struct question cut =
        question_of("top-p 0.95, flat, merged", RULE_REJECTION, flat, n_vocab, &nucleus);
    compare_threads(cut, team, run_cut);
    cut.name = "by buckets, by best";
    compare_cuts(cut, team);
    cut = question_of("peaked: buckets, best", RULE_REJECTION, peaked, n_vocab, &nucleus);
    compare_cuts(cut, team);
}

static void open_all(struct team **team, struct error *err)
{
    int rc = 0;
    TRY(mem_array(&flat, VOCAB_MAX, sizeof *flat, err));
    TRY(mem_array(&peaked, VOCAB_MAX, sizeof *peaked, err));
    TRY(arena_open(&arena, ARENA_BYTES, err));
    TRY(arena_open(&merge_arena, ARENA_BYTES, err));
    TRY(team_open(team, n_threads, SPIN_US, err));
out:
    if (rc) give_up(err);
}

int main(int argc, char **argv)
{
    static const struct bench_option options[] = {
        {.name = "vocab",
         .arg = "N,N,...",
         .help = "vocabularies; default 32000,128256",
         .least = 1024,
         .most = VOCAB_MAX,
         .list = {vocabs, &n_vocabs, VOCABS_MAX}},
        {.name = "rows",
         .arg = "N",
         .help = "rows that are answered together; default 4",
         .least = 1,
         .most = ROWS_MAX,
         .number = &n_rows},
        {.name = "threads",
         .arg = "N",
         .help = "of the team; default 2",
         .least = 1,
         .most = 64,
         .number = &n_threads},
        {.name = "pairs",
         .arg = "N",
         .help = "of slices of time; default 20",
         .least = 1,
         .most = BENCH_PAIRS_MAX,
         .number = &n_pairs},
        {0}};
    struct error err;
    struct team *team;
    bench_parse(argc, argv,
                &(struct bench_command){.doc = "What answering a row costs.", .options = options});
    open_all(&team, &err);
    for (int i = 0; i < n_vocabs; i++) {
        measure(vocabs[i], team);
    }
    team_close(team);
    arena_close(&arena);
    arena_close(&merge_arena);
    free(flat);
    free(peaked);
    return 0;
}
