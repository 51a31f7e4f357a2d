/* Measures the cost of a step that verifies a tree of guesses compared with a chain of as many
 * rows.
 *
 *   bench_tree [--model MODEL] [--device cpu] [--weights bf16] [--kernels auto] [--threads N]
 *              [--context N] [--nodes N] [--pairs N]
 *
 * One rank in this process feeds the token at position `context` and N guesses after it over and
 * over; each step overwrites the one before. For every shape of tree the arms "tree" and "chain"
 * alternate in slices of 0.2 s. The ratio is the time of the tree over the time of the chain, the
 * median of the pairs with quartiles. Besides rows, a tree has paths: each has blocks of its own,
 * into which the committed positions of the block of the first guess are copied in every layer, and
 * guesses are stored once for each path they are in. */
#include <stdio.h>

#include "bench/bench_util.h"
#include "bench/options.h"
#include "model/model.h"

enum { CHUNK = 256, BLOCKS_MAX = 8192, TREE_SLICE_US = 200000, ROWS_MAX = TREE_NODES_MAX + 1 };

struct settings {
    const char *model;
    struct backend_options backend;
    int context, n_nodes, n_pairs;
};

/* One arm: a step of 1 + N rows, all of whose logits are wanted. */
struct tree_arm {
    struct model *model;
    struct forward_lane lane;
    struct forward_row rows[ROWS_MAX];
};

static double run_step(void *arg)
{
    const struct tree_arm *arm = arg;
    struct error err;
    if (model_forward(arm->model, &arm->lane, 1, arm->rows, arm->lane.n_tokens, &err) ||
        model_wait(arm->model, &err)) {
        fprintf(stderr, "bench_tree: %s\n", err.text);
        exit(EXIT_FAILURE);
    }
    return 1;
}

/* The parent of guess i. */
typedef int32_t parent_fn(int i, int n);

/* All guesses follow the last committed token. */
static int32_t parent_in_star(int i, int n)
{
    (void)i, (void)n;
    return -1;
}

/* A chain of half of the guesses, whose guesses have one more child each. */
static int32_t parent_in_comb(int i, int n)
{
    int n_spine = (n + 1) / 2;
    return i < n_spine ? i - 1 : n - i - 2;
}

/* Chains of four. */
static int32_t parent_in_fours(int i, int n)
{
    (void)n;
    return i % 4 == 0 ? -1 : i - 1;
}

/* A binary tree: a node whose subtree has m guesses has children with m / 2 and the rest. */
static int32_t parent_in_binary(int i, int n)
{
    int32_t parent = -1;
    int first = 0, size = n; /* guesses of the forest that i is in */
    for (;;) {
        int left = (size + 1) / 2;
        if (i >= first + left) {
            first += left;
            size -= left;
        } else {
            size = left;
        }
        if (i == first) return parent;
        parent = first++;
        size--;
    }
}

static const struct {
    const char *name;
    parent_fn *parent;
} shapes[] = {{"star", parent_in_star},
              {"comb", parent_in_comb},
              {"chains of 4", parent_in_fours},
              {"binary", parent_in_binary}};

static void compare(struct tree_arm *tree, const struct settings *s, const char *name,
                    const struct tree_layout *shape)
{
    static struct tree_arm chain;
    chain = *tree;
    chain.lane.tree = NULL;
    const struct timed_arm tree_arm = {run_step, tree}, chain_arm = {run_step, &chain};
    struct bench_pairs pairs = bench_compare(&chain_arm, &tree_arm, s->n_pairs, TREE_SLICE_US);
    printf("%-12s  %5d  %5d  %10.3f  %10.3f  %.3f (%.3f to %.3f)\n", name, shape->n_paths,
           tree_layout_levels(shape), 1e3 / pairs.b.median, 1e3 / pairs.a.median,
           pairs.ratio.median, pairs.ratio.low, pairs.ratio.high);
    fflush(stdout);
}

