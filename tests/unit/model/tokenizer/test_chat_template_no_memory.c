/* ctest: labels=quick libs=tokenizer fail_alloc=yes timeout=60 */
/* Opening and using a chat template while memory is short: each allocation fails once. */
#include <stdio.h>
#include <unistd.h>

#include "base/system/file.h"
#include "model/tokenizer/chat_template.h"
#include "tests/support/fail_alloc.h"

static const char config[] =
    "{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"},"
    " \"chat_template\": \"{% for m in messages %}{{ bos_token ~ m.content|trim }}{% endfor %}\"}";

struct source {
    const char *folder;
    json_t *messages, *more;
};

static int use(const struct source *source, const struct chat_template *chat, struct error *err)
{
    struct buffer text = {0};
    int rc = chat_template_render(chat, source->messages, true, source->more, 0, &text, err);
    bool is_right = text.len == 8 && memcmp(text.data, "<s>Hello", 8) == 0;
    buffer_free(&text);
    return rc || is_right ? rc : error_set(err, ERR_INTERNAL, "another text than before");
}

static int trial(void *arg, struct error *err)
{
    const struct source *source = arg;
    struct chat_template *chat;
    int rc = chat_template_open(&chat, source->folder, NULL, err);
    if (!rc && !chat) rc = error_set(err, ERR_INTERNAL, "the template was not found");
    if (!rc) rc = use(source, chat, err);
    chat_template_close(chat);
    return rc;
}

START_TEST(each_allocation_may_fail)
{
    char folder[] = "/tmp/chat_template_XXXXXX", path[64];
    struct error err;
    ck_assert(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    CHECK_OK(file_replace(path, config, sizeof config - 1, &err));
    struct source source = {folder, json_loads("[{\"content\": \" Hello \"}]", 0, NULL),
                            json_loads("{\"a\": 1}", 0, NULL)};
    CHECK_OK(trial(&source, &err));
    fail_alloc_each("a chat template", trial, &source, FAIL_ALL, 1);
    json_decref(source.messages);
    json_decref(source.more);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

static int gguf_trial(void *arg, struct error *err)
{
    struct chat_source source;
    int rc = chat_source_read(&source, arg, NULL, err);
    if (!rc && (!source.text || !json_object_get(source.special, "bos_token"))) {
        rc = error_set(err, ERR_INTERNAL, "the template or a token was not found");
    }
    chat_source_free(&source);
    return rc;
}

START_TEST(each_allocation_may_fail_with_a_gguf_file)
{
    char path[] = SOURCE_DIR "/tests/fuzz/seeds/gguf_tokenizer/letters";
    struct error err;
    CHECK_OK(gguf_trial(path, &err));
    fail_alloc_each("a chat template of a GGUF file", gguf_trial, path, FAIL_ALL, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chat_template_no_memory");
    TCase *tcase = tcase_create("chat_template_no_memory");
    tcase_add_test(tcase, each_allocation_may_fail);
    tcase_add_test(tcase, each_allocation_may_fail_with_a_gguf_file);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
