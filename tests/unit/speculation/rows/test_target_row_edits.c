/* ctest: labels=quick,slow libs=speculation timeout=120 */
/* Rows under edits against a slow reference: every rule and cut, rows and edits of many shapes. */
#include <stdio.h>

#include "tests/support/edited_rows.h"

enum { ROWS = 160 };

static int n_compared, n_on_edge, n_asked_again;

static void expect_row(enum accept_rule rule, const struct sampling_params *params, int n_slices,
                       const struct reference *ref, const char *where)
{
    static float p[VOCAB], raw[VOCAB];
    static int32_t ids[VOCAB];
    struct target_row row, full;
    n_asked_again += merged(rule, params, n_slices, false, &row);
    n_compared++;
    bool is_choice = rule == RULE_GREEDY || rule == RULE_COUPLED || params->temperature == 0;
    if (ref->edge < 1e-5) {
        n_on_edge++; /* a rounding of the slices' sums may cut elsewhere */
    } else if (is_choice) {
        int32_t wanted = reference_choice(ref, rule, params);
        if (row.n != 1 || row.ids[0] != wanted || row.p[0] != 1 ||
            row.logits[0] != logits[wanted] || row.outside_mass != 0) {
            ck_abort_msg("%s: %d chosen, not %d", where, (int)row.ids[0], (int)wanted);
        }
    } else {
        expect_p(&row, ref, where);
        bool is_wrong = fabs(row.entropy - ref->entropy) > 2e-3;
        if (rule == RULE_TYPICAL && is_wrong) {
            ck_abort_msg("%s: entropy %g, wanted %g", where, row.entropy, ref->entropy);
        }
    }
    memcpy(ids, row.ids, (size_t)row.n * sizeof *ids); /* the next merge takes the arena again */
    memcpy(p, row.p, (size_t)row.n * sizeof *p);
    memcpy(raw, row.logits, (size_t)row.n * sizeof *raw);
    row.ids = ids, row.p = p, row.logits = raw;
    if (merged(rule, params, n_slices, true, &full) != 0) ck_abort_msg("%s: not full", where);
    expect_same(&row, &full, where);
}

/* Every rule, with every kind of cut, over rows and edits of all shapes. */
static void expect_rows(int first, int end)
{
    static struct reference ref;
    for (int r = first; r < end; r++) {
        fill_logits(r);
        fill_edits(r);
        for (size_t k = 0; k < sizeof all_params / sizeof *all_params; k++) {
            for (int rule = 0; rule < RULE_COUNT; rule++) {
                struct sampling_params params = all_params[k];
                if (rule == RULE_GREEDY) params = (struct sampling_params){.top_p = 1};
                reference_fill(&ref, &params);
                if (ref.n == 0) continue;
                for (int n_slices = 1; n_slices <= SLICES; n_slices *= 2) {
                    char where[100];
                    snprintf(where, sizeof where, "row %d, %s, params %zu, %d slices", r,
                             accept_rule_names[rule], k, n_slices);
                    expect_row((enum accept_rule)rule, &params, n_slices, &ref, where);
                }
            }
        }
    }
}

START_TEST(edited_rows_equal_the_reference)
{
    expect_rows(_i * ROWS / 4, (_i + 1) * ROWS / 4);
    printf("rows %d, near an edge %d, asked again %d\n", n_compared, n_on_edge, n_asked_again);
    ck_assert_int_gt(n_compared, 8000);
    ck_assert_int_lt(n_on_edge, n_compared / 10);
    ck_assert_int_gt(n_asked_again, 100);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("target_row_edits");
    TCase *tcase = tcase_create("target_row_edits");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 100);
    tcase_add_loop_test(tcase, edited_rows_equal_the_reference, 0, 4);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
