/* ctest: labels=quick libs=coordinator timeout=60 */
/* Bodies of requests as wholes: fields that depend on each other, what is refused because it would
 * change the text, what is ignored, and what holds where nothing is said. */
#include "tests/support/openai_requests.h"

/* ---- fields that depend on others, in either order ---- */

START_TEST(logprobs_of_a_chat)
{
    static const struct {
        const char *fields;
        int want;
    } rows[] = {
        {"\"logprobs\": true", 0},
        {"\"logprobs\": false", -1},
        {"\"logprobs\": null, \"top_logprobs\": null", -1},
        {"\"logprobs\": false, \"top_logprobs\": 0", -1},
        {"\"logprobs\": true, \"top_logprobs\": 64", 64},
        {"\"top_logprobs\": 3, \"logprobs\": true", 3},
    };
    char text[256];
    for (size_t i = 0; i < COUNT(rows); i++) {
        snprintf(text, sizeof text, "{\"messages\": [{\"role\": \"user\"}], %s}", rows[i].fields);
        check_taken(read_body(OPENAI_CHAT, text), "logprobs", rows[i].fields);
        ck_assert_int_eq(request.generate.logprobs, rows[i].want);
    }
    check_refused(read_field(OPENAI_CHAT, "logprobs", "3"), "logprobs", "3",
                  "is an integer, must be true or false");
    check_refused(read_field(OPENAI_CHAT, "top_logprobs", "2"), "top_logprobs", "2",
                  "needs \"logprobs\": true");
    check_refused(read_field(OPENAI_CHAT, "top_logprobs", "65"), "top_logprobs", "65", "is 65");
}
END_TEST

START_TEST(logprobs_of_a_completion_may_be_a_flag)
{
    check_taken(read_field(OPENAI_COMPLETION, "logprobs", "true"), "logprobs", "true");
    ck_assert_int_eq(request.generate.logprobs, 0);
    check_taken(read_field(OPENAI_COMPLETION, "logprobs", "false"), "logprobs", "false");
    ck_assert_int_eq(request.generate.logprobs, -1);
}
END_TEST

START_TEST(best_of_is_n)
{
    static const char *const taken[] = {"\"best_of\": 1", "\"best_of\": 3, \"n\": 3",
                                        "\"n\": 3, \"best_of\": 3.0", "\"n\": 3.0, \"best_of\": 3",
                                        "\"n\": null, \"best_of\": 1"};
    static const char *const refused[] = {"\"best_of\": 3",           "\"n\": 2, \"best_of\": 3",
                                          "\"best_of\": 1, \"n\": 2", "\"best_of\": 0",
                                          "\"best_of\": 9",           "\"best_of\": \"1\""};
    char text[256];
    for (size_t i = 0; i < COUNT(taken); i++) {
        snprintf(text, sizeof text, "{\"prompt\": \"x\", %s}", taken[i]);
        check_taken(read_body(OPENAI_COMPLETION, text), "best_of", taken[i]);
    }
    for (size_t i = 0; i < COUNT(refused); i++) {
        snprintf(text, sizeof text, "{\"prompt\": \"x\", %s}", refused[i]);
        check_refused(read_body(OPENAI_COMPLETION, text), "best_of", refused[i], "must be");
    }
}
END_TEST

START_TEST(no_tokens_are_scores_of_an_echo)
{
    check_refused(read_field(OPENAI_COMPLETION, "max_tokens", "0"), "max_tokens", "0",
                  "is 0, must be at least 1 without \"echo\": true");
    CHECK_OK(
        read_body(OPENAI_COMPLETION, "{\"max_tokens\": 0, \"echo\": true, \"prompt\": \"x\"}"));
    ck_assert(request.scores_only);
    CHECK_OK(
        read_body(OPENAI_COMPLETION, "{\"max_tokens\": 1, \"echo\": true, \"prompt\": \"x\"}"));
    ck_assert(!request.scores_only);
}
END_TEST

