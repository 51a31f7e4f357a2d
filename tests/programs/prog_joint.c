/* ctest: libs=model */
/* The exact joint distribution of the two tokens after a prompt: p(a) p(b | a) from whole rows of
 * logits in one process, with top-k (0 = all) at temperature 1, by plain code of its own. Prints
 * one line `A B PROBABILITY` per pair that has at least LEAST, and one `A -1 PROBABILITY` for all
 * other pairs that begin with A.
 *   prog_joint MODEL TOP_K LEAST ID,ID,... [REPETITION PRESENCE FREQUENCY BIAS ID,ID,... [BAN]...]
 * The logits are changed first, as proto/generation.proto says: the repetition penalty is of tokens
 * of the prompt and the answer, the others count the answer; the ids get the bias; each BAN is a
 * list of ids that must not follow each other. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text/options.h"
#include "model/backend/cpu/cpu.h"
#include "model/model.h"

enum { PROMPT_MAX = 64, STEP_TOKENS = PROMPT_MAX + 1, IDS_MAX = 32, BANS_MAX = 8 };

struct token {
    int32_t id;
    float logit;
    double p;
};

static int by_logit(const void *left, const void *right)
{
    const struct token *a = left, *b = right;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : 1; /* ties go to the lowest id */
}

struct ids {
    int32_t ids[IDS_MAX];
    int n;
};

/* Changes of the logits. */
struct changes {
    float repetition, presence, frequency, bias;
    struct ids biased, bans[BANS_MAX];
    int n_bans;
};

/* The prompt's tokens with room for one more, and which pairs are printed. */
struct question {
    struct changes changes;
    int32_t tokens[STEP_TOKENS];
    int n;
    int top_k; /* 0 = all */
    double least;
};

static int count_of(const int32_t *ids, int n, int32_t id)
{
    int count = 0;
    for (int i = 0; i < n; i++) {
        count += ids[i] == id ? 1 : 0;
    }
    return count;
}

/* True if the id would complete the banned sequence after the first n tokens. */
static bool completes(const struct ids *ban, const int32_t *tokens, int n, int32_t id)
{
    int n_before = ban->n - 1;
    if (ban->ids[n_before] != id || n < n_before) return false;
    for (int i = 0; i < n_before; i++) {
        if (tokens[n - n_before + i] != ban->ids[i]) return false;
    }
    return true;
}

static float change(const struct question *question, int n, int32_t id, float logit)
{
    const struct changes *c = &question->changes;
    int n_answer = n - question->n;
    int n_there = count_of(question->tokens + question->n, n_answer, id);
    if (count_of(question->tokens, n, id) > 0) {
        logit = logit > 0 ? logit / c->repetition : logit * c->repetition;
    }
    if (n_there > 0) logit -= c->frequency * (float)n_there + c->presence;
    if (count_of(c->biased.ids, c->biased.n, id) > 0) logit += c->bias;
    for (int i = 0; i < c->n_bans; i++) {
        if (completes(&c->bans[i], question->tokens, n, id)) logit = -INFINITY;
    }
    return logit;
}

/* Ranks the next tokens after the first n: the whole row sorted, the first top_k with their p. */
static int next_tokens(struct model *model, const struct question *question, int n,
                       struct token *row, struct error *err)
{
    static const int32_t blocks[] = {0, 1, 2, 3, 4};
    const struct forward_lane lane = {0, n, question->tokens, blocks, NULL};
    const struct forward_row last = {0, n - 1};
    int n_vocab = model_shard(model)->n_vocab, top_k = question->top_k;
    int rc = model_forward(model, &lane, 1, &last, 1, err);
    if (rc) return rc;
    const float *logits = model_logits(model, 0);
    for (int i = 0; i < n_vocab; i++) {
        row[i] = (struct token){.id = i, .logit = change(question, n, i, logits[i])};
    }
    qsort(row, (size_t)n_vocab, sizeof *row, by_logit);
    double sum = 0;
    for (int i = 0; i < top_k; i++) {
        row[i].p = exp((double)row[i].logit - (double)row[0].logit);
        sum += row[i].p;
    }
    for (int i = 0; i < top_k; i++) {
        row[i].p /= sum;
    }
    return 0;
}

