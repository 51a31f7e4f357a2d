/* Measures what the target's features cost in a round, over a group of workers that runs already.
 *
 *   bench_features --target LIST [--boundaries LIST] [--guesses 4] [--context 64] [--rounds 50]
 *                  [--turns 20]
 *
 * A round is a step of one text: a token and --guesses guesses after --context others, with the 64
 * best logits of each row. Its arms are rounds without features, with those of --boundaries
 * (default: the first, a middle one and the last), and, where the workers were started with --head,
 * with what they make of these. They take turns of --rounds rounds each, the order changes with
 * each turn, and the last line of an arm compares within a turn.
 *
 * The cost is what a round takes longer than one without features besides computing: reading them
 * on rank 0, encoding, sending and decoding. What fc takes is shown with the computing, and it is
 * left out of the cost, because a head at the coordinator has to compute it otherwise. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/bench_util.h"
#include "bench/options.h"
#include "coordinator/target/target.h"
#include "rpc/client.h"

enum {
    TOKENS_MAX = 1024,
    BLOCKS = TOKENS_MAX / KV_BLOCK_TOKENS + 2,
    ARENA_BYTES = 64 << 20,
    PATIENCE_US = 20000000,
    WARM_ROUNDS = 10
};

enum { NONE, PLAIN, PROJECTED, ARMS };

static const char *const arm_names[ARMS] = {"no features", "features", "projected by --head"};

struct settings {
    const char *target;
    int32_t boundaries[FEATURE_WISH_MAX];
    int n_boundaries, n_guesses, context, n_rounds, n_turns;
};

/* Means of a turn's rounds, microseconds. */
struct turn {
    double total, compute, cost;
};

struct bench {
    const struct settings *settings;
    struct found_group group;
    struct target *target;
    struct arena arena;
    struct feature_wish wishes[ARMS];
    int n_arms;
    int32_t tokens[TOKENS_MAX], blocks[BLOCKS];
    size_t bytes[ARMS]; /* of features in a round */
    struct turn turns[ARMS][BENCH_PAIRS_MAX];
};

static void list_addresses(struct bench *b)
{
    const char *at = b->settings->target;
    while (*at && b->group.n_ranks < RANKS_MAX) {
        size_t len = strcspn(at, ",");
        snprintf(b->group.addresses[b->group.n_ranks++], TARGET_ADDRESS_BYTES, "%.*s", (int)len,
                 at);
        at += len + (at[len] == ',');
    }
}

/* The tokenizer is not needed here, so the group's own is the right one. */
static int ask_fingerprint(struct bench *b, uint64_t *fingerprint, struct error *err)
{
    const struct rpc_client_options options = {0};
    const struct rpc_request request = {.address = b->group.addresses[0],
                                        .path = "/outrider.target.v1.Target/Describe",
                                        .wait_for_ready = true,
                                        .deadline_us = clock_now_us() + PATIENCE_US};
    struct rpc_client *client = NULL;
    struct buffer in = {0};
    int rc = 0;
    TRY(rpc_client_open(&client, &options, err));
    TRY(rpc_client_call(client, &request, &in, err));
    TRY(target_description_decode(in.data, in.len, &b->group.description, err));
    *fingerprint = b->group.description.tokenizer_fingerprint;
out:
    rpc_client_close(client);
    buffer_free(&in);
    return rc;
}

static int bench_connect(struct bench *b, struct error *err)
{
    struct target_options options = {.step_timeout_s = 60};
    int rc = 0;
    list_addresses(b);
    TRY(ask_fingerprint(b, &options.tokenizer_fingerprint, err));
    TRY(target_open(&b->target, &options, err));
    TRY(target_connect(b->target, &b->group, clock_now_us() + PATIENCE_US, err));
out:
    return rc;
}

static void set_wishes(struct bench *b)
{
    const struct settings *s = b->settings;
    const struct target_description *d = target_description(b->target);
    struct feature_wish *plain = &b->wishes[PLAIN];
    struct feature_projection *projection = &b->wishes[PROJECTED].projection;
    const int usual[] = {0, d->n_layers / 2, d->n_layers};
    for (int i = 0; i < s->n_boundaries; i++) {
        feature_wish_add_boundary(plain, s->boundaries[i]);
    }
    for (size_t i = 0; s->n_boundaries == 0 && i < sizeof usual / sizeof *usual; i++) {
        feature_wish_add_boundary(plain, usual[i]);
    }
    b->n_arms = d->projection.digest ? ARMS : PROJECTED;
    projection->key = d->projection;
    projection->n = plain->n;
    memcpy(projection->boundaries, plain->boundaries, sizeof projection->boundaries);
}

/* A step that feeds tokens first .. + n; its last n_guesses are guesses. */
static int step(struct bench *b, int arm, int first, int n, int n_guesses, struct target_cost *cost,
                struct error *err)
{
    static const struct row_wish best = {.n_best = 64};
    const struct feature_wish *wish = &b->wishes[arm];
    struct lane_want wants[DRAFT_MAX + 1];
    struct target_question question;
    struct target_result result;
    int rc = 0, last = (first + n - 1) / KV_BLOCK_TOKENS, first_block = first / KV_BLOCK_TOKENS;
    struct step_lane lane = {.position = first,
                             .n_tokens = n,
                             .tokens = b->tokens + first,
                             .n_draft = n_guesses,
                             .first_block = first_block,
                             .n_blocks = last - first_block + 1,
                             .blocks = b->blocks + first_block,
                             .n_features = feature_wish_is_empty(wish) ? 0 : n};
    for (int i = 0; i <= n_guesses; i++) {
        wants[i] = (struct lane_want){.index = n - 1 - n_guesses + i, .wish = &best};
    }
    const struct target_query query = {
        .lanes = &lane, .n_lanes = 1, .wants = wants, .n_wants = n_guesses + 1, .features = *wish};
    *cost = (struct target_cost){0};
    arena_reset(&b->arena);
    TRY(target_verify_send(b->target, &query, &b->arena, &question, &result, cost, err));
    TRY(target_verify_merge(b->target, &query, &b->arena, &question, &result, cost, err));
    if (result.lane_errors[0]) {
        rc = error_set(err, ERR_INTERNAL, "%s", result.lane_errors[0]->text);
    } else if (result.feature_error) {
        rc = error_set(err, ERR_INTERNAL, "%s", result.feature_error);
    }
out:
    return rc;
}

