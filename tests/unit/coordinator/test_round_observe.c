/* ctest: labels=quick libs=coordinator,verifier timeout=120 */
/* Whole rounds with a real rank and a draft model that reads features: it sees those of every
 * committed token once and in order, with the bits that the text has in one step, whatever the
 * chunks of the prompt, what was reused of texts that begin alike, and evictions. The draft model
 * guesses nothing and writes down what it sees. */
#include <limits.h>

#include "coordinator/draft/drafters.h"
#include "coordinator/round/round.h"
#include "coordinator/schedule/places.h"
#include "tests/support/lone_rank.h"
#include "tests/support/sequence_world.h"

enum { N_PROMPT = 45, N_MADE = 6, CAPACITY = 128, DIM_MAX = 512, COLUMNS = 3, STEP_TOKENS = 16 };

static const struct feature_wish wish = {.n = 2, .boundaries = {1, 3}, .normed = true};

/* ---- the drafter ---- */

struct notes {
    int n_seen; /* tokens */
    uint16_t rows[CAPACITY * COLUMNS * DIM_MAX];
};

static struct notes notes[LONE_SLOTS];
static int n_known; /* tokens of a text's beginning that it knows when that gets a place */

static void begin(struct drafter *drafter, struct sequence *seq)
{
    (void)drafter;
    if (seq->n_draft_kv[0] == 0) seq->n_draft_kv[0] = n_known;
}

static int read(struct drafter *drafter, const struct draft_reading *readings, int n,
                struct error *err)
{
    (void)drafter, (void)readings, (void)n, (void)err;
    return 0;
}

static void forget(struct drafter *drafter, int slot)
{
    (void)drafter;
    notes[slot].n_seen = 0;
}

static int reserve(struct drafter *drafter, struct sequence *seq, int n_positions,
                   struct error *err)
{
    (void)drafter, (void)seq, (void)n_positions, (void)err;
    return 0;
}

static void propose(struct drafter *drafter, struct draft_lane *lanes, int n, struct arena *arena,
                    struct draft_cost *cost)
{
    (void)drafter, (void)arena;
    for (int i = 0; i < n; i++) {
        lanes[i].err.code = 0;
    }
    *cost = (struct draft_cost){0};
}

static void commit(struct drafter *drafter, struct sequence *seq)
{
    (void)drafter, (void)seq;
}

static int observe(struct drafter *drafter, struct sequence *seq,
                   const struct draft_features *features, struct error *err)
{
    struct notes *of = &notes[seq->slot];
    size_t row = COLUMNS * (size_t)features->dim;
    (void)drafter, (void)err;
    ck_assert_int_eq(features->n_columns, COLUMNS);
    if (of->n_seen == 0) of->n_seen = features->first; /* where the text got its place */
    ck_assert_int_le(of->n_seen, n_known);
    ck_assert_int_eq(features->first, of->n_seen);
    ck_assert_int_le(features->first + features->n, seq->n_tokens);
    memcpy(of->rows + (size_t)features->first * row, features->rows,
           (size_t)features->n * row * sizeof *of->rows);
    of->n_seen += features->n;
    seq->n_draft_kv[0] = of->n_seen;
    n_known = n_known > of->n_seen ? n_known : of->n_seen;
    return 0;
}

static const struct model_draft_ops ops = {.begin = begin,
                                           .read = read,
                                           .forget = forget,
                                           .reserve = reserve,
                                           .propose = propose,
                                           .commit = commit,
                                           .extra = {.observe = observe}};
static const struct drafter_row row_of_noter = {.name = "noter", .model = &ops};
static struct drafter noter = {
    .row = &row_of_noter, .n_vocab = LONE_VOCAB, .limit = INT_MAX, .features = &wish};

/* ---- a reply that nobody reads ---- */

static int take_tokens(struct reply *reply, const struct generate_tokens *tokens, struct error *err)
{
    (void)reply, (void)tokens, (void)err;
    return 0;
}

