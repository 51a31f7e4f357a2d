/* The codec of requests to generate: every field arrives, defaults are those of the schema, and
 * another implementation of protobuf makes the same bytes. */
/* ctest: labels=quick libs=proto timeout=60 */
#include "tests/support/generation_samples.h"

static int request_read(struct generate_request *req)
{
    arena_reset(&read_back);
    return generate_request_decode(buf.data, buf.len, &read_back, req, &err);
}

static void edits_sample(struct generate_request *req)
{
    req->repetition_penalty =
        sample_int(0, 1) ? sample_float(REPETITION_PENALTY_MIN, REPETITION_PENALTY_MAX) : 1;
    req->presence_penalty = sample_float(-2, 2);
    req->frequency_penalty = sample_float(-2, 2);
    req->min_tokens = req->max_tokens ? sample_int(0, req->max_tokens) : 7;
    req->n_stop_ids = sample_int(0, GENERATE_STOP_IDS_MAX);
    req->stop_ids = sample_ids(&made, req->n_stop_ids, 0, INT32_MAX);
    req->n_biases = sample_int(0, 30);
    struct token_bias *biases = sample_take(&made, (size_t)req->n_biases, sizeof *biases);
    for (int i = 0; i < req->n_biases; i++) {
        biases[i] = (struct token_bias){17 * i, sample_float(-100, 100)};
    }
    req->biases = biases;
    req->n_bans = sample_int(0, 5);
    struct token_ban *bans = sample_take(&made, (size_t)req->n_bans, sizeof *bans);
    for (int i = 0; i < req->n_bans; i++) {
        bans[i].n = sample_int(1, GENERATE_BAN_TOKENS_MAX);
        bans[i].ids = sample_ids(&made, bans[i].n, 0, INT32_MAX);
    }
    req->bans = bans;
}

static void messages_sample(struct generate_request *req)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    req->n_messages = sample_int(1, 5);
    struct chat_message *messages = arena_take(&made, (size_t)req->n_messages, sizeof *messages);
    ck_assert_ptr_nonnull(messages);
    for (int i = 0; i < req->n_messages; i++) {
        const char *content = text_sample(60);
        messages[i] = (struct chat_message){roles[sample_int(0, 2)], content, strlen(content)};
    }
    req->messages = messages;
}

static struct generate_request request_sample(void)
{
    struct generate_request req = {.max_tokens = sample_int(0, INT32_MAX)};
    edits_sample(&req);
    req.n = sample_int(1, GENERATE_SEQUENCES_MAX);
    req.logprobs = sample_int(-1, SCORE_TOP_MAX);
    req.echo = sample_int(0, 1);
    req.adds_no_special = sample_int(0, 1);
    req.parses_no_special = sample_int(0, 1);
    req.shows_special = sample_int(0, 1);
    req.job_class = (enum job_class)sample_int(0, JOB_CLASSES - 1);
    req.client = sample_int(0, 1) ? "team a" : "";
    req.timeout_ms = (uint32_t)sample_bits();
    int input = sample_int(0, 2);
    if (input == 0) {
        req.prompt = text_sample(300);
        req.prompt_len = strlen(req.prompt);
    } else if (input == 1) {
        messages_sample(&req);
    } else {
        req.n_prompt_ids = sample_int(1, 200);
        req.prompt_ids = sample_ids(&made, req.n_prompt_ids, 0, INT32_MAX);
    }
    req.sampling = (struct sampling_params){.temperature = sample_float(0, 100),
                                            .top_k = sample_int(0, INT32_MAX),
                                            .top_p = sample_float(0.001f, 1),
                                            .min_p = sample_float(0, 1)};
    req.has_seed = sample_int(0, 1);
    req.seed = req.has_seed ? sample_bits() : 0;
    req.n_draft = sample_int(-1, DRAFT_MAX);
    req.strategy = (enum strategy)sample_int(STRATEGY_DEFAULT, STRATEGY_THRESHOLD);
    req.has_threshold = sample_int(0, 1);
    req.threshold = req.has_threshold ? sample_float(0, 1) : 0;
    req.rule = sample_int(0, 1) ? "block" : "";
    req.tree_rule = sample_int(0, 1) ? "k-sequential" : "";
    req.full_rows = sample_int(0, 1);
    req.show_drafts = sample_int(0, 1);
    req.ignore_eos = sample_int(0, 1);
    req.n_stop = sample_int(0, GENERATE_STOPS_MAX);
    const char **stop = sample_take(&made, (size_t)req.n_stop, sizeof *stop);
    for (int i = 0; i < req.n_stop; i++) {
        const char *text = text_sample(60);
        stop[i] = *text ? text : ".";
    }
    req.stop = stop;
    req.request_id = sample_int(0, 1) ? "job 17/~" : "";
    req.prediction = text_sample(200);
    req.prediction_len = strlen(req.prediction);
    return req;
}

