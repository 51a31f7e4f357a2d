/* The codecs of the description of the service and of requests to score. */
/* ctest: labels=quick libs=proto timeout=60 */
#include "tests/support/generation_samples.h"

START_TEST(score_request_is_text_or_ids)
{
    const int32_t ids[] = {3, 70000};
    struct score_request got, sent = {.text = "once", .text_len = 4, .top_n = 64};
    CHECK_OK(score_request_encode(&buf, &sent, &err));
    seed_write("generation_wire", 2, "score_text", 0, buf.data, buf.len);
    CHECK_OK(score_request_decode(buf.data, buf.len, &read_back, &got, &err));
    ck_assert_str_eq(got.text, "once");
    ck_assert_uint_eq(got.text_len, 4);
    ck_assert_int_eq(got.top_n, 64);
    ck_assert(!got.adds_no_special && !got.parses_no_special);
    sent = (struct score_request){
        .ids = ids, .n_ids = 2, .adds_no_special = true, .parses_no_special = true};
    CHECK_OK(score_request_encode(&buf, &sent, &err));
    seed_write("generation_wire", 2, "score_ids", 0, buf.data, buf.len);
    CHECK_OK(score_request_decode(buf.data, buf.len, &read_back, &got, &err));
    ck_assert_ptr_null(got.text);
    ck_assert_int_eq(got.n_ids, 2);
    ck_assert_mem_eq(got.ids, ids, sizeof ids);
    ck_assert(got.adds_no_special && got.parses_no_special);
    ck_assert_int_eq(feature_wish_columns(&got.features), 0);
    sent.features = (struct feature_wish){.n = 3, .boundaries = {0, 2, 15}, .normed = true};
    CHECK_OK(score_request_encode(&buf, &sent, &err));
    seed_write("generation_wire", 2, "score_features", 0, buf.data, buf.len);
    CHECK_OK(score_request_decode(buf.data, buf.len, &read_back, &got, &err));
    ck_assert(feature_wish_equal(&got.features, &sent.features));
    ck_assert(got.features.boundaries[1] == 2 && got.features.boundaries[2] == 15);
}
END_TEST

START_TEST(service_description_round_trip_keeps_every_field)
{
    const char *const addresses[] = {"127.0.0.1:7070", "unix:/run/w1"};
    const char *const kernels[] = {"avx512", "plain"};
    const struct service_group groups[] = {{.state = "serving",
                                            .kernels = "avx512",
                                            .n_addresses = 2,
                                            .addresses = addresses,
                                            .running = 1,
                                            .waiting = 2,
                                            .places = 3,
                                            .is_measured = true},
                                           {.state = "it is lost", .kernels = ""}};
    const struct service_description a = {
        .version = "0.1.0",
        .target_model = "tales",
        .target_architecture = "LlamaForCausalLM",
        .arithmetic = "cpu-bf16",
        .draft_model = "small",
        .draft_kind = "EAGLE-3",
        .state = "serving",
        .n_ranks = 2,
        .n_slices = 4,
        .vocab_size = 4096,
        .context_limit = 512,
        .default_n_draft = 5,
        .draft_support = 64,
        .n_kv_blocks = 100,
        .queue_capacity = 16,
        .default_strategy = STRATEGY_HEURISTIC,
        .estimates = {.n_rounds = 7, .draft_us = 2.5f, .alpha = 0.5f},
        .model_fingerprint = UINT64_MAX - 1,
        .tokenizer_fingerprint = 1,
        .n_addresses = 2,
        .addresses = addresses,
        .n_kernels = 2,
        .kernels = kernels,
        .draft_kernels = "avx2",
        .has_chat = true,
        .n_groups = 2,
        .groups = groups,
        .load = {.sequences_max = 64,
                 .running = 3,
                 .waiting = 4,
                 .target_kv = {1, 2, 3},
                 .draft_kv = {5, 6, 7},
                 .prompt_tokens_reused = 1000,
                 .prompt_tokens_computed = 2000,
                 .preemptions = 8,
                 .uptime_us = 9,
                 .steps = 12,
                 .draft_prompt_tokens_reused = 14,
                 .ends = {[JOB_END_STOP] = 10, [JOB_END_SHUTDOWN] = 11}},
        .times = {.draft = {1, {{1, 50}}},
                  .step = {3, {{1, 100}, {2, 120.5f}, {40, 700}}},
                  .rest = {2, {{1, 10}, {5, 20}}}}};
    struct service_description b;
    CHECK_OK(service_description_encode(&buf, &a, &err));
    seed_write("generation_wire", 4, "service", 0, buf.data, buf.len);
    CHECK_OK(service_description_decode(buf.data, buf.len, &read_back, &b, &err));
    ck_assert_str_eq(a.version, b.version);
    ck_assert_str_eq(a.target_model, b.target_model);
    ck_assert_str_eq(a.target_architecture, b.target_architecture);
    ck_assert_str_eq(a.arithmetic, b.arithmetic);
    ck_assert_str_eq(a.draft_model, b.draft_model);
    ck_assert_str_eq(a.draft_kind, b.draft_kind);
    ck_assert_str_eq(a.state, b.state);
    ck_assert_int_eq(a.n_ranks, b.n_ranks);
    ck_assert_int_eq(a.n_slices, b.n_slices);
    ck_assert_int_eq(a.vocab_size, b.vocab_size);
    ck_assert_int_eq(a.context_limit, b.context_limit);
    ck_assert_int_eq(a.default_n_draft, b.default_n_draft);
    ck_assert_int_eq(a.draft_support, b.draft_support);
    ck_assert_int_eq(a.n_kv_blocks, b.n_kv_blocks);
    ck_assert_int_eq(a.queue_capacity, b.queue_capacity);
    ck_assert_int_eq((int)a.default_strategy, (int)b.default_strategy);
    ck_assert_mem_eq(&a.estimates, &b.estimates, sizeof a.estimates);
    ck_assert(a.model_fingerprint == b.model_fingerprint &&
              a.tokenizer_fingerprint == b.tokenizer_fingerprint);
    ck_assert(b.n_addresses == 2 && b.n_kernels == 2);
    ck_assert_str_eq(b.addresses[1], addresses[1]);
    ck_assert_str_eq(b.kernels[1], kernels[1]);
    ck_assert_str_eq(b.draft_kernels, a.draft_kernels);
    ck_assert(b.has_chat);
    ck_assert_mem_eq(&a.load, &b.load, sizeof a.load);
    ck_assert_mem_eq(&a.times, &b.times, sizeof a.times);
    ck_assert_int_eq(b.n_groups, 2);
    ck_assert_str_eq(b.groups[0].addresses[1], addresses[1]);
    ck_assert(b.groups[0].running == 1 && b.groups[0].waiting == 2 && b.groups[0].places == 3);
    ck_assert(b.groups[0].is_measured && !b.groups[1].is_measured);
    ck_assert_str_eq(b.groups[1].state, "it is lost");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("generation_service");
    TCase *tcase = tcase_create("generation_service");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, score_request_is_text_or_ids);
    tcase_add_test(tcase, service_description_round_trip_keeps_every_field);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