static void take_close(struct reply *reply)
{
    (void)reply;
}

static const struct reply_ops reply_ops = {.tokens = take_tokens, .close = take_close};
static struct reply no_reader = {.ops = &reply_ops};

/* ---- the coordinator ---- */

static struct tokenizer *tok;
static struct block_pool pool;
static struct drafters drafters = {.n_models = 1, .models = {&noter}};
static struct planner planner;
static struct scheduler scheduler;
static struct signals *signals;
static struct appended appended;
static struct round_tools tools;
static struct round *r;
static int32_t prompt[N_PROMPT];

static void flush(void *arg, bool has_time)
{
    (void)arg, (void)has_time;
}

static void setup(void)
{
    struct error err;
    const struct signals_options options = {.version = "1", .draft_name = ""};
    lone_open(STEP_TOKENS);
    CHECK_OK(tokenizer_open(&tok, LONE_TARGET, &err));
    CHECK_OK(block_pool_open(&pool, LONE_BLOCKS, KV_BLOCK_TOKENS, &err));
    CHECK_OK(signals_open(&signals, &options, &err));
    appended_begin(&appended, APPEND_OFF, &drafters, &planner);
    scheduler = (struct scheduler){.target = target_description(lone.target),
                                   .target_pool = &pool,
                                   .drafters = &drafters,
                                   .planner = &planner,
                                   .step_stretch = 2};
    tools = (struct round_tools){.target = lone.target,
                                 .drafters = &drafters,
                                 .appended = &appended,
                                 .target_pool = &pool,
                                 .planner = &planner,
                                 .scheduler = &scheduler,
                                 .tok = tok,
                                 .signals = signals,
                                 .flush_answers = flush};
    CHECK_OK(round_open(&r, &tools, &err));
    for (int i = 0; i < N_PROMPT; i++) {
        prompt[i] = (37 * i + 11) % 4000;
    }
    n_known = 0;
}

static void teardown(void)
{
    round_close(r);
    signals_close(signals);
    ck_assert_int_eq(block_pool_room(&pool), pool.n_blocks);
    block_pool_close(&pool);
    tokenizer_close(tok);
    lone_close();
}

static struct sequence *place(int slot, int n_prompt)
{
    struct error err;
    const struct sequence_defaults defaults = {.n_draft = 2,
                                               .strategy = STRATEGY_FIXED,
                                               .context_limit = CAPACITY,
                                               .vocab_size = LONE_VOCAB,
                                               .n_layers = lone.description.n_layers,
                                               .has_draft = true};
    struct job *job = new_job(JOB_GENERATE, prompt, n_prompt);
    job->reply = &no_reader;
    job->generate.ignore_eos = true;
    struct sequence *seq = first_sequence(job, tok, &defaults);
    CHECK_OK(places_give(seq, slot, &pool, &drafters, &err));
    sequence_admit(seq);
    return seq;
}

static void take_away(struct sequence *seq)
{
    places_withdraw(seq, &pool, &drafters);
    sequence_close(seq);
}

static void run_round(struct sequence **seqs, int n)
{
    struct error err;
    bool is_idle;
    CHECK_OK(round_run(r, seqs, n, &is_idle, &err));
    for (int i = 0; i < n; i++) {
        ck_assert(!seqs[i]->is_over && !seqs[i]->is_evicted && !seqs[i]->lost_draft[0]);
    }
}

/* Rounds until each text has N_MADE tokens more than its prompt. */
static void make(struct sequence **seqs, int n)
{
    for (int round = 0; round < 60; round++) {
        bool all = true;
        for (int i = 0; i < n; i++) {
            all = all && seqs[i]->n_tokens >= seqs[i]->n_prompt + N_MADE;
        }
        if (all) return;
        run_round(seqs, n);
    }
    ck_abort_msg("the texts do not go on");
}