static void edits_equal(const struct generate_request *a, const struct generate_request *b)
{
    ck_assert(a->repetition_penalty == b->repetition_penalty);
    ck_assert(a->presence_penalty == b->presence_penalty);
    ck_assert(a->frequency_penalty == b->frequency_penalty);
    ck_assert_int_eq(a->min_tokens, b->min_tokens);
    ck_assert_int_eq(a->n_biases, b->n_biases);
    for (int i = 0; i < a->n_biases; i++) { /* they come back sorted, because a map has no order */
        const struct token_bias *found = b->biases;
        while (found < b->biases + b->n_biases && found->id != a->biases[i].id) {
            found++;
        }
        ck_assert_ptr_ne(found, b->biases + b->n_biases);
        ck_assert(a->biases[i].bias == found->bias);
        ck_assert(i == 0 || b->biases[i].id > b->biases[i - 1].id);
    }
    ck_assert_int_eq(a->n_bans, b->n_bans);
    for (int i = 0; i < a->n_bans; i++) {
        ck_assert_int_eq(a->bans[i].n, b->bans[i].n);
        ck_assert_mem_eq(a->bans[i].ids, b->bans[i].ids, (size_t)a->bans[i].n * sizeof(int32_t));
    }
    ck_assert_int_eq(a->n_stop_ids, b->n_stop_ids);
    for (int i = 0; i < a->n_stop_ids; i++) {
        ck_assert_int_eq(a->stop_ids[i], b->stop_ids[i]);
    }
}

/* Everything but the prompt. */
static void settings_equal(const struct generate_request *a, const struct generate_request *b)
{
    edits_equal(a, b);
    ck_assert_int_eq(a->n, b->n);
    ck_assert_int_eq(a->logprobs, b->logprobs);
    ck_assert_int_eq(a->echo, b->echo);
    ck_assert(a->adds_no_special == b->adds_no_special);
    ck_assert(a->parses_no_special == b->parses_no_special);
    ck_assert(a->shows_special == b->shows_special);
    ck_assert_int_eq((int)a->job_class, (int)b->job_class);
    ck_assert_str_eq(a->client, b->client);
    ck_assert_uint_eq(a->timeout_ms, b->timeout_ms);
    ck_assert_int_eq(a->max_tokens, b->max_tokens);
    ck_assert_mem_eq(&a->sampling, &b->sampling, sizeof a->sampling);
    ck_assert_int_eq(a->has_seed, b->has_seed);
    ck_assert_uint_eq(a->seed, b->seed);
    ck_assert_int_eq(a->n_draft, b->n_draft);
    ck_assert_int_eq((int)a->strategy, (int)b->strategy);
    ck_assert_int_eq(a->has_threshold, b->has_threshold);
    ck_assert(a->threshold == b->threshold);
    ck_assert_str_eq(a->rule, b->rule);
    ck_assert_str_eq(a->tree_rule, b->tree_rule);
    ck_assert_int_eq(a->full_rows, b->full_rows);
    ck_assert_int_eq(a->show_drafts, b->show_drafts);
    ck_assert_int_eq(a->ignore_eos, b->ignore_eos);
    ck_assert_int_eq(a->n_stop, b->n_stop);
    for (int i = 0; i < a->n_stop; i++) {
        ck_assert_str_eq(a->stop[i], b->stop[i]);
    }
    ck_assert_str_eq(a->request_id, b->request_id);
}

static void requests_equal(const struct generate_request *a, const struct generate_request *b)
{
    settings_equal(a, b);
    ck_assert_int_eq(a->prompt != NULL, b->prompt != NULL);
    if (a->prompt) {
        ck_assert_str_eq(a->prompt, b->prompt);
        ck_assert_uint_eq(a->prompt_len, b->prompt_len);
    }
    ck_assert_int_eq(a->n_messages, b->n_messages);
    for (int i = 0; i < a->n_messages; i++) {
        ck_assert_str_eq(a->messages[i].role, b->messages[i].role);
        ck_assert_str_eq(a->messages[i].content, b->messages[i].content);
        ck_assert_uint_eq(a->messages[i].content_len, b->messages[i].content_len);
    }
    ck_assert_int_eq(a->n_prompt_ids, b->n_prompt_ids);
    if (a->n_prompt_ids) {
        ck_assert_mem_eq(a->prompt_ids, b->prompt_ids, (size_t)a->n_prompt_ids * sizeof(int32_t));
    }
    ck_assert_uint_eq(a->prediction_len, b->prediction_len);
    if (a->prediction_len) ck_assert_str_eq(a->prediction, b->prediction);
}

