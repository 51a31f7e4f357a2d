/* Measures the cost of a drafted token and where the time goes: forward pass without the head,
 * head, the best of the row, q and the draw, all compared with reading the same bytes.
 *
 *   bench_draft [--model MODEL] [--head N,N,...] [--context N] [--support N] [--pairs N]
 *               [--device cpu] [--threads N]
 *
 * One drafted token is what coordinator/draft/model_draft.c does for it: one row at position
 * `context`, the best `support` of its logits, q of them at temperature 1, and one draw. Each token
 * overwrites the one before because the position stays the same. For each head (0 = whole, N = a
 * head over N ids that are spread evenly over the vocabulary) it prints
 *
 *   token / reading   the time over that of the best reading loop (bench_read.h) for as many bytes
 *                     as the model's weights have, with as many threads. The limit is 1.15,
 *                     or 40 us for each layer where that is more;
 *   forward, head     a forward pass without a row and one with it, in alternating slices; the head
 *                     is the difference;
 *   best              model_best, and on the CPU also a heap alone on the same logits;
 *   q, draw           sampling_draft_best and sparse_draw.
 *
 * Ratios are medians of pairs of slices with quartiles (bench_util.h). */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads/team.h"
#include "bench/bench_read.h"
#include "bench/bench_util.h"
#include "bench/options.h"
#include "model/logits/sampling.h"
#include "model/model.h"

enum {
    HEADS_MAX = 8,
    SUPPORT_MAX = 4096,
    CHUNK = 256,
    BLOCKS_MAX = 2048,
    ARENA_BYTES = 4 << 20,
    SLICE_US = 250000,
    SPIN_US = 1000,
    READ_UNIT = 256
};

static const double bar_ratio = 1.15, bar_layer_us = 40;

struct settings {
    const char *model;
    struct backend_options backend;
    int context, support, n_pairs;
    int32_t heads[HEADS_MAX];
    int n_heads;
};

/* A draft of its own for each head. */
struct draft {
    struct checkpoint *ck;
    struct backend *be;
    struct model *model;
    struct arena arena;
    int32_t *head_ids; /* NULL: all */
    int n_head, context, support;
    int n_rows;               /* of the forward arm */
    int64_t best_ns, q_ns, n; /* of the drafted tokens so far */
};

static int32_t blocks[BLOCKS_MAX], chunk_tokens[CHUNK];
static struct select_item best[SUPPORT_MAX];
static float q_p[SUPPORT_MAX];
static int32_t q_ids[SUPPORT_MAX];

static void give_up(const struct error *err)
{
    fprintf(stderr, "bench_draft: %s\n", err->text);
    exit(EXIT_FAILURE);
}

/* An arm: one forward pass of one token. */
static double run_forward(void *arg)
{
    struct draft *d = arg;
    struct error err;
    const struct forward_lane lane = {d->context, 1, chunk_tokens, blocks, NULL};
    const struct forward_row row = {0, 0};
    if (model_forward(d->model, &lane, 1, &row, d->n_rows, &err) || model_wait(d->model, &err)) {
        give_up(&err);
    }
    return 1;
}

/* An arm: one drafted token. */
static double run_token(void *arg)
{
    const struct sampling_params params = {.temperature = 1, .top_p = 1};
    struct sparse_dist q = {.ids = q_ids, .p = q_p};
    struct draft *d = arg;
    struct error err;
    int n_best;
    d->n_rows = 1;
    run_forward(d);
    int64_t start = clock_now_ns();
    arena_reset(&d->arena);
    if (model_best(d->model, 0, d->support, &d->arena, best, &n_best, &err)) give_up(&err);
    int64_t found = clock_now_ns();
    sampling_draft_best(best, n_best, &params, &q);
    chunk_tokens[0] = sparse_draw(&q, 0.5); /* the next token is fed the one that was guessed */
    d->best_ns += found - start;
    d->q_ns += clock_now_ns() - found;
    d->n++;
    return 1;
}

/* An arm: the best of the last row, by model_best or by a heap that every logit is offered to. */
struct best_arm {
    struct draft *draft;
    bool is_heap;
};

