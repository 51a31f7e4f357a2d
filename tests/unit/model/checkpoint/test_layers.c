/* ctest: labels=quick libs=checkpoint timeout=60 */
/* Lists of layers in the names of models: where a name ends and its list begins, which lists are
 * understood, and what is said of the others. */
#include "model/checkpoint/layers.h"

#include <stdio.h>
#include <stdlib.h>

#include "model/checkpoint/checkpoint.h"
#include "tests/support/check_util.h"

enum { N_LAYERS = 8, TEXT_BYTES = 64 };
#define TALES SOURCE_DIR "/deploy/models/tales/target"

static const struct {
    const char *name, *model, *list; /* list NULL: all of the name is the model's */
} names[] = {
    {"models/target", "models/target", NULL},
    {"models/target,layers=0-3,6", "models/target", "0-3,6"},
    {"models/a,b,c,layers=all", "models/a,b,c", "all"},
    {"models/a,layers=old/target", "models/a,layers=old/target", NULL},
    {"models/a,layers=old/target,layers=3", "models/a,layers=old/target", "3"},
    {"models/target,layers=", "models/target", ""},
    {"models/target,layers=x", "models/target", "x"},
    {"synthetic:tiny,seed=1,layers=4", "synthetic:tiny,seed=1,layers=4", NULL},
    {"synthetic:tiny,seed=1,layers=4,agree=0.5", "synthetic:tiny,seed=1,layers=4,agree=0.5", NULL},
    {"synthetic:tiny,seed=1,layers=0", "synthetic:tiny,seed=1", "0"},
    {"synthetic:tiny,seed=1,layers=1-1", "synthetic:tiny,seed=1", "1-1"},
    {"synthetic:tiny,seed=1,layers=0,3", "synthetic:tiny,seed=1", "0,3"},
    {"synthetic:tiny,seed=1,layers=all", "synthetic:tiny,seed=1", "all"},
    {"synthetic:tiny,seed=1,layers=4,layers=2", "synthetic:tiny,seed=1,layers=4", "2"},
    {"synthetic:tiny,layers=4,seed=1,layers=0-1", "synthetic:tiny,layers=4,seed=1", "0-1"},
};

START_TEST(a_list_is_what_follows_the_last_layers)
{
    size_t len;
    const char *list = layers_split(names[_i].name, &len);
    ck_assert_uint_eq(len, strlen(names[_i].model));
    ck_assert_mem_eq(names[_i].name, names[_i].model, len);
    if (names[_i].list) {
        ck_assert_str_eq(list, names[_i].list);
    } else {
        ck_assert_ptr_null(list);
    }
}
END_TEST

static const struct {
    const char *list, *written;
} lists[] = {
    {"0", "0"},         {"7", "7-7"},   {"0-3", "0-3"},         {"0-1,2-3", "0-3"},
    {"0,2,4", "0,2,4"}, {"all", "0-7"}, {"0,1,5-7", "0-1,5-7"}, {"3-3", "3-3"},
};

START_TEST(a_list_is_written_in_ranges)
{
    struct error err;
    char text[TEXT_BYTES];
    int *layers = NULL, n = 0;
    CHECK_OK(layers_parse(&layers, &n, lists[_i].list, "m", N_LAYERS, &err));
    layers_format(layers, n, text, sizeof text);
    ck_assert_str_eq(text, lists[_i].written);
    free(layers);
}
END_TEST

static const struct {
    const char *list, *says;
} wrong[] = {
    {"", "'' does not begin with the number of a layer; a/b has 8 layers, 0 to 7"},
    {"x", "'x' does not begin with"},
    {"-1", "'-1' does not begin with"},
    {"1-", "'' does not begin with"},
    {"0,,2", "',2' does not begin with"},
    {"0, 2", "' 2' does not begin with"},
    {"0,", "'' does not begin with"},
    {"8", "there is no layer 8; a/b has 8 layers, 0 to 7"},
    {"0-8", "there is no layer 8;"},
    {"99999999999999999999999", "there is no layer 99999999999999999999;"},
    {"5-3", "the range 5-3 is reversed"},
    {"2,2", "layer 2 follows layer 2, but layers ascend, each once"},
    {"0-3,3", "layer 3 follows layer 3"},
    {"4-5,0", "layer 0 follows layer 5"},
    {"0-3x", "'x' is not understood"},
    {"all,1", "'all,1' does not begin with"},
};

