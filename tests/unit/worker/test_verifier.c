/* ctest: labels=quick,threads libs=verifier,speculation timeout=120 */
/* The worker's engine without the wire: steps go through queues to ranks that are threads, as they
 * otherwise go through gRPC to ranks that are processes. Replies come back through a queue. */
#include <math.h>

#include "speculation/accept/rules.h"
#include "tests/support/verifier_group.h"

static const int32_t tokens[] = {2174, 708, 262, 515, 434, 311, 262, 486, 391, 342, 729, 2240, 15};
static const int32_t guesses[] = {273, 360, 342, 439};
static const int32_t blocks[] = {5, 3};
static const struct sampling_params plain = {.temperature = 1.0f, .top_p = 1.0f};

/* The prompt and four guesses in one step; q is uniform over a few tokens, including the guess. */
struct question {
    struct step_row rows[5];
    struct step_lane lane;
    struct step step;
    struct sparse_dist q[4];
    int32_t q_ids[4][4];
    float q_p[4][4];
    int32_t fed[17];
};

static void ask(struct question *question, enum accept_rule rule, bool full)
{
    *question = (struct question){0};
    memcpy(question->fed, tokens, sizeof tokens);
    memcpy(question->fed + 13, guesses, sizeof guesses);
    for (int i = 0; i < 5; i++) {
        const struct rng_address at = {77, (uint32_t)(13 + i), 13};
        struct sparse_dist *q = i < 4 ? &question->q[i] : NULL;
        for (int j = 0; q && j < 4; j++) {
            question->q_ids[i][j] = guesses[i] + j;
            question->q_p[i][j] = 0.25f;
            *q = (struct sparse_dist){4, question->q_ids[i], question->q_p[i]};
        }
        question->rows[i].index = 12 + i;
        const struct target_want want = {
            .rule = &accept_rules[rule], .params = &plain, .q = q, .at = at, .full_rows = full};
        target_row_wish(&want, &question->rows[i].wish);
    }
    question->lane = (struct step_lane){.slot = 1,
                                        .n_tokens = 17,
                                        .tokens = question->fed,
                                        .n_draft = 4,
                                        .n_blocks = 2,
                                        .blocks = blocks,
                                        .n_rows = 5,
                                        .rows = question->rows};
    question->step = (struct step){.n_lanes = 1, .lanes = &question->lane};
}

/* The target_rows of the query on n_ranks ranks, flattened for comparison. */
static void answer_on(int n_ranks, bool full, struct target_row rows[5], struct arena *arena)
{
    struct error err;
    struct group group;
    struct question question;
    struct slice_row slices[5 * SLICES_MAX];
    char refusal[ERROR_TEXT_BYTES] = "";
    int lane;
    bool more;
    group_open(&group, n_ranks);
    ask(&question, RULE_REJECTION, full);
    ck_assert_msg(group_step(&group, &question.step, slices, refusal, &lane) == 5, "%s", refusal);
    for (int i = 0; i < 5; i++) {
        const struct target_slices all = {&slices[i * group.n_slices], group.n_slices,
                                          group.n_vocab};
        const struct target_want want = {.rule = &accept_rules[RULE_REJECTION],
                                         .params = &plain,
                                         .q = i < 4 ? &question.q[i] : NULL,
                                         .at = question.rows[i].wish.at,
                                         .full_rows = full};
        CHECK_OK(
            target_row_merge(&all, &want, &question.rows[i].wish, arena, &rows[i], &more, &err));
        ck_assert(!more);
    }
    group_close(&group);
}

static void check_rows_equal(const struct target_row *a, const struct target_row *b)
{
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(a[i].n, b[i].n);
        ck_assert(a[i].n == 0 ||
                  (memcmp(a[i].ids, b[i].ids, (size_t)a[i].n * sizeof *a[i].ids) == 0 &&
                   memcmp(a[i].p, b[i].p, (size_t)a[i].n * sizeof *a[i].p) == 0));
        ck_assert(memcmp(&a[i].outside_mass, &b[i].outside_mass, sizeof a[i].outside_mass) == 0);
        ck_assert_int_eq(a[i].outside_id, b[i].outside_id);
    }
}

START_TEST(rows_do_not_depend_on_the_number_of_ranks)
{
    struct error err;
    struct arena arena;
    struct target_row one[5], many[5];
    CHECK_OK(arena_open(&arena, 4 << 20, &err));
    answer_on(1, false, one, &arena);
    ck_assert(one[0].outside_mass > 0 && one[0].outside_mass < 1);
    answer_on(_i, false, many, &arena);
    check_rows_equal(one, many);
    arena_close(&arena);
}
END_TEST

