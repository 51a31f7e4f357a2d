/* Bad values of generation.proto: each is refused with the field's name and its value. */
/* ctest: labels=quick libs=proto timeout=60 */
#include <math.h>

#include "proto/generation_wire.h"
#include "tests/support/wire_samples.h"

enum { ARENA_BYTES = 4 << 20 };

static struct error err;
static struct arena arena;
static struct buffer buf;
static int32_t ids[1];

static void setup(void)
{
    CHECK_OK(arena_open(&arena, ARENA_BYTES, &err));
}

static void teardown(void)
{
    arena_close(&arena);
    buffer_free(&buf);
}

static struct generate_request req;

static void request_reset(void)
{
    generate_request_init(&req);
    req.prompt = "x";
    req.prompt_len = 1;
}

static void request_refused(const char *text)
{
    struct generate_request got;
    CHECK_OK(generate_request_encode(&buf, &req, &err));
    arena_reset(&arena);
    CHECK_ERR(generate_request_decode(buf.data, buf.len, &arena, &got, &err), ERR_FORMAT, text);
    request_reset();
}

START_TEST(request_refusals_name_the_field)
{
    static char long_text[258];
    memset(long_text, 'a', sizeof long_text - 1);
    const char *const long_stop[] = {long_text}, *const empty_stop[] = {""};
    const char *const many_stops[17] = {"a", "a", "a", "a", "a", "a", "a", "a", "a",
                                        "a", "a", "a", "a", "a", "a", "a", "a"};
    request_reset();
    req.prompt = NULL;
    request_refused("prompt_ids is empty");
    static const struct chat_message nameless[] = {{"user", "a", 1}, {"", "b", 1}};
    static const struct chat_message odd[] = {{"us\ner", "a", 1}};
    static struct chat_message many[GENERATE_MESSAGES_MAX + 1];
    for (int i = 0; i <= GENERATE_MESSAGES_MAX; i++)
        many[i] = (struct chat_message){"user", "", 0};
    req.prompt = NULL, req.messages = nameless, req.n_messages = 2;
    request_refused("message 1: role is empty");
    req.prompt = NULL, req.messages = odd, req.n_messages = 1;
    request_refused("message 0: role is not printable ASCII at byte 2 (0x0a)");
    req.prompt = NULL, req.messages = many, req.n_messages = GENERATE_MESSAGES_MAX + 1;
    request_refused("messages has 4097");
    ids[0] = -8;
    req.prompt = NULL, req.prompt_ids = ids, req.n_prompt_ids = 1;
    request_refused("prompt_ids[0] is -8");
    req.max_tokens = -1;
    request_refused("max_tokens is 4294967295");
    req.sampling.temperature = 100.5f;
    request_refused("temperature is 100.5");
    req.sampling.temperature = NAN;
    request_refused("temperature is nan");
    req.sampling.top_k = -2;
    request_refused("top_k is 4294967294");
    req.sampling.top_p = 0;
    request_refused("top_p is 0, must be > 0");
    req.sampling.top_p = 1.5f;
    request_refused("top_p is 1.5");
    req.sampling.min_p = -0.5f;
    request_refused("min_p is -0.5");
    req.n_draft = 17;
    request_refused("n_draft is 17");
    req.rule = long_text;
    request_refused("rule has 257 bytes");
    req.tree_rule = long_text;
    request_refused("tree_rule has 257 bytes");
    req.stop = long_stop, req.n_stop = 1;
    request_refused("stop string 0: stop has 257 bytes");
    req.stop = empty_stop, req.n_stop = 1;
    request_refused("stop is empty");
    req.stop = many_stops, req.n_stop = 17;
    request_refused("stop has 17 entries, at most 16");
    req.request_id = long_text;
    request_refused("request_id has 257 bytes, at most 128");
    req.request_id = "a\nb";
    request_refused("request_id is not printable ASCII at byte 1 (0x0a)");
}
END_TEST