static int run_rounds(struct bench *b, int arm, int n_rounds, struct turn *turn, struct error *err)
{
    const struct settings *s = b->settings;
    struct turn sum = {0};
    int rc = 0;
    for (int i = 0; i < n_rounds; i++) {
        struct target_cost cost;
        TRY(step(b, arm, s->context, s->n_guesses + 1, s->n_guesses, &cost, err));
        int64_t rest = cost.total_us - cost.compute_us - cost.collective_us + cost.feature_us;
        sum.total += (double)cost.total_us / n_rounds;
        sum.compute += (double)(cost.compute_us - cost.feature_us) / n_rounds;
        sum.cost += (double)rest / n_rounds;
        b->bytes[arm] = (size_t)cost.feature_bytes;
    }
    *turn = sum;
out:
    return rc;
}

static int run(struct bench *b, struct error *err)
{
    const struct settings *s = b->settings;
    struct turn ignored;
    struct target_cost cost;
    int rc = 0;
    for (int at = 0; at < s->context; at += KV_BLOCK_TOKENS) {
        int n = s->context - at < KV_BLOCK_TOKENS ? s->context - at : KV_BLOCK_TOKENS;
        TRY(step(b, NONE, at, n, 0, &cost, err));
    }
    for (int arm = 0; arm < b->n_arms; arm++) {
        TRY(run_rounds(b, arm, WARM_ROUNDS, &ignored, err));
    }
    for (int turn = 0; turn < s->n_turns; turn++) {
        for (int i = 0; i < b->n_arms; i++) {
            int arm = turn % 2 ? i : b->n_arms - 1 - i;
            TRY(run_rounds(b, arm, s->n_rounds, &b->turns[arm][turn], err));
        }
    }
out:
    return rc;
}

static void show(const struct bench *b)
{
    int n = b->settings->n_turns;
    const struct target_description *d = target_description(b->target);
    printf("%s, %d ranks, width %d, %s; %d guesses, %d turns of %d rounds\n", d->model, d->n_ranks,
           d->dim, d->arithmetic, b->settings->n_guesses, n, b->settings->n_rounds);
    printf("%-20s %12s %12s %12s  %s\n", "", "bytes/round", "round us", "computing us",
           "features cost us a round");
    for (int arm = 0; arm < b->n_arms; arm++) {
        double total[BENCH_PAIRS_MAX], compute[BENCH_PAIRS_MAX], cost[BENCH_PAIRS_MAX];
        for (int i = 0; i < n; i++) {
            total[i] = b->turns[arm][i].total;
            compute[i] = b->turns[arm][i].compute;
            cost[i] = b->turns[arm][i].cost - b->turns[NONE][i].cost;
        }
        struct sample_quartiles q = sample_quartiles(cost, n);
        printf("%-20s %12zu %12.1f %12.1f", arm_names[arm], b->bytes[arm],
               sample_quartiles(total, n).median, sample_quartiles(compute, n).median);
        if (arm != NONE) printf("  %.1f (%.1f to %.1f)", q.median, q.low, q.high);
        printf("\n");
    }
    if (b->n_arms < ARMS) printf("the workers have no head: start them with --head\n");
}

int main(int argc, char **argv)
{
    struct settings s = {
        .target = "127.0.0.1:7071", .n_guesses = 4, .context = 64, .n_rounds = 50, .n_turns = 20};
    const struct bench_option options[] = {
        {"target", 'w', "LIST", "ranks of one group; default 127.0.0.1:7071", .text = &s.target},
        {"boundaries", 'b', "LIST",
         "as many as the head reads; default the first, a middle one and the last", 0, 65535,
         .list = {s.boundaries, &s.n_boundaries, FEATURE_WISH_MAX}},
        {"guesses", 'K', "N", "default 4", 0, DRAFT_MAX, .number = &s.n_guesses},
        {"context", 'c', "N", "tokens before the round; default 64", 0, TOKENS_MAX - DRAFT_MAX - 1,
         .number = &s.context},
        {"rounds", 'r', "N", "of a turn; default 50", 1, 10000, .number = &s.n_rounds},
        {"turns", 't', "N", "of each arm; default 20", 1, BENCH_PAIRS_MAX, .number = &s.n_turns},
        {0},
    };
    const struct bench_command command = {.options = options};
    static struct bench b;
    struct error err = {0};
    int rc = 0;
    bench_parse(argc, argv, &command);
    b.settings = &s;
    TRY(arena_open(&b.arena, ARENA_BYTES, &err));
    TRY(bench_connect(&b, &err));
    for (int i = 0; i < TOKENS_MAX; i++) {
        b.tokens[i] = (5 + 7 * i) % target_description(b.target)->vocab_size;
    }
    for (int i = 0; i < BLOCKS; i++) {
        b.blocks[i] = i;
    }
    set_wishes(&b);
    TRY(run(&b, &err));
    show(&b);
out:
    if (rc) fprintf(stderr, "bench_features: %s\n", err.text);
    target_close(b.target);
    arena_close(&b.arena);
    return rc ? 1 : 0;
}
