/* ctest: labels=quick libs=model timeout=60 */
/* Folders of look-ahead embeddings: shape, numbers and digest are read, whatever the dtype, and
 * what makes no sense is refused with a sentence that names it. */
#include "model/look_ahead.h"

#include <math.h>

#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/head.h"
#include "tests/support/look_ahead_folder.h"

enum { N = 3, WIDTH = 8 };

static struct error err;
static char dir[LOOK_AHEAD_DIR_BYTES];
static float rows[N][WIDTH];

static void setup(void)
{
    for (int i = 0; i < N; i++) {
        for (int c = 0; c < WIDTH; c++) {
            rows[i][c] = (float)(i - 1) + 0.125f * (float)c;
        }
    }
    look_ahead_make(dir, rows[0], N, WIDTH);
}

static void teardown(void)
{
    look_ahead_remove(dir);
}

START_TEST(shape_and_numbers_are_read)
{
    struct look_ahead l;
    float row[WIDTH];
    ck_assert(look_ahead_is_folder(dir) && checkpoint_is_head_folder(dir));
    CHECK_OK(look_ahead_open(&l, dir, &err));
    ck_assert(l.n == N && l.rows.n_rows == N && l.rows.n_cols == WIDTH && l.digest != 0);
    for (int i = 0; i < N; i++) {
        weight_read_f32(&l.rows, i, 0, WIDTH, row);
        ck_assert_mem_eq(row, rows[i], sizeof row);
    }
    CHECK_OK(look_ahead_check_target(&l, "large", WIDTH, &err));
    CHECK_ERR(look_ahead_check_target(&l, "large", 2 * WIDTH, &err), ERR_FORMAT,
              "of width 8, but large has the width 16: they are of another model");
    look_ahead_close(&l);
    look_ahead_close(&l);
}
END_TEST

static uint64_t digest_of(const char *folder)
{
    struct look_ahead l;
    CHECK_OK(look_ahead_open(&l, folder, &err));
    uint64_t digest = l.digest;
    look_ahead_close(&l);
    return digest;
}

/* The numbers above are the same as bf16, which the trainer writes by default. */
START_TEST(the_digest_is_of_the_numbers)
{
    uint16_t halves[N][WIDTH];
    char other[LOOK_AHEAD_DIR_BYTES];
    uint64_t first = digest_of(dir);
    ck_assert(digest_of(dir) == first);
    for (int i = 0; i < N; i++) {
        for (int c = 0; c < WIDTH; c++) {
            memcpy(&halves[i][c], (const uint8_t *)&rows[i][c] + 2, sizeof halves[i][c]);
        }
    }
    look_ahead_write_tensors(dir,
                             "{\"look_ahead.weight\": {\"dtype\": \"BF16\", \"shape\": [3, 8], "
                             "\"data_offsets\": [0, 48]}}",
                             halves, sizeof halves);
    ck_assert(digest_of(dir) == first);
    rows[2][7] += 1;
    look_ahead_make(other, rows[0], N, WIDTH);
    ck_assert(digest_of(other) != first);
    look_ahead_remove(other);
    look_ahead_make(other, rows[0], N - 1, WIDTH);
    ck_assert(digest_of(other) != first);
    look_ahead_remove(other);
}
END_TEST

static void refuse(int code, const char *says)
{
    struct look_ahead l;
    CHECK_ERR(look_ahead_open(&l, dir, &err), code, says);
    ck_assert(!l.folder && l.n == 0);
}

static const struct {
    const char *config;
    int code;
    const char *says;
} configs[] = {
    {"{", ERR_FORMAT, "config.json"},
    {"[]", ERR_UNSUPPORTED, "that of look-ahead embeddings is \"pass\""},
    {"{\"model_type\": \"llama\"}", ERR_UNSUPPORTED, "\"model_type\" is \"llama\""},
    {"{\"model_type\": 7, \"n_lookahead\": 3}", ERR_UNSUPPORTED, "\"model_type\" is \"\""},
    {"{\"model_type\": \"pass\", \"hidden_size\": 8}", ERR_FORMAT, "\"n_lookahead\" is missing"},
    {"{\"model_type\": \"pass\", \"n_lookahead\": 3}", ERR_FORMAT, "\"hidden_size\" is missing"},
    {"{\"model_type\": \"pass\", \"n_lookahead\": 0, \"hidden_size\": 8}", ERR_FORMAT,
     "n_lookahead"},
    {"{\"model_type\": \"pass\", \"n_lookahead\": 17, \"hidden_size\": 8}", ERR_FORMAT,
     "n_lookahead"},
    {"{\"model_type\": \"pass\", \"n_lookahead\": \"3\", \"hidden_size\": 8}", ERR_FORMAT,
     "n_lookahead"},
    {"{\"model_type\": \"pass\", \"n_lookahead\": 3, \"hidden_size\": 1e9}", ERR_FORMAT,
     "hidden_size"},
    {"{\"model_type\": \"pass\", \"n_lookahead\": 4, \"hidden_size\": 8}", ERR_FORMAT,
     "is not that of config.json, [4, 8]"},
    {"{\"model_type\": \"pass\", \"n_lookahead\": 3, \"hidden_size\": 4}", ERR_FORMAT,
     "is not that of config.json, [3, 4]"},
};