START_TEST(edits_that_are_out_of_range_are_refused)
{
    static const struct {
        float repetition, presence, frequency;
        const char *text;
    } penalties[] = {{0, 0, 0, "repetition_penalty is 0, must be >= 0.01 and <= 10"},
                     {0.009f, 0, 0, "repetition_penalty is 0.009, must be"},
                     {-2, 0, 0, "repetition_penalty is -2"},
                     {10.5f, 0, 0, "repetition_penalty is 10.5"},
                     {NAN, 0, 0, "repetition_penalty is nan"},
                     {1, 2.5f, 0, "presence_penalty is 2.5, must be >= -2 and <= 2"},
                     {1, NAN, 0, "presence_penalty is nan"},
                     {1, 0, -2.5f, "frequency_penalty is -2.5"},
                     {1, 0, INFINITY, "frequency_penalty is inf"}};
    static const struct token_bias twice[] = {{7, 1}, {3, 2}, {7, 2}}, strong = {7, 100.5f};
    static const struct token_bias negative = {-7, 1}, none = {7, NAN};
    request_reset();
    for (size_t i = 0; i < sizeof penalties / sizeof *penalties; i++) {
        req.repetition_penalty = penalties[i].repetition;
        req.presence_penalty = penalties[i].presence;
        req.frequency_penalty = penalties[i].frequency;
        request_refused(penalties[i].text);
    }
    req.biases = twice, req.n_biases = 3;
    request_refused("logit_bias has token id 7 twice");
    req.biases = &strong, req.n_biases = 1;
    request_refused("logit_bias is 100.5, must be >= -100 and <= 100");
    req.biases = &negative, req.n_biases = 1;
    request_refused("logit_bias[0] is -7, must not be negative");
    req.biases = &none, req.n_biases = 1;
    request_refused("logit_bias is nan");
}
END_TEST

START_TEST(lists_that_are_too_long_are_refused)
{
    static int32_t many[GENERATE_STOP_IDS_MAX + 1];
    static struct token_bias biases[GENERATE_BIASES_MAX + 1];
    static struct token_ban bans[GENERATE_BANS_MAX + 1];
    const struct token_ban long_ban = {GENERATE_BAN_TOKENS_MAX + 1, many}, empty_ban = {0, many};
    request_reset();
    for (int i = 0; i <= GENERATE_BANS_MAX; i++) {
        bans[i] = (struct token_ban){1, many};
    }
    req.stop_ids = many, req.n_stop_ids = GENERATE_STOP_IDS_MAX + 1;
    request_refused("stop_token_ids has 65 entries, at most 64");
    req.biases = biases, req.n_biases = GENERATE_BIASES_MAX + 1;
    request_refused("logit_bias has 1025 entries, at most 1024");
    req.bans = bans, req.n_bans = GENERATE_BANS_MAX + 1;
    request_refused("bad_words has 257 entries, at most 256");
    req.bans = &long_ban, req.n_bans = 1;
    request_refused("banned sequence 0: bad_words has 33 tokens, must have 1 to 32");
    req.bans = &empty_ban, req.n_bans = 1;
    request_refused("banned sequence 0: bad_words is empty");
}
END_TEST

START_TEST(service_fields_that_are_out_of_range_are_refused)
{
    static const int32_t negative = -3;
    request_reset();
    req.n = 65;
    request_refused("n is 65, must be 1 to 64");
    req.logprobs = 65;
    request_refused("logprobs is 65, must be 0 to 64");
    req.min_tokens = -1;
    request_refused("min_tokens is 4294967295");
    req.min_tokens = 9, req.max_tokens = 8;
    request_refused("min_tokens is 9, more than max_tokens, which is 8");
    req.stop_ids = &negative, req.n_stop_ids = 1;
    request_refused("stop_token_ids[0] is -3");
    req.job_class = (enum job_class)3;
    request_refused("priority is 3, must be 0 to 2");
    req.client = "a\nb";
    request_refused("user is not printable ASCII at byte 1 (0x0a)");
}
END_TEST

