/* Measures the coordinator's cost of guesses that are looked up.
 *
 *   bench_finders [N_TOKENS]
 *
 * For 1, 16 and 64 lanes whose texts have N_TOKENS tokens (default 4096), and for texts of four
 * kinds, it prints microseconds per round and lane, as medians over rounds in which each lane
 * commits 3 tokens: indexing them, looking, the planner's choice beyond that without offers, and
 * making 8 guesses with siblings; and the bytes of the index per token. Then the time per round at
 * 100,000 tokens over that at 1,000, which should be flat.
 *
 * Then the same for what the target has said (--lookup recycled) in rounds of 9 rows, 3 of which
 * are committed: learning from the rows, looking and making 8 guesses; and the merge of one more
 * row under some rules, with its best tokens and without. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "coordinator/draft/drafters.h"
#include "coordinator/sequence/sequence.h"
#include "lookup/suffix.h"
#include "model/logits/answer.h"
#include "speculation/accept/rules.h"

enum { LANES_MAX = 64, ROUNDS = 401, COMMITTED = 3, K = 8, VOCAB = 32000, ALL = 1 << 30 };
enum { LONG_TOKENS = 100000, SHORT_TOKENS = 1000 };
enum { N_KINDS = 4 };

static const char *const kinds[N_KINDS] = {"random", "words", "loops", "one token"};

static uint32_t state = 1;

static uint32_t dice(uint32_t n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

/* Token i of a text. "words": after a token one of a few follows, rare ones less often, which has
 * about the repetitions of prose. */
static int32_t token_of(int kind, const int32_t *text, int i)
{
    uint32_t before = i > 0 ? (uint32_t)text[i - 1] : 0;
    uint32_t rank = dice(8) ? dice(6) : dice(200);
    if (kind == 0) return (int32_t)dice(VOCAB);
    if (kind == 1) return (int32_t)((before * 2654435761u + rank * rank * 40503u) % 1000);
    return kind == 2 && dice(500) ? text[i > 60 ? i - 60 : 0] + (i <= 60 ? i : 0) : 7;
}

static void extend(struct sequence *seq, int kind, int n)
{
    for (; n > 0; n--, seq->n_tokens++) {
        seq->tokens[seq->n_tokens] = token_of(kind, seq->tokens, seq->n_tokens);
    }
}

static int order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, order);
    return values[n / 2];
}

