/* Speculation compared with plain decoding for one pair, in one process without the wire: what the
 * two models and the acceptance rule by themselves are worth on a device.
 *
 *   bench_pair --target MODEL --draft MODEL [--device cpu] [--draft-device cpu] [--k 1,2,4,6,8]
 *              [--temperature 1] [--tokens 200] [--context 32] [--pairs 20] [--support 64]
 *
 * For each K the arms "K guesses" and "plain" alternate text by text, and both begin after the same
 * prompt of random ids. It prints tokens per second of both, their ratio as the median of the pairs
 * with quartiles, alpha, tokens per round, t_d of a guess, t_v of a step with 1 and K + 1 rows, and
 *   design 7   t_v(1) E / (K t_d + t_v(K + 1)) with E = (1 - alpha^(K + 1)) / (1 - alpha), what
 *              docs/design.md section 7 predicts where there is no wire */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "bench/bench_model.h"
#include "bench/bench_util.h"
#include "bench/options.h"
#include "model/logits/select.h"
#include "model/model.h"
#include "speculation/accept/rules.h"
#include "speculation/theory/speedup.h"

enum { TEXT_MAX = 4096, BLOCKS_MAX = TEXT_MAX / 16 + 2, ARENA_BYTES = 64 << 20, CHUNK = 64 };

#define DEFAULT_TARGET "synthetic:llama-3.2-1b,seed=1,vocab=32000,agree=0.8"

struct settings {
    const char *target, *draft, *draft_device;
    struct backend_options backend;
    int32_t k[DRAFT_MAX];
    int n_k, n_tokens, context, n_pairs, support;
    float temperature;
};

/* A model, and how far its KV has been written for the current text. */
struct side {
    struct bench_model m;
    int n_kv;
};

struct pair {
    struct side target, draft;
    const struct settings *settings;
    struct sampling_params params;
    const struct rule *rule;
    struct arena arena;
    struct select_item *scratch;
    struct sparse_dist q[DRAFT_MAX];
    int32_t blocks[BLOCKS_MAX], text[TEXT_MAX + DRAFT_MAX + 1];
    int n_text;
    uint64_t seed;

    /* Sums of the current text. */
    int64_t draft_ns, verify_ns;
    int n_rounds, n_drafted, n_accepted, n_rejections, n_committed;
};

static int side_open(struct side *side, const char *name, const struct backend_options *backend,
                     struct error *err)
{
    int rc = 0;
    const struct model_options mo = {.n_kv_blocks = BLOCKS_MAX,
                                     .max_tokens = CHUNK + DRAFT_MAX,
                                     .max_rows = DRAFT_MAX + 1,
                                     .max_lanes = 1};
    TRY(checkpoint_open(&side->m.ck, name, err));
    TRY(bench_model_open(&side->m, backend, &mo, err));
out:
    return rc;
}

/* Feeds text[n_kv .. end) and asks for the rows after the last n_rows tokens. */
static int side_feed(struct pair *p, struct side *side, int end, int n_rows, struct error *err)
{
    struct forward_row rows[DRAFT_MAX + 1];
    int rc = 0;
    while (side->n_kv < end) {
        int n = end - side->n_kv > CHUNK + DRAFT_MAX ? CHUNK : end - side->n_kv;
        const struct forward_lane lane = {side->n_kv, n, p->text + side->n_kv, p->blocks, NULL};
        bool is_last = side->n_kv + n == end;
        for (int i = 0; i < n_rows; i++) {
            rows[i] = (struct forward_row){0, n - n_rows + i};
        }
        TRY(model_forward(side->m.model, &lane, 1, rows, is_last ? n_rows : 0, err));
        side->n_kv += n;
    }
out:
    return rc;
}

static int propose(struct pair *p, int k, struct error *err)
{
    int rc = 0, n, n_best = p->params.temperature > 0 ? p->settings->support : 1;
    size_t support = (size_t)p->settings->support;
    for (int i = 0; i < k; i++) {
        const struct rng_address at = {p->seed, (uint32_t)(p->n_text + i), (uint32_t)p->n_text};
        TRY(side_feed(p, &p->draft, p->n_text + i, 1, err));
        p->q[i] = (struct sparse_dist){
            .ids = arena_take(&p->arena, support, sizeof(int32_t)),
            .p = arena_take(&p->arena, support, sizeof(float)),
        };
        if (!p->q[i].ids || !p->q[i].p) return error_set(err, ERR_NO_MEMORY, "no room for q");
        TRY(model_best(p->draft.m.model, 0, n_best, &p->arena, p->scratch, &n, err));
        sampling_draft_best(p->scratch, n, &p->params, &p->q[i]);
        p->text[p->n_text + i] = sparse_draw(&p->q[i], rng_uniform(&at, RNG_DRAFT, 0));
    }
out:
    return rc;
}

