/* What is asked of the workers for a row. */
#include "speculation/rule.h"
#include "speculation/target_row.h"

/* The first try of a truncation without top-k; most nuclei are smaller. */
enum { FIRST_BEST = 64 };

void target_row_wish(const struct target_want *want, struct row_wish *wish)
{
    const struct sampling_params *params = want->params;
    *wish = (struct row_wish){.at = want->at};
    if (want->full_rows) {
        wish->full = true;
        return;
    }
    if (want->rule->is_greedy || params->temperature == 0) {
        rule_wish_best(want, wish);
        return;
    }
    wish->n_temperatures = 1;
    wish->temperatures[0] = params->temperature;
    if (sampling_truncates(params)) {
        wish->n_best = params->top_k > 0 ? params->top_k : FIRST_BEST;
        return;
    }
    want->rule->wish(want, wish);
}
