/* Ways to feed a sequence to a model, and a reference that all of them must equal: what the tests
 * of the forward pass in each arithmetic share. */
#pragma once

#include <stdio.h>

#include "model/backend/cpu/kernels/kernels.h"
#include "tests/support/forward_util.h"

#define TALES  SOURCE_DIR "/deploy/models/tales/target"
#define DRAFT  SOURCE_DIR "/deploy/models/tales/draft"
#define GOLDEN SOURCE_DIR "/tests/golden/models/"

enum {
    N_TOKENS = 300,     /* more than one attention partition of 256 */
    N_TOKENS_SHORT = 40 /* where partitions are not the question */
};

static int32_t tokens[N_TOKENS], other[3][N_TOKENS];
static int32_t blocks[4][RIG_BLOCKS / 4];

/* Tokens from a fixed generator, and block tables that are not in order. */
static inline void make_inputs(int n_vocab)
{
    uint32_t state = 12345;
    for (int i = 0; i < N_TOKENS; i++) {
        int32_t *rows[4] = {tokens, other[0], other[1], other[2]};
        for (int r = 0; r < 4; r++) {
            state = state * 1664525u + 1013904223u;
            rows[r][i] = (int32_t)((state >> 8) % (uint32_t)n_vocab);
        }
    }
    for (int i = 0; i < RIG_BLOCKS; i++) {
        blocks[i % 4][i / 4] = (i * 37 + 11) % RIG_BLOCKS;
    }
}

static inline float *new_logits(const struct rig *rig, int n)
{
    float *logits = calloc((size_t)n * (size_t)rig->n_vocab, sizeof *logits);
    ck_assert_ptr_nonnull(logits);
    return logits;
}

static inline void check_equal(const struct rig *rig, const float *a, const float *b, int n,
                               const char *what)
{
    size_t count = (size_t)n * (size_t)rig->n_vocab;
    if (memcmp(a, b, count * sizeof *a) == 0) return;
    for (size_t i = 0; i < count; i++) {
        ck_assert_msg(memcmp(&a[i], &b[i], sizeof a[i]) == 0,
                      "%s: position %zu, token %zu: %.9g and %.9g", what, i / (size_t)rig->n_vocab,
                      i % (size_t)rig->n_vocab, (double)a[i], (double)b[i]);
    }
}

/* The logits that others are compared with: T = 1, one thread, n tokens at once. */
static inline float *reference(const char *model, int n)
{
    struct rig rig;
    rig_open(&rig, model, 1, "auto", 1);
    make_inputs(rig.n_vocab);
    float *logits = new_logits(&rig, n);
    rig_logits(&rig, tokens, n, n, blocks[0], logits);
    double spread = 0;
    for (int id = 0; id < rig.n_vocab; id++) {
        spread += (double)(logits[id] - logits[0]) * (double)(logits[id] - logits[0]);
    }
    ck_assert_msg(spread > 0, "all logits are equal: the test could not fail");
    rig_close(&rig);
    return logits;
}

/* One way to feed n tokens. */
struct way {
    int n_ranks, n_threads, chunk;
    const char *kernels;
};

static inline void check_way(const char *model, const float *want, int n, struct way way)
{
    struct error err;
    const struct kernels *found;
    char what[200];
    if (kernels_find(&found, way.kernels, &err)) {
        printf("not run on this machine: %s\n", err.text);
        return;
    }
    const char *folder = strrchr(model, '/');
    snprintf(what, sizeof what, "%s T=%d kernels=%s threads=%d chunk=%d", folder ? folder : model,
             way.n_ranks, way.kernels, way.n_threads, way.chunk);
    struct rig rig;
    rig_open(&rig, model, way.n_ranks, way.kernels, way.n_threads);
    float *got = new_logits(&rig, n);
    rig_logits(&rig, tokens, n, way.chunk, blocks[1], got);
    check_equal(&rig, want, got, n, what);
    rig_close(&rig);
    free(got);
}
