/* ctest: labels=quick,bits libs=model timeout=300 */
/* Look-ahead tokens in a step: the row of one has the bits that a token with the same embedding
 * has, and no other row changes, whatever their embeddings are. Over trees, chunks, ranks, threads,
 * kinds of models and, where OUTRIDER_TEST_DEVICE names one, on a device. */
#include "tests/support/tree_feed.h"

#define TINY "synthetic:tiny,seed=7,vocab=100"

enum { N_LOOK_AHEAD = 4, WIDTH_MAX = 1024 };

static float embeddings[N_LOOK_AHEAD][WIDTH_MAX];
static struct weight look_ahead;

/* Embeddings of the first tokens of other[1], or others that no token has. */
static void make_embeddings(const char *model, bool are_of_tokens)
{
    struct error err;
    struct checkpoint *ck;
    struct weight table;
    CHECK_OK(checkpoint_open(&ck, model, &err));
    int dim = checkpoint_config(ck)->dim, n_vocab = checkpoint_config(ck)->vocab_size;
    ck_assert_int_le(dim, WIDTH_MAX);
    CHECK_OK(checkpoint_find(ck, "model.embed_tokens.weight", n_vocab, dim, &table, &err));
    make_inputs(n_vocab);
    float *rows = embeddings[0]; /* [N_LOOK_AHEAD][dim] */
    for (int i = 0; i < N_LOOK_AHEAD; i++) {
        weight_read_f32(&table, other[1][i], 0, dim, rows + i * dim);
        for (int c = 0; !are_of_tokens && c < dim; c++) {
            rows[i * dim + c] *= (float)(2 + (c + i) % 5);
        }
    }
    look_ahead = (struct weight){.dtype = DTYPE_F32,
                                 .n_rows = N_LOOK_AHEAD,
                                 .n_cols = dim,
                                 .data = (const uint8_t *)embeddings};
    rig_look_ahead = &look_ahead;
    checkpoint_close(ck);
}

/* True if node i is a look-ahead token: leaves with what only leads to them. */
static bool is_ahead(const struct planted *p, int i)
{
    for (int c = i + 1; c < p->shape.n_nodes; c++) {
        if (p->parents[c] == i && !is_ahead(p, c)) return false;
    }
    return i % 3 != 0;
}

/* Feeds the tree after n_committed tokens, of which the step has n_fed. */
static void feed_tree(struct rig *rig, const struct planted *p, int n_fed, float *logits)
{
    int first = p->n_committed > n_fed ? p->n_committed - n_fed : 0;
    const struct forward_tree tree = {&p->shape, blocks[2]};
    const struct rig_lane lane = {.tokens = p->text,
                                  .first = first,
                                  .n = p->n_committed + p->shape.n_nodes - first,
                                  .blocks = blocks[0],
                                  .logits = logits,
                                  .tree = &tree};
    feed_run(rig, p->text, 0, first, blocks[0], logits);
    rig_feed(rig, &lane, 1);
}

/* Feeds a tree twice: with tokens of other[1], and with look-ahead tokens in the places of some.
 * Returns how many there were. */
static int compare(struct rig *rig, int shape, int n_committed, int n_fed, bool are_of_tokens)
{
    static struct planted p;
    int n_ahead = 0, n = n_committed;
    plant(&p, rig, shape, n_committed);
    float *want = new_logits(rig, TREE_TEXT_MAX), *got = new_logits(rig, TREE_TEXT_MAX);
    for (int i = 0; i < p.shape.n_nodes; i++) {
        if (is_ahead(&p, i)) p.text[n_committed + i] = other[1][p.shape.depth[i] % N_LOOK_AHEAD];
    }
    feed_tree(rig, &p, n_fed, want);
    for (int i = 0; i < p.shape.n_nodes; i++) {
        if (!is_ahead(&p, i)) continue;
        p.text[n_committed + i] = rig->n_vocab + p.shape.depth[i] % N_LOOK_AHEAD;
        n_ahead++;
    }
    feed_tree(rig, &p, n_fed, got);
    for (int row = 0; row < n + p.shape.n_nodes; row++) {
        if (are_of_tokens || row < n || !is_ahead(&p, row - n)) {
            expect_row(rig, want, row, got, row, "a row beside look-ahead tokens");
        } else {
            size_t width = (size_t)rig->n_vocab;
            ck_assert_msg(memcmp(want + (size_t)row * width, got + (size_t)row * width,
                                 width * sizeof *want) != 0,
                          "row %d is that of another token", row);
        }
    }
    /* Nothing of it is left once the text goes on: the next step writes over it. */
    int32_t text[TREE_TEXT_MAX];
    memcpy(text, p.text, (size_t)n * sizeof *text);
    memcpy(text + n, other[2], CONTINUED * sizeof *text);
    feed_run(rig, text, n, n + CONTINUED, blocks[0], got);
    feed_run(rig, text, 0, n + CONTINUED, blocks[1], want);
    for (int row = n; row < n + CONTINUED; row++) {
        expect_row(rig, want, row, got, row, "what comes after look-ahead tokens");
    }
    free(want);
    free(got);
    return n_ahead;
}

static const struct {
    const char *model;
    int n_ranks, n_threads;
} ways[] = {{TINY, 1, 1},
            {TINY, 2, 1},
            {TINY, 4, 2},
            {GOLDEN "llama_untied", 2, 1},
            {GOLDEN "qwen3_norm_bias", 1, 2},
            {GOLDEN "gemma2_softcap", 2, 1}, /* its embeddings have a scale */
            {GOLDEN "granite_factors", 1, 1}};
enum { N_WAYS = sizeof ways / sizeof *ways };

START_TEST(rows_have_the_bits_of_tokens_with_these_embeddings)
{
    struct rig rig;
    int n_ahead = 0;
    make_embeddings(ways[_i].model, true);
    rig_open(&rig, ways[_i].model, ways[_i].n_ranks, "auto", ways[_i].n_threads);
    for (int shape = _i % 2; shape < N_SHAPES; shape += 2) {
        n_ahead += compare(&rig, shape, 13 + shape, 1 + 4 * (shape % 3), true);
    }
    ck_assert_int_gt(n_ahead, 8);
    rig_close(&rig);
}
END_TEST

START_TEST(no_other_row_changes_with_any_embeddings)
{
    struct rig rig;
    int n_ahead = 0;
    make_embeddings(ways[_i].model, false);
    rig_open(&rig, ways[_i].model, ways[_i].n_ranks, "auto", ways[_i].n_threads);
    for (int shape = 1 - _i % 2; shape < N_SHAPES; shape += 2) {
        n_ahead += compare(&rig, shape, 14 + shape, 1 + 4 * (shape % 3), false);
    }
    ck_assert_int_gt(n_ahead, 8);
    rig_close(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("look_ahead_rows");
    TCase *tcase = tcase_create("look_ahead_rows");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, rows_have_the_bits_of_tokens_with_these_embeddings, 0, N_WAYS);
    tcase_add_loop_test(tcase, no_other_row_changes_with_any_embeddings, 0, N_WAYS);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