START_TEST(usage_is_asked_for_in_streams)
{
    static const char *const options = "{\"include_usage\": true}";
    char text[256];
    check_refused(read_field(OPENAI_CHAT, "stream_options", options), "stream_options", options,
                  "only with \"stream\": true");
    check_refused(read_field(OPENAI_CHAT, "stream_options", "true"), "stream_options", "true",
                  "must be an object");
    CHECK_OK(read_field(OPENAI_CHAT, "stream_options", "null"));
    static const struct {
        const char *options;
        bool want;
    } rows[] = {{"{\"include_usage\": true}", true},
                {"{\"include_usage\": false}", false},
                {"{\"include_usage\": null}", false},
                {"{}", false}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        snprintf(text, sizeof text, "{\"stream_options\": %s, \"stream\": true, \"prompt\": \"x\"}",
                 rows[i].options);
        check_taken(read_body(OPENAI_COMPLETION, text), "stream_options", rows[i].options);
        ck_assert_int_eq(request.includes_usage, rows[i].want);
    }
    check_refused(read_body(OPENAI_COMPLETION, "{\"stream\": true, \"prompt\": \"x\","
                                               " \"stream_options\": {\"include_usage\": 1}}"),
                  "stream_options.include_usage", "1", "must be true or false");
}
END_TEST

/* ---- what is not there ---- */

struct refused_field {
    const char *field;
    unsigned kinds;
};

static const struct refused_field refused_fields[] = {
    {"allowed_token_ids", BOTH},
    {"audio", CHAT},
    {"bad_words", BOTH},
    {"chat_template", CHAT},
    {"continue_final_message", CHAT},
    {"documents", CHAT},
    {"function_call", BOTH},
    {"functions", BOTH},
    {"grammar", BOTH},
    {"guided_choice", BOTH},
    {"guided_grammar", BOTH},
    {"guided_json", BOTH},
    {"guided_regex", BOTH},
    {"logits_processor", BOTH},
    {"logits_processors", BOTH},
    {"prompt_embeds", BOTH},
    {"prompt_logprobs", BOTH},
    {"samplers", BOTH},
    {"structural_tag", BOTH},
    {"structured_outputs", BOTH},
    {"suffix", BOTH},
    {"tool_choice", BOTH},
    {"tools", BOTH},
    {"vllm_xargs", BOTH},
};

static void check_refused_field(enum openai_kind kind, const void *of)
{
    static const char *const full[] = {"true", "\"required\"", "[{}]", "{\"type\": \"x\"}", "0"};
    static const char *const empty[] = {"null", "false", "\"\"", "[]", "{}"};
    const char *field = ((const struct refused_field *)of)->field;
    for (size_t i = 0; i < COUNT(full); i++) {
        check_refused(read_field(kind, field, full[i]), field, full[i],
                      "is not supported by this server");
    }
    for (size_t i = 0; i < COUNT(empty); i++) {
        check_taken(read_field(kind, field, empty[i]), field, empty[i]);
        ck_assert_str_eq(request.ignored, "");
    }
}

START_TEST(fields_that_would_change_the_text_are_refused)
{
    for_kinds(refused_fields[_i].kinds, check_refused_field, &refused_fields[_i]);
}
END_TEST

START_TEST(no_tool_is_a_choice)
{
    check_taken(read_field(OPENAI_CHAT, "tool_choice", "\"none\""), "tool_choice", "none");
    check_taken(read_field(OPENAI_CHAT, "tool_choice", "\"auto\""), "tool_choice", "auto");
    check_taken(read_field(OPENAI_CHAT, "function_call", "\"none\""), "function_call", "none");
}
END_TEST

START_TEST(answers_are_text)
{
    static const char *const formats[] = {"{\"type\": \"json_object\"}", "{}", "[]", "\"text\"",
                                          "{\"type\": \"json_schema\", \"json_schema\": {}}"};
    static const char *const modalities[] = {"[]", "[\"text\", \"audio\"]", "[\"audio\"]",
                                             "\"text\"", "[1]"};
    check_taken(read_field(OPENAI_CHAT, "response_format", "{\"type\": \"text\"}"),
                "response_format", "text");
    check_taken(read_field(OPENAI_CHAT, "modalities", "[\"text\"]"), "modalities", "text");
    for (size_t i = 0; i < COUNT(formats); i++) {
        check_refused(read_field(OPENAI_CHAT, "response_format", formats[i]), "response_format",
                      formats[i], "is not supported but for {\"type\": \"text\"}");
        check_refused(read_field(OPENAI_CHAT, "modalities", modalities[i]), "modalities",
                      modalities[i], "is not supported but for [\"text\"]");
    }
}
END_TEST