/* The features of the whole text, in one step of a model of its own. */
static const uint16_t *reference(const struct sequence *seq, uint16_t *out)
{
    static const int32_t table[] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct error err;
    struct model *model;
    int n = seq->n_tokens, dim = lone.description.dim;
    const struct model_options options = {
        .n_kv_blocks = 8, .max_tokens = CAPACITY, .max_rows = 1, .max_lanes = 1};
    const struct forward_lane lane = {0, n, seq->tokens, table, NULL};
    CHECK_OK(model_open(&model, lone.ck, comm_single(), lone.be, &options, &err));
    CHECK_OK(model_keep_features(model, &wish, &err));
    CHECK_OK(model_forward(model, &lane, 1, NULL, 0, &err));
    for (int c = 0; c < COLUMNS; c++) {
        const uint16_t *rows = model_features(model, c, 0, n);
        for (int i = 0; i < n; i++) {
            memcpy(out + ((size_t)i * COLUMNS + (size_t)c) * (size_t)dim,
                   rows + (size_t)i * (size_t)dim, (size_t)dim * sizeof *out);
        }
    }
    model_close(model);
    return out;
}

/* The drafter has seen tokens `first` and on, all but the last, which the target has not read. */
static void expect_seen(const struct sequence *seq, int first)
{
    static uint16_t want[CAPACITY * COLUMNS * DIM_MAX];
    const struct notes *of = &notes[seq->slot];
    size_t row = COLUMNS * (size_t)lone.description.dim;
    reference(seq, want);
    ck_assert_int_eq(of->n_seen, seq->n_tokens - 1);
    for (int i = first; i < of->n_seen; i++) {
        ck_assert_msg(
            memcmp(of->rows + (size_t)i * row, want + (size_t)i * row, row * sizeof *want) == 0,
            "slot %d, token %d", seq->slot, i);
    }
}

START_TEST(every_token_of_a_chunked_prompt_and_its_answer_is_seen_once)
{
    struct sequence *seqs[2] = {place(0, N_PROMPT), place(1, 7)};
    make(seqs, 2);
    ck_assert_int_gt(lone.n_steps, N_PROMPT / STEP_TOKENS + N_MADE);
    for (int i = 0; i < 2; i++) {
        expect_seen(seqs[i], 0);
        take_away(seqs[i]);
    }
}
END_TEST

/* The second text reuses the blocks that the draft knows, and no others. */
START_TEST(a_reused_beginning_is_seen_from_where_the_draft_knows_it)
{
    static const int known[] = {0, 15, 16, 40, 200}, reused[] = {0, 0, 16, 32, 32};
    struct sequence *first = place(0, N_PROMPT);
    make(&first, 1);
    n_known = known[_i];
    struct sequence *second = place(1, N_PROMPT);
    ck_assert_int_eq(second->n_target_kv, reused[_i]);
    if (n_known > N_PROMPT - 1) second->n_draft_kv[0] = n_known = N_PROMPT - 1;
    make(&second, 1);
    expect_seen(second, reused[_i]);
    take_away(first);
    take_away(second);
}
END_TEST

/* The text loses its place in the middle of its prompt, or of its answer, and is read again. */
START_TEST(an_evicted_text_is_seen_again)
{
    struct error err;
    struct sequence *seq = place(0, N_PROMPT);
    for (int round = 0; round < (_i ? 5 : 2); round++) {
        run_round(&seq, 1);
    }
    ck_assert_int_gt(notes[0].n_seen, 0);
    places_evict(seq, &pool, &drafters);
    n_known = 0;
    CHECK_OK(places_give(seq, 2, &pool, &drafters, &err));
    ck_assert_int_eq(seq->n_target_kv, 0);
    make(&seq, 1);
    expect_seen(seq, 0);
    take_away(seq);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("round_observe");
    TCase *tcase = tcase_create("rounds");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, every_token_of_a_chunked_prompt_and_its_answer_is_seen_once);
    tcase_add_loop_test(tcase, a_reused_beginning_is_seen_from_where_the_draft_knows_it, 0, 5);
    tcase_add_loop_test(tcase, an_evicted_text_is_seen_again, 0, 2);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
