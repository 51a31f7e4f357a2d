/* ctest: labels=quick,threads libs=tokenizer timeout=60 */
/* Where the chat template of a model is found, what it is given, and how it is refused. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/system/file.h"
#include "model/tokenizer/chat_template.h"
#include "tests/support/check_util.h"

enum { PATH_BYTES = 256, NOW_S = 1700000000 };

static const char *const members[] = {"chat_template.jinja", "chat_template.json",
                                      "tokenizer_config.json", "special_tokens_map.json",
                                      "other.jinja"};

static char folder[PATH_BYTES];
static struct chat_template *chat;
static struct buffer text;
static struct error err;

static const char *path_of(const char *name)
{
    static char path[2 * PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *content)
{
    CHECK_OK(file_replace(path_of(name), content, strlen(content), &err));
}

static void setup(void)
{
    snprintf(folder, sizeof folder, "/tmp/chat_template_XXXXXX");
    ck_assert(mkdtemp(folder) != NULL);
    chat = NULL;
    text = (struct buffer){0};
}

static void teardown(void)
{
    chat_template_close(chat);
    buffer_free(&text);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        unlink(path_of(members[i]));
    ck_assert_int_eq(rmdir(folder), 0);
}

static int render(const char *messages, bool add_generation_prompt, const char *more)
{
    json_t *list = json_loads(messages, 0, NULL), *values = more ? json_loads(more, 0, NULL) : NULL;
    ck_assert(list && (!more || values));
    int rc = chat_template_render(chat, list, add_generation_prompt, values, NOW_S, &text, &err);
    json_decref(list);
    json_decref(values);
    return rc;
}

static void check_text(const char *messages, const char *more, const char *wanted)
{
    CHECK_OK(render(messages, true, more));
    ck_assert_msg(text.len == strlen(wanted) && memcmp(text.data, wanted, text.len) == 0,
                  "%.*s instead of %s", (int)text.len, (char *)text.data, wanted);
}

#define HELLO "[{\"role\": \"user\", \"content\": \"Hello\"}]"

/* Opens the folder's template, which must be the one of that file and print `wanted`. */
static void check_found(const char *file, const char *name, const char *wanted)
{
    CHECK_OK(chat_template_open(&chat, folder, file, &err));
    ck_assert_ptr_nonnull(chat);
    ck_assert_str_eq(chat_template_origin(chat), path_of(name));
    check_text(HELLO, NULL, wanted);
    chat_template_close(chat);
    chat = NULL;
}

START_TEST(a_model_without_a_template_has_none)
{
    CHECK_OK(chat_template_open(&chat, folder, NULL, &err));
    ck_assert_ptr_null(chat);
    put("tokenizer_config.json", "{\"bos_token\": \"<s>\", \"chat_template\": null}");
    put("chat_template.json", "{}");
    CHECK_OK(chat_template_open(&chat, folder, NULL, &err));
    ck_assert_ptr_null(chat);
    chat_template_close(NULL);
}
END_TEST

START_TEST(the_template_is_found_in_its_places_in_their_order)
{
    put("tokenizer_config.json", "{\"chat_template\": \"config {{ messages[0].content }}\"}");
    check_found(NULL, "tokenizer_config.json", "config Hello");
    put("chat_template.json", "{\"chat_template\": \"json {{ messages[0].content }}\"}");
    check_found(NULL, "chat_template.json", "json Hello");
    put("chat_template.jinja", "jinja {{ messages[0].content }}\n");
    check_found(NULL, "chat_template.jinja", "jinja Hello");
    put("other.jinja", "other {{ messages[0].content }}\n");
    char other[2 * PATH_BYTES];
    strcpy(other, path_of("other.jinja"));
    check_found(other, "other.jinja", "other Hello");
}
END_TEST

START_TEST(of_several_templates_the_default_is_taken)
{
    put("tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"tools\"},"
        " {\"name\": \"default\", \"template\": \"{{ messages[0].content }}!\"}]}");
    check_found(NULL, "tokenizer_config.json", "Hello!");
    put("tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"default\", \"template\": \"first\"},"
        " {\"name\": \"default\", \"template\": \"last\"}]}");
    check_found(NULL, "tokenizer_config.json", "last");
    put("tokenizer_config.json",
        "{\"chat_template\": {\"tool_use\": \"tools\", \"default\": \"by name\"}}");
    check_found(NULL, "tokenizer_config.json", "by name");
}
END_TEST

