/* ctest: labels=quick libs=coordinator timeout=60 */
/* Bodies of /v1/completions and /v1/chat/completions, field by field: what each becomes, where its
 * range ends, and that a refusal names it. */
#include <math.h>
#include <stddef.h>

#include "tests/support/openai_requests.h"

#define HERE(member) offsetof(struct openai_request, member)
#define OWN(member)  HERE(generate.member)

/* ---- numbers ---- */

struct number {
    const char *field;
    unsigned kinds;
    bool is_int;
    size_t offset;            /* in the request */
    double unsaid;            /* what it is without the field, or with null */
    const char *least, *most; /* that are taken */
    const char *below, *above;
};

#define HERE(member) offsetof(struct openai_request, member)
#define OWN(member)  HERE(generate.member)

static const struct number numbers[] = {
    {"frequency_penalty", BOTH, false, OWN(frequency_penalty), 0, "-2", "2", "-2.01", "2.01"},
    {"presence_penalty", BOTH, false, OWN(presence_penalty), 0, "-2.0", "2.0", "-2.01", "2.01"},
    {"repetition_penalty", BOTH, false, OWN(repetition_penalty), -1, "0.01", "10", "0.009", "10.1"},
    {"temperature", BOTH, false, OWN(sampling.temperature), -1, "0", "100", "-0.1", "100.1"},
    {"temperature", BOTH, false, OWN(sampling.temperature), -1, "0.001", "2", "-1e-9", "1e9"},
    {"min_p", BOTH, false, OWN(sampling.min_p), -1, "0", "1", "-0.01", "1.01"},
    {"top_p", BOTH, false, OWN(sampling.top_p), -1, "0.0001", "1", "-0.01", "1.01"},
    {"top_k", BOTH, true, OWN(sampling.top_k), -1, "0", "2147483647", "-2", "2147483648"},
    {"n", BOTH, true, OWN(n), 1, "1", "8", "0", "9"},
    {"min_tokens", CHAT, true, OWN(min_tokens), 0, "0", "2147483647", "-1", "2147483648"},
    {"max_tokens", COMPLETION, true, OWN(max_tokens), 16, "1", "2147483647", "-1", "2147483648"},
    {"max_tokens", CHAT, true, OWN(max_tokens), 0, "1", "2147483647", "0", "2147483648"},
    {"max_completion_tokens", CHAT, true, OWN(max_tokens), 0, "1", "2147483647", "0", "3e9"},
    {"logprobs", COMPLETION, true, OWN(logprobs), -1, "0", "64", "-1", "65"},
    {"outrider.n_draft", BOTH, true, OWN(n_draft), -1, "0", "16", "-1", "17"},
    {"outrider.threshold", BOTH, false, OWN(threshold), 0, "0", "1", "-0.01", "1.01"},
    {"outrider.timeout_ms", BOTH, true, OWN(timeout_ms), 0, "0", "86400000", "-1", "86400001"},
};

static double number_in(const struct number *row)
{
    const char *place = (const char *)&request + row->offset;
    int whole;
    float real;
    memcpy(&whole, place, sizeof whole);
    memcpy(&real, place, sizeof real);
    return row->is_int ? whole : (double)real;
}

static void check_number_is(enum openai_kind kind, const struct number *row, const char *value,
                            double want)
{
    check_taken(read_field(kind, row->field, value), row->field, value);
    double got = number_in(row);
    ck_assert_msg(fabs(got - want) <= 1e-6 * fabs(want), "%s %s is %g", row->field, value, got);
}

static void check_number(enum openai_kind kind, const void *of)
{
    static const char *const wrong_types[] = {"\"1\"", "[1]", "{}", "true"};
    const struct number *row = of;
    check_number_is(kind, row, row->least, atof(row->least));
    check_number_is(kind, row, row->most, atof(row->most));
    check_number_is(kind, row, "1.0", 1);
    check_number_is(kind, row, "null", row->unsaid);
    check_refused(read_field(kind, row->field, row->below), row->field, row->below, "must be");
    check_refused(read_field(kind, row->field, row->above), row->field, row->above, "must be");
    if (row->is_int) check_refused(read_field(kind, row->field, "0.5"), row->field, "0.5", "int");
    for (size_t i = 0; i < COUNT(wrong_types); i++) {
        bool is_taken = i == 3 && strcmp(row->field, "logprobs") == 0; /* see there */
        if (is_taken) continue;
        check_refused(read_field(kind, row->field, wrong_types[i]), row->field, wrong_types[i],
                      "must be a");
    }
}