START_TEST(compact_and_full_rows_are_equal)
{
    struct error err;
    struct arena arena;
    struct target_row compact[5], full[5];
    CHECK_OK(arena_open(&arena, 4 << 20, &err));
    answer_on(2, false, compact, &arena);
    answer_on(2, true, full, &arena);
    check_rows_equal(compact, full);
    arena_close(&arena);
}
END_TEST

START_TEST(more_of_a_row_needs_no_forward_pass)
{
    struct group group;
    struct question question;
    struct slice_row first[5 * SLICES_MAX], more[SLICES_MAX];
    char refusal[ERROR_TEXT_BYTES] = "";
    int lane;
    float best[2];
    group_open(&group, 2);
    ask(&question, RULE_GREEDY, false);
    ck_assert_int_eq(group_step(&group, &question.step, first, refusal, &lane), 5);
    best[0] = first[2 * group.n_slices + 3].best_logits[0];
    const struct step_row row = {.index = 14, .wish = {.n_best = 7}};
    const struct step_more wanted = {.lane = 0, .n_rows = 1, .rows = &row};
    struct step step = {.n_more = 1, .more = &wanted};
    ck_assert_int_eq(group_step(&group, &step, more, refusal, &lane), 1);
    ck_assert_int_eq(more[3].n_best, 7);
    best[1] = more[3].best_logits[0];
    ck_assert(memcmp(&best[0], &best[1], sizeof best[0]) == 0);
    ck_assert(more[3].best_logits[6] <= more[3].best_logits[0]);

    const struct step_row missing = {.index = 2, .wish = {.n_best = 1}};
    const struct step_more no_row = {.lane = 0, .n_rows = 1, .rows = &missing};
    step = (struct step){.n_more = 1, .more = &no_row};
    ck_assert_int_eq(group_step(&group, &step, more, refusal, &lane), -1);
    ck_assert_ptr_nonnull(strstr(refusal, "row 2 was not in the last step"));
    group_close(&group);
}
END_TEST

/* Each case makes one thing wrong; every rank of the group refuses it, and the group goes on. */
static void break_slot(struct question *q)
{
    q->lane.slot = N_SLOTS;
}
static void break_gap(struct question *q)
{
    q->lane.position = 3;
}
static void break_token(struct question *q)
{
    q->fed[4] = 4096;
}
static void break_block(struct question *q)
{
    static const int32_t bad[] = {5, N_BLOCKS};
    q->lane.blocks = bad;
}
static void break_table(struct question *q)
{
    q->lane.first_block = 1;
}
static void break_reach(struct question *q)
{
    q->lane.n_blocks = 1;
}
static void break_row(struct question *q)
{
    q->rows[1].index = 17;
}
static void break_wish(struct question *q)
{
    q->q_ids[0][3] = 5000;
}

static void break_length(struct question *q)
{
    q->lane.n_tokens = 0;
}
static void break_position(struct question *q)
{
    q->lane.position = -1;
}
static void break_context(struct question *q)
{
    q->lane.position = INT32_MAX;
}

static const struct {
    void (*apply)(struct question *);
    const char *says;
} breaks[] = {
    {break_slot, "slot 4 does not exist"},
    {break_gap, "leaves a gap"},
    {break_token, "token 4096 is outside of the vocabulary of 4096"},
    {break_block, "KV block 16 does not exist"},
    {break_table, "do not continue the slot's table"},
    {break_reach, "need more than the 1 blocks given"},
    {break_row, "row 17 is wanted of 17 tokens"},
    {break_wish, "wished id 5000 is outside"},
    {break_length, "the lane has no tokens"},
    {break_position, "position -1 is negative"},
    {break_context, "exceed the context of"},
};

START_TEST(a_lane_that_makes_no_sense_is_named_and_harms_nobody)
{
    struct group group;
    struct question question;
    struct slice_row slices[5 * SLICES_MAX];
    char refusal[ERROR_TEXT_BYTES] = "";
    int lane = 99;
    group_open(&group, 2);
    ask(&question, RULE_REJECTION, false);
    breaks[_i].apply(&question);
    ck_assert_int_eq(group_step(&group, &question.step, slices, refusal, &lane), 0);
    expect_refused(&group, 0, breaks[_i].says);
    ask(&question, RULE_REJECTION, false);
    ck_assert_int_eq(group_step(&group, &question.step, slices, refusal, &lane), 5);
    ck_assert_int_eq(group.n_refused, 0);
    group_close(&group);
}
END_TEST

START_TEST(a_stale_step_is_refused)
{
    struct group group;
    struct question question;
    struct slice_row slices[5 * SLICES_MAX];
    char refusal[ERROR_TEXT_BYTES] = "";
    int lane;
    group_open(&group, 1);
    ask(&question, RULE_GREEDY, false);
    question.step.id = 9;
    ck_assert_int_eq(group_step(&group, &question.step, slices, refusal, &lane), 5);
    ck_assert_int_eq(group_step(&group, &question.step, slices, refusal, &lane), -1);
    ck_assert_ptr_nonnull(strstr(refusal, "step 9 is stale"));
    group_close(&group);
}
END_TEST

