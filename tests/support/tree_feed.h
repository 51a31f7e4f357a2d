/* A tree of guesses fed to a rig, and the chains that it must equal: what the tests of trees share.
 * The text and its tree lie in the block table blocks[0] with tails from blocks[2]; chains are fed
 * in blocks[1]. */
#pragma once

#include "tests/support/forward_ways.h"

enum { CONTINUED = 3, TREE_TEXT_MAX = N_TOKENS + TREE_NODES_MAX };

/* Parents of every shape, ended by -2. */
static const int32_t tree_shapes[][TREE_NODES_MAX + 1] = {
    {-1, -2},
    {-1, 0, 1, 2, -2},                                                 /* a chain */
    {-1, -1, -1, -1, -1, -1, -1, -1, -2},                              /* a star */
    {-1, 0, 0, 0, -1, 4, 4, 4, -1, 8, 8, 8, -2},                       /* three times three */
    {-1, 0, 1, 1, 0, 4, 4, -1, 7, 8, 8, 7, 11, 11, -2},                /* binary */
    {-1, 0, 1, 2, 3, 4, 1, 6, 0, -1, -2},                              /* uneven */
    {-1, -1, 1, -1, 3, 4, -1, -2},                                     /* a forest */
    {-1, 0, 1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1, 0, -1, -2},            /* a comb */
    {-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 12, 0, -2}, /* as deep as can be */
    {-1, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, -1,
     -2} /* its long path is second */
};
enum { N_SHAPES = sizeof tree_shapes / sizeof *tree_shapes };

/* One tree after n_committed tokens. */
struct planted {
    struct tree_layout shape;
    const int32_t *parents;
    int n_committed;
    int32_t text[TREE_TEXT_MAX]; /* committed tokens, then the guesses */
};

static inline void plant(struct planted *p, const struct rig *rig, int shape, int n_committed)
{
    struct error err;
    int n = 0;
    *p = (struct planted){.parents = tree_shapes[shape], .n_committed = n_committed};
    while (p->parents[n] >= -1) {
        n++;
    }
    CHECK_OK(tree_layout_init(&p->shape, p->parents, n, &err));
    memcpy(p->text, tokens, (size_t)n_committed * sizeof *tokens);
    for (int i = 0; i < n; i++) {
        p->text[n_committed + i] = (other[0][i] + 13 * n_committed) % rig->n_vocab;
    }
}

/* The guesses of a path; returns their number. */
static inline int path_nodes(const struct planted *p, int path, int *nodes)
{
    int n = 0;
    for (int i = 0; i < p->shape.n_nodes; i++) {
        if (path >= p->shape.first_path[i] && path < p->shape.end_path[i]) nodes[n++] = i;
    }
    return n;
}

/* Feeds text[first .. end) in the table and keeps the logits of these positions. */
static inline void feed_run(struct rig *rig, const int32_t *text, int first, int end,
                            const int32_t *table, float *logits)
{
    const struct rig_lane lane = {
        .tokens = text, .first = first, .n = end - first, .blocks = table, .logits = logits};
    if (end > first) rig_feed(rig, &lane, 1);
}

/* A path's chain of the first n_guesses guesses, and tokens that follow. Returns its length. */
static inline int write_chain(const struct planted *p, int path, int n_guesses, int32_t *text)
{
    int nodes[TREE_NODES_MAX], n = p->n_committed;
    path_nodes(p, path, nodes);
    memcpy(text, p->text, (size_t)n * sizeof *text);
    for (int i = 0; i < n_guesses; i++) {
        text[n++] = p->text[p->n_committed + nodes[i]];
    }
    for (int i = 0; i < CONTINUED; i++) {
        text[n++] = other[1][i];
    }
    return n;
}

static inline void expect_row(const struct rig *rig, const float *want, int want_row,
                              const float *got, int got_row, const char *what)
{
    size_t width = (size_t)rig->n_vocab;
    check_equal(rig, want + (size_t)want_row * width, got + (size_t)got_row * width, 1, what);
}

/* The table of a text that has accepted a path: the path's tail in place of the table's blocks. */
static inline void accept_path(const struct planted *p, int path, int32_t *table)
{
    const int32_t *tail = blocks[2];
    int first = p->n_committed / KV_BLOCK_TOKENS;
    memcpy(table, blocks[0], sizeof blocks[0]);
    for (int i = 1; i < path; i++) {
        tail += tree_layout_tail(&p->shape, i, p->n_committed, KV_BLOCK_TOKENS);
    }
    int n = tree_layout_tail(&p->shape, path, p->n_committed, KV_BLOCK_TOKENS);
    for (int i = 0; path > 0 && i < n; i++) {
        table[first + i] = tail[i];
    }
}