static int compare_shapes(struct tree_arm *arm, const struct settings *s, struct error *err)
{
    int rc = 0;
    printf("%-12s  %5s  %5s  %10s  %10s  %s\n", "tree", "paths", "depth", "tree: ms", "chain: ms",
           "tree over chain");
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++) {
        int32_t parents[TREE_NODES_MAX];
        struct tree_layout shape;
        static int32_t tails[TREE_TAILS_MAX];
        for (int n = 0; n < s->n_nodes; n++) {
            parents[n] = shapes[i].parent(n, s->n_nodes);
        }
        TRY(tree_layout_init(&shape, parents, s->n_nodes, err));
        int first_tail = (s->context + ROWS_MAX) / KV_BLOCK_TOKENS + 1;
        for (int t = 0; t < TREE_TAILS_MAX; t++) {
            tails[t] = first_tail + t;
        }
        const struct forward_tree tree = {&shape, tails};
        arm->lane.tree = &tree;
        compare(arm, s, shapes[i].name, &shape);
    }
out:
    return rc;
}

/* Fills the KV up to `context`. */
static int read_context(struct model *model, const struct settings *s, const int32_t *blocks,
                        const int32_t *tokens, struct error *err)
{
    int rc = 0;
    for (int pos = 0; pos < s->context && !rc; pos += CHUNK) {
        int n = s->context - pos < CHUNK ? s->context - pos : CHUNK;
        const struct forward_lane lane = {pos, n, tokens, blocks, NULL};
        rc = model_forward(model, &lane, 1, NULL, 0, err);
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct settings s = {.model = "synthetic:qwen2.5-0.5b,seed=1",
                         .context = 1000,
                         .n_nodes = 16,
                         .n_pairs = BENCH_PAIRS_MIN};
    const struct bench_option options[] = {
        {"model", 'm', "MODEL", "default synthetic:qwen2.5-0.5b,seed=1", .text = &s.model},
        {"context", 'c', "N", "positions before the step; default 1000", 1, 32768,
         .number = &s.context},
        {"nodes", 'n', "N", "guesses of a tree; default 16", 1, 2 * DRAFT_MAX,
         .number = &s.n_nodes},
        {"pairs", 'p', "N", "pairs of slices; default 20", 2, BENCH_PAIRS_MAX,
         .number = &s.n_pairs},
        {0},
    };
    const struct bench_command command = {.options = options, .backend = &s.backend};
    static int32_t blocks[BLOCKS_MAX], tokens[CHUNK];
    static struct tree_arm arm;
    struct error err = {0};
    struct checkpoint *ck = NULL;
    struct backend *be = NULL;
    int rc = 0;
    bench_parse(argc, argv, &command);
    for (int i = 0; i < BLOCKS_MAX; i++) {
        blocks[i] = i;
    }
    const struct model_options mo = {.n_kv_blocks = (s.context + ROWS_MAX) / KV_BLOCK_TOKENS + 1 +
                                                    TREE_TAILS_MAX,
                                     .max_tokens = CHUNK,
                                     .max_rows = ROWS_MAX,
                                     .max_lanes = 1};
    TRY(checkpoint_open(&ck, s.model, &err));
    for (int i = 0; i < CHUNK; i++) {
        tokens[i] = (5 + 7 * i) % checkpoint_config(ck)->vocab_size;
    }
    s.backend.stored = checkpoint_config(ck)->stored;
    TRY(backend_open(&be, &s.backend, &err));
    TRY(model_open(&arm.model, ck, comm_single(), be, &mo, &err));
    TRY(read_context(arm.model, &s, blocks, tokens, &err));
    printf("%s, kernels %s, %d threads, context %d, %d guesses and the token before them\n",
           s.model, be->ops->kernels(be), s.backend.n_threads, s.context, s.n_nodes);
    arm.lane = (struct forward_lane){s.context, 1 + s.n_nodes, tokens, blocks, NULL};
    for (int i = 0; i <= s.n_nodes; i++) {
        arm.rows[i] = (struct forward_row){0, i};
    }
    TRY(compare_shapes(&arm, &s, &err));
out:
    if (rc) fprintf(stderr, "bench_tree: %s\n", err.text);
    model_close(arm.model);
    if (be) be->ops->close(be);
    checkpoint_close(ck);
    return rc ? 1 : 0;
}