START_TEST(unknown_fields_are_named_once)
{
    CHECK_OK(read_body(OPENAI_COMPLETION,
                       "{\"metadata\": {\"a\": [1]}, \"prompt\": \"x\", \"store\": true,"
                       " \"future\": 3, \"service_tier\": \"auto\", \"nothing\": null,"
                       " \"outrider\": {\"mood\": 1, \"prompt\": \"y\"}, \"Prompt\": \"z\"}"));
    ck_assert_str_eq(request.ignored, "metadata,store,future,service_tier,nothing,"
                                      "outrider.mood,outrider.prompt,Prompt");
    ck_assert_str_eq(request.prompts[0].text, "x");
}
END_TEST

/* A conversation's fields mean nothing in a completion, and the other way round, but for those that
 * their sender expects to change the text. */
START_TEST(fields_of_the_other_endpoint_are_ignored)
{
    CHECK_OK(read_body(OPENAI_COMPLETION, "{\"prompt\": \"x\", \"messages\": 3, \"audio\": [1],"
                                          " \"modalities\": 0, \"top_logprobs\": 2}"));
    ck_assert_str_eq(request.ignored, "messages,audio,modalities,top_logprobs");
    CHECK_OK(read_body(OPENAI_CHAT, "{\"messages\": [{\"role\": \"user\"}], \"prompt\": 3,"
                                    " \"parallel_tool_calls\": true}"));
    ck_assert_str_eq(request.ignored, "prompt,parallel_tool_calls");
}
END_TEST

/* Unsupported fields that would change the text may have the value that everybody gets, and no
 * other. */