START_TEST(a_block_counts_as_written_once)
{
    struct error err;
    struct checkpoint *ck;
    struct backend *be;
    struct verifier *verifier;
    struct question question;
    struct step_reply reply;
    const struct backend_cpu_options cpu = {"auto", 1, WEIGHTS_BF16};
    CHECK_OK(checkpoint_open(&ck, TALES, &err));
    CHECK_OK(backend_cpu_open(&be, &cpu, &err));
    CHECK_OK(verifier_open(&verifier, ck, comm_single(), be, &verifier_options, &err));
    ck_assert_int_eq(verifier_blocks_written(verifier), 0);
    for (int again = 0; again < 2; again++) {
        ask(&question, RULE_GREEDY, false);
        question.step.id = 1 + (uint64_t)again;
        CHECK_OK(verifier_step(verifier, &question.step, &reply, &err));
        ck_assert_ptr_null(reply.error_text);
        ck_assert_int_eq(verifier_blocks_written(verifier), 2);
    }
    verifier_reset(verifier);
    ck_assert_int_eq(verifier_blocks_written(verifier), 0);
    verifier_close(verifier);
    be->ops->close(be);
    checkpoint_close(ck);
}
END_TEST

/* A device that is lost while an answer is awaited, as CUDA reports it. */
static int lost_answer(struct backend *be, const struct answer_item *items, int n_items,
                       struct arena *arena, struct slice_row *out, struct error *err)
{
    (void)be, (void)items, (void)n_items, (void)arena, (void)out;
    return error_set(err, ERR_UNAVAILABLE, "the GPU failed");
}

START_TEST(a_lost_device_ends_the_group_instead_of_refusing_a_step)
{
    struct error err;
    struct checkpoint *ck;
    struct backend *be;
    struct verifier *verifier;
    struct question question;
    struct step_reply reply;
    const struct backend_cpu_options cpu = {"auto", 1, WEIGHTS_BF16};
    CHECK_OK(checkpoint_open(&ck, TALES, &err));
    CHECK_OK(backend_cpu_open(&be, &cpu, &err));
    const struct backend_ops *ops = be->ops;
    struct backend_ops lost = *ops;
    lost.answer = lost_answer;
    CHECK_OK(verifier_open(&verifier, ck, comm_single(), be, &verifier_options, &err));
    ask(&question, RULE_GREEDY, false);
    question.step.id = 1;
    CHECK_OK(verifier_step(verifier, &question.step, &reply, &err));
    be->ops = &lost;
    question.step.id = 2;
    question.lane.n_blocks = 0;
    ck_assert_int_eq(verifier_step(verifier, &question.step, &reply, &err), ERR_UNAVAILABLE);
    be->ops = ops;
    verifier_close(verifier);
    be->ops->close(be);
    checkpoint_close(ck);
}
END_TEST

/* A real answer, but for the one row and slice that are spoilt: its logits become NaN first. */
enum { SPOILT_ROW = 1, SPOILT_SLICE = 3 };
static const struct backend_ops *sound_ops;

static int spoilt_answer(struct backend *be, const struct answer_item *items, int n_items,
                         struct arena *arena, struct slice_row *out, struct error *err)
{
    static float spoilt[4096];
    struct answer_item changed[N_SLOTS * SLICES_MAX];
    ck_assert_int_le(n_items, N_SLOTS * SLICES_MAX);
    memcpy(changed, items, (size_t)n_items * sizeof *items);
    struct answer_item *item = &changed[SPOILT_ROW * SLICES_MAX + SPOILT_SLICE];
    memcpy(spoilt, item->logits, (size_t)item->n_cols * sizeof *spoilt);
    spoilt[17] = NAN;
    item->logits = spoilt;
    return sound_ops->answer(be, changed, n_items, arena, out, err);
}

