/* ctest: labels=quick libs=coordinator timeout=60 */
/* Messages of conversations: which contents are refused, and what a template gets of the others. */
#include "coordinator/openai/request/request.h"
#include "tests/support/openai_bodies.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static int check(const char *messages)
{
    return openai_check_messages(&reading, parse(messages));
}

START_TEST(contents_are_texts_or_parts_of_text)
{
    static const struct {
        const char *messages, *param, *words;
    } rows[] = {
        {"[{\"role\": \"user\", \"content\": 5}]", "messages[0].content", "is an integer"},
        {"[{\"role\": \"user\", \"content\": 0.5}]", "messages[0].content", "is a number"},
        {"[{\"role\": \"user\", \"content\": true}]", "messages[0].content", "is true"},
        {"[{\"role\": \"user\", \"content\": false}]", "messages[0].content", "is false"},
        {"[{\"role\": \"user\", \"content\": {\"a\": 1}}]", "messages[0].content", "is an object"},
        {"[{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"user\", \"content\": 5}]",
         "messages[1].content", "must be a text or a list of parts"},
        {"[{\"role\": \"user\", \"content\": [\"x\"]}]", "messages[0].content[0]", "is a string"},
        {"[{\"role\": \"user\", \"content\": [null]}]", "messages[0].content[0]", "is null"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"x\"},"
         " {\"type\": \"text\"}]}]",
         "messages[0].content[1].text", "is missing, must be a text"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": null}]}]",
         "messages[0].content[0].text", "is null, must be a text"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": 7}]}]",
         "messages[0].content[0].text", "is an integer, must be a text"},
        {"[{\"role\": \"user\", \"content\": [{\"text\": \"x\"}]}]", "messages[0].content[0]",
         "of type \"\""},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]",
         "messages[0].content[0]", "of type \"image_url\", must be of type \"text\""},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        CHECK_ERR(check(rows[i].messages), ERR_ARGUMENT, rows[i].words);
        ck_assert_str_eq(wrong.param, rows[i].param);
        ck_assert(strncmp(err.text, rows[i].param, strlen(rows[i].param)) == 0);
    }
}
END_TEST

/* Checks the messages that a template gets, as JSON with its keys in order. */
static void check_plain(const char *messages, bool takes_parts, const char *want)
{
    json_t *plain;
    CHECK_OK(check(messages));
    CHECK_OK(openai_plain_messages(body.root, takes_parts, &plain, &err));
    char *got = json_dumps(plain, JSON_SORT_KEYS | JSON_COMPACT);
    ck_assert_str_eq(got, want);
    free(got);
    json_decref(plain);
}

START_TEST(keys_without_a_value_are_not_there)
{
    static const struct {
        const char *messages, *want;
    } rows[] = {
        {"[{\"role\": \"assistant\", \"content\": null}]", "[{\"role\":\"assistant\"}]"},
        {"[{\"role\": \"assistant\", \"content\": \"\"}]",
         "[{\"content\":\"\",\"role\":\"assistant\"}]"},
        {"[{\"role\": \"assistant\", \"content\": \"b\", \"refusal\": null, \"audio\": null,"
         " \"function_call\": null, \"tool_calls\": null, \"annotations\": null}]",
         "[{\"content\":\"b\",\"role\":\"assistant\"}]"},
        {"[{\"role\": \"assistant\", \"content\": \"b\", \"tool_calls\": []}]",
         "[{\"content\":\"b\",\"role\":\"assistant\"}]"},
        {"[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"arguments\":"
         " {\"a\": null}}}]}]",
         "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":{\"a\":null}}}]}]"},
        {"[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"user\", \"name\": null}]",
         "[{\"content\":\"a\",\"role\":\"user\"},{\"role\":\"user\"}]"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        check_plain(rows[i].messages, false, rows[i].want);
        check_plain(rows[i].messages, true, rows[i].want);
    }
}
END_TEST

START_TEST(the_request_itself_stays_as_it_came)
{
    json_t *plain;
    CHECK_OK(check("[{\"role\": \"a\", \"content\": null, \"tool_calls\": []}]"));
    CHECK_OK(openai_plain_messages(body.root, false, &plain, &err));
    ck_assert_uint_eq(json_object_size(json_array_get(body.root, 0)), 3);
    json_decref(plain);
}
END_TEST

START_TEST(parts_are_joined_where_the_template_takes_none)
{
    static const char *const messages =
        "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"x\"},"
        " {\"type\": \"text\", \"text\": \"y\", \"image\": null}]},"
        " {\"role\": \"user\", \"content\": []}]";
    check_plain(messages, false,
                "[{\"content\":\"x\\ny\",\"role\":\"user\"},{\"content\":\"\",\"role\":\"user\"}]");
    check_plain(messages, true,
                "[{\"content\":[{\"text\":\"x\",\"type\":\"text\"},"
                "{\"text\":\"y\",\"type\":\"text\"}],\"role\":\"user\"},"
                "{\"content\":[],\"role\":\"user\"}]");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openai_messages");
    TCase *tcase = tcase_create("openai_messages");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, contents_are_texts_or_parts_of_text);
    tcase_add_test(tcase, keys_without_a_value_are_not_there);
    tcase_add_test(tcase, the_request_itself_stays_as_it_came);
    tcase_add_test(tcase, parts_are_joined_where_the_template_takes_none);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