/* Computes the rows after the last committed token and after k guesses. */
static int verify(struct pair *p, int k, struct target_row *rows, struct error *err)
{
    struct target_want wants[DRAFT_MAX + 1];
    struct row_wish wishes[DRAFT_MAX + 1];
    struct row_query queries[DRAFT_MAX + 1];
    int rc = 0, n_slices = model_shard(p->target.m.model)->n_slices;
    struct slice_row *slices = arena_take(&p->arena, (size_t)((k + 1) * n_slices), sizeof *slices);
    if (!slices) return error_set(err, ERR_NO_MEMORY, "no room for the rows");
    TRY(side_feed(p, &p->target, p->n_text + k, k + 1, err));
    for (int i = 0; i <= k; i++) {
        const struct rng_address at = {p->seed, (uint32_t)(p->n_text + i), (uint32_t)p->n_text};
        wants[i] = (struct target_want){
            .rule = p->rule, .params = &p->params, .q = i < k ? &p->q[i] : NULL, .at = at};
        target_row_wish(&wants[i], &wishes[i]);
        queries[i] = (struct row_query){i, &wishes[i]};
    }
    TRY(model_answer(p->target.m.model, queries, k + 1, &p->arena, slices, err));
    for (int i = 0; i <= k; i++) {
        bool more;
        const struct target_slices all = {slices + i * n_slices, n_slices,
                                          model_shard(p->target.m.model)->n_vocab};
        TRY(target_row_merge(&all, &wants[i], &wishes[i], &p->arena, &rows[i], &more, err));
    }
out:
    return rc;
}

static int run_round(struct pair *p, int k, struct error *err)
{
    struct target_row rows[DRAFT_MAX + 1];
    int rc = 0;
    arena_reset(&p->arena);
    int64_t start = clock_now_ns();
    TRY(propose(p, k, err));
    int64_t drafted = clock_now_ns();
    TRY(verify(p, k, rows, err));
    int64_t verified = clock_now_ns();
    const struct rng_address at = {p->seed, (uint32_t)p->n_text, (uint32_t)p->n_text};
    struct accept_result result = p->rule->accept(rows, p->q, p->text + p->n_text, k, &at);
    p->n_text += result.n_accepted;
    p->text[p->n_text++] = result.next;
    p->target.n_kv = p->n_text - 1;
    if (p->draft.n_kv > p->n_text - 1) p->draft.n_kv = p->n_text - 1;
    p->draft_ns += drafted - start;
    p->verify_ns += verified - drafted;
    p->n_rounds++;
    p->n_drafted += k;
    p->n_accepted += result.n_accepted;
    p->n_rejections += result.n_accepted < k;
    p->n_committed += result.n_accepted + 1;
out:
    return rc;
}

static void clear_sums(struct pair *p)
{
    p->draft_ns = p->verify_ns = 0;
    p->n_rounds = p->n_drafted = p->n_accepted = p->n_rejections = p->n_committed = 0;
}

/* Decodes one text; returns tokens per second after the prompt, 0 on failure. */
static double run_text(struct pair *p, int k, uint64_t seed, struct error *err)
{
    const struct settings *s = p->settings;
    const struct rng_address at = {seed, 0, 0};
    int n_vocab = model_shard(p->target.m.model)->n_vocab;
    p->seed = seed;
    p->n_text = s->context;
    for (int i = 0; i < p->n_text; i++) {
        p->text[i] = (int32_t)(rng_uniform(&at, RNG_WEIGHT, (uint32_t)i) * n_vocab);
    }
    p->target.n_kv = p->draft.n_kv = 0;
    if (side_feed(p, &p->target, p->n_text - 1, 0, err)) return 0;
    if (k > 0 && side_feed(p, &p->draft, p->n_text - 1, 0, err)) return 0;
    int end = p->n_text + s->n_tokens;
    int64_t start = clock_now_ns();
    while (p->n_text < end) {
        if (run_round(p, k, err)) return 0;
    }
    return (double)(p->n_text - s->context) * 1e9 / (double)(clock_now_ns() - start);
}

/* Sums over all texts of one arm. */
struct sums {
    double draft_us, verify_us;
    int rounds, drafted, accepted, rejections, committed;
};

static void add_text(struct sums *sums, const struct pair *p)
{
    sums->draft_us += (double)p->draft_ns * 1e-3;
    sums->verify_us += (double)p->verify_ns * 1e-3;
    sums->rounds += p->n_rounds;
    sums->drafted += p->n_drafted;
    sums->accepted += p->n_accepted;
    sums->rejections += p->n_rejections;
    sums->committed += p->n_committed;
}

static void print_line(int k, const struct sums *fast, const struct sums *plain,
                       const struct sample_quartiles rate[2], struct sample_quartiles ratio)
{
    double alpha = (double)fast->accepted / (fast->accepted + fast->rejections);
    double t_d = fast->draft_us / fast->drafted, t_1 = plain->verify_us / plain->rounds;
    double t_k = fast->verify_us / fast->rounds;
    printf("%3d %9.1f %9.1f  %5.2f (%.2f to %.2f) %9.2f  %6.3f %7.2f %9.1f %9.1f %9.1f\n", k,
           rate[0].median, rate[1].median, ratio.median, ratio.low, ratio.high,
           t_1 * speedup_tokens(alpha, k) / (k * t_d + t_k), alpha,
           (double)fast->committed / fast->rounds, t_d, t_1, t_k);
    fflush(stdout);
}