START_TEST(a_wrong_list_is_refused)
{
    struct error err;
    int *layers = NULL, n = 0;
    CHECK_ERR(layers_parse(&layers, &n, wrong[_i].list, "a/b", N_LAYERS, &err), ERR_ARGUMENT,
              wrong[_i].says);
    ck_assert_ptr_null(layers);
}
END_TEST

START_TEST(a_checkpoint_shows_the_chosen_layers)
{
    struct error err;
    struct checkpoint *whole, *some;
    struct weight a, b;
    CHECK_OK(checkpoint_open(&whole, TALES, &err));
    int dim = checkpoint_config(whole)->dim;
    CHECK_OK(checkpoint_open(&some, TALES ",layers=1,3", &err));
    ck_assert_str_eq(checkpoint_name(some), TALES);
    ck_assert_int_eq(checkpoint_config(some)->n_layers, 2);
    ck_assert_int_eq(checkpoint_layer(some, 1), 3);
    ck_assert_uint_ne(checkpoint_fingerprint(some), checkpoint_fingerprint(whole));
    CHECK_OK(checkpoint_find(whole, "model.layers.3.input_layernorm.weight", 1, dim, &a, &err));
    CHECK_OK(checkpoint_find(some, "model.layers.1.input_layernorm.weight", 1, dim, &b, &err));
    ck_assert_mem_eq(a.data, b.data, weight_data_bytes(&a));
    CHECK_ERR(checkpoint_find(some, "model.layers.9.input_layernorm.weight", 1, dim, &b, &err),
              ERR_FORMAT, "lacks the tensor");
    checkpoint_close(some);
    CHECK_OK(checkpoint_open(&some, TALES ",layers=all", &err));
    ck_assert_uint_eq(checkpoint_fingerprint(some), checkpoint_fingerprint(whole));
    checkpoint_close(some);
    CHECK_ERR(checkpoint_open(&some, TALES ",layers=0-99", &err), ERR_ARGUMENT,
              "there is no layer 99");
    checkpoint_close(whole);
}
END_TEST

/* The key of packed weights on disk is made of the fingerprint. */
START_TEST(every_set_of_layers_has_its_fingerprint)
{
    static const char *const sets[] = {"0", "1-1", "2-2", "0,1", "0,2", "1,2"};
    enum { N = sizeof sets / sizeof *sets };
    uint64_t seen[N];
    for (int i = 0; i < N; i++) {
        struct error err;
        struct checkpoint *ck;
        char name[TEXT_BYTES];
        snprintf(name, sizeof name, "synthetic:tiny,seed=1,layers=3,layers=%s", sets[i]);
        CHECK_OK(checkpoint_open(&ck, name, &err));
        seen[i] = checkpoint_fingerprint(ck);
        for (int j = 0; j < i; j++) {
            ck_assert_uint_ne(seen[i], seen[j]);
        }
        checkpoint_close(ck);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("layers");
    TCase *tcase = tcase_create("lists");
    tcase_add_loop_test(tcase, a_list_is_what_follows_the_last_layers, 0,
                        (int)(sizeof names / sizeof *names));
    tcase_add_loop_test(tcase, a_list_is_written_in_ranges, 0, (int)(sizeof lists / sizeof *lists));
    tcase_add_loop_test(tcase, a_wrong_list_is_refused, 0, (int)(sizeof wrong / sizeof *wrong));
    tcase_add_test(tcase, a_checkpoint_shows_the_chosen_layers);
    tcase_add_test(tcase, every_set_of_layers_has_its_fingerprint);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
