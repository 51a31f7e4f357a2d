/* How much synthetic drafts agree with their targets: fills and checks the table of
 * model/checkpoint/synthetic_agree.c.
 *
 *   bench_agree [--shape SHAPE[,layers=L][,vocab=V]] [--core N] [--seeds S,S,...]
 *               [--tails R,R,... | --agree A,A,...] [--tokens N] [--threads N]
 *
 * For every tail R the pair is synthetic:SHAPE,seed=S,core=N,tail=R and the same with draft=N; for every
 * A it is agree=A instead. Each pair reads 8 texts of N tokens that the target writes at temperature 1.
 * Printed are means over seeds, texts and positions, with twice the standard error between seeds:
 * alpha of `rejection` with the draft's whole softmax, alpha with its best 64 as the coordinator
 * cuts it, how often both models have the same best token, and the target's entropy. Beside A stands
 * the contrast that the table has for it: alpha over contrast is what the table should be. */
#include <argp.h>
#include <math.h>
#include <stdio.h>

#include "base/options.h"
#include "bench/agree_measure.h"
#include "model/checkpoint/synthetic_agree.h"

enum { LIST_MAX = 64, NAME_BYTES = 512 };

struct settings {
    const char *shape;
    int core, n_tokens, n_threads;
    int32_t seeds[LIST_MAX];
    int n_seeds;
    const char *key; /* "tail" or "agree" */
    char *values;    /* the list as given */
};

static const struct argp_option options[] = {
    {"shape", 's', "SHAPE", 0, "with layers= and vocab= if wanted; default tiny", 0},
    {"core", 'c', "N", 0, "layers of the draft; default 1", 0},
    {"seeds", 'S', "LIST", 0, "of the models; default 1,2,3", 0},
    {"tails", 'r', "LIST", 0, "scales of the layers behind the core", 0},
    {"agree", 'a', "LIST", 0, "wished agreements; default 0.3,0.5,0.7,0.9", 0},
    {"tokens", 'n', "N", 0, "of a text; default 72, 8 of them a random prompt", 0},
    {"threads", 't', "N", 0, "default 1", 0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct settings *s = state->input;
    struct error err;
    int rc = 0;
    switch (key) {
    case 's':
        s->shape = arg;
        break;
    case 'c':
        rc = options_int(&s->core, "--core", arg, 1, 4096, &err);
        break;
    case 'S':
        rc = options_int_list(s->seeds, &s->n_seeds, LIST_MAX, "--seeds", arg,
                              (struct options_range){0, 1 << 30}, &err);
        break;
    case 'r':
    case 'a':
        s->key = key == 'r' ? "tail" : "agree";
        s->values = arg;
        break;
    case 'n':
        rc = options_int(&s->n_tokens, "--tokens", arg, AGREE_PROMPT + 1, AGREE_TOKENS_MAX, &err);
        break;
    case 't':
        rc = options_int(&s->n_threads, "--threads", arg, 1, 64, &err);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    if (rc) argp_failure(state, 2, 0, "%s", err.text);
    return 0;
}

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
           is_agree ? checkpoint_agree_contrast(strtod(value, NULL)) : (double)NAN, full / n,
           2 * sqrt(variance > 0 ? variance : 0), cut / n, greedy / n, entropy / n, n_positions);
    fflush(stdout);
out:
    return rc;
}

int main(int argc, char **argv)
{
    char default_values[] = "0.3,0.5,0.7,0.9", *rest = NULL;
    struct settings s = {.shape = "tiny",
                         .core = 1,
                         .n_tokens = 72,
                         .n_threads = 1,
                         .seeds = {1, 2, 3},
                         .n_seeds = 3,
                         .key = "agree",
                         .values = default_values};
    const struct argp argp = {.options = options, .parser = parse_option};
    struct error err = {0};
    int rc = 0;
    argp_parse(&argp, argc, argv, 0, NULL, &s);
    printf("synthetic:%s, core %d, %d seeds, texts of %d tokens\n", s.shape, s.core, s.n_seeds,
           s.n_tokens);
    printf("%8s  %8s  %14s  %10s  %10s  %7s  %9s\n", s.key, "contrast", "alpha", "of best 64",
           "same best", "nats", "positions");
    for (char *v = strtok_r(s.values, ",", &rest); v && !rc; v = strtok_r(NULL, ",", &rest)) {
        rc = measure_value(&s, v, &err);
    }
    if (rc) fprintf(stderr, "bench_agree: %s\n", err.text);
    return rc ? 1 : 0;
}