static void must(int rc, const struct error *err)
{
    if (!rc) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

struct bench {
    struct drafters drafters;
    struct planner planner;
    struct sequence seqs[LANES_MAX];
    struct planner_offer offers[LANES_MAX];
    struct planner_lane lanes[LANES_MAX];
    struct arena arena;
    int n_lanes;
};

/* Parts of a round, each timed in us per lane. */
enum part { STUDY, LOOK, PLAN, PLAN_WITHOUT, GUESS, PARTS };

static void share(struct bench *b, bool has_offers)
{
    const struct planner_load load = {.n_rows_max = PLANNER_ROWS_MAX};
    for (int i = 0; i < b->n_lanes; i++) {
        bool has_one = has_offers && b->offers[i].k_max > 0;
        b->lanes[i] = (struct planner_lane){.seq = &b->seqs[i].planner_state,
                                            .models[0].n_missed = 1,
                                            .n_left = 1000,
                                            .siblings_max = SIBLINGS_MAX,
                                            .nodes_max = TREE_PATHS_MAX,
                                            .offers = &b->offers[i],
                                            .n_offers = has_one ? 1 : 0};
    }
    planner_share(&b->planner, b->lanes, b->n_lanes, &load);
}

static void guess(struct bench *b)
{
    static struct guess_tree drafts[LANES_MAX];
    static struct draft_lane lanes[LANES_MAX];
    static const struct end_ids no_ends;
    struct draft_cost cost;
    arena_reset(&b->arena);
    for (int i = 0; i < b->n_lanes; i++) {
        drafts[i] = (struct guess_tree){.base = b->seqs[i].n_tokens};
        lanes[i] = (struct draft_lane){.seq = &b->seqs[i],
                                       .k = K,
                                       .ends = &no_ends,
                                       .draft = &drafts[i],
                                       .siblings_max = SIBLINGS_MAX};
    }
    drafter_propose(b->drafters.finders[0], lanes, b->n_lanes, &b->arena, &cost);
}

static void run_round(struct bench *b, int kind, double us[PARTS])
{
    struct drafter *finder = b->drafters.finders[0];
    int64_t at[PARTS + 1];
    for (int i = 0; i < b->n_lanes; i++) {
        extend(&b->seqs[i], kind, COMMITTED);
    }
    at[STUDY] = clock_now_ns();
    for (int i = 0; i < b->n_lanes; i++) {
        lookup_read(finder, &b->seqs[i], ALL);
    }
    at[LOOK] = clock_now_ns();
    for (int i = 0; i < b->n_lanes; i++) {
        b->offers[i] = (struct planner_offer){0};
        b->seqs[i].siblings_max = SIBLINGS_MAX;
        lookup_offer(finder, &b->seqs[i], &b->offers[i]);
    }
    at[PLAN] = clock_now_ns();
    share(b, true);
    at[PLAN_WITHOUT] = clock_now_ns();
    share(b, false);
    at[GUESS] = clock_now_ns();
    guess(b);
    at[PARTS] = clock_now_ns();
    for (int i = 0; i < PARTS; i++) {
        us[i] = (double)(at[i + 1] - at[i]) / 1000 / b->n_lanes;
    }
}

static void open_bench(struct bench *b, const char *lookup, int n_lanes, int n_tokens, int kind)
{
    struct error err;
    *b = (struct bench){.n_lanes = n_lanes};
    const struct lookup_options lookups = {
        .lookup = lookup, .n_sequences = n_lanes, .is_shared = true};
    must(drafters_open(&b->drafters, NULL, &lookups, &err), &err);
    must(arena_open(&b->arena, 1 << 24, &err), &err);
    drafters_set_vocabulary(&b->drafters, VOCAB);
    for (int rows = 1; rows <= PLANNER_ROWS_MAX; rows *= 2) {
        planner_calibrate_step(&b->planner, rows, 20000 + 50 * rows);
    }
    for (int i = 0; i < n_lanes; i++) {
        struct sequence *seq = &b->seqs[i];
        seq->slot = i;
        seq->n_draft = DRAFT_MAX;
        seq->planner_state.strategy = STRATEGY_PLANNED;
        must(mem_array(&seq->tokens, (size_t)(n_tokens + COMMITTED * ROUNDS + DRAFT_MAX),
                       sizeof *seq->tokens, &err),
             &err);
        extend(seq, kind, n_tokens);
        lookup_read(b->drafters.finders[0], seq, ALL);
    }
}

static void close_bench(struct bench *b)
{
    for (int i = 0; i < b->n_lanes; i++) {
        free(b->seqs[i].tokens);
    }
    arena_close(&b->arena);
    drafters_close(&b->drafters);
}

/* Medians of the parts in us per round and lane; returns what lookups cost in all. */
static double measure(int n_lanes, int n_tokens, int kind, double medians[PARTS])
{
    static struct bench b;
    static double us[PARTS][ROUNDS];
    double one[PARTS];
    open_bench(&b, "session", n_lanes, n_tokens, kind);
    for (int round = 0; round < ROUNDS; round++) {
        run_round(&b, kind, one);
        for (int i = 0; i < PARTS; i++) {
            us[i][round] = one[i];
        }
    }
    for (int i = 0; i < PARTS; i++) {
        medians[i] = median(us[i], ROUNDS);
    }
    close_bench(&b);
    return medians[STUDY] + medians[LOOK] + medians[PLAN] - medians[PLAN_WITHOUT] + medians[GUESS];
}

static double bytes_per_token(int n_tokens, int kind)
{
    struct sequence seq = {0};
    struct suffix *suffix;
    struct error err;
    must(mem_array(&seq.tokens, (size_t)n_tokens, sizeof *seq.tokens, &err), &err);
    must(suffix_open(&suffix, &err), &err);
    extend(&seq, kind, n_tokens);
    for (int i = 0; i < n_tokens; i++) {
        must(suffix_add(suffix, seq.tokens[i], &err), &err);
    }
    double bytes = (double)suffix_bytes(suffix) / n_tokens;
    suffix_close(suffix);
    free(seq.tokens);
    return bytes;
}

/* ---- what the target has said ---- */

enum { ROWS = 1 + K, BEST = 5 };
enum said_part { LEARN, SAID_LOOK, SAID_GUESS, SAID_PARTS };

/* Answers of the target to a lane in a round: after the last committed tokens, and after guesses
 * that were wrong. */
static struct said {
    int32_t before[ROWS], parents[ROWS], best[ROWS][BEST];
    struct target_row rows[ROWS];
} said[LANES_MAX];

static void say(const struct sequence *seq, struct said *to)
{
    static const float one = 1;
    const int32_t *end = seq->tokens + seq->n_tokens - COMMITTED;
    for (int r = 0; r < ROWS; r++) {
        to->parents[r] = r - 1;
        to->before[r] = r < COMMITTED ? end[r - 1] : (int32_t)dice(1000);
        for (int i = 0; i < BEST; i++) {
            to->best[r][i] = r < COMMITTED && i == 0 ? end[r] : (int32_t)dice(1000);
        }
        to->rows[r] = (struct target_row){.n = 1,
                                          .ids = to->best[r],
                                          .p = &one,
                                          .outside_id = -1,
                                          .n_best = BEST,
                                          .best_ids = to->best[r]};
    }
}

static void run_said_round(struct bench *b, double us[SAID_PARTS])
{
    struct drafter *finder = b->drafters.finders[0];
    int64_t at[SAID_PARTS + 1];
    for (int i = 0; i < b->n_lanes; i++) {
        extend(&b->seqs[i], 1, COMMITTED);
        say(&b->seqs[i], &said[i]);
    }
    at[LEARN] = clock_now_ns();
    for (int i = 0; i < b->n_lanes; i++) {
        const struct draft_rows rows = {said[i].rows, said[i].before, said[i].parents, ROWS};
        drafters_observe_rows(&b->drafters, &b->seqs[i], &rows);
    }
    at[SAID_LOOK] = clock_now_ns();
    for (int i = 0; i < b->n_lanes; i++) {
        lookup_read(finder, &b->seqs[i], ALL);
        b->offers[i] = (struct planner_offer){0};
        lookup_offer(finder, &b->seqs[i], &b->offers[i]);
    }
    at[SAID_GUESS] = clock_now_ns();
    guess(b);
    at[SAID_PARTS] = clock_now_ns();
    for (int i = 0; i < SAID_PARTS; i++) {
        us[i] = (double)(at[i + 1] - at[i]) / 1000 / b->n_lanes;
    }
}

static void measure_said(int n_lanes, int n_tokens)
{
    static struct bench b;
    static double us[SAID_PARTS][ROUNDS];
    double one[SAID_PARTS];
    open_bench(&b, "recycled", n_lanes, n_tokens, 1);
    for (int round = 0; round < ROUNDS; round++) {
        run_said_round(&b, one);
        for (int i = 0; i < SAID_PARTS; i++) {
            us[i][round] = one[i];
        }
    }
    close_bench(&b);
    printf("%-9s %6d  %6.2f  %6.2f  %8s  %9.2f\n", "said", n_lanes, median(us[LEARN], ROUNDS),
           median(us[SAID_LOOK], ROUNDS), "", median(us[SAID_GUESS], ROUNDS));
}

/* us to merge the answers of all slices to the wish of a row. */
static double measure_merge(enum accept_rule rule, bool lists_best)
{
    static float logits[VOCAB];
    static double us[ROUNDS];
    struct slice_row slices[SLICES_MAX];
    struct arena arena;
    struct error err;
    int32_t id = 77;
    float one = 1;
    const struct sparse_dist q = {1, &id, &one};
    const struct sampling_params params = {.temperature = 1, .top_p = 1};
    const struct target_want want = {.rule = &accept_rules[rule],
                                     .params = &params,
                                     .q = &q,
                                     .at = {1, 2, 3},
                                     .n_top = -1,
                                     .lists_best = lists_best};
    struct row_wish wish;
    must(arena_open(&arena, 1 << 20, &err), &err);
    for (int i = 0; i < VOCAB; i++) {
        logits[i] = (float)dice(1 << 20) / (1 << 17);
    }
    target_row_wish(&want, &wish);
    for (int s = 0; s < SLICES_MAX; s++) {
        struct answer_item item = {.slice = s, .wish = &wish};
        row_slice_range(VOCAB, SLICES_MAX, s, &item.first_id, &item.n_cols);
        item.logits = logits + item.first_id;
        must(row_slice_answer(&item, &arena, &slices[s], &err), &err);
    }
    const struct target_slices all = {slices, SLICES_MAX, VOCAB};
    size_t mark = arena.used_bytes;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start = clock_now_ns();
        for (int i = 0; i < 16; i++) {
            struct target_row row;
            bool more;
            arena.used_bytes = mark;
            must(target_row_merge(&all, &want, &wish, &arena, &row, &more, &err), &err);
        }
        us[round] = (double)(clock_now_ns() - start) / 1000 / 16;
    }
    arena_close(&arena);
    return median(us, ROUNDS);
}