static int compare(struct pair *p, int k, struct error *err)
{
    int n = p->settings->n_pairs;
    double rates[2][BENCH_PAIRS_MAX], ratios[BENCH_PAIRS_MAX];
    struct sums sums[2] = {{0}};
    for (int i = 0; i < n; i++) {
        for (int arm = 0; arm < 2; arm++) {
            int is_plain = (arm + i) % 2;
            clear_sums(p);
            rates[is_plain][i] = run_text(p, is_plain ? 0 : k, 1000 + (uint64_t)i, err);
            if (rates[is_plain][i] <= 0) return err->code;
            add_text(&sums[is_plain], p);
        }
        ratios[i] = rates[0][i] / rates[1][i];
    }
    const struct sample_quartiles rate[2] = {sample_quartiles(rates[0], n),
                                             sample_quartiles(rates[1], n)};
    print_line(k, &sums[0], &sums[1], rate, sample_quartiles(ratios, n));
    return 0;
}

static int run(struct pair *p, const struct settings *s, struct error *err)
{
    int rc = 0;
    struct backend_options draft = s->backend;
    if (s->draft_device) draft.device = s->draft_device;
    p->settings = s;
    p->rule = rule_default(s->temperature, false);
    p->params = (struct sampling_params){.temperature = s->temperature, .top_p = 1};
    for (int i = 0; i < BLOCKS_MAX; i++) {
        p->blocks[i] = i;
    }
    TRY(arena_open(&p->arena, ARENA_BYTES, err));
    TRY(mem_array(&p->scratch, (size_t)s->support, sizeof *p->scratch, err));
    TRY(side_open(&p->target, s->target, &s->backend, err));
    TRY(side_open(&p->draft, s->draft, &draft, err));
    if (model_shard(p->target.m.model)->n_vocab != model_shard(p->draft.m.model)->n_vocab) {
        return error_set(err, ERR_ARGUMENT, "%s and %s have vocabularies of %d and %d", s->target,
                         s->draft, model_shard(p->target.m.model)->n_vocab,
                         model_shard(p->draft.m.model)->n_vocab);
    }
    printf("target %s on %s, draft %s on %s, temperature %g, %d tokens, %d pairs\n", s->target,
           p->target.m.be->ops->arithmetic, s->draft, p->draft.m.be->ops->arithmetic,
           (double)s->temperature, s->n_tokens, s->n_pairs);
    printf("  K   K tok/s     plain  speed-up (quartiles)   design 7   alpha  tok/rd   t_d us  "
           "t_v(1) us  t_v(K+1)\n");
    for (int i = 0; i < s->n_k; i++) {
        TRY(compare(p, s->k[i], err));
    }
out:
    return rc;
}

int main(int argc, char **argv)
{
    static struct pair pair;
    struct settings s = {.k = {1, 2, 4, 6, 8},
                         .n_k = 5,
                         .temperature = 1,
                         .n_tokens = 200,
                         .context = 32,
                         .n_pairs = BENCH_PAIRS_MIN,
                         .support = 64};
    const struct bench_option options[] = {
        {"target", 'm', "MODEL", "default " DEFAULT_TARGET, .text = &s.target},
        {"draft", 'd', "MODEL",
         "default, as the target's: a pair of agreement 0.8; needed with --target",
         .text = &s.draft},
        {"draft-device", 'D', "NAME", "default the target's", .text = &s.draft_device},
        {"k", 'k', "LIST", "guesses; default 1,2,4,6,8", 1, DRAFT_MAX,
         .list = {s.k, &s.n_k, DRAFT_MAX}},
        {"temperature", 'T', "T", "0: greedy; default 1", 0, (int)SAMPLING_TEMPERATURE_MAX,
         .fraction = &s.temperature},
        {"tokens", 'n', "N", "of a text; default 200", 1, TEXT_MAX / 2, .number = &s.n_tokens},
        {"context", 'c', "N", "tokens of the prompt; default 32", 2, TEXT_MAX / 2,
         .number = &s.context},
        {"pairs", 'p', "N", "texts of each arm; default 20", 2, BENCH_PAIRS_MAX,
         .number = &s.n_pairs},
        {"support", 's', "N", "tokens of q; default 64", 1, 1024, .number = &s.support},
        {0},
    };
    const struct bench_command command = {.options = options, .backend = &s.backend};
    struct error err = {0};
    bench_parse(argc, argv, &command);
    if (!s.target != !s.draft) {
        fprintf(stderr, "bench_pair: --target and --draft go together\n");
        return 2;
    }
    if (!s.target) {
        s.target = DEFAULT_TARGET;
        s.draft = DEFAULT_TARGET ",draft=1";
    }
    int rc = run(&pair, &s, &err);
    if (rc) fprintf(stderr, "bench_pair: %s\n", err.text);
    bench_model_close(&pair.target.m);
    bench_model_close(&pair.draft.m);
    arena_close(&pair.arena);
    free(pair.scratch);
    return rc ? 1 : 0;
}
