/* ctest: labels=quick libs=worker timeout=60 */
/* Checks of a lane's blocks where every layer has a window: KV as far back as the lane's rows see,
 * and nothing of the blocks before. */
#include "worker/slots.h"

#include "tests/support/check_util.h"

enum { N_SLOTS = 4, N_BLOCKS = 12, TABLE = 8, WINDOW = 8 };

static struct slots slots;
static struct error err;
static char why[ERROR_TEXT_BYTES];
static uint64_t step_id;
static const int32_t tokens[64];

static void open_slots(int window)
{
    step_id = 0;
    CHECK_OK(slots_open(&slots, N_SLOTS, N_BLOCKS, TABLE, window, &err));
}

/* Feeds positions first .. end of a slot, whose table goes on with blocks[n] from entry 0 on.
 * False: the lane is refused, and `why` says why. */
static bool feed(int slot, int first, int end, const int32_t *blocks, int n)
{
    const struct step_lane lane = {.slot = slot,
                                   .position = first,
                                   .n_tokens = end - first,
                                   .tokens = tokens,
                                   .n_blocks = n,
                                   .blocks = blocks};
    const struct shaped_lane shaped = {.lane = &lane};
    bool is_good = slots_check(&slots, &shaped, ++step_id, why);
    if (is_good) slots_take(&slots, &shaped, step_id);
    return is_good;
}

/* Two guesses side by side after one committed token; the second has a tail of one block. */
static bool feed_tree(int slot, int position, int32_t tail)
{
    static const int32_t parents[] = {-1, -1};
    const struct step_lane lane = {.slot = slot,
                                   .position = position,
                                   .n_tokens = 3,
                                   .tokens = tokens,
                                   .n_draft = 2,
                                   .parents = parents,
                                   .n_tails = 1,
                                   .tails = &tail};
    struct shaped_lane shaped = {.lane = &lane};
    CHECK_OK(tree_layout_init(&shaped.tree, parents, 2, &err));
    return slots_check(&slots, &shaped, ++step_id, why);
}

static const int32_t own[] = {0, 1, 2}, other[] = {0};

/* Slot 0 has read 40 tokens, and slot 1 begins a text in the block of the first 16. */
static void give_up_the_first_block(int window)
{
    open_slots(window);
    ck_assert(feed(0, 0, 40, own, 3));
    ck_assert(feed(1, 0, 5, other, 1));
}

START_TEST(a_block_before_the_window_may_be_another_slots)
{
    give_up_the_first_block(WINDOW);
    ck_assert_msg(feed(0, 40, 42, NULL, 0), "%s", why);
    ck_assert_msg(feed_tree(0, 42, 0), "%s", why);
    slots_close(&slots);
}
END_TEST

/* The table comes again, as it does when a path was accepted. */
START_TEST(a_table_may_begin_with_blocks_that_were_given_up)
{
    give_up_the_first_block(WINDOW);
    ck_assert_msg(feed(0, 40, 42, own, 3), "%s", why);
    slots_close(&slots);
}
END_TEST

START_TEST(without_a_window_no_block_may_be_anothers)
{
    give_up_the_first_block(0);
    ck_assert(!feed_tree(0, 40, 0));
    ck_assert_ptr_nonnull(strstr(why, "KV block 0 is in a tail of the lane's tree and in its"));
    ck_assert(!feed(0, 40, 42, own, 3));
    ck_assert_ptr_nonnull(strstr(why, "position 40 leaves a gap after the 5 known positions"));
    slots_close(&slots);
}
END_TEST

/* The rows at 22 and on see from position 15 on, which is in the first block. */
START_TEST(blocks_within_the_window_must_hold_kv)
{
    give_up_the_first_block(WINDOW);
    ck_assert(!feed(0, 22, 24, own, 3));
    ck_assert_ptr_nonnull(strstr(why, "position 22 leaves a gap after the 5 known positions"));
    ck_assert_msg(feed(0, 23, 25, own, 3), "%s", why);
    slots_close(&slots);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("slots");
    TCase *tcase = tcase_create("windows");
    tcase_add_test(tcase, a_block_before_the_window_may_be_another_slots);
    tcase_add_test(tcase, a_table_may_begin_with_blocks_that_were_given_up);
    tcase_add_test(tcase, without_a_window_no_block_may_be_anothers);
    tcase_add_test(tcase, blocks_within_the_window_must_hold_kv);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
