/* ctest: labels=quick libs=model timeout=120 */
/* A model of chosen layers computes what a model that has only these layers computes, bit for bit:
 * all layers against the whole, the core of a synthetic target against its draft, weights that are
 * read against weights of a model that is loaded, and both with packed weights from disk. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/backend/open.h"
#include "model/model.h"
#include "tests/support/check_util.h"

#define TALES SOURCE_DIR "/deploy/models/tales/target"
#define PAIR  "synthetic:tiny,layers=4,seed=3,agree=0.7"

enum { N_TOKENS = 9, N_IDS = 40 };

struct world {
    struct checkpoint *ck;
    struct backend *backend;
    struct model *model;
};

struct kind {
    const char *weights, *pack_cache;
    const int32_t *head_ids;
};

static void open_world(struct world *w, const char *name, const struct kind *kind,
                       const struct world *like)
{
    struct error err;
    const struct backend_options backend = {.device = "cpu",
                                            .weights = kind->weights,
                                            .kernels = "auto",
                                            .n_threads = 2,
                                            .pack_cache = kind->pack_cache};
    const struct model_options options = {.n_kv_blocks = 1,
                                          .max_tokens = N_TOKENS,
                                          .max_rows = 1,
                                          .max_lanes = 1,
                                          .head_ids = kind->head_ids,
                                          .n_head_ids = kind->head_ids ? N_IDS : 0,
                                          .like = like ? like->model : NULL};
    *w = (struct world){0};
    CHECK_OK(checkpoint_open(&w->ck, name, &err));
    CHECK_OK(backend_open(&w->backend, &backend, &err));
    CHECK_OK(model_open(&w->model, w->ck, comm_single(), w->backend, &options, &err));
}

static void close_world(struct world *w)
{
    model_close(w->model);
    w->backend->ops->close(w->backend);
    checkpoint_close(w->ck);
}

static const float *feed(struct world *w)
{
    static const int32_t blocks[] = {0};
    struct error err;
    int32_t tokens[N_TOKENS];
    const struct forward_row row = {0, N_TOKENS - 1};
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = (i * 53 + 7) % checkpoint_config(w->ck)->vocab_size;
    }
    const struct forward_lane lane = {0, N_TOKENS, tokens, blocks, NULL};
    CHECK_OK(model_forward(w->model, &lane, 1, &row, 1, &err));
    return model_logits(w->model, 0);
}

static bool is_alike(struct world *a, struct world *b)
{
    size_t n = (size_t)model_shard(a->model)->n_vocab;
    ck_assert_uint_eq(n, (size_t)model_shard(b->model)->n_vocab);
    return memcmp(feed(a), feed(b), n * sizeof(float)) == 0;
}

static void check_alike(const char *left, const char *right, const struct kind *kind, bool expected)
{
    struct world a, b;
    open_world(&a, left, kind, NULL);
    open_world(&b, right, kind, NULL);
    ck_assert_msg(is_alike(&a, &b) == expected, "%s and %s with %s weights", left, right,
                  kind->weights);
    close_world(&a);
    close_world(&b);
}

static const char *const forms[] = {"bf16", "int8", "int4"};

START_TEST(a_list_of_all_layers_is_the_whole_model)
{
    const struct kind kind = {.weights = forms[_i]};
    check_alike(TALES, TALES ",layers=all", &kind, true);
    check_alike(TALES, TALES ",layers=0-1", &kind, false);
    check_alike("synthetic:tiny,seed=3", "synthetic:tiny,seed=3,layers=0-1", &kind, true);
}
END_TEST

START_TEST(the_core_of_a_synthetic_target_is_its_draft)
{
    const struct kind kind = {.weights = forms[_i]};
    check_alike(PAIR ",draft=1", PAIR ",layers=0", &kind, true);
    check_alike(PAIR ",draft=1", PAIR ",layers=1-1", &kind, false);
}
END_TEST

START_TEST(a_head_of_few_tokens_fits_chosen_layers)
{
    int32_t ids[N_IDS];
    for (int i = 0; i < N_IDS; i++) {
        ids[i] = 3 * i;
    }
    const struct kind kind = {.weights = "bf16", .head_ids = ids};
    check_alike(PAIR ",draft=1", PAIR ",layers=0", &kind, true);
}
END_TEST

START_TEST(layers_of_a_loaded_model_are_those_that_are_read)
{
    static const char *const sets[] = {"0", "2-2", "0,2", "1-3"};
    const struct kind kind = {.weights = "bf16"};
    struct world whole;
    open_world(&whole, PAIR, &kind, NULL);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        char name[96];
        struct world lent, read;
        snprintf(name, sizeof name, PAIR ",layers=%s", sets[i]);
        open_world(&lent, name, &kind, &whole);
        open_world(&read, name, &kind, NULL);
        ck_assert_msg(is_alike(&lent, &read), "%s", name);
        close_world(&lent);
        close_world(&read);
    }
    close_world(&whole);
}
END_TEST

START_TEST(a_model_lends_no_layer_that_it_lacks)
{
    struct error err;
    struct model *model = NULL;
    struct checkpoint *ck = NULL;
    const struct kind kind = {.weights = "bf16"};
    struct world some;
    open_world(&some, PAIR ",layers=0,2-3", &kind, NULL);
    const struct model_options options = {
        .n_kv_blocks = 1, .max_tokens = 1, .max_rows = 1, .max_lanes = 1, .like = some.model};
    CHECK_OK(checkpoint_open(&ck, PAIR ",layers=0,1", &err));
    CHECK_ERR(model_open(&model, ck, comm_single(), some.backend, &options, &err), ERR_ARGUMENT,
              "layer 1 is not among the 3 that are loaded");
    ck_assert_ptr_null(model);
    checkpoint_close(ck);
    close_world(&some);
}
END_TEST

/* Sets of as many layers have matrices of the same shapes, so a wrong key would not be noticed. */
START_TEST(packed_weights_of_other_layers_are_not_taken)
{
    static const char *const names[] = {PAIR ",layers=0,1", PAIR ",layers=0,2"};
    char folder[] = "/tmp/outrider-layers-XXXXXX", command[64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    const struct kind kept = {.weights = "bf16", .pack_cache = folder}, plain = {.weights = "bf16"};
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < 2; i++) {
            struct world a, b;
            open_world(&a, names[i], &kept, NULL);
            open_world(&b, names[i], &plain, NULL);
            ck_assert_msg(is_alike(&a, &b), "%s, turn %d", names[i], turn);
            close_world(&a);
            close_world(&b);
        }
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("layers_model");
    TCase *tcase = tcase_create("logits");
    tcase_set_timeout(tcase, 100);
    tcase_add_loop_test(tcase, a_list_of_all_layers_is_the_whole_model, 0, 3);
    tcase_add_loop_test(tcase, the_core_of_a_synthetic_target_is_its_draft, 0, 3);
    tcase_add_test(tcase, a_head_of_few_tokens_fits_chosen_layers);
    tcase_add_test(tcase, layers_of_a_loaded_model_are_those_that_are_read);
    tcase_add_test(tcase, a_model_lends_no_layer_that_it_lacks);
    tcase_add_test(tcase, packed_weights_of_other_layers_are_not_taken);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