START_TEST(a_row_that_is_not_numbers_fails_alone)
{
    struct error err;
    struct checkpoint *ck;
    struct backend *be;
    struct verifier *verifier;
    struct step_reply reply;
    const struct backend_cpu_options cpu = {"auto", 1, WEIGHTS_BF16};
    const int32_t block[] = {7, 8};
    const struct step_row row = {.index = 12, .wish = {.n_best = 1}};
    const struct step_lane lanes[] = {{.slot = 0,
                                       .n_tokens = 13,
                                       .tokens = tokens,
                                       .n_blocks = 1,
                                       .blocks = &block[0],
                                       .n_rows = 1,
                                       .rows = &row},
                                      {.slot = 1,
                                       .n_tokens = 13,
                                       .tokens = tokens,
                                       .n_blocks = 1,
                                       .blocks = &block[1],
                                       .n_rows = 1,
                                       .rows = &row}};
    const struct step step = {.id = 1, .n_lanes = 2, .lanes = lanes};
    CHECK_OK(checkpoint_open(&ck, TALES, &err));
    CHECK_OK(backend_cpu_open(&be, &cpu, &err));
    sound_ops = be->ops;
    struct backend_ops spoiling = *sound_ops;
    spoiling.answer = spoilt_answer;
    CHECK_OK(verifier_open(&verifier, ck, comm_single(), be, &verifier_options, &err));
    be->ops = &spoiling;
    CHECK_OK(verifier_step(verifier, &step, &reply, &err));
    ck_assert_ptr_null(reply.error_text);
    ck_assert_int_eq(reply.n_rows, 2);
    ck_assert(!reply.rows[0].error_text && reply.rows[0].n_slices == SLICES_MAX);
    ck_assert_int_eq(reply.rows[0].slices[SPOILT_SLICE].n_best, 1);
    ck_assert_str_eq(reply.rows[1].error_text, "1 of the logits from id 1536 on are NaN or +inf");
    ck_assert(reply.rows[1].n_slices == 0 && !reply.rows[1].no_room);
    be->ops = sound_ops;
    verifier_close(verifier);
    be->ops->close(be);
    checkpoint_close(ck);
}
END_TEST

/* A rank of a large vocabulary whose rows are all so long that only some fit into a reply. */
static int long_answer(struct backend *be, const struct answer_item *items, int n_items,
                       struct arena *arena, struct slice_row *out, struct error *err)
{
    int rc = sound_ops->answer(be, items, n_items, arena, out, err);
    for (int i = 0; i < n_items && !rc; i++) {
        out[i].n_best = MESSAGE_BYTES_MAX / 8 / SLICES_MAX / 2 * 2 / 3; /* never read */
    }
    return rc;
}

START_TEST(rows_that_a_reply_has_no_room_for_can_be_asked_again)
{
    struct error err;
    struct checkpoint *ck;
    struct backend *be;
    struct verifier *verifier;
    struct question question;
    struct step_reply reply;
    const struct backend_cpu_options cpu = {"auto", 1, WEIGHTS_BF16};
    CHECK_OK(checkpoint_open(&ck, TALES, &err));
    CHECK_OK(backend_cpu_open(&be, &cpu, &err));
    sound_ops = be->ops;
    struct backend_ops long_ops = *sound_ops;
    long_ops.answer = long_answer;
    CHECK_OK(verifier_open(&verifier, ck, comm_single(), be, &verifier_options, &err));
    be->ops = &long_ops;
    ask(&question, RULE_GREEDY, false);
    question.step.id = 1;
    CHECK_OK(verifier_step(verifier, &question.step, &reply, &err));
    ck_assert_int_eq(reply.n_rows, 5);
    for (int r = 0; r < 5; r++) {
        bool fits = r < 2;
        ck_assert_int_eq(reply.rows[r].n_slices, fits ? SLICES_MAX : 0);
        ck_assert(reply.rows[r].no_room == !fits);
        if (fits) continue;
        ck_assert_ptr_nonnull(strstr(reply.rows[r].error_text, "would make the reply longer than"));
    }
    be->ops = sound_ops;
    const struct step_more wanted = {.lane = 0, .n_rows = 1, .rows = &question.rows[2]};
    const struct step more = {.id = 2, .n_more = 1, .more = &wanted};
    CHECK_OK(verifier_step(verifier, &more, &reply, &err));
    ck_assert(reply.n_rows == 1 && !reply.rows[0].error_text && !reply.error_text);
    verifier_close(verifier);
    be->ops->close(be);
    checkpoint_close(ck);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("verifier");
    TCase *tcase = tcase_create("ranks as threads");
    tcase_set_timeout(tcase, 280);
    tcase_add_loop_test(tcase, rows_do_not_depend_on_the_number_of_ranks, 2, 3);
    tcase_add_loop_test(tcase, rows_do_not_depend_on_the_number_of_ranks, 4, 5);
    tcase_add_test(tcase, compact_and_full_rows_are_equal);
    tcase_add_test(tcase, a_row_that_is_not_numbers_fails_alone);
    tcase_add_test(tcase, rows_that_a_reply_has_no_room_for_can_be_asked_again);
    tcase_add_test(tcase, more_of_a_row_needs_no_forward_pass);
    tcase_add_loop_test(tcase, a_lane_that_makes_no_sense_is_named_and_harms_nobody, 0,
                        sizeof breaks / sizeof *breaks);
    tcase_add_test(tcase, a_stale_step_is_refused);
    tcase_add_test(tcase, a_block_counts_as_written_once);
    tcase_add_test(tcase, a_lost_device_ends_the_group_instead_of_refusing_a_step);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
