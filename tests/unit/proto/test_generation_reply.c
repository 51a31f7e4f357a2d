/* The codec of replies: tokens, echo and summary arrive with every field. */
/* ctest: labels=quick libs=proto timeout=60 */
#include <math.h>

#include "tests/support/generation_samples.h"

static int reply_read(struct generate_reply *reply)
{
    memset(read_back.base, 0xff, 4096); /* what an earlier message has left */
    arena_reset(&read_back);
    return generate_reply_decode(buf.data, buf.len, &read_back, reply, &err);
}

static const struct token_logprob *logprobs_sample(int n)
{
    struct token_logprob *out = sample_take(&made, (size_t)n, sizeof *out);
    for (int i = 0; i < n; i++) {
        out[i].logprob = sample_float(-30, 0);
        out[i].n_top = sample_int(0, 3);
        struct token_alternative *top = sample_take(&made, (size_t)out[i].n_top, sizeof *top);
        for (int k = 0; k < out[i].n_top; k++) {
            top[k] = (struct token_alternative){sample_int(0, 200000), text_sample(3), -INFINITY};
        }
        out[i].top = top;
    }
    return out;
}

static const struct generate_round *round_sample(void)
{
    struct generate_round *round = sample_take(&made, 1, sizeof *round);
    int n = sample_int(0, DRAFT_MAX);
    struct generate_guess *guesses = sample_take(&made, (size_t)n, sizeof *guesses);
    for (int i = 0; i < n; i++) {
        guesses[i] = (struct generate_guess){.id = sample_int(0, 200000),
                                             .text = text_sample(6),
                                             .q = (float)sample_int(0, 64) / 64,
                                             .p = (float)sample_int(-1, 1),
                                             .place = sample_int(0, DRAFT_MAX - 1),
                                             .sibling = sample_int(0, GENERATE_SIBLING_MOST),
                                             .is_untried = sample_int(0, 1)};
    }
    *round = (struct generate_round){.n_guesses = n,
                                     .guesses = guesses,
                                     .drafter = n > 0 ? "session" : "",
                                     .n_kept = sample_int(0, n),
                                     .next_p = (float)sample_int(-64, 64) / 64,
                                     .draft_us = (uint32_t)sample_int(0, INT32_MAX),
                                     .verify_us = 1,
                                     .collective_us = 2,
                                     .wire_us = 3,
                                     .total_us = UINT32_MAX,
                                     .n_lanes = sample_int(0, 256),
                                     .n_rows = sample_int(0, 4096)};
    return round;
}

static struct generate_tokens *tokens_sample(void)
{
    struct generate_tokens *tokens = sample_take(&made, 1, sizeof *tokens);
    int n = sample_int(0, 17);
    enum token_origin *origins = sample_take(&made, (size_t)n, sizeof *origins);
    uint32_t *ends = sample_take(&made, (size_t)n, sizeof *ends);
    *tokens = (struct generate_tokens){.n = n,
                                       .ids = sample_ids(&made, n, 0, INT32_MAX),
                                       .origins = origins,
                                       .text_ends = ends,
                                       .text = text_sample(40),
                                       .rejected_id = sample_int(-1, 200000),
                                       .rejected_text = text_sample(3)};
    tokens->index = sample_int(0, GENERATE_SEQUENCES_MAX - 1);
    if (sample_int(0, 1)) tokens->logprobs = logprobs_sample(n);
    if (sample_int(0, 1)) tokens->round = round_sample();
    tokens->text_len = strlen(tokens->text);
    uint32_t end = 0;
    for (int i = 0; i < n; i++) {
        end = (uint32_t)sample_int((int)end, (int)tokens->text_len);
        origins[i] = (enum token_origin)sample_int(TOKEN_PLAIN, TOKEN_BONUS);
        ends[i] = end;
    }
    return tokens;
}

