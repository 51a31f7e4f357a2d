/* ctest: labels=quick libs=model timeout=60 */
/* The angles of a step's rows are those of their positions, whatever was fed before. */
#include <stdlib.h>
#include <string.h>

#include "model/placement.h"
#include "tests/support/check_util.h"

enum { HEAD = 16, HALF = HEAD / 2, ROPES = 2, ROWS_MAX = 8, FAR = 1 << 14 };

static struct model_config cfg = {.head_dim = HEAD, .max_positions = 3 * FAR};
static struct rope ropes[ROPES];

static void open(struct placement *p, int max_positions)
{
    struct error err;
    const struct rope_config wide = {.theta = 10000}, narrow = {.theta = 100, .rotary_dim = 8};
    cfg.max_positions = max_positions;
    CHECK_OK(rope_init(&ropes[0], &wide, HEAD, &err));
    CHECK_OK(rope_init(&ropes[1], &narrow, HEAD, &err));
    CHECK_OK(placement_open(p, &cfg, ropes, ROPES, ROWS_MAX, 2, &err));
}

/* Feeds n tokens at `position` and n at `other`, and looks at all angles. */
static void feed(struct placement *p, int position, int other, int n)
{
    static const int32_t tokens[ROWS_MAX], blocks[1];
    const struct forward_lane lanes[] = {{position, n, tokens, blocks, NULL},
                                         {other, n, tokens, blocks, NULL}};
    placement_set(p, lanes, NULL, 2, false);
    ck_assert_int_eq(p->n, 2 * n);
    for (int row = 0; row < 2 * n; row++) {
        int at = row < n ? position + row : other + row - n;
        for (int i = 0; i < ROPES; i++) {
            float cos[HALF] = {0}, sin[HALF] = {0};
            size_t first = (size_t)(row * ROPES + i) * HALF;
            rope_position(&ropes[i], at, cos, sin);
            ck_assert_mem_eq(p->cos + first, cos, sizeof cos);
            ck_assert_mem_eq(p->sin + first, sin, sizeof sin);
        }
    }
}

START_TEST(angles_are_those_of_the_positions)
{
    struct placement p;
    open(&p, 3 * FAR);
    feed(&p, 0, 5, 4);
    feed(&p, FAR, FAR + 5, 4);
    feed(&p, 0, FAR + 1, 4);
    feed(&p, 2 * FAR + 1, 1, 4);
    feed(&p, FAR - 2, 2 * FAR - 2, 4);
    placement_close(&p);
}
END_TEST

START_TEST(a_short_context_has_all_its_angles)
{
    struct placement p;
    open(&p, 7);
    feed(&p, 0, 3, 4);
    feed(&p, 6, 0, 1);
    feed(&p, 0, 3, 4);
    placement_close(&p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("step_placement");
    TCase *tc = tcase_create("angles");
    tcase_add_test(tc, angles_are_those_of_the_positions);
    tcase_add_test(tc, a_short_context_has_all_its_angles);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