START_TEST(neutral_values_of_unsupported_fields_are_taken)
{
    static const struct {
        const char *field;
        unsigned kinds;
        const char *neutral, *refused;
    } rows[] = {
        {"use_beam_search", BOTH, "false", "true"},
        {"length_penalty", BOTH, "1.0", "0.5"},
        {"length_penalty", BOTH, "1", "\"1\""},
        {"early_stopping", BOTH, "false", "true"},
        {"include_stop_str_in_output", BOTH, "false", "true"},
        {"spaces_between_special_tokens", BOTH, "true", "false"},
        {"add_special_tokens", CHAT, "false", "true"},
        {"parse_special", CHAT, "true", "false"},
        {"echo", CHAT, "false", "true"},
        {"typical_p", BOTH, "1", "0.9"},
        {"typ_p", BOTH, "1.0", "0.9"},
        {"tfs_z", BOTH, "1", "0.5"},
        {"repeat_penalty", BOTH, "1", "1.1"},
        {"dynatemp_range", BOTH, "0", "0.5"},
        {"mirostat", BOTH, "0", "2"},
        {"dry_multiplier", BOTH, "0", "0.8"},
        {"xtc_probability", BOTH, "0", "0.1"},
        {"truncate_prompt_tokens", BOTH, "null", "100"},
        {"regex", BOTH, "\"\"", "\"a+\""},
        {"json_schema", BOTH, "{}", "{\"type\": \"object\"}"},
        {"ebnf", BOTH, "null", "\"root ::= x\""},
        {"guided_decoding", BOTH, "null", "{\"regex\": \"a\"}"},
        {"web_search_options", CHAT, "{}", "{\"a\": 1}"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (int kind = OPENAI_COMPLETION; kind <= OPENAI_CHAT; kind++) {
            if (!(rows[i].kinds & (kind == OPENAI_CHAT ? CHAT : COMPLETION))) continue;
            int rc = read_field((enum openai_kind)kind, rows[i].field, rows[i].neutral);
            check_taken(rc, rows[i].field, rows[i].neutral);
            rc = read_field((enum openai_kind)kind, rows[i].field, rows[i].refused);
            check_refused(rc, rows[i].field, rows[i].refused, "is not supported by this server");
        }
    }
}
END_TEST

START_TEST(special_tokens_are_read_as_the_fields_say)
{
    CHECK_OK(read_body(OPENAI_COMPLETION, "{\"prompt\": \"x\"}"));
    const struct generate_request *g = &request.generate;
    ck_assert(!g->adds_no_special && !g->parses_no_special && !g->shows_special);
    CHECK_OK(read_body(OPENAI_COMPLETION,
                       "{\"prompt\": \"x\", \"add_special_tokens\": false,"
                       " \"parse_special\": false, \"skip_special_tokens\": false}"));
    ck_assert(g->adds_no_special && g->parses_no_special && g->shows_special);
    CHECK_OK(read_body(OPENAI_COMPLETION, "{\"prompt\": \"x\", \"add_special_tokens\": true,"
                                          " \"parse_special\": null}"));
    ck_assert(!g->adds_no_special && !g->parses_no_special);
}
END_TEST

/* A name in any script tells clients apart. */
START_TEST(users_have_names_of_any_script)
{
    char text[512];
    check_taken(read_field(OPENAI_CHAT, "user", "\"Zo\xc3\xab \\\"x\\\"\""), "user", "Zoe");
    ck_assert_str_eq(request.generate.client, "Zo____x_");
    snprintf(text, sizeof text, "\"%0300d\"", 0);
    check_taken(read_field(OPENAI_COMPLETION, "user", text), "user", text);
    ck_assert_uint_eq(strlen(request.generate.client), 128);
    check_refused(read_field(OPENAI_CHAT, "user", "3"), "user", "3", "must be a string");
}
END_TEST

START_TEST(many_and_long_unknown_fields_are_cut)
{
    char text[TEXT_BYTES] = "{\"prompt\": \"x\"";
    size_t len = strlen(text);
    for (int i = 0; i < 20; i++) {
        len += (size_t)snprintf(text + len, sizeof text - len, ", \"%02d%060d\": 1", i, 0);
    }
    snprintf(text + len, sizeof text - len, "}");
    CHECK_OK(read_body(OPENAI_COMPLETION, text));
    ck_assert_uint_eq(strlen(request.ignored), OPENAI_IGNORED_BYTES - 1);
    ck_assert_int_eq(request.ignored[40], ',');
}
END_TEST

START_TEST(outrider_is_an_object)
{
    CHECK_OK(read_field(OPENAI_CHAT, "outrider", "{}"));
    ck_assert(request.tells_outrider);
    CHECK_OK(read_field(OPENAI_CHAT, "outrider", "null"));
    ck_assert(!request.tells_outrider);
    check_refused(read_field(OPENAI_CHAT, "outrider", "true"), "outrider", "true",
                  "must be an object");
    check_refused(read_field(OPENAI_CHAT, "outrider", "[]"), "outrider", "[]", "must be an object");
}
END_TEST

/* ---- what is not said ---- */

START_TEST(a_prompt_alone_is_enough)
{
    CHECK_OK(read_body(OPENAI_COMPLETION, "{\"prompt\": \"x\"}"));
    CHECK_OK(openai_request_check(&request, &reading));
    const struct generate_request *g = &request.generate;
    ck_assert_int_eq(g->max_tokens, OPENAI_COMPLETION_TOKENS);
    ck_assert_double_eq((double)g->sampling.temperature, GENERATE_OPEN);
    ck_assert_double_eq((double)g->sampling.top_p, GENERATE_OPEN);
    ck_assert(!g->has_seed && !g->echo && !request.is_stream && !request.tells_outrider);
    ck_assert_int_eq(g->logprobs, -1);
    ck_assert_int_eq(g->n_draft, -1);
    CHECK_OK(read_body(OPENAI_CHAT, "{\"messages\": [{\"role\": \"user\"}]}"));
    ck_assert_int_eq(request.generate.max_tokens, 0);
    ck_assert(request.add_generation_prompt);
}
END_TEST

/* Errors that only the decoder finds have the field's name, too. */
START_TEST(the_check_names_fields)
{
    char text[512];
    snprintf(text, sizeof text, "\"%0300d\"", 0);
    CHECK_OK(read_field(OPENAI_CHAT, "stop", text));
    CHECK_ERR(openai_request_check(&request, &reading), ERR_ARGUMENT, "stop");
    ck_assert_str_eq(wrong.param, "stop");
    CHECK_OK(read_field(OPENAI_CHAT, "logit_bias", "{\"5\": 1, \"05\": 2}"));
    CHECK_ERR(openai_request_check(&request, &reading), ERR_ARGUMENT,
              "logit_bias has token id 5 twice");
}
END_TEST

START_TEST(other_seeds_are_refused_by_name)
{
    static const char *const refused[] = {
        "1.0",
        "0.5",
        "\"1\"",
        "true",
        "[]",
        "18446744073709551616",
        "99999999999999999999",
        "-9223372036854775809",
        "123456789012345678901234567890",
        "18446744073709551616.5",
        "9e18",
    };
    char long_one[TEXT_BYTES / 2];
    for (size_t i = 0; i < COUNT(refused); i++) {
        check_refused(read_field(OPENAI_CHAT, "seed", refused[i]), "seed", refused[i],
                      "must be an integer from -9223372036854775808 to 18446744073709551615");
    }
    memset(long_one, '7', sizeof long_one);
    long_one[sizeof long_one - 1] = 0;
    check_refused(read_field(OPENAI_CHAT, "seed", long_one), "seed", "7777...", "must be an int");
}
END_TEST

/* A number is changed where the seed is, and nowhere else. */
START_TEST(only_the_seed_may_be_so_large)
{
    static const char *const wrong_bodies[] = {
        "{\"prompt\": \"x\", \"n\": 9223372036854775808}",
        "{\"prompt\": \"x\", \"metadata\": {\"seed\": 9223372036854775808}}",
        "{\"prompt\": [9223372036854775808], \"seed\": 1}",
        "{\"seed\": 9223372036854775808, \"n\": 9223372036854775808}",
        "{\"a\": \"\\\"seed\\\": 1\", \"n\": 9223372036854775808}",
        "{\"seed\": 9223372036854775808",
        "{\"seed\": 9223372036854775808, \"seed\": 1}",
        "[\"seed\", 9223372036854775808]",
    };
    for (size_t i = 0; i < COUNT(wrong_bodies); i++) {
        CHECK_ERR(parse_bytes(wrong_bodies[i], strlen(wrong_bodies[i])), ERR_FORMAT,
                  "the body is not JSON");
    }
    CHECK_OK(read_body(OPENAI_COMPLETION,
                       "{\"metadata\": {\"seed\": 5, \"a\": \"{\\\\\"}, \"prompt\": "
                       "\"seed\", \"user\" : \"seed\", \"seed\" : 18446744073709551614 }"));
    ck_assert_uint_eq(request.generate.seed, UINT64_MAX - 1);
}
END_TEST

/* The text that a request predicts, or NULL. */
static void check_prediction(const char *value, const char *want)
{
    check_taken(read_field(OPENAI_CHAT, "prediction", value), "prediction", value);
    ck_assert_uint_eq(request.generate.prediction_len, strlen(want));
    ck_assert_mem_eq(request.generate.prediction ? request.generate.prediction : "", want,
                     strlen(want));
}

START_TEST(a_prediction_is_a_text_or_parts_of_one)
{
    static const struct {
        const char *value, *param, *words;
    } rows[] = {
        {"3", "prediction", "is an integer, must be an object"},
        {"\"x\"", "prediction", "is a string, must be an object"},
        {"[]", "prediction", "is an array, must be an object"},
        {"{}", "prediction.type", "must be \"content\""},
        {"{\"type\": \"text\", \"content\": \"x\"}", "prediction.type", "must be \"content\""},
        {"{\"type\": \"content\"}", "prediction.content", "is missing"},
        {"{\"type\": \"content\", \"content\": null}", "prediction.content", "is null"},
        {"{\"type\": \"content\", \"content\": {}}", "prediction.content", "is an object"},
        {"{\"type\": \"content\", \"content\": [\"x\"]}", "prediction.content[0]",
         "is a string, must be an object"},
        {"{\"type\": \"content\", \"content\": [{\"type\": \"text\", \"text\": \"x\"},"
         " {\"type\": \"image\", \"text\": \"x\"}]}",
         "prediction.content[1]", "is a part of type \"image\", must be of type \"text\""},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        CHECK_ERR(read_field(OPENAI_CHAT, "prediction", rows[i].value), ERR_ARGUMENT,
                  rows[i].words);
        ck_assert_str_eq(wrong.param, rows[i].param);
    }
    check_prediction("null", "");
    check_prediction("{\"type\": \"content\", \"content\": \"\"}", "");
    check_prediction("{\"type\": \"content\", \"content\": []}", "");
    check_prediction("{\"type\": \"content\", \"content\": \"a b\"}", "a b");
    check_prediction("{\"type\": \"content\", \"content\": [{\"type\": \"text\", \"text\": \"a \"},"
                     " {\"type\": \"text\", \"text\": \"b\"}]}",
                     "a b");
}
END_TEST

static void check_tools(int rc, const char *tools, const char *choice, const char *text,
                        bool is_taken)
{
    if (is_taken) {
        check_taken(rc, tools, text);
        return;
    }
    check_refused(rc, tools, text, "leave it out, or send");
    ck_assert_ptr_nonnull(strstr(err.text, choice));
}

/* Tools with a choice are refused for the tools, which are not supported. */
START_TEST(tools_are_taken_where_none_may_be_called)
{
    static const char *const names[][2] = {{"tools", "tool_choice"},
                                           {"functions", "function_call"}};
    static const char *const forced[] = {"\"required\"", "{\"name\": \"f\"}", "\"auto\"", "null"};
    char text[256];
    for (size_t i = 0; i < COUNT(names); i++) {
        const char *tools = names[i][0], *choice = names[i][1];
        for (size_t k = 0; k <= COUNT(forced); k++) {
            const char *said = k < COUNT(forced) ? forced[k] : "\"none\"";
            for (int order = 0; order < 2; order++) {
                int n = order ? snprintf(text, sizeof text, "{\"%s\": %s, \"%s\": [{\"a\": 1}]",
                                         choice, said, tools)
                              : snprintf(text, sizeof text, "{\"%s\": [{\"a\": 1}], \"%s\": %s",
                                         tools, choice, said);
                snprintf(text + n, sizeof text - (size_t)n, ", \"prompt\": \"x\"}");
                check_tools(read_body(OPENAI_COMPLETION, text), tools, choice, text,
                            k == COUNT(forced));
            }
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openai request rules");
    TCase *tcase = tcase_create("request");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, logprobs_of_a_chat);
    tcase_add_test(tcase, logprobs_of_a_completion_may_be_a_flag);
    tcase_add_test(tcase, best_of_is_n);
    tcase_add_test(tcase, no_tokens_are_scores_of_an_echo);
    tcase_add_test(tcase, usage_is_asked_for_in_streams);
    tcase_add_loop_test(tcase, fields_that_would_change_the_text_are_refused, 0,
                        COUNT(refused_fields));
    tcase_add_test(tcase, no_tool_is_a_choice);
    tcase_add_test(tcase, answers_are_text);
    tcase_add_test(tcase, unknown_fields_are_named_once);
    tcase_add_test(tcase, fields_of_the_other_endpoint_are_ignored);
    tcase_add_test(tcase, neutral_values_of_unsupported_fields_are_taken);
    tcase_add_test(tcase, special_tokens_are_read_as_the_fields_say);
    tcase_add_test(tcase, users_have_names_of_any_script);
    tcase_add_test(tcase, many_and_long_unknown_fields_are_cut);
    tcase_add_test(tcase, outrider_is_an_object);
    tcase_add_test(tcase, a_prompt_alone_is_enough);
    tcase_add_test(tcase, the_check_names_fields);
    tcase_add_test(tcase, tools_are_taken_where_none_may_be_called);
    tcase_add_test(tcase, a_prediction_is_a_text_or_parts_of_one);
    tcase_add_test(tcase, other_seeds_are_refused_by_name);
    tcase_add_test(tcase, only_the_seed_may_be_so_large);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
