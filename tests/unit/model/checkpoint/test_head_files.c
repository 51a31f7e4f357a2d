/* ctest: labels=quick libs=model timeout=60 */
/* A file in place of a head's folder is refused with the way to the folder, whatever it is. */
#include "model/checkpoint/head.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/check_util.h"
#include "tests/support/write_file.h"

static char dir[64];
static struct error err;

/* Checks the refusal of a file of this name, which has `part` in it. */
static void check_refused(const char *name, const char *part)
{
    struct checkpoint *ck;
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    write_file(dir, name, "x", 1, NULL, 0);
    CHECK_ERR(checkpoint_open_head(&ck, path, NULL, &err), ERR_UNSUPPORTED, part);
    ck_assert_ptr_null(ck);
    ck_assert_ptr_nonnull(strstr(err.text, path));
    ck_assert_ptr_nonnull(strstr(err.text, "a head is a folder with config.json and safetensors"));
    ck_assert_ptr_null(strchr(err.text, '\n'));
    unlink(path);
}

START_TEST(a_file_is_refused_with_the_way_to_the_folder)
{
    char folder[128];
    snprintf(dir, sizeof dir, "/tmp/outrider-files-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(folder, sizeof folder, "name its folder, %s", dir);
    check_refused("model.safetensors", folder);
    check_refused("config.json", folder);
    snprintf(folder, sizeof folder, "name the folder, %s", dir);
    check_refused("pytorch_model.bin", folder);
    check_refused("pytorch_model.bin", "save_file to model.safetensors");
    check_refused("medusa_lm_head.pt", "tools/convert_medusa.py");
    check_refused("head.gguf", "is a GGUF file, of which models are read but no heads");
    check_refused("README", "is a file, but a head is a folder");
    rmdir(dir);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("head_files");
    TCase *tests = tcase_create("files in place of folders");
    tcase_add_test(tests, a_file_is_refused_with_the_way_to_the_folder);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
