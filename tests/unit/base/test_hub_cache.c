/* ctest: labels=quick libs=base timeout=60 */
/* Names of models in the cache of huggingface_hub, in caches that are made here. */
#include "base/system/hub_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/check_util.h"

static struct error err;
static char root[64], path[HUB_PATH_BYTES];

static const char *in_root(const char *name)
{
    static char text[512];
    snprintf(text, sizeof text, "%s/%s", root, name);
    return text;
}

/* Makes the file and the folders that it is in. */
static void make(const char *name, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s", in_root(name));
    for (char *at = strchr(full + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(full, 0700);
        *at = '/';
    }
    FILE *file = fopen(full, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    ck_assert_int_eq(fclose(file), 0);
}

/* $HF_HUB_CACHE with two revisions of one model; the current folder has nothing else. */
static void make_cache(void)
{
    snprintf(root, sizeof root, "/tmp/outrider-hub-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    make("models--some--small-1.5/refs/main", "0a1b");
    make("models--some--small-1.5/refs/old", "ffee\n");
    make("models--some--small-1.5/refs/refs/pr/3", "0a1b");
    make("models--some--small-1.5/snapshots/0a1b/config.json", "{}");
    make("models--some--small-1.5/snapshots/ffee/config.json", "{}");
    make("models--some--lonely/snapshots/77/config.json", "{}");
    make("models--some--torn/refs/main", "123");
    make("models--some--torn/snapshots/1/config.json", "{}");
    make("models--some--torn/snapshots/2/config.json", "{}");
    ck_assert_int_eq(setenv("HF_HUB_CACHE", root, 1), 0);
    ck_assert_int_eq(chdir(root), 0);
}

static void remove_cache(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(system(command), 0);
}

/* Names and the folders of the cache that they mean. */
static const struct {
    const char *name, *folder;
} names[] = {
    {"some/small-1.5", "models--some--small-1.5/snapshots/0a1b"},
    {"some/small-1.5@main", "models--some--small-1.5/snapshots/0a1b"},
    {"some/small-1.5@old", "models--some--small-1.5/snapshots/ffee"},
    {"some/small-1.5@ffee", "models--some--small-1.5/snapshots/ffee"},
    {"some/small-1.5@refs/pr/3", "models--some--small-1.5/snapshots/0a1b"},
    {"some/lonely", "models--some--lonely/snapshots/77"},
};
enum { N_NAMES = sizeof names / sizeof *names };

START_TEST(names_of_the_cache_are_their_snapshots)
{
    make_cache();
    CHECK_OK(hub_cache_resolve(path, names[_i].name, &err));
    ck_assert_str_eq(path, in_root(names[_i].folder));
    remove_cache();
}
END_TEST

START_TEST(the_top_folder_of_a_model_is_its_snapshot)
{
    char name[HUB_PATH_BYTES];
    make_cache();
    CHECK_OK(hub_cache_resolve(path, "models--some--small-1.5//", &err));
    ck_assert_str_eq(path, "models--some--small-1.5/snapshots/0a1b");
    snprintf(name, sizeof name, "%s", in_root("models--some--small-1.5"));
    CHECK_OK(hub_cache_resolve(path, name, &err));
    ck_assert_str_eq(path, in_root("models--some--small-1.5/snapshots/0a1b"));
    CHECK_ERR(hub_cache_resolve(path, "models--some--torn", &err), ERR_NOT_FOUND,
              "models--some--torn is a folder of the Hugging Face cache, of which refs/main names "
              "no snapshot; name one of the 2 folders in its snapshots/");
    remove_cache();
}
END_TEST

START_TEST(a_folder_that_is_there_goes_first)
{
    make_cache();
    make("some/small-1.5/config.json", "{}");
    make("dir@old/config.json", "{}");
    static const char *const own[] = {
        "some/small-1.5", "some/small-1.5/", "dir@old",           "./dir@old",
        "nowhere",        "/nowhere/at",     "models--some--xyz", "../some/small-1.5@main",
        "some/",          "/some",           "./small",           ""};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        CHECK_OK(hub_cache_resolve(path, own[i], &err));
        ck_assert_str_eq(path, own[i]);
    }
    remove_cache();
}
END_TEST

START_TEST(what_is_not_there_has_a_command_that_gets_it)
{
    make_cache();
    CHECK_ERR(hub_cache_resolve(path, "some/other", &err), ERR_NOT_FOUND,
              "has no model of this name; nothing is downloaded here, so get it first: hf download "
              "some/other");
    CHECK_ERR(hub_cache_resolve(path, "some/other@v2", &err), ERR_NOT_FOUND,
              "get it first: hf download some/other --revision v2");
    CHECK_ERR(hub_cache_resolve(path, "some/small-1.5@v2", &err), ERR_NOT_FOUND,
              "has some/small-1.5, but no revision v2 of it; nothing is downloaded here, so get it "
              "first: hf download some/small-1.5 --revision v2");
    CHECK_ERR(hub_cache_resolve(path, "some/torn", &err), ERR_NOT_FOUND,
              "but no snapshot that refs/main names of it");
    remove_cache();
}
END_TEST

START_TEST(a_revision_cannot_lead_out_of_the_cache)
{
    make_cache();
    make("secret", "0a1b");
    static const char *const bad[] = {"some/small-1.5@../../secret", "some/small-1.5@/etc",
                                      "some/small-1.5@", "some/.@main"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_OK(hub_cache_resolve(path, bad[i], &err));
        ck_assert_str_eq(path, bad[i]); /* a path that is not there */
    }
    make("models--some--small-1.5/refs/evil", "../../../etc");
    CHECK_ERR(hub_cache_resolve(path, "some/small-1.5@evil", &err), ERR_NOT_FOUND, "no revision");
    remove_cache();
}
END_TEST

START_TEST(the_environment_says_where_the_cache_is)
{
    make_cache();
    unsetenv("HF_HUB_CACHE");
    make("home/.cache/huggingface/hub/models--a--b/snapshots/1/config.json", "{}");
    make("xdg/huggingface/hub/models--a--b/snapshots/1/config.json", "{}");
    make("hf/hub/models--a--b/snapshots/1/config.json", "{}");
    static const char *const variables[] = {"HOME", "XDG_CACHE_HOME", "HF_HOME"};
    static const char *const folders[] = {"home", "xdg", "hf"};
    static const char *const found[] = {"home/.cache/huggingface/hub", "xdg/huggingface/hub",
                                        "hf/hub"};
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HF_HOME");
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(setenv(variables[i], in_root(folders[i]), 1), 0);
        CHECK_OK(hub_cache_resolve(path, "a/b", &err));
        ck_assert(strncmp(path, in_root(found[i]), strlen(in_root(found[i]))) == 0);
    }
    ck_assert_int_eq(setenv("HOME", root, 1), 0);
    ck_assert_int_eq(setenv("HF_HOME", "~/hf", 1), 0);
    CHECK_OK(hub_cache_resolve(path, "a/b", &err));
    ck_assert_str_eq(path, in_root("hf/hub/models--a--b/snapshots/1"));
    remove_cache();
}
END_TEST

START_TEST(a_path_too_long_is_an_error)
{
    static char name[HUB_PATH_BYTES + 8];
    memset(name, 'a', sizeof name - 1);
    CHECK_ERR(hub_cache_resolve(path, name, &err), ERR_ARGUMENT, "too long");
}
END_TEST

START_TEST(folders_of_the_cache_have_the_name_of_their_model)
{
    char name[HUB_NAME_BYTES], text[512];
    make_cache();
    static const char *const models[] = {
        "some/small-1.5", "some/small-1.5@old", "models--some--small-1.5/",
        "models--some--small-1.5/snapshots/ffee", "./models--some--small-1.5/snapshots/ffee/"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        ck_assert(hub_cache_model(models[i], name, sizeof name));
        ck_assert_str_eq(name, "some/small-1.5");
    }
    ck_assert(!hub_cache_model("some/other", name, sizeof name));
    ck_assert(!hub_cache_model("/srv/snapshots/x", name, sizeof name));
    ck_assert(!hub_cache_model("models--some--small-1.5/snapshots/ffee/part", name, sizeof name));
    ck_assert_str_eq(name, "");
    hub_cache_advice("models--some--small-1.5/snapshots/ffee", text, sizeof text);
    ck_assert_str_eq(text, "; `hf download some/small-1.5` fetches what is missing");
    hub_cache_advice("/srv/model", text, sizeof text);
    ck_assert_str_eq(text, "");
    ck_assert(hub_cache_is_root(root, name, sizeof name));
    ck_assert(!strncmp(name, "some/", 5));
    ck_assert(!hub_cache_is_root("models--some--lonely", name, sizeof name));
    remove_cache();
}
END_TEST

static void count_model(void *arg, const char *name)
{
    int *counts = arg;
    counts[0]++;
    if (strcmp(name, "some/small-1.5") == 0) counts[1]++;
}

START_TEST(all_models_of_the_cache_are_listed)
{
    int counts[2] = {0};
    make_cache();
    make("datasets--some--texts/refs/main", "abc");
    hub_cache_list(path, count_model, counts);
    ck_assert_str_eq(path, root);
    ck_assert(counts[0] == 3 && counts[1] == 1);
    setenv("HF_HUB_CACHE", "/nowhere", 1);
    hub_cache_list(path, count_model, counts);
    ck_assert_int_eq(counts[0], 3);
    remove_cache();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hub_cache");
    TCase *tcase = tcase_create("names");
    tcase_add_loop_test(tcase, names_of_the_cache_are_their_snapshots, 0, N_NAMES);
    tcase_add_test(tcase, the_top_folder_of_a_model_is_its_snapshot);
    tcase_add_test(tcase, a_folder_that_is_there_goes_first);
    tcase_add_test(tcase, what_is_not_there_has_a_command_that_gets_it);
    tcase_add_test(tcase, a_revision_cannot_lead_out_of_the_cache);
    tcase_add_test(tcase, the_environment_says_where_the_cache_is);
    tcase_add_test(tcase, a_path_too_long_is_an_error);
    tcase_add_test(tcase, folders_of_the_cache_have_the_name_of_their_model);
    tcase_add_test(tcase, all_models_of_the_cache_are_listed);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