START_TEST(each_number_has_its_range)
{
    for_kinds(numbers[_i].kinds, check_number, &numbers[_i]);
}
END_TEST

START_TEST(minus_one_is_all_of_top_k)
{
    CHECK_OK(read_field(OPENAI_COMPLETION, "top_k", "-1"));
    ck_assert_int_eq(request.generate.sampling.top_k, 0);
}
END_TEST

/* Clients write them for greedy. */
START_TEST(tiny_top_p_and_temperature_mean_greedy)
{
    static const char *const small[] = {"0", "0.0", "1e-60", "1e-9", "-0.0"};
    for (size_t i = 0; i < COUNT(small); i++) {
        int rc = read_field(OPENAI_CHAT, "top_p", small[i]);
        check_taken(rc, "top_p", small[i]);
        ck_assert(request.generate.sampling.top_p > 0);
        ck_assert(request.generate.sampling.top_p < 1e-8f);
        rc = read_field(OPENAI_CHAT, "temperature", small[i]);
        check_taken(rc, "temperature", small[i]);
        ck_assert(request.generate.sampling.temperature == 0);
    }
    check_taken(read_field(OPENAI_CHAT, "temperature", "0.0009"), "temperature", "0.0009");
    ck_assert(request.generate.sampling.temperature == 0);
}
END_TEST

/* Neither order of the two counts: the newer name does. */
START_TEST(the_newer_name_of_max_tokens_counts)
{
    static const char *const bodies[] = {
        "{\"prompt\": \"x\", \"max_completion_tokens\": 3, \"max_tokens\": 0}",
        "{\"prompt\": \"x\", \"max_tokens\": 0, \"max_completion_tokens\": 3}",
        "{\"prompt\": \"x\", \"max_tokens\": 9, \"max_completion_tokens\": 3}",
    };
    for (size_t i = 0; i < COUNT(bodies); i++) {
        CHECK_OK(read_body(OPENAI_COMPLETION, bodies[i]));
        ck_assert_int_eq(request.generate.max_tokens, 3);
        ck_assert(!request.scores_only);
    }
}
END_TEST

START_TEST(a_threshold_is_there_when_it_is_said)
{
    CHECK_OK(read_field(OPENAI_CHAT, "outrider.threshold", "0"));
    ck_assert(request.generate.has_threshold);
    CHECK_OK(read_field(OPENAI_CHAT, "outrider.threshold", "null"));
    ck_assert(!request.generate.has_threshold);
}
END_TEST

START_TEST(seeds_have_64_bits)
{
    static const struct {
        const char *value;
        uint64_t want;
    } rows[] = {
        {"0", 0},
        {"9223372036854775807", INT64_MAX},
        {"9223372036854775808", (uint64_t)INT64_MAX + 1},
        {"9999999999999999999", 9999999999999999999u},
        {"18446744073709551615", UINT64_MAX},
        {"-1", UINT64_MAX},
        {"-9223372036854775808", (uint64_t)INT64_MAX + 1},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        check_taken(read_field(OPENAI_COMPLETION, "seed", rows[i].value), "seed", rows[i].value);
        ck_assert(request.generate.has_seed);
        ck_assert_uint_eq(request.generate.seed, rows[i].want);
    }
    CHECK_OK(read_field(OPENAI_CHAT, "seed", "null"));
    ck_assert(!request.generate.has_seed);
}
END_TEST

/* ---- flags and words ---- */

struct flag {
    const char *field;
    unsigned kinds;
    size_t offset;
    bool unsaid;
};