static double run_best(void *arg)
{
    const struct best_arm *arm = arg;
    struct draft *d = arm->draft;
    struct error err;
    int n_best;
    arena_reset(&d->arena);
    if (!arm->is_heap) {
        if (model_best(d->model, 0, d->support, &d->arena, best, &n_best, &err)) give_up(&err);
        return 1;
    }
    const float *logits = model_logits(d->model, 0);
    struct select_heap heap = {.items = best, .capacity = d->support};
    for (int i = 0; i < d->n_head; i++) {
        if (select_wants(&heap, (double)logits[i])) select_offer(&heap, (double)logits[i], i);
    }
    select_sort_best(&heap);
    return 1;
}

/* An arm: reading as many bytes as a token's weights. */
struct reading {
    struct team *team;
    uint8_t *data;
    size_t bytes;
    int loop;
};

static void read_member(void *arg, int member, int n_members)
{
    const struct reading *r = arg;
    int begin, end;
    team_range((int)(r->bytes / READ_UNIT), 1, member, n_members, &begin, &end);
    bench_read(r->loop, r->data + (size_t)begin * READ_UNIT, (size_t)(end - begin) * READ_UNIT);
}

static double run_reading(void *arg)
{
    struct reading *r = arg;
    team_run(r->team, read_member, r);
    return 1;
}

/* Fills the KV up to the context. */
static int fill_context(struct draft *d, struct error *err)
{
    int rc = 0;
    for (int pos = 0; pos < d->context && !rc; pos += CHUNK) {
        int n = d->context - pos < CHUNK ? d->context - pos : CHUNK;
        const struct forward_lane lane = {pos, n, chunk_tokens, blocks, NULL};
        rc = model_forward(d->model, &lane, 1, NULL, 0, err);
    }
    return rc;
}

static int choose_head(struct draft *d, int n_head, struct error *err)
{
    int vocab = checkpoint_config(d->ck)->vocab_size;
    d->n_head = n_head ? n_head : vocab;
    if (n_head > vocab) {
        return error_set(err, ERR_ARGUMENT, "--head %d: the vocabulary has %d ids", n_head, vocab);
    }
    if (!n_head) return 0;
    int rc = mem_array(&d->head_ids, (size_t)n_head, sizeof *d->head_ids, err);
    for (int i = 0; !rc && i < n_head; i++) {
        d->head_ids[i] = (int32_t)((int64_t)i * vocab / n_head);
    }
    return rc;
}

static int open_draft(struct draft *d, const struct settings *s, int n_head, struct error *err)
{
    int rc = 0;
    *d = (struct draft){.context = s->context, .support = s->support};
    TRY(checkpoint_open(&d->ck, s->model, err));
    TRY(choose_head(d, n_head, err));
    if (d->support > d->n_head) d->support = d->n_head;
    const struct model_options mo = {.n_kv_blocks = s->context / KV_BLOCK_TOKENS + 1,
                                     .max_tokens = CHUNK,
                                     .max_rows = 1,
                                     .max_lanes = 1,
                                     .head_ids = d->head_ids,
                                     .n_head_ids = d->n_head};
    TRY(arena_open(&d->arena, ARENA_BYTES, err));
    TRY(backend_open(&d->be, &s->backend, err));
    TRY(model_open(&d->model, d->ck, comm_single(), d->be, &mo, err));
    TRY(fill_context(d, err));
out:
    return rc;
}

static void close_draft(struct draft *d)
{
    model_close(d->model);
    if (d->be) d->be->ops->close(d->be);
    checkpoint_close(d->ck);
    arena_close(&d->arena);
    free(d->head_ids);
}

static void measure_token(struct draft *d, struct reading *r, int n_pairs)
{
    int n_layers = checkpoint_config(d->ck)->n_layers;
    r->loop = bench_best_read(&(struct timed_arm){run_reading, r}, &r->loop, SLICE_US / 10, NULL);
    d->n = d->best_ns = d->q_ns = 0;
    struct bench_pairs pairs = bench_compare(&(struct timed_arm){run_reading, r},
                                             &(struct timed_arm){run_token, d}, n_pairs, SLICE_US);
    double token_us = 1e6 / pairs.b.median, read_us = 1e6 / pairs.a.median;
    double bar_us = bar_ratio * read_us;
    if (bar_us < bar_layer_us * n_layers) bar_us = bar_layer_us * n_layers;
    printf("  token      %10.1f us, reading (%s) %.1f us at %.1f GB/s\n", token_us,
           bench_read_names[r->loop], read_us, 1e-3 * (double)r->bytes / read_us);
    printf("             token / reading %.3f [%.3f %.3f], bar %.1f us: %s\n", pairs.ratio.median,
           pairs.ratio.low, pairs.ratio.high, bar_us, token_us <= bar_us ? "held" : "missed");
    printf("  best %d %13.1f us, q and draw %.1f us (means)\n", d->support,
           1e-3 * (double)d->best_ns / (double)d->n, 1e-3 * (double)d->q_ns / (double)d->n);
}

