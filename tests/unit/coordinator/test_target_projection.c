/* ctest: labels=quick libs=coordinator,verifier timeout=120 */
/* From a worker with the fc of a head through gRPC to the head at the coordinator: the description
 * says which fc it is, the head wishes for projected rows where it is its own, and goes on from
 * them with the bits that it has from the features; a worker with another head leaves it these. */
#include "model/head_wish.h"
#include "tests/support/head_rig.h"
#include "tests/support/lone_rank.h"

enum { TOKENS = 12, ARENA = 64 << 20, DIM = 64, COLUMNS_MAX = 512 };

static const struct head_reading reading = {.n = 3, .boundaries = {1, 2, 3}};
static const int32_t blocks[] = {5}, head_blocks[] = {3};
static int32_t tokens[TOKENS + 1];
static struct arena arena;
static struct checkpoint *head;

static void open_rank(const char *name)
{
    struct error err;
    char path[512];
    lone_model = MODELS_FOLDER "/llama_untied";
    snprintf(path, sizeof path, "%s/%s", HEADS_FOLDER, name);
    CHECK_OK(checkpoint_open_head(&head, path, NULL, &err));
    lone_projection = head;
    lone_open(TOKENS);
    CHECK_OK(arena_open(&arena, ARENA, &err));
    for (int i = 0; i <= TOKENS; i++) {
        tokens[i] = (37 * i + 11) % lone.n_vocab;
    }
}

static void close_rank(void)
{
    lone_close();
    arena_close(&arena);
    checkpoint_close(head);
}

struct asked {
    struct step_lane lane;
    struct target_query query;
    struct target_question question;
    struct target_result result;
    struct target_cost cost;
};

/* The features of all tokens; they lie in the target until the next call. */
static void ask(struct asked *a, const struct feature_wish *wish)
{
    struct error err;
    *a = (struct asked){.lane = {.n_tokens = TOKENS,
                                 .tokens = tokens,
                                 .n_blocks = 1,
                                 .blocks = blocks,
                                 .n_features = TOKENS}};
    a->query = (struct target_query){.lanes = &a->lane, .n_lanes = 1, .features = *wish};
    arena_reset(&arena);
    CHECK_OK(target_verify_send(lone.target, &a->query, &arena, &a->question, &a->result, &a->cost,
                                &err));
    CHECK_OK(target_verify_merge(lone.target, &a->query, &arena, &a->question, &a->result, &a->cost,
                                 &err));
}

static void run_head(struct head_rig *rig, const uint16_t *rows, bool is_recycled, float *logits,
                     uint16_t *output)
{
    struct error err;
    const struct forward_lane lane = {
        .n_tokens = TOKENS, .tokens = tokens + 1, .blocks = head_blocks};
    const struct forward_features features = {rows, is_recycled ? 0 : TOKENS, rows};
    const struct forward_row row = {0, TOKENS - 1};
    CHECK_OK(model_forward_head(rig->model, &lane, &features, 1, &row, 1, &err));
    head_rig_take(rig, 0, TOKENS - 1, logits, output);
}

static const char *const heads[] = {"eagle3_flat", "eagle3_qwen3", "eagle3_whole"};
enum { N_HEADS = sizeof heads / sizeof *heads };

START_TEST(a_head_goes_on_from_what_a_worker_has_projected)
{
    struct asked a;
    struct head_rig own;
    struct feature_wish plain, projected;
    float want[COLUMNS_MAX], got[COLUMNS_MAX];
    uint16_t output[DIM], same[DIM];
    open_rank(heads[_i]);
    head_rig_open(&own, heads[_i], 1);
    const struct projection_key none = {0};
    const struct projection_key *held = &target_description(lone.target)->projection;
    ck_assert(!head_wish(&plain, own.model, &reading, &none));
    ck_assert(head_wish(&projected, own.model, &reading, held));
    ask(&a, &plain);
    ck_assert_int_eq(a.result.features[0].n, TOKENS * 3 * DIM);
    ck_assert_uint_eq(a.cost.feature_bytes, TOKENS * 3 * DIM * sizeof(uint16_t));
    run_head(&own, a.result.features[0].data, false, want, output);
    ask(&a, &projected);
    ck_assert_msg(!a.result.feature_error, "%s", a.result.feature_error);
    ck_assert_int_eq(a.result.features[0].n, TOKENS * DIM);
    ck_assert_uint_eq(a.cost.feature_bytes, TOKENS * DIM * sizeof(uint16_t));
    run_head(&own, a.result.features[0].data, true, got, same);
    ck_assert_mem_eq(got, want, (size_t)own.n_columns * sizeof *got);
    ck_assert_mem_eq(same, output, sizeof same);
    head_rig_close(&own);
    close_rank();
}
END_TEST

START_TEST(a_worker_with_another_head_sends_features_alone)
{
    struct asked a;
    struct head_rig own;
    struct feature_wish wish;
    open_rank("eagle3_parallel");
    head_rig_open(&own, "eagle3_flat", 1);
    const struct projection_key *held = &target_description(lone.target)->projection;
    ck_assert(held->digest != 0);
    ck_assert(!head_wish(&wish, own.model, &reading, held));
    ask(&a, &wish);
    ck_assert_int_eq(a.result.features[0].n, TOKENS * 3 * DIM);
    const struct projection_key mine = model_projection(own.model);
    ck_assert(head_wish(&wish, own.model, &reading, &mine));
    ask(&a, &wish); /* as a program would that does not ask what the worker has */
    ck_assert_int_eq(a.result.features[0].n, 0);
    ck_assert_msg(strstr(a.result.feature_error, "but this worker's --head is"), "%s",
                  a.result.feature_error);
    ck_assert(target_is_connected(lone.target) && !a.result.lane_errors[0]);
    head_rig_close(&own);
    close_rank();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("target_projection");
    TCase *tcase = tcase_create("projected features");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, a_head_goes_on_from_what_a_worker_has_projected, 0, N_HEADS);
    tcase_add_test(tcase, a_worker_with_another_head_sends_features_alone);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