static const struct flag flags[] = {
    {"echo", COMPLETION, OWN(echo), false},
    {"ignore_eos", BOTH, OWN(ignore_eos), false},
    {"stream", BOTH, HERE(is_stream), false},
    {"add_generation_prompt", CHAT, HERE(add_generation_prompt), true},
    {"outrider.full_rows", BOTH, OWN(full_rows), false},
    {"outrider.show_drafts", BOTH, OWN(show_drafts), false},
};

static void check_flag_is(enum openai_kind kind, const struct flag *row, const char *value,
                          bool want)
{
    check_taken(read_field(kind, row->field, value), row->field, value);
    ck_assert_int_eq(*((const char *)&request + row->offset), want);
}

static void check_flag(enum openai_kind kind, const void *of)
{
    static const char *const wrong_types[] = {"1", "0.0", "\"true\"", "[]", "{}"};
    const struct flag *row = of;
    check_flag_is(kind, row, "true", true);
    check_flag_is(kind, row, "false", false);
    check_flag_is(kind, row, "null", row->unsaid);
    for (size_t i = 0; i < COUNT(wrong_types); i++) {
        check_refused(read_field(kind, row->field, wrong_types[i]), row->field, wrong_types[i],
                      "must be true or false");
    }
}

START_TEST(each_flag_is_true_or_false)
{
    for_kinds(flags[_i].kinds, check_flag, &flags[_i]);
}
END_TEST

static void check_words(enum openai_kind kind, const void *field)
{
    static const char *const wrong_types[] = {"1", "true", "[]", "{}"};
    for (size_t i = 0; i < COUNT(wrong_types); i++) {
        check_refused(read_field(kind, field, wrong_types[i]), field, wrong_types[i],
                      "must be a string");
    }
}

START_TEST(words_are_strings)
{
    static const char *const fields[] = {"model", "user", "outrider.rule", "outrider.strategy",
                                         "outrider.priority"};
    for (size_t i = 0; i < COUNT(fields); i++) {
        for_kinds(BOTH, check_words, fields[i]);
    }
    check_taken(read_field(OPENAI_CHAT, "user", "\"ann\""), "user", "ann");
    ck_assert_str_eq(request.generate.client, "ann");
    check_taken(read_field(OPENAI_CHAT, "outrider.rule", "\"block\""), "rule", "block");
    ck_assert_str_eq(request.generate.rule, "block");
}
END_TEST

START_TEST(words_of_a_list)
{
    static const struct {
        const char *word;
        enum job_class want;
    } priorities[] = {
        {"\"normal\"", JOB_CLASS_NORMAL}, {"\"high\"", JOB_CLASS_HIGH}, {"\"low\"", JOB_CLASS_LOW}};
    for (size_t i = 0; i < COUNT(priorities); i++) {
        check_taken(read_field(OPENAI_CHAT, "outrider.priority", priorities[i].word), "priority",
                    priorities[i].word);
        ck_assert_int_eq(request.generate.job_class, priorities[i].want);
    }
    for (int i = 0; i < N_STRATEGIES; i++) {
        char word[64];
        snprintf(word, sizeof word, "\"%s\"", strategy_names[i]);
        check_taken(read_field(OPENAI_COMPLETION, "outrider.strategy", word), "strategy", word);
        ck_assert_int_eq(request.generate.strategy, i);
    }
    check_refused(read_field(OPENAI_CHAT, "outrider.strategy", "\"Fixed\""), "outrider.strategy",
                  "Fixed", "is \"Fixed\", which is none");
    check_refused(read_field(OPENAI_CHAT, "outrider.priority", "\"\""), "outrider.priority", "",
                  "is \"\", which is none");
}
END_TEST

/* ---- model ---- */

START_TEST(there_is_one_model)
{
    check_taken(read_field(OPENAI_CHAT, "model", "\"target\""), "model", "target");
    ck_assert_int_eq(wrong.status, 0);
    check_refused(read_field(OPENAI_CHAT, "model", "\"gpt-4\""), "model", "gpt-4",
                  "\"gpt-4\" does not exist; this server has \"target\"");
    ck_assert_int_eq(wrong.status, 404);
    ck_assert_str_eq(wrong.code, "model_not_found");
}
END_TEST