int main(int argc, char **argv)
{
    static const int counts[] = {1, 16, LANES_MAX};
    int n_tokens = argc > 1 ? atoi(argv[1]) : 4096;
    double medians[PARTS];
    if (n_tokens < 1) {
        fprintf(stderr, "usage: bench_finders [N_TOKENS], at least 1\n");
        return EXIT_FAILURE;
    }
    printf("us per round and lane; texts of %d tokens\n"
           "text       lanes   index    look   planner  8 guesses    all   bytes/token\n",
           n_tokens);
    for (int kind = 0; kind < N_KINDS; kind++) {
        for (int i = 0; i < 3; i++) {
            double all = measure(counts[i], n_tokens, kind, medians);
            printf("%-9s %6d  %6.2f  %6.2f  %8.2f  %9.2f %6.2f  %12.1f\n", kinds[kind], counts[i],
                   medians[STUDY], medians[LOOK], medians[PLAN] - medians[PLAN_WITHOUT],
                   medians[GUESS], all, bytes_per_token(n_tokens, kind));
        }
    }
    for (int kind = 0; kind < N_KINDS; kind++) {
        double few = measure(8, SHORT_TOKENS, kind, medians);
        printf("%-9s %d tokens over %d: %.2f us over %.2f us\n", kinds[kind], LONG_TOKENS,
               SHORT_TOKENS, measure(8, LONG_TOKENS, kind, medians), few);
    }
    printf("what the target has said\n"
           "           lanes   learn    look             8 guesses\n");
    for (int i = 0; i < 3; i++) {
        measure_said(counts[i], n_tokens);
    }
    for (int rule = RULE_REJECTION; rule <= RULE_COUPLED; rule++) {
        printf("merging a row, %s: %.2f us, with its best tokens %.2f us\n",
               accept_rule_names[rule], measure_merge((enum accept_rule)rule, false),
               measure_merge((enum accept_rule)rule, true));
    }
    return EXIT_SUCCESS;
}