START_TEST(configs_that_make_no_sense_are_refused)
{
    write_file(dir, "config.json", configs[_i].config, strlen(configs[_i].config), NULL, 0);
    refuse(configs[_i].code, configs[_i].says);
}
END_TEST

static const struct {
    const char *header;
    size_t n_bytes;
    int code;
    const char *says;
} files[] = {
    {"{}", 0, ERR_FORMAT, "must have one tensor look_ahead.weight"},
    {"{\"look_ahead\": {\"dtype\": \"F32\", \"shape\": [3, 8], \"data_offsets\": [0, 96]}}", 96,
     ERR_UNSUPPORTED, "tensor look_ahead is not known"},
    {"{\"look_ahead.weight\": {\"dtype\": \"F32\", \"shape\": [3, 8], \"data_offsets\": [0, 96]}, "
     "\"more\": {\"dtype\": \"F32\", \"shape\": [0], \"data_offsets\": [96, 96]}}",
     96, ERR_UNSUPPORTED, "tensor more is not known"},
    {"{\"look_ahead.weight\": {\"dtype\": \"I32\", \"shape\": [3, 8], \"data_offsets\": [0, 96]}}",
     96, ERR_UNSUPPORTED, "is of dtype I32"},
    {"{\"look_ahead.weight\": {\"dtype\": \"F32\", \"shape\": [3, 8], \"data_offsets\": [0, 96]}}",
     90, ERR_FORMAT, "look_ahead.weight"},
    {"{\"look_ahead.weight\": {\"dtype\": \"F32\", \"shape\": [24], \"data_offsets\": [0, 96]}}",
     96, ERR_FORMAT, "is not that of config.json, [3, 8]"},
};

START_TEST(files_that_make_no_sense_are_refused)
{
    look_ahead_write_tensors(dir, files[_i].header, rows, files[_i].n_bytes);
    refuse(files[_i].code, files[_i].says);
}
END_TEST

START_TEST(elements_that_are_no_numbers_are_refused)
{
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    rows[1][5] = wrong[_i];
    look_ahead_remove(dir);
    look_ahead_make(dir, rows[0], N, WIDTH);
    refuse(ERR_FORMAT, "has an element that is no number, in row 1");
}
END_TEST

START_TEST(without_files_there_are_none)
{
    struct look_ahead l;
    struct checkpoint *ck;
    char path[2 * LOOK_AHEAD_DIR_BYTES];
    CHECK_ERR(checkpoint_open_head(&ck, dir, NULL, &err), ERR_UNSUPPORTED,
              "is of look-ahead embeddings (PaSS), which are no head");
    CHECK_ERR(checkpoint_open(&ck, dir, &err), ERR_UNSUPPORTED, "and no model");
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    refuse(ERR_NOT_FOUND, "model.safetensors");
    ck_assert(!look_ahead_is_folder("/nowhere") &&
              !look_ahead_is_folder(SOURCE_DIR "/tests/golden/heads/eagle3_flat"));
    CHECK_ERR(look_ahead_open(&l, "/nowhere", &err), ERR_NOT_FOUND, "/nowhere");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("look_ahead");
    TCase *tcase = tcase_create("look_ahead");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, shape_and_numbers_are_read);
    tcase_add_test(tcase, the_digest_is_of_the_numbers);
    tcase_add_loop_test(tcase, configs_that_make_no_sense_are_refused, 0,
                        (int)(sizeof configs / sizeof *configs));
    tcase_add_loop_test(tcase, files_that_make_no_sense_are_refused, 0,
                        (int)(sizeof files / sizeof *files));
    tcase_add_loop_test(tcase, elements_that_are_no_numbers_are_refused, 0, 3);
    tcase_add_test(tcase, without_files_there_are_none);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