START_TEST(request_round_trip_keeps_every_field)
{
    sample_start("request_round_trip");
    for (int i = 0; i < 300; i++) {
        arena_reset(&made);
        struct generate_request sent = request_sample(), got;
        CHECK_OK(generate_request_encode(&buf, &sent, &err));
        CHECK_OK(request_read(&got));
        requests_equal(&sent, &got);
        if (i < 6) seed_write("generation_wire", 0, "request", i, buf.data, buf.len);
    }
}
END_TEST

START_TEST(absent_fields_have_defaults)
{
    static const uint8_t only_prompt[] = {0x0a, 2, 'H', 'i'};
    struct generate_request req;
    CHECK_OK(generate_request_decode(only_prompt, sizeof only_prompt, &read_back, &req, &err));
    struct generate_request wanted;
    generate_request_init(&wanted);
    wanted.prompt = "Hi";
    wanted.prompt_len = 2;
    ck_assert(wanted.n == 1 && wanted.logprobs == -1);
    ck_assert(wanted.repetition_penalty == GENERATE_OPEN);
    ck_assert(wanted.sampling.temperature == GENERATE_OPEN);
    requests_equal(&wanted, &req);
}
END_TEST

/* Open fields stay open on the wire; a model's defaults count only there. */
START_TEST(open_sampling_is_settled_by_defaults)
{
    const struct sampling_defaults defaults = {
        .sampling = {.temperature = 0.5f, .top_k = 20, .top_p = GENERATE_OPEN, .min_p = 0.25f},
        .repetition_penalty = 1.5f};
    struct generate_request req;
    generate_request_init(&req);
    req.sampling.top_k = 0; /* said, and nothing is cut */
    req.prompt = "x", req.prompt_len = 1;
    CHECK_OK(generate_request_encode(&buf, &req, &err));
    CHECK_OK(request_read(&req));
    ck_assert(req.sampling.temperature == GENERATE_OPEN && req.sampling.top_k == 0);
    generate_request_settle(&req, &defaults);
    ck_assert(req.sampling.temperature == 0.5f && req.sampling.top_k == 0);
    ck_assert(req.sampling.top_p == 1 && req.sampling.min_p == 0.25f);
    ck_assert(req.repetition_penalty == 1.5f);
    generate_request_init(&req);
    generate_request_settle(&req, NULL);
    ck_assert(req.sampling.temperature == 1 && req.sampling.top_k == 0);
    ck_assert(req.sampling.top_p == 1 && req.sampling.min_p == 0 && req.repetition_penalty == 1);
}
END_TEST

/* A job waits with such a copy: nothing of it may point into what it was decoded from. */
START_TEST(kept_request_has_all_but_the_prompt_and_the_prediction)
{
    sample_start("kept_request");
    for (int i = 0; i < 100; i++) {
        arena_reset(&made);
        struct generate_request sent = request_sample(), got, kept;
        struct arena own;
        CHECK_OK(generate_request_encode(&buf, &sent, &err));
        CHECK_OK(request_read(&got));
        CHECK_OK(generate_request_keep(&kept, &own, &got, &err));
        memset(read_back.base, 0xee, read_back.used_bytes);
        settings_equal(&sent, &kept);
        ck_assert(!kept.prompt && !kept.prompt_ids && !kept.n_prompt_ids && !kept.prompt_len);
        ck_assert(!kept.prediction && !kept.prediction_len);
        ck_assert(!kept.messages && !kept.n_messages);
        arena_close(&own);
    }
}
END_TEST

