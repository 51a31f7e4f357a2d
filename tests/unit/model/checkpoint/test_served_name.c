/* ctest: labels=quick libs=checkpoint timeout=60 */
/* The name of a model that clients are told. */
#include "model/checkpoint/served_name.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/gguf_writer.h"

enum { SIZE = 256 };

static const struct {
    const char *model, *name;
} cases[] = {
    {"deploy/models/tales/target", "target"},
    {"/srv/models/llama-3.1-8b/", "llama-3.1-8b"},
    {"/srv/models/llama-3.1-8b///", "llama-3.1-8b"},
    {"llama", "llama"},
    {"models/target/,layers=0-3", "target,layers=0-3"},
    {"models/tales-Q8_0.gguf", "tales-Q8_0"},
    {"models/tales-Q8_0-00002-of-00012.gguf,layers=0-3", "tales-Q8_0,layers=0-3"},
    {"tales-0002-of-00012.gguf", "tales-0002-of-00012"},
    {"-00002-of-00012.gguf", "-00002-of-00012"},
    {".gguf", ".gguf"},
    {"synthetic:tiny,seed=1,layers=0,2", "synthetic:tiny,seed=1,layers=0,2"},
    {"./llama", "llama"},
    {"../target/.", "target"},
    {"../target/./", "target"},
    {"/.", "/"},
    {"/", "/"},
    {"//", "/"},
    {"", ""},
    {"synthetic:tiny,seed=1", "synthetic:tiny,seed=1"},
    {"synthetic:tiny", "synthetic:tiny"},
    {"synthetic:/home/me/secret/config.json,seed=1,agree=0.8",
     "synthetic:config.json,seed=1,agree=0.8"},
    {"synthetic:shapes/big.json", "synthetic:big.json"},
    {"synthetic:", "synthetic:"},
};
enum { N_CASES = sizeof cases / sizeof *cases };

START_TEST(only_the_last_part_of_a_path_is_told)
{
    char name[SIZE];
    checkpoint_served_name(cases[_i].model, name, sizeof name);
    ck_assert_str_eq(name, cases[_i].name);
}
END_TEST

START_TEST(the_current_folder_has_its_own_name)
{
    char name[SIZE];
    ck_assert_int_eq(chdir("/tmp"), 0);
    checkpoint_served_name(".", name, sizeof name);
    ck_assert_str_eq(name, "tmp");
    checkpoint_served_name("./", name, sizeof name);
    ck_assert_str_eq(name, "tmp");
}
END_TEST

START_TEST(long_names_are_cut)
{
    char name[5];
    checkpoint_served_name("models/long-name", name, sizeof name);
    ck_assert_str_eq(name, "long");
    checkpoint_served_name("synthetic:tiny,seed=1", name, sizeof name);
    ck_assert_str_eq(name, "synt");
}
END_TEST

/* Named in any way, a model of the Hugging Face cache is ORG/NAME. */
START_TEST(models_of_the_cache_have_their_hub_name)
{
    static const char *const models[] = {"some/model", "models--some--model/snapshots/0a",
                                         "models--some--model/"};
    char dir[] = "/tmp/outrider-served-XXXXXX", name[SIZE];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(chdir(dir), 0);
    ck_assert_int_eq(setenv("HF_HUB_CACHE", dir, 1), 0);
    ck_assert_int_eq(mkdir("models--some--model", 0700), 0);
    ck_assert_int_eq(mkdir("models--some--model/snapshots", 0700), 0);
    ck_assert_int_eq(mkdir("models--some--model/snapshots/0a", 0700), 0);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        checkpoint_served_name(models[i], name, sizeof name);
        ck_assert_str_eq(name, "some/model");
    }
    checkpoint_served_name("some/model,layers=0-3", name, sizeof name);
    ck_assert_str_eq(name, "some/model,layers=0-3");
    ck_assert_int_eq(rmdir("models--some--model/snapshots/0a"), 0);
    ck_assert_int_eq(rmdir("models--some--model/snapshots"), 0);
    ck_assert_int_eq(rmdir("models--some--model"), 0);
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

static const char *name_of_gguf(const char *const *texts)
{
    static char name[SIZE];
    char dir[] = "/tmp/outrider-served-XXXXXX";
    struct gguf_writer w = {0};
    int n = 0;
    while (texts[n]) {
        n += 2;
    }
    gguf_put_header(&w, 3, 0, (uint64_t)n / 2);
    for (int i = 0; i < n; i += 2) {
        gguf_put_text_key(&w, texts[i], texts[i + 1]);
    }
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(chdir(dir), 0);
    gguf_write_file(&w, "own-Q8_0.gguf");
    gguf_writer_free(&w);
    checkpoint_served_name("./own-Q8_0.gguf", name, sizeof name);
    ck_assert_int_eq(unlink("own-Q8_0.gguf"), 0);
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(rmdir(dir), 0);
    return name;
}

START_TEST(a_gguf_file_has_the_name_in_its_metadata)
{
    static const struct {
        const char *texts[9], *name;
    } files[] = {
        {{"general.name", "Tales 6M Instruct", "general.basename", "tales"}, "Tales 6M Instruct"},
        {{"general.name", "some/model \xc3\xbc"}, "some/model \xc3\xbc"},
        {{"general.basename", "Tales", "general.size_label", "6M"}, "Tales-6M"},
        {{"general.basename", "Tales", "general.size_label", "6M", "general.finetune", "Instruct",
          "general.name", ""},
         "Tales-6M-Instruct"},
        {{"general.name", "/home/me/secret", "general.size_label", "6M"}, "own-Q8_0"},
        {{"general.name", "../secret"}, "own-Q8_0"},
        {{"general.name", "C:\\secret"}, "own-Q8_0"},
        {{"general.name", "two\nlines"}, "own-Q8_0"},
        {{"general.name", "\xff\xfe"}, "own-Q8_0"},
        {{"general.name", "  "}, "own-Q8_0"},
        {{NULL}, "own-Q8_0"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ck_assert_str_eq(name_of_gguf(files[i].texts), files[i].name);
    }
}
END_TEST

START_TEST(a_long_name_of_a_gguf_file_is_cut_between_characters)
{
    char text[2 * SIZE + 2] = "a";
    for (int i = 0; i < SIZE; i++) {
        strcat(text, "\xc3\xbc");
    }
    const char *const texts[] = {"general.name", text, NULL};
    const char *name = name_of_gguf(texts);
    ck_assert_uint_eq(strlen(name), SIZE - 1);
    ck_assert_int_eq(strncmp(name, text, SIZE - 1), 0);
    memmove(text, text + 1, strlen(text)); /* the last character would be cut in half */
    ck_assert_uint_eq(strlen(name_of_gguf(texts)), SIZE - 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("served_name");
    TCase *tcase = tcase_create("names");
    tcase_add_loop_test(tcase, only_the_last_part_of_a_path_is_told, 0, N_CASES);
    tcase_add_test(tcase, the_current_folder_has_its_own_name);
    tcase_add_test(tcase, long_names_are_cut);
    tcase_add_test(tcase, models_of_the_cache_have_their_hub_name);
    tcase_add_test(tcase, a_gguf_file_has_the_name_in_its_metadata);
    tcase_add_test(tcase, a_long_name_of_a_gguf_file_is_cut_between_characters);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
