/* ctest: labels=quick libs=model timeout=120 */
/* A head over chosen tokens gives the same logits of them as the whole head, bit for bit, and the
 * best of them. Tested with heads that are tied to the embedding, one that is not, and a synthetic
 * model. */
#include <stdio.h>

#include "model/backend/open.h"
#include "model/model.h"
#include "tests/support/check_util.h"

#define TALES SOURCE_DIR "/deploy/models/tales/target"
#define DRAFT SOURCE_DIR "/deploy/models/tales/draft"

enum { N_TOKENS = 9, N_ROWS = 3, N_BEST = 64, IDS_MAX = 4096, ARENA_BYTES = 1 << 20 };

static const char *const models[] = {TALES, DRAFT, SOURCE_DIR "/tests/golden/models/llama_untied",
                                     "synthetic:tiny,seed=3"};
enum { N_MODELS = sizeof models / sizeof *models };

struct world {
    struct checkpoint *ck;
    struct backend *backend;
    struct model *model;
    struct arena arena;
};

static int open_world(struct world *w, const char *name, const int32_t *ids, int n_ids,
                      struct error *model_err)
{
    struct error err;
    const char *device = getenv("OUTRIDER_TEST_DEVICE");
    const struct backend_options backend = {
        .device = device ? device : "cpu", .weights = "bf16", .kernels = "auto", .n_threads = 2};
    const struct model_options options = {.n_kv_blocks = 4,
                                          .max_tokens = N_TOKENS,
                                          .max_rows = N_ROWS,
                                          .max_lanes = 1,
                                          .head_ids = ids,
                                          .n_head_ids = n_ids};
    *w = (struct world){0};
    CHECK_OK(checkpoint_open(&w->ck, name, &err));
    CHECK_OK(backend_open(&w->backend, &backend, &err));
    CHECK_OK(arena_open(&w->arena, ARENA_BYTES, &err));
    return model_open(&w->model, w->ck, comm_single(), w->backend, &options, model_err);
}

static void close_world(struct world *w)
{
    model_close(w->model);
    w->backend->ops->close(w->backend);
    checkpoint_close(w->ck);
    arena_close(&w->arena);
}

/* The rows after the last N_ROWS tokens of the same text. */
static void feed(struct world *w)
{
    static const int32_t blocks[] = {2, 0, 3, 1};
    struct error err;
    int32_t tokens[N_TOKENS];
    struct forward_row rows[N_ROWS];
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = (i * 53 + 7) % checkpoint_config(w->ck)->vocab_size;
    }
    for (int i = 0; i < N_ROWS; i++) {
        rows[i] = (struct forward_row){0, N_TOKENS - N_ROWS + i};
    }
    const struct forward_lane lane = {0, N_TOKENS, tokens, blocks, NULL};
    CHECK_OK(model_forward(w->model, &lane, 1, rows, N_ROWS, &err));
}

/* Every id, every `step`th id, or one alone. */
static int choose_ids(int32_t *ids, int vocab, int first, int step)
{
    int n = 0;
    for (int id = first; id < vocab && n < IDS_MAX; id += step) {
        ids[n++] = id;
    }
    return n;
}

/* The best of the chosen tokens, by the whole head's logits. */
static int best_of(const float *logits, const int32_t *ids, int n_ids, struct select_item *items)
{
    struct select_heap heap = {.items = items, .capacity = N_BEST};
    for (int i = 0; i < n_ids; i++) {
        select_offer(&heap, (double)logits[ids[i]], ids[i]);
    }
    select_sort_best(&heap);
    return heap.n;
}

static void check_subset(struct world *whole, const char *name, const int32_t *ids, int n_ids)
{
    struct world part;
    struct error err;
    CHECK_OK(open_world(&part, name, ids, n_ids, &err));
    feed(&part);
    for (int row = 0; row < N_ROWS; row++) {
        struct select_item wanted[N_BEST], got[N_BEST];
        int n_got = 0;
        const float *all = model_logits(whole->model, row);
        const float *some = model_logits(part.model, row);
        for (int i = 0; i < n_ids; i++) {
            ck_assert_msg(memcmp(&all[ids[i]], &some[i], sizeof *some) == 0,
                          "%s, %d ids, row %d, id %d: %.9g and %.9g", name, n_ids, row, ids[i],
                          (double)all[ids[i]], (double)some[i]);
        }
        int n_wanted = best_of(all, ids, n_ids, wanted);
        arena_reset(&part.arena);
        CHECK_OK(model_best(part.model, row, N_BEST, &part.arena, got, &n_got, &err));
        ck_assert_int_eq(n_got, n_wanted);
        for (int i = 0; i < n_got; i++) {
            ck_assert_int_eq(got[i].id, wanted[i].id);
            ck_assert(got[i].score == wanted[i].score);
        }
    }
    close_world(&part);
}

START_TEST(the_chosen_logits_are_those_of_the_whole_head)
{
    struct world whole;
    struct error err;
    static int32_t ids[IDS_MAX];
    const char *name = models[_i];
    CHECK_OK(open_world(&whole, name, NULL, 0, &err));
    feed(&whole);
    int vocab = checkpoint_config(whole.ck)->vocab_size;
    static const int ways[][2] = {{0, 1}, {0, 2}, {3, 7}, {5, 19}, {1, 1 << 20}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        int n_ids = choose_ids(ids, vocab, ways[i][0], ways[i][1]);
        check_subset(&whole, name, ids, n_ids);
    }
    ids[0] = vocab - 1; /* the last one, alone */
    check_subset(&whole, name, ids, 1);
    close_world(&whole);
}
END_TEST

START_TEST(a_small_head_holds_few_weights)
{
    struct world whole, part;
    struct error err;
    static int32_t ids[IDS_MAX];
    CHECK_OK(open_world(&whole, DRAFT, NULL, 0, &err));
    int n_ids = choose_ids(ids, 200, 0, 1);
    CHECK_OK(open_world(&part, DRAFT, ids, n_ids, &err));
    const struct model_config *cfg = checkpoint_config(whole.ck);
    size_t left_out = (size_t)(cfg->vocab_size - 512) * (size_t)cfg->dim * sizeof(uint16_t);
    ck_assert_uint_lt(model_weight_bytes(part.model) + left_out - 1,
                      model_weight_bytes(whole.model));
    close_world(&whole);
    close_world(&part);
}
END_TEST

START_TEST(ids_that_make_no_head_are_refused)
{
    static const struct {
        int n;
        int32_t ids[3];
    } wrong[] = {{2, {5, 5}}, {2, {6, 5}}, {1, {4096}}, {1, {-1}}, {0, {0}}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct world w;
        struct error err;
        ck_assert_int_eq(open_world(&w, TALES, wrong[i].ids, wrong[i].n, &err), ERR_ARGUMENT);
        ck_assert_ptr_null(w.model);
        close_world(&w);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("head_subset");
    TCase *tcase = tcase_create("heads");
    tcase_set_timeout(tcase, 280);
    tcase_add_loop_test(tcase, the_chosen_logits_are_those_of_the_whole_head, 0, N_MODELS);
    tcase_add_test(tcase, a_small_head_holds_few_weights);
    tcase_add_test(tcase, ids_that_make_no_head_are_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