/* A request that would be served without a part of it is not what was asked for. */
START_TEST(unknown_fields_are_refused_by_number)
{
    static const struct {
        const char *hex, *text;
    } cases[] = {
        {"0a01780005", "field 0 of GenerateRequest is not known"},
        {"0a0178ca3e03616263", "field 1001 of GenerateRequest is not known to this version"},
        {"0a0178220258017a", "field 11 of Sampling is not known"},
        {"0a017882010c080118", "are not a GenerateRequest"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t bytes[64];
        struct generate_request got;
        size_t len = bytes_from_hex(cases[i].hex, bytes);
        arena_reset(&read_back);
        CHECK_ERR(generate_request_decode(bytes, len, &read_back, &got, &err), ERR_FORMAT,
                  cases[i].text);
    }
}
END_TEST

/* Serialized by Python's protobuf 7.36.2 (grpcio-tools 1.85.1) from proto/generation.proto. */
static const char golden_request[] =
    "0a164f6e63652075706f6e20612074c3af6d6520f09f908918ac02221a0d0000000010281d0000003f250000"
    "003e2901000000000000802a1908001205626c6f636b180120013a0a6d756c74692d7061746832020a0a3207"
    "54686520456e64380142066a6f622d3137";

START_TEST(request_bytes_equal_those_of_another_protobuf)
{
    const char *const stop[] = {"\n\n", "The End"};
    const char prompt[] = "Once upon a t\xc3\xafme \xf0\x9f\x90\x89";
    const struct generate_request sent = {
        .prompt = prompt,
        .prompt_len = sizeof prompt - 1,
        .max_tokens = 300,
        .sampling = {.temperature = 0, .top_k = 40, .top_p = 0.5f, .min_p = 0.125f},
        .has_seed = true,
        .seed = 0x8000000000000001,
        .n_draft = 0,
        .rule = "block",
        .tree_rule = "multi-path",
        .full_rows = true,
        .show_drafts = true,
        .ignore_eos = true,
        .n_stop = 2,
        .stop = stop,
        .request_id = "job-17",
        .n = 1,
        .logprobs = -1,
        .repetition_penalty = GENERATE_OPEN,
        .client = ""};
    struct generate_request got;
    uint8_t golden[256];
    size_t len = bytes_from_hex(golden_request, golden);
    CHECK_OK(generate_request_encode(&buf, &sent, &err));
    ck_assert_uint_eq(buf.len, len);
    ck_assert_mem_eq(buf.data, golden, len);
    CHECK_OK(generate_request_decode(golden, len, &read_back, &got, &err));
    requests_equal(&sent, &got);
}
END_TEST

/* As golden_request, with the fields that few requests need. */
static const char golden_edits[] =
    "12030a0107220a0d0000803f1d0000803f2a0048025000580160036d0000a03f75000000c07d0000003f8201"
    "090880e807150000c03f820107082a150000c8c28a01050a0305ac028a01030a010992010402f0a204980102"
    "a201047465616da801e807";

START_TEST(bytes_of_edits_equal_those_of_another_protobuf)
{
    static const int32_t prompt[] = {7}, first[] = {5, 300}, second[] = {9}, ends[] = {2, 70000};
    static const struct token_ban bans[] = {{2, first}, {1, second}};
    static const struct token_bias biases[] = {{128000, 1.5f}, {42, -100}};
    struct generate_request sent, got;
    uint8_t golden[256];
    size_t len = bytes_from_hex(golden_edits, golden);
    generate_request_init(&sent);
    sent.prompt_ids = prompt, sent.n_prompt_ids = 1;
    sent.n = 2, sent.logprobs = 0, sent.echo = true, sent.min_tokens = 3;
    sent.sampling.temperature = 1, sent.sampling.top_p = 1;
    sent.repetition_penalty = 1.25f, sent.presence_penalty = -2, sent.frequency_penalty = 0.5f;
    sent.biases = biases, sent.n_biases = 2, sent.bans = bans, sent.n_bans = 2;
    sent.stop_ids = ends, sent.n_stop_ids = 2;
    sent.job_class = JOB_CLASS_LOW, sent.client = "team", sent.timeout_ms = 1000;
    CHECK_OK(generate_request_encode(&buf, &sent, &err));
    ck_assert_uint_eq(buf.len, len);
    ck_assert_mem_eq(buf.data, golden, len);
    CHECK_OK(generate_request_decode(golden, len, &read_back, &got, &err));
    requests_equal(&sent, &got);
}
END_TEST

START_TEST(every_prefix_is_safe)
{
    sample_start("every_prefix");
    for (int i = 0; i < 6; i++) {
        arena_reset(&made);
        struct generate_request req = request_sample(), got;
        CHECK_OK(generate_request_encode(&buf, &req, &err));
        for (size_t len = 0; len <= buf.len; len++) {
            uint8_t *cut = exact_copy(buf.data, len);
            arena_reset(&read_back);
            int rc = generate_request_decode(cut, len, &read_back, &got, &err);
            ck_assert(rc == ERR_FORMAT || (rc == 0 && (len == buf.len || len > 1)));
            free(cut);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("generation_request");
    TCase *tcase = tcase_create("generation_request");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, request_round_trip_keeps_every_field);
    tcase_add_test(tcase, absent_fields_have_defaults);
    tcase_add_test(tcase, kept_request_has_all_but_the_prompt_and_the_prediction);
    tcase_add_test(tcase, open_sampling_is_settled_by_defaults);
    tcase_add_test(tcase, unknown_fields_are_refused_by_number);
    tcase_add_test(tcase, request_bytes_equal_those_of_another_protobuf);
    tcase_add_test(tcase, bytes_of_edits_equal_those_of_another_protobuf);
    tcase_add_test(tcase, every_prefix_is_safe);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
