/* What guesses that are looked up cost the coordinator.
 *
 *   bench_finders [N_TOKENS]
 *
 * For 1, 16 and 64 lanes whose texts have N_TOKENS tokens (default 4096), and for texts of four
 * kinds, it prints microseconds per round and lane, as medians over rounds in which each lane
 * commits 3 tokens: indexing them, looking, the planner's choice beyond that without offers, and
 * making 8 guesses; and the bytes of the index per token. Then the time per round at 100,000
 * tokens over that at 1,000, which should be flat. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "coordinator/draft/drafters.h"
#include "coordinator/sequence.h"
#include "lookup/suffix.h"

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

/* What one part of a round takes, in us per lane. */
enum part { STUDY, LOOK, PLAN, PLAN_WITHOUT, GUESS, PARTS };

static void share(struct bench *b, bool has_offers)
{
    const struct planner_load load = {.n_rows_max = PLANNER_ROWS_MAX};
    for (int i = 0; i < b->n_lanes; i++) {
        bool has_one = has_offers && b->offers[i].k_max > 0;
        b->lanes[i] = (struct planner_lane){.seq = &b->seqs[i].planner_state,
                                            .n_missed = 1,
                                            .n_left = 1000,
                                            .offers = &b->offers[i],
                                            .n_offers = has_one ? 1 : 0};
    }
    planner_share(&b->planner, b->lanes, b->n_lanes, &load);
}

static void guess(struct bench *b)
{
    static struct draft drafts[LANES_MAX];
    static struct draft_lane lanes[LANES_MAX];
    static const struct end_ids no_ends;
    struct draft_cost cost;
    arena_reset(&b->arena);
    for (int i = 0; i < b->n_lanes; i++) {
        drafts[i] = (struct draft){.base = b->seqs[i].n_tokens};
        lanes[i] = (struct draft_lane){&b->seqs[i], K, &no_ends, &drafts[i], 0, {0}};
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
        finder->ops->study(finder, &b->seqs[i], ALL);
    }
    at[LOOK] = clock_now_ns();
    for (int i = 0; i < b->n_lanes; i++) {
        b->offers[i] = (struct planner_offer){0};
        finder->ops->look(finder, &b->seqs[i], &b->offers[i]);
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

static void open_bench(struct bench *b, int n_lanes, int n_tokens, int kind)
{
    struct error err;
    *b = (struct bench){.n_lanes = n_lanes};
    const struct lookup_options lookups = {.lookup = "session", .n_sequences = n_lanes};
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
        b->drafters.finders[0]->ops->study(b->drafters.finders[0], seq, ALL);
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
    open_bench(&b, n_lanes, n_tokens, kind);
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
    return EXIT_SUCCESS;
}