/* ---- prompts ---- */

START_TEST(a_prompt_is_a_text_or_ids_or_a_list)
{
    CHECK_OK(read_body(OPENAI_COMPLETION, "{\"prompt\": \"\xc3\xa9\"}"));
    ck_assert_int_eq(request.n_prompts, 1);
    ck_assert_str_eq(request.prompts[0].text, "\xc3\xa9");
    ck_assert_uint_eq(request.prompts[0].len, 2);

    CHECK_OK(read_body(OPENAI_COMPLETION, "{\"prompt\": \"\"}"));
    ck_assert_uint_eq(request.prompts[0].len, 0);

    CHECK_OK(read_body(OPENAI_COMPLETION, "{\"prompt\": [5, 6.0, 0]}"));
    ck_assert_int_eq(request.n_prompts, 1);
    ck_assert_ptr_null(request.prompts[0].text);
    ck_assert_int_eq(request.prompts[0].n_ids, 3);
    ck_assert_int_eq(request.prompts[0].ids[1], 6);

    CHECK_OK(read_body(OPENAI_COMPLETION, "{\"prompt\": [\"a\", [1, 2], \"\", [3]]}"));
    ck_assert_int_eq(request.n_prompts, 4);
    ck_assert_str_eq(request.prompts[0].text, "a");
    ck_assert_int_eq(request.prompts[1].ids[1], 2);
    ck_assert_str_eq(request.prompts[2].text, "");
    ck_assert_int_eq(request.prompts[3].n_ids, 1);
}
END_TEST

START_TEST(other_prompts_are_refused)
{
    static const struct {
        const char *value, *words;
    } rows[] = {
        {"3", "is an integer, must be a text or ids"},
        {"{}", "is an object, must be"},
        {"true", "is true, must be"},
        {"[]", "has 0 texts"},
        {"[[]]", "is empty, must be"},
        {"[1, \"a\"]", "is a string, must be an integer"},
        {"[\"a\", 1]", "is an integer, must be a text"},
        {"[1.5]", "is a number, must be a text"},
        {"[[1, 1.5]]", "is a number, must be an integer"},
        {"[\"a\", null]", "is null, must be"},
        {"[-1]", "is -1, must be 0 to 2147483647"},
        {"[2147483648]", "is 2147483648, must be"},
        {"[[[1]]]", "is an array, must be an integer"},
        {"null", "is missing"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"prompt\": %s}", rows[i].value);
        check_refused(read_body(OPENAI_COMPLETION, text), "prompt", rows[i].value, rows[i].words);
    }
    check_refused(read_body(OPENAI_COMPLETION, "{}"), "prompt", "", "is missing");
    check_refused(read_body(OPENAI_COMPLETION, "{\"messages\": []}"), "prompt", "", "is missing");
    CHECK_ERR(read_body(OPENAI_COMPLETION, "[]"), ERR_ARGUMENT, "the body is an array");
    ck_assert_str_eq(wrong.param, "");
}
END_TEST

/* "x", "x", ... */
static const char *many(char *text, size_t size, const char *before, int n, const char *after)
{
    size_t len = (size_t)snprintf(text, size, "%s", before);
    for (int i = 0; i < n; i++) {
        len += (size_t)snprintf(text + len, size - len, "%s\"x\"", i ? "," : "");
    }
    snprintf(text + len, size - len, "%s", after);
    return text;
}

START_TEST(the_number_of_prompts_is_bounded)
{
    char text[TEXT_BYTES];
    CHECK_OK(read_body(OPENAI_COMPLETION,
                       many(text, sizeof text, "{\"prompt\": [", OPENAI_PROMPTS_MAX, "]}")));
    ck_assert_int_eq(request.n_prompts, OPENAI_PROMPTS_MAX);
    check_refused(read_body(OPENAI_COMPLETION, many(text, sizeof text, "{\"prompt\": [",
                                                    OPENAI_PROMPTS_MAX + 1, "]}")),
                  "prompt", "257", "has 257 texts, must have 1 to 256");
}
END_TEST