static void measure_parts(struct draft *d, int n_pairs)
{
    struct draft bare = *d, with_row = *d;
    bare.n_rows = 0;
    with_row.n_rows = 1;
    struct bench_pairs pairs =
        bench_compare(&(struct timed_arm){run_forward, &bare},
                      &(struct timed_arm){run_forward, &with_row}, n_pairs, SLICE_US);
    double bare_us = 1e6 / pairs.a.median, all_us = 1e6 / pairs.b.median;
    printf("  forward    %10.1f us, head %.1f us\n", bare_us, all_us - bare_us);
    if (!d->be->ops->is_host) return;
    run_forward(&with_row);
    struct best_arm best_of = {d, false}, heap = {d, true};
    pairs = bench_compare(&(struct timed_arm){run_best, &best_of},
                          &(struct timed_arm){run_best, &heap}, n_pairs, SLICE_US / 10);
    printf("  best alone %10.1f us, a heap alone %.1f us: %.2f [%.2f %.2f] times\n",
           1e6 / pairs.a.median, 1e6 / pairs.b.median, pairs.ratio.median, pairs.ratio.low,
           pairs.ratio.high);
}

static int bench_head(const struct settings *s, int n_head, struct error *err)
{
    struct draft d = {0};
    struct reading r = {0};
    int rc = 0;
    TRY(open_draft(&d, s, n_head, err));
    r.bytes = model_weight_bytes(d.model) / READ_UNIT * READ_UNIT;
    TRY(team_open(&r.team, s->backend.n_threads, SPIN_US, err));
    TRY(mem_pages(&r.data, r.bytes, err));
    memset(r.data, 1, r.bytes); /* so that the pages exist */
    printf("head of %d ids, %.1f MB of weights\n", d.n_head,
           1e-6 * (double)model_weight_bytes(d.model));
    measure_token(&d, &r, s->n_pairs);
    measure_parts(&d, s->n_pairs);
    fflush(stdout);
out:
    mem_pages_free(r.data, r.bytes);
    team_close(r.team);
    close_draft(&d);
    return rc;
}

int main(int argc, char **argv)
{
    struct settings s = {.model = "synthetic:llama-3.2-1b,seed=1,layers=1,vocab=128256",
                         .context = 256,
                         .support = 64,
                         .n_pairs = BENCH_PAIRS_MIN,
                         .heads = {0, 32000, 8192},
                         .n_heads = 3};
    const struct bench_option options[] = {
        {"model", 'm', "MODEL", "default synthetic:llama-3.2-1b,seed=1,layers=1,vocab=128256",
         .text = &s.model},
        {"head", 'h', "LIST", "ids of the head, 0 = all; default 0,32000,8192", 0, INT32_MAX,
         .list = {s.heads, &s.n_heads, HEADS_MAX}},
        {"context", 'c', "N", "positions before the token; default 256", 1,
         BLOCKS_MAX * KV_BLOCK_TOKENS - 1, .number = &s.context},
        {"support", 's', "N", "tokens of q; default 64", 1, SUPPORT_MAX, .number = &s.support},
        {"pairs", 'p', "N", "pairs of slices; default 20", 2, BENCH_PAIRS_MAX,
         .number = &s.n_pairs},
        {0},
    };
    const struct bench_command command = {.options = options, .backend = &s.backend};
    struct error err = {0};
    int rc = 0;
    bench_parse(argc, argv, &command);
    for (int i = 0; i < BLOCKS_MAX; i++) {
        blocks[i] = i;
    }
    for (int i = 0; i < CHUNK; i++) {
        chunk_tokens[i] = 5 + i % 251;
    }
    printf("%s, %d threads, context %d\n", s.model, s.backend.n_threads, s.context);
    for (int i = 0; i < s.n_heads; i++) {
        TRY(bench_head(&s, s.heads[i], &err));
    }
out:
    if (rc) give_up(&err);
    return 0;
}