static void logprobs_equal(const struct token_logprob *a, const struct token_logprob *b)
{
    ck_assert(a->logprob == b->logprob);
    ck_assert_int_eq(a->n_top, b->n_top);
    for (int k = 0; k < a->n_top; k++) {
        ck_assert_int_eq(a->top[k].id, b->top[k].id);
        ck_assert_str_eq(a->top[k].text, b->top[k].text);
        ck_assert(a->top[k].logprob == b->top[k].logprob);
    }
}

static void round_equal(const struct generate_round *a, const struct generate_round *b)
{
    ck_assert_int_eq(a->n_guesses, b->n_guesses);
    for (int i = 0; i < a->n_guesses; i++) {
        ck_assert_int_eq(a->guesses[i].id, b->guesses[i].id);
        ck_assert_str_eq(a->guesses[i].text, b->guesses[i].text);
        ck_assert(a->guesses[i].q == b->guesses[i].q && a->guesses[i].p == b->guesses[i].p);
        ck_assert_int_eq(a->guesses[i].place, b->guesses[i].place);
        ck_assert_int_eq(a->guesses[i].sibling, b->guesses[i].sibling);
        ck_assert(a->guesses[i].is_untried == b->guesses[i].is_untried);
    }
    ck_assert_int_eq(a->n_kept, b->n_kept);
    ck_assert(a->next_p == b->next_p);
    ck_assert_str_eq(a->drafter, b->drafter);
    ck_assert_uint_eq(a->draft_us, b->draft_us);
    ck_assert_uint_eq(a->verify_us, b->verify_us);
    ck_assert_uint_eq(a->collective_us, b->collective_us);
    ck_assert_uint_eq(a->wire_us, b->wire_us);
    ck_assert_uint_eq(a->total_us, b->total_us);
    ck_assert_int_eq(a->n_lanes, b->n_lanes);
    ck_assert_int_eq(a->n_rows, b->n_rows);
}

static void tokens_equal(const struct generate_tokens *a, const struct generate_tokens *b)
{
    ck_assert_int_eq(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        ck_assert_int_eq(a->ids[i], b->ids[i]);
        ck_assert_int_eq((int)a->origins[i], (int)b->origins[i]);
        ck_assert_uint_eq(a->text_ends[i], b->text_ends[i]);
    }
    ck_assert_int_eq(a->index, b->index);
    ck_assert_int_eq(a->round != NULL, b->round != NULL);
    if (a->round) round_equal(a->round, b->round);
    ck_assert_int_eq(a->logprobs && a->n, b->logprobs != NULL);
    for (int i = 0; a->logprobs && i < a->n; i++) {
        logprobs_equal(&a->logprobs[i], &b->logprobs[i]);
    }
    ck_assert_str_eq(a->text, b->text);
    ck_assert_uint_eq(a->text_len, b->text_len);
    ck_assert_int_eq(a->rejected_id, b->rejected_id);
    ck_assert_str_eq(a->rejected_text, b->rejected_text);
}

static const struct token_alternative top[] = {{7, "a", -0.5f}, {9, "\xef\xbf\xbd", -INFINITY}};
static const struct score_token score_tokens[] = {
    {.id = 1, .text = "<s>"},
    {.id = 7, .text = "a", .has_logprob = true, .logprob = -0.5f, .n_top = 2, .top = top}};
static const struct score_reply scores = {.n = 2, .tokens = score_tokens};

static void scores_equal(const struct score_reply *a, const struct score_reply *b)
{
    ck_assert_int_eq(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        const struct score_token *x = &a->tokens[i], *y = &b->tokens[i];
        ck_assert_int_eq(x->id, y->id);
        ck_assert_str_eq(x->text, y->text);
        ck_assert_int_eq(x->has_logprob, y->has_logprob);
        const struct token_logprob of_x = {x->logprob, x->n_top, x->top};
        const struct token_logprob of_y = {y->logprob, y->n_top, y->top};
        logprobs_equal(&of_x, &of_y);
    }
}