START_TEST(bad_text_is_refused_on_both_sides)
{
    static const char *const bad[] = {"\x80",
                                      "\xc0\xaf",
                                      "\xc1\xbf",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xe2\x82",
                                      "\xff"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t len = strlen(bad[i]);
        uint8_t bytes[16] = {0x0a, (uint8_t)(len + 1), 'a'};
        struct generate_request got;
        memcpy(bytes + 3, bad[i], len);
        arena_reset(&arena);
        CHECK_ERR(generate_request_decode(bytes, len + 3, &arena, &got, &err), ERR_FORMAT,
                  "prompt is not UTF-8 text at byte 1");
        request_reset();
        req.prompt = (const char *)bytes + 2, req.prompt_len = len + 1;
        CHECK_ERR(generate_request_encode(&buf, &req, &err), ERR_ARGUMENT,
                  "prompt is not UTF-8 text at byte 1");
    }
    static const uint8_t with_nul[] = {0x0a, 3, 'a', 0, 'b'};
    struct generate_request got;
    CHECK_ERR(generate_request_decode(with_nul, sizeof with_nul, &arena, &got, &err), ERR_FORMAT,
              "prompt is not UTF-8 text at byte 1 (0x00)");
}
END_TEST

START_TEST(score_request_refusals_name_the_field)
{
    const struct score_request sent = {.text = "x", .text_len = 1, .top_n = 65};
    struct score_request got;
    CHECK_OK(score_request_encode(&buf, &sent, &err));
    CHECK_ERR(score_request_decode(buf.data, buf.len, &arena, &got, &err), ERR_FORMAT,
              "top_n is 65, must be 0 to 64");
    CHECK_ERR(score_request_decode(NULL, 0, &arena, &got, &err), ERR_FORMAT, "neither text");
    struct score_request wants = {.text = "x", .text_len = 1};
    wants.features = (struct feature_wish){.n = 2, .boundaries = {5, 5}};
    CHECK_OK(score_request_encode(&buf, &wants, &err));
    CHECK_ERR(score_request_decode(buf.data, buf.len, &arena, &got, &err), ERR_FORMAT,
              "features: boundaries (ascending) is 5, must be 6 to 65535");
    wants.features.n = FEATURE_WISH_MAX + 1;
    CHECK_OK(score_request_encode(&buf, &wants, &err));
    CHECK_ERR(score_request_decode(buf.data, buf.len, &arena, &got, &err), ERR_FORMAT,
              "features: boundaries has 9 entries, at most 8 are taken");
}
END_TEST

START_TEST(tokens_refusals_name_the_field)
{
    static const struct {
        const char *hex, *text;
    } cases[] = {{"", "neither tokens nor summary nor echo"},
                 {"0a0207", "are not a GenerateReply"},
                 {"0a030a0107", "origins has 0 entries, ids 1"},
                 {"0a060a01071a0104", "origins[0] is 4, must be 0 to 3"},
                 {"0a060a01071a0100", "text_ends has 0 entries, ids 1"},
                 {"0a090a01071a0100220101", "text_ends[0] is 1, must be 0 to 0"},
                 {"0a0b28feffffffffffffffff01", "rejected_id is -2"},
                 {"12051802520103", "prompt_ids has 1 entries, prompt_tokens is 2"},
                 {"12024011", "n_draft is 17"},
                 {"0a023840", "index is 64, must be 0 to 63"},
                 {"12038001"
                  "40",
                  "index is 64, must be 0 to 63"},
                 {"0a0442004200", "logprobs has 2 entries, ids 0"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t bytes[64];
        struct generate_reply got;
        size_t len = bytes_from_hex(cases[i].hex, bytes);
        arena_reset(&arena);
        CHECK_ERR(generate_reply_decode(bytes, len, &arena, &got, &err), ERR_FORMAT, cases[i].text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("generation_refusals");
    TCase *tcase = tcase_create("generation_refusals");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, request_refusals_name_the_field);
    tcase_add_test(tcase, edits_that_are_out_of_range_are_refused);
    tcase_add_test(tcase, lists_that_are_too_long_are_refused);
    tcase_add_test(tcase, service_fields_that_are_out_of_range_are_refused);
    tcase_add_test(tcase, bad_text_is_refused_on_both_sides);
    tcase_add_test(tcase, score_request_refusals_name_the_field);
    tcase_add_test(tcase, tokens_refusals_name_the_field);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