START_TEST(special_tokens_are_texts_or_objects)
{
    put("chat_template.jinja", "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ unk_token is "
                               "defined }}|{{ sep_token }}");
    put("tokenizer_config.json", "{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\","
                                 " \"lstrip\": false}, \"unk_token\": null, \"sep_token\": 5}");
    put("special_tokens_map.json",
        "{\"eos_token\": \"no\", \"pad_token\": {\"content\": \"<p>\"}}");
    check_found(NULL, "chat_template.jinja", "<s>|</s>|<p>|False|");
}
END_TEST

START_TEST(a_template_is_given_what_transformers_gives)
{
    put("chat_template.jinja",
        "{{ messages|length }} {{ add_generation_prompt }} {{ tools is none }} "
        "{{ documents is none }} {{ enable_thinking is defined }}");
    CHECK_OK(chat_template_open(&chat, folder, NULL, &err));
    check_text(HELLO, NULL, "1 True True True False");
    check_text("[]", "{\"enable_thinking\": false, \"tools\": [1]}", "0 True False True True");
    check_text("[]", "{\"messages\": [1, 2], \"add_generation_prompt\": 5}",
               "0 True True True False");
    CHECK_OK(render(HELLO, false, NULL));
    ck_assert_int_eq(memcmp(text.data, "1 False", 7), 0);
}
END_TEST

START_TEST(further_values_hide_special_tokens_for_one_rendering)
{
    put("tokenizer_config.json", "{\"bos_token\": \"<s>\"}");
    put("chat_template.jinja", "{{ bos_token }}{{ strftime_now('%d %b %Y') }}");
    CHECK_OK(chat_template_open(&chat, folder, NULL, &err));
    check_text(HELLO, "{\"bos_token\": \"<t>\"}", "<t>14 Nov 2023");
    check_text(HELLO, NULL, "<s>14 Nov 2023");
}
END_TEST

static bool takes_parts(const char *template)
{
    put("chat_template.jinja", template);
    CHECK_OK(chat_template_open(&chat, folder, NULL, &err));
    bool takes = chat_template_takes_parts(chat);
    chat_template_close(chat);
    chat = NULL;
    return takes;
}

START_TEST(a_template_that_goes_over_parts_is_known)
{
    ck_assert(!takes_parts("{% for m in messages %}{{ m.content }}{% endfor %}"));
    ck_assert(!takes_parts("{% for m in messages %}{{ m.content|trim }}{% endfor %}"));
    ck_assert(!takes_parts("{{ raise_exception('no') }}"));
    ck_assert(!takes_parts(""));
    ck_assert(takes_parts("{% for m in messages %}{% if m.content is string %}{{ m.content }}"
                          "{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}"
                          "{% endfor %}"));
}
END_TEST

static void refuse(int code, const char *part)
{
    chat = (struct chat_template *)&err; /* must be overwritten */
    CHECK_ERR(chat_template_open(&chat, folder, NULL, &err), code, part);
    ck_assert_ptr_null(chat);
    ck_assert_ptr_nonnull(strstr(err.text, folder));
}

START_TEST(a_template_that_cannot_be_used_is_refused_with_its_file)
{
    put("tokenizer_config.json", "{\"chat_template\": \"a\\n{% include 'x' %}\"}");
    refuse(ERR_UNSUPPORTED,
           "tokenizer_config.json: the chat template: line 2: the tag 'include' is "
           "not supported");
    put("tokenizer_config.json", "{\"chat_template\": \"{% if %}\"}");
    refuse(ERR_FORMAT, "tokenizer_config.json: the chat template: line 1: the tag ends where");
    put("tokenizer_config.json", "{\"chat_template\": 5}");
    refuse(ERR_FORMAT, "neither a text nor a list or an object of named texts");
    put("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"\"}]}");
    refuse(ERR_FORMAT, "a list without a template called \"default\"");
    put("tokenizer_config.json", "{\"chat_template\": {\"tool_use\": \"tools\"}}");
    refuse(ERR_FORMAT,
           "an object without a template called \"default\"; name a file with --chat-template");
    put("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\"}]}");
    refuse(ERR_FORMAT, "a list without a template called \"default\"");
    put("tokenizer_config.json", "{");
    refuse(ERR_FORMAT, "tokenizer_config.json is not JSON");
    put("tokenizer_config.json", "{}");
    put("special_tokens_map.json", "]");
    refuse(ERR_FORMAT, "special_tokens_map.json is not JSON");
    put("special_tokens_map.json", "{}");
    put("chat_template.json", "[");
    refuse(ERR_FORMAT, "chat_template.json is not JSON");
    put("chat_template.jinja", "{{ x|nothing }}");
    refuse(ERR_UNSUPPORTED, "chat_template.jinja: the chat template: line 1: the filter 'nothing'");
}
END_TEST