static struct estimates estimates_sample(void)
{
    struct estimates e = {.n_rounds = sample_int(0, INT32_MAX),
                          .draft_us = sample_float(0, 1e6f),
                          .read_us = sample_float(0, 1e6f),
                          .step_us = sample_float(0, 1e6f),
                          .row_us = sample_float(0, 1e6f),
                          .rtt_us = sample_float(0, 1e6f),
                          .alpha = sample_float(0, 1),
                          .n_positions = sample_int(0, DRAFT_MAX)};
    for (int i = 0; i < e.n_positions; i++) {
        e.alpha_at[i] = sample_float(0, 1);
    }
    return e;
}

static void estimates_equal(const struct estimates *a, const struct estimates *b)
{
    ck_assert_int_eq(a->n_rounds, b->n_rounds);
    ck_assert(a->draft_us == b->draft_us && a->read_us == b->read_us);
    ck_assert(a->step_us == b->step_us && a->row_us == b->row_us && a->rtt_us == b->rtt_us);
    ck_assert(a->alpha == b->alpha);
    ck_assert_int_eq(a->n_positions, b->n_positions);
    ck_assert_mem_eq(a->alpha_at, b->alpha_at, sizeof a->alpha_at);
}

static struct generate_summary *summary_sample(void)
{
    struct generate_summary *summary = sample_take(&made, 1, sizeof *summary);
    *summary = (struct generate_summary){.finish_reason = "stop",
                                         .stop_match = text_sample(5),
                                         .rule = "rejection",
                                         .speculation_off = text_sample(20),
                                         .request_id = "r-1",
                                         .arithmetic = "cpu-bf16",
                                         .prompt_tokens = sample_int(0, 100),
                                         .completion_tokens = sample_int(0, INT32_MAX),
                                         .n_draft = sample_int(0, DRAFT_MAX),
                                         .seed = sample_bits()};
    summary->index = sample_int(0, GENERATE_SEQUENCES_MAX - 1);
    summary->strategy = (enum strategy)sample_int(STRATEGY_DEFAULT, STRATEGY_THRESHOLD);
    summary->threshold = sample_float(0, 1);
    summary->estimates = estimates_sample();
    summary->prompt_ids = sample_ids(&made, summary->prompt_tokens, 0, INT32_MAX);
    struct generate_counters *c = &summary->counters;
    uint32_t *const narrow[] = {
        &c->rounds,         &c->drafted,           &c->accepted,          &c->rejections,
        &c->target_reused,  &c->draft_reused,      &c->preemptions,       &c->found,
        &c->found_accepted, &c->siblings,          &c->siblings_accepted, &c->staged,
        &c->appended,       &c->appended_accepted, &c->predicted,         &c->predicted_accepted};
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) {
        *narrow[i] = (uint32_t)sample_bits();
    }
    uint64_t *const wide[] = {&c->prompt_us, &c->total_us,   &c->queue_us,       &c->rounds_us,
                              &c->draft_us,  &c->verify_us,  &c->collective_us,  &c->wire_us,
                              &c->accept_us, &c->bytes_sent, &c->bytes_received, &c->rows,
                              &c->more_rows, &c->lanes,      &c->step_tokens,    &c->expected_us,
                              &c->planned_us};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        *wide[i] = sample_bits();
    }
    for (int i = 0; i < summary->n_draft; i++) {
        c->drafted_at[i] = (uint32_t)sample_bits();
        c->tested_at[i] = (uint32_t)sample_bits();
        c->accepted_at[i] = (uint32_t)sample_int(0, 1);
    }
    return summary;
}

