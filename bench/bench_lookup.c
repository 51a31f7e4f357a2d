/* Measures the cost of lookup drafters for each round and lane.
 *
 *   bench_lookup [LANES]
 *
 * 64 lanes or LANES, each with a text of its own made of words that come again. A round of a lane
 * adds 4 tokens and asks for 16 guesses. Printed: the median round in us a lane, and bytes a token.
 * The store holds a million tokens of texts of the same kind. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "bench/bench_util.h"
#include "lookup/store.h"
#include "lookup/suffix.h"

enum {
    LANES_DEFAULT = 64,
    LANES_MAX = 1024,
    N_ROUNDS = 501,
    ROUND_TOKENS = 4,
    PROMPT = 2000,
    TEXT_ROOM = PROMPT + N_ROUNDS * ROUND_TOKENS,
    STORE_TOKENS = 1 << 20,
    N_PHRASES = 5000,
    PHRASE = 12,
    N_VOCAB = 30000
};

static int32_t phrases[N_PHRASES][PHRASE];
static int32_t texts[LANES_MAX][TEXT_ROOM];
static struct suffix *suffixes[LANES_MAX];

static uint32_t random_state = 1;
static int below(int n)
{
    random_state = random_state * 1664525 + 1013904223;
    return (int)(random_state >> 8) % n;
}

/* Phrases one after another, from a random place of each. */
static void make_text(int32_t *text, int n)
{
    for (int i = 0; i < n;) {
        const int32_t *phrase = phrases[below(N_PHRASES) * below(N_PHRASES) / N_PHRASES];
        for (int at = below(PHRASE / 2); at < PHRASE && i < n; at++) {
            text[i++] = phrase[at];
        }
    }
}

static void make_phrases(void)
{
    for (int i = 0; i < N_PHRASES; i++) {
        for (int at = 0; at < PHRASE; at++) {
            phrases[i][at] = below(N_VOCAB) * below(N_VOCAB) / N_VOCAB;
        }
    }
}

static int fill_store(struct store *store, struct error *err)
{
    int rc = 0;
    int32_t *text = NULL;
    TRY(mem_array(&text, TEXT_ROOM, sizeof *text, err));
    int64_t start = clock_now_ns();
    int n = 0;
    for (; n + TEXT_ROOM <= STORE_TOKENS; n += TEXT_ROOM) {
        make_text(text, TEXT_ROOM);
        store_add(store, 0, text, TEXT_ROOM);
    }
    printf("store: %.2f us to add a token, %.1f bytes a token\n",
           (double)(clock_now_ns() - start) / 1000 / n, (double)store_bytes(store) / STORE_TOKENS);
out:
    free(text);
    return rc;
}

static int open_lanes(int n_lanes, struct error *err)
{
    int rc = 0;
    for (int i = 0; i < n_lanes; i++) {
        make_text(texts[i], TEXT_ROOM);
        TRY(suffix_open(&suffixes[i], err));
        for (int at = 0; at < PROMPT; at++) {
            TRY(suffix_add(suffixes[i], texts[i][at], err));
        }
    }
out:
    return rc;
}

static double session_us(int n_lanes, int n_read, int64_t *n_found, struct error *err)
{
    int64_t start = clock_now_ns();
    int32_t copy[DRAFT_MAX];
    for (int i = 0; i < n_lanes; i++) {
        for (int at = n_read; at < n_read + ROUND_TOKENS; at++) {
            if (suffix_add(suffixes[i], texts[i][at], err)) return -1;
        }
        struct suffix_place place = suffix_end(suffixes[i]);
        *n_found += suffix_copy(suffixes[i], &place, copy, DRAFT_MAX);
    }
    return (double)(clock_now_ns() - start) / 1000 / n_lanes;
}

static double store_us(const struct store *store, int n_lanes, int n_read, int64_t *n_found)
{
    int64_t start = clock_now_ns();
    struct store_guesses found;
    for (int i = 0; i < n_lanes; i++) {
        store_find(store, 0, texts[i], n_read + ROUND_TOKENS, 1, DRAFT_MAX, &found);
        *n_found += found.n;
    }
    return (double)(clock_now_ns() - start) / 1000 / n_lanes;
}

static int measure(const struct store *store, int n_lanes, struct error *err)
{
    static double session[N_ROUNDS], finished[N_ROUNDS];
    int64_t n_session = 0, n_store = 0;
    for (int round = 0; round < N_ROUNDS; round++) {
        int n_read = PROMPT + round * ROUND_TOKENS;
        session[round] = session_us(n_lanes, n_read, &n_session, err);
        if (session[round] < 0) return err->code;
        finished[round] = store_us(store, n_lanes, n_read, &n_store);
    }
    struct sample_quartiles a = sample_quartiles(session, N_ROUNDS);
    struct sample_quartiles b = sample_quartiles(finished, N_ROUNDS);
    printf(
        "%d lanes, us a round and lane, quartiles: session %.2f %.2f %.2f, store %.2f %.2f %.2f\n",
        n_lanes, a.low, a.median, a.high, b.low, b.median, b.high);
    printf("guesses a round and lane: session %.1f, store %.1f\n",
           (double)n_session / N_ROUNDS / n_lanes, (double)n_store / N_ROUNDS / n_lanes);
    return 0;
}

int main(int argc, char **argv)
{
    struct error err;
    struct store *store = NULL;
    int rc = 0, n_lanes = argc > 1 ? atoi(argv[1]) : LANES_DEFAULT;
    if (n_lanes < 1 || n_lanes > LANES_MAX) n_lanes = LANES_DEFAULT;
    make_phrases();
    TRY(store_open(&store, STORE_TOKENS, &err));
    TRY(fill_store(store, &err));
    TRY(open_lanes(n_lanes, &err));
    TRY(measure(store, n_lanes, &err));
out:
    if (rc) fprintf(stderr, "%s\n", err.text);
    for (int i = 0; i < n_lanes; i++) {
        suffix_close(suffixes[i]);
    }
    store_close(store);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