START_TEST(a_file_that_is_named_must_be_there)
{
    char path[PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/missing.jinja", folder);
    put("chat_template.jinja", "x");
    CHECK_ERR(chat_template_open(&chat, folder, path, &err), ERR_NOT_FOUND, path);
    ck_assert_ptr_null(chat);
    char *long_path = malloc(5000);
    ck_assert(long_path != NULL);
    memset(long_path, 'x', 4999);
    long_path[4999] = 0;
    CHECK_ERR(chat_template_open(&chat, folder, long_path, &err), ERR_ARGUMENT,
              "more than 4095 bytes: x");
    CHECK_ERR(chat_template_open(&chat, long_path, NULL, &err), ERR_ARGUMENT,
              "more than 4095 bytes: tok");
    free(long_path);
}
END_TEST

START_TEST(errors_of_a_rendering_name_the_line_and_not_the_file)
{
    put("chat_template.jinja", "a\n{{ raise_exception('Roles must alternate') }}");
    CHECK_OK(chat_template_open(&chat, folder, NULL, &err));
    ck_assert_int_eq(render(HELLO, true, NULL), ERR_ARGUMENT);
    ck_assert_str_eq(err.text, "the chat template, line 2: Roles must alternate");
    ck_assert_uint_eq(text.len, 0);
}
END_TEST

START_TEST(a_rendering_ends_at_its_limits)
{
    put("chat_template.jinja",
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}");
    CHECK_OK(chat_template_open(&chat, folder, NULL, &err));
    CHECK_ERR(render(HELLO, true, NULL), ERR_EXHAUSTED, "4000000 steps");
}
END_TEST

enum { N_THREADS = 4, N_RENDERINGS = 200 };

static void *render_often(void *arg)
{
    struct error own = {0};
    struct buffer out = {0};
    json_t *messages = json_loads(HELLO, 0, NULL);
    int *n_right = arg;
    for (int i = 0; messages && i < N_RENDERINGS; i++) {
        int rc = chat_template_render(chat, messages, true, NULL, NOW_S, &out, &own);
        *n_right += !rc && out.len == 8 && memcmp(out.data, "<s>Hello", 8) == 0;
    }
    json_decref(messages);
    buffer_free(&out);
    return NULL;
}

START_TEST(several_threads_render_at_a_time)
{
    pthread_t threads[N_THREADS];
    int n_right[N_THREADS] = {0};
    put("tokenizer_config.json", "{\"bos_token\": \"<s>\"}");
    put("chat_template.jinja", "{{ bos_token }}{{ messages[0].content }}");
    CHECK_OK(chat_template_open(&chat, folder, NULL, &err));
    for (int i = 0; i < N_THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, render_often, &n_right[i]), 0);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(n_right[i], N_RENDERINGS);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chat_template");
    TCase *tcase = tcase_create("chat_template");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_model_without_a_template_has_none);
    tcase_add_test(tcase, the_template_is_found_in_its_places_in_their_order);
    tcase_add_test(tcase, of_several_templates_the_default_is_taken);
    tcase_add_test(tcase, special_tokens_are_texts_or_objects);
    tcase_add_test(tcase, a_template_is_given_what_transformers_gives);
    tcase_add_test(tcase, further_values_hide_special_tokens_for_one_rendering);
    tcase_add_test(tcase, a_template_that_goes_over_parts_is_known);
    tcase_add_test(tcase, a_template_that_cannot_be_used_is_refused_with_its_file);
    tcase_add_test(tcase, a_file_that_is_named_must_be_there);
    tcase_add_test(tcase, errors_of_a_rendering_name_the_line_and_not_the_file);
    tcase_add_test(tcase, a_rendering_ends_at_its_limits);
    tcase_add_test(tcase, several_threads_render_at_a_time);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