static void counters_equal(const struct generate_counters *a, const struct generate_counters *b)
{
    ck_assert_uint_eq(a->rounds, b->rounds);
    ck_assert_uint_eq(a->drafted, b->drafted);
    ck_assert_uint_eq(a->accepted, b->accepted);
    ck_assert_uint_eq(a->rejections, b->rejections);
    ck_assert_uint_eq(a->found, b->found);
    ck_assert_uint_eq(a->siblings, b->siblings);
    ck_assert_uint_eq(a->siblings_accepted, b->siblings_accepted);
    ck_assert_uint_eq(a->staged, b->staged);
    ck_assert_uint_eq(a->appended, b->appended);
    ck_assert_uint_eq(a->appended_accepted, b->appended_accepted);
    ck_assert_uint_eq(a->predicted, b->predicted);
    ck_assert_uint_eq(a->predicted_accepted, b->predicted_accepted);
    ck_assert_uint_eq(a->found_accepted, b->found_accepted);
    ck_assert_uint_eq(a->target_reused, b->target_reused);
    ck_assert_uint_eq(a->draft_reused, b->draft_reused);
    ck_assert_uint_eq(a->preemptions, b->preemptions);
    ck_assert_mem_eq(a->drafted_at, b->drafted_at, sizeof a->drafted_at);
    ck_assert_mem_eq(a->tested_at, b->tested_at, sizeof a->tested_at);
    ck_assert_mem_eq(a->accepted_at, b->accepted_at, sizeof a->accepted_at);
    ck_assert_uint_eq(a->prompt_us, b->prompt_us);
    ck_assert_uint_eq(a->total_us, b->total_us);
    ck_assert_uint_eq(a->queue_us, b->queue_us);
    ck_assert_uint_eq(a->rounds_us, b->rounds_us);
    ck_assert_uint_eq(a->draft_us, b->draft_us);
    ck_assert_uint_eq(a->verify_us, b->verify_us);
    ck_assert_uint_eq(a->collective_us, b->collective_us);
    ck_assert_uint_eq(a->wire_us, b->wire_us);
    ck_assert_uint_eq(a->accept_us, b->accept_us);
    ck_assert_uint_eq(a->bytes_sent, b->bytes_sent);
    ck_assert_uint_eq(a->bytes_received, b->bytes_received);
    ck_assert_uint_eq(a->rows, b->rows);
    ck_assert_uint_eq(a->more_rows, b->more_rows);
    ck_assert_uint_eq(a->lanes, b->lanes);
    ck_assert_uint_eq(a->step_tokens, b->step_tokens);
    ck_assert_uint_eq(a->expected_us, b->expected_us);
    ck_assert_uint_eq(a->planned_us, b->planned_us);
}

static void summaries_equal(const struct generate_summary *a, const struct generate_summary *b)
{
    ck_assert_int_eq(a->index, b->index);
    ck_assert_str_eq(a->finish_reason, b->finish_reason);
    ck_assert_str_eq(a->stop_match, b->stop_match);
    ck_assert_str_eq(a->rule, b->rule);
    ck_assert_str_eq(a->speculation_off, b->speculation_off);
    ck_assert_str_eq(a->request_id, b->request_id);
    ck_assert_str_eq(a->arithmetic, b->arithmetic);
    ck_assert_int_eq(a->prompt_tokens, b->prompt_tokens);
    ck_assert_int_eq(a->completion_tokens, b->completion_tokens);
    ck_assert_int_eq(a->n_draft, b->n_draft);
    ck_assert_int_eq((int)a->strategy, (int)b->strategy);
    ck_assert(a->threshold == b->threshold);
    estimates_equal(&a->estimates, &b->estimates);
    ck_assert_uint_eq(a->seed, b->seed);
    if (a->prompt_tokens) {
        ck_assert_mem_eq(a->prompt_ids, b->prompt_ids, (size_t)a->prompt_tokens * sizeof(int32_t));
    }
    counters_equal(&a->counters, &b->counters);
}

START_TEST(reply_round_trip_keeps_every_field)
{
    sample_start("reply_round_trip");
    for (int i = 0; i < 300; i++) {
        arena_reset(&made);
        struct generate_reply sent = {0}, got;
        if (i % 3 == 1) {
            sent.tokens = tokens_sample();
        } else if (i % 3 == 2) {
            sent.echo = &scores;
        } else {
            sent.summary = summary_sample();
        }
        CHECK_OK(generate_reply_encode(&buf, &sent, &err));
        CHECK_OK(reply_read(&got));
        ck_assert_int_eq(sent.tokens != NULL, got.tokens != NULL);
        ck_assert_int_eq(sent.summary != NULL, got.summary != NULL);
        ck_assert_int_eq(sent.echo != NULL, got.echo != NULL);
        if (sent.echo) scores_equal(sent.echo, got.echo);
        if (sent.echo) ck_assert_int_eq(got.echo->features.n, sent.echo->features.n);
        if (sent.tokens) tokens_equal(sent.tokens, got.tokens);
        if (sent.summary) summaries_equal(sent.summary, got.summary);
        if (i < 6) seed_write("generation_wire", 1, "reply", i, buf.data, buf.len);
    }
}
END_TEST