/* The pairs that begin with `first`; a first token that is too rare is one line. */
static int print_pairs(struct model *model, struct question *question, const struct token *first,
                       struct token *seconds, struct error *err)
{
    double rest = first->p, least = question->least;
    int top_k = question->top_k, n_left = top_k;
    question->tokens[question->n] = first->id;
    if (first->p >= least) {
        int rc = next_tokens(model, question, question->n + 1, seconds, err);
        if (rc) return rc;
        for (int b = 0; b < top_k && first->p * seconds[b].p >= least; b++, n_left--) {
            printf("%d %d %.17g\n", first->id, seconds[b].id, first->p * seconds[b].p);
            rest -= first->p * seconds[b].p;
        }
    }
    if (n_left > 0) printf("%d -1 %.17g\n", first->id, rest > 0 ? rest : 0);
    return 0;
}

static int print_joint(struct model *model, struct question *question, struct error *err)
{
    struct token *firsts = NULL, *seconds = NULL;
    int rc = 0, n_vocab = model_shard(model)->n_vocab;
    if (question->top_k == 0 || question->top_k > n_vocab) question->top_k = n_vocab;
    TRY(mem_array(&firsts, (size_t)n_vocab, sizeof *firsts, err));
    TRY(mem_array(&seconds, (size_t)n_vocab, sizeof *seconds, err));
    TRY(next_tokens(model, question, question->n, firsts, err));
    for (int a = 0; a < question->top_k; a++) {
        TRY(print_pairs(model, question, &firsts[a], seconds, err));
    }
out:
    free(firsts);
    free(seconds);
    return rc;
}

static int read_changes(struct changes *c, int argc, char **argv, struct error *err)
{
    const struct options_range ids = {0, INT32_MAX};
    int rc = 0;
    *c = (struct changes){.repetition = 1};
    if (argc == 0) return 0;
    TRY(options_float(&c->repetition, "REPETITION", argv[0], 0, 100, err));
    TRY(options_float(&c->presence, "PRESENCE", argv[1], -100, 100, err));
    TRY(options_float(&c->frequency, "FREQUENCY", argv[2], -100, 100, err));
    TRY(options_float(&c->bias, "BIAS", argv[3], -100, 100, err));
    TRY(options_int_list(c->biased.ids, &c->biased.n, IDS_MAX, "the ids", argv[4], ids, err));
    for (int i = 5; i < argc; i++) {
        struct ids *ban = &c->bans[c->n_bans++];
        TRY(options_int_list(ban->ids, &ban->n, IDS_MAX, "BAN", argv[i], ids, err));
    }
out:
    return rc;
}

int main(int argc, char **argv)
{
    const struct backend_cpu_options cpu = {"auto", 1, WEIGHTS_BF16};
    const struct model_options options = {.n_kv_blocks = STEP_TOKENS / KV_BLOCK_TOKENS + 1,
                                          .max_tokens = STEP_TOKENS,
                                          .max_rows = 1,
                                          .max_lanes = 1};
    struct error err;
    struct checkpoint *ck = NULL;
    struct backend *backend = NULL;
    struct model *model = NULL;
    struct question question;
    float least;
    int rc = 0;
    if (argc < 5 || (argc > 5 && argc < 10) || argc > 10 + BANS_MAX) {
        fprintf(stderr, "usage: prog_joint MODEL TOP_K LEAST ID,ID,... [REPETITION PRESENCE "
                        "FREQUENCY BIAS ID,ID,... [ID,ID,...]...]\n");
        return 2;
    }
    TRY(options_int(&question.top_k, "TOP_K", argv[2], 0, INT32_MAX, &err));
    TRY(options_float(&least, "LEAST", argv[3], 0, 1, &err));
    TRY(options_int_list(question.tokens, &question.n, PROMPT_MAX, "the prompt", argv[4],
                         (struct options_range){0, INT32_MAX}, &err));
    TRY(read_changes(&question.changes, argc - 5, argv + 5, &err));
    TRY(checkpoint_open(&ck, argv[1], &err));
    TRY(backend_cpu_open(&backend, &cpu, &err));
    TRY(model_open(&model, ck, comm_single(), backend, &options, &err));
    question.least = (double)least;
    TRY(print_joint(model, &question, &err));
out:
    if (rc) fprintf(stderr, "prog_joint: %s\n", err.text);
    model_close(model);
    if (backend) backend->ops->close(backend);
    checkpoint_close(ck);
    return rc ? 1 : 0;
}
