/* ctest: labels=quick,threads libs=verifier timeout=120 */
/* Look-ahead tokens in a lane: as guesses they are taken by a group whose ranks hold their
 * embeddings, and answered with the rows of tokens that have the same ones; as tokens of a text, as
 * wished ids, and beyond those that are held they are refused, and nothing of them is kept. */
#include "tests/support/look_ahead_folder.h"
#include "tests/support/verifier_group.h"

enum { COMMITTED = 13, GUESSES = 5, ROWS = GUESSES + 1, WIDTH = 256, N_AHEAD = 2 };

/* The chain 0 1 with the look-ahead tokens 2 3 after it, and 4 beside it. */
static const int32_t parents[GUESSES] = {-1, 0, 1, 2, -1};
static const int32_t text[COMMITTED + 2] = {2174, 708, 262, 515, 434, 311, 262, 486,
                                            391,  342, 729, 15,  273, 360, 342};
static const int32_t of_tokens[N_AHEAD] = {2240, 515}; /* their embeddings */
static const int32_t table[] = {5, 3}, spare[] = {1, 2}, tails[] = {8};

static char dir[LOOK_AHEAD_DIR_BYTES];
static struct look_ahead look_ahead;
static struct step_row rows[COMMITTED + GUESSES];
static int32_t tokens[COMMITTED + GUESSES];
static struct step_lane lane;

static void setup(void)
{
    struct error err;
    struct checkpoint *ck;
    struct weight embedding;
    static float values[N_AHEAD][WIDTH];
    CHECK_OK(checkpoint_open(&ck, group_model, &err));
    CHECK_OK(checkpoint_find(ck, "model.embed_tokens.weight", VOCAB, WIDTH, &embedding, &err));
    for (int i = 0; i < N_AHEAD; i++) {
        weight_read_f32(&embedding, of_tokens[i], 0, WIDTH, values[i]);
    }
    checkpoint_close(ck);
    look_ahead_make(dir, values[0], N_AHEAD, WIDTH);
    CHECK_OK(look_ahead_open(&look_ahead, dir, &err));
    group_look_ahead = &look_ahead;
}

static void teardown(void)
{
    look_ahead_close(&look_ahead);
    look_ahead_remove(dir);
}

/* The last n_wanted rows of a chain of tokens[n], of which n_draft are guesses. */
static void ask(int slot, const int32_t *blocks, int n, int n_draft, int n_wanted)
{
    lane = (struct step_lane){.slot = slot,
                              .n_tokens = n,
                              .tokens = tokens,
                              .n_draft = n_draft,
                              .n_blocks = (n + 15) / 16,
                              .blocks = blocks,
                              .n_rows = n_wanted,
                              .rows = rows};
    for (int i = 0; i < n_wanted; i++) {
        rows[i] = (struct step_row){.index = n - n_wanted + i, .wish = {.full = true}};
    }
}

static int run(struct group *group, float *logits)
{
    return group_logits(group, &lane, 1, logits);
}

/* The committed tokens, two guesses, and two tokens after them and one beside them: the look-ahead
 * tokens, or those that have their embeddings. */
static void write_tree(bool is_ahead)
{
    memcpy(tokens, text, sizeof text);
    tokens[COMMITTED + 2] = tokens[COMMITTED + 4] = is_ahead ? VOCAB : of_tokens[0];
    tokens[COMMITTED + 3] = is_ahead ? VOCAB + 1 : of_tokens[1];
}

static void ask_tree(int slot, const int32_t *blocks, const int32_t *tail)
{
    ask(slot, blocks, COMMITTED + GUESSES, GUESSES, ROWS);
    lane.parents = parents;
    lane.n_tails = 1;
    lane.tails = tail;
}

START_TEST(guesses_may_be_look_ahead_tokens)
{
    static const int32_t other_tail[] = {9};
    static float want[ROWS * VOCAB], got[ROWS * VOCAB];
    struct group group;
    group_open(&group, 1 << _i);
    write_tree(false);
    ask_tree(0, table, tails);
    ck_assert_int_eq(run(&group, want), ROWS);
    write_tree(true);
    ask_tree(1, spare, other_tail);
    ck_assert_int_eq(run(&group, got), ROWS);
    ck_assert_int_eq(group.n_refused, 0);
    ck_assert_mem_eq(got, want, sizeof want);
    group_close(&group);
}
END_TEST

/* In a chain, too, and the text goes on as if they had not been there. */
START_TEST(nothing_of_them_is_left)
{
    static float want[VOCAB], got[VOCAB], ignored[ROWS * VOCAB];
    struct group group;
    group_open(&group, 1 << _i);
    memcpy(tokens, text, sizeof text);
    ask(0, table, COMMITTED + 2, 0, 1);
    ck_assert_int_eq(run(&group, want), 1);
    tokens[COMMITTED] = VOCAB;
    tokens[COMMITTED + 1] = VOCAB + 1;
    ask(1, spare, COMMITTED + 2, 2, 3);
    ck_assert_int_eq(run(&group, ignored), 3);
    memcpy(tokens, text, sizeof text);
    lane = (struct step_lane){.slot = 1,
                              .position = COMMITTED,
                              .n_tokens = 2,
                              .tokens = tokens + COMMITTED,
                              .n_rows = 1,
                              .rows = rows};
    rows[0].index = 1;
    ck_assert_int_eq(run(&group, got), 1);
    ck_assert_int_eq(group.n_refused, 0);
    ck_assert_mem_eq(got, want, sizeof want);
    group_close(&group);
}
END_TEST

static void refuse(struct group *group, const char *says)
{
    static float ignored[ROWS * VOCAB];
    ck_assert_int_eq(run(group, ignored), 0);
    expect_refused(group, 0, says);
}

START_TEST(elsewhere_they_are_refused)
{
    static const int32_t wished[] = {VOCAB};
    struct group group;
    group_open(&group, 2);
    write_tree(true);
    ask(0, table, COMMITTED + 4, 1, 1);
    refuse(&group, "token 4096 is outside of the vocabulary of 4096"); /* fed, and no guess */
    ask(0, table, COMMITTED + 4, 0, 1);
    refuse(&group, "token 4096 is outside of the vocabulary of 4096");
    tokens[COMMITTED + 3] = VOCAB + N_AHEAD;
    ask_tree(0, table, tails);
    refuse(&group, "token 4098 is outside of the vocabulary of 4096");
    tokens[COMMITTED + 3] = -1;
    refuse(&group, "token -1 is outside");
    write_tree(true);
    ask_tree(0, table, tails);
    rows[2].wish = (struct row_wish){.n_ids = 1, .ids = wished};
    refuse(&group, "wished id 4096 is outside of the vocabulary of 4096");
    group_close(&group);
    group_look_ahead = NULL;
    group_open(&group, 1);
    ask_tree(0, table, tails);
    refuse(&group, "token 4096 is outside of the vocabulary of 4096");
    group_close(&group);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("verifier_look_ahead");
    TCase *tcase = tcase_create("verifier_look_ahead");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, guesses_may_be_look_ahead_tokens, 0, 3);
    tcase_add_loop_test(tcase, nothing_of_them_is_left, 0, 2);
    tcase_add_test(tcase, elsewhere_they_are_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
