/* ctest: labels=quick libs=coordinator,verifier timeout=120 */
/* A head proves itself on texts of a real rank, in pieces and with interruptions, and what it has
 * shown is kept for the next start. The rank's replies are changed so that the head's guesses are
 * right: after each token the group says what the model has said after the one before, and that is
 * what the head's guess is, if its features are of the right tokens. */
#include "coordinator/engine/proving.h"

#include "base/system/file.h"
#include "base/system/file_write.h"
#include "coordinator/engine/proof_file.h"
#include "model/backend/open.h"
#include "model/checkpoint/checkpoint.h"
#include "tests/support/eagle1_writer.h"
#include "tests/support/lone_rank.h"

enum { STEP_TOKENS = 512, ROW_SLICES = 64 };

static struct error err;
static char dir[] = "/tmp/outrider-proving-XXXXXX";
static struct tokenizer *tok;
static struct head_proof *proof;
static struct proving *proving;
static struct block_pool pool;

static struct row_reply row;
static struct slice_row slices[ROW_SLICES];
static int32_t said, said_before;
static const char *refusal;

/* The best id of the only row; the slices are copied, so that another one can be made to win. */
static int32_t copy_row(const struct step_reply *reply)
{
    int best = 0;
    row = reply->rows[0];
    ck_assert_int_le(row.n_slices, ROW_SLICES);
    memcpy(slices, row.slices, (size_t)row.n_slices * sizeof *slices);
    row.slices = slices;
    for (int s = 1; s < row.n_slices; s++) {
        if (slices[s].n_best && slices[s].best_logits[0] > slices[best].best_logits[0]) best = s;
    }
    return slices[best].best_ids[0];
}

static void say_later(struct step_reply *reply, struct lane_features *lanes)
{
    static const float most = 1e30f;
    (void)lanes;
    int32_t best = copy_row(reply);
    said = said_before;
    said_before = best;
    int s = 0;
    while (s + 1 < row.n_slices && slices[s + 1].first_id <= said) {
        s++;
    }
    slices[s].n_best = 1;
    slices[s].best_ids = &said;
    slices[s].best_logits = &most;
    reply->rows = &row;
}

static void refuse_features(struct step_reply *reply, struct lane_features *lanes)
{
    (void)lanes;
    reply->n_features = 0;
    reply->feature_error = refusal;
}

