/* How much synthetic drafts agree with their targets. Its results fill and check the table of
 * model/checkpoint/synthetic_agree.c.
 *
 *   bench_agree [--shape SHAPE[,layers=L][,vocab=V]] [--core N] [--seeds S,S,...]
 *               [--tails R,R,... | --agree A,A,...] [--tokens N] [--threads N]
 *
 * For every tail R the pair is synthetic:SHAPE,seed=S,core=N,tail=R and the same with draft=N; for
 * every A it has agree=A instead. Each pair reads 8 texts of N tokens that the target writes at
 * temperature 1. It prints means over seeds, texts and positions, with twice the standard error
 * between seeds: alpha of `rejection` with the draft's whole softmax, alpha with its best 64 as the
 * coordinator cuts it, how often both models have the same best token, and the target's entropy.
 * Next to A it prints the contrast that the table has for it: the table should hold alpha over
 * contrast. */
#include <math.h>
#include <stdio.h>

#include "bench/agree_measure.h"
#include "bench/options.h"
#include "model/checkpoint/synthetic_agree.h"

enum { LIST_MAX = 64, NAME_BYTES = 512, VALUES_BYTES = 1024 };

struct settings {
    const char *shape;
    int core, n_tokens, n_threads;
    int32_t seeds[LIST_MAX];
    int n_seeds;
    const char *key;            /* "tail" or "agree" */
    const char *tails, *agrees; /* the lists as given; NULL: none */
};

static int measure_seed(const struct settings *s, const char *value, int32_t seed,
                        struct agree_sums *sums, struct error *err)
{
    static struct agree_pair pair;
    char target[NAME_BYTES], draft[NAME_BYTES + 32];
    int rc = 0;
    snprintf(target, sizeof target, "synthetic:%s,seed=%d,core=%d,%s=%s", s->shape, (int)seed,
             s->core, s->key, value);
    snprintf(draft, sizeof draft, "%s,draft=%d", target, s->core);
    TRY(agree_open(&pair, target, draft, s->n_tokens, s->n_threads, err));
    TRY(agree_measure(&pair, s->n_tokens, (uint64_t)seed, sums, err));
out:
    agree_close(&pair);
    return rc;
}

static int measure_value(const struct settings *s, const char *value, struct error *err)
{
    double full = 0, square = 0, cut = 0, greedy = 0, entropy = 0;
    double n = s->n_seeds;
    int rc = 0, n_positions = 0;
    for (int i = 0; i < s->n_seeds; i++) {
        struct agree_sums sums = {0};
        TRY(measure_seed(s, value, s->seeds[i], &sums, err));
        full += sums.full / sums.n;
        square += sums.full / sums.n * (sums.full / sums.n);
        cut += sums.cut / sums.n;
        greedy += sums.greedy / sums.n;
        entropy += sums.entropy / sums.n;
        n_positions += sums.n;
    }
    double variance = n > 1 ? (square / n - full / n * (full / n)) / (n - 1) : 0;
    bool is_agree = strcmp(s->key, "agree") == 0;
    printf("%8s  %8.3f  %.3f +- %.3f  %10.3f  %10.3f  %7.2f  %9d\n", value,
           is_agree ? synthetic_agree_contrast(strtod(value, NULL)) : (double)NAN, full / n,
           2 * sqrt(variance > 0 ? variance : 0), cut / n, greedy / n, entropy / n, n_positions);
    fflush(stdout);
out:
    return rc;
}

int main(int argc, char **argv)
{
    char values[VALUES_BYTES], *rest = NULL;
    struct settings s = {.shape = "tiny",
                         .core = 1,
                         .n_tokens = 72,
                         .n_threads = 1,
                         .seeds = {1, 2, 3},
                         .n_seeds = 3,
                         .agrees = "0.3,0.5,0.7,0.9"};
    const struct bench_option options[] = {
        {"shape", 's', "SHAPE", "with layers= and vocab= if wanted; default tiny",
         .text = &s.shape},
        {"core", 'c', "N", "layers of the draft; default 1", 1, 4096, .number = &s.core},
        {"seeds", 'S', "LIST", "of the models; default 1,2,3", 0, 1 << 30,
         .list = {s.seeds, &s.n_seeds, LIST_MAX}},
        {"tails", 'r', "LIST", "scales of the layers after the core", .text = &s.tails},
        {"agree", 'a', "LIST", "wished agreements; default 0.3,0.5,0.7,0.9", .text = &s.agrees},
        {"tokens", 'n', "N", "of a text; default 72, 8 of them a random prompt", AGREE_PROMPT + 1,
         AGREE_TOKENS_MAX, .number = &s.n_tokens},
        {"threads", 't', "N", "default 1", 1, 64, .number = &s.n_threads},
        {0},
    };
    const struct bench_command command = {.options = options};
    struct error err = {0};
    int rc = 0;
    bench_parse(argc, argv, &command);
    s.key = s.tails ? "tail" : "agree";
    snprintf(values, sizeof values, "%s", s.tails ? s.tails : s.agrees);
    printf("synthetic:%s, core %d, %d seeds, texts of %d tokens\n", s.shape, s.core, s.n_seeds,
           s.n_tokens);
    printf("%8s  %8s  %14s  %10s  %10s  %7s  %9s\n", s.key, "contrast", "alpha", "of best 64",
           "same best", "nats", "positions");
    for (char *v = strtok_r(values, ",", &rest); v && !rc; v = strtok_r(NULL, ",", &rest)) {
        rc = measure_value(&s, v, &err);
    }
    if (rc) fprintf(stderr, "bench_agree: %s\n", err.text);
    return rc ? 1 : 0;
}