/* After n_guesses of a path have been accepted, the next tokens have the chain's logits. */
static inline void expect_accepted(struct rig *rig, const struct planted *p, int path,
                                   int n_guesses, const float *want, float *got)
{
    char what[100];
    int32_t text[TREE_TEXT_MAX], table[RIG_BLOCKS / 4];
    int end = write_chain(p, path, n_guesses, text);
    accept_path(p, path, table);
    feed_run(rig, text, end - CONTINUED, end, table, got);
    snprintf(what, sizeof what, "%d committed, behind %d guesses of path %d", p->n_committed,
             n_guesses, path);
    for (int i = end - CONTINUED; i < end; i++) {
        expect_row(rig, want, i, got, i, what);
    }
}

/* The logits of a path in the tree's step, and of what follows once it is accepted, equal those of
 * the path as a chain. */
static inline void expect_path(struct rig *rig, const struct planted *p, int path,
                               const float *in_tree, float *chain, float *got)
{
    char what[100];
    int nodes[TREE_NODES_MAX], n = path_nodes(p, path, nodes), n_committed = p->n_committed;
    int32_t text[TREE_TEXT_MAX];
    for (int n_guesses = n; n_guesses >= 0; n_guesses -= n / 2 + 1) {
        int end = write_chain(p, path, n_guesses, text);
        feed_run(rig, text, n_committed - 1, end, blocks[1], chain);
        for (int i = 0; i < n_guesses; i++) {
            snprintf(what, sizeof what, "%d committed, %d guesses, guess %d in path %d",
                     n_committed, p->shape.n_nodes, nodes[i], path);
            expect_row(rig, chain, n_committed + i, in_tree, n_committed + nodes[i], what);
        }
        expect_row(rig, chain, n_committed - 1, in_tree, n_committed - 1, "the last committed");
        expect_accepted(rig, p, path, n_guesses, chain, got);
    }
}

/* Plants a tree whose step feeds the last n_fed committed tokens too, with neighbours or alone, and
 * compares all of its paths. */
static inline void check_tree(struct rig *rig, int shape, int n_committed, int n_fed,
                              bool has_neighbours)
{
    static struct planted p;
    int first = n_committed > n_fed ? n_committed - n_fed : 0;
    plant(&p, rig, shape, n_committed);
    float *in_tree = new_logits(rig, TREE_TEXT_MAX), *chain = new_logits(rig, TREE_TEXT_MAX);
    float *got = new_logits(rig, TREE_TEXT_MAX), *beside[2],
          *alone = new_logits(rig, N_TOKENS_SHORT);
    const struct forward_tree tree = {&p.shape, blocks[2]};
    const struct rig_lane lane = {.tokens = p.text,
                                  .first = first,
                                  .n = n_committed + p.shape.n_nodes - first,
                                  .blocks = blocks[0],
                                  .logits = in_tree,
                                  .tree = &tree};
    struct rig_lane lanes[3] = {[1] = lane};
    for (int i = 0; i < 2; i++) {
        beside[i] = new_logits(rig, N_TOKENS_SHORT);
        lanes[2 * i] = (struct rig_lane){
            .tokens = other[2], .n = i ? 21 : 9, .blocks = blocks[3] + 10 * i, .logits = beside[i]};
    }
    feed_run(rig, p.text, 0, n_committed, blocks[1], chain);
    feed_run(rig, p.text, 0, first, blocks[0], got);
    if (has_neighbours) {
        rig_feed(rig, lanes, 3);
        feed_run(rig, other[2], 0, 21, blocks[3] + 20, alone);
        check_equal(rig, alone, beside[0], 9, "the lane before a tree");
        check_equal(rig, alone, beside[1], 21, "the lane behind a tree");
    } else {
        rig_feed(rig, &lane, 1);
    }
    for (int path = 0; path < p.shape.n_paths; path++) {
        expect_path(rig, &p, path, in_tree, chain, got);
    }
    free(in_tree);
    free(chain);
    free(got);
    free(alone);
    free(beside[0]);
    free(beside[1]);
}