static void open_all(float token, float feature)
{
    const struct backend_options how = {
        .device = "cpu", .weights = "bf16", .kernels = "auto", .n_threads = 1};
    const struct target_description *d = &lone.description;
    lone_open(STEP_TOKENS);
    strcpy(dir + strlen(dir) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    eagle1_write(dir, d->dim, LONE_VOCAB, token, feature);
    CHECK_OK(tokenizer_open(&tok, LONE_TARGET, &err));
    CHECK_OK(block_pool_open(&pool, LONE_BLOCKS, KV_BLOCK_TOKENS, &err));
    const struct head_proof_options options = {.folder = dir,
                                               .head = {.target = lone.ck},
                                               .n_layers = d->n_layers,
                                               .backend = how,
                                               .n_tokens_max = PROVING_TEXT_TOKENS,
                                               .every = 1};
    CHECK_OK(head_proof_open(&proof, &options, &err));
    struct chat_template *chat;
    CHECK_OK(chat_template_open(&chat, LONE_TARGET, NULL, &err));
    const struct proving_options how_to_prove = {
        .target = lone.target, .pool = &pool, .proof = proof, .tok = tok, .chat = chat};
    CHECK_OK(proving_open(&proving, &how_to_prove, &err));
    chat_template_close(chat);
}

static void close_all(void)
{
    proving_close(proving);
    ck_assert_int_eq(pool.n_free, LONE_BLOCKS);
    head_proof_close(proof);
    block_pool_close(&pool);
    tokenizer_close(tok);
    lone_close();
    eagle1_remove(dir);
}

/* Until the table is complete; with_rests: a request comes between any two pieces. */
static void prove(bool with_rests)
{
    bool is_done = false;
    int n_pieces = 0;
    while (!is_done) {
        CHECK_OK(proving_next(proving, &is_done, &err));
        n_pieces++;
        if (!with_rests) continue;
        proving_rest(proving);
        ck_assert_int_eq(pool.n_free, LONE_BLOCKS);
    }
    printf("%d pieces, %d steps\n", n_pieces, lone.n_steps);
}

START_TEST(a_head_that_guesses_right_is_proven)
{
    char text[HEAD_TRIAL_BYTES];
    open_all(0, 1);
    lone.spoil = say_later;
    prove(_i == 1);
    const struct head_table *table = head_proof_table(proof);
    for (int i = 0; i < table->n_trials; i++) {
        printf("%s\n", head_trial_show(table, i, text));
    }
    ck_assert_int_eq(table->n_trials, 2);
    ck_assert_int_ge(table->n_starts, PROVING_TOKENS - 8 * (HEAD_TABLE_GUESSES + 1));
    ck_assert_int_eq(table->chosen, 0);
    ck_assert_str_eq(table->trials[0].reading.name, "normed");
    ck_assert_int_eq(table->trials[0].n_right[0], table->n_starts);
    ck_assert_int_lt(table->trials[1].n_right[0], table->n_starts);
    ck_assert_int_eq(head_table_verdict(table), HEAD_PROVEN);
    close_all();
}
END_TEST

START_TEST(a_head_that_guesses_wrong_is_found_out)
{
    open_all(1, 0); /* it says the token that is there again */
    prove(false);
    ck_assert_int_eq(head_table_verdict(head_proof_table(proof)), HEAD_WRONG);
    close_all();
}
END_TEST

START_TEST(obstacles_are_said)
{
    bool is_done = false;
    open_all(0, 1);
    int last = -1, taken[LONE_BLOCKS], n = 0;
    while (pool.n_free > 0) {
        last = taken[n++] = block_pool_take(&pool, last);
    }
    CHECK_ERR(proving_next(proving, &is_done, &err), ERR_EXHAUSTED, "block");
    while (n > 0) {
        block_pool_give_back(&pool, taken[--n]);
    }
    refusal = "there is no room";
    lone.spoil = refuse_features;
    CHECK_ERR(proving_next(proving, &is_done, &err), ERR_INTERNAL, "there is no room");
    lone.spoil = NULL;
    CHECK_OK(proving_next(proving, &is_done, &err));
    close_all();
}
END_TEST

/* ---- the file ---- */

static struct proof_file file;

static void find_file(const struct target_description *group)
{
    CHECK_OK(proof_file_find(&file, dir, dir, head_proof_digest(proof), group, &err));
}

START_TEST(what_was_shown_is_kept)
{
    struct target_description other;
    open_all(0, 1);
    find_file(&lone.description);
    struct head_table empty = *head_proof_table(proof), read = empty;
    ck_assert_int_eq(proof_file_read(&file, &read, &err), ERR_NOT_FOUND);
    lone.spoil = say_later;
    prove(false);
    const struct head_table *table = head_proof_table(proof);
    CHECK_OK(proof_file_write(&file, table, &err));
    CHECK_OK(proof_file_read(&file, &read, &err));
    ck_assert_int_eq(read.n_starts, table->n_starts);
    ck_assert_int_eq(read.chosen, table->chosen);
    for (int i = 0; i < table->n_trials; i++) {
        ck_assert_mem_eq(read.trials[i].n_right, table->trials[i].n_right, sizeof(int[5]));
        ck_assert_mem_eq(read.trials[i].n_kept, table->trials[i].n_kept, sizeof(int[5]));
        ck_assert(read.trials[i].chance == table->trials[i].chance);
    }
    char path[sizeof file.path];
    strcpy(path, file.path);
    other = lone.description; /* another target has another file */
    other.model_fingerprint++;
    find_file(&other);
    ck_assert_str_ne(file.path, path);
    ck_assert_int_eq(proof_file_read(&file, &read, &err), ERR_NOT_FOUND);
    strcpy(file.path, path); /* and takes none that is not its own */
    CHECK_ERR(proof_file_read(&file, &read, &err), ERR_FORMAT, "holds version 1");
    unlink(path);
    close_all();
}
END_TEST

START_TEST(files_that_make_no_sense_are_refused)
{
    static const struct {
        const char *from, *to, *says;
    } wrong[] = {{"\"starts\":", "\"begins\":", "\"starts\""},
                 {"\"right\":[", "\"right\":[7777777,", "\"right\""},
                 {"\"kept\":[", "\"kept\":[1,", "\"kept\""},
                 {"\"normed\"", "\"narmed\"", "narmed"},
                 {"\"better\":", "\"better\":-1", "better"},
                 {"\"trials\":[", "\"trials\":[{},", "3 trials"},
                 {"{", "", ""}};
    open_all(0, 1);
    find_file(&lone.description);
    struct head_table table = *head_proof_table(proof);
    table.n_starts = 10;
    table.trials[0].n_right[0] = table.trials[1].n_better = 9;
    head_table_choose(&table);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *text, changed[8192];
        size_t len;
        struct head_table read = table;
        CHECK_OK(proof_file_write(&file, &table, &err));
        CHECK_OK(file_read_text(&text, &len, file.path, 1 << 20, &err));
        const char *at = strstr(text, wrong[i].from);
        ck_assert_ptr_nonnull(at);
        int n = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, wrong[i].to,
                         at + strlen(wrong[i].from));
        CHECK_OK(file_replace(file.path, changed, (size_t)n, &err));
        CHECK_ERR(proof_file_read(&file, &read, &err), ERR_FORMAT, wrong[i].says);
        ck_assert_mem_eq(&read, &table, sizeof read);
        free(text);
    }
    unlink(file.path);
    close_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proving");
    TCase *tcase = tcase_create("proofs");
    tcase_set_timeout(tcase, 110);
    tcase_add_loop_test(tcase, a_head_that_guesses_right_is_proven, 0, 2);
    tcase_add_test(tcase, a_head_that_guesses_wrong_is_found_out);
    tcase_add_test(tcase, obstacles_are_said);
    tcase_add_test(tcase, what_was_shown_is_kept);
    tcase_add_test(tcase, files_that_make_no_sense_are_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