START_TEST(messages_have_roles)
{
    static const struct {
        const char *body, *words;
    } rows[] = {
        {"{}", "is missing"},
        {"{\"prompt\": \"x\"}", "is missing"},
        {"{\"messages\": null}", "is missing"},
        {"{\"messages\": []}", "at least one"},
        {"{\"messages\": \"hello\"}", "must be an array"},
        {"{\"messages\": {}}", "must be an array"},
        {"{\"messages\": [{\"role\": \"user\"}, 3]}", "item 1 that is not an object"},
        {"{\"messages\": [{\"content\": \"x\"}]}", "item 0 without a role"},
        {"{\"messages\": [{\"role\": 3}]}", "item 0 without a role"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        check_refused(read_body(OPENAI_CHAT, rows[i].body), "messages", rows[i].body,
                      rows[i].words);
    }
    CHECK_OK(read_body(OPENAI_CHAT,
                       "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\","
                       " \"text\": \"x\"}]}, {\"role\": \"assistant\", \"content\": null}]}"));
    ck_assert_uint_eq(json_array_size(request.messages), 2);
    ck_assert_int_eq(request.n_prompts, 0);
}
END_TEST

START_TEST(values_for_the_template_are_an_object)
{
    CHECK_OK(read_field(OPENAI_CHAT, "chat_template_kwargs", "{\"thinking\": false}"));
    ck_assert(json_is_false(json_object_get(request.template_values, "thinking")));
    check_refused(read_field(OPENAI_CHAT, "chat_template_kwargs", "[]"), "chat_template_kwargs",
                  "[]", "is an array, must be an object");
}
END_TEST

/* ---- lists ---- */

START_TEST(stops_are_texts)
{
    static const struct {
        const char *value, *words;
    } rows[] = {
        {"\"\"", "must be a text that is not empty"},
        {"[\"a\", \"\"]", "that is not empty"},
        {"[1]", "must be a text"},
        {"[null]", "must be a text"},
        {"3", "must be a text"},
        {"{}", "must be a text"},
        {"[\"1\", \"2\", \"3\", \"4\", \"5\"]",
         "has 5 texts, at most 4 are allowed (--max-stops of the coordinator)"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        check_refused(read_field(OPENAI_CHAT, "stop", rows[i].value), "stop", rows[i].value,
                      rows[i].words);
    }
    check_taken(read_field(OPENAI_CHAT, "stop", "[]"), "stop", "[]");
    ck_assert_int_eq(request.generate.n_stop, 0);
    check_taken(read_field(OPENAI_CHAT, "stop", "\"\\n\""), "stop", "\\n");
    ck_assert_int_eq(request.generate.n_stop, 1);
    ck_assert_str_eq(request.generate.stop[0], "\n");
    check_taken(read_field(OPENAI_COMPLETION, "stop", "[\"a\", \"bb\", \"\xc3\xa9\", \"d\"]"),
                "stop", "4 texts");
    ck_assert_int_eq(request.generate.n_stop, N_STOP);
    ck_assert_str_eq(request.generate.stop[2], "\xc3\xa9");
}
END_TEST

START_TEST(stop_ids_are_ids)
{
    check_taken(read_field(OPENAI_CHAT, "stop_token_ids", "[7, 8]"), "stop_token_ids", "");
    ck_assert_int_eq(request.generate.n_stop_ids, 2);
    ck_assert_int_eq(request.generate.stop_ids[1], 8);
    check_refused(read_field(OPENAI_CHAT, "stop_token_ids", "7"), "stop_token_ids", "7",
                  "must be an array of ids");
    check_refused(read_field(OPENAI_CHAT, "stop_token_ids", "[-7]"), "stop_token_ids", "-7",
                  "is -7, must be");
}
END_TEST

START_TEST(biases_are_of_tokens)
{
    static const struct {
        const char *value, *words;
    } rows[] = {
        {"[]", "is an array, must be an object"},
        {"{\"a\": 1}", "has the key \"a\", which is not a token id"},
        {"{\"\": 1}", "has the key \"\""},
        {"{\"-1\": 1}", "has the key \"-1\""},
        {"{\"1.0\": 1}", "has the key \"1.0\""},
        {"{\" 1\": 1}", "has the key \" 1\""},
        {"{\"+1\": 1}", "has the key \"+1\""},
        {"{\"0x1\": 1}", "has the key \"0x1\""},
        {"{\"2147483648\": 1}", "has the key \"2147483648\""},
        {"{\"99999999999999999999\": 1}", "has the key \"99999999999999999999\""},
        {"{\"1\": -100.1}", "is -100.1, must be -100 to 100"},
        {"{\"1\": 101}", "is 101, must be"},
        {"{\"1\": \"5\"}", "is a string, must be a number"},
        {"{\"1\": null}", "is null, must be a number"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        check_refused(read_field(OPENAI_COMPLETION, "logit_bias", rows[i].value), "logit_bias",
                      rows[i].value, rows[i].words);
    }
    check_taken(read_field(OPENAI_CHAT, "logit_bias", "{}"), "logit_bias", "{}");
    ck_assert_int_eq(request.generate.n_biases, 0);
    check_taken(
        read_field(OPENAI_CHAT, "logit_bias", "{\"0\": -100, \"2147483647\": 100, \"7\": 0.5}"),
        "logit_bias", "3");
    ck_assert_int_eq(request.generate.n_biases, 3);
    ck_assert_int_eq(request.generate.biases[2].id, INT32_MAX); /* in order of their ids */
    ck_assert_double_eq((double)request.generate.biases[0].bias, -100);
}
END_TEST

/* {"0": 0, "1": 0, ...} */
static int read_biases(int n)
{
    static char text[32 * GENERATE_BIASES_MAX];
    size_t len = (size_t)snprintf(text, sizeof text, "{\"prompt\": \"x\", \"logit_bias\": {");
    for (int i = 0; i < n; i++) {
        len += (size_t)snprintf(text + len, sizeof text - len, "%s\"%d\": 0", i ? "," : "", i);
    }
    snprintf(text + len, sizeof text - len, "}}");
    return read_body(OPENAI_COMPLETION, text);
}

START_TEST(the_number_of_biases_is_bounded)
{
    check_taken(read_biases(GENERATE_BIASES_MAX), "logit_bias", "1024");
    ck_assert_int_eq(request.generate.n_biases, GENERATE_BIASES_MAX);
    check_refused(read_biases(GENERATE_BIASES_MAX + 1), "logit_bias", "1025",
                  "has 1025 tokens, at most 1024 are allowed");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openai request");
    TCase *tcase = tcase_create("request");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, each_number_has_its_range, 0, COUNT(numbers));
    tcase_add_test(tcase, minus_one_is_all_of_top_k);
    tcase_add_test(tcase, tiny_top_p_and_temperature_mean_greedy);
    tcase_add_test(tcase, the_newer_name_of_max_tokens_counts);
    tcase_add_test(tcase, a_threshold_is_there_when_it_is_said);
    tcase_add_test(tcase, seeds_have_64_bits);
    tcase_add_loop_test(tcase, each_flag_is_true_or_false, 0, COUNT(flags));
    tcase_add_test(tcase, words_are_strings);
    tcase_add_test(tcase, words_of_a_list);
    tcase_add_test(tcase, there_is_one_model);
    tcase_add_test(tcase, a_prompt_is_a_text_or_ids_or_a_list);
    tcase_add_test(tcase, other_prompts_are_refused);
    tcase_add_test(tcase, the_number_of_prompts_is_bounded);
    tcase_add_test(tcase, messages_have_roles);
    tcase_add_test(tcase, values_for_the_template_are_an_object);
    tcase_add_test(tcase, stops_are_texts);
    tcase_add_test(tcase, stop_ids_are_ids);
    tcase_add_test(tcase, biases_are_of_tokens);
    tcase_add_test(tcase, the_number_of_biases_is_bounded);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