START_TEST(score_round_trip_keeps_every_field)
{
    struct score_reply got;
    CHECK_OK(score_reply_encode(&buf, &scores, &err));
    seed_write("generation_wire", 3, "scores", 0, buf.data, buf.len);
    CHECK_OK(score_reply_decode(buf.data, buf.len, &read_back, &got, &err));
    scores_equal(&scores, &got);
}
END_TEST

START_TEST(features_of_scores_keep_every_element)
{
    static uint16_t rows[(FEATURE_WISH_MAX + 2) * 16];
    const size_t n_sent = 2 * 3 * 16;
    struct score_reply got,
        sent = {.n = 2,
                .tokens = score_tokens,
                .features = {.first = 100000, .n = 2, .n_columns = 3, .dim = 16, .rows = rows}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rows[i] = (uint16_t)(i * 2654435761u >> 8);
    }
    CHECK_OK(score_reply_encode(&buf, &sent, &err));
    seed_write("generation_wire", 3, "scores_features", 0, buf.data, buf.len);
    CHECK_OK(score_reply_decode(buf.data, buf.len, &read_back, &got, &err));
    scores_equal(&sent, &got);
    ck_assert(got.features.first == 100000 && got.features.n == 2 && got.features.n_columns == 3);
    ck_assert_int_eq(got.features.dim, 16);
    ck_assert_mem_eq(got.features.rows, rows, n_sent * sizeof *rows);
    sent.features.n_columns = FEATURE_WISH_MAX + 2;
    sent.features.n = 1;
    CHECK_OK(score_reply_encode(&buf, &sent, &err));
    CHECK_ERR(score_reply_decode(buf.data, buf.len, &read_back, &got, &err), ERR_FORMAT,
              "features: columns is 10, must be 1 to 9");
    sent.features.n_columns = 1;
    sent.features.dim = 0;
    CHECK_OK(score_reply_encode(&buf, &sent, &err));
    CHECK_ERR(score_reply_decode(buf.data, buf.len, &read_back, &got, &err), ERR_FORMAT,
              "features: dim is 0, must be 1 to 1048576");
    /* 3 bytes of rows of 2 elements */
    static const uint8_t odd[] = {0x12, 9, 0x10, 1, 0x18, 2, 0x22, 3, 1, 2, 3};
    CHECK_ERR(score_reply_decode(odd, sizeof odd, &read_back, &got, &err), ERR_FORMAT,
              "features: rows has 3 bytes, must be a multiple of 4");
    ck_assert_int_eq(got.features.n, 0);
}
END_TEST

START_TEST(every_prefix_is_safe)
{
    sample_start("every_prefix");
    for (int i = 0; i < 6; i++) {
        arena_reset(&made);
        struct generate_reply reply = {.summary = summary_sample()}, got;
        CHECK_OK(generate_reply_encode(&buf, &reply, &err));
        for (size_t len = 0; len < buf.len; len++) { /* one field: no prefix is a message */
            uint8_t *cut = exact_copy(buf.data, len);
            arena_reset(&read_back);
            ck_assert_int_eq(generate_reply_decode(cut, len, &read_back, &got, &err), ERR_FORMAT);
            free(cut);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("generation_reply");
    TCase *tcase = tcase_create("generation_reply");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, reply_round_trip_keeps_every_field);
    tcase_add_test(tcase, score_round_trip_keeps_every_field);
    tcase_add_test(tcase, features_of_scores_keep_every_element);
    tcase_add_test(tcase, every_prefix_is_safe);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
